/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A free that is no hit, and what may be asked about a block. */
#include "base/error.h"
#include "cache/graph.h"
#include "cache/hit.h"

#include <errno.h>
#include <inttypes.h>

/* The live extent around an address; 0 for none. */
static uint32_t live_at(const struct glk_span *span, uint64_t addr)
{
	uint32_t extent = glk_span_lookup(span, addr);

	if (!extent ||
		glk_extent_state(glk_extent_at(span->map, extent)) != GLK_EXTENT_LIVE)
		return 0;
	return extent;
}

int glk_cache_free(struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream)
{
	return glk_hit_free(cache, addr, stream);
}

/* Says why the address is not that of a live block. */
int glk_block_refuse(struct glk_cache *cache, uint64_t addr)
{
	struct glk_cache *at;
	struct glk_span *span;
	uint32_t extent;

	glk_lock(cache->lock);
	at = glk_graph_cache(cache, addr);
	span = at ? glk_map_span(&at->map, addr) : NULL;
	extent = at ? live_at(span, addr) : 0;
	if (extent)
		glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"0x%" PRIx64 " lies %" PRIu64 " bytes inside a block", addr,
			addr - span->base - glk_extent_at(span->map, extent)->offset);
	else if (at && addr - span->base < span->high)
		glk_error(-EINVAL, GLAKE_ERROR_DOUBLE_FREE,
			"no live block at 0x%" PRIx64 ": it was freed before", addr);
	else
		glk_error(-EINVAL, GLAKE_ERROR_NOT_MINE,
			"0x%" PRIx64 " was never given to anyone", addr);
	glk_unlock(cache->lock);
	return -EINVAL;
}

/*
 * A live block that was used on further streams goes to no bin and has their set in its links,
 * which only free extents need.
 */
static void mark(struct glk_extent *e, uint64_t streams)
{
	uint64_t set = glk_block_marks(e) | streams;

	e->left = (uint32_t)set;
	e->right = (uint32_t)(set >> 32);
	if (glk_load_relaxed(&e->bin) != GLK_BIN_PINNED)
		glk_store_relaxed(&e->bin, GLK_BIN_MARKED);
}

uint64_t glk_block_marks(const struct glk_extent *e)
{
	uint32_t bin = glk_load_relaxed(&e->bin);

	if (bin != GLK_BIN_MARKED && bin != GLK_BIN_PINNED)
		return 0;
	return e->left | (uint64_t)e->right << 32;
}

int glk_cache_use(struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream)
{
	struct glk_stream_facts facts = {0};
	struct glk_cache *at;
	struct glk_stream *s;
	struct glk_extent *e;
	uint32_t id = 0;
	int err;

	/* what it captures is asked for where that matters */
	err = glk_stream_get(cache->streams, stream,
		glk_cache_holds(cache, addr) ? NULL : &facts, &id);
	if (err)
		return err;
	glk_lock(cache->lock);
	s = glk_stream_enter(cache->streams, id);
	at = glk_graph_cache(cache, addr);
	/* not live meanwhile, so that a free at the same time is refused and loses nothing */
	e = at ? glk_lookup_claim(glk_map_span(&at->map, addr), addr) : NULL;
	if (e) {
		if (e->stream != id)
			mark(e, glk_stream_mask(s));
		if (at != cache)
			glk_graph_note(glk_graph_of(at), s, facts.capture);
		glk_extent_set(e, GLK_EXTENT_LIVE);
	}
	glk_unlock(cache->lock);
	return e ? 0 : glk_block_refuse(cache, addr);
}

/*
 * Books a free: the set of streams that used a block are the one it was given to, the one it is
 * freed on, and those it was used on. A stream that has ended and has no more work is in no set.
 */
static struct glk_use note_free(
	struct glk_cache *cache, const struct glk_extent *e, uint32_t freed_on)
{
	struct glk_stream *of = glk_stream_at(cache->streams, e->stream), *on = of;
	struct glk_use use = {.streams = glk_block_marks(e)};

	if (freed_on)
		on = glk_stream_enter(cache->streams, freed_on);
	use.tick = glk_clock_tick(cache->streams, on);
	glk_clock_join(cache->streams, use.streams, use.tick);
	if (of != on && of->state == GLK_STREAM_LIVE)
		of->freed = use.tick;
	use.streams |= glk_stream_mask(of) | glk_stream_mask(on);
	return use;
}

void glk_block_put_back(
	struct glk_cache *cache, struct glk_extent *e, const struct glk_use *use)
{
	uint32_t extent = (uint32_t)(e - glk_quick_base(&cache->map));
	struct glk_span *span = &cache->map.span[e->kind];

	glk_quick_refused(cache, span->kind);
	if (span->kind == GLK_KIND_SINGLE) {
		cache->single_live -= glk_extent_asked(e);
		glk_lookup_leave(span, extent);
		glk_single_park(cache, extent, use->streams, use->tick);
	} else {
		glk_quick_merge(cache, span, extent, use->streams, use->tick);
	}
}

/* Under the lock: takes an extent back that the caller has claimed. */
static void take_back(struct glk_cache *cache, struct glk_seat *seat,
	struct glk_extent *e, struct glk_use use)
{
	glk_seat_free(seat, glk_extent_asked(e));
	if (!glk_pin_hold(cache, e, use.streams))
		glk_block_put_back(cache, e, &use);
}

static struct glk_seat *seat_of(struct glk_cache *cache)
{
	struct glk_seat *seat = glk_seat_take(cache);

	return seat ? seat : glk_slab_at(&cache->seats, 0);
}

