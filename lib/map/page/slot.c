/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The one rule of aliasing: a page is in use through at most one of its mappings. When the first
 * live extent comes to a mapping, the others of its page stop being usable; when the last one
 * has left it, all of them are usable again and the page is idle.
 *
 * A page of several slots is idle when nobody is left on any of them, and what nobody is on of one
 * in use is stranded. Only the mappings at the two ends of a run may reach beyond it, so all inside
 * is counted by the word.
 *
 * Nearly all runs are plain: usable as they are, of pages of the GPU that have one mapping each. Of those only the
 * ends are looked at.
 */
#include "map/map.h"

/*
 * The mappings at the two ends of a run that others may touch, since they reach beyond it or since
 * another extent lies in the end slot. Of the slots of a run only the first and the last may be busy
 * with others.
 */
struct ends {
	struct glk_mapping m[2];
	uint32_t busy[2]; /* slots of them, before a change */
	unsigned count;
};

/* In place of the first slot of a group: far from any. */
#define NO_GROUP (UINT32_C(1) << 31)

/* Bits of each number of four bits. */
#define BITS_OF_FOUR UINT64_C(0x4332322132212110)

static inline uint32_t count_busy(const struct glk_map *map, struct glk_mapping m)
{
	uint32_t slots = m.last - m.first + 1;
	uint64_t word;

	if (slots > 4 || (m.first & 63) + slots > 64)
		return glk_bits_count(map->busy, m.first, m.last);
	/* the usual size of a large page */
	word = map->busy[m.first >> 6] >> (m.first & 63) & ((1u << slots) - 1);
	return BITS_OF_FOUR >> 4 * word & 15;
}

static inline void add_end(
	const struct glk_map *map, struct ends *ends, struct glk_mapping m)
{
	ends->m[ends->count] = m;
	ends->busy[ends->count++] = count_busy(map, m);
}

/* `own`: the run counts itself in its end slots already. */
static inline void find_ends(const struct glk_map *map, uint32_t first, uint32_t last,
	unsigned own, struct ends *ret_ends)
{
	ret_ends->count = 0;
	if (glk_bit_get(map->wide, first) &&
		(!glk_bit_get(map->head, first) || map->count[first] > own)) {
		add_end(map, ret_ends, glk_mapping_wide(map, first));
		if (ret_ends->m[0].last >= last)
			return;
	}
	/* the slot behind is no other mapping's first */
	if (glk_bit_get(map->wide, last) &&
		((glk_bit_get(map->wide, last + 1) &&
			 !glk_bit_get(map->head, last + 1)) ||
			map->count[last] > own))
		add_end(map, ret_ends, glk_mapping_wide(map, last));
}

/* Whether the page of a slot is memory of the host. */
static inline bool is_far(const struct glk_map *map, uint32_t slot)
{
	return map->hosted && glk_bit_get(map->host, slot);
}

/* Slots more that are idle, so many of them on the host. */
static inline void add_idle(struct glk_map *map, uint64_t all, uint64_t far)
{
	map->space->of[GLK_OF_NODE].idle_slots += all - far;
	map->space->of[GLK_OF_HOST].idle_slots += far;
}

/* Idle and stranded slots of an end after a change. The slots of it that changed were counted as idle with
 * the run, or no longer so, as if each of them were so for itself. */
static inline void book_end(struct glk_map *map, struct glk_mapping m, uint32_t was)
{
	struct glk_stock *stock = &map->space->of[is_far(map, m.first)];
	uint64_t slots = m.last - m.first + 1;
	uint32_t is = count_busy(map, m);

	if (is == was || !glk_bit_get(map->usable, m.first))
		return;
	stock->stranded += (is ? slots - is : 0) - (was ? slots - was : 0);
	if (glk_bit_get(map->shared, m.first))
		return;
	stock->idle_slots += (uint64_t)is - was;
	if (!is || !was)
		stock->idle_slots += is ? -slots : slots;
}

static inline void book_ends(struct glk_map *map, const struct ends *ends)
{
	for (unsigned i = 0; i < ends->count; i++)
		book_end(map, ends->m[i], ends->busy[i]);
}

