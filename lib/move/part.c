/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The books of blocks that are away in part: see part.h. */
#include "base/conf.h"
#include "base/error.h"
#include "move/seal.h"

#include <errno.h>
#include <inttypes.h>

static struct glk_store *store_of(const struct glk_arena *arena)
{
	return &arena->gpu->mover.store;
}

static uint64_t bytes_of(
	const struct glk_arena *arena, const struct glk_extent *e, struct glk_stretch s)
{
	uint64_t addr;

	return glk_part_span(&arena->map, e, s, &addr);
}

uint64_t glk_part_here(const struct glk_arena *arena, const struct glk_extent *e)
{
	if (glk_extent_away(e))
		return 0;
	return glk_extent_asked(e) -
		(glk_extent_part(e) ? glk_part_at(arena->gpu, e)->away +
					glk_part_at(arena->gpu, e)->bare
				    : 0);
}

/* The run of the store that a piece has for itself; 0: none. */
static uint32_t own_run(uint32_t word)
{
	return word & GLK_KEPT_SEALED ? 0 : word & GLK_KEPT_RUN;
}

/* Bytes of a content, 0 for none, that another GPU has. */
static uint64_t afar_of(const struct glk_arena *arena, uint32_t run)
{
	return run ? glk_peek_relaxed(&glk_store_at(store_of(arena), run)->afar) : 0;
}

void glk_part_describe(const struct glk_arena *arena, const struct glk_extent *e,
	struct glake_block *block)
{
	uint32_t kept = glk_load_relaxed(&e->kept);
	const struct glk_part *part;

	block->away = block->size;
	block->dropped = kept & GLK_KEPT_RUN ? 0 : block->size;
	if (!(kept & GLK_KEPT_PIECES)) {
		block->away_peer = afar_of(arena, kept & GLK_KEPT_RUN);
		/* small blocks of a page have one content together */
		if (block->away_peer > block->size)
			block->away_peer = block->size;
		return;
	}
	if ((kept & GLK_KEPT_RUN) > arena->gpu->parts.max)
		return;
	part = glk_slab_at(&arena->gpu->parts, kept & GLK_KEPT_RUN);
	block->committed -= glk_peek_relaxed(&part->bare);
	block->away = glk_peek_relaxed(&part->away);
	block->dropped = glk_peek_relaxed(&part->dropped);
	block->away_peer = glk_peek_relaxed(&part->afar);
}

/* ---- Pieces ---- */

uint32_t *glk_part_word(
	const struct glk_arena *arena, const struct glk_extent *e, uint32_t slot)
{
	return slot == glk_extent_first(&arena->map, e)
		? &glk_part_at(arena->gpu, e)->head
		: &arena->map.piece[slot];
}

struct glk_piece glk_part_piece(
	const struct glk_arena *arena, const struct glk_extent *e, uint32_t slot)
{
	const struct glk_map *map = &arena->map;
	uint32_t first = glk_extent_first(map, e), last = glk_extent_last(map, e);
	uint32_t begin = GLK_BITS_NONE;

	if (slot > first)
		begin = glk_bits_last(map->begun, first + 1, slot);
	if (begin == GLK_BITS_NONE)
		begin = first;
	return (struct glk_piece){
		{begin, glk_part_end(map, begin, last)}, *glk_part_word(arena, e, begin)};
}

/* How many pieces went because of what: the extent itself says whether any did. */
static void count(struct glk_arena *arena, struct glk_extent *e, uint32_t word, bool more)
{
	struct glk_part *part = glk_part_at(arena->gpu, e);
	uint32_t kept = glk_load_relaxed(&e->kept);
	uint64_t *blocks[] = {&arena->gpu->suspended_blocks, &arena->suspended_blocks};
	uint32_t *pieces[] = {&part->suspended, &part->tagged};
	const uint32_t flag[] = {GLK_KEPT_SUSPENDED, GLK_KEPT_TAGGED};

	for (int i = 0; i < 2; i++) {
		if (!(word & flag[i]))
			continue;
		*pieces[i] += more ? 1 : UINT32_MAX;
		if (more ? *pieces[i] == 1 : !*pieces[i]) {
			*blocks[i] += more ? 1 : UINT64_MAX;
			kept ^= flag[i];
		}
	}
	glk_store_relaxed(&e->kept, kept);
}

