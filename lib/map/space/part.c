/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Which slots an extent stands on that is away in part: see part.h. */
#include "map/map.h"

static uint32_t find(const struct glk_map *map, uint32_t slot, uint32_t last, bool gone)
{
	if (slot > last)
		return GLK_BITS_NONE;
	return gone ? glk_bits_first(map->gone, slot, last)
		    : glk_bits_first_clear(map->gone, slot, last);
}

struct glk_stretch glk_part_next(const struct glk_map *map, const struct glk_extent *e,
	uint32_t slot, uint32_t last, bool gone)
{
	struct glk_stretch s = {1, 0};
	uint32_t begin = slot, end;

	if (slot > last)
		return s;
	/* the bit of the first slot is another one's */
	if (slot == glk_extent_first(map, e)) {
		if (glk_part_gone(map, e, slot) != gone)
			begin = find(map, slot + 1, last, gone);
		slot++;
	} else {
		begin = find(map, slot, last, gone);
	}
	if (begin == GLK_BITS_NONE)
		return s;
	end = find(map, begin < slot ? slot : begin, last, !gone);
	s.first = begin;
	s.last = end == GLK_BITS_NONE ? last : end - 1;
	return s;
}

struct glk_stretch glk_part_kept(const struct glk_map *map, const struct glk_extent *e,
	uint32_t slot, uint32_t last)
{
	struct glk_stretch s = {1, 0};
	uint32_t begin = GLK_BITS_NONE;

	if (slot > last)
		return s;
	if (slot == glk_extent_first(map, e)) {
		if (glk_part_gone(map, e, slot) && !glk_bit_get(map->bare, slot))
			begin = slot;
		slot++;
	}
	if (begin == GLK_BITS_NONE)
		begin = glk_bits_first_only(map->gone, map->bare, slot, last);
	if (begin == GLK_BITS_NONE)
		return s;
	s.first = s.last = begin;
	while (s.last < last) {
		uint32_t end = glk_part_end(map, s.last, last);

		s.last = end;
		if (end == last || !glk_bit_get(map->gone, end + 1) ||
			glk_bit_get(map->bare, end + 1))
			break;
		s.last = end + 1;
	}
	return s;
}

uint32_t glk_part_end(const struct glk_map *map, uint32_t begin, uint32_t last)
{
	if (begin == last)
		return last;
	GLK_BITS_EACH(w, mask, begin + 1, last, {
		uint64_t stops = (map->begun[w] | map->bare[w] | ~map->gone[w]) & mask;

		if (stops)
			return (w << 6 | (uint32_t)__builtin_ctzll(stops)) - 1;
	});
	return last;
}

struct glk_stretch glk_part_bare(const struct glk_map *map, uint32_t slot, uint32_t last)
{
	uint32_t first = glk_bits_first(map->bare, slot, last), behind;

	if (first == GLK_BITS_NONE)
		return (struct glk_stretch){1, 0};
	behind = glk_bits_first_clear(map->bare, first, last);
	return (struct glk_stretch){first, behind == GLK_BITS_NONE ? last : behind - 1};
}

struct glk_stretch glk_part_alike(const struct glk_map *map, struct glk_stretch s)
{
	uint32_t behind;

	if (s.first > s.last)
		return s;
	behind = glk_is_sealed(map, s.first)
		? glk_bits_first_clear(map->sealed, s.first, s.last)
		: glk_bits_first(map->sealed, s.first, s.last);
	if (behind != GLK_BITS_NONE)
		s.last = behind - 1;
	return s;
}

static bool stands(const struct glk_map *map, const struct glk_extent *e, uint32_t slot)
{
	return slot >= glk_extent_first(map, e) && slot <= glk_extent_last(map, e) &&
		!glk_part_gone(map, e, slot);
}

static bool stands_before(
	const struct glk_map *map, const struct glk_extent *e, uint32_t slot)
{
	return slot && stands(map, e, slot - 1);
}

/* At the ends of a stretch where the extent stands on both sides: that of another stretch there is one
 * end more of, or one fewer. A stretch of one slot has one end. */
static void count_ends(struct glk_map *map, const struct glk_extent *e,
	struct glk_stretch s, uint16_t more)
{
	bool single = s.first == s.last;

	if (stands_before(map, e, s.first)) {
		if (stands_before(map, e, s.first - 1))
			map->count[s.first - 1] =
				(uint16_t)(map->count[s.first - 1] + more);
		if (!single || stands(map, e, s.last + 1))
			map->count[s.first] = (uint16_t)(map->count[s.first] + more);
	}
	if (stands(map, e, s.last + 1)) {
		if (!single)
			map->count[s.last] = (uint16_t)(map->count[s.last] + more);
		if (stands(map, e, s.last + 2))
			map->count[s.last + 1] =
				(uint16_t)(map->count[s.last + 1] + more);
	}
}

static void set_gone(
	struct glk_map *map, struct glk_extent *e, struct glk_stretch s, bool gone)
{
	if (s.first == glk_extent_first(map, e)) {
		if (gone)
			glk_or_relaxed(&e->kept, GLK_KEPT_FIRST);
		else
			glk_store_relaxed(
				&e->kept, glk_load_relaxed(&e->kept) & ~GLK_KEPT_FIRST);
		s.first++;
	}
	if (s.first > s.last)
		return;
	if (gone)
		glk_bits_set(map->gone, s.first, s.last);
	else
		glk_bits_clear(map->gone, s.first, s.last);
}

void glk_part_leave(struct glk_map *map, struct glk_extent *e, struct glk_stretch s,
	const struct glk_use *use)
{
	count_ends(map, e, s, 1);
	if (glk_is_sealed(map, s.first))
		glk_seal_leave(map, s.first, s.last, use);
	else
		glk_slots_leave(map, s.first, s.last, use);
	set_gone(map, e, s, true);
}

void glk_part_join(struct glk_map *map, struct glk_extent *e, struct glk_stretch s)
{
	set_gone(map, e, s, false);
	count_ends(map, e, s, UINT16_MAX);
}

uint64_t glk_part_span(const struct glk_map *map, const struct glk_extent *e,
	struct glk_stretch s, uint64_t *ret_addr)
{
	uint64_t begin = (uint64_t)s.first << map->shift;
	uint64_t end = (uint64_t)(s.last + 1) << map->shift;
	uint64_t behind = e->offset + glk_extent_asked(e);

	begin = begin < e->offset ? e->offset : begin;
	end = end > behind ? behind : end;
	*ret_addr = glk_load_relaxed(&e->addr) + (begin - e->offset);
	return end > begin ? end - begin : 0;
}
