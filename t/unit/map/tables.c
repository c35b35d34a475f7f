/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The tables of a map, checked against each other: everything that lib/map keeps
 * incrementally is counted again from what it is derived from. It changes nothing.
 *
 * It wants the map at rest, between two requests: each extent that is given out is entered for
 * lookups and stands on its slots, and no page is taken. Cost: all extents and slots, and the
 * tree once for each free extent.
 */
#include "unit/map/tables.h"

#include "base/error.h"

#include <errno.h>
#include <inttypes.h>

#define EIGHTHS (1u << GLK_EIGHTH_SHIFT)

struct tally {
	struct glk_map *map;
	uint32_t head[GLK_RANGES_MAX]; /* first extent of each range */
	uint32_t extents;  /* descriptors in use that no row was met with yet */
	uint32_t free[2];  /* extents: common, nested */
	uint64_t taken[2]; /* bytes of extents that lookups know: common, nested */
	uint64_t nested;   /* bytes of nested extents, free or not */
	uint32_t nests;
	uint32_t slot;	/* slots below have been compared */
	uint32_t count; /* extents that begin or end in that one so far */
};

/* Whether lookups know an extent with that word. */
static bool names(uint64_t word)
{
	bool holders = word & GLK_WORD_HOLDERS;

	switch (glk_word_state(word)) {
	case GLK_EXTENT_LIVE:
	case GLK_EXTENT_QUICK:
		return !holders;
	case GLK_EXTENT_HELD:
		return holders;
	default:
		return false;
	}
}

/* By one look: threads free, take and hold without the lock, and that is no harm. */
static bool is_named(const struct glk_extent *e)
{
	return names(glk_load_relaxed(&e->word));
}

/* The extents that begin a range, and how many there are of all. */
static int find_heads(struct tally *t)
{
	struct glk_map *map = t->map;
	uint32_t used = glk_load_relaxed(&map->extents.used);

	for (uint32_t id = 1; id <= used; id++) {
		const struct glk_extent *e = glk_extent_at(map, id);
		unsigned r = 0;

		if (glk_extent_state(e) == GLK_EXTENT_NONE)
			continue;
		t->extents++;
		if (e->prev)
			continue;
		while (r < map->ranges && map->range[r].offset != e->offset)
			r++;
		if (r == map->ranges || t->head[r])
			return map_unsound("extent %" PRIu32
					   ": none before it, and it begins no range",
				id);
		t->head[r] = id;
	}
	return 0;
}

/* Compares what is known of slots with the extents that were met on them. */
static int settle(struct tally *t, uint32_t end)
{
	const struct glk_map *map = t->map;

	for (; t->slot < end; t->slot++, t->count = 0) {
		if (map->count[t->slot] != t->count ||
			glk_bit_get(map->busy, t->slot) != (t->count > 0))
			return map_unsound("slot %" PRIu32 ": %" PRIu32
					   " live extents, %d counted, busy %d",
				t->slot, t->count, map->count[t->slot],
				glk_bit_get(map->busy, t->slot));
	}
	return 0;
}

/* A live extent counts on the first slot and on the last of what it stands on; nobody else is in
 * between. */
static int stand_on(
	struct tally *t, const struct glk_extent *e, uint32_t first, uint32_t last)
{
	const struct glk_map *map = t->map;
	int err = settle(t, first);

	t->count++;
	if (err || first == last)
		return err;
	err = settle(t, first + 1);
	for (uint32_t slot = first + 1; slot < last && !err; slot++) {
		if (map->count[slot] || !glk_bit_get(map->busy, slot))
			err = map_unsound("slot %" PRIu32 ": inside extent %" PRIu32
					  ", %d counted, busy %d",
				slot, glk_extent_id(map, e), map->count[slot],
				glk_bit_get(map->busy, slot));
	}
	t->slot = last;
	t->count = 1;
	return err;
}

/* What is away stands on no slots. */
static int stand(struct tally *t, const struct glk_extent *e)
{
	const struct glk_map *map = t->map;
	uint32_t first = glk_extent_first(map, e), last = glk_extent_last(map, e);
	struct glk_stretch s = {first, last};
	int err = 0;

	if (glk_extent_away(e))
		return 0;
	if (!glk_extent_part(e))
		return stand_on(t, e, first, last);
	s = glk_part_next(map, e, first, last, false);
	for (; !err && s.first <= s.last;
		s = glk_part_next(map, e, s.last + 1, last, false))
		err = stand_on(t, e, s.first, s.last);
	return err;
}

