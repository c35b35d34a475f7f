/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Pages that no live extent touches and that keep mappings: the cache that makes stitching
 * free the second time. They are taken from, for a request elsewhere, in the order of what
 * that would spoil: fewest mappings first, and idle for longest among those. On the recorded
 * jobs that order needs two to four times less driver time than the most recent first, which
 * can be had for measurement.
 *
 * Nearly all pages leave a list because a request falls on them where they are, and only few
 * from its front. So a list is an array that grows at its end: putting appends the name of a
 * slot of the page, taking marks that slot, and the entry it leaves behind is dropped when the
 * array is packed, which happens once for every so many entries.
 *
 * A page is named by its most recent mapping. Its mappings do not change while it is listed.
 */
#include "map/map.h"

#include <errno.h>

/* An array is packed when it would have this many entries more than four times its pages, and
 * has room for all pages beyond that. */
#define IDLE_SLACK 65536

/* The place of a slot: {index + 1, list}. */
#define LIST_BITS 3

_Static_assert(GLK_IDLE_LISTS <= 1 << LIST_BITS, "a place has room for its list");

static uint32_t place_of(uint32_t index, unsigned list)
{
	return (index + 1) << LIST_BITS | list;
}

static unsigned list_of(const struct glk_page *page)
{
	return page->aliases < GLK_IDLE_LISTS ? page->aliases - 1u : GLK_IDLE_LISTS - 1u;
}

static struct glk_slot *slot_named(struct glk_map *map, uint32_t name)
{
	return &glk_slot_span(map, name)->slot[glk_slot_number(name)];
}

static size_t capacity(const struct glk_map *map)
{
	return 5 * (size_t)map->pool->pages.max + IDLE_SLACK;
}

int glk_idle_init(struct glk_map *map)
{
	for (int c = 0; c < GLK_CLASS_COUNT; c++) {
		for (int list = 0; list < GLK_IDLE_LISTS; list++) {
			struct glk_idle_list *l = &map->idle[c][list];

			l->names = glk_region_new(capacity(map) * sizeof(*l->names));
			if (!l->names) {
				glk_idle_fini(map);
				return -ENOMEM;
			}
		}
	}
	return 0;
}

void glk_idle_fini(struct glk_map *map)
{
	for (int c = 0; c < GLK_CLASS_COUNT; c++) {
		for (int list = 0; list < GLK_IDLE_LISTS; list++) {
			struct glk_idle_list *l = &map->idle[c][list];

			glk_region_free(l->names, capacity(map) * sizeof(*l->names));
			*l = (struct glk_idle_list){0};
		}
	}
}

/* Drops the entries that were left behind. */
static void pack(struct glk_map *map, struct glk_idle_list *l, unsigned list)
{
	uint32_t kept = 0;

	for (uint32_t i = l->begin; i < l->end; i++) {
		struct glk_slot *s = slot_named(map, l->names[i]);

		if (s->place != place_of(i, list))
			continue;
		s->place = place_of(kept, list);
		l->names[kept++] = l->names[i];
	}
	l->begin = 0;
	l->end = kept;
}

static void put(struct glk_span *span, uint32_t slot, unsigned list)
{
	struct glk_idle_list *l = &span->map->idle[span->class][list];

	if (l->end >= 4 * l->valid + IDLE_SLACK)
		pack(span->map, l, list);
	span->slot[slot].place = place_of(l->end, list);
	l->names[l->end++] = glk_slot_name(span, slot);
	l->valid++;
	span->map->idle_bytes += UINT64_C(1) << span->shift;
}

static void take(struct glk_span *span, uint32_t slot)
{
	uint32_t place = span->slot[slot].place;

	if (!place)
		return;
	span->slot[slot].place = 0;
	span->map->idle[span->class][place & ((1u << LIST_BITS) - 1)].valid--;
	span->map->idle_bytes -= UINT64_C(1) << span->shift;
}

void glk_idle_put_slot(struct glk_span *span, uint32_t slot)
{
	put(span, slot, 0);
}

