/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_UNIT_CACHE_WALK_H
#define GLK_UNIT_CACHE_WALK_H

/*
 * What the figures of a GPU tell, counted again from the extents, the slots, the pages, the bins and the hints
 * themselves. Nothing may be under way meanwhile. Where two do not agree, a note says which.
 */
#include "cache/arena/request.h"
#include "cache/block.h"
#include "cache/graph/graph.h"
#include "cache/managed/managed.h"
#include "cache/survey.h"
#include "cache/tag/tag.h"
#include "driver/driver.h"
#include "move/hint.h"
#include "move/part.h"
#include "move/seal.h"
#include "pool/pool.h"
#include "soft/soft.h"
#include "tap.h"
#include "tier/pack.h"
#include "unit/map/tables.h"

struct glake_stats walk_figures(struct glk_cache *cache);
struct glake_stats walk_sum(struct glk_cache *cache);
bool walk_verify(struct glk_cache *cache);
bool walk_tables_are_sound(struct glk_cache *cache);
bool walk_is_sound(struct glk_cache *cache);

bool books_tell(const char *what, uint64_t told, uint64_t seen);
bool books_hostpool(struct glk_hostpool *pool);
bool books_rest(struct glk_cache *cache);
uint32_t first_run_of(const struct glk_arena *arena, const struct glk_extent *e);

#endif
