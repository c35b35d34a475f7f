/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TIER_HOSTPOOL_H
#define GLK_TIER_HOSTPOOL_H

/*
 * Locked memory of the host, near one GPU, in blocks of the exact size for the program: what
 * stands behind glake/host.h. A face of this folder beside tier.h.
 *
 * It is had in pieces (piece.h), each locked by one call of the driver, and cut by the extents of
 * map/space: best fit, free neighbours merge, a block lies in one piece. Small blocks share pieces, whose
 * size grows with what is in use; a large one has a piece of its own size (hostpool_piece.c). Pieces stay
 * until a trim, or as long as host.keep says, but for free ones that are each too small for a block and
 * together are not: they go for it.
 *
 * Who uses a block is the host, at once, and streams that it was said to be used on. One that no stream
 * uses is free when it was freed. Others wait until events of the library have passed on these streams
 * (stream/stream.h), in a queue for each stream: a request looks at a few of these, by turns, one that finds no
 * room asks each stream. Before it is refused it waits for them, one after the other, until one has finished
 * something. However many blocks wait, a request for which a piece can be made has 256 leave their queues at the
 * most, and the lock is free for others now and then. A trim waits for what nothing can be asked of.
 *
 * With security.level=3 a block is filled with zeros before it is given, and when it is freed if no stream uses it.
 *
 * Threads	any; a lock a pool, given up while the driver is called and memory is filled. It is taken before that
 *		of a GPU
 * Cost		a request and a free: two trees of extents, about 0.7 us each while nothing waits
 */
#include "map/map.h"
#include "stream/stream.h"

#include <pthread.h>

struct glk_conf;
struct glake_host_block;
struct glake_stats;

/* Of blocks, bytes, and the least alignment. */
#define GLK_HOSTPOOL_GRAIN 64
/* The largest alignment: pieces begin with a huge page. */
#define GLK_HOSTPOOL_ALIGN_MAX ((uint64_t)2 << 20)
/* Most streams that use blocks of a pool, over all blocks. */
#define GLK_HOSTPOOL_USES (1u << 21)
/* Of these, that a request which finds no room takes out of their queues at the most. */
#define GLK_HOSTPOOL_PASSED 256
/* Free pieces that are looked at for one of a size. */
#define GLK_HOSTPOOL_LOOKS 1024

/* What is known of an extent beside itself, by its number. */
struct glk_hostpool_side {
	union {
		uint32_t uses; /* LIVE: the first; 0: none */
		uint32_t left; /* QUICK: queues that it waits in */
	};
	uint32_t prev, next; /* FREE: of whole pieces */
};

/* A stream that uses a block, or those of a GPU that share a bit where they are too many to be told apart. */
struct glk_hostpool_use {
	uint32_t next;	 /* LIVE: of the block; QUICK: of the queue */
	uint32_t extent; /* of the block */
	uint32_t queue;	 /* see hostpool_wait.c */
	uint64_t tick;	 /* QUICK: of the free */
};

struct glk_hostpool_gpu;

struct glk_hostpool {
	struct glk_drv *drv;
	const struct glk_conf *conf;
	bool untouched; /* of a test: pieces are locked as they come */
	int device;
	int gpus;      /* whose streams may use blocks */
	int node;      /* NUMA node near the GPU; -1: not known */
	uint64_t half; /* bytes it may hold where host.limit is 0; 0: any number */
	struct glk_lock lock;
	/* Between them all its pieces lie, as far as it ever had any. */
	glk_atomic(uint64_t) low, high;
	glk_atomic(bool) made;	/* the tables are there */
	glk_atomic(bool) wipes; /* blocks are filled with zeros: security.level=3 */
	/* Under the lock from here on. LIVE: a block; QUICK: it was freed and waits. */
	struct glk_map map;
	struct glk_tree blocks;		/* live ones, by address */
	struct glk_hostpool_side *side; /* as many as there may be extents */
	struct glk_slab uses;
	struct glk_hostpool_gpu *gpu; /* `gpus` of them */
	struct {
		uint32_t first, last, count;
	} row;		  /* of queues, by turns */
	uint32_t waiting; /* blocks that wait */
	uint64_t passed;  /* uses that left their queues, ever */
	struct {
		uint32_t first, last;
		uint64_t bytes;
	} whole;		/* pieces, oldest first */
	bool growing;		/* somebody makes a piece that blocks share */
	unsigned giving;	/* pieces that are about to be no more */
	pthread_cond_t changed; /* one of these has ended */
	uint64_t held;		/* bytes locked, about to be, and about to be no more */
	uint64_t there;		/* bytes of the pieces that there are */
	uint64_t live, given,
		waits; /* bytes of blocks: asked for, given; of those that wait */
	uint64_t most; /* bytes given and waiting at a time, since the last trim */
	uint64_t peak_live, peak_held;
	uint64_t allocs, frees,
		refused;	/* requests served, blocks freed, requests refused */
	uint64_t pieces, grows; /* that there are; that were made */
};

