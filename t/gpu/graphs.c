/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Graphs on a real GPU. Blocks are taken, filled, checked and freed while streams capture; then
 * the graphs are replayed a thousand times, what they filled is checked word by word in each
 * replay and after each batch of them, and all the while other threads take, overwrite and free
 * memory under a budget that leaves none to spare. What a graph uses must stay its own until its
 * pool is released, and serve others afterwards.
 *
 *	gpu-graphs [REPLAYS]	1000 unless given
 */
#include "pools.h"

#define GRAPHS 6
#define BATCH  50 /* replays between two looks from outside */

static unsigned replays = 1000;

struct graph {
	const char *name;
	unsigned number; /* from 0 */
	struct glake_pool_id pool;
	bool forked, told, announced;
	struct CUstream_st *stream, *branch;
	struct CUevent_st *fork, *join;
	struct gpu_jobs out; /* what it leaves for the program */
	void *block;	     /* the same, until it is freed */
	void *graph, *exec;
	unsigned reused; /* addresses that were given twice in the capture */
	uintptr_t given[64];
	unsigned given_count, tags;
};

/* ---- A graph. ---- */

/* A block in a graph, with words that no other one has in any replay. */
static struct gpu_jobs take(
	struct graph *g, size_t size, struct CUstream_st *stream, void **ret_block)
{
	uint32_t serial = 1u << 29 | g->number << 20 | g->tags++ << 11;
	struct gpu_jobs jobs = {0};

	must(glake_alloc(ctx, 0, size, stream, 0, ret_block), "no block in a capture");
	for (unsigned i = 0; i < g->given_count; i++)
		g->reused += g->given[i] == (uintptr_t)*ret_block;
	if (g->given_count < 64)
		g->given[g->given_count++] = (uintptr_t)*ret_block;
	jobs.at[0] = gpu_job(*ret_block, size, 40 + g->number, serial);
	return jobs;
}

static uint64_t round_of(const struct graph *g)
{
	return work.rounds + g->number * sizeof(uint64_t);
}

static void put(
	const struct graph *g, const struct gpu_jobs *jobs, struct CUstream_st *stream)
{
	must_cuda(gpu_put(&work, jobs, 1, round_of(g), 0, stream), "no kernel");
}

static void look(const struct graph *g, const struct gpu_jobs *jobs, uint32_t delay,
	struct CUstream_st *stream)
{
	must_cuda(gpu_check(&work, jobs, 1, round_of(g), delay, stream), "no kernel");
}

/* Blocks come and go on one stream of a capture. */
static void some_work(struct graph *g, struct CUstream_st *stream)
{
	static const size_t sizes[] = {3 * MIB, 512, 12 * MIB, 700 * KIB, 3 * MIB, 9000,
		12 * MIB, 512, 20 * MIB + 8};
	struct gpu_jobs held, jobs;
	void *keep = NULL, *block = NULL;

	held = take(g, 5 * MIB, stream, &keep);
	put(g, &held, stream);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		jobs = take(g, sizes[i], stream, &block);
		put(g, &jobs, stream);
		look(g, &jobs, i % 3 ? 0 : 5000, stream);
		is_done(glake_free(ctx, block, stream), "free in a capture");
	}
	look(g, &held, 0, stream);
	is_done(glake_free(ctx, keep, stream), "free in a capture");
}

static void fork_to_branch(struct graph *g)
{
	if (g->told) {
		is_done(glake_event_record(ctx, 0, g->fork, g->stream), "record, told");
		is_done(glake_stream_wait(ctx, 0, g->branch, g->fork), "wait, told");
		return;
	}
	must_cuda(work.event_record(g->fork, g->stream), "no record");
	must_cuda(work.stream_wait(g->branch, g->fork, 0), "no wait");
}

static void join_branch(struct graph *g)
{
	must_cuda(work.event_record(g->join, g->branch), "no record");
	must_cuda(work.stream_wait(g->stream, g->join, 0), "no wait");
}

/* Both branches at once; one block is used on both, and must not be reused by the first as
 * long as the second, which takes its time, has not seen it. */
