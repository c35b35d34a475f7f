/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLAKE_MEMORY_H
#define GLAKE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include <glake/export.h>

GLAKE_BEGIN_DECLS

struct glake;
struct CUstream_st; /* CUDA's own: a CUstream or cudaStream_t goes in as it is */
struct CUevent_st;  /* the same: a CUevent or cudaEvent_t */

/* Flags of glake_alloc. */
#define GLAKE_ALLOC_CONTIGUOUS                                                           \
	0x1u /* one physical handle: IPC, RDMA, NCCL registration */
/* GLAKE_ALLOC_MANAGED 0x2u, GLAKE_ALLOC_MANAGED_OVER 0x4u: see managed.h
 * GLAKE_ALLOC_ELASTIC 0x100u, GLAKE_ALLOC_GROWS 0x200u: see elastic.h */
/* An alignment above GLAKE_GRAIN is one of these bits, as it is: 4096 for direct storage */
#define GLAKE_ALLOC_ALIGN 0x3ffc00u
#define GLAKE_ALIGN_MAX	  ((size_t)2 << 20)
#define GLAKE_ALLOC_FLAGS 0x3fff07u /* all flags this version knows */

/* Sizes are rounded up to this many bytes, and blocks begin at multiples of it; for contiguous
 * blocks it is pool.small_page. */
#define GLAKE_GRAIN ((size_t)512)

/*
 * Threads that are cancelled: glake_alloc and glake_free may be left by asynchronous
 * cancellation, at any instruction. A thread that ends there takes at most the one block with
 * it that it was about to get or give back; that block may stay unaccounted until the context
 * is closed. All else goes on. Every lock of the library, and the driver below it, is
 * protected: there cancellation is put off until it was given back. The other functions are
 * not to be called with asynchronous cancellation enabled.
 */

/*
 * Gives a block of at least `size` bytes on GPU `device`, usable in stream order on `stream`
 * at once, without synchronisation. Contents are undefined. The block belongs to the caller
 * until glake_free. While `stream` captures a graph the block comes from a pool of that graph,
 * see graph.h. With the key tier.place=host a block that the GPU has no room for is given in
 * memory of the host near it, which the GPU uses in place: see tier.h.
 *
 * device	GPU number, from 0
 * size		bytes, 1 or more; rounded up to GLAKE_GRAIN
 * stream	the stream of first use, of that GPU and of its primary context; NULL is the
 *		legacy default stream, CU_STREAM_PER_THREAD that of the calling thread. A
 *		program that destroys a stream says so before: glake_stream_end. What was freed
 *		on a thread's default stream serves other streams too: the thread records an
 *		event there after each MiB freed past its bins, and at a later free or miss where
 *		others want what it freed. Who is to have the rest, or what a thread left that has
 *		ended, has it behind an event on the legacy stream. Like all work on that stream
 *		such an event orders the default streams of all threads, so a kernel on one must
 *		not wait for what the program has yet to queue on another; and a capture on a
 *		stream that waits for the legacy one is in its way, for which the driver is asked
 *		before. One that begins in that very moment is lost, and driver 580 was seen to end
 *		the process there; where one was met, that is done for no thread that lives any more
 * flags	GLAKE_ALLOC_...; or-ed in, an alignment in bytes: a power of two above GLAKE_GRAIN (smaller
 *		numbers are other flags), up to GLAKE_ALIGN_MAX. An aligned block comes from no quick bin,
 *		has nothing of guard.mode behind it, and is none of managed memory. Contiguous and elastic
 *		blocks are aligned to pool.small_page as they are
 *
 * Returns 0, or -EINVAL (size 0, unknown flag, two alignments, unknown device, NULL output, no stream of
 * that GPU), -ENOMEM, -EBUSY (CAPTURE: memory could be had only by waiting for a stream
 * that captures a graph, or is managed and for such a stream), -EOPNOTSUPP (UNSUPPORTED: the
 * GPU or its driver has no managed memory that the host may share), -EAGAIN (the GPU is suspended,
 * see tier.h, or the tag of the thread, see tag.h), -ESTALE (closed context, or tag), -ENODEV (device lost: DEVICE_LOST; in a forked child: FORKED), -EIO (driver
 * fault; nothing is lost). A refused request changes nothing. What -ENOMEM is for, the
 * class of glake_last_error tells:
 *
 * NOMEM_DEVICE	no room on any rung; the text names what was needed, what is there and the
 *		largest hole
 * ADDRESS	the addresses of map.span, or as many of them as the system granted, are in
 *		use, or it grants next to none
 * LIMIT	as many extents are in use as map.extents allows, as many pages as pool.pages
 *		does, or 65536 slots by small blocks, or 4096 streams of the GPU are known; on the
 *		software device also: the process has as many maps as vm.max_map_count allows,
 *		less a sixteenth, 1024 at least, that is left to the program
 * NOMEM_HOST	no host memory for tables; with tier.place=host, neither room on the GPU nor on
 *		the host
 *
 * Thread: any. Blocks: not where a quick bin serves it, which is for blocks of up to
 * policy.bins, nor where a larger one that was freed on the stream waits whole, as the last
 * eight do that have nothing free beside them, with a target of 1.05 and more; else for the lock
 * of the GPU, which no other request holds while memory is made, mapped or given back; for its
 * own driver calls where memory must be had; for up to a quarter of a second for one of another
 * thread that is about to be refused; where memory is short, for requests of others that are
 * about to get or give some up, and for the GPU.
 * Driver calls: none from the quick bins; else one that asks what the stream does; for streams
 * that used blocks of others which were freed since, the same question, an event record and
 * perhaps queries; and where memory must be had, create, map, set access, unmap, release, event
 * record, query, stream wait.
 */
