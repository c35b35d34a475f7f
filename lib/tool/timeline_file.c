/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The timeline as figures, for pictures that others draw: those of the first pass, in which a
 * job takes its memory, and of the last, which shows what it holds in its steady state.
 */
#include "tool/replay.h"

#include <errno.h>
#include <string.h>

static void put_pass(FILE *file, const struct replay_result *result, size_t pass,
	const struct replay_sample *samples)
{
	for (size_t i = 0; i < result->samples; i++)
		fprintf(file, "%zu,%u,%.6f,%llu,%llu\n", pass, samples[i].event,
			(double)result->trace->times_us[samples[i].event] / 1e6,
			(unsigned long long)samples[i].live,
			(unsigned long long)samples[i].reserved);
}

int replay_write_timeline(const struct replay_result *result, const char *path)
{
	FILE *file = fopen(path, "we");
	int err = 0;

	if (!file) {
		err = -errno;
	} else {
		fputs("pass,event,seconds,live,reserved\n", file);
		put_pass(file, result, 1, result->sample);
		if (result->repeats > 1)
			put_pass(file, result, result->repeats, result->last);
		if (ferror(file))
			err = -EIO;
		if (fclose(file) && !err)
			err = -errno;
	}
	if (err)
		glk_tool_say("%s: %s", path, strerror(-err));
	return err;
}
