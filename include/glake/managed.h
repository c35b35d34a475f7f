/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLAKE_MANAGED_H
#define GLAKE_MANAGED_H

#include <stddef.h>
#include <stdint.h>

#include <glake/export.h>

GLAKE_BEGIN_DECLS

struct glake;
struct CUstream_st;

/*
 * Managed memory: blocks of glake_alloc with GLAKE_ALLOC_MANAGED, which GPUs and threads of the host
 * use at the same addresses. The driver moves it, page by page, to who touches it, and evicts it from
 * a GPU that is full. So a block may be larger than the GPU, and a program need not say what it will
 * use; it pays with faults, which cost far more than a copy. What is known beforehand is better said:
 * glake_managed_prefetch, glake_managed_advise.
 *
 * It is had in chunks (tier.managed_chunk), which are kept until glake_trim, or a request for managed
 * memory that has no room otherwise, finds one without blocks; one that is too small goes before a larger
 * one is made. A request that has no room gives idle pages back, too.
 * All chunks of a GPU together are never larger than what is free on the GPU when one is had, unless
 * the caller insists with GLAKE_ALLOC_MANAGED_OVER; nor than tier.managed, which binds him too.
 *
 * The memory of a block may have been another's, whose work is still queued before the block's own on
 * its stream. So threads of the host may touch a new block once the work that was queued on that stream
 * before it was given has finished.
 *
 * Freed blocks serve other streams by the rules of all memory. They go to no bin: a request and a free
 * take the lock of the GPU, and some microseconds. Graphs that are being captured are given none. No
 * block leaves the process: glake_export and glake_dmabuf refuse it. glake_spill and glake_fetch are
 * prefetches of it, to the host and to its GPU; it is never away, and may be used all the time.
 * glake_advise refuses it, since the driver needs no leave. glake_quiet leaves it alone. glake_suspend
 * sends what blocks have, or had before they were freed, to the host, in pages of 2 MiB
 * (pool.small_page); what of them nobody ever touched may take memory of the host then, for which
 * tier.host is not asked. What is used meanwhile, and after glake_resume, comes to the GPU as it is
 * touched.
 */

/* Flags of glake_alloc, beside those of memory.h. */
#define GLAKE_ALLOC_MANAGED	 0x2u
#define GLAKE_ALLOC_MANAGED_OVER 0x4u /* with it: also more than is free on the GPU */

/* Where managed memory may lie. */
enum glake_place {
	GLAKE_PLACE_GPU = 0,  /* id: number of the GPU */
	GLAKE_PLACE_HOST = 1, /* id: NUMA node of the host; -1: the host, wherever */
};

/* What a program says of managed memory, until it is freed or the contrary is said. */
enum glake_managed_advice {
	/* It is best at a place: it stays there where others can use it over the link. */
	GLAKE_MANAGED_PREFER = 0,
	GLAKE_MANAGED_UNPREFER, /* at no place; the place that is said does not matter */
	/* A place uses it: it is mapped there, wherever it lies, so that there are no faults. */
	GLAKE_MANAGED_ACCESSED,
	GLAKE_MANAGED_UNACCESSED,
};

/*
 * Says what managed memory is for. Drivers before CUDA 12.2 take every NUMA node for the host. The
 * driver rounds to its pages of 4 KiB to 2 MiB, so a small block may share what is said with its
 * neighbours.
 *
 * ptr		anywhere in a block
 * size		bytes that it is about, in the block; 0: the rest of it
 * advice	GLAKE_MANAGED_...
 * place, id	of GLAKE_PLACE_...
 *
 * Returns 0, or -EINVAL (no live block of this context there; not managed; over the end of the block;
 * no such advice or place), -EBUSY (BUSY: it is being moved or freed), -EOPNOTSUPP (UNSUPPORTED: not
 * by this driver), -ESTALE, -EIO, -ENODEV (device lost, or in a forked child). What the driver refuses
 * changes nothing.
 * Thread: any; a free of the block at the same time waits. Blocks: for the lock of the GPU.
 * Driver calls: one, and those that take back what the library has said of it (uvm.h).
 */
GLAKE_EXPORT int glake_managed_advise(
	struct glake *ctx, void *ptr, size_t size, int advice, int place, int id);

/*
 * Moves managed memory, behind all work queued so far on `stream` and before what is queued next; work
 * of other streams, and of the host, may use it meanwhile. To a GPU that has less room than that it goes
 * in part, or evicts other managed memory. The stream counts as one that uses the block, as after
 * glake_use.
 *
 * stream	of the GPU that the block is of
 *
 * Returns 0, or -EINVAL (as glake_managed_advise; no stream of that GPU), -EBUSY (BUSY: it is being
 * moved or freed; CAPTURE: the stream captures a graph), -ENOMEM, -EOPNOTSUPP (UNSUPPORTED: not by
 * this driver), -ESTALE, -EIO, -ENODEV (device lost, or in a forked child).
 * Thread: as above. Blocks: for the lock of the GPU; drivers may for memory that was never touched.
 * Driver calls: one.
 */
GLAKE_EXPORT int glake_managed_prefetch(struct glake *ctx, void *ptr, size_t size,
	int place, int id, struct CUstream_st *stream);

/* What may be asked about managed memory. */
enum glake_managed_what {
	GLAKE_MANAGED_PREFERRED = 0, /* the place it was said to be best at */
	/* The place it was sent to last. It may have moved since; and where nobody sent a block it may
	 * be that of a block that had the memory before. */
	GLAKE_MANAGED_PREFETCHED,
};

/*
 * Asks the driver about managed memory, and gives the place.
 *
 * Returns 0, or -ENOENT (nowhere, or not all of it the same), -EINVAL (as glake_managed_advise; no such
 * question, NULL), -EBUSY (BUSY: it is being moved or freed), -EOPNOTSUPP (UNSUPPORTED: not by this
 * driver), -ESTALE, -EIO, -ENODEV (device lost, or in a forked child).
 * Thread: as above. Blocks: no. Driver calls: one or two.
 */
GLAKE_EXPORT int glake_managed_get(struct glake *ctx, const void *ptr, size_t size,
	int what, int *ret_place, int *ret_id);

GLAKE_END_DECLS

#endif
