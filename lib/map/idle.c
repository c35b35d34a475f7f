/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Pages that no live extent touches and that keep mappings: the cache that makes stitching
 * free the second time. They are taken from, for a request elsewhere, in the order of what
 * that would spoil: fewest mappings first, and idle for longest among those. On the recorded
 * jobs that order needs two to four times less driver time than the most recent first.
 */
#include "map/map.h"

static unsigned list_of(const struct glk_page *page)
{
	return page->aliases < GLK_IDLE_LISTS ? page->aliases - 1u : GLK_IDLE_LISTS - 1u;
}

void glk_idle_put(struct glk_map *map, uint32_t id)
{
	struct glk_page *page = glk_map_page(map, id);
	unsigned list = list_of(page);
	uint32_t last = map->idle[page->class][list].last;

	page->idle_list = (uint8_t)(list + 1);
	page->idle_next = 0;
	page->idle_prev = last;
	if (last)
		glk_map_page(map, last)->idle_next = id;
	else
		map->idle[page->class][list].first = id;
	map->idle[page->class][list].last = id;
	map->idle_bytes += page->size;
}

void glk_idle_take(struct glk_map *map, uint32_t id)
{
	struct glk_page *page = glk_map_page(map, id);
	unsigned list = page->idle_list - 1u;

	if (!page->idle_list)
		return;
	if (page->idle_prev)
		glk_map_page(map, page->idle_prev)->idle_next = page->idle_next;
	else
		map->idle[page->class][list].first = page->idle_next;
	if (page->idle_next)
		glk_map_page(map, page->idle_next)->idle_prev = page->idle_prev;
	else
		map->idle[page->class][list].last = page->idle_prev;
	page->idle_list = 0;
	map->idle_bytes -= page->size;
}

static uint32_t first_from(const struct glk_map *map, unsigned class, unsigned list)
{
	for (; list < GLK_IDLE_LISTS; list++) {
		if (map->idle[class][list].first)
			return map->idle[class][list].first;
	}
	return 0;
}

uint32_t glk_idle_first(const struct glk_map *map, enum glk_class class)
{
	return first_from(map, class, 0);
}

uint32_t glk_idle_next(const struct glk_map *map, uint32_t id)
{
	const struct glk_page *page = glk_map_page(map, id);

	if (page->idle_next)
		return page->idle_next;
	return first_from(map, page->class, page->idle_list);
}
