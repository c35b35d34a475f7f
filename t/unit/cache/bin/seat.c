/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Seats of threads that come and go, at GPUs that open and close: the figures stay exact. */
#include "cache/bin/hit.h"
#include "unit/cache/rig.h"

#include <pthread.h>

/* More than a thread has places. */
#define GPUS 20
_Static_assert(GPUS > GLK_THREAD_SEATS, "some GPUs share a place");

static struct rig rig, other;
static pthread_barrier_t meet;

static uint32_t used(struct rig *r)
{
	return glk_load_relaxed(&r->cache.seats.used);
}

static uint32_t taken(struct rig *r)
{
	return glk_load_relaxed(&r->cache.seats.live);
}

static void run(void *(*body)(void *), void *arg)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, body, arg) || pthread_join(thread, NULL))
		tap_bail("no thread");
}

/* Gives a block that lasts, and takes and gives others. */
static void *work(void *arg)
{
	struct rig *r = arg;
	uint64_t addr;

	if (!rig_alloc(r, 1000, NULL))
		tap_bail("no block");
	for (int i = 0; i < 10; i++) {
		addr = rig_alloc(r, 3 * MIB, NULL);
		rig_free(r, addr, NULL);
	}
	return NULL;
}

/* Two GPUs of one number: the thread has a place for each. */
static void two_at_once(void)
{
	uint64_t addr[2];

	rig_open(&rig, NULL);
	rig_open(&other, NULL);
	for (int i = 0; i < 100; i++) {
		addr[0] = rig_alloc(&rig, 700, NULL);
		addr[1] = rig_alloc(&other, 2 * MIB, NULL);
		rig_free(&rig, addr[0], NULL);
		rig_free(&other, addr[1], NULL);
	}
	ok(used(&rig) == 1 && used(&other) == 1, "no seat is lost");
	is_int(rig_figures(&rig).allocs, 100, "the one counts its own");
	is_int(rig_figures(&other).frees, 100, "the other too");
	ok(!rig_figures(&rig).live && !rig_figures(&other).live, "nothing is live");
	is_sound(&rig, "the books of the one agree");
	is_sound(&other, "those of the other");
	rig_close(&rig, 0);
	is_int(rig_figures(&other).frees, 100, "closed, it leaves the other alone");
	ok(rig_alloc(&other, 2 * MIB, NULL), "which goes on");
	rig_close(&other, 1);
}

struct given {
	uint64_t addr;
	struct CUstream_st *stream;
};

static void *free_it(void *arg)
{
	struct given *g = arg;

	is_int(rig_free(&rig, g->addr, g->stream), 0, "a thread without a seat frees");
	return NULL;
}

/* Of a block that another thread was given, to a bin: it has no seat before that. */
static void frees_first(void)
{
	struct given g;

	rig_open(&rig, NULL);
	g.stream = rig_stream(&rig);
	g.addr = rig_alloc(&rig, 700, g.stream);
	run(free_it, &g);
	is_int(rig_figures(&rig).frees, 1, "which is counted");
	ok(!rig_figures(&rig).live, "nothing is live");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* Sits at a GPU that closes, meets one that opens where it was, and ends. */
static void *outlive(void *arg)
{
	int *wrong = arg;

	work(&rig);
	pthread_barrier_wait(&meet); /* seated */
	pthread_barrier_wait(
		&meet); /* the GPU was closed and another opened in its place */
	work(&rig);
	*wrong = taken(&rig) != 2;
	pthread_barrier_wait(&meet); /* seated again */
	pthread_barrier_wait(&meet); /* that one is closed too */
	return NULL;
}

static void closes_under_threads(void)
{
	struct glake_stats s;
	pthread_t thread;
	int wrong = 1;

	pthread_barrier_init(&meet, NULL, 2);
	rig_open(&rig, NULL);
	if (pthread_create(&thread, NULL, outlive, &wrong))
		tap_bail("no thread");
	pthread_barrier_wait(&meet);
	rig_close(&rig, 1);
	rig_open(&rig, NULL);
	ok(rig_alloc(&rig, 100, NULL), "a GPU in the place of one that closed");
	pthread_barrier_wait(&meet);
	pthread_barrier_wait(&meet);
	s = rig_figures(&rig);
	is_int(wrong, 0, "a thread takes a new seat there");
	is_int(s.allocs, 12, "nothing of the old one is in its figures");
	is_int(s.live, 1100, "nor in what is live");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 2);
	pthread_barrier_wait(&meet);
	pthread_join(thread, NULL);
	pthread_barrier_destroy(&meet);
	rig_open(&rig, NULL);
	run(work, &rig);
	is_int(taken(&rig), 0, "a thread that ends with no GPU left harms none");
	rig_close(&rig, 1);
}

