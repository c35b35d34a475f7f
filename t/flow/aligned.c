/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Blocks that begin at multiples of more than the grain: where they lie, what they cost, and what is refused. */
#include "context.h"

#include "seed.h"

#include <stdio.h>
#include <string.h>

#define BLOCKS 300

struct block {
	unsigned char *ptr;
	size_t size;
	unsigned char value;
};

static unsigned char *aligned(
	struct glake *ctx, size_t size, size_t align, struct CUstream_st *stream)
{
	void *ptr = NULL;

	if (glake_alloc(ctx, 0, size, stream, (uint32_t)align, &ptr))
		tap_bail(flow_error().text);
	return ptr;
}

static bool all_are(const unsigned char *bytes, unsigned char want, size_t size)
{
	return bytes[0] == want && !memcmp(bytes, bytes + 1, size - 1);
}

static struct glake_block asked(struct glake *ctx, const void *ptr)
{
	struct glake_block block = {.sz = sizeof(block)};

	if (glake_query(ctx, ptr, &block))
		tap_bail("no block");
	return block;
}

/* Each alignment with sizes below, around and far above it; nobody has the bytes of another. */
static void sizes(struct glake *ctx)
{
	static const size_t size[] = {1, 512, 4000, 4096, 5000, 250 << 10, 256 << 10,
		300 << 10, 3 << 20, 20 << 20};
	struct block block[2 * sizeof(size) / sizeof(*size)];
	size_t wrong = 0, count;

	for (size_t align = 2 * GLAKE_GRAIN; align <= GLAKE_ALIGN_MAX; align *= 2) {
		count = 0;
		for (size_t i = 0; i < sizeof(size) / sizeof(*size); i++) {
			struct block *plain = &block[count++], *b = &block[count++];

			*plain = (struct block){flow_alloc(ctx, 700, NULL), 700, 1};
			*b = (struct block){aligned(ctx, size[i], align, NULL), size[i],
				(unsigned char)(i + 2)};
			wrong += (uintptr_t)b->ptr % align != 0;
			wrong += asked(ctx, b->ptr).size != size[i] ||
				asked(ctx, b->ptr + size[i] - 1).base != b->ptr ||
				asked(ctx, b->ptr).flags;
			memset(plain->ptr, plain->value, plain->size);
			memset(b->ptr, b->value, b->size);
		}
		for (size_t i = 0; i < count; i++) {
			wrong += !all_are(block[i].ptr, block[i].value, block[i].size);
			wrong += glake_free(ctx, block[i].ptr, NULL) != 0;
		}
		ok(!wrong, "aligned to %zu", align);
	}
	is_int((int64_t)flow_stats(ctx, 0).live, 0, "nothing is live");
	is_int(glake_trim(ctx, 0, 0, NULL), 0, "trimmed");
	is_int((int64_t)flow_stats(ctx, 0).reserved, 0, "nor held");
}

/* Of two streams and all sizes, by turns with others. */
static void storm(struct glake *ctx)
{
	struct CUstream_st *stream[2];
	struct block block[BLOCKS] = {{NULL, 0, 0}};
	uint64_t state = seed_thread(seed_start(), 0), wrong = 0;

	for (int i = 0; i < 2; i++)
		if (glake_stream_new(ctx, 0, &stream[i]))
			tap_bail("no stream");
	for (int i = 0; i < 6000; i++) {
		struct block *b = &block[seed_below(&state, BLOCKS)];
		struct CUstream_st *s = stream[seed_below(&state, 2)];
		size_t align = GLAKE_GRAIN << seed_below(&state, 13);

		if (b->ptr) {
			wrong += b->ptr[0] != b->value ||
				b->ptr[b->size - 1] != b->value ||
				glake_free(ctx, b->ptr, s) != 0;
			*b = (struct block){NULL, 0, 0};
			continue;
		}
		b->size = 1 + seed_below(&state, seed_below(&state, 8) ? 40000 : 2000000);
		b->ptr = aligned(ctx, b->size, align & GLAKE_ALLOC_ALIGN, s);
		b->value = (unsigned char)i;
		b->ptr[0] = b->ptr[b->size - 1] = b->value;
		wrong += (uintptr_t)b->ptr % align;
	}
	is_int((int64_t)wrong, 0, "6000 requests and frees");
	for (int i = 0; i < BLOCKS; i++)
		wrong += glake_free(ctx, block[i].ptr, NULL) != 0;
	is_int((int64_t)wrong, 0, "all freed");
	for (int i = 0; i < 2; i++)
		is_int(glake_stream_free(ctx, 0, stream[i]), 0, "a stream ends");
	is_int(glake_trim(ctx, 0, 0, NULL), 0, "trimmed");
	is_int((int64_t)flow_stats(ctx, 0).reserved, 0, "nothing is held");
}

