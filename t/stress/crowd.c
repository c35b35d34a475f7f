/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * More streams than bits, with the software device as judge: threads ask for memory on one of them and
 * free it on another while kernels are still queued, near the budget. Streams come and go, with work
 * left or without, told or not, so that their numbers are others' soon, and so do threads with streams of
 * their own; some streams capture graphs.
 *
 *	stress-crowd [turns of a thread]
 */
#define RIG_STREAMS 8
#include "seed.h"
#include "unit/cache/rig.h"

#include <pthread.h>
#include <sched.h>

#define THREADS 3
#define SHELF	96
#define STREAMS 4000
#define MORE	5  /* streams that use a block beside its own, at most */
#define LEFT	64 /* streams that the library was told of, and that end later */

static struct rig rig;
static struct {
	pthread_mutex_t lock; /* who queues on it, or ends it */
	struct CUstream_st *handle;
	bool captures;
} streams[STREAMS];
static glk_atomic(uint64_t) shelf[SHELF];
static glk_atomic(bool) stop;
static glk_atomic(uint32_t) wrong, refused, served, ended;
static uint32_t count, turns;

struct thread {
	uint64_t seed;
	struct CUevent_st *event;
	struct CUstream_st *left[LEFT];
	uint32_t at;
};

static void note(const char *what)
{
	if (!glk_add_relaxed(&wrong, 1))
		tap_note("%s: %s", what, rig_error().text);
}

static size_t draw_size(uint64_t *state)
{
	/* some come back, and lie in bins meanwhile */
	if (seed_below(state, 3))
		return (size_t)4096 << 2 * seed_below(state, 6);
	switch (seed_below(state, 6)) {
	case 0:
	case 1:
		return 1 + seed_below(state, 4096);
	case 2:
		return 1 + seed_below(state, 256 << 10);
	case 3:
		return 1 + seed_below(state, 3 * MIB);
	case 4:
		return 2 * MIB * (1 + seed_below(state, 4));
	default:
		return 1 + seed_below(state, 24 * MIB);
	}
}

/* One that nobody else is at, and that captures nothing. */
static uint32_t take(uint64_t *state)
{
	for (;;) {
		uint32_t i = (uint32_t)seed_below(
			state, seed_below(state, 3) ? count : 1 + count / 50);

		if (pthread_mutex_trylock(&streams[i].lock))
			continue;
		if (!streams[i].captures)
			return i;
		pthread_mutex_unlock(&streams[i].lock);
	}
}

static void let_go(uint32_t i)
{
	pthread_mutex_unlock(&streams[i].lock);
}

static void work(uint64_t addr, size_t size, uint32_t i)
{
	int err = glk_soft_work(rig.drv, 0, streams[i].handle, addr, size, true);

	if (err && err != -ENOMEM)
		note("memory of two streams");
}

/* With the stream that had it first, which is another one by now perhaps. */
#define HELD(addr, i) ((addr) | (uint64_t)(i) << 48)

static void give(uint64_t held, uint64_t *state)
{
	uint64_t addr = held << 16 >> 16;
	uint32_t i = (uint32_t)(held >> 48);

	if (!addr)
		return;
	if (!seed_below(state, 12)) {
		if (rig_free(&rig, addr, GLK_STREAM_PER_THREAD))
			note("a block refused");
		return;
	}
	if (!seed_below(state, 2) || pthread_mutex_trylock(&streams[i].lock)) {
		i = take(state);
	} else if (streams[i].captures) {
		let_go(i);
		i = take(state);
	}
	if (rig_free(&rig, addr, streams[i].handle))
		note("a block refused");
	let_go(i);
}

/* Further streams use it, each behind the one before: the event was recorded on the first. */
static void use_there(struct thread *t, uint64_t addr, size_t size)
{
	const struct glk_drv_ops *ops = rig.drv->ops;
	uint64_t more = seed_below(&t->seed, 3) ? 1 : 1 + seed_below(&t->seed, MORE);
	int err = 0;

	while (more-- && !err) {
		uint32_t k = take(&t->seed);

		err = ops->user_event_wait(rig.drv, 0, streams[k].handle, t->event);
		if (!err)
			err = glk_cache_use(&rig.cache, addr, streams[k].handle);
		if (!err)
			work(addr, size, k);
		if (!err && more)
			err = ops->user_event_record(
				rig.drv, 0, t->event, streams[k].handle);
		let_go(k);
	}
}