GLAKE_EXPORT int glake_alloc(struct glake *ctx, int device, size_t size,
	struct CUstream_st *stream, uint32_t flags, void **ret_ptr);

/*
 * Takes a block back in stream order: work queued on `stream` before this call may still use
 * it, and so may work queued before on the stream it was given to and on those of glake_use.
 * `ptr` is the address that glake_alloc gave; NULL is accepted and does nothing.
 *
 * Returns 0, or -EINVAL (not a block of this context: NOT_MINE; freed before: DOUBLE_FREE; the
 * inside of a block; a stream not seen before that is none of the block's GPU: INVAL), -ESTALE
 * (closed context), -EIO (a stream not seen before could neither be remembered nor waited for).
 * A refused free changes nothing. In a forked child 0, and nothing happens: the block is the
 * parent's.
 * Thread: any. Blocks: for calls about the same block that other threads are in; else not for a
 * block that goes to a quick bin, as those of up to policy.bins do; for others for the lock of
 * the GPU, never for the GPU. Driver calls: none for a stream seen before; on CU_STREAM_PER_THREAD an
 * event and its record after each MiB freed past the bins, and where others want what was freed there.
 */
GLAKE_EXPORT int glake_free(struct glake *ctx, void *ptr, struct CUstream_st *stream);

/*
 * Takes a block back as glake_free does, in the order of the stream that it was given to: for
 * callers who know its address alone. A block of a per-thread default stream is in the order of the
 * calling thread's.
 *
 * Returns what glake_free does. Thread: any. Blocks: as glake_free. Driver calls: as glake_free.
 */
GLAKE_EXPORT int glake_give_back(struct glake *ctx, void *ptr);

/*
 * Says that work on a further stream uses a block, so that freeing it waits for that work too.
 * To be called after that work was queued or before, but not after the free. PyTorch calls this
 * record_stream. On the stream that the block was given to it does nothing.
 *
 * Returns 0, or -EINVAL (as glake_free), -EBUSY (another thread frees the block), -ENOMEM, -ESTALE,
 * -ENODEV (device lost, or in a forked child). A refused call changes nothing.
 * Thread: any; a free of the same block at the same time waits. Blocks:
 * not for a stream that memory was asked for or freed on before; for the lock of the GPU the
 * first time, and always for a block of a pool of graphs. Driver calls: none for a stream
 * seen before.
 */