/* What a thread takes and gives in its turn; both wait for each other. */
struct turns {
	uint64_t took[40];
	int phase; /* of the one that works: even ones are the first thread's */
	pthread_mutex_t lock;
	pthread_cond_t next;
};

static void my_turn(struct turns *t, int phase)
{
	pthread_mutex_lock(&t->lock);
	while (t->phase != phase)
		pthread_cond_wait(&t->next, &t->lock);
	pthread_mutex_unlock(&t->lock);
}

static void your_turn(struct turns *t)
{
	pthread_mutex_lock(&t->lock);
	t->phase++;
	pthread_cond_broadcast(&t->next);
	pthread_mutex_unlock(&t->lock);
}

/* As a thread that computes gradients: gives back what the first one took, and takes a little. */
static void *backward(void *arg)
{
	struct turns *t = arg;
	uint64_t mine;

	for (int step = 0; step < 4; step++) {
		my_turn(t, 2 * step + 1);
		for (int i = 40; i--;) {
			mine = rig_alloc(&rig, 1000, NULL);
			rig_free(&rig, t->took[i], NULL);
			rig_free(&rig, mine, NULL);
		}
		your_turn(t);
	}
	return NULL;
}

/* All hits after the first step, so that nothing but the figures of the threads knows the peak. */
static void peaks_by_turns(void)
{
	struct turns t = {
		.lock = PTHREAD_MUTEX_INITIALIZER, .next = PTHREAD_COND_INITIALIZER};
	uint64_t hits = 0, kept;
	pthread_t thread;

	rig_open(&rig, NULL);
	kept = rig_alloc(&rig, 5000, NULL);
	if (pthread_create(&thread, NULL, backward, &t))
		tap_bail("no thread");
	for (int step = 0; step < 4; step++) {
		my_turn(&t, 2 * step);
		glk_cache_reset_peaks(&rig.cache);
		is_int((int64_t)rig_figures(&rig).peak_live, 5000, "a peak is set back");
		hits = rig_figures(&rig).hits;
		for (int i = 0; i < 40; i++)
			t.took[i] = rig_alloc(&rig, 1000 + 100 * (step > 1), NULL);
		your_turn(&t);
		my_turn(&t, 2 * step + 2);
		is_int((int64_t)rig_figures(&rig).peak_live,
			5000 + 40 * (1000 + 100 * (step > 1)) + 1000,
			"the most of a step");
	}
	ok(rig_figures(&rig).hits - hits >= 80, "  by hits");
	pthread_join(thread, NULL);
	is_int((int64_t)rig_figures(&rig).total_given,
		5120 + 4 * 40 * 1024 + 2 * 40 * 1024 + 2 * 40 * 1536,
		"and what was given ever");
	rig_free(&rig, kept, NULL);
	rig_close(&rig, 0);
}

/* Takes the turn, with next to nothing. */
static void *work_a_little(void *arg)
{
	for (int i = 0; i < 3; i++)
		rig_free(&rig, rig_alloc(&rig, 1000, NULL), NULL);
	return arg;
}

/* All hits: what a thread had reached and given back when the turn of another one began. */
static void peak_of_a_turn(void)
{
	uint64_t addr[40], misses = 0;

	rig_open(&rig, NULL);
	for (int round = 0; round < 2; round++) {
		misses = rig_figures(&rig).misses;
		glk_cache_reset_peaks(&rig.cache);
		for (int i = 0; i < 40; i++)
			addr[i] = rig_alloc(&rig, 1000, NULL);
		for (int i = 0; i < 40; i++)
			rig_free(&rig, addr[i], NULL);
	}
	run(work_a_little, NULL);
	ok(rig_figures(&rig).misses == misses, "nothing but hits");
	is_int((int64_t)rig_figures(&rig).peak_live, 40 * 1000,
		"the most of a turn that is over");
	rig_close(&rig, 0);
}

