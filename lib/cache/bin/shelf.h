/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_SHELF_H
#define GLK_CACHE_SHELF_H

/*
 * The shelf of a stream: the last few blocks above policy.bins that were freed on it between two others, whole. A
 * free would leave each of them as a free extent of its very size, which best fit has for the next request of
 * that size: so nothing is lost where such a request takes it from here, without the lock. When something beside one
 * becomes free it merges as well. It does so too when its stream finds no place, and with what lies in bins.
 *
 * Places	a word each: 0, or the number of an extent and its grains, which stay as they are as long as it is
 *		there. So who finds a word there again has found the same block
 * Writers	under the lock, but for who takes a block for a request: by a compare-and-swap, from any thread
 * Ordering	what was written before a block was put here is seen by who takes it
 * Progress	lock-free, without a second try: a place that another thread was faster at is passed
 */
#include "base/atomic.h"
#include "base/idstack.h"

#include <stdbool.h>
#include <stdint.h>

/* A cache line of them. */
#ifndef GLK_SHELF
#define GLK_SHELF 8
#endif

struct glk_shelf {
	glk_atomic(uint64_t) place[GLK_SHELF];
};

/* Takes a block of a size; 0: there is none. Any thread. */
static inline uint32_t glk_shelf_take(struct glk_shelf *shelf, uint64_t grains)
{
	for (unsigned i = 0; i < GLK_SHELF; i++) {
		uint64_t word = glk_load_relaxed(&shelf->place[i]);

		/* pairs with: the release in put */
		if (word >> GLK_ID_BITS == grains &&
			glk_cas_acq_rel(&shelf->place[i], &word, 0))
			return (uint32_t)(word & GLK_ID_MASK);
	}
	return 0;
}

/* ---- Under the lock ---- */

/* Takes one that is known to have been there; false: it was taken meanwhile. */
static inline bool glk_shelf_drop(struct glk_shelf *shelf, uint64_t grains, uint32_t id)
{
	for (unsigned i = 0; i < GLK_SHELF; i++) {
		uint64_t word = grains << GLK_ID_BITS | id;

		if (glk_load_relaxed(&shelf->place[i]) == word)
			return glk_cas_acq_rel(&shelf->place[i], &word, 0);
	}
	return false;
}

/* Takes what is at a place; 0: nothing. */
static inline uint32_t glk_shelf_clear(struct glk_shelf *shelf, unsigned i)
{
	if (!glk_load_relaxed(&shelf->place[i]))
		return 0;
	/* pairs with: the release in put */
	return (uint32_t)(glk_xchg_acq_rel(&shelf->place[i], 0) & GLK_ID_MASK);
}

/* Puts a block at a free place, or at the one whose turn it is, of which it gives what was there; 0: nothing. */
static inline uint32_t glk_shelf_put(
	struct glk_shelf *shelf, uint32_t *turn, uint64_t grains, uint32_t id)
{
	unsigned i = 0;

	while (i < GLK_SHELF && glk_load_relaxed(&shelf->place[i]))
		i++;
	if (i == GLK_SHELF)
		i = (*turn)++ % GLK_SHELF;
	/* pairs with: the acquire of who takes it */
	return (uint32_t)(glk_xchg_acq_rel(&shelf->place[i], grains << GLK_ID_BITS | id) &
		GLK_ID_MASK);
}

#endif
