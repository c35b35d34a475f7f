/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * When a node has no room for what a request still needs: memory that nobody uses is given back
 * to the driver until there is room, for the whole of it at once. The rungs, each counted:
 *
 *	limbo	pools of graphs that were released, and could not end then: that waits for the GPU
 *	recut	blocks in bins merge; free and idle pages, whatever their size
 *	sync	the same once more after waiting for the GPU
 *
 * and then -ENOMEM, with a record that says what was asked for and what there is.
 */
#include "base/conf.h"
#include "base/error.h"
#include "cache/bin/quick.h"
#include "cache/graph/graph.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

/* Bytes to give back so that `size` more fit: the excess over the budget, or all of `size`
 * where the driver is the limit. */
static uint64_t shortage(const struct glk_node *node, uint64_t size)
{
	uint64_t held = glk_load_relaxed(&node->held);
	uint64_t budget = glk_load_relaxed(&node->budget);

	return glk_node_has_room(node, size) ? size : held + size - budget;
}

struct release {
	struct glk_limbo limbo;
	uint64_t left;
};

static enum glk_idle_answer release_one(struct glk_map *map, uint32_t id, void *arg)
{
	struct release *r = arg;
	uint64_t size = glk_map_page(map, id)->size;

	if (!glk_limbo_release(&r->limbo, map, id))
		r->left -= size < r->left ? size : r->left;
	return r->left ? GLK_IDLE_NEXT : GLK_IDLE_STOP;
}

static uint64_t release_idle(struct glk_cache *cache, uint64_t bytes, uint32_t groups)
{
	struct release r = {.limbo = glk_request_limbo(cache), .left = bytes};

	struct glk_idle_walk walk = {.groups = groups};

	glk_idle_each(&cache->map, &walk, release_one, &r);
	return bytes - r.left;
}

uint64_t glk_ladder_release(struct glk_cache *cache, uint64_t bytes, uint32_t groups)
{
	uint64_t given = 0;

	for (int c = GLK_CLASS_COUNT - 1; c >= 0 && given < bytes; c--)
		given += glk_node_drain(cache->node, (enum glk_class)c, bytes - given);
	if (given < bytes)
		given += release_idle(cache, bytes - given, groups);
	cache->rungs[GLAKE_RUNG_RECUT] += given > 0;
	return given;
}

bool glk_ladder_climb(struct glk_cache *cache, uint64_t bytes)
{
	uint64_t held = glk_load_relaxed(&cache->node->held), want, given;

	/* with blocks that were live then, or while a graph was captured */
	if (glk_graphs(cache) && glk_graphs(cache)->leaving) {
		glk_graph_reap(cache);
		cache->rungs[GLAKE_RUNG_LIMBO] +=
			glk_load_relaxed(&cache->node->held) < held;
	}
	/* what can go then must not depend on how far the GPU is */
	if (!cache->streams->opportunistic)
		glk_clock_sync(cache->streams, ~UINT64_C(0));
	glk_event_poll(cache->streams);
	glk_quick_flush(cache);
	want = shortage(cache->node, bytes);
	given = glk_ladder_release(cache, want, UINT32_MAX);
	/* a capture may be in the way of some of it */
	if (given < want && cache->map.idle_slots) {
		glk_clock_sync(cache->streams, ~UINT64_C(0));
		given += glk_ladder_release(cache, want - given, UINT32_MAX);
	}
	/* where the driver is the limit, what it has left may be enough with less */
	return given >= want || glk_node_has_room(cache->node, bytes);
}

int glk_ladder_refuse(struct glk_cache *cache, uint64_t size)
{
	struct glk_node *node = cache->node;
	uint64_t budget = glk_load_relaxed(&node->budget), idle;
	const struct glk_slab *pages = &cache->pool->pages;
	const struct glk_map *map = &cache->map;
	char limit[64] = "no budget set";
	struct glk_seats sum;

	if (glk_node_has_room(node, size) && glk_load_relaxed(&pages->live) >= pages->max)
		return glk_error(-ENOMEM, GLAKE_ERROR_LIMIT,
			"GPU %d needs one page more than the %" PRIu32
			" that pool.pages allows",
			cache->device, pages->max);
	glk_seats_sum(cache, &sum);
	idle = (map->idle_slots << map->shift) + glk_node_free(node);
	if (budget != UINT64_MAX)
		snprintf(limit, sizeof(limit), "a budget of %" PRIu64, budget);
	return glk_error(-ENOMEM, GLAKE_ERROR_NOMEM_DEVICE,
		"GPU %d has no room for %" PRIu64 " bytes of pages more: %" PRIu64
		" held with %s, %" PRIu64 " in live blocks, %" PRIu64
		" idle, %" PRIu64 " in pools of graphs, largest hole %" PRIu64
		"; a larger budget or fewer live blocks would help",
		cache->device, size, glk_load_relaxed(&node->held), limit, sum.live, idle,
		glk_graph_held(cache), glk_tree_largest(map, &map->common));
}