static int check_lookup(struct tally *t, const struct glk_range *range, uint32_t id)
{
	const struct glk_map *map = t->map;
	const struct glk_extent *e = glk_extent_at(map, id);
	uint64_t addr = range->base + (e->offset - range->offset);
	unsigned shift = map->shift + GLK_GROUP_SHIFT;

	if (glk_lookup_first(range, addr) != id || glk_lookup_around(range, addr) != id ||
		glk_lookup_around(range, addr + e->size - 1) != id)
		return map_unsound("extent %" PRIu32 ": not found by its addresses", id);
	if (e->nested)
		return 0;
	for (uint64_t g = (e->offset >> shift) + 1;
		g <= (e->offset + e->size - 1) >> shift; g++) {
		if (map->cover[g] != id)
			return map_unsound("group %" PRIu64 ": extent %" PRIu32
					   " does not cover it, extent %" PRIu32
					   " is said to",
				g, id, map->cover[g]);
	}
	return 0;
}

static bool in_tree(const struct glk_map *map, const struct glk_tree *tree, uint32_t id)
{
	const struct glk_extent *e = glk_extent_at(map, id), *n;
	uint32_t at = tree->root[glk_tree_class(e->size)];

	for (uint32_t steps = 0; at && at != id && steps < tree->count; steps++) {
		n = glk_extent_at(map, at);
		at = n->size < e->size || (n->size == e->size && n->offset < e->offset)
			? n->tree.right
			: n->tree.left;
	}
	return at == id;
}

/* Extents of a tree, at most `most`, as a walk along it meets them; fewer where it is not in order. */
static uint32_t count_tree(
	const struct glk_map *map, const struct glk_tree *tree, uint32_t most)
{
	uint64_t size = 0, offset = 0;
	struct glk_tree_walk walk;
	uint32_t found = 0, id;

	glk_tree_begin(&walk, tree, 0);
	while (found < most && (id = glk_tree_next(map, &walk))) {
		const struct glk_extent *e = glk_extent_at(map, id);

		if (e->size < size || (e->size == size && e->offset < offset))
			break;
		size = e->size;
		offset = e->offset + 1;
		found++;
	}
	return found;
}

/* Which classes have extents. */
static bool classes_agree(const struct glk_tree *tree)
{
	for (uint32_t i = 0; i < GLK_TREE_CLASSES; i++) {
		if (glk_bit_get(tree->some, i) != (tree->root[i] != 0))
			return false;
	}
	return true;
}

static int check_tree(struct tally *t, bool nested)
{
	const struct glk_map *map = t->map;
	const struct glk_tree *tree = nested ? &map->nested : &map->common;

	if (!classes_agree(tree))
		return map_unsound(
			"the %s tree has a class of which it does not tell, or tells "
			"of an empty one",
			nested ? "nested" : "common");
	if (tree->count != t->free[nested] ||
		count_tree(map, tree, tree->count + 1) != tree->count)
		return map_unsound("the %s tree holds %" PRIu32
				   " extents, counted as %" PRIu32 ", and %" PRIu32
				   " are free",
			nested ? "nested" : "common",
			count_tree(map, tree, tree->count + 1), tree->count,
			t->free[nested]);
	return 0;
}

static int check_nested(struct tally *t, uint32_t id)
{
	const struct glk_extent *e = glk_extent_at(t->map, id);
	uint32_t first = (uint32_t)(e->offset >> t->map->eighth);
	uint32_t last = (uint32_t)((e->offset + e->size - 1) >> t->map->eighth);
	bool nest = glk_extent_first(t->map, e) == glk_extent_last(t->map, e);

	t->nested += e->size;
	for (uint32_t i = first; i <= last && nest; i++)
		nest = glk_load_relaxed(&t->map->start[i]) & GLK_START_NEST;
	if (!nest)
		return map_unsound(
			"extent %" PRIu32 ": nested, and not inside a nest", id);
	return 0;
}

