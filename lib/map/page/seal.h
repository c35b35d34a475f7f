/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MAP_SEAL_H
#define GLK_MAP_SEAL_H

/*
 * Sealed pages, whose contents do not change any more: the exception to the rule of slot.c. Such a page is in use
 * through as many of its mappings as blocks stand on, and each block stands on whole mappings of it. The mapping that
 * was there when it was sealed may still be written by rights, and is not by promise, since the rights of a mapping
 * must not change while kernels use it; all later ones can only be read.
 *
 *	OWNED, in use -- begin --> sealed, `sealers` blocks on it -- the last leaves --> waits in the space
 *	                             ^  enter        leave  |
 *	                             +----------------------+
 *	sealed, one block on it, no other mapping -- end --> OWNED, in use
 *
 * A page that waits is idle for nobody, since what is left of its mappings could only be read: all of them go once
 * the work that used them has finished (glk_limbo_reap() in stream/limbo.c), and it is free as others are.
 *
 *	sealed	a bit a slot: a block stands there on a page that is sealed
 *
 * All under the lock of the GPU.
 */
#include "map/page/mapping.h"

/* Mappings of a sealed page. What looks one up among them takes a step for each. */
#define GLK_SEALERS_MAX 1024

/* The page of a mapping, on all slots of which a block stands, is sealed from now on. */
void glk_seal_begin(struct glk_map *map, struct glk_mapping m);
/* A block stands on a run of mappings that were made by glk_mapping_make_sealed(), or does no longer, after a use. */
void glk_seal_enter(struct glk_map *map, uint32_t first, uint32_t last);
void glk_seal_leave(
	struct glk_map *map, uint32_t first, uint32_t last, const struct glk_use *use);
/* A block that is the only one on a run of pages, each with no other mapping, may write them from now on. */
void glk_seal_end(struct glk_map *map, uint32_t first, uint32_t last);
/* The next page that waits, which is the caller's; 0: none does. And it waits again, as the last. */
uint32_t glk_seal_pop(struct glk_map *map);
void glk_seal_push(struct glk_map *map, uint32_t page);

static inline bool glk_is_sealed(const struct glk_map *map, uint32_t slot)
{
	return glk_bit_get(map->sealed, slot);
}

#endif
