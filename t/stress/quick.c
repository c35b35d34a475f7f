/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Threads against the quick bins of one GPU, on streams of their own and on one they share.
 * Each block carries a mark at both ends, so memory given twice shows, and to a race detector
 * memory that is handed on without order. Blocks are freed by whoever comes; streams end while
 * others work; memory is trimmed. Between the rounds all threads free the same blocks at once,
 * and each block must be taken back from exactly one of them.
 */
#include "seed.h"
#include "unit/cache/rig.h"

#include <errno.h>
#include <pthread.h>

#define THREADS 6
#define ROUNDS	8
#define TURNS	STORM_SIZE(4000)
#define SHELF	64
#define DUELS	96

static struct rig rig;
static struct CUstream_st *shared;
static pthread_barrier_t meet;
static glk_atomic(uint64_t) shelf[SHELF]; /* blocks for whoever comes */
static glk_atomic(uint64_t) served, taken_back;
static glk_atomic(uint32_t) wrong, refused;

static struct {
	uint64_t addr;
	glk_atomic(uint32_t) freed;
} duel[DUELS];

struct mark {
	uint64_t value, size;
};

struct worker {
	pthread_t thread;
	int number;
	uint64_t state;
	struct CUstream_st *own;
};

static void count(const char *what)
{
	if (!glk_add_relaxed(&wrong, 1))
		tap_note("%s: %s", what, rig_error().text);
}

static uint64_t *last_word(const struct mark *m)
{
	return (uint64_t *)((char *)m + m->size) - 1;
}

/* Mostly sizes that come again, of all kinds. */
static size_t draw_size(uint64_t *state)
{
	static const size_t often[] = {64, 512, 4096, 4096, 20 << 10, 300 << 10, 2 * MIB,
		3 * MIB, 5 * MIB, 9 * MIB};
	uint64_t dice = seed_below(state, 100);

	if (dice < 75)
		return often[seed_below(state, 10)];
	return sizeof(struct mark) + 8 +
		seed_below(state, dice < 97 ? 64 << 10 : 6 * MIB) / 8 * 8;
}

static struct CUstream_st *draw_stream(struct worker *w)
{
	return seed_below(&w->state, 3) ? w->own : shared;
}

static uint64_t make(struct worker *w)
{
	uint32_t flags = seed_below(&w->state, 200) ? 0 : GLAKE_ALLOC_CONTIGUOUS;
	size_t size = draw_size(&w->state);
	struct mark *m;
	uint64_t addr;

	if (rig_try(&rig, size, draw_stream(w), flags, &addr)) {
		glk_add_relaxed(&refused, 1);
		return 0;
	}
	glk_add_relaxed(&served, 1);
	m = (void *)(uintptr_t)addr;
	m->value = seed_next(&w->state);
	m->size = size;
	*last_word(m) = m->value;
	return addr;
}

static void drop(uint64_t addr, struct CUstream_st *stream)
{
	const struct mark *m = (void *)(uintptr_t)addr;

	if (!addr)
		return;
	if (*last_word(m) != m->value)
		count("a block was given twice");
	if (rig_free(&rig, addr, stream))
		count("a block was refused");
	else
		glk_add_relaxed(&taken_back, 1);
}

static void renew(struct worker *w)
{
	const struct glk_drv_ops *ops = rig.drv->ops;

	glk_cache_stream_end(&rig.cache, w->own);
	if (ops->stream_free(rig.drv, 0, w->own) || ops->stream_new(rig.drv, 0, &w->own))
		count("no stream");
}

static void play(struct worker *w)
{
	uint64_t mine, unused;

	for (int n = 0; n < TURNS; n++) {
		mine = make(w);
		if (seed_below(&w->state, 3))
			mine = glk_xchg_acq_rel(
				&shelf[seed_below(&w->state, SHELF)], mine);
		drop(mine, draw_stream(w));
		if (!seed_below(&w->state, 300))
			renew(w);
		if (!seed_below(&w->state, 500) &&
			glk_cache_trim(&rig.cache, seed_below(&w->state, 200) * MIB,
				false, &unused))
			count("no trim");
	}
}

/* All free the same blocks, none of which can be given again meanwhile. */
static void fight(struct worker *w)
{
	unsigned first = (unsigned)seed_below(&w->state, 4);

	for (int i = w->number; i < DUELS; i += THREADS) {
		glk_store_relaxed(&duel[i].freed, 0);
		duel[i].addr = make(w);
	}
	pthread_barrier_wait(&meet);
	for (unsigned n = 0; n < DUELS; n++) {
		unsigned i = (n + first) % DUELS;
		int err;

		if (!duel[i].addr)
			continue;
		err = rig_free(&rig, duel[i].addr, draw_stream(w));
		if (!err)
			glk_add_relaxed(&duel[i].freed, 1);
		else if (err != -EINVAL ||
			rig_error().error_class != GLAKE_ERROR_DOUBLE_FREE)
			count("not the answer to a double free");
	}
	pthread_barrier_wait(&meet);
}

/* By one thread while the others wait. */
static void judge(void)
{
	for (int i = 0; i < DUELS; i++) {
		if (!duel[i].addr)
			continue;
		glk_add_relaxed(&taken_back, 1);
		if (glk_load_relaxed(&duel[i].freed) != 1)
			count("a block was not taken back once");
	}
	if (!rig_is_sound(&rig))
		count("the books");
}

static void *run(void *arg)
{
	struct worker *w = arg;

	for (int n = 0; n < ROUNDS; n++) {
		play(w);
		pthread_barrier_wait(&meet);
		fight(w);
		if (!w->number)
			judge();
		pthread_barrier_wait(&meet);
	}
	glk_cache_stream_end(&rig.cache, w->own);
	rig.drv->ops->stream_free(rig.drv, 0, w->own);
	return NULL;
}

int main(void)
{
	struct worker workers[THREADS] = {0};
	struct glake_stats s;
	uint64_t seed, unused;

	tap_plan_later();
	seed = seed_start();
	rig_open(&rig,
		(const char *const[]){"pool.budget=320MiB", "map.span=64GiB", NULL});
	shared = rig_stream(&rig);
	pthread_barrier_init(&meet, NULL, THREADS);
	for (int i = 0; i < THREADS; i++) {
		workers[i].number = i;
		workers[i].state = seed_thread(seed, (unsigned)i);
		if (rig.drv->ops->stream_new(rig.drv, 0, &workers[i].own) ||
			pthread_create(&workers[i].thread, NULL, run, &workers[i]))
			tap_bail("no thread");
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(workers[i].thread, NULL);
	s = rig_figures(&rig);
	is_int(glk_load_relaxed(&wrong), 0, "none given twice, none freed twice");
	ok(s.hits > s.allocs / 10, "%" PRIu64 " of %" PRIu64 " requests were hits",
		s.hits, s.allocs);
	for (int i = 0; i < SHELF; i++)
		drop(glk_load_relaxed(&shelf[i]), shared);
	s = rig_figures(&rig);
	is_int(s.allocs, glk_load_relaxed(&served), "the figures have all requests");
	is_int(s.frees, glk_load_relaxed(&taken_back), "and all frees");
	is_int(s.oom, glk_load_relaxed(&refused), "and those refused");
	is_int(s.live, 0, "nothing is live");
	is_int(s.live_blocks, 0, "no block");
	is_int(s.given, 0, "no byte");
	is_sound(&rig, "the books agree");
	is_int(glk_cache_trim(&rig.cache, 0, false, &unused), 0, "trimmed");
	s = rig_figures(&rig);
	ok(!s.quick && !s.reserved, "to nothing");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
	return tap_done();
}
