/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Extents partition a span from its base to its high-water mark without gaps: each knows its
 * neighbours, no two free ones touch, and each free one is in the tree. Cutting and merging
 * are constant save for the tree. Nothing here touches slots or pages.
 */
#include "map/map.h"

#include "base/error.h"

#include <errno.h>
#include <inttypes.h>

/* Puts a new extent after `prev` in the row; 0: it is the only one. */
static void link_after(struct glk_span *span, uint32_t prev, uint32_t extent)
{
	struct glk_extent *e = glk_extent_at(span->map, extent);

	glk_store_relaxed(&e->prev, prev);
	glk_store_relaxed(&e->next, 0);
	if (prev) {
		glk_store_relaxed(&e->next,
			glk_load_relaxed(&glk_extent_at(span->map, prev)->next));
		glk_store_relaxed(&glk_extent_at(span->map, prev)->next, extent);
	}
	if (glk_load_relaxed(&e->next))
		glk_store_relaxed(
			&glk_extent_at(span->map, glk_load_relaxed(&e->next))->prev,
			extent);
	else
		span->last = extent;
}

static void link_before(struct glk_span *span, uint32_t next, uint32_t extent)
{
	struct glk_extent *e = glk_extent_at(span->map, extent);
	struct glk_extent *n = glk_extent_at(span->map, next);

	glk_store_relaxed(&e->prev, glk_load_relaxed(&n->prev));
	glk_store_relaxed(&e->next, next);
	if (glk_load_relaxed(&e->prev))
		glk_extent_at(span->map, glk_load_relaxed(&e->prev))->next = extent;
	glk_store_relaxed(&n->prev, extent);
}

static void unlink_extent(struct glk_span *span, uint32_t extent)
{
	struct glk_extent *e = glk_extent_at(span->map, extent);

	if (glk_load_relaxed(&e->prev))
		glk_extent_at(span->map, glk_load_relaxed(&e->prev))->next =
			glk_load_relaxed(&e->next);
	if (glk_load_relaxed(&e->next))
		glk_store_relaxed(
			&glk_extent_at(span->map, glk_load_relaxed(&e->next))->prev,
			glk_load_relaxed(&e->prev));
	else
		span->last = glk_load_relaxed(&e->prev);
	glk_extent_set(e, GLK_EXTENT_NONE);
	glk_slab_put(&span->map->extents, extent);
}

static void fill(struct glk_span *span, uint32_t id, uint64_t offset, uint64_t size,
	enum glk_extent_state state)
{
	struct glk_extent *e = glk_extent_at(span->map, id);

	e->offset = offset;
	e->size = size;
	glk_store_relaxed(&e->addr, span->base + offset);
	e->kind = (uint8_t)span->kind;
	glk_extent_set(e, state);
}

/* Gets up to two descriptors, all or none. */
static int get_two(
	struct glk_span *span, bool first, bool second, uint32_t *a, uint32_t *b)
{
	*a = first ? glk_slab_get(&span->map->extents) : 0;
	*b = second && (*a || !first) ? glk_slab_get(&span->map->extents) : 0;
	if ((*a || !first) && (*b || !second))
		return 0;
	if (*a)
		glk_slab_put(&span->map->extents, *a);
	return glk_error(-ENOMEM, GLAKE_ERROR_LIMIT,
		"all %" PRIu32
		" extents are in use: map.extents is the most there may be",
		span->map->extents.max);
}

static int carve_inside(
	struct glk_span *span, uint32_t from, uint64_t offset, uint64_t size)
{
	struct glk_extent *e = glk_extent_at(span->map, from);
	uint64_t head = offset - e->offset;
	uint64_t tail = e->offset + e->size - offset - size;
	uint32_t low, high;
	int err;

	err = get_two(span, head, tail, &low, &high);
	if (err)
		return err;
	glk_tree_remove(span, from);
	if (head) {
		fill(span, low, e->offset, head, GLK_EXTENT_FREE);
		link_before(span, from, low);
		glk_tree_insert(span, low);
	}
	if (tail) {
		fill(span, high, offset + size, tail, GLK_EXTENT_FREE);
		link_after(span, from, high);
		glk_tree_insert(span, high);
	}
	fill(span, from, offset, size, GLK_EXTENT_LIVE);
	return 0;
}

/* Makes the addresses from the high-water mark up to `offset` free: those of `gap`, a new
 * descriptor, or with 0 of the free extent that ends at the mark. */
