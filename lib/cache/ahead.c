/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The thread that makes pages before they are needed: see ahead.h. */
#include "cache/ahead.h"

#include "base/conf.h"
#include "base/log.h"
#include "base/thread.h"
#include "cache/cache.h"

#include <errno.h>
#include <string.h>

/* ns between two looks while hints wait. */
#define LOOK 1000000

static bool may_grow(struct glk_ahead *a)
{
	const struct glk_cache *cache = a->cache;
	uint64_t held = glk_load_relaxed(&cache->node->held);
	uint64_t limit = glk_node_most(cache->node);
	uint64_t page = (uint64_t)a->slots << cache->arena.map.shift;

	if (limit > cache->memory)
		limit = cache->memory;
	if (held != a->refused)
		a->refused = 0;
	return !a->refused &&
		glk_arena_idle(&cache->arena, cache->node) + page <= (uint64_t)a->part
			<< cache->arena.map.shift &&
		a->size + page <= limit && held <= limit - a->size - page;
}

/* The next slots to fill: a large page where one has room, and where requests have left less
 * before what they mapped, a small one. False if there are none now. */
static bool choose(struct glk_ahead *a)
{
	const struct glk_map *map = &a->cache->arena.map;
	uint32_t slot = glk_map_fresh(map), behind;

	if (slot < a->next)
		slot = a->next;
	slot = a->goal ? glk_bits_first_clear(map->mapped, slot, a->goal - 1)
		       : GLK_BITS_NONE;
	if (slot == GLK_BITS_NONE) {
		a->goal = 0; /* until the mark rises again */
		return false;
	}
	a->next = slot;
	a->slot = slot;
	behind = glk_bits_first(map->mapped, slot, slot + map->large - 1);
	a->slots =
		behind == GLK_BITS_NONE && slot + map->large <= a->goal ? map->large : 1;
	if (may_grow(a))
		return true;
	a->goal = 0;
	return false;
}

bool glk_ahead_settle(struct glk_cache *cache)
{
	struct glk_ahead *a = cache->ahead;

	if (!a || !a->under_way)
		return false;
	a->waiters++;
	while (a->under_way)
		glk_lock_wait(&cache->lock, &a->settled);
	if (!--a->waiters)
		pthread_cond_signal(&a->wake);
	return true;
}

bool glk_ahead_rest(struct glk_cache *cache)
{
	if (!cache->ahead)
		return false;
	cache->ahead->goal = 0;
	return glk_ahead_settle(cache);
}

bool glk_ahead_note(struct glk_cache *cache)
{
	const struct glk_map *map = &cache->arena.map;
	struct glk_ahead *a = cache->ahead;
	uint32_t fresh = glk_map_fresh(map), end = fresh + a->part;
	uint32_t most = glk_slot_of(map, map->end);
	bool asleep = a->asleep;

	if (map->high == a->seen || !a->part || a->broken)
		return false;
	a->seen = map->high;
	if (end > most)
		end = most;
	if (fresh >= end ||
		glk_bits_count(map->usable, fresh, end - 1) > a->part - (a->part + 3) / 4)
		return false;
	a->goal = end;
	a->next = fresh;
	a->asleep = false;
	return asleep;
}

void glk_ahead_wake(struct glk_cache *cache)
{
	pthread_cond_signal(&cache->ahead->wake);
}

/* A page that could not be made, or not be mapped. */
static void give_up(struct glk_ahead *a, uint32_t page, int err)
{
	struct glk_cache *cache = a->cache;
	struct glk_map *map = &cache->arena.map;

	if (page && glk_page_state(glk_map_page(map, page)) == GLK_PAGE_OWNED) {
		glk_lock_pause(&cache->lock);
		glk_node_release(cache->node, page);
		glk_lock_resume(&cache->lock);
	}
	a->goal = 0;
	if (err == -ENOMEM)
		a->refused = glk_load_relaxed(&cache->node->held);
	else
		a->broken = true;
}

