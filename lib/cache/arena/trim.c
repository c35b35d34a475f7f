/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Gives memory that no live block uses back to the driver, the cheapest to miss first: pages
 * mapped nowhere, then idle pages in the order in which requests would take them. What the GPU
 * may still use stays.
 */
#include "cache/ahead.h"
#include "cache/arena/request.h"
#include "cache/bin/quick.h"
#include "cache/graph/graph.h"
#include "cache/plan.h"

#include <errno.h>

static uint64_t excess(const struct glk_arena *home, uint64_t keep)
{
	uint64_t held = glk_load_relaxed(&home->map.node->held);

	return held > keep ? held - keep : 0;
}

struct trim {
	struct glk_arena *home;
	struct glk_limbo limbo;
	uint64_t keep;
	int err;
};

static enum glk_idle_answer trim_one(struct glk_map *map, uint32_t id, void *arg)
{
	struct trim *t = arg;
	int err;

	if (!excess(t->home, t->keep))
		return GLK_IDLE_STOP;
	err = glk_limbo_release(&t->limbo, map, id);
	if (err && err != -EAGAIN && !t->err)
		t->err = err;
	return GLK_IDLE_NEXT;
}

static int trim(struct glk_arena *home, uint64_t keep)
{
	struct trim t = {
		.home = home, .limbo = GLK_LIMBO(&home->gpu->streams), .keep = keep};
	struct glk_idle_walk walk = {.groups = UINT32_MAX};

	glk_ladder_drain(home, excess(home, keep));
	glk_idle_each(&home->map, &walk, trim_one, &t);
	return t.err;
}

int glk_cache_trim(struct glk_cache *cache, uint64_t keep, uint64_t *ret_released)
{
	uint64_t before, after;
	int err = 0, failed;

	*ret_released = 0;
	if (!glk_load_acquire(&cache->started)) /* pairs with: glk_cache_start */
		return 0;
	glk_graph_refresh(cache);
	glk_lock(&cache->lock);
	glk_ahead_rest(cache);
	before = glk_load_relaxed(&cache->node->held);
	glk_plan_enter(cache);
	glk_plan_begin(cache);
	if (glk_graphs(cache) && glk_graphs(cache)->leaving)
		err = glk_graph_reap(cache);
	glk_quick_flush(cache);
	glk_event_poll(&cache->streams);
	failed = trim(&cache->arena, keep);
	err = err ? err : failed;
	failed = cache->beside.map.pool ? trim(&cache->beside, 0) : 0;
	if (glk_load_relaxed(&cache->moves))
		glk_mover_trim(&cache->mover);
	glk_plan_end(cache);
	glk_plan_leave(cache);
	after = glk_load_relaxed(&cache->node->held);
	/* others may have made more than this gave back */
	*ret_released = before > after ? before - after : 0;
	glk_unlock(&cache->lock);
	return err ? err : failed;
}
