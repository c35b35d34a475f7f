/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_T_GPU_POOLS_H
#define GLK_T_GPU_POOLS_H

/*
 * What the tests of graphs share: one context with a small budget, streams of the program,
 * captures, and traffic beside them.
 */
#include "traffic.h"

#define BUDGET	       "512MiB"
#define CAPTURE_ACTIVE 1

static struct gpu_work work;
static struct glake *ctx;

static UNUSED_FN bool same_pool(struct glake_pool_id a, struct glake_pool_id b)
{
	return a.high == b.high && a.low == b.low;
}

static UNUSED_FN bool no_pool(struct glake_pool_id id)
{
	return !id.high && !id.low;
}

static UNUSED_FN struct glake_stats figures(void)
{
	struct glake_stats stats = {.sz = sizeof(stats)};

	must(glake_stats_get(ctx, 0, &stats), "no figures");
	return stats;
}

static UNUSED_FN void context_open(void)
{
	const char *settings[] = {"pool.budget=" BUDGET, NULL};
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_CUDA,
		.no_conf_file = 1,
		.settings = settings};

	must(glake_open(&options, &ctx), "glake_open");
}

static UNUSED_FN struct CUstream_st *stream_new(void)
{
	struct CUstream_st *stream = NULL;

	must_cuda(work.stream_create(&stream, NON_BLOCKING), "no stream");
	return stream;
}

static UNUSED_FN void stream_end(struct CUstream_st *stream)
{
	is_done(glake_stream_end(ctx, 0, stream), "a stream ends");
	must_cuda(work.stream_destroy(stream), "no end of a stream");
}

static UNUSED_FN struct glake_pool_id pool_of(const void *block)
{
	struct glake_block found = {.sz = sizeof(found)};

	must(glake_query(ctx, block, &found), "no answer about a block");
	return found.pool;
}

static UNUSED_FN void begin_capture(struct CUstream_st *stream, int mode)
{
	must_cuda(work.extra.begin_capture(stream, mode), "no capture begins");
}

static UNUSED_FN bool lives(struct CUstream_st *stream)
{
	int status = -1;

	return !work.extra.is_capturing(stream, &status) && status == CAPTURE_ACTIVE;
}

static UNUSED_FN struct traffic *noise_start(bool stays, uint64_t seed)
{
	struct traffic *t = calloc(1, sizeof(*t));

	if (!t)
		tap_bail("no host memory");
	t->ctx = ctx;
	t->work = &work;
	t->threads = 4;
	t->tell = true;
	t->stays = stays;
	t->live_most = 80 * MIB;
	t->seed = seed;
	traffic_start(t);
	return t;
}

static UNUSED_FN void noise_stop(struct traffic *t)
{
	traffic_stop(t);
	is_int(t->failed, 0, "the other threads: every call succeeds");
	tap_note("beside it %lu blocks came and went, %lu requests refused", t->blocks,
		t->refused);
	free(t);
}

#endif
