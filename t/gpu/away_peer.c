/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Contents of a GPU that lie with another one while they are away: blocks of several sizes go there and come
 * back, one way and both ways at once; the GPU is suspended with all that it has there; the lender is
 * suspended, and what lay there comes from the host. Every word is written and compared, speeds are told.
 * Wants two GPUs that reach each other; without any it runs on the software device, whose speeds are those of
 * copies within the memory of the host.
 */
#include "kernels.h"

#include <glake/glake.h>

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

#define TOTAL	    (8 * GIB)
#define TOTAL_SOFT  (64 * MIB) /* of blocks of a fourth */
#define MOST	    512	       /* blocks */
#define ROUNDS_EACH 4

static const size_t sizes[] = {16 * MIB, 64 * MIB, 128 * MIB};

static struct gpu_work work;
static struct glake *ctx;
static struct CUstream_st *stream, *other;
static void *block[MOST];
static size_t size, count;
static bool on_cuda;

static void wait_for_all(void)
{
	if (on_cuda) {
		must_cuda(work.sync(), "the GPU has gone");
		return;
	}
	must(glake_soft_stream_sync(ctx, 0, stream), "the stream has gone");
	must(glake_soft_stream_sync(ctx, 0, other), "the other has gone");
}

static uint64_t word_of(size_t i, size_t at, uint32_t serial)
{
	return (serial + i) * UINT64_C(0x9e3779b97f4a7c15) + at;
}

static void put(uint32_t serial)
{
	for (size_t i = 0; i < count; i++) {
		struct gpu_jobs jobs = {
			.at[0] = gpu_job(block[i], size, 1, serial + (uint32_t)i)};
		uint64_t *words = block[i];

		if (on_cuda)
			must_cuda(gpu_put(&work, &jobs, 1, 0, 0, stream), "a kernel");
		for (size_t at = 0; !on_cuda && at < size / 8; at++)
			words[at] = word_of(i, at, serial);
	}
}

static uint64_t wrong(uint32_t serial)
{
	uint64_t torn = 0;

	for (size_t i = 0; i < count; i++) {
		struct gpu_jobs jobs = {
			.at[0] = gpu_job(block[i], size, 1, serial + (uint32_t)i)};
		const uint64_t *words = block[i];

		if (on_cuda)
			must_cuda(gpu_check(&work, &jobs, 1, 0, 0, stream), "a kernel");
		for (size_t at = 0; !on_cuda && at < size / 8; at++)
			torn += words[at] != word_of(i, at, serial);
	}
	return on_cuda ? gpu_counters_take(&work).wrong : torn;
}

static struct glake_stats stats(int device)
{
	struct glake_stats s = {.sz = sizeof(s)};

	must(glake_stats_get(ctx, device, &s), "figures");
	return s;
}

static double speed(double since)
{
	return (double)(size * count) / (now_s() - since) / 1e9;
}

static void spill(size_t first, size_t step)
{
	for (size_t i = first; i < count; i += step)
		must(glake_spill(ctx, block[i], stream), "a spill");
}

static void fetch(size_t first, size_t step)
{
	for (size_t i = first; i < count; i += step)
		must(glake_fetch(ctx, block[i], stream), "a fetch");
}

/* How much of all blocks lies with the other GPU. */
static size_t there(void)
{
	size_t bytes = 0;

	for (size_t i = 0; i < count; i++) {
		struct glake_block about = {.sz = sizeof(about)};

		must(glake_query(ctx, block[i], &about), "a block");
		bytes += about.away_peer;
	}
	return bytes;
}

static void goes_and_comes(void)
{
	double away = 0, back = 0, both = 0, first = 0;
	uint64_t torn = 0;
	bool all = true;

	for (uint32_t round = 0; round < ROUNDS_EACH; round++) {
		double begin;

		put(round * MOST);
		wait_for_all();
		begin = now_s();
		spill(0, 1);
		wait_for_all();
		away = speed(begin);
		first = round ? first : away;
		all = all && there() == size * count;
		begin = now_s();
		fetch(0, 1);
		wait_for_all();
		back = speed(begin);
		spill(0, 2);
		wait_for_all();
		begin = now_s();
		for (size_t i = 0; i + 1 < count; i += 2) {
			must(glake_spill(ctx, block[i + 1], stream), "a spill");
			must(glake_fetch(ctx, block[i], other), "a fetch");
		}
		wait_for_all();
		both = speed(begin);
		fetch(1, 2);
		torn += wrong(round * MOST);
	}
	tap_note(
		"%zu blocks of %zu MiB: away %.1f GB/s, the first time %.1f; back %.1f; both ways at "
		"once %.1f",
		count, size / MIB, away, first, back, both);
	ok(all, "blocks of %zu MiB lie with the other GPU", size / MIB);
	is_int((int64_t)torn, 0, "no word is wrong");
	is_int((int64_t)stats(0).store_peer_used, 0, "nothing stays there");
	is_int((int64_t)stats(0).host_held, 0, "and the host had nothing");
}

