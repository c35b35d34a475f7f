/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The straight miss and the straight free: see straight.h. */
#include "cache/straight_find.h"

#include "base/conf.h"
#include "base/probe.h"
#include "base/thread.h"
#include "cache/apart.h"
#include "cache/bin/hit.h"
#include "cache/bin/own.h"

#include <errno.h>

/* Slots of a block for which no more than the smallest few extents are looked at: to look at one takes long, and there
 * are few. */
#define LARGE 1024

/* That of a stream: its own, if it has one. */
static inline struct glk_arena *arena_of(struct glk_cache *cache, struct glk_row *row)
{
	/* pairs with: the release in glk_own_arena */
	return glk_own_numbered(cache, glk_load_acquire(&row->own));
}

/* The same, with how tight memory is found out where that counts. */
static GLK_COLD int find_weighed(struct glk_arena *arena, const struct glk_stream *stream,
	uint64_t size, uint64_t rounded, struct glk_straight *tries, unsigned most,
	struct glk_straight_place *place)
{
	glk_supply_weigh(arena, size);
	tries->looked = tries->count = 0;
	return glk_straight_find(
		arena->gpu, &arena->map, stream, rounded, tries, most, false, place);
}

static inline __attribute__((always_inline)) int find_place(struct glk_cache *cache,
	struct glk_arena *arena, const struct glk_stream *stream, uint64_t size,
	uint64_t rounded, struct glk_straight *tries, unsigned most,
	struct glk_straight_place *place)
{
	int err = glk_straight_find(
		cache, &arena->map, stream, rounded, tries, most, false, place);

	return err == -EAGAIN
		? find_weighed(arena, stream, size, rounded, tries, most, place)
		: err;
}

/* No place has as much to be waited for. */
#define NEVER UINT64_MAX

/* Added where a stream is waited for with all that it was given so far. */
#define LATE (UINT64_C(1) << 32)

/* What a stream waits for before it has a place, for each slot that lies behind it; NEVER: it may not have it, or that
 * is `least` or more. */
static uint64_t count_waits(struct glk_arena *arena, const struct glk_stream *stream,
	const struct glk_straight_place *place, uint64_t least)
{
	struct glk_cache *cache = arena->gpu;
	const struct glk_map *map = &arena->map;
	struct glk_use_walk walk = glk_use_begin(map, place->first, place->last);
	struct glk_use before = {0};
	struct glk_use_run run;
	uint64_t late = 0, sum = 0;
	unsigned waits = 0;

	while (late + sum < least && glk_use_next(map, &walk, &run)) {
		const struct glk_use *use = glk_use_in(map, &run);

		if (!glk_stream_foreign(stream, use))
			continue;
		if (!glk_use_same(use, &before)) {
			before = *use;
			waits = glk_clock_waits(&cache->streams, use, stream);
			/* the crowd is more than can be told apart; and threads had better record their own */
			if (waits >= GLK_WAITS_NEVER || (waits && glk_use_crowded(use)) ||
				(waits >= GLK_WAITS_LATE &&
					!glk_event_here_all(&cache->streams, use)))
				return NEVER;
		}
		late |= waits >= GLK_WAITS_LATE ? LATE : 0;
		sum += (uint64_t)(waits % GLK_WAITS_LATE) * (run.last - run.first + 1);
	}
	return late + sum;
}

/* In a second try: one of the places that were behind a wait, if it is not any more; then one of larger extents; and at
 * last the one with the fewest waits, where the library may insert some. 0; -EBUSY, -ENOMEM: none. */
static GLK_COLD int find_again(struct glk_arena *arena, const struct glk_stream *stream,
	uint64_t size, uint64_t rounded, struct glk_straight *tries,
	struct glk_straight_place *place)
{
	const struct glk_conf *conf = arena->gpu->conf;
	const struct glk_map *map = &arena->map;
	bool few = map->packs || rounded >> map->shift > LARGE;
	unsigned most = few ? GLK_FIT_FEW : GLK_FIT_CANDIDATES;
	uint64_t least = NEVER;
	int err = -EBUSY;

	for (unsigned i = 0; tries->learned && i < tries->count; i++) {
		*place = tries->place[i];
		if (glk_straight_is_ready(arena->gpu, map, stream, false, place) &&
			!glk_straight_is_beset(map, place))
			return 0;
	}
	if (!tries->count || !map->tight)
		err = find_place(
			arena->gpu, arena, stream, size, rounded, tries, most, place);
	if (err != -EBUSY || !glk_peek_relaxed(&conf->stream_internal_dependencies))
		return err;
	for (unsigned i = 0; i < tries->count; i++) {
		uint64_t waits;

		if (glk_straight_is_beset(map, &tries->place[i]))
			continue;
		waits = count_waits(arena, stream, &tries->place[i], least);
		if (waits >= least)
			continue;
		least = waits;
		*place = tries->place[i];
	}
	return least < NEVER ? 0 : -ENOMEM;
}

