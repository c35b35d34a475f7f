/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What is left of a request when its thread did not find a block in the bin of its size: which
 * stream it is of, which arena it goes to, and a last look into the bins.
 */
#include "base/error.h"
#include "base/thread.h"
#include "cache/ahead.h"
#include "cache/arena/request.h"
#include "cache/away.h"
#include "cache/bin/hit.h"
#include "cache/device.h"
#include "cache/graph/graph.h"
#include "cache/plan.h"

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

/*
 * Under the lock: from the GPU's own arena. Where memory of the host may be given it is had before
 * the GPU is waited for, which is done when there is none of it either. What it says is then the
 * answer, unless the wait brought up something else.
 */
static int serve(struct glk_cache *cache, struct glk_request *request,
	struct glk_seat *seat, struct glk_row *row, uint64_t *ret_addr)
{
	struct glk_request again = *request;
	struct glake_error why;
	int err;

	request->patient = !cache->places;
	err = glk_arena_serve(&cache->arena, request, seat, row, ret_addr);
	if (!err || request->patient)
		return err;
	err = glk_beside_serve(cache, request, err, seat, ret_addr);
	if (err != -ENOMEM && err != -EBUSY)
		return err;
	why = glk_thread_current->error;
	again.patient = true;
	err = glk_arena_serve(&cache->arena, &again, seat, row, ret_addr);
	request->wake |= again.wake;
	if (err == -ENOMEM && glk_thread_current->error.error_class == GLAKE_ERROR_NOMEM_DEVICE)
		glk_thread_current->error = why;
	return err;
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
	uint64_t session = 0;
	struct glk_seat *seat;
	struct glk_row *row;
	uint32_t id = 0;
	int err;

	if (!size)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "a block of 0 bytes");
	err = glk_cache_start(cache);
	/* the legacy stream captures nothing, and is the one of most programs */
	if (!err && !glk_stream_key(stream))
		id = glk_hit_stream(cache, glk_stream_name(stream));
	if (!err && !id)
		err = glk_stream_get(&cache->streams, stream, &facts, &id);
	if (!err && (facts.capture || glk_load_relaxed(&cache->diverted)))
		err = glk_graph_route(cache, stream, &facts, &session);
	if (err)
		return err;
	stream = glk_stream_name(stream);
	seat = glk_seat_take(cache);
	if (seat && !flags && hit_late(cache, seat, id, stream, size, ret_addr))
		return 0;
	glk_lock(&cache->lock);
	glk_plan_enter(cache);
	err = glk_suspended(cache);
	if (err) {
		glk_plan_leave(cache);
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
	err = session ? serve_graph(cache, &request, seat, session, ret_addr)
		      : serve(cache, &request, seat, row, ret_addr);
	cache->oom += err == -ENOMEM;
	glk_plan_leave(cache);
	glk_unlock(&cache->lock);
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
