/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLAKE_ELASTIC_H
#define GLAKE_ELASTIC_H

/*
 * Elastic blocks: addresses first, memory as it is needed. A block that was asked for with GLAKE_ALLOC_ELASTIC may
 * be larger than the GPU and has no memory behind it; ranges of it are committed, used in stream order, and
 * decommitted, while its address stays and what was committed elsewhere in it is not touched. Nothing is ever
 * copied for it. It is what growing buffers, caches of sequences and sparse tables want: plain strides for kernels,
 * and pages for what is in use alone.
 *
 *	glake_alloc(ctx, 0, 64 GiB, stream, GLAKE_ALLOC_ELASTIC, &p);
 *	glake_commit(ctx, p, 0, 1 GiB, stream, NULL);	the first GiB may be used on `stream`
 *	glake_decommit(ctx, p, 512 MiB, 512 MiB, stream, NULL);
 *	glake_free(ctx, p, stream);
 *
 * Memory goes by pages of 2 MiB (pool.small_page): a range that is committed reaches to whole pages on both sides,
 * one that is decommitted holds whole pages and keeps what is not. What is not committed must not be touched: there
 * is nothing behind it, and the kernel that does ends in an illegal access.
 *
 * What counts as live of such a block, in all figures and for the limit of its tag, is what is committed. It is
 * spilled, fetched, suspended and resumed as other blocks are, as far as it is committed; it is not exported, has no
 * dma-buf, and comes from no pool of graphs and no managed memory: with a stream that captures it is made like on
 * any other, and used by the graph like other memory from outside.
 */

#include <stddef.h>
#include <stdint.h>

#include <glake/export.h>
#include <glake/memory.h>

GLAKE_BEGIN_DECLS

/* Flags of glake_alloc. The block is elastic. Not together with other kinds (-EINVAL). */
#define GLAKE_ALLOC_ELASTIC 0x100u
/* With that: what is committed of it stays until it is freed, as a rule, so that it may have larger pages, which are
 * had with fewer calls of the driver. A decommit keeps a page of which it does not hold all. */
#define GLAKE_ALLOC_GROWS 0x200u

/* A range of a block. */
struct glake_range {
	size_t offset, bytes; /* from its first byte; 1 byte or more */
};

/*
 * Puts memory behind a range of an elastic block, all of it or nothing. What is committed already stays as it is,
 * and so does what of that is away (tier.h). Contents of the rest are undefined. The memory may be used in the order
 * of `stream` from now on, and by a free of the block that names it.
 *
 * offset	bytes from the beginning of the block, which is what `ptr` names
 * stream	of the block's GPU, not in a capture; as of glake_alloc
 * ret_bytes	bytes of the block that were committed by this call; with -ENOMEM those that there would be room for;
 *		NULL: nobody wants to know
 *
 * Returns 0, also where all of it was committed before; or -EINVAL (not the beginning of a live block: NOT_MINE; not
 * elastic; 0 bytes; the stream), -ERANGE (past the end of the block), -ENOMEM (NOMEM_DEVICE: no room on any rung, after
 * cold blocks went and the program was asked, see glake_shortage_set; LIMIT: the limit of the tag, pool.pages),
 * -EBUSY (CAPTURE: the stream captures, or memory could be had behind streams that do only), -EAGAIN (the GPU, or
 * the tag of the block, is suspended), -EIO, -ESTALE (closed context), -ENODEV. After an error nothing is changed.
 * Thread: any; calls about one block wait for each other. Blocks: as a glake_alloc that no quick bin serves.
 * Driver calls: none where idle memory lies at these very addresses; else those of such a glake_alloc.
 */
GLAKE_EXPORT int glake_commit(struct glake *ctx, void *ptr, size_t offset, size_t bytes,
	struct CUstream_st *stream, size_t *ret_bytes);

/*
 * The same for `count` ranges at once, which may overlap: all or none.
 *
 * Returns what glake_commit does, or -EINVAL (no range). Thread: any, likewise. Blocks: as glake_commit. Driver
 * calls: as glake_commit.
 */
GLAKE_EXPORT int glake_commit_ranges(struct glake *ctx, void *ptr,
	const struct glake_range *ranges, size_t count, struct CUstream_st *stream,
	size_t *ret_bytes);

/* Two ranges of a block, of whole pages. */
struct glake_sharing {
	size_t from, to, bytes;
};

/*
 * Puts the memory of ranges behind other ranges of the block too, all of them or none: what is there exists once, and is
 * *sealed* from then on, for good. It may be read at either place, on any stream that comes behind the work which wrote
 * it, and must not be written again: at the new place it cannot be, so that a kernel which does ends in an illegal
 * access; at the old one that is a promise, since the rights of a mapping must not change under kernels that use it, and
 * wherever else those very pages lay before they were sealed.
 * Each range is decommitted by itself, and the memory goes with the last. What one range has of it counts as live.
 *
 * Sealed pages stay on the GPU when ranges are spilled, and while it is suspended they go once, and come back once, each
 * as a page of its size.
 *
 * ranges	multiples of pool.small_page; `from` committed, on the GPU, in pages that lie wholly in it: those of a block
 *		without GLAKE_ALLOC_GROWS have that size; nothing of `to` is committed
 * count	1 or more
 *
 * Returns 0; -EINVAL (as glake_commit; not of whole pages; no range), -ERANGE (past the end), -EEXIST (BUSY: something
 * of `to` is committed), -EBUSY (BUSY: something of `from` is away or not committed; CAPTURE: the stream captures, or
 * work on what lay there was captured), -EOPNOTSUPP (a larger page that `from` has a part of; memory of the host), -ENOMEM (LIMIT: a page has 1024
 * mappings), -EAGAIN (suspended), -EIO, -ESTALE, -ENODEV. After an error nothing is committed.
 * Thread: any; calls about one block wait for each other. Blocks: where idle pages lie at `to`, for the work that was
 * queued on them. Driver calls: map for each page and set_access; none for pages that lay there before, sealed.
 */
GLAKE_EXPORT int glake_commit_shared(struct glake *ctx, void *ptr,
	const struct glake_sharing *ranges, size_t count, struct CUstream_st *stream);

/*
 * Takes the memory from whole pages of a range of an elastic block, in the order of `stream` and of the other
 * streams that were named for the block (glake_use): work that was queued before may still use it, later work must not.
 * Others have the memory once that has finished, as that of a block that was freed. Contents of it that are away are
 * dropped.
 *
 * ret_bytes	bytes of the block that went, in pages that are wholly in the range; what was not committed is not
 *		counted; NULL: nobody wants to know
 *
 * Returns 0, also where no whole page is in it; or -EINVAL (as glake_commit), -ERANGE (likewise), -EBUSY (CAPTURE: the
 * stream captures), -ENOMEM (no memory for tables: what went before stays gone), -ESTALE (closed context), -ENODEV.
 * Thread: any, likewise. Blocks: for the lock of the GPU, not for the GPU. Driver calls: one that asks what the
 * stream does.
 */
GLAKE_EXPORT int glake_decommit(struct glake *ctx, void *ptr, size_t offset, size_t bytes,
	struct CUstream_st *stream, size_t *ret_bytes);

/*
 * The same for `count` ranges at once.
 *
 * Returns what glake_decommit does, or -EINVAL (no range). Thread: any, likewise. Blocks: as glake_decommit.
 * Driver calls: as glake_decommit.
 */
GLAKE_EXPORT int glake_decommit_ranges(struct glake *ctx, void *ptr,
	const struct glake_range *ranges, size_t count, struct CUstream_st *stream,
	size_t *ret_bytes);

GLAKE_END_DECLS

#endif
