/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The way back from the bins: blocks are taken out of them and merge with what is free beside
 * them, as a free without bins would have made them. All under the lock of the GPU.
 *
 * A request that would map gives back a bounded number of them, of its own stream: those of others
 * would miss, map, and give back in turn. When more would be held than the target allows, streams
 * give back by turns; a few go with each request while more is held and much of it lies beside live
 * blocks, by turns of the sizes too. All go back when memory is short, and those of a stream when it ends.
 */
#include "base/conf.h"
#include "cache/bin/own.h"
#include "cache/bin/quick.h"
#include "cache/cache.h"

/* Blocks that one request gives back before it maps. */
#define YIELD_BLOCKS 32
/* Blocks that are given back, or rows gone through, between two chances for others to have the lock. */
#define TURN_BLOCKS 8
#define TURN_ROWS   256
/* Those of all streams that one gives back before more is held than the target, many where that is tight, as a miss
 * is cheaper there than a page; the rows that they are of, and those that are looked at. */
#define DRAIN_BLOCKS 24
#define DRAIN_MANY   256
#define DRAIN_ROWS   64
#define DRAIN_LOOKS  1024
/* Those that a request gives back while more is held than the target. */
#define EBB_BLOCKS 4

struct glk_use glk_quick_now(struct glk_cache *cache, uint32_t row)
{
	struct glk_stream *stream = glk_slab_at(&cache->streams.slab, row);

	if (stream->bit >= GLK_STREAM_BITS)
		return (struct glk_use){0};
	return glk_stream_use(stream, glk_clock_tick(&cache->streams, stream));
}

/* What it was given up to a tick. */
static struct glk_use use_at(struct glk_cache *cache, uint32_t row, uint64_t tick)
{
	const struct glk_stream *stream = glk_slab_at(&cache->streams.slab, row);

	return stream->bit < GLK_STREAM_BITS ? glk_stream_use(stream, tick)
					     : (struct glk_use){0};
}

/* Of bins that have a key, in a row. */
#define WORDS ((GLK_BINS + 63) / 64)

/* One that was taken out of a bin, or lay aside. */
static void give_back(struct glk_arena *arena, uint32_t id, const struct glk_use *use)
{
	glk_quick_gone(arena->gpu, glk_extent_at(&arena->map, id));
	glk_arena_merge(arena, id, use);
}

/* Gives blocks of a bin back, at the most so many; how many it were. */
static uint32_t empty_bin(
	struct glk_cache *cache, struct glk_row *row, uint32_t i, uint32_t most)
{
	struct glk_use use = {0};
	uint32_t count = 0, id;

	while (count < most &&
		(id = glk_quick_pop(row, i, glk_quick_base(&cache->arena.map), 0))) {
		if (!count++)
			use = glk_quick_now(cache, (uint32_t)(row - cache->rows));
		give_back(&cache->arena, id, &use);
	}
	return count;
}

uint32_t glk_quick_merge(struct glk_cache *cache, struct glk_row *row)
{
	uint32_t count = 0;

	for (unsigned i = 0; i < GLK_LOOKASIDE && glk_load_relaxed(&row->touched); i++) {
		struct glk_laid laid = glk_lookaside_clear(&row->aside, i);
		struct glk_use use;

		if (!laid.id)
			continue;
		use = use_at(cache, (uint32_t)(row - cache->rows), laid.tick);
		give_back(glk_own_numbered(cache, glk_lookaside_arena(laid.key)), laid.id,
			&use);
		count++;
	}
	return count;
}

static void merge_one(struct glk_arena *arena, uint32_t id)
{
	struct glk_extent *e = glk_extent_at(&arena->map, id);
	uint32_t stream = glk_load_relaxed(&e->stream);
	struct glk_cache *cache = arena->gpu;
	struct glk_use use;
	uint64_t tick;

	if (glk_extent_state(e) != GLK_EXTENT_QUICK ||
		!glk_lookaside_drop(&cache->rows[stream].aside,
			glk_lookaside_key(e->size >> GLK_GRAIN_SHIFT, arena->number), id,
			&tick))
		return;
	use = use_at(cache, stream, tick);
	give_back(arena, id, &use);
}