static void raise_high(struct glk_span *span, uint32_t gap, uint64_t offset)
{
	if (gap) {
		link_after(span, span->last, gap);
		fill(span, gap, span->high, 0, GLK_EXTENT_FREE);
	} else {
		glk_tree_remove(span, span->last);
	}
	glk_extent_at(span->map, span->last)->size += offset - span->high;
	glk_tree_insert(span, span->last);
	span->high = offset;
}

static int carve_new(struct glk_span *span, uint64_t offset, uint64_t size, uint32_t *ret)
{
	struct glk_extent *last =
		span->last ? glk_extent_at(span->map, span->last) : NULL;
	bool tail = last && glk_extent_state(last) == GLK_EXTENT_FREE,
	     above = offset > span->high;
	uint32_t gap, extent = span->last;
	int err;

	if (size > span->size || offset > span->size - size)
		return glk_error(-ENOMEM, GLAKE_ERROR_ADDRESS,
			"a block of %" PRIu64 " bytes does not fit the %" PRIu64
			" bytes of addresses left",
			size, span->size - span->high);
	if (tail && last->offset == offset) {
		glk_tree_remove(span, extent);
	} else {
		err = get_two(span, above && !tail, true, &gap, &extent);
		if (err)
			return err;
		if (above)
			raise_high(span, gap, offset);
		link_after(span, span->last, extent);
	}
	fill(span, extent, offset, size, GLK_EXTENT_LIVE);
	span->high = offset + size;
	*ret = extent;
	return 0;
}

int glk_extent_carve(struct glk_span *span, uint32_t from, uint64_t offset, uint64_t size,
	uint32_t *ret_extent)
{
	uint32_t extent = from;
	int err;

	err = from ? carve_inside(span, from, offset, size)
		   : carve_new(span, offset, size, &extent);
	if (err)
		return err;
	span->live_count++;
	span->taken += size;
	*ret_extent = extent;
	return 0;
}

static bool mixes_with(const struct glk_extent *e, const struct glk_extent *neighbour)
{
	return glk_extent_state(neighbour) == GLK_EXTENT_FREE ||
		neighbour->stream == e->stream;
}

static void look_around(struct glk_span *span, uint32_t extent)
{
	struct glk_extent *e = glk_extent_at(span->map, extent);
	uint32_t prev = glk_load_relaxed(&e->prev), next = glk_load_relaxed(&e->next);
	unsigned mixes = 0;

	if (prev && mixes_with(e, glk_extent_at(span->map, prev)))
		mixes |= GLK_MIXES_PREV;
	if (next && mixes_with(e, glk_extent_at(span->map, next)))
		mixes |= GLK_MIXES_NEXT;
	glk_store_relaxed(&e->mixes, (uint8_t)mixes);
}

static void look_beside(struct glk_span *span, uint32_t extent)
{
	struct glk_extent *e = glk_extent_at(span->map, extent);
	uint32_t prev = glk_load_relaxed(&e->prev), next = glk_load_relaxed(&e->next);

	if (prev)
		look_around(span, prev);
	if (next)
		look_around(span, next);
}

void glk_extent_settle(struct glk_span *span, uint32_t extent)
{
	look_around(span, extent);
	look_beside(span, extent);
}

void glk_extent_give_back(struct glk_span *span, uint32_t extent)
{
	struct glk_extent *e = glk_extent_at(span->map, extent), *n;
	uint32_t next = glk_load_relaxed(&e->next), prev = glk_load_relaxed(&e->prev);

	span->taken -= e->size;
	if (next && glk_extent_state(glk_extent_at(span->map, next)) == GLK_EXTENT_FREE) {
		n = glk_extent_at(span->map, next);
		glk_tree_remove(span, next);
		e->size += n->size;
		unlink_extent(span, next);
	}
	if (prev && glk_extent_state(glk_extent_at(span->map, prev)) == GLK_EXTENT_FREE) {
		n = glk_extent_at(span->map, prev);
		glk_tree_remove(span, prev);
		e->offset = n->offset;
		glk_store_relaxed(&e->addr, span->base + n->offset);
		e->size += n->size;
		unlink_extent(span, prev);
	}
	glk_extent_set(e, GLK_EXTENT_FREE);
	glk_tree_insert(span, extent);
	look_beside(span, extent);
	span->live_count--;
}
