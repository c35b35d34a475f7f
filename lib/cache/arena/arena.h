/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_ARENA_H
#define GLK_CACHE_ARENA_H

/*
 * An arena: addresses of one GPU with what lies in them, the pages behind them, and the order in
 * which streams may have them. A GPU has one that bins serve and a few more, one for each pool of
 * graphs; all are equals over the pages, the streams and the lock of the GPU. What kinds of them
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
	/* So many blocks and bytes asked for more, or fewer. NULL: nobody counts them. */
	void (*count)(struct glk_arena *arena, int blocks, int64_t bytes);
	/* What query tells beside the rest. NULL: nothing. */
	void (*describe)(const struct glk_arena *arena, struct glake_block *block);
	/* What a stream used last is its own, without a look. */
	bool own;
	/* What is mapped stays while the arena is there: work that no event tells of uses it. */
	bool closed;
	/* A request may wait for the work of streams. */
	bool waits;
	/* Its pages are memory of the host. They cost more than a mapping, so idle ones are taken before
	 * new ones are made; and its blocks have nowhere to go. */
	bool host;
};

struct glk_arena {
	struct glk_cache *gpu;
	const struct glk_arena_ops *ops;
	/* Whose idle pages it may have, which are of the same node: its own, or those of another. */
	struct glk_arena *home;
	/* The first GPU of the context, by which contexts are told apart, where freed blocks go to
	 * bins; NULL: no block of this arena does. */
	const struct glk_cache *binned;
	struct glk_map map;
	uint64_t held;	 /* blocks that were freed and are out, see pin.c */
	uint32_t inside; /* requests that are being served */
};

/* What is asked of an arena, and what was done for it. */
struct glk_request {
	uint64_t size; /* asked for */
	uint64_t rounded;
	uint32_t bin; /* where it goes when freed */
	uint32_t flags;
	struct glk_stream *stream;
	uint64_t capture; /* of a graph, that the stream is in; 0: in none */
	bool trim;	  /* too much memory is stranded, see glk_want */
	bool patient;	  /* it waits for the GPU before it is refused */
	bool own;	  /* nothing of other streams is in the place that was found */
	bool called;	  /* the driver was called for it, waits included */
	bool stitched;	  /* with pages that lay elsewhere */
	bool wake;	  /* the thread that grows ahead has something to do */
};

/* Whether other streams may be in a use; a stream of the crowd is not told from its others. */
static inline bool glk_request_foreign(
	const struct glk_stream *stream, const struct glk_use *use)
{
	return stream->bit == GLK_STREAM_CROWD ||
		(use->streams & ~glk_stream_mask(stream));
}

/* The arena of a range. Any thread, no lock. */
static inline struct glk_arena *glk_arena_of(const struct glk_range *range)
{
	return (struct glk_arena *)(void *)((char *)range->map -
		offsetof(struct glk_arena, map));
}

/* Bytes of its node that nobody uses: free pages, and idle ones of a home. Under the lock. */
static inline uint64_t glk_arena_idle(const struct glk_arena *home)
{
	return (home->map.idle_slots << home->map.shift) + glk_node_free(home->map.node);
}

/* device.c. Makes its tables, and reserves its first addresses, so many. 0, -ENOMEM, or the driver's
 * error. */
int glk_arena_init(struct glk_arena *arena, struct glk_cache *gpu,
	const struct glk_arena_ops *ops, struct glk_node *node, uint64_t step);
/* Ends them; all was given back. */
void glk_arena_fini(struct glk_arena *arena);

/* serve.c. Takes back an extent the caller owns, which was used as `use` says: it merges with what is free
 * beside it. */
void glk_arena_merge(struct glk_arena *arena, uint32_t extent, const struct glk_use *use);
/* small.c. One more block like a small one that a request was just given, right behind it, where
 * that needs nothing; 0: there is no room. */
uint32_t glk_small_behind(
	struct glk_arena *arena, struct glk_request *request, uint32_t extent);

#endif
