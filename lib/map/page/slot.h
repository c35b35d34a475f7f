/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MAP_SLOT_H
#define GLK_MAP_SLOT_H

/*
 * What lives in slots. A slot is busy while a live extent touches it. Extents that begin or end
 * in a slot are counted there, since others may touch it too; inside an extent nobody else is.
 */
#include "map/page/mapping.h"

/* A live extent touches the slots of a run. Pages that are idle come into use; mappings whose
 * page is in use elsewhere, and slots without any, may be among them. */
void glk_slots_enter(struct glk_map *map, uint32_t first, uint32_t last);
/* Whether a run is plain: usable as it is, of pages of the GPU that have one mapping each. Then the second and the
 * third book the same for it, the latter where all memory is in the order of the streams of `use`. */
static inline bool glk_slots_plain(
	const struct glk_map *map, uint32_t first, uint32_t last)
{
	if (map->hosted)
		return false;
	GLK_BITS_EACH(w, mask, first, last, {
		if ((~map->usable[w] | map->shared[w]) & mask)
			return false;
	});
	return true;
}

void glk_slots_enter_plain(struct glk_map *map, uint32_t first, uint32_t last);
void glk_slots_leave_plain(
	struct glk_map *map, uint32_t first, uint32_t last, const struct glk_use *use);
/*
 * The same two where others do so in other maps of the space at the same time: for a plain run that may be told apart.
 * Nobody has the space meanwhile, and whoever has it next is told by the third of them before anything else.
 */
static inline bool glk_slots_may_apart(
	const struct glk_map *map, uint32_t first, uint32_t last)
{
	return last - glk_slot_of(map, map->range[0].offset) < GLK_APART_GROUPS
			<< GLK_GROUP_SHIFT &&
		glk_slots_plain(map, first, last);
}

void glk_slots_enter_apart(
	struct glk_map *map, struct glk_apart *apart, uint32_t first, uint32_t last);
void glk_slots_leave_apart(struct glk_map *map, struct glk_apart *apart, uint32_t first,
	uint32_t last, const struct glk_use *use);
void glk_slots_join(struct glk_map *map, struct glk_apart *apart);
/* In a walk along the mappings of a place, before which space->mark was stepped: whether the idle page of one was met
 * at an earlier one, which will take it, so that this one needs pages of its own. */
static inline bool glk_slot_is_taken(const struct glk_map *map, uint32_t slot)
{
	struct glk_page *page = glk_map_page(map, map->page[slot]);
	bool before = page->mark == map->space->mark;

	page->mark = map->space->mark;
	return before && page->in_use == GLK_NO_SLOT;
}
/* Whether a run that is usable as it is will be so as a whole. */
bool glk_slots_differ(const struct glk_map *map, uint32_t first, uint32_t last);
/* It does so no longer; it was used by the streams of `use` until its tick. Pages that nobody is
 * left on become idle. */
void glk_slots_leave(
	struct glk_map *map, uint32_t first, uint32_t last, const struct glk_use *use);

#endif
