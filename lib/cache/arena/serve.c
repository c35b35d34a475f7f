/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A request that is no hit, from beginning to end: a place among the addresses, pages behind
 * it, its entry in the tables. A request that fails leaves everything as it was.
 */
#include "base/error.h"
#include "base/parse.h"
#include "cache/ahead.h"
#include "cache/arena/request.h"
#include "cache/bin/own.h"
#include "cache/bin/quick.h"
#include "cache/cache.h"

#include <errno.h>
#include <inttypes.h>

/* Times that a place is looked for where a stream could not be waited for after all: it just
 * began to capture a graph, or ended unannounced. */
#define TRIES (GLK_STREAM_BITS + 1)

/* Pages of more slots than these, as with a number above 1.02 for policy.target, fit into few holes as a whole. */
#define HOLES_LARGE 8

/* Whether holes are better than new addresses: several streams want such of which nothing is used elsewhere. */
static inline bool wants_holes(const struct glk_arena *arena)
{
	return !glk_clock_alone(&arena->gpu->streams) && arena->map.large <= HOLES_LARGE;
}

static int try_block(
	struct glk_arena *arena, struct glk_request *request, uint32_t *ret_extent)
{
	struct glk_map *map = &arena->map;
	bool whole = request->flags & GLAKE_ALLOC_CONTIGUOUS;
	struct glk_seek looks = {.arena = arena, .request = request};
	struct glk_want want = {.size = glk_request_span(request),
		.kind = whole ? GLK_FIT_WHOLE : GLK_FIT_BLOCK,
		.trim = request->trim,
		.holes = wants_holes(arena),
		.fn = glk_place_check,
		.arg = &looks};
	struct glk_fit fit;
	int err;

	if (arena->ops->place) {
		err = arena->ops->place(arena, request, ret_extent);
	} else {
		err = glk_place_seek(arena, request, &want, &fit);
		if (err)
			return err;
		request->own = fit.own;
		err = glk_extent_carve(map, fit.from,
			glk_request_begin(request, fit.offset), request->rounded,
			ret_extent);
	}
	if (err)
		return err;
	glk_store_relaxed(&glk_extent_at(map, *ret_extent)->whole, whole);
	err = glk_back(arena, request, *ret_extent);
	if (err)
		glk_extent_give_back(map, *ret_extent);
	return err;
}

static int in_capture(void)
{
	return glk_error(-EBUSY, GLAKE_ERROR_CAPTURE,
		"memory could be had behind streams that capture a graph only");
}

static int alloc(
	struct glk_arena *arena, struct glk_request *request, uint32_t *ret_extent)
{
	bool small = request->rounded <= arena->gpu->small_most &&
		!(request->flags & GLAKE_ALLOC_CONTIGUOUS) && !arena->ops->place;
	int err = -EAGAIN;

	arena->gpu->streams.stuck = false;
	for (int i = 0; i < TRIES && err == -EAGAIN; i++) {
		err = small ? glk_small_alloc(arena, request, ret_extent)
			    : try_block(arena, request, ret_extent);
		if (err != -ENOSPC)
			continue;
		/* the smallest of those that lie among all others */
		request->rounded =
			arena->gpu->small_most + (UINT64_C(1) << GLK_GRAIN_SHIFT);
		request->bin = 0;
		small = false;
		err = -EAGAIN;
	}
	return err == -EAGAIN ? in_capture() : err;
}

static uint64_t book(struct glk_arena *arena, struct glk_request *request,
	struct glk_seat *seat, uint32_t extent)
{
	struct glk_extent *e = glk_extent_at(&arena->map, extent);
	struct glk_cache *gpu = arena->gpu;

	glk_quick_born(&gpu->rows[request->stream->id], e->size);
	glk_store_relaxed(&e->slack, (uint32_t)(e->size - request->size));
	glk_store_relaxed(&e->stream, (uint16_t)request->stream->id);
	glk_store_relaxed(&e->bin, request->guarded ? GLK_BIN_MARKED : request->bin);
	glk_lookup_enter(&arena->map, extent);
	glk_seat_alloc(seat, request->size, e->size);
	glk_seats_note_peak(gpu, gpu->sum.live + request->size);
	glk_arena_count(arena, e, true);
	gpu->served++;
	gpu->called += request->called;
	gpu->stitches += request->stitched;
	return glk_load_relaxed(&e->addr);
}

/* What a large request of plain blocks had to do: see fill.c. */
static void note(struct glk_cache *gpu, const struct glk_request *request)
{
	if (request->waited)
		glk_own_waited(gpu);
	if (request->stitched && !gpu->loose)
		gpu->loose = glk_trouble_note(&gpu->maps, gpu->served);
}

