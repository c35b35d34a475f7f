/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MAP_RANGE_H
#define GLK_MAP_RANGE_H

/*
 * Addresses, reserved in steps. The tables are sized for all that a map may ever have but
 * touched only as far as it was used, so terabytes of addresses cost no memory.
 */
#include "map/table.h"

struct glk_map_size {
	uint64_t
		step; /* bytes of the first range, and of further ones where they suffice */
	uint64_t most; /* bytes of all ranges */
};

/* The tables for maps with so many bytes of addresses together. 0 or -ENOMEM (NOMEM_HOST). */
int glk_space_init(struct glk_space *space, struct glk_node *node, uint64_t bytes);
/* Takes a zeroed space and one that could not be made. Its maps have ended. */
void glk_space_fini(struct glk_space *space);
/* One map more of a space: reserves its first range, or less of it where the system has not as much. 0,
 * -ENOMEM (addresses: class ADDRESS; tables: NOMEM_HOST). */
int glk_map_init(struct glk_map *map, struct glk_space *space,
	const struct glk_conf *conf, struct glk_map_size size);
/* Takes a zeroed map and one that could not be made. Nothing may be mapped any more. Nobody finds
 * the addresses from then on; the lock is given up, and those who look into the tables without it
 * are waited for: a grace period, where the map has a lock. */
void glk_map_fini(struct glk_map *map);

/* One more range with room for a block of `size` bytes; gives the lock up meanwhile. 0; -ENOMEM: the map has all addresses it
 * may have, or the system has no more; or another error of the driver. Nothing has changed then. */
int glk_map_extend(struct glk_map *map, uint64_t size);

/* Of a map that has its one range, and nothing given yet, only the first bytes are given: whole slots. */
void glk_map_limit(struct glk_map *map, uint64_t bytes);

/* Bytes of host memory that the tables of a map have in use. */
uint64_t glk_map_bytes(const struct glk_map *map);

/* The range of a map that an offset lies in. */
static inline const struct glk_range *glk_map_range(
	const struct glk_map *map, uint64_t offset)
{
	const struct glk_range *range = &map->range[map->ranges - 1];

	while (range > map->range && range->offset > offset)
		range--;
	return range;
}

static inline uint64_t glk_map_addr(const struct glk_map *map, uint64_t offset)
{
	const struct glk_range *range = glk_map_range(map, offset);

	return range->base + (offset - range->offset);
}

#endif
