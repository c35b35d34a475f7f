/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A request that is no hit, from beginning to end: a place among the addresses, pages behind
 * it, its entry in the tables. A request that fails leaves everything as it was.
 */
#include "base/error.h"
#include "cache/ahead.h"
#include "cache/device.h"
#include "cache/graph/graph.h"
#include "cache/bin/hit.h"

#include <errno.h>
#include <inttypes.h>

/* With more seats than this they are not all added up at each miss. */
#define SUM_SEATS 16

/* Pages ahead, instead of mapping some. */
static void try_ahead(
	struct glk_cache *cache, const struct glk_want *want, struct glk_fit *fit)
{
	if (cache->ahead && fit->maps)
		glk_fit_ahead(&cache->map, want, fit);
}

/* The search, with more addresses where those there are have no place. */
static int search(
	struct glk_cache *cache, const struct glk_want *want, struct glk_fit *ret_fit)
{
	int err = glk_fit_search(&cache->map, want, ret_fit);

	if (!err || glk_map_extend(&cache->map, want->size))
		return err;
	return glk_fit_search(&cache->map, want, ret_fit);
}

static int no_addresses(struct glk_cache *cache, uint64_t size)
{
	const struct glk_map *map = &cache->map;

	return glk_error(-ENOMEM, GLAKE_ERROR_ADDRESS,
		"no free addresses for a block of %" PRIu64 " bytes: %" PRIu64
		" bytes of them are reserved, of the %" PRIu64
		" that map.span allows, and the largest hole has %" PRIu64,
		size, map->size, map->most, glk_tree_largest(map, &map->common));
}

/*
 * Searched with what is known; again when bins gave blocks back, if pages would have to be
 * mapped; and again if it costs driver calls and the streams have more to tell. New events are
 * recorded only where mappings may have to go; a stream wait records its own.
 */
int glk_place_seek(struct glk_cache *cache, struct glk_request *request,
	const struct glk_want *want, struct glk_fit *ret_fit)
{
	bool learned;
	int err;

	err = search(cache, want, ret_fit);
	if ((err || ret_fit->maps) && glk_quick_yield(cache, request))
		err = search(cache, want, ret_fit);
	if (err)
		return no_addresses(cache, want->size);
	try_ahead(cache, want, ret_fit);
	if (!ret_fit->maps && !ret_fit->waits)
		return 0;
	learned = !ret_fit->maps ? glk_event_peek(cache->streams)
				 : glk_event_poll(cache->streams);
	if (!learned)
		return 0;
	err = search(cache, want, ret_fit);
	if (err)
		return no_addresses(cache, want->size);
	try_ahead(cache, want, ret_fit);
	return 0;
}

/* Times that a place is looked for where a stream could not be waited for after all: it just
 * began to capture a graph, or ended unannounced. */
#define TRIES (GLK_STREAM_BITS + 1)

static int try_block(
	struct glk_cache *cache, struct glk_request *request, uint32_t *ret_extent)
{
	struct glk_map *map = &cache->map;
	bool whole = request->flags & GLAKE_ALLOC_CONTIGUOUS;
	struct glk_seek seek = {.cache = cache, .request = request};
	struct glk_want want = {.size = request->rounded,
		.kind = whole ? GLK_FIT_WHOLE : GLK_FIT_BLOCK,
		.trim = request->trim,
		.fn = glk_place_check,
		.arg = &seek};
	struct glk_fit fit;
	int err;

	err = glk_place_seek(cache, request, &want, &fit);
	if (err)
		return err;
	request->own = fit.own;
	err = glk_extent_carve(map, fit.from, fit.offset, request->rounded, ret_extent);
	if (err)
		return err;
	glk_extent_at(map, *ret_extent)->whole = whole;
	err = glk_back(cache, request, *ret_extent);
	if (err)
		glk_extent_give_back(map, *ret_extent);
	return err;
}

static int alloc(
	struct glk_cache *cache, struct glk_request *request, uint32_t *ret_extent)
{
	bool small = request->rounded <= cache->small_most &&
		!(request->flags & GLAKE_ALLOC_CONTIGUOUS);
	int err = -EAGAIN;

