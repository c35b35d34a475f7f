/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLAKE_TAG_H
#define GLAKE_TAG_H

#include <stddef.h>
#include <stdint.h>

#include <glake/export.h>
#include <glake/tier.h>

GLAKE_BEGIN_DECLS

struct glake;

/*
 * Blocks that belong together. A tag has a name, as "weights" or "kv_cache"; what a thread asks for
 * while the tag is its own lies among addresses of the tag, small blocks too, and can leave the GPUs
 * as a whole and come back to the same addresses, while everything else goes on.
 *
 * The tag of a thread concerns requests alone: blocks are freed, used, queried and moved like others,
 * by any thread, whatever its tag. They go to no bin, so each request takes the lock of the GPU. Requests of a stream that
 * captures a graph go to the pool of the graph, and managed memory has no tag.
 *
 * With tier.place=host, or peer, a block of a tag that the GPU has no room for lies in memory of the host in
 * place, as others do (glake/tier.h), at an address of its tag. There it stays while its tag is suspended and
 * afterwards, until glake_fetch or glake_quiet brings it to the GPU, neither of which does while the tag is
 * suspended; from then on it goes with the tag.
 *
 * While a tag is suspended on a GPU, requests of threads that have it are answered -EAGAIN there, and
 * so is glake_fetch for its blocks. They may be freed, and must not be used. glake_query says of a
 * block that it is away, and of which tag it is.
 */

/* Tags that a context may have open. */
#define GLAKE_TAGS_MAX 64

/* Bytes of a name, with the zero at its end. */
#define GLAKE_TAG_NAME_MAX 64

/*
 * Opens the tag of a name: the one that is open already, or a new one. Each is counted, and closed as
 * often.
 *
 * name		not empty, and shorter than GLAKE_TAG_NAME_MAX. Copied
 * ret_tag	its number, never 0; of no other tag of the context, also when it was closed
 *
 * Returns 0, or -EINVAL (name, NULL), -ENOMEM (LIMIT: GLAKE_TAGS_MAX are open; NOMEM_HOST),
 * -ESTALE, -ENODEV (in a forked child).
 * Thread: any. Blocks: briefly. Driver calls: none.
 */
GLAKE_EXPORT int glake_tag_open(struct glake *ctx, const char *name, uint32_t *ret_tag);

/*
 * Closes a tag, the last time for all. What lies idle at its addresses serves others, and the next
 * tag may be given those addresses. No other thread may ask for memory with it meanwhile.
 *
 * Returns 0, or -EBUSY (BUSY: a block of it has not been freed, or it is suspended on a GPU), -ESTALE
 * (no open tag, or context), -ENODEV (in a forked child). A refused call changes nothing.
 * Thread: any. Blocks: for the lock of each GPU. Driver calls: none.
 */
GLAKE_EXPORT int glake_tag_close(struct glake *ctx, uint32_t tag);

/*
 * Sets the tag of the calling thread: its requests by glake_alloc are of that from then on, until it
 * is set again or the thread ends. A thread has one tag at a time, in one context: setting one in
 * another context ends that.
 *
 * tag		of glake_tag_open; 0: none
 * ret_was	the one it had in this context, to be set again; NULL if nobody wants to know
 *
 * Returns 0, or -ENOMEM (no host memory for the thread), -ESTALE (no open tag, or context), -ENODEV
 * (in a forked child).
 * Thread: the calling one. Blocks: briefly. Driver calls: none.
 */
GLAKE_EXPORT int glake_tag_set(struct glake *ctx, uint32_t tag, uint32_t *ret_was);

/* A tag on a GPU. */
struct glake_tag {
	size_t sz; /* sizeof(struct glake_tag) */
	char name[GLAKE_TAG_NAME_MAX];
	uint64_t live;	 /* bytes asked for by blocks that were not freed */
	uint64_t blocks; /* those */
	uint64_t held;	 /* bytes of pages of the GPU at its addresses */
	uint64_t away;	 /* blocks that are away since it was suspended */
	int suspended;	 /* not 0: it is */
	uint64_t limit;	 /* most bytes of `live`; 0: none is set */
};

/*
 * Describes a tag on a GPU.
 *
 * Returns 0, or -EINVAL (device, NULL), -E2BIG, -ESTALE (no open tag, or context), -ENODEV (in a
 * forked child).
 * Thread: any. Blocks: for the lock of the GPU. Driver calls: none.
 */
GLAKE_EXPORT int glake_tag_get(
	struct glake *ctx, int device, uint32_t tag, struct glake_tag *ret_tag);

