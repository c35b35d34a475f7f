/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Captures on a real GPU that come to nothing, which must leak nothing; and captures beside
 * which everything else is done, on the thread that captures and on others, in each mode of
 * capture, under pressure of memory: none of them may end by what the library does.
 */
#include "pools.h"

/* ---- Captures that come to nothing. ---- */

static void broken_capture(void)
{
	struct CUstream_st *stream = stream_new();
	struct glake_pool_id pool = {7, 7};
	void *before = NULL, *after = NULL, *graph = NULL;
	int err;

	is_done(glake_pool_begin(ctx, 0, pool, stream), "begin");
	begin_capture(stream, 0);
	is_done(glake_alloc(ctx, 0, 9 * MIB, stream, 0, &before), "a block in it");
	ok(work.stream_sync(stream), "the program breaks the capture");
	err = glake_alloc(ctx, 0, 9 * MIB, stream, 0, &after);
	tap_note("a request on its stream then: %d", err);
	ok(work.extra.end_capture(stream, &graph) && !graph, "no graph comes of it");
	if (!err)
		is_done(glake_free(ctx, after, stream), "free");
	is_done(glake_free(ctx, before, stream), "free");
	is_done(glake_pool_end(ctx, 0, pool), "end");
	is_done(glake_pool_release(ctx, 0, pool), "release");
	is_int(figures().pools, 0, "no pool is left");
	is_int(figures().live_blocks, 0, "nor a block");
	is_done(glake_alloc(ctx, 0, MIB, stream, 0, &after), "the stream works");
	ok(no_pool(pool_of(after)), "with memory of nobody's pool");
	is_done(glake_free(ctx, after, stream), "free");
	stream_end(stream);
}

static bool is_mine(struct CUstream_st *stream, void *arg)
{
	return stream == arg;
}

/* By a choice of streams, as PyTorch does, and nothing is captured at all. */
static void empty_pools(void)
{
	struct CUstream_st *stream = stream_new();
	struct glake_pool_id pool = {8, 8};
	void *block = NULL;

	is_done(glake_pool_begin_for(ctx, 0, pool, is_mine, stream), "begin, chosen");
	is_int(glake_pool_release(ctx, 0, pool), -EBUSY, "an open one is not released");
	is_done(glake_alloc(ctx, 0, 9 * MIB, stream, 0, &block),
		"a block without capture");
	ok(same_pool(pool_of(block), pool), "is of the pool");
	is_done(glake_pool_end(ctx, 0, pool), "end");
	is_done(glake_pool_release(ctx, 0, pool), "release with a live block");
	is_int(figures().pools, 1, "which holds the pool");
	is_done(glake_free(ctx, block, stream), "free");
	is_int(figures().pools, 1, "a free takes nothing down");
	is_done(glake_trim(ctx, 0, SIZE_MAX, NULL), "a trim");
	is_int(figures().pools, 0, "does");
	is_done(glake_pool_begin(ctx, 0, pool, stream), "begin");
	is_done(glake_pool_end(ctx, 0, pool), "end");
	is_done(glake_pool_release(ctx, 0, pool), "nothing was captured, release");
	stream_end(stream);
}

/* Never ended, and one that was not announced and never asked about again. */
static void forgotten_captures(void)
{
	struct CUstream_st *stream = stream_new(), *other = stream_new();
	struct glake_pool_id pool = {9, 9};
	void *graph = NULL, *block = NULL;
	size_t leaked = 9;

	is_done(glake_pool_begin(ctx, 0, pool, stream), "begin, and no end");
	begin_capture(stream, 0);
	is_done(glake_alloc(ctx, 0, 30 * MIB, stream, 0, &block), "a block in it");
	must_cuda(work.extra.end_capture(stream, &graph), "the capture was ended");
	work.extra.graph_destroy(graph);
	is_done(glake_free(ctx, block, stream), "free");
	begin_capture(other, 2);
	is_done(glake_alloc(ctx, 0, 30 * MIB, other, 0, &block), "not announced");
	ok(!no_pool(pool_of(block)), "it has a pool");
	must_cuda(work.extra.end_capture(other, &graph), "the capture was ended");
	work.extra.graph_destroy(graph);
	is_done(glake_free(ctx, block, other), "free");
	stream_end(stream);
	stream_end(other);
	is_done(glake_close(ctx, &leaked), "close");
	is_int(leaked, 0, "nothing leaked");
}

