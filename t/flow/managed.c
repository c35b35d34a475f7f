/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Managed memory through the public functions: what it is given, what moves it, what refuses it. */
#include "context.h"

#include <pthread.h>
#include <string.h>

static void *try_managed(
	struct glake *ctx, size_t size, struct CUstream_st *stream, uint32_t more)
{
	void *ptr = NULL;
	int err = glake_alloc(ctx, 0, size, stream, GLAKE_ALLOC_MANAGED | more, &ptr);

	return err ? NULL : ptr;
}

static void *managed(struct glake *ctx, size_t size, struct CUstream_st *stream)
{
	void *ptr = try_managed(ctx, size, stream, 0);

	if (!ptr)
		tap_bail(flow_error().text);
	return ptr;
}

static struct glake_soft_managed moved(struct glake *ctx, int device)
{
	struct glake_soft_managed m = {.sz = sizeof(m)};

	if (glake_soft_managed_get(ctx, device, &m))
		tap_bail("no figures of managed memory");
	return m;
}

static struct glake_block asked(struct glake *ctx, const void *ptr)
{
	struct glake_block block = {.sz = sizeof(block)};

	if (glake_query(ctx, ptr, &block))
		tap_bail("no block");
	return block;
}

/* Blocks of all sizes in a chunk, freed and given again. */
static void blocks(void)
{
	static const char *const settings[] = {"soft.memory=8GiB", NULL};
	struct glake *ctx = flow_open(settings);
	char *small = managed(ctx, 1000, NULL), *wide = managed(ctx, 70 * MIB, NULL);
	char *plain = flow_alloc(ctx, 5 * MIB, NULL), *again;
	struct glake_block block = asked(ctx, wide + 100);
	size_t released;

	ok(small && wide && plain, "a small block, a large one and another kind");
	ok(block.base == wide && block.size == 70 * MIB && block.managed == 70 * MIB,
		"what is behind an address");
	is_int(block.flags, GLAKE_ALLOC_MANAGED, "  its flags");
	is_int((int64_t)block.placed + (int64_t)block.away + block.can, 0,
		"  it is nowhere else, and cannot leave");
	is_int((int64_t)asked(ctx, plain).managed, 0, "another block is not managed");
	is_int((int64_t)flow_calls(ctx, GLAKE_CALL_MANAGED_ALLOC), 1,
		"one call for both");
	is_int((int64_t)flow_stats(ctx, 0).managed, 1000 + 70 * (int64_t)MIB,
		"the figures");
	is_int((int64_t)flow_stats(ctx, 0).managed_blocks, 2, "  blocks");
	is_int((int64_t)flow_stats(ctx, 0).managed_chunks, 1, "  a chunk");
	is_int((int64_t)flow_stats(ctx, 0).managed_held, (int64_t)GIB, "  of a GiB");
	is_int((int64_t)flow_stats(ctx, 0).quick, 0, "  nothing lies in a bin");
	ok(flow_stats(ctx, 0).reserved < 64 * MIB, "  it is no memory that is held");
	memset(wide, 7, 70 * MIB);
	is_int(glake_free(ctx, wide, NULL), 0, "freed");
	again = managed(ctx, 70 * MIB, NULL);
	ok(again == wide, "and given again");
	ok(managed(ctx, 3 * GIB, NULL) != NULL, "one that is larger than a chunk");
	is_int((int64_t)flow_stats(ctx, 0).managed_chunks, 2, "has its own");
	is_int(glake_trim(ctx, 0, 0, &released), 0, "trimmed");
	is_int((int64_t)flow_stats(ctx, 0).managed_chunks, 2, "chunks with blocks stay");
	is_int(glake_free(ctx, again, NULL) | glake_free(ctx, small, NULL), 0, "freed");
	is_int((int64_t)flow_stats(ctx, 0).managed_chunks, 2, "a free takes none away");
	is_int(glake_trim(ctx, 0, 0, &released), 0, "trimmed");
	is_int((int64_t)flow_stats(ctx, 0).managed_chunks, 1, "one without goes");
	is_int((int64_t)flow_calls(ctx, GLAKE_CALL_MANAGED_FREE), 1, "with one call");
	is_error(glake_free(ctx, small, NULL), -EINVAL, "NOT_MINE");
	flow_close(ctx, 2);
}

