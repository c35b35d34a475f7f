/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The straight miss and the straight free: see straight.h. */
#include "cache/straight.h"

#include "base/probe.h"
#include "base/thread.h"
#include "cache/arena/request.h"
#include "cache/bin/hit.h"

#include <errno.h>

/* Requests since it was found out how tight memory is, after which that is done anew where it counts. */
#define WEIGHED 16

/* Whether so much may be stranded that places are to be chosen by it: see glk_supply_tight(), which says how much that
 * is when it is asked. */
static inline bool is_tight(const struct glk_cache *cache)
{
	const struct glk_map *map = &cache->arena.map;
	const struct glk_stock *stock = &map->space->of[GLK_OF_NODE];

	return stock->stranded > cache->stranded_most &&
		(stock->idle_slots << map->shift) + glk_node_free(cache->node) <
		glk_node_own(cache->node) / 5;
}

/* Whether something is out of the ordinary on the GPU, so that a request has more to ask. */
static inline bool is_odd(const struct glk_cache *cache)
{
	const struct glk_map *map = &cache->arena.map;

	return cache->plans.closed || glk_load_relaxed(&cache->suspended) ||
		cache->ended != cache->streams.ended || map->hosted || cache->ahead ||
		map->ends == GLK_POLICY_ENDS_HIGH ||
		cache->conf->pool_managed != GLK_POOL_MANAGED_NO || is_tight(cache);
}

/* Whether a stream may have a place behind no wait: it used all of it last, or is known to come behind those who did
 * (`foreign`). */
static inline bool is_ready(struct glk_cache *cache, const struct glk_stream *stream,
	uint32_t first, uint32_t last, bool *ret_foreign)
{
	const struct glk_map *map = &cache->arena.map;
	struct glk_use behind = {0};

	*ret_foreign = false;
	if (glk_clock_alone(&cache->streams))
		return true;
	for (uint32_t slot = first; slot <= last;
		slot = glk_use_end(map, slot, last) + 1) {
		const struct glk_use *use = &map->use[glk_use_slot(map, slot)];

		if (!glk_stream_foreign(stream, use) || glk_use_same(use, &behind))
			continue;
		if (glk_clock_waits(&cache->streams, use, stream))
			return false;
		behind = *use;
		*ret_foreign = true;
	}
	return true;
}

/* What has finished of such a place is forgotten, and what the stream comes behind is its own from now on. */
static GLK_COLD void take_over(
	struct glk_cache *cache, struct glk_stream *stream, uint32_t first, uint32_t last)
{
	struct glk_map *map = &cache->arena.map;

	for (uint32_t slot = first, end; slot <= last; slot = end + 1) {
		struct glk_use use = glk_use_at(map, slot);

		end = glk_use_end(map, slot, last);
		if (!glk_stream_foreign(stream, &use))
			continue;
		glk_clock_forget(&cache->streams, &use);
		if (glk_stream_foreign(stream, &use))
			glk_clock_order(&cache->streams, &use, stream);
		glk_use_set(map, slot, end, &use);
	}
}

/* A place. */
struct place {
	uint64_t offset;
	uint32_t extent; /* it is cut from */
	uint32_t first, last;
	bool foreign; /* streams that this one comes behind used it last */
	bool plain;   /* see glk_slots_plain() */
};

/* Looks at a place at which all is usable. */
static inline enum {
	READY,
	WAITS,
	ODD
} look_at(struct glk_cache *cache, const struct glk_stream *stream, struct place *place)
{
	const struct glk_map *map = &cache->arena.map;
	uint32_t first = place->first, last = place->last;

	/* of pages that are mapped elsewhere too streams have their uses there */
	if (glk_is_claimed(map, first, last) ||
		(!place->plain &&
			(!glk_clock_alone(&cache->streams) ||
				!glk_slots_differ(map, first, last))))
		return ODD;
	return is_ready(cache, stream, first, last, &place->foreign) ? READY : WAITS;
}

