/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Locked memory of the host for the program: exact sizes, streams that use it, refusals. */
#include "api/context.h"
#include "numa/topology.h"
#include "seed.h"
#include "soft/fault.h"
#include "soft/soft.h"
#include "tap.h"
#include "unit/api/sound.h"

#include <errno.h>
#include <glake/glake.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB  ((size_t)1 << 20)
#define PAGE ((int64_t)64 << 10) /* in which pieces are */

static struct glake *ctx;
static struct glk_context *context;

static void open_soft(const char *more)
{
	const char *const settings[] = {"soft.gpus=2", "soft.streams=stepped",
		"driver.fault=off", "map.span=8GiB", "host.piece=8MiB", more, NULL};
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_SOFT,
		.no_conf_file = 1,
		.settings = settings};

	if (glake_open(&options, &ctx) || glk_context_get(ctx, &context))
		tap_bail("no context");
}

static void close_soft(size_t live)
{
	size_t found = 99;

	ok(context_is_sound(context), "the books agree");
	is_int(glake_close(ctx, &found), 0, "closed");
	is_int((int64_t)found, (int64_t)live, "  with so many live blocks");
}

static struct glake_error error_of(void)
{
	struct glake_error error = {.sz = sizeof(error)};

	glake_last_error(&error);
	return error;
}

static struct glake_stats stats_of(int device)
{
	struct glake_stats stats = {.sz = sizeof(stats)};

	if (glake_stats_get(ctx, device, &stats))
		tap_bail("no figures");
	return stats;
}

static char *alloc(size_t size)
{
	void *ptr = NULL;

	if (glake_host_alloc(ctx, 0, size, 0, &ptr))
		tap_bail(error_of().text);
	return ptr;
}

#define EXACT 200

/* Odd sizes, which a power of two would have cost 40 % more. */
static void is_exact(void)
{
	struct glake_host_block block = {.sz = sizeof(block)};
	size_t size[EXACT], asked = 0, given = 0;
	char *ptr[EXACT];
	int wrong = 0;

	open_soft(NULL);
	for (size_t i = 0; i < EXACT; i++) {
		size[i] = 1 + i * 1357;
		ptr[i] = alloc(size[i]);
		memset(ptr[i], (int)i, size[i]);
		asked += size[i];
		given += (size[i] + GLAKE_HOST_GRAIN - 1) / GLAKE_HOST_GRAIN *
			GLAKE_HOST_GRAIN;
	}
	for (size_t i = 0; i < EXACT; i++) {
		wrong += ptr[i][0] != (char)i || ptr[i][size[i] - 1] != (char)i;
		wrong += (uintptr_t)ptr[i] % GLAKE_HOST_GRAIN != 0;
		wrong += glake_host_query(ctx, ptr[i] + size[i] / 2, &block) ||
			block.base != ptr[i] || block.size != size[i] || block.device;
	}
	is_int(wrong, 0, "blocks hold what was written, and are found from inside");
	is_int((int64_t)stats_of(0).host_pool_live, (int64_t)asked, "bytes asked for");
	is_int((int64_t)stats_of(0).host_pool_given, (int64_t)given,
		"given, in whole 64");
	is_int((int64_t)stats_of(0).host_pool_held, 32 * (int64_t)MIB,
		"locked, in four pieces of 8 MiB");
	is_int((int64_t)stats_of(0).host_pool_blocks, EXACT, "blocks");
	for (size_t i = 0; i < EXACT; i += 2)
		wrong += glake_host_free(ctx, ptr[i]) != 0;
	/* the first of these bytes lies behind the last one of a block that lives */
	for (size_t i = 0; i < EXACT; i += 2)
		wrong += glake_host_query(ctx, ptr[i], &block) != -EINVAL ||
			glake_host_query(ctx, ptr[i] + size[i] / 2, &block) != -EINVAL;
	is_int(wrong, 0, "what was freed is no block, and of none beside it");
	for (size_t i = 1; i < EXACT; i += 2)
		wrong += glake_host_free(ctx, ptr[i]) != 0;
	is_int(wrong, 0, "all are freed");
	is_int((int64_t)context->caches[0].hostpool.map.common.count, 4, "and merged");
	alloc(8 * MIB);
	is_int((int64_t)stats_of(0).host_pool_grows, 4,
		"a whole piece serves a block of its size");
	is_int(glake_trim(ctx, 0, 0, NULL), 0, "trimmed");
	is_int((int64_t)stats_of(0).host_pool_held, 8 * (int64_t)MIB,
		"what is used stays");
	is_int((int64_t)stats_of(0).peak_host_pool_held, 32 * (int64_t)MIB,
		"the peak is told");
	glake_stats_reset(ctx, 0);
	is_int((int64_t)stats_of(0).peak_host_pool_held, 8 * (int64_t)MIB,
		"until it is reset");
	close_soft(1);
}

