/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MAP_MAPPING_PARTS_H
#define GLK_MAP_MAPPING_PARTS_H

/* What the tests of mappings begin with: pages of all measures, and a run of many kinds. */
#include "unit/map/serve.h"

static struct rig rig;
static const uint32_t sizes[] = {1, 4, 7, 64};

static inline void start(void)
{
	rig_init(&rig);
	rig_raise(&rig, 1024);
}

static inline struct glk_page *at(uint32_t page)
{
	return rig_page(&rig, page);
}

static inline int unmap(uint32_t slot)
{
	struct glk_mapping m = glk_mapping_at(&rig.map, slot);

	return glk_mapping_remove(&rig.map, m.first, m.last);
}

static inline bool bits(const uint64_t *map, uint32_t first, uint32_t slots, bool value)
{
	return glk_bits_count(map, first, first + slots - 1) == (value ? slots : 0);
}

/*
 * A run at once: 0 an idle page alone, 1 one of seven that has a mapping at 100 too, 8 and 12
 * one page of four, 16 one that is in use at 200.
 */
static inline uint32_t make_run(uint32_t *page)
{
	start();
	page[0] = rig_new(&rig, 0, 1);
	page[1] = rig_new(&rig, 1, 7);
	page[2] = rig_new(&rig, 8, 4);
	page[3] = rig_new(&rig, 16, 64);
	rig_again(&rig, 12, page[2]);
	rig_again(&rig, 100, page[1]);
	rig_again(&rig, 200, page[3]);
	return rig_enter(&rig, S(263), S(1));
}

#endif
