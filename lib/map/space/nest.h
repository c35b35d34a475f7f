/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MAP_NEST_H
#define GLK_MAP_NEST_H

/*
 * Slots of small blocks. A block of up to an eighth of a slot that lay in a hole between large
 * ones would keep a slot, or a page of several, from ever being whole again; so small blocks
 * have slots of their own, taken from the common addresses one by one and given back when they
 * are empty. Free extents in them are *nested*: in a tree of their own, merged inside the slot.
 *
 * Where much lies beside blocks (glk_map.packs, which the cache sets for the GPU's own addresses) holes
 * matter more than whole slots. Then an eighth of a slot in use is a nest, too, and each whole eighth of
 * a nest that comes free is common again, so that small blocks and larger ones have what the others
 * leave. Tags do without: their small blocks go and come slot by slot.
 *
 * The table of a slot with nests is for lookups in them: an entry for each grain, and a bit where a live
 * extent begins.
 */
#include "map/table.h"

/* An entry of glk_map.start names a nest, not an extent. */
#define GLK_START_NEST (UINT32_C(1) << 31)

/* Bytes of the table of a slot: entries, then bits. */
static inline size_t glk_nest_size(const struct glk_map *map)
{
	size_t grains = (size_t)1 << (map->shift - GLK_GRAIN_SHIFT);

	return grains * sizeof(uint32_t) + grains / 8;
}

static inline glk_atomic(uint32_t) *
	glk_nest_entries(const struct glk_map *map, uint32_t nest)
{
	return glk_slab_at(&map->nests, nest);
}

static inline uint64_t *glk_nest_begins(const struct glk_map *map, uint32_t nest)
{
	return (uint64_t *)(void *)(glk_nest_entries(map, nest) +
		((size_t)1 << (map->shift - GLK_GRAIN_SHIFT)));
}

/* The grain of an offset inside its slot. */
static inline uint32_t glk_nest_grain(const struct glk_map *map, uint64_t offset)
{
	return (uint32_t)(offset >> GLK_GRAIN_SHIFT) & map->grains;
}

/* nest.c: makes an extent of the caller's, of whole eighths of a slot, a free nested one, with what is free beside
 * it in nests of the slot. 0, or -ENOMEM (class LIMIT) with nothing changed. */
int glk_nest_open(struct glk_map *map, uint32_t extent);
/* The reverse, for a nested extent that is free, in no tree, and of whole eighths: it is common. */
void glk_nest_close(struct glk_map *map, uint32_t extent);

#endif