static void is_large(void)
{
	char *p, *q;

	open_soft(NULL);
	p = alloc(21 * MIB + 1);
	is_int((int64_t)stats_of(0).host_pool_held, 21 * (int64_t)MIB + PAGE,
		"a large block has a piece of its own, in whole pages");
	q = alloc(PAGE / 2);
	is_int((int64_t)stats_of(0).host_pool_pieces, 1, "whose rest serves others");
	is_int(glake_host_free(ctx, p), 0, "freed");
	is_int(glake_host_free(ctx, p), -EINVAL, "freed twice");
	is_int(error_of().error_class, GLAKE_ERROR_NOT_MINE, "  its class");
	is_int(glake_host_free(ctx, q + 64), -EINVAL, "the inside of a block");
	is_int(glake_host_free(ctx, (char *)&q), -EINVAL, "memory of the program");
	is_int(glake_host_free(ctx, NULL), 0, "nothing at all");
	is_int(glake_host_free(ctx, q), 0, "freed");
	close_soft(0);
	open_soft("host.keep=1GiB");
	p = alloc(21 * MIB);
	q = alloc(21 * MIB);
	glake_host_free(ctx, p);
	glake_host_free(ctx, q);
	ok(alloc(21 * MIB) == q && alloc(21 * MIB) == p,
		"a piece of just the size serves again, and the one that was used last first");
	glake_host_free(ctx, p);
	glake_host_free(ctx, q);
	close_soft(0);
}

/* Free pieces that are each too small become one, and a small block leaves a large one alone. */
static void is_merged(void)
{
	char *p, *q, *large;

	open_soft(NULL);
	p = alloc(20 * MIB);
	q = alloc(21 * MIB);
	glake_host_free(ctx, q);
	q = alloc(30 * MIB);
	is_int((int64_t)stats_of(0).host_pool_held, 71 * (int64_t)MIB,
		"a free piece that is too small stays");
	glake_host_free(ctx, p);
	p = alloc(31 * MIB);
	is_int((int64_t)stats_of(0).host_pool_held, 71 * (int64_t)MIB,
		"two of them become one");
	is_int((int64_t)stats_of(0).host_pool_pieces, 2, "  with all they had");
	glake_host_free(ctx, p);
	p = alloc(41 * MIB);
	is_int((int64_t)stats_of(0).host_pool_grows, 4, "  for blocks of other sizes");
	glake_host_free(ctx, p);
	glake_host_free(ctx, q);
	glake_trim(ctx, 0, 0, NULL);
	is_int((int64_t)stats_of(0).host_pool_held, 0, "a trim gives all of it back");
	p = alloc(11 * MIB);
	q = alloc(11 * MIB);
	large = alloc(11 * MIB);
	glake_host_free(ctx, p);
	glake_host_free(ctx, q);
	glake_host_free(ctx, large);
	p = alloc(15 * MIB + 1);
	is_int((int64_t)stats_of(0).host_pool_held, 30 * (int64_t)MIB + PAGE,
		"of three one is made that has twice the size of the block");
	glake_host_free(ctx, p);
	glake_trim(ctx, 0, 0, NULL);
	large = alloc(100 * MIB);
	glake_host_free(ctx, large);
	p = alloc(64);
	ok(p < large || p >= large + 100 * MIB, "a small block has a small piece");
	is_int((int64_t)stats_of(0).host_pool_held, 108 * (int64_t)MIB,
		"  beside a large one");
	ok(alloc(100 * MIB) == large, "  which serves a large block");
	glake_host_free(ctx, large);
	alloc(8 * MIB - 64);
	is_int(glake_conf_set(ctx, "host.limit", "108MiB"), 0,
		"where no more may be had");
	ok(alloc(64) == large, "  it has a part of the large one");
	close_soft(3);
}

