/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_GRAPH_H
#define GLK_CACHE_GRAPH_H

/*
 * Pools of graphs: see glake/graph.h. A pool is an arena of its own, and differs from others in
 * these rules:
 *
 *  - a mapping stays until the pool ends, for a replay is work that no event tells of
 *  - what a graph frees goes to the stream that freed it, and to all once its capture is over;
 *    what is freed outside of captures has to have finished first, for no wait of ours may be
 *    part of a graph
 *  - a block that is freed in the capture of another pool's graph may be used by that graph, so
 *    its own pool does not end before that one
 *  - there are no quick bins. A pool does not end while a block of it is live
 *
 * State.c brings blocks back that a pool had before, at their addresses.
 *
 * While a pool is open no request of the GPU is a hit, so that each can be looked at.
 *
 * There are as many as there is memory for. Requests look at those that are open and a name is found by
 * its hash, so what others there are costs nobody a thing; whoever goes over all of them says so.
 *
 * Life		FREE -begin-> OPEN -end-> CLOSED -begin-> OPEN ...
 *		CLOSED -last release-> LEAVING -last block, GPU idle-> ENDING -> FREE
 */
#include "cache/cache.h"

#include <pthread.h>

enum glk_graph_state {
	GLK_GRAPH_FREE = 0,
	GLK_GRAPH_OPEN,
	GLK_GRAPH_CLOSED,
	GLK_GRAPH_LEAVING,
	GLK_GRAPH_ENDING, /* somebody takes it down, and has its tables for himself */
};

static inline bool glk_graph_is_there(enum glk_graph_state state)
{
	return state != GLK_GRAPH_FREE && state != GLK_GRAPH_ENDING;
}

struct glk_graph {
	struct glk_arena arena;
	struct glk_space space;
	uint64_t blocks, live; /* given out and not freed; bytes asked for */
	struct glk_limit limit;
	struct glake_pool_id id;
	enum glk_graph_state state;
	uint32_t graphs;  /* begun and not released */
	uint64_t session; /* number of its last begin */
	/* Who it is open for. */
	glake_pool_filter_fn filter; /* NULL: for the capture of `stream` */
	void *arg;
	struct CUstream_st *stream;
	uint64_t key;		   /* of the stream, see glk_stream_key() */
	uint32_t announced;	   /* index of that stream; 0: there is none */
	uint64_t capture;	   /* one that was not announced; 0: it was */
	glk_atomic(uint64_t) seen; /* the capture of the stream, as of its last request */
	glk_atomic(uint32_t) callers; /* threads that ask its filter */
	/* The capture that it serves, the tick at which that was first seen, and the
	 * streams that were seen in it. */
	uint64_t run, since, captured;
	/* Pools whose graphs may use blocks of this one, and which it outlives: the first of them, by its
	 * number; 0: none. */
	uint32_t heirs;
	uint32_t reaped;	/* the last round of the reaper that has tried it */
	struct glk_graph *next; /* OPEN, CLOSED: of those with the same hash */
	/* Of those that are open in the order of their sessions, or of those that are leaving. */
	struct glk_graph *older, *newer;
};

/* Each has a GiB of the 48 bits of addresses at least, see map/space/index.h. */
#define GLK_GRAPHS_MAX (UINT32_C(1) << 18)

struct glk_heir {
	struct glk_graph *of, *heir; /* NULL: it is free */
	uint32_t next;		     /* of the same pool */
};

struct glk_graph_list {
	struct glk_graph *oldest, *newest;
};

struct glk_graphs {
	uint32_t open, leaving; /* pools in these states */
	struct glk_graph_list opened, left;
	uint32_t rounds; /* of the reaper */
	uint64_t sessions;
	pthread_cond_t asked;  /* a filter has returned whose pool was ended */
	struct glk_slab slab;  /* all of them */
	struct glk_slab heirs; /* struct glk_heir */
	/* Those that have a name, by its hash. */
	struct glk_graph **table;
	uint32_t named, buckets;
};

static inline struct glk_graphs *glk_graphs(const struct glk_cache *cache)
{
	return glk_load_relaxed(&cache->graphs);
}

static inline struct glk_graph *glk_graph_at(const struct glk_graphs *graphs, uint32_t id)
{
	return glk_slab_at(&graphs->slab, id);
}

/* The next pool that is there behind a number, which becomes its own; NULL: none is. From 0 on all of them;
 * `graphs` may be NULL. */
static inline struct glk_graph *glk_graph_next(
	const struct glk_graphs *graphs, uint32_t *id)
{
	uint32_t used = graphs ? glk_load_relaxed(&graphs->slab.used) : 0;

	while (*id < used) {
		struct glk_graph *graph = glk_graph_at(graphs, ++*id);

		if (glk_graph_is_there(graph->state))
			return graph;
	}
	return NULL;
}

/* At the end of the GPU, which is idle: all pools are taken down. */
int glk_graph_fini(struct glk_cache *cache);

/* ---- Under the lock of the GPU. ---- */

/* The pool of a name: 0, or -EINVAL with a record. */
int glk_graph_find(
	struct glk_cache *cache, struct glake_pool_id id, struct glk_graph **ret_graph);
/* Bytes of the pages of all pools. */
uint64_t glk_graph_held(const struct glk_cache *cache);
struct glk_graph *glk_graph_of(const struct glk_arena *arena);
/* Pools that nothing holds any more end, if the GPU can be waited for. In a plan; gives the lock up
 * meanwhile. 0 or the driver's error. */
int glk_graph_reap(struct glk_cache *cache);
/* Closes it to requests. */
void glk_graph_close(struct glk_cache *cache, struct glk_graph *graph);
/* A pool that is closed, that nobody announced and that got nothing, has no name for anybody: it
 * goes, when no request is inside and nobody holds it. */
void glk_graph_forget(struct glk_cache *cache, struct glk_graph *graph);

/* A request, a use or a free on a stream, in a capture or in none (0). */
void glk_graph_note(
	struct glk_graph *graph, const struct glk_stream *stream, uint64_t capture);
/* The capture that it served is over. */
void glk_graph_settle(struct glk_graph *graph);
/* A block of a pool is freed in a capture, of which the pool was not told yet. */
void glk_graph_inherit(struct glk_graph *graph, uint64_t capture);
/* The kind of arena that a pool is. */
extern const struct glk_arena_ops glk_arena_graph;
/* No graph of a pool is replayed any more. */
void glk_graph_disinherit(struct glk_cache *cache, const struct glk_graph *heir);

/* route.c: the pool that a request goes to, or NULL. Not under the lock. 0 or an error. */
int glk_graph_route(struct glk_cache *cache, struct CUstream_st *stream,
	const struct glk_stream_facts *facts, uint64_t *ret_session);
/* Closes the pools of captures that were not announced and are over. Not under the lock. */
void glk_graph_refresh(struct glk_cache *cache);
/* The open pool of a session; NULL if it has ended meanwhile. Under the lock. */
struct glk_graph *glk_graph_session(struct glk_cache *cache, uint64_t session);

#endif
