/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Who may read and write what is mapped: the GPU itself, and the peers that its node names.
 * New mappings are given to all of them in one call; when the peers change, everything that is
 * mapped is gone through. Nobody else may change the map meanwhile, or map ahead of it.
 */
#include "map/map.h"

struct glk_grants glk_map_grants(const struct glk_map *map, enum glk_access access)
{
	struct glk_grants grants;

	grants.count = glk_node_grants(map->node, grants.of);
	for (size_t i = 0; i < grants.count; i++)
		grants.of[i].access = access;
	return grants;
}

int glk_sweep_range(
	struct glk_sweep *sweep, struct glk_drv *drv, uint64_t addr, uint64_t size)
{
	int err;

	if (sweep->done == sweep->most)
		return 0;
	err = drv->ops->set_access(drv, addr, size, &sweep->grant, 1);
	if (!err || sweep->anyway)
		sweep->done++;
	return err;
}

/* Slots that the driver did not give back have no page. A run ends with its range. */
static int range_access(
	struct glk_map *map, const struct glk_range *range, struct glk_sweep *sweep)
{
	uint32_t slot = glk_slot_of(map, range->offset), behind;
	uint32_t end = slot + (uint32_t)(range->size >> map->shift);
	int err = 0, failed;

	if (range == &map->range[map->ranges - 1])
		end = glk_map_end(map);
	for (; slot < end && (!err || sweep->anyway); slot = behind) {
		behind = slot + 1;
		if (!map->page[slot])
			continue;
		while (behind < end && map->page[behind])
			behind++;
		failed = glk_sweep_range(sweep, map->pool->drv, glk_slot_addr(map, slot),
			(uint64_t)(behind - slot) << map->shift);
		err = failed ? failed : err;
	}
	return err;
}

int glk_map_access(struct glk_map *map, struct glk_sweep *sweep)
{
	int err = 0, failed;

	for (unsigned i = 0; i < map->ranges && (!err || sweep->anyway); i++) {
		failed = range_access(map, &map->range[i], sweep);
		err = failed ? failed : err;
	}
	return err;
}
