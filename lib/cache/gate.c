/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A stream stops at a gate behind the work that was queued before a free. A thread that sees it there takes the mappings
 * of the block away, and opens the gate. The driver's unmap does not wait for streams (t/gpu/gates), so neither waits for
 * the other, and the thread takes no lock between the two that anybody keeps while he waits for the GPU. What is left to
 * do in the tables it does afterwards.
 *
 * The mapping is taken out of the tables when the gate is queued: until it is gone the page is nobody's, and its slots
 * are those of a plan under way. So whoever needs the memory waits as he does for other plans.
 *
 * Threads	one puts gates, under the lock of the GPU, and one takes them. It turns while a gate is about to be
 *		reached, and sleeps some microseconds between two looks while that takes longer
 * Cost		3 us of the caller; of the stream, an unmap and 5 us: 25 us on an H200
 */
#include "cache/gate.h"

#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "cache/cache.h"

#include <errno.h>
#include <sched.h>
#include <sys/prctl.h>

/* At a time; and the part of the memory of the GPU that they may hold back. */
#define GATES 512
#define PART  32
/* Looks without a rest, which take some 30 us, and looks after which the GPU is asked whether it is still there. */
#define TURNS 200
#define ASK   2000
#define BYTES ((size_t)4096) /* that are locked */

struct glk_gates {
	struct glk_cache *cache;
	struct glk_drv_gate *gate;
	pthread_t thread;
	struct glk_lock lock;
	pthread_cond_t wake, booked;
	bool rests, ends; /* under `lock` */
	bool refused;	  /* by the driver, once: it has none */
	uint64_t bytes;	  /* that they hold back */
	/* Of the last one that the driver was asked for: what it refuses may have been queued in part, and is none's. */
	uint32_t number;
	/* Of those that there were: put, under the lock of the GPU; and gone, by the thread. */
	glk_atomic(uint32_t) put, gone;
	struct {
		struct glk_map *map;
		struct glk_stretch run;
		uint64_t addr;
		uint32_t number;
		int err; /* of the driver, when it was to go */
	} ring[GATES];
};

/* ---- The thread ---- */

/* In the tables too, and whoever waited for that goes on. Not while somebody has the lock, who may wait for the stream: whether
 * that is so. */
static bool book(struct glk_gates *g, uint32_t from, uint32_t to)
{
	struct glk_cache *cache = g->cache;

	if (!glk_lock_try(&cache->lock))
		return false;
	for (uint32_t i = from; i != to; i++) {
		struct glk_map *map = g->ring[i % GATES].map;
		struct glk_stretch run = g->ring[i % GATES].run;
		uint64_t bytes = (uint64_t)(run.last - run.first + 1) << map->shift;
		int err = g->ring[i % GATES].err;

		glk_mapping_gone(map, run.first, run.last, err, false);
		cache->streams.unmapped += err ? 0 : bytes;
		g->bytes -= bytes;
		glk_plan_end(cache);
		glk_plan_leave(cache);
	}
	glk_store_relaxed(&g->gone, to);
	pthread_cond_broadcast(&g->booked);
	glk_unlock(&cache->lock);
	return true;
}

static bool is_lost(const struct glk_gates *g)
{
	struct glk_drv *drv = g->cache->drv;
	size_t free, total;

	return drv->ops->memory_info(drv, g->cache->device, &free, &total) == -ENODEV;
}

/* Those that were reached go, and are opened one by one. */
static uint32_t open_reached(struct glk_gates *g, uint32_t from, uint32_t put, bool lost)
{
	for (; from != put; from++) {
		struct glk_stretch run = g->ring[from % GATES].run;
		uint32_t number = g->ring[from % GATES].number;

		/* pairs with: the stream */
		if (!lost &&
			!glk_drv_gate_reached(number, glk_load_acquire(&g->gate->at)))
			break;
		g->ring[from % GATES].err = glk_mapping_unmap(g->ring[from % GATES].map,
			g->ring[from % GATES].addr, run.last - run.first + 1);
		glk_store_release(&g->gate->open, number); /* pairs with: the same */
	}
	return from;
}

static bool is_any(const struct glk_gates *g)
{
	/* pairs with: the release in glk_gate_put */
	return glk_load_acquire(&g->put) != glk_load_relaxed(&g->gone);
}

/* Until there is one to come, and whether there is. */
static bool rest(struct glk_gates *g)
{
	if (is_any(g))
		return true;
	glk_lock(&g->lock);
	while (!is_any(g) && !g->ends) {
		g->rests = true;
		glk_lock_wait(&g->lock, &g->wake);
		g->rests = false;
	}
	glk_unlock(&g->lock);
	return is_any(g);
}

static void *run(void *arg)
{
	static const struct timespec soon = {.tv_nsec = 5000};
	struct glk_gates *g = arg;
	uint32_t looks = 0, from = glk_load_relaxed(&g->gone), to, gone;

	/* a sleep would take 50 us more */
	prctl(PR_SET_TIMERSLACK, 1);
	while (rest(g)) {
		bool lost = ++looks % ASK == 0 && is_lost(g);

		/* pairs with: the release in glk_gate_put */
		to = open_reached(g, from, glk_load_acquire(&g->put), lost);
		looks = to != from ? 0 : looks;
		from = to;
		gone = glk_load_relaxed(&g->gone);
		if ((gone != to && book(g, gone, to)) || !looks)
			continue;
		if (looks < TURNS)
			sched_yield();
		else
			nanosleep(&soon, NULL);
	}
	return NULL;
}