	cache->streams->stuck = false;
	for (int i = 0; i < TRIES && err == -EAGAIN; i++) {
		err = small ? glk_small_alloc(cache, request, ret_extent)
			    : try_block(cache, request, ret_extent);
		if (err != -ENOSPC)
			continue;
		/* the smallest of those that lie among all others */
		request->rounded = cache->small_most + (UINT64_C(1) << GLK_GRAIN_SHIFT);
		request->bin = 0;
		small = false;
		err = -EAGAIN;
	}
	if (err == -EAGAIN)
		err = glk_error(-EBUSY, GLAKE_ERROR_CAPTURE,
			"memory could be had behind streams that capture a graph only");
	return err;
}

static uint64_t book(struct glk_cache *cache, struct glk_request *request,
	struct glk_seat *seat, uint32_t extent)
{
	struct glk_extent *e = glk_extent_at(&cache->map, extent);

	glk_store_relaxed(&e->slack, (uint32_t)(e->size - request->size));
	e->stream = (uint16_t)request->stream->id;
	glk_store_relaxed(&e->bin, request->bin);
	glk_lookup_enter(&cache->map, extent);
	glk_seat_alloc(seat, request->size, e->size);
	glk_seats_note_peak(cache, cache->sum.live + request->size);
	cache->served++;
	cache->called += request->called;
	cache->stitches += request->stitched;
	return glk_load_relaxed(&e->addr);
}

static int admit(struct glk_cache *cache, size_t size)
{
	uint64_t most = glk_load_relaxed(&cache->node->budget);

	if (most > cache->memory)
		most = cache->memory;
	if (size <= most)
		return 0;
	return glk_error(-ENOMEM, GLAKE_ERROR_NOMEM_DEVICE,
		"%zu bytes were asked of GPU %d, which may hold %" PRIu64, size,
		cache->device, most);
}

/* The sums of all seats that the policy goes by; with many threads they may be old. */
static void sum_up(struct glk_cache *cache)
{
	uint32_t used = glk_load_relaxed(&cache->seats.used);

	if (used <= SUM_SEATS || cache->served % used == 0)
		glk_seats_sum(cache, &cache->sum);
}

static bool make_room(struct glk_cache *cache)
{
	bool rested = glk_ahead_rest(cache);

	return glk_quick_flush(cache) || rested;
}

/*
 * A page that reaches beyond an end of the place gives a part of itself only. Where the memory
 * that nobody uses would do for the request, all of it is given back, so that there is room for
 * pages of its measure.
 */
static bool recut(struct glk_cache *cache, uint64_t size)
{
	struct glk_node *node = cache->node;
	uint64_t idle = (cache->map.idle_slots << cache->map.shift) + glk_node_free(node);
	uint64_t budget = glk_load_relaxed(&node->budget);
	uint64_t held = glk_load_relaxed(&node->held);

	if (budget != UINT64_MAX && budget > held)
		idle += budget - held;
	return cache->home == cache && idle >= size &&
		glk_ladder_release(cache, UINT64_MAX, UINT32_MAX);
}

/* Whether the work of all streams is done now. Why memory is short stays on record if not. */
static bool wait_for_all(struct glk_cache *cache)
{
	struct glk_thread *thread = glk_thread_self();
	struct glake_error why = glk_thread_current->error;
	bool done = !glk_clock_sync(cache->streams, ~UINT64_C(0));

	if (!done && thread)
		thread->error = why;
	return done;
}

int glk_cache_serve(struct glk_cache *cache, struct glk_request *request,
	struct glk_seat *seat, struct glk_row *row, uint64_t *ret_addr)
{
	bool whole = request->flags & GLAKE_ALLOC_CONTIGUOUS;
	uint64_t slot = glk_slot_bytes(&cache->map);
	uint32_t extent;
	int err;

