/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_STRAIGHT_H
#define GLK_CACHE_STRAIGHT_H

/*
 * The straight miss: a large block whose place is mapped is found, carved, entered and booked, and the free of one
 * that nothing was done with gives it back. A bounded number of steps under the lock. It is what a miss does while
 * nothing is out of the ordinary on the GPU; all else is for the plan (arena/serve.c) and the long free (block.c). With
 * one stream the place is the one that they would find.
 *
 * Of several streams each first looks for a place that it used itself, or that it is known to come behind: that calls
 * no driver and waits for nobody. Where there is none among the smallest, a second try goes on from there, after the
 * streams have told what they have finished, and settles in the end for a place behind a wait. Where that is so for
 * many of late, and the job is small, a stream gets an arena of its own: see bin/own.c.
 */
#include "cache/cache.h"
#include "cache/sampled.h"

/* Who asks, and what is known of it without the lock. */
struct glk_asked {
	uint64_t size;
	struct CUstream_st *handle, *stream; /* the second: its name */
	struct glk_seat *seat;		     /* NULL: none can be had */
	uint32_t id;			     /* of the stream */
	uint32_t flags;
	uint32_t tag;
	uint64_t session;	   /* of a pool of graphs */
	uint64_t capture;	   /* that the stream is in */
	int64_t came;		   /* when; 0: is not known, nor to be timed */
	enum glk_sampling sampled; /* how it is to lie against what is never mapped */
	bool tries;		   /* where it has no room it is asked for again */
	bool wiped;		   /* it is cleared when it is freed */
	uint64_t
		behind; /* bytes that guard wants behind it; 0: it is not guarded, if it is not sampled */
};

/* A plain request, see glk_straight_again(), from the lock to its end. */
int glk_straight_serve(
	struct glk_cache *cache, const struct glk_asked *asked, uint64_t *ret_addr);

/* A place, for straight.c alone. */
struct glk_straight_place {
	uint64_t offset;
	uint32_t extent; /* it is cut from */
	uint32_t first, last;
	bool foreign; /* other streams used it last */
	bool plain;   /* see glk_slots_plain() */
};

/* Places that are kept for a second try: of the smallest extents those that a stream has behind a wait alone. */
#define GLK_STRAIGHT_BEHIND 4

/* A request, from its first try to its second. */
struct glk_straight {
	/* In which it looks: that of its stream when it came, which may have another one by its second try. */
	struct glk_arena *arena;
	bool again;	 /* it may call the driver, for a stream that it comes behind */
	bool called;	 /* and did */
	bool learned;	 /* streams told something before the second one */
	unsigned looked; /* at extents, from the smallest on */
	unsigned count;	 /* of places below */
	uint64_t addr;	 /* of the block, where its stream is due an arena */
	struct glk_tree_walk walk;
	struct glk_straight_place place[GLK_STRAIGHT_BEHIND];
};

/*
 * miss.c: what is not straight. A block from a bin where two threads may meet, or the one beside it; a plain request
 * from its beginning; and one that could not be served as things were, with `err`, under the lock, whose turn was
 * short so far; `tries`: -EBUSY, and it is to be tried again. The lock is given back.
 */
bool glk_miss_popped(struct glk_cache *cache, struct glk_seat *seat, struct glk_row *row,
	uint64_t size, uint64_t *ret_addr);
int glk_miss_plain(struct glk_cache *cache, uint64_t size, struct CUstream_st *stream,
	void **ret_ptr);
int glk_miss_late(struct glk_cache *cache, const struct glk_asked *asked, int64_t since,
	int err, struct glk_straight *tries, uint64_t *ret_addr) GLK_COLD;

/* A second try for a plain request by a thread of a seat, on a stream that captures nothing, under the lock of the GPU,
 * whose turn is short no more. 0; or -EBUSY, -ENOMEM: it is for the plan, and nothing was taken, but what the stream has
 * come behind on the way is its own from then on. */
int glk_straight_again(
	const struct glk_asked *asked, struct glk_straight *tries, uint64_t *ret_addr);

#endif
