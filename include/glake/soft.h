/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLAKE_SOFT_H
#define GLAKE_SOFT_H

#include <stddef.h>
#include <stdint.h>

#include <glake/export.h>

GLAKE_BEGIN_DECLS

struct glake;
struct CUstream_st;

/*
 * Work for the software device, so that what a program does with streams, graphs and other
 * processes can be tried and tested where there is no GPU: what cuMemsetD32Async,
 * cuMemcpyAsync, a kernel launch, cuStreamSynchronize, cuStreamBeginCapture,
 * cuStreamEndCapture, cuGraphLaunch and cuGraphDestroy do with CUDA. Streams and events come
 * from glake_stream_new and glake_event_new, and are put in order by glake_event_record and
 * glake_stream_wait. The memory of a block is the process's own: once its work has finished,
 * the CPU reads and writes it at the address of the block.
 *
 * The device judges what it is given as a GPU would not: work on memory that is not there, or
 * that two streams touch at once with nothing between them, is refused with a sentence that
 * names both.
 *
 * Work runs when it is queued, unless it stands behind other work; the key soft.streams lets it
 * wait for a synchronisation, or run at random.
 *
 * On CUDA every function here answers -EOPNOTSUPP.
 */

/*
 * Queues a fill of `count` words of 32 bits with a value.
 *
 * stream	of any GPU that may write there; a default stream is that of the GPU that has the
 *		memory
 * ptr		a multiple of 4
 *
 * Returns 0, or -EINVAL (no such stream, no memory that the GPU may write, a race with
 * queued work, a ptr that is no multiple of 4), -ENOMEM (LIMIT: too much is queued),
 * -EOPNOTSUPP (CUDA), -ESTALE, -ENODEV (in a forked child).
 * Thread: any. Blocks: briefly, while it copies. Driver calls: one, of the software device.
 */
GLAKE_EXPORT int glake_soft_fill(struct glake *ctx, struct CUstream_st *stream, void *ptr,
	uint32_t value, size_t count);

/*
 * Queues a copy of `size` bytes. Either side may be a block, or memory of the host, which
 * has to stay until the copy has run.
 *
 * stream	as for glake_soft_fill
 *
 * Returns 0, or -EINVAL (no such stream, no memory that the GPU may use, a race with queued
 * work), -ENOMEM (LIMIT: too much is queued), -EOPNOTSUPP (CUDA), -ESTALE, -ENODEV (in a
 * forked child).
 * Thread: any. Blocks: briefly, while it copies. Driver calls: one, of the software device.
 */
GLAKE_EXPORT int glake_soft_copy(struct glake *ctx, struct CUstream_st *stream, void *dst,
	const void *src, size_t size);

/*
 * Queues a kernel that reads `size` bytes, or reads and writes them, and changes nothing: what
 * the device judges, and what memory freed behind it has to wait for.
 *
 * write	not 0: it writes too
 *
 * Returns 0, or -EINVAL (no such device, no stream of it, no memory that it may use so, a
 * race with queued work), -ENOMEM (LIMIT: too much is queued), -EOPNOTSUPP (CUDA), -ESTALE,
 * -ENODEV (in a forked child).
 * Thread: any. Blocks: briefly. Driver calls: one, of the software device.
 */
GLAKE_EXPORT int glake_soft_kernel(struct glake *ctx, int device,
	struct CUstream_st *stream, const void *ptr, size_t size, int write);

/*
 * Waits until all work of a stream has run.
 *
 * Returns 0, or -EINVAL (no such device, no stream of it), -EBUSY (CAPTURE: it captures a
 * graph, which breaks the capture), -EOPNOTSUPP (CUDA), -ESTALE, -ENODEV (in a forked
 * child).
 * Thread: any. Blocks: until its work is done. Driver calls: one, of the software device.
 */
GLAKE_EXPORT int glake_soft_stream_sync(
	struct glake *ctx, int device, struct CUstream_st *stream);

