/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_STRAIGHT_FIND_H
#define GLK_CACHE_STRAIGHT_FIND_H

/*
 * What straight requests and frees ask before they do anything, and how a request finds its place: for who has the lock
 * of the GPU (straight.c), and for who has a part of it (apart.c).
 */
#include "cache/straight.h"

#include "cache/arena/request.h"
#include "cache/bin/quick.h"

#include <errno.h>

/* Requests since it was found out how tight memory is, after which that is done anew where it counts. */
#define WEIGHED 16

/* Whether so much may be stranded that places are to be chosen by it: see glk_supply_tight(), which says how much that
 * is when it is asked. */
static inline bool glk_straight_is_tight(
	const struct glk_cache *cache, const struct glk_map *map)
{
	const struct glk_stock *stock = &map->space->of[GLK_OF_NODE];

	return stock->stranded > cache->stranded_most &&
		(stock->idle_slots << map->shift) + glk_node_free(cache->node) <
		glk_node_own(cache->node) / 5;
}

/* Whether something is out of the ordinary on the GPU, so that a request has more to ask. */
static inline bool glk_straight_is_odd(
	const struct glk_cache *cache, const struct glk_map *map)
{
	return cache->plans.closed || glk_load_relaxed(&cache->suspended) ||
		cache->ended != cache->streams.ended || map->hosted ||
		glk_straight_is_tight(cache, map);
}

/* Whether a place is usable as it is, and with `apart` such as is told apart. */
static inline bool glk_straight_is_usable(
	const struct glk_map *map, bool apart, struct glk_straight_place *place)
{
	uint32_t first = place->first, last = place->last;

	place->plain = apart ? glk_slots_may_apart(map, first, last)
			     : glk_slots_plain(map, first, last);
	return place->plain || (!apart && glk_bits_all(map->usable, first, last));
}

/* Whether a stream may have it behind no wait: it used all of it last, or is known to come behind those who did. */
static inline bool glk_straight_is_ready(struct glk_cache *cache,
	const struct glk_map *map, const struct glk_stream *stream, bool apart,
	struct glk_straight_place *place)
{
	struct glk_use before = {0};
	struct glk_use_walk walk;
	struct glk_use_run run;

	place->foreign = false;
	if (glk_clock_alone(&cache->streams))
		return true;
	walk = glk_use_begin(map, place->first, place->last);
	while (glk_use_next(map, &walk, &run)) {
		const struct glk_use *use = glk_use_in(map, &run);

		if (!glk_stream_foreign(stream, use) || glk_use_same(use, &before))
			continue;
		place->foreign = true;
		/* what is found out of the crowd is kept for all */
		if (apart && use->streams & GLK_USE_CROWD)
			return false;
		if (!glk_clock_behind(&cache->streams, use, stream))
			return false;
		before = *use;
	}
	return true;
}

/* Whether somebody maps there, or one page would have to be in use at two slots of it. */
static inline bool glk_straight_is_beset(
	const struct glk_map *map, const struct glk_straight_place *place)
{
	return glk_is_claimed(map, place->first, place->last) ||
		(!place->plain && !glk_slots_differ(map, place->first, place->last));
}

/*
 * The place that a search settles with: both ends of the smallest few extents, as glk_fit_search() has them. What would
 * have to be mapped is passed there, and what has to be waited for where memory is not tight, which is to be known
 * then; it goes on behind the `tries->looked` extents that were looked at before. -EAGAIN: it is not known; -EBUSY:
 * there are places behind a wait alone; -ENOMEM: the search has more to compare. `apart`, compiled in: for who has a
 * part of the lock, places that are told apart, and nothing is found out or waited for.
 */
static inline __attribute__((always_inline)) int glk_straight_find(
	struct glk_cache *cache, const struct glk_map *map,
	const struct glk_stream *stream, uint64_t size, struct glk_straight *tries,
	unsigned most, bool apart, struct glk_straight_place *place)
{
	bool both = map->ends == GLK_POLICY_ENDS_BOTH;

	if (!tries->looked)
		glk_tree_begin(&tries->walk, &map->common, size);
	for (; tries->looked < most; tries->looked++) {
		uint32_t id = glk_tree_next(map, &tries->walk);
		const struct glk_extent *e = glk_extent_at(map, id);
		uint64_t high = e->offset + e->size - size;

		if (!id)
			break;
		place->extent = id;
		place->offset = e->offset;
		for (;; place->offset = high) {
			place->first = glk_slot_of(map, place->offset);
			place->last = glk_slot_of(map, place->offset + size - 1);
			if (glk_straight_is_usable(map, apart, place)) {
				if (glk_straight_is_ready(
					    cache, map, stream, apart, place)) {
					if (!glk_straight_is_beset(map, place))
						return 0;
				} else if (!apart &&
					cache->served - cache->weighed >= WEIGHED) {
					return -EAGAIN;
				} else if (!apart && tries->count < GLK_STRAIGHT_BEHIND) {
					tries->place[tries->count++] = *place;
					if (map->tight)
						return -EBUSY;
				}
			}
			if (!both || place->offset == high)
				break;
		}
	}
	return tries->count ? -EBUSY : -ENOMEM;
}

/* Whether a stream is what it was when it was looked up, has a row, and owes no event. */
static inline bool glk_straight_is_still(const struct glk_stream *stream,
	const struct glk_row *row, const struct CUstream_st *name)
{
	return glk_load_relaxed(&stream->key) == (uintptr_t)name &&
		stream->bit < GLK_STREAM_BITS && glk_load_relaxed(&row->entered) &&
		row->key == (uintptr_t)name && !glk_stream_owes(stream, 0);
}

static inline void glk_straight_begin(struct glk_straight *tries, struct glk_arena *arena)
{
	tries->arena = arena;
	tries->again = tries->called = tries->learned = false;
	tries->looked = tries->count = 0;
}

static inline enum glk_extent_state glk_straight_state(
	const struct glk_map *map, uint32_t extent)
{
	return extent ? glk_extent_state(glk_extent_at(map, extent)) : GLK_EXTENT_LIVE;
}

/* Whether a block that is freed on its stream and has nothing free beside it may stay whole. */
static inline bool glk_straight_keeps(const struct glk_cache *cache,
	const struct glk_stream *stream, const struct glk_row *row)
{
	return glk_load_relaxed(&row->handle) ==
		(void *)(uintptr_t)glk_load_relaxed(&stream->key) &&
		stream->handle != GLK_STREAM_PER_THREAD && cache->keeps_aside;
}

#endif
