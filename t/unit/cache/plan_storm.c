/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Plans of several threads, whose calls of the driver are held up and fail by chance, near the
 * budget. Each block is written from end to end, so that two of them that share memory tell.
 */
#include "plan_parts.h"

#include "cache/ahead.h"

#include "seed.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#define THREADS 4
#define STREAMS 6
#define HELD	12
#define LIVES	4

static struct rig rig;
static struct CUstream_st *streams[STREAMS], *own[THREADS];
static uint64_t seeds[THREADS];
static bool changes; /* of the budget and of rights, and captures */
static glk_atomic(bool) stop;
static glk_atomic(uint32_t) wrong, refused, served, captured;
static uint64_t seed, budget;

static void count_error(const char *what)
{
	if (!glk_add_relaxed(&wrong, 1))
		tap_note("%s: %s", what, rig_error().text);
}

static size_t draw_size(uint64_t *state)
{
	switch (seed_below(state, 6)) {
	case 0:
		return 512 + seed_below(state, 8 << 10);
	case 1:
		return 512 + seed_below(state, 256 << 10);
	case 2:
		return 512 + seed_below(state, 3 * MIB);
	case 3:
		return 2 * MIB * (1 + seed_below(state, 8));
	case 4:
		return 512 + seed_below(state, 24 * MIB);
	default:
		return 512 + seed_below(state, 64 * MIB);
	}
}

static void drop(struct held *h, uint64_t *state)
{
	if (!has_marks(h))
		count_error("memory of two blocks");
	if (rig_free(&rig, h->addr, streams[seed_below(state, STREAMS)]))
		count_error("a block refused");
	h->addr = 0;
}

static void make(struct held *h, uint64_t *state)
{
	uint32_t flags = seed_below(state, 25) ? 0 : GLAKE_ALLOC_CONTIGUOUS;
	int err;

	h->size = draw_size(state);
	h->mark = seed_next(state);
	err = rig_try(
		&rig, h->size, streams[seed_below(state, STREAMS)], flags, &h->addr);
	if (!err) {
		glk_add_relaxed(&served, 1);
		write_marks(h);
		return;
	}
	h->addr = 0;
	glk_add_relaxed(&refused, 1);
	if (err != -ENOMEM && err != -EIO && err != -EBUSY)
		count_error("an error that is none of the documented ones");
}

/* All tables are whole between requests. */
static void verify(void)
{
	glk_lock(&rig.cache.lock);
	glk_plan_close(&rig.cache);
	if (map_verify(&rig.cache.arena.map))
		count_error("the books");
	glk_plan_open(&rig.cache);
	glk_unlock(&rig.cache.lock);
}

/* A pool of a graph, on a stream that nobody else has: captured, replayed, and gone. `n` is the
 * thread's own number. */
static void capture(unsigned n, uint64_t *state)
{
	struct CUstream_st *s = own[n];
	uint64_t pool = n + 1;
	struct held held[3] = {0};
	uint32_t graph;
	int count = 0;

	if (rig_begin(&rig, pool, s)) {
		count_error("a pool refused");
		return;
	}
	if (glk_soft_capture_begin(rig.drv, 0, s)) {
		rig_end_pool(&rig, pool);
		rig_release(&rig, pool);
		return;
	}
	for (; count < 3; count++) {
		struct held *h = &held[count];

		h->size = draw_size(state) / 2 + 512;
		h->mark = seed_next(state);
		if (rig_try(&rig, h->size, s, 0, &h->addr))
			break;
		write_marks(h);
		if (!seed_below(state, 3) && has_marks(h) && !rig_free(&rig, h->addr, s))
			h->addr = 0;
	}
	if (glk_soft_capture_end(rig.drv, 0, s, &graph))
		count_error("a capture was broken");
	if (rig_end_pool(&rig, pool))
		count_error("a pool did not end");
	for (int i = 0; i < count; i++) {
		if (held[i].addr && !has_marks(&held[i]))
			count_error("memory of two blocks, one of a pool");
		if (held[i].addr && rig_free(&rig, held[i].addr, s))
			count_error("a block of a pool refused");
	}
	if (glk_soft_graph_free(rig.drv, graph))
		count_error("no graph");
	rig_release(&rig, pool);
	glk_add_relaxed(&captured, 1);
}

/* Rights change by mapping the memory of the software device once more, which ThreadSanitizer takes
 * for a write. */
#ifdef __SANITIZE_THREAD__
#define PEERS 0
#else
#define PEERS 1
#endif

/* What changes for all: the budget, the rights of a peer, the figures. */
static void change(uint64_t *state)
{
	struct glake_stats s;

	switch (seed_below(state, 4)) {
	case 0:
		glk_store_relaxed(
			&rig.cache.node->budget, budget / 4 + seed_below(state, budget));
		break;
	case 1:
		glk_store_relaxed(&rig.cache.node->budget, budget);
		break;
	case 2:
		if (PEERS)
			glk_cache_peer(&rig.cache, 1, seed_below(state, 2));
		break;
	default:
		glk_cache_reset_peaks(&rig.cache);
		s = rig_figures(&rig);
		if (s.free_pages > s.mapped + s.reserved)
			count_error("figures");
	}
}

