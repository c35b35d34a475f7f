/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MOVE_OUTCOME_H
#define GLK_MOVE_OUTCOME_H

/*
 * What becomes of hints (hint.h), which prefetch.c carries out: their blocks have come, early or late, or go, are
 * fetched or freed before. All under the lock of the GPU.
 */
#include "move/gpu.h"
#include "move/hint.h"

/* Copies whose end is seen while nobody else has the lock: of those behind them it is seen the next time. */
#define GLK_PREFETCH_LANDS 128

/* Its ticket is told, if there is one; and one that waits ends, with an error. */
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
/* A block was freed, or sent away. */
void glk_prefetch_drop(struct glk_cache *cache, uint64_t addr);

static inline void glk_prefetch_gone(struct glk_cache *cache, const struct glk_extent *e)
{
	if (cache->hints)
		glk_prefetch_drop(cache, glk_load_relaxed(&e->addr));
}

#endif
