/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MAP_TREE_H
#define GLK_MAP_TREE_H

/* Extents by size, then address; or by address alone. */
#include "map/table.h"

/* The class of a size. Those of smaller sizes come before it, and extents up to eight grains have one
 * for each size. */
static inline uint32_t glk_tree_class(uint64_t size)
{
	uint64_t grains = size >> GLK_GRAIN_SHIFT;
	uint32_t shift, class;

	if (grains < 8)
		return (uint32_t)grains;
	shift = 60 - (uint32_t)__builtin_clzll(grains);
	class = 8 * shift + (uint32_t)(grains >> shift);
	return class < GLK_TREE_CLASSES ? class : GLK_TREE_CLASSES - 1;
}

void glk_tree_insert(struct glk_map *map, struct glk_tree *tree, uint32_t extent);
void glk_tree_remove(struct glk_map *map, struct glk_tree *tree, uint32_t extent);
/* Deeper than the tree of any class that has been seen: see tree.c. */
#define GLK_TREE_DEPTH 128

/* A walk along that order. The tree stays as it is meanwhile. */
struct glk_tree_walk {
	uint32_t path[GLK_TREE_DEPTH]; /* ancestors that come later, nearest last */
	unsigned depth;
	uint32_t at; /* what is left of the class below them */
	uint32_t class;
	const struct glk_tree *tree;
	uint64_t size;
};

static inline void glk_tree_begin(
	struct glk_tree_walk *walk, const struct glk_tree *tree, uint64_t size)
{
	walk->depth = 0;
	walk->tree = tree;
	walk->class = glk_tree_class(size);
	walk->at = tree->root[walk->class];
	walk->size = size;
}

/* The next extent of at least `size` bytes; 0: there is none. */
uint32_t glk_tree_next(const struct glk_map *map, struct glk_tree_walk *walk);
/* The first `max` of them; their number. */
unsigned glk_tree_find(const struct glk_map *map, const struct glk_tree *tree,
	uint64_t size, uint32_t *ret_extents, unsigned max);
uint64_t glk_tree_largest(const struct glk_map *map, const struct glk_tree *tree);
/* The last extent that begins at or below an offset, of a tree by address; 0: none does. */
uint32_t glk_tree_floor(
	const struct glk_map *map, const struct glk_tree *tree, uint64_t offset);

#endif
