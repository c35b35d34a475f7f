/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Requests of all kinds, and blocks taken back. */
#include "rig.h"

#include <errno.h>
#include <pthread.h>

#define SIZE (8 * MIB)

#define STEPPED                                                                          \
	(const char *const[])                                                            \
	{                                                                                \
		"soft.streams=stepped", NULL                                             \
	}

/* size, flags, page size, pages if it is alone */
static const struct {
	size_t size;
	uint32_t flags;
	size_t page_size, pages;
} kinds[] = {
	{1, 0, 2 * MIB, 1},
	{511, 0, 2 * MIB, 1},
	{512, 0, 2 * MIB, 1},
	{513, 0, 2 * MIB, 1},
	{MIB, 0, 2 * MIB, 1},
	{MIB + 1, 0, 2 * MIB, 1},
	{3 * MIB, 0, 2 * MIB, 2},
	{4 * MIB, 0, 8 * MIB, 1},
	{8 * MIB, 0, 8 * MIB, 1},
	{20 * MIB, 0, 8 * MIB, 3},
	{1, GLAKE_ALLOC_CONTIGUOUS, 2 * MIB, 1},
	{20 * MIB - 512, GLAKE_ALLOC_CONTIGUOUS, 20 * MIB, 1},
};

static void gives(void)
{
	struct glake_block block;
	struct CUstream_st *a;
	struct rig rig;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		bool single = kinds[i].flags;
		size_t grain = single ? 2 * MIB : GLAKE_GRAIN;
		size_t given = (kinds[i].size + grain - 1) / grain * grain;
		uint64_t addr = 0;

		rig_open(&rig, NULL);
		a = rig_stream(&rig);
		tap_note("%zu bytes, flags %x", kinds[i].size, kinds[i].flags);
		is_int(rig_try(&rig, kinds[i].size, a, kinds[i].flags, &addr), 0,
			"a block");
		ok(addr && addr % GLAKE_GRAIN == 0, "aligned to the grain");
		memset((void *)addr, 0x5a, given);
		is_int(glk_cache_query(&rig.cache, addr + given - 1, &block), 0,
			"found by its last byte");
		ok(block.base == (void *)addr && block.size == kinds[i].size &&
				block.given == given && block.device == 0 &&
				block.flags == kinds[i].flags && block.stream == a,
			"as it was asked for");
		is_int((int64_t)block.page_size, (int64_t)kinds[i].page_size,
			"page size");
		is_int((int64_t)block.pages, (int64_t)kinds[i].pages, "pages");
		is_int((int64_t)rig_figures(&rig).live, (int64_t)kinds[i].size, "live");
		is_int((int64_t)rig_figures(&rig).given, (int64_t)given, "given");
		is_sound(&rig, "the books agree");
		is_int(rig_free(&rig, addr, a), 0, "freed");
		is_int(glk_cache_query(&rig.cache, addr, &block), -EINVAL, "gone");
		is_sound(&rig, "the books agree still");
		rig_close(&rig, 0);
	}
}

/* The steady state: the same sizes on the same stream need no driver. */
static void hits(void)
{
	static const size_t sizes[] = {700, 5 * MIB, 2 * MIB, 64 * MIB, 100 << 10};
	uint64_t addr[5], calls;
	struct glake_stats s;
	bool same = true;
	struct rig rig;
	struct CUstream_st *a;

	rig_open(&rig, (const char *const[]){"soft.streams=stepped", NULL});
	a = rig_stream(&rig);
	for (int i = 0; i < 5; i++) {
		addr[i] = rig_alloc(&rig, sizes[i], a);
		rig_work(&rig, addr[i], sizes[i], a);
		/* stays, so that the large ones are not neighbours and do not merge */
		if (sizes[i] == 5 * MIB)
			rig_alloc(&rig, 9 * MIB, a);
	}
	for (int i = 0; i < 5; i++)
		rig_free(&rig, addr[i], a);
	calls = rig_all_calls(&rig);
	s = rig_figures(&rig);
	for (int n = 0; n < 20; n++) {
		for (int i = 0; i < 5; i++)
			same &= rig_alloc(&rig, sizes[i], a) == addr[i];
		for (int i = 0; i < 5; i++)
			rig_free(&rig, addr[4 - i], a);
	}
	ok(same, "the same requests get the same addresses");
	is_int((int64_t)(rig_all_calls(&rig) - calls), 0, "without a call of the driver");
	is_int((int64_t)(rig_figures(&rig).hits - s.hits), 100, "all are hits");
	is_int((int64_t)rig_figures(&rig).misses, (int64_t)s.misses, "none is a miss");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 1);
}

