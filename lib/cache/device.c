/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The life of one GPU's blocks. A context may see eight GPUs and use one, so addresses and
 * tables are had at the first request, not at open.
 */
#include "cache/device.h"

#include "base/conf.h"
#include "cache/ahead.h"
#include "cache/graph.h"

#include <errno.h>

int glk_cache_init(struct glk_cache *cache, struct glk_drv *drv, struct glk_pool *pool,
	const struct glk_conf *conf, int device)
{
	struct glake_device info = {.sz = sizeof(info)};
	int err;

	err = drv->ops->device_info(drv, device, &info);
	if (err)
		return err;
	cache->memory = info.memory;
	cache->drv = drv;
	cache->pool = pool;
	cache->node = glk_pool_gpu(pool, device);
	glk_node_describe(cache->node, conf, &info);
	cache->small_most = cache->node->page_size[GLK_CLASS_SMALL] / 2;
	cache->conf = conf;
	cache->device = device;
	glk_store_relaxed(&cache->lonely,
		conf->policy_bins == GLK_POLICY_BINS_ALL ? GLK_KIND_COUNT
							 : GLK_KIND_LARGE);
	glk_seats_number(cache);
	cache->home = cache;
	cache->lock = &cache->own.lock;
	cache->streams = &cache->own.streams;
	glk_lock_init(cache->lock, GLK_RANK_DEVICE);
	glk_lock_time(cache->lock, glk_conf_hold_clock(conf));
	glk_lock_init(&cache->dependencies, GLK_RANK_DEPENDENCY);
	glk_imports_init(&cache->imports, drv, cache->node);
	return 0;
}

#define ROWS (GLK_STREAMS_MAX + 1)

/* Bins at which threads meet; those beyond go on with one head. */
#define CROWDS 16384

static void free_rows(struct glk_cache *cache)
{
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
		glk_slab_init(&cache->crowds, sizeof(struct glk_crowd), CROWDS)) {
		free_rows(cache);
		return -ENOMEM;
	}
	cache->rows[0].bin = cache->bins;
	glk_store_relaxed(&cache->rows[0].handle, GLK_ROW_ENDED);
	return 0;
}

static int start(struct glk_cache *cache)
{
	int err;

	err = glk_map_init(&cache->map, cache->pool, cache->node, cache->conf,
		cache->conf->map_span);
	if (err)
		return err;
	err = glk_streams_init(cache->streams, cache->drv, cache->device, cache->lock);
	if (err)
		goto map;
	cache->streams->opportunistic = cache->conf->stream_opportunistic;
	err = make_rows(cache);
	if (err)
		goto streams;
	err = glk_seats_init(cache);
	if (err)
		goto rows;
	return 0;
rows:
	free_rows(cache);
streams:
	glk_streams_fini(cache->streams);
map:
	glk_map_fini(&cache->map);
	return err;
}

/* Addresses before the size: who sees the size sees them too. */
static void publish(struct glk_cache *cache)
{
	glk_store_relaxed(&cache->base, cache->map.base);
	/* pairs with: the acquire in glk_cache_holds */
	glk_store_release(&cache->size, cache->map.size);
	/* pairs with: the acquires in glk_cache_start, glk_cache_figures */
	glk_store_release(&cache->started, true);
}

int glk_cache_start(struct glk_cache *cache)
{
	int err = 0;

	if (glk_load_acquire(&cache->started)) /* pairs with: the release below */
		return 0;
	glk_lock(cache->lock);
	if (!glk_load_relaxed(&cache->started)) {
		err = start(cache);
		if (!err) {
			publish(cache);
			glk_ahead_start(cache);
		}
	}
	glk_unlock(cache->lock);
	return err;
}

/*
 * Unmaps every slot of a span and releases the pages. What the driver keeps is booked as such
 * and asked for again below; a GPU that is lost is asked nothing more.
 */
