/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLAKE_GRAPH_H
#define GLAKE_GRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <glake/export.h>
#include <glake/memory.h>

GLAKE_BEGIN_DECLS

/*
 * Memory of CUDA graphs. What a graph uses it uses again at every replay, at the same
 * address, long after the program has freed it. So blocks that are asked for during a
 * capture come from a pool of that graph: they are reused inside it in the order of their
 * stream, keep their addresses and their physical memory until the pool is released, and go
 * to nobody else before. Several graphs may share a pool if they are replayed one after the
 * other and never two at a time, as PyTorch shares them. What the program itself does with
 * blocks of a pool goes behind the replays so far of all its graphs, and later replays
 * behind that: a block of one graph may lie where an earlier one freed.
 *
 *	glake_pool_begin(ctx, 0, id, stream);	before cuStreamBeginCapture(stream)
 *	...					glake_alloc, glake_free, kernels
 *	glake_pool_end(ctx, 0, id);		after cuStreamEndCapture(stream)
 *	...					replays
 *	glake_pool_release(ctx, 0, id);		after cuGraphExecDestroy
 *
 * A capture that was not announced by glake_pool_begin is recognised at the first request that
 * the quick bins do not serve, and has a pool of its own from then on, which glake_query names.
 * One whose stream has blocks in its bins from before may be given one of those: announce
 * captures.
 *
 * Nothing of ours is recorded on a stream that captures, nothing waits for it, and no question
 * is put that would end the capture.
 */

/* Pools of a GPU at a time. */
#define GLAKE_POOLS_MAX 64

/* Whether requests on a stream go to a pool; called without locks held, for each request that
 * is made on that GPU while the pool is open. */
typedef bool (*glake_pool_filter_fn)(struct CUstream_st *stream, void *arg);

/*
 * Opens a pool, made at first, and counts one more graph in it. From now on requests on
 * `stream` while it captures, and on streams that join its capture, go to the pool; with
 * glake_pool_begin_for instead requests on the streams that `filter` chooses, capturing or not.
 *
 * id		any value but two zeroes; pools of different GPUs with one id are two
 * filter	called until glake_pool_end; `arg` is handed on
 *
 * Returns 0, or -EINVAL (no such device, id, no stream of that GPU, no filter), -EBUSY (the
 * pool is open), -ENOMEM (addresses, or GLAKE_POOLS_MAX: LIMIT), -ESTALE, -ENODEV (device
 * lost, or in a forked child).
 * Thread: any. Blocks: briefly. Driver calls: reserve for a new pool; a question.
 */
GLAKE_EXPORT int glake_pool_begin(struct glake *ctx, int device, struct glake_pool_id id,
	struct CUstream_st *stream);
GLAKE_EXPORT int glake_pool_begin_for(struct glake *ctx, int device,
	struct glake_pool_id id, glake_pool_filter_fn filter, void *arg);

/*
 * Closes a pool to requests; its blocks stay. Blocks that were freed to it serve the next graph
 * that opens it.
 *
 * Returns 0, or -EINVAL (no such device; no such pool, or it is not open), -ESTALE, -ENODEV
 * (in a forked child). Thread: any, not only the one that began. Blocks: until calls of its
 * filter have returned. Driver calls: none.
 */
GLAKE_EXPORT int glake_pool_end(struct glake *ctx, int device, struct glake_pool_id id);

/*
 * Takes back one glake_pool_begin. The last one ends the pool: its memory is unmapped after the
 * GPU was waited for, since nobody else knows when replays have finished, and serves other
 * requests from then on. No graph that used the pool may be replayed any more.
 *
 * Blocks of the pool that are still live stay valid, and while one is, or while another
 * stream captures, the pool stays. If one of them was freed on a stream that captured a
 * graph with another pool, that graph may have used it, and this pool goes after that one. A
 * free does not end a pool, since it would have to wait for the GPU: the next release of any
 * pool does, the next glake_trim, or a request for which memory is short.
 *
 * Returns 0, or -EINVAL (no such device; no such pool), -EBUSY (it is open), -ESTALE, -EIO
 * (the driver refused), -ENODEV (device lost, or in a forked child).
 * Thread: any. Blocks: until the GPU is idle. Driver calls: a wait, unmap, unreserve.
 */
GLAKE_EXPORT int glake_pool_release(
	struct glake *ctx, int device, struct glake_pool_id id);

/* What a pool has. Sizes in bytes. */
struct glake_pool {
	size_t sz;	  /* sizeof(struct glake_pool) */
	uint64_t live;	  /* asked for by live blocks */
	uint64_t held;	  /* physical memory that stays with the pool */
	uint64_t blocks;  /* live ones */
	uint32_t graphs;  /* begun and not released */
	uint32_t is_open; /* 1 between begin and end */
};

/*
 * Describes a pool. Returns 0, or -EINVAL (no such device, NULL, sz not set; no such pool),
 * -E2BIG, -ESTALE, -ENODEV (in a forked child). Thread: any. Blocks: briefly. Driver calls:
 * none.
 */
GLAKE_EXPORT int glake_pool_get(struct glake *ctx, int device, struct glake_pool_id id,
	struct glake_pool *ret_pool);

GLAKE_END_DECLS

#endif