/*
 * Begins to capture a graph on a stream, which a legacy default stream cannot. Until the end
 * what is queued there becomes a part of the graph and does not run; other streams join
 * through events, and have to be waited for before the end. Memory of graphs:
 * glake_pool_begin.
 *
 * Returns 0, or -EINVAL (no such device, no stream of it that can capture, one that does
 * already), -ENOMEM (LIMIT: there are as many graphs as the device can have), -EOPNOTSUPP
 * (CUDA), -ESTALE, -ENODEV (in a forked child).
 * Thread: any. Blocks: briefly. Driver calls: one, of the software device.
 */
GLAKE_EXPORT int glake_soft_capture_begin(
	struct glake *ctx, int device, struct CUstream_st *stream);

/*
 * Ends a capture on the stream where it began and gives the graph, a number other than 0, to be
 * ended by glake_soft_graph_free.
 *
 * Returns 0, or -EINVAL (no such device, no stream of it, it captures nothing, NULL), -EIO
 * (CAPTURE: a call that is not allowed in a capture broke it, or a stream that joined was
 * not waited for; the capture is over and there is no graph), -EOPNOTSUPP (CUDA), -ESTALE,
 * -ENODEV (in a forked child).
 * Thread: any. Blocks: briefly. Driver calls: one, of the software device.
 */
GLAKE_EXPORT int glake_soft_capture_end(
	struct glake *ctx, int device, struct CUstream_st *stream, uint32_t *ret_graph);

/*
 * Queues the work of a graph on a stream, behind the launch of the same graph before. What it
 * names has to be there when it is launched.
 *
 * Returns 0, or -EINVAL (no such graph or device, no stream of it, memory that is gone, a
 * race with queued work), -EBUSY (CAPTURE: the stream captures a graph, which this breaks),
 * -ENOMEM (LIMIT: too much is queued), -EOPNOTSUPP (CUDA), -ESTALE, -ENODEV (in a forked
 * child).
 * Thread: any. Blocks: briefly, while it runs. Driver calls: one, of the software device.
 */
GLAKE_EXPORT int glake_soft_graph_launch(
	struct glake *ctx, int device, uint32_t graph, struct CUstream_st *stream);

/*
 * Ends a graph; what was launched of it runs on.
 *
 * Returns 0, or -EINVAL (no such graph), -EOPNOTSUPP (CUDA), -ESTALE, -ENODEV (in a forked
 * child).
 * Thread: any. Blocks: briefly. Driver calls: one, of the software device.
 */
GLAKE_EXPORT int glake_soft_graph_free(struct glake *ctx, uint32_t graph);

/* What managed memory (managed.h) did on the software device, which models where each piece of 2 MiB
 * of it lies, moves it as it is touched, and evicts what was touched longest ago. */
struct glake_soft_managed {
	size_t sz;	      /* sizeof(struct glake_soft_managed) */
	uint64_t gpu_faults;  /* pieces that were not where the GPU used them */
	uint64_t host_faults; /* likewise the host, near this GPU */
	uint64_t to_gpu;      /* bytes that were moved */
	uint64_t to_host;
	uint64_t evicted;  /* pieces that left since the GPU was full */
	uint64_t remote;   /* pieces that were used where they lay, over the link */
	uint64_t resident; /* bytes that lie on the GPU */
};

/*
 * Tells the device that the host reads `size` bytes of managed memory, or writes them: a real driver
 * sees that by a page fault, which this one does not take. What the program then does with the memory
 * is its own. `device` is the GPU whose figures it counts in, and near which the host's memory is.
 *
 * Returns 0, or -EINVAL (no managed memory there, or not so much; no such device), -EOPNOTSUPP (CUDA),
 * -ESTALE, -ENODEV (in a forked child).
 * Thread: any. Blocks: briefly. Driver calls: none that is counted.
 */
GLAKE_EXPORT int glake_soft_touch(
	struct glake *ctx, int device, const void *ptr, size_t size, int write);

/*
 * Gives those figures, since open. Returns 0, or -EINVAL (no such device, NULL, sz not set), -E2BIG,
 * -EOPNOTSUPP (CUDA), -ESTALE, -ENODEV (in a forked child).
 * Thread: any. Blocks: briefly. Driver calls: none that is counted.
 */
GLAKE_EXPORT int glake_soft_managed_get(
	struct glake *ctx, int device, struct glake_soft_managed *ret_figures);

GLAKE_END_DECLS

#endif
