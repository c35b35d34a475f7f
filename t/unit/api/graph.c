/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A program that captures graphs, by the public functions alone but for the capture itself. */
#include "api/context.h"
#include "driver/fault.h"
#include "driver/soft.h"
#include "tap.h"

#include <errno.h>
#include <glake/glake.h>

#define MIB ((size_t)1 << 20)

static struct glake *ctx;
static struct glk_context *context;
static const struct glake_pool_id pool = {.low = 3};

static void open_soft(void)
{
	static const char *const settings[] = {"soft.gpus=2", "soft.streams=stepped",
		"soft.memory=128MiB", "driver.fault=off", "map.span=8GiB", NULL};
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_SOFT,
		.no_conf_file = 1,
		.settings = settings};

	if (glake_open(&options, &ctx) || glk_context_get(ctx, &context))
		tap_bail("no context");
}

static int error_class(void)
{
	struct glake_error error = {.sz = sizeof(error)};

	glake_last_error(&error);
	return error.error_class;
}

static struct glake_stats figures(int device)
{
	struct glake_stats stats = {.sz = sizeof(stats)};

	glake_stats_get(ctx, device, &stats);
	return stats;
}

/* A block and a kernel on it, in a graph or not. */
static void *give(int device, size_t size, struct CUstream_st *stream)
{
	void *p = NULL;

	if (glake_alloc(ctx, device, size, stream, 0, &p) ||
		glk_soft_work(
			context->drv, device, stream, (uint64_t)(uintptr_t)p, size, true))
		tap_bail("no block");
	return p;
}

static void begin(int device, struct CUstream_st *stream)
{
	if (glk_soft_capture_begin(context->drv, device, stream))
		tap_bail("no capture");
}

/* The graph, or 0 where the capture was broken. */
static uint32_t end(int device, struct CUstream_st *stream)
{
	uint32_t graph = 0;

	return glk_soft_capture_end(context->drv, device, stream, &graph) ? 0 : graph;
}

/* As the head of glake/graph.h has it. */
static void captures(void)
{
	struct CUstream_st *a = NULL, *b = NULL;
	struct glake_block block = {.sz = sizeof(block)};
	uint32_t graph, second;
	void *x, *y, *big = NULL;
	bool replays = true;

	glake_stream_new(ctx, 0, &a);
	glake_stream_new(ctx, 0, &b);
	is_int(glake_pool_begin(ctx, 0, pool, a), 0, "a pool begins");
	begin(0, a);
	x = give(0, 20 * MIB, a);
	y = give(0, 100, a);
	glake_free(ctx, x, a);
	ok(give(0, 20 * MIB, a) == x, "memory is reused inside a graph");
	glake_free(ctx, x, a);
	is_int(glake_query(ctx, y, &block), 0, "a block of it");
	is_int((int64_t)block.pool.low, 3, "names the pool");
	graph = end(0, a);
	ok(graph, "the capture is whole");
	is_int(glake_pool_end(ctx, 0, pool), 0, "the pool is closed");
	/* all that is left of the GPU is used and given back, again and again */
	for (int i = 0; i < 5; i++) {
		is_int(glake_alloc(ctx, 0, 96 * MIB, b, 0, &big), 0,
			"the rest of the GPU");
		is_int(glake_alloc(ctx, 0, 16 * MIB, b, 0, &(void *){NULL}), -ENOMEM,
			"is all there is");
		replays &= !glk_soft_graph_launch(context->drv, graph, 0, a);
		glake_free(ctx, big, b);
		glk_soft_run_all(context->drv);
		glake_trim(ctx, 0, 0, NULL);
	}
	ok(replays, "the graph is replayed meanwhile");
	is_int(glake_pool_begin(ctx, 0, pool, b), 0, "a second graph in the pool");
	begin(0, b);
	ok(give(0, 20 * MIB, b) == x, "takes no more memory");
	second = end(0, b);
	is_int(glake_pool_end(ctx, 0, pool), 0, "closed");
	is_int(glk_soft_graph_launch(context->drv, graph, 0, a), 0,
		"the first is replayed");
	glk_soft_run_all(context->drv);
	is_int(glk_soft_graph_launch(context->drv, second, 0, b), 0,
		"and then the second");
	glk_soft_run_all(context->drv);
	is_int(glake_free(ctx, x, b), 0, "blocks are freed");
	is_int(glake_free(ctx, y, a), 0, "all");
	glk_soft_graph_free(context->drv, graph);
	glk_soft_graph_free(context->drv, second);
	is_int(glake_pool_release(ctx, 0, pool), 0, "one graph is gone");
	is_int(glake_pool_release(ctx, 0, pool), 0, "both are");
	is_int(glake_alloc(ctx, 0, 128 * MIB, b, 0, &big), 0, "all of the GPU is there");
	is_int(glake_free(ctx, big, b), 0, "freed");
	is_int(glake_stream_end(ctx, 0, a), 0, "a stream");
	is_int(glake_stream_free(ctx, 0, a), 0, "ends");
	is_int(glake_stream_free(ctx, 0, b), 0, "and the other");
}

