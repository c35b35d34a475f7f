/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Slots of small blocks come and go here. */
#include "map/map.h"

#include <errno.h>

#define EIGHTHS (1u << GLK_EIGHTH_SHIFT)

/* The table of a slot; 0: none of its eighths is a nest. */
static uint32_t nest_of(const struct glk_map *map, uint32_t slot)
{
	for (uint32_t i = 0; i < EIGHTHS; i++) {
		uint32_t name =
			glk_load_relaxed(&map->start[(slot << GLK_EIGHTH_SHIFT) + i]);

		if (name & GLK_START_NEST)
			return name & ~GLK_START_NEST;
	}
	return 0;
}

/* What lookups find in the eighths of an extent. */
static void name(struct glk_map *map, const struct glk_extent *e, uint32_t name)
{
	uint32_t first = (uint32_t)(e->offset >> map->eighth);

	for (uint32_t i = 0; i < e->size >> map->eighth; i++)
		glk_store_relaxed(&map->start[first + i], name);
}

int glk_nest_open(struct glk_map *map, uint32_t extent)
{
	struct glk_extent *e = glk_extent_at(map, extent);
	uint32_t nest = nest_of(map, glk_extent_first(map, e));

	if (!nest)
		nest = glk_slab_get(&map->nests);
	if (!nest)
		return -ENOMEM;
	name(map, e, GLK_START_NEST | nest);
	map->taken -= e->size;
	map->nested_bytes += e->size;
	e->nested = true;
	glk_extent_set(e, GLK_EXTENT_FREE);
	glk_extent_settle(map, extent);
	return 0;
}

void glk_nest_close(struct glk_map *map, uint32_t extent)
{
	struct glk_extent *e = glk_extent_at(map, extent);
	uint32_t slot = glk_extent_first(map, e), nest = nest_of(map, slot);

	name(map, e, 0);
	if (!nest_of(map, slot))
		glk_slab_put(&map->nests, nest);
	map->nested_bytes -= e->size;
	e->nested = false;
}