static uint64_t make(struct thread *t)
{
	uint32_t flags = seed_below(&t->seed, 30) ? 0 : GLAKE_ALLOC_CONTIGUOUS;
	size_t size = draw_size(&t->seed);
	uint32_t i = take(&t->seed);
	uint64_t addr = 0;
	int err = rig_try(&rig, size, streams[i].handle, flags, &addr);

	if (err) {
		let_go(i);
		if (err != -ENOMEM && err != -EBUSY)
			note("an error that is none of the documented ones");
		glk_add_relaxed(&refused, 1);
		return 0;
	}
	glk_add_relaxed(&served, 1);
	work(addr, size, i);
	if (seed_below(&t->seed, 8)) {
		let_go(i);
		return HELD(addr, i);
	}
	err = rig.drv->ops->user_event_record(rig.drv, 0, t->event, streams[i].handle);
	let_go(i);
	if (!err)
		use_there(t, addr, size);
	return HELD(addr, i);
}

/* On the thread's own default stream. */
static uint64_t make_own(uint64_t *state)
{
	size_t size = draw_size(state);
	uint64_t addr = 0;
	int err = rig_try(&rig, size, GLK_STREAM_PER_THREAD, 0, &addr);

	if (err) {
		glk_add_relaxed(&refused, 1);
		return 0;
	}
	glk_add_relaxed(&served, 1);
	err = glk_soft_work(rig.drv, 0, GLK_STREAM_PER_THREAD, addr, size, true);
	if (err && err != -ENOMEM)
		note("memory of two streams");
	return HELD(addr, 0);
}

/* A thread that leaves memory and work behind. */
static void *pass_by(void *arg)
{
	uint64_t state = *(uint64_t *)arg;

	for (int n = 0; n < 3; n++)
		give(glk_xchg_acq_rel(
			     &shelf[seed_below(&state, SHELF)], make_own(&state)),
			&state);
	return NULL;
}

static void end_left(struct thread *t, uint32_t at)
{
	if (t->left[at] && rig.drv->ops->stream_free(rig.drv, 0, t->left[at]))
		note("a stream not ended");
	t->left[at] = NULL;
}

static void renew(struct thread *t)
{
	const struct glk_drv_ops *ops = rig.drv->ops;
	uint32_t i = take(&t->seed);
	struct CUstream_st **s = &streams[i].handle;

	switch (seed_below(&t->seed, 5)) {
	case 0:
		if (ops->stream_sync(rig.drv, 0, *s))
			note("a stream not waited for");
		glk_cache_stream_end(&rig.cache, *s);
		if (ops->stream_free(rig.drv, 0, *s))
			note("a stream not ended");
		break;
	case 1:
		if (ops->stream_free(rig.drv, 0, *s))
			note("a stream not ended");
		break;
	default:
		t->at = (t->at + 1) % LEFT;
		end_left(t, t->at);
		glk_cache_stream_leave(&rig.cache, *s);
		t->left[t->at] = *s;
	}
	glk_add_relaxed(&ended, 1);
	if (ops->stream_new(rig.drv, 0, s))
		note("no stream");
	let_go(i);
}

static void capture(uint64_t *state)
{
	uint32_t i = take(state), graph;

	if (glk_soft_capture_begin(rig.drv, 0, streams[i].handle)) {
		let_go(i);
		return;
	}
	streams[i].captures = true;
	let_go(i);
	for (int n = 0; n < 20; n++)
		sched_yield();
	pthread_mutex_lock(&streams[i].lock);
	/* one that nobody announced may begin while a thread waits for the GPU, and is broken then */
	if (!glk_soft_capture_end(rig.drv, 0, streams[i].handle, &graph))
		glk_soft_graph_free(rig.drv, graph);
	streams[i].captures = false;
	let_go(i);
}

static void walk(void)
{
	glk_lock(&rig.cache.lock);
	glk_plan_close(&rig.cache);
	if (map_verify(&rig.cache.arena.map))
		note("the books");
	glk_plan_open(&rig.cache);
	glk_unlock(&rig.cache.lock);
}

