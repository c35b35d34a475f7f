/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TIER_PIECE_H
#define GLK_TIER_PIECE_H

/*
 * Pieces of memory of the host, of the node of the GPU where that is known, allowed and has room, of
 * huge pages where the system has them, locked by the driver. A thread touches 3 to 6 GB/s of fresh
 * memory, and the driver locks 15 to 23 GB/s of what was touched, so threads touch ahead of the one that
 * locks: never the part that is being locked, which makes the driver wait.
 *
 * What the machine has left is taken in turn, and pieces are made by several threads at once.
 * In a forked child they are not there.
 */
#include "tier/io/crew.h"
#include "tier/tier.h"

#include <stdint.h>

/* Of the store, made at a time: a GiB. */
#define GLK_PIECES 16

/* Makes up to `count` of them for a GPU, each on a node or anywhere for -1: *ret_made, at least one where it returns
 * 0. -ENOMEM (class NOMEM_HOST), or the driver's error. Without the lock of the GPU. */
int glk_pieces_make(struct glk_drv *drv, int device, const int *node, char **base,
	uint32_t count, uint32_t *ret_made);
/* The node that one lies on which was made for a node: that one, where it cannot be told. Once for each. */
int glk_piece_node(struct glk_drv *drv, char *base, int node);

/*
 * Makes one of any size, in whole OS pages, locked by one call, since a copy may not reach from what one
 * call locked into what another one did. `bound`: of the node or not at all. Returns as
 * glk_pieces_make(), and where it is bound -ENOMEM (NOMEM_HOST: the node has not as much), -EOPNOTSUPP or
 * -EPERM (it cannot be chosen). Without `touches` the driver touches it, as it comes.
 */
int glk_piece_make(struct glk_drv *drv, int device, int node, bool bound, bool touches,
	size_t size, char **ret_base);
/* For the GPU that it was made for. Whether it is gone: what the driver keeps locked stays where it is. */
bool glk_piece_end(struct glk_drv *drv, int device, char *base, size_t size);

#define GLK_TOUCH_THREADS 15 /* most, beside the one who waits */

/* Fresh memory is touched by threads that are there for one batch, in the order in which somebody waits for it. */
struct glk_touch {
	struct glk_crew crew;
	struct glk_crew_task task[GLK_PIECES];
};
/* Begins with up to GLK_PIECES pieces of one size, in whole OS pages, and up to `threads` beside the caller's. */
void glk_touch_begin(struct glk_touch *touch, char *const *base, uint32_t count,
	size_t size, unsigned threads);
/* Returns when a piece is touched: 0 or -ENOMEM (class NOMEM_HOST). */
int glk_touch_wait(struct glk_touch *touch, uint32_t piece);
/* Ends it, also before all are touched. */
void glk_touch_end(struct glk_touch *touch);

/*
 * Memory of the host that threads of the process are about to take. A system that has none left ends
 * processes, and what it says it has falls only as memory is touched, so each says first what it takes:
 * what others are taking is no longer there. Nothing of this is held while memory is touched or locked.
 */
/*
 * Takes up to *count times `each` bytes, and at least one, of what is left beside the part of others
 * (glk_numa_usable()), on a node or anywhere for -1. Waits for those who are taking where that might
 * leave enough. 0, or -ENOMEM (class NOMEM_HOST).
 */
int glk_spare_take(int node, uint64_t each, uint32_t *count);
/* It is touched now, or is not wanted. */
void glk_spare_taken(uint64_t bytes);

#endif
