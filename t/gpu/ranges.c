/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Ranges of a block go to memory of the host and come back while kernels work on the rest of it. What they
 * wrote is what they find, whatever order the ranges took; how fast that is is told. Once as the keys of the
 * environment have it, and once with contents that are compressed, where that can be had.
 */
#include "kernels.h"

#include "seed.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <glake/glake.h>

#define MIB ((size_t)1 << 20)

#define PART  (32 * MIB)
#define PARTS ((size_t)32) /* 1 GiB */
#define WHOLE (PARTS * PART)
#define STEPS 300

static struct gpu_work work;
static struct glake *ctx;
static struct CUstream_st *stream, *other;
static char *block;
static bool away[PARTS];
static uint64_t chance;

static void put(char *at, size_t parts, uint32_t serial)
{
	for (size_t i = 0; i < parts; i++) {
		struct gpu_jobs jobs = {
			.at[0] = gpu_job(at + i * PART, PART, 1, serial + (uint32_t)i)};

		must_cuda(gpu_put(&work, &jobs, 1, 0, 0, stream), "a kernel");
	}
}

/* Of the parts that are here. */
static bool holds(char *at, size_t parts, uint32_t serial, const bool *gone)
{
	for (size_t i = 0; i < parts; i++) {
		struct gpu_jobs jobs = {
			.at[0] = gpu_job(at + i * PART, PART, 1, serial + (uint32_t)i)};

		if (!gone || !gone[i])
			must_cuda(gpu_check(&work, &jobs, 1, 0, 0, stream), "a kernel");
	}
	return !gpu_counters_take(&work).wrong;
}

static size_t away_bytes(void)
{
	struct glake_block is = {.sz = sizeof(is)};

	must(glake_query(ctx, block, &is), "the block is not known");
	return is.away;
}

static int move(bool out, size_t first, size_t parts)
{
	int err = out
		? glake_spill_range(ctx, block, first * PART, parts * PART, stream, NULL)
		: glake_fetch_range(ctx, block, first * PART, parts * PART, stream, NULL);

	for (size_t i = first; !err && i < first + parts; i++)
		away[i] = out;
	return err;
}

/* Another block lies where the middle of this one was. */
static void lends_its_middle(void)
{
	void *beside;

	must(glake_budget_set(ctx, 0, WHOLE + 16 * MIB), "no budget");
	is_int(move(true, 8, 16), 0, "the middle goes");
	is_int((int64_t)away_bytes(), (int64_t)(16 * PART), "which is told");
	must(glake_alloc(ctx, 0, 15 * PART, stream, 0, &beside), "its memory");
	put(beside, 15, 9000);
	ok(holds(beside, 15, 9000, NULL) && holds(block, PARTS, 100, away),
		"another block has its memory, and the rest is as it was");
	must(glake_free(ctx, beside, stream), "a free");
	is_int(move(false, 10, 3), 0, "a part of it comes back");
	ok(holds(block, PARTS, 100, away), "with what was in it");
	must(glake_fetch(ctx, block, stream), "all of it");
	memset(away, 0, sizeof(away));
	ok(!away_bytes() && holds(block, PARTS, 100, NULL), "and all of it comes back");
	must(glake_budget_set(ctx, 0, SIZE_MAX), "no budget");
}

static void wanders(void)
{
	int wrong = 0, refused = 0, moved = 0;

	for (int i = 0; i < STEPS; i++) {
		size_t first = seed_below(&chance, PARTS);
		size_t parts = 1 + seed_below(&chance, PARTS - first);
		int err = move(seed_below(&chance, 2), first, parts);

		moved += !err;
		refused += err && err != -EALREADY;
		if (i % 10 == 9)
			wrong += !holds(block, PARTS, 100, away);
		if (i % 50 == 49) {
			must(glake_suspend(ctx, 0, NULL), "suspend");
			must(glake_resume(ctx, 0, NULL), "resume");
			wrong += !holds(block, PARTS, 100, away);
		}
	}
	if (away_bytes())
		must(glake_fetch(ctx, block, stream), "all of it");
	memset(away, 0, sizeof(away));
	tap_note("%d of %d ranges moved", moved, STEPS);
	is_int(refused, 0, "none was refused");
	ok(!wrong && holds(block, PARTS, 100, NULL), "no word is wrong");
}

