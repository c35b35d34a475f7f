/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The figures against a walk over all tables, through a long and mixed life. */
#include "rig.h"

#include "seed.h"

#include <errno.h>

#define BLOCKS 200
#define ROUNDS 6000

struct held {
	uint64_t addr;
	size_t size;
	int stream;
};

static size_t draw_size(uint64_t *state)
{
	switch (seed_below(state, 4)) {
	case 0:
		return 1 + seed_below(state, MIB);
	case 1:
		return MIB + seed_below(state, 3 * MIB);
	case 2:
		return 4 * MIB + seed_below(state, 20 * MIB);
	default:
		return 1 + seed_below(state, 40 * MIB);
	}
}

/* One request or free, or something that moves memory behind both. False for an answer that a
 * full GPU does not give. */
static bool turn(struct rig *rig, struct held *held, uint64_t *state)
{
	struct held *h = &held[seed_below(state, BLOCKS)];
	uint64_t what = seed_below(state, 100), unused;
	int stream = (int)seed_below(state, 4);
	uint32_t flags = what < 5 ? GLAKE_ALLOC_CONTIGUOUS : 0;
	int err = 0;

	if (what == 99) {
		glk_cache_trim(&rig->cache, seed_below(state, 400) * MIB, false, &unused);
	} else if (what >= 90) {
		glk_soft_run_all(rig->drv);
	} else if (h->addr) {
		rig_work(rig, h->addr, h->size, rig->stream[h->stream]);
		rig_free(rig, h->addr, rig->stream[h->stream]);
		h->addr = 0;
	} else {
		h->size = draw_size(state);
		h->stream = stream;
		err = rig_try(rig, h->size, rig->stream[stream], flags, &h->addr);
		if (err)
			h->addr = 0;
		else
			rig_work(rig, h->addr, h->size, rig->stream[stream]);
	}
	return !err || err == -ENOMEM;
}

/* Whether the figures are those of the one who asked. */
static bool adds_up(struct rig *rig, const struct held *held)
{
	struct glake_stats s = rig_figures(rig);
	uint64_t live = 0, count = 0;

	for (int i = 0; i < BLOCKS; i++) {
		live += held[i].addr ? held[i].size : 0;
		count += held[i].addr != 0;
	}
	return s.live == live && s.live_blocks == count && s.allocs - s.frees == count &&
		s.hits + s.misses == s.allocs && s.reserved <= s.budget &&
		s.live <= s.given && s.given <= s.reserved && s.peak_live >= s.live &&
		s.peak_reserved >= s.reserved && s.pool_held <= s.reserved;
}

#define POOLS 3

struct pools {
	bool open[POOLS], capturing[POOLS];
	uint32_t graphs[POOLS];
};

/* A pool and the stream of its number take one step. */
static int step_pool(struct rig *rig, struct pools *p, uint64_t *state)
{
	unsigned n = (unsigned)seed_below(state, POOLS);
	struct CUstream_st *stream = rig->stream[n];
	uint32_t graph;

	if (p->capturing[n]) {
		graph = rig_capture_end(rig, stream);
		p->capturing[n] = false;
		if (!graph)
			return -EIO;
		glk_soft_run_all(rig->drv);
		rig_launch(rig, graph, stream);
		glk_soft_run_all(rig->drv);
		rig_drop(rig, graph);
		return 0;
	}
	if (p->open[n]) {
		p->open[n] = false;
		return rig_end_pool(rig, n + 1);
	}
	if (p->graphs[n] && seed_below(state, 3) == 0) {
		p->graphs[n]--;
		return rig_release(rig, n + 1);
	}
	p->open[n] = true;
	p->capturing[n] = true;
	p->graphs[n]++;
	if (rig_begin(rig, n + 1, stream))
		return -EIO;
	rig_capture(rig, stream);
	return 0;
}

/* With pools of graphs that come and go. */
#define agrees(reuse, seed, ...)                                                         \
	agrees_as(reuse, seed,                                                           \
		(const char *const[]){"soft.streams=stepped", "pool.budget=600MiB",      \
			"map.aliases=4", __VA_ARGS__})