static void forked_work(struct graph *g)
{
	struct gpu_jobs shared, after;
	void *block = NULL, *next = NULL;

	shared = take(g, 6 * MIB, g->stream, &block);
	put(g, &shared, g->stream);
	fork_to_branch(g);
	is_done(glake_use(ctx, block, g->branch), "used on the branch too");
	look(g, &shared, 60000, g->branch);
	is_done(glake_free(ctx, block, g->stream), "freed on the first stream");
	after = take(g, 6 * MIB, g->stream, &next);
	put(g, &after, g->stream);
	some_work(g, g->branch);
	some_work(g, g->stream);
	look(g, &after, 0, g->stream);
	is_done(glake_free(ctx, next, g->stream), "free in a capture");
	join_branch(g);
}

static void capture(struct graph *g)
{
	struct glake_pool info = {.sz = sizeof(info)};

	tap_note("%s", g->name);
	if (g->announced)
		is_done(glake_pool_begin(ctx, 0, g->pool, g->stream), "begin");
	begin_capture(g->stream, (int)(g->number % 3));
	must_cuda(gpu_turn(&work, round_of(g), g->stream), "no kernel");
	g->out = take(g, 3 * MIB + 512, g->stream, &g->block);
	put(g, &g->out, g->stream);
	if (g->forked)
		forked_work(g);
	else
		some_work(g, g->stream);
	ok(lives(g->stream), "the capture lives");
	must_cuda(work.extra.end_capture(g->stream, &g->graph), "the capture was ended");
	ok(g->reused > 0, "memory was reused in the capture");
	if (g->announced)
		ok(same_pool(pool_of(g->block), g->pool), "the pool is the one named");
	else
		g->pool = pool_of(g->block);
	ok(!no_pool(g->pool), "blocks have a pool");
	if (g->announced)
		is_done(glake_pool_end(ctx, 0, g->pool), "end");
	must_cuda(work.instantiate(&g->exec, g->graph, 0), "no graph to launch");
	must(glake_pool_get(ctx, 0, g->pool, &info), "no such pool");
	tap_note("pool %" PRIu64 ":%" PRIu64 ": %" PRIu64 " MiB held, %" PRIu64
		 " blocks live, %u graphs, %u addresses given again",
		g->pool.high, g->pool.low, info.held >> 20, info.blocks, info.graphs,
		g->reused);
	ok(info.held >= 20 * MIB, "and memory");
}

static void graph_init(struct graph *g)
{
	g->stream = stream_new();
	g->branch = stream_new();
	must_cuda(work.event_create(&g->fork, NO_TIMING), "no event");
	must_cuda(work.event_create(&g->join, NO_TIMING), "no event");
}

static void graph_fini(struct graph *g)
{
	must_cuda(work.exec_destroy(g->exec), "no end of a graph");
	must_cuda(work.extra.graph_destroy(g->graph), "no end of a graph");
	is_done(glake_pool_release(ctx, 0, g->pool), "release");
	is_done(glake_event_forget(ctx, 0, g->fork), "forget the event");
	must_cuda(work.event_destroy(g->fork), "no end of an event");
	must_cuda(work.event_destroy(g->join), "no end of an event");
	stream_end(g->stream);
	stream_end(g->branch);
}

/* ---- Replays. ---- */

/* Launches of graphs that share a pool go to one stream, one graph after the other. */
static void replay(struct graph *graphs, struct CUstream_st *shared)
{
	for (unsigned i = 1; i <= replays; i++) {
		for (unsigned k = 0; k < GRAPHS; k++) {
			struct graph *g = &graphs[k];
			struct CUstream_st *stream = k >= 2 && k < 5 ? shared : g->stream;

			must_cuda(work.graph_launch(g->exec, stream), "no launch");
			if (i % BATCH == 0)
				look(g, &g->out, 0, stream);
		}
	}
}