/* A capture that is given up, and a program that makes every mistake with it. */
static void mistakes(void)
{
	struct CUstream_st *a = NULL, *b = NULL;
	struct CUevent_st *event = NULL;
	void *p, *q = NULL;

	glake_stream_new(ctx, 0, &a);
	glake_stream_new(ctx, 0, &b);
	glake_event_new(ctx, 0, &event);
	p = give(0, 9 * MIB, b);
	is_int(glake_pool_begin(ctx, 0, pool, a), 0, "a pool begins");
	begin(0, a);
	q = give(0, 9 * MIB, a);
	is_int(glake_stream_end(ctx, 0, a), -EBUSY, "a stream that captures cannot end");
	is_int(error_class(), GLAKE_ERROR_CAPTURE, "  its class");
	is_int(glake_event_record(ctx, 0, event, a), 0, "an event of the graph");
	is_int(glake_free_after(ctx, p, &event, 1), -EBUSY,
		"tells nothing of what is outside");
	is_int(error_class(), GLAKE_ERROR_CAPTURE, "  its class");
	is_int(glake_pool_release(ctx, 0, pool), -EBUSY, "a pool in use");
	is_int(error_class(), GLAKE_ERROR_BUSY, "  its class");
	is_int(glake_free(ctx, p, a), 0,
		"a block from outside, freed on a stream that captures");
	is_int(glake_free(ctx, q, b), 0, "and one of the graph on another one");
	ok(end(0, a), "none of which ended the capture");
	is_int(glake_stream_wait(ctx, 0, b, event), -EINVAL, "its event is over");
	is_int(glake_pool_end(ctx, 0, pool), 0, "the pool ends");
	is_int(glake_pool_release(ctx, 0, pool), 0, "and goes");

	/* broken by the program and thrown away */
	is_int(glake_pool_begin(ctx, 0, pool, a), 0, "a pool begins");
	begin(0, a);
	q = give(0, 9 * MIB, a);
	context->drv->ops->stream_sync(context->drv, 0, a);
	is_int(glake_free(ctx, q, a), 0, "a block of a capture that is broken");
	ok(!end(0, a), "there is no graph");
	is_int(glake_pool_end(ctx, 0, pool), 0, "the pool ends");
	is_int(glake_pool_release(ctx, 0, pool), 0, "and goes");

	/* the pool is never begun, or never ended */
	begin(0, a);
	q = give(0, 9 * MIB, a);
	is_int(glake_pool_end(ctx, 0, pool), -EINVAL, "a pool that never began");
	ok(end(0, a), "the capture is whole");
	is_int(glake_free(ctx, q, a), 0, "its block");
	is_int(glake_pool_begin(ctx, 0, pool, b), 0, "a pool that never ends");
	is_int((int64_t)figures(0).pools, 2, "beside the one nobody announced");
	glk_soft_run_all(context->drv);
	is_int(glake_event_free(ctx, 0, event), 0, "the event");
	is_int(glake_stream_free(ctx, 0, a), 0, "a stream");
	is_int(glake_stream_free(ctx, 0, b), 0, "and the one of the pool");
	p = NULL;
	is_int(glake_alloc(ctx, 0, 64 * MIB, NULL, 0, &p), 0, "others are served");
	is_int(glake_free(ctx, p, NULL), 0, "freed");
}

