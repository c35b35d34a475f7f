/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What goes into the bins and comes back from them on the slow path: see quick.h. */
#include "cache/quick.h"

#include "base/conf.h"

#include <errno.h>

/* Parts of what is live that may lie in bins, as shifts. */
#define SMALL_PART 10
#define LARGE_PART 3

/* Most bytes and blocks that one miss carves ahead. */
#define REFILL_BYTES  (UINT64_C(256) << 10)
#define REFILL_BLOCKS 255

static uint32_t index_of(const struct glk_cache *cache, const struct glk_row *row)
{
	return (uint32_t)(row - cache->rows);
}

struct glk_row *glk_quick_row(
	struct glk_cache *cache, uint32_t stream, struct CUstream_st *handle)
{
	struct glk_row *row = &cache->rows[stream];

	if (row->entered && glk_load_relaxed(&row->handle) == handle)
		return row;
	for (uint32_t i = 0; i < GLK_BINS; i++) {
		glk_store_relaxed(&row->bin[i].key, GLK_BIN_NONE);
		row->bin[i].refill = 0;
	}
	row->entered = true;
	glk_store_release(&row->handle, handle); /* pairs with: none, a hint */
	if (cache->last_row < stream)
		cache->last_row = stream;
	return row;
}

/* Merges an extent the caller owns with what is free beside it, and nothing more. */
static void merge(struct glk_cache *cache, struct glk_span *span, uint32_t extent,
	uint64_t streams, uint64_t tick)
{
	glk_lookup_leave(span, extent);
	glk_unback(cache, span, extent, streams, tick);
	glk_extent_give_back(span, extent);
}

/* The work of a row's stream so far, as a set of streams; 0 if it has ended. */
static uint64_t use_now(struct glk_cache *cache, uint32_t row)
{
	struct glk_stream *stream = glk_slab_at(&cache->streams.slab, row);

	if (stream->bit >= GLK_STREAM_BITS)
		return 0;
	glk_clock_tick(&cache->streams, stream);
	return glk_stream_mask(stream);
}

static struct glk_span *span_of(struct glk_cache *cache, uint32_t extent)
{
	uint64_t size = glk_extent_at(&cache->map, extent)->size;

	return &cache->map.span[glk_map_kind(&cache->map, size)];
}

/* Merges all blocks of a bin. */
static void empty(struct glk_cache *cache, struct glk_row *row, uint32_t i, uint64_t streams)
{
	uint32_t id, next;

	glk_row_unmark(row, i);
	for (uint32_t h = 0; h < GLK_BIN_HEADS; h++) {
		for (id = glk_quick_take(row, i, h); id; id = next) {
			next = glk_load_relaxed(&glk_quick_link(&cache->map, id)->next);
			merge(cache, span_of(cache, id), id, streams, cache->streams.tick);
		}
	}
}

/* Merges the blocks of a row whose size is of one of the kinds, a bit each. */
static bool empty_row(struct glk_cache *cache, struct glk_row *row, unsigned kinds)
{
	uint64_t streams = 0;
	bool any = false;

	for (uint32_t word = 0; word < GLK_BINS / 64; word++) {
		uint64_t used = glk_load_relaxed(&row->used[word]);

		for (; used; used &= used - 1) {
			uint32_t i = word * 64 + (uint32_t)__builtin_ctzll(used);
			uint64_t key = glk_load_relaxed(&row->bin[i].key);

			if (!(kinds >> glk_map_kind(&cache->map,
					       key << GLK_GRAIN_SHIFT) & 1))
				continue;
			if (!any)
				streams = use_now(cache, index_of(cache, row));
			any = true;
			empty(cache, row, i, streams);
		}
	}
	return any;
}

static bool empty_kinds(struct glk_cache *cache, unsigned kinds)
{
	bool any = false;

	for (uint32_t row = 1; row <= cache->last_row; row++)
		any |= empty_row(cache, &cache->rows[row], kinds);
	cache->flushes += any;
	return any;
}