static GLK_COLD int too_large(const struct glk_cache *gpu, const struct glk_node *node,
	uint64_t size, uint64_t most)
{
	struct glk_said asked = glk_say_bytes(size), held = glk_say_bytes(most);

	if (node->gpu)
		return glk_error(-ENOMEM, GLAKE_ERROR_NOMEM_HOST,
			"GPU %d has no room for %s, and %s of the host are the most that "
			"tier.host allows",
			gpu->device, asked.text, held.text);
	return glk_error(-ENOMEM, GLAKE_ERROR_NOMEM_DEVICE,
		"%s were asked of GPU %d, which may hold %s", asked.text, gpu->device,
		held.text);
}

static inline int admit(
	const struct glk_cache *gpu, const struct glk_node *node, uint64_t size)
{
	uint64_t most = glk_load_relaxed(&node->budget);

	if (most > gpu->memory && node == gpu->node)
		most = gpu->memory;
	if (size <= most)
		return 0;
	if (glk_node_lender(node) && most <= UINT64_MAX / 2)
		most += glk_node_lender(node)->lends;
	return size <= most ? 0 : too_large(gpu, node, size, most);
}

/* Whether a plan of somebody else is at the slots of a run: to map there, or to take a mapping away. */
static bool is_beset(const struct glk_map *map, uint32_t first, uint32_t last)
{
	if (glk_is_claimed(map, first, last))
		return true;
	for (uint32_t w = first >> 6; w <= last >> 6; w++) {
		uint64_t left =
			map->mapped[w] & ~map->usable[w] & glk_bits_mask(w, first, last);

		for (; left; left &= left - 1) {
			if (!map->page[w << 6 | (uint32_t)__builtin_ctzll(left)])
				return true;
		}
	}
	return false;
}

static void await(struct glk_arena *arena, const struct glk_request *request,
	const struct glk_work *work)
{
	glk_plan_park(arena->gpu, request->climbs);
	glk_work_sync(&arena->gpu->streams, work);
	glk_plan_unpark(arena->gpu, request->climbs);
}

/* Mappings that have to go first, and are in the way since the work on them is not known to be done:
 * that is asked for, and then waited for. */
static void let_pass(struct glk_arena *arena, const struct glk_request *request,
	uint32_t first, uint32_t last, bool idle, bool wait)
{
	struct glk_streams *streams = &arena->gpu->streams;
	const struct glk_map *map = &arena->map;
	struct glk_work work = {0};

	glk_event_poll(streams);
	for (uint32_t slot = first; wait && slot <= last; slot++) {
		if (glk_bit_get(map->mapped, slot) &&
			(idle || !glk_bit_get(map->usable, slot)))
			glk_work_add(&work, &map->use[glk_use_slot(map, slot)]);
	}
	await(arena, request, &work);
}

/* Idle pages of the host that lie there leave, behind the work on them: it is to have pages of the GPU. */
static void leave_host(struct glk_arena *arena, const struct glk_request *request,
	uint32_t first, uint32_t last)
{
	const struct glk_map *map = &arena->map;
	struct glk_work work = {0};

	for (uint32_t slot = first; slot <= last; slot++) {
		if (glk_bit_get(map->host, slot) && glk_bit_get(map->usable, slot) &&
			!glk_bit_get(map->busy, slot))
			glk_work_add(&work, &map->use[glk_use_slot(map, slot)]);
	}
	await(arena, request, &work);
	glk_plan_begin(arena->gpu);
	glk_beside_leave(arena->gpu);
	glk_plan_end(arena->gpu);
}

static int await_others(struct glk_arena *arena, const struct glk_request *request,
	uint32_t first, uint32_t last)
{
	while (is_beset(&arena->map, first, last)) {
		if (!glk_plan_wait(arena->gpu, request->climbs))
			return glk_error(-EIO, GLAKE_ERROR_DRIVER,
				"addresses of the block cannot be mapped: the driver has kept "
				"what was there");
	}
	return 0;
}

/* Its place is given, so others who are at it are waited for: a request that looks for a place takes
 * another one. A mapping that the driver has kept stays, and the place is none any more. */
