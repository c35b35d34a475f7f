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
 * There may be as many pools at a time as there are addresses and memory of the host for; each
 * reserves addresses for half of the memory of the GPU, or fewer where there are no more.
 *
 * Nothing of ours is recorded on a stream that captures, nothing waits for it, and no question
 * is put that would end the capture.
 */

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
 * pool is open), -ENOMEM (ADDRESS; NOMEM_HOST), -ESTALE, -ENODEV (device lost, or in a
 * forked child).
 * Thread: any. Blocks: briefly. Driver calls: reserve for a new pool; a question.
 */
GLAKE_EXPORT int glake_pool_begin(struct glake *ctx, int device, struct glake_pool_id id,
	struct CUstream_st *stream);
GLAKE_EXPORT int glake_pool_begin_for(struct glake *ctx, int device,
	struct glake_pool_id id, glake_pool_filter_fn filter, void *arg);

/*
 * Counts one more in a pool, made at first, without opening it; glake_pool_release takes it back.
 *
 * Returns 0, or -EINVAL (no such device, id), -EAGAIN (the GPU is suspended), -ENOMEM (ADDRESS; NOMEM_HOST),
 * -ESTALE, -ENODEV (device lost, or in a forked child).
 * Thread: any. Blocks: briefly. Driver calls: reserve for a new pool.
 */
GLAKE_EXPORT int glake_pool_hold(struct glake *ctx, int device, struct glake_pool_id id);

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
 * Takes back one glake_pool_begin or glake_pool_hold. The last one ends the pool: its memory is unmapped after the
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
	uint32_t graphs;  /* begun or held, and not released */
	uint32_t is_open; /* 1 between begin and end */
	uint64_t limit;	  /* most bytes of `live`; 0: none is set */
};

/*
 * Describes a pool. Returns 0, or -EINVAL (no such device, NULL, sz not set; no such pool),
 * -E2BIG, -ESTALE, -ENODEV (in a forked child). Thread: any. Blocks: briefly. Driver calls:
 * none.
 */
GLAKE_EXPORT int glake_pool_get(struct glake *ctx, int device, struct glake_pool_id id,
	struct glake_pool *ret_pool);

/*
 * Bounds the bytes that blocks of a pool may ask for together, until it has gone. A request that would pass it
 * is answered -ENOMEM (LIMIT). One below what is live holds from the next request on.
 *
 * bytes	0: no limit
 *
 * Returns 0, or -EINVAL (no such device, no such pool), -ESTALE, -ENODEV (in a forked child). Thread: any.
 * Blocks: for the lock of the GPU. Driver calls: none.
 */
GLAKE_EXPORT int glake_pool_limit_set(
	struct glake *ctx, int device, struct glake_pool_id id, uint64_t bytes);

/* A live block of a pool. */
struct glake_pool_block {
	void *ptr;
	size_t size;		    /* as asked for */
	struct CUstream_st *stream; /* it was given to */
};

/*
 * The live blocks of a pool in the order of their addresses. Together they are a state of the pool: what
 * a graph has left in it, for instance, on which another graph was captured.
 *
 * room		blocks that `ret_blocks` has room for: the first `room` of them are written there
 * ret_count	how many there are
 *
 * Returns 0, or -EINVAL (no such device, NULL; no such pool), -ESTALE, -ENODEV (in a forked child).
 * Thread: any. Blocks: for the lock of the GPU, which it holds for about 10 ns a block and as long for each
 * hole. Driver calls: none.
 */
GLAKE_EXPORT int glake_pool_blocks(struct glake *ctx, int device, struct glake_pool_id id,
	struct glake_pool_block *ret_blocks, size_t room, size_t *ret_count);

/*
 * Brings a state back: afterwards exactly these blocks are live in the pool, at these addresses. Those
 * of the pool that are live and not among them are freed, those that are not live are given out again;
 * blocks that are both, with this size and stream, stay as they are. The pool may be open or closed, and
 * the list in any order. A state that was taken from this pool can be brought back as long as the pool
 * lives, for its mappings stay as long, and as long as the streams of the blocks are known: a stream
 * that has ended is not.
 *
 * The order of work is the caller's affair, as with replays: nothing is waited for, and no event is recorded.
 * Nothing is known of the use of memory that is freed here, so a request that comes next may have it at
 * once, on whatever stream; beside small blocks that share their page, what the program has freed there
 * outside of captures has to finish first as always. A block that is given out again has
 * the contents that its memory has at the time. What was said of a block that is freed, by glake_use,
 * glake_advise and glake_pin, ends with it. One that is out (glake_export) serves nobody else
 * until it comes back. A contiguous block keeps its one handle; glake_query says that it was made
 * as such where that is of a size that no other block has.
 *
 * A state that cannot be brought back is refused, and then nothing has changed.
 *
 * Returns 0, or -EINVAL (no such device, NULL; no such pool; a block that lies where the pool never gave
 * one, that begins at no multiple of GLAKE_GRAIN, is of 0 bytes, overlaps another one, or is of a stream
 * that is not known), -EBUSY (the place of a block is that of one which is out, which another thread is
 * about to get or to free, or whose physical memory lies there too; a block that would be freed is in
 * a call of another thread), -EAGAIN (the GPU is suspended), -ENOMEM (LIMIT: extents, or slots of
 * small blocks, see glake_alloc; NOMEM_HOST), -ESTALE, -ENODEV (in a forked child).
 * Thread: any. Blocks: for the lock of the GPU, which it holds for about 0.2 us for each block that is
 * freed or given out again, and 50 ns for each other one of the pool. Driver calls: none.
 */
GLAKE_EXPORT int glake_pool_restore(struct glake *ctx, int device,
	struct glake_pool_id id, const struct glake_pool_block *blocks, size_t count);

GLAKE_END_DECLS

#endif
