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
	int fd;		   /* of the page; closed on exec */
	uint32_t flags;	   /* GLAKE_PIECE_READ or 0, one for all pieces */
	size_t page_size;  /* of the page, bytes */
	size_t offset;	   /* of the block's bytes in the page */
	size_t length;	   /* of the block's bytes in the page */
	uint64_t number;   /* of the page, see glake_export_list; 0: unknown */
	uint64_t reserved; /* 0 */
};

/* The importer may read the page and not write it: a kernel of his that does ends in an illegal access, and the exporter
 * goes on. For who asks for it: a descriptor itself lets its bearer do both. */
#define GLAKE_PIECE_READ 0x1u

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
 * of one, a list that is too short, NULL outputs: INVAL), -EBUSY (BUSY: it is away, or a part
 * of it, or sampled, see guard.mode), -EOPNOTSUPP (its pages were not made to be exported, see pool.export, or lie in memory
 * of the host or of another GPU until glake_fetch or glake_quiet has it), -EMFILE or -ENFILE
 * (class LIMIT: no descriptor is left), -ENOMEM, -ESTALE, -ENODEV (device lost, or in a forked
 * child), -EIO. A refused call changes nothing and leaves nothing open.
 * Thread: any; a free of the same block at the same time may be refused as DOUBLE_FREE.
 * Blocks: for the driver. Driver calls: an export a page, 35 us each on an H200, and 0.5 to
 * 0.9 ms for the first one while no other page is out.
 */
GLAKE_EXPORT int glake_export(struct glake *ctx, const void *ptr,
	struct glake_piece *ret_pieces, size_t max, size_t *ret_count);

/*
 * The same without descriptors: each piece has fd -1, and the number of its page. A page keeps its
 * number as long as it is memory of this context, and no other page of the context has it then or
 * later, so that an importer knows which pages it has mapped already and asks for the descriptors
 * of the others only (glake_mirror_open). The block is out as with glake_export.
 *
 * Returns 0, or -EINVAL (as glake_export: NOT_MINE, DOUBLE_FREE, INVAL), -EOPNOTSUPP (its pages
 * were not made to be exported), -ENOMEM, -ESTALE, -ENODEV. A refused call changes nothing.
 * Thread: any; a free of the same block at the same time may be refused as DOUBLE_FREE.
 * Blocks: briefly. Driver calls: none.
 */
GLAKE_EXPORT int glake_export_list(struct glake *ctx, const void *ptr,
	struct glake_piece *ret_pieces, size_t max, size_t *ret_count);

/*
 * Descriptors of some pages of a block that is out, in the order of its pieces, which are the
 * caller's. A few at a time are few descriptors, however large the block is.
 *
 * ptr		the address of the block, also of one that was freed since it is out
 * first	number of the first piece, from 0
 * ret_fds	a list of `count`
 *
 * Returns 0, or -EINVAL (no block of this context, one that is not out, pieces that it does not
 * have, NULL), -EMFILE or -ENFILE (class LIMIT), -ENOMEM, -ESTALE, -ENODEV, -EIO. A refused call
 * leaves nothing open.
 * Thread: any, while the block stays out. Blocks: for the driver. Driver calls: an export a page.
 */
GLAKE_EXPORT int glake_export_fds(
	struct glake *ctx, const void *ptr, size_t first, size_t count, int *ret_fds);

/*
 * Bytes of pages that were out and have gone back to the driver since, a number that only grows.
 * Importers that keep such pages mapped hold their memory until they are told to let go of it
 * (glake_mirror_trim), which is for the exporter to do when this number has grown.
 *
 * Returns 0, or -EINVAL (NULL), -ESTALE, -ENODEV (in a forked child).
 * Thread: any. Blocks: no. Driver calls: none.
 */
