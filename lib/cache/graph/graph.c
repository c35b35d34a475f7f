/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The life of pools of graphs. Entries lie in a region that is there as long as the GPU is open,
 * and the addresses of one that has none are empty, so that anybody may ask whose an address is.
 */
#include "cache/graph/graph.h"

#include "base/conf.h"
#include "base/error.h"
#include "cache/device.h"
#include "cache/bin/quick.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

/* Addresses of a step, as a part of the memory of the GPU. */
#define STEP_PART 2

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

static int make_table(struct glk_cache *cache)
{
	struct glk_graphs *graphs;

	if (glk_graphs(cache))
		return 0;
	graphs = glk_region_new(sizeof(*graphs));
	if (!graphs)
		return -ENOMEM;
	pthread_cond_init(&graphs->asked, NULL);
	glk_store_release(&cache->graphs, graphs); /* pairs with: glk_graphs */
	return 0;
}

/* A cache over the node of another one. */
static int make_cache(struct glk_cache *cache, struct glk_cache *home)
{
	struct glk_map_size size = {
		.step = home->memory / STEP_PART, .most = home->conf->map_span};
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
	err = glk_map_init(&cache->map, cache->pool, cache->node, cache->conf, size);
	if (err)
		glk_slab_fini(&cache->seats);
	return err;
}

static void end_cache(struct glk_cache *cache)
{
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

/* From the announcement of a capture on its stream is left alone: a wait or an event of ours between
 * a question and the begin of the capture would become part of it, or break it. */
static void announce(struct glk_cache *cache, struct glk_graph *graph, uint32_t stream)
{
	graph->announced = stream;
	if (stream)
		glk_stream_at(cache->streams, stream)->announced++;
}

/* The stream may have ended meanwhile, and another one may have its place. */
static void announce_end(struct glk_cache *cache, struct glk_graph *graph)
{
	struct glk_stream *s = glk_stream_at(cache->streams, graph->announced);

	if (graph->announced && s->announced && glk_load_relaxed(&s->key) == graph->key)
		s->announced--;
	graph->announced = 0;
}

static int begin(
	struct glk_cache *cache, const struct glk_graph_begin *b, uint32_t stream)
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
	announce(cache, graph, b->capture ? 0 : stream);
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
	err = begin(cache, b, id);
	glk_unlock(cache->lock);
	return err;
}

void glk_graph_close(struct glk_cache *cache, struct glk_graph *graph)
{
	graph->state = GLK_GRAPH_CLOSED;
	glk_graph_settle(graph);
	announce_end(cache, graph);
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
	/* the filter may go with the caller; pairs with: asked in route.c */
	while (!err && glk_load_seq_cst(&graph->callers))
		glk_lock_wait(cache->lock, &glk_graphs(cache)->asked);
	glk_unlock(cache->lock);
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
	int err;

	err = glk_limbo_empty(&limbo, &graph->cache.map);
	/* addresses that have a mapping cannot go */
	if (!err)
		err = glk_cache_empty_kept(&graph->cache);
	if (err)
		return err;
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
		pthread_cond_destroy(&graphs->asked);
	if (graphs)
		glk_region_free(graphs, sizeof(*graphs));
	glk_store_relaxed(&cache->graphs, NULL);
	return err;
}

uint64_t glk_graph_held(const struct glk_cache *cache)
{
	struct glk_graphs *graphs = glk_graphs(cache);
	uint64_t bytes = 0;

	for (uint32_t i = 0; graphs && i < graphs->used; i++) {
		if (graphs->at[i].state != GLK_GRAPH_FREE)
			bytes += graphs->at[i].cache.map.page_bytes;
	}
	return bytes;
}