/* Has more than the first one, and gives it back. */
static void *reach(void *arg)
{
	struct turns *t = arg;

	for (int step = 0; step < 5; step++) {
		my_turn(t, 2 * step + 1);
		for (int i = 0; i < 40; i++)
			t->took[i] = rig_alloc(&rig, 1000, NULL);
		for (int i = 0; i < 40; i++)
			rig_free(&rig, t->took[i], NULL);
		your_turn(t);
	}
	return NULL;
}

/* Nobody asks for figures between two turns; and the first turn of all is short, since nobody was there before. */
static void peaks_nobody_asks_for(void)
{
	struct turns t = {
		.lock = PTHREAD_MUTEX_INITIALIZER, .next = PTHREAD_COND_INITIALIZER};
	pthread_t thread;

	rig_open(&rig, NULL);
	if (pthread_create(&thread, NULL, reach, &t))
		tap_bail("no thread");
	for (int step = 0; step < 6; step++) {
		my_turn(&t, 2 * step);
		if (step && step < 5)
			glk_cache_reset_peaks(&rig.cache);
		for (int i = 0; i < 10; i++)
			rig_free(&rig, rig_alloc(&rig, 1000, NULL), NULL);
		your_turn(&t);
	}
	pthread_join(thread, NULL);
	is_int((int64_t)rig_figures(&rig).peak_live, 40 * 1000,
		"the most of a turn is known after the next");
	rig_close(&rig, 0);
}

#define SIDE_BY_SIDE 4000

/* A request or a free, by turns. */
static void *step_by_step(void *arg)
{
	struct turns *t = arg;
	uint64_t addr = 0;

	for (int i = 0; i < SIDE_BY_SIDE; i++) {
		my_turn(t, 2 * i + 1);
		if (addr)
			rig_free(&rig, addr, NULL);
		addr = addr ? 0 : rig_alloc(&rig, 1000, NULL);
		your_turn(t);
	}
	return NULL;
}

