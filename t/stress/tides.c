/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Threads whose blocks move beside each other (tide/tide.h). GLAKE_TURNS says how many worlds, 200 for a
 * long run; one that fails is told with the GLAKE_TEST_SEED that begins with it, though its threads may
 * meet otherwise the next time.
 */
#include "stress/tide/tide.h"

#include "seed.h"

#define WORLDS	 6
#define TURNS	 60 /* of each thread, between two meetings */
#define MEETINGS 4

int tides_warnings(void)
{
	return __atomic_load_n(&tap.logs, __ATOMIC_RELAXED) - tap.expected;
}

void tides_expected(void)
{
	tap_expect_log(tides_warnings());
}

void tides_bail(const char *why)
{
	tap_bail(why);
}

int main(void)
{
	const char *wanted = getenv("GLAKE_TURNS"), *wrong = NULL;
	uint64_t worlds = wanted ? strtoull(wanted, NULL, 0) : WORLDS, seed;
	uint64_t turns = 0, moves = 0, refused = 0, compared = 0, packed = 0;
	static struct world w;

	if (tap_on_valgrind() && !wanted)
		worlds = 1;
	tap_plan(1);
	seed = seed_start();
	for (uint64_t end = seed + worlds; seed < end && !wrong; seed++) {
		tides_open(&w, seed);
		tides_run(&w, TURNS, MEETINGS);
		for (unsigned i = 0; i < w.hands; i++) {
			turns += w.hand[i].turns;
			moves += w.hand[i].moves;
			refused += w.hand[i].refused;
			compared += w.hand[i].compared;
		}
		packed += w.packed;
		if (!glk_load_relaxed(&w.wrong))
			tides_close(&w);
		wrong = glk_load_relaxed(&w.wrong) ? w.text : NULL;
		if (wrong)
			tap_note("GLAKE_TEST_SEED=%" PRIu64 ": %s", seed, wrong);
	}
	tap_note("%" PRIu64 " turns, %" PRIu64 " calls that move, %" PRIu64
		 " refused, %" PRIu64 " blocks compared, %" PRIu64
		 " meetings with something compressed",
		turns, moves, refused, compared, packed);
	ok(!wrong,
		"blocks that move beside each other are what was written, and all figures fit");
	return tap_done();
}
