/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MAP_CLAIM_H
#define GLK_MAP_CLAIM_H

/*
 * Slots that somebody is about to map without holding the lock: the part of a place that has no
 * page to use. Others may not have a place there until that is done, or was undone: they would use
 * memory before it can be accessed, or lose it when it fails.
 *
 * A mapping that somebody is about to remove is told by its slots: they are mapped, and have no
 * page. The same holds for good where the driver refused to.
 */
#include "map/table.h"

static inline void glk_claim(struct glk_map *map, uint32_t first, uint32_t last)
{
	for (uint32_t w = first >> 6; w <= last >> 6; w++)
		map->claimed[w] |= ~map->usable[w] & glk_bits_mask(w, first, last);
	map->space->claims++;
}

static inline void glk_unclaim(struct glk_map *map, uint32_t first, uint32_t last)
{
	glk_bits_clear(map->claimed, first, last);
	map->space->claims--;
}

static inline bool glk_is_claimed(
	const struct glk_map *map, uint32_t first, uint32_t last)
{
	return map->space->claims && glk_bits_any(map->claimed, first, last);
}

#endif