/* Who takes the turn writes what all others read at each hit: side by side they do so seldom. */
static void turns_get_rare(void)
{
	struct turns t = {
		.lock = PTHREAD_MUTEX_INITIALIZER, .next = PTHREAD_COND_INITIALIZER};
	uint32_t changes = 0;
	uint64_t turn = 0, addr = 0;
	pthread_t thread;

	rig_open(&rig, NULL);
	if (pthread_create(&thread, NULL, step_by_step, &t))
		tap_bail("no thread");
	for (int i = 0; i < SIDE_BY_SIDE; i++) {
		my_turn(&t, 2 * i);
		changes += glk_load_relaxed(&rig.cache.seat_turn) != turn;
		if (addr)
			rig_free(&rig, addr, NULL);
		addr = addr ? 0 : rig_alloc(&rig, 1000, NULL);
		turn = glk_load_relaxed(&rig.cache.seat_turn);
		your_turn(&t);
	}
	pthread_join(thread, NULL);
	ok(changes < SIDE_BY_SIDE / 50, "%u turns in %d steps side by side", changes,
		SIDE_BY_SIDE);
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* What one has while the first has its own. */
static void *beside(void *arg)
{
	struct turns *t = arg;
	uint64_t addr;

	for (int i = 0; i < 100; i++) {
		my_turn(t, 2 * i + 1);
		addr = rig_alloc(&rig, 60 * MIB, NULL);
		rig_free(&rig, addr, NULL);
		your_turn(t);
	}
	return NULL;
}

/* All misses of threads whose turns are short and rare by then: each of them tells what is live. */
static void peak_of_misses(void)
{
	struct turns t = {
		.lock = PTHREAD_MUTEX_INITIALIZER, .next = PTHREAD_COND_INITIALIZER};
	uint64_t addr, hits, misses;
	unsigned wrong = 0;
	pthread_t thread;

	rig_open(&rig, NULL);
	addr = rig_alloc(&rig, 200 * MIB, NULL);
	rig_free(&rig, addr, NULL);
	hits = rig_figures(&rig).hits;
	misses = rig_figures(&rig).misses;
	if (pthread_create(&thread, NULL, beside, &t))
		tap_bail("no thread");
	for (int i = 0; i < 100; i++) {
		my_turn(&t, 2 * i);
		glk_cache_reset_peaks(&rig.cache);
		addr = rig_alloc(&rig, 100 * MIB, NULL);
		your_turn(&t);
		my_turn(&t, 2 * i + 2);
		rig_free(&rig, addr, NULL);
		wrong += rig_figures(&rig).peak_live != 160 * MIB;
	}
	pthread_join(thread, NULL);
	is_int((int64_t)(rig_figures(&rig).hits - hits), 0, "no request is a hit");
	is_int((int64_t)(rig_figures(&rig).misses - misses), 200, "all miss");
	is_int(wrong, 0, "and the most of two threads at once is known");
	rig_close(&rig, 0);
}

/* Two that work side by side: the peak is something that was reached, and no more. */
static void *at_work(void *arg)
{
	uint64_t kept[8] = {0};

	for (int i = 0; i < 4000; i++) {
		if (kept[i % 8])
			rig_free(arg, kept[i % 8], NULL);
		kept[i % 8] = rig_alloc(arg, 1000, NULL);
	}
	for (int i = 0; i < 8; i++)
		rig_free(arg, kept[i], NULL);
	return NULL;
}

static void peaks_side_by_side(void)
{
	pthread_t thread[3];
	uint64_t peak;

	rig_open(&rig, NULL);
	for (int i = 0; i < 3; i++)
		if (pthread_create(&thread[i], NULL, at_work, &rig))
			tap_bail("no thread");
	for (int i = 0; i < 3; i++)
		pthread_join(thread[i], NULL);
	peak = rig_figures(&rig).peak_live;
	tap_note("%llu bytes", (unsigned long long)peak);
	ok(peak >= 8000 && peak <= 24000, "three threads at once");
	rig_close(&rig, 0);
}

/* Two that share a place have it by turns: each time the seat at the other goes back. */
static void many_gpus(void)
{
	static struct glk_cache cache[GPUS];
	bool counted = true, sound = true, gone = true;
	uint64_t addr = 0;
	int host = 0;
	size_t live;

	memset(cache, 0, sizeof(cache));
	rig_open(&rig, (const char *const[]){"soft.gpus=20", NULL});
	glk_pool_fini(&rig.pool);
	if (glk_pool_init(&rig.pool, rig.drv, &rig.conf, GPUS, 1, &host))
		tap_bail("no pool");
	rig.cache.node = glk_pool_gpu(&rig.pool, 0);
	rig.cache.host = glk_pool_host(&rig.pool, 0);
	for (int i = 0; i < GPUS; i++) {
		if (glk_cache_init(&cache[i], rig.drv, &rig.pool, &rig.conf, i))
			tap_bail("no GPU");
	}
	for (int n = 0; n < 50; n++) {
		for (int i = 0; i < GPUS; i++) {
			if (glk_cache_alloc(&cache[i], 600 + (size_t)i, NULL, 0, &addr))
				tap_bail("no block");
			if (n)
				glk_cache_free(&cache[i], addr, NULL);
		}
	}
	for (int i = 0; i < GPUS; i++) {
		struct glake_stats s;

		glk_cache_figures(&cache[i], &s);
		counted &= s.allocs == 50 && s.frees == 49 && s.live == 600 + (size_t)i;
		sound &= !map_verify(&cache[i].arena.map);
		sound &= glk_load_relaxed(&cache[i].seats.used) == 1;
	}
	ok(counted, "one thread at %d GPUs: each has its figures", GPUS);
	ok(sound, "and one seat");
	for (int i = 0; i < GPUS; i++)
		gone &= !glk_cache_fini(&cache[i], &live) && live == 1;
	ok(gone, "each block is told at the end");
	rig_close(&rig, 0);
}

static void *work_without(void *arg)
{
	struct glake_stats before = rig_figures(&rig);
	uint64_t addr;

	work(arg);
	addr = rig_alloc(&rig, 9 * MIB, NULL);
	rig_free(&rig, addr, NULL);
	is_int(rig_figures(&rig).misses - before.misses, 12,
		"without a seat every request goes under the lock");
	return NULL;
}

/* No seat is to be had: served all the same, and counted. */
static void none_left(void)
{
	struct glk_seat *shared;
	struct glake_stats s;
	uint32_t max;

	rig_open(&rig, NULL);
	ok(rig_alloc(&rig, 100, NULL), "a block");
	max = rig.cache.seats.max;
	rig.cache.seats.max = 1;
	shared = glk_slab_at(&rig.cache.seats, 0);
	run(work_without, &rig);
	is_int(glk_load_relaxed(&shared->allocs), 12, "in the figures of seat 0");
	s = rig_figures(&rig);
	is_int(s.allocs, 13, "all are counted");
	is_int(s.frees, 11, "frees too");
	is_int(s.live, 1100, "and what is live");
	is_sound(&rig, "the books agree");
	rig.cache.seats.max = max;
	run(work, &rig);
	is_int(glk_load_relaxed(&shared->allocs), 12, "with one again it is left alone");
	is_int(rig_figures(&rig).allocs, 24, "all are counted");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 3);
}

