/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MAP_SWAP_H
#define GLK_MAP_SWAP_H

/*
 * Other pages behind live extents, at the same addresses, of the GPU or of the host.
 *
 * Nobody else has a place in the slots of a run meanwhile, and none of the extents there comes or
 * goes: all of that is the caller's to see to.
 */
#include "map/page/mapping.h"

/* Takes pages that are in use out of it: they are in the hands of the caller, linked in the order of
 * addresses, the first of them is returned. Their mappings stay, and are used by nobody. */
uint32_t glk_swap_take(struct glk_map *map, uint32_t first, uint32_t last);
/* The pages mapped in a run are in use there from now on, and idle where no extent touches them. */
void glk_swap_settle(struct glk_map *map, uint32_t first, uint32_t last);
/* Maps a list of pages, one behind the other from a slot on, and settles them. Gives the lock up. 0, or
 * the driver's error with none mapped, and the list as it was but for pages that are lost. */
int glk_swap_map(struct glk_map *map, uint32_t slot, uint32_t *pages);
/* The mappings of a run that were taken go, in one call of the driver. 0, or its error with nothing
 * changed. */
int glk_swap_unmap(struct glk_map *map, uint32_t first, uint32_t last);
/* Slots of a run where pages were taken and the driver maps none any more: the extents there have no
 * contents until something else is mapped. */
void glk_swap_lose(struct glk_map *map, uint32_t first, uint32_t last);
/* Pages of a list that are in the hands of the caller go to where others find them. */
void glk_swap_put_back(struct glk_map *map, uint32_t pages);

#endif
