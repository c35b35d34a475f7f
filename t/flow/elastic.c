/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Elastic blocks through the public functions: what a program may do with one, and what it is told. */
#include "context.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static void *elastic(struct glake *ctx, size_t size, uint32_t flags)
{
	void *ptr = NULL;

	if (glake_alloc(ctx, 0, size, NULL, GLAKE_ALLOC_ELASTIC | flags, &ptr))
		tap_bail(flow_error().text);
	return ptr;
}

static size_t committed(struct glake *ctx, const void *ptr)
{
	struct glake_block block = {.sz = sizeof(block)};

	return glake_query(ctx, ptr, &block) ? 99 : block.committed;
}

static bool all_are(const unsigned char *bytes, unsigned char want, size_t size)
{
	return bytes[0] == want && !memcmp(bytes, bytes + 1, size - 1);
}

/* Larger than the GPU; where nothing is committed there is nothing to touch. */
static void is_addresses_first(void)
{
	static const char *const settings[] = {"soft.memory=256MiB", NULL};
	const struct glake_range both[] = {{0, 4 * MIB}, {100 * MIB, 1}};
	struct glake *ctx = flow_open(settings);
	unsigned char *ptr = elastic(ctx, 64 * GIB, 0);
	size_t bytes = 99;
	pid_t child;

	is_int((int64_t)flow_stats(ctx, 0).reserved, 0, "64 GiB take no memory");
	is_int(glake_commit_ranges(ctx, ptr, both, 2, NULL, &bytes), 0, "two ranges");
	is_int((int64_t)bytes, 6 << 20, "  whole pages of them are committed");
	memset(ptr, 1, 4 * MIB);
	memset(ptr + 100 * MIB, 2, 2 * MIB);
	child = flow_fork(60);
	if (!child) {
		((volatile unsigned char *)ptr)[4 * MIB] = 1;
		_exit(0);
	}
	/* by a signal, which a sanitizer turns into a status */
	ok(flow_wait(child) != 0, "nobody writes where nothing is committed");
	is_int(glake_commit(ctx, ptr, 8 * MIB, 200 * MIB, NULL, NULL), 0, "more");
	is_int((int64_t)committed(ctx, ptr + 50 * MIB), 204 << 20, "  is told");
	ok(all_are(ptr, 1, 4 * MIB) && all_are(ptr + 100 * MIB, 2, 2 * MIB),
		"  what was there stays");
	is_int(glake_decommit(ctx, ptr, 0, 100 * MIB, NULL, &bytes), 0, "some goes");
	is_int((int64_t)bytes, 96 << 20, "  as much as there was");
	is_int(glake_decommit_ranges(ctx, ptr, both, 2, NULL, &bytes), 0, "two ranges");
	is_int((int64_t)bytes, 0, "  that hold no page any more");
	ok(all_are(ptr + 100 * MIB, 2, 2 * MIB), "the rest stays");
	glake_free(ctx, ptr, NULL);
	is_int(glake_trim(ctx, 0, 0, NULL), 0, "trimmed");
	is_int((int64_t)flow_stats(ctx, 0).reserved, 0, "nothing is held any more");
	flow_close(ctx, 0);
}

