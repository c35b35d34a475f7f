/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLAKE_TIER_H
#define GLAKE_TIER_H

#include <stddef.h>
#include <stdint.h>

#include <glake/export.h>

GLAKE_BEGIN_DECLS

struct glake;
struct CUstream_st;

/*
 * Contents beyond the GPU. A block that is *away* has its contents in memory of the host,
 * near its GPU, and keeps its addresses; the memory that was behind them serves other
 * requests. Until it was fetched it must not be used: what lies behind its addresses
 * meanwhile is undefined, or nothing, and work on the GPU that touches it may fail as it
 * does for memory that was freed. It may be freed while it is away. glake_query says
 * whether a block is (away), glake_stats_get how much is.
 *
 * A block may also lie in memory of the host *in place*: with the key tier.place=host a
 * request for which the GPU has no room, on any rung, is given that. Kernels use it where
 * it is, over the link, and so may copies; it is freed, queried and marked with streams
 * like any other, cannot leave the process, and stays where it is until it is freed. Pools
 * of graphs have memory of the GPU alone, and so have contiguous blocks, which are for
 * others to use. glake_query says whether a block is one (placed), glake_stats_get how much
 * is.
 *
 * Blocks of up to an eighth of pool.small_page (256 KiB), which share their pages with
 * others, do not move, nor do blocks that are out (glake_export, glake_dmabuf), nor those
 * of pools of graphs.
 *
 * Another call about a block that is being moved, a free for one, waits until it has been.
 */

/*
 * Sends the contents of a block away, as they are behind all work queued so far on
 * `stream`, on the stream of its allocation and on those of glake_use. Its memory serves
 * others from then on, on other streams behind the copy.
 *
 * ptr		as glake_alloc gave it
 * stream	of that GPU
 *
 * Returns 0, or -EALREADY (BUSY: it is away, or in memory of the host in place), -EINVAL
 * (as glake_free; too small to move), -EBUSY (BUSY: it is out, or of a pool of graphs;
 * CAPTURE: one of those streams captures a graph), -ENOMEM (LIMIT: tier.host; NOMEM_HOST),
 * -ESTALE, -EIO, -ENODEV (device lost, or in a forked child). After an error the block is
 * where it was.
 * Thread: any. Blocks: for the lock of the GPU, and, where more memory of the host has to
 * be locked, for that: some 100 ms per GiB. For the GPU only where a stream that used the
 * block has ended unannounced, or is another thread's own default stream. Driver calls:
 * stream waits, event records and copies; the first time two new streams; where needed
 * locks memory of the host, and gives idle pages of the host back.
 */
GLAKE_EXPORT int glake_spill(struct glake *ctx, void *ptr, struct CUstream_st *stream);

/*
 * Has a block back at its addresses. Work queued on `stream` from then on may use it; other
 * streams have to be ordered behind that by the program, also the one of its allocation.
 * When it is freed, `stream` counts as one that glake_use named.
 *
 * Returns 0, or -EALREADY (BUSY: it is here, or in place on the host), -ENOMEM, -EBUSY (as
 * glake_alloc; `stream` captures a graph), -EAGAIN (the GPU is suspended), -EINVAL (as
 * glake_free), -ESTALE, -EIO, -ENODEV. After an error the block is away.
 * Thread: any. Blocks: as glake_alloc for a block of that size; not for the copy. Driver
 * calls: as glake_alloc, and stream waits, event records and copies.
 */
GLAKE_EXPORT int glake_fetch(struct glake *ctx, void *ptr, struct CUstream_st *stream);

/* What a suspension did, or its end. */
struct glake_suspended {
	size_t sz;		/* sizeof(struct glake_suspended) */
	uint64_t moved;		/* bytes of blocks that went away, or came back */
	uint64_t moved_blocks;
	uint64_t stayed;	/* bytes of blocks that may not move */
	uint64_t stayed_blocks;
	uint64_t released;	/* bytes of pages that went back to the driver */
};

/*
 * Gives the memory of a GPU back to the driver and keeps all addresses: blocks go away, in
 * the order of all work queued so far, and pages are released. Small blocks, and blocks
 * that may not move, stay with the pages they lie in. Until glake_resume requests for
 * memory and pools of graphs are answered -EAGAIN; frees go on.
 *
 * The program's work on the GPU should have been queued before the call: a block that other
 * threads use meanwhile moves behind what they had queued when its turn came.
 *
 * ret_done	what this call did, also one that fails half way; NULL if nobody wants to know
 *
 * Returns 0, or -EBUSY (CAPTURE: a pool of graphs is open, or a stream captures a graph),
 * -ENOMEM (as glake_spill), -EIO, -EINVAL (device), -E2BIG (ret_done), -ESTALE, -ENODEV.
 * After any other error than those of the arguments and a capture found at the beginning
 * the GPU is suspended, with some blocks still here: a second call goes on, glake_resume
 * takes all back. A second call when all are away does nothing.
 * Thread: any. Blocks: until the copies have finished, for which the GPU has to finish its
 * work. Driver calls: those of glake_spill for each block, and unmap and release per page.
 */
GLAKE_EXPORT int glake_suspend(
	struct glake *ctx, int device, struct glake_suspended *ret_done);

/*
 * Ends a suspension: all blocks that went away by it come back. Blocks that glake_spill had
 * sent away stay away.
 *
 * ret_done	as above
 *
 * Returns 0 when all are back, or -ENOMEM (others have taken the memory), -EIO, -EBUSY
 * (CAPTURE: memory could be had behind a stream that captures a graph), -EINVAL (device; it
 * is not suspended), -E2BIG, -ESTALE, -ENODEV. After -ENOMEM, -EIO and -EBUSY the GPU is
 * suspended still and some blocks are back: to be called again.
 * Thread: any. Blocks: until the copies have finished. Driver calls: those of glake_fetch
 * for each block.
 */
GLAKE_EXPORT int glake_resume(
	struct glake *ctx, int device, struct glake_suspended *ret_done);

GLAKE_END_DECLS

#endif