static void is_aligned(void)
{
	int wrong = 0;
	void *ptr;

	open_soft(NULL);
	for (uint32_t shift = 6; shift <= 21; shift++) {
		for (size_t size = 64; size < 3 * MIB; size = size * 3 + 1) {
			if (glake_host_alloc(ctx, 0, size, shift, &ptr))
				tap_bail(error_of().text);
			wrong += (uintptr_t)ptr & ((UINT64_C(1) << shift) - 1) ? 1 : 0;
			alloc(64);
			if (size % 2)
				glake_host_free(ctx, ptr);
		}
	}
	is_int(wrong, 0, "blocks begin where they were asked to");
	is_int(glake_host_alloc(ctx, 0, 1, 22, &ptr), -EINVAL, "above 2 MiB");
	is_int(glake_host_alloc(ctx, 0, 1, 1, &ptr), 0, "less than 64 is 64");
	ok(context_is_sound(context), "the books agree");
	glake_close(ctx, NULL);
}

/* The smallest free extent that is large enough, of pieces with blocks; 0: none. */
static uint64_t gap_for(uint64_t size)
{
	struct glk_hostpool *pool = &context->caches[0].hostpool;
	uint32_t used = glk_load_relaxed(&pool->map.extents.used);
	uint64_t best = 0;

	for (uint32_t id = 1; id <= used; id++) {
		const struct glk_extent *e = glk_extent_at(&pool->map, id);

		if (glk_extent_state(e) == GLK_EXTENT_FREE && (e->prev || e->next) &&
			e->size >= size && (!best || e->size < best))
			best = e->size;
	}
	return best;
}

/* Extents of so many bytes that are free. */
static int gaps_of(uint64_t size)
{
	struct glk_hostpool *pool = &context->caches[0].hostpool;
	uint32_t used = glk_load_relaxed(&pool->map.extents.used);
	int count = 0;

	for (uint32_t id = 1; id <= used; id++) {
		const struct glk_extent *e = glk_extent_at(&pool->map, id);

		count += glk_extent_state(e) == GLK_EXTENT_FREE && e->size == size;
	}
	return count;
}

#define SLOTS 400

/* Of all gaps the smallest that is large enough, be it by nothing; and no piece is made where one is. */
static void is_best_fit(void)
{
	uint64_t state = seed_thread(seed_start(), 0);
	void *ptr[SLOTS] = {NULL};
	int wrong = 0, exact = 0;

	open_soft(NULL);
	for (int turn = 0; turn < 6000; turn++) {
		void **p = &ptr[seed_below(&state, SLOTS)];
		/* few sizes, so that gaps of the same come again */
		uint64_t size = 64 * (1 + seed_below(&state, 40)), gap, pieces;
		uint32_t shift =
			seed_below(&state, 4) ? 6 : (uint32_t)(6 + seed_below(&state, 6));
		bool fits;
		int before;

		if (*p) {
			wrong += glake_host_free(ctx, *p) != 0;
			*p = NULL;
			continue;
		}
		gap = gap_for(size);
		before = gaps_of(gap);
		fits = gap_for(size + (UINT64_C(1) << shift) - 64) > 0;
		pieces = stats_of(0).host_pool_pieces;
		wrong += glake_host_alloc(
				 ctx, 0, size - seed_below(&state, 64), shift, p) != 0;
		wrong += (uintptr_t)*p % (UINT64_C(1) << shift) != 0;
		if (shift == 6 && gap)
			wrong += gaps_of(gap) != before - 1;
		wrong += fits && stats_of(0).host_pool_pieces != pieces;
		exact += gap == size;
	}
	ok(!wrong && exact > 100, "the smallest gap is taken, %d times one of that size",
		exact);
	for (int i = 0; i < SLOTS; i++)
		glake_host_free(ctx, ptr[i]);
	close_soft(0);
}

