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
struct glk_map_size;
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
	/* The first GPU of the context, by which contexts are told apart, where freed blocks go to
	 * bins; NULL: no block of this arena does. */
	const struct glk_cache *binned;
	struct glk_map map;
	uint64_t held;	 /* blocks that were freed and are out, see pin.c */
	uint32_t inside; /* requests that are being served */
	glk_atomic(struct glk_advice *) advice; /* NULL: nothing was said, see advice.h */
	struct {
		uint32_t coldest, newest; /* 0: there is none */
	} cold_ones[GLK_COLD_LISTS];
	struct glk_cold_walk *cold_walks;
	uint64_t cold; /* bytes of all of them */
	bool shut;     /* it is of a tag that is suspended: nothing is served from it */
	uint64_t suspended_blocks; /* away because of that */
};

/* What is asked of an arena, and what was done for it. */
struct glk_request {
	uint64_t size; /* asked for */
	uint64_t rounded;
	uint32_t bin; /* where it goes when freed */
	uint32_t flags;
	struct glk_stream *stream;
	uint64_t capture;      /* of a graph, that the stream is in; 0: in none */
	struct glk_node *node; /* whose pages it is to have; NULL: as its arena has it */
	/* The slots of an extent that are to be backed; NULL: all of it. */
	const struct glk_stretch *run;
	uint32_t lead, tail; /* slots at its ends that get pages of one slot */
	bool single;	     /* all of them do */
	bool one;	     /* it gets one page */
	bool trim;	     /* too much memory is stranded, see glk_want */
	bool patient;	     /* it waits for the GPU before it is refused */
	bool cold;	     /* blocks that the program called cold go for it */
	bool anew;    /* it can begin anew, when the program has been asked for room */
	bool guarded; /* it takes the long way when it is freed: see struct glk_guard_ops */
	bool asks;    /* the program is to be asked for room first: see ladder.c */
	uint64_t lack; /* bytes of pages that its last try has lacked */
	bool own;      /* nothing of other streams is in the place that was found */
	bool called;   /* the driver was called for it, waits included */
	bool stitched; /* with pages that lay elsewhere */
	bool wake;     /* a thread of the GPU has something to do */
	bool alone;    /* nobody else is inside who is not parked: see cache/plan.h */
	bool climbs;   /* because it has its turn on the ladder */
};

/* placed.c. What a block has on the host, in place, is counted while it is not away: before it moves, and
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

/* tag/tag.c. -EAGAIN with a record while it is shut, else 0. */
int glk_arena_open(const struct glk_arena *arena);

/* trim.c. Bytes of a node that nobody uses: free pages, and idle ones in the space of a home. */
uint64_t glk_arena_idle(const struct glk_arena *home, const struct glk_node *node);
/* What a GPU may hold, by its budget and by what there is; and what may be had of that, held or not. */
uint64_t glk_cache_most(const struct glk_cache *cache);
uint64_t glk_cache_room(const struct glk_cache *cache);

/* arena.c. Makes it one of a space, and reserves its first addresses. 0, -ENOMEM, or the driver's
 * error. */
int glk_arena_init(struct glk_arena *arena, struct glk_cache *gpu,
	const struct glk_arena_ops *ops, struct glk_space *space,
	struct glk_map_size size);
/* The same in a space of its own, of a node. */
int glk_arena_init_alone(struct glk_arena *arena, struct glk_cache *gpu,
	const struct glk_arena_ops *ops, struct glk_space *space, struct glk_node *node,
	struct glk_map_size size);
/* So many addresses at first, and as many as map.span allows. */
struct glk_map_size glk_arena_size(const struct glk_cache *gpu, uint64_t step);
/* Ends it; all was given back. And the space of its own. */
void glk_arena_fini(struct glk_arena *arena);
void glk_arena_fini_alone(struct glk_arena *arena, struct glk_space *space);

/* Unmaps all of it and releases its pages; the GPU is idle. 0 or the driver's first error. And mappings that the
 * driver refused to take away are tried once more; likewise. */
int glk_arena_empty(struct glk_arena *arena);
int glk_arena_empty_kept(struct glk_arena *arena);
/* Takes back an extent the caller owns, which was used as `use` says: it merges with what is free
 * beside it. */
void glk_arena_merge(struct glk_arena *arena, uint32_t extent, const struct glk_use *use);
/* supply.c. Whether so much memory is stranded that places should be chosen to have less of it, before so many
 * bytes more. */
bool glk_supply_tight(const struct glk_arena *arena, uint64_t size);
/* The sums of all seats that the policy goes by; with many threads they may be old. */
void glk_supply_sum(struct glk_cache *gpu);
/* With these, says in the map of the GPU's own arena whether so much lies beside live blocks, in bins or in holes, that it packs,
 * and whether so much is held that places are tight, with a request of so many bytes; past the target a few blocks
 * in bins are given back then. */
void glk_supply_weigh(struct glk_arena *arena, uint64_t size);
/* Some blocks in bins are merged with what is free beside them, before pages are made past the target for so many
 * bytes, or where more of them wait than a quarter of what may be held above the peak. Whether any was. */
bool glk_supply_drain(struct glk_arena *arena, uint64_t size);
/* Times that a request has that done before it takes what costs more. */
#define GLK_DRAINS 4
/* Bytes that blocks may ask for together. */
struct glk_limit {
	uint64_t most;	  /* 0: any number */
	uint64_t pledged; /* of requests under way */
};
/* arena.c. Under the lock: so many bytes more are pledged, until the caller takes them back; -ENOMEM of the class
 * LIMIT where that were more than `what` may have. */
int glk_limit_pledge(const struct glk_cache *cache, struct glk_limit *limit,
	uint64_t live, const char *what, uint64_t size);
/* cache/ladder.c. Under the lock: whether the program makes room for a request that has none. */
bool glk_shortage_may_ask(
	const struct glk_cache *cache, const struct glk_request *request);
/* Without it: has it do so, for so many bytes; an answer is of use until then, or always with 0. */
void glk_shortage_ask(struct glk_cache *cache, uint64_t want, struct CUstream_st *stream,
	int64_t until);
/* small.c. One more block like a small one that a request was just given, right behind it, where
 * that needs nothing; 0: there is no room. */
uint32_t glk_small_behind(
	struct glk_arena *arena, struct glk_request *request, uint32_t extent);

#endif