static void is_timed(void)
{
	double t[3];

	for (int i = 0; i < 3; i++) {
		must_cuda(work.sync(), "the GPU has gone");
		t[0] = now_s();
		must(move(true, 8, 16), "a range");
		must_cuda(work.sync(), "the GPU has gone");
		t[1] = now_s();
		must(move(false, 8, 16), "a range");
		must_cuda(work.sync(), "the GPU has gone");
		t[2] = now_s();
		tap_note("512 MiB of a block: %.1f GB/s to the host, %.1f back",
			(double)(16 * PART) / (t[1] - t[0]) / 1e9,
			(double)(16 * PART) / (t[2] - t[1]) / 1e9);
	}
}

/* Contents that rest are made smaller, and a range of them comes back. */
static void is_compressed(void)
{
	struct glake_stats s = {.sz = sizeof(s)};
	double t[2];

	memset(away, 0, sizeof(away));
	must(glake_spill(ctx, block, stream), "a spill");
	for (int i = 0; i < 100 && s.packed < WHOLE / 2; i++) {
		must_cuda(work.sync(), "the GPU has gone");
		usleep(20000);
		must(glake_stats_get(ctx, 0, &s), "no figures");
	}
	tap_note("compressed: %zu MiB in %zu", (size_t)(s.packed >> 20),
		(size_t)(s.packed_held >> 20));
	for (size_t i = 0; i < PARTS; i++)
		away[i] = true;
	is_int(move(false, 3, 2), 0, "a part of what is compressed comes back");
	ok(holds(block, PARTS, 100, away), "  with what was in it");
	must_cuda(work.sync(), "the GPU has gone");
	t[0] = now_s();
	must(glake_fetch(ctx, block, stream), "all of it");
	must_cuda(work.sync(), "the GPU has gone");
	t[1] = now_s();
	tap_note("and back: %.1f GB/s", (double)WHOLE / (t[1] - t[0]) / 1e9);
	memset(away, 0, sizeof(away));
	ok(holds(block, PARTS, 100, NULL), "and the rest");
}

static void run(bool packs)
{
	struct glake_options options = {
		.sz = sizeof(options), .backend = GLAKE_BACKEND_CUDA};
	size_t leaked = 0;
	int err = glake_open(&options, &ctx);

	if (packs && err == -EOPNOTSUPP) {
		tap_note("nothing is compressed here");
		return;
	}
	must(err, "no context");
	must(glake_stream_new(ctx, 0, &stream), "no stream");
	must(glake_stream_new(ctx, 0, &other), "no stream");
	must(glake_alloc(ctx, 0, WHOLE, other, 0, (void **)&block), "a block");
	put(block, PARTS, 100);
	if (packs) {
		is_compressed();
	} else {
		lends_its_middle();
		is_timed();
	}
	wanders();
	must(glake_free(ctx, block, stream), "a free");
	must(glake_stream_free(ctx, 0, stream), "a stream");
	must(glake_stream_free(ctx, 0, other), "a stream");
	is_int(glake_close(ctx, &leaked), 0, "close");
	is_int((int64_t)leaked, 0, "nothing is left");
}

int main(void)
{
	struct glk_drv *drv = gpu_open();

	must(drv->ops->close(drv), "close");
	gpu_work_init(&work);
	tap_plan_later();
	chance = seed_start();
	run(false);
	setenv("GLAKE_TIER_COMPRESS", "lz4", 1);
	setenv("GLAKE_TIER_COMPRESS_REST", "0s", 1);
	run(true);
	return tap_done();
}
