/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A request for managed memory, and what its arenas do otherwise than others: see managed.h. */
#include "cache/managed/managed.h"

#include "base/conf.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "cache/arena/request.h"
#include "cache/bin/quick.h"
#include "cache/cache.h"

#include <errno.h>
#include <stddef.h>

struct glk_chunk *glk_chunk_of(const struct glk_arena *arena)
{
	return (struct glk_chunk *)((char *)arena - offsetof(struct glk_chunk, arena));
}

static void count(struct glk_arena *arena, const struct glk_extent *e, bool more)
{
	struct glk_cache *gpu = arena->gpu;
	struct glk_managed *m = gpu->managed;
	uint64_t bytes = glk_extent_asked(e), one = more ? 1 : UINT64_MAX;

	glk_chunk_of(arena)->blocks += one;
	m->blocks += one;
	gpu->managed_live += more ? bytes : -bytes;
	if (gpu->most_managed < gpu->managed_live)
		gpu->most_managed = gpu->managed_live;
}

static void describe(const struct glk_arena *arena, struct glake_block *block)
{
	(void)arena;
	block->flags |= GLAKE_ALLOC_MANAGED;
	block->managed = block->size;
	/* the words that stand for pages are none */
	block->pages = 0;
	block->page_size = 0;
}

const struct glk_arena_ops glk_arena_managed = {
	.kind = GLAKE_ARENA_MANAGED,
	.may = glk_common_may,
	.order = glk_common_order,
	.count = count,
	.describe = describe,
	.move = glk_managed_move,
	.stays = "is managed memory, which the driver moves",
	.inside = "is managed memory",
	.own = true,
	.waits = true,
	.fixed = true,
};

/* The tables, at the first request. */
static int start(struct glk_cache *cache)
{
	struct glk_managed *m;
	int err;

	if (cache->managed)
		return 0;
	m = glk_region_new(sizeof(*m));
	if (!m)
		return -ENOMEM;
	glk_managed_source_init(&m->source, cache->drv, cache->device);
	err = glk_pool_init(
		&m->pool, &m->source.drv, cache->conf, cache->pool->gpus, 0, NULL);
	if (err) {
		glk_region_free(m, sizeof(*m));
		return err;
	}
	glk_lock_init(&m->saying, GLK_RANK_SAYING);
	/* what bounds it are its chunks */
	for (int i = 0; i < m->pool.gpus; i++)
		glk_store_relaxed(&glk_pool_gpu(&m->pool, i)->budget, UINT64_MAX);
	cache->managed = m;
	return 0;
}

/* Whether a chunk may have a place, from what there is of free addresses. */
static bool may_fit(const struct glk_cache *cache, const struct glk_chunk *chunk,
	const struct glk_request *request)
{
	const struct glk_map *map = &chunk->arena.map;
	bool small = request->rounded <= cache->small_most;
	uint64_t need;

	/* nothing of one that is being made is there to be read */
	if (chunk->state != GLK_CHUNK_READY)
		return false;
	need = small ? glk_slot_bytes(map) : request->rounded;
	return map->end - map->high >= need ||
		glk_tree_largest(map, &map->common) >= need ||
		(small && map->nested.count);
}

static int try_chunk(struct glk_chunk *chunk, const struct glk_request *request,
	bool patient, struct glk_seat *seat, uint64_t *ret_addr)
{
	struct glk_request again = *request;
	int err;

	again.patient = patient;
	err = glk_arena_serve(&chunk->arena, &again, seat, NULL, ret_addr);
	if (!err)
		glk_chunk_unsay(chunk, *ret_addr, again.rounded);
	return err;
}

static int try_all(struct glk_cache *cache, const struct glk_request *request,
	bool patient, struct glk_seat *seat, uint64_t *ret_addr)
{
	struct glk_managed *m = cache->managed;
	int err = -ENOMEM;

	for (uint32_t i = 0; i < m->used && err == -ENOMEM; i++)
		if (may_fit(cache, &m->at[i], request))
			err = try_chunk(&m->at[i], request, patient, seat, ret_addr);
	return err;
}

/* What nobody uses goes: chunks without blocks, and so many idle pages that a chunk of the size may be
 * had. */
static void make_room(struct glk_cache *cache, uint64_t size, bool over)
{
	struct glk_managed *m = cache->managed;
	size_t free = 0, total = 0;

	glk_plan_begin(cache);
	glk_event_poll(&cache->streams);
	glk_managed_trim(cache);
	size += m->bytes + cache->conf->pool_small_page;
	glk_lock_pause(&cache->lock);
	if (cache->drv->ops->memory_info(cache->drv, cache->device, &free, &total))
		free = size;
	glk_lock_resume(&cache->lock);
	if (!over && size > free) {
		glk_quick_flush(cache);
		glk_trim_release(
			&cache->arena, cache->node, size - free, UINT32_MAX, NULL);
	}
	glk_plan_end(cache);
}

