/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_BLOCK_H
#define GLK_CACHE_BLOCK_H

/* What becomes of blocks that are freed and go to no bin, and what may be asked of those that are
 * not: block.c, pin.c. */
#include "cache/cache.h"
#include "move/look.h"

/* A free where no live block was found: it may just be moved, or held. */
int glk_block_late(
	struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream) GLK_COLD;
/* straight.c: frees an extent of an arena of plain blocks that the caller has claimed and that goes to no bin. 0 or
 * the driver's error, with the block live again. */
int glk_block_give_back(struct glk_arena *arena, struct glk_extent *e,
	struct CUstream_st *stream) GLK_COLD;
/* What of that is not straight: the stream of one that no row tells; and the free itself, with the lock, whose turn
 * was short so far, and which is given back. */
int glk_block_ask(struct glk_cache *cache, struct glk_extent *e,
	struct CUstream_st *stream, uint32_t *ret_stream) GLK_COLD;
int glk_block_give_late(struct glk_arena *arena, struct glk_seat *seat,
	struct glk_extent *e, uint32_t stream, struct CUstream_st *handle,
	int64_t since) GLK_COLD;

/* pin.c, under the lock of the GPU. For an extent that was claimed and is out: whether it stays,
 * marked with the streams of its use. */
bool glk_pin_hold(
	struct glk_arena *arena, struct glk_extent *e, const struct glk_use *use);
/* What query tells of it beside the rest, in a look. `able`: what all pages it asked for are made
 * for, GLK_PAGE_... */
void glk_pin_describe(const struct glk_arena *arena, const struct glk_extent *e,
	uint32_t able, struct glake_block *block);

#endif