static int empty_span(struct glk_cache *cache, struct glk_span *span)
{
	uint32_t end = glk_span_end(span);

	for (uint32_t slot = 0; slot < end; slot++) {
		uint32_t page = span->slot[slot].page;
		struct glk_page *p = glk_map_page(&cache->map, page);
		int err;

		if (!page)
			continue;
		glk_idle_take(&cache->map, page);
		span->slot[slot].live = 0;
		p->in_use = GLK_NO_SLOT;
		err = glk_slot_detach(span, slot);
		if (!err && !p->aliases)
			err = glk_node_release(cache->node, page);
		if (err == -ENODEV)
			return err;
	}
	return 0;
}

static bool is_kept(const struct glk_span *span, uint32_t slot)
{
	return glk_bit_get(span->mapped, slot) && !span->slot[slot].page;
}

/* A run at a time. */
static int empty_kept(struct glk_cache *cache, struct glk_span *span)
{
	uint32_t end = glk_span_end(span);
	int err = 0, failed;

	for (uint32_t slot = 0, first; slot < end; slot++) {
		if (!is_kept(span, slot))
			continue;
		first = slot;
		while (slot + 1 < end && is_kept(span, slot + 1))
			slot++;
		failed = cache->drv->ops->unmap(cache->drv,
			span->base + ((uint64_t)first << span->shift),
			(size_t)(slot - first + 1) << span->shift);
		if (failed && !err)
			err = failed;
		for (uint32_t i = first; i <= slot && !failed; i++)
			glk_bit_clear(span->mapped, i);
	}
	return err;
}

int glk_cache_empty_kept(struct glk_cache *cache)
{
	int err = 0, failed;

	for (int kind = 0; kind < GLK_KIND_COUNT && err != -ENODEV; kind++) {
		failed = empty_kept(cache, &cache->map.span[kind]);
		err = err ? err : failed;
	}
	return err;
}

/* The same for pages of the GPU, whichever call of the driver lost them, in which cache. */
static int release_lost(struct glk_cache *cache)
{
	uint32_t last = glk_load_relaxed(&cache->pool->pages.used);
	int err = 0, failed;

	for (uint32_t id = 1; id <= last; id++) {
		const struct glk_page *page = glk_page_at(cache->pool, id);

		if (glk_page_state(page) != GLK_PAGE_LOST ||
			page->node != cache->node->index)
			continue;
		failed = cache->drv->ops->release(cache->drv, page->handle);
		if (failed && !err)
			err = failed;
	}
	return err;
}

static int empty(struct glk_cache *cache)
{
	int err = 0, failed;

	for (int kind = 0; kind < GLK_KIND_COUNT && !err; kind++)
		err = empty_span(cache, &cache->map.span[kind]);
	failed = err == -ENODEV ? 0 : glk_cache_empty_kept(cache);
	err = err ? err : failed;
	if (err == -ENODEV || cache->home != cache)
		return err;
	failed = release_lost(cache);
	return err ? err : failed;
}

int glk_cache_fini(struct glk_cache *cache, size_t *ret_live)
{
	int err = 0, failed;
	size_t imports;

	*ret_live = 0;
	if (glk_load_relaxed(&cache->started)) {
		glk_ahead_stop(cache);
		glk_seats_sum(cache, &cache->sum);
		*ret_live = cache->sum.allocs - cache->sum.frees;
		err = glk_graph_fini(cache, empty);
		failed = empty(cache);
		err = err ? err : failed;
		glk_seats_fini(cache);
		free_rows(cache);
		glk_streams_fini(cache->streams);
		glk_map_fini(&cache->map);
		glk_store_relaxed(&cache->size, 0);
		glk_store_relaxed(&cache->started, false);
	}
	glk_lock_fini(&cache->dependencies);
	failed = glk_imports_fini(&cache->imports, &imports);
	err = err ? err : failed;
	*ret_live += imports;
	glk_lock_fini(cache->lock);
	return err;
}
