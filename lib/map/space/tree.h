/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MAP_TREE_H
#define GLK_MAP_TREE_H

/* Extents by size, then address; or by address alone. */
#include "map/space/extent.h"

/* The class of a size. Those of smaller sizes come before it, and extents up to eight grains have one
 * for each size. */
static inline uint32_t glk_tree_class(uint64_t size)
{
	uint64_t grains = size >> GLK_GRAIN_SHIFT;
	uint32_t shift;

	if (grains < 8)
		return (uint32_t)grains;
	shift = 60 - (uint32_t)__builtin_clzll(grains);
	return 8 * shift + (uint32_t)(grains >> shift);
}

/* tree.c: the same for a class, by its root, that has others; false: it is not there. */
void glk_tree_insert_among(struct glk_map *map, const struct glk_tree *tree,
	uint32_t *root, uint32_t extent);
bool glk_tree_remove_among(struct glk_map *map, const struct glk_tree *tree,
	uint32_t *root, uint32_t extent);

/* The same for any, among those of its class: 0 in a tree by address. Removed is what is there, or nothing. */
static inline void glk_tree_insert_in(
	struct glk_map *map, struct glk_tree *tree, uint32_t class, uint32_t extent)
{
	uint32_t *root = &tree->root[class];

	tree->count++;
	if (*root) {
		glk_tree_insert_among(map, tree, root, extent);
		return;
	}
	glk_extent_at(map, extent)->tree.left = glk_extent_at(map, extent)->tree.right =
		0;
	*root = extent;
	tree->some[class >> 6] |= UINT64_C(1) << (class & 63);
}

/* Whether one has its class for itself. */
static inline bool glk_tree_is_alone(const struct glk_map *map,
	const struct glk_tree *tree, uint32_t class, uint32_t extent)
{
	const struct glk_extent *e = glk_extent_at(map, extent);

	return tree->root[class] == extent && !e->tree.left && !e->tree.right;
}

static inline void glk_tree_remove_in(
	struct glk_map *map, struct glk_tree *tree, uint32_t class, uint32_t extent)
{
	uint32_t *root = &tree->root[class];

	if (!glk_tree_is_alone(map, tree, class, extent)) {
		tree->count -= glk_tree_remove_among(map, tree, root, extent);
		return;
	}
	tree->count--;
	*root = 0;
	tree->some[class >> 6] &= ~(UINT64_C(1) << (class & 63));
}

/* The same two for a tree by size. */
static inline void glk_tree_insert(
	struct glk_map *map, struct glk_tree *tree, uint32_t extent)
{
	glk_tree_insert_in(
		map, tree, glk_tree_class(glk_extent_at(map, extent)->size), extent);
}

static inline void glk_tree_remove(
	struct glk_map *map, struct glk_tree *tree, uint32_t extent)
{
	glk_tree_remove_in(
		map, tree, glk_tree_class(glk_extent_at(map, extent)->size), extent);
}

/* In a tree by size: one comes in place of another. */
static inline void glk_tree_replace(
	struct glk_map *map, struct glk_tree *tree, uint32_t old, uint32_t extent)
{
	uint32_t was = glk_tree_class(glk_extent_at(map, old)->size);
	struct glk_extent *e = glk_extent_at(map, extent);
	uint32_t is = glk_tree_class(e->size);

	if (was == is && glk_tree_is_alone(map, tree, is, old)) {
		tree->root[is] = extent;
		e->tree.left = e->tree.right = 0;
		return;
	}
	glk_tree_remove_in(map, tree, was, old);
	glk_tree_insert_in(map, tree, is, extent);
}

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

/* The root of the next class that has extents; 0: none has. */
static inline uint32_t glk_tree_next_class(struct glk_tree_walk *walk)
{
	uint32_t w = walk->class >> 6;
	uint64_t left = walk->tree->some[w] & ~UINT64_C(1) << (walk->class & 63);

	while (!left && ++w < GLK_TREE_CLASSES / 64)
		left = walk->tree->some[w];
	if (!left)
		return 0;
	walk->class = w << 6 | (uint32_t)__builtin_ctzll(left);
	return walk->tree->root[walk->class];
}

/* The next extent of at least `size` bytes; 0: there is none. */
static inline uint32_t glk_tree_next(
	const struct glk_map *map, struct glk_tree_walk *walk)
{
	uint32_t at = walk->at;

	do {
		while (at) {
			const struct glk_extent *e = glk_extent_at(map, at);

			if (e->size < walk->size) {
				at = e->tree.right;
				continue;
			}
			if (!e->tree.left) {
				walk->at = e->tree.right;
				return at;
			}
			if (walk->depth == GLK_TREE_DEPTH)
				return 0;
			walk->path[walk->depth++] = at;
			at = e->tree.left;
		}
	} while (!walk->depth && (at = glk_tree_next_class(walk)));
	if (!walk->depth)
		return 0;
	at = walk->path[--walk->depth];
	walk->at = glk_extent_at(map, at)->tree.right;
	return at;
}
/* The first `max` of them; their number. */
unsigned glk_tree_find(const struct glk_map *map, const struct glk_tree *tree,
	uint64_t size, uint32_t *ret_extents, unsigned max);
uint64_t glk_tree_largest(const struct glk_map *map, const struct glk_tree *tree);
/* The last extent that begins at or below an offset, of a tree by address; 0: none does. */
uint32_t glk_tree_floor(
	const struct glk_map *map, const struct glk_tree *tree, uint64_t offset);

#endif
