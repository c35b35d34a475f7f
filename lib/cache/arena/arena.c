/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The life of an arena: its tables, what lies in it at its end, and what comes back to it of blocks. */
#include "base/conf.h"
#include "base/error.h"
#include "base/parse.h"
#include "cache/cache.h"

#include <errno.h>

int glk_arena_init(struct glk_arena *arena, struct glk_cache *gpu,
	const struct glk_arena_ops *ops, struct glk_space *space,
	struct glk_map_size size)
{
	int err;

	/* once: who found its addresses before they went asks whose they were */
	if (!arena->gpu) {
		arena->ops = ops;
		arena->home = space->node == gpu->node ? &gpu->arena : arena;
		arena->gpu = gpu;
	}
	err = glk_map_init(&arena->map, space, gpu->conf, size);
	if (err)
		return err;
	arena->map.lock = &gpu->lock;
	if (space == &gpu->space && arena != &gpu->arena) {
		struct glk_arena *last = &gpu->arena;

		while (last->next)
			last = last->next;
		last->next = arena;
	}
	return 0;
}

int glk_arena_init_alone(struct glk_arena *arena, struct glk_cache *gpu,
	const struct glk_arena_ops *ops, struct glk_space *space, struct glk_node *node,
	struct glk_map_size size)
{
	int err = glk_space_init(space, node, size.most);

	if (err)
		return err;
	err = glk_arena_init(arena, gpu, ops, space, size);
	if (err)
		glk_space_fini(space);
	return err;
}

struct glk_map_size glk_arena_size(const struct glk_cache *gpu, uint64_t step)
{
	return (struct glk_map_size){.step = step, .most = gpu->conf->map_span};
}

void glk_arena_fini(struct glk_arena *arena)
{
	struct glk_advice *said = glk_advice_take(arena);
	uint32_t extents = arena->map.extents.max;

	/* waits for who reads without the lock */
	glk_map_fini(&arena->map);
	glk_advice_free(said, extents);
	arena->held = 0;
}

void glk_arena_fini_alone(struct glk_arena *arena, struct glk_space *space)
{
	glk_arena_fini(arena);
	glk_map_pause(&arena->map);
	glk_space_fini(space);
	glk_map_resume(&arena->map);
}

/*
 * Unmaps all of a space and releases the pages. What the driver keeps is booked as such and asked
 * for again below; a GPU that is lost is asked nothing more.
 */
static int empty_map(struct glk_arena *arena)
{
	struct glk_map *map = &arena->map;
	uint32_t end = glk_space_end(map->space), waits;

	if (!end)
		return 0;
	glk_bits_clear(map->busy, 0, end - 1);
	/* what was sealed; if it is mapped it goes with the others */
	while ((waits = glk_seal_pop(map))) {
		if (!glk_map_page(map, waits)->aliases)
			glk_node_release(glk_map_node(map, waits), waits);
	}
	for (uint32_t slot = 0; slot < end; slot++) {
		struct glk_mapping m;
		struct glk_page *page;
		uint32_t id;
		int err;

		slot = glk_bits_first(map->mapped, slot, end - 1);
		if (slot == GLK_BITS_NONE)
			break;
		id = map->page[slot];
		if (!id)
			continue;
		m = glk_mapping_at(map, slot);
		page = glk_map_page(map, id);
		/* in the hands of this function: it is released, and goes to no list */
		glk_bits_clear(map->usable, m.first, m.last);
		page->in_use = GLK_NO_SLOT;
		err = glk_mapping_remove(map, m.first, m.last);
		if (!err && !page->aliases)
			err = glk_node_release(glk_map_node(map, id), id);
		if (err == -ENODEV)
			return err;
		slot = m.last;
	}
	return 0;
}

static bool is_kept(const struct glk_map *map, uint32_t slot)
{
	return glk_bit_get(map->mapped, slot) && !map->page[slot];
}

/* A run at a time. */
int glk_arena_empty_kept(struct glk_arena *arena)
{
	struct glk_drv *drv = arena->gpu->drv;
	struct glk_map *map = &arena->map;
	uint32_t end = glk_space_end(map->space);
	int err = 0, failed;

	for (uint32_t slot = 0, first; slot < end; slot++) {
		slot = glk_bits_first(map->mapped, slot, end - 1);
		if (slot == GLK_BITS_NONE)
			break;
		if (!is_kept(map, slot))
			continue;
		first = slot;
		while (slot + 1 < end && is_kept(map, slot + 1))
			slot++;
		failed = drv->ops->unmap(drv, glk_slot_addr(map, first),
			(size_t)(slot - first + 1) << map->shift);
		err = err ? err : failed;
		if (!failed)
			glk_bits_clear(map->mapped, first, slot);
	}
	return err;
}

int glk_arena_empty(struct glk_arena *arena)
{
	int err = empty_map(arena), failed;

	failed = err == -ENODEV ? 0 : glk_arena_empty_kept(arena);
	return err ? err : failed;
}

void glk_arena_merge(struct glk_arena *arena, uint32_t extent, const struct glk_use *use)
{
	struct glk_map *map = &arena->map;
	const struct glk_extent *e = glk_extent_at(map, extent);

	glk_lookup_leave(map, extent);
	glk_slots_leave(map, glk_extent_first(map, e), glk_extent_last(map, e), use);
	glk_extent_give_back(map, extent);
}

int glk_limit_pledge(const struct glk_cache *cache, struct glk_limit *limit,
	uint64_t live, const char *what, uint64_t size)
{
	uint64_t taken = live + limit->pledged;

	if (size && limit->most && (taken > limit->most || size > limit->most - taken))
		return glk_error(-ENOMEM, GLAKE_ERROR_LIMIT,
			"%s may have %s on GPU %d: %s are live, and %s were asked for",
			what, glk_say_bytes(limit->most).text, cache->device,
			glk_say_bytes(live).text, glk_say_bytes(size).text);
	limit->pledged += size;
	return 0;
}