static void abandoned(void)
{
	size_t before = 0, after = 0, total = 0;
	struct glk_drv *drv = NULL;

	must(glk_cuda_open(NULL, &drv), "no driver");
	for (int i = 0; i < 3; i++) {
		context_open();
		broken_capture();
		empty_pools();
		forgotten_captures();
		must(drv->ops->memory_info(drv, 0, i ? &after : &before, &total),
			"no memory info");
	}
	is_int(after, before, "free memory is where it was");
	must(drv->ops->close(drv), "no end of the driver");
}

/* ---- A capture that nothing of ours may end. ---- */

struct beside {
	struct CUstream_st *captured, *stream, *held;
	struct gate *gate;
	const char *who;
};

/* Which one waited, if one did. */
static void note_lateness(const struct beside *b, const char *what)
{
	if (atomic_exchange(&b->gate->late, 0))
		ok(false, "%s: %s: waited for the busy stream", b->who, what);
}

static void still(const struct beside *b, int err, int want, const char *what)
{
	note_lateness(b, what);
	if (!is_int(err, want, what))
		gpu_why();
	if (!lives(b->captured))
		ok(false, "%s: %s: the capture lives", b->who, what);
}

/* The same with whatever answer. */
static void still_any(const struct beside *b, int err, const char *what)
{
	tap_note("%s: %d", what, err);
	ok(lives(b->captured), "%s: %s: the capture lives", b->who, what);
}

static void memory_beside(const struct beside *b)
{
	struct CUevent_st *event = NULL;
	void *block = NULL, *two = NULL, *one = NULL;
	size_t released = 0;

	still(b, glake_alloc(ctx, 0, 700, b->stream, 0, &block), 0, "a small block");
	still(b, glake_free(ctx, block, b->stream), 0, "free");
	still(b, glake_alloc(ctx, 0, 30 * MIB, b->stream, 0, &block), 0, "a large one");
	still(b, glake_use(ctx, block, b->held), 0, "use on a busy stream");
	still(b, glake_free(ctx, block, b->stream), 0, "free");
	still(b, glake_alloc(ctx, 0, 40 * MIB, b->stream, 0, &block), 0, "another");
	still(b, glake_event_new(ctx, 0, &event), 0, "new event");
	still(b, glake_event_record(ctx, 0, event, b->held), 0, "record");
	still(b, glake_stream_wait(ctx, 0, b->stream, event), 0, "wait");
	still(b, glake_free_after(ctx, block, &event, 1), 0, "free behind the event");
	still(b, glake_event_free(ctx, 0, event), 0, "end the event");
	still(b, glake_alloc(ctx, 0, 3 * MIB, b->stream, GLAKE_ALLOC_CONTIGUOUS, &one), 0,
		"a contiguous one");
	still(b, glake_alloc(ctx, 0, 3 * MIB, GLK_STREAM_PER_THREAD, 0, &block), 0,
		"on the thread's own stream");
	still(b, glake_alloc(ctx, 0, 3 * MIB, NULL, 0, &two), 0, "on the default stream");
	still(b, glake_free(ctx, two, NULL), 0, "free");
	still(b, glake_free(ctx, block, GLK_STREAM_PER_THREAD), 0, "free");
	still(b, glake_free(ctx, one, b->stream), 0, "free");
	still(b, glake_trim(ctx, 0, 0, &released), 0, "trim");
}

static void streams_beside(const struct beside *b)
{
	struct glake_pool_id pool = {77, (uintptr_t)b->stream};
	void *block = NULL;

	still(b, glake_stream_end(ctx, 0, b->stream), 0, "say that one ends");
	still(b, glake_pool_begin_for(ctx, 0, pool, is_mine, b->stream), 0,
		"begin another pool");
	still(b, glake_alloc(ctx, 0, 9 * MIB, b->stream, 0, &block), 0, "a block of it");
	still(b, glake_free(ctx, block, b->stream), 0, "free");
	still(b, glake_pool_end(ctx, 0, pool), 0, "end");
	still_any(b, glake_pool_release(ctx, 0, pool), "release it");
}

