/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The tries of a request, each of a place with pages behind it. Where one finds no memory or no place
 * it is tried again alone, so that no memory is in the hands of others: see plan.h. Then a rung is climbed
 * that may change something, and another one follows.
 */
#include "base/error.h"
#include "cache/ahead.h"
#include "cache/arena/request.h"
#include "cache/bin/quick.h"
#include "cache/plan.h"

#include <errno.h>

/*
 * What a request that found no memory, or no place, may do about it and be tried again, in order;
 * false: there is nothing to be done, or it did not help.
 */
typedef bool (*rung_fn)(struct glk_arena *arena, const struct glk_request *request);

/* Blocks in bins keep addresses and descriptors, of which there is an end too. */
static bool make_room(struct glk_arena *arena, const struct glk_request *request)
{
	bool rested = glk_ahead_rest(arena->gpu);

	(void)request;
	return glk_quick_flush(arena->gpu) || rested;
}

/*
 * A page that reaches beyond an end of the place gives a part of itself only. Where the memory
 * that nobody uses would do for the request, all of it is given back, so that there is room for
 * pages of its measure.
 */
static bool recut(struct glk_arena *arena, const struct glk_request *request)
{
	struct glk_cache *gpu = arena->gpu;
	struct glk_node *node = glk_request_node(arena, request);
	uint64_t idle = glk_arena_idle(arena->home, node);
	uint64_t budget = glk_load_relaxed(&node->budget);
	uint64_t held = glk_load_relaxed(&node->held), given;

	if (budget != UINT64_MAX && budget > held)
		idle += budget - held;
	if (idle < request->rounded)
		return false;
	glk_plan_begin(gpu);
	given = glk_trim_release(arena->home, node, UINT64_MAX, UINT32_MAX, NULL);
	glk_plan_end(gpu);
	return given;
}

/* Runs of equal use that are looked at while nobody else has the lock. */
#define RUNS_HELD 1024

/* That of a run of equal use. Pages that have several mappings there may have been put behind others
 * since, which they alone say. */
static void gather_run(
	const struct glk_map *map, uint32_t first, uint32_t last, struct glk_work *work)
{
	uint32_t w = first >> 6;
	uint64_t shared = glk_mapping_starts(
		map, w, map->shared[w] & glk_bits_mask(w, first, last), first);

	glk_work_add(work, &map->use[glk_use_slot(map, first)]);
	for (; shared; shared &= shared - 1) {
		uint32_t id = map->page[w << 6 | (uint32_t)__builtin_ctzll(shared)];

		if (id)
			glk_work_add(work, &glk_map_page(map, id)->use);
	}
}

/* The work on all that is mapped in the space of an arena. */
static void gather(const struct glk_arena *arena, struct glk_work *work)
{
	const struct glk_map *map = &arena->map;
	uint32_t slot = 0, runs = 0, last;

	for (; slot < glk_space_end(map->space); slot = last + 1) {
		last = glk_use_end(map, slot, glk_space_end(map->space) - 1);
		gather_run(map, slot, last, work);
		if (++runs % RUNS_HELD)
			continue;
		glk_lock_yield(&arena->gpu->lock);
	}
}

static bool may_wait(const struct glk_arena *arena, const struct glk_request *request)
{
	return arena->ops->waits && request->patient;
}

/* After a wait: whether it is worth a try. Why memory is short stays on record if not. */
static bool is_over(int err, const struct glake_error *why)
{
	if (err)
		glk_error_back(why);
	return !err;
}

/* Holes that are there may be had when the work on them is done, and also where more streams than there
 * are tries cannot be waited for, one by one. */
static bool wait_for_holes(struct glk_arena *arena, const struct glk_request *request)
{
	struct glake_error why = glk_thread_current->error;
	struct glk_work work = {0};
	int err;

	if (!may_wait(arena, request))
		return false;
	gather(arena, &work);
	if (arena->home->map.space != arena->map.space)
		gather(arena->home, &work);
	glk_plan_park(arena->gpu, request->climbs);
	err = glk_work_sync(&arena->gpu->streams, &work);
	glk_plan_unpark(arena->gpu, request->climbs);
	return is_over(err, &why);
}

/* Before a refusal for all that the GPU does. */
static bool wait_for_all(struct glk_arena *arena, const struct glk_request *request)
{
	struct glake_error why = glk_thread_current->error;
	int err;

	if (!may_wait(arena, request))
		return false;
	glk_plan_park(arena->gpu, request->climbs);
	err = glk_clock_sync(&arena->gpu->streams, ~UINT64_C(0));
	glk_plan_unpark(arena->gpu, request->climbs);
	return is_over(err, &why);
}

/* After a try that failed: the rungs, each followed by another one. */
static int by_rungs(struct glk_arena *arena, struct glk_request *request, glk_try_fn fn,
	uint32_t *extent, int err)
{
	static const rung_fn rungs[] = {make_room, recut, wait_for_holes, wait_for_all};

	for (size_t i = 0; i < sizeof(rungs) / sizeof(*rungs); i++) {
		bool waits = rungs[i] == wait_for_holes || rungs[i] == wait_for_all;

		if ((err == -ENOMEM || (waits && err == -EBUSY)) &&
			rungs[i](arena, request))
			err = fn(arena, request, extent);
	}
	return err;
}

/* Times that a request looks again since others have given memory up meanwhile, at the most. */
#define LOOKS 8

static uint64_t count_frees(struct glk_cache *gpu)
{
	struct glk_seats sum;

	glk_seats_sum(gpu, &sum);
	return sum.frees;
}

/* Whether other threads have freed blocks, or ended plans with which they wait for the GPU or for a function of the
 * program, since the last time. */
static bool others_give(
	struct glk_cache *gpu, const struct glk_request *request, uint64_t *frees)
{
	uint64_t before = *frees;

	*frees = count_frees(gpu);
	return *frees != before || glk_plan_wait(gpu, request->climbs);
}

int glk_request_again(struct glk_arena *arena, struct glk_request *request, glk_try_fn fn,
	uint32_t *extent, int err)
{
	struct glk_cache *gpu = arena->gpu;
	uint64_t frees;

	if (err != -ENOMEM && err != -EBUSY)
		return err;
	frees = count_frees(gpu);
	if (!request->alone) {
		glk_plan_climb(gpu);
		request->alone = request->climbs = true;
		err = fn(arena, request, extent);
	}
	for (int i = 0; i < LOOKS && (err == -ENOMEM || err == -EBUSY); i++) {
		err = by_rungs(arena, request, fn, extent, err);
		if (err != -ENOMEM || !request->climbs ||
			!others_give(gpu, request, &frees))
			break;
	}
	return err;
}