/*
 * The place that a search settles with at its first look: both ends of the smallest few extents, as glk_fit_search()
 * has them. What would have to be mapped is passed there, and what has to be waited for where memory is not tight,
 * which is to be known then. -EAGAIN: it is not; -EBUSY: there are places behind a wait alone; -ENOMEM: the search has
 * more to compare.
 */
static inline __attribute__((always_inline)) int find(struct glk_cache *cache,
	const struct glk_stream *stream, uint64_t size, struct place *place)
{
	const struct glk_map *map = &cache->arena.map;
	bool both = map->ends == GLK_POLICY_ENDS_BOTH;
	struct glk_tree_walk walk GLK_UNFILLED;
	int err = -ENOMEM;

	glk_tree_begin(&walk, &map->common, size);
	for (unsigned i = 0; i < GLK_FIT_FEW; i++) {
		uint32_t id = glk_tree_next(map, &walk);
		const struct glk_extent *e = glk_extent_at(map, id);
		uint64_t high = e->offset + e->size - size;

		if (!id)
			break;
		place->extent = id;
		place->offset = e->offset;
		for (;; place->offset = high) {
			place->first = glk_slot_of(map, place->offset);
			place->last = glk_slot_of(map, place->offset + size - 1);
			place->plain = glk_slots_plain(map, place->first, place->last);
			if (place->plain ||
				glk_bits_all(map->usable, place->first, place->last)) {
				switch (look_at(cache, stream, place)) {
				case READY:
					return 0;
				case ODD:
					return -ENOMEM;
				case WAITS:
					if (cache->served - cache->weighed >= WEIGHED)
						return -EAGAIN;
					err = -EBUSY;
					if (map->tight)
						return err;
				}
			}
			if (!both || place->offset == high)
				break;
		}
	}
	return err;
}

/* The same, with how tight memory is found out where that counts. */
static GLK_COLD int find_weighed(struct glk_cache *cache, const struct glk_stream *stream,
	uint64_t size, uint64_t rounded, struct place *place)
{
	glk_supply_weigh(&cache->arena, size);
	return find(cache, stream, rounded, place);
}

static inline __attribute__((always_inline)) int find_place(struct glk_cache *cache,
	const struct glk_stream *stream, uint64_t size, uint64_t rounded,
	struct place *place)
{
	int err = find(cache, stream, rounded, place);

	return err == -EAGAIN ? find_weighed(cache, stream, size, rounded, place) : err;
}

/* Whether a stream is what it was when it was looked up, has a row, and owes no event. */
static inline bool is_still(const struct glk_stream *stream, const struct glk_row *row,
	const struct CUstream_st *name)
{
	return glk_load_relaxed(&stream->key) == (uintptr_t)name &&
		stream->bit < GLK_STREAM_BITS && glk_load_relaxed(&row->entered) &&
		row->key == (uintptr_t)name && !glk_stream_owes(stream, 0);
}

/* Where it goes when it is freed; nearly always to no bin. */
static inline uint32_t bin_of(struct glk_cache *cache, const struct glk_stream *stream,
	struct glk_row *row, uint64_t rounded)
{
	return glk_quick_keeps(cache, stream, row, false)
		? glk_quick_bin(cache, row, rounded >> GLK_GRAIN_SHIFT)
		: 0;
}

/* See bin/seat.h. */
static void note_peak(struct glk_cache *cache, uint64_t size)
{
	glk_supply_sum(cache);
	glk_seats_note_peak(cache, cache->sum.live + size);
}

