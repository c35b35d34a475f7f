/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What blocks have on the host in place, and of that with another GPU. */
#include "move/gpu.h"

static uint64_t sum(const struct glk_map *map, const struct glk_extent *e, bool lent)
{
	uint32_t last = glk_extent_last(map, e);
	uint64_t end = e->offset + glk_extent_asked(e), bytes = 0;

	if (!map->hosted || glk_extent_away(e))
		return 0;
	for (uint32_t slot = glk_extent_first(map, e); slot <= last; slot++) {
		if (glk_bit_get(map->host, slot) && glk_part_stands(map, e, slot) &&
			(!lent || glk_map_page(map, map->page[slot])->lent))
			bytes += glk_slot_part(map, slot, e->offset, end);
	}
	return bytes;
}

uint64_t glk_beside_placed(const struct glk_map *map, const struct glk_extent *e)
{
	return sum(map, e, false);
}

uint64_t glk_beside_lent(const struct glk_map *map, const struct glk_extent *e)
{
	return sum(map, e, true);
}

void glk_beside_count(struct glk_arena *arena, const struct glk_extent *e, bool more)
{
	struct glk_cache *gpu = arena->gpu;
	uint64_t bytes;

	bytes = glk_beside_placed(&arena->map, e);
	if (bytes && gpu->host->lender)
		gpu->placed_peer += more ? glk_beside_lent(&arena->map, e)
					 : -glk_beside_lent(&arena->map, e);
	gpu->placed_blocks += !bytes ? 0 : more ? 1 : UINT64_MAX;
	gpu->placed += more ? bytes : -bytes;
	if (gpu->most_placed < gpu->placed)
		gpu->most_placed = gpu->placed;
}
