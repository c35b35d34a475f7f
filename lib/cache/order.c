/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which memory a stream may have. Memory that was last used on the stream itself is its own
 * in stream order; other memory serves it by the policy of the section stream: when it is
 * known to be behind it, to have finished, or behind a stream wait.
 */
#include "base/conf.h"
#include "cache/graph.h"

/* Whether other streams may be in a use; a stream of the crowd is not told from its others. */
static bool foreign(const struct glk_stream *stream, const struct glk_use *use)
{
	return stream->bit == GLK_STREAM_CROWD ||
		(use->streams & ~glk_stream_mask(stream));
}

/* In a pool of graphs, see settle.c. No wait of ours can be in a graph. */
static bool graph_may(struct glk_cache *cache, const struct glk_request *request,
	const struct glk_use *use)
{
	if (!foreign(request->stream, use) &&
		(!request->capture || use->tick > glk_graph_of(cache)->since))
		return true;
	return glk_clock_finished(cache->streams, use);
}

/* Whether memory needs no look: in a pool of graphs all does. */
static bool is_own(const struct glk_cache *cache, const struct glk_stream *stream,
	const struct glk_use *use)
{
	return cache->home == cache && !foreign(stream, use);
}

bool glk_request_may(struct glk_cache *cache, const struct glk_request *request,
	const struct glk_use *use, unsigned *ret_waits)
{
	if (cache->home != cache) {
		*ret_waits = 0;
		return graph_may(cache, request, use);
	}
	*ret_waits = glk_clock_waits(cache->streams, use, request->stream);
	return !*ret_waits ||
		(*ret_waits < GLK_WAITS_NEVER && cache->conf->stream_internal_dependencies);
}

int glk_request_order(
	struct glk_cache *cache, struct glk_request *request, struct glk_use *use)
{
	if (!foreign(request->stream, use))
		return 0;
	if (cache->home != cache) {
		use->streams &= glk_stream_mask(request->stream);
		return 0;
	}
	if (glk_clock_waits(cache->streams, use, request->stream)) {
		request->called = true;
		cache->rungs[GLAKE_RUNG_CROSS_STREAM]++;
	}
	return glk_clock_order(cache->streams, use, request->stream);
}

/* Whether all stale slots of a place may lose their mapping now. */
static bool stale_ready(
	struct glk_cache *cache, struct glk_span *span, uint32_t first, uint32_t last)
{
	struct glk_limbo limbo = glk_request_limbo(cache);

	for (uint32_t slot = first; slot <= last; slot++) {
		if (!glk_bit_get(span->mapped, slot) || glk_bit_get(span->usable, slot))
			continue;
		/* without a page: the driver refused to unmap it, it is out of use */
		if (!span->slot[slot].page || !glk_limbo_ready(&limbo, span, slot))
			return false;
	}
	return true;
}

/* Slots that were freed together have the same use, and what is found for one holds for all. */
struct same {
	struct glk_use was, is;
	uint32_t waits;
};

static bool is_same(const struct same *same, const struct glk_use *use)
{
	return use->streams == same->was.streams && use->tick == same->was.tick;
}

int glk_request_order_run(struct glk_cache *cache, struct glk_request *request,
	struct glk_span *span, uint32_t first, uint32_t last)
{
	struct same same = {0};
	int err;

	for (uint32_t slot = first; slot <= last; slot++) {
		struct glk_use *use = glk_slot_use(span, slot);

		if (!foreign(request->stream, use) || !glk_bit_get(span->usable, slot))
			continue;
		if (is_same(&same, use)) {
			*use = same.is;
			continue;
		}
		same.was = *use;
		err = glk_request_order(cache, request, use);
		if (err)
			return err;
		same.is = *use;
	}
	return 0;
}

/* What has finished is forgotten on the way, so that it is not asked about again. False if the
 * policy forbids the use. */
static bool look(const struct glk_seek *seek, struct glk_use *use, struct same *same)
{
	struct glk_cache *cache = seek->cache;

	if (is_same(same, use)) {
		*use = same->is;
		return true;
	}
	same->was = *use;
	glk_clock_forget(cache->streams, use);
	same->is = *use;
	same->waits = 0;
	return is_own(cache, seek->request->stream, use) ||
		glk_request_may(cache, seek->request, use, &same->waits);
}

/* Counts the waits of a place, slot by slot, so that places with less of other streams' memory
 * win; false if the policy forbids it, or the place loses. */
static bool count_waits(const struct glk_seek *seek, struct glk_span *span,
	uint32_t first, uint32_t last, struct glk_fit *fit)
{
	const struct glk_stream *stream = seek->request->stream;
	bool plain = !glk_bits_meet(span->shared, span->usable, first, last);
	struct same same = {0};

	fit->own = plain && stream->bit != GLK_STREAM_CROWD;
	for (uint32_t slot = first; slot <= last; slot++) {
		struct glk_use *use = plain ? &span->use[slot] : glk_slot_use(span, slot);

		if (is_own(seek->cache, stream, use) || !glk_bit_get(span->usable, slot))
			continue;
		fit->own = false;
		if (!look(seek, use, &same))
			return false;
		fit->waits += same.waits;
		if (fit->waits > fit->most)
			return false;
	}
	return true;
}

/* Whether the idle page of a slot was met at an earlier slot of the place, which will take it:
 * then this one needs a page of its own. */
static bool taken_before(struct glk_cache *cache, struct glk_page *page)
{
	bool before = page->mark == cache->mark;

	page->mark = cache->mark;
	return before && page->in_use == GLK_NO_SLOT;
}

/* Counts the slots of a place whose page is taken by an earlier one; false if one of them may
 * not lose its mapping now. */
static bool count_taken(struct glk_cache *cache, struct glk_span *span, uint32_t first,
	uint32_t last, struct glk_fit *fit)
{
	struct glk_limbo limbo = glk_request_limbo(cache);

	cache->mark++;
	for (uint32_t slot = first; slot <= last; slot++) {
		if (!glk_bit_get(span->usable, slot) ||
			!glk_bit_get(span->shared, slot) ||
			!taken_before(
				cache, glk_map_page(span->map, span->slot[slot].page)))
			continue;
		if (!glk_limbo_ready(&limbo, span, slot))
			return false;
		fit->maps++;
		fit->stale++;
	}
	return true;
}

bool glk_place_check(struct glk_span *span, uint32_t first_slot, uint32_t last_slot,
	struct glk_fit *fit, void *arg)
{
	const struct glk_seek *seek = arg;
	struct glk_cache *cache = seek->cache;

	if (fit->stale && !stale_ready(cache, span, first_slot, last_slot))
		return false;
	if (glk_bits_meet(span->shared, span->usable, first_slot, last_slot) &&
		!count_taken(cache, span, first_slot, last_slot, fit))
		return false;
	fit->own = cache->home == cache && glk_clock_alone(cache->streams);
	if (fit->own)
		return true;
	return count_waits(seek, span, first_slot, last_slot, fit);
}
