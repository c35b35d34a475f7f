/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What is left of a request when its thread did not find a block in the bin of its size: which
 * stream it is of, which arena it goes to, and a last look into the bins.
 */
#include "base/error.h"
#include "base/probe.h"
#include "base/thread.h"
#include "cache/advice.h"
#include "cache/ahead.h"
#include "cache/arena/request.h"
#include "cache/away.h"
#include "cache/bin/hit.h"
#include "cache/device.h"
#include "cache/graph/graph.h"
#include "cache/managed/managed.h"
#include "cache/plan.h"
#include "cache/tag/tag.h"

#include <errno.h>

/* Pops from the bin of a size in a row, where two threads may meet, or the one beside it. */
static uint32_t pop_any(struct glk_cache *cache, const struct glk_seat *seat,
	struct glk_row *row, uint64_t grains)
{
	uint32_t i = glk_row_find(row, grains);

	if (i == GLK_BINS)
		return 0;
	return glk_quick_pop(row, i, glk_quick_base(&cache->arena.map), seat->id);
}

/* A block that was popped, if it is of the size that was asked for. */
static bool revive(struct glk_cache *cache, struct glk_seat *seat, uint32_t id,
	uint64_t size, uint64_t *ret_addr)
{
	struct glk_extent *e = glk_extent_at(&cache->arena.map, id);

	if (e->size != glk_quick_grains(size) << GLK_GRAIN_SHIFT) {
		glk_quick_stray(cache, id);
		return false;
	}
	*ret_addr = glk_hit_revive(seat, e, size);
	return true;
}

/* A stream that other threads have used already, and this one has not of late. */
static bool sit(
	struct glk_seat *seat, struct glk_row *row, const struct CUstream_st *stream)
{
	struct glk_row **place = &seat->rows[glk_seat_hash(stream)];

	/* pairs with: the release in glk_quick_row */
	if (*place == row || !glk_load_acquire(&row->entered) ||
		glk_load_relaxed(&row->handle) != stream)
		return false;
	*place = row;
	return true;
}

/* Under the lock: from a pool of graphs. */
static int serve_graph(struct glk_cache *cache, struct glk_request *request,
	struct glk_seat *seat, uint64_t session, uint64_t *ret_addr)
{
	struct glk_graph *graph = glk_graph_session(cache, session);
	int err;

	if (!graph)
		return glk_error(-EBUSY, GLAKE_ERROR_CAPTURE,
			"the pool of the graph was ended by another thread");
	glk_graph_note(graph, request->stream, request->capture);
	err = glk_arena_serve(&graph->arena, request, seat, NULL, ret_addr);
	if (err)
		glk_graph_forget(cache, graph);
	return err;
}

/* Bytes that a request has no room for, as far as is known; a page at the least. */
static uint64_t lacking(struct glk_cache *cache, uint64_t size)
{
	uint64_t budget = glk_load_relaxed(&cache->node->budget);
	uint64_t held = glk_load_relaxed(&cache->node->held);
	uint64_t room = budget > held ? budget - held : 0;
	uint64_t least = glk_slot_bytes(&cache->arena.map);
	struct glake_error why = glk_thread_current->error;
	size_t left = 0, total;

	glk_lock_pause(&cache->lock);
	if (!cache->drv->ops->memory_info(cache->drv, cache->device, &left, &total) &&
		room > left)
		room = left;
	glk_lock_resume(&cache->lock);
	glk_thread_current->error = why;
	room += glk_arena_idle(&cache->arena);
	return size > room + least ? size - room : least;
}

/* Times that cold blocks make room for a request: their pages may be needed at its ends only in part. */
#define ROOMS 4

/* What was freed of blocks that lie on the host in place gives its addresses back. */
static void leave_host(struct glk_cache *cache)
{
	glk_plan_begin(cache);
	glk_beside_leave(cache, (struct glk_limbo)GLK_LIMBO(&cache->streams));
	glk_plan_end(cache);
}

/* From an arena, with the room that cold blocks leave where there is none. They stay where all of them
 * would not do. */
static int serve_in(struct glk_arena *arena, struct glk_request *request,
	struct glk_seat *seat, struct glk_row *row, uint64_t *ret_addr)
{
	struct glk_cache *cache = arena->gpu;
	struct glk_request first = *request;
	int err;

