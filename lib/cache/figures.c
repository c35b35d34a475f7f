/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Gathers the figures of one GPU under its lock, so that they agree with each other. */
#include "cache/graph.h"

#include <string.h>

/* What no hit counts: bytes of live blocks as they lie, and of those in bins. */
static void walk(const struct glk_span *span, struct glake_stats *s)
{
	const struct glk_extent *e;

	for (uint32_t id = span->last; id; id = glk_load_relaxed(&e->prev)) {
		e = glk_extent_at(span->map, id);
		if (glk_extent_state(e) == GLK_EXTENT_LIVE)
			s->given += e->size;
		else if (glk_extent_state(e) == GLK_EXTENT_QUICK)
			s->quick += e->size;
	}
}

/* What a cache has in tables and pages: that of the GPU, or a pool of graphs. */
static void gather_map(struct glk_cache *cache, struct glake_stats *s)
{
	struct glk_map *map = &cache->map;

	if (!map->pool)
		return;
	for (int kind = 0; kind < GLK_KIND_COUNT; kind++) {
		uint64_t hole = glk_tree_largest(&map->span[kind]);

		walk(&map->span[kind], s);
		s->free_extents += map->span[kind].free_count;
		if (s->largest_hole < hole)
			s->largest_hole = hole;
	}
	s->free_pages += map->idle_bytes + cache->parked.bytes;
	s->mapped += map->mapped_bytes;
	s->address_space += map->size;
	s->metadata += glk_map_bytes(map) + glk_slab_bytes(&cache->seats);
}

static void gather_graphs(const struct glk_cache *cache, struct glake_stats *s)
{
	struct glk_graphs *graphs = glk_graphs(cache);

	for (uint32_t i = 0; graphs && i < graphs->used; i++) {
		if (graphs->at[i].state == GLK_GRAPH_FREE)
			continue;
		gather_map(&graphs->at[i].cache, s);
		s->pools++;
		s->pool_held += graphs->at[i].cache.map.page_bytes;
	}
}

static void gather_streams(const struct glk_streams *streams, struct glake_stats *s)
{
	s->streams = glk_load_relaxed(&streams->slab.live);
	s->events = streams->events.made;
	s->unmapped = streams->unmapped;
	s->released = streams->released;
	s->held_back = streams->held_back;
	s->graces = streams->graces;
	s->metadata += glk_slab_bytes(&streams->slab);
}

static void gather(struct glk_cache *cache, struct glake_stats *s)
{
	struct glk_seats sum = {0};

	if (glk_load_relaxed(&cache->started))
		glk_seats_sum(cache, &sum);
	s->live = sum.live;
	s->allocs = sum.allocs;
	s->frees = sum.frees;
	s->live_blocks = sum.allocs - sum.frees;
	s->hits = sum.allocs - cache->served;
	s->misses = cache->served;
	s->called = cache->called;
	s->stitches = cache->stitches;
	s->flushes = cache->flushes;
	s->oom = cache->oom;
	s->hold_max = cache->lock->hold_max;
	memcpy(s->rungs, cache->rungs, sizeof(s->rungs));
	s->metadata = glk_slab_bytes(&cache->pool->pages) +
		glk_slab_bytes(&cache->crowds) +
		cache->last_row *
			(sizeof(struct glk_row) + GLK_BINS * sizeof(struct glk_bin));
	gather_map(cache, s);
	gather_graphs(cache, s);
	gather_streams(cache->streams, s);
	for (int c = 0; c < GLK_CLASS_COUNT; c++)
		s->free_pages += glk_load_relaxed(&cache->node->free_count[c]) *
			cache->node->page_size[c];
}

void glk_cache_figures(struct glk_cache *cache, struct glake_stats *ret_stats)
{
	struct glake_stats s = {.sz = sizeof(s)};

	glk_lock(cache->lock);
	gather(cache, &s);
	glk_unlock(cache->lock);
	/* pairs with: the release in publish; another thread may just have begun */
	s.peak_live = glk_load_acquire(&cache->started) ? glk_seats_peak(cache) : 0;
	s.reserved = glk_load_relaxed(&cache->node->held);
	s.peak_reserved = glk_load_relaxed(&cache->node->peak);
	s.budget = glk_load_relaxed(&cache->node->budget);
	s.lost = glk_load_relaxed(&cache->node->lost);
	*ret_stats = s;
}

void glk_cache_reset_peaks(struct glk_cache *cache)
{
	glk_lock(cache->lock);
	if (glk_load_relaxed(&cache->started))
		glk_seats_reset_peak(cache);
	glk_store_relaxed(&cache->node->peak, glk_load_relaxed(&cache->node->held));
	cache->lock->hold_max = 0;
	glk_unlock(cache->lock);
}
