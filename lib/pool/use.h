/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_POOL_USE_H
#define GLK_POOL_USE_H

/*
 * When memory was last used on the GPU: by which streams, and until which tick of the GPU's
 * clock of frees. It says nothing on whether that work has finished; lib/stream answers that.
 *
 * One tick for all streams of the set is coarse and safe: work freed on a stream at tick t is
 * covered by any event recorded on that stream after t.
 *
 * Streams that are too many to have a bit each share the last one: the crowd. Which of them it is
 * stands beside the set, as long as they are few, so that nobody waits for the others.
 */
#include <stdbool.h>
#include <stdint.h>

#define GLK_USE_CROWD (UINT64_C(1) << 63)

/* Most that a use can name, and the room that the number of one takes. */
#define GLK_USE_NAMES	  4
#define GLK_USE_NAME_BITS 16
#define GLK_USE_NAME_MAX  ((1u << GLK_USE_NAME_BITS) - 1)

struct glk_use {
	uint64_t streams; /* bit of each stream, see stream/table.h; 0: never used */
	uint64_t tick;
	/* Those that the bit of the crowd stands for, the lowest number first in the lowest bits; 0:
	 * too many to be named, or the bit is not set. */
	uint64_t named;
};

/* With the bit of the crowd it may be of any of them. */
static inline struct glk_use glk_use_of(uint64_t streams, uint64_t tick)
{
	return (struct glk_use){.streams = streams, .tick = tick};
}

/* Whether it may be of any of the crowd. */
static inline bool glk_use_crowded(const struct glk_use *use)
{
	return (use->streams & GLK_USE_CROWD) && !use->named;
}

/* The first of the streams that are named, and those that come behind it. */
static inline uint32_t glk_use_first(uint64_t named)
{
	return (uint32_t)named & GLK_USE_NAME_MAX;
}

static inline uint64_t glk_use_rest(uint64_t named)
{
	return named >> GLK_USE_NAME_BITS;
}

static inline bool glk_use_same(const struct glk_use *a, const struct glk_use *b)
{
	return a->streams == b->streams && a->tick == b->tick && a->named == b->named;
}

/* Takes streams out of it. */
static inline void glk_use_drop(struct glk_use *use, uint64_t streams)
{
	use->streams &= ~streams;
	if (!(use->streams & GLK_USE_CROWD))
		use->named = 0;
}

/* use.c: of the crowd. Those that either names; 0: too many. */
uint64_t glk_use_names(uint64_t a, uint64_t b);
/* Whether all of some are among others. */
bool glk_use_names_all(uint64_t named, uint64_t some);

/* Whether a use says all that another one does: a later one, of its streams and perhaps more. */
static inline bool glk_use_holds(const struct glk_use *use, const struct glk_use *other)
{
	if (other->tick > use->tick || (other->streams & ~use->streams))
		return false;
	return use->named == other->named || !(other->streams & GLK_USE_CROWD) ||
		!use->named ||
		(other->named && glk_use_names_all(use->named, other->named));
}

static inline void glk_use_add(struct glk_use *use, const struct glk_use *more)
{
	if ((more->streams & GLK_USE_CROWD) && use->named != more->named)
		use->named = !(use->streams & GLK_USE_CROWD) ? more->named
			: use->named && more->named
			? glk_use_names(use->named, more->named)
			: 0;
	use->streams |= more->streams;
	if (use->tick < more->tick)
		use->tick = more->tick;
}

#endif
