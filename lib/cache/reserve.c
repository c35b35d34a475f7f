/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Memory of the host is made ready: see reserve.h; and what lies idle of it goes. */
#include "cache/reserve.h"

#include "base/conf.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "cache/arena/request.h"
#include "cache/cache.h"

#include <errno.h>

/* Made at a time, so that an end need not wait for long. */
#define STEP ((uint64_t)1 << 30)

/* For what goes away. With the lock, which is given up meanwhile. */
static int make_pieces(struct glk_cache *cache)
{
	struct glk_store *store = &cache->mover.store;
	uint64_t want = cache->conf->tier_host_reserve;
	int err = 0;

	store->reserve = want;
	while (!err && store->held < want && !glk_load_relaxed(&cache->reserve.stop)) {
		uint64_t step = want - store->held < STEP ? want - store->held : STEP;

		err = glk_store_ready(store, store->held - store->used + step);
	}
	return err;
}

/* Pages of the host that there are, in use or not. */
static uint64_t pages_held(const struct glk_cache *cache)
{
	uint64_t held = glk_load_relaxed(&cache->host->held);
	uint64_t store = cache->mover.store.held + cache->mover.store.packs;

	return held > store ? held - store : 0;
}

/* Pages for what goes to the host in place, up to so many bytes of them. Likewise. */
static int make_pages(struct glk_cache *cache, enum glk_class class, uint64_t want)
{
	struct glk_node *host = cache->host;
	size_t size = host->page_size[class];
	uint32_t page;
	int err = 0;

	while (!err && pages_held(cache) + size <= want && !glk_node_lender(host) &&
		!glk_load_relaxed(&cache->reserve.stop)) {
		glk_lock_pause(&cache->lock);
		err = glk_node_grow(host, size, &page);
		if (!err)
			glk_node_put(host, page);
		glk_lock_resume(&cache->lock);
	}
	return err == -ENOMEM && !glk_node_has_room(host, size)
		? glk_error(-ENOMEM, GLAKE_ERROR_LIMIT, "tier.host has no room for more")
		: err;
}

static int make_ready(struct glk_cache *cache)
{
	uint64_t pages = cache->conf->tier_place_reserve;
	int err = glk_away_start(cache);

	if (err)
		return err;
	glk_lock(&cache->lock);
	err = make_pieces(cache);
	if (!err)
		err = make_pages(cache, GLK_CLASS_LARGE, pages - pages / 16);
	if (!err)
		err = make_pages(cache, GLK_CLASS_SMALL, pages);
	glk_unlock(&cache->lock);
	return err;
}

static void *run(void *arg)
{
	struct glk_cache *cache = arg;

	if (make_ready(cache))
		glk_warn(
			"GPU %d: the host does not have ready what tier.host_reserve and "
			"tier.place_reserve ask for: %s",
			cache->device, glk_thread_current->error.text);
	return NULL;
}

void glk_reserve_start(struct glk_cache *cache)
{
	int err;

	if (!cache->host ||
		!(cache->conf->tier_host_reserve || cache->conf->tier_place_reserve))
		return;
	err = glk_thread_start(&cache->reserve.thread, "glake-reserve", run, cache);
	cache->reserve.runs = !err;
	if (err)
		glk_warn("GPU %d: no thread to make memory of the host ready: error %d",
			cache->device, err);
}

void glk_reserve_yield(struct glk_cache *cache)
{
	glk_store_relaxed(&cache->reserve.stop, true);
}

void glk_reserve_stop(struct glk_cache *cache)
{
	if (!cache->reserve.runs)
		return;
	glk_store_relaxed(&cache->reserve.stop, true);
	pthread_join(cache->reserve.thread, NULL);
	cache->reserve.runs = false;
}

static enum glk_idle_answer leave_one(struct glk_map *map, uint32_t id, void *arg)
{
	const struct glk_page *page = glk_map_page(map, id);
	struct glk_cache *cache = arg;
	struct glk_limbo limbo = GLK_LIMBO(&cache->streams);
	uint32_t slot = page->first_alias;
	bool leaves = false;

	for (unsigned left = page->aliases; left; left--) {
		leaves |= glk_slot_map(map, slot) != &cache->beside.map;
		slot = map->alias[slot];
	}
	if (leaves)
		glk_limbo_strip(&limbo, map, id);
	return GLK_IDLE_NEXT;
}

bool glk_beside_release(void *arg, uint64_t bytes)
{
	struct glk_cache *cache = arg;
	uint64_t given;

	if (!cache->host || !glk_arena_idle(&cache->arena, cache->host))
		return false;
	glk_reserve_yield(cache);
	glk_event_poll(&cache->streams);
	glk_plan_begin(cache);
	given = glk_trim_release(&cache->arena, cache->host, bytes, UINT32_MAX, NULL);
	glk_plan_end(cache);
	return given > 0;
}

void glk_beside_leave(struct glk_cache *cache)
{
	struct glk_idle_walk walk = {.of = GLK_OF_HOST, .groups = UINT32_MAX};

	glk_idle_each(&cache->arena.map, &walk, leave_one, cache);
}
