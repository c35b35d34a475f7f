/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The thread that gives memory back while the program rests: see rest.h. */
#include "cache/rest.h"

#include "base/conf.h"
#include "base/log.h"
#include "base/thread.h"
#include "cache/arena/request.h"
#include "cache/bin/own.h"
#include "cache/bin/quick.h"
#include "cache/cache.h"

#include <errno.h>

/* Free pages that go before the next look whether a request came. */
#define PORTION (UINT64_C(64) << 20)

/* Bytes that are held, lie idle, and are more than is wanted beside what is in use. */
static uint64_t excess(struct glk_cache *cache)
{
	uint64_t held = glk_node_own(cache->node);
	uint64_t idle = glk_arena_idle(&cache->arena, cache->node);
	uint64_t used = held > idle ? held - idle : 0;
	uint64_t keep = used + glk_fill_above(cache, used) + cache->conf->pool_ahead;

	return held > keep ? held - keep : 0;
}

struct giving {
	struct glk_limbo limbo;
	struct glk_cache *cache;
	uint64_t served; /* when it began */
	uint64_t left;	 /* bytes */
};

static bool goes_on(const struct giving *g)
{
	return g->left && !g->cache->rest.stop && g->cache->served == g->served;
}

static void take(struct giving *g, uint64_t bytes)
{
	g->left -= bytes < g->left ? bytes : g->left;
}

/* What the GPU is not done with yet is for the next time. */
static enum glk_idle_answer give_one(struct glk_map *map, uint32_t page, void *arg)
{
	struct giving *g = arg;
	uint64_t size = glk_map_page(map, page)->size;
	int err = glk_limbo_release(&g->limbo, map, page);

	if (!err)
		take(g, size);
	else if (err != -EAGAIN)
		g->left = 0; /* the driver fails: not page after page */
	glk_plan_step(g->cache);
	return goes_on(g) ? GLK_IDLE_NEXT : GLK_IDLE_STOP;
}

/* Pages that are mapped nowhere, and then those that became idle first. */
static void give(struct giving *g)
{
	const struct glk_idle_walk walk = {.of = GLK_OF_NODE, .groups = UINT32_MAX};
	struct glk_cache *cache = g->cache;
	uint64_t given = 1;

	while (given && goes_on(g)) {
		given = glk_trim_drain(
			cache, cache->node, g->left < PORTION ? g->left : PORTION);
		take(g, given);
	}
	if (goes_on(g))
		glk_idle_each(&cache->arena.map, &walk, give_one, g);
}

/* Whether more waits in bins than may be held beside what is live. */
static bool hoards(struct glk_cache *cache, const struct glk_seats *sum)
{
	uint64_t taken = glk_own_taken(cache);

	return taken > sum->given &&
		taken - sum->given > glk_fill_above(cache, sum->given);
}

static void give_back(struct glk_cache *cache, bool flush)
{
	struct giving g = {.limbo = GLK_LIMBO(&cache->streams),
		.cache = cache,
		.served = cache->served};

	if (!flush && !excess(cache))
		return;
	/* that nobody asks for memory is a time to wait for what no event tells of */
	glk_clock_sync_ended(&cache->streams, UINT64_MAX);
	glk_plan_enter(cache);
	glk_plan_begin(cache);
	if (flush)
		glk_quick_flush(cache);
	glk_event_poll_whole(&cache->streams, false);
	g.left = excess(cache);
	if (goes_on(&g))
		give(&g);
	glk_plan_end(cache);
	glk_plan_leave(cache);
}

/* Whether there may be something to give back. */
static bool is_due(struct glk_cache *cache)
{
	return glk_node_own(cache->node) > glk_fill_above(cache, 0);
}

/* A turn of the thread. */
static void look(struct glk_cache *cache)
{
	struct glk_rest *rest = &cache->rest;
	uint64_t served = cache->served;
	struct glk_seats before, now;

	rest->asleep = !rest->ns || !is_due(cache);
	if (rest->asleep) {
		glk_lock_wait(&cache->lock, &rest->wake);
		return;
	}
	glk_seats_sum(cache, &before);
	if (glk_lock_wait_for(&cache->lock, &rest->wake, rest->ns) ||
		served != cache->served || glk_load_relaxed(&cache->suspended))
		return;
	glk_seats_sum(cache, &now);
	glk_fill_settle(cache);
	give_back(cache,
		now.allocs == before.allocs && now.frees == before.frees &&
			hoards(cache, &now));
}

static void *run(void *arg)
{
	struct glk_cache *cache = arg;

	glk_lock(&cache->lock);
	while (!cache->rest.stop)
		look(cache);
	glk_unlock(&cache->lock);
	return NULL;
}

bool glk_rest_note(struct glk_cache *cache)
{
	const struct glk_rest *rest = &cache->rest;

	return rest->ns && (rest->runs ? rest->asleep : !rest->none && !rest->stop) &&
		is_due(cache);
}

void glk_rest_wake(struct glk_cache *cache)
{
	struct glk_rest *rest = &cache->rest;
	int err = 0;

	glk_lock(&cache->lock);
	if (rest->runs) {
		pthread_cond_signal(&rest->wake);
	} else if (glk_rest_note(cache)) {
		/* it waits for the lock */
		err = glk_thread_start(&rest->thread, "glake-rest", run, cache);
		rest->runs = !err;
		rest->none = err;
	}
	glk_unlock(&cache->lock);
	if (err)
		glk_warn("GPU %d: no thread to give memory back: error %d", cache->device,
			err);
}

void glk_rest_set(struct glk_cache *cache, int64_t ns)
{
	glk_lock(&cache->lock);
	cache->rest.ns = ns;
	glk_unlock(&cache->lock);
	glk_rest_wake(cache);
}

void glk_rest_init(struct glk_cache *cache)
{
	cache->rest.ns = cache->conf->pool_rest;
	glk_lock_cond_init(&cache->rest.wake);
}

void glk_rest_stop(struct glk_cache *cache)
{
	struct glk_rest *rest = &cache->rest;

	glk_lock(&cache->lock);
	rest->stop = true;
	pthread_cond_signal(&rest->wake);
	glk_unlock(&cache->lock);
	if (rest->runs)
		pthread_join(rest->thread, NULL);
	rest->runs = false;
}

void glk_rest_fini(struct glk_cache *cache)
{
	pthread_cond_destroy(&cache->rest.wake);
}
