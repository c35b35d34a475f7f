/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The life of one GPU's blocks. A context may see eight GPUs and use one, so addresses and
 * tables are had at the first request, not at open.
 */
#include "cache/cache.h"

#include "base/conf.h"
#include "base/error.h"
#include "cache/ahead.h"
#include "cache/arena/request.h"
#include "cache/bin/own.h"
#include "cache/exchange.h"
#include "cache/graph/graph.h"
#include "cache/managed/managed.h"
#include "cache/reserve.h"
#include "cache/sampled.h"
#include "cache/tag/tag.h"
#include "numa/topology.h"
#include "tier/io/io.h"

#include <errno.h>

#define ROWS (GLK_STREAMS_MAX + 1)

/* Bins at which threads meet; those beyond go on with one head. */
#define CROWDS 16384

static void free_rows(struct glk_cache *cache)
{
	glk_slab_fini(&cache->parts);
	glk_slab_fini(&cache->seals);
	glk_slab_fini(&cache->crowds);
	glk_region_free(cache->bins, ROWS * GLK_BINS * sizeof(*cache->bins));
	glk_region_free(cache->rows, ROWS * sizeof(*cache->rows));
}

/* Row 0 is nobody's. */
static int make_rows(struct glk_cache *cache)
{
	cache->rows = glk_region_new(ROWS * sizeof(*cache->rows));
	cache->bins = glk_region_new(ROWS * GLK_BINS * sizeof(*cache->bins));
	if (!cache->rows || !cache->bins ||
		glk_slab_init(&cache->crowds, sizeof(struct glk_crowd), CROWDS) ||
		glk_slab_init(&cache->parts, sizeof(struct glk_part), GLK_PARTS) ||
		glk_slab_init(&cache->seals, sizeof(struct glk_kept_seal), GLK_SEALS)) {
		free_rows(cache);
		return -ENOMEM;
	}
	cache->rows[0].bin = cache->bins;
	glk_store_relaxed(&cache->rows[0].handle, GLK_ROW_ENDED);
	return 0;
}

/* Addresses of a step, over the memory of the GPU: so much that blocks find a place at new
 * addresses for a long time, and so little that many GPUs and contexts fit into a process. */
#define STEP_PART 4
/* And no more than this for all GPUs together, of the 128 TiB of a process: 1.25 TiB for each of 64. */
#define STEPS_MOST (80 * GLK_TIB)

/* Addresses that the tables of a GPU have room for beside those of its own arena: as many as all others may
 * have, and no more than the steps of all tags of a large GPU. */
#define OTHERS_MOST (12 * GLK_TIB)

static int make(struct glk_cache *cache)
{
	uint64_t step = STEP_PART * cache->memory,
		 most = STEPS_MOST / (uint64_t)cache->pool->gpus;
	uint64_t span = cache->conf->map_span,
		 others = (GLAKE_TAGS_MAX + 1 + GLK_OWNS) * span;
	int err = glk_space_init(&cache->space, cache->node,
		span + (others < OTHERS_MOST ? others : OTHERS_MOST));

	if (err)
		return err;
	err = glk_arena_init(&cache->arena, cache, &glk_arena_common, &cache->space,
		glk_arena_size(cache, step < most ? step : most));
	if (err)
		goto space;
	cache->arena.map.lock = NULL;
	err = glk_streams_init(&cache->streams, cache->drv, cache->device, &cache->lock);
	if (err)
		goto map;
	err = make_rows(cache);
	if (err)
		goto streams;
	err = glk_seats_init(cache);
	if (err)
		goto rows;
	cache->arena.map.lock = &cache->lock;
	return 0;
rows:
	free_rows(cache);
streams:
	glk_streams_fini(&cache->streams);
map:
	glk_map_fini(&cache->arena.map);
space:
	glk_space_fini(&cache->space);
	return err;
}

static int start(struct glk_cache *cache)
{
	int err = 0;

	glk_lock(&cache->starting);
	if (!glk_load_relaxed(&cache->started)) {
		err = make(cache);
		if (!err) {
			glk_fill_ask(cache);
			if (cache->io)
				glk_io_use(cache->io, cache->device);
			glk_ahead_start(cache);
			glk_reserve_start(cache);
			/* pairs with: the acquires of those who ask for it */
			glk_store_release(&cache->started, true);
		}
	}
	glk_unlock(&cache->starting);
	return err;
}

static const struct glk_above above = {start, glk_beside_release, glk_prefetch_carry};

/* See the field. */
static uint64_t straight_above(const struct glk_cache *cache, const struct glk_conf *conf)
{
	uint64_t bins =
		(conf->policy_bins + GLAKE_GRAIN - 1) & ~(uint64_t)(GLAKE_GRAIN - 1);

	if (conf->policy_ends == GLK_POLICY_ENDS_HIGH ||
		conf->pool_managed != GLK_POOL_MANAGED_NO || conf->pool_ahead)
		return UINT64_MAX;
	return cache->small_most > bins ? cache->small_most : bins;
}

