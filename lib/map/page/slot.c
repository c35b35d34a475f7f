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
	uint32_t busy[2]; /* slots of them, before a change */
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

static uint32_t count_busy(const struct glk_map *map, struct glk_mapping m)
{
	uint64_t word;

	if (m.first >> 6 != m.last >> 6)
		return glk_bits_count(map->busy, m.first, m.last);
	word = map->busy[m.first >> 6] & glk_bits_mask(m.first >> 6, m.first, m.last);
	return word ? glk_bits_of(word) : 0;
}

static void look_at_ends(const struct glk_map *map, struct ends *ends)
{
	for (unsigned i = 0; i < ends->count; i++)
		ends->busy[i] = count_busy(map, ends->m[i]);
}

/* Idle and stranded slots of them, after a change. */
static void book_ends(struct glk_map *map, const struct ends *ends)
{
	for (unsigned i = 0; i < ends->count; i++) {
		struct glk_mapping m = ends->m[i];
		uint64_t slots = m.last - m.first + 1;
		uint32_t was = ends->busy[i], is = count_busy(map, m);

		if (is == was || !glk_bit_get(map->usable, m.first))
			continue;
		map->stranded += (is ? slots - is : 0) - (was ? slots - was : 0);
		if ((!is || !was) && !glk_bit_get(map->shared, m.first))
			map->idle_slots += is ? -slots : slots;
	}
}

/* Slots of what is left of a run, of idle pages of one mapping each. */
static uint64_t count_idle(const struct glk_map *map, const struct ends *ends)
{
	uint64_t count = 0;

	if (ends->first >= ends->last)
		return 0;
	GLK_BITS_EACH(w, mask, ends->first, ends->last - 1, {
		uint64_t word = map->usable[w] & ~map->shared[w] & ~map->busy[w] & mask;

		count += word == ~UINT64_C(0) ? 64 : word ? glk_bits_of(word) : 0;
	});
	return count;
}

/*
 * Pages that are mapped one behind the other were so at another place too, as a rule, in the same
 * order or in the opposite one. So what becomes of their other mappings is gathered in a run, and
 * booked when the next mapping does not go on at an end of it.
 */
struct others {
	uint64_t *usable;
	uint32_t first, behind; /* empty: both the same */
	bool on;		/* usable from now on */
};

static inline void book_others(const struct others *o)
{
	if (o->first == o->behind)
		return;
	if (o->on)
		glk_bits_set(o->usable, o->first, o->behind - 1);
	else
		glk_bits_clear(o->usable, o->first, o->behind - 1);
}

/* All mappings of a page, which has several, but the one at a slot. */
static inline void add_others(struct others *o, const struct glk_map *map,
	const struct glk_page *page, uint32_t but, uint32_t slots)
{
	uint32_t at = page->first_alias;

	for (unsigned left = page->aliases;; at = map->alias[at]) {
		if (at == but) {
			;
		} else if (at + slots == o->first) {
			o->first = at;
		} else if (at == o->behind) {
			o->behind += slots;
		} else {
			book_others(o);
			o->first = at;
			o->behind = at + slots;
		}
		/* the link of the last one lies in a cache line that nothing else here needs */
		if (!--left)
			break;
	}
}

/* Where the mapping at the first slot of a run begins, if there is one. */
static uint32_t begin_of(const struct glk_map *map, uint32_t first)
{
	return glk_bit_get(map->wide, first) && !glk_bit_get(map->head, first)
		? glk_mapping_at(map, first).first
		: first;
}

/*
 * Before anything of the run is busy: pages with several mappings come into use, and their other
 * mappings go stale. One that came into use at an earlier slot of the run is no longer idle, and
 * neither is one that somebody else is on.
 */
static void enter_shared(struct glk_map *map, uint32_t first, uint32_t last)
{
	struct others others = {.usable = map->usable, .on = false};
	uint32_t begin = begin_of(map, first);

	GLK_BITS_EACH(w, mask, first, last, {
		uint64_t left = glk_mapping_starts(
			map, w, map->shared[w] & map->usable[w] & mask, first);

		for (; left; left &= left - 1) {
			uint32_t slot = w << 6 | (uint32_t)__builtin_ctzll(left);
			struct glk_page *page = glk_map_page(map, map->page[slot]);
			uint32_t slots = glk_page_slots(map, page);

			if (page->in_use != GLK_NO_SLOT)
				continue;
			page->in_use = slot == first ? begin : slot;
			map->idle_slots -= slots;
			add_others(&others, map, page, page->in_use, slots);
		}
	});
	book_others(&others);
}

void glk_slots_enter(struct glk_map *map, uint32_t first, uint32_t last)
{
	struct ends ends = ends_of(map, first, last, 0);

	enter_shared(map, first, last);
	look_at_ends(map, &ends);
	map->idle_slots -= count_idle(map, &ends);
	map->count[first]++;
	if (first != last)
		map->count[last]++;
	glk_bits_set(map->busy, first, last);
	book_ends(map, &ends);
}

/* Pages with several mappings that nobody is left on, among those that a run touches. */
static void leave_shared(struct glk_map *map, uint32_t first, uint32_t last,
	const struct glk_use *use)
{
	struct others others = {.usable = map->usable, .on = true};
	uint32_t begin = begin_of(map, first);

	GLK_BITS_EACH(w, mask, first, last, {
		uint64_t left = glk_mapping_starts(
			map, w, map->shared[w] & map->usable[w] & mask, first);

		for (; left; left &= left - 1) {
			uint32_t slot = w << 6 | (uint32_t)__builtin_ctzll(left);
			struct glk_page *page = glk_map_page(map, map->page[slot]);
			uint32_t slots = glk_page_slots(map, page);
			uint32_t start = slot == first ? begin : slot;

			/* it became idle just now, through another mapping that the run touches */
			if (page->in_use != start)
				continue;
			if (use->streams)
				glk_use_add(&page->use, use);
			/* others are at the ends alone */
			if ((start <= first || start + slots > last) &&
				glk_bits_any(map->busy, start, start + slots - 1))
				continue;
			page->in_use = GLK_NO_SLOT;
			map->idle_slots += slots;
			add_others(&others, map, page, start, slots);
			glk_idle_touch(map, page->first_alias,
				page->first_alias + slots - 1);
		}
	});
	book_others(&others);
}

/* At an end of the run others may still be. */
static void leave_end(struct glk_map *map, uint32_t slot)
{
	if (!--map->count[slot])
		glk_bit_clear(map->busy, slot);
}

/* Others may have been at the ends of the run before. */
static void leave_use(
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

	look_at_ends(map, &ends);
	leave_use(map, first, last, use);
	leave_end(map, first);
	if (first != last)
		leave_end(map, last);
	if (first + 1 < last)
		glk_bits_clear(map->busy, first + 1, last - 1);
	book_ends(map, &ends);
	map->idle_slots += count_idle(map, &ends);
	leave_shared(map, first, last, use);
	touch(map, first, last);
}