GLAKE_EXPORT int glake_export_gone(struct glake *ctx, uint64_t *ret_bytes);

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
 * usable by GPU `device` and its peers, to be read and written, or with GLAKE_PIECE_READ read. The descriptors stay the caller's and may be closed
 * afterwards. The memory is not the context's: no budget and no figure counts it, glake_query
 * does not know it and glake_free refuses it.
 *
 * device	the GPU that has the memory, by its number here
 * pieces	`count` of them, as glake_export gave them, with the descriptors as they are named
 *		in this process
 * size		bytes of the block, the sum of the lengths
 *
 * Returns 0, or -EINVAL (no piece or more than GLAKE_PIECES_MAX, pieces that do not join or
 * do not sum up, flags that are not one for all, a descriptor that is closed or no page, memory of
 * another GPU, unknown device, NULL), -E2BIG (pieces of a newer library), -ENOMEM (ADDRESS, LIMIT,
 * NOMEM_HOST, or NOMEM_DEVICE for tables of the driver), -EOPNOTSUPP, -EMFILE (the software device keeps a
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
 * Memory of another process, mapped for longer than a block of it is open. A mirror repeats the
 * addresses of one context of the exporter on one GPU: pages that it has mapped already serve the
 * next block that lies on them, without a call of the driver, and two blocks that share a page
 * share it here. Pages that no open block uses any more stay mapped up to share.keep bytes for all
 * mirrors of the GPU, those used last. Pages of one mirror go before that where blocks lie so far
 * apart in the exporter that the addresses of others are needed.
 *
 * Memory	a page that stays mapped here stays memory of the GPU when the exporter gives it
 *		back to the driver. Whoever keeps a mirror with share.keep above 0 lets go of them
 *		(glake_mirror_trim) when the exporter asks for it, or has ended
 */
struct glake_mirror;

/*
 * Makes one for GPU `device`, which has the memory. It is the caller's, who ends it
 * (glake_mirror_end) when the exporter has ended: one without an open block is not ended for
 * another. At most 256 live for each GPU, with open blocks or without.
 *
 * Returns 0, or -EINVAL (unknown device, NULL), -ENOMEM (LIMIT: there are 256; NOMEM_HOST),
 * -ESTALE, -ENODEV.
 * Thread: any. Blocks: briefly. Driver calls: none.
 */
GLAKE_EXPORT int glake_mirror_new(
	struct glake *ctx, int device, struct glake_mirror **ret_mirror);

/*
 * Gives descriptors of pieces `first` to `first + count`, at most GLAKE_MIRROR_FDS, which are the
 * mirror's then and closed before it asks for more. 0 or -errno, which glake_mirror_open returns.
 */
#define GLAKE_MIRROR_FDS 32
typedef int (*glake_mirror_fds_fn)(void *arg, size_t first, size_t count, int *ret_fds);

/*
 * Opens a block of the exporter: maps those of its pages that are not mapped yet. Opened more than
 * once it has the same address, and is closed as often.
 *
 * at		the address of the block in the exporter
 * pieces	`count` of them, as glake_export_list gave them
 * size		bytes of the block, the sum of the lengths
 * fds		called for pages that are not mapped, with no lock that glake_mirror_close or
 *		glake_mirror_trim take
 *
 * Returns 0, or -EINVAL (as glake_import; GLAKE_PIECE_READ; pieces without a number, an address that does not fit
 * them, no mirror of the context: NOT_MINE), -E2BIG (pieces of a newer library), -EBUSY (BUSY: other
 * pages are in use at these addresses, which an exporter that keeps its promise does not say),
 * -ENOMEM (ADDRESS, LIMIT, NOMEM_HOST, or NOMEM_DEVICE for tables of the driver), -EOPNOTSUPP,
 * -EMFILE, -ESTALE, -ENODEV, -EIO. What `fds` returned is returned; for -EMFILE, -ENFILE and
 * -ENOMEM it is asked for fewer before. A refused call leaves nothing in use.
 * Thread: any; two that open in one mirror wait for each other. Blocks: for the driver and for
 * `fds`. Driver calls: for each page that is not mapped import, map, set access and release, and
 * unmap where another was; a reservation now and then, for which an older one may go with an unmap
 * for each of its pages.
 */
GLAKE_EXPORT int glake_mirror_open(struct glake *ctx, struct glake_mirror *mirror,
	uint64_t at, const struct glake_piece *pieces, size_t count, size_t size,
	glake_mirror_fds_fn fds, void *arg, void **ret_ptr);

/*
 * Says that a block is not used any more, by no work of any stream: the caller has waited for it,
 * and the exporter may be told.
 *
 * ptr, size	as it was opened
 *
 * Returns 0, or -EINVAL (no such block is open, or no mirror of the context: NOT_MINE), -ESTALE, -EIO
 * or -ENODEV (the driver kept some page that was to go; the block is closed). In a forked child 0,
 * and nothing happens.
 * Thread: any. Blocks: for the driver. Driver calls: an unmap for each page that is above
 * share.keep.
 */
GLAKE_EXPORT int glake_mirror_close(
	struct glake *ctx, struct glake_mirror *mirror, void *ptr, size_t size);

/*
 * Unmaps pages that no open block uses, those used longest ago first, until at most `keep` bytes
 * of such pages are left in this mirror. *ret_kept, unless NULL, is how many are left; with `keep`
 * SIZE_MAX it only asks.
 *
 * Returns 0, or -EINVAL (no mirror of the context: NOT_MINE), -ESTALE, -EIO or -ENODEV (the driver
 * kept some). In a forked child 0 with 0 bytes.
 * Thread: any. Blocks: for the driver. Driver calls: an unmap a page.
 */
GLAKE_EXPORT int glake_mirror_trim(
	struct glake *ctx, struct glake_mirror *mirror, size_t keep, size_t *ret_kept);

/*
 * Takes a mirror down with all that is mapped, also what is open. glake_close does so too, and
 * counts mirrors with open blocks among what was not freed.
 *
 * Returns 0, or -EINVAL (no mirror of the context: NOT_MINE), -EBUSY (BUSY: a block is being
 * opened), -ESTALE, -EIO or -ENODEV (the driver kept some of it, which is tried again at
 * glake_close). In a forked child 0, and nothing happens.
 * Thread: any. Blocks: for the driver. Driver calls: an unmap a page, and those that give the
 * addresses back.
 */
GLAKE_EXPORT int glake_mirror_end(struct glake *ctx, struct glake_mirror *mirror);

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

/*
 * Where share.broker names a broker (glaked), several processes share a GPU by its leave: each makes and gives back its
 * memory itself, and asks before. Who is short has it ask others, who give what lies idle with them, what their program frees
 * when it is asked (glake_shortage_set), and cold blocks (glake_advise).
 */
enum glake_lease_state {
	GLAKE_LEASE_NONE = 0, /* no broker is configured */
	GLAKE_LEASE_HERE = 1, /* the broker gives leave */
	GLAKE_LEASE_AWAY =
		2, /* it is away, and requests for more memory wait for it (share.wait) */
	GLAKE_LEASE_ALONE = 3, /* it has been away for that long: see share.require */
};

/* The lease of one GPU. Bytes; all 0 without a broker. */
struct glake_lease {
	size_t sz;  /* sizeof(struct glake_lease) */
	int state;  /* enum glake_lease_state */
	int helper; /* not 0: a thread hears what the broker asks for; else requests that want the driver do */
	uint64_t leased;    /* what the context may hold */
	uint64_t left;	    /* of that, what it does not hold */
	uint64_t least;	    /* what it is guaranteed */
	uint64_t most;	    /* what it may have */
	uint64_t asked;	    /* times that it was asked to give, so far */
	uint64_t given;	    /* bytes that it gave back, so far */
	uint64_t refused;   /* times that it was refused more, so far */
	uint64_t waited_ns; /* that requests waited in line for others, so far */
};

/*
 * Tells the lease of a GPU.
 *
 * Returns 0, or -EINVAL (unknown device, NULL, sz not set), -E2BIG, -ESTALE, -ENODEV (in a forked child).
 * Thread: any. Blocks: for an answer of the broker that another thread waits for, a second at most. Driver calls: none.
 */
GLAKE_EXPORT int glake_lease_get(
	struct glake *ctx, int device, struct glake_lease *ret_lease);

/*
 * A quota of a GPU: share.quota, for all processes of the user together that have it. Bytes.
 */
struct glake_quota {
	size_t sz;	    /* sizeof(struct glake_quota) */
	uint64_t limit;	    /* 0: there is none, and neither is any other figure */
	uint64_t used;	    /* by all of them */
	uint64_t held;	    /* of that, by this process through glake */
	uint64_t beside;    /* and what the driver gave it besides */
	uint32_t processes; /* that share it */
	int measured; /* not 0: NVML says what is beside; else it is what glake_quota_pass was told of */
	int alone; /* not 0: the file of the quota cannot be had, and other processes are not seen */
};

/*
 * Tells the quota of a GPU, measured now.
 *
 * uuid		of the GPU, as glake_device_get tells it
 * memory	its bytes, of which a quota may be a part
 *
 * Returns 0, or -EINVAL (no UUID, NULL, sz not set), -E2BIG.
 * Thread: any; needs no context. Blocks: for NVML, some 100 us. Driver calls: none of CUDA.
 */
GLAKE_EXPORT int glake_quota_get(
	const char *uuid, uint64_t memory, struct glake_quota *ret_quota);

/*
 * Says that the driver is about to give `bytes` beside glake, or, below 0, that it has them back. Where NVML tells what
 * there is, that counts from its next measurement on.
 *
 * Returns 0, also where there is no quota, or -EDQUOT (LIMIT: the quota has no room, and who has it), -EINVAL (no UUID).
 * Thread: any; needs no context. Blocks: as glake_quota_get. Driver calls: none of CUDA.
 */
GLAKE_EXPORT int glake_quota_pass(const char *uuid, uint64_t memory, int64_t bytes);

GLAKE_END_DECLS

#endif
