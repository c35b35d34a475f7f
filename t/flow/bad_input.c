/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Each thing a program can get wrong, its documented answer, and nothing lost by it. */
#include "context.h"

#include <glake/conf.h>

static struct glake *ctx;
static struct CUstream_st *stream;
static char *small, *large;

static void options(void)
{
	struct {
		struct glake_options known;
		char unknown[16];
	} newer = {.known = {.sz = sizeof(newer),
			   .backend = GLAKE_BACKEND_SOFT,
			   .no_conf_file = 1}};
	struct glake_options o = {
		.sz = sizeof(o), .backend = GLAKE_BACKEND_SOFT, .no_conf_file = 1};
	const char *settings[2] = {"pool.budgets=3", NULL};
	struct glake *got = (struct glake *)5;

	is_error(glake_open(NULL, NULL), -EINVAL, "INVAL");
	is_error(glake_open(&o, NULL), -EINVAL, "INVAL");
	newer.unknown[15] = 1;
	is_error(glake_open(&newer.known, &got), -E2BIG, "INVAL");
	ok(got == (struct glake *)5, "the output is as it was");
	newer.unknown[15] = 0;
	is_int(glake_open(&newer.known, &got), 0,
		"a newer program that asks nothing new");
	is_int(glake_close(got, NULL), 0, "  closed");
	o.sz = 0;
	is_error(glake_open(&o, &got), -EINVAL, "INVAL");
	o.sz = SIZE_MAX;
	is_error(glake_open(&o, &got), -E2BIG, "INVAL");
	o.sz = sizeof(o);
	o.backend = 77;
	is_error(glake_open(&o, &got), -EINVAL, "INVAL");
	o.backend = GLAKE_BACKEND_SOFT;
	o.settings = settings;
	tap_expect_log(4);
	is_error(glake_open(&o, &got), -EINVAL, "CONFIG");
	has_str(flow_error().text, "budgets", "  names the key");
	settings[0] = "pool.budget=many";
	is_error(glake_open(&o, &got), -EINVAL, "CONFIG");
	has_str(flow_error().text, "pool.budget", "  names the key");
	settings[0] = "no equals sign";
	is_error(glake_open(&o, &got), -EINVAL, "CONFIG");
	o.settings = NULL;
	o.no_conf_file = 0;
	o.conf_file = "/nonexistent/glake.conf";
	is_error(glake_open(&o, &got), -ENOENT, "CONFIG");
}

static void requests(void)
{
	static const size_t too_large[] = {
		SIZE_MAX, SIZE_MAX - 511, SIZE_MAX - 512, (size_t)1 << 63, GIB + 1};
	void *p = (void *)9;

	is_error(glake_alloc(ctx, 0, 0, stream, 0, &p), -EINVAL, "INVAL");
	is_error(glake_alloc(ctx, 0, 1, stream, 0, NULL), -EINVAL, "INVAL");
	is_error(glake_alloc(ctx, 0, 1, stream, 0x8, &p), -EINVAL, "INVAL");
	is_error(glake_alloc(ctx, 0, 1, stream, 0x80000001, &p), -EINVAL, "INVAL");
	is_error(glake_alloc(ctx, -1, 1, stream, 0, &p), -EINVAL, "INVAL");
	is_error(glake_alloc(ctx, 2, 1, stream, 0, &p), -EINVAL, "INVAL");
	is_error(glake_alloc(ctx, INT_MAX, 1, stream, 0, &p), -EINVAL, "INVAL");
	for (int i = 0; i < 5; i++) {
		tap_note("%zu bytes", too_large[i]);
		is_error(glake_alloc(ctx, 0, too_large[i], stream, 0, &p), -ENOMEM,
			"NOMEM_DEVICE");
		is_error(glake_alloc(ctx, 0, too_large[i], stream, GLAKE_ALLOC_CONTIGUOUS,
				 &p),
			-ENOMEM, "NOMEM_DEVICE");
	}
	ok(p == (void *)9, "the output is as it was");
}

