/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Managed memory on a real GPU: the functions that the driver gives for places, contents through
 * kernels and the host, and what it costs to have it moved as it is touched, against a prefetch and a
 * place that it prefers; to have it again after advice; and what goes to and fro. At most an eighth of what is free is used, and 4 GiB.
 */
#include "kernels.h"

#include "driver/cuda_state.h"

#include <stdlib.h>

#include <glake/glake.h>

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

static struct gpu_work work;
static struct glake *ctx;
static struct CUstream_st *stream;
static uint64_t *block;
static size_t size;

static double gbs(double begin)
{
	return (double)size / (now_s() - begin) / 1e9;
}

/* The functions with places are those of the newer signature: as the library exports them. */
static void functions(void)
{
	void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
	const struct glk_cuda_lib *lib;

	must(glk_cuda_lib_get(&lib), "the library");
	if (lib->version < GLK_CUDA_VERSION_LOCATIONS) {
		tap_note("a driver of CUDA %d: places by device", lib->version);
		return;
	}
	ok(cuda && (void *)lib->cuMemAdvise_v2 == dlsym(cuda, "cuMemAdvise_v2"),
		"advice by place");
	ok(cuda &&
			(void *)lib->cuMemPrefetchAsync_v2 ==
				dlsym(cuda, "cuMemPrefetchAsync_v2"),
		"prefetches by place");
	ok(cuda && (void *)lib->cuMemAdvise_v1 == dlsym(cuda, "cuMemAdvise"),
		"and the older advice");
}

static void sync_stream(void)
{
	must_cuda(work.stream_sync(stream), "the GPU has gone");
}

static void kernel(uint32_t serial, bool check)
{
	struct gpu_jobs jobs = {.at[0] = gpu_job(block, size, 1, serial)};

	must_cuda(check ? gpu_check(&work, &jobs, 1, 0, 0, stream)
			: gpu_put(&work, &jobs, 1, 0, 0, stream),
		"a kernel");
	sync_stream();
}

/* Has the host read a word of each page of the system. */
static uint64_t host_reads(void)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < size / 8; i += 512)
		sum += ((volatile uint64_t *)block)[i];
	return sum;
}

static void host_writes(uint32_t serial)
{
	uint64_t tag = gpu_tag(1, serial);

	for (size_t i = 0; i < size / 8; i++)
		block[i] = tag + i;
}

static bool host_finds(uint32_t serial)
{
	uint64_t tag = gpu_tag(1, serial);

	for (size_t i = 0; i < size / 8; i++)
		if (block[i] != tag + i)
			return false;
	return true;
}

static void contents(void)
{
	kernel(3, false);
	ok(host_finds(3), "the host reads what a kernel wrote");
	host_writes(4);
	kernel(4, true);
	is_int(gpu_counters_take(&work).wrong, 0, "a kernel reads what the host wrote");
}

static void to(int place, int id)
{
	is_done(glake_managed_prefetch(ctx, block, 0, place, id, stream), "a prefetch");
	sync_stream();
}