/* A capture on one GPU is nothing to the other. */
static void beside(void)
{
	struct CUstream_st *a = NULL, *far = NULL;
	uint64_t hits;
	void *p;

	glake_stream_new(ctx, 0, &a);
	glake_stream_new(ctx, 1, &far);
	is_int(glake_pool_begin(ctx, 1, pool, far), 0, "a pool on GPU 1");
	begin(1, far);
	p = give(1, 9 * MIB, far);
	glake_free(ctx, p, far);
	p = give(0, 100, a);
	glake_free(ctx, p, a);
	hits = figures(0).hits;
	p = give(0, 100, a);
	is_int((int64_t)(figures(0).hits - hits), 1, "GPU 0 has hits");
	glake_free(ctx, p, a);
	ok(end(1, far), "the capture is whole");
	is_int(glake_pool_end(ctx, 1, pool), 0, "the pool ends");
	is_int(glake_pool_release(ctx, 1, pool), 0, "and goes");
	is_int(glake_stream_free(ctx, 0, a), 0, "a stream");
	is_int(glake_stream_free(ctx, 1, far), 0, "and the other");
}

static void fails(void)
{
	struct glake_pool got = {.sz = sizeof(got)};

	glk_fault_set(context->drv, "any:from=1:sticky=1");
	is_int(glake_pool_begin(ctx, 1, pool, NULL), -ENODEV, "a GPU that is lost");
	is_int(error_class(), GLAKE_ERROR_DEVICE_LOST, "  its class");
	glk_fault_set(context->drv, "off");
	is_int(glake_pool_get(ctx, 1, pool, &got), -EINVAL, "has no pool");
	glk_fault_set(context->drv, "reserve:from=1:err=ENOMEM");
	is_int(glake_pool_begin(ctx, 1, pool, NULL), -ENOMEM, "no addresses");
	glk_fault_set(context->drv, "off");
	is_int(glake_pool_begin(ctx, 1, pool, NULL), 0, "later there are some");
	is_int(glake_pool_end(ctx, 1, pool), 0, "ended");
	glk_fault_set(context->drv, "device_sync:nth=1:err=EIO");
	is_int(glake_pool_release(ctx, 1, pool), -EIO, "a GPU that cannot be waited for");
	glk_fault_set(context->drv, "off");
	is_int((int64_t)figures(1).pools, 1, "the pool stays");
	is_int(glake_trim(ctx, 1, SIZE_MAX, NULL), 0, "until it can");
	is_int((int64_t)figures(1).pools, 0, "then it goes");
}

/* A capture that was announced, and whose pool was never ended, is in nobody's way once it is over. */
static void forgotten(void)
{
	struct glake_pool_id id = {4, 4};
	struct CUstream_st *stream = NULL;
	uint32_t graph;
	void *x;

	glake_stream_new(ctx, 0, &stream);
	is_int(glake_pool_begin(ctx, 0, id, stream), 0, "begin, and no end");
	begin(0, stream);
	x = give(0, 2 * MIB, stream);
	is_int(glake_stream_end(ctx, 0, stream), -EBUSY, "no stream ends in its capture");
	graph = end(0, stream);
	ok(graph, "which that does not break");
	glake_free(ctx, x, stream);
	is_int(glake_stream_end(ctx, 0, stream), 0, "it ends behind it");
	glk_soft_graph_free(context->drv, graph);
	context->drv->ops->stream_free(context->drv, 0, stream);
	is_int(glake_pool_end(ctx, 0, id), 0, "the pool may be ended later");
	is_int(glake_pool_release(ctx, 0, id), 0, "and goes");
}

int main(void)
{
	tap_plan_later();
	open_soft();
	captures();
	beside();
	fails();
	mistakes();
	forgotten();
	is_int(glake_close(ctx, NULL), 0, "closed");
	return tap_done();
}