/* How much there may be. */
static void caps(void)
{
	static const char *const small[] = {"soft.memory=64MiB", NULL};
	static const char *const capped[] = {"soft.memory=64MiB", "tier.managed=96MiB",
		"tier.managed_chunk=32MiB", NULL};
	struct glake *ctx = flow_open(small);
	void *ptr = NULL, *first;

	first = managed(ctx, 40 * MIB, NULL);
	is_int((int64_t)flow_stats(ctx, 0).managed_held, 64 * (int64_t)MIB,
		"a chunk is no larger than what is free");
	is_error(glake_alloc(ctx, 0, 40 * MIB, NULL, GLAKE_ALLOC_MANAGED, &ptr), -ENOMEM,
		"NOMEM_DEVICE");
	has_str(flow_error().text, "64 MiB", "  says how much there is");
	has_str(flow_error().text, "GLAKE_ALLOC_MANAGED_OVER", "  and how to insist");
	ok(try_managed(ctx, 400 * MIB, NULL, GLAKE_ALLOC_MANAGED_OVER),
		"who insists has more");
	is_error(glake_alloc(ctx, 0, 4 * MIB, NULL, GLAKE_ALLOC_MANAGED_OVER, &ptr),
		-EINVAL, "INVAL");
	is_error(glake_alloc(ctx, 0, 4 * MIB, NULL,
			 GLAKE_ALLOC_MANAGED | GLAKE_ALLOC_CONTIGUOUS, &ptr),
		-EINVAL, "INVAL");
	is_error(glake_alloc(ctx, 0, SIZE_MAX - 5, NULL, GLAKE_ALLOC_MANAGED, &ptr),
		-ENOMEM, "ADDRESS");
	is_int(glake_free(ctx, first, NULL), 0, "freed");
	ok(managed(ctx, 40 * MIB, NULL) == first, "what is freed is had again");
	flow_close(ctx, 2);
	ctx = flow_open(capped);
	ok(try_managed(ctx, 30 * MIB, NULL, GLAKE_ALLOC_MANAGED_OVER), "a first chunk");
	ok(try_managed(ctx, 60 * MIB, NULL, GLAKE_ALLOC_MANAGED_OVER), "a second");
	is_int((int64_t)flow_stats(ctx, 0).managed_held, 92 * (int64_t)MIB, "both");
	is_error(glake_alloc(ctx, 0, 30 * MIB, NULL,
			 GLAKE_ALLOC_MANAGED | GLAKE_ALLOC_MANAGED_OVER, &ptr),
		-ENOMEM, "LIMIT");
	has_str(flow_error().text, "tier.managed", "  names the key");
	flow_close(ctx, 2);
}

/* Memory that nobody uses is in nobody's way. */
static void idle(void)
{
	static const char *const settings[] = {
		"soft.memory=128MiB", "tier.managed_chunk=16MiB", NULL};
	struct glake *ctx = flow_open(settings);
	void *ptr = NULL;

	is_int(glake_alloc(ctx, 0, 100 * MIB, NULL, 0, &ptr), 0, "most of the GPU");
	is_int(glake_free(ctx, ptr, NULL), 0, "is freed");
	ptr = managed(ctx, 60 * MIB, NULL);
	ok(ptr, "idle pages make room");
	ok(flow_stats(ctx, 0).reserved < 100 * MIB, "  and went");
	is_int(glake_free(ctx, ptr, NULL), 0, "freed");
	ptr = try_managed(ctx, 120 * MIB, NULL, 0);
	ok(ptr, "chunks without blocks make room");
	ok(!try_managed(ctx, 120 * MIB, NULL, 0), "what is used does not");
	flow_close(ctx, 1);
}

