/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A request from beginning to end: a place among the addresses, pages behind it, its entry in
 * the tables; and the way back. A request that fails leaves everything as it was.
 */
#include "base/error.h"
#include "cache/ahead.h"
#include "cache/device.h"
#include "cache/hit.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* With more seats than this they are not all added up at each miss. */
#define SUM_SEATS 16

/* The live extent around an address; 0 for none. */
static uint32_t live_at(const struct glk_span *span, uint64_t addr)
{
	uint32_t extent = glk_span_lookup(span, addr);

	if (!extent ||
		glk_extent_state(glk_extent_at(span->map, extent)) != GLK_EXTENT_LIVE)
		return 0;
	return extent;
}

/* Pages ahead, instead of mapping some; for the policy those are mapped now. */
static void try_ahead(struct glk_request *request, struct glk_span *span,
	struct glk_seek *seek, int err, struct glk_fit *fit)
{
	request->mapped = err || !fit->maps
		? 0
		: glk_fit_ahead(span, request->rounded, glk_place_check, seek, fit);
}

/*
 * The place, searched with what is known; again when bins gave blocks back, if pages would have
 * to be mapped; and again if it costs driver calls and the streams have more to tell. New
 * events are recorded only where mappings may have to go; a stream wait records its own.
 */
static int seek_place(struct glk_cache *cache, struct glk_request *request,
	struct glk_span *span, struct glk_fit *ret_fit)
{
	struct glk_seek seek = {.cache = cache, .request = request};
	bool learned;
	int err;

	err = glk_fit_search(span, request->rounded, glk_place_check, &seek, ret_fit);
	if ((err || ret_fit->maps) && glk_quick_yield(cache, span->kind))
		err = glk_fit_search(
			span, request->rounded, glk_place_check, &seek, ret_fit);
	try_ahead(request, span, &seek, err, ret_fit);
	if (!err && !ret_fit->maps && !ret_fit->waits)
		return 0;
	learned = !err && !ret_fit->maps ? glk_clock_ask(&cache->streams)
					 : glk_clock_poll(&cache->streams);
	if (!learned)
		return err;
	err = glk_fit_search(span, request->rounded, glk_place_check, &seek, ret_fit);
	try_ahead(request, span, &seek, err, ret_fit);
	return err;
}

static struct glk_span *span_of_request(
	struct glk_cache *cache, struct glk_request *request)
{
	if (request->flags & GLAKE_ALLOC_CONTIGUOUS)
		return &cache->map.span[GLK_KIND_SINGLE];
	return &cache->map.span[glk_map_kind(&cache->map, request->rounded)];
}

static int stitched_alloc(
	struct glk_cache *cache, struct glk_request *request, uint32_t *ret_extent)
{
	struct glk_span *span = span_of_request(cache, request);
	struct glk_fit fit;
	int err;

	glk_quick_keep(cache, span->kind);
	err = seek_place(cache, request, span, &fit);
	if (err)
		return err;
	request->own = fit.own;
	err = glk_extent_carve(span, fit.from, fit.offset, request->rounded, ret_extent);
	if (err)
		return err;
	err = glk_back(cache, request, span, *ret_extent);
	if (err)
		glk_extent_give_back(span, *ret_extent);
	return err;
}

static uint64_t book(struct glk_cache *cache, struct glk_request *request,
	struct glk_seat *seat, uint32_t extent)
{
	struct glk_extent *e = glk_extent_at(&cache->map, extent);
	struct glk_span *span = span_of_request(cache, request);

	glk_store_relaxed(&e->slack, (uint32_t)(e->size - request->size));
	e->stream = (uint16_t)request->stream->id;
	if (span->kind == GLK_KIND_LARGE)
		glk_extent_settle(span, extent);
	glk_store_relaxed(&e->bin, request->bin);
	glk_lookup_enter(span, extent);
	if (span->kind == GLK_KIND_SINGLE)
		cache->single_live += request->size;
	glk_seat_alloc(seat, request->size);
	glk_seats_note_peak(cache, cache->sum.live + request->size);
	cache->served++;
	cache->called += request->called;
	cache->stitches += request->stitched;
	return span->base + e->offset;
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

/* Under the lock. */
static int serve(struct glk_cache *cache, struct glk_request *request,
	struct glk_seat *seat, struct glk_row *row, uint64_t *ret_addr)
{
	bool single = request->flags & GLAKE_ALLOC_CONTIGUOUS;
	uint32_t extent;
	int err;