/* What has finished of a place is forgotten, and the stream comes behind the rest, which is its own from now on. 0;
 * -EAGAIN or the driver's error. */
static GLK_COLD int take_over(struct glk_arena *arena, struct glk_stream *stream,
	uint32_t first, uint32_t last, struct glk_straight *tries)
{
	struct glk_cache *cache = arena->gpu;
	struct glk_map *map = &arena->map;
	struct glk_use_walk walk = glk_use_begin(map, first, last);
	struct glk_use was = {0}, is = {0};
	struct glk_use_run run;
	int err = 0;

	while (!err && glk_use_next(map, &walk, &run)) {
		const struct glk_use *use = glk_use_in(map, &run);

		if (!glk_stream_foreign(stream, use))
			continue;
		if (!glk_use_same(use, &was)) {
			was = is = *use;
			glk_clock_forget(&cache->streams, &is);
			if (!glk_clock_behind(&cache->streams, &is, stream)) {
				tries->called = true;
				glk_cache_climbed(cache, GLAKE_RUNG_CROSS_STREAM);
			}
			if (glk_stream_foreign(stream, &is))
				err = glk_clock_order(&cache->streams, &is, stream);
		}
		if (!err)
			glk_use_put(map, &run, &is);
	}
	if (tries->called)
		glk_own_waited(cache);
	return err;
}

/* Where it goes when it is freed; nearly always to no bin. */
static inline uint32_t bin_of(struct glk_arena *arena, const struct glk_stream *stream,
	struct glk_row *row, uint64_t rounded)
{
	struct glk_cache *cache = arena->gpu;

	return glk_quick_keeps(cache, stream, row, false) && !arena->number
		? glk_quick_bin(cache, row, rounded >> GLK_GRAIN_SHIFT)
		: 0;
}

/* For a request of one of several threads that was served: see bin/seat.h. -EALREADY: its stream is due an arena. */
static GLK_COLD int note_peak(struct glk_cache *cache, const struct glk_seat *seat,
	struct glk_row *row, struct glk_straight *tries, uint64_t addr)
{
	tries->addr = addr;
	if (row->seat != (uint16_t)seat->id)
		row->same /= 2;
	else if (row->same < GLK_OWN_SAME)
		row->same++;
	row->seat = (uint16_t)seat->id;
	glk_supply_sum(cache);
	glk_seats_note_peak(cache, cache->sum.live);
	return row->met >= GLK_MET && glk_own_met(cache, row) ? -EALREADY : 0;
}

/* Once more with what lay aside on the stream; `err`: nothing did. */
static GLK_COLD int find_merged(struct glk_arena *arena, const struct glk_stream *stream,
	uint64_t size, uint64_t rounded, struct glk_straight *tries,
	struct glk_straight_place *place, int err)
{
	if (!glk_quick_merge(arena->gpu, &arena->gpu->rows[stream->id]))
		return err;
	glk_straight_begin(tries, arena);
	return find_place(
		arena->gpu, arena, stream, size, rounded, tries, GLK_FIT_FEW, place);
}

