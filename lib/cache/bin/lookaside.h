/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_LOOKASIDE_H
#define GLK_CACHE_LOOKASIDE_H

/*
 * The lookaside list of a stream: the last few blocks above policy.bins that were freed on it between two others,
 * whole. A free would leave each of them as a free extent of its very size, which best fit has for the next request
 * of that size: so nothing is lost where such a request takes it from here, without the lock. When something beside
 * one becomes free it merges as well. It does so too when its stream finds no place, and with what lies in bins. With a
 * target below 1.05 none is kept: later passes of recorded jobs would take the driver 1.2 to 6 times as long at 1.005.
 *
 * Keys		the size of a block in grains, and in five bits above it the number of the arena that it lies in: see
 *		bin/own.c
 * Places	a word each: 0, or the number of an extent and its key, which stay as they are as long as it is
 *		there. So who finds a word there again has found the same block
 * Ticks	of the free that put it there: nobody used it since, and what others know of that free holds still
 * Kinds	a byte a place, of the size that lies there, as a rule: one look tells who finds none of his size
 * Writers	under the lock, or the part of it that is the arena's, but for who takes a block for a request: by a compare-and-swap, from any thread
 * Ordering	what was written before a block was put here is seen by who takes it
 * Progress	lock-free, without a second try: a place that another thread was faster at is passed
 */
#include "base/atomic.h"
#include "base/idstack.h"

#include <stdbool.h>
#include <stdint.h>

#ifndef GLK_LOOKASIDE
#define GLK_LOOKASIDE 8 /* bytes of a word, at most */
#endif

/* Bits of the size: no GPU has so many grains. */
#define GLK_LOOKASIDE_GRAINS (64 - GLK_ID_BITS - 5)

static inline uint64_t glk_lookaside_key(uint64_t grains, uint32_t arena)
{
	return (uint64_t)arena << GLK_LOOKASIDE_GRAINS | grains;
}

static inline uint32_t glk_lookaside_arena(uint64_t key)
{
	return (uint32_t)(key >> GLK_LOOKASIDE_GRAINS);
}

static inline uint64_t glk_lookaside_grains(uint64_t key)
{
	return key & ((UINT64_C(1) << GLK_LOOKASIDE_GRAINS) - 1);
}

/* A block that was taken; id 0: there was none. */
struct glk_laid {
	uint64_t key, tick;
	uint32_t id;
};

struct glk_lookaside {
	glk_atomic(uint64_t) kinds;
	glk_atomic(uint64_t) place[GLK_LOOKASIDE];
	uint64_t tick[GLK_LOOKASIDE]; /* under the lock */
};

/* That of a size, of 128; 0 is that of a place where nothing lies, as far as is known. */
static inline uint8_t glk_lookaside_kind(uint64_t key)
{
	return (uint8_t)((uint32_t)key * UINT32_C(0x9e3779b1) >> 24) | 0x80;
}

/* Takes a block of a key; 0: there is none. Any thread. */
static inline uint32_t glk_lookaside_take(struct glk_lookaside *aside, uint64_t key)
{
	const uint64_t ones = UINT64_C(0x0101010101010101);
	uint64_t unlike =
		glk_load_relaxed(&aside->kinds) ^ ones * glk_lookaside_kind(key);
	/* bytes that are 0, and perhaps some behind them */
	uint64_t left = (unlike - ones) & ~unlike & ones << 7;

	for (; left; left &= left - 1) {
		unsigned i = (unsigned)__builtin_ctzll(left) / 8;
		uint64_t word = glk_load_relaxed(&aside->place[i]);

		/* pairs with: the release in put */
		if (word >> GLK_ID_BITS == key &&
			glk_cas_acq_rel(&aside->place[i], &word, 0)) {
			/* another one may be there by now, which is passed then as long as it is there */
			glk_store_byte(&aside->kinds, i, 0);
			return (uint32_t)(word & GLK_ID_MASK);
		}
	}
	return 0;
}

/* ---- Under the lock; with a block comes its tick ---- */

/* Takes one that is known to have been there; false: it was taken meanwhile. */
static inline bool glk_lookaside_drop(
	struct glk_lookaside *aside, uint64_t key, uint32_t id, uint64_t *ret_tick)
{
	for (unsigned i = 0; i < GLK_LOOKASIDE; i++) {
		uint64_t word = key << GLK_ID_BITS | id;

		*ret_tick = aside->tick[i];
		if (glk_load_relaxed(&aside->place[i]) == word) {
			glk_store_byte(&aside->kinds, i, 0);
			return glk_cas_acq_rel(&aside->place[i], &word, 0);
		}
	}
	return false;
}

static inline struct glk_laid glk_lookaside_laid(uint64_t word, uint64_t tick)
{
	return (struct glk_laid){.key = word >> GLK_ID_BITS,
		.tick = tick,
		.id = (uint32_t)(word & GLK_ID_MASK)};
}

/* Takes what is at a place. */
static inline struct glk_laid glk_lookaside_clear(struct glk_lookaside *aside, unsigned i)
{
	uint64_t word = 0;

	/* pairs with: the release in put */
	if (glk_load_relaxed(&aside->place[i]))
		word = glk_xchg_acq_rel(&aside->place[i], 0);
	return glk_lookaside_laid(word, aside->tick[i]);
}

/* What lies where the next one is put; 0: nothing does. */
static inline uint64_t glk_lookaside_next(
	const struct glk_lookaside *aside, uint32_t turn)
{
	for (unsigned i = 0; i < GLK_LOOKASIDE; i++)
		if (!glk_load_relaxed(&aside->place[i]))
			return 0;
	return glk_load_relaxed(&aside->place[turn % GLK_LOOKASIDE]);
}

/* Puts a block at a free place, or at the one whose turn it is, of which it gives what was there. */
static inline void glk_lookaside_put(
	struct glk_lookaside *aside, uint32_t *turn, struct glk_laid *block)
{
	uint64_t was;
	unsigned i = 0;

	while (i < GLK_LOOKASIDE && glk_load_relaxed(&aside->place[i]))
		i++;
	if (i == GLK_LOOKASIDE)
		i = (*turn)++ % GLK_LOOKASIDE;
	glk_store_byte(&aside->kinds, i, glk_lookaside_kind(block->key));
	was = aside->tick[i];
	aside->tick[i] = block->tick;
	/* pairs with: the acquire of who takes it */
	*block = glk_lookaside_laid(
		glk_xchg_acq_rel(&aside->place[i], block->key << GLK_ID_BITS | block->id),
		was);
}

#endif