/* What is touched moves there, and what is said beforehand need not. */
static void moves(void)
{
	static const char *const settings[] = {"soft.memory=4GiB", "soft.gpus=2",
		"soft.nodes=2", "soft.streams=stepped", NULL};
	struct glake *ctx = flow_open(settings);
	struct glake_soft_managed before, after;
	struct CUstream_st *s = NULL;
	int place = -5, id = -5;
	char *p;

	is_int(glake_stream_new(ctx, 0, &s), 0, "a stream");
	p = managed(ctx, 16 * MIB, s);
	is_int(glake_soft_touch(ctx, 0, p, 16 * MIB, 1), 0, "the host writes it");
	memset(p, 3, 16 * MIB);
	is_int((int64_t)moved(ctx, 0).host_faults, 8, "eight faults of the host");
	is_int(glake_soft_kernel(ctx, 0, s, p, 16 * MIB, 1), 0, "a kernel uses it");
	is_int((int64_t)moved(ctx, 0).gpu_faults, 0, "nothing moves before it runs");
	is_int(glake_soft_stream_sync(ctx, 0, s), 0, "it runs");
	after = moved(ctx, 0);
	is_int((int64_t)after.gpu_faults, 8, "eight faults of the GPU");
	is_int((int64_t)after.to_gpu, 16 * (int64_t)MIB, "all of it came");
	is_int((int64_t)after.resident, 16 * (int64_t)MIB, "and is there");
	is_int(glake_spill(ctx, p, s), 0, "a spill is a prefetch to the host");
	is_int(glake_soft_stream_sync(ctx, 0, s), 0, "it runs");
	is_int((int64_t)asked(ctx, p).away, 0, "the block is not away");
	is_int((int64_t)moved(ctx, 0).resident, 0, "nothing is on the GPU");
	is_int(glake_managed_get(ctx, p, 0, GLAKE_MANAGED_PREFETCHED, &place, &id), 0,
		"where it was sent");
	ok(place == GLAKE_PLACE_HOST && id == 0, "  the node of the GPU");
	is_int(glake_managed_prefetch(ctx, p + 2 * MIB, 4 * MIB, GLAKE_PLACE_HOST, 1, s),
		0, "some of it to another node");
	is_int(glake_fetch(ctx, p, s), 0, "a fetch is one to the GPU");
	before = moved(ctx, 0);
	is_int(glake_soft_kernel(ctx, 0, s, p, 16 * MIB, 0), 0, "a kernel");
	is_int(glake_soft_stream_sync(ctx, 0, s), 0, "it runs");
	after = moved(ctx, 0);
	is_int((int64_t)(after.gpu_faults - before.gpu_faults), 0, "without a fault");
	is_int((int64_t)(after.to_gpu - before.to_gpu), 16 * (int64_t)MIB,
		"what was sent");
	ok(p[16 * MIB - 1] == 3, "with the contents");
	is_error(glake_managed_get(ctx, p, 0, GLAKE_MANAGED_PREFERRED, &place, &id),
		-ENOENT, "INVAL");
	is_error(glake_managed_get(ctx, p, 0, 77, &place, &id), -EINVAL, "INVAL");
	is_error(glake_managed_get(ctx, p, 0, GLAKE_MANAGED_PREFERRED, NULL, &id),
		-EINVAL, "INVAL");
	is_error(glake_managed_get(ctx, p, 0, GLAKE_MANAGED_PREFERRED, &place, NULL),
		-EINVAL, "INVAL");
	is_int(glake_managed_advise(ctx, p, 0, GLAKE_MANAGED_PREFER, GLAKE_PLACE_GPU, 0),
		0, "it is best on the GPU");
	is_int(glake_managed_get(ctx, p, 0, GLAKE_MANAGED_PREFERRED, &place, &id), 0,
		"asked");
	ok(place == GLAKE_PLACE_GPU && id == 0, "  the GPU");
	before = moved(ctx, 0);
	is_int(glake_soft_touch(ctx, 0, p, 16 * MIB, 0), 0, "the host reads it");
	after = moved(ctx, 0);
	is_int((int64_t)(after.to_host - before.to_host), 0, "it stays");
	is_int((int64_t)(after.remote - before.remote), 8, "and is read over the link");
	is_int(glake_free(ctx, p, s), 0, "freed");
	ok(managed(ctx, 16 * MIB, s) == p, "given again");
	is_error(glake_managed_get(ctx, p, 0, GLAKE_MANAGED_PREFERRED, &place, &id),
		-ENOENT, "INVAL");
	is_int(glake_stream_free(ctx, 0, s), 0, "the stream ends");
	flow_close(ctx, 1);
}

