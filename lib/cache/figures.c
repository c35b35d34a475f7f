/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Gathers the figures of one GPU under its lock, so that they agree with each other. */
#include "cache/graph/graph.h"

#include <string.h>

/* What an arena has in tables and pages. */
static void gather_map(const struct glk_map *map, struct glake_stats *s)
{
	uint64_t hole;

	hole = glk_tree_largest(map, &map->common);
	s->free_extents += map->common.count + map->nested.count;
	if (s->largest_hole < hole)
		s->largest_hole = hole;
	s->quick += map->taken;
	s->free_pages += map->idle_slots << map->shift;
	s->mapped += map->mapped_bytes;
	s->address_space += map->size;
	s->metadata += glk_map_bytes(map);
}

/* What it has idle is no memory of the GPU. */
static void gather_beside(const struct glk_cache *cache, struct glake_stats *s)
{
	uint64_t free_pages = s->free_pages;

	gather_map(&cache->beside.map, s);
	s->free_pages = free_pages;
}

static void gather_graphs(const struct glk_cache *cache, struct glake_stats *s)
{
	struct glk_graphs *graphs = glk_graphs(cache);

	for (uint32_t i = 0; graphs && i < graphs->used; i++) {
		if (!glk_graph_is_there(graphs->at[i].state))
			continue;
		gather_map(&graphs->at[i].arena.map, s);
		s->pools++;
		s->pool_held += graphs->at[i].arena.map.page_bytes;
	}
}

static void gather_streams(const struct glk_streams *streams, struct glake_stats *s)
{
	s->streams = glk_load_relaxed(&streams->slab.live);
	s->events = streams->events.made;
	s->unmapped = streams->unmapped;
	s->released = streams->released;
	s->held_back = streams->held_back;
	s->graces = glk_load_relaxed(&streams->graces);
	s->metadata += glk_slab_bytes(&streams->slab);
}

static void gather(struct glk_cache *cache, struct glake_stats *s)
{
	/* pairs with: the release in glk_cache_start */
	bool started = glk_load_acquire(&cache->started);
	struct glk_seats sum = {0};

	if (started)
		glk_seats_sum(cache, &sum);
	s->live = sum.live;
	s->given = sum.given;
	s->allocs = sum.allocs;
	s->frees = sum.frees;
	s->live_blocks = sum.allocs - sum.frees;
	s->hits = sum.allocs - cache->served;
	s->misses = cache->served;
	s->called = cache->called;
	s->stitches = cache->stitches;
	s->flushes = cache->flushes;
	s->oom = cache->oom;
	s->hold_max = cache->lock.hold_max;
	s->away = cache->away;
	s->away_blocks = cache->away_blocks;
	s->spills = cache->spills;
	s->fetches = cache->fetches;
	s->placed = cache->placed;
	s->placed_blocks = cache->placed_blocks;
	s->host_held = cache->host ? glk_load_relaxed(&cache->host->held) : 0;
	s->peak_host_held = cache->host ? glk_load_relaxed(&cache->host->peak) : 0;
	memcpy(s->rungs, cache->rungs, sizeof(s->rungs));
	s->metadata = glk_slab_bytes(&cache->pool->pages);
	/* the tables may just be made by another thread */
	if (started)
		s->metadata += glk_slab_bytes(&cache->seats) +
			glk_slab_bytes(&cache->crowds) +
			cache->last_row *
				(sizeof(struct glk_row) +
					GLK_BINS * sizeof(struct glk_bin));
	if (started)
		gather_map(&cache->arena.map, s);
	if (cache->beside.map.pool)
		gather_beside(cache, s);
	gather_graphs(cache, s);
	if (started)
		gather_streams(&cache->streams, s);
	/* what is taken and not given lies in bins, or is out and was freed */
	s->quick = s->quick > s->given ? s->quick - s->given : 0;
	s->free_pages += glk_node_free(cache->node);
}

void glk_cache_figures(struct glk_cache *cache, struct glake_stats *ret_stats)
{
	struct glake_stats s = {.sz = sizeof(s)};

	glk_lock(&cache->lock);
	gather(cache, &s);
	glk_unlock(&cache->lock);
	/* pairs with: the release in publish; another thread may just have begun */
	s.peak_live = glk_load_acquire(&cache->started) ? glk_seats_peak(cache) : 0;
	s.reserved = glk_load_relaxed(&cache->node->held);
	s.peak_reserved = glk_load_relaxed(&cache->node->peak);
	s.budget = glk_load_relaxed(&cache->node->budget);
	s.lost = glk_load_relaxed(&cache->node->lost) +
		(cache->host ? glk_load_relaxed(&cache->host->lost) : 0);
	*ret_stats = s;
}

void glk_cache_reset_peaks(struct glk_cache *cache)
{
	glk_lock(&cache->lock);
	/* pairs with: the release in glk_cache_start */
	if (glk_load_acquire(&cache->started)) {
		uint64_t peak = glk_seats_peak(cache);

		/* the policy goes by the most there ever was */
		if (cache->past_peak < peak)
			cache->past_peak = peak;
		glk_seats_reset_peak(cache);
	}
	glk_store_relaxed(&cache->node->peak, glk_load_relaxed(&cache->node->held));
	if (cache->host)
		glk_store_relaxed(
			&cache->host->peak, glk_load_relaxed(&cache->host->held));
	glk_lock_forget(&cache->lock);
	glk_unlock(&cache->lock);
}
