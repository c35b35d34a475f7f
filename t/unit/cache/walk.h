/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_UNIT_CACHE_WALK_H
#define GLK_UNIT_CACHE_WALK_H

/* The second half of rig.h: what the figures tell, counted again from the extents, the slots, the
 * pages and the bins themselves. */

/* What the extents of an arena tell. */
static inline void rig_walk_extents(
	const struct glk_slab *parts, struct glk_map *map, struct glake_stats *s)
{
	uint32_t used = glk_load_relaxed(&map->extents.used);

	for (uint32_t id = 1; id <= used; id++) {
		const struct glk_extent *e = glk_extent_at(map, id);

		if (glk_extent_state(e) == GLK_EXTENT_LIVE) {
			const struct glk_part *part = glk_slab_at(
				parts, glk_load_relaxed(&e->kept) & GLK_KEPT_RUN);
			bool elastic = glk_part_is(e) && part->elastic;
			uint64_t bare = elastic ? part->bare : 0;

			s->live += glk_extent_asked(e) - bare;
			s->given += e->size -
				((uint64_t)(elastic ? part->bare_slots : 0)
					<< map->shift);
			s->live_blocks++;
			s->elastic += elastic ? glk_extent_asked(e) - bare : 0;
			s->elastic_blocks += elastic;
		} else if (glk_extent_state(e) == GLK_EXTENT_QUICK) {
			s->quick += e->size;
		} else if (glk_extent_state(e) == GLK_EXTENT_FREE) {
			s->free_extents++;
			/* one among small blocks is no place for a large one */
			if (!e->nested && s->largest_hole < e->size)
				s->largest_hole = e->size;
		}
	}
}

/* The same for its slots and pages. */
static inline void rig_walk_slots(
	struct glk_map *map, bool *busy, struct glake_stats *stats)
{
	for (unsigned r = 0; r < map->ranges; r++) {
		struct glk_stretch s = glk_map_slots(map, r);

		for (uint32_t slot = s.first; slot <= s.last; slot++) {
			struct glk_mapping m;
			uint32_t page = map->page[slot];

			if (!page)
				continue;
			m = glk_mapping_at(map, slot);
			busy[page] |= glk_bits_any(map->busy, m.first, m.last);
			stats->mapped += glk_map_page(map, page)->size;
			slot = m.last;
		}
	}
}

static inline void rig_walk_one(
	struct rig *rig, struct glk_map *map, bool *busy, struct glake_stats *s)
{
	rig_walk_extents(&rig->cache.parts, map, s);
	rig_walk_slots(map, busy, s);
}

/* Slots of pages of the GPU in use there that no extent touches. */
static inline uint64_t rig_walk_stranded(struct glk_map *map)
{
	uint64_t bytes = 0;

	for (unsigned r = 0; r < map->ranges; r++) {
		struct glk_stretch s = glk_map_slots(map, r);

		for (uint32_t slot = s.first; slot <= s.last; slot++) {
			struct glk_mapping m;

			if (!map->page[slot] || glk_bit_get(map->busy, slot) ||
				glk_map_is_host(map, map->page[slot]))
				continue;
			m = glk_mapping_at(map, slot);
			if (glk_bits_any(map->busy, m.first, m.last))
				bytes += glk_slot_bytes(map);
		}
	}
	return bytes;
}

/* Bytes that live blocks have on the host, in place. */
static inline void rig_walk_placed(struct glk_map *map, struct glake_stats *s)
{
	uint32_t used = glk_load_relaxed(&map->extents.used);

	for (uint32_t id = 1; id <= used; id++) {
		const struct glk_extent *e = glk_extent_at(map, id);
		uint64_t end = e->offset + glk_extent_asked(e), bytes = 0, next;

		if (glk_extent_state(e) != GLK_EXTENT_LIVE || glk_extent_away(e))
			continue;
		for (uint64_t at = e->offset; at < end; at = next) {
			uint32_t slot = (uint32_t)(at >> map->shift);

			next = (uint64_t)(slot + 1) << map->shift;
			next = next < end ? next : end;
			if (glk_map_is_host(map, map->page[slot]) &&
				glk_part_stands(map, e, slot))
				bytes += next - at;
		}
		s->placed += bytes;
		s->placed_blocks += bytes > 0;
	}
}

