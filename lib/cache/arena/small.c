/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Small blocks lie together in slots of their own (map/space/nest.h). Best fit among the holes of
 * those; where there is none that needs no wait, a slot of the common addresses joins them. While much
 * lies beside blocks, an eighth of a slot that is in use does so, and the best hole is worth a wait.
 */
#include "base/error.h"
#include "base/thread.h"
#include "cache/arena/request.h"
#include "cache/bin/quick.h"

#include <errno.h>

/* The best hole: the smallest that needs no wait, or the one with the fewest late ones and then the fewest; 0:
 * none may be had. Where memory is packed few are compared, and none where places are tight. */
static uint32_t choose(struct glk_arena *arena, struct glk_request *request,
	unsigned *ret_waits, bool *ret_crowd)
{
	uint32_t holes[GLK_FIT_CANDIDATES], best = 0;
	struct glk_map *map = &arena->map;
	unsigned count, waits, least = GLK_WAITS_NEVER;

	count = glk_tree_find(
		map, &map->nested, glk_request_span(request), holes, GLK_FIT_CANDIDATES);
	for (unsigned i = 0; i < count && least; i++) {
		uint32_t slot = glk_extent_first(map, glk_extent_at(map, holes[i]));
		struct glk_use use = glk_use_of_page(map, slot);

		if (best && (map->tight || (map->packs && i >= GLK_FIT_FEW)))
			break;
		if (glk_is_claimed(map, slot, slot) ||
			glk_place_on_host(arena, request, slot, slot) ||
			!glk_request_may(arena, request, &use, &waits) || waits >= least)
			continue;
		best = holes[i];
		*ret_crowd = glk_use_crowded(&use);
		least = waits;
	}
	*ret_waits = least;
	return best;
}

/* Whether all slots that small blocks may have for themselves are theirs. */
static bool is_full(const struct glk_map *map)
{
	return glk_load_relaxed(&map->nests.live) >= map->nests.max;
}

/* A nest of so many bytes: its free extent. */
static int open_nest(struct glk_arena *arena, struct glk_request *request,
	const struct glk_fit *fit, uint64_t size, uint32_t *ret_extent)
{
	struct glk_map *map = &arena->map;
	struct glk_use never = {0};
	uint32_t slot;
	int err;

	request->own = fit->own;
	err = glk_extent_carve(map, fit->from, fit->offset, size, ret_extent);
	if (err)
		return err;
	err = glk_back(arena, request, *ret_extent);
	if (err)
		goto give_back;
	slot = glk_extent_first(map, glk_extent_at(map, *ret_extent));
	err = glk_nest_open(map, *ret_extent);
	if (!err)
		return 0;
	/* others had the last one meanwhile */
	if (is_full(map))
		err = -ENOSPC;
	glk_slots_leave(map, slot, slot, &never);
give_back:
	glk_extent_give_back(map, *ret_extent);
	return err;
}

/* Whether a quarter of the slots of small blocks is free, or memory is packed: then a wait is better than one more
 * of them, or streams by turns would fill the memory with slots that nobody needs. */
static bool is_sparse(const struct glk_map *map)
{
	return map->packs ||
		map->nested_taken < map->nested_bytes - map->nested_bytes / 4;
}

/* Of all memory, from which part in holes on a wait for one of them is worth it. */
#define WORTH 32

/*
 * Whether a request waits for a hole before one more slot is opened: when those that there are take
 * more than a quarter of what is left for others, and enough of all memory to be worth a wait. Else
 * slots in which it may have no hole, since work that it cannot be put behind is under way there,
 * would grow in number until they are all memory, each for some live small blocks, and a larger
 * request has no room.
 */
static bool may_await(const struct glk_arena *arena, const struct glk_request *request)
{
	const struct glk_map *map = &arena->map;
	uint64_t holes = map->nested_bytes - map->nested_taken;

	if (!arena->ops->waits || !request->patient || arena->ops->fixed ||
		arena->ops->host)
		return false;
	return holes > glk_cache_room(arena->gpu) / 4 &&
		holes > glk_cache_most(arena->gpu) / WORTH;
}

/* Times that a hole is waited for, which others may have taken by then. */
#define AWAITS 4

/* Waits for the work on the hole that was used last the longest ago, of those that are looked at.
 * Whether it is over. */
static bool await_hole(struct glk_arena *arena, const struct glk_request *request)
{
	uint32_t holes[GLK_FIT_CANDIDATES];
	const struct glk_map *map = &arena->map;
	struct glake_error why = glk_thread_current->error;
	struct glk_use first = {0};
	unsigned count;
	int err;

	count = glk_tree_find(
		map, &map->nested, glk_request_span(request), holes, GLK_FIT_CANDIDATES);
	for (unsigned i = 0; i < count; i++) {
		uint32_t slot = glk_extent_first(map, glk_extent_at(map, holes[i]));
		struct glk_use use = glk_use_of_page(map, slot);

		if (!glk_is_claimed(map, slot, slot) &&
			!glk_place_on_host(arena, request, slot, slot) &&
			(!first.streams || use.tick < first.tick))
			first = use;
	}
	if (!first.streams)
		return false;
	glk_plan_park(arena->gpu, request->climbs);
	err = glk_clock_sync_use(&arena->gpu->streams, &first);
	glk_plan_unpark(arena->gpu, request->climbs);
	if (!err)
		return true;
	/* another slot is opened then, or that says why not */
	glk_error_back(&why);
	return false;
}