static void put(
	struct glk_arena *arena, struct glk_extent *e, uint32_t slot, uint32_t word)
{
	*glk_part_word(arena, e, slot) = word;
	if (slot > glk_extent_first(&arena->map, e))
		glk_bit_set(arena->map.begun, slot);
	count(arena, e, word, true);
}

static void take(struct glk_arena *arena, struct glk_extent *e, const struct glk_piece *p)
{
	if (p->s.first > glk_extent_first(&arena->map, e))
		glk_bit_clear(arena->map.begun, p->s.first);
	count(arena, e, p->word, false);
}

/* ---- Records ---- */

/* What of a piece with this word is gone, or no longer. */
static void weigh(struct glk_arena *arena, const struct glk_extent *e,
	struct glk_stretch s, uint32_t word, bool gone)
{
	struct glk_part *part = glk_part_at(arena->gpu, e);
	uint64_t bytes = bytes_of(arena, e, s);

	bytes = gone ? bytes : -bytes;
	if (word & GLK_KEPT_BARE) {
		glk_poke_relaxed(&part->bare, part->bare + bytes);
		part->bare_slots += gone ? s.last - s.first + 1 : s.first - s.last - 1;
		return;
	}
	arena->gpu->away += bytes;
	/* one that is elastic always has a record, and is away with the first byte that is */
	if (part->elastic && gone)
		arena->gpu->away_blocks += !part->away && bytes;
	glk_poke_relaxed(&part->away, part->away + bytes);
	if (part->elastic && !gone)
		arena->gpu->away_blocks -= !part->away && bytes;
	if (!(word & GLK_KEPT_RUN))
		glk_poke_relaxed(&part->dropped, part->dropped + bytes);
}

int glk_part_open(struct glk_arena *arena, struct glk_extent *e)
{
	struct glk_cache *cache = arena->gpu;
	struct glk_part *part;
	uint32_t id;

	if (glk_part_is(e))
		return 0;
	id = glk_slab_get(&cache->parts);
	if (!id)
		return -ENOMEM;
	part = glk_slab_at(&cache->parts, id);
	glk_slab_spoil(part, sizeof(*part));
	glk_poke_relaxed(&part->away, 0);
	glk_poke_relaxed(&part->dropped, 0);
	glk_poke_relaxed(&part->afar, 0);
	part->slots = part->head = part->suspended = part->tagged = part->bare_slots = 0;
	part->elastic = false;
	glk_poke_relaxed(&part->bare, 0);
	part->shared = part->sealed = part->outs = 0;
	part->final = false;
	part->bin = glk_load_relaxed(&e->bin);
	glk_guard_left(arena, e);
	cache->away_blocks++;
	glk_store_relaxed(&e->kept, GLK_KEPT_PIECES | id);
	glk_store_release(&e->bin, GLK_EXTENT_PART); /* pairs with: glk_extent_part */
	return 0;
}

void glk_part_settle(struct glk_arena *arena, struct glk_extent *e, uint32_t on, int err)
{
	struct glk_part *part = glk_part_at(arena->gpu, e);
	struct glk_stretch s = glk_part_all(&arena->map, e);
	uint32_t bin = part->bin;

	if (part->slots || part->elastic) {
		/* pairs with: glk_extent_away, glk_extent_part */
		glk_store_release(&e->bin,
			part->slots > s.last - s.first ? GLK_EXTENT_AWAY
						       : GLK_EXTENT_PART);
		return;
	}
	arena->gpu->away_blocks--;
	glk_slab_put(&arena->gpu->parts, glk_load_relaxed(&e->kept) & GLK_KEPT_RUN);
	glk_store_relaxed(&e->kept, 0);
	if (err)
		glk_store_release(&e->bin, bin); /* likewise */
	else
		glk_away_restore(arena, e, on, bin);
}

int glk_part_elastic(struct glk_arena *arena, struct glk_extent *e, bool grows)
{
	struct glk_stretch all = glk_part_all(&arena->map, e);
	struct glk_part *part;
	int err = glk_part_open(arena, e);

	if (err)
		return err;
	part = glk_part_at(arena->gpu, e);
	arena->gpu->away_blocks--;
	part->elastic = true;
	part->grows = grows;
	part->slots = part->bare_slots = all.last - all.first + 1;
	glk_poke_relaxed(&part->bare, glk_extent_asked(e));
	glk_bits_set(arena->map.bare, all.first, all.last);
	if (all.first < all.last)
		glk_bits_set(arena->map.gone, all.first + 1, all.last);
	glk_or_relaxed(&e->kept, GLK_KEPT_FIRST);
	glk_store_release(&e->bin, GLK_EXTENT_AWAY); /* pairs with: glk_extent_away */
	return 0;
}

