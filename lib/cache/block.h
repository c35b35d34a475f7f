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
/* Frees an extent that the caller has claimed and that goes to no bin. 0 or the driver's
 * error, with the block live again. */
int glk_block_give_back(struct glk_cache *cache, struct glk_extent *e,
	struct CUstream_st *stream) GLK_COLD;

/* pin.c, under the lock of the GPU. For an extent that was claimed and is out: whether it stays,
 * marked with the streams of its use. */
bool glk_pin_hold(
	struct glk_arena *arena, struct glk_extent *e, const struct glk_use *use);
/* What query tells of it beside the rest, in a look. `able`: what all pages it asked for are made
 * for, GLK_PAGE_... */
void glk_pin_describe(const struct glk_arena *arena, const struct glk_extent *e,
	uint32_t able, struct glake_block *block);

#endif
