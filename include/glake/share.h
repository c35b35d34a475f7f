/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLAKE_SHARE_H
#define GLAKE_SHARE_H

#include <stddef.h>
#include <stdint.h>

#include <glake/export.h>

GLAKE_BEGIN_DECLS

struct glake;
struct CUstream_st;

/*
 * Memory that others use: other processes, network cards, other GPUs. What a block can do,
 * glake_query says.
 *
 * A block lies on one physical page or on several. Each page can leave the process as a file
 * descriptor, and another process that gets all descriptors of a block maps them side by side
 * and has the same memory, at an address of its own.
 *
 * Neighbours	blocks share pages at their ends. A process that gets a page can read and write
 *		all of it, also what lies beside the block. One that is not trusted with that
 *		is given contiguous blocks (GLAKE_ALLOC_CONTIGUOUS), which share no page
 * Bearers	whoever has a descriptor has the memory, for as long as he keeps it or maps it,
 *		also after the exporter has freed it or has ended. Nothing takes it away from him
 * Holding	while a block is out, its memory serves nobody else: it keeps its pages and its
 *		addresses until glake_export_end was called as often as glake_export and
 *		glake_dmabuf gave it out, also when it is freed meanwhile. An exporter calls that
 *		once the importers have told it that they are done, which is when their
 *		glake_import_end has returned
 * Order	streams of two processes know nothing of each other. The exporter's work on the
 *		block has to have finished, or an interprocess event of it to be waited for,
 *		before the importer's begins
 */

/* What a block has in one page. */
struct glake_piece {
	int fd;		      /* of the page; closed on exec */
	uint32_t flags;	      /* 0 */
	size_t page_size;     /* of the page, bytes */
	size_t offset;	      /* of the block's bytes in the page */
	size_t length;	      /* of the block's bytes in the page */
	uint64_t reserved[2]; /* 0 */
};

/* Most pieces that one import takes. */
#define GLAKE_PIECES_MAX ((size_t)1 << 20)

/*
 * Gives a live block as the list of its pages, in the order of its addresses: all bytes that
 * were asked for, none twice. The descriptors are the caller's, who sends them (SCM_RIGHTS, at
 * most 253 a message) and closes them; the block stays his too.
 *
 * ptr		the address that glake_alloc gave
 * ret_pieces	a list of `max`; there are no more than glake_block.pages
 *
 * Returns 0, or -EINVAL (not a live block of this context: NOT_MINE, DOUBLE_FREE; the inside
 * of one, a list that is too short, NULL outputs: INVAL), -EOPNOTSUPP (its pages were not
 * made to be exported, see pool.export), -EMFILE or -ENFILE (class LIMIT: no descriptor is
 * left), -ENOMEM, -ESTALE, -ENODEV (device lost, or in a forked child), -EIO. A refused call
 * changes nothing and leaves nothing open.
 * Thread: any; a free of the same block at the same time may be refused as DOUBLE_FREE.
 * Blocks: for the driver. Driver calls: an export a page, 35 us each on an H200, and 0.5 to
 * 0.9 ms for the first one while no other page is out.
 */
GLAKE_EXPORT int glake_export(struct glake *ctx, const void *ptr,
	struct glake_piece *ret_pieces, size_t max, size_t *ret_count);

/*
 * Says that who got a block is done with it: once for each glake_export and glake_dmabuf of
 * it. After the last one a block that was freed meanwhile goes back to be used again.
 *
 * ptr		anywhere in the block
 *
 * Returns 0, or -EINVAL (no block of this context: NOT_MINE; one that is not out: INVAL),
 * -ESTALE. In a forked child 0, and nothing happens.
 * Thread: any. Blocks: briefly. Driver calls: none.
 */
GLAKE_EXPORT int glake_export_end(struct glake *ctx, const void *ptr);

