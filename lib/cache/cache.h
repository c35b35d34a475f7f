/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_CACHE_H
#define GLK_CACHE_CACHE_H

/*
 * The face of this folder: the blocks of one GPU. It turns a request into a live extent with
 * pages behind it, picks the pages, orders streams, climbs the ladder when memory is short,
 * and takes blocks back.
 *
 * Threads	any thread may call any function. A request that finds a block of its size in
 *		the quick bins of its stream takes no lock (bin/); for the
 *		others one lock a GPU guards the tables below, so GPUs never wait for each other
 * Start	nothing is reserved before the first request of a GPU
 */
#include "base/lock.h"
#include "cache/bin/row.h"
#include "cache/bin/seat.h"
#include "map/map.h"
#include "pool/pool.h"
#include "share/share.h"
#include "stream/stream.h"

#include <stddef.h>

#include <glake/graph.h>
#include <glake/memory.h>
#include <glake/stats.h>

struct glk_ahead;
struct glk_conf;
struct glk_graphs;

/* What a hit does not run, so that the compiler keeps it out of the way. */
#define GLK_COLD __attribute__((noinline))

struct glk_cache {
	struct glk_lock *lock; /* of the GPU */
	struct glk_streams *streams;
	struct glk_lock dependencies; /* see glake_event_record() */
	struct glk_cache *home; /* that of the GPU: itself, save for pools of graphs */
	struct glk_drv *drv;
	struct glk_pool *pool;
	struct glk_node *node;
	const struct glk_conf *conf;
	int device;
	uint64_t memory; /* of the GPU, bytes */
	glk_atomic(bool) started;
	/* The first GPU of its context, which tells contexts apart; NULL in a pool of graphs. */
	const struct glk_cache *first;
	uint32_t seat_at; /* offset of its seats in the record of a thread */
	uint64_t serial;  /* of this use of the structure, never given twice */
	struct glk_cache *next_open;
	struct glk_slab seats;
	struct glk_row *rows;	/* quick bins, by the index of a stream; none in a pool of graphs */
	struct glk_bin *bins;	/* those of all rows */
	struct glk_imports imports;
	struct glk_slab crowds; /* more heads for the bins that need them */
	uint64_t small_most;	/* bytes of the largest small block */
	glk_atomic(uint64_t) peak_live;
	/* Under the lock from here on. */
	struct glk_map map;
	struct {
		struct glk_lock lock;
		struct glk_streams streams;
	} own; /* where `lock` and `streams` of a GPU lie */
	struct glk_ahead *ahead; /* NULL: no thread makes pages ahead */
	glk_atomic(struct glk_graphs *) graphs; /* NULL: there never was a pool of graphs */
	glk_atomic(bool) diverted; /* no request is a hit, since a pool is open */
	uint64_t graph_live;	   /* bytes asked for by live blocks of pools */
	uint32_t last_row;
	struct glk_seats sum; /* of the seats, as of the last miss */
	uint64_t held;	  /* blocks that were freed and are out, see pin.c */
	uint32_t turn;	  /* row whose bins gave blocks back last */
	uint64_t past_peak; /* live bytes at their most until the peaks were reset last */
	uint64_t served;  /* requests served under the lock */
	uint64_t called;  /* of these, with calls of the driver */
	uint64_t stitches, oom;
	uint64_t flushes; /* times that bins gave blocks back */
	uint64_t ended;	  /* of the streams' count of ends, those whose rows were ended */
	uint64_t rungs[GLAKE_RUNG_COUNT];
};

/* The bin of blocks that were used on further streams: one of row 0, which is nobody's. */
#define GLK_BIN_MARKED 1u
/* The same for blocks that are or were out. */
#define GLK_BIN_PINNED 2u

