/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_ARENA_H
#define GLK_CACHE_ARENA_H

/* What is asked of arenas: see move/arena.h. */
#include "move/gpu.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct glake_block;
struct glk_arena;
struct glk_cache;
struct glk_map_size;
struct glk_request;

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
	bool waited;   /* its stream, for the work of others */
	bool stitched; /* with pages that lay elsewhere */
	bool wake;     /* a thread of the GPU has something to do */
	bool alone;    /* nobody else is inside who is not parked: see move/plan.h */
	bool climbs;   /* because it has its turn on the ladder */
};

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
/* With these, says in the map of the GPU's own arena, for a request of that or of a stream's, whether so much lies
 * beside live blocks, in bins or in holes, that it packs, and whether so much is held that places are tight, with a
 * request of so many bytes; past the target a few blocks in bins are given back then. */
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