static int find_hole(
	struct glk_arena *arena, struct glk_request *request, uint32_t *ret_hole)
{
	struct glk_seek seek = {.arena = arena, .request = request};
	struct glk_want want = {.size = glk_slot_bytes(&arena->map),
		.kind = GLK_FIT_NEST,
		.fn = glk_place_check,
		.arg = &seek};
	struct glk_fit fit;
	bool crowd = false;
	unsigned waits;
	int err;

	/* a wait, or one more slot, is worse than fewer blocks in bins */
	for (int i = 0;; i++) {
		*ret_hole = choose(arena, request, &waits, &crowd);
		if (waits && crowd && glk_event_poll_crowd(&arena->gpu->streams))
			*ret_hole = choose(arena, request, &waits, &crowd);
		if (!waits || i == GLK_DRAINS ||
			!glk_supply_drain(arena, *ret_hole ? 0 : want.size))
			break;
	}
	if (!*ret_hole && is_full(&arena->map) && arena->binned &&
		glk_quick_yield(arena->gpu, request))
		*ret_hole = choose(arena, request, &waits, &crowd);
	if (*ret_hole && (!waits || is_sparse(&arena->map) || is_full(&arena->map)))
		return -EEXIST;
	if (is_full(&arena->map))
		return -ENOSPC;
	if (arena->map.packs) {
		want.size = glk_map_small(&arena->map);
		if (!glk_fit_search(&arena->map, &want, &fit) && !fit.maps)
			return open_nest(arena, request, &fit, want.size, ret_hole);
		want.size = glk_slot_bytes(&arena->map);
	}
	if (*ret_hole) {
		/* a whole slot that needs nothing is better than a wait, and nothing else is */
		err = glk_fit_search(&arena->map, &want, &fit);
		if (err || fit.maps || fit.waits)
			return -EEXIST;
		return open_nest(arena, request, &fit, want.size, ret_hole);
	}
	err = glk_place_seek(arena, request, &want, &fit);
	/* blocks that bins gave back meanwhile may have left one */
	*ret_hole =
		err || fit.maps || fit.waits ? choose(arena, request, &waits, &crowd) : 0;
	for (int i = 0; i < AWAITS && !*ret_hole && !err && may_await(arena, request);
		i++) {
		bool passed = await_hole(arena, request);

		if (passed)
			*ret_hole = choose(arena, request, &waits, &crowd);
		/* others may have had the place, or the last slot, since the lock was given up */
		if (!*ret_hole && is_full(&arena->map))
			return -ENOSPC;
		if (!*ret_hole)
			err = glk_place_seek(arena, request, &want, &fit);
		if (!passed)
			break;
	}
	if (*ret_hole)
		return -EEXIST;
	return err ? err : open_nest(arena, request, &fit, want.size, ret_hole);
}

/* Takes the beginning of a hole, or what of it is aligned. */
static int carve(struct glk_arena *arena, struct glk_request *request, uint32_t hole,
	uint32_t *ret_extent)
{
	struct glk_map *map = &arena->map;
	uint64_t offset = glk_request_begin(request, glk_extent_at(map, hole)->offset);
	int err = glk_extent_carve(map, hole, offset, request->rounded, ret_extent);

	if (err)
		return err;
	request->own = false;
	err = glk_back(arena, request, *ret_extent);
	if (err)
		glk_extent_give_back(map, *ret_extent);
	return err;
}

int glk_small_alloc(
	struct glk_arena *arena, struct glk_request *request, uint32_t *ret_extent)
{
	struct glk_map *map = &arena->map;
	struct glk_use never = {0};
	uint32_t hole, slot;
	int err = -ENOSPC;

	if (glk_request_span(request) <= arena->gpu->small_most)
		err = find_hole(arena, request, &hole);
	if (err == -EEXIST)
		return carve(arena, request, hole, ret_extent);
	if (err)
		return err;
	/* the slot was in use for itself, which the block takes over */
	slot = glk_extent_first(map, glk_extent_at(map, hole));
	err = carve(arena, request, hole, ret_extent);
	glk_slots_leave(map, slot, slot, &never);
	/* an empty nest is of all sizes again, unless the block went back there already */
	if (err && glk_extent_at(map, hole)->nested) {
		glk_tree_remove(map, &map->nested, hole);
		map->taken += glk_extent_at(map, hole)->size;
		map->nested_taken += glk_extent_at(map, hole)->size;
		glk_extent_give_back(map, hole);
	}
	return err;
}

uint32_t glk_small_behind(
	struct glk_arena *arena, struct glk_request *request, uint32_t extent)
{
	struct glk_map *map = &arena->map;
	const struct glk_extent *e = glk_extent_at(map, extent);
	const struct glk_extent *n = glk_extent_at(map, e->next);
	uint32_t made;

	/* in the same slot, so what was ordered for the one holds for the other */
	if (!e->next || !n->nested || glk_extent_state(n) != GLK_EXTENT_FREE ||
		n->size < request->rounded ||
		glk_extent_first(map, n) != glk_extent_first(map, e))
		return 0;
	return carve(arena, request, e->next, &made) ? 0 : made;
}