static void refuses(void)
{
	uint64_t a1, a2, other = 7, most = 512 * MIB;
	struct glake_block block;
	struct CUstream_st *a;
	struct glake_stats s;
	struct rig rig;

	rig_open(&rig, (const char *const[]){"soft.memory=512MiB", NULL});
	a = rig_stream(&rig);
	a1 = rig_alloc(&rig, 100 << 10, a);
	a2 = rig_alloc(&rig, 9 * MIB, a);
	s = rig_figures(&rig);
	is_int(rig_free(&rig, a1 + 512, a), -EINVAL, "the inside of a small block");
	is_int(rig_error().error_class, GLAKE_ERROR_INVAL, "  its class");
	is_int(rig_free(&rig, a1 + 1, a), -EINVAL, "one byte in");
	is_int(rig_free(&rig, a2 + 8 * MIB, a), -EINVAL, "the inside of a large block");
	is_int(rig_error().error_class, GLAKE_ERROR_INVAL, "  its class");
	is_int(rig_free(&rig, a2 + 9 * MIB, a), -EINVAL, "one past the end");
	is_int(rig_error().error_class, GLAKE_ERROR_NOT_MINE, "  its class");
	is_int(rig_free(&rig, a2 + (1u << 30), a), -EINVAL, "addresses never used");
	is_int(rig_error().error_class, GLAKE_ERROR_NOT_MINE, "  its class");
	is_int(glk_cache_query(&rig.cache, a2 + 9 * MIB, &block), -EINVAL,
		"nothing to tell of them");
	is_int(rig_error().error_class, GLAKE_ERROR_NOT_MINE, "  its class");
	is_int(rig_try(&rig, most + 1, a, 0, &other), -ENOMEM, "more than the GPU");
	is_int(rig_error().error_class, GLAKE_ERROR_NOMEM_DEVICE, "  its class");
	is_int(rig_try(&rig, SIZE_MAX, a, 0, &other), -ENOMEM, "SIZE_MAX");
	is_int(rig_try(&rig, SIZE_MAX - 511, a, GLAKE_ALLOC_CONTIGUOUS, &other), -ENOMEM,
		"SIZE_MAX - 511, contiguous");
	is_int((int64_t)other, 7, "the output is as it was");
	is_int((int64_t)rig_figures(&rig).oom, 3, "three were counted");
	is_int((int64_t)rig_figures(&rig).live, (int64_t)s.live, "nothing was lost");
	is_int(rig_free(&rig, a1, a), 0, "freed");
	is_int(rig_free(&rig, a1, a), -EINVAL, "twice");
	is_int(rig_error().error_class, GLAKE_ERROR_DOUBLE_FREE, "  its class");
	is_int(rig_free(&rig, a2, a), 0, "freed");
	is_int(rig_free(&rig, a2, a), -EINVAL, "twice");
	is_int(rig_error().error_class, GLAKE_ERROR_DOUBLE_FREE, "  its class");
	is_int((int64_t)rig_figures(&rig).frees, 2, "two frees were counted");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* Exactly the GPU, in one block, in grains, and one more byte. */
static void fills(void)
{
	uint64_t all, rest = 0;
	struct CUstream_st *a;
	struct rig rig;

	rig_open(&rig, (const char *const[]){"soft.memory=64MiB", NULL});
	a = rig_stream(&rig);
	all = rig_alloc(&rig, 64 * MIB, a);
	ok(all, "all of the GPU in one block");
	is_int(rig_try(&rig, 1, a, 0, &rest), -ENOMEM, "one byte more");
	has_str(rig_error().text, "no room for a page", "  says so");
	is_int(rig_free(&rig, all, a), 0, "freed");
	for (int i = 0; i < 32; i++)
		rest = rig_alloc(&rig, i % 2 ? 3 * MIB : MIB, a);
	ok(rest, "all of it in small and medium blocks");
	is_int((int64_t)rig_figures(&rig).reserved, 64 * (int64_t)MIB, "all is held");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 32);
}