static void is_refused(void)
{
	struct glake_host_block block = {.sz = sizeof(block)};
	struct glake *gone;
	void *ptr = &block;

	open_soft(NULL);
	is_int(glake_host_alloc(ctx, 0, 0, 0, &ptr), -EINVAL, "no size");
	is_int(glake_host_alloc(ctx, 2, 1, 0, &ptr), -EINVAL, "no such GPU");
	is_int(glake_host_alloc(ctx, 0, 1, 0, NULL), -EINVAL, "nowhere to write it");
	is_int(glake_host_alloc(ctx, 0, 1, 0x100, &ptr), -EINVAL, "an unknown flag");
	is_int(glake_host_alloc(ctx, 0, SIZE_MAX, 0, &ptr), -ENOMEM,
		"more than there is");
	is_int(glake_host_query(ctx, &block, &block), -EINVAL, "nothing was given yet");
	is_int(glake_host_use(ctx, &block, 0, NULL), -EINVAL, "  nor can be used");
	is_int(glake_host_free(ctx, &block), -EINVAL, "  nor freed");
	ptr = alloc(1);
	block.sz = 0;
	is_int(glake_host_query(ctx, ptr, &block), -EINVAL, "no size of the answer");
	is_int(glake_host_use(ctx, ptr, 2, NULL), -EINVAL, "a stream of no GPU");
	is_int(glake_host_use(ctx, ptr, 0, (void *)0x1234560), -EINVAL, "no stream");
	gone = ctx;
	close_soft(1);
	is_int(glake_host_alloc(gone, 0, 1, 0, &ptr), -ESTALE, "a closed context");
	is_int(glake_host_free(gone, ptr), -ESTALE, "  knows no blocks");
}

static void is_limited(void)
{
	char *p, *q, *r;
	void *ptr;

	open_soft("host.limit=12MiB");
	p = alloc(6 * MIB);
	is_int(glake_host_alloc(ctx, 0, 7 * MIB, 0, &ptr), -ENOMEM, "above host.limit");
	is_int(error_of().error_class, GLAKE_ERROR_LIMIT, "  its class");
	ok(strstr(error_of().text, "host.limit"), "  the key is named");
	q = alloc(4 * MIB);
	r = alloc(100);
	is_int((int64_t)stats_of(0).host_pool_held, 11 * (int64_t)MIB,
		"where no piece to share may be had, an eighth of one");
	is_int((int64_t)stats_of(0).host_pool_refused, 1, "the refusal is counted");
	glake_host_free(ctx, r);
	glake_host_free(ctx, q);
	glake_host_free(ctx, p);
	is_int(glake_host_alloc(ctx, 0, 12 * MIB, 0, &ptr), 0,
		"pieces that are too small go for one that is not");
	glake_host_free(ctx, ptr);
	is_int(glake_conf_set(ctx, "host.limit", "20MiB"), 0, "it may change");
	is_int(glake_host_alloc(ctx, 0, 20 * MIB, 0, &ptr), 0, "and then does");
	is_int(glake_conf_set(ctx, "host.keep", "0"), 0, "nothing is to be kept");
	glake_host_free(ctx, ptr);
	is_int((int64_t)stats_of(0).host_pool_held, 0, "what is freed goes");
	close_soft(0);
}