int glk_part_check_elastic(const struct glk_arena *arena, const struct glk_extent *e)
{
	if (glk_part_is_elastic(arena->gpu, e))
		return 0;
	return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
		"the block at 0x%" PRIx64 " is not elastic", glk_load_relaxed(&e->addr));
}

/* ---- Moves ---- */

void glk_part_depart(struct glk_arena *arena, struct glk_extent *e, struct glk_stretch s,
	uint32_t word, const struct glk_use *use)
{
	struct glk_part *part = glk_part_at(arena->gpu, e);
	bool sealed = glk_is_sealed(&arena->map, s.first);

	glk_part_leave(&arena->map, e, s, use);
	if (sealed)
		glk_seal_left(arena, e, s);
	if (word & GLK_KEPT_BARE)
		glk_bits_set(arena->map.bare, s.first, s.last);
	else
		put(arena, e, s.first, word);
	weigh(arena, e, s, word, true);
	part->slots += s.last - s.first + 1;
	glk_poke_relaxed(&part->afar, part->afar + afar_of(arena, own_run(word)));
}

/* A part of a piece, or all of it. What is left is a piece again, or two. */
static void arrive(struct glk_arena *arena, struct glk_extent *e,
	const struct glk_piece *p, struct glk_stretch s, uint64_t read, uint32_t spare)
{
	struct glk_part *part = glk_part_at(arena->gpu, e);
	struct glk_stretch low = {p->s.first, s.first - 1}, up = {p->s.first, s.last};
	uint32_t run = own_run(p->word), flags = p->word & ~GLK_KEPT_RUN;
	uint64_t from = s.first > low.first ? bytes_of(arena, e, low) : 0;
	uint64_t afar = part->afar - afar_of(arena, run);
	struct glk_store_rest rest = {0, 0};

	if (p->word & GLK_KEPT_SEALED)
		glk_seal_unref(arena->gpu, p->word, read);
	else if (run && s.first == p->s.first && s.last == p->s.last)
		glk_store_put(store_of(arena), run, read);
	else if (run)
		rest = glk_store_cut(
			store_of(arena), run, from, bytes_of(arena, e, up), read, spare);
	weigh(arena, e, s, p->word, false);
	afar += afar_of(arena, rest.before) + afar_of(arena, rest.behind);
	glk_poke_relaxed(&part->afar, afar);
	take(arena, e, p);
	if (s.first > p->s.first)
		put(arena, e, p->s.first, rest.before | flags);
	if (s.last < p->s.last)
		put(arena, e, s.last + 1, rest.behind | flags);
}

/* Of a stretch that is gone no piece is left. What was not kept is other contents from then on. */
static void clear(struct glk_arena *arena, struct glk_extent *e, struct glk_stretch s,
	uint64_t read, uint32_t spare[2])
{
	struct glk_stretch in;

	for (uint32_t slot = s.first; slot <= s.last; slot = in.last + 1) {
		struct glk_piece p;
		bool before, cut;

		if (glk_bit_get(arena->map.bare, slot)) {
			in = glk_part_bare(&arena->map, slot, s.last);
			weigh(arena, e, in, GLK_KEPT_BARE, false);
			glk_bits_clear(arena->map.bare, in.first, in.last);
			glk_sums_forget(arena->gpu, in.first, in.last - in.first + 1);
			continue;
		}
		p = glk_part_piece(arena, e, slot);
		before = p.s.first < s.first;
		cut = before || p.s.last > s.last;
		in = p.s;
		in.first = before ? s.first : in.first;
		in.last = in.last > s.last ? s.last : in.last;
		arrive(arena, e, &p, in, read, cut ? spare[!before] : 0);
		if (!(p.word & GLK_KEPT_RUN))
			glk_sums_forget(arena->gpu, in.first, in.last - in.first + 1);
	}
}

void glk_part_arrive(struct glk_arena *arena, struct glk_extent *e, struct glk_stretch s,
	uint64_t read, uint32_t spare[2])
{
	clear(arena, e, s, read, spare);
	glk_part_join(&arena->map, e, s);
	glk_part_at(arena->gpu, e)->slots -= s.last - s.first + 1;
}

