/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * From an address to the live extent around it.
 *
 * Extents above an eighth of a slot begin alone in their eighth: a bit says so, and an entry
 * names them. Around an address it is the nearest bit at or below, searched inside a group of
 * 64 slots, eight words; before those, the extent that reaches into the group. Small extents are
 * found in the nest of their slot, at most an eighth of it away.
 *
 * All of it is read without the lock too, while others enter and leave: see lookup.h.
 */
#include "map/map.h"

static uint32_t eighth_of(const struct glk_map *map, uint64_t offset)
{
	return (uint32_t)(offset >> (map->shift - GLK_EIGHTH_SHIFT));
}

static uint32_t nest_of(const struct glk_map *map, uint64_t offset)
{
	return glk_load_relaxed(&map->start[eighth_of(map, offset)]) & ~GLK_START_NEST;
}

static uint32_t group_of(const struct glk_map *map, uint64_t offset)
{
	return (uint32_t)(offset >> (map->shift + GLK_GROUP_SHIFT));
}

void glk_lookup_put_nested(
	struct glk_map *map, const struct glk_extent *e, uint32_t extent)
{
	uint32_t nest = nest_of(map, e->offset), grain = glk_nest_grain(map, e->offset);

	glk_store_relaxed(&glk_nest_entries(map, nest)[grain], extent);
	glk_bit_put(glk_nest_begins(map, nest), grain, extent);
}

/* The extents that may hold an address; 0: none. The second one counts if it is not the first. */
struct names {
	uint32_t id[2];
};

static struct names names_small(const struct glk_map *map, uint64_t offset)
{
	uint32_t nest = nest_of(map, offset), grain = glk_nest_grain(map, offset);
	uint32_t reach = 1u << (map->shift - GLK_EIGHTH_SHIFT - GLK_GRAIN_SHIFT);
	uint32_t first = grain > reach ? grain - reach : 0;

	first = glk_bits_last(glk_nest_begins(map, nest), first, grain);
	if (first == GLK_BITS_NONE)
		return (struct names){{0}};
	return (struct names){{glk_load_relaxed(&glk_nest_entries(map, nest)[first])}};
}

/* The one that begins in the last eighth of [first, last] that one begins in, or that reaches into
 * the group from before. */
static uint32_t name_large(const struct glk_map *map, uint32_t group, uint32_t at)
{
	uint32_t id;

	if (at == GLK_BITS_NONE)
		return glk_peek_relaxed(&map->cover[group]);
	/* the eighth may have become part of a nest meanwhile */
	id = glk_load_relaxed(&map->start[at]);
	return id & GLK_START_NEST ? 0 : id;
}

static struct names names_large(const struct glk_map *map, uint64_t offset)
{
	uint32_t group = group_of(map, offset), last = eighth_of(map, offset);
	uint32_t first = group << (GLK_GROUP_SHIFT + GLK_EIGHTH_SHIFT);
	uint32_t at = glk_bits_last(map->begins, first, last);
	struct names names = {{name_large(map, group, at)}};

	/* one that begins behind the address in the same eighth does not count */
	if (at == last) {
		at = at > first ? glk_bits_last(map->begins, first, at - 1)
				: GLK_BITS_NONE;
		names.id[1] = name_large(map, group, at);
	}
	return names;
}

static struct names names_of(const struct glk_range *range, uint64_t addr)
{
	const struct glk_map *map = range->map;
	uint64_t offset = addr - range->base + range->offset;

	if (addr - range->base >= range->size)
		return (struct names){{0}};
	return glk_load_relaxed(&map->start[eighth_of(map, offset)]) & GLK_START_NEST
		? names_small(map, offset)
		: names_large(map, offset);
}

uint32_t glk_lookup_around(const struct glk_range *range, uint64_t addr)
{
	struct names names = names_of(range, addr);

	for (int i = 0; i < 2; i++) {
		const struct glk_extent *e = glk_extent_at(range->map, names.id[i]);

		if (names.id[i] && addr - glk_load_relaxed(&e->addr) < e->size)
			return names.id[i];
	}
	return 0;
}

bool glk_lookup_live(
	const struct glk_range *range, uint64_t addr, struct glk_live *ret_live)
{
	struct names names = names_of(range, addr);
	struct glk_live live;

	for (int i = 0; i < 2; i++) {
		if (!names.id[i] ||
			!glk_extent_read(glk_extent_at(range->map, names.id[i]), &live) ||
			addr - live.addr >= live.size)
			continue;
		*ret_live = live;
		return true;
	}
	return false;
}
