/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Threads with streams that have arenas to themselves, beside each other while the lock of the GPU is divided, with the
 * software device as judge: kernels are queued on each block. Now and then a thread frees what another one had, behind
 * its work, uses it there as well, has memory trimmed, reads the figures, walks the books, or ends its stream.
 *
 *	stress-apart [turns of a thread]
 */
#define RIG_STREAMS 8
#include "cache/bin/own.h"
#include "seed.h"
#include "unit/cache/rig.h"

#include <pthread.h>

#define THREADS 4
#define OWN	12 /* blocks of a thread */
#define SHELF	8  /* those that go from hand to hand */

static struct rig rig;
static glk_atomic(uint64_t) shelf[SHELF];
static glk_atomic(uint32_t) wrong, refused;
static uint32_t turns;

struct thread {
	uint64_t seed;
	struct CUstream_st *stream;
	struct CUevent_st *event;
	uint64_t own[OWN];
};

/* What goes with a place of the shelf: the event behind which its block may be used. */
struct handed {
	struct CUevent_st *event;
};

static struct handed handed[SHELF];

static void note(const char *what)
{
	if (!glk_add_relaxed(&wrong, 1))
		tap_note("%s: %s", what, rig_error().text);
}

static void work(const struct thread *t, uint64_t addr, size_t size)
{
	int err = glk_soft_work(rig.drv, 0, t->stream, addr, size, true);

	if (err && err != -ENOMEM)
		note("memory of two streams");
}

/* Sizes that come back, and those that do not. */
static size_t draw_size(uint64_t *state)
{
	if (!seed_below(state, 6))
		return (size_t)(1 + seed_below(state, 4)) * 3 * MIB;
	if (!seed_below(state, 10))
		return 1 + seed_below(state, 128 << 10);
	return MIB + seed_below(state, 6 * MIB);
}

static uint64_t make(struct thread *t)
{
	size_t size = draw_size(&t->seed);
	uint64_t addr = 0;
	int err = rig_try(&rig, size, t->stream, 0, &addr);

	if (err && err != -ENOMEM)
		note("an error that is none of the documented ones");
	if (err)
		glk_add_relaxed(&refused, 1);
	else
		work(t, addr, size);
	return addr;
}

static void give(struct thread *t, uint64_t addr)
{
	if (addr && rig_free(&rig, addr, t->stream))
		note("a block refused");
}

/* A block comes from the shelf, behind who laid it there, and is freed here; one of its own comes in its place. */
static void exchange(struct thread *t)
{
	const struct glk_drv_ops *ops = rig.drv->ops;
	uint32_t at = (uint32_t)seed_below(&t->seed, SHELF);
	uint64_t had = glk_xchg_acq_rel(&shelf[at], UINT64_MAX), mine;

	/* somebody else is at it */
	if (had == UINT64_MAX)
		return;
	if (had && ops->user_event_wait(rig.drv, 0, t->stream, handed[at].event))
		note("no wait");
	if (had && !seed_below(&t->seed, 3) && glk_cache_use(&rig.cache, had, t->stream))
		note("a block not used");
	give(t, had);
	mine = make(t);
	if (mine && ops->user_event_record(rig.drv, 0, handed[at].event, t->stream))
		note("no event");
	glk_store_release(&shelf[at], mine); /* pairs with: the exchange above */
}

static void divide(void)
{
	glk_lock_short(&rig.cache.lock, 0);
	if (glk_own_any(&rig.cache)) {
		glk_load_relaxed(&rig.cache.owns)->rest = 0;
		glk_own_divide(&rig.cache);
	}
	glk_unlock_short(&rig.cache.lock, 0, &rig.cache.times[GLK_TIMED_FREE]);
}

/* The threads have met, as far as the rows know. */
static void meet(void)
{
	glk_lock(&rig.cache.lock);
	glk_plan_close(&rig.cache);
	rig.cache.crowded = true;
	for (uint32_t i = 1; i <= rig.cache.last_row; i++) {
		glk_poke_relaxed(&rig.cache.rows[i].met, GLK_MET_MOST);
		rig.cache.rows[i].same = GLK_OWN_SAME;
	}
	if (map_verify(&rig.cache.arena.map))
		note("the books");
	glk_plan_open(&rig.cache);
	glk_unlock(&rig.cache.lock);
}