static int check_free(struct tally *t, uint32_t id)
{
	const struct glk_map *map = t->map;
	const struct glk_extent *e = glk_extent_at(map, id);
	const struct glk_extent *p = glk_extent_at(map, e->prev);

	t->free[e->nested]++;
	if (e->prev && glk_extent_state(p) == GLK_EXTENT_FREE && p->nested == e->nested &&
		(!e->nested || glk_extent_first(map, p) == glk_extent_first(map, e)))
		return map_unsound("extent %" PRIu32 ": free beside free extent %" PRIu32,
			id, e->prev);
	if (!in_tree(map, e->nested ? &map->nested : &map->common, id))
		return map_unsound("extent %" PRIu32 ": free and not in the tree", id);
	return 0;
}

/* One extent of a row, which is to begin at `offset`. */
static int check_extent(struct tally *t, const struct glk_range *range, uint32_t id,
	uint32_t prev, uint64_t offset)
{
	const struct glk_extent *e = glk_extent_at(t->map, id);
	uint64_t word = glk_load_relaxed(&e->word);
	int err = 0;

	if (!t->extents-- || e->prev != prev || e->offset != offset)
		return map_unsound("extent %" PRIu32
				   ": does not begin where extent %" PRIu32
				   " before it ends",
			id, prev);
	if (!e->size || e->size % (UINT64_C(1) << GLK_GRAIN_SHIFT) ||
		e->size > range->offset + range->size - offset ||
		glk_load_relaxed(&e->addr) != range->base + (offset - range->offset))
		return map_unsound("extent %" PRIu32 ": %" PRIu64
				   " bytes at address %#" PRIx64,
			id, e->size, glk_load_relaxed(&e->addr));
	if (e->nested)
		err = check_nested(t, id);
	if (err)
		return err;
	if (glk_word_state(word) == GLK_EXTENT_FREE)
		return check_free(t, id);
	if (!names(word))
		return map_unsound("extent %" PRIu32 ": state %d, with %d holders", id,
			glk_word_state(word),
			(int)((word & GLK_WORD_HOLDERS) / GLK_WORD_HOLDER));
	t->taken[e->nested] += e->size;
	err = check_lookup(t, range, id);
	return err ? err : stand(t, e);
}

static int check_row(struct tally *t, unsigned r)
{
	const struct glk_map *map = t->map;
	const struct glk_range *range = &map->range[r];
	struct glk_stretch slots = glk_map_slots(map, r);
	uint64_t offset = range->offset;
	uint32_t id = t->head[r], prev = 0;
	int err = 0;

	t->slot = glk_slot_of(map, range->offset);
	for (; id && !err; id = glk_extent_at(map, id)->next) {
		err = check_extent(t, range, id, prev, offset);
		offset += glk_extent_at(map, id)->size;
		prev = id;
	}
	/* where there was no descriptor, the end of an older range is lost */
	if (!err && r == map->ranges - 1 && (offset != map->high || prev != map->last))
		err = map_unsound("the last extent, %" PRIu32 ", ends at %" PRIu64
				  ", the mark is %" PRIu64 " and the last %" PRIu32,
			prev, offset, map->high, map->last);
	return err || slots.first > slots.last ? err : settle(t, slots.last + 1);
}

/* What a table names at an offset: an extent that begins there, or a wrong one. */
static int check_name(
	const struct tally *t, uint32_t id, bool nested, uint64_t low, uint64_t high)
{
	const struct glk_extent *e = glk_extent_at(t->map, id);

	if (!is_named(e) || e->nested != nested || e->offset < low || e->offset >= high)
		return map_unsound("slot %" PRIu32 ": extent %" PRIu32
				   " does not begin there",
			glk_slot_of(t->map, low), id);
	return 0;
}

static int check_nest(struct tally *t, uint32_t slot, uint32_t nest)
{
	const struct glk_map *map = t->map;
	uint32_t grains = 1u << (map->shift - GLK_GRAIN_SHIFT);
	const glk_atomic(uint32_t) *entries = glk_nest_entries(map, nest);
	int err = 0;

	t->nests++;
	for (uint32_t i = 0; i < grains && !err; i++) {
		uint32_t id = glk_load_relaxed(&entries[i]);
		uint64_t at =
			((uint64_t)slot << map->shift) + ((uint64_t)i << GLK_GRAIN_SHIFT);

		if (glk_bit_get(glk_nest_begins(map, nest), i) != (id > 0))
			err = map_unsound("slot %" PRIu32 ": a begin at grain %" PRIu32
					  " of its nest, or none, and extent %" PRIu32,
				slot, i, id);
		else if (id)
			err = check_name(t, id, true, at, at + 1);
	}
	return err;
}