/*
 * A dma-buf of a range inside a live block, for RDMA and other devices. It begins at a page
 * of the host; *ret_offset is where in it the range begins. The descriptor is the caller's and
 * closed on exec. Like an export it holds the block until glake_export_end, to be called when
 * no device uses the buffer any more.
 *
 * Returns 0, or -EINVAL (no live block holds the range, size 0, NULL outputs; also where the
 * driver makes none over several pages: a contiguous block has one), -EOPNOTSUPP (no
 * dma-bufs by this driver or GPU; none on the software device), -EMFILE, -ENFILE, -ENOMEM,
 * -ESTALE, -ENODEV, -EIO. A refused call changes nothing and leaves nothing open.
 * Thread: any; a free of the same block at the same time may be refused as DOUBLE_FREE.
 * Blocks: for the driver. Driver calls: one.
 */
GLAKE_EXPORT int glake_dmabuf(
	struct glake *ctx, const void *ptr, size_t size, int *ret_fd, size_t *ret_offset);

/*
 * Maps the pages of a block of another process, or of this one, behind one run of addresses,
 * usable by GPU `device` and its peers. The descriptors stay the caller's and may be closed
 * afterwards. The memory is not the context's: no budget and no figure counts it, glake_query
 * does not know it and glake_free refuses it.
 *
 * device	the GPU that has the memory, by its number here
 * pieces	`count` of them, as glake_export gave them, with the descriptors as they are named
 *		in this process
 * size		bytes of the block, the sum of the lengths
 *
 * Returns 0, or -EINVAL (no piece or more than GLAKE_PIECES_MAX, pieces that do not join or
 * do not sum up, a descriptor that is closed or no page, memory of another GPU, unknown
 * device, NULL), -E2BIG (pieces of a newer library), -ENOMEM (ADDRESS, LIMIT, NOMEM_HOST, or
 * NOMEM_DEVICE for tables of the driver), -EOPNOTSUPP, -EMFILE (the software device keeps a
 * descriptor a page), -ESTALE, -ENODEV, -EIO. A refused call changes nothing.
 * Thread: any. Blocks: for the driver. Driver calls: a reservation; import, map and release a
 * page; set access.
 */
GLAKE_EXPORT int glake_import(struct glake *ctx, int device,
	const struct glake_piece *pieces, size_t count, size_t size, void **ret_ptr);

/*
 * Waits for all work queued on a stream and then takes an import down: when it returns 0,
 * nothing here uses the memory any more, and the exporter may be told so. Work of other streams
 * on it is to be put behind this one before, by events. A context that is closed takes down all
 * its imports, and counts them with the blocks not freed.
 *
 * ptr		as glake_import gave it
 * stream	of the GPU it was imported to
 *
 * Returns 0, or -EINVAL (nothing was imported there: NOT_MINE; no stream of that GPU:
 * INVAL), -EBUSY (CAPTURE: the stream captures a graph), -ESTALE, -EIO or -ENODEV (the
 * driver kept some of it, which is tried again at glake_close, and the import is no longer
 * the caller's). After other errors nothing has changed. In a forked child 0, and nothing
 * happens.
 * Thread: any. Blocks: for the GPU. Driver calls: those that ask about the stream and wait for
 * it, unmap, and one that gives the addresses back.
 */
GLAKE_EXPORT int glake_import_end(
	struct glake *ctx, void *ptr, struct CUstream_st *stream);

/*
 * Lets another GPU read and write all memory of a GPU, what is mapped now and what will be, or
 * takes that away again, which is for the caller to do when the other GPU uses it no more. The
 * key pool.peers = all does it for all GPUs from the beginning.
 *
 * device	whose memory
 * peer		who may use it
 * on		not 0: it may; 0: no longer
 *
 * Returns 0, or -EINVAL (unknown devices, a GPU and itself), -EOPNOTSUPP (the peer cannot
 * reach the memory), -ENOMEM (tables of the driver), -ESTALE, -ENODEV, -EIO. After an error
 * all rights are as they were.
 * Thread: any. Blocks: for the driver. Driver calls: set access for every run of mapped pages.
 */
GLAKE_EXPORT int glake_peer_access(struct glake *ctx, int device, int peer, int on);

GLAKE_END_DECLS

#endif
