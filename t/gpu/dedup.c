/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Equal pages of sealed blocks on a GPU: every word, the memory that they leave, and how long it takes. */
#include "kernels.h"

#include <glake/glake.h>

#define GIB   ((size_t)1 << 30)
#define PAGE  ((size_t)2 << 20)
#define SIZE  (8 * GIB)
#define PAGES (SIZE / PAGE)
/* Bytes between the serials of two pieces: their words are others. */
#define PIECE (64 * PAGE)

static struct gpu_work work;
static struct glake *ctx;

static void *elastic(void)
{
	void *ptr = NULL;

	if (glake_alloc(ctx, 0, SIZE, NULL, GLAKE_ALLOC_ELASTIC, &ptr) ||
		glake_commit(ctx, ptr, 0, SIZE, NULL, NULL))
		tap_bail("no memory");
	return ptr;
}

/* Writes or checks all pieces, of which each tenth is another's. Words that are wrong. */
static uint64_t pass(void *ptr, bool tuned, bool checks)
{
	for (size_t i = 0; i < SIZE / PIECE; i++) {
		void *at = (char *)ptr + i * PIECE;

		gpu_pass(&work, &at, 1, PIECE,
			(uint32_t)(100 + 100 * i + (tuned && i % 10 == 0 ? 50 : 0)),
			checks, NULL);
	}
	return gpu_counters_take(&work).wrong;
}

static size_t free_bytes(void)
{
	struct glake_stats s = {.sz = sizeof(s)};

	glake_stats_get(ctx, 0, &s);
	return s.live;
}

static struct glake_sealed seal(void *ptr, uint64_t rate, const char *what)
{
	struct glake_sealed s = {.sz = sizeof(s)};
	double begin = now_s();

	is_int(glake_seal(ctx, ptr, NULL, rate, &s), 0, what);
	tap_note(
		"%.1f ms, %.2f GiB looked at, %.2f saved, %.2f shared before, %llu left, %llu differ",
		(now_s() - begin) * 1e3, (double)s.looked / GIB, (double)s.saved / GIB,
		(double)s.shared / GIB, (unsigned long long)s.left,
		(unsigned long long)s.differ);
	return s;
}

int main(void)
{
	struct glake_options options = {
		.sz = sizeof(options), .backend = GLAKE_BACKEND_CUDA};
	struct glake_sealed s;
	size_t leaked = 9, one;
	double begin;
	void *a, *b;

	gpu_open();
	tap_plan_later();
	if (glake_open(&options, &ctx))
		tap_bail("no context");
	gpu_work_init(&work);
	a = elastic();
	b = elastic();
	pass(a, false, false);
	pass(b, true, false);
	one = free_bytes() / 2;
	s = seal(a, 0, "a base is sealed");
	is_int((int64_t)s.saved, 0, "nothing of it is equal");
	s = seal(b, 0, "a fine-tune that differs in a tenth");
	ok(s.saved * 100 >= SIZE * 85, "%.1f %% of the base are saved: 85 at the least",
		(double)s.saved * 100 / SIZE);
	ok(free_bytes() <= one + SIZE * 15 / 100, "which is live no more");
	is_int((int64_t)pass(a, false, true), 0, "each word of the base is right");
	is_int((int64_t)pass(b, true, true), 0, "and of the other");
	seal(b, 0, "again");
	seal(b, UINT64_C(100000000000), "at 100 GB/s");
	begin = now_s();
	is_int(glake_unseal(ctx, b, NULL), 0, "it has its own");
	tap_note("%.1f ms", (now_s() - begin) * 1e3);
	pass(b, false, false);
	is_int((int64_t)pass(a, false, true), 0, "each word of the base is right");
	s = seal(b, 0, "all of it is equal now");
	is_int((int64_t)s.saved, (int64_t)SIZE, "and saved");
	is_int(glake_free(ctx, a, NULL), 0, "the base goes");
	is_int((int64_t)pass(b, false, true), 0, "each word of the other is right");
	one = free_bytes();
	begin = now_s();
	is_int(glake_unseal(ctx, b, NULL), 0, "which has its pages for itself");
	tap_note("%.1f ms", (now_s() - begin) * 1e3);
	is_int((int64_t)free_bytes(), (int64_t)one, "in no memory more");
	is_int((int64_t)pass(b, false, true), 0, "each word of it is right");
	pass(b, true, false);
	is_int((int64_t)pass(b, true, true), 0, "and it is written again");
	glake_free(ctx, b, NULL);
	ok(!glake_close(ctx, &leaked) && !leaked, "nothing is left");
	return tap_done();
}
