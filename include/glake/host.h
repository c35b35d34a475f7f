/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLAKE_HOST_H
#define GLAKE_HOST_H

#include <stddef.h>
#include <stdint.h>

#include <glake/export.h>

GLAKE_BEGIN_DECLS

struct glake;
struct CUstream_st;

/*
 * Pinned memory of the host: locked by the driver, so that GPUs copy from and to it at the speed of
 * the link and while the program goes on. A block has the size that was asked for, in whole
 * GLAKE_HOST_GRAIN bytes, where other allocators round to a power of two.
 *
 * It lies on the NUMA node nearest to its GPU, where that has room (host.bind: or nowhere), and any GPU
 * may copy from and to it. It is cut from pieces, which threads of the library touch, since that is what
 * takes long, and the driver then locks whole; the threads end with that. A block lies in one piece, so one
 * copy may be of all of it. A large block has a piece of its own size; small ones share pieces, of 8 MiB and
 * then of an eighth of what is in use, up to host.piece. So for blocks that only become more, and are of no
 * larger alignment than the grain, an eighth beyond what they were given is locked at most, and 32 MiB. What is freed merges with what is free beside it and
 * serves other requests; free pieces that are each too small for one are given back where together they
 * are not. Pieces stay otherwise until glake_trim of their GPU, which gives back those without blocks, or as
 * host.keep says. At most host.limit bytes are locked for a GPU.
 *
 * The memory is the host's: a block may be written as soon as it was given. So one that was freed
 * serves no other request before the copies from and to it have finished. The library does not see the
 * program's copies: say which streams make them by glake_host_use, or free a block when they have
 * finished.
 *
 * Before more memory is locked, each stream is asked that freed blocks wait for; nothing waits for it. A
 * block that more than four streams of a GPU beyond 63 use waits for all of these. A thread's own default
 * stream is asked by that thread, and by others as memory.h says. A stream that was destroyed unannounced
 * (glake_stream_end) cannot be asked: what waits for it does until a glake_trim of the GPU that the block is
 * near, or a request that would be refused, which wait for the GPU.
 *
 * A block is not initialised. In a forked child it is not there at all: a child that touches it is
 * ended by SIGSEGV.
 */

/* Bytes: sizes are multiples of it, and so are addresses. */
#define GLAKE_HOST_GRAIN 64

/*
 * Flags of glake_host_alloc are an alignment, as a power of two, up to this: with 12 a block begins at
 * a multiple of 4096 bytes. 0 is the grain.
 */
#define GLAKE_HOST_ALIGN_MAX 21u

/*
 * Gives pinned memory of the host near a GPU.
 *
 * device	number of the GPU
 * size		bytes, from 1
 * flags	0, or up to GLAKE_HOST_ALIGN_MAX
 *
 * Returns 0, or -EINVAL (size 0, unknown flag, unknown device, NULL output; the driver refuses to lock
 * memory), -ENOMEM, -EOPNOTSUPP (UNSUPPORTED: the driver locks no memory of the host; with host.bind: no
 * node can be chosen), -EPERM (PERM: with host.bind: that is denied), -ESTALE (closed context), -ENODEV
 * (device lost: DEVICE_LOST; in a forked child: FORKED), -EIO (driver fault). A refused request changes
 * nothing, but pieces without blocks may have gone back to the system. What -ENOMEM is for, the class of
 * glake_last_error tells:
 *
 * LIMIT	host.limit, or map.extents blocks and free runs between them
 * NOMEM_HOST	the machine or the control group of the process has not as much to spare beside the
 *		256 MiB that are left to others; with host.bind, the node has not, its page cache that
 *		was not used of late counted; the process has no addresses left (RLIMIT_AS); the
 *		driver found none to lock
 *
 * Thread: any. Blocks: for the lock of the pool, a microsecond where there is room, however many blocks
 * wait for streams; where there is none, until a piece was touched and locked, some 90 ms per GiB, for a
 * small block for a piece to share that another thread makes, where the machine has little left for pieces
 * of others, and before a refusal for copies that use freed blocks, if those would do. Driver calls: none where there is room and nothing waits; else questions
 * about events, event records, a lock of memory, unlocks.
 */
GLAKE_EXPORT int glake_host_alloc(
	struct glake *ctx, int device, size_t size, uint32_t flags, void **ret_ptr);

/*
 * Takes a block back. It serves other requests when the work has finished that was queued until now on
 * the streams of glake_host_use, at once if there are none. NULL is accepted and does nothing.
 *
 * ptr		as glake_host_alloc gave it
 *
 * Returns 0, or -EINVAL (NOT_MINE: no block of this context begins there, or it was freed before),
 * -ESTALE. A refused free changes nothing. In a forked child 0, and nothing happens.
 * Thread: any. Blocks: for the lock of the pool. Driver calls: an event record, and a question about the
 * stream, for each stream of glake_host_use, up to 16; with host.keep, unlocks.
 */
GLAKE_EXPORT int glake_host_free(struct glake *ctx, void *ptr);

/*
 * Says that work on a stream copies from or to a block, or a kernel uses it, so that freeing it waits
 * for that. To be called after that work was queued or before, but not after the free. PyTorch calls
 * the like record_stream.
 *
 * ptr		anywhere in the block
 * device	number of the GPU that the stream is of, which need not be that of the block
 * stream	a stream of that GPU; NULL: the legacy default one
 *
 * A graph that is being captured copies at each replay, which no event of the library tells of: a
 * stream that captures is refused, and the program keeps the block as long as the graph.
 *
 * Returns 0, or -EINVAL (NOT_MINE: no live block there; no such device; no stream of that GPU), -EBUSY
 * (CAPTURE), -ENOMEM (LIMIT: two million streams of blocks, or 4096 streams of the GPU; NOMEM_HOST),
 * -ESTALE, -ENODEV (device lost, or in a forked child). A refused call changes nothing.
 * Thread: any. Blocks: for the locks of the pool and of the GPU. Driver calls: a question about the
 * stream.
 */
GLAKE_EXPORT int glake_host_use(
	struct glake *ctx, const void *ptr, int device, struct CUstream_st *stream);

/* What is behind an address. */
struct glake_host_block {
	size_t sz;     /* sizeof(struct glake_host_block) */
	void *base;    /* first byte of the block */
	size_t size;   /* as asked for */
	size_t given;  /* as given, a multiple of GLAKE_HOST_GRAIN */
	int device;    /* number of the GPU that it is near */
	int node;      /* NUMA node that it begins on; -1: not known */
	uint32_t gpus; /* whose streams use it, as far as was said */
};

/*
 * Describes the live block that holds `ptr`, which may point anywhere inside it.
 *
 * Returns 0, or -EINVAL (NOT_MINE: no live block there; NULL, sz not set), -E2BIG, -ESTALE, -ENODEV (in
 * a forked child).
 * Thread: any; the block must not be freed meanwhile for the answer to mean something. Blocks: for the
 * lock of the pool. Driver calls: none.
 */
GLAKE_EXPORT int glake_host_query(
	struct glake *ctx, const void *ptr, struct glake_host_block *ret_block);

GLAKE_END_DECLS

#endif