/*
 * Bounds the bytes that blocks of a tag on a GPU may ask for together, those that are away too. A request that
 * would pass it is answered -ENOMEM (LIMIT), whatever memory is free. One below what is live holds from the next
 * request on; live blocks stay. Who opens the tag anew when it was closed finds none.
 *
 * bytes	0: no limit
 *
 * Returns 0, or -EINVAL (device), -ESTALE (no open tag, or context), -ENODEV (in a forked child).
 * Thread: any. Blocks: for the lock of the GPU. Driver calls: none.
 */
GLAKE_EXPORT int glake_tag_limit_set(
	struct glake *ctx, int device, uint32_t tag, uint64_t bytes);

/*
 * What is looked for and what is cleared in blocks of a tag on a GPU that are asked for from then on, beside what guard.mode and
 * security.level say of all others. Who opens the tag anew when it was closed has neither.
 *
 * mode		"off", as at first; "canary" or "poison", of which the first bytes behind a block are looked at when it is freed, and by
 *		glake_check(3), and with the second it comes filled; NULL: as it was
 * level	0 to 3, as security.level; -1: as it was. After 3 all that goes from that GPU to the host is encrypted, of
 *		whatever tag
 *
 * Returns 0, or -EINVAL (device, mode, level; 3 where tier.place has blocks on the host), -EOPNOTSUPP (3 without libsodium), -ENOMEM (no
 * memory of the host, or none that may be locked), -ESTALE (no open tag, or context), -ENODEV (in a forked
 * child). Thread: any. Blocks: briefly. Driver calls: none.
 */
GLAKE_EXPORT int glake_tag_guard_set(
	struct glake *ctx, int device, uint32_t tag, const char *mode, int level);

/* Contents are dropped: what the blocks read after the resumption is undefined. */
#define GLAKE_TAG_DROP 0x1u

/*
 * Sends all blocks of a tag away from a GPU and gives their memory back to the driver; the addresses
 * stay. A block that was said to be discardable is dropped, with GLAKE_TAG_DROP all are. Blocks that
 * glake_spill sent away stay as they are, also behind the resumption. What may not move (a block that
 * is out, or pinned) stays with the pages it lies in; a small one keeps its slot of 2 MiB with all that
 * lies in it. What lies on the host in place, be it in part, stays where it is, with what is in it even with
 * GLAKE_TAG_DROP, and counts as stayed with all bytes of the block.
 *
 * The program's work on these blocks should have been queued before the call.
 *
 * flags	GLAKE_TAG_DROP or 0
 * ret_done	what this call did, also one that fails half way; NULL if nobody wants to know
 *
 * Returns 0, also for one that is suspended already, of which a block that could not go before goes
 * now; or -EAGAIN (the GPU is suspended), -EBUSY (CAPTURE: a stream captures a graph), -ENOMEM (as
 * glake_spill), -EIO, -EINVAL (device, flags), -E2BIG (ret_done), -ESTALE (no open tag, or context),
 * -ENODEV. After -ENOMEM and -EIO the tag is suspended, with some blocks still here: a second call
 * goes on, glake_tag_resume takes all back. It is not, as glake_tag_get says, where what moves contents
 * could not be made or the GPU could not be waited for, and then all is as it was.
 * Thread: any. Blocks: until the GPU has finished its work, and the copies. Driver calls: those of
 * glake_spill for each block, one copy for all small ones of a slot, and unmap and release per page.
 */
GLAKE_EXPORT int glake_tag_suspend(struct glake *ctx, int device, uint32_t tag,
	uint32_t flags, struct glake_suspended *ret_done);

/*
 * Has the blocks of a tag back on a GPU, at their addresses, and ends its suspension there. Cold blocks go for
 * them, as for a request, and so do those that glake_prefetch has had back meanwhile and nobody has fetched.
 *
 * ret_done	as above; dropped blocks count as moved, those that lie on the host in place as stayed
 *
 * Returns 0 when all are back, or -ENOMEM (others have taken the memory), -EIO, -EBUSY (CAPTURE, as
 * glake_resume; BUSY: another call holds a block), -EAGAIN (the GPU is suspended), -EINVAL (device; the
 * tag is not suspended there), -E2BIG, -ESTALE (no open tag, or context), -ENODEV. After -ENOMEM, -EIO
 * and -EBUSY the tag is suspended still and some blocks are back: to be called again.
 * Thread: any. Blocks: until the copies have finished. Driver calls: those of glake_fetch for each
 * block.
 */
GLAKE_EXPORT int glake_tag_resume(
	struct glake *ctx, int device, uint32_t tag, struct glake_suspended *ret_done);

GLAKE_END_DECLS

#endif
