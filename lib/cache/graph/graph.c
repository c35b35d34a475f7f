/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The life of pools of graphs. Entries lie in a slab that is there as long as the GPU is open,
 * and the addresses of one that has none are empty, so that anybody may ask whose an address is.
 */
#include "cache/graph/graph.h"

#include "base/conf.h"
#include "base/error.h"
#include "base/thread.h"
#include "cache/bin/quick.h"
#include "cache/cache.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

/* Addresses of a step, as a part of the memory of the GPU. */
#define STEP_PART 2

/* Pairs of pools of which one has graphs that may use blocks of the other, at a time. With more than these
 * the other stays as long as the GPU. */
#define HEIRS_MAX (UINT32_C(1) << 20)

/* Lists of names when there are pools at first. A table of twice as many comes with more pools than lists. */
#define BUCKETS 64

/* ---- Names and lists ---- */

static struct glk_graph **bucket_of(
	const struct glk_graphs *graphs, struct glake_pool_id id)
{
	uint64_t hash = (id.low ^ id.high * UINT64_C(0xff51afd7ed558ccd)) *
		UINT64_C(0x9e3779b97f4a7c15);

	return &graphs->table[(hash >> 32) & (graphs->buckets - 1)];
}

static struct glk_graph *find(struct glk_cache *cache, struct glake_pool_id id)
{
	const struct glk_graphs *graphs = glk_graphs(cache);
	struct glk_graph *g = graphs ? *bucket_of(graphs, id) : NULL;

	while (g && (g->id.high != id.high || g->id.low != id.low))
		g = g->next;
	return g;
}

static void enter(struct glk_graphs *graphs, struct glk_graph *graph)
{
	struct glk_graph **bucket = bucket_of(graphs, graph->id);

	graph->next = *bucket;
	*bucket = graph;
}

/* With less memory than that the lists become longer. */
static void grow_table(struct glk_graphs *graphs)
{
	struct glake_error why = glk_thread_current->error;
	struct glk_graph **old = graphs->table, **table;
	uint32_t count = graphs->buckets;

	table = glk_region_new(2 * count * sizeof(struct glk_graph *));
	if (!table) {
		glk_error_back(&why);
		return;
	}
	graphs->table = table;
	graphs->buckets = 2 * count;
	for (uint32_t i = 0; i < count; i++) {
		for (struct glk_graph *g = old[i], *next; g; g = next) {
			next = g->next;
			enter(graphs, g);
		}
	}
	glk_region_free(old, count * sizeof(struct glk_graph *));
}

static void forget_name(struct glk_graphs *graphs, const struct glk_graph *graph)
{
	struct glk_graph **link = bucket_of(graphs, graph->id);

	while (*link != graph)
		link = &(*link)->next;
	*link = graph->next;
	graphs->named--;
}

static void append(struct glk_graph_list *list, struct glk_graph *graph)
{
	graph->older = list->newest;
	graph->newer = NULL;
	*(list->newest ? &list->newest->newer : &list->oldest) = graph;
	list->newest = graph;
}

static void take_out(struct glk_graph_list *list, struct glk_graph *graph)
{
	*(graph->older ? &graph->older->newer : &list->oldest) = graph->newer;
	*(graph->newer ? &graph->newer->older : &list->newest) = graph->older;
}

/* ---- Life ---- */

int glk_graph_find(
	struct glk_cache *cache, struct glake_pool_id id, struct glk_graph **ret_graph)
{
	*ret_graph = find(cache, id);
	if (*ret_graph)
		return 0;
	return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
		"there is no pool %" PRIu64 ":%" PRIu64 " on this GPU", id.high, id.low);
}

static void free_table(struct glk_graphs *graphs)
{
	glk_slab_fini(&graphs->heirs);
	glk_slab_fini(&graphs->slab);
	glk_region_free(graphs->table, graphs->buckets * sizeof(struct glk_graph *));
	glk_region_free(graphs, sizeof(*graphs));
}