/* The rest of the last grain of a block is nobody's, and what is said of it moves nothing. */
static void tails(void)
{
	static const char *const settings[] = {"soft.memory=4GiB", NULL};
	static const size_t size[] = {0, 1, SIZE_MAX};
	struct glake *ctx = flow_open(settings);
	int place = -5, id = -5;
	char *p = managed(ctx, 100, NULL);

	for (int i = 0; i < 3; i++) {
		is_error(glake_managed_advise(ctx, p + 101, size[i], GLAKE_MANAGED_PREFER,
				 GLAKE_PLACE_GPU, 0),
			-EINVAL, "INVAL");
		is_error(glake_managed_prefetch(
				 ctx, p + 100, size[i], GLAKE_PLACE_GPU, 0, NULL),
			-EINVAL, "INVAL");
		is_error(glake_managed_get(ctx, p + 511, size[i],
				 GLAKE_MANAGED_PREFETCHED, &place, &id),
			-EINVAL, "INVAL");
	}
	is_error(glake_managed_prefetch(ctx, p + 99, 2, GLAKE_PLACE_GPU, 0, NULL),
		-EINVAL, "INVAL");
	is_int(glake_managed_prefetch(ctx, p + 99, 0, GLAKE_PLACE_GPU, 0, NULL), 0,
		"its last byte moves");
	is_int(glake_free(ctx, p, NULL), 0, "freed: nobody holds it");
	flow_close(ctx, 0);
}

/* More than the GPU has: what was used longest ago goes, and contents stay right. */
static void over(void)
{
	static const char *const settings[] = {
		"soft.memory=32MiB", "pool.small_page=2MiB", NULL};
	struct glake *ctx = flow_open(settings);
	struct CUstream_st *s = NULL;
	uint32_t *p, *q = NULL;
	bool right = true;

	is_int(glake_stream_new(ctx, 0, &s), 0, "a stream");
	p = try_managed(ctx, 96 * MIB, s, GLAKE_ALLOC_MANAGED_OVER);
	ok(p, "three times what the GPU has");
	for (uint32_t pass = 0; pass < 3; pass++)
		for (uint32_t i = 0; i < 96; i++)
			right &= !glake_soft_fill(
				ctx, s, (char *)p + i * MIB, pass << 8 | i, MIB / 4);
	is_int(glake_soft_stream_sync(ctx, 0, s), 0, "three passes");
	for (uint32_t i = 0; i < 96; i++)
		right &= p[i * MIB / 4] == (2u << 8 | i) &&
			p[(i + 1) * MIB / 4 - 1] == (2u << 8 | i);
	ok(right, "the contents are those of the last");
	ok(moved(ctx, 0).evicted >= 2 * 48, "much was evicted");
	ok(moved(ctx, 0).resident <= 32 * MIB, "the GPU has no more than it has");
	is_int(glake_alloc(ctx, 0, 16 * MIB, s, 0, (void **)&q), 0,
		"memory of another kind has its place");
	is_int((int64_t)moved(ctx, 0).resident, 16 * (int64_t)MIB,
		"managed memory made it");
	is_int(glake_soft_kernel(ctx, 0, s, p, 96 * MIB, 0), 0, "and goes on");
	is_int(glake_stream_free(ctx, 0, s), 0, "the stream ends");
	flow_close(ctx, 2);
}

