/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Random programs whose blocks move between tiers (mover/mover.h). GLAKE_TURNS says how many turns, a
 * million for a long run, GLAKE_TEST_TELL that each is told and looked at; a program that fails is told with the GLAKE_TEST_SEED that runs it first.
 */
#include "stress/mover/mover.h"

#include "seed.h"

#include <inttypes.h>

#define TURNS	STORM_SIZE(6000)
#define A_WORLD 400

int messages(const char **ret_last)
{
	*ret_last = tap.last_log;
	return tap.logs;
}

void messages_expected(void)
{
	tap_expect_log(tap.logs - tap.expected);
}

int main(void)
{
	const char *wanted = getenv("GLAKE_TURNS"), *wrong = NULL;
	uint64_t turns = wanted ? strtoull(wanted, NULL, 0) : TURNS, n = 0, seed;
	uint64_t moves = 0, refused = 0, struck = 0, packed = 0;
	static struct world w;

	if (tap_on_valgrind())
		turns = wanted ? turns : TURNS / 10;
	tap_plan(1);
	seed = seed_start();
	for (; n < turns && !wrong; seed++) {
		world_open(&w, seed);
		for (int i = 0; i < A_WORLD && !w.wrong && !w.lost; i++)
			turn(&w);
		n += w.turns;
		moves += w.moves;
		refused += w.refused;
		struck += w.struck_calls;
		packed += w.packed;
		world_close(&w);
		wrong = w.wrong;
		if (wrong)
			tap_note("GLAKE_TEST_SEED=%" PRIu64 ": %s", seed, wrong);
	}
	tap_note("%" PRIu64 " turns, %" PRIu64 " calls that move, %" PRIu64
		 " refused, in %" PRIu64 " the driver failed, %" PRIu64
		 " rests that compressed",
		n, moves, refused, struck, packed);
	ok(!wrong, "blocks that move are what was written, and all figures fit");
	return tap_done();
}
