/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A program's whole way through the library, and what it may ask on it. */
#include "context.h"

#include <glake/version.h>

static void opens(void)
{
	struct glake *ctx = flow_open(NULL), *other = flow_open(NULL);

	ok(ctx && other && ctx != other, "two contexts at a time");
	is_int(glake_device_count(ctx), 1, "one GPU unless configured");
	is_int(glake_backend(ctx), GLAKE_BACKEND_SOFT, "on the software device");
	is_int(glake_version(), GLAKE_VERSION, "the version of the header");
	is_str(glake_version_string(), GLAKE_VERSION_STRING, "and its text");
	flow_close(other, 0);
	ok(flow_alloc(ctx, 1, NULL), "the other one works on");
	flow_close(ctx, 1);
	is_int(glake_close(NULL, NULL), 0, "closing nothing");
}

/* A GPU is started by its first request; until then it has nothing to tell. */
static void asks_first(void)
{
	struct glake_stats s = {.sz = sizeof(s)};
	struct glake *ctx = flow_open(NULL);

	is_int(glake_stats_reset(ctx, 0), 0, "peaks begin anew before there are any");
	is_int(glake_stats_get(ctx, 0, &s), 0, "figures of nothing");
	is_int((int64_t)(s.peak_live + s.live + s.reserved), 0, "are 0");
	is_int(glake_trim(ctx, 0, 0, NULL), 0, "nothing is given back");
	flow_close(ctx, 0);
}

/* Sizes round the grain and the pages, on the default stream. */
static void allocates(void)
{
	static const size_t sizes[] = {
		1, 511, 512, 513, MIB, MIB + 1, 4 * MIB - 1, 4 * MIB, 8 * MIB + 1, GIB};
	struct glake_block block = {.sz = sizeof(block)};
	struct glake *ctx = flow_open(NULL);
	size_t live = 0, given = 0;
	char *ptr[10];

	for (int i = 0; i < 10; i++) {
		ptr[i] = flow_alloc(ctx, sizes[i], NULL);
		if (!ptr[i])
			break;
		ptr[i][0] = (char)i;
		ptr[i][sizes[i] - 1] = (char)i;
		live += sizes[i];
		given += (sizes[i] + 511) / 512 * 512;
	}
	is_int((int64_t)flow_stats(ctx, 0).live_blocks, 10, "blocks of ten sizes");
	is_int((int64_t)flow_stats(ctx, 0).live, (int64_t)live, "bytes asked for");
	is_int((int64_t)flow_stats(ctx, 0).given, (int64_t)given, "bytes given");
	for (int i = 0; i < 10; i++) {
		is_int(glake_query(ctx, ptr[i] + sizes[i] - 1, &block), 0, "queried");
		ok(block.base == ptr[i] && block.size == sizes[i] &&
				block.given == (sizes[i] + 511) / 512 * 512 &&
				block.device == 0 && !block.flags && !block.stream &&
				ptr[i][0] == (char)i && ptr[i][sizes[i] - 1] == (char)i,
			"%zu bytes, as asked for and as written", sizes[i]);
	}
	for (int i = 0; i < 10; i++)
		is_int(glake_free(ctx, ptr[i], NULL), 0, "freed");
	is_int(glake_free(ctx, NULL, NULL), 0, "freeing nothing");
	is_int((int64_t)flow_stats(ctx, 0).live, 0, "nothing is live");
	flow_close(ctx, 0);
}

static void uses_streams(void)
{
	struct glake *ctx = flow_open((const char *const[]){"soft.gpus=2", NULL});
	struct CUstream_st *a = NULL, *b = NULL, *other = NULL;
	uint64_t calls;
	void *p, *q = NULL;

	is_int(glake_stream_new(ctx, 0, &a), 0, "a stream");
	is_int(glake_stream_new(ctx, 0, &b), 0, "and another");
	is_int(glake_stream_new(ctx, 1, &other), 0, "one of another GPU");
	p = flow_alloc(ctx, 10 * MIB, a);
	is_int(glake_alloc(ctx, 1, 10 * MIB, other, 0, &q), 0, "a block of each GPU");
	is_int(glake_free(ctx, p, a), 0, "freed");
	calls = flow_all_calls(ctx);
	ok(flow_alloc(ctx, 10 * MIB, a) == p, "and given again");
	is_int((int64_t)(flow_all_calls(ctx) - calls), 0, "without a driver call");
	is_int(glake_free(ctx, p, b), 0, "freed on another stream");
	is_int(glake_stream_free(ctx, 0, b), 0, "which ends");
	ok(flow_alloc(ctx, 10 * MIB, a) == p, "its memory goes on");
	is_int(glake_free(ctx, p, NULL), 0, "freed on the default stream");
	is_int(glake_stream_free(ctx, 0, a), 0, "the stream ends");
	is_int(glake_stream_free(ctx, 0, NULL), 0, "no stream to end");
	is_int((int64_t)flow_stats(ctx, 1).live, 10 * (int64_t)MIB,
		"GPU 1 has its block");
	is_int((int64_t)flow_stats(ctx, 0).live, 0, "GPU 0 has none");
	is_int(glake_free(ctx, q, other), 0, "until it is freed");
	is_int(glake_stream_free(ctx, 1, other), 0, "the last stream");
	flow_close(ctx, 0);
}