bool glk_quick_flush(struct glk_cache *cache)
{
	return empty_kinds(cache, ~0u);
}

void glk_quick_end(struct glk_cache *cache, struct CUstream_st *handle)
{
	for (uint32_t i = 1; i <= cache->last_row; i++) {
		struct glk_row *row = &cache->rows[i];

		if (!row->entered || glk_load_relaxed(&row->handle) != handle)
			continue;
		glk_store_relaxed(&row->handle, GLK_ROW_ENDED);
		empty_row(cache, row, ~0u);
	}
}

uint32_t glk_quick_bin(struct glk_cache *cache, struct glk_row *row, uint64_t grains)
{
	uint32_t i = glk_row_find(row, grains), at = index_of(cache, row) * GLK_BINS;

	if (i < GLK_BINS)
		return at + i;
	/* a bin for a smaller size, which is where a block of this one does not go */
	if (cache->conf->policy_bins == GLK_POLICY_BINS_NONE &&
		grains << GLK_GRAIN_SHIFT > cache->small_most)
		return at;
	i = glk_row_hash(grains);
	if (row->used[i / 64] >> i % 64 & 1)
		i ^= 1;
	if (row->used[i / 64] >> i % 64 & 1)
		empty(cache, row, i, use_now(cache, index_of(cache, row)));
	row->bin[i].refill = 0;
	glk_store_relaxed(&row->bin[i].key, grains);
	return at + i;
}

/* Takes one block out of its bin; false if it is not in there. */
static bool pick(struct glk_cache *cache, uint32_t id)
{
	uint32_t bin = glk_load_relaxed(&glk_extent_at(&cache->map, id)->bin);
	struct glk_row *row = glk_quick_row_of(cache, bin);
	uint32_t i = bin % GLK_BINS, reversed = 0, at, next;
	bool found = false;

	glk_row_unmark(row, i);
	for (uint32_t h = 0; h < GLK_BIN_HEADS; h++) {
		for (at = glk_quick_take(row, i, h); at; at = next) {
			struct glk_idnode *link = glk_quick_link(&cache->map, at);

			next = glk_load_relaxed(&link->next);
			if (at == id) {
				found = true;
				continue;
			}
			glk_store_relaxed(&link->next, reversed);
			reversed = at;
		}
	}
	for (at = reversed; at; at = next) {
		next = glk_load_relaxed(&glk_quick_link(&cache->map, at)->next);
		glk_quick_push(row, i, &cache->map, at, 0);
	}
	return found;
}

/* The quick extent on one side, a free one between them left out; 0 if there is none. */
static uint32_t beside(struct glk_cache *cache, uint32_t id, bool after)
{
	for (int steps = 0; steps < 2; steps++) {
		struct glk_extent *e = glk_extent_at(&cache->map, id);

		id = glk_load_relaxed(after ? &e->next : &e->prev);
		if (!id)
			return 0;
		e = glk_extent_at(&cache->map, id);
		if (glk_extent_state(e) != GLK_EXTENT_FREE)
			return glk_extent_state(e) == GLK_EXTENT_QUICK ? id : 0;
	}
	return 0;
}

void glk_quick_merge(struct glk_cache *cache, struct glk_span *span, uint32_t extent,
	uint64_t streams, uint64_t tick)
{
	for (int after = 0; span->kind == GLK_KIND_LARGE && after < 2; after++) {
		uint32_t id;

		while ((id = beside(cache, extent, after)) && pick(cache, id)) {
			uint32_t row = glk_extent_at(&cache->map, id)->bin / GLK_BINS;
			uint64_t use = use_now(cache, row);

			merge(cache, span, id, use, cache->streams.tick);
		}
	}
	merge(cache, span, extent, streams, tick);
}

