/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What is left of a request when its thread did not find a block in the bin of its size: which
 * stream it is of, which arena it goes to, and a last look into the bins.
 */
#include "base/conf.h"
#include "base/error.h"
#include "base/probe.h"
#include "base/thread.h"
#include "cache/ahead.h"
#include "cache/arena/request.h"
#include "cache/bin/hit.h"
#include "cache/bin/own.h"
#include "cache/cache.h"
#include "cache/graph/graph.h"
#include "cache/managed/managed.h"
#include "cache/sampled.h"
#include "cache/straight.h"
#include "cache/tag/tag.h"

#include <errno.h>

bool glk_miss_popped(struct glk_cache *cache, struct glk_seat *seat, struct glk_row *row,
	uint64_t size, uint64_t *ret_addr)
{
	uint64_t grains = glk_quick_grains(size);
	uint32_t i = glk_row_find(row, grains), id;
	struct glk_extent *e;

	if (i == GLK_BINS)
		return false;
	id = glk_quick_pop(row, i, glk_quick_base(&cache->arena.map), seat->id);
	if (!id)
		return false;
	e = glk_extent_at(&cache->arena.map, id);
	if (e->size != grains << GLK_GRAIN_SHIFT) {
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
	/* pairs with: the release in glk_quick_row */
	if (seat->rows[glk_seat_hash(stream)] == row ||
		!glk_load_acquire(&row->entered) ||
		glk_load_relaxed(&row->handle) != stream)
		return false;
	glk_seat_sit(seat, stream, row);
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
	err = glk_limit_pledge(cache, &graph->limit, graph->live, "the pool of the graph",
		request->size);
	if (!err) {
		err = glk_arena_serve(&graph->arena, request, seat, NULL, ret_addr);
		graph->limit.pledged -= request->size;
	}
	if (err)
		glk_graph_forget(cache, graph);
	return err;
}

/* What was freed of blocks that lie on the host in place gives its addresses back. */
static GLK_COLD void leave_host(struct glk_cache *cache)
{
	glk_plan_begin(cache);
	glk_beside_leave(cache);
	glk_plan_end(cache);
}

static inline int serve_once(struct glk_arena *arena, struct glk_request *request,
	struct glk_seat *seat, struct glk_row *row, uint64_t *ret_addr)
{
	if (arena->map.hosted && arena->map.space->of[GLK_OF_HOST].idle_slots)
		leave_host(arena->gpu);
	return glk_arena_serve(arena, request, seat, row, ret_addr);
}

/*
 * For a request that failed without a wait for the GPU, since memory of the host may be given, which is had before.
 * Then the request is served as it came, behind the work of the GPU. What that says is then the
 * answer, unless the wait brought up something else.
 */
static GLK_COLD int serve_else(struct glk_arena *arena, struct glk_request *request,
	struct glk_seat *seat, struct glk_row *row, int err, uint64_t *ret_addr)
{
	struct glk_request again = {
		.size = request->size,
		.rounded = glk_quick_grains(request->size) << GLK_GRAIN_SHIFT,
		.flags = request->flags,
		.stream = request->stream,
		.capture = request->capture,
		.patient = true,
		.cold = true,
		.anew = true,
	};
	struct glake_error why;

	err = glk_beside_serve(arena, request, err, seat, ret_addr);
	if (err != -ENOMEM && err != -EBUSY)
		return err;
	why = glk_thread_current->error;
	err = serve_once(arena, &again, seat, row, ret_addr);
	request->wake |= again.wake;
	request->asks = again.asks;
	request->lack = again.lack;
	if (err == -ENOMEM &&
		glk_thread_current->error.error_class == GLAKE_ERROR_NOMEM_DEVICE)
		glk_error_back(&why);
	return err;
}

/* Under the lock: from the GPU's own arena, or that of a tag. */
static inline int serve_gpu(struct glk_arena *arena, struct glk_request *request,
	struct glk_seat *seat, struct glk_row *row, uint64_t *ret_addr)
{
	int err;

	request->patient = !glk_peek_relaxed(&arena->gpu->places);
	request->cold = request->anew = true;
	err = serve_once(arena, request, seat, row, ret_addr);
	return err && !request->patient && !request->asks
		? serve_else(arena, request, seat, row, err, ret_addr)
		: err;
}

/* Under the lock: from managed memory, if that is for all requests, and else, or where it has no room,
 * from the GPU's own. */
static inline int serve(struct glk_cache *cache, struct glk_request *request,
	struct glk_seat *seat, struct glk_row *row, uint64_t *ret_addr)
{
	struct glk_arena *arena = &cache->arena;
	int err = -ENOMEM;

	if (cache->conf->pool_managed != GLK_POOL_MANAGED_NO || cache->told)
		err = glk_managed_try(cache, request, seat, ret_addr);
	if (err != -ENOMEM)
		return err;
	if (row && !glk_request_binned(cache, request->size))
		arena = glk_own_arena(cache, row, glk_request_span(request));
	err = serve_gpu(arena, request, seat, arena->number ? NULL : row, ret_addr);
	return err == -ENOMEM && !request->asks
		? glk_managed_insist(cache, request, seat, ret_addr)
		: err;
}

/* Under the lock: from the arena of a tag. */
static int serve_tag(struct glk_cache *cache, struct glk_request *request, uint32_t id,
	struct glk_seat *seat, uint64_t *ret_addr)
{
	struct glk_arena *arena;
	int err = glk_tag_enter(cache, id, request->size, &arena);

	if (err)
		return err;
	err = serve_gpu(arena, request, seat, NULL, ret_addr);
	glk_tag_of(arena)->limit.pledged -= request->size;
	return err;
}

/* The bin that another request of the thread, or of another one, left its block in meanwhile. */
static bool hit_late(struct glk_cache *cache, struct glk_seat *seat, uint32_t id,
	const struct CUstream_st *stream, size_t size, uint64_t *ret_addr)
{
	return sit(seat, &cache->rows[id], stream) &&
		glk_miss_popped(cache, seat, &cache->rows[id], size, ret_addr);
}

/* With the lock, which it gives back: nothing can be had now, or (0) the stream is none any more. */
static GLK_COLD int refuse(struct glk_cache *cache, int err)
{
	glk_unlock(&cache->lock);
	if (err)
		return err;
	return glk_error(
		-EINVAL, GLAKE_ERROR_INVAL, "the stream was ended by another thread");
}

static inline struct glk_row *row_of(
	struct glk_cache *cache, const struct glk_asked *asked)
{
	struct glk_row *row = &cache->rows[asked->id];

	if (glk_load_relaxed(&row->entered) && row->key == (uintptr_t)asked->stream)
		return row;
	return glk_quick_row(cache, asked->id, asked->stream);
}

/* Without the lock: a request was refused, or it leaves something to do. */
static GLK_COLD void tell(struct glk_cache *cache, const struct glk_request *request,
	const struct glk_asked *asked, int err)
{
	if (err == -ENOMEM && !asked->tries)
		glk_refusal_note(cache, request, asked->stream, asked->session);
	if (err)
		GLK_PROBE3(refusal, cache->device, request->size, err);
	if (!request->wake)
		return;
	if (cache->ahead)
		glk_ahead_wake(cache);
	glk_rest_wake(cache);
}

/* From the beginning, after the program was asked for room. */
static GLK_COLD int miss_again(struct glk_cache *cache, const struct glk_asked *asked,
	uint64_t want, uint64_t *ret_addr)
{
	int err;

	glk_shortage_ask(cache, want, asked->handle, 0);
	/* not asked once more */
	glk_thread_current->asked++;
	err = glk_cache_miss(cache, asked->size, asked->handle, asked->flags, ret_addr);
	glk_thread_current->asked--;
	return err;
}

/* A request that is not straight, with the lock, which it gives back. */
static GLK_COLD int serve_long(struct glk_cache *cache, const struct glk_asked *asked,
	int64_t since, bool called, uint64_t *ret_addr)
{
	struct glk_request request = {.size = asked->size,
		.rounded = glk_quick_grains(asked->size + asked->behind)
			<< GLK_GRAIN_SHIFT,
		.flags = asked->flags,
		.capture = asked->capture,
		.guarded = (asked->behind && !asked->sampled) || asked->wiped,
		.called = called,
		.patient = true};
	struct glk_seat *seat = asked->seat;
	struct glk_row *row;
	int err;

	err = glk_plan_ask(cache);
	if (err)
		return refuse(cache, err);
	if (cache->ended != cache->streams.ended)
		glk_quick_sweep(cache);
	request.stream = glk_stream_at(&cache->streams, asked->id);
	/* it may have ended since it was looked up, and its number be another's */
	if (glk_load_relaxed(&request.stream->key) != (uintptr_t)asked->stream) {
		glk_plan_leave(cache);
		return refuse(cache, 0);
	}
	glk_stream_enter(&cache->streams, asked->id);
	glk_stream_own(&cache->streams, request.stream, 0);
	row = row_of(cache, asked);
	if (seat)
		glk_seat_sit(seat, asked->stream, row);
	else
		seat = glk_slab_at(&cache->seats, 0);
	request.stream->mute = request.capture != 0;
	if (glk_load_relaxed(&cache->sampled))
		glk_sampled_settle(cache);
	if (request.flags & GLAKE_ALLOC_MANAGED)
		err = glk_managed_serve(cache, &request, seat, ret_addr);
	else if (asked->sampled)
		err = glk_sampled_serve(cache, &request, seat, asked->sampled, ret_addr);
	else if (asked->session)
		err = serve_graph(cache, &request, seat, asked->session, ret_addr);
	else if (asked->tag)
		err = serve_tag(cache, &request, asked->tag, seat, ret_addr);
	else
		err = serve(cache, &request, seat,
			asked->behind || asked->wiped ? NULL : row, ret_addr);
	if (err && request.asks) {
		glk_plan_leave(cache);
		glk_unlock(&cache->lock);
		return request.lack ? miss_again(cache, asked, request.lack, ret_addr)
				    : err;
	}
	/* a guarded one is asked for again */
	cache->oom += err == -ENOMEM && !asked->tries;
	glk_plan_leave(cache);
	glk_unlock_since(&cache->lock, since, &cache->times[GLK_TIMED_REQUEST]);
	if (!err)
		GLK_PROBE3(miss, cache->device, request.size, *ret_addr);
	if (err || request.wake)
		tell(cache, &request, asked, err);
	/* the program may be asked then, and the GPU waited for */
	if (cache->node->source->hear && !asked->capture)
		cache->node->source->hear(cache->node);
	return err;
}

/* A request that was served is one of a stream that is due an arena. */
static GLK_COLD void give_arena(struct glk_cache *cache, const struct glk_asked *asked)
{
	struct glake_error why = glk_thread_current->error;
	struct glk_row *row = &cache->rows[asked->id];

	if (glk_plan_ask(cache)) {
		glk_error_back(&why);
		return;
	}
	if (row->key == (uintptr_t)asked->stream)
		glk_own_arena(cache, row, 0);
	glk_plan_leave(cache);
}

/* Streams tell what they have finished, those say so that owe it, and then a request may come behind others. */
int glk_miss_late(struct glk_cache *cache, const struct glk_asked *asked, int64_t since,
	int err, struct glk_straight *tries, uint64_t *ret_addr)
{
	bool called = false;

	glk_lock_lengthen(&cache->lock);
	since = asked->came ? asked->came : since ? since : glk_clock_ticks();
	if (err == -EALREADY) {
		give_arena(cache, asked);
		*ret_addr = tries->addr;
		err = 0;
	}
	if (err == -EBUSY && !glk_own_is_due(cache, &cache->rows[asked->id])) {
		called = glk_event_record_due(
			&cache->streams, glk_load_relaxed(&cache->node->held));
		tries->learned = glk_event_ask_few(&cache->streams);
		err = glk_straight_again(asked, tries, ret_addr);
		called |= tries->called;
	}
	if (err)
		return serve_long(cache, asked, since, called, ret_addr);
	cache->called += called;
	glk_unlock_since(&cache->lock, since, &cache->times[GLK_TIMED_REQUEST]);
	GLK_PROBE3(miss, cache->device, asked->size, *ret_addr);
	return 0;
}

/* `plain`: the request has neither flags nor a tag, is of no pool of graphs, and its stream captures nothing. */
static int serve_asked(struct glk_cache *cache, const struct glk_asked *asked, bool plain,
	uint64_t *ret_addr)
{
	int64_t since;

	if (plain && asked->seat)
		return glk_straight_serve(cache, asked, ret_addr);
	since = glk_lock_short(&cache->lock, asked->came);
	return glk_miss_late(cache, asked, since, -ENOMEM, NULL, ret_addr);
}

void glk_cache_guard_held(struct glk_cache *cache, bool every)
{
	glk_own_leave(cache);
	glk_quick_divert(cache, GLK_DIVERT_GUARD, every);
}

void glk_cache_guard(struct glk_cache *cache, bool every)
{
	glk_lock(&cache->lock);
	glk_cache_guard_held(cache, every);
	glk_unlock(&cache->lock);
}

/* A try that is followed by another one, for which the program is not asked for room. */
static int serve_try(
	struct glk_cache *cache, struct glk_asked *asked, bool plain, uint64_t *ret_addr)
{
	int err;

	asked->tries = true;
	glk_thread_current->asked++;
	err = serve_asked(cache, asked, plain, ret_addr);
	glk_thread_current->asked--;
	asked->tries = false;
	return err;
}

/*
 * Once guard was there. A plain request it may want something behind, or elsewhere; any other may want what it keeps.
 * Where there is no room for the first, nor when guard has given back what it keeps, it is served as with none.
 */
static GLK_COLD int serve_guarded(struct glk_cache *cache,
	const struct glk_guard_ops *guard, struct glk_asked *asked, bool plain,
	uint64_t *ret_addr)
{
	bool may = !asked->session && !asked->capture && !asked->flags;
	bool wants, clears;
	int err;

	clears = !asked->session && !asked->capture &&
		!(asked->flags & GLAKE_ALLOC_MANAGED) && guard->clears(cache, asked->tag);
	asked->wiped = guard->wipes(cache);
	if (plain)
		asked->sampled = guard->samples(cache, asked->size);
	if (may)
		asked->behind =
			guard->behind(cache, asked->tag, asked->size, asked->sampled);
	wants = asked->sampled || asked->behind;
	if (plain && wants && !asked->sampled &&
		guard->again(cache, asked->size, asked->id, ret_addr))
		return 0;
	err = serve_try(cache, asked, plain && !wants && !asked->wiped, ret_addr);
	if (err == -ENOMEM && guard->yield(cache) && wants)
		err = serve_try(cache, asked, false, ret_addr);
	if (!err && (wants || clears || asked->wiped))
		guard->born(cache, *ret_addr, asked->handle, wants, clears);
	if (!err || (err != -ENOMEM && !asked->sampled))
		return err;
	if (wants)
		guard->without(cache);
	asked->behind = 0;
	asked->sampled = GLK_SAMPLING_NOT;
	err = serve_asked(cache, asked, plain && !asked->wiped, ret_addr);
	if (!err && (clears || asked->wiped))
		guard->born(cache, *ret_addr, asked->handle, false, clears);
	return err;
}

int glk_cache_miss(struct glk_cache *cache, size_t size, struct CUstream_st *stream,
	uint32_t flags, uint64_t *ret_addr)
{
	struct glk_stream_facts facts = {0};
	struct glk_asked asked = {.size = size,
		.handle = stream,
		.flags = flags,
		.tag = glk_seat_tag(cache),
		.came = glk_clock_ticks()};
	bool plain;
	int err;

	if (!size)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "a block of 0 bytes");
	if (glk_thread_current->told)
		return glk_error(-EBUSY, GLAKE_ERROR_BUSY,
			"a function that is told of moves asks for memory");
	err = glk_cache_start(cache);
	/* the legacy stream captures nothing, and is the one of most programs */
	if (!err && !glk_stream_key(stream))
		asked.id = glk_hit_stream(cache, glk_hit_seat(cache), stream);
	if (!err && !asked.id) {
		err = glk_stream_get(&cache->streams, stream, &facts, &asked.id);
		if (!err && !glk_stream_key(stream))
			glk_store_relaxed(&cache->legacy, asked.id);
	}
	if (!err && !(flags & GLAKE_ALLOC_MANAGED) &&
		(facts.capture ||
			(glk_load_relaxed(&cache->diverted) & ~GLK_DIVERT_GUARD)))
		err = glk_graph_route(cache, stream, &facts, &asked.session);
	if (err)
		return err;
	asked.stream = glk_stream_name(stream);
	asked.seat = glk_hit_seat(cache);
	if (asked.seat && !flags &&
		hit_late(cache, asked.seat, asked.id, asked.stream, size, ret_addr))
		return 0;
	asked.capture = facts.capture;
	plain = !flags && !asked.session && !asked.tag && !facts.capture;
	if (glk_guard_ops(cache))
		return serve_guarded(
			cache, glk_guard_ops(cache), &asked, plain, ret_addr);
	return serve_asked(cache, &asked, plain, ret_addr);
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

int glk_miss_plain(struct glk_cache *cache, uint64_t size, struct CUstream_st *stream,
	void **ret_ptr)
{
	uint64_t addr;
	int err = glk_cache_miss(cache, size, stream, 0, &addr);

	if (!err)
		*ret_ptr = (void *)(uintptr_t)addr;
	return err;
}

int glk_hit_stray(struct glk_cache *cache, uint32_t extent, uint64_t size,
	struct CUstream_st *stream, void **ret_ptr)
{
	glk_quick_stray(cache, extent);
	return glk_miss_plain(cache, size, stream, ret_ptr);
}