/* What lies before such a block is others' memory. */
static void costs(struct glake *ctx)
{
	unsigned char *ptr[512];
	size_t held;

	for (int i = 0; i < 512; i++)
		ptr[i] = aligned(ctx, 4096, 4096, NULL);
	held = flow_stats(ctx, 0).reserved;
	ok(held <= 8 * MIB, "512 pages of 4 KiB take %zu MiB", held / MIB);
	for (int round = 0; round < 4; round++)
		for (int i = 0; i < 512; i++) {
			glake_free(ctx, ptr[i], NULL);
			ptr[i] = aligned(ctx, 4096, 4096, NULL);
		}
	is_int((int64_t)flow_stats(ctx, 0).reserved, (int64_t)held,
		"and no more when they are freed and taken");
	for (int i = 0; i < 512; i++)
		glake_free(ctx, ptr[i], NULL);
}

/* Where there is room for the block alone it is found, and one too many is refused as others are. */
static void full(void)
{
	static const char *const settings[] = {"soft.memory=64MiB", NULL};
	struct glake *ctx = flow_open(settings);
	unsigned char *all = flow_alloc(ctx, 32 * MIB, NULL);
	void *ptr = NULL;

	is_int(glake_alloc(ctx, 0, 20 * MIB, NULL, 1 << 20, &ptr), 0, "what there is");
	is_int((int64_t)((uintptr_t)ptr % MIB), 0, "aligned");
	is_error(
		glake_alloc(ctx, 0, 40 * MIB, NULL, 4096, &ptr), -ENOMEM, "NOMEM_DEVICE");
	glake_free(ctx, ptr, NULL);
	is_int(glake_alloc(ctx, 0, 20 * MIB, NULL, 4096, &ptr), 0, "and again");
	memset(ptr, 7, 20 * MIB);
	is_int(glake_spill(ctx, ptr, NULL), 0, "it goes to the host");
	is_int(glake_fetch(ctx, ptr, NULL), 0, "and comes back");
	ok(all_are(ptr, 7, 20 * MIB), "with its contents");
	glake_free(ctx, ptr, NULL);
	glake_free(ctx, all, NULL);
	flow_close(ctx, 0);
}

static void others(struct glake *ctx)
{
	uint32_t tag = 0;
	void *ptr = NULL;

	is_error(glake_alloc(ctx, 0, 1, NULL, 4096 | 8192, &ptr), -EINVAL, "INVAL");
	is_error(glake_alloc(ctx, 0, 1, NULL, 4 << 20, &ptr), -EINVAL, "INVAL");
	is_error(glake_alloc(ctx, 0, 1, NULL, GLAKE_ALLOC_MANAGED | 4096, &ptr), -EINVAL,
		"INVAL");
	ok(!ptr, "nothing was given");
	is_int(glake_alloc(
		       ctx, 0, 3 * MIB, NULL, GLAKE_ALLOC_CONTIGUOUS | (2 << 20), &ptr),
		0, "contiguous");
	is_int((int64_t)((uintptr_t)ptr % (2 * MIB)), 0, "  aligned");
	is_int((int)asked(ctx, ptr).flags, GLAKE_ALLOC_CONTIGUOUS, "  and says so");
	glake_free(ctx, ptr, NULL);
	is_int(glake_alloc(ctx, 0, 3 * MIB, NULL, GLAKE_ALLOC_ELASTIC | (2 << 20), &ptr),
		0, "elastic");
	is_int((int64_t)((uintptr_t)ptr % (2 * MIB)), 0, "  aligned");
	glake_free(ctx, ptr, NULL);
	if (glake_tag_open(ctx, "aligned", &tag))
		tap_bail("no tag");
	glake_tag_set(ctx, tag, NULL);
	for (size_t size = 100; size < 4 * MIB; size *= 10) {
		ptr = aligned(ctx, size, 64 << 10, NULL);
		ok((uintptr_t)ptr % (64 << 10) == 0, "%zu of a tag", size);
		glake_free(ctx, ptr, NULL);
	}
	glake_tag_set(ctx, 0, NULL);
	is_int(glake_tag_close(ctx, tag), 0, "the tag ends");
}

static bool is_of(struct CUstream_st *stream, void *arg)
{
	return stream == arg;
}

/* Of a pool of graphs. */
static void graphs(struct glake *ctx)
{
	struct glake_pool_id id = {0, 5};
	struct CUstream_st *stream = NULL;
	unsigned char *small, *large;

	if (glake_stream_new(ctx, 0, &stream) ||
		glake_pool_begin_for(ctx, 0, id, is_of, stream))
		tap_bail(flow_error().text);
	small = aligned(ctx, 5000, 4096, stream);
	large = aligned(ctx, 5 * MIB, 1 << 20, stream);
	ok((uintptr_t)small % 4096 == 0 && (uintptr_t)large % MIB == 0, "in a pool");
	is_int((int64_t)asked(ctx, small).pool.low, 5, "  which they are of");
	glake_free(ctx, small, stream);
	glake_free(ctx, large, stream);
	is_int(glake_pool_end(ctx, 0, id), 0, "ended");
	is_int(glake_pool_release(ctx, 0, id), 0, "released");
	is_int(glake_stream_free(ctx, 0, stream), 0, "the stream too");
}

int main(void)
{
	struct glake *ctx = flow_open(NULL);

	tap_plan_later();
	sizes(ctx);
	storm(ctx);
	costs(ctx);
	others(ctx);
	graphs(ctx);
	flow_close(ctx, 0);
	full();
	return tap_done();
}
