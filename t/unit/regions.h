/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_UNIT_REGIONS_H
#define GLK_UNIT_REGIONS_H

/*
 * Whether the library gives back all regions for its own tables, which no sanitizer sees: they are
 * mapped. Asked when the last thing that a test had open is closed.
 */
#include "base/slab.h"
#include "base/thread.h"
#include "map/space/index.h"
#include "tap.h"

static struct {
	uint64_t bytes;
	int open;
} regions;

static inline void regions_open(void)
{
	struct glk_range range = {.base = UINT64_C(1) << GLK_INDEX_SHIFT, .size = 1};

	if (regions.open++)
		return;
	/* what is made once and stays */
	glk_thread_self();
	if (!glk_index_add(&range))
		glk_index_remove(&range);
	regions.bytes = glk_region_bytes();
}

static inline void regions_close(void)
{
	if (!--regions.open)
		is_int((int64_t)glk_region_bytes(), (int64_t)regions.bytes,
			"no table of the library is left");
}

#endif
