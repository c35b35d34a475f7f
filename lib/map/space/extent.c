/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Extents partition each range from its base to its high-water mark without gaps: each knows
 * its neighbours, free neighbours are merged, nested ones inside their slot alone, and each free
 * one is in a tree.
 * Cutting and merging are constant save for the tree. Nothing here touches slots or pages.
 */
#include "map/map.h"

#include "base/error.h"

#include <errno.h>
#include <inttypes.h>

static struct glk_tree *tree_of(struct glk_map *map, const struct glk_extent *e)
{
	return e->nested ? &map->nested : &map->common;
}

/* Puts a new extent after `prev` in the row; 0: it begins a range. */
static void link_after(struct glk_map *map, uint32_t prev, uint32_t extent)
{
	struct glk_extent *e = glk_extent_at(map, extent);

	e->prev = prev;
	e->next = prev ? glk_extent_at(map, prev)->next : 0;
	if (prev)
		glk_extent_at(map, prev)->next = extent;
	if (e->next)
		glk_extent_at(map, e->next)->prev = extent;
	else if (prev == map->last)
		map->last = extent;
}

static void link_before(struct glk_map *map, uint32_t next, uint32_t extent)
{
	struct glk_extent *e = glk_extent_at(map, extent);
	struct glk_extent *n = glk_extent_at(map, next);

	e->prev = n->prev;
	e->next = next;
	if (e->prev)
		glk_extent_at(map, e->prev)->next = extent;
	n->prev = extent;
}

static void unlink_extent(struct glk_map *map, uint32_t extent)
{
	struct glk_extent *e = glk_extent_at(map, extent);

	if (e->prev)
		glk_extent_at(map, e->prev)->next = e->next;
	if (e->next)
		glk_extent_at(map, e->next)->prev = e->prev;
	if (map->last == extent)
		map->last = e->prev;
	glk_extent_set(e, GLK_EXTENT_NONE);
	glk_slab_put(&map->extents, extent);
}

/* One that lies at an offset, which is at an address. */
static inline void fill_at(struct glk_extent *e, uint64_t offset, uint64_t addr,
	uint64_t size, enum glk_extent_state state)
{
	e->offset = offset;
	/* pairs with: glk_extent_read */
	glk_poke_release(&e->size, size);
	glk_store_release(&e->whole, false);
	glk_store_release(&e->addr, addr);
	/* a free one has links there */
	if (state == GLK_EXTENT_QUICK)
		glk_store_relaxed(&e->marks, 0);
	glk_extent_set(e, state);
}

static void fill(struct glk_map *map, uint32_t id, uint64_t offset, uint64_t size,
	enum glk_extent_state state)
{
	fill_at(glk_extent_at(map, id), offset, glk_map_addr(map, offset), size, state);
}

static void add_size(struct glk_extent *e, uint64_t more)
{
	/* pairs with: glk_extent_read */
	glk_poke_release(&e->size, e->size + more);
}

static __attribute__((noinline)) int none_left(struct glk_map *map, uint32_t got)
{
	if (got)
		glk_slab_put(&map->extents, got);
	return glk_error(-ENOMEM, GLAKE_ERROR_LIMIT,
		"all %" PRIu32
		" extents are in use: map.extents is the most there may be",
		map->extents.max);
}

/* Gets up to two descriptors, all or none. */
static inline int get_two(
	struct glk_map *map, bool first, bool second, uint32_t *a, uint32_t *b)
{
	*a = *b = 0;
	if (first && !(*a = glk_slab_get(&map->extents)))
		return none_left(map, 0);
	if (second && !(*b = glk_slab_get(&map->extents)))
		return none_left(map, *a);
	return 0;
}

static inline __attribute__((always_inline)) int carve_inside(
	struct glk_map *map, uint32_t from, uint64_t offset, uint64_t size)
{
	struct glk_extent *e = glk_extent_at(map, from);
	uint64_t head = offset - e->offset;
	uint64_t tail = e->offset + e->size - offset - size;
	uint64_t addr = glk_load_relaxed(&e->addr) + head;
	struct glk_tree *tree = tree_of(map, e);
	uint32_t low, high;
	int err;

