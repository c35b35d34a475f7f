/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Extents, ordered by size and then by address, or by address alone. Sizes fall into classes, in
 * order, and a bitmap tells of the classes that have extents. Most of these have one or two: so an
 * insertion and a removal are a look at one root, as a rule, and that stands in tree.h.
 *
 * A class is a treap (Seidel and Aragon, "Randomized search trees", Algorithmica 16, 1996), since it
 * may have any number of extents: blocks of one size, freed with others between them. The priority of
 * an extent is a hash of its index, so the same requests make the same tree. The hash mixes all bits:
 * blocks given out in a row and freed in a pattern leave indices in a pattern, and multiplying alone
 * turns every 89th, or another Fibonacci number, into a chain. All walks are loops.
 *
 * Expected depth is 2 ln n: 28 for a million extents. GLK_TREE_DEPTH bounds a walk
 * along a class; a deeper one, which no input has been seen to make, only shortens the list
 * of candidates.
 */
#include "map/map.h"

/* Two rounds of multiply and shift (C. Wellons, hash-prospector, lowbias32), one to one. */
static uint32_t priority(uint32_t id)
{
	id = (id ^ id >> 16) * UINT32_C(0x7feb352d);
	id = (id ^ id >> 15) * UINT32_C(0x846ca68b);
	return id ^ id >> 16;
}

static bool before(const struct glk_tree *tree, const struct glk_extent *a, uint64_t size,
	uint64_t offset)
{
	if (!tree->by_address && a->size != size)
		return a->size < size;
	return a->offset < offset;
}

/* Splits the part of a tree at `root` into what comes before (size, offset) and the rest. */
static void split(struct glk_map *map, const struct glk_tree *tree, uint32_t root,
	uint64_t size, uint64_t offset, uint32_t *ret_low, uint32_t *ret_high)
{
	while (root) {
		struct glk_extent *e = glk_extent_at(map, root);

		if (before(tree, e, size, offset)) {
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
	uint32_t root = 0, *link = &root, of_low = priority(low),
		 of_high = priority(high);

	while (low && high) {
		if (of_low > of_high) {
			*link = low;
			link = &glk_extent_at(map, low)->tree.right;
			low = *link;
			of_low = priority(low);
		} else {
			*link = high;
			link = &glk_extent_at(map, high)->tree.left;
			high = *link;
			of_high = priority(high);
		}
	}
	*link = low ? low : high;
	return root;
}

/* The link that an extent of this place in the order hangs on, or would: that of its own number, or of
 * the first whose priority is lower. */
static inline uint32_t *link_of(struct glk_map *map, const struct glk_tree *tree,
	uint32_t *link, const struct glk_extent *e, uint32_t extent, bool there)
{
	uint32_t own = priority(extent);
	bool by_address = tree->by_address;

	while (*link && (there ? *link != extent : priority(*link) >= own)) {
		struct glk_extent *at = glk_extent_at(map, *link);
		bool is_before = !by_address && at->size != e->size
			? at->size < e->size
			: at->offset < e->offset;

		link = is_before ? &at->tree.right : &at->tree.left;
	}
	return link;
}

void glk_tree_insert_among(
	struct glk_map *map, const struct glk_tree *tree, uint32_t *root, uint32_t extent)
{
	struct glk_extent *e = glk_extent_at(map, extent);
	uint32_t *link = link_of(map, tree, root, e, extent, false);

	split(map, tree, *link, e->size, e->offset, &e->tree.left, &e->tree.right);
	*link = extent;
}

bool glk_tree_remove_among(
	struct glk_map *map, const struct glk_tree *tree, uint32_t *root, uint32_t extent)
{
	struct glk_extent *e = glk_extent_at(map, extent);
	uint32_t *link = root;

	if (*link != extent) {
		link = link_of(map, tree, root, e, extent, true);
		if (!*link)
			return false;
	}
	*link = e->tree.left && e->tree.right ? join(map, e->tree.left, e->tree.right)
					      : e->tree.left | e->tree.right;
	return true;
}

unsigned glk_tree_find(const struct glk_map *map, const struct glk_tree *tree,
	uint64_t size, uint32_t *ret_extents, unsigned max)
{
	struct glk_tree_walk walk GLK_UNFILLED;
	unsigned found = 0;

	glk_tree_begin(&walk, tree, size);
	while (found < max && (ret_extents[found] = glk_tree_next(map, &walk)))
		found++;
	return found;
}

uint64_t glk_tree_largest(const struct glk_map *map, const struct glk_tree *tree)
{
	uint32_t class = glk_bits_last(tree->some, 0, GLK_TREE_CLASSES - 1);
	uint32_t at = class == GLK_BITS_NONE ? 0 : tree->root[class];
	uint64_t size = 0;

	while (at) {
		size = glk_extent_at(map, at)->size;
		at = glk_extent_at(map, at)->tree.right;
	}
	return size;
}

uint32_t glk_tree_floor(
	const struct glk_map *map, const struct glk_tree *tree, uint64_t offset)
{
	uint32_t at = tree->root[0], found = 0;

	while (at) {
		const struct glk_extent *e = glk_extent_at(map, at);

		if (e->offset <= offset)
			found = at;
		at = e->offset <= offset ? e->tree.right : e->tree.left;
	}
	return found;
}
