/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Rows of a KV cache by index (glake_kv_gather) on a real GPU: those of tokens that lie on the GPU and on the host are
 * what was written; what they cost, beside copies of the same rows one by one.
 */
#include "kernels.h"

#include "seed.h"

#include <stdlib.h>
#include <string.h>

#include <glake/glake.h>

#define TOKENS 65536u
#define MOST   16384u

typedef int copy_fn(uint64_t dst, uint64_t src, size_t bytes, struct CUstream_st *stream);

static struct gpu_work work;
static struct glake *ctx;
static struct CUstream_st *stream;
static copy_fn *copy_async;
static uint64_t chance;

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void copy(void *dst, const void *src, size_t bytes)
{
	must_cuda(copy_async((uintptr_t)dst, (uintptr_t)src, bytes, stream), "a copy");
	must_cuda(work.sync(), "the GPU has gone");
}

struct places {
	struct glake_kv *kv;
	uint32_t slot;
	size_t row;
	char *lane;	   /* its contents, in locked memory of the host */
	uint32_t *numbers; /* likewise */
	uint32_t *indices; /* on the GPU */
	char *rows, *read; /* on the GPU, and what they are */
};

/* Rows that are not those of their tokens. */
static size_t wrong_rows(struct places *p, uint32_t count)
{
	size_t wrong = 0;

	copy(p->read, p->rows, count * p->row);
	for (uint32_t i = 0; i < count; i++)
		wrong += memcmp(p->read + i * p->row, p->lane + p->numbers[i] * p->row,
				 p->row) != 0;
	return wrong;
}

/* Microseconds of a call, and of it with what it queued. */
static void time_rows(struct places *p, uint32_t count, const char *where)
{
	double call[15], all[15], begin;

	for (int i = 0; i < 15; i++) {
		begin = now_s();
		must(glake_kv_gather(
			     p->kv, p->slot, 1, p->indices, count, p->rows, stream),
			"rows");
		call[i] = now_s() - begin;
		must_cuda(work.sync(), "the GPU has gone");
		all[i] = now_s() - begin;
	}
	qsort(call, 15, sizeof(*call), by_value);
	qsort(all, 15, sizeof(*all), by_value);
	tap_note(
		"  %u rows of %zu bytes %s: the call %.1f us, all of it %.1f us, %.1f GB/s",
		count, p->row, where, 1e6 * call[7], 1e6 * all[7],
		(double)count * (double)p->row / all[7] / 1e9);
}

static double time_copies(struct places *p, uint32_t count)
{
	double all[5], begin;

	for (int i = 0; i < 5; i++) {
		begin = now_s();
		for (uint32_t r = 0; r < count; r++)
			must_cuda(copy_async((uintptr_t)(p->rows + r * p->row),
					  (uintptr_t)(p->lane + p->numbers[r] * p->row),
					  p->row, stream),
				"a copy");
		must_cuda(work.sync(), "the GPU has gone");
		all[i] = now_s() - begin;
	}
	qsort(all, 5, sizeof(*all), by_value);
	tap_note("  %u copies of %zu bytes: %.1f us, %.1f GB/s", count, p->row,
		1e6 * all[2], (double)count * (double)p->row / all[2] / 1e9);
	return all[2];
}

static double time_kernel(struct places *p, uint32_t count)
{
	double all[5], begin;

	for (int i = 0; i < 5; i++) {
		begin = now_s();
		must(glake_kv_gather(
			     p->kv, p->slot, 1, p->indices, count, p->rows, stream),
			"rows");
		must_cuda(work.sync(), "the GPU has gone");
		all[i] = now_s() - begin;
	}
	qsort(all, 5, sizeof(*all), by_value);
	return all[2];
}

static void *on_host(size_t bytes)
{
	void *p = NULL;

	must(glake_host_alloc(ctx, 0, bytes, 0, &p), "locked memory of the host");
	return p;
}

static void *on_gpu(size_t bytes)
{
	void *p = NULL;

	must(glake_alloc(ctx, 0, bytes, stream, 0, &p), "memory of the GPU");
	return p;
}

