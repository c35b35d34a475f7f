/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_TAG_H
#define GLK_CACHE_TAG_H

/*
 * Blocks with a tag: see glake/tag.h. Each tag has an arena of its own on each GPU, from the first
 * request there on, and differs from the GPU's own in these rules:
 *
 *  - it goes and comes back as a whole, small blocks too: nobody else is in its slots. A slot of small
 *    blocks goes as one content, for which each of them stands (small.c)
 *  - while it is suspended it is shut: no request is served from it, and no block of it comes back
 *  - what lies on the host in place (tier.place) does not go with it, and comes to the GPU as that of others
 *  - there are no quick bins
 *
 * The arena stays when the tag is closed, and serves the next one with its number.
 */
#include "cache/cache.h"

#include <glake/tag.h>

struct glk_tag {
	struct glk_arena arena;
	glk_atomic(uint32_t) id; /* of the tag that it serves; 0: none */
	uint64_t blocks, live;	 /* given out and not freed; bytes asked for */
	struct glk_limit limit;
	struct glk_tag_guard guard;
};

struct glk_tags {
	/* By the number; the first is of no tag, and has the elastic blocks of threads without one. */
	struct glk_tag at[GLAKE_TAGS_MAX + 1];
};

/* The lowest bits of an id are the number of its entry, from 1. */
#define GLK_TAG_BITS 8
_Static_assert(GLAKE_TAGS_MAX < 1 << GLK_TAG_BITS, "the number of a tag has room");

static inline struct glk_tags *glk_tags(const struct glk_cache *cache)
{
	return glk_load_acquire(&cache->tags); /* pairs with: the release in make_table */
}

/* tag.c */
extern const struct glk_arena_ops glk_arena_tag;
static inline struct glk_tag *glk_tag_of(const struct glk_arena *arena)
{
	return (struct glk_tag *)((char *)arena - offsetof(struct glk_tag, arena));
}

/* Under the lock: bytes of pages of the GPU that it uses, or used last. */
static inline uint64_t glk_tag_held(const struct glk_tag *tag)
{
	return tag->arena.map.held;
}

/* Under the lock, in a plan: the arena for a request of so many bytes by a thread with this tag. 0; -EAGAIN while
 * the tag is suspended; -ENOMEM at its limit, of which so much is pledged; -ESTALE; or the driver's error. */
int glk_tag_enter(struct glk_cache *cache, uint32_t id, uint64_t size,
	struct glk_arena **ret_arena);
/* The same for an elastic block, of a thread that may have none: no limit is asked, since nothing is committed. */
int glk_tag_elastic(struct glk_cache *cache, uint32_t id, struct glk_arena **ret_arena);
/* The open tag of an id, under the lock; NULL with a record: there is none. */
struct glk_tag *glk_tag_find(struct glk_cache *cache, uint32_t id);
/* At the end of the GPU: its arenas have ended. */
void glk_tag_fini(struct glk_cache *cache);

/*
 * small.c, under the lock, which is given up meanwhile. Slots of small blocks go away, dropped or with
 * their contents, or come back: all of an arena, or with NULL those of all tags, with their GPU. Those with a block that may not go stay. What was done is
 * added to *did. 0, or an error with the slot that it came at as it was.
 */
int glk_small_send(struct glk_cache *cache, struct glk_arena *arena, bool drop,
	struct glake_suspended *did);
int glk_small_have(
	struct glk_cache *cache, struct glk_arena *arena, struct glake_suspended *did);
/* What another GPU has of them goes to the host. As glk_away_home(). */
int glk_small_home(struct glk_cache *cache);

#endif
