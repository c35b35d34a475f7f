/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_CACHE_H
#define GLK_CACHE_CACHE_H

/*
 * The face of this folder: the blocks of one GPU. It turns a request into a live extent with
 * pages behind it, picks the pages, orders streams, climbs the ladder when memory is short,
 * and takes blocks back.
 *
 * Threads	any thread may call any function. A request that finds a block of its size in
 *		the quick bins of its stream takes no lock (bin/), and no question about a live
 *		block does (block.c, pin.c); for the others one lock a GPU guards the tables
 *		below, so GPUs never wait for each other
 * Start	nothing is reserved before the first request of a GPU
 */
#include "base/lock.h"
#include "cache/arena/arena.h"
#include "cache/bin/row.h"
#include "cache/bin/seat.h"
#include "map/map.h"
#include "pool/pool.h"
#include "share/share.h"
#include "stream/stream.h"
#include "tier/tier.h"

#include <pthread.h>
#include <stddef.h>

#include <glake/graph.h>
#include <glake/memory.h>
#include <glake/stats.h>
#include <glake/tier.h>

struct glk_ahead;
struct glk_conf;
struct glk_graphs;
struct glk_moving;

/* What a hit does not run, so that the compiler keeps it out of the way. */
#define GLK_COLD __attribute__((noinline))

struct glk_cache {
	struct glk_lock lock;
	struct glk_streams streams;
	struct glk_lock dependencies; /* see glake_event_record() */
	struct glk_drv *drv;
	struct glk_pool *pool;
	struct glk_node *node;
	struct glk_node *host; /* its memory of the host */
	bool places;	       /* which blocks may be given that have no room on the GPU */
	const struct glk_conf *conf;
	int device;
	uint64_t memory;	  /* of the GPU, bytes */
	struct glk_lock starting; /* held by who makes the tables, at the first request */
	glk_atomic(bool) started;
	uint32_t seat_at; /* offset of its seats in the record of a thread */
	uint64_t serial;  /* of this use of the structure, never given twice */
	struct glk_cache *next_open;
	struct glk_slab seats;
	struct glk_row *rows; /* quick bins, by the index of a stream */
	struct glk_bin *bins; /* those of all rows */
	struct glk_imports imports;
	struct glk_slab crowds; /* more heads for the bins that need them */
	uint64_t small_most;	/* bytes of the largest small block */
	glk_atomic(uint64_t) peak_live;
	struct glk_arena arena; /* the one that the bins serve */
	/* Under the lock from here on. */
	struct glk_arena beside; /* of blocks that lie on the host, see beside.c */
	uint64_t placed, placed_blocks, most_placed;
	struct {
		pthread_cond_t
			settled; /* one has ended, or does not want to be waited for */
		uint32_t waiters;
		uint32_t inside;    /* who may have one */
		uint32_t under_way; /* plans */
		uint32_t climbers;  /* of these, who climb the ladder or wait to */
		uint32_t steps;	    /* of walks */
		bool climbing, closed;
		uint64_t ended;
	} plans;		 /* see plan.h */
	struct glk_ahead *ahead; /* NULL: no thread makes pages ahead */
	glk_atomic(
		struct glk_graphs *) graphs; /* NULL: there never was a pool of graphs */
	glk_atomic(bool) diverted; /* no request is a hit, since a pool is open */
	uint32_t last_row;
	struct glk_seats sum; /* of the seats, as of the last miss */
	uint32_t turn;	      /* row whose bins gave blocks back last */
	uint64_t past_peak; /* live bytes at their most until the peaks were reset last */
	uint64_t served;    /* requests served under the lock */
	uint64_t called;    /* of these, with calls of the driver */
	uint64_t stitches, oom;
	uint64_t flushes; /* times that bins gave blocks back */
	uint64_t ended;	  /* of the streams' count of ends, those whose rows were ended */
	uint64_t rungs[GLAKE_RUNG_COUNT];
	/* What is away, and blocks that are being moved: see away.h. */
	struct glk_moving *moving;
	pthread_cond_t moved;
	struct glk_mover mover;
	glk_atomic(bool) moves;	    /* there is one */
	glk_atomic(bool) suspended; /* no request is served */
	bool turning;		    /* somebody suspends or resumes it */
	uint64_t suspended_blocks;  /* away because of that */
	uint64_t away, away_blocks; /* bytes asked for; blocks */
	uint64_t spills, fetches;
};

/* The bin of blocks that were used on further streams: one of row 0, which is nobody's. */
#define GLK_BIN_MARKED 1u
/* The same for blocks that are or were out. */
#define GLK_BIN_PINNED 2u
/* And GLK_EXTENT_AWAY for those whose contents are elsewhere. */

/* device.c. 0 or the driver's error; nothing is reserved yet. */
int glk_cache_init(struct glk_cache *cache, struct glk_drv *drv, struct glk_pool *pool,
	const struct glk_conf *conf, int device);
/* Gives all memory back; the GPU is idle. Says how many blocks were live. 0 or the first
 * error of the driver. */
int glk_cache_fini(struct glk_cache *cache, size_t *ret_live);

/* arena/serve.c, block.c, dependency.c: contracts as in glake/memory.h and glake/stream.h. */
int glk_cache_alloc(struct glk_cache *cache, size_t size, struct CUstream_st *stream,
	uint32_t flags, uint64_t *ret_addr);
