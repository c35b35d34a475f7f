/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_LEARN_H
#define GLK_CACHE_LEARN_H

/*
 * The order in which a program fetches blocks, learned from its last step (tier.learn): a step ends
 * at a quiet point. A fetch of a step is looked for near the place where the last one stood, and
 * the blocks behind it are hinted, as by glake_prefetch without a deadline and with the least
 * priority. At the end of a step the first ones of the next are.
 *
 * A fetch of one of the blocks that were expected next is a hit, another one a miss. A hint that waits at
 * the end of the step is dropped.
 *
 * Cost	a step of up to GLK_LEARN_STEP fetches is remembered; a fetch looks at a bounded number of places.
 *	Nothing without the key
 */
#include "cache/cache.h"

/* Fetches of a step that are remembered, the first ones. */
#define GLK_LEARN_STEP 8192
/* Blocks that are expected at a time. */
#define GLK_LEARN_AHEAD 8

/* The program has fetched a block. Without the lock of the GPU. */
void glk_learn_fetched(struct glk_cache *cache, uint64_t addr);
/* With the GPU. */
void glk_learn_fini(struct glk_cache *cache);

#endif
