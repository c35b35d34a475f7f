/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Uses of slots, by run. */
#include "map/map.h"

void glk_use_join(
	struct glk_map *map, uint32_t first, uint32_t last, const struct glk_use *use)
{
	for (uint32_t slot = first, end; slot <= last; slot = end + 1) {
		struct glk_use sum = glk_use_at(map, slot);

		end = glk_use_end(map, slot, last);
		if (glk_use_holds(&sum, use))
			continue;
		glk_use_add(&sum, use);
		glk_use_set(map, slot, end, &sum);
	}
}

struct glk_use glk_use_sum(const struct glk_map *map, uint32_t first, uint32_t last)
{
	struct glk_use sum = {0};

	for (uint32_t slot = first; slot <= last; slot = glk_use_end(map, slot, last) + 1)
		glk_use_add(&sum, &map->use[glk_use_slot(map, slot)]);
	return sum;
}

void glk_use_leave(
	struct glk_map *map, uint32_t first, uint32_t last, const struct glk_use *use)
{
	if (!use->streams)
		return;
	if (glk_use_covers(map, first, use) && glk_use_covers(map, last, use)) {
		glk_use_set(map, first, last, use);
		return;
	}
	glk_use_join(map, first, first, use);
	if (first != last)
		glk_use_join(map, last, last, use);
	if (first + 1 < last)
		glk_use_set(map, first + 1, last - 1, use);
}
