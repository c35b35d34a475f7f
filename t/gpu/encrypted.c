/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * With security.level=3 contents are encrypted while they lie on the host: a GPU that is suspended and resumed, blocks that go
 * and come, and parts of them; kernels check every word. Tells how fast that is, by the size of blocks, beside level 0.
 */
#include "kernels.h"

#include <errno.h>
#include <stdio.h>

#include <glake/glake.h>

#define MIB  ((size_t)1 << 20)
#define ALL  ((size_t)4 << 30)
#define MANY 1024

static struct gpu_work work;
static struct glake *ctx;
static struct CUstream_st *stream;
static void *block[MANY];

static bool each(int count, size_t size, bool check)
{
	for (int i = 0; i < count; i++) {
		struct gpu_jobs jobs = {
			.at[0] = gpu_job(block[i], size, 1, 100 + (uint32_t)i)};

		must_cuda(check ? gpu_check(&work, &jobs, 1, 0, 0, stream)
				: gpu_put(&work, &jobs, 1, 0, 0, stream),
			"a kernel");
	}
	must_cuda(work.sync(), "the GPU has gone");
	return !check || !gpu_counters_take(&work).wrong;
}

static double rate(size_t bytes, double since)
{
	return (double)bytes / (now_s() - since) / 1e9;
}

/* What went is looked at, where it is encrypted. */
static void looked_at(int count)
{
	struct glake_checked did = {.sz = sizeof(did)};
	double begin = now_s();

	is_int(glake_check(ctx, &did), 0, "a check of what is away");
	ok(did.contents == (uint64_t)count, "  sees %d contents, at %.1f GB/s", count,
		rate(ALL, begin));
}

static void measure(int level, size_t size)
{
	int count = (int)(ALL / size), torn = 0;
	struct glake_suspended did = {.sz = sizeof(did)};
	char setting[32];
	const char *settings[] = {setting, "tier.host_reserve=4GiB", NULL};
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_CUDA,
		.no_conf_file = 1,
		.settings = settings};
	double out[3], back[3], begin;

	snprintf(setting, sizeof(setting), "security.level=%d", level);
	must(glake_open(&options, &ctx), "no context");
	must(glake_stream_new(ctx, 0, &stream), "no stream");
	for (int i = 0; i < count; i++)
		must(glake_alloc(ctx, 0, size, stream, 0, &block[i]), "a block");
	each(count, size, false);
	for (int i = 0; i < 3; i++) {
		begin = now_s();
		must(glake_suspend(ctx, 0, &did), "suspend");
		out[i] = rate(ALL, begin);
		if (level == 3 && !i)
			looked_at(count);
		begin = now_s();
		must(glake_resume(ctx, 0, NULL), "resume");
		back[i] = rate(ALL, begin);
		torn += !each(count, size, true);
	}
	ok(!torn,
		"level %d, 4 GiB in blocks of %zu MiB: suspended at %.1f, %.1f, %.1f GB/s, resumed at %.1f, %.1f, %.1f",
		level, size / MIB, out[0], out[1], out[2], back[0], back[1], back[2]);
	begin = now_s();
	for (int i = 0; i < count / 2; i++)
		must(glake_spill(ctx, block[i], stream), "a spill");
	must_cuda(work.sync(), "the GPU has gone");
	out[0] = rate(ALL / 2, begin);
	begin = now_s();
	for (int i = 0; i < count / 2; i++) {
		must(glake_fetch_range(ctx, block[i], size / 2, MIB, stream, NULL),
			"a part");
		must(glake_fetch(ctx, block[i], stream), "the rest");
	}
	must_cuda(work.sync(), "the GPU has gone");
	ok(each(count, size, true), "  spilled at %.1f GB/s, fetched in parts at %.1f",
		out[0], rate(ALL / 2, begin));
	for (int i = 0; i < count; i++)
		must(glake_free(ctx, block[i], stream), "a free");
	must(glake_stream_free(ctx, 0, stream), "a stream");
	is_int(glake_close(ctx, NULL), 0, "close");
}

int main(void)
{
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_CUDA,
		.no_conf_file = 1,
		.settings = (const char *const[]){"security.level=3", NULL}};
	struct glk_drv *drv = gpu_open();
	int err;

	must(drv->ops->close(drv), "close");
	gpu_work_init(&work);
	tap_plan_later();
	for (size_t size = 4 * MIB; size <= 256 * MIB; size *= 8)
		measure(0, size);
	err = glake_open(&options, &ctx);
	if (err == -EOPNOTSUPP) {
		tap_skip("contents are encrypted", "there is no libsodium");
		return tap_done();
	}
	is_int(err, 0, "level 3");
	is_int(glake_close(ctx, NULL), 0, "close");
	for (size_t size = 4 * MIB; size <= 256 * MIB; size *= 8)
		measure(3, size);
	return tap_done();
}