static void figures(void)
{
	double begin;
	int place = -9, id = -9;

	to(GLAKE_PLACE_HOST, -1);
	begin = now_s();
	kernel(4, true);
	tap_note("kernel, memory on the host, moved as it is touched: %.1f GB/s",
		gbs(begin));
	begin = now_s();
	kernel(4, true);
	tap_note("kernel again, on the GPU: %.1f GB/s", gbs(begin));
	begin = now_s();
	host_reads();
	tap_note(
		"host, memory on the GPU, moved as it is touched: %.1f GB/s", gbs(begin));
	begin = now_s();
	to(GLAKE_PLACE_GPU, 0);
	tap_note("prefetch to the GPU: %.1f GB/s", gbs(begin));
	begin = now_s();
	to(GLAKE_PLACE_HOST, -1);
	tap_note("prefetch to the host: %.1f GB/s", gbs(begin));
	begin = now_s();
	to(GLAKE_PLACE_HOST, 0);
	tap_note("prefetch to node 0, where it is: %.1f GB/s", gbs(begin));
	is_done(glake_managed_advise(
			ctx, block, 0, GLAKE_MANAGED_PREFER, GLAKE_PLACE_GPU, 0),
		"best on the GPU");
	is_done(glake_managed_get(ctx, block, 0, GLAKE_MANAGED_PREFERRED, &place, &id),
		"which the driver knows");
	ok(place == GLAKE_PLACE_GPU && id == 0, "  as it was said");
	is_done(glake_managed_get(ctx, block, 0, GLAKE_MANAGED_PREFETCHED, &place, &id),
		"as it knows where it was sent");
	ok(place == GLAKE_PLACE_HOST, "  to the host");
	tap_note("place of the last prefetch: %d, %d", place, id);
	begin = now_s();
	to(GLAKE_PLACE_GPU, 0);
	kernel(4, true);
	tap_note("preferred there, prefetch and kernel: %.1f GB/s", gbs(begin));
	is_done(glake_managed_advise(
			ctx, block, 0, GLAKE_MANAGED_ACCESSED, GLAKE_PLACE_HOST, -1),
		"the host uses it too");
	begin = now_s();
	host_reads();
	tap_note("host, over the link or moved, as the driver does it: %.1f GB/s",
		gbs(begin));
	is_int(gpu_counters_take(&work).wrong, 0, "the contents are what they were");
	is_done(glake_spill(ctx, block, stream), "a spill");
	is_done(glake_fetch(ctx, block, stream), "and a fetch");
	sync_stream();
	kernel(4, true);
	is_int(gpu_counters_take(&work).wrong, 0, "and so they are still");
}

#define PLACE ((size_t)64 << 10)

/* A kernel and the host write the same 64 KiB in turns. us a turn. */
static double turns(int count)
{
	struct gpu_jobs jobs = {.at[0] = gpu_job(block, PLACE, 1, 5)};
	double begin = now_s();

	for (int i = 0; i < count; i++) {
		must_cuda(gpu_put(&work, &jobs, 1, 0, 0, stream), "a kernel");
		sync_stream();
		for (size_t at = 0; at < PLACE / 8; at += 512)
			((volatile uint64_t *)block)[at] = gpu_tag(1, 5) + at;
	}
	return (now_s() - begin) * 1e6 / count;
}

/* What goes to and fro is told of, and advised: the driver alone knows when it calls it so. */
static void to_and_fro(void)
{
	struct glake_uvm_options options = {
		.sz = sizeof(options), .events = GLAKE_UVM_THRASHING};
	static struct glake_uvm_event events[GLAKE_UVM_ENTRIES_MAX];
	struct glake_stats stats = {.sz = sizeof(stats)};
	size_t count = 0;
	double before;

	if (glake_uvm_open(ctx, &options)) {
		gpu_why();
		tap_skip("what goes to and fro is advised", "no events of nvidia_uvm");
		return;
	}
	before = turns(200);
	is_done(glake_uvm_drain(ctx, events, GLAKE_UVM_ENTRIES_MAX, &count), "drained");
	must(glake_stats_get(ctx, 0, &stats), "figures");
	ok(stats.managed_advised == (count ? 1 : 0),
		"a block that went to and fro is advised");
	tap_note("to and fro: %zu events, %.1f us a turn before, %.1f after", count,
		before, turns(200));
	is_done(glake_managed_advise(
			ctx, block, PLACE, GLAKE_MANAGED_UNACCESSED, GLAKE_PLACE_GPU, 0),
		"which the program takes back");
	is_done(glake_uvm_close(ctx), "closed");
}