	err = admit(cache, request->size);
	if (err)
		return err;
	sum_up(cache);
	/* a contiguous one goes to none: nobody's row is row 0 */
	request->bin = single
		? 0
		: glk_quick_bin(cache, row, request->rounded >> GLK_GRAIN_SHIFT);
	err = single ? glk_single_alloc(cache, request, &extent)
		     : stitched_alloc(cache, request, &extent);
	/* blocks in bins keep addresses and descriptors, of which there is an end too */
	if (err == -ENOMEM && (glk_ahead_rest(cache) | glk_quick_flush(cache)))
		err = single ? glk_single_alloc(cache, request, &extent)
			     : stitched_alloc(cache, request, &extent);
	if (err)
		return err;
	*ret_addr = book(cache, request, seat, extent);
	if (request->mapped)
		glk_quick_mapped(cache, span_of_request(cache, request), request->mapped);
	if (!single && span_of_request(cache, request)->kind == GLK_KIND_SMALL)
		glk_quick_refill(cache, request, span_of_request(cache, request), extent);
	if (cache->ahead)
		request->wake = glk_ahead_note(cache, span_of_request(cache, request)->kind);
	return 0;
}

int glk_cache_miss(struct glk_cache *cache, size_t size, struct CUstream_st *stream,
	uint32_t flags, uint64_t *ret_addr)
{
	struct glk_request request = {.size = size, .flags = flags};
	struct glk_seat *seat;
	struct glk_row *row;
	uint32_t id;
	int err;

	if (!size)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "a block of 0 bytes");
	err = glk_cache_start(cache);
	if (err)
		return err;
	err = glk_stream_get(&cache->streams, stream, &id);
	if (err)
		return err;
	seat = glk_seat_take(cache);
	glk_lock(&cache->lock);
	row = glk_quick_row(cache, id, stream);
	if (seat)
		seat->rows[glk_seat_hash(stream)] = row;
	else
		seat = glk_slab_at(&cache->seats, 0);
	request.rounded = glk_quick_grains(cache, size) << GLK_GRAIN_SHIFT;
	request.stream = glk_stream_enter(&cache->streams, id);
	err = serve(cache, &request, seat, row, ret_addr);
	cache->oom += err == -ENOMEM;
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

/* The bin of the request, where two threads may meet, or the one beside it. */
static uint32_t pop_any(
	struct glk_cache *cache, uint64_t grains, struct CUstream_st *stream)
{
	const struct glk_thread_seat *place = glk_hit_place(cache);
	struct glk_seat *seat = place->seat;
	struct glk_row *row;
	uint32_t i;

	if (place->serial != cache->serial)
		return 0;
	row = seat->rows[glk_seat_hash(stream)];
	i = glk_row_find(row, grains);
	if (glk_load_relaxed(&row->handle) != stream || i == GLK_BINS)
		return 0;
	return glk_quick_pop(row, i, glk_quick_base(&cache->map), seat->id);
}

int glk_hit_not(struct glk_cache *cache, uint64_t size, struct CUstream_st *stream,
	void **ret_ptr)
{
	uint64_t grains = glk_quick_grains(cache, size), addr;
	uint32_t id = size ? pop_any(cache, grains, stream) : 0;
	struct glk_extent *e = id ? glk_extent_at(&cache->map, id) : NULL;
	int err;

	if (id && e->size != grains << GLK_GRAIN_SHIFT)
		return glk_hit_stray(cache, id, size, stream, ret_ptr);
	if (id) {
		addr = glk_hit_revive(glk_hit_place(cache)->seat, e, size);
	} else {
		err = glk_cache_miss(cache, size, stream, 0, &addr);
		if (err)
			return err;
	}
	*ret_ptr = (void *)(uintptr_t)addr;
	return 0;
}

int glk_hit_stray(struct glk_cache *cache, uint32_t extent, uint64_t size,
	struct CUstream_st *stream, void **ret_ptr)
{
	uint64_t addr;
	int err;

	glk_quick_stray(cache, extent);
	err = glk_cache_miss(cache, size, stream, 0, &addr);
	if (!err)
		*ret_ptr = (void *)(uintptr_t)addr;
	return err;
}

int glk_cache_free(struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream)
{
	return glk_hit_free(cache, addr, stream);
}

/* Says why the address is not that of a live block. */
int glk_block_refuse(struct glk_cache *cache, uint64_t addr)
{
	struct glk_span *span = glk_map_span(&cache->map, addr);
	uint32_t extent;

	glk_lock(&cache->lock);
	extent = live_at(span, addr);
	if (extent)
		glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"0x%" PRIx64 " lies %" PRIu64 " bytes inside a block", addr,
			addr - span->base - glk_extent_at(&cache->map, extent)->offset);
	else if (addr - span->base < span->high)
		glk_error(-EINVAL, GLAKE_ERROR_DOUBLE_FREE,
			"no live block at 0x%" PRIx64 ": it was freed before", addr);
	else
		glk_error(-EINVAL, GLAKE_ERROR_NOT_MINE,
			"0x%" PRIx64 " was never given to anyone", addr);
	glk_unlock(&cache->lock);
	return -EINVAL;
}

/*
 * The set of streams that used a block: the one it was given to, unless that has ended, and the
 * one it is freed on; 0 for one whose work has finished.
 */
static uint64_t note_free(
	struct glk_cache *cache, const struct glk_extent *e, uint32_t freed_on)
{
	struct glk_stream *of = glk_slab_at(&cache->streams.slab, e->stream);
	struct glk_stream *on = of;
	uint64_t tick;

