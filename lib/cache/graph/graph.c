/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The life of pools of graphs. Entries lie in a region that is there as long as the GPU is open,
 * and the addresses of one that has none are empty, so that anybody may ask whose an address is.
 */
#include "cache/graph/graph.h"

#include "base/conf.h"
#include "base/error.h"
#include "cache/away.h"
#include "cache/bin/latest.h"
#include "cache/device.h"
#include "cache/plan.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

/* Addresses of a step, as a part of the memory of the GPU. */
#define STEP_PART 2

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

int glk_graph_find(
	struct glk_cache *cache, struct glake_pool_id id, struct glk_graph **ret_graph)
{
	*ret_graph = find(cache, id);
	return *ret_graph ? 0 : unknown(id);
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

static int make(
	struct glk_cache *cache, struct glake_pool_id id, struct glk_graph **ret_graph)
{
	struct glk_graphs *graphs = glk_graphs(cache);
	struct glk_graph *graph = NULL;
	int err;

	for (uint32_t i = 0; i < GLAKE_POOLS_MAX && !graph; i++) {
		/* one that is being taken down is not free yet */
		if (graphs->at[i].state == GLK_GRAPH_FREE)
			graph = &graphs->at[i];
	}
	if (!graph)
		return glk_error(-ENOMEM, GLAKE_ERROR_LIMIT,
			"GPU %d has %d pools of graphs, the most there can be",
			cache->device, GLAKE_POOLS_MAX);
	err = glk_arena_init(&graph->arena, cache, &glk_arena_graph, cache->node,
		cache->memory / STEP_PART);
	if (err)
		return err;
	graph->id = id;
	graph->graphs = 0;
	graph->heirs = 0;
	graph->blocks = 0;
	graph->live = 0;
	graph->capture = 0;
	graph->state = GLK_GRAPH_CLOSED;
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
		glk_stream_at(&cache->streams, stream)->announced++;
}

/* The stream may have ended meanwhile, and another one may have its place. */
static void announce_end(struct glk_cache *cache, struct glk_graph *graph)
{
	struct glk_stream *s = glk_stream_at(&cache->streams, graph->announced);

	if (graph->announced && s->announced && glk_load_relaxed(&s->key) == graph->key)
		s->announced--;
	graph->announced = 0;
}

/* The pool of a name, made at first, with one more in it. */
static int hold(
	struct glk_cache *cache, struct glake_pool_id id, struct glk_graph **ret_graph)
{
	int err = make_table(cache);

	if (err)
		return err;
	*ret_graph = find(cache, id);
	if (!*ret_graph)
		err = make(cache, id, ret_graph);
	if (!err)
		(*ret_graph)->graphs++;
	return err;
}

static int begin(
	struct glk_cache *cache, const struct glk_graph_begin *b, uint32_t stream)
{
	struct glk_graph *graph = find(cache, b->id);
	int err;