static void work(struct CUstream_st *stream, void *gpu, int device)
{
	if (glk_soft_work(
		    context->drv, device, stream, (uint64_t)(uintptr_t)gpu, MIB, true))
		tap_bail("no work");
}

/* A block that copies read is nobody's until they have finished. */
static void waits_for_streams(void)
{
	struct CUstream_st *a = NULL, *b = NULL;
	void *here = NULL, *there = NULL;
	char *p, *q;

	open_soft("host.limit=24MiB");
	glake_stream_new(ctx, 0, &a);
	glake_stream_new(ctx, 1, &b);
	glake_alloc(ctx, 0, MIB, a, 0, &here);
	glake_alloc(ctx, 1, MIB, b, 0, &there);
	p = alloc(8 * MIB);
	work(a, here, 0);
	work(b, there, 1);
	is_int(glake_host_use(ctx, p + 5, 0, a), 0, "a stream uses it");
	is_int(glake_host_use(ctx, p, 0, a), 0, "  again");
	is_int(glake_host_use(ctx, p, 1, b), 0, "and one of another GPU");
	glk_soft_hold(context->drv, 0, a, true);
	glk_soft_hold(context->drv, 1, b, true);
	glake_host_free(ctx, p);
	is_int((int64_t)stats_of(0).host_pool_waiting, 8 * (int64_t)MIB,
		"freed, it waits");
	is_int((int64_t)stats_of(0).host_pool_live, 0, "  and is no block");
	is_int(glake_host_use(ctx, p, 0, a), -EINVAL, "  to be used");
	q = alloc(8 * MIB);
	ok(q != p, "others are given other memory");
	is_int(glake_trim(ctx, 0, 0, NULL), 0, "a trim");
	is_int((int64_t)stats_of(0).host_pool_held, 16 * (int64_t)MIB,
		"  leaves it alone");
	glk_soft_hold(context->drv, 0, a, false);
	glake_soft_stream_sync(ctx, 0, a);
	ok(alloc(8 * MIB) != p, "one stream has finished, one has not");
	glk_soft_hold(context->drv, 1, b, false);
	glake_soft_stream_sync(ctx, 1, b);
	ok(alloc(8 * MIB) == p, "both have: it is free");
	is_int((int64_t)stats_of(0).host_pool_waiting, 0, "nothing waits");
	glake_free(ctx, here, a);
	glake_free(ctx, there, b);
	glake_stream_free(ctx, 0, a);
	glake_stream_free(ctx, 1, b);
	close_soft(3);
}

static int64_t records(void)
{
	struct glake_driver_stats stats = {.sz = sizeof(stats)};

	glake_driver_stats_get(ctx, &stats);
	return (int64_t)stats.calls[GLAKE_CALL_EVENT_RECORD];
}

/* One whose free could have no event recorded: who finds other memory asks for what is there alone. */
static void records_later(void)
{
	struct CUstream_st *a = NULL;
	void *here = NULL;
	int64_t before;
	char *p, *q, *other;

	open_soft("host.limit=24MiB");
	glake_stream_new(ctx, 0, &a);
	glake_alloc(ctx, 0, MIB, a, 0, &here);
	p = alloc(MIB);
	other = alloc(MIB);
	work(a, here, 0);
	glake_host_use(ctx, p, 0, a);
	glk_soft_hold(context->drv, 0, a, true);
	glk_fault_set(context->drv, "event_record:from=1:err=ENOMEM");
	is_int(glake_host_free(ctx, p), 0, "freed where no event can be had");
	glk_fault_set(context->drv, "off");
	glake_host_free(ctx, other);
	before = records();
	q = alloc(MIB);
	ok(q == other, "others are given other memory");
	is_int(records() - before, 0, "  without an event");
	is_int(glake_trim(ctx, 0, 0, NULL), 0, "a trim");
	is_int(records() - before, 1, "  records one");
	glk_soft_hold(context->drv, 0, a, false);
	glake_soft_stream_sync(ctx, 0, a);
	ok(alloc(MIB) == p, "which tells when it is free");
	glake_free(ctx, here, a);
	glake_stream_free(ctx, 0, a);
	close_soft(2);
}