/* What a request asks and what was done for it. */
struct glk_request {
	uint64_t size; /* asked for */
	uint64_t rounded;
	uint32_t bin;	 /* where it goes when freed */
	uint32_t flags;
	struct glk_stream *stream;
	uint64_t capture; /* of a graph, that the stream is in; 0: in none */
	bool trim;     /* too much memory is stranded, see glk_want */
	bool own;      /* nothing of other streams is in the place that was found */
	bool called;   /* the driver was called for it, waits included */
	bool stitched; /* with pages that lay elsewhere */
	bool wake;     /* the thread that grows ahead has something to do */
};

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
int glk_graph_get(struct glk_cache *cache, struct glake_pool_id id, struct glake_pool *ret);
/* block.c: frees a block of a pool, as glake_free(). */
int glk_graph_free(struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream);

/* The cache whose addresses a range is: that of a GPU, or a pool of graphs. */
static inline struct glk_cache *glk_cache_of(const struct glk_range *range)
{
	return (struct glk_cache *)(void *)((char *)range->map -
		offsetof(struct glk_cache, map));
}

/* The range of this GPU that an address lies in, be it in a pool of graphs; NULL: in none. Any
 * thread, no lock. */
static inline struct glk_range *glk_cache_range(
	const struct glk_cache *cache, uint64_t addr)
{
	struct glk_range *range = glk_index_find(addr);

	return range && glk_cache_of(range)->home == cache ? range : NULL;
}

/*
 * pin.c: blocks whose memory leaves the process. A pinned block keeps its addresses and its
 * pages until it was unpinned as often, also when it is freed meanwhile.
 */
