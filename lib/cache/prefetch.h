/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_PREFETCH_H
#define GLK_CACHE_PREFETCH_H

/*
 * Blocks that are away are brought back before the program asks for them, as it hinted.
 *
 * When	at the hint, and at later calls about contents beyond the GPU, as far as the link and the
 *		memory allow then; with the key pool.ahead by its thread alone, also between calls
 * Link	copies of up to tier.prefetch_window bytes are queued at a time, so that a hint that
 *		comes later and is wanted sooner is not behind all others
 * Memory	that nobody uses, while tier.prefetch_spare bytes stay besides. A block that came and was
 *		not asked for yet is a cold one (advice.c): it goes away again before a request is
 *		refused
 * Judged	a copy is early or late by its deadline; without one, by when the program asks for the
 *		block. One that is begun after its deadline, whose block is freed, sent away or
 *		fetched before, is useless
 */
#include "cache/cache.h"
#include "cache/hint.h"

/* ns between two looks of the thread while hints wait. */
#define GLK_PREFETCH_LOOK 1000000
/* Copies whose end is seen while nobody else has the lock: of those behind them it is seen the next time. */
#define GLK_PREFETCH_LANDS 128

/* ---- Under the lock of the GPU. ---- */

/* Whether hints wait. */
static inline bool glk_prefetch_waits(const struct glk_cache *cache)
{
	return cache->hints && cache->hints->queued;
}

/* Carries out one, or drops it, inside of glk_plan_enter(); false: none can be now. Gives the lock up
 * meanwhile. */
bool glk_prefetch_carry(struct glk_cache *cache);
/* outcome.c. Its ticket is told, if there is one; and one that waits ends, with an error. */
void glk_prefetch_tell(const struct glk_hint *h, int state, int error);
void glk_prefetch_end(struct glk_hints *hints, struct glk_hint *h, int error);
/* Sees which copies have finished. */
void glk_prefetch_land(struct glk_cache *cache);
/* A block is back, and not by its hint: one that waits ends. */
void glk_prefetch_back(struct glk_cache *cache, const struct glk_extent *e);
/* The program fetches a block that is away, and claimed: its hint is not begun meanwhile, and ends with the
 * second call, if the block is back then. */
void glk_prefetch_hold(struct glk_cache *cache, const struct glk_extent *e);
void glk_prefetch_let_go(
	struct glk_cache *cache, const struct glk_extent *e, bool fetched);
/* The program fetches a block that is here, and claimed, on a stream. True: it was brought back before, and
 * the stream is behind the copy, or *ret_err says why not. */
bool glk_prefetch_meet(
	struct glk_arena *arena, struct glk_extent *e, uint32_t on, int *ret_err);
/* Whether a block is a cold one since a hint brought it back, and not by the program's word: its contents are
 * kept when others need the room, though it be discardable. */
bool glk_prefetch_cold(struct glk_cache *cache, const struct glk_extent *e);
/* The program has said what it is. */
void glk_prefetch_advised(struct glk_cache *cache, const struct glk_extent *e);
/* A hint, for a block that is held. 0; as glake_prefetch(). */
int glk_prefetch_add(const struct glk_arena *arena, const struct glk_extent *e,
	const struct glk_hint *wish, struct glk_ticket *t);
/* A block was freed, or sent away. */
void glk_prefetch_drop(struct glk_cache *cache, uint64_t addr);
/* With the GPU. */
void glk_prefetch_fini(struct glk_cache *cache);

static inline void glk_prefetch_gone(struct glk_cache *cache, const struct glk_extent *e)
{
	if (cache->hints)
		glk_prefetch_drop(cache, glk_load_relaxed(&e->addr));
}

#endif
