/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Tags of a GPU come and go, and serve requests: see tag.h. */
#include "cache/tag/tag.h"

#include "base/error.h"
#include "base/thread.h"
#include "cache/arena/request.h"
#include "cache/bin/hit.h"
#include "cache/cache.h"

#include <errno.h>
#include <inttypes.h>

/* Addresses of a step, as a part of the memory of the GPU: there may be many tags. */
#define STEP_PART 8

static void count(struct glk_arena *arena, const struct glk_extent *e, bool more)
{
	struct glk_tag *tag = glk_tag_of(arena);
	uint64_t bytes = glk_extent_asked(e);

	tag->blocks += more ? 1 : UINT64_MAX;
	tag->live += more ? bytes : -bytes;
}

static void grew(struct glk_arena *arena, const struct glk_extent *e, uint64_t asked,
	uint64_t given)
{
	struct glk_cache *cache = arena->gpu;
	struct glk_seat *seat = glk_slab_at(&cache->seats, 0);
	struct glk_row *row = &cache->rows[glk_load_relaxed(&e->stream)];

	if (glk_load_relaxed(seat->turn) != seat->name)
		glk_seat_turn(seat);
	glk_seat_grew(seat, asked, given);
	glk_poke_relaxed(&row->bytes, row->bytes + given);
	glk_tag_of(arena)->live += asked;
	cache->elastic += asked;
	cache->bare -= given;
}

static void describe(const struct glk_arena *arena, struct glake_block *block)
{
	block->tag = glk_load_relaxed(&glk_tag_of(arena)->id);
}

const struct glk_arena_ops glk_arena_tag = {
	.kind = GLAKE_ARENA_TAG,
	.may = glk_common_may,
	.order = glk_common_order,
	.count = count,
	.grew = grew,
	.describe = describe,
	.own = true,
	.waits = true,
	.leaves = true,
};

static int make_table(struct glk_cache *cache)
{
	struct glk_tags *tags;

	if (glk_tags(cache))
		return 0;
	tags = glk_region_new(sizeof(*tags));
	if (!tags)
		return -ENOMEM;
	glk_store_release(&cache->tags, tags); /* pairs with: glk_tags */
	return 0;
}

static struct glk_tag *entry_of(struct glk_cache *cache, uint32_t id)
{
	struct glk_tags *tags = glk_tags(cache);
	uint32_t number = id & ((1u << GLK_TAG_BITS) - 1);

	return tags && number && number <= GLAKE_TAGS_MAX ? &tags->at[number] : NULL;
}

static struct glk_tag *known(struct glk_cache *cache, uint32_t id)
{
	struct glk_tag *tag = entry_of(cache, id);

	return tag && glk_load_relaxed(&tag->id) == id ? tag : NULL;
}

struct glk_tag *glk_tag_find(struct glk_cache *cache, uint32_t id)
{
	struct glk_tag *tag = known(cache, id);

	if (tag)
		return tag;
	glk_error(-ESTALE, GLAKE_ERROR_STALE, "0x%" PRIx32 " is no open tag", id);
	return NULL;
}

int glk_cache_tag_open(struct glk_cache *cache, uint32_t id)
{
	int err;

	glk_lock(&cache->lock);
	err = make_table(cache);
	if (!err) {
		glk_store_relaxed(&entry_of(cache, id)->id, id);
		entry_of(cache, id)->limit = (struct glk_limit){0};
		glk_store_relaxed(&entry_of(cache, id)->guard.level, 0);
		glk_store_relaxed(&entry_of(cache, id)->guard.mode, 0);
	}
	glk_unlock(&cache->lock);
	return err;
}

/* Why a tag may not go: 0 if it may. */
static int is_used(const struct glk_cache *cache, const struct glk_tag *tag)
{
	if (tag->arena.shut)
		return glk_error(-EBUSY, GLAKE_ERROR_BUSY,
			"the tag is suspended on GPU %d", cache->device);
	if (tag->blocks || tag->arena.held || tag->arena.inside)
		return glk_error(-EBUSY, GLAKE_ERROR_BUSY,
			"%" PRIu64 " blocks of the tag are in use on GPU %d",
			tag->blocks + tag->arena.held + tag->arena.inside, cache->device);
	return 0;
}