void glk_part_strip(struct glk_arena *arena, struct glk_extent *e, struct glk_stretch s,
	uint32_t spare[2])
{
	clear(arena, e, s, 0, spare);
	glk_bits_set(arena->map.bare, s.first, s.last);
	weigh(arena, e, s, GLK_KEPT_BARE, true);
}

void glk_part_hash(struct glk_arena *arena, struct glk_extent *e, struct glk_stretch in)
{
	const struct glk_map *map = &arena->map;
	struct glk_mover *mover = &arena->gpu->mover;
	struct glk_stretch s = glk_part_kept(map, e, in.first, in.last);

	while (arena->gpu->conf->tier_verify && s.first <= s.last) {
		struct glk_piece p = glk_part_piece(arena, e, s.first);
		uint32_t run = glk_seal_run(arena->gpu, p.word);

		if (run && !glk_store_at(&mover->store, run)->hashed)
			glk_verify_keep(mover, run);
		s = glk_part_kept(map, e, p.s.last + 1, in.last);
	}
}

int glk_part_home(struct glk_arena *arena, struct glk_extent *e)
{
	struct glk_stretch all = glk_part_all(&arena->map, e), s;
	struct glk_part *part = glk_part_at(arena->gpu, e);
	int err = 0;

	s = glk_part_kept(&arena->map, e, all.first, all.last);
	while (s.first <= s.last && !err) {
		struct glk_piece p = glk_part_piece(arena, e, s.first);
		uint32_t run = own_run(p.word);
		uint64_t afar = part->afar - afar_of(arena, run);

		err = glk_away_home(arena->gpu, glk_seal_run(arena->gpu, p.word));
		glk_poke_relaxed(&part->afar, afar + afar_of(arena, run));
		s = glk_part_kept(&arena->map, e, p.s.last + 1, all.last);
	}
	return err;
}

uint64_t glk_part_empty(
	struct glk_arena *arena, struct glk_extent *e, const struct glk_use *use)
{
	struct glk_map *map = &arena->map;
	struct glk_stretch all = glk_part_all(map, e), s, in;
	struct glk_piece p;
	uint32_t stay = 0;

	s = glk_part_kept(map, e, all.first, all.last);
	for (; s.first <= s.last; s = glk_part_kept(map, e, p.s.last + 1, all.last)) {
		p = glk_part_piece(arena, e, s.first);
		/* what writes it is the stream that writes what comes next */
		if (p.word & GLK_KEPT_SEALED) {
			if (glk_seal_stays(arena, s.first, p.word))
				stay += p.s.last - p.s.first + 1;
			glk_seal_unref(arena->gpu, p.word, 0);
		} else if (p.word & GLK_KEPT_RUN) {
			glk_store_put(store_of(arena), p.word & GLK_KEPT_RUN, 0);
		}
		take(arena, e, &p);
	}
	for (s = glk_part_next(map, e, all.first, all.last, false); s.first <= s.last;
		s = glk_part_next(map, e, in.last + 1, all.last, false)) {
		bool sealed = glk_is_sealed(map, s.first);

		in = glk_part_alike(map, s);
		if (!sealed && in.last == s.last) {
			glk_slots_leave(map, in.first, in.last, use);
			continue;
		}
		if (sealed) {
			in.last = glk_mapping_at(map, in.first).last;
			if (glk_seal_stays(arena, in.first, 0))
				stay += in.last - in.first + 1;
		}
		glk_part_leave(map, e, in, use);
		if (sealed)
			glk_seal_left(arena, e, in);
	}
	if (all.first < all.last)
		glk_bits_clear(map->gone, all.first + 1, all.last);
	if (glk_part_at(arena->gpu, e)->elastic)
		glk_bits_clear(map->bare, all.first, all.last);
	return (uint64_t)stay << map->shift;
}

void glk_part_drop(struct glk_arena *arena, struct glk_extent *e)
{
	const struct glk_part *part = glk_part_at(arena->gpu, e);
	struct glk_map *map = &arena->map;
	uint32_t id = glk_extent_id(map, e);

	arena->gpu->away -= part->away;
	arena->gpu->away_blocks -= !part->elastic || part->away;
	glk_slab_put(&arena->gpu->parts, glk_load_relaxed(&e->kept) & GLK_KEPT_RUN);
	glk_store_relaxed(&e->bin, 0);
	glk_lookup_leave(map, id);
	glk_extent_give_back(map, id);
}
