/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MAP_SLOT_H
#define GLK_MAP_SLOT_H

/*
 * What lives in slots. A slot is busy while a live extent touches it. Extents that begin or end
 * in a slot are counted there, since others may touch it too; inside an extent nobody else is.
 */
#include "map/table.h"

/* A live extent touches the slots of a run. Pages that are idle come into use; mappings whose
 * page is in use elsewhere, and slots without any, may be among them. */
void glk_slots_enter(struct glk_map *map, uint32_t first, uint32_t last);
/* It does so no longer; it was used by the streams of `use` until its tick. Pages that nobody is
 * left on become idle. */
void glk_slots_leave(
	struct glk_map *map, uint32_t first, uint32_t last, const struct glk_use *use);
/* Groups move in the order of those with idle pages as if what is alone on a run had left it and come back. */
void glk_slots_again(
	struct glk_map *map, uint32_t first, uint32_t last, const struct glk_use *use);

#endif