	err = get_two(map, head, tail, &low, &high);
	if (err)
		return err;
	if (head) {
		fill_at(glk_extent_at(map, low), e->offset, addr - head, head,
			GLK_EXTENT_FREE);
		glk_extent_at(map, low)->nested = e->nested;
		link_before(map, from, low);
	}
	if (tail) {
		fill_at(glk_extent_at(map, high), offset + size, addr + size, tail,
			GLK_EXTENT_FREE);
		glk_extent_at(map, high)->nested = e->nested;
		link_after(map, from, high);
	}
	if (head && tail)
		glk_tree_insert(map, tree, low);
	if (head || tail)
		glk_tree_replace(map, tree, from, tail ? high : low);
	else
		glk_tree_remove(map, tree, from);
	fill_at(e, offset, addr, size, GLK_EXTENT_QUICK);
	return 0;
}

/* The free extent that ends at the mark; 0: there is none. */
static uint32_t free_tail(const struct glk_map *map)
{
	const struct glk_extent *last = glk_extent_at(map, map->last);

	return map->last && !last->nested && glk_extent_state(last) == GLK_EXTENT_FREE
		? map->last
		: 0;
}

/* Makes the addresses from the mark up to `offset` free: those of `gap`, a new descriptor, or
 * with 0 of the free extent that ends at the mark. */
static void raise_high(struct glk_map *map, uint32_t gap, uint64_t offset)
{
	if (gap) {
		link_after(map, map->last, gap);
		fill(map, gap, map->high, 0, GLK_EXTENT_FREE);
		glk_extent_at(map, gap)->nested = false;
		map->last = gap;
	} else {
		glk_tree_remove(map, &map->common, map->last);
	}
	add_size(glk_extent_at(map, map->last), offset - map->high);
	glk_tree_insert(map, &map->common, map->last);
	glk_poke_relaxed(&map->high, offset);
}

void glk_extent_raise(struct glk_map *map, uint64_t offset)
{
	uint32_t gap = free_tail(map) ? 0 : glk_slab_get(&map->extents);

	if (gap || free_tail(map))
		raise_high(map, gap, offset);
}

/* Leaves the free extent that ends at the mark no more than what lies before `offset`. */
static void cut_tail(struct glk_map *map, uint32_t tail, uint64_t offset)
{
	struct glk_extent *e = glk_extent_at(map, tail);

	glk_tree_remove(map, &map->common, tail);
	glk_poke_release(&e->size, offset - e->offset); /* pairs with: glk_extent_read */
	glk_tree_insert(map, &map->common, tail);
}

static __attribute__((noinline)) int carve_new(
	struct glk_map *map, uint64_t offset, uint64_t size, uint32_t *ret)
{
	uint32_t tail = free_tail(map), gap, extent = tail;
	bool above = offset > map->high;
	int err;

	if (tail && glk_extent_at(map, tail)->offset == offset) {
		glk_tree_remove(map, &map->common, tail);
	} else {
		err = get_two(map, above && !tail, true, &gap, &extent);
		if (err)
			return err;
		if (above)
			raise_high(map, gap, offset);
		else if (offset < map->high)
			cut_tail(map, tail, offset);
		link_after(map, map->last, extent);
		map->last = extent;
	}
	fill(map, extent, offset, size, GLK_EXTENT_QUICK);
	glk_extent_at(map, extent)->nested = false;
	glk_poke_relaxed(&map->high, offset + size);
	map->taken += size;
	*ret = extent;
	return 0;
}

int glk_extent_carve(struct glk_map *map, uint32_t from, uint64_t offset, uint64_t size,
	uint32_t *ret_extent)
{
	int err;

	if (!from)
		return carve_new(map, offset, size, ret_extent);
	err = carve_inside(map, from, offset, size);
	if (err)
		return err;
	map->taken += size;
	if (glk_extent_at(map, from)->nested)
		map->nested_taken += size;
	*ret_extent = from;
	return 0;
}

