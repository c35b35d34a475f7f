/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MOVE_GPU_H
#define GLK_MOVE_GPU_H

/*
 * The GPU as all know it that stand on this room, whichever of its fields are theirs. It is one structure since one lock
 * guards it, and what each miss looks at lies in a few lines.
 */
#include "base/lock.h"
#include "base/probe.h"
#include "base/times.h"
#include "map/map.h"
#include "move/arena.h"
#include "pool/pool.h"
#include "share/share.h"
#include "stream/stream.h"
#include "tier/hostpool.h"
#include "tier/tier.h"

#include <pthread.h>
#include <stddef.h>

#include <glake/error.h>
#include <glake/graph.h>
#include <glake/managed.h>
#include <glake/map.h>
#include <glake/memory.h>
#include <glake/pin.h>
#include <glake/refusal.h>
#include <glake/stats.h>
#include <glake/tag.h>
#include <glake/tier.h>

struct glk_ahead;
struct glk_conf;
struct glk_graphs;
struct glk_hints;
struct glk_io;
struct glk_managed;
struct glk_moving;
struct glk_row;
struct glk_bin;
struct glk_sampled;
struct glk_tags;

/* What a hit does not run, so that the compiler keeps it out of the way. */
#define GLK_COLD __attribute__((noinline))

/* Two are in use at a time, and one by each thread that fetches; the others are for those that the driver does
 * not empty. */
#define GLK_WINDOWS 16

/* What is timed of a GPU beside its streams' waits. */
enum glk_timed {
	GLK_TIMED_REQUEST, /* that was no hit and took the lock, refused ones too */
	GLK_TIMED_FREE,	   /* that took the lock, refused ones too */
	GLK_TIMED_HOLD,	   /* of the lock, each turn */
	GLK_TIMED_WAIT,	   /* for what others are doing to memory */
	GLK_TIMED_SPILL,   /* of a block that went */
	GLK_TIMED_FETCH,   /* of one that came back */
	GLK_TIMED_EARLY,   /* from the end of a prefetch until it was due */
	GLK_TIMED_LATE,	   /* from then until its end */
	GLK_TIMED_COUNT,
};

/* A function that is told of moves; free without one. */
struct glk_hearer {
	glake_move_fn fn;
	void *arg;
	uint64_t number; /* of all that there were, in order */
	uint32_t callers;
};

/* What is needed of files that stand on those who need it: device.c has them. */
struct glk_above {
	/* Reserves the addresses of the GPU, once. 0, -ENOMEM, or the driver's error; the next call tries again. */
	int (*start)(struct glk_cache *cache);
	/* glk_beside_release(), glk_prefetch_carry() */
	bool (*yield)(void *cache, uint64_t bytes);
	bool (*carry)(struct glk_cache *cache);
};

/* See glk_trouble_note(). */
struct glk_trouble {
	uint32_t at, sum;
};

struct glk_rest {
	pthread_t thread;
	/* Under the lock of the GPU from here on. */
	pthread_cond_t wake;
	int64_t ns; /* pool.rest */
	bool runs;  /* there is a thread */
	bool none;  /* none could be had */
	bool stop, asleep;
};

/* Sums over all seats of a GPU. */
struct glk_seats {
	uint64_t allocs, frees, live;
	uint64_t given,
		total_given; /* bytes of live blocks as they lie, and of all ever */
};

#define GLK_REFUSAL_OWNERS 10

/* Live blocks that have something in common. */
struct glk_owner {
	uint64_t
		name; /* the largest size there is of them, as a power of two; a stream */
	uint64_t count, bytes;
};

/* Runs of one state. */
struct glk_pieces {
	uint64_t count, bytes, largest;
};

struct glk_refusal {
	uint64_t count; /* since the GPU was opened; 0: none */
	int64_t at;	/* glk_clock_ns() */
	uint64_t asked, stream;
	uint64_t
		lacked; /* bytes of pages more that it found no room for, as far as is known */
	uint32_t flags;
	bool graph; /* it was for a pool of graphs */
	struct glake_error why;
	struct glake_stats stats;
	uint64_t host_budget; /* UINT64_MAX: none */
	bool places, may_place;
	bool large; /* there are pages of several slots */
	/* The walk. */
	struct {
		uint64_t count; /* of them all */
		int64_t at;
		uint64_t runs;
		bool whole;
		uint64_t device_free,
			device_total; /* as the driver tells; both 0: it does not */
		struct glk_pieces pieces[GLAKE_RUN_STATES];
		uint64_t late; /* a stream of those that limbo waits for */
		struct glk_owner sizes[GLK_REFUSAL_OWNERS], streams[GLK_REFUSAL_OWNERS];
	} walk;
};

