/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which memory a stream may have. Memory that was last used on the stream itself is its own
 * in stream order; other memory needs the policy's consent (stream.reuse) and, unless its
 * work is known to have finished, a stream wait.
 */
#include "base/conf.h"
#include "cache/cache.h"

bool glk_request_may(struct glk_cache *cache, const struct glk_request *request,
	const struct glk_use *use)
{
	switch (cache->conf->stream_reuse) {
	case GLK_STREAM_REUSE_DONE:
		return !glk_clock_waits(&cache->streams, use, request->stream);
	case GLK_STREAM_REUSE_NEVER:
		return !(use->streams & ~glk_stream_mask(request->stream));
	default:
		return true;
	}
}

int glk_request_order(
	struct glk_cache *cache, struct glk_request *request, struct glk_use *use)
{
	if (!(use->streams & ~glk_stream_mask(request->stream)) &&
		request->stream->bit != GLK_STREAM_CROWD)
		return 0;
	if (glk_clock_waits(&cache->streams, use, request->stream)) {
		request->called = true;
		cache->rungs[GLAKE_RUNG_CROSS_STREAM]++;
	}
	return glk_clock_order(&cache->streams, use, request->stream);
}

/* Whether all stale slots of a place may lose their mapping now. */
static bool stale_ready(
	struct glk_cache *cache, struct glk_span *span, uint32_t first, uint32_t last)
{
	struct glk_limbo limbo = GLK_LIMBO(&cache->streams);

	for (uint32_t slot = first; slot <= last; slot++) {
		if (!glk_bit_get(span->mapped, slot) || glk_bit_get(span->usable, slot))
			continue;
		/* without a page: the driver refused to unmap it, it is out of use */
		if (!span->slot[slot].page || !glk_limbo_ready(&limbo, span, slot))
			return false;
	}
	return true;
}

/* Whether the idle page of a slot is also mapped at an earlier slot of the place, which will
 * take it: then this one needs a page of its own. */
static bool taken_before(struct glk_span *span, uint32_t first, uint32_t slot)
{
	const struct glk_page *page = glk_map_page(span->map, span->slot[slot].page);
	uint32_t low = glk_slot_name(span, first), high = glk_slot_name(span, slot);

	if (page->in_use != GLK_NO_SLOT)
		return false;
	for (uint32_t name = page->first_alias; name != GLK_NO_SLOT;) {
		if (name >= low && name < high)
			return true;
		name = glk_slot_span(span->map, name)
			       ->more[glk_slot_number(name)]
			       .next_alias;
	}
	return false;
}

/* Whether all of a run was used by `own` streams alone. */
static bool all_own(
	const struct glk_span *span, uint32_t first, uint32_t last, uint64_t own)
{
	uint64_t streams = 0;

	for (uint32_t slot = first; slot <= last; slot++)
		streams |= span->use[slot].streams;
	return !(streams & ~own);
}

static bool check_slot(const struct glk_seek *seek, struct glk_span *span, uint32_t slot,
	struct glk_fit *fit)
{
	const struct glk_use *use = glk_slot_use(span, slot);
	const struct glk_stream *stream = seek->request->stream;

	if (!(use->streams & ~glk_stream_mask(stream)) && stream->bit != GLK_STREAM_CROWD)
		return true;
	if (!glk_request_may(seek->cache, seek->request, use))
		return false;
	fit->waits += glk_clock_waits(&seek->cache->streams, use, stream);
	return true;
}

bool glk_place_check(struct glk_span *span, uint32_t first_slot, uint32_t last_slot,
	struct glk_fit *fit, void *arg)
{
	const struct glk_seek *seek = arg;
	struct glk_cache *cache = seek->cache;
	struct glk_limbo limbo = GLK_LIMBO(&cache->streams);
	bool shared = glk_bits_meet(span->shared, span->usable, first_slot, last_slot);
	const struct glk_stream *stream = seek->request->stream;

	if (fit->stale && !stale_ready(cache, span, first_slot, last_slot))
		return false;
	if (!shared &&
		(glk_clock_alone(&cache->streams) ||
			(stream->bit != GLK_STREAM_CROWD &&
				all_own(span, first_slot, last_slot,
					glk_stream_mask(stream)))))
		return true;
	for (uint32_t slot = first_slot; slot <= last_slot; slot++) {
		if (!glk_bit_get(span->usable, slot))
			continue;
		if (shared && glk_bit_get(span->shared, slot) &&
			taken_before(span, first_slot, slot)) {
			if (!glk_limbo_ready(&limbo, span, slot))
				return false;
			fit->maps++;
			fit->stale++;
			continue;
		}
		if (!check_slot(seek, span, slot, fit))
			return false;
	}
	return true;
}
