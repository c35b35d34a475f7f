/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Times of calls, and how long a tick of the processor's counter is: see times.h. */
#include "base/times.h"

#include <stdbool.h>

/* For how long, ns, counter and clock are compared at the least: reading both takes a thousandth
 * of it. */
#define LEAST INT64_C(50000)
/* How often both are read at a time. */
#define READINGS 6

glk_atomic(uint64_t) glk_times_scale;

enum { NONE, BEGUN, KNOWN };

static glk_atomic(uint32_t) origin;
static glk_atomic(int64_t) origin_ticks, origin_ns;

void glk_times_both(int64_t *ret_ticks, int64_t *ret_ns)
{
	uint64_t nearest = INT64_MAX;
	int64_t before, ns, apart;

	for (unsigned i = 0; i < READINGS; i++) {
		before = glk_clock_ticks();
		ns = glk_clock_ns();
		apart = glk_clock_ticks() - before;
		/* one below 0 is further than any */
		if ((uint64_t)apart >= nearest)
			continue;
		nearest = (uint64_t)apart;
		*ret_ticks = before + apart / 2;
		*ret_ns = ns;
	}
	/* a counter that only goes back */
	if (nearest == INT64_MAX) {
		*ret_ticks = before;
		*ret_ns = ns;
	}
}

/* The first who asks says from when on they are compared. */
static bool begin(void)
{
	int64_t ticks, ns;
	uint32_t none = NONE;

	/* pairs with: the release below */
	if (glk_load_acquire(&origin) == KNOWN)
		return true;
	if (!glk_cas_acq_rel(&origin, &none, BEGUN))
		return false;
	glk_times_both(&ticks, &ns);
	glk_store_relaxed(&origin_ticks, ticks);
	glk_store_relaxed(&origin_ns, ns);
	glk_store_release(&origin, KNOWN); /* pairs with: the acquire above */
	return false;
}

/* By how far both have gone on; false: the counter is not known to. */
static bool compare(int64_t *ret_ticks, int64_t *ret_ns)
{
	if (!begin())
		return false;
	glk_times_both(ret_ticks, ret_ns);
	*ret_ticks -= glk_load_relaxed(&origin_ticks);
	*ret_ns -= glk_load_relaxed(&origin_ns);
	return *ret_ticks > 0 && *ret_ns > 0;
}

void glk_times_settle(void)
{
	int64_t ticks, ns;
	double scale;

	if (!compare(&ticks, &ns) || ns < LEAST)
		return;
	scale = (double)ns / (double)ticks * (double)(UINT64_C(1) << GLK_SCALE_BITS) +
		0.5;
	/* a tick is shorter than 2 ns, or the counter does not go on as it should */
	if (scale >= 1 && scale < (double)(UINT64_C(2) << GLK_SCALE_BITS))
		glk_store_relaxed(&glk_times_scale, (uint64_t)scale);
}

uint64_t glk_times_ns_of(int64_t ticks)
{
	int64_t passed, ns;

	if (ticks <= 0)
		return 0;
	if (!glk_load_relaxed(&glk_times_scale))
		glk_times_settle();
	if (!compare(&passed, &ns))
		return (uint64_t)ticks;
	return (uint64_t)((double)ticks / (double)passed * (double)ns);
}

void glk_times_share(struct glk_times *times, uint64_t ns)
{
	uint64_t longest = glk_load_relaxed(&times->longest);

	glk_add_relaxed(&times->at[glk_times_bucket(ns)], 1);
	glk_add_relaxed(&times->sum, ns);
	while (ns > longest && !glk_cas_weak_relaxed(&times->longest, &longest, ns))
		;
}

/* Who reads meanwhile does so again. What has passed was as the one before this, as whoever read it was told. */
void glk_times_count_typical(struct glk_times *times, uint64_t ns)
{
	uint64_t typical = glk_load_relaxed(&times->typical);
	uint64_t passed = glk_load_relaxed(&times->passed);
	uint32_t moves = glk_load_relaxed(&times->moves);
	glk_atomic(uint64_t) *at = &times->at[glk_times_bucket(typical)];

	/* pairs with: the acquires in read_once, for each of these */
	glk_store_relaxed(&times->moves, moves + 1);
	glk_store_release(at, glk_load_relaxed(at) + passed);
	glk_store_release(&times->sum, glk_load_relaxed(&times->sum) + passed * typical);
	glk_store_release(&times->typical, ns ? ns : 1);
	glk_store_release(&times->passed, 0);
	glk_store_release(&times->moves, moves + 2);
	glk_times_count(times, ns);
}

/* Whether none that had passed went to its bucket meanwhile. */
static bool read_once(const struct glk_times *times, struct glake_histogram *ret_sum)
{
	/* pairs with: the releases in glk_times_count_typical */
	uint32_t moves = glk_load_acquire(&times->moves);
	uint64_t typical = glk_load_acquire(&times->typical);
	uint32_t passed = glk_load_acquire(&times->passed);
	struct glake_histogram sum = {
		.sum = glk_load_acquire(&times->sum) + passed * typical,
		.longest = glk_load_relaxed(&times->longest),
	};

	for (unsigned i = 0; i < GLK_TIMES_COUNTED; i++) {
		unsigned to =
			i < GLAKE_HISTOGRAM_BUCKETS ? i : GLAKE_HISTOGRAM_BUCKETS - 1;
		uint64_t count = glk_load_acquire(&times->at[i]) +
			(i == glk_times_bucket(typical) ? passed : 0);

		sum.at[to] += count;
		sum.count += count;
	}
	*ret_sum = sum;
	return !(moves & 1) && glk_load_relaxed(&times->moves) == moves;
}

/* Times that it is read at the most: who writes it may stand still. */
#define TRIES 100

void glk_times_read(const struct glk_times *times, struct glake_histogram *ret_sum)
{
	for (unsigned i = 0; !read_once(times, ret_sum) && i < TRIES; i++)
		;
}
