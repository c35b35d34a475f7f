/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Managed memory for requests that do not ask for it, by pool.managed: which requests are served so,
 * what the others have, and what a job sees of it that knows nothing of managed memory.
 */
#include "context.h"

#include <glake/graph.h>
#include <glake/share.h>
#include <glake/tag.h>

#include <string.h>

static struct glake_block asked(struct glake *ctx, const void *ptr)
{
	struct glake_block block = {.sz = sizeof(block)};

	if (glake_query(ctx, ptr, &block))
		tap_bail("no block");
	return block;
}

/* A plain block, or NULL; which kind it is of. */
static char *have(
	struct glake *ctx, size_t size, struct CUstream_st *s, bool *ret_managed)
{
	void *ptr = NULL;

	if (glake_alloc(ctx, 0, size, s, 0, &ptr))
		return NULL;
	*ret_managed = asked(ctx, ptr).flags & GLAKE_ALLOC_MANAGED;
	return ptr;
}

static bool is_managed(struct glake *ctx, size_t size, struct CUstream_st *s)
{
	bool managed = false;

	if (!have(ctx, size, s, &managed))
		tap_bail(flow_error().text);
	return managed;
}

/* Which requests are. */
static void chosen(void)
{
	static const char *const all[] = {
		"soft.memory=8GiB", "pool.managed=yes", "tier.managed_chunk=64MiB", NULL};
	static const char *const none[] = {"soft.memory=8GiB", NULL};
	struct glake *ctx = flow_open(none);
	struct glake_piece piece = {.fd = -1};
	struct CUstream_st *s = NULL;
	size_t count = 0, offset;
	void *whole = NULL;
	uint32_t graph;
	bool managed;
	char *p, *q;
	int fd = -1;

	ok(!is_managed(ctx, 8 * MIB, NULL), "by default none is");
	flow_close(ctx, 1);
	ctx = flow_open(all);
	is_int(glake_stream_new(ctx, 0, &s), 0, "a stream");
	p = have(ctx, 8 * MIB, s, &managed);
	ok(p && managed, "a block is");
	ok(is_managed(ctx, 256 * 1024 + 1, s),
		"one that is just larger than those of bins");
	ok(!is_managed(ctx, 256 * 1024, s), "one of the largest of them is not");
	is_int(glake_alloc(ctx, 0, 8 * MIB, s, GLAKE_ALLOC_CONTIGUOUS, &whole), 0,
		"a contiguous one");
	ok(!(asked(ctx, whole).flags & GLAKE_ALLOC_MANAGED), "  is not");
	is_int(glake_soft_capture_begin(ctx, 0, s), 0, "a capture begins");
	q = have(ctx, 8 * MIB, s, &managed);
	ok(q && !managed, "what it asks for is not, and it has it");
	is_int(glake_soft_capture_end(ctx, 0, s, &graph), 0, "the capture lives");
	is_int(glake_soft_graph_free(ctx, graph), 0, "and its graph ends");
	memset(p, 5, 8 * MIB);
	is_int(glake_soft_kernel(ctx, 0, s, p, 8 * MIB, 0), 0, "a kernel uses it");
	is_int(glake_free(ctx, p, s), 0, "freed");
	q = have(ctx, 8 * MIB, s, &managed);
	ok(q == p && managed, "and had again, behind that");
	ok(glake_export(ctx, p, &piece, 1, &count) < 0, "no export");
	ok(glake_dmabuf(ctx, p, 4096, &fd, &offset) < 0, "no dma-buf");
	has_str(flow_error().text, "managed", "  says why");
	is_int(glake_stream_free(ctx, 0, s), 0, "the stream ends");
	flow_close(ctx, 5);
}

