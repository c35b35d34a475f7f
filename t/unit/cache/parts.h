/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_UNIT_CACHE_PARTS_H
#define GLK_UNIT_CACHE_PARTS_H

/* A part of walk.c: what the records of blocks that are away in part tell (move/part.h), against the bits and the
 * pieces of their slots; and what a GPU tells of all that is away, against those. */

struct walk_parts {
	uint64_t away_blocks, away, suspended, bare, shared;
	uint32_t pieces; /* of sealed pages */
	bool same;
};

/* Contents in the store take as many chunks as their bytes need, and no more. */
static inline bool walk_content(
	const struct glk_store *store, uint32_t run, uint64_t bytes)
{
	const struct glk_store_run *first = glk_store_at(store, run), *r;
	uint64_t room = 0, used = first->skip + first->bytes;

	for (; run; run = r->next) {
		r = glk_store_at(store, run);
		room += r->packed ? r->size : r->chunks * GLK_STORE_CHUNK;
	}
	if (first->bytes >= bytes && first->skip < GLK_STORE_CHUNK && used <= room &&
		room - used < GLK_STORE_CHUNK)
		return true;
	tap_note("contents of %" PRIu64 " bytes, told as %" PRIu64 " behind %" PRIu32
		 ", have room for %" PRIu64,
		bytes, first->bytes, first->skip, room);
	return false;
}

/* The content of the first piece of a block that is away. */
uint32_t first_run_of(const struct glk_arena *arena, const struct glk_extent *e)
{
	return glk_part_is(e)
		? *glk_part_word(arena, e, glk_extent_first(&arena->map, e)) &
			GLK_KEPT_RUN
		: glk_kept_run(e);
}

/* Of a piece what its words say. */
static inline void walk_piece(struct glk_arena *arena, const struct glk_extent *e,
	const struct glk_piece *p, struct glk_part *sum, struct walk_parts *all)
{
	uint32_t run = p->word & GLK_KEPT_RUN;
	uint64_t addr, bytes = glk_part_span(&arena->map, e, p->s, &addr);

	sum->away += bytes;
	sum->dropped += run ? 0 : bytes;
	sum->suspended += (p->word & GLK_KEPT_SUSPENDED) > 0;
	sum->tagged += (p->word & GLK_KEPT_TAGGED) > 0;
	if (p->word & GLK_KEPT_SEALED) {
		all->pieces++;
	} else if (run) {
		sum->afar += glk_store_at(&arena->gpu->mover.store, run)->afar;
		all->same &= walk_content(&arena->gpu->mover.store, run, bytes) &&
			glk_store_at(&arena->gpu->mover.store, run)->bytes == bytes;
	}
}

/* A record is counted again, slot by slot and piece by piece. */
static inline void walk_part(
	struct glk_arena *arena, const struct glk_extent *e, struct walk_parts *all)
{
	const struct glk_map *map = &arena->map;
	const struct glk_part *part = glk_part_at(arena->gpu, e);
	struct glk_stretch s = glk_part_all(map, e), kept;
	uint32_t begun = 0, pieces = 0, flags = glk_load_relaxed(&e->kept);
	struct glk_part sum = {0};
	uint64_t addr;

