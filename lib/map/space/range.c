/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The ranges of a map and its tables. A range begins and ends at a multiple of a GiB, which is
 * what the index of the process counts in; where the driver does not keep to that alignment, a
 * GiB more is reserved and its ends stay unused.
 */
#include "map/map.h"

#include "base/conf.h"
#include "base/error.h"
#include "base/rcu.h"

#include <errno.h>
#include <string.h>

#define GIB (UINT64_C(1) << GLK_INDEX_SHIFT)

/* Slots that small blocks may have for themselves, as a part of all. */
#define NESTS_PART 4
#define NESTS_MOST UINT32_C(65536)

static uint64_t up(uint64_t bytes)
{
	return (bytes + GIB - 1) & ~(GIB - 1);
}

static size_t bitmap_bytes(uint64_t bits)
{
	return (size_t)((bits + 63) / 64 * 8);
}

struct table {
	void **at;
	size_t bytes;
};

#define TABLES 20

/* All tables by slot. */
static void list_tables(struct glk_map *map, struct table tables[TABLES])
{
	size_t slots = map->capacity, groups = (slots >> GLK_GROUP_SHIFT) + 2;
	size_t eighths = slots << GLK_EIGHTH_SHIFT;
	const struct table all[TABLES] = {
		{(void **)&map->start, eighths * sizeof(*map->start)},
		{(void **)&map->begins, bitmap_bytes(eighths)},
		{(void **)&map->cover, groups * sizeof(*map->cover)},
		{(void **)&map->page, slots * sizeof(*map->page)},
		{(void **)&map->count, slots * sizeof(*map->count)},
		{(void **)&map->alias, slots * sizeof(*map->alias)},
		{(void **)&map->use, slots * sizeof(*map->use)},
		{(void **)&map->edge, bitmap_bytes(slots)},
		{(void **)&map->mapped, bitmap_bytes(slots)},
		{(void **)&map->usable, bitmap_bytes(slots)},
		{(void **)&map->shared, bitmap_bytes(slots)},
		{(void **)&map->busy, bitmap_bytes(slots)},
		{(void **)&map->claimed, bitmap_bytes(slots)},
		{(void **)&map->lost, bitmap_bytes(slots)},
		{(void **)&map->head, bitmap_bytes(slots)},
		{(void **)&map->wide, bitmap_bytes(slots)},
		{(void **)&map->gone, bitmap_bytes(slots)},
		{(void **)&map->begun, bitmap_bytes(slots)},
		{(void **)&map->piece, slots * sizeof(*map->piece)},
		{(void **)&map->idle, groups * sizeof(*map->idle)},
	};

	memcpy(tables, all, sizeof(all));
}

static void free_tables(struct glk_map *map)
{
	struct table tables[TABLES];

	list_tables(map, tables);
	for (int i = 0; i < TABLES; i++) {
		glk_region_free(*tables[i].at, tables[i].bytes);
		*tables[i].at = NULL;
	}
}

static int make_tables(struct glk_map *map)
{
	struct table tables[TABLES];

	list_tables(map, tables);
	for (int i = 0; i < TABLES; i++) {
		*tables[i].at = glk_region_new(tables[i].bytes);
		if (!*tables[i].at) {
			free_tables(map);
			return -ENOMEM;
		}
	}
	return 0;
}

/* The addresses of a range, as many as asked for: 0 or the driver's error. */
static int reserve(struct glk_map *map, uint64_t size, struct glk_range *range)
{
	struct glk_drv *drv = map->pool->drv;
	uint64_t base;
	int err;

	err = drv->ops->reserve(drv, size, GIB, &base);
	range->reserved = base;
	range->reserved_size = size;
	if (!err && base & (GIB - 1)) {
		drv->ops->unreserve(drv, base, size);
		err = drv->ops->reserve(drv, size + GIB, GIB, &base);
		range->reserved = base;
		range->reserved_size = size + GIB;
	}
	if (err)
		return err;
	range->base = up(base);
	range->size = size;
	return 0;
}

/* Halves what it asks for until the system grants it. */
static int reserve_some(
	struct glk_map *map, uint64_t size, uint64_t least, struct glk_range *range)
{
	int err;

	do {
		err = reserve(map, size, range);
		if (!err || size == least)
			return err;
		size = up(size / 2) > least ? up(size / 2) : least;
	} while (err == -ENOMEM);
	return err;
}

/* What is left of the range before is free, for smaller blocks. */
static void leave_behind(struct glk_map *map)
{
	if (map->ranges && map->high < map->end)
		glk_extent_raise(map, map->end);
	map->last = 0;
	map->ahead = 0;
}

