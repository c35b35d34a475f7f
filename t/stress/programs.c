/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Random programs of streams, events, waits, requests, uses, frees and captures, judged by the
 * software device and by an oracle of happens-before. GLAKE_PROGRAMS says how many, a million
 * for a long run; a program that fails is told with the GLAKE_TEST_SEED that runs it first. With
 * GLAKE_VERIFY set the tables are compared after each step, which finds where they went wrong.
 */
#include "stress/program/program.h"

#include "seed.h"

#define PROGRAMS STORM_SIZE(10000)

/* Programs that share a context, so that they find memory of those before. */
#define A_WORLD 20

int main(void)
{
	const char *wanted = getenv("GLAKE_PROGRAMS"), *wrong = NULL;
	uint64_t programs = wanted ? strtoull(wanted, NULL, 0) : PROGRAMS, n = 0, seed;
	uint64_t requests = 0, refused = 0, captures = 0, launches = 0, judged = 0;
	struct world w;

	if (tap_one_thread_takes_long() && !wanted)
		programs = PROGRAMS / 10;
	tap_plan(1);
	seed = seed_start();
	while (n < programs && !wrong) {
		world_open(&w, seed + n);
		for (int i = 0; i < A_WORLD && n < programs && !wrong; i++, n++)
			wrong = program_run(&w, seed + n);
		judged += oracle_judged(w.oracle);
		requests += w.requests;
		refused += w.refused;
		captures += w.captures;
		launches += w.launches;
		if (wrong) {
			/* the world of a program is that of the first one in it */
			tap_note("GLAKE_TEST_SEED=%" PRIu64 ", after %" PRIu64
				 " programs: %s",
				seed + (n - 1) / A_WORLD * A_WORLD, n, wrong);
			break;
		}
		wrong = world_close(&w);
	}
	tap_note("%" PRIu64 " programs, %" PRIu64 " requests, %" PRIu64
		 " of them refused, %" PRIu64 " captures, %" PRIu64 " launches, %" PRIu64
		 " pieces of work judged",
		n, requests, refused, captures, launches, judged);
	ok(!wrong, "no work meets memory that other work may still use");
	return tap_done();
}
