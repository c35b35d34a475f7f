/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Blocks that go to memory of the host and come back, and a GPU that is suspended: what kernels wrote is
 * what kernels find, and how fast that is. Figures are told, contents are checked.
 */
#include "kernels.h"

#include <stdlib.h>

#include <glake/glake.h>

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

#define BLOCK  (64 * MIB)
#define BLOCKS 256 /* 16 GiB */
#define CYCLES 20

static struct gpu_work work;
static struct glake *ctx;
static struct CUstream_st *stream, *other;
static void *block[BLOCKS], *beside[BLOCKS];

static void put(void *const *list, int count, uint32_t serial, struct CUstream_st *on)
{
	for (int i = 0; i < count; i++) {
		struct gpu_jobs jobs = {
			.at[0] = gpu_job(list[i], BLOCK, 1, serial + (uint32_t)i)};

		must_cuda(gpu_put(&work, &jobs, 1, 0, 0, on), "a kernel");
	}
}

static bool holds(void *const *list, int count, uint32_t serial, struct CUstream_st *on)
{
	for (int i = 0; i < count; i++) {
		struct gpu_jobs jobs = {
			.at[0] = gpu_job(list[i], BLOCK, 1, serial + (uint32_t)i)};

		must_cuda(gpu_check(&work, &jobs, 1, 0, 0, on), "a kernel");
	}
	return !gpu_counters_take(&work).wrong;
}

static size_t free_memory(void)
{
	struct glake_device info = {.sz = sizeof(info)};

	must(glake_device_get(ctx, 0, &info), "the GPU tells nothing");
	return info.free;
}

/* Half of the blocks take turns with the other half in the same memory. */
static void takes_turns(int count)
{
	size_t bytes = (size_t)count * BLOCK;
	double t[4];

	must(glake_budget_set(ctx, 0, bytes + GIB), "no budget");
	for (int i = 0; i < count; i++)
		must(glake_alloc(ctx, 0, BLOCK, stream, 0, &block[i]), "a block");
	put(block, count, 100, stream);
	for (int round = 0; round < 3; round++) {
		must_cuda(work.sync(), "the GPU has gone");
		t[0] = now_s();
		for (int i = 0; i < count; i++)
			must(glake_spill(ctx, block[i], stream), "a spill");
		t[1] = now_s();
		must_cuda(work.sync(), "the GPU has gone");
		t[2] = now_s();
		for (int i = 0; i < count; i++)
			must(glake_alloc(ctx, 0, BLOCK, other, 0, &beside[i]),
				"its memory");
		put(beside, count, 5000 + (uint32_t)round, other);
		ok(holds(beside, count, 5000 + (uint32_t)round, other),
			"others use the memory, round %d", round);
		for (int i = 0; i < count; i++)
			must(glake_free(ctx, beside[i], other), "a free");
		must_cuda(work.sync(), "the GPU has gone");
		t[3] = now_s();
		for (int i = 0; i < count; i++)
			must(glake_fetch(ctx, block[i], stream), "a fetch");
		ok(holds(block, count, 100, stream), "and what was there comes back");
		tap_note("%.1f GiB: spill returns in %.1f ms, %.1f GB/s; fetch and check "
			 "%.1f GB/s",
			(double)bytes / (double)GIB, (t[1] - t[0]) * 1e3,
			(double)bytes / (t[2] - t[0]) / 1e9,
			(double)bytes / (now_s() - t[3]) / 1e9);
	}
	must(glake_budget_set(ctx, 0, SIZE_MAX), "no budget");
}

/* One half goes while the other half comes. */
static void both_ways(int count)
{
	size_t bytes = (size_t)count * BLOCK;
	double begin;

	for (int i = 0; i < count / 2; i++)
		must(glake_spill(ctx, block[i], stream), "a spill");
	must_cuda(work.sync(), "the GPU has gone");
	begin = now_s();
	for (int i = 0; i < count / 2; i++) {
		must(glake_spill(ctx, block[count / 2 + i], stream), "a spill");
		must(glake_fetch(ctx, block[i], other), "a fetch");
	}
	must_cuda(work.sync(), "the GPU has gone");
	tap_note("both ways at once: %.1f GB/s", (double)bytes / (now_s() - begin) / 1e9);
	for (int i = 0; i < count / 2; i++)
		must(glake_fetch(ctx, block[count / 2 + i], other), "a fetch");
	ok(holds(block, count, 100, other), "both ways at once nothing is lost");
}

static void suspends(int count, size_t before)
{
	struct glake_suspended did = {.sz = sizeof(did)};
	size_t bytes = (size_t)count * BLOCK;
	int torn = 0;
	double t[3];

	for (int i = 0; i < CYCLES; i++) {
		must_cuda(work.sync(), "the GPU has gone");
		t[0] = now_s();
		must(glake_suspend(ctx, 0, &did), "suspend");
		t[1] = now_s();
		if (!i) {
			size_t there = free_memory();

			ok(there + 64 * MIB >= before,
				"suspended, %zu MiB of what was free before are taken",
				there < before ? (before - there) >> 20 : 0);
		}
		t[2] = now_s();
		must(glake_resume(ctx, 0, NULL), "resume");
		if (i < 3)
			tap_note("%.1f GiB: suspend %.3f s, %.1f GB/s; resume %.3f s, "
				 "%.1f GB/s",
				(double)bytes / (double)GIB, t[1] - t[0],
				(double)bytes / (t[1] - t[0]) / 1e9, now_s() - t[2],
				(double)bytes / (now_s() - t[2]) / 1e9);
		torn += !holds(block, count, 100, stream);
	}
	is_int(torn, 0, "what was written is there after each suspension");
}

int main(void)
{
	struct glake_options options = {
		.sz = sizeof(options), .backend = GLAKE_BACKEND_CUDA};
	struct glk_drv *drv = gpu_open();
	size_t before, leaked = 0;
	int count;

	must(drv->ops->close(drv), "close");
	must(glake_open(&options, &ctx), "no context");
	must(glake_stream_new(ctx, 0, &stream), "no stream");
	must(glake_stream_new(ctx, 0, &other), "no stream");
	gpu_work_init(&work);
	tap_plan_later();
	before = free_memory();
	count = before / 2 / BLOCK < BLOCKS ? (int)(before / 2 / BLOCK) : BLOCKS;
	takes_turns(count);
	both_ways(count);
	suspends(count, before);
	for (int i = 0; i < count; i++)
		must(glake_free(ctx, block[i], stream), "a free");
	must(glake_stream_free(ctx, 0, stream), "a stream");
	must(glake_stream_free(ctx, 0, other), "a stream");
	is_int(glake_close(ctx, &leaked), 0, "close");
	is_int((int64_t)leaked, 0, "nothing is left");
	return tap_done();
}