/* -EALREADY: it was served, and its stream is due an arena. */
static inline __attribute__((always_inline)) int take(struct glk_cache *cache,
	struct glk_arena *arena, struct glk_seat *seat, uint32_t stream_id,
	const struct CUstream_st *name, uint64_t size, struct glk_straight *tries,
	uint64_t *ret_addr)
{
	uint64_t rounded = glk_quick_grains(size) << GLK_GRAIN_SHIFT;
	struct glk_stream *stream = glk_stream_at(&cache->streams, stream_id);
	struct glk_row *row = &cache->rows[stream_id];
	struct glk_map *map = &arena->map;
	struct glk_straight_place place GLK_UNFILLED;
	struct glk_extent *e;
	uint32_t id GLK_UNFILLED;
	int err;

	if (rounded <= cache->straight_above || glk_straight_is_odd(cache, map) ||
		rounded > glk_load_relaxed(&cache->node->budget) ||
		!glk_straight_is_still(stream, row, name))
		return -ENOMEM;
	stream->mute = false;
	if (tries->again)
		err = find_again(arena, stream, size, rounded, tries, &place);
	else if (glk_event_is_due(&cache->streams, glk_load_relaxed(&cache->node->held)))
		return -EBUSY;
	else
		err = find_place(
			cache, arena, stream, size, rounded, tries, GLK_FIT_FEW, &place);
	if (err && !tries->again)
		err = find_merged(arena, stream, size, rounded, tries, &place, err);
	if (err)
		return err;
	if (place.foreign && take_over(arena, stream, place.first, place.last, tries))
		return -ENOMEM;
	err = glk_extent_carve(map, place.extent, place.offset, rounded, &id);
	if (err)
		return err;
	e = glk_extent_at(map, id);
	if (place.plain)
		glk_slots_enter_plain(map, place.first, place.last);
	else
		glk_slots_enter(map, place.first, place.last);
	glk_quick_born(row, rounded);
	glk_store_relaxed(&e->slack, (uint32_t)(rounded - size));
	glk_store_relaxed(&e->stream, (uint16_t)stream->id);
	glk_store_relaxed(&e->bin, bin_of(arena, stream, row, rounded));
	glk_lookup_enter(map, id);
	glk_seat_alloc(seat, size, rounded);
	cache->served++;
	*ret_addr = glk_load_relaxed(&e->addr);
	/* of a thread that is alone its turn tells */
	return glk_load_relaxed(&cache->seats.used) > 1
		? note_peak(cache, seat, row, tries, *ret_addr)
		: 0;
}

int glk_straight_again(
	const struct glk_asked *asked, struct glk_straight *tries, uint64_t *ret_addr)
{
	int err;

	tries->again = true;
	err = take(tries->arena->gpu, tries->arena, asked->seat, asked->id, asked->stream,
		asked->size, tries, ret_addr);
	/* it is due one as long as it meets others */
	return err == -EALREADY ? 0 : err;
}

/* A block that was freed on the stream of a row and not merged, if one is of that size: no lock is taken for it. */
static inline bool took_whole(struct glk_arena *arena, uint32_t number,
	struct glk_seat *seat, struct glk_row *row, uint64_t size, uint64_t *ret_addr)
{
	uint32_t id = glk_lookaside_take(
		&row->aside, glk_lookaside_key(glk_quick_grains(size), number));

	if (id)
		*ret_addr = glk_hit_revive(seat, glk_extent_at(&arena->map, id), size);
	return id;
}

int glk_straight_serve(
	struct glk_cache *cache, const struct glk_asked *asked, uint64_t *ret_addr)
{
	struct glk_row *row = &cache->rows[asked->id];
	struct glk_times *times = &cache->times[GLK_TIMED_REQUEST];
	struct glk_arena *arena = arena_of(cache, row);
	struct glk_straight tries GLK_UNFILLED;
	int64_t since;
	int err;

	if (glk_load_relaxed(&row->handle) == asked->stream &&
		took_whole(arena, arena->number, asked->seat, row, asked->size, ret_addr))
		return 0;
	glk_straight_begin(&tries, arena);
	since = glk_lock_short(&cache->lock, glk_times_due(times) ? asked->came : 0);
	err = take(cache, arena, asked->seat, asked->id, asked->stream, asked->size,
		&tries, ret_addr);
	if (err)
		return glk_miss_late(cache, asked, since, err, &tries, ret_addr);
	glk_unlock_short(&cache->lock, since, times);
	GLK_PROBE3(miss, cache->device, asked->size, *ret_addr);
	return 0;
}

/* A request that is not straight after all, likewise. */
static GLK_COLD int miss_late(struct glk_cache *cache, struct glk_seat *seat,
	const struct glk_row *row, struct CUstream_st *stream, uint64_t size,
	int64_t since, int err, struct glk_straight *tries, void **ret_ptr)
{
	const struct glk_asked asked = {.size = size,
		.handle = stream,
		.stream = glk_stream_name(stream),
		.seat = seat,
		.id = (uint32_t)(row - cache->rows)};
	uint64_t addr;

	err = glk_miss_late(cache, &asked, since, err, tries, &addr);
	if (!err)
		*ret_ptr = (void *)(uintptr_t)addr;
	return err;
}

/* The time, where the call is one of those that are timed. */
static GLK_COLD int64_t came(struct glk_cache *cache)
{
	int64_t at = glk_clock_ticks();

	if (glk_guard_ops(cache))
		glk_guard_ops(cache)->tick(cache);
	return at;
}

/* With the lock: a request from an arena, which is compiled in where it is that of all, as is `own`: else opt13b_LR takes
 * 1 % more. */
static inline __attribute__((always_inline)) int serve_held(struct glk_cache *cache,
	struct glk_arena *arena, bool own, struct glk_seat *seat, struct glk_row *row,
	struct CUstream_st *stream, uint64_t size, int64_t since, void **ret_ptr)
{
	struct glk_straight tries GLK_UNFILLED;
	uint64_t addr GLK_UNFILLED;
	int err;