static void wrong_input(void)
{
	struct glake *ctx = flow_open(NULL);
	unsigned char *ptr = elastic(ctx, 16 * MIB, 0),
		      *plain = flow_alloc(ctx, 4 * MIB, NULL);
	const struct glake_range odd[] = {{0, 1}, {16 * MIB, 1}};
	void *other = NULL;
	size_t bytes = 5;
	pid_t child;

	is_error(glake_alloc(ctx, 0, MIB, NULL, GLAKE_ALLOC_GROWS, &other), -EINVAL,
		"INVAL");
	is_error(glake_alloc(ctx, 0, MIB, NULL,
			 GLAKE_ALLOC_ELASTIC | GLAKE_ALLOC_CONTIGUOUS, &other),
		-EINVAL, "INVAL");
	is_error(glake_alloc(ctx, 0, MIB, NULL, GLAKE_ALLOC_ELASTIC | GLAKE_ALLOC_MANAGED,
			 &other),
		-EINVAL, "INVAL");
	is_error(glake_alloc(ctx, 0, 0, NULL, GLAKE_ALLOC_ELASTIC, &other), -EINVAL,
		"INVAL");
	is_error(glake_alloc(ctx, 0, SIZE_MAX, NULL, GLAKE_ALLOC_ELASTIC, &other),
		-ENOMEM, "ADDRESS");
	is_error(glake_alloc(ctx, 7, MIB, NULL, GLAKE_ALLOC_ELASTIC, &other), -EINVAL,
		"INVAL");
	is_error(glake_commit(ctx, ptr, 0, 0, NULL, NULL), -EINVAL, "INVAL");
	is_error(glake_commit(ctx, ptr, 16 * MIB - 1, 2, NULL, &bytes), -ERANGE, "INVAL");
	is_error(glake_commit(ctx, ptr, SIZE_MAX, 2, NULL, NULL), -ERANGE, "INVAL");
	is_error(glake_commit_ranges(ctx, ptr, odd, 2, NULL, NULL), -ERANGE, "INVAL");
	is_int((int64_t)committed(ctx, ptr), 0, "nothing is committed by that");
	is_error(glake_commit_ranges(ctx, ptr, NULL, 2, NULL, NULL), -EINVAL, "INVAL");
	is_error(glake_commit_ranges(ctx, ptr, odd, 0, NULL, NULL), -EINVAL, "INVAL");
	is_error(glake_commit(ctx, ptr + 2 * MIB, 0, 1, NULL, NULL), -EINVAL, "INVAL");
	is_error(glake_commit(ctx, plain, 0, 1, NULL, NULL), -EINVAL, "INVAL");
	is_error(glake_commit(ctx, &bytes, 0, 1, NULL, NULL), -EINVAL, "NOT_MINE");
	is_error(glake_commit(ctx, NULL, 0, 1, NULL, NULL), -EINVAL, "NOT_MINE");
	is_error(glake_decommit(ctx, plain, 0, 1, NULL, NULL), -EINVAL, "INVAL");
	is_error(glake_decommit(ctx, ptr, 1, 16 * MIB, NULL, NULL), -ERANGE, "INVAL");
	is_error(glake_decommit_ranges(ctx, ptr, NULL, 1, NULL, NULL), -EINVAL, "INVAL");
	is_error(glake_fetch(ctx, ptr, NULL), -EALREADY, "BUSY");
	is_error(glake_spill(ctx, ptr, NULL), -EALREADY, "BUSY");
	is_int(glake_commit(ctx, ptr, 0, 1, NULL, NULL), 0, "a page");
	child = flow_fork(60);
	if (!child)
		_exit(glake_commit(ctx, ptr, 0, 1, NULL, NULL) != -ENODEV ||
			glake_decommit(ctx, ptr, 0, 1, NULL, NULL) != -ENODEV ||
			glake_free(ctx, ptr, NULL));
	is_int(flow_wait(child), 0, "a child is told that it is one");
	is_int(glake_suspend(ctx, 0, NULL), 0, "suspended");
	is_error(glake_commit(ctx, ptr, 0, 16 * MIB, NULL, NULL), -EAGAIN, "AGAIN");
	is_int(glake_decommit(ctx, ptr, 0, 16 * MIB, NULL, &bytes), 0,
		"what is away is dropped");
	is_int((int64_t)bytes, 2 << 20, "  all of it");
	is_int(glake_resume(ctx, 0, NULL), 0, "resumed");
	is_int((int64_t)committed(ctx, ptr), 0, "and does not come back");
	is_int(glake_free(ctx, ptr, NULL), 0, "freed");
	is_error(glake_commit(ctx, ptr, 0, 1, NULL, NULL), -EINVAL, "DOUBLE_FREE");
	glake_free(ctx, plain, NULL);
	flow_close(ctx, 0);
	is_error(glake_commit(ctx, ptr, 0, 1, NULL, NULL), -ESTALE, "STALE");
	is_error(glake_decommit(ctx, ptr, 0, 1, NULL, NULL), -ESTALE, "STALE");
}

/* A stream that captures is left alone, and what the graph uses may be committed on another. */
static void beside_a_capture(void)
{
	struct glake *ctx = flow_open(NULL);
	struct CUstream_st *s = NULL;
	unsigned char *ptr = elastic(ctx, 16 * MIB, 0);
	uint32_t graph = 0;

	glake_stream_new(ctx, 0, &s);
	is_int(glake_soft_capture_begin(ctx, 0, s), 0, "a stream captures");
	is_error(glake_commit(ctx, ptr, 0, 1, s, NULL), -EBUSY, "CAPTURE");
	is_error(glake_decommit(ctx, ptr, 0, 1, s, NULL), -EBUSY, "CAPTURE");
	is_int(glake_commit(ctx, ptr, 0, 4 * MIB, NULL, NULL), 0, "another does not");
	is_int(glake_soft_capture_end(ctx, 0, s, &graph), 0, "and the capture lives");
	glake_soft_graph_free(ctx, graph);
	glake_free(ctx, ptr, NULL);
	glake_stream_free(ctx, 0, s);
	flow_close(ctx, 0);
}

