/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MAP_LOOKUP_H
#define GLK_MAP_LOOKUP_H

/* From an address to the extent that begins there or lies around it, in constant time. */
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
	struct glk_extent *e =
		glk_extent_at(range->map, glk_lookup_first(range, addr));

	return glk_word_claim(&e->word, &e->addr, addr) ? e : NULL;
}

/* lookup.c, under the lock: an extent is given out, or is no block any more. */
void glk_lookup_enter(struct glk_map *map, uint32_t extent);
void glk_lookup_leave(struct glk_map *map, uint32_t extent);
/* The entered extent that holds an address of a range; 0 for none. */
uint32_t glk_lookup_around(const struct glk_range *range, uint64_t addr);

#endif