static void *run(void *arg)
{
	unsigned n = (unsigned)((uint64_t *)arg - seeds);
	uint64_t state = *(uint64_t *)arg, unused;
	struct held held[HELD] = {0};

	while (!glk_load_relaxed(&stop) && !glk_load_relaxed(&wrong)) {
		struct held *h = &held[seed_below(&state, HELD)];
		uint64_t what = seed_below(&state, 400);

		if (h->addr)
			drop(h, &state);
		else
			make(h, &state);
		if (what == 0)
			verify();
		else if (what < 6)
			glk_cache_trim(&rig.cache, seed_below(&state, 400) * MIB, false,
				&unused);
		else if (what < 12)
			rig_flush(&rig);
		else if (changes && what < 18)
			change(&state);
		else if (changes && what < 24)
			capture(n, &state);
	}
	for (int i = 0; i < HELD; i++) {
		if (held[i].addr)
			drop(&held[i], &state);
	}
	return NULL;
}

static void *run_device(void *arg)
{
	while (!glk_load_relaxed(&stop)) {
		glk_soft_run_all(rig.drv);
		sched_yield();
	}
	return NULL;
}

static void sleep_ms(long ms)
{
	struct timespec t = {ms / 1000, ms % 1000 * 1000000};

	nanosleep(&t, NULL);
}

/* `keeps`: the driver may keep memory. */
static void live(const char *name, bool keeps, long ms, const char *const *settings)
{
	static const char *const delays =
		"create:p=300000:delay=800:seed=%d;map:p=200000:delay=600:seed=%d;"
		"set_access:p=200000:delay=600:seed=%d;unmap:p=300000:delay=800:seed=%d;"
		"release:p=200000:delay=500:seed=%d;create:p=%d:err=%s;map:p=%d;"
		"set_access:p=%d";
	static const char *const kept = ";unmap:p=%d;release:p=%d";
	pthread_t thread[THREADS], device;
	uint64_t state = seed_thread(seed, 77);
	char rules[512];
	int used, n = (int)seed_below(&state, 1000);
	struct rig_end end;

	rig_open(&rig, settings);
	for (int i = 0; i < STREAMS; i++)
		streams[i] = rig_stream(&rig);
	for (int i = 0; i < THREADS; i++)
		own[i] = rig_stream(&rig);
	budget = glk_load_relaxed(&rig.cache.node->budget);
	changes = budget != UINT64_MAX;
	glk_store_relaxed(&stop, false);
	glk_store_relaxed(&wrong, 0);
	glk_store_relaxed(&served, 0);
	glk_store_relaxed(&refused, 0);
	used = snprintf(rules, sizeof(rules), delays, n, n + 1, n + 2, n + 3, n + 4, 8000,
		seed_below(&state, 2) ? "EIO" : "ENOMEM", 8000, 8000);
	if (keeps)
		snprintf(rules + used, sizeof(rules) - (size_t)used, kept, 2000, 2000);
	if (glk_fault_set(rig.drv, rules))
		tap_bail(rig_error().text);
	pthread_create(&device, NULL, run_device, NULL);
	for (unsigned i = 0; i < THREADS; i++) {
		seeds[i] = seed_thread(seed, i);
		pthread_create(&thread[i], NULL, run, &seeds[i]);
	}
	for (; ms > 0 && !glk_load_relaxed(&wrong); ms -= 10)
		sleep_ms(10);
	glk_store_relaxed(&stop, true);
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	pthread_join(device, NULL);
	glk_fault_set(rig.drv, "off");
	glk_store_relaxed(&rig.cache.node->budget, budget);
	glk_ahead_stop(&rig.cache);
	tap_note("%s: %" PRIu32 " served, %" PRIu32 " refused, %" PRIu32
		 " pools, %" PRIu64 " stitched, %" PRIu64 " MiB lost",
		name, glk_load_relaxed(&served), glk_load_relaxed(&refused),
		glk_load_relaxed(&captured), rig_figures(&rig).stitches,
		rig_figures(&rig).lost >> 20);
	is_int(glk_load_relaxed(&wrong), 0, "blocks keep what was written");
	ok(keeps || !rig_figures(&rig).lost, "%s: nothing is lost", name);
	is_sound(&rig, "the books agree");
	end = rig_end(&rig);
	ok(!end.cache && !end.device && !end.live, "%s: all of it goes back", name);
	tap_expect_log(tap.logs - tap.expected);
}

int main(void)
{
	const char *long_run = getenv("GLAKE_TEST_MS");
	long ms = long_run ? atol(long_run) : STORM_SIZE(1200);

	/* threads take turns there; the sanitizers see them all */
	if (tap_on_valgrind())
		tap_skip_all("takes too long here");
	tap_plan_later();
	seed = seed_start();
	live("near the budget", false, ms,
		(const char *const[]){"soft.streams=stepped", "soft.gpus=2",
			"pool.budget=600MiB", "map.aliases=4", "map.span=64GiB", NULL});
	live("few addresses", false, ms,
		(const char *const[]){"soft.streams=stepped", "soft.gpus=2",
			"pool.budget=400MiB", "map.span=1GiB", "policy.bins=0", NULL});
	live("without a budget", false, ms,
		(const char *const[]){"soft.streams=stepped", "soft.memory=600MiB",
			"policy.target=1", "map.span=4GiB", NULL});
	live("patient", false, ms,
		(const char *const[]){"soft.streams=stepped", "soft.gpus=2",
			"pool.budget=500MiB", "stream.opportunistic=no", "map.aliases=2",
			NULL});
	live("ahead", false, ms,
		(const char *const[]){"soft.streams=stepped", "soft.gpus=2",
			"pool.budget=600MiB", "pool.ahead=64MiB", "map.span=2GiB", NULL});
	live("keeps memory", true, ms,
		(const char *const[]){"soft.streams=stepped", "soft.gpus=2",
			"pool.budget=900MiB", "map.aliases=3", "map.span=8GiB", NULL});
	return tap_done();
}