static int make_table(struct glk_cache *cache)
{
	struct glk_graphs *graphs;

	if (glk_graphs(cache))
		return 0;
	graphs = glk_region_new(sizeof(*graphs));
	if (!graphs)
		return -ENOMEM;
	graphs->buckets = BUCKETS;
	graphs->table = glk_region_new(BUCKETS * sizeof(struct glk_graph *));
	if (!graphs->table ||
		glk_slab_init(&graphs->slab, sizeof(struct glk_graph), GLK_GRAPHS_MAX) ||
		glk_slab_init(&graphs->heirs, sizeof(struct glk_heir), HEIRS_MAX)) {
		free_table(graphs);
		return -ENOMEM;
	}
	pthread_cond_init(&graphs->asked, NULL);
	glk_store_release(&cache->graphs, graphs); /* pairs with: glk_graphs */
	return 0;
}

/* Its addresses are gone. */
static void put(struct glk_graphs *graphs, struct glk_graph *graph)
{
	graph->state = GLK_GRAPH_FREE;
	glk_slab_put(&graphs->slab,
		(uint32_t)(graph - (struct glk_graph *)(void *)graphs->slab.base));
}

static int make(
	struct glk_cache *cache, struct glake_pool_id id, struct glk_graph **ret_graph)
{
	struct glk_graphs *graphs = glk_graphs(cache);
	uint32_t number = glk_slab_get(&graphs->slab);
	struct glk_graph *graph = glk_graph_at(graphs, number);
	int err;

	if (!number)
		return -ENOMEM;
	err = glk_arena_init_alone(&graph->arena, cache, &glk_arena_graph, &graph->space,
		cache->node, glk_arena_size(cache, cache->memory / STEP_PART));
	if (err) {
		put(graphs, graph);
		return err;
	}
	glk_slab_spoil(&graph->session,
		offsetof(struct glk_graph, callers) -
			offsetof(struct glk_graph, session));
	glk_slab_spoil(&graph->run, sizeof(*graph) - offsetof(struct glk_graph, run));
	graph->id = id;
	graph->graphs = 0;
	graph->heirs = 0;
	graph->blocks = 0;
	graph->live = 0;
	graph->limit = (struct glk_limit){0};
	graph->capture = 0;
	graph->state = GLK_GRAPH_CLOSED;
	enter(graphs, graph);
	if (++graphs->named > graphs->buckets)
		grow_table(graphs);
	*ret_graph = graph;
	return 0;
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
	append(&glk_graphs(cache)->opened, graph);
	glk_graph_settle(graph);
	/* what the program freed since then is had when it has finished, and no event can be
	 * recorded on a stream once it captures */
	glk_event_poll(&cache->streams);
	/* from the announcement of a capture on its stream is left alone: a wait or an event of ours between
	 * a question and the begin of the capture would become part of it, or break it */
	graph->announced = b->capture ? 0 : stream;
	if (graph->announced)
		glk_stream_at(&cache->streams, stream)->announced++;
	cache->streams.captures++;
	if (!glk_graphs(cache)->open++)
		glk_quick_divert(cache, GLK_DIVERT_GRAPH, true);
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
	struct glk_stream *s = glk_stream_at(&cache->streams, graph->announced);

	graph->state = GLK_GRAPH_CLOSED;
	take_out(&glk_graphs(cache)->opened, graph);
	glk_graph_settle(graph);
	/* it may have ended meanwhile, and another one may have its place */
	if (graph->announced && s->announced && glk_load_relaxed(&s->key) == graph->key)
		s->announced--;
	graph->announced = 0;
	cache->streams.captures--;
	if (!--glk_graphs(cache)->open)
		glk_quick_divert(cache, GLK_DIVERT_GRAPH, false);
	glk_graph_forget(cache, graph);
}

void glk_graph_forget(struct glk_cache *cache, struct glk_graph *graph)
{
	if (graph->state != GLK_GRAPH_CLOSED || !graph->capture ||
		graph->arena.map.held || graph->arena.inside || graph->graphs > 1)
		return;
	graph->state = GLK_GRAPH_ENDING;
	forget_name(glk_graphs(cache), graph);
	glk_graph_disinherit(cache, graph);
	glk_arena_fini_alone(&graph->arena, &graph->space);
	put(glk_graphs(cache), graph);
}

