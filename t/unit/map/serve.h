/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MAP_SERVE_H
#define GLK_MAP_SERVE_H

/*
 * Blocks as the cache makes them, without streams: the first place that fits; pages from the
 * node's list, from the idle ones, or new.
 */
#include "unit/map/rig.h"

struct rig_found {
	unsigned aliases;
	uint32_t page;
};

static inline enum glk_idle_answer rig_idle_one(
	struct glk_map *map, uint32_t page, void *arg)
{
	struct rig_found *found = arg;

	if (glk_map_page(map, page)->aliases >= found->aliases)
		return GLK_IDLE_NEXT;
	found->page = page;
	return GLK_IDLE_STOP;
}

/* An idle page of so many slots, taken; 0: none. */
static inline uint32_t rig_idle(struct rig *rig, uint32_t slots)
{
	struct glk_idle_walk walk = {.slots = slots, .groups = UINT32_MAX};
	struct rig_found found = {.aliases = rig->aliases};

	glk_idle_each(&rig->map, &walk, rig_idle_one, &found);
	if (found.page)
		glk_page_take(&rig->map, found.page);
	return found.page;
}

/* A page for a new mapping: free, idle, or new. */
static inline int rig_find(struct rig *rig, uint32_t slots, uint32_t *ret_page)
{
	struct glk_node *node = rig->map.node;
	enum glk_class class = glk_node_class(node, S(slots));
	uint32_t page = glk_node_take(node, class);

	if (page && rig_page(rig, page)->size != S(slots)) {
		glk_node_put(node, page);
		page = 0;
	}
	if (!page)
		page = rig_idle(rig, slots);
	*ret_page = page;
	return page ? 0 : glk_node_grow(node, S(slots), ret_page);
}

/* The slot after the last one that is not mapped, from one that is not on up to `reach`. */
static inline uint32_t rig_gap(const struct rig *rig, uint32_t slot, uint32_t reach)
{
	uint32_t end = glk_bits_first(rig->map.mapped, slot, reach);

	return end == GLK_BITS_NONE ? reach + 1 : end;
}

/* Maps a page at a slot that has none; where nobody is it is idle. */
static inline int rig_fill(
	struct rig *rig, uint32_t slot, uint32_t last, uint32_t *ret_next)
{
	struct glk_map *map = &rig->map;
	uint32_t most = rig_gap(rig, slot, last) - slot, page;
	uint32_t slots = rig->pick ? rig->pick(slot, most) : 1;
	bool idle = !glk_bit_get(map->busy, slot);
	int err;

	err = rig_find(rig, slots, &page);
	if (err)
		return err;
	rig->shared += rig_page(rig, page)->aliases > 0;
	err = glk_mapping_make(map, slot, &page, 1);
	if (err ? glk_page_state(rig_page(rig, page)) == GLK_PAGE_OWNED : idle)
		glk_page_put_back(map, page);
	if (err)
		return err;
	*ret_next = slot + slots;
	return err;
}

/* Before a run is entered: an idle page over each of its ends that has none, from a slot or two
 * before it to a few behind, as far as nothing else is mapped. */
static inline void rig_straddle(struct rig *rig, uint32_t first, uint32_t last)
{
	struct glk_map *map = &rig->map;
	const struct glk_range *range = glk_map_range(map, S(first));
	uint32_t low = glk_slot_of(map, range->offset);
	uint32_t end = glk_slot_of(map, range->offset + range->size);
	uint32_t ends[] = {first, last}, next;

	if (end > glk_map_end(map))
		end = glk_map_end(map);
	for (int i = 0; i < 2; i++) {
		uint32_t slot = ends[i];

		for (int back = 0; back < 3 && slot > low; back++)
			slot -= !glk_bit_get(map->mapped, slot - 1);
		if (glk_bit_get(map->mapped, slot))
			continue;
		rig_fill(rig, slot, end - 1, &next);
	}
}

/* Before a run is entered: idle pages of several slots that reach beyond its ends go. */
static inline int rig_clear_ends(struct rig *rig, uint32_t first, uint32_t last)
{
	uint64_t before = rig->trimmed;
	uint32_t ends[] = {first, last};
	int err = 0;

	for (int i = 0; i < 2 && !err; i++) {
		struct glk_mapping m = glk_fit_end(&rig->map, ends[i], first, last);

		if (m.first > m.last)
			continue;
		rig->trimmed++;
		err = glk_mapping_remove(&rig->map, m.first, m.last);
	}
	rig->misfits += rig->fit.trims != (rig->trimmed > before);
	return err;
}

/* Puts pages behind a run that an extent has entered; stale mappings go. */
static inline int rig_back(struct rig *rig, uint32_t first, uint32_t last)
{
	struct glk_map *map = &rig->map;
	int err = 0;

	for (uint32_t slot = first; slot <= last && !err;) {
		struct glk_mapping m;

		if (glk_bit_get(map->usable, slot)) {
			slot++;
		} else if (!glk_bit_get(map->mapped, slot)) {
			err = rig_fill(rig, slot, last, &slot);
		} else if (map->page[slot]) {
			m = glk_mapping_at(map, slot);
			err = glk_mapping_remove(map, m.first, m.last);
		} else {
			err = -EIO;
		}
	}
	return err;
}