/* The thread, with the lock of the GPU: one page. */
static void grow(struct glk_ahead *a)
{
	struct glk_cache *cache = a->cache;
	struct glk_map *map = &cache->arena.map;
	uint32_t page = 0;
	int err;

	a->under_way = true;
	glk_plan_begin(cache);
	glk_lock_pause(&cache->lock);
	err = glk_node_grow(cache->node, (size_t)a->slots << map->shift, &page);
	glk_lock_resume(&cache->lock);
	if (!err)
		err = glk_mapping_make(map, a->slot, &page, 1);
	if (map->ahead < a->slot + a->slots)
		map->ahead = a->slot + a->slots;
	if (err) {
		give_up(a, page, err);
	} else {
		glk_page_put_back(map, page);
		a->made++;
	}
	glk_plan_end(cache);
	a->under_way = false;
}

static void sleep_on(struct glk_ahead *a)
{
	a->asleep = true;
	while (a->asleep && !a->stop) {
		if (a->cache->hints && a->cache->hints->queued) {
			glk_lock_wait_for(&a->cache->lock, &a->wake, LOOK);
			break;
		}
		glk_lock_wait(&a->cache->lock, &a->wake);
	}
}

/* Those who wait for the page have their turn first. */
static void let_pass(struct glk_ahead *a)
{
	pthread_cond_broadcast(&a->settled);
	while (a->waiters)
		glk_lock_wait(&a->cache->lock, &a->wake);
}

static void *run(void *arg)
{
	struct glk_ahead *a = arg;
	struct glk_cache *cache = a->cache;
	bool broken, chosen, carried;

	glk_lock(&cache->lock);
	while (!a->stop && !a->broken) {
		glk_plan_enter(cache);
		chosen = choose(a);
		if (chosen)
			grow(a);
		carried = !chosen && cache->above->carry(cache);
		glk_plan_leave(cache);
		/* one whose time is over is dropped at once, and so may be all behind it */
		if (carried)
			glk_plan_step(cache);
		if (!chosen && !carried)
			sleep_on(a);
		else if (a->waiters)
			let_pass(a);
	}
	a->asleep = false;
	broken = a->broken;
	glk_unlock(&cache->lock);
	if (broken)
		glk_warn("GPU %d: no pages are made ahead any more: %s", cache->device,
			glk_thread_current->error.text);
	return NULL;
}

/* Slots for as many bytes as the addresses have room for. The first request, which starts the thread,
 * is served without it, and tells it to begin. */
static void set_part(struct glk_ahead *a)
{
	const struct glk_map *map = &a->cache->arena.map;
	uint64_t slots = a->size >> map->shift;
	uint32_t most = glk_slot_of(map, map->end);

	a->slots = 1;
	a->part = slots < most ? (uint32_t)slots : most;
}

void glk_ahead_start(struct glk_cache *cache)
{
	struct glk_ahead *a;
	int err;

	if (!cache->conf->pool_ahead)
		return;
	a = glk_region_new(sizeof(*a));
	if (!a) {
		glk_warn("GPU %d: no memory to make pages ahead", cache->device);
		return;
	}
	a->cache = cache;
	a->size = cache->conf->pool_ahead;
	set_part(a);
	glk_lock_cond_init(&a->wake);
	pthread_cond_init(&a->settled, NULL);
	cache->ahead = a;
	err = glk_thread_start(&a->thread, "glake-ahead", run, a);
	if (!err)
		return;
	cache->ahead = NULL;
	pthread_cond_destroy(&a->wake);
	pthread_cond_destroy(&a->settled);
	glk_region_free(a, sizeof(*a));
	glk_warn("GPU %d: no thread to make pages ahead: error %d", cache->device, err);
}

void glk_ahead_stop(struct glk_cache *cache)
{
	struct glk_ahead *a = cache->ahead;

	if (!a)
		return;
	glk_lock(&cache->lock);
	a->stop = true;
	pthread_cond_signal(&a->wake);
	glk_unlock(&cache->lock);
	pthread_join(a->thread, NULL);
	cache->ahead = NULL;
	pthread_cond_destroy(&a->wake);
	pthread_cond_destroy(&a->settled);
	glk_region_free(a, sizeof(*a));
}