/* Freed on another stream than it was given to: both have used it. */
static void counts_both(void)
{
	struct CUstream_st *a, *b, *c;
	uint64_t addr, waits;
	struct rig rig;

	rig_open(&rig, (const char *const[]){"soft.streams=stepped", NULL});
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	c = rig_stream(&rig);
	addr = rig_alloc(&rig, 8 * MIB, a);
	rig_work(&rig, addr, 8 * MIB, a);
	rig_free(&rig, addr, b);
	waits = rig_calls(&rig, GLAKE_CALL_STREAM_WAIT);
	ok(rig_alloc(&rig, 8 * MIB, c) == addr, "a third stream gets it");
	is_int((int64_t)(rig_calls(&rig, GLAKE_CALL_STREAM_WAIT) - waits), 2,
		"behind both");
	rig_free(&rig, addr, c);
	rig_close(&rig, 0);
}

/* A free is never refused for want of a place to remember its stream. */
static void frees_anyway(void)
{
	struct CUstream_st *a, *b;
	uint64_t addr, syncs;
	struct rig rig;

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	addr = rig_alloc(&rig, 8 * MIB, a);
	rig_work(&rig, addr, 8 * MIB, b);
	syncs = rig_calls(&rig, GLAKE_CALL_SYNC);
	glk_region_fail_after(1);
	is_int(rig_free(&rig, addr, b), 0, "freed on a stream there is no table for");
	glk_region_fail_after(0);
	is_int((int64_t)(rig_calls(&rig, GLAKE_CALL_SYNC) - syncs), 1,
		"whose work was waited for");
	is_int((int64_t)rig_figures(&rig).live_blocks, 0, "the block is free");
	ok(rig_alloc(&rig, 8 * MIB, a) == addr, "for its own stream");
	rig_free(&rig, addr, a);
	addr = rig_alloc(&rig, 8 * MIB, a);
	glk_region_fail_after(1);
	glk_fault_set(rig.drv, "stream_sync:from=1:err=EIO");
	is_int(rig_free(&rig, addr, b), -EIO, "when the driver cannot wait either");
	glk_fault_set(rig.drv, "off");
	glk_region_fail_after(0);
	is_int((int64_t)rig_figures(&rig).live_blocks, 1, "it stays a block");
	is_int(rig_free(&rig, addr, b), 0, "and is freed later");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

static uint64_t waits_of(struct rig *rig)
{
	return rig_calls(rig, GLAKE_CALL_STREAM_WAIT);
}

/* A block and a kernel on it. */
static uint64_t give(struct rig *rig, size_t size, struct CUstream_st *stream)
{
	uint64_t addr = rig_alloc(rig, size, stream);

	if (!addr)
		tap_bail(rig_error().text);
	rig_work(rig, addr, size, stream);
	return addr;
}

/* Used on a second stream, so that its own has to wait for that. */
static void marks(void)
{
	struct CUstream_st *a, *b, *c;
	uint64_t addr, waits, hits;
	struct rig rig;

	rig_open(&rig, STEPPED);
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	c = rig_stream(&rig);
	addr = give(&rig, SIZE, a);
	is_int(glk_cache_use(&rig.cache, addr, a), 0,
		"used on the stream it was given to");
	rig_free(&rig, addr, a);
	hits = rig_figures(&rig).hits;
	ok(rig_alloc(&rig, SIZE, a) == addr, "that is nothing");
	is_int((int64_t)(rig_figures(&rig).hits - hits), 1, "the next request is a hit");
	is_int(glk_cache_use(&rig.cache, addr, b), 0, "used on another one");
	/* the stream is behind A by an event of the program, and works on it after the call */
	rig_follow(&rig, b, a, rig_event(&rig));
	rig_work(&rig, addr, SIZE, b);
	waits = waits_of(&rig);
	rig_free(&rig, addr, a);
	is_sound(&rig, "the books agree");
	hits = rig_figures(&rig).hits;
	is_int((int64_t)give(&rig, SIZE, a), (int64_t)addr,
		"its own stream gets it again");
	is_int((int64_t)(rig_figures(&rig).hits - hits), 0, "not by a hit");
	is_int((int64_t)(waits_of(&rig) - waits), 1, "but behind the other one");
	rig_free(&rig, addr, a);
	waits = waits_of(&rig);
	is_int((int64_t)give(&rig, SIZE, a), (int64_t)addr, "freed again it is its own");
	is_int((int64_t)(waits_of(&rig) - waits), 0, "without a wait");
	is_int(glk_cache_use(&rig.cache, addr, b), 0, "used once more on the other");
	rig_follow(&rig, b, a, rig_event(&rig));
	rig_work(&rig, addr, SIZE, b);
	waits = waits_of(&rig);
	rig_free(&rig, addr, b);
	is_int((int64_t)give(&rig, SIZE, c), (int64_t)addr,
		"and freed there: a third one");
	is_int((int64_t)(waits_of(&rig) - waits), 2, "waits for both");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 1);
}