	if (graph && graph->state == GLK_GRAPH_OPEN)
		return glk_error(-EBUSY, GLAKE_ERROR_BUSY,
			"pool %" PRIu64 ":%" PRIu64 " is open", b->id.high, b->id.low);
	err = hold(cache, b->id, &graph);
	if (err)
		return err;
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
	glk_latest_settle(cache);
	glk_event_poll(&cache->streams);
	announce(cache, graph, b->capture ? 0 : stream);
	cache->streams.captures++;
	if (!glk_graphs(cache)->open++)
		glk_quick_divert(cache, true);
	return 0;
}

/* A name that a pool may have, on a GPU that is there. */
static int start(struct glk_cache *cache, struct glake_pool_id id)
{
	if (!id.high && !id.low)
		return glk_error(
			-EINVAL, GLAKE_ERROR_INVAL, "two zeroes are no name of a pool");
	return glk_cache_start(cache);
}

int glk_graph_begin(struct glk_cache *cache, const struct glk_graph_begin *b)
{
	struct glk_stream_facts facts;
	uint32_t id = 0;
	int err;

	err = start(cache, b->id);
	if (!err && !b->filter)
		err = glk_stream_get(&cache->streams, b->stream, &facts, &id);
	if (err)
		return err;
	glk_lock(&cache->lock);
	glk_clock_quiet(&cache->streams);
	err = glk_suspended(cache);
	if (!err)
		err = begin(cache, b, id);
	glk_unlock(&cache->lock);
	return err;
}

int glk_graph_hold(struct glk_cache *cache, struct glake_pool_id id)
{
	struct glk_graph *graph;
	int err = start(cache, id);

	if (err)
		return err;
	glk_lock(&cache->lock);
	err = glk_suspended(cache);
	if (!err)
		err = hold(cache, id, &graph);
	glk_unlock(&cache->lock);
	return err;
}

void glk_graph_close(struct glk_cache *cache, struct glk_graph *graph)
{
	graph->state = GLK_GRAPH_CLOSED;
	glk_graph_settle(graph);
	announce_end(cache, graph);
	cache->streams.captures--;
	if (!--glk_graphs(cache)->open)
		glk_quick_divert(cache, glk_load_relaxed(&cache->suspended));
	glk_graph_forget(cache, graph);
}

void glk_graph_forget(struct glk_cache *cache, struct glk_graph *graph)
{
	if (graph->state != GLK_GRAPH_CLOSED || !graph->capture ||
		graph->arena.map.page_bytes || graph->arena.inside || graph->graphs > 1)
		return;
	graph->state = GLK_GRAPH_ENDING;
	glk_arena_fini(&graph->arena);
	graph->state = GLK_GRAPH_FREE;
	glk_graph_disinherit(cache, graph);
}

int glk_graph_end(struct glk_cache *cache, struct glake_pool_id id)
{
	struct glk_graph *graph;
	int err = 0;

	glk_lock(&cache->lock);
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
		glk_lock_wait(&cache->lock, &glk_graphs(cache)->asked);
	glk_unlock(&cache->lock);
	return err;
}

/* Its memory goes to the node, for all. Nobody else touches it meanwhile, since it is ENDING. */
static int take_down(struct glk_cache *cache, struct glk_graph *graph)
{
	struct glk_limbo limbo = GLK_LIMBO(&cache->streams);
	int err;

	graph->state = GLK_GRAPH_ENDING;
	err = glk_limbo_empty(&limbo, &graph->arena.map);
	/* addresses that have a mapping cannot go */
	if (!err)
		err = glk_arena_empty_kept(&graph->arena);
	if (!err)
		glk_arena_fini(&graph->arena);
	graph->state = err ? GLK_GRAPH_LEAVING : GLK_GRAPH_FREE;
	glk_graphs(cache)->leaving -= !err;
	return err;
}

int glk_graph_reap(struct glk_cache *cache)
{
	struct glk_graphs *graphs = glk_graphs(cache);
	int err = 0, failed;

	for (uint32_t i = 0; i < graphs->used && graphs->leaving; i++) {
		struct glk_graph *graph = &graphs->at[i];

		if (graph->state != GLK_GRAPH_LEAVING || graph->blocks ||
			graph->arena.held || graph->arena.inside || graph->heirs)
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
	glk_lock(&cache->lock);
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
		glk_plan_enter(cache);
		glk_plan_begin(cache);
		err = glk_graph_reap(cache);
		glk_plan_end(cache);
		glk_plan_leave(cache);
	}
	glk_unlock(&cache->lock);
	return err;
}

int glk_graph_get(
	struct glk_cache *cache, struct glake_pool_id id, struct glake_pool *ret)
{
	struct glk_graph *graph;
	int err = 0;

	glk_lock(&cache->lock);
	graph = find(cache, id);
	if (graph) {
		*ret = (struct glake_pool){
			.sz = sizeof(*ret),
			.live = graph->live,
			.held = graph->arena.map.page_bytes,
			.blocks = graph->blocks,
			.graphs = graph->graphs,
			.is_open = graph->state == GLK_GRAPH_OPEN,
		};
	} else {
		err = unknown(id);
	}
	glk_unlock(&cache->lock);
	return err;
}

int glk_graph_fini(struct glk_cache *cache)
{
	struct glk_graphs *graphs = glk_graphs(cache);
	int err = 0, failed;

	for (uint32_t i = 0; graphs && i < graphs->used; i++) {
		if (!glk_graph_is_there(graphs->at[i].state))
			continue;
		graphs->at[i].arena.map.lock = NULL;
		failed = glk_arena_empty(&graphs->at[i].arena);
		if (failed && !err)
			err = failed;
		glk_arena_fini(&graphs->at[i].arena);
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
		if (glk_graph_is_there(graphs->at[i].state))
			bytes += graphs->at[i].arena.map.page_bytes;
	}
	return bytes;
}
