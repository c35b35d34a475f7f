/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Blocks that were used on further streams, and frees behind events of the program. */
#include "cache/marks.h"
#include "stepped.h"

#include <errno.h>
#include <pthread.h>

#define SIZE (8 * MIB)

/* Used on a second stream, so that its own has to wait for that. */
static void marks(void)
{
	struct CUstream_st *a, *b, *c;
	uint64_t addr, waits, hits;
	struct rig rig;

	rig_open(&rig,
		(const char *const[]){"soft.streams=stepped", "policy.bins=64MiB", NULL});
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

/* What other streams used is told of by an event from the next request on that is no hit. */
static void marks_early(void)
{
	struct CUstream_st *a, *b;
	uint64_t addr, other, records, waits;
	struct rig rig;

	rig_open(&rig, STEPPED);
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	addr = give(&rig, SIZE, a);
	other = give(&rig, SIZE / 2, b);
	rig_free(&rig, other, b);
	rig_flush(&rig);
	is_int(glk_cache_use(&rig.cache, addr, b), 0, "used on another stream");
	rig_follow(&rig, b, a, rig_event(&rig));
	rig_work(&rig, addr, SIZE, b);
	records = rig.cache.streams.records;
	rig_free(&rig, addr, a);
	is_int(rig.cache.streams.records - records, 0, "a free records no event");
	is_int(give(&rig, SIZE / 2, b), other, "a request that is no hit");
	is_int(rig.cache.streams.records - records, 1, "does");
	rig_work(&rig, other, SIZE / 2, b);
	rig_free(&rig, other, b);
	waits = waits_of(&rig);
	is_int(give(&rig, SIZE, a), addr, "its own stream has it");
	is_int(waits_of(&rig) - waits, 1, "behind a wait");
	is_int(rig.cache.streams.records - records, 1, "for that event");
	rig_free(&rig, addr, a);
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* A stream that was found to capture when its event was due is waited for again after that. */
static void marks_mute(void)
{
	struct CUstream_st *a, *b;
	uint64_t addr, other, held, waits;
	uint32_t graph;
	struct rig rig;

	rig_open(&rig, STEPPED);
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	other = give(&rig, 2 * SIZE, a);
	give(&rig, 3 * MIB, a);
	addr = give(&rig, SIZE, a);
	give(&rig, 3 * MIB, a);
	is_int(glk_cache_use(&rig.cache, addr, b), 0, "used on another stream");
	rig_follow(&rig, b, a, rig_event(&rig));
	rig_work(&rig, addr, SIZE, b);
	rig_free(&rig, other, a);
	rig_free(&rig, addr, a);
	rig_capture(&rig, b);
	is_int(give(&rig, 2 * SIZE, a), other, "a request beside its capture");
	graph = rig_capture_end(&rig, b);
	ok(graph, "which stays whole");
	held = rig_figures(&rig).reserved;
	waits = waits_of(&rig);
	is_int(give(&rig, SIZE, a), addr, "afterwards its memory is had");
	is_int(waits_of(&rig) - waits, 1, "behind a wait");
	is_int(rig_figures(&rig).reserved, held, "and no more is");
	rig_drop(&rig, graph);
	rig_close(&rig, 4);
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
	rig_fill_streams(&rig);
	glk_region_fail_after(1);
	is_int(glk_cache_use(&rig.cache, addr, rig_stream(&rig)), -ENOMEM,
		"no table for one");
	is_int(rig_error().error_class, GLAKE_ERROR_NOMEM_HOST, "  its class");
	glk_region_fail_after(0);
	e = glk_extent_at(&rig.cache.arena.map,
		glk_lookup_first(glk_cache_range(&rig.cache, addr), addr));
	ok(!glk_marks_any(e), "nothing was noted by any");
	is_int((int64_t)rig_figures(&rig).live_blocks, 1, "the block is live");
	is_int(rig_free(&rig, addr, a), 0, "and freed");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

#define USERS 3

#define LIVES 400

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
			u->odd += err < 0 && err != -EINVAL && err != -EBUSY;
		}
	}
	return NULL;
}

/* Blocks are used by some threads while another one frees them: each free is served, and waits for
 * who holds the block. */
static void marks_meanwhile(void)
{
	glk_atomic(uint64_t) shared[SHARED_AT] = {0};
	struct user user[USERS] = {{0}};
	glk_atomic(bool) stop = false;
	pthread_t thread[USERS];
	int odd = 0, used = 0;
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
		for (int i = 0; i < SHARED_AT; i++)
			odd += rig_free(&rig, glk_load_relaxed(&shared[i]), a) != 0;
	}
	glk_store_relaxed(&stop, true);
	for (int i = 0; i < USERS; i++) {
		pthread_join(thread[i], NULL);
		odd += user[i].odd;
		used += glk_load_relaxed(&user[i].used);
	}
	tap_note("%d uses", used);
	is_int(odd, 0,
		"frees beside uses are served, and uses that come too late are told so");
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
	glk_event_poll(&rig.cache.streams);
	glk_soft_run_all(rig.drv);
	glk_event_poll(&rig.cache.streams);
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
	marks();
	marks_early();
	marks_mute();
	marks_many();
	marks_contiguous();
	marks_in_pool();
	marks_nothing();
	marks_meanwhile();
	frees_after();
	frees_after_nothing();
	return tap_done();
}
