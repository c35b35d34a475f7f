/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which pool a request goes to. Filters are the program's, and captures are asked for at the
 * driver, so neither is done under the lock of the GPU; a pool that is looked at counts its
 * callers, and its end waits for them.
 */
#include "base/error.h"
#include "base/thread.h"
#include "cache/graph/graph.h"

#include <errno.h>

/* A pool that was open a moment ago. */
struct candidate {
	struct glk_graph *graph;
	uint64_t session, capture, key;
	glake_pool_filter_fn filter;
	void *arg;
	struct CUstream_st *stream;
};

/* How many are looked at for one turn with the lock. */
#define BATCH 16

struct batch {
	struct candidate at[BATCH];
	uint32_t count;
	/* The last one that was ever in it, by which the next batch is found. */
	struct glk_graph *last;
	uint64_t session;
};

/* The first one that was opened behind the last; that one may have been closed meanwhile. */
static struct glk_graph *first_of(
	const struct glk_graphs *graphs, const struct batch *batch)
{
	struct glk_graph *g = batch->last;

	if (g && g->state == GLK_GRAPH_OPEN && g->session == batch->session)
		return g->newer;
	g = graphs->opened.oldest;
	while (g && g->session <= batch->session)
		g = g->newer;
	return g;
}

/* The next open pools, in the order in which they were opened; false: there are none. */
static bool gather(struct glk_cache *cache, struct batch *batch)
{
	struct glk_graphs *graphs = glk_graphs(cache);
	struct glk_graph *g;

	batch->count = 0;
	if (!graphs)
		return false;
	glk_lock(&cache->lock);
	for (g = first_of(graphs, batch); g && batch->count < BATCH; g = g->newer) {
		glk_add_seq_cst(&g->callers, 1);
		batch->last = g;
		batch->session = g->session;
		batch->at[batch->count++] = (struct candidate){.graph = g,
			.session = g->session,
			.capture = g->capture,
			.key = g->key,
			.filter = g->filter,
			.arg = g->arg,
			.stream = g->stream};
	}
	glk_unlock(&cache->lock);
	return batch->count > 0;
}

/* The filter of a pool is not called any more. Whoever ends the pool waits for the last of its
 * callers, and has closed it under the lock before it looks. */
static void asked(struct glk_cache *cache, struct glk_graph *graph)
{
	/* pairs with: glk_graph_end */
	if (glk_sub_acq_rel(&graph->callers, 1) != 1)
		return;
	glk_lock(&cache->lock);
	if (graph->state != GLK_GRAPH_OPEN)
		pthread_cond_broadcast(&glk_graphs(cache)->asked);
	glk_unlock(&cache->lock);
}

/* What the stream of a pool captures, as far as can be told: the driver may not say, and of
 * another thread's own default stream that thread's last request does, as long as it lives. */
static uint64_t capture_of(struct glk_cache *cache, const struct candidate *c)
{
	uint64_t seen = glk_load_relaxed(&c->graph->seen);
	struct glk_stream_facts facts = {0};
	int err;

	if (c->key != glk_stream_key(c->stream))
		return glk_thread_lives(glk_stream_thread(c->key)) ? seen : 0;
	err = cache->drv->ops->stream_facts(cache->drv, cache->device, c->stream, &facts);
	if (err)
		return err == -EINVAL ? 0 : seen;
	return facts.capture;
}

/* Closes the pool of a capture that was not announced when that is over. */
static void check_capture(struct glk_cache *cache, const struct candidate *c)
{
	struct glk_graph *graph;

	if (capture_of(cache, c) == c->capture)
		return;
	glk_lock(&cache->lock);
	graph = glk_graph_session(cache, c->session);
	if (graph)
		glk_graph_close(cache, graph);
	glk_unlock(&cache->lock);
}

static bool is_for(struct glk_cache *cache, const struct candidate *c,
	struct CUstream_st *stream, uint64_t capture)
{
	if (c->filter)
		return c->filter(stream, c->arg);
	if (c->capture) {
		if (capture == c->capture)
			return true;
		check_capture(cache, c);
		return false;
	}
	if (!capture || capture == GLK_CAPTURE_BROKEN)
		return false;
	if (glk_stream_key(stream) != c->key)
		return capture_of(cache, c) == capture;
	glk_store_relaxed(&c->graph->seen, capture);
	return true;
}

struct glk_graph *glk_graph_session(struct glk_cache *cache, uint64_t session)
{
	struct glk_graphs *graphs = glk_graphs(cache);

	struct glk_graph *g = graphs ? graphs->opened.newest : NULL;

	while (g && g->session > session)
		g = g->older;
	return g && g->session == session ? g : NULL;
}

void glk_graph_refresh(struct glk_cache *cache)
{
	struct batch batch = {.count = 0};

	while (gather(cache, &batch)) {
		for (uint32_t i = 0; i < batch.count; i++) {
			if (batch.at[i].capture)
				check_capture(cache, &batch.at[i]);
			asked(cache, batch.at[i].graph);
		}
	}
}

/* A pool for a capture that nobody announced. */
static int adopt(struct glk_cache *cache, struct CUstream_st *stream, uint64_t capture,
	uint64_t *ret_session)
{
	struct glk_graph_begin begin = {
		.id = {UINT64_MAX, capture}, .stream = stream, .capture = capture};
	const struct glk_graph *g;
	int err = glk_graph_begin(cache, &begin);

	/* another stream of the same capture was first */
	if (err && err != -EBUSY)
		return err;
	glk_lock(&cache->lock);
	*ret_session = glk_graphs(cache)->sessions;
	for (g = glk_graphs(cache)->opened.oldest; g; g = g->newer) {
		if (g->capture == capture)
			*ret_session = g->session;
	}
	glk_unlock(&cache->lock);
	return 0;
}

int glk_graph_route(struct glk_cache *cache, struct CUstream_st *stream,
	const struct glk_stream_facts *facts, uint64_t *ret_session)
{
	struct batch batch = {.count = 0};

	*ret_session = 0;
	while (!*ret_session && gather(cache, &batch)) {
		for (uint32_t i = 0; i < batch.count; i++) {
			const struct candidate *c = &batch.at[i];

			if (!*ret_session && is_for(cache, c, stream, facts->capture))
				*ret_session = c->session;
			asked(cache, c->graph);
		}
	}
	if (*ret_session || !facts->capture || facts->capture == GLK_CAPTURE_BROKEN)
		return 0;
	return adopt(cache, stream, facts->capture, ret_session);
}