static void replays_beside_traffic(void)
{
	struct graph graphs[GRAPHS] = {
		{"one stream", 0, {1, 1}, .announced = true},
		{"forked", 1, {2, 2}, .announced = true, .forked = true},
		{"the first of three with one pool", 2, {3, 3}, .announced = true},
		{"the second", 3, {3, 3}, .announced = true, .forked = true,
			.told = true},
		{"the third", 4, {3, 3}, .announced = true},
		{"not announced", 5, .forked = true},
	};
	struct CUstream_st *shared;
	struct gpu_counters counters;
	struct glake_stats stats;
	struct traffic *t;

	context_open();
	shared = stream_new();
	t = noise_start(true, 1);
	traffic_sleep(0.1);
	for (unsigned k = 0; k < GRAPHS; k++) {
		graph_init(&graphs[k]);
		capture(&graphs[k]);
	}
	/* what the program takes no more the graphs go on using */
	for (unsigned k = 0; k < GRAPHS; k++)
		is_done(glake_free(ctx, graphs[k].block, graphs[k].stream),
			"freed before the replays");
	stats = figures();
	is_int(stats.pools, 4, "four pools");
	ok(stats.reserved <= 512 * MIB, "within the budget");
	tap_note("%" PRIu64 " MiB of %" PRIu64 " are the pools'", stats.pool_held >> 20,
		stats.reserved >> 20);
	replay(graphs, shared);
	noise_stop(t);
	counters = gpu_counters_take(&work);
	tap_note("%u replays of %u graphs; %" PRIu64 " blocks handed over", replays,
		GRAPHS, counters.handed);
	if (!is_int(counters.wrong, 0, "no word is wrong, in graphs and beside them"))
		tap_note("one: %#" PRIx64 ", want %#" PRIx64, counters.found,
			counters.wanted);
	/* an unannounced pool may be open still if nobody asked for memory since */
	for (unsigned k = 0; k < GRAPHS; k++)
		graph_fini(&graphs[k]);
	stream_end(shared);
	stats = figures();
	is_int(stats.pools, 0, "no pool is left");
	is_int(stats.pool_held, 0, "nor memory of one");
	is_int(stats.live_blocks, 0, "nor a block");
}

/* What was the pools' is anybody's. */
static void serves_others(void)
{
	struct CUstream_st *stream = stream_new();
	struct gpu_counters counters;
	struct gpu_jobs jobs = {0};
	void *block[7] = {NULL};
	size_t leaked = 9;

	for (unsigned i = 0; i < 7; i++) {
		is_done(glake_alloc(ctx, 0, 64 * MIB, stream, 0, &block[i]),
			"nearly the whole budget is there for others");
		jobs.at[i] = gpu_job(block[i], 64 * MIB, 1, i);
	}
	must_cuda(gpu_put(&work, &jobs, 7, 0, 0, stream), "no kernel");
	must_cuda(gpu_check(&work, &jobs, 7, 0, 0, stream), "no kernel");
	counters = gpu_counters_take(&work);
	is_int(counters.wrong, 0, "and whole");
	for (unsigned i = 0; i < 7; i++)
		is_done(glake_free(ctx, block[i], stream), "free");
	stream_end(stream);
	is_done(glake_close(ctx, &leaked), "close");
	is_int(leaked, 0, "nothing leaked");
}

/* A mistake of the program, which must be seen: a graph that uses memory which is no pool's. */
static void stale_graph(void)
{
	struct CUstream_st *stream = stream_new(), *other = stream_new();
	void *block = NULL, *mine = NULL, *graph = NULL, *exec = NULL;
	struct gpu_counters counters;
	struct gpu_jobs jobs = {0};

	context_open();
	must(glake_alloc(ctx, 0, 64 * MIB, stream, 0, &block), "no block");
	jobs.at[0] = gpu_job(block, 64 * MIB, 1, 1);
	begin_capture(stream, 0);
	must_cuda(gpu_put(&work, &jobs, 1, 0, 0, stream), "no kernel");
	must_cuda(work.extra.end_capture(stream, &graph), "the capture was ended");
	must_cuda(work.instantiate(&exec, graph, 0), "no graph to launch");
	is_done(glake_free(ctx, block, stream), "free what a graph writes to");
	must(glake_alloc(ctx, 0, 64 * MIB, other, 0, &mine), "no block");
	ok(mine == block, "another stream gets it");
	jobs.at[0] = gpu_job(mine, 64 * MIB, 2, 2);
	must_cuda(gpu_put(&work, &jobs, 1, 0, 0, other), "no kernel");
	must_cuda(work.sync(), "the GPU has gone");
	must_cuda(work.graph_launch(exec, stream), "no launch");
	must_cuda(work.sync(), "the GPU has gone");
	must_cuda(gpu_check(&work, &jobs, 1, 0, 0, other), "no kernel");
	counters = gpu_counters_take(&work);
	is_int(counters.wrong, 64 * MIB / 8, "a graph without a pool is seen to do harm");
	must_cuda(work.exec_destroy(exec), "no end of a graph");
	must_cuda(work.extra.graph_destroy(graph), "no end of a graph");
	is_done(glake_free(ctx, mine, other), "free");
	stream_end(stream);
	stream_end(other);
	is_done(glake_close(ctx, NULL), "close");
}

