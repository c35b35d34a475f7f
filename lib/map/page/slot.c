/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The one rule of aliasing: a page is in use through at most one of its mappings. When the first
 * live extent comes to a mapping, the others of its page stop being usable; when the last one
 * has left it, all of them are usable again and the page is idle.
 *
 * A page of several slots is idle when nobody is left on any of them, and what nobody is on of one
 * in use is stranded. Only the mappings at the two ends of a run may reach beyond it, so all inside
 * is counted by the word.
 */
#include "map/map.h"

/* The mappings at the two ends of a run that others may touch, since they reach beyond it or since
 * another extent lies in the end slot, and what is left of the run. */
struct ends {
	struct glk_mapping m[2];
	unsigned count;
	uint32_t first, last; /* empty: first not below last */
};

/* `own`: the run counts itself in its end slots already. */
static struct ends ends_of(
	const struct glk_map *map, uint32_t first, uint32_t last, unsigned own)
{
	struct ends ends = {.first = first, .last = last + 1};

	if (glk_bit_get(map->wide, first) &&
		(!glk_bit_get(map->head, first) || map->count[first] > own)) {
		ends.m[ends.count++] = glk_mapping_at(map, first);
		ends.first = ends.m[0].last + 1;
	}
	/* the slot behind is no other mapping's first */
	if (ends.first <= last && glk_bit_get(map->wide, last) &&
		((glk_bit_get(map->wide, last + 1) &&
			 !glk_bit_get(map->head, last + 1)) ||
			map->count[last] > own)) {
		ends.m[ends.count] = glk_mapping_at(map, last);
		ends.last = ends.m[ends.count++].first;
	}
	return ends;
}

/* What they count as idle or stranded, as it stands: to be taken off before a change, and to be
 * added after it. */
static void count_ends(struct glk_map *map, const struct ends *ends, bool add)
{
	for (unsigned i = 0; i < ends->count; i++) {
		struct glk_mapping m = ends->m[i];
		uint64_t slots = m.last - m.first + 1, busy;

		if (!glk_bit_get(map->usable, m.first))
			continue;
		busy = glk_bits_count(map->busy, m.first, m.last);
		if (busy)
			map->stranded += add ? slots - busy : busy - slots;
		else if (!glk_bit_get(map->shared, m.first))
			map->idle_slots += add ? slots : -slots;
	}
}

/* Slots of what is left of a run, of idle pages of one mapping each. */
static uint64_t count_idle(const struct glk_map *map, const struct ends *ends)
{
	uint32_t first = ends->first, last = ends->last - 1;
	uint64_t count = 0;

	if (first >= ends->last)
		return 0;
	for (uint32_t w = first >> 6; w <= last >> 6; w++) {
		uint64_t word = map->usable[w] & ~map->shared[w] & ~map->busy[w] &
			glk_bits_mask(w, first, last);

		count += word == ~UINT64_C(0) ? 64 : word ? glk_bits_of(word) : 0;
	}
	return count;
}

/* The page of a mapping comes into use there, and its other mappings go stale. */
static void take_shared(struct glk_map *map, struct glk_mapping m)
{
	struct glk_page *page = glk_map_page(map, map->page[m.first]);
	uint32_t at = page->first_alias, slots = m.last - m.first;

	if (glk_bits_any(map->busy, m.first, m.last))
		return;
	for (unsigned left = page->aliases; left; left--) {
		if (at != m.first)
			glk_bits_clear(map->usable, at, at + slots);
		if (left > 1)
			at = map->alias[at];
	}
	map->idle_slots -= slots + 1;
	page->in_use = m.first;
}

/* Before anything of the run is busy: pages with several mappings. What comes into use may take
 * later mappings of the same page with it, so each word is read again. */
static void enter_shared(struct glk_map *map, uint32_t first, uint32_t last)
{
	for (uint32_t w = first >> 6; w <= last >> 6; w++) {
		uint64_t left = glk_mapping_starts(map, w,
			map->shared[w] & glk_bits_mask(w, first, last), first);

		for (; left & map->usable[w]; left &= left - 1) {
			uint32_t slot = w << 6;

			left &= map->usable[w];
			slot |= (uint32_t)__builtin_ctzll(left);
			take_shared(map, glk_mapping_from(map, slot));
		}
	}
}

void glk_slots_enter(struct glk_map *map, uint32_t first, uint32_t last)
{
	struct ends ends = ends_of(map, first, last, 0);

	if (glk_bits_meet(map->shared, map->usable, first, last))
		enter_shared(map, first, last);
	count_ends(map, &ends, false);
	map->idle_slots -= count_idle(map, &ends);
	map->count[first]++;
	if (first != last)
		map->count[last]++;
	glk_bits_set(map->busy, first, last);
	count_ends(map, &ends, true);
}

static void leave_mapping(
	struct glk_map *map, struct glk_mapping m, const struct glk_use *use)
{
	uint32_t id = map->page[m.first];
	struct glk_page *page = glk_map_page(map, id);

	/* it became idle just now, through another mapping that the run touches */
	if (page->in_use != m.first)
		return;
	if (use->streams)
		glk_use_add(&page->use, use->streams, use->tick);
	if (!glk_bits_any(map->busy, m.first, m.last))
		glk_page_put_back(map, id);
}

/* Pages with several mappings that nobody is left on, among those that a run touches. */
static void leave_shared(struct glk_map *map, uint32_t first, uint32_t last,
	const struct glk_use *use)
{
	for (uint32_t w = first >> 6; w <= last >> 6; w++) {
		uint64_t left = glk_mapping_starts(map, w,
			map->shared[w] & map->usable[w] & glk_bits_mask(w, first, last),
			first);

		for (; left; left &= left - 1)
			leave_mapping(map,
				glk_mapping_from(map,
					w << 6 | (uint32_t)__builtin_ctzll(left)),
				use);
	}
}

/* At an end of the run others may have been before, or still be. */
static void leave_end(struct glk_map *map, uint32_t slot, const struct glk_use *use)
{
	if (use->streams)
		glk_use_join(map, slot, slot, use);
	if (!--map->count[slot])
		glk_bit_clear(map->busy, slot);
}

/* Idle pages are met where their mapping begins, which may be before the run. */
static void touch(struct glk_map *map, uint32_t first, uint32_t last)
{
	if (glk_bit_get(map->wide, first))
		first = glk_mapping_at(map, first).first;
	glk_idle_touch(map, first, last);
}

void glk_slots_leave(
	struct glk_map *map, uint32_t first, uint32_t last, const struct glk_use *use)
{
	struct ends ends = ends_of(map, first, last, 1);

	count_ends(map, &ends, false);
	leave_end(map, first, use);
	if (first != last)
		leave_end(map, last, use);
	if (first + 1 < last) {
		if (use->streams)
			glk_use_set(map, first + 1, last - 1, use);
		glk_bits_clear(map->busy, first + 1, last - 1);
	}
	count_ends(map, &ends, true);
	map->idle_slots += count_idle(map, &ends);
	if (glk_bits_meet(map->shared, map->usable, first, last))
		leave_shared(map, first, last, use);
	touch(map, first, last);
}
