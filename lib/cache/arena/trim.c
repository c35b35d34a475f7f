/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Gives memory that no live block uses back to the driver, the cheapest to miss first: pages
 * mapped nowhere, then idle pages in the order in which requests would take them. What the GPU
 * may still use stays.
 */
#include "base/conf.h"
#include "base/probe.h"
#include "cache/ahead.h"
#include "cache/arena/request.h"
#include "cache/bin/quick.h"
#include "cache/graph/graph.h"
#include "cache/plan.h"

#include <errno.h>

static uint64_t excess(const struct glk_node *node, uint64_t keep)
{
	uint64_t held = glk_load_relaxed(&node->held) + glk_load_relaxed(&node->borrowed);

	return held > keep ? held - keep : 0;
}

struct trim {
	struct glk_node *node;
	const struct glk_map
		*of; /* pages that have mappings elsewhere alone stay; NULL: all may go */
	struct glk_limbo limbo;
	uint64_t keep;
	bool lent; /* no others go */
	int err;
};

static bool lies_in(const struct glk_map *map, uint32_t id)
{
	const struct glk_page *page = glk_map_page(map, id);
	uint32_t slot = page->first_alias;

	for (unsigned left = page->aliases; left; left--) {
		if (glk_slot_map(map, slot) == map)
			return true;
		slot = map->alias[slot];
	}
	return false;
}

static enum glk_idle_answer trim_one(struct glk_map *map, uint32_t id, void *arg)
{
	struct trim *t = arg;
	int err;

	if (!excess(t->node, t->keep))
		return GLK_IDLE_STOP;
	if ((t->lent && !glk_map_page(map, id)->lent) || (t->of && !lies_in(t->of, id)))
		return GLK_IDLE_NEXT;
	err = glk_limbo_release(&t->limbo, map, id);
	if (err && err != -EAGAIN && !t->err)
		t->err = err;
	return GLK_IDLE_NEXT;
}

/* Idle pages of a node in the space of an arena. */
static int trim_idle(struct glk_arena *arena, struct trim *t)
{
	struct glk_idle_walk walk = {.of = glk_node_of(t->node), .groups = UINT32_MAX};

	t->limbo = (struct glk_limbo)GLK_LIMBO(&arena->gpu->streams);
	glk_idle_each(&arena->map, &walk, trim_one, t);
	return t->err;
}

/* What is mapped nowhere goes too. */
static int trim(struct glk_cache *cache, struct glk_node *node, uint64_t keep)
{
	struct trim t = {.node = node, .keep = keep};

	glk_ladder_drain(cache, node, excess(node, keep));
	return trim_idle(&cache->arena, &t);
}

/* Free pages of a class that are lent go to their lender, and the others back to the list. */
static void drain_lent(struct glk_cache *cache, enum glk_class class)
{
	struct glk_map *map = &cache->arena.map;
	struct glk_node *node = cache->host;
	uint32_t kept = 0, id, next;

	while ((id = glk_node_take(node, class))) {
		if (glk_map_page(map, id)->lent) {
			glk_lock_pause(&cache->lock);
			glk_node_release(node, id);
			glk_lock_resume(&cache->lock);
		} else {
			glk_page_link(map, id, kept);
			kept = id;
		}
		glk_plan_step(cache);
	}
	for (; kept; kept = next) {
		next = glk_page_next(map, kept);
		glk_node_put(node, kept);
		glk_plan_step(cache);
	}
}

/* What another GPU has lent and nobody uses. */
static int trim_lent(struct glk_cache *cache)
{
	struct trim t = {.node = cache->host, .lent = true};

	if (!glk_load_relaxed(&cache->host->borrowed))
		return 0;
	for (int c = 0; c < GLK_CLASS_COUNT; c++)
		drain_lent(cache, (enum glk_class)c);
	return trim_idle(&cache->arena, &t);
}

/* Pages of the host, but for what tier.place_reserve keeps; that has none that are lent. */
static int trim_host(struct glk_cache *cache, bool lent)
{
	uint64_t keep = cache->conf->tier_place_reserve;
	int err;

	if (!cache->host)
		return 0;
	err = trim_lent(cache);
	if (lent || err)
		return err;
	if (keep && glk_load_relaxed(&cache->moves))
		keep += cache->mover.store.held + cache->mover.store.packs;
	if (keep)
		keep += glk_load_relaxed(&cache->host->borrowed);
	return trim(cache, cache->host, keep);
}

int glk_trim_ready(struct glk_arena *arena)
{
	struct glk_cache *cache = arena->gpu;
	int err;

	glk_plan_enter(cache);
	glk_plan_begin(cache);
	glk_event_poll(&cache->streams);
	err = arena == &cache->arena
		? trim(cache, cache->node, 0)
		: trim_idle(
			  arena, &(struct trim){.node = cache->node, .of = &arena->map});
	glk_plan_end(cache);
	glk_plan_leave(cache);
	return err;
}

/* Of GPUs that had them for a copy, which may be under way: an exchange could not wait for it. */
static void settle_rights(struct glk_cache *cache)
{
	struct glk_streams *streams = &cache->streams;
	const struct glk_mover *mover = &cache->mover;
	uint64_t set = glk_stream_mask(glk_stream_enter(streams, mover->out)) |
		glk_stream_mask(glk_stream_enter(streams, mover->back));

	glk_plan_close(cache);
	if (!glk_clock_sync(streams, set))
		glk_peer_settle(cache);
	glk_plan_open(cache);
}

/* Of memory of the host all that lies idle, or only what is lent. */
static int trim_all(
	struct glk_cache *cache, uint64_t keep, bool lent, uint64_t *ret_released)
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
	if (glk_peer_is_due(cache))
		settle_rights(cache);
	glk_plan_enter(cache);
	glk_plan_begin(cache);
	if (glk_graphs(cache) && glk_graphs(cache)->leaving)
		err = glk_graph_reap(cache);
	glk_quick_flush(cache);
	glk_event_poll_whole(&cache->streams, true);
	failed = trim(cache, cache->node, keep);
	err = err ? err : failed;
	failed = trim_host(cache, lent);
	err = err ? err : failed;
	failed = glk_managed_trim(cache);
	if (glk_load_relaxed(&cache->moves)) {
		if (lent)
			glk_mover_give(&cache->mover);
		else
			glk_mover_trim_all(&cache->mover);
	}
	glk_plan_end(cache);
	glk_plan_leave(cache);
	after = glk_load_relaxed(&cache->node->held);
	/* others may have made more than this gave back */
	*ret_released = before > after ? before - after : 0;
	glk_unlock(&cache->lock);
	if (!lent)
		glk_hostpool_trim(&cache->hostpool);
	GLK_PROBE3(trim, cache->device, keep, *ret_released);
	return err ? err : failed;
}

int glk_cache_trim(struct glk_cache *cache, uint64_t keep, uint64_t *ret_released)
{
	return trim_all(cache, keep, false, ret_released);
}

int glk_cache_trim_gpu(struct glk_cache *cache, uint64_t keep, uint64_t *ret_released)
{
	return trim_all(cache, keep, true, ret_released);
}