/* Of a tag and of a pool of graphs none is. */
static void kept_apart(void)
{
	static const char *const all[] = {"soft.memory=8GiB", "pool.managed=over", NULL};
	struct glake *ctx = flow_open(all);
	struct glake_pool_id id = {.high = 1, .low = 2};
	struct CUstream_st *s = NULL;
	uint32_t tag, was = 0, graph;
	bool managed = true;

	is_int(glake_tag_open(ctx, "weights", &tag), 0, "a tag");
	is_int(glake_tag_set(ctx, tag, &was), 0, "  begins");
	ok(!is_managed(ctx, 8 * MIB, NULL), "its blocks are not");
	is_int(glake_tag_set(ctx, was, NULL), 0, "  ends");
	is_int(glake_stream_new(ctx, 0, &s), 0, "a stream");
	is_int(glake_pool_begin(ctx, 0, id, s), 0, "a pool of graphs");
	is_int(glake_soft_capture_begin(ctx, 0, s), 0, "  captures");
	ok(have(ctx, 8 * MIB, s, &managed) && !managed, "its blocks are not");
	is_int(glake_soft_capture_end(ctx, 0, s, &graph), 0, "  ends");
	is_int(glake_pool_end(ctx, 0, id), 0, "  is closed");
	ok(is_managed(ctx, 8 * MIB, NULL), "what comes then is");
	is_int(glake_soft_graph_free(ctx, graph), 0, "the graph ends");
	is_int(glake_pool_release(ctx, 0, id), 0, "and its pool");
	is_int(glake_stream_free(ctx, 0, s), 0, "the stream ends");
	flow_close(ctx, 3);
}

/* As far as it has room, and the GPU's own memory from there on. */
static void capped(void)
{
	static const char *const yes[] = {"soft.memory=64MiB", "pool.managed=yes",
		"tier.managed=24MiB", "tier.managed_chunk=8MiB", NULL};
	struct glake *ctx = flow_open(yes);
	bool managed = false, first = true;
	void *ptr = NULL;
	char *p[8];

	for (int i = 0; i < 7; i++) {
		p[i] = have(ctx, 8 * MIB, NULL, &managed);
		first &= p[i] && managed == (i < 3);
	}
	ok(first, "three are, the others have memory of the GPU");
	is_int((int64_t)flow_stats(ctx, 0).managed_held, 24 * (int64_t)MIB,
		"the most there may be");
	is_int((int64_t)flow_stats(ctx, 0).oom, 0, "nobody was refused");
	is_error(glake_alloc(ctx, 0, 48 * MIB, NULL, 0, &ptr), -ENOMEM, "NOMEM_DEVICE");
	is_int(glake_free(ctx, p[1], NULL), 0, "freed");
	ok(have(ctx, 8 * MIB, NULL, &managed) == p[1] && managed, "and had again");
	flow_close(ctx, 7);
}

/* A job that is larger than the GPU ends, with the right contents. */
static void larger(void)
{
	static const char *const over[] = {"soft.memory=32MiB", "pool.managed=over",
		"tier.managed_chunk=8MiB", NULL};
	static const char *const bound[] = {"soft.memory=32MiB", "pool.managed=over",
		"tier.managed=40MiB", "tier.managed_chunk=8MiB", NULL};
	struct glake *ctx = flow_open(over);
	struct glake_suspended did = {.sz = sizeof(did)};
	struct CUstream_st *s = NULL;
	bool managed, all = true, right = true;
	uint32_t *p[8];
	void *ptr = NULL;

	is_int(glake_stream_new(ctx, 0, &s), 0, "a stream");
	for (uint32_t i = 0; i < 8; i++) {
		p[i] = (uint32_t *)(void *)have(ctx, 16 * MIB, s, &managed);
		all &= p[i] && managed;
	}
	ok(all, "four times what the GPU has");
	for (uint32_t pass = 0; pass < 2; pass++)
		for (uint32_t i = 0; i < 8; i++)
			right &= !glake_soft_fill(ctx, s, p[i], pass << 8 | i, 4 * MIB);
	is_int(glake_suspend(ctx, 0, &did), 0, "suspended");
	ok(did.managed >= 128 * MIB, "  all of it");
	is_error(glake_alloc(ctx, 0, 16 * MIB, s, 0, &ptr), -EAGAIN, "AGAIN");
	is_int(glake_resume(ctx, 0, NULL), 0, "resumed");
	for (uint32_t i = 0; i < 8; i++)
		right &= p[i][0] == (1u << 8 | i) && p[i][4 * MIB - 1] == (1u << 8 | i);
	ok(right, "the contents are those of the last pass");
	is_int(glake_stream_free(ctx, 0, s), 0, "the stream ends");
	is_error(glake_alloc(ctx, 0, 16 * MIB, NULL, GLAKE_ALLOC_MANAGED, &ptr), -ENOMEM,
		"NOMEM_DEVICE");
	ok(is_managed(ctx, 16 * MIB, NULL),
		"who does not insist is refused, the others are not");
	flow_close(ctx, 9);
	ctx = flow_open(bound);
	for (int i = 0; i < 5; i++)
		all &= is_managed(ctx, 8 * MIB, NULL);
	ok(all, "who is bound has as much as that");
	ok(!is_managed(ctx, 8 * MIB, NULL), "  and memory of the GPU after it");
	flow_close(ctx, 6);
}