	for (uint32_t slot = s.first; slot <= s.last; slot++) {
		bool gone = glk_part_gone(map, e, slot);

		sum.slots += gone;
		if (part->elastic && glk_bit_get(map->bare, slot)) {
			sum.bare_slots++;
			sum.bare += glk_part_span(
				map, e, (struct glk_stretch){slot, slot}, &addr);
			all->same &= books_tell("a bare slot is gone", gone, true);
		}
		sum.sealed += !gone && glk_is_sealed(map, slot);
		begun += slot > s.first && glk_bit_get(map->begun, slot);
	}
	kept = glk_part_kept(map, e, s.first, s.last);
	while (kept.first <= kept.last) {
		struct glk_piece p = glk_part_piece(arena, e, kept.first);

		pieces += p.s.first > s.first;
		walk_piece(arena, e, &p, &sum, all);
		kept = glk_part_kept(map, e, p.s.last + 1, s.last);
	}
	all->same &= books_tell("pieces that begin", begun, pieces);
	all->same &= books_tell(
		"a record of one that is here", part->elastic || sum.slots, true);
	all->same &= books_tell("slots that are gone", part->slots, sum.slots);
	all->same &= books_tell("slots that are bare", part->bare_slots, sum.bare_slots);
	all->same &= books_tell("bytes that are bare", part->bare, sum.bare);
	all->same &= books_tell("slots that are sealed", part->sealed, sum.sealed);
	all->same &= books_tell("bytes of a block that are away", part->away, sum.away);
	all->same &= books_tell("bytes that were dropped", part->dropped, sum.dropped);
	all->same &= books_tell("bytes with another GPU", part->afar, sum.afar);
	all->same &= books_tell("suspended pieces", part->suspended, sum.suspended);
	all->same &= books_tell("tagged pieces", part->tagged, sum.tagged);
	all->same &= books_tell("a block with suspended pieces",
		(flags & GLK_KEPT_SUSPENDED) > 0, sum.suspended > 0);
	all->same &= books_tell("a block with tagged pieces",
		(flags & GLK_KEPT_TAGGED) > 0, sum.tagged > 0);
	all->same &= books_tell(
		"a block that is away", glk_extent_away(e), sum.slots > s.last - s.first);
	all->away += sum.away;
	all->away_blocks += !part->elastic || sum.away;
	all->bare += (uint64_t)sum.bare_slots << map->shift;
	all->shared += part->shared;
}

static inline void walk_arena_parts(struct glk_arena *arena, struct walk_parts *all)
{
	uint32_t used = glk_load_relaxed(&arena->map.extents.used);
	uint64_t tagged = 0;

	for (uint32_t id = 1; id <= used; id++) {
		const struct glk_extent *e = glk_extent_at(&arena->map, id);

		if (glk_extent_state(e) != GLK_EXTENT_LIVE || !glk_extent_lacks(e))
			continue;
		all->suspended += glk_part_went(e, GLK_KEPT_SUSPENDED);
		tagged += glk_part_went(e, GLK_KEPT_TAGGED);
		if (glk_part_is(e)) {
			walk_part(arena, e, all);
			continue;
		}
		all->away += glk_extent_asked(e);
		all->away_blocks++;
		/* small ones of a page have one together */
		if (glk_kept_run(e))
			all->same &= walk_content(&arena->gpu->mover.store,
				glk_kept_run(e), glk_extent_asked(e));
	}
	all->same &=
		books_tell("blocks away with their tag", arena->suspended_blocks, tagged);
}

/* Records of sealed pages that are away: each is told of by its pieces, and by its page if it has one. */
static inline bool walk_seals(const struct glk_cache *cache, uint32_t pieces)
{
	const struct glk_map *map = &cache->arena.map;
	uint32_t last = glk_load_relaxed(&cache->seals.used), refs = 0, live = 0;
	bool same = true;

	for (uint32_t id = 1; id <= last; id++) {
		const struct glk_kept_seal *k = glk_slab_at(&cache->seals, id);

		if (!k->refs)
			continue;
		refs += k->refs;
		live++;
		if (k->page)
			same &= books_tell("the record of a page",
				glk_map_page(map, k->page)->kept_as, id);
	}
	same &= books_tell(
		"records of sealed pages", glk_load_relaxed(&cache->seals.live), live);
	return same && books_tell("pieces of sealed pages", refs, pieces);
}

static inline bool walk_parts_are_sound(struct glk_cache *cache)
{
	struct walk_parts all = {.same = true};

	for (struct glk_arena *a = &cache->arena; a; a = a->next)
		walk_arena_parts(a, &all);
	all.same &= walk_seals(cache, all.pieces);
	all.same &= books_tell("bytes that are away", cache->away, all.away);
	all.same &=
		books_tell("blocks that are away", cache->away_blocks, all.away_blocks);
	all.same &=
		books_tell("suspended blocks", cache->suspended_blocks, all.suspended);
	all.same &= books_tell("bytes that are not committed", cache->bare, all.bare);
	return all.same && books_tell("bytes that are shared", cache->shared, all.shared);
}

#endif
