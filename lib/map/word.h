/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MAP_WORD_H
#define GLK_MAP_WORD_H

/*
 * The state of an extent, one atomic word {generation:28, first grain:32, state:4}.
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

#define GLK_WORD_STATE UINT64_C(15)
#define GLK_WORD_PLACE ((UINT64_C(1) << 36) - 1) /* grain and state */
/* Of the generation; a model plants a mistake by redefining it. */
#ifndef GLK_WORD_STEP
#define GLK_WORD_STEP (UINT64_C(1) << 36)
#endif

static inline enum glk_extent_state glk_word_state(uint64_t word)
{
	return (enum glk_extent_state)(word & GLK_WORD_STATE);
}

/* Grain and state of an extent that begins at an offset in its span. */
static inline uint64_t glk_word_place(uint64_t offset, enum glk_extent_state state)
{
	return ((offset >> GLK_GRAIN_SHIFT) << 4 | (uint64_t)state) & GLK_WORD_PLACE;
}

/* Whether the extent is live and begins at an offset, which is one of a grain. */
static inline bool glk_word_live_at(uint64_t word, uint64_t offset)
{
	return !((word ^ glk_word_place(offset, GLK_EXTENT_LIVE)) & GLK_WORD_PLACE);
}

/* The word after a move of the owner. */
static inline uint64_t glk_word_next(
	uint64_t word, uint64_t offset, enum glk_extent_state state)
{
	if (state == GLK_EXTENT_LIVE)
		word += GLK_WORD_STEP;
	return (word & ~GLK_WORD_PLACE) | glk_word_place(offset, state);
}

/* The same for QUICK -> LIVE. */
static inline uint64_t glk_word_revived(uint64_t word)
{
	return (word + GLK_WORD_STEP) ^ GLK_EXTENT_QUICK ^ GLK_EXTENT_LIVE;
}

/* LIVE -> QUICK for the extent that begins at an offset, which is one of a grain; false if it
 * is not LIVE, begins elsewhere, or another free was first. The caller owns it afterwards. */
static inline bool glk_word_claim(glk_atomic(uint64_t) * word, uint64_t offset)
{
	/* pairs with: the release of the move to LIVE */
	uint64_t old = glk_load_acquire(word);

	if (!glk_word_live_at(old, offset))
		return false;
	return glk_cas_acq_rel(word, &old, old ^ GLK_EXTENT_LIVE ^ GLK_EXTENT_QUICK);
}

#endif