int glk_graph_end(struct glk_cache *cache, struct glake_pool_id id)
{
	struct glk_graph *graph;
	int err;

	glk_lock(&cache->lock);
	err = glk_graph_find(cache, id, &graph);
	if (!err && graph->state != GLK_GRAPH_OPEN)
		err = glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"pool %" PRIu64 ":%" PRIu64 " was not begun", id.high, id.low);
	if (!err)
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
	struct glk_graphs *graphs = glk_graphs(cache);
	int err;

	graph->state = GLK_GRAPH_ENDING;
	err = glk_limbo_empty(&limbo, &graph->arena.map);
	/* addresses that have a mapping cannot go */
	if (!err)
		err = glk_arena_empty_kept(&graph->arena);
	if (!err)
		glk_arena_fini_alone(&graph->arena, &graph->space);
	graph->state = GLK_GRAPH_LEAVING;
	if (err)
		return err;
	take_out(&graphs->left, graph);
	graphs->leaving--;
	put(graphs, graph);
	return 0;
}

/* The next one that can go and was not tried in this round. */
static struct glk_graph *next_ripe(struct glk_graph *g, uint32_t round)
{
	while (g &&
		(g->state != GLK_GRAPH_LEAVING || g->blocks || g->arena.held ||
			g->arena.inside || g->heirs || g->reaped == round))
		g = g->newer;
	return g;
}

int glk_graph_reap(struct glk_cache *cache)
{
	struct glk_graphs *graphs = glk_graphs(cache);
	uint32_t round = ++graphs->rounds;
	struct glk_graph *g = graphs->left.oldest;
	int err = 0, failed;

	while ((g = next_ripe(g, round))) {
		g->reaped = round;
		failed = take_down(cache, g);
		/* another stream captures: later */
		if (failed != -EBUSY)
			err = err ? err : failed;
		/* one that is gone is in the list no more */
		g = failed ? g->newer : graphs->left.oldest;
	}
	return err;
}