/* Bytes of pages that are used in a map, or were last. */
static inline uint64_t rig_walk_held(struct glk_map *map)
{
	uint32_t used = map->pool ? glk_load_relaxed(&map->pool->pages.used) : 0;
	uint64_t held = 0;

	for (uint32_t id = 1; id <= used; id++)
		held += glk_map_page(map, id)->map == map ? glk_map_page(map, id)->size
							  : 0;
	return held;
}

/* The blocks that are linked at a head of a bin; their bytes are added up. */
static inline uint32_t rig_walk_head(
	struct rig *rig, const struct glk_idstack *s, uint64_t *bytes)
{
	struct glk_map *map = &rig->cache.arena.map;
	uint32_t id = (uint32_t)(glk_load_relaxed(&s->head) & GLK_ID_MASK), count = 0;

	for (; id && count <= map->extents.max; count++) {
		struct glk_extent *e = glk_extent_at(map, id);

		if (glk_extent_state(e) != GLK_EXTENT_QUICK)
			tap_note("extent %" PRIu32 " is in a bin, and in state %d", id,
				glk_extent_state(e));
		*bytes += e->size;
		id = glk_load_relaxed(&e->quick.next);
	}
	return count;
}

static inline uint32_t rig_walk_bin(
	struct rig *rig, const struct glk_bin *bin, uint64_t *bytes)
{
	struct glk_crowd *crowd = glk_load_relaxed(&bin->crowd);
	uint32_t count = rig_walk_head(rig, &bin->head, bytes);

	for (int i = 0; crowd && i < GLK_CROWD_HEADS; i++)
		count += rig_walk_head(rig, &crowd->at[i].head, bytes);
	return count;
}

/* Extents that were freed and are not free: in a bin each, save those that are out. */
static inline bool rig_bins_are_sound(struct rig *rig)
{
	struct glk_cache *cache = &rig->cache;
	uint32_t used = glk_load_relaxed(&cache->arena.map.extents.used);
	uint64_t bytes = 0, quick = 0, in_bins = 0, blocks = 0;
	bool sound = true;

	for (uint32_t id = 1; id <= used; id++) {
		const struct glk_extent *e = glk_extent_at(&cache->arena.map, id);

		if (glk_extent_state(e) != GLK_EXTENT_QUICK ||
			glk_load_relaxed(&e->bin) == GLK_BIN_PINNED)
			continue;
		quick += e->size;
		blocks++;
	}
	for (uint32_t r = 0; r <= cache->last_row; r++) {
		struct glk_row *row = &cache->rows[r];

		for (uint32_t i = 0; row->bin && i < GLK_BINS; i++) {
			uint32_t count = rig_walk_bin(rig, &row->bin[i], &bytes);

			in_bins += count;
			if (!count ||
				(glk_load_relaxed(&row->touched) &&
					glk_bit_get(row->keyed, i)))
				continue;
			tap_note("row %" PRIu32 ", bin %" PRIu32
				 ": nobody looks for its %" PRIu32 " blocks",
				r, i, count);
			sound = false;
		}
	}
	if (in_bins == blocks && bytes == quick)
		return sound;
	tap_note("bins hold %" PRIu64 " blocks, %" PRIu64 " bytes; %" PRIu64
		 " are neither given nor free, %" PRIu64 " bytes",
		in_bins, bytes, blocks, quick);
	return false;
}

/* Whether a pool's own figures are those of a walk. */
static inline bool rig_pool_is_sound(struct glk_graph *g,
	const struct glake_stats *before, const struct glake_stats *after)
{
	if (g->blocks == after->live_blocks - before->live_blocks &&
		g->live == after->live - before->live)
		return true;
	tap_note("pool %" PRIu64 ": %" PRIu64 " blocks of %" PRIu64
		 " bytes told, %" PRIu64 " of %" PRIu64 " walked",
		g->id.low, g->blocks, g->live, after->live_blocks - before->live_blocks,
		after->live - before->live);
	return false;
}

/* Blocks of managed memory; what stands for its pages is of no node of the GPU. */
static inline void rig_walk_managed(struct rig *rig, struct glake_stats *s)
{
	const struct glk_managed *m = rig->cache.managed;
	struct glake_stats own = {0};

	for (uint32_t i = 0; m && i < m->used; i++)
		if (m->at[i].state == GLK_CHUNK_READY)
			rig_walk_extents(&rig->cache.parts,
				(struct glk_map *)&m->at[i].arena.map, &own);
	s->live += own.live;
	s->given += own.given;
	s->live_blocks += own.live_blocks;
	s->managed += own.live;
	s->managed_blocks += own.live_blocks;
}

