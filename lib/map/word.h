/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MAP_WORD_H
#define GLK_MAP_WORD_H

/*
 * The state of an extent, one atomic word {first grain:32, generation:28, state:4}.
 *
 *	NONE -> FREE -carve-> LIVE -free-> QUICK -pop-> LIVE
 *				QUICK -merge-> FREE -> NONE	QUICK -park-> PARKED -> LIVE
 *
 * QUICK is an extent that was freed and still keeps its addresses and pages: it lies in a bin,
 * or is in the hands of one thread. Any thread may try LIVE -> QUICK, which is what free does
 * first; the compare-and-swap is the check for a double free, and whoever wins it owns the
 * extent. All other moves are made by the owner of the extent: who popped it from its bin, or
 * the holder of the lock of the GPU for FREE and PARKED ones.
 *
 * The generation steps when an extent becomes LIVE, so that a free that was overtaken by
 * another free and a new request of the same addresses is refused. The first grain, modulo
 * 2^32, lets one load tell whether an address is the beginning of the block.
 *
 * Ordering	what the owner wrote before a move is seen by whoever makes the next one
 * Progress	wait-free
 */
#include "base/atomic.h"

#include <stdbool.h>
#include <stdint.h>

#define GLK_GRAIN_SHIFT 9

enum glk_extent_state {
	GLK_EXTENT_NONE = 0,
	GLK_EXTENT_FREE = 1,
	GLK_EXTENT_LIVE = 2,
	GLK_EXTENT_PARKED = 3, /* contiguous, freed, still holds its page */
	GLK_EXTENT_QUICK = 4,  /* freed, not merged with its neighbours yet */
};

#define GLK_WORD_STATE	    UINT64_C(15)
#define GLK_WORD_GENERATION (((UINT64_C(1) << 28) - 1) << 4)
/* Of the generation; a model plants a mistake by redefining it. */
#ifndef GLK_WORD_STEP
#define GLK_WORD_STEP UINT64_C(16)
#endif

static inline enum glk_extent_state glk_word_state(uint64_t word)
{
	return (enum glk_extent_state)(word & GLK_WORD_STATE);
}

/* Whether the extent begins at an offset in its span. */
static inline bool glk_word_begins(uint64_t word, uint64_t offset)
{
	return word >> 32 == (uint32_t)(offset >> GLK_GRAIN_SHIFT) &&
		!(offset & ((1u << GLK_GRAIN_SHIFT) - 1));
}

/* The word after a move of the owner. */
static inline uint64_t glk_word_next(
	uint64_t word, uint64_t offset, enum glk_extent_state state)
{
	uint64_t generation = word & GLK_WORD_GENERATION;

	if (state == GLK_EXTENT_LIVE)
		generation = (generation + GLK_WORD_STEP) & GLK_WORD_GENERATION;
	return (offset >> GLK_GRAIN_SHIFT) << 32 | generation | (uint64_t)state;
}

/* LIVE -> QUICK for the extent that begins at an offset; false if it is not LIVE, begins
 * elsewhere, or another free was first. The caller owns it afterwards. */
static inline bool glk_word_claim(glk_atomic(uint64_t) *word, uint64_t offset)
{
	/* pairs with: the release of the move to LIVE */
	uint64_t old = glk_load_acquire(word);

	if (glk_word_state(old) != GLK_EXTENT_LIVE || !glk_word_begins(old, offset))
		return false;
	return glk_cas_acq_rel(word, &old, old ^ GLK_EXTENT_LIVE ^ GLK_EXTENT_QUICK);
}

#endif