struct glk_cache {
	/* What hits read too, in a line that no miss writes. Of this use of the structure, never given twice: */
	_Alignas(64) uint64_t serial;
	glk_atomic(uint64_t) seat_turn; /* the name of whose it is, see bin/seat.h */
	struct glk_row *rows;		/* quick bins, by the index of a stream */
	struct glk_bin *bins;		/* those of all rows */
	uint64_t small_most;		/* bytes of the largest small block */
	struct glk_node *node;
	uint32_t seat_at; /* offset of its seats in the record of a thread */
	/* Reasons why no request is a hit: GLK_DIVERT_..., a bit each. */
	glk_atomic(uint32_t) diverted;
	/* The number of the legacy stream, which captures nothing and does not end; 0: nobody has used it. For requests and frees
	 * that no row tells, as where guard sees all of them. */
	glk_atomic(uint32_t) legacy;
	struct glk_lock lock;
	/* What each miss looks at, under the lock, in a few lines. */
	uint64_t served; /* requests served under the lock */
	uint64_t
		weighed; /* so many of them when it was found out last how tight memory is */
	bool keeps_aside; /* there was plenty then: see bin/lookaside.h */
	/* Slots that may be stranded before places are chosen so that fewer are: see straight.h. */
	uint64_t stranded_most;
	uint64_t ended; /* of the streams' count of ends, those whose rows were ended */
	struct glk_hints *hints;    /* poked; NULL: there never was one, see outcome.h */
	struct glk_ahead *ahead;    /* NULL: no thread makes pages ahead */
	glk_atomic(bool) suspended; /* no request is served */
	struct {
		uint32_t waiters;
		uint32_t inside;    /* who may have one */
		uint32_t parked;    /* of these, who wait, and not for the lock */
		uint32_t under_way; /* plans */
		uint32_t steps;	    /* of walks */
		uint32_t closed;    /* to those outside: GLK_PLANS_..., a bit each */
		bool climbing;	    /* somebody has his turn on the ladder */
		uint64_t ended;
		/* one has ended, or does not want to be waited for */
		pthread_cond_t settled;
	} plans; /* see plan.h */
	struct glk_slab seats;
	struct glk_streams streams;
	struct glk_rest rest;
	struct glk_lock dependencies; /* see glake_event_record() */
	const struct glk_conf *conf;
	const struct glk_above *above;
	struct glk_drv *drv;
	struct glk_pool *pool;
	struct glk_node *host; /* its memory of the host */
	bool places;	   /* which blocks may be given that have no room on the GPU */
	struct glk_io *io; /* NULL: contents go over the link of this GPU alone */
	int device;
	uint64_t memory;		     /* of the GPU, bytes */
	glk_atomic(uint64_t) held_by_others; /* of it, when the driver was asked last */
	double fill;			     /* what policy.target goes by, see fill.c */
	struct glk_lock starting; /* held by who makes the tables, at the first request */
	glk_atomic(bool) started;
	struct glk_cache *next_open;
	/* Requests and frees of all others when the turn of a seat began; somebody takes his. */
	glk_atomic(uint64_t) seat_others;
	glk_atomic(uint32_t) seat_turning;
	struct glk_imports imports;
	struct glk_slab crowds; /* more heads for the bins that need them */
	glk_atomic(uint64_t) peak_live;
	/* Arenas of streams, see bin/own.h; NULL: there never was one. */
	glk_atomic(struct glk_owns *) owns;
	/* Large requests that waited for other streams, or had memory mapped that lay elsewhere; many of late did: see
	 * fill.c. Under the lock. */
	struct glk_trouble waits, maps;
	bool waited, loose;
	/* Those that met other threads at the lock, likewise: see bin/own.c. */
	bool crowded;
	struct glk_trouble meets;
	/* Requests for more bytes may be straight: they are not small, go to no bin, and no key of the configuration is in
	 * their way. */
	uint64_t straight_above;
	_Alignas(64) struct glk_space
		space; /* of the arenas of the GPU, but for pools of graphs */
	_Alignas(64) struct glk_arena arena; /* the one that the bins serve */
	/* Under the lock from here on. */
	struct glk_arena beside;     /* of blocks that lie on the host, see beside.c */
	struct glk_managed *managed; /* NULL: there never was managed memory */
	bool unmanaged;		     /* the driver has none for this GPU */
	bool told; /* guard tells a tool of plain blocks, which are all managed memory then; chunks stay */
	uint64_t managed_live,
		most_managed; /* bytes of its blocks: asked for, at their most */
	struct glk_window {
		uint64_t addr, size; /* 0 bytes: none yet */
		uint64_t bytes;	     /* in use */
		uint64_t kept;	     /* bytes that the driver would not unmap */
		bool taken;
	} windows
		[GLK_WINDOWS]; /* where pages of the GPU are while others have their place: see exchange.h */
	uint64_t placed, placed_blocks, most_placed;
	uint64_t placed_peer;		    /* the part of it that another GPU has lent */
	uint64_t returned, returned_blocks; /* that were placed, and came to the GPU */
	uint64_t lowered, lowered_blocks;   /* the reverse */
	glk_atomic(
		struct glk_graphs *) graphs; /* NULL: there never was a pool of graphs */
	glk_atomic(struct glk_tags *) tags;  /* NULL: there never was a tag */
	uint32_t last_row;
	struct glk_seats sum; /* of the seats, as of the last miss */
	uint32_t turn;	      /* row whose bins gave blocks back last */
	uint64_t past_peak; /* live bytes at their most until the peaks were reset last */
	uint64_t called;    /* requests served with calls of the driver */
	uint64_t stitches, oom;
	uint64_t flushes; /* times that bins gave blocks back */
	uint64_t rungs[GLAKE_RUNG_COUNT];
	/* What is away, and blocks that are being moved: see away.h. */
	struct glk_moving *moving;
	pthread_cond_t moved;
	struct glk_mover mover;
	struct glk_slab parts; /* of blocks that are away in part: see part.h */
	struct glk_slab seals; /* of sealed pages that are away: see seal.h */
	struct {
		uint64_t came, early, late, useless;
	} prefetch;
	struct {
		pthread_t thread;
		bool runs; /* memory of the host is made ready */
		glk_atomic(bool) stop;
	} reserve;		/* see cache/reserve.h */
	glk_atomic(bool) moves; /* there is one */
	uint64_t *sums; /* of sealed pages, by slot, 0 for none; NULL: there are none */
	glk_atomic(bool)
		encrypts; /* what goes to the host: security.level=3, of a tag too */
	bool turning;	  /* somebody suspends or resumes it */
	bool in_place;	  /* blocks went to the host in place since it was suspended */
	uint64_t suspended_blocks;  /* away because of that */
	uint64_t away, away_blocks; /* bytes asked for; blocks */
	uint64_t elastic,
		elastic_blocks; /* bytes committed that were asked for; blocks */
	uint64_t bare;		/* bytes of their slots that are not committed */
	uint64_t
		shared; /* bytes committed of which the memory is counted elsewhere in their block */
	uint64_t spills, fetches;
	uint64_t spilled, fetched; /* bytes of them */
	uint64_t discards,
		discarded;    /* that went without their contents; bytes of them */
	uint32_t sending;     /* spills under way, up to their copy */
	uint64_t spill_waits; /* of requests that had no room, for such */
	uint64_t victims,
		victim_bytes; /* of those that went, since others needed the room */
	uint64_t
		lacked; /* bytes of pages that the last one found no room for; 0: others told it */
	struct glk_hearer hearers[GLAKE_MOVE_WATCHES_MAX]; /* see told.h */
	struct {
		glake_shortage_fn fn; /* NULL: none */
		void *user;
		uint32_t callers;
	} shortage;		    /* see ladder.c */
	uint32_t hearing;	    /* of them, those with a function */
	uint64_t heard;		    /* the number of the last one */
	struct glk_refusal refusal; /* the last one */
	struct glk_times times[GLK_TIMED_COUNT];
	uint64_t
		rights_left; /* GPUs that have some on its pages and should not, a bit each: see peer.c */
	struct glk_hostpool hostpool;		  /* has a lock of its own */
	struct glk_helper *helpers;		  /* threads of those above, see below */
	glk_atomic(struct glk_sampled *) sampled; /* NULL: no block was */
	glk_atomic(const struct glk_guard_ops *) guard; /* NULL: never guarded */
	void *guarding;					/* what guard keeps of it */
};