/* Counts what the figures tell from the extents, slots and pages themselves; false if pools do
 * not agree with theirs. */
static inline bool rig_walk_all(struct rig *rig, struct glake_stats *ret)
{
	uint32_t pages = glk_load_relaxed(&rig->pool.pages.used);
	struct glk_graphs *graphs = glk_graphs(&rig->cache);
	struct glk_graph *graph;
	const struct glk_node *host = rig->cache.host;
	bool *busy = calloc(pages + 1, sizeof(*busy)), same = true;
	struct glake_stats s = {0}, before;

	if (!busy)
		tap_bail("no memory for the walk");
	rig_walk_managed(rig, &s);
	s.host_held = rig->cache.mover.store.held + rig->cache.mover.store.packs;
	for (struct glk_arena *a = &rig->cache.arena; a; a = a->next) {
		before = s;
		rig_walk_one(rig, &a->map, busy, &s);
		rig_walk_placed(&a->map, &s);
		s.stranded += rig_walk_stranded(&a->map);
		/* the first entry is of no tag */
		if (a->ops != &glk_arena_tag ||
			glk_tag_of(a) == glk_tags(&rig->cache)->at)
			continue;
		s.tagged += s.live - before.live;
		s.tagged_blocks += s.live_blocks - before.live_blocks;
		s.tagged_held += rig_walk_held(&a->map);
	}
	for (uint32_t i = 0; (graph = glk_graph_next(graphs, &i));) {
		before = s;
		rig_walk_one(rig, &graph->arena.map, busy, &s);
		s.stranded += rig_walk_stranded(&graph->arena.map);
		same &= rig_pool_is_sound(graph, &before, &s);
		s.pools++;
		s.pool_held += rig_walk_held(&graph->arena.map);
	}
	for (uint32_t id = 1; id <= pages; id++) {
		struct glk_page *p = glk_page_at(&rig->pool, id);
		enum glk_page_state state = glk_page_state(p);

		if (state == GLK_PAGE_EMPTY)
			continue;
		if (host && p->node == host->index) {
			s.host_held += p->size;
			s.lost += state == GLK_PAGE_LOST ? p->size : 0;
			continue;
		}
		s.reserved += p->size;
		s.lost += state == GLK_PAGE_LOST ? p->size : 0;
		if (state == GLK_PAGE_FREE || (state == GLK_PAGE_OWNED && !busy[id]))
			s.free_pages += p->size;
		s.idle += state == GLK_PAGE_OWNED && !busy[id] ? p->size : 0;
	}
	free(busy);
	*ret = s;
	return same;
}

static inline struct glake_stats rig_walk(struct rig *rig)
{
	struct glake_stats s = {0};

	rig_walk_all(rig, &s);
	return s;
}

/* The tables of the GPU's own arena, of the one on the host and of all pools, against each other. */
static inline bool rig_verify(struct rig *rig)
{
	struct glk_graphs *graphs = glk_graphs(&rig->cache);
	struct glk_graph *graph;
	int err = 0;

	for (struct glk_arena *a = &rig->cache.arena; a && !err; a = a->next)
		err = glk_map_verify(&a->map);
	for (uint32_t i = 0; rig->cache.managed && i < rig->cache.managed->used && !err;
		i++)
		if (rig->cache.managed->at[i].state == GLK_CHUNK_READY)
			err = glk_map_verify(&rig->cache.managed->at[i].arena.map);
	for (uint32_t i = 0; !err && (graph = glk_graph_next(graphs, &i));)
		err = glk_map_verify(&graph->arena.map);
	if (err)
		tap_note("%s", rig_error().text);
	return !err;
}

#include "unit/cache/runs.h"
/* Whether streams have all that is live, and all that lies in bins. */
static inline bool rig_streams_are_sound(struct rig *rig, const struct glake_stats *told)
{
	uint64_t given = 0, blocks = 0, quick = 0;
	struct glk_survey survey;

	glk_cache_survey(&rig->cache, &survey);
	for (size_t i = 0; i < survey.streams; i++) {
		given += survey.stream[i].given;
		blocks += survey.stream[i].blocks;
		quick += survey.stream[i].quick;
	}
	/* what is out and was freed is taken, and in no bin */
	if (given == told->given && blocks == told->live_blocks && quick <= told->quick)
		return true;
	tap_note("streams have %" PRIu64 " bytes of %" PRIu64 ", %" PRIu64
		 " blocks of %" PRIu64 ", %" PRIu64 " bytes in bins of %" PRIu64,
		given, told->given, blocks, told->live_blocks, quick, told->quick);
	return false;
}