static void is_suspended(void)
{
	struct glake_suspended did = {.sz = sizeof(did)};
	uint64_t torn = 0;
	double begin;

	for (uint32_t round = 0; round < 2; round++) {
		put(9000 + round * MOST);
		wait_for_all();
		begin = now_s();
		must(glake_suspend(ctx, 0, &did), "suspended");
		tap_note("suspended: %.1f GB/s", speed(begin));
		is_int((int64_t)stats(0).reserved, 0, "the GPU has nothing");
		is_int((int64_t)there(), (int64_t)(size * count), "the other has all");
		begin = now_s();
		must(glake_resume(ctx, 0, &did), "resumed");
		tap_note("resumed: %.1f GB/s", speed(begin));
		torn += wrong(9000 + round * MOST);
	}
	is_int((int64_t)torn, 0, "no word is wrong");
}

static void lender_is_suspended(void)
{
	struct glake_suspended did = {.sz = sizeof(did)};
	double begin;

	put(12000);
	spill(0, 1);
	begin = now_s();
	must(glake_suspend(ctx, 1, &did), "the lender is suspended");
	tap_note("what lay with the lender is on the host: %.1f GB/s", speed(begin));
	is_int((int64_t)did.stayed, 0, "nothing stays with the lender");
	is_int((int64_t)stats(1).reserved, 0, "which has nothing");
	is_int((int64_t)there(), 0, "nor has any block something there");
	must(glake_resume(ctx, 1, &did), "resumed");
	fetch(0, 1);
	is_int((int64_t)wrong(12000), 0, "no word is wrong");
}

static void run(unsigned which)
{
	size_t released;

	size = sizes[which] / (on_cuda ? 1 : 4);
	count = (on_cuda ? TOTAL : TOTAL_SOFT) / size;
	for (size_t i = 0; i < count; i++)
		must(glake_alloc(ctx, 0, size, stream, 0, &block[i]), "a block");
	goes_and_comes();
	if (which == 1) {
		is_suspended();
		lender_is_suspended();
	}
	for (size_t i = 0; i < count; i++)
		must(glake_free(ctx, block[i], stream), "a free");
	/* once to ask, and once when the answer is there */
	for (int i = 0; i < 2; i++) {
		wait_for_all();
		must(glake_trim(ctx, 0, 0, &released), "a trim");
	}
	is_int((int64_t)stats(1).lent, 0, "the lender has its memory back");
}

static void open_context(void)
{
	const char *const settings[] = {"tier.away=peer", "tier.peer=1",
		"tier.peer_room=16GiB", "tier.host=16GiB", "soft.gpus=2", NULL};
	struct glake_options options = {.sz = sizeof(options),
		.backend = on_cuda ? GLAKE_BACKEND_CUDA : GLAKE_BACKEND_SOFT,
		.no_conf_file = 1,
		.no_soft_warning = 1,
		.settings = settings};

	must(glake_open(&options, &ctx), "no context");
	must(glake_stream_new(ctx, 0, &stream), "no stream");
	must(glake_stream_new(ctx, 0, &other), "no stream");
	if (on_cuda)
		gpu_work_init(&work);
}

int main(void)
{
	struct glk_drv *drv = NULL;
	size_t leaked = 0;
	bool can = false;
	int gpus = 0;

	alarm(240);
	glk_rcu_init(false);
	on_cuda = !glk_cuda_open(NULL, &drv);
	if (on_cuda) {
		must(drv->ops->device_count(drv, &gpus), "GPUs");
		if (gpus < 2)
			tap_skip_all("one GPU only");
		if (drv->ops->peer_can(drv, 1, 0, &can) || !can)
			tap_skip_all("these GPUs cannot reach each other");
	}
	open_context();
	tap_plan_later();
	if (!on_cuda)
		tap_note("no GPU: on the software device");
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		run(i);
	must(glake_stream_free(ctx, 0, stream), "a stream");
	must(glake_stream_free(ctx, 0, other), "a stream");
	is_int(glake_close(ctx, &leaked), 0, "close");
	is_int((int64_t)leaked, 0, "nothing is left");
	if (on_cuda)
		must(drv->ops->close(drv), "close");
	return tap_done();
}
