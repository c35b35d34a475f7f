/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Gathers the figures of one GPU under its lock, so that they agree with each other. */
#include "cache/cache.h"
#include "cache/graph/graph.h"
#include "cache/managed/managed.h"
#include "cache/tag/tag.h"

#include <string.h>

/* What an arena has in tables. */
static void gather_tables(const struct glk_map *map, struct glake_stats *s)
{
	uint64_t hole;

	hole = glk_tree_largest(map, &map->common);
	s->free_extents += map->common.count + map->nested.count;
	if (s->largest_hole < hole)
		s->largest_hole = hole;
	s->quick += map->taken;
	s->address_space += map->size;
	s->metadata += glk_map_bytes(map);
}

/* What a space has in pages of the GPU, and in mappings of any. */
static void gather_space(const struct glk_map *map, struct glake_stats *s)
{
	const struct glk_stock *stock = &map->space->of[GLK_OF_NODE];

	s->free_pages += stock->idle_slots << map->shift;
	s->idle += stock->idle_slots << map->shift;
	s->stranded += stock->stranded << map->shift;
	s->mapped += map->space->mapped_bytes;
}

uint64_t glk_cache_in_flight(const struct glk_cache *cache)
{
	const struct glk_node *node = cache->node;
	/* that are mapped, and that lie in lists: all others are in the hands of a request */
	uint64_t known = cache->space.of[GLK_OF_NODE].page_bytes + glk_graph_held(cache) +
		glk_node_free(node) + glk_load_relaxed(&node->lost);
	uint64_t held = glk_load_relaxed(&node->held);

	known += glk_load_relaxed(&node->lent);
	held += glk_load_relaxed(&node->foreign);
	return held > known ? held - known : 0;
}

static void gather_graphs(const struct glk_cache *cache, struct glake_stats *s)
{
	const struct glk_graph *graph;

	for (uint32_t i = 0; (graph = glk_graph_next(glk_graphs(cache), &i));) {
		gather_tables(&graph->arena.map, s);
		gather_space(&graph->arena.map, s);
		s->pools++;
		s->pool_held += graph->arena.map.held;
	}
}

static void gather_tags(const struct glk_cache *cache, struct glake_stats *s)
{
	const struct glk_tags *tags = glk_tags(cache);

	for (uint32_t i = 0; tags && i <= GLAKE_TAGS_MAX; i++) {
		const struct glk_tag *tag = &tags->at[i];

		s->tags += glk_load_relaxed(&tag->id) != 0;
		s->tags_suspended += tag->arena.shut;
		/* the first has elastic blocks of no tag */
		s->tagged += i ? tag->live : 0;
		s->tagged_blocks += i ? tag->blocks : 0;
		s->tagged_held += i ? glk_tag_held(tag) : 0;
	}
}

/* What stands for its pages is no memory of the GPU. */
static void gather_managed(const struct glk_cache *cache, struct glake_stats *s)
{
	const struct glk_managed *m = cache->managed;

	s->managed = cache->managed_live;
	s->managed_blocks = m->blocks;
	s->managed_held = m->bytes;
	s->managed_advised = m->advised;
	s->metadata += glk_slab_bytes(&m->pool.pages);
	for (uint32_t i = 0; i < m->used; i++) {
		const struct glk_map *map = &m->at[i].arena.map;

		if (m->at[i].state == GLK_CHUNK_FREE)
			continue;
		s->managed_chunks++;
		if (m->at[i].state != GLK_CHUNK_READY)
			continue;
		s->quick += map->taken;
		s->address_space += map->size;
		s->metadata += glk_map_bytes(map);
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
	uint64_t given, unsealed;

	if (started)
		glk_seats_sum(cache, &sum);
	s->live = sum.live;
	s->given = sum.given;
	s->total_given = sum.total_given;
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
	s->elastic = cache->elastic;
	s->elastic_blocks = cache->elastic_blocks;
	s->elastic_shared = cache->shared;
	s->spills = cache->spills;
	s->fetches = cache->fetches;
	s->placed = cache->placed;
	s->placed_blocks = cache->placed_blocks;
	s->placed_peer = cache->placed_peer;
	s->borrowed = cache->host ? glk_load_relaxed(&cache->host->peer->held) : 0;
	s->lent = glk_load_relaxed(&cache->node->lent);
	s->victims = cache->victims;
	s->victim_bytes = cache->victim_bytes;
	s->spilled = cache->spilled;
	s->fetched = cache->fetched;
	s->discards = cache->discards;
	s->discarded = cache->discarded;
	/* pairs with: the release in glk_away_start */
	if (glk_load_acquire(&cache->moves)) {
		s->store = cache->mover.store.held;
		s->store_used = cache->mover.store.used;
		s->store_peer = cache->mover.store.lent;
		s->store_peer_used = cache->mover.store.lent_used;
		glk_pack_figures(&cache->mover, &s->packed, &s->packed_held);
	}
	s->prefetches = cache->prefetch.came;
	s->prefetch_early = cache->prefetch.early;
	s->prefetch_late = cache->prefetch.late;
	s->prefetch_useless = cache->prefetch.useless;
	s->prefetch_queued = cache->hints ? cache->hints->queued : 0;
	s->spill_waits = cache->spill_waits;
	s->returned = cache->returned;
	s->returned_blocks = cache->returned_blocks;
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
	for (const struct glk_arena *a = &cache->arena; started && a; a = a->next)
		gather_tables(&a->map, s);
	if (started)
		gather_space(&cache->arena.map, s);
	gather_graphs(cache, s);
	gather_tags(cache, s);
	if (started)
		s->in_flight = glk_cache_in_flight(cache);
	if (cache->managed)
		gather_managed(cache, s);
	if (started)
		gather_streams(&cache->streams, s);
	/* what is taken and not given lies in bins, or is out and was freed */
	given = s->given + cache->bare + cache->shared;
	s->quick = s->quick > given ? s->quick - given : 0;
	/* what was sealed is free once the work on it has finished */
	unsealed = cache->space.unsealed_bytes - cache->space.unsealed_foreign;
	s->free_pages += glk_node_free(cache->node) + unsealed;
	s->idle += unsealed;
}

void glk_cache_figures(struct glk_cache *cache, struct glake_stats *ret_stats)
{
	struct glake_stats s = {.sz = sizeof(s)};

	glk_lock(&cache->lock);
	gather(cache, &s);
	glk_unlock(&cache->lock);
	/* pairs with: the release in publish; another thread may just have begun */
	s.peak_live = glk_load_acquire(&cache->started) ? glk_seats_peak(cache) : 0;
	glk_hostpool_figures(&cache->hostpool, &s);
	s.reserved = glk_load_relaxed(&cache->node->held);
	s.peak_reserved = glk_load_relaxed(&cache->node->peak);
	s.budget = glk_load_relaxed(&cache->node->budget);
	s.lost = glk_load_relaxed(&cache->node->lost);
	for (const struct glk_node *node = cache->host; node; node = node->peer)
		s.lost += glk_load_relaxed(&node->lost);
	*ret_stats = s;
}

void glk_cache_reset_peaks(struct glk_cache *cache)
{
	glk_hostpool_reset_peaks(&cache->hostpool);
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
