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

/* In place of the first slot of a group: far from any. */
#define NO_GROUP (UINT32_C(1) << 30)

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

static inline uint64_t count_bits(uint64_t word)
{
	return word == ~UINT64_C(0) ? 64 : word ? glk_bits_of(word) : 0;
}

static __attribute__((cold, noinline)) void put_far(
	struct glk_map *map, uint32_t first, uint32_t last, bool usable)
{
	if (usable)
		glk_bits_set(map->usable, first, last);
	else
		glk_bits_clear(map->usable, first, last);
}

/* A mapping of so many slots, with so much room for them in a group, becomes usable, or stale. */
static inline void put(struct glk_map *map, uint32_t slot, uint32_t slots, int room,
	uint64_t bits, bool usable)
{
	uint64_t *word = &map->usable[slot >> 6];

	bits <<= slot & 63;
	if ((int)(slot & 63) > room)
		put_far(map, slot, slot + slots - 1, usable);
	else
		glk_poke_relaxed(word, usable ? *word | bits : *word & ~bits);
}

static __attribute__((cold, noinline)) void touch(
	struct glk_map *map, uint32_t first, uint32_t last)
{
	if (map->hosted)
		glk_idle_touch(map, first, last);
	else
		glk_idle_touch_run(map->space->of, first, last);
}

static __attribute__((cold, noinline)) void use_at(
	struct glk_map *map, struct glk_page *page, uint32_t slot)
{
	glk_page_use_at(map, page, slot);
}

/*
 * Pages with several mappings, of which one begins in a run: they come into use there, and their other
 * mappings go stale; or, with `out`, nobody is left on them, and all mappings are usable. Those that a mapping met
 * before has turned are so already, and so are those that come into use where somebody else is. The groups of the
 * run itself are told afterwards that something became idle in them.
 */
static inline __attribute__((always_inline)) void turn(struct glk_map *map,
	uint32_t first, uint32_t last, bool out, struct glk_use use, uint32_t end)
{
	struct glk_page *pages = glk_map_page(map, 0);
	const struct glk_map *at = glk_slot_map(map, first);
	uint32_t told = NO_GROUP, slots = 0;
	int room = 0; /* in a group, behind the beginning of a page */
	uint64_t size = 0, bits = 0, idle = 0, far = 0;

	for (uint32_t w = first >> 6; w <= last >> 6; w++) {
		uint64_t left = map->head[w] & map->shared[w] & map->usable[w] &
			glk_bits_mask(w, first, last);

		for (; left; left &= left - 1) {
			uint32_t slot = w << 6 | (uint32_t)__builtin_ctzll(left);
			struct glk_page *page = &pages[map->page[slot]];
			uint32_t newest = page->first_alias, other = newest;

			if (page->in_use != (out ? slot : GLK_NO_SLOT))
				continue;
			page->in_use = out ? GLK_NO_SLOT : slot;
			if (out)
				glk_use_add(&page->use, &use);
			else if (page->map != at)
				use_at(map, page, slot);
			if (page->size != size) {
				size = page->size;
				slots = glk_page_slots(map, page);
				room = 64 - (int)slots;
				bits = ~UINT64_C(0) >> (room > 0 ? room : 0);
			}
			idle += slots;
			far += is_far(map, slot) ? slots : 0;
			for (unsigned more = page->aliases - 1;;
				other = map->alias[other]) {
				if (other == slot)
					continue;
				put(map, other, slots, room, bits, out);
				/* the link of the last one lies in a cache line that nothing else here needs */
				if (!--more)
					break;
			}
			/* in another group than the one before, or in two */
			if (out && (int)(newest ^ told) > room &&
				(newest != slot || slot == end)) {
				told = newest + slots - 1;
				touch(map, newest, told);
				told &= ~UINT32_C(63);
			}
		}
	}
	add_idle(map, out ? idle : -idle, out ? far : -far);
}

static __attribute__((noinline)) void turn_in(
	struct glk_map *map, uint32_t first, uint32_t last)
{
	turn(map, first, last, false, (struct glk_use){0}, 0);
}

static __attribute__((noinline)) void turn_out(struct glk_map *map, uint32_t first,
	uint32_t last, const struct glk_use *use, uint32_t end)
{
	turn(map, first, last, true, use->streams ? *use : (struct glk_use){0}, end);
}

