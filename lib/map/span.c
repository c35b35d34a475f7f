/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The addresses of a GPU: one reservation, because a reservation costs the driver the same
 * for any size (2.7 us for 64 TiB on an H200) and many small ones do not. Half of it is for
 * large blocks, a quarter for contiguous ones, an eighth each for small and medium ones.
 *
 * The tables of a span are sized for all of its slots but touched only as far as the span was
 * used, so terabytes of addresses cost no memory.
 */
#include "map/map.h"

#include "base/conf.h"
#include "base/error.h"

#include <errno.h>
#include <string.h>

/* Below this a reservation is refused rather than halved again. */
#define SPAN_LEAST ((size_t)64 << 20)

/* Lookup numbers the grains of small blocks with 32 bits: 2 TiB of them. */
#define SMALL_MOST (UINT64_C(1) << (32 + GLK_GRAIN_SHIFT))

static const unsigned part_of_8[GLK_KIND_COUNT] = {1, 1, 4, 2};

static size_t bitmap_bytes(uint64_t bits)
{
	return (size_t)((bits + 63) / 64 * 8);
}

static void span_fini(struct glk_span *span)
{
	uint64_t grains = span->size >> GLK_GRAIN_SHIFT;

	glk_region_free(span->slot, span->slots * sizeof(*span->slot));
	glk_region_free(span->more, span->slots * sizeof(*span->more));
	glk_region_free(span->use, span->slots * sizeof(*span->use));
	glk_region_free(span->usable, bitmap_bytes(span->slots));
	glk_region_free(span->mapped, bitmap_bytes(span->slots));
	glk_region_free(span->shared, bitmap_bytes(span->slots));
	glk_region_free(span->grain, grains * sizeof(*span->grain));
	glk_region_free(span->begins, bitmap_bytes(grains));
	memset(span, 0, sizeof(*span));
}

static int span_init(struct glk_span *span, struct glk_map *map, enum glk_kind kind,
	uint64_t base, uint64_t size)
{
	enum glk_class class = kind == GLK_KIND_LARGE ? GLK_CLASS_LARGE : GLK_CLASS_SMALL;
	uint64_t grains;

	if (kind == GLK_KIND_SMALL && size > SMALL_MOST)
		size = SMALL_MOST;
	grains = size >> GLK_GRAIN_SHIFT;
	*span = (struct glk_span){
		.map = map, .kind = kind, .class = class, .base = base, .size = size};
	span->extents = glk_extent_at(map, 0);
	span->shift = (unsigned)__builtin_ctzll(map->node->page_size[class]);
	span->slots = (uint32_t)(size >> span->shift);
	span->slot = glk_region_new(span->slots * sizeof(*span->slot));
	span->more = glk_region_new(span->slots * sizeof(*span->more));
	span->use = glk_region_new(span->slots * sizeof(*span->use));
	span->usable = glk_region_new(bitmap_bytes(span->slots));
	span->mapped = glk_region_new(bitmap_bytes(span->slots));
	span->shared = glk_region_new(bitmap_bytes(span->slots));
	if (!span->slot || !span->more || !span->use || !span->usable || !span->mapped ||
		!span->shared)
		goto fail;
	if (kind != GLK_KIND_SMALL)
		return 0;
	span->grain = glk_region_new(grains * sizeof(*span->grain));
	span->begins = glk_region_new(bitmap_bytes(grains));
	if (!span->grain || !span->begins)
		goto fail;
	return 0;
fail:
	span_fini(span);
	return -ENOMEM;
}

/* Halves what it asks for until the system grants it. */
static int reserve(struct glk_map *map, size_t size, size_t align)
{
	struct glk_drv *drv = map->pool->drv;
	size_t least = 8 * align > SPAN_LEAST ? 8 * align : SPAN_LEAST;
	int err;

	size = size > least ? size & ~(8 * align - 1) : least;
	do {
		err = drv->ops->reserve(drv, size, align, &map->base);
		if (!err) {
			map->size = size;
			return 0;
		}
		size = (size / 2) & ~(8 * align - 1);
	} while (err == -ENOMEM && size >= least);
	return err;
}

int glk_map_init(struct glk_map *map, struct glk_pool *pool, struct glk_node *node,
	const struct glk_conf *conf, size_t size)
{
	struct glk_drv *drv = pool->drv;
	uint64_t base;
	int err;

	*map = (struct glk_map){.pool = pool, .node = node, .ends = conf->policy_ends};
	err = glk_slab_init(
		&map->extents, sizeof(struct glk_extent), (uint32_t)conf->map_extents);
	if (err)
		goto none;
	glk_extent_set(glk_extent_at(map, 0), GLK_EXTENT_LIVE);
	err = glk_idle_init(map);
	if (err)
		goto slab;
	err = reserve(map, size, node->page_size[GLK_CLASS_LARGE]);
	if (err)
		goto idle;
	base = map->base;
	for (int kind = 0; kind < GLK_KIND_COUNT; kind++) {
		uint64_t part = map->size / 8 * part_of_8[kind];

		err = span_init(&map->span[kind], map, (enum glk_kind)kind, base, part);
		if (err)
			goto spans;
		base += part;
	}
	return 0;
spans:
	for (int kind = 0; kind < GLK_KIND_COUNT; kind++)
		span_fini(&map->span[kind]);
	drv->ops->unreserve(drv, map->base, map->size);
idle:
	glk_idle_fini(map);
slab:
	glk_slab_fini(&map->extents);
none:
	map->pool = NULL;
	return err;
}

void glk_map_fini(struct glk_map *map)
{
	struct glk_drv *drv;

	if (!map->pool)
		return;
	drv = map->pool->drv;
	for (int kind = 0; kind < GLK_KIND_COUNT; kind++)
		span_fini(&map->span[kind]);
	drv->ops->unreserve(drv, map->base, map->size);
	glk_idle_fini(map);
	glk_slab_fini(&map->extents);
	map->pool = NULL;
}

uint64_t glk_map_bytes(const struct glk_map *map)
{
	uint64_t bytes = glk_slab_bytes(&map->extents);

	for (int kind = 0; kind < GLK_KIND_COUNT; kind++) {
		const struct glk_span *span = &map->span[kind];
		uint64_t slots = glk_span_end(span);

		bytes += slots *
				(sizeof(*span->slot) + sizeof(*span->more) +
					sizeof(*span->use)) +
			slots * 3 / 8;
		if (kind == GLK_KIND_SMALL)
			bytes += (span->high >> GLK_GRAIN_SHIFT) * sizeof(*span->grain) +
				(span->high >> GLK_GRAIN_SHIFT) / 8;
	}
	return bytes;
}

enum glk_kind glk_map_kind(const struct glk_map *map, size_t size)
{
	if (size <= map->node->page_size[GLK_CLASS_SMALL] / 2)
		return GLK_KIND_SMALL;
	if (size < map->node->page_size[GLK_CLASS_LARGE] / 2)
		return GLK_KIND_MEDIUM;
	return GLK_KIND_LARGE;
}