/* The extents of an arena, and those that are away in part: each has a record. False: descriptors are
 * left over. */
static inline bool rig_walk_records(const struct glk_map *map, uint32_t *parts)
{
	uint32_t used = glk_load_relaxed(&map->extents.used), extents = 0;

	if (!map->pool)
		return true;
	for (uint32_t id = 1; id <= used; id++) {
		const struct glk_extent *e = glk_extent_at(map, id);

		extents += glk_extent_state(e) != GLK_EXTENT_NONE;
		*parts += glk_part_is(e);
	}
	if (extents == glk_load_relaxed(&map->extents.live))
		return true;
	tap_note("%u extents, with %u descriptors", extents,
		glk_load_relaxed(&map->extents.live));
	return false;
}

/* Whether there is a record for each extent, page and block that is away in part, and none of a place of
 * contents where nothing is away. */
static inline bool rig_records_are_sound(struct rig *rig)
{
	struct glk_cache *cache = &rig->cache;
	uint32_t parts = 0, pages = 0, graphs = 0,
		 runs = glk_load_relaxed(&cache->mover.store.runs.live);
	struct glk_graph *graph;
	bool same = true;

	for (struct glk_arena *a = &cache->arena; a; a = a->next)
		same &= rig_walk_records(&a->map, &parts);
	while ((graph = glk_graph_next(glk_graphs(cache), &graphs)))
		same &= rig_walk_records(&graph->arena.map, &parts);
	for (uint32_t id = 1; id <= glk_load_relaxed(&rig->pool.pages.used); id++)
		pages += glk_page_state(glk_page_at(&rig->pool, id)) != GLK_PAGE_EMPTY;
	if (parts == glk_load_relaxed(&cache->parts.live) &&
		pages == glk_load_relaxed(&rig->pool.pages.live) &&
		(cache->away_blocks || !runs))
		return same;
	tap_note("%u blocks are away in part, with %u records; %u pages, with %u; %u are "
		 "away, with %u places",
		parts, glk_load_relaxed(&cache->parts.live), pages,
		glk_load_relaxed(&rig->pool.pages.live), (unsigned)cache->away_blocks,
		runs);
	return false;
}

/* clang-format off */
#define RIG_FIGURES(X)                                                                   \
	X(live) X(given) X(live_blocks) X(quick) X(reserved) X(free_pages) X(placed) \
	X(placed_blocks) X(host_held) X(idle) X(stranded) X(in_flight) X(managed) \
	X(managed_blocks) X(tagged) X(tagged_blocks) X(tagged_held) X(mapped) X(lost) \
	X(free_extents) X(largest_hole) X(pools) X(pool_held) X(elastic) X(elastic_blocks)
/* clang-format on */

/* Whether books, walk and device tell the same; says what does not. */
static inline bool rig_is_sound(struct rig *rig)
{
	struct glake_stats told = rig_figures(rig), seen;
	struct glk_soft_managed managed = {0};
	size_t unused = 0, total = 0;
	bool same;

	if (!glk_load_relaxed(&rig->cache.started))
		return true;
	if (!rig_verify(rig))
		return false;
	same = rig_bins_are_sound(rig);
	same &= rig_streams_are_sound(rig, &told);
	same &= rig_records_are_sound(rig);
	same &= rig_walk_all(rig, &seen);
	same &= rig_runs_are_sound(rig, &told);
#define X(figure)                                                                        \
	if (told.figure != seen.figure) {                                                \
		tap_note(#figure ": told %" PRIu64 ", walked %" PRIu64, told.figure,     \
			seen.figure);                                                    \
		same = false;                                                            \
	}
	RIG_FIGURES(X)
#undef X
	glk_soft_managed_figures(rig->drv, 0, &managed);
	/* the software device's own count; only a driver that fails on demand does not tell */
	if (!rig->drv->ops->memory_info(rig->drv, 0, &unused, &total) &&
		total - unused != told.reserved + managed.resident) {
		tap_note("reserved: told %" PRIu64 ", the device has %zu", told.reserved,
			total - unused);
		same = false;
	}
	return same;
}

#define is_sound(rig, what) ok(rig_is_sound(rig), what)

#endif