int glk_cache_init(struct glk_cache *cache, struct glk_drv *drv, struct glk_pool *pool,
	const struct glk_conf *conf, int device)
{
	struct glake_device info = {.sz = sizeof(info)};
	int err;

	err = drv->ops->device_info(drv, device, &info);
	if (err)
		return err;
	cache->memory = info.memory;
	cache->above = &above;
	cache->drv = drv;
	cache->pool = pool;
	cache->node = glk_pool_gpu(pool, device);
	glk_node_describe(cache->node, conf, &info);
	cache->small_most = cache->node->page_size[GLK_CLASS_SMALL] >> GLK_EIGHTH_SHIFT;
	cache->straight_above = straight_above(cache, conf);
	cache->conf = conf;
	cache->device = device;
	glk_seats_number(cache);
	cache->host = device < pool->hosts ? glk_pool_host(pool, device) : NULL;
	cache->places = cache->host && conf->tier_place != GLK_TIER_PLACE_GPU;
	cache->node->lends =
		conf->tier_peer_room ? conf->tier_peer_room : info.memory / 2;
	glk_beside_lend(cache, conf->tier_place == GLK_TIER_PLACE_PEER,
		conf->tier_away == GLK_TIER_AWAY_PEER);
	cache->arena.binned = cache - device;
	glk_lock_init(&cache->lock, GLK_RANK_DEVICE);
	glk_lock_time(&cache->lock, glk_conf_hold_clock(conf));
	cache->lock.holds = &cache->times[GLK_TIMED_HOLD];
	glk_lock_init(&cache->dependencies, GLK_RANK_DEPENDENCY);
	glk_lock_init(&cache->starting, GLK_RANK_START);
	glk_lock_cond_init(&cache->plans.settled);
	glk_rest_init(cache);
	pthread_cond_init(&cache->moved, NULL);
	glk_imports_init(&cache->imports, drv, cache->node, conf->share_keep);
	glk_hostpool_init(&cache->hostpool, drv, conf, device, pool->gpus,
		cache->host ? cache->host->place.id : GLK_NUMA_UNKNOWN);
	return 0;
}

/*
 * The same for pages of the GPU, whichever call of the driver lost them, in which arena. Free pages go first:
 * one whose mapping the driver had kept is lost by that.
 */
static int release_lost(struct glk_cache *cache)
{
	uint32_t last = glk_load_relaxed(&cache->pool->pages.used);
	int err = 0, failed;

	glk_node_empty(cache->node);
	if (cache->host)
		glk_node_empty(cache->host);
	for (uint32_t id = 1; id <= last; id++) {
		const struct glk_page *page = glk_page_at(cache->pool, id);

		if (glk_page_state(page) != GLK_PAGE_LOST ||
			(page->node != cache->node->index &&
				cache->pool->nodes[page->node].gpu != cache->node))
			continue;
		failed = cache->drv->ops->release(cache->drv, page->handle);
		err = err ? err : failed;
	}
	return err;
}

void glk_helper_add(struct glk_cache *cache, struct glk_helper *helper)
{
	glk_lock(&cache->lock);
	helper->other = cache->helpers;
	cache->helpers = helper;
	glk_unlock(&cache->lock);
}

bool glk_helper_take(struct glk_cache *cache, struct glk_helper *helper)
{
	struct glk_helper **link = &cache->helpers;
	bool found;

	glk_lock(&cache->lock);
	while (*link && *link != helper)
		link = &(*link)->other;
	found = *link;
	if (found)
		*link = helper->other;
	glk_unlock(&cache->lock);
	return found;
}

static struct glk_helper *next_helper(struct glk_cache *cache)
{
	struct glk_helper *helper;

	glk_lock(&cache->lock);
	helper = cache->helpers;
	if (helper)
		cache->helpers = helper->other;
	glk_unlock(&cache->lock);
	return helper;
}

void glk_cache_still(struct glk_cache *cache)
{
	struct glk_helper *helper;

	while ((helper = next_helper(cache)))
		helper->still(helper);
	if (!glk_load_acquire(
		    &cache->started)) /* pairs with: the release in glk_cache_start */
		return;
	glk_reserve_stop(cache);
	glk_ahead_stop(cache);
	glk_rest_stop(cache);
	glk_pack_stop(&cache->mover);
}

int glk_cache_fini(struct glk_cache *cache, size_t *ret_live)
{
	int err = 0, failed;
	size_t imports, blocks;

	*ret_live = 0;
	if (glk_load_relaxed(&cache->started)) {
		glk_sampled_still(cache);
		glk_cache_still(cache);
		/* nobody is left who shares it */
		cache->arena.map.lock = NULL;
		glk_seats_sum(cache, &cache->sum);
		*ret_live = cache->sum.allocs - cache->sum.frees;
		err = glk_graph_fini(cache);
		failed = glk_managed_fini(cache);
		err = err ? err : failed;
		failed = glk_windows_fini(cache);
		err = err ? err : failed;
		failed = glk_arena_empty(&cache->arena);
		err = err ? err : failed;
		failed = err == -ENODEV ? 0 : release_lost(cache);
		err = err ? err : failed;
		for (struct glk_arena *a = cache->arena.next, *next; a; a = next) {
			next = a->next;
			a->next = NULL;
			a->map.lock = NULL;
			glk_arena_fini(a);
		}
		cache->arena.next = NULL;
		glk_tag_fini(cache);
		glk_own_fini(cache);
		glk_sampled_fini(cache);
		glk_seats_fini(cache);
		free_rows(cache);
		glk_prefetch_fini(cache);
		failed = glk_away_fini(cache);
		err = err ? err : failed;
		glk_streams_fini(&cache->streams);
		glk_sums_fini(cache);
		glk_arena_fini_alone(&cache->arena, &cache->space);
	} else {
		glk_tag_fini(cache);
	}
	pthread_cond_destroy(&cache->plans.settled);
	glk_rest_fini(cache);
	pthread_cond_destroy(&cache->moved);
	glk_lock_fini(&cache->starting);
	glk_lock_fini(&cache->dependencies);
	failed = glk_imports_fini(&cache->imports, &imports);
	err = err ? err : failed;
	*ret_live += imports;
	failed = glk_hostpool_fini(&cache->hostpool, &blocks);
	err = err ? err : failed;
	*ret_live += blocks;
	glk_lock_fini(&cache->lock);
	return err;
}
