/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_SEED_H
#define GLK_SEED_H

/*
 * Random numbers that can be had again: the seed is GLAKE_TEST_SEED, which t/soak draws, else 1, and is
 * printed. xorshift64*, one state a thread.
 */
#include "tap.h"

static inline uint64_t seed_start(void)
{
	const char *given = getenv("GLAKE_TEST_SEED");
	uint64_t seed = given ? strtoull(given, NULL, 0) : 1;

	tap_note("GLAKE_TEST_SEED=%" PRIu64, seed);
	return seed;
}

/* How much of a storm is played: all of it in real time. Under the scheduler, where each step is another
 * interleaving and a failure comes again, a tenth; other seeds are for t/soak. */
#ifdef GLK_SCHED
#define STORM_SIZE(n) (((n) + 9) / 10)
#else
#define STORM_SIZE(n) (n)
#endif

/* A state of its own for thread `n`; never 0, at which the generator would stay. */
static inline uint64_t seed_thread(uint64_t seed, unsigned n)
{
	return (seed ^ ((uint64_t)n + 1) * UINT64_C(0x9e3779b97f4a7c15)) | 1;
}

static inline uint64_t seed_next(uint64_t *state)
{
	uint64_t x = *state;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	*state = x;
	return x * UINT64_C(0x2545f4914f6cdd1d);
}

/* From 0 to below `n`, which is not 0. */
static inline uint64_t seed_below(uint64_t *state, uint64_t n)
{
	return (seed_next(state) >> 11) % n;
}

#endif