/* Exactly the GPU, when nothing else is there. */
static void whole_gpu(void)
{
	void *p = NULL;

	is_int(glake_alloc(ctx, 1, GIB, NULL, 0, &p), 0, "exactly the GPU");
	is_error(glake_alloc(ctx, 1, 1, NULL, 0, &p), -ENOMEM, "NOMEM_DEVICE");
	is_int(glake_free(ctx, p, NULL), 0, "freed");
	is_int(glake_alloc(ctx, 1, GIB, NULL, GLAKE_ALLOC_CONTIGUOUS, &p), 0,
		"exactly the GPU, contiguous");
	is_int(glake_free(ctx, p, NULL), 0, "freed");
	is_int(glake_alloc(ctx, 1, GIB - 511, NULL, 0, &p), 0,
		"all but a part of a grain");
	is_int(glake_free(ctx, p, NULL), 0, "freed");
}

static void pointers(void)
{
	struct glake *other = flow_open(NULL);
	char *foreign = flow_alloc(other, MIB, NULL), *heap = malloc(100), local = 0;
	struct glake_block block = {.sz = sizeof(block)};

	is_error(glake_free(ctx, &local, stream), -EINVAL, "NOT_MINE");
	is_error(glake_free(ctx, heap, stream), -EINVAL, "NOT_MINE");
	is_error(glake_free(ctx, foreign, stream), -EINVAL, "NOT_MINE");
	is_error(glake_free(ctx, (void *)1, stream), -EINVAL, "NOT_MINE");
	is_error(glake_free(ctx, (void *)UINTPTR_MAX, stream), -EINVAL, "NOT_MINE");
	is_error(glake_free(ctx, large + 9 * MIB, stream), -EINVAL, "NOT_MINE");
	is_error(glake_free(ctx, small + 1, stream), -EINVAL, "INVAL");
	is_error(glake_free(ctx, large + 512, stream), -EINVAL, "INVAL");
	is_error(glake_free(ctx, large + 9 * MIB - 1, stream), -EINVAL, "INVAL");
	is_error(glake_give_back(ctx, &local), -EINVAL, "NOT_MINE");
	is_error(glake_give_back(ctx, small + 1), -EINVAL, "INVAL");
	is_error(glake_give_back(ctx, large + 512), -EINVAL, "INVAL");
	is_error(glake_query(ctx, &local, &block), -EINVAL, "NOT_MINE");
	is_error(glake_query(ctx, foreign, &block), -EINVAL, "NOT_MINE");
	is_error(glake_query(ctx, large + 9 * MIB, &block), -EINVAL, "NOT_MINE");
	is_error(glake_query(ctx, NULL, &block), -EINVAL, "NOT_MINE");
	is_error(glake_query(ctx, large, NULL), -EINVAL, "INVAL");
	block.sz = 3;
	is_error(glake_query(ctx, large, &block), -EINVAL, "INVAL");
	block.sz = sizeof(block);
	is_int(glake_query(ctx, large + 9 * MIB - 1, &block), 0, "the last byte");
	ok(block.base == large && block.size == 9 * MIB, "  is of the block");
	free(heap);
	flow_close(other, 1);
}

static void frees_twice(void)
{
	char *p = flow_alloc(ctx, 100, stream), *q = flow_alloc(ctx, 9 * MIB, stream);
	struct glake_block block = {.sz = sizeof(block)};
	void *single = NULL;

	glake_alloc(ctx, 0, 3 * MIB, stream, GLAKE_ALLOC_CONTIGUOUS, &single);
	is_int(glake_free(ctx, p, stream), 0, "freed");
	is_int(glake_free(ctx, q, stream), 0, "freed");
	is_int(glake_free(ctx, single, stream), 0, "freed");
	is_error(glake_free(ctx, p, stream), -EINVAL, "DOUBLE_FREE");
	is_error(glake_free(ctx, q, stream), -EINVAL, "DOUBLE_FREE");
	is_error(glake_free(ctx, single, stream), -EINVAL, "DOUBLE_FREE");
	is_error(glake_free(ctx, q + MIB, stream), -EINVAL, "DOUBLE_FREE");
	is_error(glake_give_back(ctx, p), -EINVAL, "DOUBLE_FREE");
	is_error(glake_give_back(ctx, q), -EINVAL, "DOUBLE_FREE");
	is_error(glake_query(ctx, p, &block), -EINVAL, "NOT_MINE");
}

