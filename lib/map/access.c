/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Who may read and write what is mapped: the GPU itself, and the peers that its node names.
 * New mappings are given to all of them in one call; when the peers change, everything that is
 * mapped is gone through. Nobody else may change the map meanwhile, or map ahead of it.
 */
#include "map/map.h"

int glk_map_allow(const struct glk_map *map, uint64_t addr, size_t size)
{
	struct glk_grant grants[GLK_GRANTS_MAX];
	struct glk_drv *drv = map->pool->drv;
	size_t count = glk_node_grants(map->node, grants);

	return drv->ops->set_access(drv, addr, size, grants, count);
}

/* The bytes of a run of mapped slots from one on, and the slot behind it. Slots that the driver
 * did not give back have no page. A contiguous block is a run of its own. */
static uint64_t run_from(
	const struct glk_span *span, uint32_t slot, uint32_t end, uint32_t *ret_behind)
{
	uint32_t behind = slot + 1;

	*ret_behind = behind;
	if (span->kind == GLK_KIND_SINGLE)
		return glk_map_page(span->map, span->slot[slot].page)->size;
	while (behind < end && span->slot[behind].page)
		behind++;
	*ret_behind = behind;
	return (uint64_t)(behind - slot) << span->shift;
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

static int span_access(struct glk_span *span, struct glk_sweep *sweep)
{
	uint32_t end = glk_span_end(span), slot = 0;
	int err = 0, failed;

	while (slot < end && (!err || sweep->anyway)) {
		uint64_t addr = span->base + ((uint64_t)slot << span->shift);

		if (!span->slot[slot].page) {
			slot++;
			continue;
		}
		failed = glk_sweep_range(sweep, span->map->pool->drv, addr,
			run_from(span, slot, end, &slot));
		err = failed ? failed : err;
	}
	return err;
}

int glk_map_access(struct glk_map *map, struct glk_sweep *sweep)
{
	int err = 0, failed;

	for (int kind = 0; kind < GLK_KIND_COUNT && (!err || sweep->anyway); kind++) {
		failed = span_access(&map->span[kind], sweep);
		err = failed ? failed : err;
	}
	return err;
}
