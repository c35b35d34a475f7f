/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_BLOCK_H
#define GLK_CACHE_BLOCK_H

/* What becomes of blocks that are freed and go to no bin: block.c, pin.c. */
#include "cache/cache.h"

/* The streams that a live block was marked with, beside its own. */
uint64_t glk_block_marks(const struct glk_extent *e);
/* The rest of a free. Says why the address is not that of a live block: -EINVAL. */
int glk_block_refuse(struct glk_cache *cache, uint64_t addr) GLK_COLD;
/* Frees an extent that the caller has claimed and that goes to no bin. 0 or the driver's
 * error, with the block live again. */
int glk_block_give_back(struct glk_cache *cache, struct glk_extent *e,
	struct CUstream_st *stream) GLK_COLD;

/* pin.c, under the lock of the GPU. For an extent that was claimed and is out: whether it stays,
 * used by `streams`. */
bool glk_pin_hold(struct glk_arena *arena, struct glk_extent *e, uint64_t streams);
/* What query tells of it beside the rest. */
void glk_pin_describe(
	struct glk_arena *arena, const struct glk_extent *e, struct glake_block *block);

#endif
