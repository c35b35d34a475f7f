/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A request from beginning to end: a place among the addresses, pages behind it, its entry in
 * the tables; and the way back. A request that fails leaves everything as it was.
 */
#include "base/error.h"
#include "cache/device.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/*
 * The place, searched once with what is known of the streams, and once more if the first answer
 * costs driver calls and the streams have more to tell. New events are recorded only where
 * mappings may have to go; a stream wait records its own.
 */
static int seek_place(struct glk_cache *cache, struct glk_request *request,
	struct glk_span *span, struct glk_fit *ret_fit)
{
	struct glk_seek seek = {.cache = cache, .request = request};
	bool learned;
	int err;

	err = glk_fit_search(span, request->rounded, glk_place_check, &seek, ret_fit);
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

static uint64_t book(
	struct glk_cache *cache, struct glk_request *request, uint32_t extent)
{
	struct glk_extent *e = glk_extent_at(&cache->map, extent);
	struct glk_span *span = span_of_request(cache, request);

	e->asked = request->size;
	e->flags = (uint8_t)request->flags;
	e->stream = request->stream->id;
	e->handle = request->stream->handle;
	glk_lookup_enter(span, extent);
	cache->live += request->size;
	cache->given += e->size;
	if (cache->peak_live < cache->live)
		cache->peak_live = cache->live;
	cache->live_blocks++;
	cache->allocs++;
	cache->hits += !request->called;
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

int glk_cache_alloc(struct glk_cache *cache, size_t size, struct CUstream_st *stream,
	uint32_t flags, uint64_t *ret_addr)
{
	struct glk_request request = {.size = size, .flags = flags};
	uint32_t extent, id;
	int err;

	err = glk_cache_start(cache);
	if (err)
		return err;
	err = glk_stream_get(&cache->streams, stream, &id);
	if (err)
		return err;
	glk_lock(&cache->lock);
	err = admit(cache, size);
	if (err)
		goto out;
	request.rounded = (size + GLAKE_GRAIN - 1) & ~(GLAKE_GRAIN - 1);
	request.stream = glk_stream_enter(&cache->streams, id);
	err = flags & GLAKE_ALLOC_CONTIGUOUS ? glk_single_alloc(cache, &request, &extent)
					     : stitched_alloc(cache, &request, &extent);
	if (!err)
		*ret_addr = book(cache, &request, extent);
out:
	cache->oom += err == -ENOMEM;
	glk_unlock(&cache->lock);
	return err;
}

/* The live extent that begins at an address; 0 and a record of what is there instead. */
static uint32_t find_block(struct glk_cache *cache, struct glk_span *span, uint64_t addr)
{
	uint32_t extent = glk_span_lookup(span, addr);

	if (!extent) {
		if (addr - span->base < span->high)
			glk_error(-EINVAL, GLAKE_ERROR_DOUBLE_FREE,
				"no live block at 0x%" PRIx64 ": it was freed before",
				addr);
		else
			glk_error(-EINVAL, GLAKE_ERROR_NOT_MINE,
				"0x%" PRIx64 " was never given to anyone", addr);
		return 0;
	}
	if (span->base + glk_extent_at(&cache->map, extent)->offset != addr) {
		glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"0x%" PRIx64 " lies %" PRIu64 " bytes inside a block", addr,
			addr - span->base - glk_extent_at(&cache->map, extent)->offset);
		return 0;
	}
	return extent;
}

/*
 * The set of streams that used a block: the one it was given to, unless that has ended, and the
 * one it is freed on; 0 for one whose work has finished.
 */
static uint64_t note_free(
	struct glk_cache *cache, const struct glk_extent *e, uint32_t freed_on)
{
	struct glk_stream *of = glk_slab_at(&cache->streams.slab, e->stream), *on = of;
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

static void take_back(struct glk_cache *cache, struct glk_span *span, uint32_t extent,
	uint32_t freed_on)
{
	struct glk_extent *e = glk_extent_at(&cache->map, extent);
	uint64_t streams = note_free(cache, e, freed_on);
	uint64_t tick = cache->streams.tick;

	glk_lookup_leave(span, extent);
	cache->live -= e->asked;
	cache->given -= e->size;
	cache->live_blocks--;
	cache->frees++;
	if (span->kind == GLK_KIND_SINGLE) {
		glk_single_park(cache, extent, streams, tick);
		return;
	}
	glk_unback(cache, span, extent, streams, tick);
	glk_extent_give_back(span, extent);
}

int glk_cache_free(struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream)
{
	struct glk_span *span = glk_map_span(&cache->map, addr);
	uint32_t extent, id = 0;
	int err;

	/* a new stream that cannot be remembered: nothing of its work may be left then */
	if (glk_stream_get(&cache->streams, stream, &id)) {
		err = cache->drv->ops->stream_sync(cache->drv, cache->device, stream);
		if (err)
			return err;
	}
	glk_lock(&cache->lock);
	err = 0;
	extent = find_block(cache, span, addr);
	if (extent)
		take_back(cache, span, extent, id);
	else
		err = -EINVAL;
	glk_unlock(&cache->lock);
	return err;
}

int glk_cache_query(struct glk_cache *cache, uint64_t addr, struct glake_block *ret_block)
{
	struct glk_span *span = glk_map_span(&cache->map, addr);
	struct glk_extent *e;
	uint32_t extent;
	int err = 0;

	glk_lock(&cache->lock);
	extent = glk_span_lookup(span, addr);
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
		.flags = e->flags,
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
