/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Other pages behind live extents: see swap.h. */
#include "map/map.h"

/* Pages that are mapped between two looks at the tables. */
#define BATCH 64

static struct glk_mapping mapping_of(
	const struct glk_map *map, uint32_t first, uint32_t id)
{
	return (struct glk_mapping){
		first, first + glk_page_slots(map, glk_map_page(map, id)) - 1};
}

static void take(struct glk_map *map, struct glk_mapping m, uint32_t id)
{
	uint32_t busy = glk_bits_count(map->busy, m.first, m.last);

	glk_map_stock(map, id)->stranded -= m.last - m.first + 1 - busy;
	glk_bits_clear(map->usable, m.first, m.last);
	glk_map_page(map, id)->in_use = GLK_NO_SLOT;
}

uint32_t glk_swap_take(struct glk_map *map, uint32_t first, uint32_t last)
{
	uint32_t pages = 0, behind = last + 1;

	while (behind > first) {
		struct glk_mapping m = glk_mapping_at(map, behind - 1);
		uint32_t id = map->page[m.first];

		take(map, m, id);
		glk_page_link(map, id, pages);
		pages = id;
		behind = m.first;
	}
	return pages;
}

void glk_swap_settle(struct glk_map *map, uint32_t first, uint32_t last)
{
	for (uint32_t slot = first; slot <= last;) {
		uint32_t id = map->page[slot], busy;
		struct glk_mapping m;

		if (!id) {
			slot++;
			continue;
		}
		m = mapping_of(map, slot, id);
		busy = glk_bits_count(map->busy, m.first, m.last);
		slot = m.last + 1;
		if (!busy) {
			glk_page_put_back(map, id);
			continue;
		}
		glk_bits_set(map->usable, m.first, m.last);
		glk_map_page(map, id)->in_use = m.first;
		glk_map_stock(map, id)->stranded += m.last - m.first + 1 - busy;
	}
}

int glk_swap_unmap(struct glk_map *map, uint32_t first, uint32_t last)
{
	uint64_t addr = glk_slot_addr(map, first);
	int err;

	glk_map_pause(map);
	err = glk_mapping_unmap(map, addr, last - first + 1);
	glk_map_resume(map);
	if (err)
		return err;
	glk_mapping_detach(map, first, last);
	glk_mapping_gone(map, first, last, 0, true);
	return 0;
}

/* The next pages of a list, as many as are mapped at once; the slots they take. */
static uint32_t next_batch(const struct glk_map *map, uint32_t *list,
	uint32_t batch[BATCH], uint32_t *ret_slots)
{
	uint32_t count = 0, slots = 0;

	while (*list && count < BATCH) {
		batch[count++] = *list;
		slots += glk_page_slots(map, glk_map_page(map, *list));
		*list = glk_page_next(map, *list);
	}
	*ret_slots = slots;
	return count;
}

/* The end of a list, without the pages that were lost. */
static void drop_lost(struct glk_map *map, uint32_t *pages)
{
	uint32_t before = 0, next;

	for (uint32_t id = *pages; id; id = next) {
		next = glk_page_next(map, id);
		if (glk_page_state(glk_map_page(map, id)) == GLK_PAGE_OWNED)
			before = id;
		else if (before)
			glk_page_link(map, before, next);
		else
			*pages = next;
	}
}

int glk_swap_map(struct glk_map *map, uint32_t slot, uint32_t *pages)
{
	uint32_t batch[BATCH], list = *pages, at = slot, count, slots;
	int err = 0;

	while (list && !err) {
		count = next_batch(map, &list, batch, &slots);
		err = glk_mapping_make(map, at, batch, count);
		at += err ? 0 : slots;
	}
	if (!err) {
		glk_swap_settle(map, slot, at - 1);
		return 0;
	}
	if (at > slot) {
		glk_bits_clear(map->usable, slot, at - 1);
		for (uint32_t i = slot; i < at; i = glk_mapping_at(map, i).last + 1)
			glk_map_page(map, map->page[i])->in_use = GLK_NO_SLOT;
		glk_mapping_remove(map, slot, at - 1);
	}
	drop_lost(map, pages);
	return err;
}

void glk_swap_lose(struct glk_map *map, uint32_t first, uint32_t last)
{
	glk_bits_set(map->lost, first, last);
}

void glk_swap_put_back(struct glk_map *map, uint32_t pages)
{
	for (uint32_t next; pages; pages = next) {
		next = glk_page_next(map, pages);
		glk_page_put_back(map, pages);
	}
}