/* Which end of a block lies against addresses that are never mapped. */
enum glk_sampling { GLK_SAMPLING_NOT, GLK_SAMPLING_BY_TURNS, GLK_SAMPLING_ENDS };

/*
 * What guard does to blocks of the GPU's own arena: functions that it gives the GPU before the first one is guarded,
 * and that stay. Without the lock, where nothing else is said.
 */
struct glk_guard_ops {
	/* Bytes that a block gets behind those that are asked for, at the least; 0: it is not guarded, if it is not sampled. */
	uint64_t (*behind)(
		struct glk_cache *cache, uint32_t tag, uint64_t size, bool sampled);
	/* Whether it is to lie against addresses that are never mapped, in an arena of such blocks, and how. */
	enum glk_sampling (*samples)(struct glk_cache *cache, uint64_t size);
	/* One that it keeps is given out for a request on a stream that captures nothing: true, with *ret_addr. */
	bool (*again)(
		struct glk_cache *cache, uint64_t size, uint32_t on, uint64_t *ret_addr);
	/* Now and then, at a request: it may want to see the next one. */
	void (*tick)(struct glk_cache *cache);
	/* Whether a block with a tag, or with 0, is cleared before it is given; and whether it sees any block, when it is given and
	 * when it is freed, as one that is cleared then. */
	bool (*clears)(struct glk_cache *cache, uint32_t tag);
	bool (*wipes)(struct glk_cache *cache);
	/* A block was given and nobody knows of it yet: one that is guarded, on a stream that captures nothing, or is to be cleared,
	 * or that it sees. */
	void (*born)(struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream,
		bool guarded, bool clears);
	/* A block that is claimed goes, behind what was queued on a stream, by its number and handle; number 0: behind
	 * events. Whether guard keeps it, and gives it back later. Else it goes back behind the stream of *behind, which guard may
	 * put in the place of one behind those events, or of that stream. */
	bool (*freed)(struct glk_cache *cache, struct glk_extent *e, uint32_t on,
		struct CUstream_st *stream, uint32_t *behind);
	/* Contents of a block leave the memory behind its addresses. Under the lock. */
	void (*left)(struct glk_arena *arena, const struct glk_extent *e);
	/* Whether one that lies against such addresses goes with its free: nothing that is queued behind that finds it. */
	bool (*at_once)(struct glk_cache *cache);
	/* There is no room for a request: gives back what it keeps. Whether that was anything. */
	bool (*yield)(struct glk_cache *cache);
	/* There was none, and it is served without. */
	void (*without)(struct glk_cache *cache);
	/* A free of a block that is freed already. */
	void (*refused)(struct glk_cache *cache, uint64_t addr);
};