int glk_cache_tag_close(struct glk_cache *cache, uint32_t id)
{
	struct glk_tag *tag;
	int err = 0;

	glk_lock(&cache->lock);
	tag = entry_of(cache, id);
	if (tag && glk_load_relaxed(&tag->id) == id) {
		err = is_used(cache, tag);
		if (!err)
			glk_store_relaxed(&tag->id, 0);
	}
	glk_unlock(&cache->lock);
	return err;
}

int glk_cache_tag_get(struct glk_cache *cache, uint32_t id, struct glake_tag *ret)
{
	const struct glk_tag *tag;

	glk_lock(&cache->lock);
	tag = glk_tag_find(cache, id);
	if (tag) {
		ret->live = tag->live;
		ret->blocks = tag->blocks;
		ret->held = glk_tag_held(tag);
		ret->away = tag->arena.suspended_blocks;
		ret->suspended = tag->arena.shut;
		ret->limit = tag->limit.most;
	}
	glk_unlock(&cache->lock);
	return tag ? 0 : -ESTALE;
}

int glk_cache_tag_limit(struct glk_cache *cache, uint32_t id, uint64_t bytes)
{
	struct glk_tag *tag;

	glk_lock(&cache->lock);
	tag = glk_tag_find(cache, id);
	if (tag)
		tag->limit.most = bytes;
	glk_unlock(&cache->lock);
	return tag ? 0 : -ESTALE;
}

struct glk_tag_guard *glk_cache_tag_guard(struct glk_cache *cache, uint32_t id)
{
	struct glk_tag *tag = known(cache, id);

	return tag ? &tag->guard : NULL;
}

struct glk_tag_guard *glk_cache_tag_guard_at(
	struct glk_cache *cache, int number, struct glk_arena **ret_arena)
{
	struct glk_tags *tags = glk_tags(cache);

	if (tags && number <= GLAKE_TAGS_MAX)
		*ret_arena = &tags->at[number].arena;
	return tags && number <= GLAKE_TAGS_MAX ? &tags->at[number].guard : NULL;
}

struct glk_tag_guard *glk_arena_tag_guard(struct glk_arena *arena)
{
	return arena->ops == &glk_arena_tag ? &glk_tag_of(arena)->guard : NULL;
}

/* The arena of an entry, made at its first use. */
static int start(struct glk_cache *cache, struct glk_tag *tag)
{
	bool common = tag == glk_tags(cache)->at;

	if (tag->arena.map.pool)
		return 0;
	return glk_arena_init(&tag->arena, cache, &glk_arena_tag, &cache->space,
		glk_arena_size(
			cache, common ? cache->memory : cache->memory / STEP_PART));
}

int glk_arena_open(const struct glk_arena *arena)
{
	if (!arena->shut)
		return 0;
	return glk_error(-EAGAIN, GLAKE_ERROR_AGAIN,
		"the tag of the block is suspended on GPU %d", arena->gpu->device);
}

int glk_tag_enter(
	struct glk_cache *cache, uint32_t id, uint64_t size, struct glk_arena **ret_arena)
{
	struct glk_tag *tag = glk_tag_find(cache, id);
	int err = 0;

	if (!tag)
		return -ESTALE;
	if (tag->arena.shut)
		return glk_error(-EAGAIN, GLAKE_ERROR_AGAIN,
			"the tag of this thread is suspended on GPU %d", cache->device);
	err = start(cache, tag);
	if (!err)
		err = glk_limit_pledge(
			cache, &tag->limit, tag->live, "the tag of this thread", size);
	if (!err)
		*ret_arena = &tag->arena;
	return err;
}

int glk_tag_elastic(struct glk_cache *cache, uint32_t id, struct glk_arena **ret_arena)
{
	int err;

	if (id)
		return glk_tag_enter(cache, id, 0, ret_arena);
	err = make_table(cache);
	if (!err)
		err = start(cache, glk_tags(cache)->at);
	if (!err)
		*ret_arena = &glk_tags(cache)->at[0].arena;
	return err;
}

void glk_tag_fini(struct glk_cache *cache)
{
	struct glk_tags *tags = glk_tags(cache);

	if (tags)
		glk_region_free(tags, sizeof(*tags));
	glk_store_relaxed(&cache->tags, NULL);
}