/* Near one of so many GPUs. Nothing is had yet. `half` is the caller's to fill. */
void glk_hostpool_init(struct glk_hostpool *pool, struct glk_drv *drv,
	const struct glk_conf *conf, int device, int gpus, int node);
/* Nobody copies any more. Says how many blocks were live. 0, or -EIO: the driver keeps some. */
int glk_hostpool_fini(struct glk_hostpool *pool, size_t *ret_live);

/* Contracts as in glake/host.h. `align` is a power of two. */
int glk_hostpool_alloc(
	struct glk_hostpool *pool, uint64_t bytes, uint64_t align, uint64_t *ret_addr);
/* -ENOENT without a record: no block of this pool begins there. */
int glk_hostpool_free(struct glk_hostpool *pool, uint64_t addr);
/* The streams of a use, which may be none, use the block that holds an address. Likewise; -ENOMEM. */
int glk_hostpool_use(struct glk_hostpool *pool, uint64_t addr,
	struct glk_streams *streams, const struct glk_use *use);
int glk_hostpool_query(
	struct glk_hostpool *pool, uint64_t addr, struct glake_host_block *ret_block);

/* Gives back what nobody uses. The bytes. */
uint64_t glk_hostpool_trim(struct glk_hostpool *pool);
/* Fills what is the pool's of the figures. */
void glk_hostpool_figures(struct glk_hostpool *pool, struct glake_stats *stats);
void glk_hostpool_reset_peaks(struct glk_hostpool *pool);

/* Whether a pool may have something at an address, without its lock. */
static inline bool glk_hostpool_may_have(struct glk_hostpool *pool, uint64_t addr)
{
	return addr >= glk_load_relaxed(&pool->low) &&
		addr < glk_load_relaxed(&pool->high);
}

/*
 * For this idea's own files, under the lock. hostpool_wait.c: blocks that streams use, and those that were freed
 * and wait for them.
 */
int glk_hostpool_wait_init(struct glk_hostpool *pool);
/* Takes one that is zeroed. */
void glk_hostpool_wait_fini(struct glk_hostpool *pool);
/* The stream of a use, which may be none, uses a live block. 0, -ENOMEM. */
int glk_hostpool_add_use(struct glk_hostpool *pool, uint32_t extent,
	struct glk_streams *streams, const struct glk_use *use);
/* GPUs whose streams use a live block. */
uint32_t glk_hostpool_gpus(const struct glk_hostpool *pool, uint32_t extent);
/* Has a block wait that was freed, or makes it free at once. */
void glk_hostpool_leave(struct glk_hostpool *pool, uint32_t extent);
enum glk_hostpool_reap {
	GLK_HOSTPOOL_ASK,    /* events that are there, of up to `most` streams by turns */
	GLK_HOSTPOOL_RECORD, /* each stream, with events recorded where there are none */
};
/* Has up to `most` uses whose work has finished leave their queues: a block is free with its last. Others have the
 * lock now and then. Whether any has left. */
bool glk_hostpool_reap(
	struct glk_hostpool *pool, uint32_t most, enum glk_hostpool_reap how);
/* Waits for GPUs where streams have ended that no event tells of. Whether any has left since. */
bool glk_hostpool_await_ended(struct glk_hostpool *pool);
/* Waits for the oldest work of one stream after the other that blocks wait for, until any has left. */
bool glk_hostpool_await(struct glk_hostpool *pool);

/* hostpool_piece.c: pieces. Bytes that may be held. */
uint64_t glk_hostpool_limit(const struct glk_hostpool *pool);
/* One for a block, or waits for one that others make. 0 or -errno. */
int glk_hostpool_grow(struct glk_hostpool *pool, uint64_t bytes, bool *ret_made);
/* Whether a free piece is kept for larger blocks, since a small piece may be made for this one. */
bool glk_hostpool_spares(const struct glk_hostpool *pool, uint64_t size, uint64_t whole);
/* Gives whole pieces back until no more than `keep` bytes are free. The bytes. */
uint64_t glk_hostpool_give(struct glk_hostpool *pool, uint64_t keep);
/* Makes an extent free. */
void glk_hostpool_merge(struct glk_hostpool *pool, uint32_t extent);
/* A whole piece, into their list and out of it. */
void glk_hostpool_put(struct glk_hostpool *pool, uint32_t extent);
void glk_hostpool_take(struct glk_hostpool *pool, uint32_t extent);

static inline uint64_t glk_hostpool_idle(const struct glk_hostpool *pool)
{
	return pool->there - pool->given - pool->waits;
}

#endif