static void *run(void *arg)
{
	struct thread *t = arg;
	uint64_t mine, unused;
	pthread_t other;

	for (uint32_t n = 0; n < turns; n++) {
		mine = seed_below(&t->seed, 12) ? make(t) : make_own(&t->seed);
		mine = glk_xchg_acq_rel(&shelf[seed_below(&t->seed, SHELF)], mine);
		give(mine, &t->seed);
		if (!seed_below(&t->seed, 6))
			renew(t);
		if (!seed_below(&t->seed, 50)) {
			pthread_create(&other, NULL, pass_by, &t->seed);
			pthread_join(other, NULL);
		}
		if (!seed_below(&t->seed, 400))
			capture(&t->seed);
		if (!seed_below(&t->seed, 400))
			glk_cache_trim(&rig.cache, 32 * MIB, false, &unused);
		if (!seed_below(&t->seed, 200))
			walk();
	}
	for (uint32_t i = 0; i < LEFT; i++)
		end_left(t, i);
	return NULL;
}

/* Now one stream, now all, now none for a while. */
static void *run_device(void *arg)
{
	uint64_t state = *(uint64_t *)arg;

	while (!glk_load_relaxed(&stop)) {
		uint32_t i = (uint32_t)seed_below(&state, count);

		if (!seed_below(&state, 3000))
			glk_soft_run_all(rig.drv);
		if (!pthread_mutex_trylock(&streams[i].lock)) {
			glk_soft_step(rig.drv, 0, streams[i].handle);
			let_go(i);
		}
		sched_yield();
	}
	return NULL;
}

static void storm(uint64_t seed, uint32_t some, const char *const *settings)
{
	struct thread threads[THREADS] = {0};
	pthread_t thread[THREADS], device;
	struct glake_stats s;

	count = some;
	glk_store_relaxed(&stop, false);
	glk_store_relaxed(&wrong, 0);
	glk_store_relaxed(&refused, 0);
	glk_store_relaxed(&served, 0);
	glk_store_relaxed(&ended, 0);
	rig_open(&rig, settings);
	for (uint32_t i = 0; i < count; i++) {
		pthread_mutex_init(&streams[i].lock, NULL);
		streams[i].captures = false;
		if (rig.drv->ops->stream_new(rig.drv, 0, &streams[i].handle))
			tap_bail("no stream");
	}
	pthread_create(&device, NULL, run_device, &seed);
	for (unsigned i = 0; i < THREADS; i++) {
		threads[i].seed = seed_thread(seed, i);
		threads[i].event = rig_event(&rig);
		pthread_create(&thread[i], NULL, run, &threads[i]);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	glk_store_relaxed(&stop, true);
	pthread_join(device, NULL);
	for (int i = 0; i < SHELF; i++)
		give(glk_xchg_acq_rel(&shelf[i], 0), &seed);
	for (uint32_t i = 0; i < count; i++)
		rig.drv->ops->stream_free(rig.drv, 0, streams[i].handle);
	s = rig_figures(&rig);
	tap_note("%u streams, %u ended: %u served, %" PRIu64 " hits, %" PRIu64
		 " stitched, %" PRIu64 " waits, %" PRIu64 " syncs, %u refused",
		count, glk_load_relaxed(&ended), glk_load_relaxed(&served), s.hits,
		s.stitches, rig.cache.streams.waits, rig_calls(&rig, GLAKE_CALL_SYNC),
		glk_load_relaxed(&refused));
	is_int(glk_load_relaxed(&wrong), 0, "each block in the order of its streams");
	is_int((int64_t)s.live_blocks, 0, "nothing is live");
	is_int((int64_t)s.lost, 0, "nothing is lost");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

int main(int argc, char **argv)
{
#define SETTINGS(...)                                                                    \
	((const char *const[]){"soft.streams=stepped", "map.aliases=4",                  \
		"map.span=64GiB", __VA_ARGS__, NULL})
	static const uint32_t counts[] = {60, 66, 100, 300, 1000, 3800};
	uint64_t seed;

	tap_plan_later();
	seed = seed_start();
	turns = argc > 1 ? (uint32_t)atoi(argv[1]) : STORM_SIZE(250);
	for (unsigned i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
		storm(seed + i, counts[i], SETTINGS("pool.budget=240MiB"));
		storm(seed + i, counts[i], SETTINGS("pool.budget=240MiB", RIG_DONE));
		storm(seed + i, counts[i],
			SETTINGS("pool.budget=240MiB", "stream.opportunistic=no"));
		storm(seed + i, counts[i],
			SETTINGS("pool.budget=240MiB", RIG_ALONE, "policy.bins=0"));
	}
	return tap_done();
}