static void other_calls(void)
{
	struct glake_stats stats = {.sz = 0};
	struct CUstream_st *s = NULL;
	size_t bytes = 7;

	is_error(glake_stats_get(ctx, 0, NULL), -EINVAL, "INVAL");
	is_error(glake_stats_get(ctx, 0, &stats), -EINVAL, "INVAL");
	stats.sz = sizeof(stats);
	is_error(glake_stats_get(ctx, -1, &stats), -EINVAL, "INVAL");
	is_error(glake_stats_get(ctx, 2, &stats), -EINVAL, "INVAL");
	is_error(glake_stats_reset(ctx, 2), -EINVAL, "INVAL");
	is_error(glake_driver_stats_get(ctx, NULL), -EINVAL, "INVAL");
	is_error(glake_budget_set(ctx, 0, 0), -EINVAL, "INVAL");
	is_error(glake_budget_set(ctx, 2, 1), -EINVAL, "INVAL");
	is_error(glake_budget_get(ctx, 0, NULL), -EINVAL, "INVAL");
	is_error(glake_budget_get(ctx, -1, &bytes), -EINVAL, "INVAL");
	is_error(glake_trim(ctx, 2, 0, &bytes), -EINVAL, "INVAL");
	is_error(glake_stream_new(ctx, 0, NULL), -EINVAL, "INVAL");
	is_error(glake_stream_new(ctx, 2, &s), -EINVAL, "INVAL");
	is_error(glake_stream_free(ctx, 0, (struct CUstream_st *)0x1234), -EINVAL,
		"INVAL");
	is_error(glake_stream_free(ctx, 1, stream), -EINVAL, "INVAL");
	is_int(glake_last_error(NULL), -EINVAL, "a record to nowhere");
	is_int(glake_last_error(&(struct glake_error){.sz = 0}), -EINVAL,
		"nor of size 0");
	ok(bytes == 7 && !s, "outputs are as they were");
}

/* Streams that have ended, or are of another GPU. */
static void streams(void)
{
	struct CUstream_st *far = NULL, *dead = NULL, *used = NULL;
	char *p = flow_alloc(ctx, 100, stream);
	void *got = (void *)9;

	glake_stream_new(ctx, 1, &far);
	glake_stream_new(ctx, 0, &dead);
	glake_stream_new(ctx, 0, &used);
	glake_free(ctx, flow_alloc(ctx, 100, used), used);
	is_int(glake_stream_free(ctx, 0, dead), 0, "a stream that ends");
	is_int(glake_stream_free(ctx, 0, used), 0, "and one that was used");
	is_error(glake_alloc(ctx, 0, 100, far, 0, &got), -EINVAL, "INVAL");
	is_error(glake_alloc(ctx, 0, 100, dead, 0, &got), -EINVAL, "INVAL");
	is_error(glake_alloc(ctx, 0, 100, used, 0, &got), -EINVAL, "INVAL");
	is_error(glake_alloc(ctx, 0, 9 * MIB, (struct CUstream_st *)0x77, 0, &got),
		-EINVAL, "INVAL");
	is_error(glake_free(ctx, p, far), -EINVAL, "INVAL");
	is_error(glake_free(ctx, p, dead), -EINVAL, "INVAL");
	is_error(glake_free(ctx, p, used), -EINVAL, "INVAL");
	is_error(glake_use(ctx, p, far), -EINVAL, "INVAL");
	is_error(glake_use(ctx, p, dead), -EINVAL, "INVAL");
	is_error(glake_use(ctx, p, used), -EINVAL, "INVAL");
	is_error(glake_stream_end(ctx, 2, stream), -EINVAL, "INVAL");
	is_int(glake_stream_end(ctx, 1, stream), 0, "an end where it was never seen");
	is_int(glake_stream_end(ctx, 0, dead), 0, "and of one that nobody knows");
	is_int(glake_stream_end(ctx, 0, (struct CUstream_st *)0x77), 0,
		"or that is none");
	ok(got == (void *)9, "the output is as it was");
	is_int(glake_free(ctx, p, stream), 0, "the block is there, and freed");
	is_int(glake_stream_free(ctx, 1, far), 0, "the other GPU's stream ends");
}