GLAKE_EXPORT int glake_use(struct glake *ctx, void *ptr, struct CUstream_st *stream);

/*
 * Takes a block back behind a list of events instead of a stream: it is reusable when all of
 * them have passed. What they stand for is taken as it is at the call, so they may be
 * recorded again or destroyed right after. They may be of any GPU. With a count of 0 all use
 * of the block must have finished.
 *
 * events	`count` of them, recorded behind the last use of the block, outside of captures
 *
 * Returns 0, or -EINVAL (as glake_free; no event), -EBUSY (CAPTURE: an event of a
 * graph that is being captured), -ENOMEM, -ESTALE, -EIO, -ENODEV (device lost). A refused free changes
 * nothing. In a forked child 0, and nothing happens.
 * Thread: any. Blocks: briefly. Driver calls: a stream wait and a question an
 * event, and a question.
 */
GLAKE_EXPORT int glake_free_after(
	struct glake *ctx, void *ptr, struct CUevent_st *const *events, size_t count);

/* Names a pool of graphs, see graph.h; both 0: none. */
struct glake_pool_id {
	uint64_t high, low;
};

/* What a block can do beside being used here, see share.h. */
#define GLAKE_CAN_EXPORT 0x01u /* glake_export */
#define GLAKE_CAN_FABRIC 0x02u /* its pages have fabric handles */
#define GLAKE_CAN_RDMA	 0x04u /* network cards may be given it */
#define GLAKE_CAN_DMABUF 0x08u /* glake_dmabuf */
#define GLAKE_CAN_CONTIGUOUS                                                             \
	0x10u /* one physical handle is behind it, and behind nothing else */

/* What is behind an address. */
struct glake_block {
	size_t sz;		    /* sizeof(struct glake_block) */
	void *base;		    /* first byte of the block */
	size_t size;		    /* as asked for */
	size_t given;		    /* as given, a multiple of GLAKE_GRAIN */
	int device;		    /* GPU number */
	uint32_t flags;		    /* GLAKE_ALLOC_..., without alignment */
	size_t page_size;	    /* of the first physical page behind it */
	size_t pages;		    /* physical pages it touches */
	struct CUstream_st *stream; /* of the allocation */
	struct glake_pool_id pool;  /* of graphs that it belongs to */
	uint32_t can;		    /* GLAKE_CAN_... */
	uint32_t
		exports; /* times it is out: glake_export, glake_dmabuf and no glake_export_end */
	uint64_t peers; /* other GPUs that may use it, a bit each */
	size_t away; /* of its bytes, those whose contents are on the host or on another GPU: see tier.h */
	size_t placed; /* its bytes that lie in memory of the host, in place: likewise */
	uint64_t advice; /* GLAKE_ADVICE_...: what was said of it, see tier.h */
	size_t managed;	 /* its bytes, if it is managed memory: see managed.h */
	uint32_t tag;	 /* that it is of, see tag.h; 0: none */
	uint32_t pins;	 /* times that it was pinned, see pin.h */
	size_t dropped;	 /* of these, those that are away without their contents */
	size_t away_peer; /* of those that are away, those that lie in memory of another GPU */
	size_t committed; /* its bytes that there is memory for, or contents: all but of an elastic block, see elastic.h */
};

/*
 * Describes the live block that holds `ptr`, which may point anywhere inside it.
 *
 * Returns 0, or -EINVAL (no live block of this context there), -ESTALE, -E2BIG, -ENODEV (in a
 * forked child).
 * Thread: any; the block must not be freed meanwhile for the answer to mean something.
 * Blocks: no. Driver calls: none.
 */
GLAKE_EXPORT int glake_query(
	struct glake *ctx, const void *ptr, struct glake_block *ret_block);

