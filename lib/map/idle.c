/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Pages that no live extent touches and that keep mappings: the cache that makes stitching
 * free the second time. They are taken from, for a request elsewhere, in the order of what
 * that would spoil: fewest mappings first, and idle for longest among those. On the recorded
 * jobs that order needs two to four times less driver time than the most recent first.
 *
 * Nearly all pages leave a list because a request falls on them where they are, and only few
 * from its front. So a list is an array that grows at its end: putting appends, taking marks
 * the page alone, and the entry it leaves behind is dropped when the array is packed, which
 * happens once for every so many entries. Putting and taking touch no other page.
 */
#include "map/map.h"

#include <errno.h>

/* An array is packed when it has this many entries more than twice its pages. */
#define IDLE_SLACK 4096

static unsigned list_of(const struct glk_page *page)
{
	return page->aliases < GLK_IDLE_LISTS ? page->aliases - 1u : GLK_IDLE_LISTS - 1u;
}

static uint32_t capacity(const struct glk_map *map)
{
	return 2 * map->pool->pages.max + IDLE_SLACK;
}

int glk_idle_init(struct glk_map *map)
{
	for (int class = 0; class < GLK_CLASS_COUNT; class++) {
		for (int list = 0; list < GLK_IDLE_LISTS; list++) {
			struct glk_idle_list *l = &map->idle[class][list];

			l->pages = glk_region_new(capacity(map) * sizeof(*l->pages));
			if (!l->pages) {
				glk_idle_fini(map);
				return -ENOMEM;
			}
		}
	}
	return 0;
}

void glk_idle_fini(struct glk_map *map)
{
	for (int class = 0; class < GLK_CLASS_COUNT; class++) {
		for (int list = 0; list < GLK_IDLE_LISTS; list++) {
			struct glk_idle_list *l = &map->idle[class][list];

			glk_region_free(l->pages, capacity(map) * sizeof(*l->pages));
			*l = (struct glk_idle_list){0};
		}
	}
}

/* Whether an entry still stands for its page. */
static bool stands(const struct glk_map *map, unsigned class, unsigned list, uint32_t place)
{
	const struct glk_page *page =
		glk_map_page(map, map->idle[class][list].pages[place]);

	return page->idle_list == list + 1 && page->idle_place == place &&
		page->class == class;
}

static void pack(struct glk_map *map, unsigned class, unsigned list)
{
	struct glk_idle_list *l = &map->idle[class][list];
	uint32_t kept = 0;

	for (uint32_t i = 0; i < l->end; i++) {
		if (!stands(map, class, list, i))
			continue;
		glk_map_page(map, l->pages[i])->idle_place = kept;
		l->pages[kept++] = l->pages[i];
	}
	l->end = kept;
}

void glk_idle_put(struct glk_map *map, uint32_t id)
{
	struct glk_page *page = glk_map_page(map, id);
	unsigned list = list_of(page);
	struct glk_idle_list *l = &map->idle[page->class][list];

	if (l->end >= 2 * l->valid + IDLE_SLACK)
		pack(map, page->class, list);
	page->idle_list = (uint8_t)(list + 1);
	page->idle_place = l->end;
	l->pages[l->end++] = id;
	l->valid++;
	map->idle_bytes += page->size;
}

void glk_idle_take(struct glk_map *map, uint32_t id)
{
	struct glk_page *page = glk_map_page(map, id);

	if (!page->idle_list)
		return;
	map->idle[page->class][page->idle_list - 1].valid--;
	page->idle_list = 0;
	map->idle_bytes -= page->size;
}

static uint32_t first_from(
	const struct glk_map *map, unsigned class, unsigned list, uint32_t place)
{
	for (; list < GLK_IDLE_LISTS; list++, place = 0) {
		const struct glk_idle_list *l = &map->idle[class][list];

		for (; l->valid && place < l->end; place++) {
			if (stands(map, class, list, place))
				return l->pages[place];
		}
	}
	return 0;
}

uint32_t glk_idle_first(const struct glk_map *map, enum glk_class class)
{
	return first_from(map, class, 0, 0);
}

uint32_t glk_idle_next(const struct glk_map *map, uint32_t id)
{
	const struct glk_page *page = glk_map_page(map, id);

	return first_from(map, page->class, page->idle_list - 1u, page->idle_place + 1);
}
