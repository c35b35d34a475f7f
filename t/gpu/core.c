/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The public functions on a real GPU: blocks of all sizes with real data in them, blocks
 * stitched from pages that lie apart, contiguous ones, refused calls, and contexts opened,
 * used and closed fifty times without a byte of the GPU lost.
 *
 * The driver instance beside them holds the CUDA context, copies data and reads free memory.
 */
#include "gpu.h"

#include <glake/glake.h>

#define MIB    ((size_t)1 << 20)
#define BLOCKS 96
#define CYCLES 50

static struct glk_drv *drv;

static struct glake *context_open(void)
{
	struct glake_options options = {
		.sz = sizeof(options), .backend = GLAKE_BACKEND_CUDA, .no_conf_file = 1};
	struct glake *ctx = NULL;

	must(glake_open(&options, &ctx), "glake_open");
	return ctx;
}

static int write_block(
	void *block, size_t size, uint64_t seed, struct CUstream_st *stream)
{
	return pattern_write(drv, 0, (uintptr_t)block, size & ~(size_t)7, seed, stream);
}

static int64_t check_block(
	void *block, size_t size, uint64_t seed, struct CUstream_st *stream)
{
	return pattern_check(drv, 0, (uintptr_t)block, size & ~(size_t)7, seed, stream);
}

static struct glake_stats figures(struct glake *ctx)
{
	struct glake_stats stats = {.sz = sizeof(stats)};

	must(glake_stats_get(ctx, 0, &stats), "glake_stats_get");
	return stats;
}

/* 8 bytes to 32 MiB, small ones more often. */
static size_t some_size(uint64_t *state)
{
	unsigned bits;
	size_t size;

	*state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	bits = 3 + (unsigned)(*state >> 33) % 22;
	size = (size_t)1 << bits;
	return size + (size_t)(*state >> 20) % size;
}

/* Blocks come and go on two streams; each holds its own data until it is freed. */
static void mixed(void)
{
	struct glake *ctx = context_open();
	struct CUstream_st *streams[2] = {NULL, NULL};
	struct {
		void *ptr;
		size_t size;
		uint64_t seed;
	} block[BLOCKS] = {{0}};
	uint64_t state = 1;
	int64_t wrong = 0;
	int failed = 0;
	size_t leaked = 9;

	must(glake_stream_new(ctx, 0, &streams[0]), "no stream");
	must(glake_stream_new(ctx, 0, &streams[1]), "no stream");
	for (unsigned step = 0; step < 4 * BLOCKS; step++) {
		struct CUstream_st *stream = streams[step / 7 % 2];
		unsigned i = step * 37 % BLOCKS;

		if (block[i].ptr) {
			wrong += check_block(
				block[i].ptr, block[i].size, block[i].seed, stream);
			failed += glake_free(ctx, block[i].ptr, stream) != 0;
			block[i].ptr = NULL;
			if (step % 3 == 0)
				continue;
		}
		block[i].size = some_size(&state);
		block[i].seed = step + 1;
		if (glake_alloc(ctx, 0, block[i].size, stream, 0, &block[i].ptr)) {
			gpu_why();
			failed++;
			continue;
		}
		failed += write_block(block[i].ptr, block[i].size, block[i].seed,
				  stream) != 0;
	}
	is_int(failed, 0, "mixed sizes: every call succeeds");
	is_int(wrong, 0, "and no block lost a word");
	wrong = 0;
	for (unsigned i = 0; i < BLOCKS; i++)
		if (block[i].ptr)
			wrong += check_block(
				block[i].ptr, block[i].size, block[i].seed, streams[0]);
	is_int(wrong, 0, "the blocks left have their data");
	for (unsigned i = 0; i < BLOCKS; i++)
		if (block[i].ptr)
			failed += glake_free(ctx, block[i].ptr, streams[0]) != 0;
	is_int(failed, 0, "all freed");
	is_int(figures(ctx).live_blocks, 0, "none is live");
	is_done(glake_stream_free(ctx, 0, streams[0]), "end a stream");
	is_done(glake_stream_free(ctx, 0, streams[1]), "end the other");
	is_done(glake_close(ctx, &leaked), "close");
	is_int(leaked, 0, "nothing leaked");
}