/* Of the mappings of a run: where the first begins, and where those begin and end that nobody else is on, which may only
 * be at its ends. The run is on none of them. */
struct idle {
	uint32_t begin, from, to;
};

static inline uint64_t slots_of(struct idle idle)
{
	return idle.to - idle.from;
}

/* Whether somebody is on slots of a mapping, from one to before another. */
static inline bool is_busy(const struct glk_map *map, uint32_t first, uint32_t end)
{
	if ((first ^ (end - 1)) >> GLK_GROUP_SHIFT)
		return glk_bits_any(map->busy, first, end - 1);
	return map->busy[first >> GLK_GROUP_SHIFT] >> (first & 63)
		<< (64 - (end - first));
}

/* `on_first`, `on_last`: others are in the first slot, in the last one. */
static __attribute__((noinline)) struct idle idle_beside(const struct glk_map *map,
	uint32_t first, uint32_t last, bool on_first, bool on_last)
{
	uint32_t begin = glk_mapping_begin(map, first), from = begin;
	uint32_t end = glk_mapping_behind(map, last), to = end;

	if (on_first || (begin != first && is_busy(map, begin, first)))
		from = glk_mapping_behind(map, first);
	if (on_last || (end - 1 != last && is_busy(map, last + 1, end)))
		to = glk_mapping_begin(map, last);
	return (struct idle){begin, from, to > from ? to : from};
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
	begin |= group << GLK_GROUP_SHIFT;
	return (struct idle){begin, begin, begin + slots};
}

/* So many slots are busy now that were not, and so many are of pages that were idle: what is left of these is stranded. */
static inline void book_plain(
	struct glk_map *map, struct glk_apart *apart, uint64_t slots, uint64_t idle)
{
	struct glk_stock *stock = &map->space->of[GLK_OF_NODE];

	if (apart) {
		apart->idle_slots -= idle;
		apart->stranded += idle - slots;
	} else {
		stock->idle_slots -= idle;
		stock->stranded += idle - slots;
	}
}

/* `apart`, compiled in: where that is booked; NULL: in the stock. */
static inline __attribute__((always_inline)) void enter_plain(
	struct glk_map *map, struct glk_apart *apart, uint32_t first, uint32_t last)
{
	bool on_first = map->count[first]++ > 0, on_last = on_first;
	uint32_t slots = last - first + 1 - on_first;

	if (first != last) {
		on_last = map->count[last]++ > 0;
		slots -= on_last;
	}
	book_plain(map, apart, slots,
		slots_of(idle_around(map, first, last, on_first, on_last)));
	glk_bits_set(map->busy, first, last);
}

void glk_slots_enter_plain(struct glk_map *map, uint32_t first, uint32_t last)
{
	enter_plain(map, NULL, first, last);
}

void glk_slots_enter_apart(
	struct glk_map *map, struct glk_apart *apart, uint32_t first, uint32_t last)
{
	enter_plain(map, apart, first, last);
}

/* The caller has cleared the bits that said it is busy. Where something becomes idle begins. */
static inline __attribute__((always_inline)) uint32_t leave_busy(
	struct glk_map *map, struct glk_apart *apart, uint32_t first, uint32_t last)
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
	book_plain(map, apart, -slots, -slots_of(idle));
	return idle.begin;
}

static inline void leave_plain(struct glk_map *map, uint32_t first, uint32_t last)
{
	glk_idle_touch(map, leave_busy(map, NULL, first, last), last);
}

void glk_slots_leave_plain(
	struct glk_map *map, uint32_t first, uint32_t last, const struct glk_use *use)
{
	glk_use_set_left(map, first, last, use, true);
	leave_plain(map, first, last);
}

/* The first group of the first range. */
static inline uint32_t first_group(const struct glk_map *map)
{
	return glk_slot_of(map, map->range[0].offset) >> GLK_GROUP_SHIFT;
}