int glk_graph_release(struct glk_cache *cache, struct glake_pool_id id)
{
	struct glk_graph *graph;
	int err;

	glk_graph_refresh(cache);
	glk_lock(&cache->lock);
	err = glk_graph_find(cache, id, &graph);
	if (!err && graph->state == GLK_GRAPH_OPEN)
		err = glk_error(-EBUSY, GLAKE_ERROR_BUSY,
			"pool %" PRIu64 ":%" PRIu64 " is open", id.high, id.low);
	if (!err && !--graph->graphs) {
		graph->state = GLK_GRAPH_LEAVING;
		forget_name(glk_graphs(cache), graph);
		glk_graph_disinherit(cache, graph);
		append(&glk_graphs(cache)->left, graph);
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
	int err;

	glk_lock(&cache->lock);
	err = glk_graph_find(cache, id, &graph);
	if (!err)
		*ret = (struct glake_pool){
			.sz = sizeof(*ret),
			.live = graph->live,
			.held = graph->arena.map.held,
			.blocks = graph->blocks,
			.graphs = graph->graphs,
			.is_open = graph->state == GLK_GRAPH_OPEN,
			.limit = graph->limit.most,
		};
	glk_unlock(&cache->lock);
	return err;
}

int glk_graph_limit(struct glk_cache *cache, struct glake_pool_id id, uint64_t bytes)
{
	struct glk_graph *graph;
	int err;

	glk_lock(&cache->lock);
	err = glk_graph_find(cache, id, &graph);
	if (!err)
		graph->limit.most = bytes;
	glk_unlock(&cache->lock);
	return err;
}

int glk_graph_fini(struct glk_cache *cache)
{
	struct glk_graphs *graphs = glk_graphs(cache);
	struct glk_graph *g;
	int err = 0, failed;

	for (uint32_t i = 0; (g = glk_graph_next(graphs, &i));) {
		g->arena.map.lock = NULL;
		failed = glk_arena_empty(&g->arena);
		err = err ? err : failed;
		glk_arena_fini_alone(&g->arena, &g->space);
	}
	if (graphs) {
		pthread_cond_destroy(&graphs->asked);
		free_table(graphs);
	}
	glk_store_relaxed(&cache->graphs, NULL);
	return err;
}

uint64_t glk_graph_held(const struct glk_cache *cache)
{
	const struct glk_graph *g;
	uint64_t bytes = 0;

	for (uint32_t i = 0; (g = glk_graph_next(glk_graphs(cache), &i));)
		bytes += g->arena.map.held;
	return bytes;
}

/*
 * What the arena of a pool of graphs does otherwise than others: see graph.h. No wait of ours can
 * be in a graph, so its memory goes to another stream only when it is known to have finished.
 */

struct glk_graph *glk_graph_of(const struct glk_arena *arena)
{
	return (struct glk_graph *)((char *)arena - offsetof(struct glk_graph, arena));
}

static bool may(struct glk_arena *arena, const struct glk_request *request,
	const struct glk_use *use, unsigned *ret_waits)
{
	*ret_waits = 0;
	/* what a capture freed on a stream of the crowd never settles: see glk_graph_note() */
	if (request->stream->bit != GLK_STREAM_CROWD &&
		!glk_stream_foreign(request->stream, use) &&
		(!request->capture || use->tick > glk_graph_of(arena)->since))
		return true;
	return glk_clock_finished(&arena->gpu->streams, use);
}

static int order(
	struct glk_arena *arena, struct glk_request *request, struct glk_use *use)
{
	(void)arena;
	glk_use_drop(use, ~glk_stream_mask(request->stream));
	return 0;
}

static void note(
	struct glk_arena *arena, const struct glk_stream *stream, uint64_t capture)
{
	glk_graph_note(glk_graph_of(arena), stream, capture);
}

static void inherit(struct glk_arena *arena, uint64_t capture)
{
	glk_graph_inherit(glk_graph_of(arena), capture);
}

static void count(struct glk_arena *arena, const struct glk_extent *e, bool more)
{
	struct glk_graph *graph = glk_graph_of(arena);
	uint64_t bytes = glk_extent_asked(e);

	graph->blocks += more ? 1 : UINT64_MAX;
	graph->live += more ? bytes : -bytes;
}

static void describe(const struct glk_arena *arena, struct glake_block *block)
{
	block->pool = glk_graph_of(arena)->id;
}

const struct glk_arena_ops glk_arena_graph = {
	.kind = GLAKE_ARENA_POOL,
	.may = may,
	.order = order,
	.note = note,
	.inherit = inherit,
	.count = count,
	.describe = describe,
	.stays = "is of a pool of graphs",
	.closed = true,
};

/*
 * What was freed to a pool of graphs, and since when it is whose.
 *
 * A free in a capture is an event of that graph: nothing runs, and no clock tells when it is
 * over. Inside the capture the memory is its stream's own. When the capture is over it is
 * anybody's, since the graphs of a pool are replayed one after the other. A free outside of
 * captures is of work that is queued, and has its clock like any other, also where the stream
 * captures a moment later: the graph may be launched elsewhere.
 *
 * The two are told apart by the tick at which a capture was first seen and by the streams seen
 * in it. A capture ends on all of its streams at once, so it is over when one of them is met
 * outside of it, and when another capture comes to the pool.
 *
 * What a capture frees of a pool that is not its own its graph may have used before. Replays
 * then find memory where it was, whatever is in it, as they would with any other allocator.
 */

static void settle_use(const struct glk_graph *graph, struct glk_use *use)
{
	if (use->tick > graph->since && !(use->streams & ~graph->captured))
		glk_use_drop(use, use->streams);
}

static void settle_run(struct glk_graph *graph, uint32_t slot, uint32_t end)
{
	struct glk_map *map = &graph->arena.map;
	struct glk_use *use = &map->use[glk_use_slot(map, slot)];

	settle_use(graph, use);
	for (; slot <= end; slot++) {
		slot = glk_bits_first(map->shared, slot, end);
		if (slot == GLK_BITS_NONE)
			return;
		if (map->page[slot])
			settle_use(graph, &glk_map_page(map, map->page[slot])->use);
	}
}

void glk_graph_settle(struct glk_graph *graph)
{
	const struct glk_map *map = &graph->arena.map;
	uint32_t last = graph->captured ? glk_map_end(map) : 0, end;

	for (uint32_t slot = 0; slot < last; slot = end + 1) {
		end = glk_use_end(map, slot, last - 1);
		settle_run(graph, slot, end);
	}
	graph->captured = 0;
	graph->run = 0;
	graph->since = graph->arena.gpu->streams.tick;
}

void glk_graph_note(
	struct glk_graph *graph, const struct glk_stream *stream, uint64_t capture)
{
	uint64_t mask = glk_stream_mask(stream);

	if (capture ? capture != graph->run : (graph->captured & mask) != 0)
		glk_graph_settle(graph);
	graph->run = capture ? capture : graph->run;
	/* streams of the crowd are not told apart, so that they never settle */
	if (capture && stream->bit < GLK_STREAM_CROWD)
		graph->captured |= mask;
}

/* The open pool that serves a capture: one without a request yet does not know its own, and the
 * newest of those is taken where no other does. */
static struct glk_graph *find_open(struct glk_graphs *graphs, uint64_t capture)
{
	struct glk_graph *found = NULL;

	for (struct glk_graph *g = graphs->opened.newest; g; g = g->older) {
		if (g->run == capture)
			return g;
		if (!g->run && !found)
			found = g;
	}
	return found;
}

static struct glk_heir *heir_at(const struct glk_graphs *graphs, uint32_t id)
{
	return glk_slab_at(&graphs->heirs, id);
}

/* It is not told which pools it outlives, so it outlives all. */
#define OUTLIVES_ALL UINT32_MAX

static bool has_heir(const struct glk_graphs *graphs, const struct glk_graph *graph,
	const struct glk_graph *heir)
{
	uint32_t id = graph->heirs;

	while (id && id != OUTLIVES_ALL && heir_at(graphs, id)->heir != heir)
		id = heir_at(graphs, id)->next;
	return id > 0;
}

static void add_heir(
	struct glk_graphs *graphs, struct glk_graph *graph, struct glk_graph *heir)
{
	struct glake_error why = glk_thread_current->error;
	uint32_t id = glk_slab_get(&graphs->heirs);

	if (!id) {
		graph->heirs = OUTLIVES_ALL;
		/* a free is not refused for that */
		glk_error_back(&why);
		return;
	}
	*heir_at(graphs, id) =
		(struct glk_heir){.of = graph, .heir = heir, .next = graph->heirs};
	graph->heirs = id;
}

static void drop_heir(struct glk_graphs *graphs, uint32_t id)
{
	struct glk_heir *dropped = heir_at(graphs, id);
	uint32_t *link = &dropped->of->heirs;

	/* the rest of a list that was given up leads nowhere */
	while (*link != id && *link != OUTLIVES_ALL)
		link = &heir_at(graphs, *link)->next;
	if (*link == id)
		*link = dropped->next;
	dropped->heir = NULL;
	glk_slab_put(&graphs->heirs, id);
}

void glk_graph_inherit(struct glk_graph *graph, uint64_t capture)
{
	struct glk_graphs *graphs = glk_graphs(graph->arena.gpu);
	struct glk_graph *heir = find_open(graphs, capture);

	if (heir && heir != graph && !has_heir(graphs, graph, heir))
		add_heir(graphs, graph, heir);
}

void glk_graph_disinherit(struct glk_cache *cache, const struct glk_graph *heir)
{
	struct glk_graphs *graphs = glk_graphs(cache);

	for (uint32_t id = glk_load_relaxed(&graphs->heirs.used); id; id--) {
		if (heir_at(graphs, id)->heir == heir)
			drop_heir(graphs, id);
	}
}