#define MARKED (GLK_STREAM_CROWD + 5)

/* By all streams there are, some of which share a bit. */
static void marks_many(void)
{
	struct CUstream_st *a, *s[MARKED];
	uint64_t addr, waits;
	struct rig rig;
	int err = 0;

	rig_open(&rig, STEPPED);
	a = rig_stream(&rig);
	for (int i = 0; i < MARKED; i++)
		s[i] = rig_stream(&rig);
	addr = rig_alloc(&rig, SIZE, a);
	for (int n = 0; n < 2; n++) {
		for (int i = 0; i < MARKED; i++)
			err |= glk_cache_use(&rig.cache, addr, s[i]);
	}
	is_int(err, 0, "used on 68 streams, twice each");
	for (int i = 0; i < MARKED; i++) {
		if (glk_soft_work(rig.drv, 0, s[i], addr, SIZE, false))
			tap_bail("no kernel that reads");
	}
	rig_free(&rig, addr, a);
	waits = waits_of(&rig);
	is_int((int64_t)rig_alloc(&rig, SIZE, a), (int64_t)addr,
		"its own stream gets it");
	is_int((int64_t)(waits_of(&rig) - waits), MARKED, "behind all of them");
	is_int(glk_soft_work(rig.drv, 0, a, addr, SIZE, true), 0, "and may write to it");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 1);
}

static void marks_contiguous(void)
{
	struct CUstream_st *a, *b;
	uint64_t addr, waits;
	struct rig rig;

	rig_open(&rig, STEPPED);
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	addr = rig_single(&rig, 4 * MIB, a);
	is_int(glk_cache_use(&rig.cache, addr, b), 0,
		"a contiguous block used on another stream");
	rig_work(&rig, addr, 4 * MIB, b);
	rig_free(&rig, addr, a);
	is_sound(&rig, "the books agree");
	waits = waits_of(&rig);
	ok(rig_single(&rig, 4 * MIB, a) == addr, "its own gets it");
	is_int((int64_t)(waits_of(&rig) - waits), 1, "behind the other");
	is_int(glk_soft_work(rig.drv, 0, a, addr, 4 * MIB, true), 0, "and may use it");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 1);
}

