/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Compiled once for all tests, in each of which it would be the most of what there is to compile. */
#include "unit/cache/walk.h"
#include "cache/bin/own.h"
#include "unit/cache/books.h"
#include "unit/cache/parts.h"
#include "unit/cache/runs.h"

struct glake_stats walk_figures(struct glk_cache *cache)
{
	struct glake_stats stats;

	glk_cache_figures(cache, &stats);
	return stats;
}

/* What the extents of an arena tell. */
static void walk_extents(
	const struct glk_slab *parts, struct glk_map *map, struct glake_stats *s)
{
	uint32_t used = glk_load_relaxed(&map->extents.used);

	for (uint32_t id = 1; id <= used; id++) {
		const struct glk_extent *e = glk_extent_at(map, id);

		if (glk_extent_state(e) == GLK_EXTENT_LIVE) {
			const struct glk_part *part = glk_slab_at(
				parts, glk_load_relaxed(&e->kept) & GLK_KEPT_RUN);
			bool elastic = glk_part_is(e) && part->elastic;
			uint64_t bare = elastic ? part->bare + part->shared : 0;
			uint64_t shared = elastic ? part->shared : 0;

			s->live += glk_extent_asked(e) - bare;
			s->given += e->size - shared -
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
static void walk_slots(struct glk_map *map, bool *busy, struct glake_stats *stats)
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

static void walk_one(
	struct glk_cache *cache, struct glk_map *map, bool *busy, struct glake_stats *s)
{
	walk_extents(&cache->parts, map, s);
	walk_slots(map, busy, s);
}

/* Slots of pages of the GPU in use there that no extent touches. */
static uint64_t walk_stranded(struct glk_map *map)
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
static void walk_placed(struct glk_map *map, struct glake_stats *s)
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
static uint64_t walk_held(struct glk_map *map)
{
	uint32_t used = map->pool ? glk_load_relaxed(&map->pool->pages.used) : 0;
	uint64_t held = 0;

	for (uint32_t id = 1; id <= used; id++)
		held += glk_map_page(map, id)->map == map ? glk_map_page(map, id)->size
							  : 0;
	return held;
}

/* The blocks that are linked at a head of a bin; their bytes are added up. */
static uint32_t walk_head(
	struct glk_cache *cache, const struct glk_idstack *s, uint64_t *bytes)
{
	struct glk_map *map = &cache->arena.map;
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

static uint32_t walk_bin(
	struct glk_cache *cache, const struct glk_bin *bin, uint64_t *bytes)
{
	struct glk_crowd *crowd = glk_load_relaxed(&bin->crowd);
	uint32_t count = walk_head(cache, &bin->head, bytes);

	for (int i = 0; crowd && i < GLK_CROWD_HEADS; i++)
		count += walk_head(cache, &crowd->at[i].head, bytes);
	return count;
}

/* The lookaside list of a row: of its stream, of the sizes that it says, and looked for. Blocks there. */
static uint32_t walk_aside(
	struct glk_cache *cache, uint32_t r, uint64_t *bytes, bool *sound)
{
	const struct glk_row *row = &cache->rows[r];
	uint32_t count = 0;

	for (unsigned i = 0; i < GLK_LOOKASIDE; i++) {
		uint64_t word = glk_load_relaxed(&row->aside.place[i]);
		uint64_t key = word >> GLK_ID_BITS;
		const struct glk_extent *e;

		if (!word)
			continue;
		e = glk_extent_at(&glk_own_numbered(cache, glk_lookaside_arena(key))->map,
			(uint32_t)(word & GLK_ID_MASK));
		count++;
		*bytes += e->size;
		if (glk_extent_state(e) == GLK_EXTENT_QUICK && !e->nested &&
			e->size >> GLK_GRAIN_SHIFT == glk_lookaside_grains(key) &&
			glk_load_relaxed(&e->stream) == r &&
			glk_load_relaxed(&row->touched))
			continue;
		tap_note(
			"row %" PRIu32 ": what place %u of its list says is wrong", r, i);
		*sound = false;
	}
	return count;
}

/* Extents of an arena that were freed and are not free, save those that are out. */
static uint64_t walk_quick(struct glk_map *map, uint64_t *bytes)
{
	uint32_t used = glk_load_relaxed(&map->extents.used);
	uint64_t blocks = 0;

	for (uint32_t id = 1; id <= used; id++) {
		const struct glk_extent *e = glk_extent_at(map, id);

		if (glk_extent_state(e) != GLK_EXTENT_QUICK ||
			glk_load_relaxed(&e->bin) == GLK_BIN_PINNED)
			continue;
		*bytes += e->size;
		blocks++;
	}
	return blocks;
}

/* They are in a bin each, or aside. */
static bool walk_bins_are_sound(struct glk_cache *cache)
{
	uint64_t bytes = 0, quick = 0, in_bins = 0, blocks = 0;
	bool sound = true;

	for (uint32_t n = 0; n <= glk_own_made(cache); n++)
		blocks += walk_quick(&glk_own_numbered(cache, n)->map, &quick);
	for (uint32_t r = 0; r <= cache->last_row; r++) {
		struct glk_row *row = &cache->rows[r];

		in_bins += walk_aside(cache, r, &bytes, &sound);
		for (uint32_t i = 0; row->bin && i < GLK_BINS; i++) {
			uint32_t count = walk_bin(cache, &row->bin[i], &bytes);

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
static bool walk_pool_is_sound(struct glk_graph *g, const struct glake_stats *before,
	const struct glake_stats *after)
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
static void walk_managed(struct glk_cache *cache, struct glake_stats *s)
{
	const struct glk_managed *m = cache->managed;
	struct glake_stats own = {0};

	for (uint32_t i = 0; m && i < m->used; i++)
		if (m->at[i].state == GLK_CHUNK_READY)
			walk_extents(&cache->parts, (struct glk_map *)&m->at[i].arena.map,
				&own);
	s->live += own.live;
	s->given += own.given;
	s->live_blocks += own.live_blocks;
	s->managed += own.live;
	s->managed_blocks += own.live_blocks;
}

/* Chunks of managed memory, each by its blocks. */
static bool walk_chunks_are_sound(struct glk_cache *cache)
{
	struct glk_managed *m = cache->managed;
	uint64_t bytes = 0, blocks = 0;
	bool same = true;

	for (uint32_t i = 0; m && i < m->used; i++) {
		struct glake_stats own = {0};

		if (m->at[i].state != GLK_CHUNK_READY)
			continue;
		walk_extents(&cache->parts, &m->at[i].arena.map, &own);
		same &= books_tell("blocks of a chunk", m->at[i].blocks, own.live_blocks);
		bytes += m->at[i].bytes;
		blocks += own.live_blocks;
	}
	if (!m)
		return same;
	same &= books_tell("bytes of chunks", m->bytes, bytes);
	return same && books_tell("managed blocks", m->blocks, blocks);
}

/* Of the page with these contents; what was dropped is of one slot. */
static uint64_t walk_bytes_kept(
	const struct glk_cache *cache, const struct glk_kept_seal *k)
{
	if (k->page)
		return glk_map_page(&cache->arena.map, k->page)->size;
	return k->run ? glk_store_at(&cache->mover.store, k->run)->bytes
		      : glk_slot_bytes(&cache->arena.map);
}

/* Bytes of ranges that have sealed pages of others: what stands on each, here or suspended, but for one. */
static uint64_t walk_shared(const struct glk_cache *cache)
{
	const struct glk_map *map = &cache->arena.map;
	uint32_t pages = glk_load_relaxed(&map->pool->pages.used), last;
	uint64_t bytes = 0;

	for (uint32_t id = 1; id <= pages; id++) {
		const struct glk_page *p = glk_map_page(map, id);

		if (glk_page_state(p) == GLK_PAGE_OWNED && p->sealed && !p->kept_as)
			bytes += p->sealers ? (p->sealers - 1) * p->size : 0;
	}
	last = glk_load_relaxed(&cache->seals.used);
	for (uint32_t id = 1; id <= last; id++) {
		const struct glk_kept_seal *k = glk_slab_at(&cache->seals, id);

		if (k->refs)
			bytes += walk_bytes_kept(cache, k) *
				(k->refs - 1 +
					(k->page ? glk_map_page(map, k->page)->sealers
						 : 0));
	}
	return bytes;
}

/* Counts what the figures tell from the extents, slots and pages themselves; false if pools do
 * not agree with theirs. */
static bool walk_all(struct glk_cache *cache, struct glake_stats *ret)
{
	uint32_t pages = glk_load_relaxed(&cache->arena.map.pool->pages.used);
	struct glk_graphs *graphs = glk_graphs(cache);
	struct glk_graph *graph;
	const struct glk_node *host = cache->host;
	bool *busy = calloc(pages + 1, sizeof(*busy)), same = true;
	struct glake_stats s = {0}, before;

	if (!busy)
		tap_bail("no memory for the walk");
	walk_managed(cache, &s);
	same &= walk_chunks_are_sound(cache);
	s.elastic_shared = walk_shared(cache);
	s.host_held = cache->mover.store.held + cache->mover.store.packs;
	for (struct glk_arena *a = &cache->arena; a; a = a->next) {
		before = s;
		walk_one(cache, &a->map, busy, &s);
		walk_placed(&a->map, &s);
		s.stranded += walk_stranded(&a->map);
		if (a->ops == &glk_arena_tag) {
			same &= books_tell("bytes of a tag", glk_tag_of(a)->live,
				s.live - before.live);
			same &= books_tell("blocks of a tag", glk_tag_of(a)->blocks,
				s.live_blocks - before.live_blocks);
			same &= books_tell("bytes that are pledged",
				glk_tag_of(a)->limit.pledged, 0);
		}
		/* the first entry is of no tag */
		if (a->ops != &glk_arena_tag || glk_tag_of(a) == glk_tags(cache)->at)
			continue;
		s.tagged += s.live - before.live;
		s.tagged_blocks += s.live_blocks - before.live_blocks;
		s.tagged_held += walk_held(&a->map);
	}
	for (uint32_t i = 0; (graph = glk_graph_next(graphs, &i));) {
		before = s;
		walk_one(cache, &graph->arena.map, busy, &s);
		s.stranded += walk_stranded(&graph->arena.map);
		same &= walk_pool_is_sound(graph, &before, &s);
		s.pools++;
		s.pool_held += walk_held(&graph->arena.map);
	}
	for (uint32_t id = 1; id <= pages; id++) {
		struct glk_page *p = glk_page_at(cache->arena.map.pool, id);
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

struct glake_stats walk_sum(struct glk_cache *cache)
{
	struct glake_stats s = {0};

	walk_all(cache, &s);
	return s;
}

/* The tables of the GPU's own arena, of the one on the host and of all pools, against each other. */
bool walk_verify(struct glk_cache *cache)
{
	struct glk_graphs *graphs = glk_graphs(cache);
	struct glk_graph *graph;
	int err = 0;

	for (struct glk_arena *a = &cache->arena; a && !err; a = a->next)
		err = map_verify(&a->map);
	for (uint32_t i = 0; cache->managed && i < cache->managed->used && !err; i++)
		if (cache->managed->at[i].state == GLK_CHUNK_READY)
			err = map_verify(&cache->managed->at[i].arena.map);
	for (uint32_t i = 0; !err && (graph = glk_graph_next(graphs, &i));)
		err = map_verify(&graph->arena.map);
	if (err) {
		struct glake_error why = {.sz = sizeof(why)};

		glake_last_error(&why);
		tap_note("%s", why.text);
	}
	return !err;
}

/* Whether streams have all that is live, and all that lies in bins. */
static bool walk_streams_are_sound(
	struct glk_cache *cache, const struct glake_stats *told)
{
	uint64_t given = 0, blocks = 0, quick = 0;
	struct glk_survey survey;

	glk_cache_survey(cache, &survey);
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

/* Adds what an arena has of each stream, live or in bins. */
static void walk_born(struct glk_cache *cache, const struct glk_map *map,
	uint64_t *blocks, uint64_t *bytes)
{
	uint32_t used = map->pool ? glk_load_relaxed(&map->extents.used) : 0;

	for (uint32_t id = 1; id <= used; id++) {
		const struct glk_extent *e = glk_extent_at(map, id);
		uint32_t stream = glk_load_relaxed(&e->stream);
		const struct glk_part *part;

		/* one that is out and was freed is nobody's */
		if (glk_extent_state(e) != GLK_EXTENT_LIVE &&
			(glk_extent_state(e) != GLK_EXTENT_QUICK ||
				glk_load_relaxed(&e->bin) == GLK_BIN_PINNED))
			continue;
		part = glk_part_is(e) ? glk_part_at(cache, e) : NULL;
		blocks[stream]++;
		bytes[stream] += e->size;
		if (part && part->elastic)
			bytes[stream] -=
				part->shared + ((uint64_t)part->bare_slots << map->shift);
	}
}

/* Whether each row has as many blocks and bytes as were born on its stream, and is one of a stream that lives,
 * unless nobody has looked yet for those that ended. */
static bool walk_rows_are_sound(struct glk_cache *cache)
{
	uint64_t *blocks = calloc(2 * (GLK_STREAMS_MAX + 1), sizeof(*blocks));
	uint64_t *bytes = blocks + GLK_STREAMS_MAX + 1;
	const struct glk_streams *streams = &cache->streams;
	struct glk_managed *m = cache->managed;
	struct glk_graph *graph;
	uint32_t graphs = 0;
	bool same = true;

	if (!blocks)
		tap_bail("no memory for the walk");
	for (struct glk_arena *a = &cache->arena; a; a = a->next)
		walk_born(cache, &a->map, blocks, bytes);
	while ((graph = glk_graph_next(glk_graphs(cache), &graphs)))
		walk_born(cache, &graph->arena.map, blocks, bytes);
	for (uint32_t i = 0; m && i < m->used; i++)
		if (m->at[i].state == GLK_CHUNK_READY)
			walk_born(cache, &m->at[i].arena.map, blocks, bytes);
	for (uint32_t r = 0; r <= GLK_STREAMS_MAX && same; r++) {
		const struct glk_row *row = &cache->rows[r];
		const struct glk_stream *s = glk_stream_at(streams, r);

		if (r > cache->last_row && !blocks[r])
			continue;
		same &= books_tell("blocks of a stream", row->blocks, blocks[r]);
		same &= books_tell("their bytes", row->bytes, bytes[r]);
		if (!r || !glk_load_relaxed(&row->entered) ||
			row->key == GLK_ROW_NOBODY || cache->ended != streams->ended)
			continue;
		same &= books_tell("a row of a stream that lives",
			s->state == GLK_STREAM_LIVE &&
				glk_load_relaxed(&s->key) == row->key,
			true);
	}
	free(blocks);
	return same;
}

/* The extents of an arena, and those that are away in part: each has a record. False: descriptors are
 * left over. */
static bool walk_records(const struct glk_map *map, uint32_t *parts)
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
static bool walk_records_are_sound(struct glk_cache *cache)
{
	uint32_t parts = 0, pages = 0, graphs = 0,
		 runs = glk_load_relaxed(&cache->mover.store.runs.live);
	struct glk_graph *graph;
	bool same = true;

	for (struct glk_arena *a = &cache->arena; a; a = a->next)
		same &= walk_records(&a->map, &parts);
	while ((graph = glk_graph_next(glk_graphs(cache), &graphs)))
		same &= walk_records(&graph->arena.map, &parts);
	for (uint32_t id = 1; id <= glk_load_relaxed(&cache->arena.map.pool->pages.used);
		id++)
		pages += glk_page_state(glk_page_at(cache->arena.map.pool, id)) !=
			GLK_PAGE_EMPTY;
	if (parts == glk_load_relaxed(&cache->parts.live) &&
		pages == glk_load_relaxed(&cache->arena.map.pool->pages.live) &&
		(cache->away_blocks || !runs))
		return same;
	tap_note("%u blocks are away in part, with %u records; %u pages, with %u; %u are "
		 "away, with %u places",
		parts, glk_load_relaxed(&cache->parts.live), pages,
		glk_load_relaxed(&cache->arena.map.pool->pages.live),
		(unsigned)cache->away_blocks, runs);
	return false;
}

/* Whether each hint that is not free is where its state says: in the heap, behind those that come before it, or
 * under way; each of those is found by its address, unless nobody waits for it any more; and one that is begun is
 * somebody's. */
static bool walk_hints_are_sound(struct glk_cache *cache)
{
	struct glk_hints *hints = cache->hints;
	uint32_t free = 0, queued = 0, flying = 0, begun = 0, listed = 0, bad = 0;
	uint64_t bytes = 0;

	if (!hints)
		return true;
	for (uint32_t id = 1; id <= hints->used; id++) {
		struct glk_hint *h = &hints->hint[id];
		bool found = h->state && glk_hint_find(hints, h->addr) == h;

		free += h->state == GLK_HINT_FREE;
		queued += h->state == GLK_HINT_QUEUED;
		begun += h->state == GLK_HINT_BEGUN;
		bad += h->state == GLK_HINT_QUEUED && hints->heap[h->at] != id;
		bad += h->state != GLK_HINT_QUEUED && h->at;
		bad += h->state && !found && !h->dropped && !h->fetched;
		bad += h->state == GLK_HINT_LANDED && (h->dropped || h->fetched);
		if (h->state != GLK_HINT_COPYING)
			continue;
		flying++;
		bytes += h->bytes;
	}
	for (uint32_t id = hints->free; id && free; id = hints->hint[id].chain)
		free--;
	for (uint32_t id = hints->first; id && listed <= flying;
		id = hints->hint[id].behind, listed++)
		bad += hints->hint[id].state != GLK_HINT_COPYING ||
			(!hints->hint[id].behind && hints->last != id);
	if (!bad && !free && queued == hints->queued && begun == hints->busy &&
		listed == flying && bytes == hints->flying)
		return true;
	tap_note(
		"hints: %u are wrong; %u are in no list of free ones; %u wait, and %u are told; %u are begun; "
		"%u are under way, %u of them in order, with %" PRIu64
		" bytes of %" PRIu64,
		bad, free, queued, hints->queued, begun, flying, listed, bytes,
		hints->flying);
	return false;
}

/* clang-format off */
#define RIG_FIGURES(X)                                                                   \
	X(live) X(given) X(live_blocks) X(quick) X(reserved) X(free_pages) X(placed) \
	X(placed_blocks) X(host_held) X(idle) X(stranded) X(in_flight) X(managed) \
	X(managed_blocks) X(tagged) X(tagged_blocks) X(tagged_held) X(mapped) X(lost) \
	X(free_extents) X(largest_hole) X(pools) X(pool_held) X(elastic) X(elastic_blocks) X(elastic_shared)
/* clang-format on */

/* The one is never more than the other. */
/* clang-format off */
#define WALK_ORDERED(X)                                                                  \
	X(misses, allocs) X(called, misses) X(stitches, misses) X(live, given) \
	X(live, peak_live) X(reserved, peak_reserved) X(host_held, peak_host_held) \
	X(away_blocks, live_blocks) X(placed, live) X(placed_peer, placed) \
	X(placed_peer, borrowed) X(store_used, store) X(store_peer_used, store_peer) \
	X(idle, free_pages) X(free_pages, reserved) X(victims, spills)
/* clang-format on */

/* Whether figures agree with each other. */
static bool walk_figures_agree(const struct glake_stats *s)
{
	bool agree = true;

#define X(less, more)                                                                    \
	if (s->less > s->more) {                                                         \
		tap_note(#less " %" PRIu64 " is more than " #more " %" PRIu64, s->less,  \
			s->more);                                                        \
		agree = false;                                                           \
	}
	WALK_ORDERED(X)
#undef X
	return agree;
}

/* Whether tables agree with each other. */
bool walk_tables_are_sound(struct glk_cache *cache)
{
	struct glake_stats told = walk_figures(cache);
	bool same;

	if (!walk_verify(cache))
		return false;
	same = walk_bins_are_sound(cache);
	same &= walk_streams_are_sound(cache, &told);
	same &= walk_rows_are_sound(cache);
	same &= walk_records_are_sound(cache);
	same &= walk_hints_are_sound(cache);
	same &= walk_parts_are_sound(cache);
	same &= books_store(&cache->mover.store);
	same &= books_streams(&cache->streams);
	return same && books_hostpool(&cache->hostpool);
}

/* Whether they, books, walk and device tell the same; says what does not. The GPU is the only one. */
bool walk_is_sound(struct glk_cache *cache)
{
	struct glake_stats told = walk_figures(cache), seen;
	struct glk_soft_managed managed = {0};
	size_t unused = 0, total = 0;
	bool same;

	if (!glk_load_relaxed(&cache->started))
		return true;
	if (!walk_tables_are_sound(cache))
		return false;
	same = walk_all(cache, &seen);
	same &= walk_runs_are_sound(cache, &told);
	same &= walk_figures_agree(&told);
	same &= books_node(cache->node);
	for (const struct glk_node *node = cache->host; node; node = node->peer)
		same &= books_node(node);
#define X(figure)                                                                        \
	if (told.figure != seen.figure) {                                                \
		tap_note(#figure ": told %" PRIu64 ", walked %" PRIu64, told.figure,     \
			seen.figure);                                                    \
		same = false;                                                            \
	}
	RIG_FIGURES(X)
#undef X
	glk_soft_managed_figures(cache->drv, cache->device, &managed);
	/* the software device's own count; only a driver that fails on demand does not tell */
	if (!cache->drv->ops->memory_info(cache->drv, cache->device, &unused, &total) &&
		total - unused != told.reserved + managed.resident) {
		tap_note("reserved: told %" PRIu64 ", the device has %zu", told.reserved,
			total - unused);
		same = false;
	}
	return same;
}