int glk_managed_serve(struct glk_cache *cache, struct glk_request *request,
	struct glk_seat *seat, uint64_t *ret_addr)
{
	bool over = request->flags & GLAKE_ALLOC_MANAGED_OVER;
	struct glk_chunk *chunk;
	int err;

	if (request->flags & GLAKE_ALLOC_CONTIGUOUS)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"a block is contiguous or managed, not both");
	if (request->capture)
		return glk_error(-EBUSY, GLAKE_ERROR_CAPTURE,
			"managed memory is not given to a stream that captures a graph");
	/* before sizes are rounded up to chunks */
	if (request->size > cache->conf->map_span)
		return glk_error(-ENOMEM, GLAKE_ERROR_ADDRESS,
			"%lu bytes of managed memory are more than map.span",
			(unsigned long)request->size);
	err = start(cache);
	if (err)
		return err;
	request->rounded = (request->size + cache->told + GLAKE_GRAIN - 1) &
		~(uint64_t)(GLAKE_GRAIN - 1);
	err = try_all(cache, request, false, seat, ret_addr);
	if (err != -ENOMEM)
		return err;
	err = glk_chunk_make(cache, request->rounded, over, &chunk);
	if (!err)
		return try_chunk(chunk, request, true, seat, ret_addr);
	if (err != -ENOMEM)
		return err;
	/* what other streams are not done with yet */
	err = try_all(cache, request, true, seat, ret_addr);
	if (err != -ENOMEM)
		return err;
	make_room(cache, request->rounded, over);
	err = glk_chunk_make(cache, request->rounded, over, &chunk);
	if (!err)
		return try_chunk(chunk, request, true, seat, ret_addr);
	return err;
}

static struct glk_request as_managed(
	const struct glk_cache *cache, const struct glk_request *request)
{
	struct glk_request again = {.size = request->size,
		.flags = GLAKE_ALLOC_MANAGED,
		.stream = request->stream};

	if (cache->conf->pool_managed == GLK_POOL_MANAGED_OVER)
		again.flags |= GLAKE_ALLOC_MANAGED_OVER;
	/* one that is told of ends before a byte that is nobody's */
	again.rounded = (again.size + cache->told + GLAKE_GRAIN - 1) &
		~(uint64_t)(GLAKE_GRAIN - 1);
	return again;
}

/* What managed memory answered, for who has another kind: a driver that has none is not asked again. */
static int answer(struct glk_cache *cache, int err, const struct glake_error *why)
{
	if (err == -EOPNOTSUPP) {
		glk_warn("pool.managed: blocks are memory of the GPU: %s",
			glk_thread_current->error.text);
		cache->unmanaged = true;
		err = -ENOMEM;
	}
	if (!err || err == -ENOMEM)
		glk_error_back(why);
	return err;
}

/* Whether it is for managed memory at all. */
static bool is_managed(const struct glk_cache *cache, const struct glk_request *request)
{
	return (cache->conf->pool_managed != GLK_POOL_MANAGED_NO || cache->told) &&
		!cache->unmanaged && !request->flags && !request->capture &&
		(request->size > cache->conf->policy_bins || cache->told) &&
		request->size <= cache->conf->map_span;
}

static GLK_COLD int try_managed(struct glk_cache *cache,
	const struct glk_request *request, struct glk_seat *seat, uint64_t *ret_addr)
{
	struct glk_request again = as_managed(cache, request);
	struct glake_error why = glk_thread_current->error;
	bool over = again.flags & GLAKE_ALLOC_MANAGED_OVER;
	struct glk_chunk *chunk;
	int err;

	err = start(cache);
	if (!err)
		err = try_all(cache, &again, false, seat, ret_addr);
	if (err != -ENOMEM || !cache->managed ||
		(!over && glk_chunk_refused(cache, again.rounded)))
		return answer(cache, err, &why);
	err = glk_chunk_make(cache, again.rounded, over, &chunk);
	if (!err)
		err = try_chunk(chunk, &again, true, seat, ret_addr);
	return answer(cache, err, &why);
}

int glk_managed_try(struct glk_cache *cache, const struct glk_request *request,
	struct glk_seat *seat, uint64_t *ret_addr)
{
	return is_managed(cache, request) ? try_managed(cache, request, seat, ret_addr)
					  : -ENOMEM;
}

int glk_managed_insist(struct glk_cache *cache, const struct glk_request *request,
	struct glk_seat *seat, uint64_t *ret_addr)
{
	struct glake_error why = glk_thread_current->error;
	struct glk_request again;

	if (!is_managed(cache, request))
		return -ENOMEM;
	again = as_managed(cache, request);
	return answer(cache, glk_managed_serve(cache, &again, seat, ret_addr), &why);
}