static void uses(void)
{
	struct CUevent_st *event = NULL, *none = (struct CUevent_st *)0x4440;
	char *p = flow_alloc(ctx, 9 * MIB, stream), local = 0;

	glake_event_new(ctx, 0, &event);
	is_error(glake_use(ctx, NULL, stream), -EINVAL, "NOT_MINE");
	is_error(glake_use(ctx, &local, stream), -EINVAL, "NOT_MINE");
	is_error(glake_use(ctx, p + 1, stream), -EINVAL, "INVAL");
	is_error(glake_free_after(ctx, p, NULL, 1), -EINVAL, "INVAL");
	is_error(glake_free_after(ctx, p, &none, 1), -EINVAL, "INVAL");
	is_error(glake_free_after(ctx, p + 512, &event, 1), -EINVAL, "INVAL");
	is_error(glake_free_after(ctx, &local, &event, 1), -EINVAL, "NOT_MINE");
	is_error(glake_free_after(ctx, &local, NULL, 0), -EINVAL, "NOT_MINE");
	is_int(glake_free_after(ctx, NULL, NULL, 1), 0,
		"nothing to free, behind nothing");
	is_int(glake_free_after(ctx, p, &event, 1), 0,
		"behind an event that was never recorded");
	is_error(glake_free_after(ctx, p, &event, 1), -EINVAL, "DOUBLE_FREE");
	is_error(glake_free_after(ctx, p, NULL, 0), -EINVAL, "DOUBLE_FREE");
	is_error(glake_free(ctx, p, stream), -EINVAL, "DOUBLE_FREE");
	is_error(glake_use(ctx, p, stream), -EINVAL, "DOUBLE_FREE");
	is_int(glake_event_free(ctx, 0, event), 0, "the event ends");
	p = flow_alloc(ctx, 100, stream);
	is_error(glake_free_after(ctx, p, &event, 1), -EINVAL, "INVAL");
	is_int(glake_free(ctx, p, stream), 0, "the block is there, and freed");
}

static void events(void)
{
	struct CUevent_st *event = NULL, *far = NULL, *none = (struct CUevent_st *)0x4440;
	struct CUstream_st *other = NULL;

	is_error(glake_event_new(ctx, 0, NULL), -EINVAL, "INVAL");
	is_error(glake_event_new(ctx, 2, &event), -EINVAL, "INVAL");
	ok(!event, "the output is as it was");
	glake_event_new(ctx, 0, &event);
	glake_event_new(ctx, 1, &far);
	glake_stream_new(ctx, 1, &other);
	is_error(glake_event_record(ctx, 0, NULL, stream), -EINVAL, "INVAL");
	is_error(glake_event_record(ctx, 0, none, stream), -EINVAL, "INVAL");
	is_error(glake_event_record(ctx, 0, far, stream), -EINVAL, "INVAL");
	is_error(glake_event_record(ctx, 0, event, other), -EINVAL, "INVAL");
	is_error(glake_event_record(ctx, -1, event, stream), -EINVAL, "INVAL");
	is_error(glake_stream_wait(ctx, 0, stream, NULL), -EINVAL, "INVAL");
	is_error(glake_stream_wait(ctx, 0, stream, none), -EINVAL, "INVAL");
	is_error(glake_stream_wait(ctx, 0, other, event), -EINVAL, "INVAL");
	is_error(glake_stream_wait(ctx, 2, stream, event), -EINVAL, "INVAL");
	is_error(glake_event_recorded(ctx, 0, NULL, stream), -EINVAL, "INVAL");
	is_error(glake_event_recorded(ctx, 0, event, other), -EINVAL, "INVAL");
	is_error(glake_event_recorded(ctx, 2, event, stream), -EINVAL, "INVAL");
	is_error(glake_stream_waited(ctx, 0, stream, NULL), -EINVAL, "INVAL");
	is_error(glake_stream_waited(ctx, 0, other, event), -EINVAL, "INVAL");
	is_error(glake_stream_waited(ctx, -1, stream, event), -EINVAL, "INVAL");
	is_error(glake_event_forget(ctx, 2, event), -EINVAL, "INVAL");
	is_int(glake_event_forget(ctx, 0, NULL), 0, "no event to forget");
	is_int(glake_event_forget(ctx, 0, none), 0, "nor one that was never seen");
	is_int(glake_event_free(ctx, 0, event), 0, "an event ends");
	is_error(glake_event_free(ctx, 0, event), -EINVAL, "INVAL");
	is_error(glake_event_free(ctx, 0, none), -EINVAL, "INVAL");
	is_error(glake_event_free(ctx, 7, far), -EINVAL, "INVAL");
	is_error(glake_event_record(ctx, 0, event, stream), -EINVAL, "INVAL");
	is_int(glake_event_free(ctx, 1, far), 0, "and the other");
	is_int(glake_stream_free(ctx, 1, other), 0, "with its stream");
}

