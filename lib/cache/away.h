/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_AWAY_H
#define GLK_CACHE_AWAY_H

/*
 * Blocks whose contents are in memory of the host. A block that goes away leaves its slots as if it
 * were freed behind the copy of its contents, and keeps its addresses: what was behind them serves
 * others from then on, in stream order, and nothing is unmapped for it. One that comes back is
 * given pages as a request is that has found its place.
 *
 * It is claimed meanwhile. Who finds it claimed, to free it or to ask about it, waits until it has
 * been moved: glk_away_settled().
 */
#include "cache/block.h"

/* A block that is being moved. */
struct glk_moving {
	uint64_t addr, size;
	struct glk_moving *other;
};

/* For an address where no live block was found: waits while one is being moved there, and says
 * whether there is one then, that begins there or, with `inside`, holds it. Takes the lock. */
bool glk_away_settled(struct glk_cache *cache, uint64_t addr, bool inside);

/* Why a block has to stay: 0 if it may go, else as glake_spill(). */
int glk_away_may(const struct glk_arena *arena, const struct glk_extent *e);
/* Under the lock, for a block that was claimed; `on` is the index of the stream that orders the call,
 * 0 for none. Both give the lock up meanwhile. 0, or an error with everything undone. */
int glk_away_send(struct glk_arena *arena, struct glk_extent *e, uint32_t on);
int glk_away_have(struct glk_arena *arena, struct glk_extent *e, uint32_t on);
/* One that is away, claimed, went because its GPU was suspended; cache->suspended_blocks counts them. */
void glk_away_suspend(struct glk_cache *cache, const struct glk_extent *e);
bool glk_away_suspended(const struct glk_cache *cache, const struct glk_extent *e);
/* A free of one that is away. */
void glk_away_drop(struct glk_arena *arena, struct glk_extent *e);
/* What moves contents is made at the first use. 0 or the driver's error. Without the lock. */
int glk_away_start(struct glk_cache *cache);
int glk_away_fini(struct glk_cache *cache);

/* suspend.c. -EAGAIN with a record while the GPU is suspended, else 0. */
int glk_suspended(const struct glk_cache *cache);

/* Calls `fn` for each live block of an arena that is no small one, claimed, in the order of addresses,
 * until it fails. Others free blocks meanwhile. What `fn` answered last. */
typedef int (*glk_away_fn)(struct glk_arena *arena, struct glk_extent *e, void *arg);
int glk_away_each(struct glk_arena *arena, glk_away_fn fn, void *arg);

#endif