	if (arena->map.guests)
		leave_host(cache);
	err = glk_arena_serve(arena, request, seat, row, ret_addr);
	for (int i = 0; i < ROOMS && err == -ENOMEM && glk_advice_cold(cache) &&
		glk_thread_current->error.error_class == GLAKE_ERROR_NOMEM_DEVICE;
		i++) {
		uint64_t bytes = lacking(cache, first.rounded);
		bool wake = request->wake;

		if (!glk_advice_can(cache, bytes) || !glk_advice_yield(cache, bytes))
			break;
		*request = first;
		err = glk_arena_serve(arena, request, seat, row, ret_addr);
		request->wake |= wake;
	}
	return err;
}

/* For a request that failed without a wait: from memory of the host in place, and then as it came,
 * `again`, behind the work of the GPU. */
static GLK_COLD int serve_else(struct glk_arena *arena, struct glk_request *request,
	struct glk_request *again, struct glk_seat *seat, struct glk_row *row, int err,
	uint64_t *ret_addr)
{
	struct glake_error why;

	err = glk_beside_serve(arena, request, err, seat, ret_addr);
	if (err != -ENOMEM && err != -EBUSY)
		return err;
	why = glk_thread_current->error;
	again->patient = true;
	err = serve_in(arena, again, seat, row, ret_addr);
	request->wake |= again->wake;
	if (err == -ENOMEM && glk_thread_current->error.error_class == GLAKE_ERROR_NOMEM_DEVICE)
		glk_thread_current->error = why;
	return err;
}

/*
 * Under the lock: from the GPU's own arena, or that of a tag. Where memory of the host may be given it is had before
 * the GPU is waited for, which is done when there is none of it either. What it says is then the
 * answer, unless the wait brought up something else.
 */
static int serve_gpu(struct glk_arena *arena, struct glk_request *request,
	struct glk_seat *seat, struct glk_row *row, uint64_t *ret_addr)
{
	struct glk_request again = *request;
	int err;

	request->patient = !glk_peek_relaxed(&arena->gpu->places);
	err = serve_in(arena, request, seat, row, ret_addr);
	if (!err || request->patient)
		return err;
	return serve_else(arena, request, &again, seat, row, err, ret_addr);
}

/* Under the lock: from managed memory, if that is for all requests, and else, or where it has no room,
 * from the GPU's own. */
static int serve(struct glk_cache *cache, struct glk_request *request,
	struct glk_seat *seat, struct glk_row *row, uint64_t *ret_addr)
{
	int err = glk_managed_try(cache, request, seat, ret_addr);

	if (err != -ENOMEM)
		return err;
	err = serve_gpu(&cache->arena, request, seat, row, ret_addr);
	return err == -ENOMEM ? glk_managed_insist(cache, request, seat, ret_addr) : err;
}

/* Under the lock: from the arena of a tag. */
static int serve_tag(struct glk_cache *cache, struct glk_request *request, uint32_t id,
	struct glk_seat *seat, uint64_t *ret_addr)
{
	struct glk_arena *arena;
	int err = glk_tag_enter(cache, id, &arena);

	return err ? err : serve_gpu(arena, request, seat, NULL, ret_addr);
}

/* The bin that another request of the thread, or of another one, left its block in meanwhile. */
static bool hit_late(struct glk_cache *cache, struct glk_seat *seat, uint32_t id,
	const struct CUstream_st *stream, size_t size, uint64_t *ret_addr)
{
	uint32_t extent;

	if (!sit(seat, &cache->rows[id], stream))
		return false;
	extent = pop_any(cache, seat, &cache->rows[id], glk_quick_grains(size));
	return extent && revive(cache, seat, extent, size, ret_addr);
}