/* Accepts a place unless a slot of it is out of use. */
static inline bool rig_check(struct glk_map *map, uint32_t first, uint32_t last,
	struct glk_fit *fit, void *arg)
{
	struct rig *rig = arg;

	for (uint32_t slot = first; slot <= last; slot++) {
		if (glk_bit_get(map->mapped, slot) && !map->page[slot]) {
			rig->skipped++;
			return false;
		}
	}
	return true;
}

/* A place of whole slots or of a block that is not small, new ranges included. */
static inline int rig_search(
	struct rig *rig, uint64_t size, enum glk_fit_kind kind, uint32_t *ret_extent)
{
	struct glk_want want = {.size = size,
		.kind = kind,
		.trim = rig->trim && kind != GLK_FIT_NEST,
		.fn = rig_check,
		.arg = rig};
	int err = glk_fit_search(&rig->map, &want, &rig->fit);

	if (err && !glk_map_extend(&rig->map, size))
		err = glk_fit_search(&rig->map, &want, &rig->fit);
	if (err)
		return err;
	glk_fit_ahead(&rig->map, &want, &rig->fit);
	return glk_extent_carve(
		&rig->map, rig->fit.from, rig->fit.offset, size, ret_extent);
}

static inline int rig_nest(struct rig *rig, uint32_t *ret_extent)
{
	uint64_t size = rig->map.packs ? glk_map_small(&rig->map) : S(1);
	int err = rig_search(rig, size, GLK_FIT_NEST, ret_extent);

	if (err)
		return err;
	err = glk_nest_open(&rig->map, *ret_extent);
	if (err)
		glk_extent_give_back(&rig->map, *ret_extent);
	return err;
}

static inline int rig_small(struct rig *rig, uint64_t size, uint32_t *ret_extent)
{
	uint32_t from = 0;
	int err = 0;

	if (!glk_tree_find(&rig->map, &rig->map.nested, size, &from, 1))
		err = rig_nest(rig, &from);
	if (err)
		return err;
	return glk_extent_carve(&rig->map, from, glk_extent_at(&rig->map, from)->offset,
		size, ret_extent);
}

/* A page of its own behind a run that an extent has entered, if that is not there yet; stale
 * mappings go. */
static inline int rig_back_whole(struct rig *rig, uint32_t first, uint32_t last)
{
	struct glk_map *map = &rig->map;
	uint32_t page;
	int err;

	if (glk_bit_get(map->usable, first)) {
		rig->kept_whole++;
		return 0;
	}
	for (uint32_t slot = first; slot <= last; slot++) {
		struct glk_mapping m;

		if (!map->page[slot])
			continue;
		m = glk_mapping_at(map, slot);
		err = glk_mapping_remove(map, m.first, m.last);
		if (err)
			return err;
	}
	err = glk_node_grow(map->node, S(last - first + 1), &page);
	if (err)
		return err;
	err = glk_mapping_make(map, first, &page, 1);
	if (err && glk_page_state(rig_page(rig, page)) == GLK_PAGE_OWNED)
		glk_node_release(map->node, page);
	return err;
}

/* A block where the search finds a place; 0 and nothing left of it on failure. */
static inline uint32_t rig_alloc_kind(
	struct rig *rig, uint64_t size, enum glk_fit_kind kind)
{
	struct glk_map *map = &rig->map;
	struct glk_use none = {0};
	uint32_t extent, first, last;
	struct glk_extent *e;
	int err = 0;

	if (kind == GLK_FIT_NEST ? rig_small(rig, size, &extent)
				 : rig_search(rig, size, kind, &extent))
		return 0;
	e = glk_extent_at(map, extent);
	first = glk_extent_first(map, e);
	last = glk_extent_last(map, e);
	if (rig->trim && kind != GLK_FIT_NEST)
		err = rig_clear_ends(rig, first, last);
	if (err) {
		glk_extent_give_back(map, extent);
		return 0;
	}
	if (kind != GLK_FIT_NEST)
		rig->misfits += rig->fit.maps !=
			last - first + 1 - glk_bits_count(map->usable, first, last);
	if (!rig->trim && rig->wide && kind == GLK_FIT_BLOCK)
		rig_straddle(rig, first, last);
	glk_slots_enter(map, first, last);
	err = kind == GLK_FIT_WHOLE ? rig_back_whole(rig, first, last)
				    : rig_back(rig, first, last);
	if (err) {
		glk_slots_leave(map, first, last, &none);
		glk_extent_give_back(map, extent);
		return 0;
	}
	glk_lookup_enter(map, extent);
	return extent;
}

static inline uint32_t rig_alloc(struct rig *rig, uint64_t size)
{
	return rig_alloc_kind(rig, size,
		size <= glk_map_small(&rig->map) ? GLK_FIT_NEST : GLK_FIT_BLOCK);
}

#endif
