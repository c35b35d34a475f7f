/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Slots of small blocks come and go here. */
#include "map/map.h"

#include <errno.h>

#define EIGHTHS (1u << GLK_EIGHTH_SHIFT)

int glk_nest_open(struct glk_map *map, uint32_t extent)
{
	struct glk_extent *e = glk_extent_at(map, extent);
	uint32_t slot = glk_extent_first(map, e), nest = glk_slab_get(&map->nests);

	if (!nest)
		return -ENOMEM;
	for (uint32_t i = 0; i < EIGHTHS; i++)
		glk_store_relaxed(&map->start[(slot << GLK_EIGHTH_SHIFT) + i],
			GLK_START_NEST | nest);
	map->taken -= e->size;
	e->nested = true;
	glk_extent_set(e, GLK_EXTENT_FREE);
	glk_tree_insert(map, &map->nested, extent);
	return 0;
}

void glk_nest_close(struct glk_map *map, uint32_t extent)
{
	struct glk_extent *e = glk_extent_at(map, extent);
	uint32_t first = glk_extent_first(map, e) << GLK_EIGHTH_SHIFT;
	uint32_t nest = glk_load_relaxed(&map->start[first]) & ~GLK_START_NEST;

	for (uint32_t i = 0; i < EIGHTHS; i++)
		glk_store_relaxed(&map->start[first + i], 0);
	glk_slab_put(&map->nests, nest);
	e->nested = false;
}