/* More than there is, so that each rung of the ladder is tried while work is under way. */
static void pressure_beside(const struct beside *b)
{
	struct CUstream_st *made = NULL;
	struct glake_stats stats;
	void *block[8] = {NULL};
	size_t budget = 0;

	still(b, glake_stream_new(ctx, 0, &made), 0, "new stream");
	still(b, glake_alloc(ctx, 0, 5 * MIB, made, 0, &block[0]), 0, "a block on it");
	still(b, glake_free(ctx, block[0], made), 0, "free");
	still(b, glake_stream_free(ctx, 0, made), 0, "end it, with what it waits for");
	must(glake_budget_get(ctx, 0, &budget), "no budget");
	still(b, glake_alloc(ctx, 0, 20 * MIB, b->stream, 0, &block[0]), 0, "a block");
	still(b, glake_use(ctx, block[0], b->held), 0, "used by a busy stream");
	still(b, glake_free(ctx, block[0], b->stream), 0, "free");
	stats = figures();
	still(b, glake_budget_set(ctx, 0, (size_t)stats.reserved), 0, "close the budget");
	for (int i = 0; i < 8; i++)
		still_any(b,
			glake_alloc(ctx, 0, i % 2 ? 600 * KIB : 24 * MIB, b->stream,
				i == 6 ? GLAKE_ALLOC_CONTIGUOUS : 0, &block[i]),
			"more than there is");
	for (int i = 0; i < 8; i++)
		if (block[i])
			still(b, glake_free(ctx, block[i], b->stream), 0, "free");
	still(b, glake_budget_set(ctx, 0, budget), 0, "open the budget");
}

static void all_beside(const struct beside *b)
{
	memory_beside(b);
	streams_beside(b);
	/* what would wait for the busy stream must not wait for ever */
	gate_open(b->gate);
	pressure_beside(b);
}

static void *elsewhere(void *arg)
{
	work.extra.context_set(work.extra.primary);
	all_beside(arg);
	return NULL;
}

static void untouched(int mode, bool other_thread, bool announced)
{
	static struct gate gate;
	struct beside b = {stream_new(), stream_new(), stream_new(), &gate,
		other_thread ? "another thread" : "the thread that captures"};
	struct glake_pool_id pool = {100, 1 + (uint64_t)mode};
	void *block = NULL, *graph = NULL;
	pthread_t thread;

	tap_note("mode %d, from %s, %sannounced", mode, b.who, announced ? "" : "not ");
	must_cuda(gate_close(&work.extra, &gate, b.held), "no gate");
	if (announced)
		is_done(glake_pool_begin(ctx, 0, pool, b.captured), "begin");
	begin_capture(b.captured, mode);
	still(&b, glake_alloc(ctx, 0, 9 * MIB, b.captured, 0, &block), 0,
		"a block in the capture");
	pool = pool_of(block);
	if (!other_thread)
		all_beside(&b);
	else if (pthread_create(&thread, NULL, elsewhere, &b))
		tap_bail("no thread");
	else
		pthread_join(thread, NULL);
	still(&b, glake_free(ctx, block, b.captured), 0, "free in the capture");
	is_int(work.extra.end_capture(b.captured, &graph), 0, "the capture ends well");
	if (graph)
		work.extra.graph_destroy(graph);
	if (announced)
		is_done(glake_pool_end(ctx, 0, pool), "end");
	is_done(glake_pool_release(ctx, 0, pool), "release");
	is_int(atomic_load(&gate.late), 0, "nothing waited for the busy stream");
	stream_end(b.captured);
	stream_end(b.stream);
	stream_end(b.held);
}

/* Traffic with pressure beside a capture, in each mode. */
static void crowded(int mode)
{
	struct CUstream_st *stream = stream_new();
	struct traffic *t = noise_start(true, 10 + (uint64_t)mode);
	void *block = NULL, *graph = NULL;
	struct gpu_counters counters;

	traffic_sleep(0.05);
	begin_capture(stream, mode);
	is_done(glake_alloc(ctx, 0, 9 * MIB, stream, 0, &block),
		"a block in the capture");
	traffic_sleep(0.2);
	ok(lives(stream), "mode %d: the capture lives beside traffic", mode);
	is_done(glake_free(ctx, block, stream), "free");
	is_int(work.extra.end_capture(stream, &graph), 0, "and ends well");
	if (graph)
		work.extra.graph_destroy(graph);
	noise_stop(t);
	counters = gpu_counters_take(&work);
	is_int(counters.wrong, 0, "no word is wrong");
	stream_end(stream);
}

static void captures_live(void)
{
	size_t leaked = 9;

	context_open();
	for (int mode = 0; mode < 3; mode++) {
		untouched(mode, false, true);
		untouched(mode, true, true);
		untouched(mode, true, false);
		crowded(mode);
	}
	is_done(glake_close(ctx, &leaked), "close");
	is_int(leaked, 0, "nothing leaked");
}

int main(void)
{
	struct glk_drv *drv;

	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
	drv = gpu_open();
	tap_plan_later();
	gpu_work_init(&work);
	abandoned();
	captures_live();
	must_cuda(work.mem_free(work.counters), "no end of the counters");
	is_done(drv->ops->close(drv), "close");
	return tap_done();
}
