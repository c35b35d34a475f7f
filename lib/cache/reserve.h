/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_RESERVE_H
#define GLK_CACHE_RESERVE_H

/*
 * Memory of the host that is ready before contents leave the GPU, where the keys tier.host_reserve, for
 * what goes away, and tier.place_reserve, for what lies there in place, ask for it: it comes at 5 to 10
 * GB/s, which the first suspension would pay for. A thread makes it from the first use of the GPU on and
 * ends when it is there; a trim leaves it.
 */
#include "cache/cache.h"

/* Starts the thread, if the configuration wants one. Where none can be had the log says so. */
void glk_reserve_start(struct glk_cache *cache);
/* Ends it, behind what it is making. Not under the lock. */
void glk_reserve_stop(struct glk_cache *cache);
/* Under the lock: others have to take from what is ready, so that no more is made. */
void glk_reserve_yield(struct glk_cache *cache);

#endif