static void renew(struct thread *t)
{
	const struct glk_drv_ops *ops = rig.drv->ops;

	for (unsigned i = 0; i < OWN; i++) {
		give(t, t->own[i]);
		t->own[i] = 0;
	}
	if (ops->stream_sync(rig.drv, 0, t->stream))
		note("a stream not waited for");
	glk_cache_stream_end(&rig.cache, t->stream);
	if (ops->stream_free(rig.drv, 0, t->stream) ||
		ops->stream_new(rig.drv, 0, &t->stream))
		note("no stream");
}

static void *run(void *arg)
{
	struct thread *t = arg;
	uint64_t unused;

	for (uint32_t n = 0; n < turns; n++) {
		uint32_t at = (uint32_t)seed_below(&t->seed, OWN);

		if (seed_below(&t->seed, 12)) {
			give(t, t->own[at]);
			t->own[at] = seed_below(&t->seed, 3) ? make(t) : 0;
		} else {
			exchange(t);
		}
		if (!seed_below(&t->seed, 4))
			glk_soft_run_all(rig.drv);
		if (!seed_below(&t->seed, 8))
			divide();
		if (!seed_below(&t->seed, 60))
			meet();
		if (!seed_below(&t->seed, 150))
			rig_figures(&rig);
		if (!seed_below(&t->seed, 200))
			glk_cache_trim(&rig.cache, 16 * MIB, false, &unused);
		if (!seed_below(&t->seed, 300))
			renew(t);
	}
	for (unsigned i = 0; i < OWN; i++)
		give(t, t->own[i]);
	return NULL;
}

static void storm(uint64_t seed, const char *const *settings)
{
	struct thread threads[THREADS] = {0};
	pthread_t thread[THREADS];
	struct glake_stats s;
	uint64_t apart = 0;

	glk_store_relaxed(&wrong, 0);
	glk_store_relaxed(&refused, 0);
	rig_open(&rig, settings);
	for (unsigned i = 0; i < SHELF; i++)
		handed[i].event = rig_event(&rig);
	for (unsigned i = 0; i < THREADS; i++) {
		threads[i].seed = seed_thread(seed, i);
		if (rig.drv->ops->stream_new(rig.drv, 0, &threads[i].stream))
			tap_bail("no stream");
		pthread_create(&thread[i], NULL, run, &threads[i]);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	glk_soft_run_all(rig.drv);
	for (unsigned i = 0; i < SHELF; i++)
		give(&threads[0], glk_xchg_acq_rel(&shelf[i], 0));
	s = rig_figures(&rig);
	if (glk_load_relaxed(&rig.cache.owns))
		apart = glk_load_relaxed(&rig.cache.owns)->apart;
	tap_note("%" PRIu64 " apart, %" PRIu64 " hits, %" PRIu64 " stitched, %" PRIu64
		 " waits, %u refused",
		apart, s.hits, s.stitches, rig.cache.streams.waits,
		glk_load_relaxed(&refused));
	is_int(glk_load_relaxed(&wrong), 0, "each block in the order of its streams");
	ok(apart > turns / 10, "many requests and frees had but a part of the lock");
	is_int((int64_t)s.live_blocks, 0, "nothing is live");
	is_int((int64_t)s.lost, 0, "nothing is lost");
	is_sound(&rig, "the books agree");
	for (unsigned i = 0; i < THREADS; i++)
		rig.drv->ops->stream_free(rig.drv, 0, threads[i].stream);
	rig_close(&rig, 0);
}

int main(int argc, char **argv)
{
#define SETTINGS(...)                                                                    \
	((const char *const[]){"policy.target=auto", "soft.streams=stepped",             \
		"soft.host_memory=2GiB", "map.span=256GiB", __VA_ARGS__, NULL})
	uint64_t seed;

	tap_plan_later();
	seed = seed_start();
	turns = argc > 1 ? (uint32_t)atoi(argv[1]) : STORM_SIZE(4000);
	storm(seed, SETTINGS("soft.memory=16GiB"));
	storm(seed + 1, SETTINGS("soft.memory=6GiB"));
	storm(seed + 2, SETTINGS("soft.memory=16GiB", RIG_DONE));
	storm(seed + 3, SETTINGS("soft.memory=16GiB", "policy.bins=0"));
	return tap_done();
}
