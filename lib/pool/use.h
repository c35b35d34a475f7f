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
 * stands beside the set, as long as it is one alone, so that nobody waits for the others.
 */
#include <stdbool.h>
#include <stdint.h>

#define GLK_USE_CROWD (UINT64_C(1) << 63)

/* A free a tick: at ten million of them a second these last for seven years. */
#define GLK_USE_TICKS	((UINT64_C(1) << 51) - 1)
#define GLK_USE_MEMBERS ((UINT32_C(1) << 13) - 1)

struct glk_use {
	uint64_t streams; /* bit of each stream, see stream/table.h; 0: never used */
	union {
		struct {
			uint64_t tick : 51;
			/* The one stream that the bit of the crowd stands for; 0: several, or
			 * the bit is not set. */
			uint64_t member : 13;
		};
		uint64_t when; /* both: the tick alone, without that bit */
	};
};

/* Of several of the crowd, if of any. */
static inline struct glk_use glk_use_of(uint64_t streams, uint64_t tick)
{
	return (struct glk_use){.streams = streams, .tick = tick & GLK_USE_TICKS};
}

/* Whether it may be of any of the crowd. */
static inline bool glk_use_crowded(const struct glk_use *use)
{
	return (use->streams & GLK_USE_CROWD) && !use->member;
}

static inline bool glk_use_same(const struct glk_use *a, const struct glk_use *b)
{
	return a->streams == b->streams && a->when == b->when;
}

/* Takes streams out of it. */
static inline void glk_use_drop(struct glk_use *use, uint64_t streams)
{
	use->streams &= ~streams;
	if (!(use->streams & GLK_USE_CROWD))
		use->member = 0;
}

/* Whether a use says all that another one does: a later one, of its streams and perhaps more. */
static inline bool glk_use_holds(const struct glk_use *use, const struct glk_use *other)
{
	if (other->streams & ~use->streams)
		return false;
	if (!(use->streams & GLK_USE_CROWD))
		return other->when <= use->when;
	return other->tick <= use->tick &&
		(!(other->streams & GLK_USE_CROWD) || !use->member ||
			other->member == use->member);
}

/* With one of the crowd in it, or several. */
static inline void glk_use_add_crowd(struct glk_use *use, const struct glk_use *more)
{
	uint64_t member = use->streams & GLK_USE_CROWD ? use->member : more->member;

	if ((more->streams & GLK_USE_CROWD) && member != more->member)
		member = 0;
	use->member = member & GLK_USE_MEMBERS;
	use->streams |= more->streams;
	if (use->tick < more->tick)
		use->tick = more->tick;
}

static inline void glk_use_add(struct glk_use *use, const struct glk_use *more)
{
	if ((use->streams | more->streams) & GLK_USE_CROWD) {
		glk_use_add_crowd(use, more);
		return;
	}
	use->streams |= more->streams;
	if (use->when < more->when)
		use->when = more->when;
}

#endif
