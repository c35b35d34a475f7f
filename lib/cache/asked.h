/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_ASKED_H
#define GLK_CACHE_ASKED_H

/* What a program asks of one block, and what a ticket has to know of it. */
#include "cache/cache.h"

/* watching.c: for a ticket, around the movement of a block, which is claimed. */
void glk_told_before(struct glk_arena *arena, const struct glk_extent *e, uint32_t on,
	bool to_gpu, struct glk_told *told);
void glk_told_after(
	struct glk_arena *arena, uint32_t on, bool to_gpu, struct glk_told *told);

/* asked.c. What a program asks of a block by its address, in the order of a stream: `fn` is called under the lock
 * with the block claimed. Where it takes memory of the GPU, not while that is suspended, or the tag of the block.
 * As glake_spill(). */
struct glk_asking {
	int (*fn)(struct glk_arena *arena, struct glk_extent *e, uint32_t on,
		const struct glk_asking *how);
	const struct glk_portion *portion; /* NULL: all of the block */
	size_t count;			   /* of them, which come; one goes */
	bool takes;			   /* memory of the GPU, */
	bool large;	       /* with pages of several slots, where a portion comes */
	struct glk_told *told; /* what a ticket has to know; NULL: there is none */
	void *arg;
};
int glk_asked(struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream,
	const struct glk_asking *how);

/* suspend.c. While contents go: behind each event that tells of them, idle pages of an arena go back to the driver. 0
 * or the driver's error. */
int glk_away_release(struct glk_arena *arena);

#endif