/* In the pool of a graph: no wait is inserted, so the memory stays away from all. */
static void marks_in_pool(void)
{
	struct CUstream_st *a, *b;
	struct CUevent_st *fork;
	uint64_t addr, waits;
	uint32_t graph;
	struct rig rig;

	rig_open(&rig, STEPPED);
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	fork = rig_event(&rig);
	rig_begin(&rig, 1, a);
	rig_capture(&rig, a);
	addr = give(&rig, SIZE, a);
	rig_follow(&rig, b, a, fork);
	rig_work(&rig, addr, SIZE, b);
	is_int(glk_cache_use(&rig.cache, addr, b), 0,
		"a block of a graph, used on another stream");
	rig_free(&rig, addr, a);
	is_sound(&rig, "the books agree");
	waits = waits_of(&rig);
	ok(rig_alloc(&rig, SIZE, a) != addr, "its own does not get it");
	ok(rig_alloc(&rig, SIZE, b) != addr, "nor does the other");
	is_int((int64_t)(waits_of(&rig) - waits), 0, "no wait becomes part of the graph");
	rig_follow(&rig, a, b, fork);
	graph = rig_capture_end(&rig, a);
	ok(graph, "the capture is whole");
	rig_drop(&rig, graph);
	rig_end_pool(&rig, 1);
	is_sound(&rig, "the books agree");
	rig_close(&rig, 2);
}