/* What other functions say to it. */
static void others(void)
{
	static const char *const settings[] = {"soft.memory=4GiB", NULL};
	struct glake *ctx = flow_open(settings);
	struct glake_suspended did = {.sz = sizeof(did)};
	struct glake_piece piece = {.fd = -1};
	struct CUstream_st *s = NULL;
	char *p, *other, *plain = flow_alloc(ctx, 4 * MIB, NULL);
	size_t count = 0, offset;
	void *ptr = NULL;
	uint32_t graph;
	int fd = -1;

	is_int(glake_stream_new(ctx, 0, &s), 0, "a stream");
	p = managed(ctx, 8 * MIB, s);
	is_int(glake_soft_kernel(ctx, 0, s, p, 8 * MIB, 1), 0, "a kernel");
	is_error(glake_advise(ctx, p, GLAKE_ADVICE_COLD), -EBUSY, "BUSY");
	has_str(flow_error().text, "managed", "  says why");
	ok(glake_export(ctx, p, &piece, 1, &count) < 0, "no export");
	ok(glake_dmabuf(ctx, p, 4096, &fd, &offset) < 0, "no dma-buf");
	has_str(flow_error().text, "managed", "  says why");
	is_error(glake_managed_advise(
			 ctx, plain, 0, GLAKE_MANAGED_PREFER, GLAKE_PLACE_GPU, 0),
		-EINVAL, "INVAL");
	is_error(glake_managed_prefetch(ctx, p, 8 * MIB + 1, GLAKE_PLACE_GPU, 0, s),
		-EINVAL, "INVAL");
	is_error(glake_managed_prefetch(ctx, p, 0, GLAKE_PLACE_GPU, 1, s), -EINVAL,
		"INVAL");
	has_str(flow_error().text, "there is no place", "  in words");
	is_error(glake_managed_prefetch(ctx, p, 0, GLAKE_PLACE_HOST, -5, s), -EINVAL,
		"INVAL");
	is_error(glake_managed_prefetch(ctx, p, 0, 77, -1, s), -EINVAL, "INVAL");
	is_error(
		glake_managed_advise(ctx, p, 0, 9, GLAKE_PLACE_GPU, 0), -EINVAL, "INVAL");
	is_error(glake_managed_prefetch(ctx, &count, 0, GLAKE_PLACE_GPU, 0, s), -EINVAL,
		"NOT_MINE");
	is_error(glake_soft_touch(ctx, 0, p, 3 * GIB, 0), -EINVAL, "INVAL");
	is_int(glake_soft_capture_begin(ctx, 0, s), 0, "a capture begins");
	is_error(glake_alloc(ctx, 0, MIB, s, GLAKE_ALLOC_MANAGED, &ptr), -EBUSY,
		"CAPTURE");
	is_error(glake_managed_prefetch(ctx, p, 0, GLAKE_PLACE_GPU, 0, s), -EBUSY,
		"CAPTURE");
	is_int(glake_soft_capture_end(ctx, 0, s, &graph), 0, "the capture lives");
	is_int(glake_soft_graph_free(ctx, graph), 0, "and its graph ends");
	other = managed(ctx, 4 * MIB, s);
	is_int(glake_soft_kernel(ctx, 0, s, other, 4 * MIB, 1), 0, "a kernel");
	is_int(glake_free(ctx, other, s), 0, "another block is used and freed");
	is_int(glake_suspend(ctx, 0, &did), 0, "suspended");
	is_int((int64_t)did.managed, 12 * (int64_t)MIB,
		"what blocks have was sent to the host, and what one had");
	is_int((int64_t)moved(ctx, 0).resident, 0, "nothing is left on the GPU");
	is_error(
		glake_alloc(ctx, 0, MIB, s, GLAKE_ALLOC_MANAGED, &ptr), -EAGAIN, "AGAIN");
	is_error(glake_fetch(ctx, p, s), -EAGAIN, "AGAIN");
	is_int(glake_resume(ctx, 0, NULL), 0, "resumed");
	is_int(glake_fetch(ctx, p, s), 0, "it comes back when it is asked for");
	is_int(glake_stream_free(ctx, 0, s), 0, "the stream ends");
	flow_close(ctx, 2);
}

