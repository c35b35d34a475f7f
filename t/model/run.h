/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MODEL_RUN_H
#define GLK_MODEL_RUN_H

/*
 * Runs a model under relacy and says in TAP whether it went as the build expects: clean as it
 * is, refuted with a planted mistake. Included after the header under test, which brings
 * relacy in. t/model/meson.build defines MODEL_SCHEDULES, MODEL_MISTAKE and MODEL_WHAT.
 */
#include <cstdio>
#include <ostream>
#include <streambuf>

template <typename model> int model_run()
{
	struct null_buffer : std::streambuf {
		int overflow(int c)
		{
			return c;
		}
	} nowhere;
	std::ostream silent(&nowhere);
	rl::test_params params;
	bool clean;

	params.iteration_count = MODEL_SCHEDULES;
	params.output_stream = &silent;
	params.progress_stream = &silent;
	rl::simulate<model>(params);
	clean = params.test_result == rl::test_result_success;

	std::printf("TAP version 13\n1..1\n");
	std::printf("%sok 1 - %s\n", clean == !MODEL_MISTAKE ? "" : "not ", MODEL_WHAT);
	if (clean)
		std::printf(
			"# clean in %u schedules\n", (unsigned)params.iteration_count);
	else
		std::printf("# schedule %u: %s\n", (unsigned)params.stop_iteration,
			rl::test_result_str(params.test_result));
	return clean != !MODEL_MISTAKE;
}

#endif