/* Under the lock: the same for a block of the GPU's own cache or of a pool of graphs. */
static void take_back_at(struct glk_cache *cache, struct glk_cache *at,
	struct glk_seat *seat, struct glk_extent *e, struct glk_use use)
{
	if (at == cache) {
		take_back(cache, seat, e, use);
		return;
	}
	glk_seat_free(seat, glk_extent_asked(e));
	cache->graph_live -= glk_extent_asked(e);
	take_back(at, glk_slab_at(&at->seats, 0), e, use);
	if (glk_graph_of(at)->state == GLK_GRAPH_LEAVING)
		glk_graph_reap(cache);
}

/* The stream of a free, or 0 for one without: the memory is nobody's then. */
static int freed_on(struct glk_cache *cache, struct CUstream_st *stream,
	struct glk_stream_facts *facts, uint32_t *ret_stream)
{
	int err = glk_stream_get(cache->streams, stream, facts, ret_stream);

	if (err == -ENODEV)
		return 0; /* the GPU is lost, with all of its work */
	/* a new stream that cannot be remembered: nothing of its work may be left then */
	if (err == -ENOMEM)
		err = cache->drv->ops->stream_sync(cache->drv, cache->device, stream);
	return err;
}

int glk_block_give_back(
	struct glk_cache *cache, struct glk_extent *e, struct CUstream_st *stream)
{
	const struct CUstream_st *name = glk_stream_name(stream);
	struct glk_seat *seat = seat_of(cache);
	uint32_t id = 0, bin = glk_load_relaxed(&e->bin);
	int err;

	/* a default stream has more names than one, and the row of its blocks has another */
	if (name != stream && glk_hit_place(cache)->serial == cache->serial &&
		glk_load_relaxed(&glk_quick_row_of(cache, bin)->handle) == name)
		return glk_hit_put(cache, e, glk_stream_name(stream));
	err = freed_on(cache, stream, NULL, &id);
	if (err) {
		glk_extent_set(e, GLK_EXTENT_LIVE);
		return err;
	}
	glk_lock(cache->lock);
	take_back(cache, seat, e, note_free(cache, e, id));
	glk_unlock(cache->lock);
	return 0;
}

int glk_graph_free(struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream)
{
	struct glk_seat *seat = seat_of(cache);
	struct glk_stream_facts facts = {0};
	struct glk_cache *at;
	struct glk_extent *e;
	uint32_t id = 0;
	int err;

	err = freed_on(cache, stream, &facts, &id);
	if (err)
		return err;
	glk_lock(cache->lock);
	at = glk_graph_cache(cache, addr);
	e = at ? glk_lookup_claim(glk_map_span(&at->map, addr), addr) : NULL;
	if (e && facts.capture && at != cache)
		glk_graph_inherit(cache, glk_graph_of(at), facts.capture);
	if (e && id && at != cache)
		glk_graph_note(glk_graph_of(at), glk_stream_enter(cache->streams, id),
			facts.capture);
	if (e)
		take_back_at(cache, at, seat, e, note_free(at, e, id));
	glk_unlock(cache->lock);
	return e ? 0 : glk_block_refuse(cache, addr);
}

static void put_behind(struct glk_cache *cache, uint64_t addr, struct glk_extent *e,
	uint32_t collector)
{
	struct glk_seat *seat = seat_of(cache);
	struct glk_stream *s = NULL;
	struct glk_use use = {0};

	glk_lock(cache->lock);
	if (collector)
		s = glk_stream_enter(cache->streams, collector);
	use.tick = glk_clock_tick(cache->streams, s);
	if (s)
		use.streams = glk_stream_mask(s);
	take_back_at(cache, glk_graph_cache(cache, addr), seat, e, use);
	glk_unlock(cache->lock);
}

int glk_cache_free_after(struct glk_cache *cache, uint64_t addr,
	struct CUevent_st *const *events, size_t count)
{
	struct glk_extent *e;
	struct glk_cache *at;
	uint32_t id = 0;
	int err = 0;

	glk_lock(cache->lock);
	at = glk_graph_cache(cache, addr);
	/* a block that is claimed keeps its pool */
	e = at ? glk_lookup_claim(glk_map_span(&at->map, addr), addr) : NULL;
	glk_unlock(cache->lock);
	if (!e)
		return glk_block_refuse(cache, addr);
	if (count)
		err = glk_collect(cache->streams, events, count, &id);
	if (err) {
		glk_extent_set(e, GLK_EXTENT_LIVE);
		return err;
	}
	put_behind(cache, addr, e, id);
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

int glk_cache_query(struct glk_cache *cache, uint64_t addr, struct glake_block *ret_block)
{
	struct glk_span *span;
	struct glk_cache *at;
	struct glk_extent *e;
	uint32_t extent;
	int err = 0;

	glk_lock(cache->lock);
	at = glk_graph_cache(cache, addr);
	span = at ? glk_map_span(&at->map, addr) : NULL;
	extent = at ? live_at(span, addr) : 0;
	if (!extent) {
		err = glk_error(-EINVAL, GLAKE_ERROR_NOT_MINE,
			"no live block holds 0x%" PRIx64, addr);
		goto out;
	}
	e = glk_extent_at(&at->map, extent);
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
		.stream = glk_stream_at(cache->streams, e->stream)->handle,
	};
	if (at != cache)
		ret_block->pool = glk_graph_of(at)->id;
	if (span->kind == GLK_KIND_SINGLE) {
		ret_block->page_size = e->size;
		ret_block->pages = 1;
	}
	glk_pin_describe(at, span, e, ret_block);
out:
	glk_unlock(cache->lock);
	return err;
}
