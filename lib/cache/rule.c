/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The rules of quick.h: which blocks stay in bins, and when they all go back. */
#include "base/conf.h"
#include "cache/quick.h"

/* Parts of what is live that may lie in bins, as shifts. */
#define SMALL_PART 11
#define LARGE_PART 3

/* Large blocks that must have been refused since pages were last mapped for one, before the
 * rule is dropped: a program that maps no more has nothing to lose by it. */
#define QUIET 4096

static bool may_touch(const struct glk_cache *cache, uint32_t neighbour, uint32_t bin)
{
	const struct glk_extent *n = glk_extent_at(&cache->map, neighbour);
	uint32_t other = glk_load_relaxed(&n->bin);

	if (!neighbour)
		return true;
	if (glk_extent_state(n) != GLK_EXTENT_QUICK)
		return glk_extent_state(n) == GLK_EXTENT_LIVE;
	return other == bin || other / GLK_BINS != bin / GLK_BINS;
}

bool glk_quick_lonely(
	const struct glk_cache *cache, const struct glk_extent *e, uint32_t bin)
{
	uint8_t mixes = glk_load_relaxed(&e->mixes);

	return (!(mixes & GLK_MIXES_PREV) ||
		       may_touch(cache, glk_load_relaxed(&e->prev), bin)) &&
		(!(mixes & GLK_MIXES_NEXT) ||
			may_touch(cache, glk_load_relaxed(&e->next), bin));
}

void glk_quick_mapped(
	struct glk_cache *cache, const struct glk_span *span, uint32_t pages)
{
	if (span->kind == GLK_KIND_SMALL)
		cache->grown += (uint64_t)pages << span->shift;
	if (span->kind != GLK_KIND_LARGE)
		return;
	cache->refused = 0;
	if (cache->conf->policy_bins != GLK_POLICY_BINS_ALL)
		glk_store_relaxed(&cache->lonely, GLK_KIND_LARGE);
}

void glk_quick_refused(struct glk_cache *cache, enum glk_kind kind)
{
	if (kind == GLK_KIND_LARGE && ++cache->refused >= QUIET)
		glk_store_relaxed(&cache->lonely, GLK_KIND_COUNT);
}

/* Bytes in bins, and what blocks are larger than was asked for. */
static uint64_t held(const struct glk_cache *cache)
{
	uint64_t live = cache->sum.live - cache->single_live - cache->graph_live;
	uint64_t taken = 0;

	for (int kind = 0; kind < GLK_KIND_SINGLE; kind++)
		taken += cache->map.span[kind].taken;
	return taken > live ? taken - live : 0;
}

static bool give_back(struct glk_cache *cache, struct glk_harvest *h)
{
	bool any = glk_harvest_merge(cache, h);

	cache->flushes += any;
	return any;
}

static bool empty_kinds(struct glk_cache *cache, unsigned kinds)
{
	struct glk_harvest h = {0};

	for (uint32_t row = 1; row <= cache->last_row; row++)
		glk_harvest_row(cache, &cache->rows[row], kinds, &h);
	return give_back(cache, &h);
}

void glk_quick_keep(struct glk_cache *cache, struct glk_row *row, enum glk_kind kind)
{
	struct glk_harvest h = {0};

	if (kind == GLK_KIND_SMALL || held(cache) <= cache->sum.live >> LARGE_PART)
		return;
	/* those of other streams stay: their threads would miss, and come by here in turn */
	glk_harvest_row(cache, row, 1u << GLK_KIND_LARGE, &h);
	give_back(cache, &h);
}

bool glk_quick_yield(struct glk_cache *cache, enum glk_kind kind)
{
	if (kind == GLK_KIND_SMALL) {
		if (cache->grown <= cache->sum.live >> SMALL_PART)
			return false;
		cache->grown = 0;
	}
	return empty_kinds(cache, 1u << kind);
}

bool glk_quick_flush(struct glk_cache *cache)
{
	return empty_kinds(cache, ~0u);
}

void glk_quick_end(struct glk_cache *cache, struct CUstream_st *handle)
{
	struct glk_harvest h = {0};

	for (uint32_t i = 1; i <= cache->last_row; i++) {
		struct glk_row *row = &cache->rows[i];

		if (!glk_load_relaxed(&row->entered) || row->key != (uintptr_t)handle)
			continue;
		row->key = GLK_ROW_NOBODY;
		glk_store_relaxed(&row->handle, GLK_ROW_ENDED);
		glk_harvest_row(cache, row, ~0u, &h);
	}
	glk_harvest_merge(cache, &h);
}

/* Rows whose stream has ended unannounced: its handle may stand for another one. */
void glk_quick_sweep(struct glk_cache *cache)
{
	struct glk_harvest h = {0};

	for (uint32_t i = 1; i <= cache->last_row; i++) {
		const struct glk_stream *s = glk_stream_at(cache->streams, i);
		struct glk_row *row = &cache->rows[i];

		if (!glk_load_relaxed(&row->entered) || row->key == GLK_ROW_NOBODY ||
			(s->state == GLK_STREAM_LIVE &&
				glk_load_relaxed(&s->key) == row->key))
			continue;
		row->key = GLK_ROW_NOBODY;
		glk_store_relaxed(&row->handle, GLK_ROW_ENDED);
		glk_harvest_row(cache, row, ~0u, &h);
	}
	glk_harvest_merge(cache, &h);
	cache->ended = cache->streams->ended;
}

void glk_quick_divert(struct glk_cache *cache, bool divert)
{
	glk_store_relaxed(&cache->diverted, divert);
	for (uint32_t i = 1; i <= cache->last_row; i++) {
		struct glk_row *row = &cache->rows[i];

		if (glk_load_relaxed(&row->entered) && row->key != GLK_ROW_NOBODY)
			glk_store_relaxed(&row->handle,
				divert ? GLK_ROW_ENDED : (void *)(uintptr_t)row->key);
	}
}
