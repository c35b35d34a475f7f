/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Threads on one stream that ask for large blocks and free them, most of one size, so that they take, give and
 * settle the one that is kept; in between they trim, ask for figures, free twice, mark, pin, spill and capture.
 * Each block is written from end to end, so that two that share memory tell.
 */
#include "cache/away.h"

#include "unit/cache/plan_parts.h"

#include "seed.h"

#include <sched.h>
#include <stdlib.h>
#include <time.h>

#define THREADS 4
#define HELD	3
#define SIZE	(4 * MIB)

static struct rig rig;
static struct CUstream_st *a, *b;
static uint64_t seeds[THREADS];
static bool others; /* a second stream, and what brings one in */
static glk_atomic(bool) stop;
static glk_atomic(uint32_t) wrong, kept, served;
/* Blocks that one thread leaves for another one to free, by address; others are written anew. */
static glk_atomic(uint64_t) left[4];

static void count_error(const char *what)
{
	if (!glk_add_relaxed(&wrong, 1))
		tap_note("%s: %s", what, rig_error().text);
}

static void make(struct held *h, uint64_t *state)
{
	static const size_t sizes[] = {
		SIZE, SIZE, SIZE, SIZE, SIZE - 100, 6 * MIB, MIB, 9 * MIB};
	struct CUstream_st *s = others && !seed_below(state, 200) ? b : a;
	int err;

	h->size = sizes[seed_below(state, 8)];
	h->mark = seed_next(state);
	err = rig_try(&rig, h->size, s, 0, &h->addr);
	if (!err) {
		write_marks(h);
		glk_add_relaxed(&served, 1);
		return;
	}
	h->addr = 0;
	if (err != -ENOMEM)
		count_error("an error that is none of the documented ones");
}

/* Now and then on the other stream; once more where nobody else may have it by then. */
static void drop(struct held *h, uint64_t *state, bool alone)
{
	int err;

	if (!has_marks(h))
		count_error("memory of two blocks");
	if (!seed_below(state, 10) && rig_free(&rig, h->addr + 512, a) != -EINVAL)
		count_error("the inside of a block was freed");
	if (rig_free(&rig, h->addr, others && !seed_below(state, 100) ? b : a))
		count_error("a block refused");
	glk_add_relaxed(&kept, glk_load_relaxed(&rig.cache.latest.word) != 0);
	if (alone) {
		err = rig_free(&rig, h->addr, a);
		if (err != -EINVAL)
			count_error("a block was freed twice");
	}
	h->addr = 0;
}

/* Another thread frees it. */
static void hand_over(struct held *h, uint64_t *state)
{
	uint64_t addr;

	if (!has_marks(h))
		count_error("memory of two blocks");
	addr = glk_xchg_acq_rel(&left[seed_below(state, 4)], h->addr);
	h->addr = 0;
	if (addr && rig_free(&rig, addr, a))
		count_error("a block of another thread refused");
}

static void pin(const struct held *h)
{
	struct glk_pin pinned;

	if (glk_cache_pin(&rig.cache, h->addr, false, &pinned))
		count_error("no pin");
	else if (glk_cache_unpin(&rig.cache, h->addr))
		count_error("no unpin");
}

/* Away and back; where there is no room for it until the end, it is freed where it is. */
static void move(struct held *h)
{
	int err = glk_cache_spill(&rig.cache, h->addr, a);

	if (err == -ENOMEM)
		return;
	while (!err && (err = glk_cache_fetch(&rig.cache, h->addr, a)) == -ENOMEM &&
		!glk_load_relaxed(&stop)) {
		sched_yield();
		err = 0;
	}
	if (err && err != -ENOMEM)
		count_error("a block does not go and come back");
	if (err == -ENOMEM) {
		rig_free(&rig, h->addr, a);
		h->addr = 0;
	}
}

static void verify(void)
{
	glk_lock(&rig.cache.lock);
	glk_plan_close(&rig.cache);
	if (glk_map_verify(&rig.cache.arena.map))
		count_error("the books");
	glk_plan_open(&rig.cache);
	glk_unlock(&rig.cache.lock);
}