void glk_idle_put_slots(struct glk_span *span, uint32_t first, uint32_t count)
{
	struct glk_idle_list *l = &span->map->idle[span->class][0];
	uint32_t name = glk_slot_name(span, first);

	if (!count)
		return;
	if (l->end + (uint64_t)count > 4 * (uint64_t)l->valid + IDLE_SLACK)
		pack(span->map, l, 0);
	for (uint32_t i = 0; i < count; i++) {
		span->slot[first + i].place = place_of(l->end, 0);
		l->names[l->end++] = name + i;
	}
	l->valid += count;
	span->map->idle_bytes += (uint64_t)count << span->shift;
}

void glk_idle_forget(struct glk_span *span, uint32_t count)
{
	span->map->idle[span->class][0].valid -= count;
	span->map->idle_bytes -= (uint64_t)count << span->shift;
}

void glk_idle_take_slot(struct glk_span *span, uint32_t slot)
{
	take(span, slot);
}

void glk_idle_put(struct glk_map *map, uint32_t id)
{
	const struct glk_page *page = glk_map_page(map, id);
	uint32_t name = page->first_alias;

	put(glk_slot_span(map, name), glk_slot_number(name), list_of(page));
}

void glk_idle_take(struct glk_map *map, uint32_t id)
{
	uint32_t name = glk_map_page(map, id)->first_alias;

	if (name != GLK_NO_SLOT)
		take(glk_slot_span(map, name), glk_slot_number(name));
}

bool glk_idle_has(struct glk_map *map, uint32_t id)
{
	uint32_t name = glk_map_page(map, id)->first_alias;

	return name != GLK_NO_SLOT && slot_named(map, name)->place;
}

uint32_t glk_idle_listed(
	struct glk_map *map, unsigned class, unsigned list, uint32_t index)
{
	struct glk_slot *s = slot_named(map, map->idle[class][list].names[index]);

	return s->place == place_of(index, list) ? s->page : 0;
}

/* The first page from an entry of a list on, or of the lists after it. Entries that were left
 * behind at the beginning of a list are dropped on the way. */
static uint32_t first_from(
	struct glk_map *map, unsigned class, unsigned list, uint32_t index)
{
	for (; list < GLK_IDLE_LISTS; list++, index = 0) {
		struct glk_idle_list *l = &map->idle[class][list];

		if (index < l->begin)
			index = l->begin;
		for (; l->valid && index < l->end; index++) {
			uint32_t id = glk_idle_listed(map, class, list, index);

			if (id)
				return id;
			l->begin += index == l->begin;
		}
	}
	return 0;
}

uint32_t glk_idle_first(struct glk_map *map, enum glk_class class)
{
	return first_from(map, class, 0, 0);
}

uint32_t glk_idle_next(struct glk_map *map, uint32_t id)
{
	const struct glk_page *page = glk_map_page(map, id);
	uint32_t place = slot_named(map, page->first_alias)->place;

	return first_from(
		map, page->class, place & ((1u << LIST_BITS) - 1), place >> LIST_BITS);
}

/* The same the other way round within each list, before the entry with a number. */
static uint32_t last_before(
	struct glk_map *map, unsigned class, unsigned list, uint32_t index)
{
	for (; list < GLK_IDLE_LISTS; list++, index = UINT32_MAX) {
		struct glk_idle_list *l = &map->idle[class][list];

		if (index > l->end)
			index = l->end;
		while (l->valid && index > l->begin) {
			uint32_t id = glk_idle_listed(map, class, list, --index);

			if (id)
				return id;
			l->end -= index + 1 == l->end;
		}
	}
	return 0;
}

uint32_t glk_idle_last(struct glk_map *map, enum glk_class class)
{
	return last_before(map, class, 0, UINT32_MAX);
}

uint32_t glk_idle_before(struct glk_map *map, uint32_t id)
{
	const struct glk_page *page = glk_map_page(map, id);
	uint32_t place = slot_named(map, page->first_alias)->place;

	return last_before(map, page->class, place & ((1u << LIST_BITS) - 1),
		(place >> LIST_BITS) - 1);
}
