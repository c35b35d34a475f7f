/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLAKE_COPY_H
#define GLAKE_COPY_H

#include <stddef.h>
#include <stdint.h>

#include <glake/export.h>

GLAKE_BEGIN_DECLS

struct glake;
struct glake_copy_job;
struct CUstream_st;

/*
 * Copies between any two of: memory of the host, locked (registered with CUDA) or not; memory of
 * a GPU, of this library or not; memory of another GPU. A copy is work of its stream, as that of
 * cuMemcpyAsync is: it begins when all work queued there before has finished, and what is queued
 * there afterwards begins when it has. What holds for other work holds for it: a block that
 * is freed on another stream while it is copied wants glake_use, memory of the host has to stay
 * until the stream has passed the copy, and so does the other GPU's memory.
 *
 * A large copy (io.least) between locked memory of the host and a GPU goes over several links at
 * once, where other GPUs lend theirs (io.lend) and a stream of the GPU, or one of its default
 * streams, was given: some of its pieces over the link of the GPU, others over that of a
 * lent one, through memory of the library there (io.staging), and from GPU to GPU. All of them
 * are queued when the call returns. Nothing is taken from a GPU that is not lent; what is taken
 * stays with the library until the context is closed, also when the GPU is trimmed or suspended. Where a path is
 * refused by the driver its pieces go another way, a warning says so once, and the GPU lends nothing
 * any more. Processes of one user agree on whose copies go over which link (io.agree): a link is borrowed whole
 * where no other process uses its GPU, half where one does that lends it to others (io.lend_to), and else not;
 * no part of it by two at a time. It is given back by the first of these calls after the copies have
 * ended: a copy, a question or wait for a job or a ticket, a suspension, a resumption, a trim, and the end of
 * the context. All other copies, and lists of small ranges (io.piece), go over one link: they are one call of
 * the driver for each range, and no more, but for what follows.
 *
 * Memory of the host that is not locked can be copied by several threads of the library (io.threads), on a
 * stream of the GPU that captures no graph: each range of 1 MiB and more between such memory and a GPU then goes
 * through locked buffers near the GPU, which the threads fill or empty while others of them are on the
 * link. With these threads
 * - a call that copies to a GPU returns when all of its source has been read, which may be changed
 *   or freed at once; the copy is work of the stream as any other;
 * - a call that copies to the host returns when its target is complete, and so waits for all that was
 *   queued on the stream before;
 * - the call also waits where more than 16 MiB go to a GPU whose stream does not go on.
 * A copy that finds the buffers of its GPU and way in use by another thread does not wait for that: it is
 * made by the driver, as smaller ones are, which may return earlier. So who cannot tell which of the two a copy
 * will be leaves the memory alone until the stream has passed it. Addresses are read and written by
 * these threads as by memcpy: memory that is unmapped meanwhile faults, and the signal goes to the
 * handler that the program has for it, or ends it.
 *
 * On a stream that captures a graph the copy is captured, over one link.
 *
 * Each GPU has default streams of its own. A copy on one is on that of the GPU whose memory dst is, or
 * is managed for, whoever else may use it; else of the one of src; else, between memory of the
 * host, of one that reaches both.
 */

/* Copy over one link, whatever the size. */
#define GLAKE_COPY_DIRECT 0x1u

struct glake_copy_range {
	void *dst;
	const void *src;
	size_t bytes; /* 0: nothing is copied */
};

/* Most ranges of a list. */
#define GLAKE_COPY_RANGES_MAX 65536
/* Most jobs of a process at a time. */
#define GLAKE_COPY_JOBS_MAX 65536

/*
 * Queues a copy of `bytes` bytes. Addresses and sizes may be odd.
 *
 * dst, src	may not overlap
 * bytes	0: nothing is copied; a job is given all the same
 * stream	the one it is work of
 * flags	GLAKE_COPY_DIRECT or 0
 * ret_job	gives a job, by which the end of the copy is asked for, to be ended with
 *		glake_copy_close; NULL: none is wanted
 *
 * Returns 0, or -EINVAL (INVAL: they overlap, or wrap around; unknown flags; the driver does not
 * know the memory), -EBUSY (CAPTURE: a job is wanted of a copy that is
 * captured; on the software device also where io.threads would wait for ever), -ENOMEM (LIMIT: too many jobs), -EIO, -ESTALE, -ENODEV (device lost, or in a
 * forked child). After an error of the driver dst is undefined. With a job, a copy of which a
 * part could not be queued is answered 0, and the job tells which.
 * Thread: any. Blocks: not for the copy, but as the driver does: for memory of the host that is not
 * locked, as said above with io.threads, and while as much is queued on a stream as it holds; where the
 * driver refuses a path and then to order streams, until that path is idle. Driver calls: a copy for each range; over
 * several links, questions about the memory and the stream, and two copies, two waits and two
 * event records for each piece; the first time, streams and events, a page of each lent GPU,
 * its addresses, a map and set access, and copies by which links are measured, which takes some
 * milliseconds. Where processes agree, a few locks of a file for each link. With io.threads, for ranges from
 * 1 MiB on, questions about the memory and the stream, a copy, an event record and a wait for each 4 MiB, and
 * once for each GPU and way events and memory that is locked. With a job, an event and its record; on a
 * default stream questions about memory too.
 */
