/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Pages that are in use through several mappings: see seal.h. */
#include "map/map.h"

void glk_seal_begin(struct glk_map *map, struct glk_mapping m)
{
	struct glk_page *page = glk_map_page(map, map->page[m.first]);

	page->sealed = true;
	page->sealers = 1;
	page->in_use = GLK_NO_SLOT;
	glk_bits_set(map->sealed, m.first, m.last);
}

static void count_ends(struct glk_map *map, uint32_t first, uint32_t last, uint16_t more)
{
	map->count[first] = (uint16_t)(map->count[first] + more);
	if (first != last)
		map->count[last] = (uint16_t)(map->count[last] + more);
}

static void set_busy(struct glk_map *map, uint32_t first, uint32_t last, bool busy)
{
	GLK_BITS_EACH(w, mask, first, last, {
		glk_poke_relaxed(
			&map->busy[w], busy ? map->busy[w] | mask : map->busy[w] & ~mask);
	});
}

void glk_seal_enter(struct glk_map *map, uint32_t first, uint32_t last)
{
	for (uint32_t slot = first; slot <= last;) {
		struct glk_page *page = glk_map_page(map, map->page[slot]);

		page->sealers++;
		page->in_use = GLK_NO_SLOT;
		slot += glk_page_slots(map, page);
	}
	glk_bits_set(map->sealed, first, last);
	set_busy(map, first, last, true);
	count_ends(map, first, last, 1);
}

void glk_seal_end(struct glk_map *map, uint32_t first, uint32_t last)
{
	for (uint32_t slot = first; slot <= last;) {
		struct glk_page *page = glk_map_page(map, map->page[slot]);

		page->sealed = false;
		page->sealers = 0;
		page->in_use = slot;
		slot += glk_page_slots(map, page);
	}
	glk_bits_clear(map->sealed, first, last);
}

void glk_seal_push(struct glk_map *map, uint32_t id)
{
	struct glk_space *space = map->space;

	glk_page_link(map, id, 0);
	if (space->unsealed)
		glk_page_link(map, space->unsealed_last, id);
	else
		space->unsealed = id;
	space->unsealed_last = id;
	space->unsealed_bytes += glk_map_page(map, id)->size;
	if (glk_map_page(map, id)->foreign)
		space->unsealed_foreign += glk_map_page(map, id)->size;
}

uint32_t glk_seal_pop(struct glk_map *map)
{
	struct glk_space *space = map->space;
	uint32_t id = space->unsealed;

	if (!id)
		return 0;
	space->unsealed = glk_page_next(map, id);
	space->unsealed_bytes -= glk_map_page(map, id)->size;
	if (glk_map_page(map, id)->foreign)
		space->unsealed_foreign -= glk_map_page(map, id)->size;
	return id;
}

void glk_seal_leave(
	struct glk_map *map, uint32_t first, uint32_t last, const struct glk_use *use)
{
	if (use->streams)
		glk_use_join(map, first, last, use);
	for (uint32_t slot = first; slot <= last;) {
		uint32_t id = map->page[slot];
		struct glk_page *page = glk_map_page(map, id);

		if (page->aliases > 1)
			glk_use_add(&page->use, use);
		if (!--page->sealers)
			glk_seal_push(map, id);
		slot += glk_page_slots(map, page);
	}
	glk_bits_clear(map->sealed, first, last);
	glk_bits_clear(map->usable, first, last);
	set_busy(map, first, last, false);
	count_ends(map, first, last, UINT16_MAX);
}
