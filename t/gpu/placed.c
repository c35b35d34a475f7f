/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Blocks in memory of the host, in place, of a GPU whose budget is used up: kernels write and read them
 * where they lie, beside blocks of the GPU. Figures are told, contents are checked.
 */
#include "kernels.h"

#include <stdlib.h>

#include <glake/glake.h>

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

#define BLOCK (128 * MIB)
#define HERE  16 /* blocks that the GPU has room for */
#define THERE 48

static struct gpu_work work;
static struct glake *ctx;
static struct CUstream_st *stream, *other;
static void *block[HERE + THERE];

static double now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Writes a pattern to blocks, or counts the words that are not of it: GB/s. */
static double pass(int first, int count, uint32_t serial, bool check, struct CUstream_st *on)
{
	double begin;

	must_cuda(work.sync(), "the GPU has gone");
	begin = now_s();
	for (int i = first; i < first + count; i++) {
		struct gpu_jobs jobs = {
			.at[0] = gpu_job(block[i], BLOCK, 1, serial + (uint32_t)i)};

		must_cuda(check ? gpu_check(&work, &jobs, 1, 0, 0, on)
				: gpu_put(&work, &jobs, 1, 0, 0, on),
			"a kernel");
	}
	must_cuda(work.sync(), "the GPU has gone");
	return (double)count * (double)BLOCK / (now_s() - begin) / 1e9;
}

static bool is_placed(const void *ptr)
{
	struct glake_block b = {.sz = sizeof(b)};

	must(glake_query(ctx, ptr, &b), "a question");
	return b.placed > 0;
}

static struct glake_stats stats(void)
{
	struct glake_stats s = {.sz = sizeof(s)};

	must(glake_stats_get(ctx, 0, &s), "figures");
	return s;
}

static void fill(void)
{
	int here = 0;
	double begin = 0;

	for (int i = 0; i < HERE + THERE; i++) {
		if (i == HERE)
			begin = now_s();
		must(glake_alloc(ctx, 0, BLOCK, stream, 0, &block[i]), "a block");
		here += !is_placed(block[i]);
	}
	is_int(here, HERE, "so many blocks have memory of the GPU");
	is_int((int64_t)stats().placed, (int64_t)(THERE * BLOCK), "the others lie on the host");
	ok(stats().reserved <= HERE * BLOCK, "within the budget");
	tap_note("%.1f GiB of the host in %.2f s", (double)(THERE * BLOCK) / (double)GIB,
		now_s() - begin);
}

static void use(void)
{
	tap_note("written %.1f GB/s on the GPU, %.1f on the host",
		pass(0, HERE, 7, false, stream), pass(HERE, THERE, 7, false, stream));
	tap_note("read and compared %.1f GB/s on the GPU, %.1f on the host",
		pass(0, HERE, 7, true, stream), pass(HERE, THERE, 7, true, stream));
	is_int(gpu_counters_take(&work).wrong, 0, "what was written is there");
	for (int round = 0; round < 10; round++) {
		/* freed on one stream, had by another, behind what is queued */
		for (int i = HERE; i < HERE + THERE; i += 2)
			must(glake_free(ctx, block[i], round & 1 ? other : stream), "free");
		for (int i = HERE; i < HERE + THERE; i += 2) {
			struct CUstream_st *on = round & 1 ? stream : other;
			struct gpu_jobs jobs;

			must(glake_alloc(ctx, 0, BLOCK, on, 0, &block[i]), "a block");
			jobs = (struct gpu_jobs){
				.at[0] = gpu_job(block[i], BLOCK, 1, 7 + (uint32_t)i)};
			must_cuda(gpu_put(&work, &jobs, 1, 0, 0, on), "a kernel");
		}
	}
	pass(0, HERE + THERE, 7, true, stream);
	is_int(gpu_counters_take(&work).wrong, 0, "from stream to stream as well");
}

static void give_back(void)
{
	size_t released;
	int here = 0;

	for (int i = 0; i < HERE; i++)
		must(glake_free(ctx, block[i], stream), "a free");
	for (int i = 0; i < HERE; i++) {
		must(glake_alloc(ctx, 0, BLOCK, stream, 0, &block[i]), "a block");
		here += !is_placed(block[i]);
	}
	is_int(here, HERE, "memory of the GPU is had first again");
	for (int i = 0; i < HERE + THERE; i++)
		must(glake_free(ctx, block[i], stream), "a free");
	/* once to ask, and once when the answer is there */
	for (int i = 0; i < 2; i++) {
		must_cuda(work.sync(), "the GPU has gone");
		must(glake_trim(ctx, 0, 0, &released), "a trim");
	}
	is_int((int64_t)stats().host_held, 0, "the host has its memory back");
	is_int((int64_t)stats().reserved, 0, "and so has the GPU");
}

int main(void)
{
	static const char *const settings[] = {
		"tier.place=host", "tier.host=16GiB", "pool.budget=2GiB", NULL};
	struct glake_options options = {
		.sz = sizeof(options), .backend = GLAKE_BACKEND_CUDA, .settings = settings};
	struct glk_drv *drv = gpu_open();
	size_t leaked = 0;

	must(drv->ops->close(drv), "close");
	must(glake_open(&options, &ctx), "no context");
	must(glake_stream_new(ctx, 0, &stream), "no stream");
	must(glake_stream_new(ctx, 0, &other), "no stream");
	gpu_work_init(&work);
	tap_plan_later();
	fill();
	use();
	give_back();
	must(glake_stream_free(ctx, 0, stream), "a stream");
	must(glake_stream_free(ctx, 0, other), "a stream");
	is_int(glake_close(ctx, &leaked), 0, "close");
	is_int((int64_t)leaked, 0, "nothing is left");
	return tap_done();
}