static int check_starts(struct tally *t, uint32_t slot)
{
	const struct glk_map *map = t->map;
	uint32_t first = slot << GLK_EIGHTH_SHIFT;
	uint32_t nest = 0;
	uint64_t eighth = glk_map_small(map);
	int err = 0;

	for (uint32_t i = first; i < first + EIGHTHS && !err; i++) {
		uint32_t id = glk_load_relaxed(&map->start[i]);
		bool nested = id & GLK_START_NEST;

		if (nested && nest && id != nest)
			err = map_unsound("slot %" PRIu32 ": two nests", slot);
		else if (glk_bit_get(map->begins, i) != (id && !nested))
			err = map_unsound("slot %" PRIu32 ": a begin at eighth %" PRIu32
					  ", or none, and extent %" PRIu32,
				slot, i - first, id);
		else if (id && !nested)
			err = check_name(t, id, false, i * eighth, (i + 1) * eighth);
		nest = nested ? id : nest;
		t->nested -= nested ? eighth : 0;
	}
	return err || !nest ? err : check_nest(t, slot, nest & ~GLK_START_NEST);
}

static int check_cover(const struct glk_map *map, uint32_t group)
{
	uint64_t low = (uint64_t)group << (map->shift + GLK_GROUP_SHIFT);
	const struct glk_extent *e = glk_extent_at(map, map->cover[group]);

	if (map->cover[group] &&
		(!is_named(e) || e->nested || e->offset >= low ||
			e->offset + e->size <= low))
		return map_unsound("group %" PRIu32 ": extent %" PRIu32
				   " does not reach into it",
			group, map->cover[group]);
	return 0;
}

/* Entries that name nothing or the wrong extent; those that are missing were not found. Each place has one entry, which
 * names an extent that begins there, so none is named twice. */
static int check_tables(struct tally *t)
{
	const struct glk_map *map = t->map;
	int err = 0;

	if (t->nested != map->nested_bytes)
		return map_unsound("%" PRIu64 " bytes of nested extents, %" PRIu64
				   " of nests",
			t->nested, map->nested_bytes);
	for (unsigned r = 0; r < map->ranges; r++) {
		struct glk_stretch s = glk_map_slots(map, r);

		for (uint32_t slot = s.first; slot <= s.last && !err; slot++)
			err = check_starts(t, slot);
		for (uint32_t g = s.first >> GLK_GROUP_SHIFT;
			s.first <= s.last && g <= s.last >> GLK_GROUP_SHIFT && !err; g++)
			err = check_cover(map, g);
	}
	if (!err && (t->nests != glk_load_relaxed(&map->nests.live) || t->nested))
		err = map_unsound("%" PRIu32 " nests of %" PRIu32 " in use, with %" PRId64
				  " bytes of extents too many",
			t->nests, glk_load_relaxed(&map->nests.live), (int64_t)t->nested);
	return err;
}

static int verify_space(struct glk_map *map)
{
	struct tally t = {.map = map};
	int err = find_heads(&t);

	for (unsigned r = 0; r < map->ranges && !err; r++)
		err = check_row(&t, r);
	if (!err && t.extents)
		err = map_unsound("%" PRIu32 " extents lie in no row", t.extents);
	if (!err &&
		(t.taken[false] + t.taken[true] != map->taken ||
			t.taken[true] != map->nested_taken))
		err = map_unsound("%" PRIu64 " bytes given out, %" PRIu64
				  " of them nested, counted as %" PRIu64 " and %" PRIu64,
			t.taken[false] + t.taken[true], t.taken[true], map->taken,
			map->nested_taken);
	if (!err)
		err = check_tree(&t, false);
	if (!err)
		err = check_tree(&t, true);
	return err ? err : check_tables(&t);
}

int map_verify(struct glk_map *map)
{
	int err = verify_space(map);

	return err ? err : map_verify_pages(map);
}