/* Blocks that grow, one at a time: chunks that got too small go, and count no more. */
static void growing(const char *how, const char *most)
{
	const char *const settings[] = {
		"soft.memory=256MiB", how, most, "tier.managed_chunk=8MiB", NULL};
	struct glake *ctx = flow_open(settings);
	uint64_t held = 0, bytes = 0;
	bool managed, all = true;
	char *p;

	for (size_t size = 8 * MIB; size <= 100 * MIB; size += 4 * MIB) {
		p = have(ctx, size, NULL, &managed);
		all &= p && managed;
		p[size - 1] = 1;
		is_int(glake_free(ctx, p, NULL), 0, "freed");
		bytes = flow_stats(ctx, 0).managed_held;
		held = bytes > held ? bytes : held;
	}
	ok(all, "%s, %s: each has managed memory", how, most);
	ok(held <= 104 * MIB, "chunks have %d MiB at most, for 100", (int)(held / MIB));
	is_int((int64_t)flow_stats(ctx, 0).reserved, 0, "and none is the GPU's own");
	flow_close(ctx, 0);
}

/* Who is refused costs nobody a chunk. */
static void refused(void)
{
	static const char *const yes[] = {"soft.memory=256MiB", "pool.managed=yes",
		"tier.managed=24MiB", "tier.managed_chunk=8MiB", NULL};
	struct glake *ctx = flow_open(yes);
	uint64_t made;
	bool managed;

	is_int(glake_free(ctx, have(ctx, 8 * MIB, NULL, &managed), NULL), 0, "freed");
	made = flow_calls(ctx, GLAKE_CALL_MANAGED_ALLOC);
	for (int i = 0; i < 10; i++) {
		char *p = have(ctx, 32 * MIB, NULL, &managed);

		ok(p && !managed, "what may never be managed has memory of the GPU");
		is_int(glake_free(ctx, p, NULL), 0, "freed");
		p = have(ctx, 8 * MIB, NULL, &managed);
		ok(p && managed, "and the chunk is there still");
		is_int(glake_free(ctx, p, NULL), 0, "freed");
	}
	is_int((int64_t)flow_calls(ctx, GLAKE_CALL_MANAGED_ALLOC), (int64_t)made,
		"none was made again");
	is_int((int64_t)flow_calls(ctx, GLAKE_CALL_MANAGED_FREE), 0,
		"none was given back");
	flow_close(ctx, 0);
}

/* A driver without managed memory: one warning, and a job that goes on. */
static void without(void)
{
	static const char *const none[] = {"soft.memory=1GiB", "pool.managed=yes",
		"driver.fault=managed_alloc:from=1:err=EOPNOTSUPP", NULL};
	struct glake *ctx = flow_open(none);

	tap_expect_log(1);
	ok(!is_managed(ctx, 8 * MIB, NULL),
		"where there is none it is memory of the GPU");
	ok(!is_managed(ctx, 8 * MIB, NULL), "and nobody asks again");
	is_int((int64_t)flow_stats(ctx, 0).managed_held, 0, "nothing is held");
	flow_close(ctx, 2);
}

int main(void)
{
	tap_plan_later();
	chosen();
	kept_apart();
	capped();
	larger();
	growing("pool.managed=over", "tier.managed=0");
	growing("pool.managed=over", "tier.managed=110MiB");
	growing("pool.managed=yes", "tier.managed=0");
	growing("pool.managed=yes", "tier.managed=110MiB");
	refused();
	without();
	return tap_done();
}