/* Whether the neighbour of a free extent is free, and one with it: small blocks merge inside their slot only. */
static inline bool merges(const struct glk_map *map, const struct glk_extent *e,
	const struct glk_extent *neighbour)
{
	return glk_extent_state(neighbour) == GLK_EXTENT_FREE &&
		neighbour->nested == e->nested &&
		(!e->nested ||
			glk_extent_first(map, neighbour) == glk_extent_first(map, e));
}

static inline __attribute__((always_inline)) void settle(
	struct glk_map *map, uint32_t extent)
{
	struct glk_extent *e = glk_extent_at(map, extent);
	struct glk_extent *n = glk_extent_at(map, e->next),
			  *p = glk_extent_at(map, e->prev);
	uint32_t next = e->next && merges(map, e, n) ? e->next : 0;
	uint32_t prev = e->prev && merges(map, e, p) ? e->prev : 0;
	struct glk_tree *tree = tree_of(map, e);

	if (next)
		add_size(e, n->size);
	if (prev) {
		e->offset = p->offset;
		/* pairs with: glk_extent_read */
		glk_store_release(&e->addr, glk_load_relaxed(&p->addr));
		add_size(e, p->size);
	}
	if (next && prev)
		glk_tree_remove(map, tree, next);
	if (next || prev)
		glk_tree_replace(map, tree, prev ? prev : next, extent);
	else
		glk_tree_insert(map, tree, extent);
	if (next)
		unlink_extent(map, next);
	if (prev)
		unlink_extent(map, prev);
}

void glk_extent_settle(struct glk_map *map, uint32_t extent)
{
	settle(map, extent);
}

/* Whether a neighbour lies in a nest of the same slot. */
static bool is_beside(
	const struct glk_map *map, const struct glk_extent *e, uint32_t neighbour)
{
	const struct glk_extent *n = glk_extent_at(map, neighbour);

	return neighbour && n->nested &&
		glk_extent_first(map, n) == glk_extent_first(map, e);
}

/* The whole eighths of a free extent of a nest are common again: if nothing is left of the nest, or
 * wherever that is wanted. Without descriptors for what is left beside them they stay. */
static __attribute__((noinline)) void shed(struct glk_map *map, uint32_t extent)
{
	struct glk_extent *e = glk_extent_at(map, extent);
	uint64_t part = (UINT64_C(1) << map->eighth) - 1, end = e->offset + e->size;
	uint64_t from = (e->offset + part) & ~part, to = end & ~part;
	uint32_t more = from > e->offset;

	if (from >= to ||
		glk_load_relaxed(&map->extents.live) + more > map->extents.max ||
		(!map->packs &&
			(is_beside(map, e, e->prev) || is_beside(map, e, e->next))))
		return;
	if (carve_inside(map, extent, from, to - from))
		return;
	glk_extent_set(e, GLK_EXTENT_FREE);
	glk_nest_close(map, extent);
	settle(map, extent);
}

void glk_extent_give_back(struct glk_map *map, uint32_t extent)
{
	struct glk_extent *e = glk_extent_at(map, extent);

	map->taken -= e->size;
	if (e->nested)
		map->nested_taken -= e->size;
	/* the next block there begins with neither pins nor contents elsewhere */
	glk_store_relaxed(&e->kept, 0);
	glk_extent_set(e, GLK_EXTENT_FREE);
	settle(map, extent);
	if (e->nested && e->size >> map->eighth)
		shed(map, extent);
}

void glk_extent_pieces(struct glk_map *map)
{
	map->ranges = 1;
	map->range[0] = (struct glk_range){.map = map};
}

int glk_extent_add(
	struct glk_map *map, uint64_t addr, uint64_t size, uint32_t *ret_extent)
{
	uint32_t extent, none;
	int err = get_two(map, true, false, &extent, &none);

	if (err)
		return err;
	glk_extent_at(map, extent)->prev = glk_extent_at(map, extent)->next = 0;
	glk_extent_at(map, extent)->nested = false;
	fill(map, extent, addr, size, GLK_EXTENT_FREE);
	glk_tree_insert(map, &map->common, extent);
	*ret_extent = extent;
	return 0;
}

void glk_extent_drop(struct glk_map *map, uint32_t extent)
{
	glk_tree_remove(map, &map->common, extent);
	unlink_extent(map, extent);
}
