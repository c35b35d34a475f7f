/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_FETCH_H
#define GLK_CACHE_FETCH_H

/* The way back of what part.h tells of: under the lock, which is given up meanwhile, of a block that is claimed. */
#include "cache/cache.h"

/* What is gone of a block comes, or of portions of it of which none lies in another; of a contiguous one all: -EALREADY
 * with a record where nothing is. After an error some of it may be here. */
int glk_fetch(
	struct glk_arena *arena, struct glk_extent *e, const struct glk_part_way *way);
int glk_fetch_portions(struct glk_arena *arena, struct glk_extent *e,
	const struct glk_portion *portions, size_t count, const struct glk_part_way *way);
/* Of an elastic block: contents of a stretch that is gone, all of it, are forgotten, and it is bare. 0, or -ENOMEM
 * with nothing changed. */
int glk_fetch_nothing(
	struct glk_arena *arena, struct glk_extent *e, struct glk_stretch s);

#endif
