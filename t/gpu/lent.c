/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Blocks of a GPU whose budget is used up, in memory that another GPU lends: kernels write and read
 * them where they lie; they come to the GPU at a quiet point; a suspension in place sends all there and
 * has them back, while the lender is used as well. Figures are told, contents are checked. Wants two GPUs
 * that reach each other.
 */
#include "kernels.h"

#include <stdlib.h>

#include <glake/glake.h>

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

#define BLOCK	     (128 * MIB)
#define HERE	     16 /* blocks that the GPU has room for */
#define THERE	     48
#define ALL	     (HERE + THERE)
#define ROUNDS_ASKED 10

static struct gpu_work work;
static struct glake *ctx;
static struct CUstream_st *stream;
static void *block[ALL];

static double pass(int first, int count, uint32_t serial, bool check)
{
	return gpu_pass(&work, &block[first], count, BLOCK, serial + (uint32_t)first,
		check, stream);
}

static struct glake_stats stats(int device)
{
	struct glake_stats s = {.sz = sizeof(s)};

	must(glake_stats_get(ctx, device, &s), "figures");
	return s;
}

static void drop_idle(void)
{
	size_t released;

	/* once to ask, and once when the answer is there */
	for (int i = 0; i < 2; i++) {
		must_cuda(work.sync(), "the GPU has gone");
		must(glake_trim(ctx, 0, 0, &released), "a trim");
	}
}

static void is_used_there(void)
{
	double begin = 0;

	for (int i = 0; i < ALL; i++) {
		if (i == HERE)
			begin = now_s();
		must(glake_alloc(ctx, 0, BLOCK, stream, 0, &block[i]), "a block");
	}
	tap_note("%.1f GiB of another GPU in %.3f s",
		(double)(THERE * BLOCK) / (double)GIB, now_s() - begin);
	is_int((int64_t)stats(0).placed_peer, (int64_t)(THERE * BLOCK),
		"lie on the other");
	is_int((int64_t)stats(1).lent, (int64_t)(THERE * BLOCK),
		"which knows what it lends");
	ok(stats(0).reserved <= HERE * BLOCK, "the GPU keeps within its budget");
	tap_note("written %.1f GB/s on the GPU, %.1f on the other",
		pass(0, HERE, 7, false), pass(HERE, THERE, 7, false));
	tap_note("read and compared %.1f GB/s on the GPU, %.1f on the other",
		pass(0, HERE, 7, true), pass(HERE, THERE, 7, true));
	is_int(gpu_counters_take(&work).wrong, 0, "what was written is there");
}

static void comes_back(void)
{
	struct glake_returned done = {.sz = sizeof(done)};
	double begin;

	must(glake_budget_set(ctx, 0, ALL * BLOCK), "room for all");
	begin = now_s();
	must(glake_quiet(ctx, 0, &done), "quiet");
	must_cuda(work.sync(), "the GPU has gone");
	tap_note("a quiet point: %.1f GB/s",
		(double)done.returned / (now_s() - begin) / 1e9);
	is_int((int64_t)stats(0).placed_peer, 0, "all are back at a quiet point");
	tap_note("used at %.1f GB/s then", pass(HERE, THERE, 7, true));
	is_int(gpu_counters_take(&work).wrong, 0, "with what was in them");
	drop_idle();
	is_int((int64_t)stats(1).reserved, 0, "and the lender has its memory");
}

/* Bytes of the GPU that are free, as the driver tells. */
static int64_t free_of_gpu(struct glk_drv *drv)
{
	size_t free_now, total;

	must(drv->ops->memory_info(drv, 0, &free_now, &total), "free memory");
	return (int64_t)free_now;
}

static void is_suspended(struct glk_drv *drv)
{
	struct glake_suspended did = {.sz = sizeof(did)};
	double t[4];
	int64_t before = free_of_gpu(drv), meanwhile;

	for (int round = 0; round < ROUNDS_ASKED; round++) {
		uint32_t serial = 1000 + (uint32_t)round * ALL;

		pass(0, ALL, serial, false);
		t[0] = now_s();
		must(glake_suspend_in_place(ctx, 0, &did), "suspended");
		t[1] = now_s();
		meanwhile = free_of_gpu(drv);
		if (round < 3)
			tap_note("suspended in %.3f s, %.1f GB/s; %" PRId64
				 " MiB of the GPU came free",
				t[1] - t[0], (double)did.moved / (t[1] - t[0]) / 1e9,
				(meanwhile - before) >> 20);
		if (round == 0)
			ok(meanwhile - before >= (int64_t)(ALL * BLOCK - 64 * MIB),
				"the GPU's memory is free meanwhile");
		if (round % 2) {
			must(glake_resume_lazy(ctx, 0, &did), "resumed where it lies");
			pass(0, ALL, serial, true);
			t[2] = now_s();
			must(glake_quiet(ctx, 0, NULL), "quiet");
			must_cuda(work.sync(), "the GPU has gone");
			t[3] = now_s();
		} else {
			t[2] = now_s();
			must(glake_resume(ctx, 0, &did), "resumed");
			t[3] = now_s();
		}
		if (round < 4)
			tap_note("%s in %.3f s", round % 2 ? "brought back" : "resumed",
				t[3] - t[2]);
		pass(0, ALL, serial, true);
	}
	is_int(gpu_counters_take(&work).wrong, 0, "no word is wrong");
	is_int((int64_t)stats(0).placed_peer, 0, "nothing is on the other");
}

int main(void)
{
	static const char *const settings[] = {"tier.place=peer", "tier.peer=1",
		"tier.peer_room=16GiB", "tier.host=8GiB", NULL};
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_CUDA,
		.no_conf_file = 1,
		.settings = settings};
	struct glk_drv *drv = gpu_open();
	size_t leaked = 0;
	bool can = false;
	int gpus;

	must(drv->ops->device_count(drv, &gpus), "GPUs");
	if (gpus < 2)
		tap_skip_all("one GPU only");
	if (drv->ops->peer_can(drv, 0, 1, &can) || !can)
		tap_skip_all("these GPUs cannot reach each other");
	must(glake_open(&options, &ctx), "no context");
	must(glake_stream_new(ctx, 0, &stream), "no stream");
	must(glake_budget_set(ctx, 0, HERE * BLOCK), "a budget of one GPU alone");
	gpu_work_init(&work);
	tap_plan_later();
	is_used_there();
	comes_back();
	is_suspended(drv);
	for (int i = 0; i < ALL; i++)
		must(glake_free(ctx, block[i], stream), "a free");
	drop_idle();
	is_int((int64_t)stats(0).reserved, 0, "the GPU has its memory back");
	is_int((int64_t)stats(1).reserved, 0, "and so has the lender");
	must(glake_stream_free(ctx, 0, stream), "a stream");
	is_int(glake_close(ctx, &leaked), 0, "close");
	is_int((int64_t)leaked, 0, "nothing is left");
	must(drv->ops->close(drv), "close");
	return tap_done();
}