	err = admit(cache, request->size);
	if (err)
		return err;
	sum_up(cache);
	if (whole)
		request->rounded = (request->size + slot - 1) & ~(slot - 1);
	/* a contiguous one and one of a graph go to none: nobody's row is row 0 */
	request->bin = whole || !row
		? 0
		: glk_quick_bin(cache, row, request->rounded >> GLK_GRAIN_SHIFT);
	request->trim = cache->map.stranded && glk_supply_tight(cache, request->size);
	err = alloc(cache, request, &extent);
	/* blocks in bins keep addresses and descriptors, of which there is an end too */
	if (err == -ENOMEM && make_room(cache))
		err = alloc(cache, request, &extent);
	if (err == -ENOMEM && recut(cache, request->rounded))
		err = alloc(cache, request, &extent);
	/* holes that are there may be had when the work of their streams is done, and also where
	 * more streams than there are tries cannot be waited for, one by one */
	if ((err == -ENOMEM || err == -EBUSY) && cache->home == cache &&
		wait_for_all(cache))
		err = alloc(cache, request, &extent);
	if (err)
		return err;
	*ret_addr = book(cache, request, seat, extent);
	if (request->bin && request->rounded <= cache->small_most)
		glk_quick_refill(cache, request, extent);
	if (cache->ahead)
		request->wake = glk_ahead_note(cache);
	return 0;
}

/* Pops from the bin of a size in a row, where two threads may meet, or the one beside it. */
static uint32_t pop_any(struct glk_cache *cache, const struct glk_seat *seat,
	struct glk_row *row, uint64_t grains)
{
	uint32_t i = glk_row_find(row, grains);

	if (i == GLK_BINS)
		return 0;
	return glk_quick_pop(row, i, glk_quick_base(&cache->map), seat->id);
}

/* A block that was popped, if it is of the size that was asked for. */
static bool revive(struct glk_cache *cache, struct glk_seat *seat, uint32_t id,
	uint64_t size, uint64_t *ret_addr)
{
	struct glk_extent *e = glk_extent_at(&cache->map, id);

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

/* Under the lock: from a pool of graphs. The figures of the GPU count it too. */
static int serve_graph(struct glk_cache *cache, struct glk_request *request,
	struct glk_seat *seat, uint64_t session, uint64_t *ret_addr)
{
	struct glk_graph *graph = glk_graph_session(cache, session);
	int err;

	if (!graph)
		return glk_error(-EBUSY, GLAKE_ERROR_CAPTURE,
			"the pool of the graph was ended by another thread");
	glk_graph_note(graph, request->stream, request->capture);
	err = glk_cache_serve(&graph->cache, request,
		glk_slab_at(&graph->cache.seats, 0), NULL, ret_addr);
	if (err)
		return err;
	glk_seat_alloc(seat, request->size, request->rounded);
	sum_up(cache);
	glk_seats_note_peak(cache, cache->sum.live);
	cache->graph_live += request->size;
	cache->served++;
	cache->called += request->called;
	cache->stitches += request->stitched;
	return 0;
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
	struct glk_request request = {.size = size, .flags = flags};
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
		err = glk_stream_get(cache->streams, stream, &facts, &id);
	if (!err && (facts.capture || glk_load_relaxed(&cache->diverted)))
		err = glk_graph_route(cache, stream, &facts, &session);
	if (err)
		return err;
	stream = glk_stream_name(stream);
	seat = glk_seat_take(cache);
	if (seat && !flags && hit_late(cache, seat, id, stream, size, ret_addr))
		return 0;
	glk_lock(cache->lock);
	request.stream = glk_stream_enter(cache->streams, id);
	if (request.stream->bit >= GLK_STREAM_BITS) {
		glk_unlock(cache->lock);
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"the stream was ended by another thread");
	}
	if (cache->ended != cache->streams->ended)
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
		      : glk_cache_serve(cache, &request, seat, row, ret_addr);
	cache->oom += err == -ENOMEM;
	glk_unlock(cache->lock);
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
			id = pop_any(
				cache, place->seat, row, glk_quick_grains(size));
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