int glk_cache_free(struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream);
/* A request that the quick bins do not serve: hit.h has those they do. */
int glk_cache_miss(struct glk_cache *cache, size_t size, struct CUstream_st *stream,
	uint32_t flags, uint64_t *ret_addr) GLK_COLD;
int glk_cache_free_after(struct glk_cache *cache, uint64_t addr,
	struct CUevent_st *const *events, size_t count);
int glk_cache_use(struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream);
/* A stream has no more work, and its handle will not be used again. */
void glk_cache_stream_end(struct glk_cache *cache, struct CUstream_st *stream);
/* A stream is about to be destroyed by the program. */
int glk_cache_stream_leave(struct glk_cache *cache, struct CUstream_st *stream);
/* Dependencies between streams that the program made: see stream/note.c. */
int glk_cache_event_recorded(struct glk_cache *cache, const struct CUevent_st *event,
	struct CUstream_st *stream);
int glk_cache_stream_waited(struct glk_cache *cache, struct CUstream_st *stream,
	const struct CUevent_st *event);
void glk_cache_event_forget(struct glk_cache *cache, const struct CUevent_st *event);
int glk_cache_query(
	struct glk_cache *cache, uint64_t addr, struct glake_block *ret_block);

/*
 * graph/: pools of graphs, contracts as in glake/graph.h.
 */
struct glk_graph_begin {
	struct glake_pool_id id;
	glake_pool_filter_fn filter; /* NULL: for the capture of `stream` */
	void *arg;
	struct CUstream_st *stream;
	uint64_t capture; /* one that was not announced; 0: it is announced here */
};

int glk_graph_begin(struct glk_cache *cache, const struct glk_graph_begin *begin);
int glk_graph_end(struct glk_cache *cache, struct glake_pool_id id);
int glk_graph_release(struct glk_cache *cache, struct glake_pool_id id);
int glk_graph_get(
	struct glk_cache *cache, struct glake_pool_id id, struct glake_pool *ret);
/* The GPU of the arena that its bins serve. */
static inline struct glk_cache *glk_cache_binned(const struct glk_arena *arena)
{
	return (struct glk_cache *)(void *)((char *)arena -
		offsetof(struct glk_cache, arena));
}

/* The range of this GPU that an address lies in, whichever arena it is of; NULL: in none. Any
 * thread, no lock. */
static inline struct glk_range *glk_cache_range(
	const struct glk_cache *cache, uint64_t addr)
{
	struct glk_range *range = glk_index_find(addr);

	return range && glk_arena_of(range)->gpu == cache ? range : NULL;
}

/*
 * pin.c: blocks whose memory leaves the process. A pinned block keeps its addresses and its
 * pages until it was unpinned as often, also when it is freed meanwhile.
 */
struct glk_pin {
	const struct glk_range *range;
	uint64_t base, size;  /* address; bytes asked for */
	uint32_t first, last; /* slots */
	uint32_t count;	      /* pages */
	/* The page that was asked for last, and the first slot behind it. */
	uint32_t asked, behind;
};

/* The live block that begins at an address, or with `inside` the one that holds it. 0; -EINVAL
 * as glake_free(); -ENOMEM (class LIMIT): pinned too often. */
int glk_cache_pin(
	struct glk_cache *cache, uint64_t addr, bool inside, struct glk_pin *ret_pin);
/* A page of it: a glk_share_page_fn. In order each is a step from the one before. No lock: a pinned
 * block keeps its pages. */
struct glk_share_page glk_pin_page(void *pin, size_t i);
/* Once less, for the block that holds an address, live or freed. 0 or -EINVAL. */
int glk_cache_unpin(struct glk_cache *cache, uint64_t addr);

/* beside.c, under the lock: a request for which the GPU has no room is served with memory of the host, if
 * the configuration has it so. `err` is what it was answered; that, or 0, or another error. */
int glk_beside_serve(struct glk_cache *cache, const struct glk_request *request, int err,
	struct glk_seat *seat, uint64_t *ret_addr);
/* Gives so many bytes of the host back that nobody uses; whether there were any. Gives the lock up
 * meanwhile. */
bool glk_beside_release(struct glk_cache *cache, uint64_t bytes);
/* At the end of the GPU, which is idle. 0 or the driver's error. */
int glk_beside_fini(struct glk_cache *cache);

/* away.c, suspend.c: contracts as in glake/tier.h. */
int glk_cache_spill(struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream);
int glk_cache_fetch(struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream);
int glk_cache_suspend(struct glk_cache *cache, struct glake_suspended *ret);
int glk_cache_resume(struct glk_cache *cache, struct glake_suspended *ret);

/* figures.c */
void glk_cache_figures(struct glk_cache *cache, struct glake_stats *ret_stats);
void glk_cache_reset_peaks(struct glk_cache *cache);

/* peer.c: as glake_peer_access(). */
int glk_cache_peer(struct glk_cache *cache, int peer, bool on);

/* arena/trim.c: as glake_trim(). */
int glk_cache_trim(struct glk_cache *cache, uint64_t keep, uint64_t *ret_released);

#endif