static void agrees_as(const char *reuse, uint64_t seed, const char *const *settings)
{
	static struct held held[BLOCKS];
	uint64_t state = seed_thread(seed, 9);
	bool sound = true, right = true, answered = true;
	struct pools pools = {0};
	struct glake_stats s;
	struct rig rig;

	rig_open(&rig, settings);
	for (int i = 0; i < 4; i++)
		rig_stream(&rig);
	memset(held, 0, sizeof(held));
	for (int n = 0; n < tap_rounds(ROUNDS); n++) {
		if (seed_below(&state, 30) == 0)
			answered &= !step_pool(&rig, &pools, &state);
		else
			answered &= turn(&rig, held, &state);
		if (n % 50 == 0)
			sound &= rig_is_sound(&rig);
		if (n % 100 == 0)
			right &= adds_up(&rig, held);
	}
	s = rig_figures(&rig);
	tap_note("%" PRIu64 " pools hold %" PRIu64 " MiB of %" PRIu64 ", %" PRIu64
		 " refused",
		s.pools, s.pool_held >> 20, s.reserved >> 20, s.oom);
	ok(answered, "%s: requests are served or refused for want of memory", reuse);
	ok(sound, "%s: the figures are those of a walk", reuse);
	ok(right, "%s: and of the one who asked", reuse);
	ok(s.metadata > 0, "tables have a size");
	ok(s.hold_max > 0, "the lock was held");
	rig.cache.lock.hold_max = INT64_MAX;
	rig.cache.lock.longest = INT64_MAX;
	glk_cache_reset_peaks(&rig.cache);
	s = rig_figures(&rig);
	ok(s.hold_max < INT64_MAX, "for how long begins anew");
	ok(s.peak_live == s.live && s.peak_reserved == s.reserved, "peaks begin anew");
	for (unsigned n = 0; n < POOLS; n++) {
		if (pools.capturing[n])
			rig_drop(&rig, rig_capture_end(&rig, rig.stream[n]));
		if (pools.open[n])
			rig_end_pool(&rig, n + 1);
		while (pools.graphs[n]--)
			answered &= !rig_release(&rig, n + 1);
	}
	for (int i = 0; i < BLOCKS; i++) {
		if (held[i].addr)
			rig_free(&rig, held[i].addr, rig.stream[held[i].stream]);
	}
	s = rig_figures(&rig);
	ok(answered && !s.live && !s.given && !s.live_blocks,
		"nothing is live at the end");
	/* a free calls no driver, so a pool whose last block is freed late ends when memory is
	 * looked for */
	glk_cache_trim(&rig.cache, 0, false, &state);
	s = rig_figures(&rig);
	ok(!s.pools && !s.pool_held, "and no pool is left");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* Who reads figures and resets peaks changes nothing: the same requests have the same addresses and calls. */
static uint64_t played(uint64_t seed, bool reads)
{
	uint64_t state = seed_thread(seed, 9), sum = 0, base = 0;
	struct held held[BLOCKS] = {{0}};
	struct rig rig;

	rig_open(&rig, (const char *const[]){"policy.target=1.2", NULL});
	for (int i = 0; i < 4; i++)
		rig_stream(&rig);
	for (int n = 0; n < tap_rounds(ROUNDS); n++) {
		struct held *h = &held[seed_below(&state, BLOCKS)];

		if (h->addr) {
			rig_free(&rig, h->addr, NULL);
			h->addr = 0;
		} else {
			h->size = 1 + seed_below(&state, n % 2 ? 200 << 10 : 6 * MIB);
			h->addr = rig_alloc(&rig, h->size, NULL);
			base = base ? base : h->addr;
			sum = sum * 31 + h->addr - base;
		}
		if (reads) {
			rig_figures(&rig);
			glk_cache_reset_peaks(&rig.cache);
		}
	}
	sum = sum * 31 + rig_all_calls(&rig);
	for (int i = 0; i < BLOCKS; i++) {
		if (held[i].addr)
			rig_free(&rig, held[i].addr, NULL);
	}
	rig_end(&rig);
	return sum;
}

/* How often something was timed. */
static int64_t timed(struct rig *rig, enum glk_timed what)
{
	struct glake_histogram sum;

	glk_times_read(&rig->cache.times[what], &sum);
	return (int64_t)sum.count;
}

/* Each is counted when it happens, and only then. */
static void counts(void)
{
	struct CUstream_st *a;
	struct glake_stats s;
	uint64_t big, small, unused;
	struct rig rig;

	rig_open(&rig,
		(const char *const[]){"soft.streams=stepped", "policy.bins=1MiB", NULL});
	a = rig_stream(&rig);
	big = rig_alloc(&rig, 20 * MIB, a);
	small = rig_alloc(&rig, MIB, a);
	is_int(timed(&rig, GLK_TIMED_REQUEST), 2, "two requests took the lock");
	is_int((int64_t)rig_figures(&rig).total_given, 21 << 20, "so much was given");
	rig_free(&rig, small, a);
	is_int(timed(&rig, GLK_TIMED_FREE), 0, "a free to a bin does not");
	is_int((int64_t)rig_figures(&rig).flushes, 0, "which holds what it has");
	rig_flush(&rig);
	is_int((int64_t)rig_figures(&rig).flushes, 1, "until it gives that back");
	rig_flush(&rig);
	is_int((int64_t)rig_figures(&rig).flushes, 1, "and there is no more");
	is_int(glk_cache_spill(&rig.cache, big, a), 0, "a block goes");
	glk_soft_run_all(rig.drv);
	is_int(timed(&rig, GLK_TIMED_SPILL), 1, "once");
	is_int(glk_cache_fetch(&rig.cache, big, a), 0, "it comes back");
	glk_soft_run_all(rig.drv);
	is_int(timed(&rig, GLK_TIMED_FETCH), 1, "once");
	rig_work(&rig, big, 20 * MIB, a);
	rig_free(&rig, big, a);
	is_int(timed(&rig, GLK_TIMED_FREE), 1, "its free takes the lock");
	s = rig_figures(&rig);
	is_int((int64_t)s.total_given, 21 << 20, "nothing more was given");
	glk_cache_trim(&rig.cache, 0, false, &unused);
	ok(rig_figures(&rig).held_back > s.held_back,
		"a trim finds what is not ready to go");
	glk_soft_run_all(rig.drv);
	glk_cache_trim(&rig.cache, 0, false, &unused);
	s = rig_figures(&rig);
	is_int((int64_t)s.reserved, 0, "until it is");
	glk_cache_trim(&rig.cache, 0, false, &unused);
	is_int((int64_t)(rig_figures(&rig).held_back - s.held_back), 0,
		"and then nothing is held back");
	is_int(timed(&rig, GLK_TIMED_REQUEST), 2, "nothing else was asked for");
	ok(timed(&rig, GLK_TIMED_HOLD) > 8, "each of these had its turns of the lock");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* A request takes from when it comes: with the question of what its stream does. */
static void takes_all_of_it(void)
{
	struct glake_histogram sum;
	struct CUstream_st *a;
	struct rig rig;
	uint64_t addr;

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	glk_fault_set(rig.drv, "stream_facts:from=1:delay=1000");
	for (int i = 0; i < 40; i++) {
		addr = rig_alloc(&rig, 20 * MIB, a);
		rig_free(&rig, addr, a);
	}
	glk_times_read(&rig.cache.times[GLK_TIMED_REQUEST], &sum);
	is_int((int64_t)sum.count, 40, "each request is told of");
	ok(sum.sum >= 40 * 1000000,
		"with the 1 ms that the driver was asked for: %" PRIu64, sum.sum / 40);
	rig_close(&rig, 0);
}

int main(void)
{
	uint64_t seed;

	tap_plan_later();
	seed = seed_start();
	counts();
	takes_all_of_it();
	agrees("wait", seed, NULL);
	agrees("done", seed, RIG_DONE, NULL);
	agrees("alone", seed, RIG_ALONE, NULL);
	ok(played(seed, false) == played(seed, true), "reading figures changes nothing");
	return tap_done();
}