static bool all(struct CUstream_st *s, void *arg)
{
	(void)s;
	(void)arg;
	return true;
}

static void pools(void)
{
	struct glake_pool_id none = {0}, id = {.low = 9},
			     high = {.high = UINT64_MAX, .low = 3};
	struct CUstream_st *far = NULL, *dead = NULL;
	struct glake_pool pool = {.sz = sizeof(pool), .graphs = 77};
	struct glake_pool_block block = {0};
	size_t count = 77;
	char *p;

	glake_stream_new(ctx, 1, &far);
	glake_stream_new(ctx, 0, &dead);
	glake_stream_free(ctx, 0, dead);
	is_error(glake_pool_begin(ctx, 0, none, stream), -EINVAL, "INVAL");
	is_error(glake_pool_begin_for(ctx, 0, none, all, NULL), -EINVAL, "INVAL");
	is_error(glake_pool_begin(ctx, 2, id, stream), -EINVAL, "INVAL");
	is_error(glake_pool_begin(ctx, 0, id, far), -EINVAL, "INVAL");
	is_error(glake_pool_begin(ctx, 0, id, dead), -EINVAL, "INVAL");
	is_error(glake_pool_begin(ctx, 0, id, (struct CUstream_st *)0x77), -EINVAL,
		"INVAL");
	is_error(glake_pool_begin_for(ctx, 0, id, NULL, NULL), -EINVAL, "INVAL");
	is_error(glake_pool_begin_for(ctx, -1, id, all, NULL), -EINVAL, "INVAL");
	is_error(glake_pool_end(ctx, 0, id), -EINVAL, "INVAL");
	is_error(glake_pool_end(ctx, 0, none), -EINVAL, "INVAL");
	is_error(glake_pool_end(ctx, 5, id), -EINVAL, "INVAL");
	is_error(glake_pool_release(ctx, 0, id), -EINVAL, "INVAL");
	is_error(glake_pool_release(ctx, 0, high), -EINVAL, "INVAL");
	is_error(glake_pool_release(ctx, 2, id), -EINVAL, "INVAL");
	is_error(glake_pool_get(ctx, 0, id, &pool), -EINVAL, "INVAL");
	is_error(glake_pool_hold(ctx, 0, none), -EINVAL, "INVAL");
	is_error(glake_pool_hold(ctx, 2, id), -EINVAL, "INVAL");
	is_error(glake_pool_blocks(ctx, 0, id, &block, 1, &count), -EINVAL, "INVAL");
	is_error(glake_pool_blocks(ctx, -1, id, &block, 1, &count), -EINVAL, "INVAL");
	is_error(glake_pool_restore(ctx, 0, id, &block, 0), -EINVAL, "INVAL");
	is_error(glake_pool_restore(ctx, 2, id, &block, 0), -EINVAL, "INVAL");
	is_int((int64_t)flow_stats(ctx, 0).pools, 0, "no pool was made");
	is_int(glake_pool_begin_for(ctx, 0, id, all, NULL), 0, "one is");
	is_error(glake_pool_begin_for(ctx, 0, id, all, NULL), -EBUSY, "BUSY");
	is_error(glake_pool_begin(ctx, 0, id, stream), -EBUSY, "BUSY");
	is_error(glake_pool_release(ctx, 0, id), -EBUSY, "BUSY");
	is_error(glake_pool_end(ctx, 1, id), -EINVAL, "INVAL");
	is_error(glake_pool_get(ctx, 1, id, &pool), -EINVAL, "INVAL");
	is_error(glake_pool_limit_set(ctx, 1, id, 1), -EINVAL, "INVAL");
	is_error(glake_pool_get(ctx, 0, id, NULL), -EINVAL, "INVAL");
	pool.sz = 3;
	is_error(glake_pool_get(ctx, 0, id, &pool), -EINVAL, "INVAL");
	ok(pool.graphs == 77, "the output is as it was");
	p = flow_alloc(ctx, 9 * MIB, stream);
	is_error(glake_pool_blocks(ctx, 0, id, NULL, 1, &count), -EINVAL, "INVAL");
	is_error(glake_pool_blocks(ctx, 0, id, &block, 1, NULL), -EINVAL, "INVAL");
	is_error(glake_pool_blocks(ctx, 0, id, NULL, 0, NULL), -EINVAL, "INVAL");
	is_error(glake_pool_restore(ctx, 0, id, NULL, 1), -EINVAL, "INVAL");
	is_error(glake_pool_restore(ctx, 0, id, &block, 1), -EINVAL, "INVAL");
	block = (struct glake_pool_block){.ptr = p, .size = SIZE_MAX, .stream = stream};
	is_error(glake_pool_restore(ctx, 0, id, &block, 1), -EINVAL, "INVAL");
	is_error(glake_pool_restore(ctx, 0, id, &block, SIZE_MAX), -ENOMEM, "NOMEM_HOST");
	block.size = 100;
	block.stream = dead;
	is_error(glake_pool_restore(ctx, 0, id, &block, 1), -EINVAL, "INVAL");
	ok(count == 77, "nothing was told");
	is_error(glake_free(ctx, p + 1, stream), -EINVAL, "INVAL");
	is_error(glake_free(ctx, p, far), -EINVAL, "INVAL");
	is_error(glake_free(ctx, p, dead), -EINVAL, "INVAL");
	is_error(glake_free(ctx, p + 9 * MIB, stream), -EINVAL, "NOT_MINE");
	is_int(glake_pool_end(ctx, 0, id), 0, "it ends");
	is_error(glake_pool_end(ctx, 0, id), -EINVAL, "INVAL");
	is_int(glake_free(ctx, p, stream), 0, "its block is there, and freed");
	is_int(glake_pool_release(ctx, 0, id), 0, "it goes");
	is_error(glake_pool_release(ctx, 0, id), -EINVAL, "INVAL");
	is_error(glake_free(ctx, p, stream), -EINVAL, "NOT_MINE");
	is_error(glake_use(ctx, p, stream), -EINVAL, "NOT_MINE");
	is_int((int64_t)flow_stats(ctx, 0).pools, 0, "no pool is left");
	is_int(glake_stream_free(ctx, 1, far), 0, "nor the other GPU's stream");
}

