/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A request from beginning to end: a place among the addresses, pages behind it, its entry in
 * the tables; and the way back. A request that fails leaves everything as it was.
 */
#include "base/conf.h"
#include "base/error.h"
#include "cache/device.h"
#include "cache/quick.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* With more seats than this they are not all added up at each miss. */
#define SUM_SEATS 16

/* The live extent around an address; 0 for none. */
static uint32_t live_at(const struct glk_span *span, uint64_t addr)
{
	uint32_t extent = glk_span_lookup(span, addr);

	if (!extent || glk_extent_state(glk_extent_at(span->map, extent)) != GLK_EXTENT_LIVE)
		return 0;
	return extent;
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
	if (!err && !ret_fit->maps && !ret_fit->waits)
		return 0;
	learned = !err && !ret_fit->maps ? glk_clock_ask(&cache->streams)
					 : glk_clock_poll(&cache->streams);
	if (!learned)
		return err;
	return glk_fit_search(span, request->rounded, glk_place_check, &seek, ret_fit);
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

	glk_store_relaxed(&e->asked, request->size);
	e->handle = request->stream->handle;
	glk_store_relaxed(&e->bin, request->bin);
	glk_lookup_enter(span, extent);
	glk_seat_alloc(seat, span->kind, request->size, e->size);
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
	request->bin = glk_quick_bin(cache, row, request->rounded >> GLK_GRAIN_SHIFT);
	err = single ? glk_single_alloc(cache, request, &extent)
		     : stitched_alloc(cache, request, &extent);
	/* blocks in bins keep addresses and descriptors, of which there is an end too */
	if (err == -ENOMEM && glk_quick_flush(cache))
		err = single ? glk_single_alloc(cache, request, &extent)
			     : stitched_alloc(cache, request, &extent);
	if (err)
		return err;
	*ret_addr = book(cache, request, seat, extent);
	if (!single && span_of_request(cache, request)->kind == GLK_KIND_SMALL)
		glk_quick_refill(cache, request, span_of_request(cache, request), extent);
	return 0;
}

/* A request that no bin serves. */
static int miss(struct glk_cache *cache, size_t size, struct CUstream_st *stream,
	uint32_t flags, uint64_t *ret_addr)
{
	struct glk_request request = {.size = size, .flags = flags};
	struct glk_seat *seat;
	struct glk_row *row;
	uint32_t id;
	int err;

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
	return err;
}

/* The seat of the calling thread if it has been here before. */
static inline struct glk_seat *my_seat(const struct glk_cache *cache)
{
	const struct glk_thread *thread = glk_thread_current;
	unsigned at = (unsigned)cache->device % GLK_THREAD_SEATS;

	if (!thread || thread->seats[at].serial != cache->serial || !cache->serial)
		return NULL;
	return thread->seats[at].seat;
}

/* Gives an extent out again. It may be of another size, by a bin that changed meanwhile. */
static int revive(struct glk_cache *cache, struct glk_seat *seat, uint32_t id,
	size_t size, uint64_t rounded, uint64_t *ret_addr)
{
	struct glk_extent *e = glk_extent_at(&cache->map, id);
	struct glk_span *span = &cache->map.span[glk_map_kind(&cache->map, e->size)];

	if (e->size != rounded) {
		glk_lock(&cache->lock);
		glk_quick_stray(cache, id);
		glk_unlock(&cache->lock);
		return -EAGAIN;
	}
	glk_store_relaxed(&e->asked, size);
	glk_extent_set(e, GLK_EXTENT_LIVE);
	glk_seat_alloc(seat, span->kind, size, rounded);
	*ret_addr = span->base + e->offset;
	return 0;
}

