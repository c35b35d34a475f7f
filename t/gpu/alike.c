/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Contents that are there twice, on a GPU: by every byte, the kernels against their twins in C, and how fast they are. */
#include "share/alike.h"
#include "api/context.h"
#include "kernels.h"
#include "share/kernels.ptx.h"

#include <glake/glake.h>

#define GIB  ((size_t)1 << 30)
#define SIZE (16 * GIB)
#define PART ((size_t)64 << 10)
#define RUNS 8
#define TWIN 16 /* parts that are compared with the twin's */

extern const struct glk_kernel glk_alike_hash, glk_alike_compare;

static struct gpu_work work;
static struct glake *ctx;
static struct glk_drv *drv;
static void *a, *b;

static uint64_t equal_of(size_t grain, const char *what)
{
	const struct glake_stretch both[] = {{a, SIZE}, {b, SIZE}};
	struct glake_likeness l = {.sz = sizeof(l)};
	double begin = now_s();

	is_int(glake_alike(ctx, 0, both, 2, grain, &l), 0, what);
	tap_note("%zu KiB: %.1f ms for %llu GiB, %llu of them equal, %llu numbers wrong",
		grain >> 10, (now_s() - begin) * 1e3,
		(unsigned long long)(l.looked >> 30), (unsigned long long)(l.equal >> 30),
		(unsigned long long)l.differ);
	return l.equal;
}

/* A launch a run, and the time of one, beside what the first takes. */
static double time_of(uint64_t kernel, const void *args, size_t size, uint64_t count,
	struct CUstream_st *stream)
{
	struct glk_launch launch = {.kernel = kernel,
		.blocks = count < 65536 ? (uint32_t)count : 65536,
		.threads = GLK_ALIKE_THREADS,
		.args = args,
		.size = size};
	double begin = 0;

	for (int i = 0; i <= RUNS; i++) {
		if (drv->ops->launch(drv, 0, &launch, stream))
			tap_bail("a kernel is refused");
		if (!i) {
			drv->ops->stream_sync(drv, 0, stream);
			begin = now_s();
		}
	}
	drv->ops->stream_sync(drv, 0, stream);
	return (now_s() - begin) / RUNS;
}

static void test_rates(size_t part)
{
	uint64_t module, hash, compare, parts = SIZE / part, same = 0;
	size_t bytes =
		parts * (sizeof(struct glk_alike_number) + sizeof(struct glk_alike_pair));
	struct glk_alike_number *numbers = glk_region_new(bytes), twin[TWIN];
	struct glk_alike_pair *pairs = (struct glk_alike_pair *)(numbers + parts);
	struct glk_alike_compare c = {(uintptr_t)pairs, parts, part};
	struct glk_alike_hash h = {(uintptr_t)a, part, parts, (uintptr_t)numbers};
	unsigned char *host = malloc(TWIN * part);
	struct CUstream_st *stream;
	double seconds;

	if (!numbers || !host || drv->ops->host_lock(drv, 0, numbers, bytes) ||
		drv->ops->module_load(drv, 0, alike_text, &module) ||
		drv->ops->kernel_find(drv, 0, module, &glk_alike_hash, &hash) ||
		drv->ops->kernel_find(drv, 0, module, &glk_alike_compare, &compare) ||
		drv->ops->stream_new(drv, 0, &stream))
		tap_bail("no kernels");
	seconds = time_of(hash, &h, sizeof(h), parts, stream);
	ok((double)SIZE / seconds >= 4.2e12,
		"%zu KiB: numbers of 16 GiB in %.2f ms, %.2f TB/s: 4.2 at the least",
		part >> 10, seconds * 1e3, (double)SIZE / seconds / 1e12);
	drv->ops->copy(drv, (uintptr_t)host, (uintptr_t)a, TWIN * part, stream);
	drv->ops->stream_sync(drv, 0, stream);
	glk_alike_hash.twin(
		&(struct glk_alike_hash){(uintptr_t)host, part, TWIN, (uintptr_t)twin});
	is_int(memcmp(numbers, twin, sizeof(twin)), 0,
		"which are those of the twin in C");
	for (uint64_t i = 0; i < parts; i++)
		pairs[i] = (struct glk_alike_pair){
			(uintptr_t)a + i * part, (uintptr_t)b + i * part, 0};
	seconds = time_of(compare, &c, sizeof(c), parts, stream);
	ok(2.0 * SIZE / seconds >= 3.8e12,
		"  pairs of 16 GiB compared in %.2f ms, %.2f TB/s read: 3.8 at the least",
		seconds * 1e3, 2.0 * SIZE / seconds / 1e12);
	for (uint64_t i = 0; i < parts; i++)
		same += !pairs[i].differ;
	is_int((int64_t)(parts - same), 1, "  of which one differs");
	drv->ops->stream_free(drv, 0, stream);
	drv->ops->module_free(drv, 0, module);
	drv->ops->host_unlock(drv, 0, numbers);
	glk_region_free(numbers, bytes);
	free(host);
}

int main(void)
{
	struct glake_options options = {
		.sz = sizeof(options), .backend = GLAKE_BACKEND_CUDA};
	struct glk_context *context;
	unsigned char byte = 0;
	size_t leaked = 9;

	gpu_open();
	tap_plan_later();
	if (glake_open(&options, &ctx) || glk_context_get(ctx, &context))
		tap_bail("no context");
	drv = context->drv;
	gpu_work_init(&work);
	if (glake_alloc(ctx, 0, SIZE, NULL, 0, &a) ||
		glake_alloc(ctx, 0, SIZE, NULL, 0, &b))
		tap_bail("no memory");
	gpu_pass(&work, &a, 1, SIZE, 1, false, NULL);
	gpu_pass(&work, &b, 1, SIZE, 1000, false,
		NULL); /* words of other serials are 128 MiB further */
	is_int((int64_t)equal_of(PART, "different contents"), 0, "nothing is equal");
	drv->ops->copy(drv, (uintptr_t)b, (uintptr_t)a, SIZE, NULL);
	drv->ops->stream_sync(drv, 0, NULL);
	is_int((int64_t)equal_of(PART, "a copy"), (int64_t)SIZE, "all of it is");
	drv->ops->copy(drv, (uintptr_t)&byte, (uintptr_t)b + 12345 * PART + 777, 1, NULL);
	drv->ops->stream_sync(drv, 0, NULL);
	byte ^= 4;
	drv->ops->copy(drv, (uintptr_t)b + 12345 * PART + 777, (uintptr_t)&byte, 1, NULL);
	drv->ops->stream_sync(drv, 0, NULL);
	is_int((int64_t)equal_of(PART, "one bit is another"), (int64_t)(SIZE - PART),
		"a part less");
	is_int((int64_t)equal_of(32 * PART, "in pages of 2 MiB"),
		(int64_t)(SIZE - 32 * PART), "a page less");
	test_rates(PART);
	test_rates(32 * PART);
	glake_free(ctx, a, NULL);
	glake_free(ctx, b, NULL);
	ok(!glake_close(ctx, &leaked) && !leaked, "nothing is left");
	return tap_done();
}
