/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MAP_LOOKUP_H
#define GLK_MAP_LOOKUP_H

/*
 * From an address to the extent that begins there or lies around it, in constant time.
 *
 * Who owns no extent and holds no lock may ask for live ones: an extent that is live is in the
 * tables, and keeps its address, its size, its pages and what they are for as long as it is. The
 * tables name extents by number, and an extent that is named may have become another one, so
 * that it is in fact what it was taken for is read from itself, between two looks at its word.
 *
 *	what		before a life begins	the word	after it has ended
 *	tables		named, relaxed		LIVE, release	no longer, relaxed
 *	fields		release			 ...		release
 *	readers		tables, relaxed, then the word with acquire, the fields with acquire,
 *			what lies behind (pages: acquire), and the word again
 *
 * Ordering	a first look that finds LIVE sees all fields of that life, or later ones. Where a
 *		later one was seen, its release and its acquire order the claim that ended the
 *		life before the second look, which finds another life, or none
 * Answers	yes is true at the second look. No is true at some moment of the call: a block
 *		that is live through all of it keeps its entry, no other entry lies between it
 *		and the address but one in the very same eighth, after which the one before is
 *		tried, and none of the looks at its word fails. If another block came to be there
 *		meanwhile, then there was none in between
 * Progress	wait-free, without a second try: a life that ends under a reader is a no
 * Tables	are there for who found the range in an RCU section, until that ends, since they
 *		go a grace period after the range left the index; and for the lock's holder
 */
#include "map/space/extent.h"
#include "map/space/nest.h"

/* The extent that most likely begins at an address of a range; number 0 or another one if not.
 * Any thread, no lock. */
static inline uint32_t glk_lookup_first(const struct glk_range *range, uint64_t addr)
{
	const struct glk_map *map = range->map;
	/* a range begins with a slot, so what lies inside one lies so in the map too */
	uint64_t offset = addr - range->base;
	uint32_t id = glk_load_relaxed(&range->start[offset >> map->eighth]);

	if (!(id & GLK_START_NEST))
		return id;
	return glk_load_relaxed(&glk_nest_entries(
		map, id & ~GLK_START_NEST)[glk_nest_grain(map, offset)]);
}

/* Makes the live extent that begins at an address of a range QUICK and the caller's own; NULL if
 * there is none. Any thread, no lock. */
static inline struct glk_extent *glk_lookup_claim(
	const struct glk_range *range, uint64_t addr)
{
	struct glk_extent *e = glk_extent_at(range->map, glk_lookup_first(range, addr));

	return glk_word_claim(&e->word, &e->addr, addr) ? e : NULL;
}

/* Holds the live extent that begins at an address of a range: until glk_word_let_go() it cannot be
 * freed. NULL if there is none. Any thread, no lock. */
static inline struct glk_extent *glk_lookup_hold(
	const struct glk_range *range, uint64_t addr)
{
	struct glk_extent *e = glk_extent_at(range->map, glk_lookup_first(range, addr));

	return glk_word_hold(&e->word, &e->addr, addr) ? e : NULL;
}

/* lookup.c. Reads the live extent that holds an address of a range; false: there is none. Any
 * thread, no lock. */
bool glk_lookup_live(
	const struct glk_range *range, uint64_t addr, struct glk_live *ret_live);

/* lookup.c. The entry of a nested extent. */
void glk_lookup_put_nested(
	struct glk_map *map, const struct glk_extent *e, uint32_t extent);

/* Names an extent at its address, or with 0 none. */
static inline void glk_lookup_put(
	struct glk_map *map, const struct glk_extent *e, uint32_t extent)
{
	uint64_t eighth = e->offset >> map->eighth;
	uint64_t last = (e->offset + e->size - 1) >> map->eighth;

	if (e->nested) {
		glk_lookup_put_nested(map, e, extent);
		return;
	}
	glk_store_relaxed(&map->start[eighth], extent);
	if (extent)
		glk_bit_set(map->begins, (uint32_t)eighth);
	else
		glk_bit_clear(map->begins, (uint32_t)eighth);
	/* groups that it reaches into */
	for (uint64_t g = eighth >> GLK_PER_GROUP; g < last >> GLK_PER_GROUP; g++)
		glk_poke_relaxed(&map->cover[g + 1], extent);
}

/* Under the lock: an extent is to be found and stays in the hands of its owner, QUICK; or it is given out, LIVE from
 * now on; or it is no block any more. */
static inline void glk_lookup_list(struct glk_map *map, uint32_t extent)
{
	glk_lookup_put(map, glk_extent_at(map, extent), extent);
}

static inline void glk_lookup_enter(struct glk_map *map, uint32_t extent)
{
	glk_lookup_list(map, extent);
	glk_extent_set(glk_extent_at(map, extent), GLK_EXTENT_LIVE);
}

static inline void glk_lookup_leave(struct glk_map *map, uint32_t extent)
{
	glk_lookup_put(map, glk_extent_at(map, extent), 0);
}

/* The entered extent that holds an address of a range, in whatever state; 0 for none. */
uint32_t glk_lookup_around(const struct glk_range *range, uint64_t addr);

#endif
