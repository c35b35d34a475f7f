/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MAP_USE_H
#define GLK_MAP_USE_H

/*
 * When the memory behind slots was last used on the GPU. Slots that were freed together were
 * used alike, so uses are kept by run: an edge marks the slot where a run begins, and every 64th
 * slot begins one, so that the run of a slot is found in one word.
 *
 * Cost		asking: constant. Setting: a step for 64 slots
 */
#include "map/table.h"

static inline uint32_t glk_use_slot(const struct glk_map *map, uint32_t slot)
{
	uint64_t edges = map->edge[slot >> 6] & ~UINT64_C(0) >> (63 - (slot & 63));

	return edges ? (slot & ~UINT32_C(63)) | (63 - (uint32_t)__builtin_clzll(edges))
		     : slot & ~UINT32_C(63);
}

/* The last use through the mapping of a slot. */
static inline struct glk_use glk_use_at(const struct glk_map *map, uint32_t slot)
{
	return map->use[glk_use_slot(map, slot)];
}

/* The last slot of the run of one, or `last` if the run goes on. */
static inline uint32_t glk_use_end(
	const struct glk_map *map, uint32_t slot, uint32_t last)
{
	uint64_t edges = (slot & 63) == 63
		? 0
		: map->edge[slot >> 6] & ~UINT64_C(0) << ((slot & 63) + 1);
	uint32_t end = edges
		? (slot & ~UINT32_C(63)) + (uint32_t)__builtin_ctzll(edges) - 1
		: slot | 63;

	return end < last ? end : last;
}

/* Whether a use says all that is known of a slot: a later one, of its streams and perhaps more. */
static inline bool glk_use_covers(
	const struct glk_map *map, uint32_t slot, const struct glk_use *use)
{
	return glk_use_holds(use, &map->use[glk_use_slot(map, slot)]);
}

/* For all slots of a run, instead of what there was; and if it was left just now they are not busy any more. */
static inline void glk_use_set_left(struct glk_map *map, uint32_t first, uint32_t last,
	const struct glk_use *use, bool left)
{
	uint64_t *edges = map->edge, *edge = &edges[last >> 6];
	uint64_t *busy = map->busy;
	struct glk_use *uses = map->use;
	uint32_t at = first;

	/* what comes behind keeps the use it had */
	if ((last & 63) != 63 && !(*edge >> ((last & 63) + 1) & 1)) {
		uses[last + 1] = glk_use_at(map, last + 1);
		*edge |= UINT64_C(2) << (last & 63);
	}
	/* and a run begins with each word */
	GLK_BITS_EACH(w, mask, first, last, {
		edges[w] = (edges[w] & ~mask) | (mask & -mask);
		uses[at] = *use;
		at = (at | 63) + 1;
		if (left)
			glk_poke_relaxed(&busy[w], busy[w] & ~mask);
	});
}

/* The use alone; or (use.c) beside what there was. */
static inline void glk_use_set(
	struct glk_map *map, uint32_t first, uint32_t last, const struct glk_use *use)
{
	glk_use_set_left(map, first, last, use, false);
}

void glk_use_join(
	struct glk_map *map, uint32_t first, uint32_t last, const struct glk_use *use);
/* For a run that an extent leaves, at whose ends others may have been before; of no stream: nothing. */
void glk_use_leave(
	struct glk_map *map, uint32_t first, uint32_t last, const struct glk_use *use);
/* All uses of a run. */
struct glk_use glk_use_sum(const struct glk_map *map, uint32_t first, uint32_t last);

/*
 * Runs of equal use among the usable slots of a place, from the lowest on. None reaches from one word of
 * the bitmaps into the next: a page with several mappings may be met twice.
 */
struct glk_use_walk {
	uint32_t first, last; /* the place */
	uint32_t w;	      /* the word it has come to */
	uint64_t left;	      /* usable slots there that were not met */
};

struct glk_use_run {
	uint32_t first, last;
	bool shared; /* a mapping of a page that has several: the use is the page's */
};

static inline struct glk_use_walk glk_use_begin(
	const struct glk_map *map, uint32_t first, uint32_t last)
{
	return (struct glk_use_walk){.first = first,
		.last = last,
		.w = first >> 6,
		.left = map->usable[first >> 6] & glk_bits_mask(first >> 6, first, last)};
}

static inline bool glk_use_next(
	const struct glk_map *map, struct glk_use_walk *walk, struct glk_use_run *ret_run)
{
	uint32_t w = walk->w, first;
	uint64_t left = walk->left, stops;
	bool shared;

	while (!left) {
		if (w == walk->last >> 6)
			return false;
		w++;
		left = map->usable[w] & glk_bits_mask(w, walk->first, walk->last);
	}
	first = (uint32_t)__builtin_ctzll(left);
	/* what is usable behind the end of a mapping is the beginning of another one */
	shared = map->shared[w] >> first & 1;
	stops = (shared ? map->head[w] : map->edge[w] | map->shared[w]) | ~left;
	stops &= ~UINT64_C(1) << first;
	walk->w = w;
	walk->left = left & -(stops & -stops);
	first |= w << 6;
	*ret_run = (struct glk_use_run){.first = first,
		.last = w << 6 | (stops ? (uint32_t)__builtin_ctzll(stops) - 1 : 63),
		.shared = shared};
	return true;
}

/* Where the use of a run is kept; others may have it too, so it is set by the function below. */
static inline const struct glk_use *glk_use_in(
	const struct glk_map *map, const struct glk_use_run *run)
{
	return run->shared ? &glk_map_page(map, map->page[run->first])->use
			   : &map->use[glk_use_slot(map, run->first)];
}

static inline void glk_use_put(
	struct glk_map *map, const struct glk_use_run *run, const struct glk_use *use)
{
	if (run->shared)
		glk_map_page(map, map->page[run->first])->use = *use;
	else
		glk_use_set(map, run->first, run->last, use);
}

/* The last use of the page of a mapped slot, through any of its mappings. */
static inline struct glk_use glk_use_of_page(const struct glk_map *map, uint32_t slot)
{
	if (!glk_bit_get(map->shared, slot))
		return glk_use_at(map, slot);
	return glk_map_page(map, map->page[slot])->use;
}

#endif