static void keeps_budget(void)
{
	struct glake *ctx = flow_open((const char *const[]){"pool.budget=64MiB", NULL});
	size_t bytes = 0, released = 0;
	void *p;

	is_int(glake_budget_get(ctx, 0, &bytes), 0, "the budget");
	is_int((int64_t)bytes, 64 * (int64_t)MIB, "as configured");
	p = flow_alloc(ctx, 64 * MIB, NULL);
	ok(p && !flow_alloc(ctx, 64 * MIB, NULL), "is the most there is");
	is_int(flow_error().error_class, GLAKE_ERROR_NOMEM_DEVICE, "  its class");
	is_int(glake_budget_set(ctx, 0, 128 * MIB), 0, "raised");
	ok(flow_alloc(ctx, 64 * MIB, NULL), "there is more");
	is_int(glake_budget_set(ctx, 0, 8 * MIB), 0, "lowered below what is live");
	is_int((int64_t)flow_stats(ctx, 0).budget, 8 * (int64_t)MIB, "is a figure too");
	ok(!flow_alloc(ctx, 4 * MIB, NULL), "now there is none");
	is_int(glake_free(ctx, p, NULL), 0, "freed");
	is_int(glake_trim(ctx, 0, 0, &released), 0, "trimmed");
	is_int((int64_t)released, 64 * (int64_t)MIB, "what was freed");
	is_int((int64_t)flow_stats(ctx, 0).reserved, 64 * (int64_t)MIB,
		"the rest is live");
	is_int(glake_trim(ctx, 0, 0, NULL), 0, "nobody has to know how much");
	is_int(glake_budget_set(ctx, 0, SIZE_MAX), 0, "lifted");
	ok(flow_alloc(ctx, 512 * MIB, NULL), "there is plenty");
	is_int(glake_stats_reset(ctx, 0), 0, "peaks begin anew");
	is_int((int64_t)flow_stats(ctx, 0).peak_reserved,
		(int64_t)flow_stats(ctx, 0).reserved, "from here");
	flow_close(ctx, 2);
}

static void names_things(void)
{
	int unnamed = 0;

	for (int i = 0; i < GLAKE_CALL_COUNT; i++)
		unnamed += !glake_call_name(i);
	for (int i = 0; i < GLAKE_RUNG_COUNT; i++)
		unnamed += !glake_rung_name(i);
	is_int(unnamed, 0, "each call and each rung has a name");
	ok(!glake_call_name(-1) && !glake_call_name(GLAKE_CALL_COUNT), "no such call");
	ok(!glake_rung_name(-1) && !glake_rung_name(GLAKE_RUNG_COUNT), "no such rung");
	is_str(glake_call_name(GLAKE_CALL_SET_ACCESS), "set_access", "a call");
	is_str(glake_rung_name(GLAKE_RUNG_CROSS_STREAM), "cross_stream", "a rung");
	is_str(glake_error_class_name(GLAKE_ERROR_DOUBLE_FREE), "DOUBLE_FREE", "a class");
	is_str(glake_error_class_name(-1), "?", "no such class");
	is_str(glake_error_class_name(1000), "?", "nor that");
}

/* Room for 64 contexts, in addresses too; a closed one's place is given under a new handle. */
static void opens_many(void)
{
	static const char *const settings[] = {"map.span=4GiB", NULL};
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_SOFT,
		.no_conf_file = 1,
		.settings = settings};
	struct glake *ctx[GLAKE_CONTEXT_MAX], *more = NULL;
	int opened = 0, blocks = 0, closed = 0;

	for (int i = 0; i < GLAKE_CONTEXT_MAX; i++) {
		opened += !glake_open(&options, &ctx[i]);
		blocks += flow_alloc(ctx[i], 100, NULL) != NULL;
	}
	is_int(opened, GLAKE_CONTEXT_MAX, "as many contexts as there can be");
	is_int(blocks, GLAKE_CONTEXT_MAX, "a block in each");
	is_error(glake_open(&options, &more), -EMFILE, "LIMIT");
	ok(!more, "the output is as it was");
	is_int(glake_close(ctx[10], NULL), 0, "one is closed");
	more = ctx[10];
	is_int(glake_open(&options, &ctx[10]), 0, "so there is room");
	ok(ctx[10] != more, "under another handle");
	is_error(glake_device_count(more), -ESTALE, "STALE");
	for (int i = 0; i < GLAKE_CONTEXT_MAX; i++)
		closed += !glake_close(ctx[i], NULL);
	is_int(closed, GLAKE_CONTEXT_MAX, "all are closed");
}

/* Nothing of a context outlives it. */
static void cycles(void)
{
	int files = 0, maps = 0;
	bool same = true;

	for (int i = 0; i < 50; i++) {
		struct glake *ctx = flow_open(
			(const char *const[]){"soft.gpus=2", "pool.budget=64MiB", NULL});
		struct CUstream_st *a = NULL;
		void *p[8], *q = NULL;

		glake_stream_new(ctx, 0, &a);
		for (int n = 0; n < 8; n++)
			p[n] = flow_alloc(ctx, 7 * MIB + (size_t)n, a);
		for (int n = 0; n < 8; n += 2)
			glake_free(ctx, p[n], NULL);
		flow_alloc(ctx, 20 * MIB, NULL);
		glake_alloc(ctx, 1, 3 * MIB, NULL, GLAKE_ALLOC_CONTIGUOUS, &q);
		glake_stream_free(ctx, 0, a);
		same &= !glake_close(ctx, NULL);
		if (i == 4) {
			files = flow_count_files();
			maps = flow_count_maps();
		}
	}
	ok(same, "50 contexts, one after the other");
	is_int(flow_count_files(), files, "no descriptor is left");
	ok(flow_count_maps() <= maps, "no map is left");
}

int main(void)
{
	tap_plan_later();
	opens();
	asks_first();
	allocates();
	uses_streams();
	keeps_budget();
	names_things();
	opens_many();
	cycles();
	return tap_done();
}
