/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_BASE_TIMES_H
#define GLK_BASE_TIMES_H

/*
 * How long calls took: counts in buckets whose bounds double, their sum and the longest. Bounds
 * are fixed, so that counts of two moments, and of two programs, can be compared.
 *
 * Writers	one at a time, under a lock of theirs: glk_times_add; or any: glk_times_share
 * Short calls	that are all alike are not timed each: one in GLK_TIMES_EACH stands for those that follow
 * Readers	any thread, without a lock. Each word only grows; sum and longest may lack a call
 *		that a bucket has already
 * Cost		some 20 instructions beside the reading of the counter
 */
#include "base/atomic.h"
#include "base/clock.h"

#include <stdbool.h>

#include <glake/figures.h>

/* The first has all below 128 ns, each next one what is below twice that, the last what is longer. */
#define GLK_TIMES_FIRST_BITS 7
/* So many are counted, so that none has to be compared with the last. */
#define GLK_TIMES_COUNTED (64 - GLK_TIMES_FIRST_BITS + 1)

#define GLK_TIMES_EACH 16

struct glk_times {
	glk_atomic(uint64_t) at[GLK_TIMES_COUNTED];
	glk_atomic(uint64_t) sum, longest; /* ns */
	glk_atomic(uint64_t)
		typical; /* ns of the last one that stands for others; 0: none does */
	glk_atomic(
		uint32_t) passed; /* calls since that were not timed, in no bucket yet */
	glk_atomic(uint32_t) moves; /* odd: they are on their way to one */
};

/*
 * ns of a tick of the processor's counter, in parts of 2^20; 0: not known yet. It is found out by how
 * far counter and clock have gone on since the library was first used, better each time it is asked.
 */
#define GLK_SCALE_BITS 20
extern glk_atomic(uint64_t) glk_times_scale;

/* Counter and clock at one moment, as near as a few readings allow: a thread may stand still between
 * two of them, for longer than what is compared lasts. */
void glk_times_both(int64_t *ret_ticks, int64_t *ret_ns);
/* Compares the counter with the clock. */
void glk_times_settle(void);
/* ns of so many ticks, whatever is known. */
uint64_t glk_times_ns_of(int64_t ticks) __attribute__((cold));

static inline uint64_t glk_times_ns(int64_t ticks)
{
	uint64_t scale = glk_load_relaxed(&glk_times_scale);

	/* also where counters of two processors differ, and for what would not fit */
	if (__builtin_expect(!scale || (uint64_t)ticks >> (63 - GLK_SCALE_BITS), 0))
		return glk_times_ns_of(ticks);
	return (uint64_t)ticks * scale >> GLK_SCALE_BITS;
}

static inline unsigned glk_times_bucket(uint64_t ns)
{
	uint64_t least = (UINT64_C(1) << GLK_TIMES_FIRST_BITS) - 1;

	return 64 - GLK_TIMES_FIRST_BITS - (unsigned)__builtin_clzll(ns | least);
}

/* All but the longest. */
static inline void glk_times_count(struct glk_times *times, uint64_t ns)
{
	glk_atomic(uint64_t) *at = &times->at[glk_times_bucket(ns)];

	glk_store_relaxed(at, glk_load_relaxed(at) + 1);
	glk_store_relaxed(&times->sum, glk_load_relaxed(&times->sum) + ns);
}

static inline void glk_times_note(struct glk_times *times, uint64_t ns)
{
	if (ns > glk_load_relaxed(&times->longest))
		glk_store_relaxed(&times->longest, ns);
}

static inline void glk_times_add(struct glk_times *times, uint64_t ns)
{
	glk_times_count(times, ns);
	glk_times_note(times, ns);
}

/* Whether the next short call is to be timed. Any thread. */
static inline bool glk_times_due(const struct glk_times *times)
{
	return glk_load_relaxed(&times->passed) >= GLK_TIMES_EACH - 1 ||
		!glk_load_relaxed(&times->typical);
}

/* So many that were not. */
static inline void glk_times_pass(struct glk_times *times, uint32_t calls)
{
	glk_store_relaxed(&times->passed, glk_load_relaxed(&times->passed) + calls);
}

/* One that was, and stands for those that follow; all but the longest. */
void glk_times_count_typical(struct glk_times *times, uint64_t ns);

/* From a time by glk_clock_ticks() until now. */
static inline void glk_times_since(struct glk_times *times, int64_t ticks)
{
	glk_times_add(times, glk_times_ns(glk_clock_ticks() - ticks));
}

/* Beside others. */
void glk_times_share(struct glk_times *times, uint64_t ns);

/* What a reader makes of it: the last bucket has all that are longer. */
void glk_times_read(const struct glk_times *times, struct glake_histogram *ret_sum);

#endif
