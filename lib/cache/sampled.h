/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_SAMPLED_H
#define GLK_CACHE_SAMPLED_H

/* Blocks that lie against addresses which are never mapped: sampled.c. All under the lock of the GPU. */
#include "cache/gate.h"
#include "cache/tag/tag.h"

/* Stretches of blocks that were freed, whose mappings are to go. */
#define GLK_SAMPLED_LEFT 64

struct glk_sampled {
	struct glk_tag tag;
	struct glk_arena_ops ops;
	uint64_t next;		 /* offset from which on no address was used yet */
	bool ends;		 /* the last one lies at the end of its slots */
	bool settles;		 /* somebody takes mappings away */
	bool asked;		 /* for gates */
	struct glk_gates *gates; /* NULL: there are none */
	struct glk_stretch leave[GLK_SAMPLED_LEFT];
	uint32_t left;
};

static inline struct glk_sampled *glk_sampled(const struct glk_cache *cache)
{
	return glk_load_acquire(&cache->sampled); /* pairs with: the release in make */
}

static inline struct glk_sampled *glk_sampled_of(struct glk_arena *arena)
{
	return (struct glk_sampled *)(void *)((char *)arena -
		offsetof(struct glk_sampled, tag.arena));
}

/* Serves a request from there, in a plan. 0, or an error for one that is to be served elsewhere. */
int glk_sampled_serve(struct glk_cache *cache, struct glk_request *request,
	struct glk_seat *seat, enum glk_sampling how, uint64_t *ret_addr);
/* The slots of a block that was freed, with a use: their mappings are to go, or, where guard wants that, are gone for all that
 * is queued from now on. Gives the lock up then, and keeps the record of the thread. */
void glk_sampled_freed(
	struct glk_cache *cache, struct glk_stretch run, const struct glk_use *use);
/* In a plan: mappings go whose work has finished. Gives the lock up meanwhile, and keeps the record of the thread. */
void glk_sampled_settle(struct glk_cache *cache);
/* Without the lock: none of them is about to go any more. */
void glk_sampled_still(struct glk_cache *cache);
void glk_sampled_fini(struct glk_cache *cache);

#endif