/*
 * Sets the most physical memory, in bytes, the context may hold on a GPU. A budget below what
 * is held takes effect as memory is freed and trimmed; live blocks stay. SIZE_MAX lifts it.
 * glake_conf_reload leaves it as it was set here, SIZE_MAX too; glake_conf_set sets it anew.
 *
 * glake_budget_get gives it; SIZE_MAX: none.
 *
 * Return 0, or -EINVAL (no such device, 0 bytes, NULL), -ESTALE, -ENODEV (in a forked child).
 * Thread: any. Blocks: glake_budget_set for others that set keys. Driver calls: none.
 */
GLAKE_EXPORT int glake_budget_set(struct glake *ctx, int device, size_t bytes);
GLAKE_EXPORT int glake_budget_get(struct glake *ctx, int device, size_t *ret_bytes);

/*
 * A function of the program that frees memory when it is short: caches of its own, results that it can make
 * again. It is asked by the thread of a request that has no room on the GPU, after all that the library can
 * give at once, and before cold blocks move, memory of the host is given or the request is refused; then the
 * request begins anew, whatever it answered. At most once a request, never while the stream captures a graph,
 * for requests of managed memory, or inside of a function that is told of moves (pin.h). And by a thread of the library, or one whose
 * request has just been served (share.helper=no), where a broker asks for memory that another process wants (share.h) and what lies idle
 * is less. A thread of the library has no context of CUDA current, and streams of other threads may capture meanwhile.
 *
 * No lock is held: it may free, trim, spill, suspend, and ask for memory, for which it is not asked again, but not
 * close the context (-EBUSY). Others may have what it freed. It must return, and throw nothing. Several threads may be in it at a time.
 *
 * user		as it was given
 * device	GPU number
 * want		bytes that are missing, a page at the least
 * stream	of the request, NULL for another process. What is freed on it, or on streams that it can wait for, serves
 * deadline_ns	of CLOCK_MONOTONIC, until which an answer is of use; 0: no matter when
 *
 * Returns the bytes that it freed, which is for the program alone to know.
 */
typedef size_t (*glake_shortage_fn)(void *user, int device, size_t want,
	struct CUstream_st *stream, int64_t deadline_ns);

/*
 * Sets that function, for all GPUs of a context; NULL: none, and when the call returns the one before is not running
 * any more, and is not called again. One that is replaced by another may still be running.
 *
 * Returns 0, or -EBUSY (BUSY: by that function itself, or one that is told of moves), -ESTALE, -ENODEV (in a
 * forked child).
 * Thread: any. Blocks: with NULL until the one before has returned, in all threads. Driver calls: none.
 */
GLAKE_EXPORT int glake_shortage_set(struct glake *ctx, glake_shortage_fn fn, void *user);

/*
 * Gives physical memory that no live block uses back to the driver until at most `keep`
 * bytes are held, and says how many bytes were released (NULL: not asked). Blocks in bins
 * merge. Memory whose last use on the GPU has not finished stays, and nothing waits for it;
 * but pools of graphs that were released and whose last block has been freed since end
 * here, which does wait for the GPU: see graph.h. Memory of the host that is held for the
 * GPU, or near it for the program (host.h), and that nobody uses goes too, all of it, and is not
 * counted; that waits for the GPU where blocks were used by streams of threads that have ended, or that
 * were destroyed unannounced. Nor are chunks of managed
 * memory, which go where none of their blocks is live: that waits for the GPU; nor pages of other processes on which no
 * block stands any more (glake_seal), which go whatever `keep` is.
 *
 * Returns 0, or -EINVAL (no such device), -ESTALE, -EIO (the driver refused), -ENODEV
 * (device lost, or in a forked child).
 * Thread: any. Blocks: for the driver calls; where pools of graphs or chunks of managed memory end, or
 * such blocks of the host wait, until the GPU is idle. Driver calls: unmap and release per page; for such pools and chunks a wait,
 * and unreserve or free.
 */
GLAKE_EXPORT int glake_trim(
	struct glake *ctx, int device, size_t keep, size_t *ret_released);

GLAKE_END_DECLS

#endif