struct glk_pin {
	struct glk_cache *at; /* that of the GPU, or a pool of graphs */
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
/* A page of it: a glk_share_page_fn. In order each is a step from the one before. Takes the lock of
 * the GPU. */
struct glk_share_page glk_pin_page(void *pin, size_t i);
/* Once less, for the block that holds an address, live or freed. 0 or -EINVAL. */
int glk_cache_unpin(struct glk_cache *cache, uint64_t addr);

/* figures.c */
void glk_cache_figures(struct glk_cache *cache, struct glake_stats *ret_stats);
void glk_cache_reset_peaks(struct glk_cache *cache);

/* peer.c: as glake_peer_access(). */
int glk_cache_peer(struct glk_cache *cache, int peer, bool on);

/* arena/trim.c: as glake_trim(). */
int glk_cache_trim(struct glk_cache *cache, uint64_t keep, uint64_t *ret_released);

/* ---- Inside this folder, all under the lock of the GPU. ---- */

/* arena/serve.c: serves a request, under the figures of a seat. `row`: NULL in a pool of graphs. */
int glk_cache_serve(struct glk_cache *cache, struct glk_request *request,
	struct glk_seat *seat, struct glk_row *row, uint64_t *ret_addr);
/* The place of a request, searched with what is known, and again with what the streams have to
 * tell if it would cost calls of the driver. More addresses are reserved where there is none. 0,
 * or -ENOMEM (class ADDRESS). */
int glk_place_seek(struct glk_cache *cache, struct glk_request *request,
	const struct glk_want *want, struct glk_fit *ret_fit);

/* arena/small.c: a small block, in a slot with others of its kind. 0; -ENOSPC without a record:
 * none of those has room, and there may be no more of them; or an error. */
int glk_small_alloc(
	struct glk_cache *cache, struct glk_request *request, uint32_t *ret_extent);
/* One more like it right behind it, where that needs nothing; 0: there is no room. */
uint32_t glk_small_behind(
	struct glk_cache *cache, struct glk_request *request, uint32_t extent);

/* block.c: the streams that a live block was marked with, beside its own. */
uint64_t glk_block_marks(const struct glk_extent *e);
/* The rest of a free. Says why the address is not that of a live block: -EINVAL. */
int glk_block_refuse(struct glk_cache *cache, uint64_t addr) GLK_COLD;
/* Frees an extent that the caller has claimed and that goes to no bin. 0 or the driver's
 * error, with the block live again. */
int glk_block_give_back(struct glk_cache *cache, struct glk_extent *e,
	struct CUstream_st *stream) GLK_COLD;

/* For an extent that was claimed and is out: whether it stays, used by `streams`. */
bool glk_pin_hold(struct glk_cache *cache, struct glk_extent *e, uint64_t streams);
/* What query tells of it beside the rest. */
void glk_pin_describe(struct glk_cache *cache, const struct glk_extent *e,
	struct glake_block *block);
/* block.c: takes an extent back that the caller has claimed, when the figures count it as freed. */
void glk_block_put_back(
	struct glk_cache *cache, struct glk_extent *e, const struct glk_use *use);

/* arena/order.c: streams. */
/* Whether `request` may have memory with this use, by the policies of the section stream, and
 * behind how many waits. */
bool glk_request_may(struct glk_cache *cache, const struct glk_request *request,
	const struct glk_use *use, unsigned *ret_waits);
/* For what has to be unmapped on behalf of a request. */
static inline struct glk_limbo glk_request_limbo(const struct glk_cache *cache)
{
	return (struct glk_limbo){.streams = cache->streams,
		.patient = !cache->streams->opportunistic,
		.closed = cache->home != cache};
}
/* Orders its stream behind the use, with stream waits where needed, and changes the use to what
 * it is then. 0; -EAGAIN when one cannot be waited for at present, which is known from then on;
 * or the driver's error. */
int glk_request_order(
	struct glk_cache *cache, struct glk_request *request, struct glk_use *use);
/* The same for a page that is idle or free, and for the usable slots of a run. */
int glk_request_order_page(
	struct glk_cache *cache, struct glk_request *request, uint32_t page);
int glk_request_order_run(struct glk_cache *cache, struct glk_request *request,
	uint32_t first, uint32_t last);
/* For the search of a place: vetoes mappings that may not go yet, counts waits. */
struct glk_seek {
	struct glk_cache *cache;
	struct glk_request *request;
};
bool glk_place_check(struct glk_map *map, uint32_t first_slot, uint32_t last_slot,
	struct glk_fit *fit, void *arg);

/* arena/back.c: puts pages behind a live extent and books it on its slots. 0, or an error with
 * everything undone but the extent. */
int glk_back(struct glk_cache *cache, struct glk_request *request, uint32_t extent);
/* The reverse, for an extent that was used as `use` says. */
void glk_unback(struct glk_cache *cache, uint32_t extent, const struct glk_use *use);

/*
 * arena/supply.c: the pages of a request, all of them before the first is mapped. They are OWNED,
 * taken from where they were, in the order of the request's stream, and linked: glk_page_next().
 */
struct glk_supply {
	uint32_t small, large, other; /* first page of each list; 0: none */
	uint32_t small_count, large_count;
};

struct glk_need {
	uint32_t small, large; /* pages */
	uint64_t other;	       /* bytes of a page of its own; 0: none */
};

/* 0, or -ENOMEM with a record of what was tried, and nothing taken. Small pages may stand in for
 * large ones, as many as fill one. */
int glk_supply_get(struct glk_cache *cache, struct glk_request *request,
	const struct glk_need *need, struct glk_supply *ret_supply);
/* Puts all pages that are left back to where the next request finds them. */
void glk_supply_put_back(struct glk_cache *cache, struct glk_supply *supply);
/* The first of a list. */
uint32_t glk_supply_pop(struct glk_cache *cache, uint32_t *list);

/* Bytes that may be held, with a request of so many more, before memory is looked for more
 * closely. */
uint64_t glk_supply_target(const struct glk_cache *cache, uint64_t size);
/* Whether so much memory is stranded that places should be chosen to have less of it. */
bool glk_supply_tight(const struct glk_cache *cache, uint64_t size);

/* arena/ladder.c: makes room for so many bytes at the node, where it has none: memory that nobody
 * uses is given back. Whether there is room for them, as far as is known. */
bool glk_ladder_climb(struct glk_cache *cache, uint64_t bytes);
/* The rung of pages that nobody uses for itself: free ones first, then idle ones of any size, from
 * so many groups of 64 slots at most. The bytes that were given back. */
uint64_t glk_ladder_release(struct glk_cache *cache, uint64_t bytes, uint32_t groups);
/* -ENOMEM, with a record that says what was asked for and what there is. */
int glk_ladder_refuse(struct glk_cache *cache, uint64_t bytes) GLK_COLD;

#endif