	glk_straight_begin(&tries, arena);
	err = take(cache, arena, seat, (uint32_t)(row - cache->rows),
		glk_stream_name(stream), size, &tries, &addr);
	if (err)
		return miss_late(
			cache, seat, row, stream, size, since, err, &tries, ret_ptr);
	if (own && glk_load_relaxed(&cache->lock.waiters))
		glk_own_divide(cache);
	glk_unlock_short(&cache->lock, since, &cache->times[GLK_TIMED_REQUEST]);
	GLK_PROBE3(miss, cache->device, size, addr);
	*ret_ptr = (void *)(uintptr_t)addr;
	return 0;
}

/* A request of a stream that has a row, and no bin for it: from the arena of all. */
static inline __attribute__((always_inline)) int serve_all(struct glk_cache *cache,
	struct glk_seat *seat, struct glk_row *row, struct CUstream_st *stream,
	uint64_t size, int64_t since, void **ret_ptr)
{
	uint64_t addr GLK_UNFILLED;

	if (took_whole(&cache->arena, 0, seat, row, size, &addr)) {
		*ret_ptr = (void *)(uintptr_t)addr;
		return 0;
	}
	since = glk_lock_short(&cache->lock, since);
	return serve_held(
		cache, &cache->arena, false, seat, row, stream, size, since, ret_ptr);
}

/* From that of its stream, with no more than a part of the lock if that will do. */
static __attribute__((noinline)) int serve_own(struct glk_arena *arena,
	struct glk_seat *seat, struct glk_row *row, struct CUstream_st *stream,
	uint64_t size, int64_t since, void **ret_ptr)
{
	struct glk_cache *cache = arena->gpu;
	uint32_t number = arena->number;
	uint64_t addr GLK_UNFILLED;
	bool served = took_whole(arena, number, seat, row, size, &addr);

	if (!served && glk_lock_part(&cache->lock, number - 1, &since)) {
		served = glk_apart_serve(arena, seat, row, stream, size, &addr);
		since = served ? 0 : glk_lock_short(&cache->lock, since);
	}
	if (!served)
		return serve_held(
			cache, arena, true, seat, row, stream, size, since, ret_ptr);
	*ret_ptr = (void *)(uintptr_t)addr;
	return 0;
}

/* The stream is one that the thread has used of late, so the GPU is started, and the thread has no tag. No pool of
 * graphs is open; and the legacy stream captures nothing. */
int glk_hit_not(struct glk_cache *cache, uint64_t size, struct CUstream_st *stream,
	void **ret_ptr)
{
	const struct glk_thread_seat *place = glk_hit_place(cache);
	struct CUstream_st *name = glk_stream_name(stream);
	struct glk_seat *seat = place->seat;
	struct glk_row *row;
	int64_t since = 0;
	uint64_t addr GLK_UNFILLED;
	uint32_t own, id;

	if (!size || !glk_hit_seated(cache, place) || glk_thread_current->told)
		return glk_miss_plain(cache, size, stream, ret_ptr);
	row = seat->rows[glk_seat_hash(name)];
	if (glk_load_relaxed(&row->handle) != name) {
		row = glk_seat_elsewhere(seat, name);
		if (row == cache->rows)
			return glk_miss_plain(cache, size, stream, ret_ptr);
	}
	if ((glk_request_binned(cache, size) || glk_peek_relaxed(&row->met)) &&
		glk_miss_popped(cache, seat, row, size, &addr)) {
		*ret_ptr = (void *)(uintptr_t)addr;
		return 0;
	}
	if (glk_times_due(&cache->times[GLK_TIMED_REQUEST]))
		since = came(cache);
	id = (uint32_t)(row - cache->rows);
	/* by its name, not by what the row says by now: another thread may just send all requests past the bins */
	if (name && !glk_stream_is_plain(&cache->streams, id, stream))
		return glk_miss_plain(cache, size, stream, ret_ptr);
	/* pairs with: the release in glk_own_arena */
	own = glk_load_acquire(&row->own);
	if (own)
		return serve_own(glk_own_numbered(cache, own), seat, row, stream, size,
			since, ret_ptr);
	return serve_all(cache, seat, row, stream, size, since, ret_ptr);
}

/* Under the lock, whose turn stays short. False, with nothing done: more was done with the block. */
static inline __attribute__((always_inline)) bool give(struct glk_cache *cache,
	struct glk_arena *arena, struct glk_seat *seat, struct glk_extent *e,
	struct glk_stream *stream)
{
	struct glk_row *row = &cache->rows[stream->id];
	struct glk_map *map = &arena->map;
	enum glk_extent_state below, above;
	uint32_t first, last, id;
	struct glk_use use GLK_UNFILLED;
	bool newest = true;
	uint64_t tick;

