/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What blocks have on the host, and of that with another GPU; and what lies idle there goes. */
#include "cache/arena/request.h"
#include "cache/plan.h"
#include "cache/reserve.h"

static uint64_t sum(const struct glk_map *map, const struct glk_extent *e, bool lent)
{
	uint32_t last = glk_extent_last(map, e);
	uint64_t end = e->offset + glk_extent_asked(e), bytes = 0;

	if (!map->hosted || glk_extent_away(e))
		return 0;
	for (uint32_t slot = glk_extent_first(map, e); slot <= last; slot++) {
		if (glk_bit_get(map->host, slot) && glk_part_stands(map, e, slot) &&
			(!lent || glk_map_page(map, map->page[slot])->lent))
			bytes += glk_slot_part(map, slot, e->offset, end);
	}
	return bytes;
}

uint64_t glk_beside_placed(const struct glk_map *map, const struct glk_extent *e)
{
	return sum(map, e, false);
}

uint64_t glk_beside_lent(const struct glk_map *map, const struct glk_extent *e)
{
	return sum(map, e, true);
}

void glk_beside_count(struct glk_arena *arena, const struct glk_extent *e, bool more)
{
	struct glk_cache *gpu = arena->gpu;
	uint64_t bytes;

	bytes = glk_beside_placed(&arena->map, e);
	if (bytes && gpu->host->lender)
		gpu->placed_peer += more ? glk_beside_lent(&arena->map, e)
					 : -glk_beside_lent(&arena->map, e);
	gpu->placed_blocks += !bytes ? 0 : more ? 1 : UINT64_MAX;
	gpu->placed += more ? bytes : -bytes;
	if (gpu->most_placed < gpu->placed)
		gpu->most_placed = gpu->placed;
}

static enum glk_idle_answer leave_one(struct glk_map *map, uint32_t id, void *arg)
{
	const struct glk_page *page = glk_map_page(map, id);
	struct glk_cache *cache = arg;
	struct glk_limbo limbo = GLK_LIMBO(&cache->streams);
	uint32_t slot = page->first_alias;
	bool leaves = false;

	for (unsigned left = page->aliases; left; left--) {
		leaves |= glk_slot_map(map, slot) != &cache->beside.map;
		slot = map->alias[slot];
	}
	if (leaves)
		glk_limbo_strip(&limbo, map, id);
	return GLK_IDLE_NEXT;
}

bool glk_beside_release(void *arg, uint64_t bytes)
{
	struct glk_cache *cache = arg;
	uint64_t given;

	if (!cache->host || !glk_arena_idle(&cache->arena, cache->host))
		return false;
	glk_reserve_yield(cache);
	glk_event_poll(&cache->streams);
	glk_plan_begin(cache);
	given = glk_trim_release(&cache->arena, cache->host, bytes, UINT32_MAX, NULL);
	glk_plan_end(cache);
	return given > 0;
}

void glk_beside_leave(struct glk_cache *cache)
{
	struct glk_idle_walk walk = {.of = GLK_OF_HOST, .groups = UINT32_MAX};

	glk_idle_each(&cache->arena.map, &walk, leave_one, cache);
}