void glk_quick_beside(struct glk_arena *arena, const struct glk_extent *e)
{
	merge_one(arena, e->prev);
	merge_one(arena, e->next);
}

/* What lies aside on the stream of a row goes back, and so do blocks of its bins that are for more than so many grains,
 * from a word of them on, at the most so many in all but for the former; how many it were. */
static uint32_t empty_bins(struct glk_cache *cache, struct glk_row *row, uint64_t grains,
	uint32_t from, uint32_t most)
{
	uint32_t count = glk_quick_merge(cache, row);

	if (!glk_row_untouch(row))
		return 0;
	for (uint32_t i = 0; i < WORDS; i++) {
		uint32_t word = (from + i) % WORDS;
		uint64_t keyed = row->keyed[word];

		for (; keyed && count < most; keyed &= keyed - 1) {
			uint32_t at = word * 64 + (uint32_t)__builtin_ctzll(keyed);

			if (glk_bin_grains(&row->bin[at]) > grains)
				count += empty_bin(cache, row, at, most - count);
		}
	}
	if (count >= most || grains)
		glk_store_relaxed(&row->touched, 1);
	return count;
}

static uint32_t empty_row(struct glk_cache *cache, struct glk_row *row, uint32_t most)
{
	return empty_bins(cache, row, 0, 0, most);
}

/* Large ones: they leave the larger holes, and small ones are the likelier hits. */
static uint32_t empty_large(struct glk_cache *cache, struct glk_row *row, uint32_t most)
{
	uint64_t small = cache->conf->policy_bins >> GLK_GRAIN_SHIFT;

	return row->met ? empty_bins(cache, row, small, 0, most)
			: glk_quick_merge(cache, row);
}

/* The same for all, by turns of a bounded number; the lock is given up between two of them. */
static uint32_t empty_row_slowly(
	struct glk_cache *cache, struct glk_row *row, uint32_t most)
{
	uint32_t count = 0, turn, got;

	do {
		turn = most - count < TURN_BLOCKS ? most - count : TURN_BLOCKS;
		got = empty_row(cache, row, turn);
		count += got;
		if (got == TURN_BLOCKS)
			glk_lock_yield(&cache->lock);
	} while (got == TURN_BLOCKS && count < most);
	return count;
}

bool glk_quick_yield(struct glk_cache *cache, const struct glk_request *request)
{
	struct glk_row *row = &cache->rows[request->stream->id];
	uint32_t count = 0;

	/* it would meet others again: what it has stays up to the target */
	if (row->met >= GLK_MET)
		return false;
	if (request->rounded > cache->small_most)
		count = empty_large(cache, row, YIELD_BLOCKS);
	if (!count)
		count = empty_row(cache, row, YIELD_BLOCKS);
	cache->flushes += count > 0;
	return count > 0;
}

bool glk_quick_drain(struct glk_cache *cache)
{
	uint32_t count = 0, rows = 0, steps = 0, got;
	uint32_t looks = cache->last_row < DRAIN_LOOKS ? cache->last_row : DRAIN_LOOKS;
	uint32_t most = cache->keeps_aside ? DRAIN_BLOCKS : DRAIN_MANY;
	bool yielded = false;

	for (; looks && rows < DRAIN_ROWS && count < most; looks--) {
		struct glk_row *row;

		if (steps >= TURN_ROWS) {
			glk_lock_yield(&cache->lock);
			yielded = true;
			steps = 0;
		}
		steps++;
		cache->turn = cache->turn % cache->last_row + 1;
		row = &cache->rows[cache->turn];
		if (!glk_load_relaxed(&row->touched))
			continue;
		got = empty_large(cache, row, TURN_BLOCKS);
		if (!got)
			got = empty_row_slowly(cache, row, most - count);
		count += got;
		rows += got > 0;
		steps += got * (TURN_ROWS / TURN_BLOCKS);
	}
	cache->flushes += count > 0;
	return count > 0 || yielded;
}