	/* its bin tells what else was done with it */
	if (glk_load_relaxed(&e->bin) || e->size <= cache->straight_above ||
		map->hosted || cache->hints || glk_stream_owes(stream, e->size) ||
		stream->id != glk_load_relaxed(&e->stream) ||
		stream->bit >= GLK_STREAM_BITS)
		return false;
	glk_seat_free(seat, glk_extent_asked(e), e->size);
	tick = glk_clock_tick(&cache->streams, stream);
	id = glk_extent_id(map, e);
	below = glk_straight_state(map, e->prev);
	above = glk_straight_state(map, e->next);
	if (below != GLK_EXTENT_FREE && above != GLK_EXTENT_FREE &&
		glk_straight_keeps(cache, stream, row)) {
		struct glk_laid laid = {
			glk_lookaside_key(e->size >> GLK_GRAIN_SHIFT, arena->number),
			tick, id};

		if (!glk_load_relaxed(&row->touched))
			glk_store_relaxed(&row->touched, 1);
		/* what was there merges for it */
		glk_lookaside_put(&row->aside, &row->turn, &laid);
		if (!laid.id)
			return true;
		newest = false;
		arena = glk_own_numbered(cache, glk_lookaside_arena(laid.key));
		map = &arena->map;
		id = laid.id;
		tick = laid.tick;
		e = glk_extent_at(map, id);
		below = above = GLK_EXTENT_QUICK;
	}
	if (below == GLK_EXTENT_QUICK || above == GLK_EXTENT_QUICK)
		glk_quick_beside(arena, e);
	first = glk_extent_first(map, e);
	last = glk_extent_last(map, e);
	use = glk_stream_use(stream, tick);
	glk_quick_gone(cache, e);
	glk_lookup_leave(map, id);
	/* what was freed before others stands beside what is known of these */
	if (!newest || !glk_clock_alone(&cache->streams) ||
		!glk_slots_plain(map, first, last))
		glk_slots_leave(map, first, last, &use);
	else
		glk_slots_leave_plain(map, first, last, &use);
	glk_extent_give_back(map, id);
	return true;
}

/* `own`, compiled in: the arena is one of a stream. */
static inline __attribute__((always_inline)) int give_back(struct glk_arena *arena,
	struct glk_extent *e, struct CUstream_st *stream, bool own)
{
	struct glk_cache *cache = arena->gpu;
	const struct CUstream_st *name = glk_stream_name(stream);
	struct glk_times *times = &cache->times[GLK_TIMED_FREE];
	struct glk_seat *seat = glk_hit_seat(cache);
	struct glk_stream *on;
	uint64_t size = e->size;
	uint32_t id GLK_UNFILLED;
	int64_t since GLK_UNFILLED;
	int err;

	/* a default stream has more names than one, and the row of its blocks has another */
	if (name != stream && seat &&
		glk_load_relaxed(
			&glk_quick_row_of(cache, glk_load_relaxed(&e->bin))->handle) ==
			name)
		return glk_hit_put_turn(arena, e, stream);
	since = glk_times_due(times) ? glk_clock_ticks() : 0;
	id = glk_hit_stream(cache, seat, stream);
	err = id ? 0 : glk_block_ask(cache, e, stream, &id);
	if (err)
		return err;
	on = glk_stream_at(&cache->streams, id);
	if (own && seat && glk_lock_part(&cache->lock, arena->number - 1, &since)) {
		if (glk_apart_give(arena, seat, e, on))
			return 0;
		since = glk_lock_short(&cache->lock, since);
	} else if (!own || !seat) {
		seat = seat ? seat : glk_slab_at(&cache->seats, 0);
		since = glk_lock_short(&cache->lock, since);
	}
	if (!give(cache, arena, seat, e, on))
		return glk_block_give_late(arena, seat, e, id, stream, since);
	glk_stream_own(&cache->streams, on, size);
	glk_unlock_short(&cache->lock, since, times);
	return 0;
}

static __attribute__((noinline)) int give_back_own(
	struct glk_arena *arena, struct glk_extent *e, struct CUstream_st *stream)
{
	return give_back(arena, e, stream, true);
}

int glk_block_give_back(
	struct glk_arena *arena, struct glk_extent *e, struct CUstream_st *stream)
{
	return arena->number ? give_back_own(arena, e, stream)
			     : give_back(arena, e, stream, false);
}
