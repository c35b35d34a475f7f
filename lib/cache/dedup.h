/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_DEDUP_H
#define GLK_CACHE_DEDUP_H

/* Equal pages of blocks that nobody writes any more: see dedup.c. */
#include "cache/away.h"

#include <glake/publish.h>

/* Contracts as glake_seal() and glake_unseal() for an elastic block. *ret has its size; it is written after an error
 * too. */
int glk_cache_seal(struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream,
	uint64_t rate, struct glake_sealed *ret);
int glk_cache_unseal(struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream);

/* How much of all live blocks on the GPU is there more than once, in parts of `grain` bytes, as far as numbers tell.
 * Blocks are claimed while they are read, one after the other. 0, or as glake_alike(). */
int glk_cache_likeness(
	struct glk_cache *cache, size_t grain, uint64_t rate, struct glake_likeness *ret);

#endif