/* Before it is refused, a request waits for what would be free. */
static void waits_before_refusal(void)
{
	struct CUstream_st *a = NULL;
	void *here = NULL;
	char *p;

	open_soft("host.limit=8MiB");
	glake_stream_new(ctx, 0, &a);
	glake_alloc(ctx, 0, MIB, a, 0, &here);
	p = alloc(8 * MIB);
	work(a, here, 0);
	glake_host_use(ctx, p, 0, a);
	glake_host_free(ctx, p);
	ok(alloc(8 * MIB) == p,
		"the work of a stream is waited for where there is no other memory");
	glake_free(ctx, here, a);
	glake_stream_free(ctx, 0, a);
	close_soft(1);
}

static void captures(void)
{
	struct CUstream_st *a = NULL;
	void *ptr, *here = NULL;
	uint32_t graph;
	char *p;

	open_soft("host.limit=8MiB");
	glake_stream_new(ctx, 0, &a);
	glake_alloc(ctx, 0, MIB, a, 0, &here);
	p = alloc(8 * MIB);
	work(a, here, 0);
	glake_host_use(ctx, p, 0, a);
	glake_soft_capture_begin(ctx, 0, a);
	is_int(glake_host_use(ctx, p, 0, a), -EBUSY, "a stream that captures a graph");
	is_int(error_of().error_class, GLAKE_ERROR_CAPTURE, "  its class");
	is_int(glake_host_free(ctx, p), 0,
		"freed while one captures that used it before");
	is_int(glake_host_alloc(ctx, 0, 8 * MIB, 0, &ptr), -ENOMEM,
		"it waits, and nobody for it");
	is_int(error_of().error_class, GLAKE_ERROR_LIMIT, "  which the record says");
	is_int(glake_soft_capture_end(ctx, 0, a, &graph), 0, "the capture lives");
	ok(alloc(8 * MIB) == p, "then it can be waited for");
	glake_soft_graph_free(ctx, graph);
	glake_free(ctx, here, a);
	glake_stream_free(ctx, 0, a);
	close_soft(1);
}

/* A stream that ends with work left. */
static void ends_a_stream(void)
{
	struct CUstream_st *a = NULL;
	void *here = NULL;
	char *p;

	open_soft(NULL);
	glake_stream_new(ctx, 0, &a);
	glake_alloc(ctx, 0, MIB, a, 0, &here);
	p = alloc(8 * MIB);
	work(a, here, 0);
	glake_host_use(ctx, p, 0, a);
	is_int(glake_stream_end(ctx, 0, a), 0, "the stream is about to end");
	glake_host_free(ctx, p);
	ok(alloc(8 * MIB) != p, "its work has not finished");
	glake_soft_stream_sync(ctx, 0, a);
	ok(alloc(8 * MIB) == p, "and has");
	glake_free(ctx, here, NULL);
	glake_stream_free(ctx, 0, a);
	close_soft(2);
}

static void driver_fails(void)
{
	void *ptr = NULL;
	char *p;

	open_soft(NULL);
	glk_fault_set(context->drv, "host_lock:from=1:err=ENOMEM");
	is_int(glake_host_alloc(ctx, 0, 100, 0, &ptr), -ENOMEM,
		"the driver locks nothing");
	is_int((int64_t)stats_of(0).host_pool_held, 0, "nothing is held");
	glk_fault_set(context->drv, "host_lock:nth=1:err=ENOMEM");
	is_int(glake_host_alloc(ctx, 0, 100, 0, &ptr), 0, "the driver locks little");
	is_int((int64_t)stats_of(0).host_pool_held, (int64_t)MIB, "which is enough");
	glk_fault_set(context->drv, "host_lock:nth=1:err=EIO");
	is_int(glake_host_alloc(ctx, 0, 8 * MIB, 0, &ptr), -EIO, "the driver fails");
	is_int((int64_t)stats_of(0).host_pool_held, (int64_t)MIB, "nothing has changed");
	glk_fault_set(context->drv, "off");
	p = alloc(8 * MIB);
	glake_host_free(ctx, p);
	glk_fault_set(context->drv, "host_unlock:nth=1:err=EIO");
	is_int(glake_trim(ctx, 0, 0, NULL), 0, "the driver keeps a piece");
	is_int((int64_t)stats_of(0).host_pool_held, 9 * (int64_t)MIB,
		"which counts as held");
	is_int((int64_t)stats_of(0).host_pool_pieces, 1, "and serves nobody");
	glk_fault_set(context->drv, "off");
	close_soft(1);
}