static void marks_nothing(void)
{
	struct CUstream_st *a, *dead;
	struct glk_extent *e;
	uint64_t addr, other;
	struct rig rig;

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	dead = rig_stream(&rig);
	addr = rig_alloc(&rig, SIZE, a);
	other = rig_alloc(&rig, 100, a);
	is_int(glk_cache_use(&rig.cache, addr + 512, a), -EINVAL,
		"the inside of a block");
	is_int(rig_error().error_class, GLAKE_ERROR_INVAL, "  its class");
	is_int(glk_cache_use(&rig.cache, addr + (1u << 29), a), -EINVAL, "no block");
	is_int(rig_error().error_class, GLAKE_ERROR_NOT_MINE, "  its class");
	rig_free(&rig, other, a);
	is_int(glk_cache_use(&rig.cache, other, a), -EINVAL, "a block that was freed");
	is_int(rig_error().error_class, GLAKE_ERROR_DOUBLE_FREE, "  its class");
	rig.drv->ops->stream_free(rig.drv, 0, dead);
	rig.streams--;
	is_int(glk_cache_use(&rig.cache, addr, dead), -EINVAL, "a stream that has ended");
	is_int(rig_error().error_class, GLAKE_ERROR_INVAL, "  its class");
	glk_region_fail_after(1);
	is_int(glk_cache_use(&rig.cache, addr, rig_stream(&rig)), -ENOMEM,
		"no table for one");
	is_int(rig_error().error_class, GLAKE_ERROR_NOMEM_HOST, "  its class");
	glk_region_fail_after(0);
	e = glk_extent_at(&rig.cache.map,
		glk_span_lookup(glk_map_span(&rig.cache.map, addr), addr));
	is_int((int64_t)glk_block_marks(e), 0, "nothing was noted by any");
	is_int((int64_t)rig_figures(&rig).live_blocks, 1, "the block is live");
	is_int(rig_free(&rig, addr, a), 0, "and freed");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

#define USERS	  3
#define LIVES	  400
#define SHARED_AT 8

struct user {
	struct rig *rig;
	struct CUstream_st *stream;
	glk_atomic(uint64_t) * shared;
	glk_atomic(bool) * stop;
	glk_atomic(int) used;
	int odd;
};

static void *use_on(void *arg)
{
	struct user *u = arg;

	while (!glk_load_relaxed(u->stop)) {
		for (int i = 0; i < SHARED_AT; i++) {
			uint64_t addr = glk_load_relaxed(&u->shared[i]);
			int err =
				addr ? glk_cache_use(&u->rig->cache, addr, u->stream) : 1;

			glk_add_relaxed(&u->used, !err);
			/* freed meanwhile, and perhaps another block's inside by now */
			u->odd += err < 0 && err != -EINVAL;
		}
	}
	return NULL;
}

/* Blocks are used by some threads while another one frees them: each free is served or refused
 * as a second one, and then served later. */
static void marks_meanwhile(void)
{
	glk_atomic(uint64_t) shared[SHARED_AT] = {0};
	struct user user[USERS] = {{0}};
	glk_atomic(bool) stop = false;
	pthread_t thread[USERS];
	int odd = 0, used = 0, again = 0;
	struct CUstream_st *a;
	struct rig rig;

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	for (int i = 0; i < USERS; i++) {
		user[i] = (struct user){.rig = &rig,
			.stream = rig_stream(&rig),
			.shared = shared,
			.stop = &stop};
		pthread_create(&thread[i], NULL, use_on, &user[i]);
	}
	for (int n = 0; n < LIVES || glk_load_relaxed(&user[n % USERS].used) < LIVES;
		n++) {
		for (int i = 0; i < SHARED_AT; i++)
			glk_store_relaxed(&shared[i],
				rig_alloc(&rig, (size_t)(i + 1) * 700 << i, a));
		for (int i = 0; i < SHARED_AT; i++) {
			int err = rig_free(&rig, glk_load_relaxed(&shared[i]), a);

			for (; err == -EINVAL; again++)
				err = rig_free(&rig, glk_load_relaxed(&shared[i]), a);
			odd += err != 0;
		}
	}
	glk_store_relaxed(&stop, true);
	for (int i = 0; i < USERS; i++) {
		pthread_join(thread[i], NULL);
		odd += user[i].odd;
		used += glk_load_relaxed(&user[i].used);
	}
	tap_note("%d uses, %d frees came too early", used, again);
	is_int(odd, 0,
		"uses and frees at a time: each is served, or told that it is too late");
	is_int((int64_t)rig_figures(&rig).live_blocks, 0, "no block is lost");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* Behind events instead of a stream. */
static void frees_after(void)
{
	struct CUstream_st *a, *b, *c;
	struct CUevent_st *events[2];
	uint64_t addr, waits;
	struct rig rig;

	rig_open(&rig, STEPPED);
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	c = rig_stream(&rig);
	events[0] = rig_event(&rig);
	events[1] = rig_event(&rig);
	addr = give(&rig, SIZE, a);
	rig_follow(&rig, b, a, events[0]);
	rig_work(&rig, addr, SIZE, b);
	rig.drv->ops->user_event_record(rig.drv, 0, events[1], b);
	is_int(glk_cache_free_after(&rig.cache, addr, events, 2), 0,
		"freed behind two events");
	is_sound(&rig, "the books agree");
	/* recorded again right after */
	rig.drv->ops->user_event_record(rig.drv, 0, events[0], c);
	rig.drv->ops->user_event_record(rig.drv, 0, events[1], c);
	waits = waits_of(&rig);
	is_int((int64_t)give(&rig, SIZE, a), (int64_t)addr, "the memory serves a stream");
	is_int((int64_t)(waits_of(&rig) - waits), 1, "behind one wait for both");
	is_int(glk_cache_free_after(&rig.cache, addr + 512, events, 2), -EINVAL,
		"not its inside");
	is_int(rig_free(&rig, addr, a), 0, "freed behind its stream");
	is_int(glk_cache_free_after(&rig.cache, addr, events, 2), -EINVAL, "not twice");
	is_int(rig_error().error_class, GLAKE_ERROR_DOUBLE_FREE, "  its class");

	addr = rig_alloc(&rig, SIZE, a);
	glk_event_poll(rig.cache.streams);
	glk_soft_run_all(rig.drv);
	glk_event_poll(rig.cache.streams);
	waits = waits_of(&rig);
	is_int(glk_cache_free_after(&rig.cache, addr, NULL, 0), 0,
		"freed behind nothing");
	is_int((int64_t)give(&rig, SIZE, c), (int64_t)addr, "it is anybody's");
	is_int((int64_t)(waits_of(&rig) - waits), 0, "at once");

	/* passed when they are given */
	rig.drv->ops->user_event_record(rig.drv, 0, events[0], c);
	glk_soft_run_all(rig.drv);
	is_int(glk_cache_free_after(&rig.cache, addr, events, 1), 0,
		"behind an event that is done");
	is_int((int64_t)give(&rig, SIZE, b), (int64_t)addr, "it serves a stream, too");
	rig_free(&rig, addr, b);

	addr = rig_single(&rig, 4 * MIB, a);
	rig_work(&rig, addr, 4 * MIB, a);
	rig.drv->ops->user_event_record(rig.drv, 0, events[0], a);
	is_int(glk_cache_free_after(&rig.cache, addr, events, 1), 0,
		"a contiguous block");
	is_sound(&rig, "the books agree");
	ok(rig_single(&rig, 4 * MIB, b) == addr, "serves another stream");
	is_int(glk_soft_work(rig.drv, 0, b, addr, 4 * MIB, true), 0, "behind the event");
	rig_free(&rig, addr, b);
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* A free that is refused leaves the block as it was. */
static void frees_after_nothing(void)
{
	struct CUevent_st *events[2], *none = (struct CUevent_st *)0x5550;
	struct CUstream_st *a, *b;
	uint64_t addr, of_pool;
	uint32_t graph;
	struct rig rig;

	rig_open(&rig, STEPPED);
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	events[0] = rig_event(&rig);
	events[1] = none;
	addr = give(&rig, SIZE, a);
	glk_cache_use(&rig.cache, addr, b);
	is_int(glk_cache_free_after(&rig.cache, addr, events, 2), -EINVAL, "no event");
	is_int(rig_error().error_class, GLAKE_ERROR_INVAL, "  its class");
	rig_begin(&rig, 1, b);
	rig_capture(&rig, b);
	of_pool = give(&rig, SIZE, b);
	rig.drv->ops->user_event_record(rig.drv, 0, events[0], b);
	is_int(glk_cache_free_after(&rig.cache, addr, events, 1), -EBUSY,
		"one of a capture");
	is_int(rig_error().error_class, GLAKE_ERROR_CAPTURE, "  its class");
	is_int(glk_cache_free_after(&rig.cache, of_pool, events, 1), -EBUSY,
		"a block of it, too");
	is_int((int64_t)rig_figures(&rig).live_blocks, 2, "both are live");
	is_sound(&rig, "the books agree");
	graph = rig_capture_end(&rig, b);
	ok(graph, "the capture is whole");
	rig_drop(&rig, graph);
	rig_end_pool(&rig, 1);
	rig.drv->ops->user_event_record(rig.drv, 0, events[0], a);
	is_int(glk_cache_free_after(&rig.cache, of_pool, events, 1), 0,
		"after it they are freed");
	is_int(glk_cache_free_after(&rig.cache, addr, events, 1), 0, "both");
	is_int((int64_t)rig_pool(&rig, 1).blocks, 0, "each where it came from");
	is_sound(&rig, "the books agree");
	is_int(rig_release(&rig, 1), 0, "the pool goes");
	rig_close(&rig, 0);
}

int main(void)
{
	tap_plan_later();
	gives();
	hits();
	refuses();
	fills();
	counts_both();
	frees_anyway();
	marks();
	marks_many();
	marks_contiguous();
	marks_in_pool();
	marks_nothing();
	marks_meanwhile();
	frees_after();
	frees_after_nothing();
	return tap_done();
}
