/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The life of pools of graphs. Entries lie in a region that is there as long as the GPU is open,
 * and the addresses of one that has none are empty, so that anybody may ask whose an address is.
 */
#include "cache/graph.h"

#include "base/conf.h"
#include "base/error.h"
#include "cache/device.h"
#include "cache/quick.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>

/* Addresses of a pool, as a part of those of the GPU. */
#define SPAN_PART 4

struct glk_graph *glk_graph_of(const struct glk_cache *pool)
{
	return (struct glk_graph *)((char *)pool - offsetof(struct glk_graph, cache));
}

static struct glk_graph *find(struct glk_cache *cache, struct glake_pool_id id)
{
	struct glk_graphs *graphs = glk_graphs(cache);

	for (uint32_t i = 0; graphs && i < graphs->used; i++) {
		struct glk_graph *g = &graphs->at[i];

		if ((g->state == GLK_GRAPH_OPEN || g->state == GLK_GRAPH_CLOSED) &&
			g->id.high == id.high && g->id.low == id.low)
			return g;
	}
	return NULL;
}

static int unknown(struct glake_pool_id id)
{
	return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
		"there is no pool %" PRIu64 ":%" PRIu64 " on this GPU", id.high, id.low);
}

bool glk_graph_holds(const struct glk_cache *cache, uint64_t addr)
{
	/* pairs with: the release in make_table */
	const struct glk_graphs *graphs = glk_load_acquire(&cache->graphs);

	for (uint32_t i = 0; graphs && i < GLAKE_POOLS_MAX; i++) {
		if (glk_cache_holds(&graphs->at[i].cache, addr))
			return true;
	}
	return false;
}

struct glk_cache *glk_graph_cache(struct glk_cache *cache, uint64_t addr)
{
	struct glk_graphs *graphs = glk_graphs(cache);

	for (uint32_t i = 0; graphs && i < graphs->used; i++) {
		if (glk_cache_holds(&graphs->at[i].cache, addr))
			return &graphs->at[i].cache;
	}
	return glk_cache_holds(cache, addr) ? cache : NULL;
}

static int make_table(struct glk_cache *cache)
{
	struct glk_graphs *graphs;

	if (glk_graphs(cache))
		return 0;
	graphs = glk_region_new(sizeof(*graphs));
	if (!graphs)
		return -ENOMEM;
	/* pairs with: the acquire in glk_graph_holds */
	glk_store_release(&cache->graphs, graphs);
	return 0;
}

/* A cache over the node of another one. */
static int make_cache(struct glk_cache *cache, struct glk_cache *home)
{
	int err;

	cache->lock = home->lock;
	cache->streams = home->streams;
	cache->home = home;
	cache->drv = home->drv;
	cache->pool = home->pool;
	cache->node = home->node;
	cache->conf = home->conf;
	cache->device = home->device;
	cache->memory = home->memory;
	cache->small_most = home->small_most;
	err = glk_slab_init(&cache->seats, sizeof(struct glk_seat), 1);
	if (err)
		return err;
	err = glk_map_init(&cache->map, cache->pool, cache->node, cache->conf,
		cache->conf->map_span / SPAN_PART);
	if (err) {
		glk_slab_fini(&cache->seats);
		return err;
	}
	glk_store_relaxed(&cache->base, cache->map.base);
	/* pairs with: the acquire in glk_cache_holds */
	glk_store_release(&cache->size, cache->map.size);
	return 0;
}

static void end_cache(struct glk_cache *cache)
{
	glk_store_release(&cache->size, 0); /* pairs with: glk_cache_holds */
	glk_map_fini(&cache->map);
	glk_slab_fini(&cache->seats);
	/* the rest is set when it is made again, and addresses may be asked for at any time */
	memset((char *)cache + offsetof(struct glk_cache, seat_at), 0,
		sizeof(*cache) - offsetof(struct glk_cache, seat_at));
}