static void meddle(struct held *h, uint64_t *state)
{
	uint64_t unused;

	switch (seed_below(state, 24)) {
	case 0:
		glk_cache_trim(&rig.cache, seed_below(state, 80) * MIB, &unused);
		break;
	case 1:
		rig_flush(&rig);
		break;
	case 2:
		if (rig_figures(&rig).live > 4096 * MIB)
			count_error("figures");
		break;
	case 3:
		verify();
		break;
	case 4:
		if (h->addr)
			pin(h);
		break;
	case 5:
		if (h->addr && others && glk_cache_use(&rig.cache, h->addr, b))
			count_error("no mark");
		break;
	case 6:
		if (h->addr && others)
			move(h);
		break;
	default:
		break;
	}
}

static void *run(void *arg)
{
	uint64_t state = *(uint64_t *)arg;
	struct held held[HELD] = {0};

	while (!glk_load_relaxed(&stop) && !glk_load_relaxed(&wrong)) {
		struct held *h = &held[seed_below(&state, HELD)];

		if (!h->addr)
			make(h, &state);
		else if (seed_below(&state, 12))
			drop(h, &state, false);
		else
			hand_over(h, &state);
		if (!seed_below(&state, 8))
			meddle(h, &state);
	}
	for (int i = 0; i < HELD; i++) {
		if (held[i].addr)
			drop(&held[i], &state, false);
	}
	return NULL;
}

static void live(const char *name, unsigned threads, long ms, const char *const *settings)
{
	uint64_t seed = seed_start(), state = seed;
	struct timespec t = {.tv_nsec = 10000000};
	pthread_t thread[THREADS];
	struct held last = {0};
	struct rig_end end;

	rig_open(&rig, settings);
	a = rig_stream(&rig);
	b = others ? rig_stream(&rig) : NULL;
	glk_store_relaxed(&stop, false);
	glk_store_relaxed(&kept, 0);
	glk_store_relaxed(&served, 0);
	for (unsigned i = 0; i < threads; i++) {
		seeds[i] = seed_thread(seed, i);
		pthread_create(&thread[i], NULL, run, &seeds[i]);
	}
	for (; ms > 0 && !glk_load_relaxed(&wrong); ms -= 10)
		nanosleep(&t, NULL);
	glk_store_relaxed(&stop, true);
	for (unsigned i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
	for (int i = 0; i < 4; i++) {
		uint64_t addr = glk_xchg_acq_rel(&left[i], 0);

		if (addr && rig_free(&rig, addr, a))
			count_error("a block that was left refused");
	}
	make(&last, &state);
	if (last.addr)
		drop(&last, &state, true);
	tap_note("%s: %" PRIu32 " blocks, %" PRIu32 " frees behind which one was kept",
		name, glk_load_relaxed(&served), glk_load_relaxed(&kept));
	ok(others || glk_load_relaxed(&kept), "%s: blocks were kept", name);
	ok(!glk_load_relaxed(&wrong), "%s: blocks keep what was written", name);
	ok(!rig_figures(&rig).live, "%s: none is live", name);
	is_sound(&rig, "the books agree");
	end = rig_end(&rig);
	ok(!end.cache && !end.device && !end.live, "%s: all of it goes back", name);
}

int main(void)
{
	const char *long_run = getenv("GLAKE_TEST_MS");
	long ms = long_run ? atol(long_run) : STORM_SIZE(500);

	/* threads take turns there; the sanitizers see them all */
	if (tap_on_valgrind())
		tap_skip_all("takes too long here");
	tap_plan_later();
	live("one thread", 1, ms / 2, NULL);
	live("several", THREADS, ms, NULL);
	live("near the budget", THREADS, ms,
		(const char *const[]){"pool.budget=60MiB", NULL});
	live("few addresses", THREADS, ms, (const char *const[]){"map.span=1GiB", NULL});
	others = true;
	live("a second stream", THREADS, ms,
		(const char *const[]){"pool.budget=80MiB", NULL});
	return tap_done();
}
