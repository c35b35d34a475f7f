/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Free extents, ordered by size and then by address, as a treap (Seidel and
 * Aragon, "Randomized search trees", Algorithmica 16, 1996). The priority of an extent is a
 * hash of its index, so the same requests make the same tree. The hash mixes all bits: blocks
 * given out in a row and freed in a pattern leave indices in a pattern, and multiplying alone
 * turns every 89th, or another Fibonacci number, into a chain. All walks are loops.
 *
 * Expected depth is 2 ln n: 28 for a million extents. GLK_TREE_DEPTH bounds the walk of
 * glk_tree_find; a deeper tree, which no input has been seen to make, only shortens the list
 * of candidates.
 */
#include "map/map.h"

#define GLK_TREE_DEPTH 128

/* Two rounds of multiply and shift (C. Wellons, hash-prospector, lowbias32), one to one. */
static uint32_t priority(uint32_t id)
{
	id = (id ^ id >> 16) * UINT32_C(0x7feb352d);
	id = (id ^ id >> 15) * UINT32_C(0x846ca68b);
	return id ^ id >> 16;
}

static bool before(const struct glk_extent *a, uint64_t size, uint64_t offset)
{
	return a->size < size || (a->size == size && a->offset < offset);
}

/* Splits the tree at `root` into what comes before (size, offset) and the rest. */
static void split(struct glk_map *map, uint32_t root, uint64_t size, uint64_t offset,
	uint32_t *ret_low, uint32_t *ret_high)
{
	while (root) {
		struct glk_extent *e = glk_extent_at(map, root);

		if (before(e, size, offset)) {
			*ret_low = root;
			ret_low = &e->tree.right;
			root = e->tree.right;
		} else {
			*ret_high = root;
			ret_high = &e->tree.left;
			root = e->tree.left;
		}
	}
	*ret_low = 0;
	*ret_high = 0;
}

/* Joins two trees, all of `low` before all of `high`. */
static uint32_t join(struct glk_map *map, uint32_t low, uint32_t high)
{
	uint32_t root = 0, *link = &root;

	while (low && high) {
		if (priority(low) > priority(high)) {
			*link = low;
			link = &glk_extent_at(map, low)->tree.right;
			low = *link;
		} else {
			*link = high;
			link = &glk_extent_at(map, high)->tree.left;
			high = *link;
		}
	}
	*link = low ? low : high;
	return root;
}

void glk_tree_insert(struct glk_map *map, struct glk_tree *tree, uint32_t extent)
{
	struct glk_extent *e = glk_extent_at(map, extent);
	uint32_t *link = &tree->root;

	while (*link && priority(*link) >= priority(extent)) {
		struct glk_extent *at = glk_extent_at(map, *link);

		link = before(at, e->size, e->offset) ? &at->tree.right : &at->tree.left;
	}
	split(map, *link, e->size, e->offset, &e->tree.left, &e->tree.right);
	*link = extent;
	tree->count++;
}

void glk_tree_remove(struct glk_map *map, struct glk_tree *tree, uint32_t extent)
{
	struct glk_extent *e = glk_extent_at(map, extent);
	uint32_t *link = &tree->root;

	while (*link && *link != extent) {
		struct glk_extent *at = glk_extent_at(map, *link);

		link = before(at, e->size, e->offset) ? &at->tree.right : &at->tree.left;
	}
	if (!*link)
		return;
	*link = join(map, e->tree.left, e->tree.right);
	tree->count--;
}

unsigned glk_tree_find(const struct glk_map *map, const struct glk_tree *tree,
	uint64_t size, uint32_t *ret_extents, unsigned max)
{
	uint32_t path[GLK_TREE_DEPTH], at = tree->root;
	unsigned depth = 0, found = 0;

	/* the path holds the ancestors that come after the position, nearest last */
	while (at || depth) {
		while (at) {
			struct glk_extent *e = glk_extent_at(map, at);

			if (e->size < size) {
				at = e->tree.right;
				continue;
			}
			if (depth == GLK_TREE_DEPTH)
				return found;
			path[depth++] = at;
			at = e->tree.left;
		}
		if (!depth || found == max)
			break;
		at = path[--depth];
		ret_extents[found++] = at;
		at = glk_extent_at(map, at)->tree.right;
	}
	return found;
}

uint64_t glk_tree_largest(const struct glk_map *map, const struct glk_tree *tree)
{
	uint32_t at = tree->root;
	uint64_t size = 0;

	while (at) {
		size = glk_extent_at(map, at)->size;
		at = glk_extent_at(map, at)->tree.right;
	}
	return size;
}