static void *kept;
static struct glake *asked_of;

static size_t make_room(void *user, int device, size_t want, struct CUstream_st *stream,
	int64_t deadline_ns)
{
	(void)device, (void)want, (void)stream, (void)deadline_ns;
	*(int *)user += 1;
	/* a block that is asked about by the program itself */
	if (committed(asked_of, kept) == 99 || glake_free(asked_of, kept, NULL))
		return 0;
	kept = NULL;
	return 8 * MIB;
}

/* The program is asked for room, and cold blocks go. */
static void finds_room(void)
{
	static const char *const settings[] = {
		"soft.memory=32MiB", "pool.large_page=2MiB", NULL};
	struct glake *ctx = flow_open(settings);
	unsigned char *ptr = elastic(ctx, GIB, 0), *cold;
	int calls = 0;
	size_t bytes;

	asked_of = ctx;
	kept = flow_alloc(ctx, 8 * MIB, NULL);
	cold = flow_alloc(ctx, 8 * MIB, NULL);
	memset(cold, 3, 8 * MIB);
	is_int(glake_shortage_set(ctx, make_room, &calls), 0, "who makes room");
	is_int(glake_commit(ctx, ptr, 0, 16 * MIB, NULL, NULL), 0, "what there is");
	is_int(calls, 0, "  is had without");
	is_int(glake_commit(ctx, ptr, 16 * MIB, 8 * MIB, NULL, NULL), 0, "and more");
	is_int(calls, 1, "  with what the program frees");
	glake_shortage_set(ctx, NULL, NULL);
	is_error(glake_commit(ctx, ptr, 24 * MIB, 8 * MIB, NULL, &bytes), -ENOMEM,
		"NOMEM_DEVICE");
	is_int((int64_t)bytes, 0, "  there is none");
	glake_advise(ctx, cold, GLAKE_ADVICE_COLD);
	is_int(glake_commit(ctx, ptr, 24 * MIB, 8 * MIB, NULL, NULL), 0,
		"a cold block makes room");
	is_int(glake_decommit(ctx, ptr, 0, 16 * MIB, NULL, NULL), 0, "half goes");
	is_int(glake_fetch(ctx, cold, NULL), 0, "so that the block comes back");
	ok(all_are(cold, 3, 8 * MIB), "  as it was");
	glake_free(ctx, cold, NULL);
	glake_free(ctx, ptr, NULL);
	flow_close(ctx, 0);
}

/* Threads that grow and shrink the same block, each its own part. */
struct part {
	struct glake *ctx;
	unsigned char *ptr;
	size_t offset;
	bool torn;
};

static void *in_thread(void *arg)
{
	struct part *p = arg;

	for (int i = 1; i < 30 && !p->torn; i++) {
		size_t bytes = (size_t)(i % 7 + 1) * MIB;

		p->torn |=
			glake_commit(p->ctx, p->ptr, p->offset, bytes, NULL, NULL) != 0;
		memset(p->ptr + p->offset, i, bytes);
		p->torn |= !all_are(p->ptr + p->offset, (unsigned char)i, bytes);
		p->torn |= glake_decommit(
				   p->ctx, p->ptr, p->offset, 8 * MIB, NULL, NULL) != 0;
	}
	return NULL;
}

static void by_threads(void)
{
	struct glake *ctx = flow_open(NULL);
	unsigned char *ptr = elastic(ctx, 64 * MIB, 0);
	struct part parts[4];
	pthread_t threads[4];
	bool torn = false;

	for (int i = 0; i < 4; i++) {
		parts[i] = (struct part){ctx, ptr, (size_t)i * 16 * MIB, false};
		if (pthread_create(&threads[i], NULL, in_thread, &parts[i]))
			tap_bail("no thread");
	}
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
		torn |= parts[i].torn;
	}
	ok(!torn, "four threads change one block");
	is_int((int64_t)committed(ctx, ptr), 0, "nothing is left of it");
	glake_free(ctx, ptr, NULL);
	flow_close(ctx, 0);
}

int main(void)
{
	tap_plan_later();
	is_addresses_first();
	wrong_input();
	beside_a_capture();
	finds_room();
	by_threads();
	return tap_done();
}
