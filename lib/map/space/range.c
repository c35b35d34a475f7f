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

#define GIB (UINT64_C(1) << GLK_RANGE_SHIFT)
_Static_assert(
	GLK_RANGE_SHIFT == GLK_INDEX_SHIFT, "an entry of the index is of one range");

/* Slots that small blocks may have for themselves, as a part of all. */
#define NESTS_PART 4
#define NESTS_MOST UINT32_C(65536)

static uint64_t up(uint64_t bytes)
{
	return (bytes + GIB - 1) & ~(GIB - 1);
}

struct table {
	void **at;
	size_t bytes;
};

#define COUNT(type, name, per) +1
#define TABLES		       (0 GLK_SLOT_TABLES(COUNT))

/* All tables by slot. */
static void list_tables(struct glk_space *space, struct table tables[TABLES])
{
	size_t eighths = (size_t)space->capacity << GLK_EIGHTH_SHIFT;
#define LIST(type, name, per)                                                            \
	{(void **)&space->name, ((eighths >> (per)) + 2) * sizeof(*space->name)},
	const struct table all[TABLES] = {GLK_SLOT_TABLES(LIST)};

	memcpy(tables, all, sizeof(all));
}

static size_t ranges_bytes(const struct glk_space *space, unsigned shift)
{
	return ((((size_t)space->capacity << shift) >> GLK_RANGE_SHIFT) + 1) *
		sizeof(*space->range);
}

static unsigned shift_of(const struct glk_node *node)
{
	return (unsigned)__builtin_ctzll(node->page_size[GLK_CLASS_SMALL]);
}

void glk_space_fini(struct glk_space *space)
{
	struct table tables[TABLES];

	if (!space->pool)
		return;
	list_tables(space, tables);
	for (int i = 0; i < TABLES; i++)
		glk_region_free(*tables[i].at, tables[i].bytes);
	glk_region_free(space->range, ranges_bytes(space, shift_of(space->node)));
	*space = (struct glk_space){0};
}

int glk_space_init(struct glk_space *space, struct glk_node *node, uint64_t bytes)
{
	unsigned shift = shift_of(node);
	struct table tables[TABLES];

	/* a GiB between two ranges belongs to none */
	*space = (struct glk_space){.pool = node->pool,
		.node = node,
		.capacity = (uint32_t)((up(bytes) + GLK_RANGES_MAX * GIB) >> shift)};
	list_tables(space, tables);
	space->range = glk_region_new(ranges_bytes(space, shift));
	for (int i = 0; i < TABLES && space->range; i++) {
		*tables[i].at = glk_region_new(tables[i].bytes);
		if (!*tables[i].at)
			break;
	}
	space->of[GLK_OF_NODE].idle = space->idle;
	space->of[GLK_OF_HOST].idle = space->idle_host;
	if (*tables[TABLES - 1].at)
		return 0;
	glk_space_fini(space);
	return -ENOMEM;
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
	map->ahead = map->reach = 0;
}

/* The offset of the next range: a GiB between two belongs to none. */
static uint64_t next_offset(const struct glk_space *space)
{
	return space->newest ? space->end + GIB : 0;
}

/* Bytes of ranges that the tables of a space have room for yet. */
static uint64_t room_of(const struct glk_map *map)
{
	uint64_t most = (uint64_t)map->space->capacity << map->shift;
	uint64_t next = next_offset(map->space);

	return most > next ? (most - next) & ~(GIB - 1) : 0;
}

/* A range is one of the map and of its space. */
static void add_range(struct glk_map *map, struct glk_range *range)
{
	struct glk_space *space = map->space;

	leave_behind(map);
	map->ranges++;
	map->size += range->size;
	glk_poke_relaxed(&map->high, range->offset);
	map->end = range->offset + range->size;
	space->newest = range;
	space->end = map->end;
	for (uint64_t at = range->offset; at < space->end; at += GIB)
		space->range[at >> GLK_RANGE_SHIFT] = range;
}

int glk_map_extend(struct glk_map *map, uint64_t size)
{
	struct glk_drv *drv = map->pool->drv;
	uint64_t least = up(size), left = map->most - map->size;
	struct glk_range *range, found = {.map = map};
	int err;

	left = left < room_of(map) ? left : room_of(map);
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
	if (map->ranges == GLK_RANGES_MAX || found.size > map->most - map->size ||
		found.size > room_of(map)) {
		drv->ops->unreserve(drv, found.reserved, found.reserved_size);
		return -ENOMEM;
	}
	range = &map->range[map->ranges];
	found.offset = next_offset(map->space);
	found.start = map->start + (found.offset >> map->eighth);
	*range = found;
	err = glk_index_add(range);
	if (err) {
		drv->ops->unreserve(drv, range->reserved, range->reserved_size);
		return err;
	}
	add_range(map, range);
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

int glk_map_init(struct glk_map *map, struct glk_space *space,
	const struct glk_conf *conf, struct glk_map_size size)
{
	struct glk_node *node = space->node;
	uint32_t nests;
	int err;

	clear(map);
	map->space = space;
	map->pool = node->pool;
	map->node = node;
	map->ends = conf->policy_ends;
	map->shift = shift_of(node);
	map->eighth = map->shift - GLK_EIGHTH_SHIFT;
	map->grains = (1u << (map->shift - GLK_GRAIN_SHIFT)) - 1;
	for (int c = 0; c < GLK_CLASS_OTHER; c++)
		map->of[c] = (uint32_t)(node->page_size[c] >> map->shift);
	map->large = map->of[GLK_CLASS_LARGE];
	map->most = up(size.most);
	map->step = up(size.step) < map->most ? up(size.step) : map->most;
#define SHARE(type, name, per) map->name = space->name;
	GLK_SLOT_TABLES(SHARE)
	nests = (uint32_t)(map->most >> map->shift) / NESTS_PART;
	err = glk_slab_init(
		&map->extents, sizeof(struct glk_extent), (uint32_t)conf->map_extents);
	if (err)
		goto none;
	err = glk_slab_init(
		&map->nests, glk_nest_size(map), nests < NESTS_MOST ? nests : NESTS_MOST);
	if (err)
		goto extents;
	glk_extent_set(glk_extent_at(map, 0), GLK_EXTENT_LIVE);
	err = glk_map_extend(map, glk_slot_bytes(map));
	if (err)
		goto nests;
	return 0;
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
	glk_slab_fini(&map->nests);
	glk_slab_fini(&map->extents);
	glk_map_resume(map);
	map->pool = NULL;
}

uint64_t glk_map_bytes(const struct glk_map *map)
{
	uint64_t slot = sizeof(*map->page) + sizeof(*map->count) + sizeof(*map->alias) +
		sizeof(*map->use) + (sizeof(*map->start) << GLK_EIGHTH_SHIFT);

	uint64_t slots = 0;

	for (unsigned i = 0; i < map->ranges; i++) {
		struct glk_stretch s = glk_map_slots(map, i);

		slots += s.last + 1 - s.first;
	}
	/* the bitmaps are eight bits a slot, and one an eighth of it; what is kept of blocks that are
	 * away in part is not there before there are such */
	return glk_slab_bytes(&map->extents) + glk_slab_bytes(&map->nests) +
		slots * (slot + 2);
}
