/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The one rule of aliasing: a page is in use through at most one of its slots. When the first
 * live extent enters a slot, the other mappings of its page stop being usable; when the last
 * one leaves, all of them are usable again and the page is idle.
 *
 * Most pages have one mapping. For those a request touches the slot and nothing else: 16
 * bytes, in the order of the addresses, where the descriptors of pages lie anywhere.
 */
#include "map/map.h"

/* For all mappings of a page. They are counted, because the link of the last one lies in a
 * cache line that nothing else here needs. */
static void set_usable(struct glk_map *map, const struct glk_page *page, bool usable)
{
	uint32_t name = page->first_alias;

	for (unsigned left = page->aliases; left; left--) {
		struct glk_span *span = glk_slot_span(map, name);
		uint32_t slot = glk_slot_number(name);

		if (usable)
			glk_bit_set(span->usable, slot);
		else
			glk_bit_clear(span->usable, slot);
		if (left > 1)
			name = span->more[slot].next_alias;
	}
}

void glk_slot_enter(struct glk_span *span, uint32_t slot)
{
	struct glk_slot *s = &span->slot[slot];
	struct glk_page *page;

	if (s->live++)
		return;
	if (!glk_bit_get(span->shared, slot)) {
		glk_idle_take_slot(span, slot);
		return;
	}
	page = glk_map_page(span->map, s->page);
	glk_idle_take(span->map, s->page);
	page->in_use = glk_slot_name(span, slot);
	set_usable(span->map, page, false);
	glk_bit_set(span->usable, slot);
}

void glk_slot_leave(struct glk_span *span, uint32_t slot, uint64_t streams, uint64_t tick)
{
	struct glk_slot *s = &span->slot[slot];
	bool shared = glk_bit_get(span->shared, slot);
	struct glk_page *page;

	if (streams) {
		glk_use_add(&span->use[slot], streams, tick);
		if (shared)
			glk_use_add(
				&glk_map_page(span->map, s->page)->use, streams, tick);
	}
	if (--s->live)
		return;
	if (!shared) {
		glk_idle_put_slot(span, slot);
		return;
	}
	page = glk_map_page(span->map, s->page);
	page->in_use = GLK_NO_SLOT;
	set_usable(span->map, page, true);
	glk_idle_put(span->map, s->page);
}

/* Whether all slots of a run are usable and their pages have no other mapping. */
static bool all_plain(const struct glk_span *span, uint32_t first, uint32_t last)
{
	return first <= last && !glk_bits_meet(span->shared, span->shared, first, last) &&
		glk_bits_count(span->usable, first, last) == last - first + 1;
}

/* The run inside an extent, where nobody else is: a loop without a question. */
static uint32_t enter_inside(struct glk_span *span, uint32_t first, uint32_t last)
{
	uint32_t taken = 0;

	for (uint32_t slot = first; slot <= last; slot++) {
		struct glk_slot *s = &span->slot[slot];

		taken += s->place != 0;
		s->live = 1;
		s->place = 0;
	}
	return taken;
}

static uint32_t enter_any(struct glk_span *span, uint32_t slot)
{
	struct glk_slot *s = &span->slot[slot];
	bool taken;

	if (!glk_bit_get(span->usable, slot))
		return 0;
	if (glk_bit_get(span->shared, slot)) {
		glk_slot_enter(span, slot);
		return 0;
	}
	taken = !s->live++ && s->place;
	s->place = 0;
	return taken;
}

void glk_slots_enter(struct glk_span *span, uint32_t first, uint32_t last)
{
	uint32_t taken = enter_any(span, first);

	if (first == last) {
		glk_idle_forget(span, taken);
		return;
	}
	if (all_plain(span, first + 1, last - 1)) {
		taken += enter_inside(span, first + 1, last - 1);
	} else {
		for (uint32_t slot = first + 1; slot < last; slot++)
			taken += enter_any(span, slot);
	}
	taken += enter_any(span, last);
	glk_idle_forget(span, taken);
}

static void leave_any(struct glk_span *span, uint32_t first, uint32_t last,
	uint64_t streams, uint64_t tick)
{
	uint32_t from = first, idle = 0; /* the run of slots that became idle */

	for (uint32_t slot = first; slot <= last; slot++) {
		bool plain = !glk_bit_get(span->shared, slot) && streams;

		if (plain) {
			glk_use_add(&span->use[slot], streams, tick);
			if (!--span->slot[slot].live) {
				idle++;
				continue;
			}
		}
		glk_idle_put_slots(span, from, idle);
		from = slot + 1;
		idle = 0;
		if (!plain)
			glk_slot_leave(span, slot, streams, tick);
	}
	glk_idle_put_slots(span, from, idle);
}

/* The run inside an extent: its slots become idle, all of them. */
static void leave_inside(struct glk_span *span, uint32_t first, uint32_t last,
	uint64_t streams, uint64_t tick)
{
	for (uint32_t slot = first; slot <= last; slot++) {
		span->slot[slot].live = 0;
		glk_use_add(&span->use[slot], streams, tick);
	}
	glk_idle_put_slots(span, first, last - first + 1);
}

void glk_slots_leave(struct glk_span *span, uint32_t first, uint32_t last,
	uint64_t streams, uint64_t tick)
{
	if (first + 1 >= last || !streams || !all_plain(span, first + 1, last - 1)) {
		leave_any(span, first, last, streams, tick);
		return;
	}
	leave_any(span, first, first, streams, tick);
	leave_inside(span, first + 1, last - 1, streams, tick);
	leave_any(span, last, last, streams, tick);
}