static inline uint64_t count_bits(uint64_t word)
{
	return word == ~UINT64_C(0) ? 64 : word ? glk_bits_of(word) : 0;
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

static inline void add_other(struct others *o, uint32_t at, uint32_t slots)
{
	if (at + slots == o->first) {
		o->first = at;
	} else if (at == o->behind) {
		o->behind += slots;
	} else {
		book_others(o);
		o->first = at;
		o->behind = at + slots;
	}
}

static void add_several(struct others *o, const struct glk_map *map,
	const struct glk_page *page, uint32_t but, uint32_t slots)
{
	uint32_t at = page->first_alias;

	for (unsigned left = page->aliases; left; left--) {
		if (at != but)
			add_other(o, at, slots);
		/* the link of the last one lies in a cache line that nothing else here needs */
		if (left > 1)
			at = map->alias[at];
	}
}

/* All mappings of a page, which has two or more, but the one at a slot. */
static inline void add_others(struct others *o, const struct glk_map *map,
	const struct glk_page *page, uint32_t but, uint32_t slots)
{
	uint32_t at = page->first_alias;

	if (page->aliases > 2)
		add_several(o, map, page, but, slots);
	else
		add_other(o, at == but ? map->alias[at] : at, slots);
}

/*
 * Pages with several mappings that a run touches come into use, and their other mappings go stale. One
 * that came into use at an earlier slot of the run is no longer idle, and neither is one that somebody
 * else is on.
 */
static void enter_shared(struct glk_map *map, uint32_t first, uint32_t last)
{
	struct others others = {.usable = map->usable, .on = false};
	uint32_t begin = glk_mapping_begin(map, first);
	uint64_t idle = 0, far = 0;

	for (uint32_t w = first >> 6; w <= last >> 6; w++) {
		uint64_t left = glk_mapping_starts(map, w,
			map->shared[w] & map->usable[w] & glk_bits_mask(w, first, last),
			first);

		for (; left; left &= left - 1) {
			uint32_t slot = w << 6 | (uint32_t)__builtin_ctzll(left);
			struct glk_page *page = glk_map_page(map, map->page[slot]);
			uint32_t slots = glk_page_slots(map, page);

			if (page->in_use != GLK_NO_SLOT)
				continue;
			page->in_use = slot == first ? begin : slot;
			glk_page_use_at(map, page, page->in_use);
			idle += slots;
			far += is_far(map, slot) ? slots : 0;
			add_others(&others, map, page, page->in_use, slots);
		}
	}
	book_others(&others);
	add_idle(map, -idle, -far);
}

/* Of the mappings of a plain run: where the first begins, and how many slots they have, but for those at its ends that
 * others are on. The run is on none of them. */
struct idle {
	uint64_t slots;
	uint32_t begin;
};

/* Whether somebody is on slots of a mapping, from one to before another. */
static inline bool is_busy(const struct glk_map *map, uint32_t first, uint32_t end)
{
	if ((first ^ (end - 1)) >> GLK_GROUP_SHIFT)
		return glk_bits_any(map->busy, first, end - 1);
	return map->busy[first >> GLK_GROUP_SHIFT] >> (first & 63)
		<< (64 - (end - first));
}

/* Others are in the first slot, or in the last one. */
static __attribute__((noinline)) struct idle idle_beside(const struct glk_map *map,
	uint32_t first, uint32_t last, bool on_first, bool on_last)
{
	uint32_t begin = glk_mapping_begin(map, first), from = begin;
	uint32_t end = glk_mapping_behind(map, last), to = end;

	if (on_first || (begin != first && is_busy(map, begin, first)))
		from = glk_mapping_behind(map, first);
	if (on_last || (end - 1 != last && is_busy(map, last + 1, end)))
		to = glk_mapping_begin(map, last);
	return (struct idle){to > from ? to - from : 0, begin};
}

/* The same; from one word, where all of these lie in one group and nobody else is on them. */
static inline struct idle idle_around(const struct glk_map *map, uint32_t first,
	uint32_t last, bool on_first, bool on_last)
{
	uint32_t group = first >> GLK_GROUP_SHIFT, begin, slots;
	uint64_t heads, begins, ends;

	if (on_first | on_last || group != last >> GLK_GROUP_SHIFT)
		return idle_beside(map, first, last, on_first, on_last);
	heads = glk_mapping_heads(map, group);
	begins = heads & ~UINT64_C(0) >> (63 - (first & 63));
	ends = heads & ~UINT64_C(1) << (last & 63);
	if (!begins || !ends)
		return idle_beside(map, first, last, false, false);
	begin = 63 - (uint32_t)__builtin_clzll(begins);
	slots = (uint32_t)__builtin_ctzll(ends) - begin;
	if (map->busy[group] >> begin << (64 - slots))
		return idle_beside(map, first, last, false, false);
	return (struct idle){slots, group << GLK_GROUP_SHIFT | begin};
}

/* So many slots are busy now that were not, and so many are of pages that were idle: what is left of these is stranded. */
static inline void book_plain(struct glk_map *map, uint64_t slots, uint64_t idle)
{
	struct glk_stock *stock = &map->space->of[GLK_OF_NODE];

	stock->idle_slots -= idle;
	stock->stranded += idle - slots;
}

void glk_slots_enter_plain(struct glk_map *map, uint32_t first, uint32_t last)
{
	bool on_first = map->count[first]++ > 0, on_last = on_first;
	uint32_t slots = last - first + 1 - on_first;

	if (first != last) {
		on_last = map->count[last]++ > 0;
		slots -= on_last;
	}
	book_plain(map, slots, idle_around(map, first, last, on_first, on_last).slots);
	glk_bits_set(map->busy, first, last);
}

/* Its bits of what is busy are cleared. */
static inline void leave_plain(struct glk_map *map, uint32_t first, uint32_t last)
{
	bool on_first = --map->count[first] > 0, on_last = on_first;
	uint64_t slots = last - first + 1 - on_first;
	struct idle idle;

	if (on_first)
		glk_bit_set(map->busy, first);
	if (first != last) {
		on_last = --map->count[last] > 0;
		slots -= on_last;
		if (on_last)
			glk_bit_set(map->busy, last);
	}
	idle = idle_around(map, first, last, on_first, on_last);
	book_plain(map, -slots, -idle.slots);
	glk_idle_touch(map, idle.begin, last);
}

void glk_slots_leave_plain(
	struct glk_map *map, uint32_t first, uint32_t last, const struct glk_use *use)
{
	glk_use_set_left(map, first, last, use, true);
	leave_plain(map, first, last);
}

static __attribute__((noinline)) void enter(
	struct glk_map *map, uint32_t first, uint32_t last)
{
	struct ends ends;
	uint64_t idle = 0, far = 0, shared = 0;

	find_ends(map, first, last, 0, &ends);
	GLK_BITS_EACH(w, mask, first, last, {
		uint64_t usable = map->usable[w] & mask;
		uint64_t comes = usable & ~map->shared[w] & ~map->busy[w];

		shared |= usable & map->shared[w];
		idle += count_bits(comes);
		far += map->hosted ? count_bits(comes & map->host[w]) : 0;
		glk_poke_relaxed(&map->busy[w], map->busy[w] | mask);
	});
	if (shared)
		enter_shared(map, first, last);
	add_idle(map, -idle, -far);
	map->count[first]++;
	if (first != last)
		map->count[last]++;
	book_ends(map, &ends);
}

bool glk_slots_differ(const struct glk_map *map, uint32_t first, uint32_t last)
{
	map->space->mark++;
	GLK_BITS_EACH(w, mask, first, last, {
		uint64_t left = glk_mapping_starts(map, w, map->shared[w] & mask, first);

		for (; left; left &= left - 1) {
			if (glk_slot_is_taken(
				    map, w << 6 | (uint32_t)__builtin_ctzll(left)))
				return false;
		}
	});
	return true;
}

void glk_slots_enter(struct glk_map *map, uint32_t first, uint32_t last)
{
	if (glk_slots_plain(map, first, last))
		glk_slots_enter_plain(map, first, last);
	else
		enter(map, first, last);
}

/* Where the mapping at an end of a run begins, if others are on it; only there may they be. */
static uint32_t begin_of_busy(const struct glk_map *map, uint32_t slot)
{
	struct glk_mapping m = glk_mapping_at(map, slot);

	return glk_bits_any(map->busy, m.first, m.last) ? m.first : GLK_NO_SLOT;
}

/*
 * Pages with several mappings that nobody is left on, among those that a run touches. The groups of
 * the run itself are told afterwards that something became idle in them.
 */
static void leave_shared(
	struct glk_map *map, uint32_t first, uint32_t last, const struct glk_use *use)
{
	struct glk_use own = use->streams ? *use : (struct glk_use){0};
	struct others others = {.usable = map->usable, .on = true};
	uint32_t begin = glk_mapping_begin(map, first),
		 end = glk_mapping_begin(map, last);
	uint32_t busy[] = {begin_of_busy(map, first), begin_of_busy(map, last)};
	uint32_t told = NO_GROUP;
	uint64_t idle = 0, far = 0;

	for (uint32_t w = first >> 6; w <= last >> 6; w++) {
		uint64_t left = glk_mapping_starts(map, w,
			map->shared[w] & map->usable[w] & glk_bits_mask(w, first, last),
			first);

		for (; left; left &= left - 1) {
			uint32_t slot = w << 6 | (uint32_t)__builtin_ctzll(left);
			struct glk_page *page = glk_map_page(map, map->page[slot]);
			uint32_t slots = glk_page_slots(map, page);
			uint32_t start = slot == first ? begin : slot;
			uint32_t newest = page->first_alias;

			/* it became idle just now, through another mapping that the run touches */
			if (page->in_use != start)
				continue;
			glk_use_add(&page->use, &own);
			if (start == busy[0] || start == busy[1])
				continue;
			page->in_use = GLK_NO_SLOT;
			idle += slots;
			far += is_far(map, slot) ? slots : 0;
			add_others(&others, map, page, start, slots);
			if (newest == start && start != end)
				continue;
			/* in another group than the one before, or in two */
			if ((newest ^ told) + slots > 64) {
				glk_idle_touch(map, newest, newest + slots - 1);
				told = (newest + slots - 1) & ~UINT32_C(63);
			}
		}
	}
	book_others(&others);
	add_idle(map, idle, far);
}

/* Others are in an end slot, which is busy as before, and no idle one if it was counted so. */
static inline void stay(struct glk_map *map, uint32_t slot, uint64_t *idle, uint64_t *far)
{
	glk_bit_set(map->busy, slot);
	if (!glk_bit_get(map->usable, slot) || glk_bit_get(map->shared, slot))
		return;
	*idle -= 1;
	*far -= is_far(map, slot);
}

static __attribute__((noinline)) void leave(
	struct glk_map *map, uint32_t first, uint32_t last, const struct glk_use *use)
{
	struct ends ends;
	uint64_t idle = 0, far = 0, shared = 0;
	bool others_first, others_last;

	find_ends(map, first, last, 1, &ends);
	others_first = --map->count[first] > 0;
	others_last = first != last && --map->count[last] > 0;
	GLK_BITS_EACH(w, mask, first, last, {
		uint64_t usable = map->usable[w] & mask;

		shared |= usable & map->shared[w];
		idle += count_bits(usable & ~map->shared[w]);
		far += map->hosted ? count_bits(usable & ~map->shared[w] & map->host[w])
				   : 0;
		glk_poke_relaxed(&map->busy[w], map->busy[w] & ~mask);
	});
	if (others_first)
		stay(map, first, &idle, &far);
	if (others_last)
		stay(map, last, &idle, &far);
	add_idle(map, idle, far);
	book_ends(map, &ends);
	if (shared)
		leave_shared(map, first, last, use);
}

/* Idle pages are met where their mapping begins, which may be before the run. */
static void touch(struct glk_map *map, uint32_t first, uint32_t last)
{
	glk_idle_touch(map, glk_mapping_begin(map, first), last);
}

void glk_slots_leave(
	struct glk_map *map, uint32_t first, uint32_t last, const struct glk_use *use)
{
	glk_use_leave(map, first, last, use);
	if (glk_slots_plain(map, first, last)) {
		glk_bits_clear(map->busy, first, last);
		leave_plain(map, first, last);
		return;
	}
	leave(map, first, last, use);
	touch(map, first, last);
}