/*
 * Every other block of a row is freed, and the budget forbids new pages: a larger block can
 * only be backed with pages that lie apart.
 */
static void stitched(void)
{
	struct glake *ctx = context_open();
	struct glake_block found = {.sz = sizeof(found)};
	struct CUstream_st *stream = NULL;
	struct glake_stats stats;
	void *row[8], *large = NULL;
	int failed = 0;

	must(glake_stream_new(ctx, 0, &stream), "no stream");
	for (int i = 0; i < 8; i++) {
		must(glake_alloc(ctx, 0, 16 * MIB, stream, 0, &row[i]), "no block");
		failed += write_block(row[i], 16 * MIB, 100 + (uint64_t)i, stream) != 0;
	}
	for (int i = 0; i < 8; i += 2)
		failed += glake_free(ctx, row[i], stream) != 0;
	must(drv->ops->stream_sync(drv, 0, stream), "no sync");
	stats = figures(ctx);
	is_int(stats.reserved, 128 * MIB, "eight blocks of 16 MiB hold 128 MiB");
	is_done(glake_budget_set(ctx, 0, (size_t)stats.reserved),
		"and no more may be held");

	is_done(glake_alloc(ctx, 0, 64 * MIB, stream, 0, &large), "a block of 64 MiB");
	if (!large)
		tap_bail("no stitched block");
	ok(figures(ctx).stitches > stats.stitches, "is stitched");
	is_int(figures(ctx).reserved, stats.reserved, "from pages held already");
	is_done(glake_query(ctx, (char *)large + 33 * MIB, &found), "query inside");
	ok(found.base == large && found.pages == 4, "one block of 4 pages: %zu",
		found.pages);
	failed += write_block(large, 64 * MIB, 200, stream) != 0;
	is_int(check_block(large, 64 * MIB, 200, stream), 0, "it holds its data");
	for (int i = 1; i < 8; i += 2)
		is_int(check_block(row[i], 16 * MIB, 100 + (uint64_t)i, stream), 0,
			"and its neighbours theirs");
	is_done(glake_free(ctx, large, stream), "free it");
	for (int i = 0; i < 8; i += 2) {
		must(glake_alloc(ctx, 0, 16 * MIB, stream, 0, &row[i]), "no block");
		failed += write_block(row[i], 16 * MIB, 300 + (uint64_t)i, stream) != 0;
	}
	for (int i = 0; i < 8; i++)
		is_int(check_block(row[i], 16 * MIB, (i % 2 ? 100 : 300) + (uint64_t)i,
			       stream),
			0, "the row again");
	is_int(failed, 0, "every call succeeded");
	for (int i = 0; i < 8; i++)
		glake_free(ctx, row[i], stream);
	is_done(glake_stream_free(ctx, 0, stream), "end the stream");
	is_done(glake_close(ctx, NULL), "close");
}

static void contiguous(void)
{
	struct glake_block found = {.sz = sizeof(found)};
	struct glake *ctx = context_open();
	struct CUstream_st *stream = NULL;
	size_t size = 24 * MIB + 8;
	void *block = NULL;

	must(glake_stream_new(ctx, 0, &stream), "no stream");
	must(glake_alloc(ctx, 0, size, stream, GLAKE_ALLOC_CONTIGUOUS, &block),
		"no block");
	is_done(glake_query(ctx, block, &found), "query a contiguous block");
	is_int(found.pages, 1, "it has one handle");
	ok(found.page_size >= size, "of %zu bytes", found.page_size);
	is_int(found.flags, GLAKE_ALLOC_CONTIGUOUS, "and its flag");
	is_int(write_block(block, size, 400, stream), 0, "write");
	is_int(check_block(block, size, 400, stream), 0, "read");
	is_done(glake_free(ctx, block, stream), "free");
	is_done(glake_stream_free(ctx, 0, stream), "end the stream");
	is_done(glake_close(ctx, NULL), "close");
}

static void refused_with(int err, int want, int class, const char *what)
{
	if (!is_int(err, want, what) || !is_int(gpu_class(), class, what))
		gpu_why();
}