/* The same of a context that was closed. */
static void closed_too(struct glake *gone, void *p)
{
	struct glake_pool_id id = {.low = 9};
	struct glake_pool pool = {.sz = sizeof(pool)};
	struct CUevent_st *event = (struct CUevent_st *)0x4440;
	struct CUstream_st *s = (struct CUstream_st *)0x77;

	is_error(glake_use(gone, p, s), -ESTALE, "STALE");
	is_error(glake_free_after(gone, p, &event, 1), -ESTALE, "STALE");
	is_error(glake_free_after(gone, p, NULL, 0), -ESTALE, "STALE");
	is_error(glake_stream_end(gone, 0, s), -ESTALE, "STALE");
	is_error(glake_event_new(gone, 0, &event), -ESTALE, "STALE");
	is_error(glake_event_free(gone, 0, event), -ESTALE, "STALE");
	is_error(glake_event_record(gone, 0, event, s), -ESTALE, "STALE");
	is_error(glake_stream_wait(gone, 0, s, event), -ESTALE, "STALE");
	is_error(glake_event_recorded(gone, 0, event, s), -ESTALE, "STALE");
	is_error(glake_stream_waited(gone, 0, s, event), -ESTALE, "STALE");
	is_error(glake_event_forget(gone, 0, event), -ESTALE, "STALE");
	is_error(glake_pool_begin(gone, 0, id, s), -ESTALE, "STALE");
	is_error(glake_pool_begin_for(gone, 0, id, all, NULL), -ESTALE, "STALE");
	is_error(glake_pool_end(gone, 0, id), -ESTALE, "STALE");
	is_error(glake_pool_release(gone, 0, id), -ESTALE, "STALE");
	is_error(glake_pool_get(gone, 0, id, &pool), -ESTALE, "STALE");
	is_error(glake_pool_limit_set(gone, 0, id, 1), -ESTALE, "STALE");
	is_error(glake_shortage_set(gone, NULL, NULL), -ESTALE, "STALE");
	is_error(glake_pool_hold(gone, 0, id), -ESTALE, "STALE");
	is_error(glake_pool_blocks(gone, 0, id, NULL, 0, &(size_t){0}), -ESTALE, "STALE");
	is_error(glake_pool_restore(gone, 0, id, NULL, 0), -ESTALE, "STALE");
}