int glk_cache_miss(struct glk_cache *cache, size_t size, struct CUstream_st *stream,
	uint32_t flags, uint64_t *ret_addr)
{
	struct glk_request request = {.size = size, .flags = flags, .patient = true};
	struct glk_stream_facts facts = {0};
	uint32_t tag = glk_seat_tag(cache);
	uint64_t session = 0;
	int64_t since = glk_clock_ticks();
	struct glk_seat *seat;
	struct glk_row *row;
	uint32_t id = 0;
	int err;

	if (!size)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "a block of 0 bytes");
	if (glk_thread_current->told)
		return glk_error(-EBUSY, GLAKE_ERROR_BUSY,
			"a function that is told of moves asks for memory");
	err = glk_cache_start(cache);
	/* the legacy stream captures nothing, and is the one of most programs */
	if (!err && !glk_stream_key(stream))
		id = glk_hit_stream(cache, glk_stream_name(stream));
	if (!err && !id)
		err = glk_stream_get(&cache->streams, stream, &facts, &id);
	if (!err && !(flags & GLAKE_ALLOC_MANAGED) &&
		(facts.capture || glk_load_relaxed(&cache->diverted)))
		err = glk_graph_route(cache, stream, &facts, &session);
	if (err)
		return err;
	stream = glk_stream_name(stream);
	seat = glk_hit_seat(cache);
	if (seat && !flags && hit_late(cache, seat, id, stream, size, ret_addr))
		return 0;
	glk_lock(&cache->lock);
	err = glk_plan_ask(cache);
	if (err) {
		glk_unlock(&cache->lock);
		return err;
	}
	request.stream = glk_stream_enter(&cache->streams, id);
	if (request.stream->bit >= GLK_STREAM_BITS) {
		glk_plan_leave(cache);
		glk_unlock(&cache->lock);
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"the stream was ended by another thread");
	}
	if (cache->ended != cache->streams.ended)
		glk_quick_sweep(cache);
	row = glk_quick_row(cache, id, stream);
	if (seat)
		seat->rows[glk_seat_hash(stream)] = row;
	else
		seat = glk_slab_at(&cache->seats, 0);
	request.rounded = glk_quick_grains(size) << GLK_GRAIN_SHIFT;
	request.stream->mute = facts.capture != 0;
	request.capture = facts.capture;
	if (flags & GLAKE_ALLOC_MANAGED)
		err = glk_managed_serve(cache, &request, seat, ret_addr);
	else if (session)
		err = serve_graph(cache, &request, seat, session, ret_addr);
	else if (tag)
		err = serve_tag(cache, &request, tag, seat, ret_addr);
	else
		err = serve(cache, &request, seat, row, ret_addr);
	cache->oom += err == -ENOMEM;
	glk_plan_leave(cache);
	glk_unlock_since(&cache->lock, since, &cache->times[GLK_TIMED_REQUEST]);
	if (err == -ENOMEM)
		glk_refusal_note(cache, &request, stream, session);
	if (!err)
		GLK_PROBE3(miss, cache->device, size, *ret_addr);
	else
		GLK_PROBE3(refusal, cache->device, size, err);
	if (request.wake)
		glk_ahead_wake(cache);
	return err;
}

int glk_cache_alloc(struct glk_cache *cache, size_t size, struct CUstream_st *stream,
	uint32_t flags, uint64_t *ret_addr)
{
	void *ptr;
	int err;

	if (flags)
		return glk_cache_miss(cache, size, stream, flags, ret_addr);
	err = glk_hit_alloc(cache, size, stream, &ptr);
	if (!err)
		*ret_addr = (uint64_t)(uintptr_t)ptr;
	return err;
}

static int miss(struct glk_cache *cache, uint64_t size, struct CUstream_st *stream,
	void **ret_ptr)
{
	uint64_t addr;
	int err = glk_cache_miss(cache, size, stream, 0, &addr);

	if (!err)
		*ret_ptr = (void *)(uintptr_t)addr;
	return err;
}

int glk_hit_not(struct glk_cache *cache, uint64_t size, struct CUstream_st *stream,
	void **ret_ptr)
{
	const struct glk_thread_seat *place = glk_hit_place(cache);
	struct glk_row *row;
	const struct CUstream_st *name = glk_stream_name(stream);
	uint32_t id = 0;
	uint64_t addr;

	if (size && place->serial == cache->serial) {
		row = ((struct glk_seat *)place->seat)->rows[glk_seat_hash(name)];
		if (glk_load_relaxed(&row->handle) == name)
			id = pop_any(cache, place->seat, row, glk_quick_grains(size));
	}
	if (!id || !revive(cache, place->seat, id, size, &addr))
		return miss(cache, size, stream, ret_ptr);
	*ret_ptr = (void *)(uintptr_t)addr;
	return 0;
}

int glk_hit_stray(struct glk_cache *cache, uint32_t extent, uint64_t size,
	struct CUstream_st *stream, void **ret_ptr)
{
	glk_quick_stray(cache, extent);
	return miss(cache, size, stream, ret_ptr);
}
