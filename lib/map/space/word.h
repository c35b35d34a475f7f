/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MAP_WORD_H
#define GLK_MAP_WORD_H

/*
 * The state of an extent, one atomic word {generation:60, state:4}.
 *
 *	NONE -> FREE -carve-> LIVE -free-> QUICK -pop-> LIVE
 *				QUICK -give back-> FREE -merge-> NONE
 *
 * QUICK is an extent that was freed and still keeps its addresses and pages: it lies in a bin,
 * or is in the hands of one thread. Any thread may try LIVE -> QUICK, which is what free does
 * first; the compare-and-swap is the check for a double free, and whoever wins it owns the
 * extent. All other moves are made by the owner of the extent: who popped it from its bin, or
 * the holder of the lock of the GPU for FREE ones.
 *
 * The generation steps when an extent becomes LIVE, so that a free that was overtaken by
 * another free and a new request, at the same address or elsewhere, is refused: it read the
 * word first, and the address only then.
 *
 * Ordering	what the owner wrote before a move is seen by whoever makes the next one
 * Progress	wait-free
 */
#include "base/atomic.h"

#include <stdbool.h>
#include <stdint.h>

enum glk_extent_state {
	GLK_EXTENT_NONE = 0,
	GLK_EXTENT_FREE = 1,
	GLK_EXTENT_QUICK = 4,  /* freed, not merged with its neighbours yet */
	GLK_EXTENT_LIVE = 8,   /* alone has this bit */
};

#define GLK_WORD_STATE UINT64_C(15)
/* Of the generation; a model plants a mistake by redefining it. */
#ifndef GLK_WORD_STEP
#define GLK_WORD_STEP UINT64_C(16)
#endif

static inline enum glk_extent_state glk_word_state(uint64_t word)
{
	return (enum glk_extent_state)(word & GLK_WORD_STATE);
}

/* A move of the owner. */
static inline void glk_word_set(glk_atomic(uint64_t) * word, enum glk_extent_state state)
{
	uint64_t next = (glk_load_relaxed(word) & ~GLK_WORD_STATE) | (uint64_t)state;

	if (state == GLK_EXTENT_LIVE)
		next += GLK_WORD_STEP;
	glk_store_release(word, next); /* pairs with: glk_word_claim */
}

/* The same for QUICK -> LIVE. */
static inline void glk_word_revive(glk_atomic(uint64_t) * word)
{
	uint64_t next = (glk_load_relaxed(word) + GLK_WORD_STEP) ^ GLK_EXTENT_QUICK ^
		GLK_EXTENT_LIVE;

	glk_store_release(word, next); /* pairs with: glk_word_claim */
}

/* LIVE -> QUICK for the extent at an address, by its word and the address it stores; false if
 * it is not LIVE or lies elsewhere, or another free was first. The caller owns it afterwards. */
static inline bool glk_word_claim(
	glk_atomic(uint64_t) * word, glk_atomic(uint64_t) * at, uint64_t addr)
{
	/* pairs with: the release of the move to LIVE */
	uint64_t old = glk_load_acquire(word);

	if (glk_load_relaxed(at) != addr || !(old & GLK_EXTENT_LIVE))
		return false;
	return glk_cas_acq_rel(word, &old, old ^ GLK_EXTENT_LIVE ^ GLK_EXTENT_QUICK);
}

#endif