/* What is only told: NULL, sz 0, out of range, and a context that was closed. */
static void questions(struct glake *gone)
{
	struct glake_device device = {.sz = sizeof(device)};
	struct glake_driver driver = {.sz = sizeof(driver)};
	struct glake_node node = {.sz = sizeof(node)};
	struct glake_module module = {.sz = sizeof(module)};
	struct glake_conf_key key = {.sz = sizeof(key)};
	struct glake_conf_value value = {.sz = sizeof(value)};
	char text[16];

	is_int(glake_device_get(ctx, 1, &device), 0, "GPU 1");
	is_int((int64_t)device.memory, (int64_t)GIB, "  its memory");
	is_error(glake_device_get(ctx, 2, &device), -EINVAL, "INVAL");
	is_error(glake_device_get(ctx, 0, NULL), -EINVAL, "INVAL");
	is_error(glake_device_get(gone, 0, &device), -ESTALE, "STALE");
	is_int(glake_driver_get(ctx, &driver), 0, "the driver");
	is_str(driver.name, "soft", "  its name");
	is_error(glake_driver_get(ctx, NULL), -EINVAL, "INVAL");
	is_error(glake_driver_get(gone, &driver), -ESTALE, "STALE");
	is_int(glake_node_get(1 << 20, &node), -ENOENT, "past the last node");
	is_int(glake_module_get(2, &module), -ENOENT, "past the last module");
	is_error(glake_module_get(0, NULL), -EINVAL, "INVAL");
	is_error(glake_host_get(NULL), -EINVAL, "INVAL");
	is_error(glake_parameter_get("../version", text, sizeof(text)), -EINVAL, "INVAL");
	is_int(glake_conf_key_get(0, &key), 0, "a key");
	is_int(glake_conf_key_get(1 << 20, &key), -ENOENT, "past the last key");
	is_error(glake_conf_key_get(0, NULL), -EINVAL, "INVAL");
	is_int(glake_conf_value_get(ctx, 0, &value), 0, "its value");
	is_error(glake_conf_value_get(gone, 0, &value), -ESTALE, "STALE");
	device.sz = 0;
	is_error(glake_device_get(ctx, 0, &device), -EINVAL, "INVAL");
}

/* A structure of an older program is filled as far as it goes, one of a newer as far as we go. */
static void older_and_newer(void)
{
	struct {
		size_t sz;
		uint64_t live, given, behind;
	} old = {.sz = 2 * sizeof(uint64_t) + sizeof(size_t), .behind = 42};
	struct {
		struct glake_block known;
		char unknown[16];
	} newer = {.known = {.sz = sizeof(newer)}};

	is_int(glake_stats_get(ctx, 0, (struct glake_stats *)&old), 0, "a smaller one");
	ok(old.live == 100 + 9 * MIB && old.given > old.live && old.behind == 42,
		"filled as far as it goes");
	is_int(glake_query(ctx, large, &newer.known), 0, "a larger one");
	ok(newer.known.base == large && newer.known.sz == sizeof(newer) &&
			!newer.unknown[0],
		"filled as far as this library goes");
	newer.unknown[15] = 1;
	is_error(glake_query(ctx, large, &newer.known), -E2BIG, "INVAL");
}