static void rows_of(size_t row)
{
	static const uint32_t counts[] = {256, 2048, MOST};
	struct glake_kv_options o = {.sz = sizeof(o),
		.slots = 2,
		.tokens = TOKENS,
		.lanes = 2,
		.lane_bytes = row};
	struct glake_kv_place at = {.sz = sizeof(at)};
	struct places p = {.row = row};
	double kernel, copies;
	size_t wrong = 0;

	must(glake_kv_open(ctx, 0, &o, stream, &p.kv), "a KV cache");
	must(glake_kv_new(p.kv, TOKENS, stream, &p.slot), "a sequence");
	must(glake_kv_grow(p.kv, p.slot, TOKENS, stream), "of all tokens");
	must(glake_kv_place_get(p.kv, 1, &at), "a lane");
	p.lane = on_host(TOKENS * row);
	p.numbers = on_host(MOST * sizeof(*p.numbers));
	p.read = on_host(MOST * row);
	p.indices = on_gpu(MOST * sizeof(*p.indices));
	p.rows = on_gpu(MOST * row);
	for (size_t i = 0; i < TOKENS * row / sizeof(uint64_t); i++)
		((uint64_t *)(void *)p.lane)[i] = i * UINT64_C(0x9e3779b97f4a7c15);
	for (uint32_t i = 0; i < MOST; i++)
		p.numbers[i] = (uint32_t)seed_below(&chance, TOKENS);
	copy((char *)at.base + p.slot * at.slot, p.lane, TOKENS * row);
	copy(p.indices, p.numbers, MOST * sizeof(*p.indices));
	for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
		time_rows(&p, counts[i], "of the GPU");
		wrong += wrong_rows(&p, counts[i]);
	}
	must(glake_kv_layer_done(p.kv, p.slot, 0, 2, stream), "it leaves");
	must_cuda(work.sync(), "the GPU has gone");
	for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
		time_rows(&p, counts[i], "of the host");
		wrong += wrong_rows(&p, counts[i]);
	}
	/* one that is queued before the lane comes back reads what it was, and one behind it too */
	must(glake_kv_gather(p.kv, p.slot, 1, p.indices, MOST, p.rows, stream), "rows");
	must(glake_kv_layer_wait(p.kv, p.slot, 0, 2, stream), "it comes back");
	wrong += wrong_rows(&p, MOST);
	must(glake_kv_layer_done(p.kv, p.slot, 0, 2, stream), "it leaves");
	must(glake_kv_gather(p.kv, p.slot, 1, p.indices, MOST, p.rows, stream), "rows");
	wrong += wrong_rows(&p, MOST);
	ok(!wrong, "rows of %zu bytes are what was written", row);
	kernel = time_kernel(&p, 2048);
	copies = time_copies(&p, 2048);
	ok(kernel < copies, "2048 of the host by a kernel in %.4f of the time of copies",
		kernel / copies);
	must(glake_free(ctx, p.rows, stream), "a free");
	must(glake_free(ctx, p.indices, stream), "a free");
	must(glake_kv_close(p.kv, stream), "its end");
	must(glake_host_free(ctx, p.lane), "a free");
	must(glake_host_free(ctx, p.numbers), "a free");
	must(glake_host_free(ctx, p.read), "a free");
}

int main(void)
{
	struct glake_options options = {
		.sz = sizeof(options), .backend = GLAKE_BACKEND_CUDA};
	struct glk_drv *drv = gpu_open();
	size_t leaked = 0;
	void *cuda;

	must(drv->ops->close(drv), "close");
	gpu_work_init(&work);
	tap_plan_later();
	cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
	*(void **)&copy_async = cuda ? dlsym(cuda, "cuMemcpyAsync") : NULL;
	if (!copy_async)
		tap_bail("no cuMemcpyAsync");
	chance = seed_start();
	must(glake_open(&options, &ctx), "no context");
	must(glake_stream_new(ctx, 0, &stream), "no stream");
	rows_of(1024);
	rows_of(2048);
	rows_of(4096);
	must(glake_stream_free(ctx, 0, stream), "a stream");
	is_int(glake_close(ctx, &leaked), 0, "close");
	is_int((int64_t)leaked, 0, "nothing is left");
	return tap_done();
}