static int make(
	struct glk_cache *cache, struct glake_pool_id id, struct glk_graph **ret_graph)
{
	struct glk_graphs *graphs = glk_graphs(cache);
	struct glk_graph *graph = NULL;
	int err;

	for (uint32_t i = 0; i < GLAKE_POOLS_MAX && !graph; i++) {
		if (graphs->at[i].state == GLK_GRAPH_FREE)
			graph = &graphs->at[i];
	}
	if (!graph)
		return glk_error(-ENOMEM, GLAKE_ERROR_LIMIT,
			"GPU %d has %d pools of graphs, the most there can be",
			cache->device, GLAKE_POOLS_MAX);
	err = make_cache(&graph->cache, cache);
	if (err)
		return err;
	graph->id = id;
	graph->graphs = 0;
	graph->heirs = 0;
	if (graphs->used <= (uint32_t)(graph - graphs->at))
		graphs->used = (uint32_t)(graph - graphs->at) + 1;
	*ret_graph = graph;
	return 0;
}

static int begin(struct glk_cache *cache, const struct glk_graph_begin *b)
{
	struct glk_graph *graph;
	int err;

	err = make_table(cache);
	if (err)
		return err;
	graph = find(cache, b->id);
	if (graph && graph->state == GLK_GRAPH_OPEN)
		return glk_error(-EBUSY, GLAKE_ERROR_BUSY,
			"pool %" PRIu64 ":%" PRIu64 " is open", b->id.high, b->id.low);
	if (!graph)
		err = make(cache, b->id, &graph);
	if (err)
		return err;
	graph->graphs++;
	graph->filter = b->filter;
	graph->arg = b->arg;
	graph->stream = b->stream;
	graph->key = glk_stream_key(b->stream);
	graph->capture = b->capture;
	glk_store_relaxed(&graph->seen, b->capture);
	graph->state = GLK_GRAPH_OPEN;
	graph->session = ++glk_graphs(cache)->sessions;
	glk_graph_settle(graph);
	/* what the program freed since then is had when it has finished, and no event can be
	 * recorded on a stream once it captures */
	glk_event_poll(cache->streams);
	cache->streams->captures++;
	if (!glk_graphs(cache)->open++)
		glk_quick_divert(cache, true);
	return 0;
}

int glk_graph_begin(struct glk_cache *cache, const struct glk_graph_begin *b)
{
	struct glk_stream_facts facts;
	uint32_t id = 0;
	int err;

	if (!b->id.high && !b->id.low)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"two zeroes are no name of a pool");
	err = glk_cache_start(cache);
	if (!err && !b->filter)
		err = glk_stream_get(cache->streams, b->stream, &facts, &id);
	if (err)
		return err;
	glk_lock(cache->lock);
	err = begin(cache, b);
	glk_unlock(cache->lock);
	return err;
}

void glk_graph_close(struct glk_cache *cache, struct glk_graph *graph)
{
	graph->state = GLK_GRAPH_CLOSED;
	glk_graph_settle(graph);
	cache->streams->captures--;
	if (!--glk_graphs(cache)->open)
		glk_quick_divert(cache, false);
	/* one that nobody announced and that got nothing has no name for anybody */
	if (graph->capture && !graph->cache.map.page_bytes) {
		end_cache(&graph->cache);
		graph->state = GLK_GRAPH_FREE;
		glk_graph_disinherit(cache, graph);
	}
}

int glk_graph_end(struct glk_cache *cache, struct glake_pool_id id)
{
	struct glk_graph *graph;
	int err = 0;

	glk_lock(cache->lock);
	graph = find(cache, id);
	if (!graph)
		err = unknown(id);
	else if (graph->state != GLK_GRAPH_OPEN)
		err = glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"pool %" PRIu64 ":%" PRIu64 " was not begun", id.high, id.low);
	else
		glk_graph_close(cache, graph);
	if (!err && glk_graphs(cache)->leaving)
		glk_graph_reap(cache);
	glk_unlock(cache->lock);
	/* the filter may go with the caller */
	while (!err && glk_load_acquire(&graph->callers)) /* pairs with: route.c */
		sched_yield();
	return err;
}

