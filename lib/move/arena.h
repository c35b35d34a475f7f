/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MOVE_ARENA_H
#define GLK_MOVE_ARENA_H

/*
 * An arena: addresses of one GPU with what lies in them, the pages behind them, and the order in
 * which streams may have them. A GPU has one that bins serve and a few more, as of streams that have one to themselves,
 * of tags and of pools of graphs; all are equals over the pages, the streams and the lock of the GPU. What kinds of them
 * differ in stands in struct glk_arena_ops and nowhere else.
 *
 * Threads	under the lock of the GPU, save what says otherwise
 */
#include "stream/stream.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct glake_block;
struct glk_arena;
struct glk_cache;
struct glk_request;

struct glk_arena_ops {
	int kind; /* GLAKE_ARENA_... */
	/* Whether `request` may have memory with this use, and behind how many waits. */
	bool (*may)(struct glk_arena *arena, const struct glk_request *request,
		const struct glk_use *use, unsigned *ret_waits);
	/* Orders its stream behind the use, and changes the use to what it is then: contract as
	 * glk_request_order(). */
	int (*order)(struct glk_arena *arena, struct glk_request *request,
		struct glk_use *use);
	/* A request, a use or a free on a stream, in the capture of a graph or in none (0).
	 * NULL: nothing is to be noted. */
	void (*note)(struct glk_arena *arena, const struct glk_stream *stream,
		uint64_t capture);
	/* The same for a free in a capture, before that. NULL: likewise. */
	void (*inherit)(struct glk_arena *arena, uint64_t capture);
	/* A block more, or one fewer. NULL: nobody counts them. */
	void (*count)(struct glk_arena *arena, const struct glk_extent *e, bool more);
	/* An elastic block has so many bytes more of its own, as asked for and as given, or fewer. NULL: there are none. */
	void (*grew)(struct glk_arena *arena, const struct glk_extent *e, uint64_t asked,
		uint64_t given);
	/* Where a request lies, carved. NULL: where it fits best. */
	int (*place)(struct glk_arena *arena, struct glk_request *request,
		uint32_t *ret_extent);
	/* What query tells beside the rest. NULL: nothing. */
	void (*describe)(const struct glk_arena *arena, struct glake_block *block);
	/* glake_spill, and with `to_gpu` glake_fetch, of blocks that do not move as others do: of one
	 * that was claimed, in the order of a stream. NULL: they do. */
	int (*move)(
		struct glk_arena *arena, struct glk_extent *e, uint32_t on, bool to_gpu);
	/* Why no block of it goes away, for a sentence; NULL: they may. */
	const char *stays;
	/* The same for why no other process and no card may have its memory. */
	const char *inside;
	/* What a stream used last is its own, without a look. */
	bool own;
	/* What is mapped stays while the arena is there: work that no event tells of uses it. */
	bool closed;
	/* A request may wait for the work of streams. */
	bool waits;
	/* Its blocks go away together, and not to the host in place. */
	bool leaves;
	/* Its pages are memory of the host, but for what has come to the GPU since. */
	bool host;
	/* Its pages are words, which cost nothing: there is one for each slot that was ever used, and it
	 * stays. No budget is for them. */
	bool fixed;
};

/* Cold blocks that may go are linked by age, for each priority; those without contents to keep first. */
#define GLK_COLD_LISTS 16

/* What the program said of a block, by the number of its extent. */
struct glk_advice {
	glk_atomic(uint32_t) what; /* GLAKE_ADVICE_... */
	glk_atomic(uint32_t) pins; /* see glake/pin.h */
	uint32_t older, newer;
	uint8_t priority;
	uint8_t list; /* the list of cold ones that it is in, from 1; 0: in none */
};

/* Somebody goes over all that are cold, and gives the lock up meanwhile: one that leaves its list is not the next
 * any more. */
struct glk_cold_walk {
	struct glk_cold_walk *other;
	int list;
	uint32_t id; /* the next one; 0: of the next list */
};

struct glk_arena {
	struct glk_cache *gpu;
	struct glk_arena
		*next; /* in the space of the GPU, whose own arena is the first */
	const struct glk_arena_ops *ops;
	/* In whose space the idle pages are that it may have. */
	struct glk_arena *home;
	/* The first GPU of the context, by which contexts are told apart, where freed blocks go to bins or
	 * the straight way back; NULL: no block of this arena does. */
	const struct glk_cache *binned;
	struct glk_map map;
	uint64_t held;	 /* blocks that were freed and are out, see pin.c */
	uint32_t inside; /* requests that are being served */
	uint32_t number; /* of a stream's own arena, from 1; of any other 0 */
	glk_atomic(struct glk_advice *) advice; /* NULL: nothing was said, see advice.h */
	struct {
		uint32_t coldest, newest; /* 0: there is none */
	} cold_ones[GLK_COLD_LISTS];
	struct glk_cold_walk *cold_walks;
	uint64_t cold; /* bytes of all of them */
	bool shut;     /* it is of a tag that is suspended: nothing is served from it */
	uint64_t suspended_blocks; /* away because of that */
};

/* away.c, under the lock. The part of what a block has in place that another GPU has lent. */
uint64_t glk_beside_lent(const struct glk_map *map, const struct glk_extent *e);
/* Bytes of a block that lie in memory of the host, in place. */
uint64_t glk_beside_placed(const struct glk_map *map, const struct glk_extent *e);
/* What a block has on the host, in place, is counted while it is not away: before it moves, and
 * after. */
void glk_beside_count(struct glk_arena *arena, const struct glk_extent *e, bool more);

/* A block more, or one fewer, where that is counted. */
static inline void glk_arena_count(
	struct glk_arena *arena, const struct glk_extent *e, bool more)
{
	if (arena->ops->count)
		arena->ops->count(arena, e, more);
	if (arena->map.hosted)
		glk_beside_count(arena, e, more);
}

/* The arena of a range. Any thread, no lock. */
static inline struct glk_arena *glk_arena_of(const struct glk_range *range)
{
	return (struct glk_arena *)(void *)((char *)range->map -
		offsetof(struct glk_arena, map));
}

#endif
