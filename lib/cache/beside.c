/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Blocks that lie in memory of the host, in place: an arena of the GPU whose pages are those of the
 * NUMA node near it. It serves a request for which the GPU has no room on any rung, if tier.place
 * says so, and is there from the first such request on. A block stays where it was born until it
 * is freed; what is asked for later is asked of the GPU first again.
 *
 * There are no bins: what is freed here should not be found before what the GPU has.
 */
#include "base/conf.h"
#include "base/log.h"
#include "base/thread.h"
#include "cache/arena/request.h"
#include "cache/device.h"
#include "cache/plan.h"

#include <errno.h>

static void count(struct glk_arena *arena, int blocks, int64_t bytes)
{
	arena->gpu->placed_blocks += (uint64_t)(int64_t)blocks;
	arena->gpu->placed += (uint64_t)bytes;
	if (arena->gpu->most_placed < arena->gpu->placed)
		arena->gpu->most_placed = arena->gpu->placed;
}

static void describe(const struct glk_arena *arena, struct glake_block *block)
{
	(void)arena;
	block->placed = block->size;
}

static const struct glk_arena_ops ops = {
	.may = glk_common_may,
	.order = glk_common_order,
	.count = count,
	.describe = describe,
	.own = true,
	.waits = true,
	.host = true,
};

/* Whether the request was refused for want of memory of the GPU, and of nothing else. A contiguous
 * block is for others to have, which memory of the host is not; and no block is larger than all
 * addresses. */
static bool is_for_host(
	const struct glk_cache *cache, const struct glk_request *request, int err)
{
	return err == -ENOMEM && cache->places && request->size <= cache->conf->map_span &&
		!(request->flags & GLAKE_ALLOC_CONTIGUOUS) &&
		glk_thread_current->error.error_class == GLAKE_ERROR_NOMEM_DEVICE;
}

/* A driver that has no such memory for this GPU, or none that can be mapped, is not asked again. */
static int give_up(struct glk_cache *cache, const struct glake_error *why)
{
	if (!cache->rungs[GLAKE_RUNG_SPILL_HOST]) {
		glk_warn("GPU %d: nothing can lie in memory of the host: %s",
			cache->device, glk_thread_current->error.text);
		cache->places = false;
	}
	glk_thread_current->error = *why;
	return -ENOMEM;
}

int glk_beside_serve(struct glk_cache *cache, const struct glk_request *request, int err,
	struct glk_seat *seat, uint64_t *ret_addr)
{
	struct glk_request again = {.size = request->size,
		.flags = request->flags,
		.stream = request->stream,
		.capture = request->capture,
		.patient = true};
	struct glake_error why;

	if (!is_for_host(cache, request, err))
		return err;
	why = glk_thread_current->error;
	if (!cache->beside.map.pool) {
		err = glk_arena_init(
			&cache->beside, cache, &ops, cache->host, cache->memory);
		if (err)
			return err;
	}
	/* as it was asked for: the GPU may have rounded it in its own way */
	again.rounded = (request->size + GLAKE_GRAIN - 1) & ~(uint64_t)(GLAKE_GRAIN - 1);
	err = glk_arena_serve(&cache->beside, &again, seat, NULL, ret_addr);
	cache->rungs[GLAKE_RUNG_SPILL_HOST] += !err;
	return err == -EINVAL || err == -EPERM || err == -EACCES || err == -EOPNOTSUPP
		? give_up(cache, &why)
		: err;
}

bool glk_beside_release(struct glk_cache *cache, uint64_t bytes)
{
	uint64_t given;

	if (!cache->beside.map.pool || !glk_arena_idle(&cache->beside))
		return false;
	glk_event_poll(&cache->streams);
	glk_plan_begin(cache);
	given = glk_ladder_release(&cache->beside, bytes, UINT32_MAX);
	glk_plan_end(cache);
	return given > 0;
}

int glk_beside_fini(struct glk_cache *cache)
{
	int err;

	if (!cache->beside.map.pool)
		return 0;
	cache->beside.map.lock = NULL;
	err = glk_arena_empty(&cache->beside);
	glk_arena_fini(&cache->beside);
	return err;
}