static void host_has_none(void)
{
	uint64_t all =
		(uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	void *ptr;
	int err;

	open_soft("host.limit=16TiB");
	if (glk_numa_usable(NULL) < UINT64_C(8) << 40 && all < UINT64_C(8) << 40)
		is_int(glake_host_alloc(ctx, 0, all + 1024 * MIB, 0, &ptr), -ENOMEM,
			"more than the machine and the control group have");
	else
		tap_skip(
			"more than the machine has", "what the machine has is not known");
	is_int(error_of().error_class, GLAKE_ERROR_NOMEM_HOST, "  its class");
	close_soft(0);
	open_soft("host.bind=yes");
	context->caches[0].hostpool.node = 777;
	err = glake_host_alloc(ctx, 0, 100, 0, &ptr);
	ok(err == -ENOMEM || err == -EOPNOTSUPP, "bound to a node that has no memory: %d",
		err);
	context->caches[0].hostpool.node = -1;
	is_int(glake_host_alloc(ctx, 0, 100, 0, &ptr), -EOPNOTSUPP,
		"bound to one that is not known");
	is_int((int64_t)stats_of(0).host_pool_held, 0, "nothing is held");
	close_soft(0);
}

static void *trim(void *arg)
{
	glake_trim(ctx, 0, 0, NULL);
	return arg;
}

/* What another thread is giving back is not there yet, and is about to be. */
static void is_given_back(void)
{
	pthread_t thread;
	void *ptr;

	open_soft("host.limit=8MiB");
	glake_host_free(ctx, alloc(8 * MIB));
	/* us */
	glk_fault_set(context->drv, "host_unlock:nth=1:delay=200000");
	pthread_create(&thread, NULL, trim, NULL);
	while (stats_of(0).host_pool_pieces)
		sched_yield();
	is_int(glake_host_alloc(ctx, 0, 8 * MIB, 0, &ptr), 0,
		"a piece that others give back is waited for");
	pthread_join(thread, NULL);
	glk_fault_set(context->drv, "off");
	close_soft(1);
}

static int child(char *p)
{
	unsigned char there;
	void *ptr;

	if (glake_host_alloc(ctx, 0, 1, 0, &ptr) != -ENODEV || glake_host_free(ctx, p))
		return 1;
	return mincore(p, 4096, &there) == -1 && errno == ENOMEM ? 0 : 2;
}

static void forks(void)
{
	int status = -1;
	char *p;
	pid_t pid;

	open_soft(NULL);
	p = alloc(4 * MIB);
	pid = fork();
	if (!pid)
		_exit(child(p));
	waitpid(pid, &status, 0);
	is_int(status, 0, "a child has none of it");
	memset(p, 1, 4 * MIB);
	close_soft(1);
}

int main(void)
{
	tap_real_memory();
	tap_plan_later();
	is_exact();
	is_large();
	is_merged();
	is_aligned();
	is_best_fit();
	is_refused();
	is_limited();
	waits_for_streams();
	records_later();
	waits_before_refusal();
	captures();
	ends_a_stream();
	driver_fails();
	host_has_none();
	is_given_back();
	forks();
	return tap_done();
}