/* ---- Who frees ---- */

/* The one stream of a use, which a gate may be put on now; NULL: there is none. */
static struct glk_stream *stream_of(struct glk_gates *g, const struct glk_use *use)
{
	struct glk_streams *streams = &g->cache->streams;
	bool alone = use->streams && !(use->streams & (use->streams - 1)) &&
		!(use->streams & GLK_USE_CROWD) && glk_clock_alone(streams);
	struct glk_stream *s;

	if (!alone)
		return NULL;
	s = glk_stream_at(streams, streams->by_bit[__builtin_ctzll(use->streams)]);
	return glk_event_here(s) && !glk_event_ready(streams, s) ? s : NULL;
}

/* Whether nothing but whole mappings of the GPU lies there, none of which anybody uses. */
static bool is_whole(const struct glk_map *map, struct glk_stretch run)
{
	for (uint32_t slot = run.first; slot <= run.last; slot++) {
		if (!glk_bit_get(map->mapped, slot) || !map->page[slot] ||
			glk_bit_get(map->busy, slot) || glk_bit_get(map->host, slot))
			return false;
	}
	return glk_mapping_at(map, run.first).first == run.first &&
		glk_mapping_at(map, run.last).last == run.last;
}

/* The stream of a gate for a run; NULL: there is to be none. */
static struct glk_stream *find_stream(struct glk_gates *g, const struct glk_map *map,
	struct glk_stretch run, const struct glk_use *use)
{
	return g->refused || g->cache->plans.closed || !is_whole(map, run)
		? NULL
		: stream_of(g, use);
}

static bool is_full(const struct glk_gates *g, uint64_t bytes)
{
	return glk_load_relaxed(&g->put) - glk_load_relaxed(&g->gone) == GATES ||
		(g->bytes && g->bytes + bytes > g->cache->memory / PART);
}

bool glk_gate_put(struct glk_gates *g, struct glk_arena *arena, struct glk_stretch run,
	const struct glk_use *use)
{
	struct glk_cache *cache = g->cache;
	uint64_t bytes = (uint64_t)(run.last - run.first + 1) << arena->map.shift;
	struct glk_stream *s = find_stream(g, &arena->map, run, use);
	uint32_t put;
	int err;

	while (s && is_full(g, bytes)) {
		glk_lock_wait(&cache->lock, &g->booked);
		s = find_stream(g, &arena->map, run, use);
	}
	if (!s)
		return false;
	err = cache->drv->ops->gate(
		cache->drv, cache->device, s->handle, g->gate, ++g->number);
	g->refused |= err == -EOPNOTSUPP;
	if (err)
		return false;
	cache->plans.inside++;
	glk_plan_begin(cache);
	glk_mapping_detach(&arena->map, run.first, run.last);
	put = glk_load_relaxed(&g->put);
	g->ring[put % GATES].number = g->number;
	g->ring[put % GATES].map = &arena->map;
	g->ring[put % GATES].run = run;
	g->ring[put % GATES].addr = glk_slot_addr(&arena->map, run.first);
	g->bytes += bytes;
	glk_lock(&g->lock);
	/* pairs with: the acquires of the thread */
	glk_store_release(&g->put, put + 1);
	if (g->rests)
		pthread_cond_signal(&g->wake);
	glk_unlock(&g->lock);
	return true;
}

/* ---- Life ---- */

struct glk_gates *glk_gates_new(struct glk_cache *cache)
{
	struct glk_gates *g = glk_region_new(sizeof(*g));
	int err = g ? 0 : -ENOMEM;

	if (err)
		return NULL;
	g->cache = cache;
	g->gate = glk_region_new(BYTES);
	if (!g->gate)
		goto free;
	err = cache->drv->ops->host_lock(cache->drv, cache->device, g->gate, BYTES);
	if (err)
		goto free_gate;
	glk_lock_init(&g->lock, GLK_RANK_NODE);
	glk_lock_cond_init(&g->wake);
	glk_lock_cond_init(&g->booked);
	err = glk_thread_start(&g->thread, "glake-gate", run, g);
	if (!err)
		return g;
	pthread_cond_destroy(&g->booked);
	pthread_cond_destroy(&g->wake);
	glk_lock_fini(&g->lock);
	cache->drv->ops->host_unlock(cache->drv, cache->device, g->gate);
free_gate:
	glk_region_free(g->gate, BYTES);
free:
	glk_region_free(g, sizeof(*g));
	return NULL;
}

void glk_gates_end(struct glk_gates *g)
{
	if (!g)
		return;
	glk_lock(&g->lock);
	g->ends = true;
	pthread_cond_signal(&g->wake);
	glk_unlock(&g->lock);
	pthread_join(g->thread, NULL);
	g->cache->drv->ops->host_unlock(g->cache->drv, g->cache->device, g->gate);
	pthread_cond_destroy(&g->booked);
	pthread_cond_destroy(&g->wake);
	glk_lock_fini(&g->lock);
	glk_region_free(g->gate, BYTES);
	glk_region_free(g, sizeof(*g));
}