static void faults(void)
{
	static const char *const none[] = {"soft.memory=4GiB",
		"driver.fault=managed_alloc:from=1:err=EOPNOTSUPP", NULL};
	struct glake *ctx = flow_open(none);
	void *ptr = NULL;
	pid_t pid;
	char *p;

	is_error(glake_alloc(ctx, 0, MIB, NULL, GLAKE_ALLOC_MANAGED, &ptr), -EOPNOTSUPP,
		"UNSUPPORTED");
	ok(flow_alloc(ctx, MIB, NULL), "other memory is had");
	is_int((int64_t)flow_stats(ctx, 0).managed_held, 0, "nothing is held");
	flow_close(ctx, 1);
	ctx = flow_open(NULL);
	p = managed(ctx, 4 * MIB, NULL);
	pid = flow_fork(20);
	if (!pid)
		_exit(!(glake_alloc(ctx, 0, MIB, NULL, GLAKE_ALLOC_MANAGED, &ptr) ==
				-ENODEV &&
			glake_managed_prefetch(ctx, p, 0, GLAKE_PLACE_GPU, 0, NULL) ==
				-ENODEV &&
			!glake_free(ctx, p, NULL)));
	is_int(flow_wait(pid), 0, "a forked child is told, and its free does nothing");
	is_int(glake_free(ctx, p, NULL), 0, "the parent goes on");
	flow_close(ctx, 0);
}

#define THREADS 4

static void *storm(void *arg)
{
	struct glake *ctx = arg;
	struct CUstream_st *s = NULL;
	uintptr_t wrong = glake_stream_new(ctx, 0, &s) != 0;
	uint32_t *held[8] = {0};

	for (unsigned i = 0; i < 200 && !wrong; i++) {
		size_t size = i % 5 ? 4096 * (i % 70 + 1) : (i % 20 + 1) * MIB;
		uint32_t **p = &held[i * 7 % 8];

		if (*p) {
			/* the start of a block is the thread's own until it frees it */
			wrong |= **p != (uint32_t)(uintptr_t)p;
			wrong |= glake_free(ctx, *p, s) != 0;
		}
		*p = try_managed(ctx, size, s, 0);
		if (!*p)
			continue;
		**p = (uint32_t)(uintptr_t)p;
		if (i % 3 == 0)
			wrong |= glake_managed_prefetch(
					 ctx, *p, 0, GLAKE_PLACE_GPU, 0, s) != 0;
		if (i % 11 == 0)
			wrong |= glake_managed_advise(ctx, *p, 0, GLAKE_MANAGED_PREFER,
					 GLAKE_PLACE_HOST, 0) != 0;
		if (i % 13 == 0)
			wrong |= glake_trim(ctx, 0, 0, NULL) != 0;
	}
	for (int i = 0; i < 8; i++)
		wrong |= held[i] && glake_free(ctx, held[i], s);
	wrong |= glake_stream_free(ctx, 0, s) != 0;
	return (void *)wrong;
}

static void threads(void)
{
	static const char *const settings[] = {
		"soft.memory=2GiB", "tier.managed_chunk=16MiB", NULL};
	struct glake *ctx = flow_open(settings);
	pthread_t thread[THREADS];
	void *wrong, *any = NULL;

	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&thread[i], NULL, storm, ctx))
			tap_bail("no thread");
	for (int i = 0; i < THREADS; i++) {
		pthread_join(thread[i], &wrong);
		any = wrong ? wrong : any;
	}
	ok(!any, "threads that come and go through chunks");
	is_int(glake_trim(ctx, 0, 0, NULL), 0, "trimmed");
	is_int((int64_t)flow_stats(ctx, 0).managed_held, 0, "all chunks go");
	flow_close(ctx, 0);
}

int main(void)
{
	tap_plan_later();
	blocks();
	caps();
	idle();
	moves();
	tails();
	over();
	others();
	faults();
	threads();
	return tap_done();
}