static void refused(void)
{
	struct glake *ctx = context_open();
	struct glake_device info = {.sz = sizeof(info)};
	char *block = NULL;
	void *out = &out;
	int local = 0;

	must(glake_device_get(ctx, 0, &info), "no device");
	is_int(glake_backend(ctx), GLAKE_BACKEND_CUDA, "it runs on CUDA");
	is_int(glake_alloc(ctx, 0, 0, NULL, 0, &out), -EINVAL, "size 0");
	is_int(glake_alloc(ctx, 0, SIZE_MAX, NULL, 0, &out), -ENOMEM, "SIZE_MAX");
	is_int(glake_alloc(ctx, 0, 2 * info.memory, NULL, 0, &out), -ENOMEM,
		"twice the GPU");
	is_int(glake_alloc(ctx, 999, 1, NULL, 0, &out), -EINVAL, "GPU 999");
	is_int(glake_alloc(ctx, 0, 1, NULL, 0x80000000, &out), -EINVAL,
		"an unknown flag");
	ok(out == &out, "the output is left alone");

	must(glake_alloc(ctx, 0, 5 * MIB, NULL, 0, (void **)&block), "no block");
	refused_with(glake_free(ctx, &local, NULL), -EINVAL, GLAKE_ERROR_NOT_MINE,
		"free of a host pointer");
	is_int(glake_free(ctx, block + 512, NULL), -EINVAL, "free of the inside");
	is_int(glake_query(ctx, &local,
		       &(struct glake_block){.sz = sizeof(struct glake_block)}),
		-EINVAL, "query of a host pointer");
	is_done(glake_free(ctx, NULL, NULL), "free of NULL does nothing");
	is_int(figures(ctx).live_blocks, 1, "the block is still there");
	is_done(glake_free(ctx, block, NULL), "free");
	refused_with(glake_free(ctx, block, NULL), -EINVAL, GLAKE_ERROR_DOUBLE_FREE,
		"free again");
	is_int(figures(ctx).live_blocks, 0, "counted once");

	must(glake_alloc(ctx, 0, MIB, NULL, 0, &out), "no block");
	size_t leaked = 0;
	is_done(glake_close(ctx, &leaked), "close with a live block");
	is_int(leaked, 1, "which is told");
	is_int(glake_free(ctx, out, NULL), -ESTALE, "free after close");
	is_int(glake_alloc(ctx, 0, 1, NULL, 0, &out), -ESTALE, "and alloc");
}

/* One life of a context; the number of things that went wrong. */
static int cycle(uint64_t seed)
{
	struct glake *ctx = context_open();
	struct CUstream_st *stream = NULL;
	void *block[16] = {NULL};
	int wrong = 0;

	wrong += glake_stream_new(ctx, 0, &stream) != 0;
	for (size_t i = 0; i < 16; i++)
		wrong += glake_alloc(ctx, 0, (size_t)3000 << i % 12, stream,
				 i == 15 ? GLAKE_ALLOC_CONTIGUOUS : 0, &block[i]) != 0;
	wrong += write_block(block[11], (size_t)3000 << 11, seed, stream) != 0;
	for (size_t i = 0; i < 16; i += 2)
		wrong += glake_free(ctx, block[i], stream) != 0;
	wrong += check_block(block[11], (size_t)3000 << 11, seed, stream) != 0;
	/* The odd ones are left to close. */
	wrong += glake_stream_free(ctx, 0, stream) != 0;
	wrong += glake_close(ctx, NULL) != 0;
	return wrong;
}

static void cycles(void)
{
	size_t before = 0, after = 0, total = 0;
	int wrong = cycle(1); /* the first makes the driver load what it keeps */

	must(drv->ops->memory_info(drv, 0, &before, &total), "no memory info");
	for (uint64_t i = 0; i < CYCLES; i++)
		wrong += cycle(i + 2);
	must(drv->ops->memory_info(drv, 0, &after, &total), "no memory info");
	is_int(wrong, 0, "50 contexts opened, used and closed");
	is_int(after, before, "free memory is back where it was");
}

int main(void)
{
	size_t free, total;

	drv = gpu_open();
	tap_plan_later();
	must(drv->ops->memory_info(drv, 0, &free, &total), "no context");
	mixed();
	stitched();
	contiguous();
	refused();
	cycles();
	is_done(drv->ops->close(drv), "close");
	return tap_done();
}