void glk_quick_stray(struct glk_cache *cache, uint32_t extent)
{
	uint32_t row = glk_extent_at(&cache->map, extent)->bin / GLK_BINS;
	uint64_t streams = use_now(cache, row);

	glk_quick_merge(cache, span_of(cache, extent), extent, streams, cache->streams.tick);
}

/* Bytes in bins, about. */
static uint64_t held(const struct glk_cache *cache, enum glk_kind kind)
{
	int64_t quick = (int64_t)(cache->map.span[kind].taken - cache->sum.given[kind]);

	return quick > 0 ? (uint64_t)quick : 0;
}

bool glk_quick_keep(struct glk_cache *cache, enum glk_kind kind)
{
	if (kind == GLK_KIND_SMALL ||
		held(cache, GLK_KIND_LARGE) <= cache->sum.live >> LARGE_PART)
		return false;
	return empty_kinds(cache, 1u << GLK_KIND_LARGE);
}

bool glk_quick_yield(struct glk_cache *cache, enum glk_kind kind)
{
	if (kind == GLK_KIND_SMALL && held(cache, kind) <= cache->sum.live >> SMALL_PART)
		return false;
	return empty_kinds(cache, 1u << kind);
}

/* Carves a block of the same size right behind one, where pages are, in use by no other
 * stream. 0: there is no room. */
static uint32_t carve_behind(struct glk_cache *cache, struct glk_request *request,
	struct glk_span *span, uint32_t extent)
{
	struct glk_extent *e = glk_extent_at(&cache->map, extent);
	uint64_t offset = e->offset + e->size;
	uint32_t next = glk_load_relaxed(&e->next), first, last, id;

	/* with no extent behind it, new addresses: its page may go on there */
	if (next ? glk_extent_state(glk_extent_at(&cache->map, next)) != GLK_EXTENT_FREE ||
				glk_extent_at(&cache->map, next)->size < request->rounded
		 : request->rounded > span->size - offset)
		return 0;
	first = glk_slot_of(span, offset);
	last = glk_slot_of(span, offset + request->rounded - 1);
	if (glk_bits_count(span->usable, first, last) != last - first + 1 ||
		glk_bits_meet(span->shared, span->usable, first, last))
		return 0;
	for (uint32_t slot = first; slot <= last; slot++) {
		if (glk_clock_waits(&cache->streams, &span->use[slot], request->stream) ||
			!glk_request_may(cache, request, &span->use[slot]))
			return 0;
	}
	if (glk_extent_carve(span, next, offset, request->rounded, &id))
		return 0;
	request->own = false;
	if (glk_back(cache, request, span, id)) {
		glk_extent_give_back(span, id);
		return 0;
	}
	return id;
}

void glk_quick_refill(struct glk_cache *cache, struct glk_request *request,
	struct glk_span *span, uint32_t extent)
{
	struct glk_row *row = glk_quick_row_of(cache, request->bin);
	struct glk_bin *bin = &row->bin[request->bin % GLK_BINS];
	uint64_t most = REFILL_BYTES / request->rounded;
	uint32_t made[REFILL_BLOCKS], count = 0;

	if (most > bin->refill)
		most = bin->refill;
	bin->refill = bin->refill * 2 + 1;
	if (bin->refill > REFILL_BLOCKS)
		bin->refill = REFILL_BLOCKS;
	while (count < most) {
		extent = carve_behind(cache, request, span, extent);
		if (!extent)
			break;
		made[count++] = extent;
	}
	/* the lowest comes out first */
	while (count--) {
		struct glk_extent *e = glk_extent_at(&cache->map, made[count]);

		e->handle = request->stream->handle;
		glk_store_relaxed(&e->bin, request->bin);
		glk_extent_set(e, GLK_EXTENT_QUICK);
		glk_lookup_enter(span, made[count]);
		glk_quick_push(row, request->bin % GLK_BINS, &cache->map, made[count], 0);
	}
}
