/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MAP_WORD_H
#define GLK_MAP_WORD_H

/*
 * The state of an extent, one atomic word {life:48, holders:12, state:4}.
 *
 *	NONE -> FREE -carve-> QUICK -enter-> LIVE -free-> QUICK -pop-> LIVE
 *		LIVE <-hold, let go-> HELD	QUICK -give back-> FREE -merge-> NONE
 *
 * QUICK is an extent that keeps its addresses and pages and is nobody's block: it was freed and
 * lies in a bin, or is in the hands of one thread. Any thread may try LIVE -> QUICK, which is what
 * free does first; the compare-and-swap is the check for a double free, and whoever wins it owns
 * the extent. All other moves to and from QUICK are made by the owner of the extent: who popped
 * it from its bin, or the holder of the lock of the GPU for FREE ones.
 *
 * HELD is a live block that threads are changing, each a little and all at once, see cache/block.c
 * and pin.c: as many as there are holders. It is refused to a free, and LIVE again with the last.
 *
 * The life steps when an extent becomes LIVE, and not when holders let it go. A free that was
 * overtaken by another free and a new request, at the same address or elsewhere, is refused: it
 * read the word first, and the address only then. Who reads what an extent is without owning
 * it reads the word before and after: see lookup.h.
 *
 * Ordering	what the owner or a holder wrote before a move is seen by whoever makes the next one
 * Progress	claim, reads and the owner's moves: wait-free. Holding and letting go: lock-free, no
 *		thread waits for another one (but for the 4096th holder at a time)
 */
#include "base/atomic.h"

#include <stdbool.h>
#include <stdint.h>

enum glk_extent_state {
	GLK_EXTENT_NONE = 0,
	GLK_EXTENT_FREE = 1,
	GLK_EXTENT_HELD =
		2, /* live, and not to be freed at the moment; alone has this bit */
	GLK_EXTENT_QUICK = 4, /* not merged with its neighbours yet */
	GLK_EXTENT_LIVE = 8,  /* alone has this bit */
};

#define GLK_WORD_STATE	 UINT64_C(15)
#define GLK_WORD_HOLDER	 UINT64_C(16)
#define GLK_WORD_HOLDERS UINT64_C(0xfff0)
#define GLK_WORD_LIFE	 16
/* Of the life; a model plants a mistake by redefining it. */
#ifndef GLK_WORD_STEP
#define GLK_WORD_STEP (UINT64_C(1) << GLK_WORD_LIFE)
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
	uint64_t next = glk_load_relaxed(word) + GLK_WORD_STEP - GLK_EXTENT_QUICK +
		GLK_EXTENT_LIVE;

	glk_store_release(word, next); /* pairs with: glk_word_claim */
}

/* LIVE -> QUICK for the extent at an address, by its word and the address it stores; false if
 * it is not LIVE or lies elsewhere, or another free was first. The caller owns it afterwards. */
static inline bool glk_word_claim(
	glk_atomic(uint64_t) * word, glk_atomic(uint64_t) * at, uint64_t addr)
{
	/* the swap finds no other state; pairs with: the release of the move to LIVE */
	uint64_t old = glk_load_acquire(word) | GLK_EXTENT_LIVE;

	return glk_load_relaxed(at) == addr &&
		glk_cas_acq_rel(word, &old, old - GLK_EXTENT_LIVE + GLK_EXTENT_QUICK);
}

/* One holder more for the live extent at an address; false as glk_word_claim(). */
static inline bool glk_word_hold(
	glk_atomic(uint64_t) * word, glk_atomic(uint64_t) * at, uint64_t addr)
{
	/* pairs with: the release of the move to LIVE, and glk_word_let_go */
	uint64_t old = glk_load_acquire(word), next;

	do {
		if (glk_load_relaxed(at) != addr ||
			!(old & (GLK_EXTENT_LIVE | GLK_EXTENT_HELD)))
			return false;
		if ((old & GLK_WORD_HOLDERS) == GLK_WORD_HOLDERS)
			old -= GLK_WORD_HOLDER; /* that is not what is there */
		next = (old & ~GLK_WORD_STATE) + GLK_WORD_HOLDER + GLK_EXTENT_HELD;
	} while (!glk_cas_acq_rel(word, &old, next));
	return true;
}

/* One holder less; what they wrote is seen by who claims it. */
static inline void glk_word_let_go(glk_atomic(uint64_t) * word)
{
	uint64_t old = glk_load_relaxed(word), next;

	do {
		next = old - GLK_WORD_HOLDER;
		if (!(next & GLK_WORD_HOLDERS))
			next ^= GLK_EXTENT_HELD ^ GLK_EXTENT_LIVE;
	} while (!glk_cas_acq_rel(
		word, &old, next)); /* pairs with: glk_word_claim, _hold */
}

/* The first look at an extent that is not the caller's: whether it is live, and which life that
 * is. What it has then is to be read with acquires, and was written with releases. */
static inline bool glk_word_look(glk_atomic(uint64_t) * word, uint64_t *ret_life)
{
	/* pairs with: the release of the move to LIVE */
	uint64_t now = glk_load_acquire(word);

	*ret_life = now >> GLK_WORD_LIFE;
	return now & (GLK_EXTENT_LIVE | GLK_EXTENT_HELD);
}

/*
 * The second look: whether all that was read in between is of that life. If any of it had been
 * written after that life, then after the claim that ended it: the acquire of that read pairs with
 * the release of the write, and the claim is seen here.
 */
static inline bool glk_word_is_still(glk_atomic(uint64_t) * word, uint64_t life)
{
	uint64_t now = glk_load_relaxed(word);

	return now >> GLK_WORD_LIFE == life &&
		(now & (GLK_EXTENT_LIVE | GLK_EXTENT_HELD));
}

#endif