/* Had again; what that took, and what of it was advice taken back. */
static void again(const char *what)
{
	struct glake_driver_stats stats = {.sz = sizeof(stats)};
	int64_t ns, calls;
	void *ptr = NULL;
	double begin;

	is_done(glake_free(ctx, block, stream), "freed");
	glake_driver_stats_get(ctx, &stats);
	ns = stats.ns[GLAKE_CALL_MANAGED_ADVISE];
	calls = (int64_t)stats.calls[GLAKE_CALL_MANAGED_ADVISE];
	begin = now_s();
	is_done(glake_alloc(ctx, 0, size, stream, GLAKE_ALLOC_MANAGED, &ptr),
		"asked again");
	begin = now_s() - begin;
	glake_driver_stats_get(ctx, &stats);
	tap_note(
		"had before, %s: %.1f us; %.1f us of it in %lld calls that take advice back",
		what, begin * 1e6,
		(double)(stats.ns[GLAKE_CALL_MANAGED_ADVISE] - ns) / 1e3,
		(long long)(stats.calls[GLAKE_CALL_MANAGED_ADVISE] - (uint64_t)calls));
	ok(ptr == block, "the same memory");
}

static void kept(void)
{
	struct glake_driver_stats stats = {.sz = sizeof(stats)};
	struct glake_suspended did = {.sz = sizeof(did)};
	double begin = now_s();
	int place, id;

	is_done(glake_suspend(ctx, 0, &did), "suspended");
	ok(did.managed >= size, "it went to the host, %.1f GB/s", gbs(begin));
	is_done(glake_resume(ctx, 0, NULL), "resumed");
	ok(host_finds(4), "with its contents");
	again("with a place and a user named");
	ok(glake_managed_get(ctx, block, 0, GLAKE_MANAGED_PREFERRED, &place, &id) ==
			-ENOENT,
		"of which nothing is said any more");
	again("with nothing said");
	is_done(glake_managed_advise(
			ctx, block, 0, GLAKE_MANAGED_ACCESSED, GLAKE_PLACE_GPU, 0),
		"a GPU uses it");
	again("with a user named");
	is_done(glake_managed_advise(
			ctx, block, 0, GLAKE_MANAGED_PREFER, GLAKE_PLACE_GPU, 0),
		"best on the GPU");
	again("with a place named");
	to_and_fro();
	is_done(glake_free(ctx, block, stream), "freed");
	begin = now_s();
	is_done(glake_trim(ctx, 0, 0, NULL), "trimmed");
	tap_note("a chunk that goes: %.1f ms", (now_s() - begin) * 1e3);
	glake_driver_stats_get(ctx, &stats);
	is_int((int64_t)stats.calls[GLAKE_CALL_MANAGED_FREE],
		(int64_t)stats.calls[GLAKE_CALL_MANAGED_ALLOC], "all chunks went");
}

int main(void)
{
	struct glk_drv *drv = gpu_open();
	struct glake_options options = {
		.sz = sizeof(options), .backend = GLAKE_BACKEND_CUDA, .no_conf_file = 1};
	size_t left = 0, total;
	void *ptr = NULL;
	int err;

	tap_plan_later();
	must(drv->ops->memory_info(drv, 0, &left, &total), "what is free");
	size = left / 8 < 4 * GIB ? left / 8 & ~(2 * MIB - 1) : 4 * GIB;
	gpu_work_init(&work);
	functions();
	must(glake_open(&options, &ctx), "a context");
	must(glake_stream_new(ctx, 0, &stream), "a stream");
	err = glake_alloc(ctx, 0, size, stream, GLAKE_ALLOC_MANAGED, &ptr);
	if (err == -EOPNOTSUPP) {
		gpu_why();
		tap_skip("managed memory", "this GPU or driver has none");
	} else {
		must(err, "managed memory");
		block = ptr;
		tap_note("%zu MiB of managed memory", size / MIB);
		contents();
		figures();
		kept();
	}
	is_done(glake_stream_free(ctx, 0, stream), "the stream ends");
	is_done(glake_close(ctx, NULL), "closed");
	is_done(glk_drv_close(drv), "and the backend");
	return tap_done();
}