static void closed(void)
{
	struct glake_stats stats = {.sz = sizeof(stats)};
	struct glake_block block = {.sz = sizeof(block)};
	struct glake *gone = flow_open(NULL), *next;
	char *p = flow_alloc(gone, 100, NULL);
	struct CUstream_st *s = NULL;
	size_t bytes = 3;
	void *q = NULL;

	flow_close(gone, 1);
	next = flow_open(NULL);
	ok(next != gone, "a handle is not given twice");
	is_error(glake_alloc(gone, 0, 1, NULL, 0, &q), -ESTALE, "STALE");
	is_error(glake_free(gone, p, NULL), -ESTALE, "STALE");
	is_error(glake_query(gone, p, &block), -ESTALE, "STALE");
	is_error(glake_stats_get(gone, 0, &stats), -ESTALE, "STALE");
	is_error(glake_budget_set(gone, 0, 1), -ESTALE, "STALE");
	is_error(glake_trim(gone, 0, 0, &bytes), -ESTALE, "STALE");
	is_error(glake_stream_new(gone, 0, &s), -ESTALE, "STALE");
	is_error(glake_device_count(gone), -ESTALE, "STALE");
	is_error(glake_backend(gone), -ESTALE, "STALE");
	is_error(glake_close(gone, &bytes), -ESTALE, "STALE");
	is_error(glake_close((struct glake *)0x1234567, &bytes), -ESTALE, "STALE");
	is_error(glake_device_count(NULL), -ESTALE, "STALE");
	is_error(glake_device_count((struct glake *)UINTPTR_MAX), -ESTALE, "STALE");
	is_int((int64_t)bytes, 3, "outputs are as they were");
	questions(gone);
	closed_too(gone, p);
	ok(flow_alloc(next, 100, NULL), "the one in its place works");
	flow_close(next, 1);
}

/* The software device is strict with what a program leaves behind. */
static void leaves_stream(void)
{
	struct glake *other = flow_open(NULL);
	struct CUstream_st *s = NULL;

	is_int(glake_stream_new(other, 0, &s), 0, "a stream that nobody ends");
	tap_expect_log(1);
	is_error(glake_close(other, NULL), -EBUSY, "BUSY");
	has_str(flow_error().text, "1 streams left", "  says what is left");
	is_error(glake_device_count(other), -ESTALE, "STALE");
}

int main(void)
{
	struct glake_stats before, after;

	tap_plan_later();
	options();
	ctx = flow_open((const char *const[]){"soft.gpus=2", "soft.memory=1GiB", NULL});
	if (glake_stream_new(ctx, 0, &stream))
		tap_bail("no stream");
	small = flow_alloc(ctx, 100, stream);
	large = flow_alloc(ctx, 9 * MIB, stream);
	before = flow_stats(ctx, 0);
	requests();
	pointers();
	other_calls();
	older_and_newer();
	after = flow_stats(ctx, 0);
	is_int((int64_t)(after.oom - before.oom), 10, "ten requests were too large");
	ok(after.live == before.live && after.reserved == before.reserved &&
			after.free_pages == before.free_pages &&
			after.frees == before.frees && after.allocs == before.allocs,
		"nothing else has changed");
	streams();
	uses();
	events();
	pools();
	after = flow_stats(ctx, 0);
	ok(after.live == before.live && after.live_blocks == before.live_blocks &&
			after.pool_held == 0 && after.lost == 0,
		"what was refused left nothing");
	whole_gpu();
	frees_twice();
	closed();
	leaves_stream();
	is_int(glake_free(ctx, small, stream), 0, "the first blocks are still there");
	is_int(glake_free(ctx, large, stream), 0, "both of them");
	is_int(glake_stream_free(ctx, 0, stream), 0, "and the stream");
	flow_close(ctx, 0);
	return tap_done();
}
