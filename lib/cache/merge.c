/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The way back from the bins: blocks are taken out of them and merge with what is free beside
 * them, as a free without bins would have made them. All under the lock of the GPU.
 */
#include "cache/quick.h"

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
	struct glk_stream *stream = glk_slab_at(&cache->streams->slab, row);

	if (stream->bit >= GLK_STREAM_BITS)
		return 0;
	glk_clock_tick(cache->streams, stream);
	return glk_stream_mask(stream);
}

static struct glk_span *span_of(struct glk_cache *cache, uint32_t extent)
{
	return &cache->map.span[glk_extent_at(&cache->map, extent)->kind];
}

static struct glk_idnode *link_of(const struct glk_cache *cache, uint32_t id)
{
	return glk_quick_link(glk_quick_base(&cache->map), id);
}

static uint32_t next_of(const struct glk_cache *cache, uint32_t id)
{
	return glk_load_relaxed(&link_of(cache, id)->next);
}

void glk_harvest_bin(
	struct glk_cache *cache, struct glk_row *row, uint32_t i, struct glk_harvest *h)
{
	uint32_t id, next;

	for (uint32_t head = 0; head < GLK_TAKES; head++) {
		for (id = glk_quick_take(row, i, head); id; id = next) {
			next = next_of(cache, id);
			glk_store_relaxed(&link_of(cache, id)->next, h->first);
			h->first = id;
			h->count++;
		}
	}
}

static void harvest_kind(struct glk_cache *cache, struct glk_row *row, unsigned kind,
	struct glk_harvest *h)
{
	for (uint32_t word = 0; word < (GLK_BINS + 63) / 64; word++) {
		uint64_t keyed = row->keyed[kind][word];

		for (; keyed; keyed &= keyed - 1)
			glk_harvest_bin(cache, row,
				word * 64 + (uint32_t)__builtin_ctzll(keyed), h);
	}
}

void glk_harvest_row(struct glk_cache *cache, struct glk_row *row, unsigned kinds,
	struct glk_harvest *h)
{
	bool all = true;

	if (!glk_row_untouch(row))
		return;
	for (unsigned kind = 0; kind < GLK_ROW_SORTS; kind++) {
		if (kinds >> kind & 1)
			harvest_kind(cache, row, kind, h);
		else
			all = false;
	}
	if (!all)
		glk_store_relaxed(&row->touched, 1);
}

/* Whether one was freed after another; threads count their frees each for itself. */
static bool newer(const struct glk_cache *cache, uint32_t a, uint32_t b)
{
	return (int32_t)(glk_extent_at(&cache->map, a)->left -
		       glk_extent_at(&cache->map, b)->left) >= 0;
}

/* Two sorted lists, newest first, made one. */
static uint32_t join(struct glk_cache *cache, uint32_t a, uint32_t b)
{
	struct glk_idnode head = {0}, *last = &head;

	while (a && b) {
		uint32_t *from = newer(cache, a, b) ? &a : &b, id = *from;

		*from = next_of(cache, id);
		glk_store_relaxed(&last->next, id);
		last = link_of(cache, id);
	}
	glk_store_relaxed(&last->next, a ? a : b);
	return glk_load_relaxed(&head.next);
}

/* Sorts a list by age: lists of 1, 2, 4 ... blocks, joined as they come in pairs. */
static uint32_t sort(struct glk_cache *cache, uint32_t first)
{
	uint32_t lists[32] = {0}, id, next;
	unsigned i;

	for (id = first; id; id = next) {
		uint32_t list = id;

		next = next_of(cache, id);
		glk_store_relaxed(&link_of(cache, id)->next, 0);
		for (i = 0; i < 31 && lists[i]; i++) {
			list = join(cache, lists[i], list);
			lists[i] = 0;
		}
		lists[i] = lists[i] ? join(cache, lists[i], list) : list;
	}
	for (i = 0, id = 0; i < 32; i++)
		id = lists[i] ? (id ? join(cache, lists[i], id) : lists[i]) : id;
	return id;
}

/*
 * Merges what was taken, the newest first: of pages that become idle here those are stolen
 * first whose block was freed last. (The other order, and none, cost the recorded jobs the same
 * within the spread that any change of addresses brings.) All of it was used until now, as far
 * as the streams' clock goes.
 */
bool glk_harvest_merge(struct glk_cache *cache, struct glk_harvest *h)
{
	uint64_t streams = 0;
	uint32_t id, next, last = 0;

	for (id = sort(cache, h->first); id; id = next) {
		const struct glk_extent *e = glk_extent_at(&cache->map, id);

		next = next_of(cache, id);
		if (e->stream != last)
			streams = use_now(cache, e->stream);
		last = e->stream;
		merge(cache, span_of(cache, id), id, streams, cache->streams->tick);
	}
	return h->count > 0;
}

/* Takes one block out of its bin; false if it is not in there. */
static bool pick(struct glk_cache *cache, uint32_t id)
{
	uint32_t bin = glk_load_relaxed(&glk_extent_at(&cache->map, id)->bin);
	struct glk_row *row = glk_quick_row_of(cache, bin);
	uint32_t i = glk_quick_index(bin), at, next;
	struct glk_harvest h = {0};
	bool found = false;

	/* what was taken last lay deepest and goes back first */
	glk_harvest_bin(cache, row, i, &h);
	for (at = h.first; at; at = next) {
		next = next_of(cache, at);
		found |= at == id;
		if (at != id)
			glk_quick_push(row, i, glk_quick_base(&cache->map), at, 0);
	}
	return found;
}

/* The quick extent of the same stream on one side, a free one between them left out; 0 if there
 * is none. What is quick on another stream is that one's to keep. */
static uint32_t beside(struct glk_cache *cache, uint32_t id, bool after)
{
	uint16_t stream = glk_extent_at(&cache->map, id)->stream;

	for (int steps = 0; steps < 2; steps++) {
		struct glk_extent *e = glk_extent_at(&cache->map, id);

		id = glk_load_relaxed(after ? &e->next : &e->prev);
		if (!id)
			return 0;
		e = glk_extent_at(&cache->map, id);
		if (glk_extent_state(e) != GLK_EXTENT_FREE)
			return glk_extent_state(e) == GLK_EXTENT_QUICK &&
					e->stream == stream
				? id
				: 0;
	}
	return 0;
}

void glk_quick_merge(struct glk_cache *cache, struct glk_span *span, uint32_t extent,
	uint64_t streams, uint64_t tick)
{
	for (int after = 0; span->kind == GLK_KIND_LARGE && after < 2; after++) {
		uint32_t id;

		while ((id = beside(cache, extent, after)) && pick(cache, id)) {
			uint32_t row = glk_extent_at(&cache->map, id)->stream;
			uint64_t use = use_now(cache, row);

			merge(cache, span, id, use, cache->streams->tick);
		}
	}
	merge(cache, span, extent, streams, tick);
}

void glk_quick_stray(struct glk_cache *cache, uint32_t extent)
{
	uint64_t streams;

	glk_lock(cache->lock);
	streams = use_now(cache, glk_extent_at(&cache->map, extent)->stream);
	glk_quick_merge(
		cache, span_of(cache, extent), extent, streams, cache->streams->tick);
	glk_unlock(cache->lock);
}
