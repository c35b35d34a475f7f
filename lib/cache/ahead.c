/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The thread that makes pages before they are needed: see ahead.h. */
#include "cache/ahead.h"

#include "base/cancel.h"
#include "base/conf.h"
#include "base/log.h"
#include "base/thread.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

/* Bytes that nobody uses. */
static uint64_t idle_bytes(const struct glk_cache *cache)
{
	return (cache->arena.map.idle_slots << cache->arena.map.shift) +
		glk_node_free(cache->node);
}

static bool may_grow(struct glk_ahead *a)
{
	const struct glk_cache *cache = a->cache;
	uint64_t held = glk_load_relaxed(&cache->node->held);
	uint64_t limit = glk_load_relaxed(&cache->node->budget);
	uint64_t page = (uint64_t)a->slots << cache->arena.map.shift;

	if (limit > cache->memory)
		limit = cache->memory;
	if (held != a->refused)
		a->refused = 0;
	return !a->refused &&
		idle_bytes(cache) + page <= (uint64_t)a->part << cache->arena.map.shift &&
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
	slot = slot < a->goal ? glk_bits_first_clear(map->mapped, slot, a->goal - 1)
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

/* Undoes as much as the driver did. */
static void undo(struct glk_ahead *a)
{
	struct glk_cache *cache = a->cache;

	if (a->mapped) {
		glk_mapping_book(&cache->arena.map, a->slot, a->page);
		glk_bits_clear(cache->arena.map.usable, a->slot, a->slot + a->slots - 1);
		glk_limbo_undo(&cache->arena.map, a->slot);
	}
	if (a->page &&
		glk_page_state(glk_map_page(&cache->arena.map, a->page)) ==
			GLK_PAGE_OWNED)
		glk_node_release(cache->node, a->page);
	a->goal = 0;
	if (a->err == -ENOMEM)
		a->refused = glk_load_relaxed(&cache->node->held);
	else
		a->broken = true;
}

bool glk_ahead_settle(struct glk_cache *cache)
{
	struct glk_ahead *a = cache->ahead;
	struct glk_map *map = &cache->arena.map;

	if (!a || !a->under_way)
		return false;
	glk_lock(&a->busy); /* the thread holds it until the driver has answered */
	glk_unlock(&a->busy);
	a->under_way = false;
	if (map->ahead < a->slot + a->slots)
		map->ahead = a->slot + a->slots;
	if (a->err) {
		undo(a);
		return true;
	}
	glk_mapping_book(map, a->slot, a->page);
	map->idle_slots += a->slots;
	glk_idle_touch(map, a->slot, a->slot + a->slots - 1);
	a->made++;
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

/* The thread, with the lock of the GPU: one page. */
static void grow(struct glk_ahead *a)
{
	struct glk_cache *cache = a->cache;
	uint64_t addr = glk_slot_addr(&cache->arena.map, a->slot);

	a->under_way = true;
	glk_lock(&a->busy);
	glk_unlock(&cache->lock);
	a->page = 0;
	a->mapped = false;
	a->err = glk_node_grow(
		cache->node, (size_t)a->slots << cache->arena.map.shift, &a->page);
	if (!a->err)
		a->err =
			glk_mapping_prepare(&cache->arena.map, addr, a->page, &a->mapped);
	glk_unlock(&a->busy);
	glk_lock(&cache->lock);
	glk_ahead_settle(cache);
}

/* Others have the lock meanwhile, and keep in it what is theirs. */
static void sleep_on(struct glk_ahead *a)
{
	struct glk_lock *lock = &a->cache->lock;
	int was = lock->cancel;

	a->asleep = true;
	while (a->asleep && !a->stop)
		glk_lock_wait(lock, &a->wake);
	lock->cancel = was;
}

static void *run(void *arg)
{
	struct glk_ahead *a = arg;
	struct glk_cache *cache = a->cache;
	bool broken;

	pthread_setname_np(pthread_self(), "glake-ahead");
	glk_cancel_off(); /* for good: locks are not given back in the reverse order here */
	glk_lock(&cache->lock);
	while (!a->stop && !a->broken) {
		if (choose(a)) {
			grow(a);
			continue;
		}
		sleep_on(a);
	}
	a->asleep = false;
	broken = a->broken;
	glk_unlock(&cache->lock);
	if (broken)
		glk_warn("GPU %d: no pages are made ahead any more: %s", cache->device,
			glk_thread_current->error.text);
	return NULL;
}

/* Signals go to the program's own threads. */
static int make_thread(struct glk_ahead *a)
{
	sigset_t all, before;
	int err;

	sigfillset(&all);
	err = pthread_sigmask(SIG_SETMASK, &all, &before);
	if (err)
		return err;
	err = pthread_create(&a->thread, NULL, run, a);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return err;
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
	glk_lock_init(&a->busy, GLK_RANK_NODE);
	pthread_cond_init(&a->wake, NULL);
	cache->ahead = a;
	err = make_thread(a);
	if (!err)
		return;
	cache->ahead = NULL;
	pthread_cond_destroy(&a->wake);
	glk_lock_fini(&a->busy);
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
	glk_lock_fini(&a->busy);
	glk_region_free(a, sizeof(*a));
}
