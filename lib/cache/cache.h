/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_CACHE_H
#define GLK_CACHE_CACHE_H

/*
 * The face of this folder: the blocks of one GPU. It turns a request into a live extent with
 * pages behind it, picks the pages, orders streams, climbs the ladder when memory is short,
 * and takes blocks back.
 *
 * Threads	any thread may call any function. A request that finds a block of its size in
 *		the quick bins of its stream takes no lock (row.h, seat.h, quick.h); for the
 *		others one lock a GPU guards the tables below, so GPUs never wait for each other
 * Start	nothing is reserved before the first request of a GPU
 */
#include "base/lock.h"
#include "cache/row.h"
#include "cache/seat.h"
#include "map/map.h"
#include "pool/pool.h"
#include "share/share.h"
#include "stream/stream.h"

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
	glk_atomic(uint64_t) base, size; /* of the addresses; size 0: not started */
	uint32_t seat_at; /* offset of its seats in the record of a thread */
	uint64_t serial;  /* of this use of the structure, never given twice */
	struct glk_cache *next_open;
	struct glk_slab seats;
	struct glk_row *rows;	/* quick bins, by the index of a stream; none in a pool of graphs */
	struct glk_bin *bins;	/* those of all rows */
	struct glk_imports imports;
	struct glk_slab crowds; /* more heads for the bins that need them */
	uint64_t small_most;	/* bytes of the largest small block */
	/* The kind that goes by the rule of quick.h for large blocks; GLK_KIND_COUNT: none. */
	glk_atomic(uint32_t) lonely;
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
	uint32_t mark;	  /* number of the place under way, to meet no page of it twice */
	uint32_t request; /* number of the request under way, to undo just that */
	/* contiguous extents that were freed and keep their page, oldest first */
	struct {
		uint32_t first, last;
		uint64_t bytes;
	} parked;
	uint64_t single_live; /* bytes asked for by contiguous blocks */
	uint64_t held;	      /* blocks that were freed and are out, see pin.c */
	uint64_t grown; /* bytes mapped for small blocks since their bins were emptied */
	uint32_t refused; /* large blocks, since pages were last mapped for one */
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
	uint32_t mapped; /* pages that were mapped for it */
	uint32_t flags;
	struct glk_stream *stream;
	uint64_t capture; /* of a graph, that the stream is in; 0: in none */
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

/* alloc.c, block.c: contracts as in glake/memory.h. */
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
 * graph.c, route.c: pools of graphs, contracts as in glake/graph.h.
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
/* Whether an address is in a pool of this GPU. Any thread, no lock. */
bool glk_graph_holds(const struct glk_cache *cache, uint64_t addr);
/* block.c: frees a block of a pool, as glake_free(). */
int glk_graph_free(struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream);

/* Whether an address is in the reservation of this GPU. Any thread, no lock. */
static inline bool glk_cache_holds(const struct glk_cache *cache, uint64_t addr)
{
	/* pairs with: the release in glk_cache_start */
	uint64_t size = glk_load_acquire(&cache->size);

	return addr - glk_load_relaxed(&cache->base) < size;
}

/*
 * pin.c: blocks whose memory leaves the process. A pinned block keeps its addresses and its
 * pages until it was unpinned as often, also when it is freed meanwhile.
 */
struct glk_pin {
	struct glk_cache *at; /* that of the GPU, or a pool of graphs */
	struct glk_span *span;
	uint64_t base, size;	/* address; bytes asked for */
	uint32_t first, count; /* slots, a page each */
};

/* The live block that begins at an address, or with `inside` the one that holds it. 0; -EINVAL
 * as glake_free(); -ENOMEM (class LIMIT): pinned too often. */
int glk_cache_pin(
	struct glk_cache *cache, uint64_t addr, bool inside, struct glk_pin *ret_pin);