static inline const struct glk_guard_ops *glk_guard_ops(struct glk_cache *cache)
{
	/* pairs with: the release in lib/guard */
	return glk_load_acquire(&cache->guard);
}

/* For one whose contents leave. Under the lock. */
static inline void glk_guard_left(struct glk_arena *arena, const struct glk_extent *e)
{
	const struct glk_guard_ops *guard = glk_guard_ops(arena->gpu);

	if (guard)
		guard->left(arena, e);
}

/* The bin of blocks that were used on further streams: one of row 0, which is nobody's. */
#define GLK_BIN_MARKED 1u
/* The same for blocks that are or were out. */
#define GLK_BIN_PINNED 2u
/* And GLK_EXTENT_AWAY and GLK_EXTENT_PART for those whose contents are elsewhere. */

/* Every entry that may be the first calls it. */
static inline int glk_cache_start(struct glk_cache *cache)
{
	/* pairs with: the release of who starts it */
	return glk_load_acquire(&cache->started) ? 0 : cache->above->start(cache);
}

/* The range of this GPU that an address lies in, whichever arena it is of; NULL: in none. Any
 * thread, no lock. */
static inline struct glk_range *glk_cache_range(
	const struct glk_cache *cache, uint64_t addr)
{
	struct glk_range *range = glk_index_find(addr);

	return range && glk_arena_of(range)->gpu == cache ? range : NULL;
}

struct glk_portion {
	uint64_t offset, bytes; /* from the beginning of a block */
};

#endif