static uint64_t live_blocks(const struct glk_cache *cache)
{
	const struct glk_seat *seat = glk_slab_at(&cache->seats, 0);

	return glk_load_relaxed(&seat->allocs) - glk_load_relaxed(&seat->frees);
}

/* Its memory goes to the node, for all. */
static int take_down(struct glk_cache *cache, struct glk_graph *graph)
{
	struct glk_limbo limbo = GLK_LIMBO(cache->streams);
	int err = glk_clock_sync_all(cache->streams), failed = 0;

	if (err)
		return err;
	glk_single_release(&graph->cache, UINT64_MAX, &failed);
	err = glk_limbo_empty(&limbo, &graph->cache.map);
	/* addresses that have a mapping cannot go */
	if (!err && !failed)
		err = glk_cache_empty_kept(&graph->cache);
	if (err || failed)
		return err ? err : failed;
	end_cache(&graph->cache);
	graph->state = GLK_GRAPH_FREE;
	glk_graphs(cache)->leaving--;
	return 0;
}

int glk_graph_reap(struct glk_cache *cache)
{
	struct glk_graphs *graphs = glk_graphs(cache);
	int err = 0, failed;

	for (uint32_t i = 0; i < graphs->used && graphs->leaving; i++) {
		struct glk_graph *graph = &graphs->at[i];

		if (graph->state != GLK_GRAPH_LEAVING || live_blocks(&graph->cache) ||
			graph->cache.held || graph->heirs)
			continue;
		failed = take_down(cache, graph);
		/* another stream captures: later */
		if (failed && failed != -EBUSY && !err)
			err = failed;
	}
	return err;
}

int glk_graph_release(struct glk_cache *cache, struct glake_pool_id id)
{
	struct glk_graph *graph;
	int err = 0;

	glk_graph_refresh(cache);
	glk_lock(cache->lock);
	graph = find(cache, id);
	if (!graph) {
		err = unknown(id);
	} else if (graph->state == GLK_GRAPH_OPEN) {
		err = glk_error(-EBUSY, GLAKE_ERROR_BUSY,
			"pool %" PRIu64 ":%" PRIu64 " is open", id.high, id.low);
	} else if (!--graph->graphs) {
		graph->state = GLK_GRAPH_LEAVING;
		glk_graph_disinherit(cache, graph);
		glk_graphs(cache)->leaving++;
		err = glk_graph_reap(cache);
	}
	glk_unlock(cache->lock);
	return err;
}

int glk_graph_get(struct glk_cache *cache, struct glake_pool_id id, struct glake_pool *ret)
{
	struct glk_graph *graph;
	int err = 0;

	glk_lock(cache->lock);
	graph = find(cache, id);
	if (graph) {
		const struct glk_seat *seat = glk_slab_at(&graph->cache.seats, 0);

		*ret = (struct glake_pool){
			.sz = sizeof(*ret),
			.live = glk_load_relaxed(&seat->live),
			.held = graph->cache.map.page_bytes,
			.blocks = live_blocks(&graph->cache),
			.graphs = graph->graphs,
			.is_open = graph->state == GLK_GRAPH_OPEN,
		};
	} else {
		err = unknown(id);
	}
	glk_unlock(cache->lock);
	return err;
}

int glk_graph_fini(struct glk_cache *cache, int (*empty)(struct glk_cache *cache))
{
	struct glk_graphs *graphs = glk_graphs(cache);
	int err = 0, failed;

	for (uint32_t i = 0; graphs && i < graphs->used; i++) {
		if (graphs->at[i].state == GLK_GRAPH_FREE)
			continue;
		failed = empty(&graphs->at[i].cache);
		if (failed && !err)
			err = failed;
		end_cache(&graphs->at[i].cache);
	}
	if (graphs)
		glk_region_free(graphs, sizeof(*graphs));
	glk_store_relaxed(&cache->graphs, NULL);
	return err;
}