/* A page of it, which needs no lock: a glk_share_page_fn. */
struct glk_share_page glk_pin_page(const void *pin, size_t i);
/* Once less, for the block that holds an address, live or freed. 0 or -EINVAL. */
int glk_cache_unpin(struct glk_cache *cache, uint64_t addr);

/* figures.c */
void glk_cache_figures(struct glk_cache *cache, struct glake_stats *ret_stats);
void glk_cache_reset_peaks(struct glk_cache *cache);

/* peer.c: as glake_peer_access(). */
int glk_cache_peer(struct glk_cache *cache, int peer, bool on);

/* trim.c: as glake_trim(). */
int glk_cache_trim(struct glk_cache *cache, uint64_t keep, uint64_t *ret_released);

/* ---- Inside this folder, all under the lock of the GPU. ---- */

/* alloc.c: serves a request, under the figures of a seat. `row`: NULL in a pool of graphs. */
int glk_cache_serve(struct glk_cache *cache, struct glk_request *request,
	struct glk_seat *seat, struct glk_row *row, uint64_t *ret_addr);

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
void glk_pin_describe(struct glk_cache *cache, const struct glk_span *span,
	const struct glk_extent *e, struct glake_block *block);
/* block.c: takes an extent back that the caller has claimed, when the figures count it as freed. */
void glk_block_put_back(
	struct glk_cache *cache, struct glk_extent *e, const struct glk_use *use);

/* order.c: streams. */
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
/* Orders its stream behind the use, with stream waits where needed. 0; -EAGAIN when one cannot
 * be waited for at present, which is known from then on; or the driver's error. */
int glk_request_order(
	struct glk_cache *cache, struct glk_request *request, struct glk_use *use);
/* The same for the usable slots of a run, all at once. */
int glk_request_order_run(struct glk_cache *cache, struct glk_request *request,
	struct glk_span *span, uint32_t first, uint32_t last);
/* For the search of a place: vetoes mappings that may not go yet, counts waits. */
struct glk_seek {
	struct glk_cache *cache;
	struct glk_request *request;
};
bool glk_place_check(struct glk_span *span, uint32_t first_slot, uint32_t last_slot,
	struct glk_fit *fit, void *arg);

/* back.c: puts pages behind a live extent and books it on its slots. 0, or an error with
 * everything undone but the extent. */
int glk_back(struct glk_cache *cache, struct glk_request *request, struct glk_span *span,
	uint32_t extent);
/* The reverse, for an extent used by `streams` until `tick`. */
void glk_unback(struct glk_cache *cache, struct glk_span *span, uint32_t extent,
	uint64_t streams, uint64_t tick);

/* find.c: an OWNED page of a class, on no list, that `request` may use: free, idle, new, or
 * found on a rung of the ladder. -ENOMEM with a record of what was tried. */
int glk_page_find(struct glk_cache *cache, struct glk_request *request,
	enum glk_class class, uint32_t *ret_page);

/* ladder.c: a new page when the node has no room for it: pages of other classes and parked
 * contiguous blocks make room. `size` for GLK_CLASS_SINGLE. -ENOMEM at the last rung. */
int glk_ladder_grow(
	struct glk_cache *cache, enum glk_class class, size_t size, uint32_t *ret_page);

/* The rung for itself: free and idle pages are given back, until `bytes`
 * were; the bytes that were. */
uint64_t glk_ladder_recut(struct glk_cache *cache, uint64_t bytes);

/* single.c: contiguous blocks. */
int glk_single_alloc(
	struct glk_cache *cache, struct glk_request *request, uint32_t *ret_extent);
/* Keeps the extent and its page for a request of the same size. */
void glk_single_park(
	struct glk_cache *cache, uint32_t extent, uint64_t streams, uint64_t tick);
/* Releases parked ones that are ready, oldest first, until `bytes` were given back; the bytes
 * that were. The first error of the driver goes to *ret_err. */
uint64_t glk_single_release(struct glk_cache *cache, uint64_t bytes, int *ret_err);

#endif