	if (freed_on)
		on = glk_stream_enter(&cache->streams, freed_on);
	if (on->bit >= GLK_STREAM_BITS)
		return 0;
	tick = glk_clock_tick(&cache->streams, on);
	if (of == on || of->bit >= GLK_STREAM_BITS)
		return glk_stream_mask(on);
	of->freed = tick;
	return glk_stream_mask(on) | glk_stream_mask(of);
}

int glk_block_give_back(
	struct glk_cache *cache, struct glk_extent *e, struct CUstream_st *stream)
{
	uint32_t extent = (uint32_t)(e - glk_quick_base(&cache->map));
	struct glk_span *span = &cache->map.span[e->kind];
	struct glk_seat *seat = glk_seat_take(cache);
	uint64_t streams;
	uint32_t id = 0;
	int err = 0;

	/* a new stream that cannot be remembered: nothing of its work may be left then */
	if (glk_stream_get(&cache->streams, stream, &id))
		err = cache->drv->ops->stream_sync(cache->drv, cache->device, stream);
	if (err) {
		glk_extent_set(e, GLK_EXTENT_LIVE);
		return err;
	}
	glk_lock(&cache->lock);
	if (!seat)
		seat = glk_slab_at(&cache->seats, 0);
	glk_seat_free(seat, glk_extent_asked(e));
	streams = note_free(cache, e, id);
	glk_quick_refused(cache, span->kind);
	if (span->kind == GLK_KIND_SINGLE) {
		cache->single_live -= glk_extent_asked(e);
		glk_lookup_leave(span, extent);
		glk_single_park(cache, extent, streams, cache->streams.tick);
	} else {
		glk_quick_merge(cache, span, extent, streams, cache->streams.tick);
	}
	glk_unlock(&cache->lock);
	return 0;
}

int glk_hit_push(struct glk_cache *cache, struct glk_extent *e)
{
	struct glk_extent *base = glk_quick_base(&cache->map);
	const struct glk_seat *seat = glk_hit_place(cache)->seat;
	uint32_t name = glk_load_relaxed(&e->bin);

	if (glk_quick_push(glk_quick_row_of(cache, name), glk_quick_index(name), base,
		    (uint32_t)(e - base), seat->id))
		glk_quick_crowd(cache, glk_quick_bin_of(cache, name));
	return 0;
}

int glk_hit_other(struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream)
{
	struct glk_extent *e = glk_lookup_claim(glk_map_span(&cache->map, addr), addr);
	uint32_t name;

	if (!e)
		return glk_block_refuse(cache, addr);
	name = glk_load_relaxed(&e->bin);
	if (glk_hit_place(cache)->serial != cache->serial ||
		glk_load_relaxed(&glk_quick_row_of(cache, name)->handle) != stream)
		return glk_block_give_back(cache, e, stream);
	return glk_hit_put(cache, e, stream);
}

int glk_hit_put(struct glk_cache *cache, struct glk_extent *e, struct CUstream_st *stream)
{
	if (e->kind == glk_load_relaxed(&cache->lonely) &&
		!glk_quick_lonely(cache, e, glk_load_relaxed(&e->bin)))
		return glk_block_give_back(cache, e, stream);
	glk_hit_leave(glk_hit_place(cache)->seat, e);
	return glk_hit_push(cache, e);
}

void glk_cache_stream_end(struct glk_cache *cache, struct CUstream_st *stream)
{
	glk_lock(&cache->lock);
	glk_quick_end(cache, stream);
	glk_unlock(&cache->lock);
	glk_stream_retire(&cache->streams, stream);
}

int glk_cache_query(struct glk_cache *cache, uint64_t addr, struct glake_block *ret_block)
{
	struct glk_span *span = glk_map_span(&cache->map, addr);
	struct glk_extent *e;
	uint32_t extent;
	int err = 0;

	glk_lock(&cache->lock);
	extent = live_at(span, addr);
	if (!extent) {
		err = glk_error(-EINVAL, GLAKE_ERROR_NOT_MINE,
			"no live block holds 0x%" PRIx64, addr);
		goto out;
	}
	e = glk_extent_at(&cache->map, extent);
	*ret_block = (struct glake_block){
		.sz = sizeof(*ret_block),
		.base = (void *)(uintptr_t)(span->base + e->offset),
		.size = glk_extent_asked(e),
		.given = e->size,
		.device = cache->device,
		.flags = span->kind == GLK_KIND_SINGLE ? GLAKE_ALLOC_CONTIGUOUS : 0,
		.page_size = (size_t)1 << span->shift,
		.pages = glk_slot_of(span, e->offset + e->size - 1) -
			glk_slot_of(span, e->offset) + 1,
		.stream = glk_load_relaxed(&cache->rows[e->stream].handle),
	};
	if (span->kind == GLK_KIND_SINGLE) {
		ret_block->page_size = e->size;
		ret_block->pages = 1;
	}
out:
	glk_unlock(&cache->lock);
	return err;
}