int glk_map_extend(struct glk_map *map, uint64_t size)
{
	struct glk_drv *drv = map->pool->drv;
	uint64_t least = up(size), left = map->most - map->size;
	struct glk_range *range, found = {.map = map};
	int err;

	if (map->ranges == GLK_RANGES_MAX || size > map->most || least > left)
		return -ENOMEM;
	if (map->step < left)
		left = map->step > least ? map->step : least;
	glk_map_pause(map);
	err = reserve_some(map, left, least, &found);
	glk_map_resume(map);
	if (err)
		return err;
	/* others may have had the last that there may be */
	if (map->ranges == GLK_RANGES_MAX || found.size > map->most - map->size) {
		drv->ops->unreserve(drv, found.reserved, found.reserved_size);
		return -ENOMEM;
	}
	range = &map->range[map->ranges];
	/* a slot between two ranges belongs to none */
	found.offset = map->ranges ? map->end + glk_slot_bytes(map) : 0;
	found.start = map->start + (found.offset >> map->eighth);
	*range = found;
	err = glk_index_add(range);
	if (err) {
		drv->ops->unreserve(drv, range->reserved, range->reserved_size);
		return err;
	}
	leave_behind(map);
	map->ranges++;
	map->size += range->size;
	glk_poke_relaxed(&map->high, range->offset);
	map->end = range->offset + range->size;
	return 0;
}

/* All but which map its ranges are of: a lookup that began before they were removed may still ask
 * whose they are. */
static void clear(struct glk_map *map)
{
	struct glk_map empty = {0};

	for (unsigned i = 0; i < GLK_RANGES_MAX; i++)
		empty.range[i].map = map->range[i].map;
	*map = empty;
}

int glk_map_init(struct glk_map *map, struct glk_pool *pool, struct glk_node *node,
	const struct glk_conf *conf, struct glk_map_size size)
{
	uint32_t nests;
	int err;

	clear(map);
	map->pool = pool;
	map->node = node;
	map->ends = conf->policy_ends;
	map->shift = (unsigned)__builtin_ctzll(node->page_size[GLK_CLASS_SMALL]);
	map->eighth = map->shift - GLK_EIGHTH_SHIFT;
	map->grains = (1u << (map->shift - GLK_GRAIN_SHIFT)) - 1;
	map->large = (uint32_t)(node->page_size[GLK_CLASS_LARGE] >> map->shift);
	map->most = up(size.most);
	map->step = up(size.step) < map->most ? up(size.step) : map->most;
	map->capacity = (uint32_t)(map->most >> map->shift) + GLK_RANGES_MAX;
	nests = map->capacity / NESTS_PART;
	err = glk_slab_init(
		&map->extents, sizeof(struct glk_extent), (uint32_t)conf->map_extents);
	if (err)
		goto none;
	err = glk_slab_init(
		&map->nests, glk_nest_size(map), nests < NESTS_MOST ? nests : NESTS_MOST);
	if (err)
		goto extents;
	err = make_tables(map);
	if (err)
		goto nests;
	glk_extent_set(glk_extent_at(map, 0), GLK_EXTENT_LIVE);
	err = glk_map_extend(map, glk_slot_bytes(map));
	if (err)
		goto tables;
	return 0;
tables:
	free_tables(map);
nests:
	glk_slab_fini(&map->nests);
extents:
	glk_slab_fini(&map->extents);
none:
	map->pool = NULL;
	return err;
}

void glk_map_limit(struct glk_map *map, uint64_t bytes)
{
	if (bytes < map->range[0].size)
		map->end = map->range[0].offset + bytes;
}

void glk_map_fini(struct glk_map *map)
{
	struct glk_drv *drv;

	if (!map->pool)
		return;
	drv = map->pool->drv;
	for (unsigned i = 0; i < map->ranges; i++)
		glk_index_remove(&map->range[i]);
	/* from here on nobody finds it, and who has found it reads it without the lock */
	glk_map_pause(map);
	if (map->lock)
		glk_rcu_wait();
	while (map->ranges) {
		struct glk_range *range = &map->range[--map->ranges];

		drv->ops->unreserve(drv, range->reserved, range->reserved_size);
	}
	free_tables(map);
	glk_slab_fini(&map->nests);
	glk_slab_fini(&map->extents);
	glk_map_resume(map);
	map->pool = NULL;
}

uint64_t glk_map_bytes(const struct glk_map *map)
{
	uint64_t slot = sizeof(*map->page) + sizeof(*map->count) + sizeof(*map->alias) +
		sizeof(*map->use) + (sizeof(*map->start) << GLK_EIGHTH_SHIFT);

	/* the bitmaps are eight bits a slot, and one an eighth of it; what is kept of blocks that are
	 * away in part is not there before there are such */
	return glk_slab_bytes(&map->extents) + glk_slab_bytes(&map->nests) +
		glk_map_end(map) * slot + glk_map_end(map) * 2;
}
