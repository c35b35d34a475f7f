/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Straight requests and frees with a part of the lock: see apart.h. */
#include "cache/apart.h"

#include "base/probe.h"
#include "cache/bin/own.h"
#include "cache/straight_find.h"

/* Whether a stream may do with a part: its bit tells it, and no event is recorded on it because of a free. */
static inline bool is_apart(const struct glk_arena *arena, const struct glk_row *row,
	const struct glk_stream *stream)
{
	return glk_load_relaxed(&row->own) == arena->number &&
		stream->bit < GLK_STREAM_CROWD && stream->handle != GLK_STREAM_PER_THREAD;
}

static inline bool may_merge(const struct glk_map *map, const struct glk_extent *e)
{
	return glk_slots_may_apart(
		map, glk_extent_first(map, e), glk_extent_last(map, e));
}

/* A block that was freed on the stream at a tick. */
static void merge(struct glk_arena *arena, const struct glk_stream *stream,
	struct glk_extent *e, uint64_t tick)
{
	struct glk_use use = glk_stream_use(stream, tick);
	struct glk_own_part *part = glk_own_part(arena);
	struct glk_map *map = &arena->map;
	uint32_t id = glk_extent_id(map, e);

	part->used = true;
	glk_quick_gone(arena->gpu, e);
	glk_lookup_leave(map, id);
	glk_slots_leave_apart(map, &part->apart, glk_extent_first(map, e),
		glk_extent_last(map, e), &use);
	glk_extent_give_back(map, id);
}

/* What lies aside beside it, on the same stream. */
static void merge_beside(struct glk_arena *arena, const struct glk_stream *stream,
	struct glk_row *row, uint32_t beside)
{
	struct glk_extent *e = glk_extent_at(&arena->map, beside);
	uint64_t tick;

	if (glk_straight_state(&arena->map, beside) == GLK_EXTENT_QUICK &&
		may_merge(&arena->map, e) &&
		glk_lookaside_drop(&row->aside,
			glk_lookaside_key(e->size >> GLK_GRAIN_SHIFT, arena->number),
			beside, &tick))
		merge(arena, stream, e, tick);
}

/* What a word of the list of the stream tells of, where that merges; NULL: it does not, or is none. */
static inline struct glk_extent *laid(const struct glk_arena *arena, uint64_t word)
{
	struct glk_extent *e = glk_extent_at(&arena->map, (uint32_t)(word & GLK_ID_MASK));

	return word && glk_lookaside_arena(word >> GLK_ID_BITS) == arena->number &&
			may_merge(&arena->map, e)
		? e
		: NULL;
}

/* All that lies aside on the stream, as far as it may; whether any did. */
static bool merge_aside(
	struct glk_arena *arena, const struct glk_stream *stream, struct glk_row *row)
{
	bool any = false;

	for (unsigned i = 0; i < GLK_LOOKASIDE; i++) {
		struct glk_extent *e =
			laid(arena, glk_load_relaxed(&row->aside.place[i]));

		/* a request may just take it */
		if (!e || !glk_lookaside_clear(&row->aside, i).id)
			continue;
		merge(arena, stream, e, row->aside.tick[i]);
		any = true;
	}
	return any;
}

/* Lays a block aside where what it comes in place of merges: that is *e then, with its tick; NULL: nothing was there. */
static bool lay(struct glk_arena *arena, struct glk_row *row, struct glk_extent **e,
	uint64_t *tick)
{
	struct glk_laid block = {
		glk_lookaside_key((*e)->size >> GLK_GRAIN_SHIFT, arena->number), *tick,
		glk_extent_id(&arena->map, *e)};
	uint64_t word = glk_lookaside_next(&row->aside, row->turn);

	if (word && !laid(arena, word))
		return false;
	if (!glk_load_relaxed(&row->touched))
		glk_store_relaxed(&row->touched, 1);
	glk_lookaside_put(&row->aside, &row->turn, &block);
	*e = block.id ? glk_extent_at(&arena->map, block.id) : NULL;
	*tick = block.tick;
	return true;
}