static int back(struct glk_arena *arena, struct glk_request *request, uint32_t *extent)
{
	struct glk_map *map = &arena->map;
	const struct glk_extent *e = glk_extent_at(map, *extent);
	uint32_t first = request->run ? request->run->first : glk_extent_first(map, e);
	uint32_t last = request->run ? request->run->last : glk_extent_last(map, e);
	int err = -EAGAIN;

	if (glk_place_on_host(arena, request, first, last))
		leave_host(arena, request, first, last);
	for (int i = 0; i < 4 && err == -EAGAIN; i++) {
		if (i)
			let_pass(arena, request, first, last, false, i > 1);
		err = await_others(arena, request, first, last);
		if (!err)
			err = glk_back(arena, request, *extent);
	}
	return err == -EAGAIN ? in_capture() : err;
}

int glk_arena_back(struct glk_arena *arena, struct glk_request *request, uint32_t extent)
{
	arena->gpu->streams.stuck = false;
	/* of a suspended tag it is no fetch, which makes no room for itself, but all that was there before */
	request->cold = arena->shut;
	return glk_request_somehow(arena, request, back, &extent);
}

/* Mappings of pages that are idle, or in use elsewhere. */
static int clear(struct glk_arena *arena, uint32_t first, uint32_t last)
{
	struct glk_limbo limbo = glk_request_limbo(arena);
	struct glk_limbo_run run = {GLK_NO_SLOT, 0};
	struct glk_map *map = &arena->map;
	int err = 0, failed = 0;

	for (uint32_t slot = first; slot <= last && !err; slot++) {
		struct glk_mapping m;

		if (!glk_bit_get(map->mapped, slot))
			continue;
		m = glk_mapping_at(map, slot);
		err = glk_limbo_detach(&limbo, map, m.first, m.last, &run);
		slot = m.last;
	}
	if (run.first < run.behind) {
		glk_plan_begin(arena->gpu);
		failed = glk_limbo_finish(&limbo, map, &run);
		glk_plan_end(arena->gpu);
	}
	return failed ? failed : err;
}

int glk_arena_clear(struct glk_arena *arena, uint32_t first, uint32_t last)
{
	const struct glk_request request = {0};
	int err = -EAGAIN;

	arena->gpu->streams.stuck = false;
	for (int i = 0; i < 4 && err == -EAGAIN; i++) {
		if (i)
			let_pass(arena, &request, first, last, true, i > 1);
		err = await_others(arena, &request, first, last);
		if (!err)
			err = clear(arena, first, last);
	}
	return err == -EAGAIN ? in_capture() : err;
}

int glk_arena_clear_ready(struct glk_arena *arena, uint32_t first, uint32_t last)
{
	return is_beset(&arena->map, first, last) ? -EAGAIN : clear(arena, first, last);
}

int glk_arena_pages(
	struct glk_arena *arena, struct glk_request *request, uint32_t *ret_pages)
{
	arena->gpu->streams.stuck = false;
	glk_supply_sum(arena->gpu);
	return glk_request_somehow(arena, request, glk_supply_chain, ret_pages);
}

int glk_arena_serve(struct glk_arena *arena, struct glk_request *request,
	struct glk_seat *seat, struct glk_row *row, uint64_t *ret_addr)
{
	bool whole = request->flags & GLAKE_ALLOC_CONTIGUOUS;
	uint64_t slot = glk_slot_bytes(&arena->map);
	const struct glk_node *node = glk_request_node(arena, request);
	struct glk_cache *gpu = arena->gpu;
	uint32_t extent;
	int err;

	err = admit(gpu, node, request->size);
	if (err)
		return err;
	if (glk_event_record_due(&gpu->streams, glk_load_relaxed(&gpu->node->held)))
		request->called = true;
	if (whole)
		request->rounded = (request->size + slot - 1) & ~(slot - 1);
	/* a contiguous or aligned one goes to none: nobody's row is row 0 */
	request->bin = 0;
	if (!whole && !glk_request_align(request) && row &&
		glk_quick_keeps(gpu, request->stream, row,
			glk_request_binned(gpu, request->size)))
		request->bin =
			glk_quick_bin(gpu, row, request->rounded >> GLK_GRAIN_SHIFT);
	glk_supply_weigh(arena, request->size);
	request->trim = arena->map.space->of[GLK_OF_NODE].stranded && node == gpu->node &&
		glk_supply_tight(arena, request->size);
	err = glk_request_somehow(arena, request, alloc, &extent);
	if (err)
		return err;
	*ret_addr = book(arena, request, seat, extent);
	if (arena->binned && !glk_request_binned(gpu, request->size))
		note(gpu, request);
	if (request->bin && request->rounded <= gpu->small_most)
		glk_quick_refill(gpu, request, extent);
	if (glk_ahead_of(arena))
		request->wake = glk_ahead_note(gpu);
	request->wake |= glk_rest_note(gpu);
	return 0;
}
