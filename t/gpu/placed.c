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

static double pass(
	int first, int count, uint32_t serial, bool check, struct CUstream_st *on)
{
	return gpu_pass(
		&work, &block[first], count, BLOCK, serial + (uint32_t)first, check, on);
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
	is_int((int64_t)stats().placed, (int64_t)(THERE * BLOCK),
		"the others lie on the host");
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
			must(glake_free(ctx, block[i], round & 1 ? other : stream),
				"free");
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

/* Nothing idle is left. */
static void drop_idle(void)
{
	size_t released;

	/* once to ask, and once when the answer is there */
	for (int i = 0; i < 2; i++) {
		must_cuda(work.sync(), "the GPU has gone");
		must(glake_trim(ctx, 0, 0, &released), "a trim");
	}
}

/* And nothing more may be held. */
static void have_no_room(void)
{
	drop_idle();
	must(glake_budget_set(ctx, 0, stats().reserved), "no room");
}

/* Blocks come to the GPU at their addresses as soon as it has room: one that is asked for, and all at a
 * point that the program calls quiet, again and again. */
static void comes_back(void)
{
	struct glake_returned done = {.sz = sizeof(done)};
	uint64_t budget = (uint64_t)(HERE + THERE) * BLOCK;
	double t[3];
	bool were;
	int wrong = 0;

	must(glake_budget_set(ctx, 0, budget), "room for all");
	pass(0, HERE + THERE, 11, false, stream);
	t[0] = now_s();
	must(glake_fetch(ctx, block[HERE], stream), "one comes");
	t[1] = now_s();
	is_int(is_placed(block[HERE]), 0, "one that is fetched is on the GPU");
	must(glake_quiet(ctx, 0, &done), "quiet");
	t[2] = now_s();
	is_int((int64_t)stats().placed, 0, "and all the others at a quiet point");
	tap_note("a block of 128 MiB comes in %.1f ms; the others at %.1f GB/s",
		(t[1] - t[0]) * 1e3, (double)done.returned / (t[2] - t[1]) / 1e9);
	tap_note("used at %.1f GB/s then", pass(HERE, THERE, 11, true, stream));
	is_int(gpu_counters_take(&work).wrong, 0, "with what was in them");
	for (int round = 0; round < 20; round++) {
		uint32_t serial = 100 + (uint32_t)round * 100;

		for (int i = HERE; i < HERE + THERE; i += 3)
			must(glake_free(ctx, block[i], stream), "a free");
		have_no_room();
		for (int i = HERE; i < HERE + THERE; i += 3)
			must(glake_alloc(ctx, 0, BLOCK, other, 0, &block[i]), "a block");
		for (int i = HERE; i < HERE + THERE; i += 3)
			pass(i, 1, serial, false, other);
		must(glake_budget_set(ctx, 0, budget), "room for all");
		were = stats().placed == THERE / 3 * BLOCK;
		for (int i = HERE; round % 2 && i < HERE + THERE; i += 6)
			wrong +=
				is_placed(block[i]) && glake_fetch(ctx, block[i], stream);
		must(glake_quiet(ctx, 0, NULL), "quiet");
		wrong += !were || stats().placed != 0;
		for (int i = HERE; i < HERE + THERE; i += 3)
			pass(i, 1, serial, true, stream);
	}
	ok(!wrong, "twenty times");
	is_int(gpu_counters_take(&work).wrong, 0, "nothing is torn");
}

/* Cold blocks go before a request is put on the host, and come back when they are fetched. */
static void cold_ones_go(void)
{
	void *more[4];
	int there = 0;

	have_no_room();
	pass(0, 4, 13, false, stream);
	for (int i = 0; i < 4; i++)
		must(glake_advise(ctx, block[i], GLAKE_ADVICE_COLD), "cold");
	for (int i = 0; i < 4; i++) {
		must(glake_alloc(ctx, 0, BLOCK, other, 0, &more[i]), "a block");
		there += is_placed(more[i]);
	}
	is_int(there, 0, "cold blocks make room");
	is_int((int64_t)stats().victims, 4, "as many as are needed");
	for (int i = 0; i < 4; i++)
		must(glake_free(ctx, more[i], other), "a free");
	for (int i = 0; i < 4; i++)
		must(glake_fetch(ctx, block[i], stream), "it comes back");
	pass(0, 4, 13, true, stream);
	is_int(gpu_counters_take(&work).wrong, 0, "with what was in it");
}

static void give_back(void)
{
	int here = 0;

	for (int i = 0; i < HERE + THERE; i++)
		must(glake_free(ctx, block[i], stream), "a free");
	drop_idle();
	must(glake_budget_set(ctx, 0, (size_t)HERE * BLOCK), "as at the beginning");
	for (int i = 0; i < HERE + THERE; i++)
		must(glake_alloc(ctx, 0, BLOCK, stream, 0, &block[i]), "a block");
	for (int i = 0; i < HERE; i++)
		must(glake_free(ctx, block[i], stream), "a free");
	for (int i = 0; i < HERE; i++) {
		must(glake_alloc(ctx, 0, BLOCK, stream, 0, &block[i]), "a block");
		here += !is_placed(block[i]);
	}
	is_int(here, HERE, "memory of the GPU is had first again");
	for (int i = 0; i < HERE + THERE; i++)
		must(glake_free(ctx, block[i], stream), "a free");
	drop_idle();
	is_int((int64_t)stats().host_held, 0, "the host has its memory back");
	is_int((int64_t)stats().reserved, 0, "and so has the GPU");
}

int main(void)
{
	static const char *const settings[] = {
		"tier.place=host", "tier.host=16GiB", "pool.budget=2GiB", NULL};
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_CUDA,
		.settings = settings};
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
	comes_back();
	cold_ones_go();
	give_back();
	must(glake_stream_free(ctx, 0, stream), "a stream");
	must(glake_stream_free(ctx, 0, other), "a stream");
	is_int(glake_close(ctx, &leaked), 0, "close");
	is_int((int64_t)leaked, 0, "nothing is left");
	return tap_done();
}