void glk_quick_ebb(struct glk_cache *cache)
{
	uint32_t count = 0;

	/* from another bin on each time: those of sizes that come no more are met too */
	for (uint32_t i = 0; i < DRAIN_ROWS && i < cache->last_row && !count; i++) {
		cache->turn = cache->turn % cache->last_row + 1;
		count = empty_bins(cache, &cache->rows[cache->turn], 0,
			(uint32_t)cache->flushes % WORDS, EBB_BLOCKS);
	}
	cache->flushes += count > 0;
}

bool glk_quick_flush(struct glk_cache *cache)
{
	uint32_t count = 0;

	for (uint32_t row = 1; row <= cache->last_row; row++) {
		count += empty_row_slowly(cache, &cache->rows[row], UINT32_MAX);
		if (row % TURN_ROWS == 0)
			glk_lock_yield(&cache->lock);
	}
	cache->flushes += count > 0;
	return count > 0;
}

bool glk_quick_empty(struct glk_cache *cache, struct glk_row *row, uint32_t i)
{
	return empty_bin(cache, row, i, YIELD_BLOCKS) < YIELD_BLOCKS;
}

void glk_quick_stray(struct glk_cache *cache, uint32_t extent)
{
	struct glk_use use;

	glk_lock(&cache->lock);
	use = glk_quick_now(cache, glk_extent_at(&cache->arena.map, extent)->stream);
	give_back(&cache->arena, extent, &use);
	glk_unlock(&cache->lock);
}

/* The stream of a row has ended. */
static void end(struct glk_cache *cache, struct glk_row *row)
{
	row->key = GLK_ROW_NOBODY;
	glk_store_relaxed(&row->handle, GLK_ROW_ENDED);
	glk_own_end(cache, row);
	empty_row_slowly(cache, row, UINT32_MAX);
}

/* Whether a row is of a stream that has ended, though another one may have its number since. */
static bool is_over(const struct glk_cache *cache, uint32_t stream)
{
	const struct glk_stream *s = glk_stream_at(&cache->streams, stream);
	const struct glk_row *row = &cache->rows[stream];

	return glk_load_relaxed(&row->entered) && row->key != GLK_ROW_NOBODY &&
		(s->state != GLK_STREAM_LIVE || glk_load_relaxed(&s->key) != row->key);
}

void glk_quick_sweep(struct glk_cache *cache)
{
	struct glk_streams *streams = &cache->streams;
	/* one that ends while the lock is given up is for the next time */
	uint64_t ended = streams->ended;
	uint32_t count = 0;

	for (uint32_t w = 0; w < GLK_STREAM_WORDS; w++) {
		while (streams->ends[w]) {
			uint32_t i = w * 64 + (uint32_t)__builtin_ctzll(streams->ends[w]);

			streams->ends[w] &= streams->ends[w] - 1;
			if (is_over(cache, i))
				end(cache, &cache->rows[i]);
			if (++count % TURN_ROWS == 0)
				glk_lock_yield(&cache->lock);
		}
	}
	cache->ended = ended;
}

void glk_quick_end(
	struct glk_cache *cache, uint32_t stream, const struct CUstream_st *handle)
{
	struct glk_row *row = &cache->rows[stream];

	/* of a stream that had the handle before, and ended unannounced */
	if (cache->ended != cache->streams.ended)
		glk_quick_sweep(cache);
	if (glk_load_relaxed(&row->entered) && row->key == (uintptr_t)handle)
		end(cache, row);
}

void glk_quick_divert(struct glk_cache *cache, uint32_t reason, bool divert)
{
	uint32_t reasons = glk_load_relaxed(&cache->diverted) & ~reason;

	reasons |= divert ? reason : 0;
	glk_store_relaxed(&cache->diverted, reasons);
	for (uint32_t i = 1; i <= cache->last_row; i++) {
		struct glk_row *row = &cache->rows[i];

		if (glk_load_relaxed(&row->entered) && row->key != GLK_ROW_NOBODY)
			glk_store_relaxed(&row->handle,
				reasons ? GLK_ROW_ENDED : (void *)(uintptr_t)row->key);
	}
}