static bool take(struct glk_arena *arena, struct glk_seat *seat, struct glk_row *row,
	const struct CUstream_st *name, uint64_t size, uint64_t *ret_addr)
{
	uint64_t rounded = glk_quick_grains(size) << GLK_GRAIN_SHIFT;
	struct glk_cache *cache = arena->gpu;
	struct glk_stream *stream =
		glk_stream_at(&cache->streams, (uint32_t)(row - cache->rows));
	struct glk_own_part *part = glk_own_part(arena);
	struct glk_straight_place place GLK_UNFILLED;
	struct glk_straight tries GLK_UNFILLED;
	struct glk_map *map = &arena->map;
	struct glk_extent *e;
	uint32_t id;
	int err;

	if (rounded <= cache->straight_above || glk_straight_is_odd(cache, map) ||
		rounded > glk_load_relaxed(&cache->node->budget) ||
		!glk_straight_is_still(stream, row, name) ||
		!is_apart(arena, row, stream) || stream->mute ||
		glk_event_is_due(&cache->streams, glk_load_relaxed(&cache->node->held)))
		return false;
	do {
		glk_straight_begin(&tries, arena);
		err = glk_straight_find(
			cache, map, stream, rounded, &tries, GLK_FIT_FEW, true, &place);
	} while (err && merge_aside(arena, stream, row));
	if (err || glk_extent_carve(map, place.extent, place.offset, rounded, &id))
		return false;
	e = glk_extent_at(map, id);
	glk_slots_enter_apart(map, &part->apart, place.first, place.last);
	glk_quick_born(row, rounded);
	glk_store_relaxed(&e->slack, (uint32_t)(rounded - size));
	glk_store_relaxed(&e->stream, (uint16_t)stream->id);
	glk_store_relaxed(&e->bin, 0);
	glk_lookup_enter(map, id);
	glk_seat_alloc(seat, size, rounded);
	part->used = true;
	part->served++;
	*ret_addr = glk_load_relaxed(&e->addr);
	return true;
}

bool glk_apart_serve(struct glk_arena *arena, struct glk_seat *seat, struct glk_row *row,
	struct CUstream_st *stream, uint64_t size, uint64_t *ret_addr)
{
	bool took = take(arena, seat, row, glk_stream_name(stream), size, ret_addr);

	glk_unlock_part(&arena->gpu->lock, arena->number - 1);
	if (took)
		GLK_PROBE3(miss, arena->gpu->device, size, *ret_addr);
	return took;
}

static bool give(struct glk_arena *arena, struct glk_seat *seat, struct glk_extent *e,
	struct glk_stream *stream)
{
	struct glk_cache *cache = arena->gpu;
	struct glk_row *row = &cache->rows[stream->id];
	struct glk_own_part *part = glk_own_part(arena);
	struct glk_map *map = &arena->map;
	uint64_t tick = cache->streams.tick;

	if (glk_load_relaxed(&e->bin) || e->size <= cache->straight_above ||
		map->hosted || cache->hints || !is_apart(arena, row, stream) ||
		stream->id != glk_load_relaxed(&e->stream) || !may_merge(map, e))
		return false;
	glk_seat_free(seat, glk_extent_asked(e), e->size);
	glk_clock_raise(&cache->streams, stream, tick);
	part->used = true;
	part->freed++;
	if (glk_straight_state(map, e->prev) != GLK_EXTENT_FREE &&
		glk_straight_state(map, e->next) != GLK_EXTENT_FREE &&
		glk_straight_keeps(cache, stream, row) && lay(arena, row, &e, &tick) &&
		!e)
		return true;
	merge_beside(arena, stream, row, e->prev);
	merge_beside(arena, stream, row, e->next);
	merge(arena, stream, e, tick);
	return true;
}

bool glk_apart_give(struct glk_arena *arena, struct glk_seat *seat, struct glk_extent *e,
	struct glk_stream *stream)
{
	bool gave = give(arena, seat, e, stream);

	glk_unlock_part(&arena->gpu->lock, arena->number - 1);
	return gave;
}