int glk_cache_alloc(struct glk_cache *cache, size_t size, struct CUstream_st *stream,
	uint32_t flags, uint64_t *ret_addr)
{
	struct glk_seat *seat = my_seat(cache);
	struct glk_row *row;
	uint64_t grains;
	uint32_t i, id;

	if (!seat || flags)
		return miss(cache, size, stream, flags, ret_addr);
	row = seat->rows[glk_seat_hash(stream)];
	if (!row || glk_load_relaxed(&row->handle) != stream)
		return miss(cache, size, stream, flags, ret_addr);
	grains = glk_quick_grains(cache, size);
	i = glk_row_find(row, grains);
	if (i == GLK_BINS)
		return miss(cache, size, stream, flags, ret_addr);
	id = glk_quick_pop(row, i, &cache->map, seat->id);
	if (!id || revive(cache, seat, id, size, grains << GLK_GRAIN_SHIFT, ret_addr))
		return miss(cache, size, stream, flags, ret_addr);
	return 0;
}

/* Says why the address is not that of a live block. */
static int refuse(struct glk_cache *cache, struct glk_span *span, uint64_t addr)
{
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
	struct glk_stream *of = glk_slab_at(&cache->streams.slab, e->bin / GLK_BINS);
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

/* The caller owns the extent, which goes to no bin. */
static int give_back(struct glk_cache *cache, struct glk_span *span, uint32_t extent,
	struct CUstream_st *stream)
{
	struct glk_extent *e = glk_extent_at(&cache->map, extent);
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
	glk_seat_free(seat, span->kind, e->asked, e->size);
	streams = note_free(cache, e, id);
	if (span->kind == GLK_KIND_SINGLE) {
		glk_lookup_leave(span, extent);
		glk_single_park(cache, extent, streams, cache->streams.tick);
	} else {
		glk_quick_merge(cache, span, extent, streams, cache->streams.tick);
	}
	glk_unlock(&cache->lock);
	return 0;
}

/* Whether a block may go to its bin: freed on its stream, the bin is still for its size, and
 * the policy wants it there. */
static inline bool may_stay(const struct glk_cache *cache, const struct glk_span *span,
	const struct glk_extent *e, uint32_t bin, const struct CUstream_st *stream)
{
	const struct glk_row *row = glk_quick_row_of(cache, bin);

	if (glk_load_relaxed(&row->handle) != stream ||
		glk_load_relaxed(&row->bin[bin % GLK_BINS].key) !=
			e->size >> GLK_GRAIN_SHIFT ||
		span->kind == GLK_KIND_SINGLE)
		return false;
	return span->kind != GLK_KIND_LARGE ||
		cache->conf->policy_bins == GLK_POLICY_BINS_ALL ||
		(glk_quick_beside(&cache->map, glk_load_relaxed(&e->prev), bin) &&
			glk_quick_beside(&cache->map, glk_load_relaxed(&e->next), bin));
}

int glk_cache_free(struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream)
{
	struct glk_span *span = glk_map_span(&cache->map, addr);
	uint32_t extent = glk_lookup_base(span, addr), bin;
	struct glk_seat *seat = my_seat(cache);
	struct glk_extent *e = glk_extent_at(&cache->map, extent);

	if (!extent || !glk_word_claim(&e->word, addr - span->base))
		return refuse(cache, span, addr);
	bin = glk_load_relaxed(&e->bin);
	if (!seat || !may_stay(cache, span, e, bin, stream))
		return give_back(cache, span, extent, stream);
	glk_seat_free(seat, span->kind, glk_load_relaxed(&e->asked), e->size);
	glk_quick_push(glk_quick_row_of(cache, bin), bin % GLK_BINS, &cache->map, extent,
		seat->id);
	return 0;
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
		.size = e->asked,
		.given = e->size,
		.device = cache->device,
		.flags = span->kind == GLK_KIND_SINGLE ? GLAKE_ALLOC_CONTIGUOUS : 0,
		.page_size = (size_t)1 << span->shift,
		.pages = glk_slot_of(span, e->offset + e->size - 1) -
			glk_slot_of(span, e->offset) + 1,
		.stream = e->handle,
	};
	if (span->kind == GLK_KIND_SINGLE) {
		ret_block->page_size = e->size;
		ret_block->pages = 1;
	}
out:
	glk_unlock(&cache->lock);
	return err;
}