/* Exact for one thread, at every request; for several it is what a miss has seen. */
static void peaks(void)
{
	uint64_t addr[3];

	rig_open(&rig, (const char *const[]){"policy.bins=4MiB", NULL});
	for (int i = 0; i < 3; i++)
		addr[i] = rig_alloc(&rig, 2 * MIB, NULL);
	for (int i = 0; i < 3; i++)
		rig_free(&rig, addr[i], NULL);
	glk_cache_reset_peaks(&rig.cache);
	is_int(rig_figures(&rig).peak_live, 0, "begun anew with nothing live");
	addr[0] = rig_alloc(&rig, 2 * MIB - 1, NULL);
	addr[1] = rig_alloc(&rig, 2 * MIB, NULL);
	rig_free(&rig, addr[0], NULL);
	addr[0] = rig_alloc(&rig, 2 * MIB - 7, NULL);
	is_int(rig_figures(&rig).hits, 3, "three hits");
	is_int(rig_figures(&rig).peak_live, 4 * MIB - 1, "are in the peak");
	run(work, &rig);
	ok(rig_figures(&rig).peak_live >= 4 * MIB - 7 + 1000,
		"and a second thread's miss");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 3);
}

static struct glk_row *row_of(struct CUstream_st *stream)
{
	return &rig.cache.rows[glk_stream_find(&rig.cache.streams, stream)];
}

/* Two streams with one hash: both are known to the thread that uses them by turns. */
static void one_hash(void)
{
	struct CUstream_st *one = NULL, *two = NULL, *all[60];
	const struct glk_seat *seat;

	rig_open(&rig, NULL);
	for (int i = 0; i < 60; i++) {
		all[i] = rig_stream(&rig);
		for (int k = 0; k < i && !two; k++) {
			if (glk_seat_hash(all[k]) != glk_seat_hash(all[i]) ||
				glk_seat_other(all[k]) == glk_seat_hash(all[i]))
				continue;
			one = all[k];
			two = all[i];
		}
	}
	if (!two)
		tap_bail("no two streams of one hash");
	rig_free(&rig, rig_alloc(&rig, 2 * MIB, NULL), NULL);
	rig_free(&rig, rig_alloc(&rig, 2 * MIB, one), one);
	rig_free(&rig, rig_alloc(&rig, 2 * MIB, two), two);
	seat = glk_hit_place(&rig.cache)->seat;
	ok(seat->rows[glk_seat_hash(two)] == row_of(two), "the last is in its place");
	ok(seat->rows[glk_seat_other(one)] == row_of(one), "the one before in another");
	is_int(glk_hit_stream(&rig.cache, seat, one), row_of(one) - rig.cache.rows,
		"where a free finds it");
	rig_free(&rig, rig_alloc(&rig, 2 * MIB, one), one);
	ok(seat->rows[glk_seat_hash(two)] == row_of(two), "and a request");
	is_int(glk_hit_stream(&rig.cache, seat, NULL),
		glk_load_relaxed(&rig.cache.legacy), "the legacy stream is known too");
	rig_close(&rig, 0);
}

int main(void)
{
	tap_plan_later();
	one_hash();
	two_at_once();
	frees_first();
	closes_under_threads();
	many_gpus();
	peaks_by_turns();
	peak_of_a_turn();
	peaks_nobody_asks_for();
	peak_of_misses();
	turns_get_rare();
	peaks_side_by_side();
	none_left();
	peaks();
	return tap_done();
}