/* A graph that fills a block which it leaves. */
struct filled {
	struct gpu_jobs jobs, spoilt;
	void *block, *graph, *exec;
};

static void fill(struct filled *f, struct glake_pool_id id, uint32_t number, size_t size,
	struct CUstream_st *stream)
{
	void *other = NULL;

	is_done(glake_pool_begin(ctx, 0, id, stream), "begin");
	begin_capture(stream, 0);
	must(glake_alloc(ctx, 0, size, stream, 0, &other), "no block in a capture");
	must(glake_alloc(ctx, 0, size, stream, 0, &f->block), "no block in a capture");
	f->jobs.at[0] = gpu_job(f->block, size, number, number);
	f->spoilt.at[0] = gpu_job(f->block, size, number + 10, number);
	must_cuda(gpu_put(&work, &f->jobs, 1, 0, 0, stream), "no kernel");
	is_done(glake_free(ctx, other, stream), "free in a capture");
	must_cuda(work.extra.end_capture(stream, &f->graph), "the capture was ended");
	is_done(glake_pool_end(ctx, 0, id), "end");
	must_cuda(work.instantiate(&f->exec, f->graph, 0), "no graph to launch");
}

static void refill(const struct filled *f, struct CUstream_st *stream)
{
	must_cuda(gpu_put(&work, &f->spoilt, 1, 0, 0, stream), "no kernel");
	must_cuda(work.graph_launch(f->exec, stream), "no launch");
	must_cuda(gpu_check(&work, &f->jobs, 1, 0, 0, stream), "no kernel");
}

/* Two graphs, each on the state that the one before has left; states come back between the replays. */
static void states(void)
{
	struct glake_pool_block first[2], second[2];
	struct CUstream_st *stream = stream_new();
	struct glake_pool_id id = {4, 4};
	struct gpu_counters counters;
	struct filled one = {0}, two = {0};
	size_t ones = 0, twos = 0;

	context_open();
	is_done(glake_pool_hold(ctx, 0, id), "hold");
	fill(&one, id, 1, 3 * MIB, stream);
	is_done(glake_pool_blocks(ctx, 0, id, first, 2, &ones), "the first state");
	fill(&two, id, 2, 9 * MIB + 512, stream);
	is_done(glake_pool_blocks(ctx, 0, id, second, 2, &twos), "the second one");
	ok(ones == 1 && twos == 2, "of one block and of two");
	for (unsigned i = 0; i < 100; i++) {
		is_done(glake_pool_restore(ctx, 0, id, first, ones), "the first");
		refill(&one, stream);
		is_done(glake_pool_restore(ctx, 0, id, second, twos), "the second");
		must_cuda(gpu_check(&work, &one.jobs, 1, 0, 0, stream), "no kernel");
		refill(&two, stream);
		is_done(glake_pool_restore(ctx, 0, id, NULL, 0), "none");
	}
	is_done(glake_pool_restore(ctx, 0, id, second, twos), "the second");
	must_cuda(work.sync(), "the GPU has gone");
	counters = gpu_counters_take(&work);
	is_int(counters.wrong, 0, "replays fill what came back with the same words");
	is_done(glake_free(ctx, one.block, stream), "free");
	is_done(glake_free(ctx, two.block, stream), "free");
	must_cuda(work.exec_destroy(one.exec), "no end of a graph");
	must_cuda(work.exec_destroy(two.exec), "no end of a graph");
	must_cuda(work.extra.graph_destroy(one.graph), "no end of a graph");
	must_cuda(work.extra.graph_destroy(two.graph), "no end of a graph");
	for (int i = 0; i < 3; i++)
		is_done(glake_pool_release(ctx, 0, id), "release");
	is_int(figures().pools, 0, "no pool is left");
	stream_end(stream);
	is_done(glake_close(ctx, NULL), "close");
}

int main(int argc, char **argv)
{
	struct glk_drv *drv;

	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
	if (argc > 1)
		replays = (unsigned)atoi(argv[1]) / BATCH * BATCH;
	drv = gpu_open();
	tap_plan_later();
	gpu_work_init(&work);
	replays_beside_traffic();
	serves_others();
	stale_graph();
	states();
	must_cuda(work.mem_free(work.counters), "no end of the counters");
	is_done(drv->ops->close(drv), "close");
	return tap_done();
}