GLAKE_EXPORT int glake_copy(struct glake *ctx, void *dst, const void *src, size_t bytes,
	struct CUstream_st *stream, uint32_t flags, struct glake_copy_job **ret_job);

/*
 * The same for many ranges at once, which are copied in no order.
 *
 * ranges	`count` of them, up to GLAKE_COPY_RANGES_MAX; the target of one may overlap with no
 *		other target and no source. Read during the call alone
 *
 * Returns as glake_copy, or -E2BIG (LIMIT: too many ranges), -ENOMEM (NOMEM_HOST), -EINVAL (INVAL:
 * a default stream was given, and some ranges are on that of one GPU and others on that of
 * another; nothing was queued).
 * Thread: any. Blocks: as glake_copy. Driver calls: as glake_copy; on a default stream questions
 * about the memory of each range too.
 */
GLAKE_EXPORT int glake_copy_list(struct glake *ctx, const struct glake_copy_range *ranges,
	size_t count, struct CUstream_st *stream, uint32_t flags,
	struct glake_copy_job **ret_job);

/* How far a copy is. */
enum glake_copy_stage {
	GLAKE_COPY_QUEUED = 0, /* it may be under way */
	GLAKE_COPY_DONE,
	GLAKE_COPY_FAILED, /* some of it was not copied; what was queued has finished */
};

struct glake_copy_state {
	size_t sz;	       /* sizeof(struct glake_copy_state) */
	int stage;	       /* enum glake_copy_stage */
	int error;	       /* -errno of what failed, or 0 */
	uint64_t bytes;	       /* of all ranges */
	uint64_t relayed;      /* of these, queued over links of other GPUs */
	uint64_t failed;       /* of these, not copied */
	uint32_t paths;	       /* over which it goes */
	uint32_t failed_parts; /* see glake_copy_failed */
	uint64_t copied;       /* bytes that were, known when it has finished; 0 before */
	uint32_t fed, stalled; /* always 0 */
};

/* Bytes of a copy, counted through its ranges in their order. */
struct glake_copy_part {
	uint64_t offset, bytes;
};

/*
 * Asks how far a copy is. Once all that was queued has finished, and some of it failed, it says so.
 *
 * job	of glake_copy
 *
 * Returns 0, or -EINVAL, -E2BIG (ret_state), -ESTALE (STALE: no such job, or its context was
 * closed, which the record says), -EIO, -ENODEV.
 * Thread: any. Blocks: briefly. Driver calls: a question, until the copy has finished.
 */
GLAKE_EXPORT int glake_copy_get(
	struct glake_copy_job *job, struct glake_copy_state *ret_state);

/*
 * Which bytes of a copy were not made: what holds of them is known when the call that queued it
 * has returned.
 *
 * index	0 to failed_parts - 1
 *
 * Returns 0, or -ENOENT (no such part), -EINVAL, -ESTALE (as glake_copy_get).
 * Thread: any. Blocks: briefly. Driver calls: none.
 */
GLAKE_EXPORT int glake_copy_failed(
	struct glake_copy_job *job, uint32_t index, struct glake_copy_part *ret_part);

/*
 * Waits until a copy has finished.
 *
 * timeout_ns	how long at most; 0: not at all; below 0: as long as it takes
 *
 * Returns 0, or -ETIMEDOUT (AGAIN: it has not), -EINVAL, -ENOMEM, -EBUSY (the error of a copy of which
 * some failed; what could be queued has finished then), -ESTALE (as glake_copy_get), -EIO (likewise, or the
 * driver's), -ENODEV. On the software device -EBUSY also where it would wait for ever.
 * Thread: any. Blocks: so long. Driver calls: a wait, or questions.
 */
GLAKE_EXPORT int glake_copy_wait(struct glake_copy_job *job, int64_t timeout_ns);

/*
 * Cancels what of a copy is not queued yet. That is nothing, for any copy: all of it is queued when glake_copy
 * or glake_copy_list has returned. The copy goes on.
 *
 * Returns 0, or -EBUSY (BUSY: nothing is left that could be cancelled: always the case at present), -ESTALE (as
 * glake_copy_get), -ENODEV.
 * Thread: any. Blocks: briefly. Driver calls: none.
 */
GLAKE_EXPORT int glake_copy_cancel(struct glake_copy_job *job);

/*
 * Ends a job. The copy goes on. NULL does nothing. A job whose context was closed has to be
 * ended too, and can be.
 *
 * Returns 0, or -EBUSY (BUSY: a thread waits for it), -ESTALE (no such job), -EIO, -ENODEV.
 * Thread: any. Blocks: briefly. Driver calls: the end of an event.
 */
GLAKE_EXPORT int glake_copy_close(struct glake_copy_job *job);

GLAKE_END_DECLS

#endif
