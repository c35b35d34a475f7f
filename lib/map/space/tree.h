/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MAP_TREE_H
#define GLK_MAP_TREE_H

/* Free extents by size, then address. */
#include "map/table.h"

void glk_tree_insert(struct glk_map *map, struct glk_tree *tree, uint32_t extent);
void glk_tree_remove(struct glk_map *map, struct glk_tree *tree, uint32_t extent);
/* The first `max` extents of at least `size` bytes in that order; their number. */
unsigned glk_tree_find(const struct glk_map *map, const struct glk_tree *tree,
	uint64_t size, uint32_t *ret_extents, unsigned max);
uint64_t glk_tree_largest(const struct glk_map *map, const struct glk_tree *tree);

#endif