static inline __attribute__((always_inline)) int take(struct glk_cache *cache,
	struct glk_seat *seat, uint32_t stream_id, const struct CUstream_st *name,
	uint64_t size, uint64_t *ret_addr)
{
	uint64_t rounded = glk_quick_grains(size) << GLK_GRAIN_SHIFT;
	struct glk_stream *stream = glk_stream_at(&cache->streams, stream_id);
	struct glk_row *row = &cache->rows[stream_id];
	struct glk_map *map = &cache->arena.map;
	struct place place GLK_UNFILLED;
	struct glk_extent *e;
	uint32_t id;
	int err;

	if (is_odd(cache) || rounded <= cache->small_most ||
		glk_request_binned(cache, size) ||
		rounded > glk_load_relaxed(&cache->node->budget) ||
		!is_still(stream, row, name))
		return -ENOMEM;
	if (glk_event_is_due(&cache->streams, glk_load_relaxed(&cache->node->held)))
		return -EBUSY;
	err = find_place(cache, stream, size, rounded, &place);
	if (!err)
		err = glk_extent_carve(map, place.extent, place.offset, rounded, &id);
	if (err)
		return err;
	e = glk_extent_at(map, id);
	if (place.foreign)
		take_over(cache, stream, place.first, place.last);
	if (place.plain)
		glk_slots_enter_plain(map, place.first, place.last);
	else
		glk_slots_enter(map, place.first, place.last);
	stream->mute = false;
	glk_quick_born(row, rounded);
	glk_store_relaxed(&e->slack, (uint32_t)(rounded - size));
	glk_store_relaxed(&e->stream, (uint16_t)stream->id);
	glk_store_relaxed(&e->bin, bin_of(cache, stream, row, rounded));
	glk_lookup_enter(map, id);
	/* of a thread that is alone its turn tells */
	if (glk_load_relaxed(&cache->seats.used) > 1)
		note_peak(cache, size);
	glk_seat_alloc(seat, size, rounded);
	cache->served++;
	*ret_addr = glk_load_relaxed(&e->addr);
	return 0;
}

int glk_straight_take(
	struct glk_cache *cache, const struct glk_asked *asked, uint64_t *ret_addr)
{
	return take(cache, asked->seat, asked->id, asked->stream, asked->size, ret_addr);
}

int glk_straight_serve(
	struct glk_cache *cache, const struct glk_asked *asked, uint64_t *ret_addr)
{
	struct glk_times *times = &cache->times[GLK_TIMED_REQUEST];
	int64_t since;
	int err;

	since = glk_lock_short(&cache->lock, glk_times_due(times) ? asked->came : 0);
	err = glk_straight_take(cache, asked, ret_addr);
	if (err)
		return glk_miss_late(cache, asked, since, err, ret_addr);
	glk_unlock_short(&cache->lock, since, times);
	GLK_PROBE3(miss, cache->device, asked->size, *ret_addr);
	return 0;
}

