/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MAP_MAP_H
#define GLK_MAP_MAP_H

/*
 * The face of this folder: the addresses of an arena, and the pages behind them. Blocks of all
 * sizes share one row of slots of 2 MiB. Across the slots lie the extents, given and free, at a
 * grain of 512 B, neighbours linked, free neighbours merged (space/). Behind the slots lie pages
 * of one slot or of several, each mapped whole (page/).
 *
 *	slot	|  0  |  1  |  2  |  3  |  4  |  5  |  6  |  7  |
 *	page	| p7  |        p2       | p3  |  -  | p9  | p3  |
 *	extents	|--A--|....free....|------B------|.....free.....|
 *
 * A page may be mapped at several places. It is in use through at most one of these mappings,
 * the one that live extents touch; the others are idle aliases: when a later request falls on
 * one whose page is idle, no driver call is needed. A mapping is *usable* when its page is in
 * use right there or idle, *stale* when its page is in use elsewhere. Pages whose contents do not change
 * any more may be sealed, and are in use through many mappings at once: page/seal.h.
 *
 * Addresses are reserved in steps, so an arena may have several ranges: its map. The maps of a GPU share
 * one space, the tables of all slots, pages, mappings and idle pages. Offsets and slots count through all
 * ranges of the space, with a gap of a GiB between two, so that nothing merges across; a page may be
 * mapped in several maps, and what is idle serves all of them. Any map of a space leads to all its slots.
 *
 * This folder keeps the tables and makes the map calls. It does not know streams: whether a
 * mapping may go now is decided above, in stream/limbo.c, the only caller of
 * glk_mapping_remove() while a GPU may still be at work.
 *
 * Threads	all functions: under the lock of the GPU, save those that say otherwise
 * Cost		lookup: constant. Search: logarithmic, at most GLK_FIT_CANDIDATES extents.
 *		Giving and taking back: a step for 64 slots
 */
#include "map/table.h"

#include "map/page/claim.h"
#include "map/page/idle.h"
#include "map/page/mapping.h"
#include "map/page/seal.h"
#include "map/page/slot.h"
#include "map/page/swap.h"
#include "map/page/use.h"
#include "map/space/extent.h"
#include "map/space/fit.h"
#include "map/space/index.h"
#include "map/space/lookup.h"
#include "map/space/nest.h"
#include "map/space/part.h"
#include "map/space/range.h"
#include "map/space/tree.h"

#endif