void glk_slots_leave_apart(struct glk_map *map, struct glk_apart *apart, uint32_t first,
	uint32_t last, const struct glk_use *use)
{
	uint32_t none = first_group(map), begin;

	glk_use_leave(map, first, last, use);
	glk_bits_clear(map->busy, first, last);
	begin = leave_busy(map, apart, first, last);
	for (uint32_t g = (begin >> GLK_GROUP_SHIFT) - none,
		      end = (last >> GLK_GROUP_SHIFT) - none;
		g <= end; g++)
		apart->touched[g / 64] |= UINT64_C(1) << g % 64;
}

void glk_slots_join(struct glk_map *map, struct glk_apart *apart)
{
	uint32_t none = first_group(map) << GLK_GROUP_SHIFT;

	map->space->of[GLK_OF_NODE].idle_slots += apart->idle_slots;
	map->space->of[GLK_OF_NODE].stranded += apart->stranded;
	for (unsigned w = 0; w < GLK_APART_GROUPS / 64; w++) {
		for (uint64_t left = apart->touched[w]; left; left &= left - 1) {
			uint32_t slot = none +
				((w * 64 + (uint32_t)__builtin_ctzll(left))
					<< GLK_GROUP_SHIFT);

			glk_idle_touch_run(&map->space->of[GLK_OF_NODE], slot, slot);
		}
	}
	*apart = (struct glk_apart){0};
}

/* The pages with one mapping that begin and end in a run are idle from now on, or are so no longer. Whether there are
 * others, that are usable. */
static inline bool book_single(struct glk_map *map, struct idle run, bool are)
{
	uint64_t idle = 0, far = 0, shared = 0;

	if (run.from == run.to)
		return false;
	GLK_BITS_EACH(w, mask, run.from, run.to - 1, {
		uint64_t usable = map->usable[w] & mask;
		uint64_t single = usable & ~map->shared[w];

		shared |= usable ^ single;
		idle += count_bits(single);
		far += map->hosted ? count_bits(single & map->host[w]) : 0;
	});
	add_idle(map, are ? idle : -idle, are ? far : -far);
	return shared;
}

/* So many more slots of the page of an end are stranded, if it is in use there. */
static inline void strand(struct glk_map *map, uint32_t slot, uint32_t more)
{
	if (glk_bit_get(map->usable, slot))
		map->space->of[is_far(map, slot)].stranded += (uint64_t)(int32_t)more;
}

static __attribute__((noinline)) void enter(
	struct glk_map *map, uint32_t first, uint32_t last)
{
	bool on_first = map->count[first]++ > 0;
	bool on_last = first != last && map->count[last]++ > 0;
	struct idle idle = idle_around(map, first, last, on_first, on_last);

	glk_bits_set(map->busy, first, last);
	if (book_single(map, idle, false))
		turn_in(map, idle.from, idle.to - 1);
	strand(map, first, first + on_first - idle.from);
	strand(map, last, idle.to + on_last - last - 1);
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

/* Somebody stays on the page of an end of a run, which was used all the same. */
static void add_use(struct glk_map *map, uint32_t slot, const struct glk_use *use)
{
	struct glk_page *page = glk_map_page(map, map->page[slot]);

	if (glk_bit_get(map->shared, slot) && glk_bit_get(map->usable, slot) &&
		page->in_use == slot)
		glk_use_add(&page->use, use);
}

static __attribute__((noinline)) void leave(
	struct glk_map *map, uint32_t first, uint32_t last, const struct glk_use *use)
{
	bool on_first = --map->count[first] > 0;
	bool on_last = first != last && --map->count[last] > 0;
	uint32_t end = glk_mapping_begin(map, last);
	struct idle idle;

	glk_bits_clear(map->busy, first, last);
	if (on_first)
		glk_bit_set(map->busy, first);
	if (on_last)
		glk_bit_set(map->busy, last);
	idle = idle_around(map, first, last, on_first, on_last);
	strand(map, first, idle.from - first - on_first);
	strand(map, last, last + 1 - on_last - idle.to);
	if (use->streams && idle.from > idle.begin)
		add_use(map, idle.begin, use);
	if (use->streams && idle.to <= end)
		add_use(map, end, use);
	if (book_single(map, idle, true))
		turn_out(map, idle.from, idle.to - 1, use, end);
	/* idle pages are met where their mapping begins, which may be before the run */
	glk_idle_touch(map, idle.begin, last);
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
}
