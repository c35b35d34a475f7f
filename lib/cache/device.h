/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_DEVICE_H
#define GLK_CACHE_DEVICE_H

#include "cache/cache.h"

/* Reserves the addresses of the GPU, once; every entry that may be the first calls it.
 * 0, -ENOMEM, or the driver's error; the next call tries again. */
int glk_cache_start(struct glk_cache *cache);

/* Unmaps all of an arena and releases its pages; the GPU is idle. 0 or the driver's first error. */
int glk_arena_empty(struct glk_arena *arena);
/* Mappings that the driver refused to take away are tried once more; likewise. */
int glk_arena_empty_kept(struct glk_arena *arena);

#endif