/* A request that is not straight after all, likewise. */
static GLK_COLD int miss_late(struct glk_cache *cache, struct glk_seat *seat,
	const struct glk_row *row, struct CUstream_st *stream, uint64_t size,
	int64_t since, int err, void **ret_ptr)
{
	const struct glk_asked asked = {.size = size,
		.handle = stream,
		.stream = glk_stream_name(stream),
		.seat = seat,
		.id = (uint32_t)(row - cache->rows)};
	uint64_t addr;

	err = glk_miss_late(cache, &asked, since, err, &addr);
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

/* The stream is one that the thread has used of late, so the GPU is started, and the thread has no tag. No pool of
 * graphs is open; and the legacy stream captures nothing. */
int glk_hit_not(struct glk_cache *cache, uint64_t size, struct CUstream_st *stream,
	void **ret_ptr)
{
	const struct glk_thread_seat *place = glk_hit_place(cache);
	struct glk_times *times = &cache->times[GLK_TIMED_REQUEST];
	struct CUstream_st *name = glk_stream_name(stream);
	struct glk_seat *seat = place->seat;
	struct glk_row *row;
	int64_t since = 0;
	uint64_t addr;
	uint32_t id;
	int err;

	if (!size || place->serial != cache->serial || glk_thread_current->told)
		return glk_miss_plain(cache, size, stream, ret_ptr);
	row = seat->rows[glk_seat_hash(name)];
	if (glk_load_relaxed(&row->handle) != name)
		return glk_miss_plain(cache, size, stream, ret_ptr);
	if ((glk_request_binned(cache, size) || glk_peek_relaxed(&row->met)) &&
		glk_miss_popped(cache, seat, row, size, &addr)) {
		*ret_ptr = (void *)(uintptr_t)addr;
		return 0;
	}
	if (glk_times_due(times))
		since = came(cache);
	id = (uint32_t)(row - cache->rows);
	/* by its name, not by what the row says by now: another thread may just send all requests past the bins */
	if (name && !glk_stream_is_plain(&cache->streams, id, stream))
		return glk_miss_plain(cache, size, stream, ret_ptr);
	since = glk_lock_short(&cache->lock, since);
	err = take(cache, seat, id, name, size, &addr);
	if (err)
		return miss_late(cache, seat, row, stream, size, since, err, ret_ptr);
	glk_unlock_short(&cache->lock, since, times);
	GLK_PROBE3(miss, cache->device, size, addr);
	*ret_ptr = (void *)(uintptr_t)addr;
	return 0;
}

/* Under the lock, whose turn stays short. False, with nothing done: more was done with the block. */
static inline __attribute__((always_inline)) bool give(struct glk_cache *cache,
	struct glk_seat *seat, struct glk_extent *e, struct glk_stream *stream)
{
	struct glk_map *map = &cache->arena.map;
	uint32_t first = glk_extent_first(map, e), last = glk_extent_last(map, e);
	struct glk_use use;

	/* its bin tells what else was done with it */
	if (glk_load_relaxed(&e->bin) || e->nested || map->hosted || cache->hints ||
		cache->ahead || glk_stream_owes(stream, e->size) ||
		stream->id != glk_load_relaxed(&e->stream) ||
		stream->bit >= GLK_STREAM_BITS)
		return false;
	use = glk_stream_use(stream, glk_clock_tick(&cache->streams, stream));
	glk_seat_free(seat, glk_extent_asked(e), e->size);
	glk_quick_gone(cache, e);
	glk_lookup_leave(map, glk_extent_id(map, e));
	if (!glk_clock_alone(&cache->streams) || !glk_slots_plain(map, first, last))
		glk_slots_leave(map, first, last, &use);
	else
		glk_slots_leave_plain(map, first, last, &use);
	glk_extent_give_back(map, glk_extent_id(map, e));
	return true;
}

int glk_block_give_back(
	struct glk_cache *cache, struct glk_extent *e, struct CUstream_st *stream)
{
	const struct CUstream_st *name = glk_stream_name(stream);
	struct glk_times *times = &cache->times[GLK_TIMED_FREE];
	struct glk_seat *seat = glk_hit_seat(cache);
	struct glk_stream *on;
	uint64_t size = e->size;
	uint32_t id;
	int64_t since;
	int err;

	/* a default stream has more names than one, and the row of its blocks has another */
	if (name != stream && seat &&
		glk_load_relaxed(
			&glk_quick_row_of(cache, glk_load_relaxed(&e->bin))->handle) ==
			name)
		return glk_hit_put_turn(cache, e);
	since = glk_times_due(times) ? glk_clock_ticks() : 0;
	id = glk_hit_stream(cache, seat, stream);
	err = id ? 0 : glk_block_ask(cache, e, stream, &id);
	if (err)
		return err;
	seat = seat ? seat : glk_slab_at(&cache->seats, 0);
	since = glk_lock_short(&cache->lock, since);
	on = glk_stream_at(&cache->streams, id);
	if (!give(cache, seat, e, on))
		return glk_block_give_late(cache, seat, e, id, stream, since);
	glk_stream_own(&cache->streams, on, size);
	glk_unlock_short(&cache->lock, since, times);
	return 0;
}
