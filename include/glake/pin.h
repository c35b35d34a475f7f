/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLAKE_PIN_H
#define GLAKE_PIN_H

#include <stddef.h>
#include <stdint.h>

#include <glake/export.h>

GLAKE_BEGIN_DECLS

struct glake;

/*
 * Memory that others know by more than its address: NCCL and UCX register buffers, network cards map
 * them, graphs of the driver name them. A block that moves keeps its address and gets other memory,
 * which they do not see. So either such a block is pinned for as long, and stays, or who registered it
 * is told before it moves and after.
 *
 * A pin is stronger than any advice: glake_advise says what one part of a program wants of a block
 * (GLAKE_ADVICE_PINNED until the next advice), a pin that others depend on it; they are counted, so
 * that many may pin the same block.
 */

/*
 * Pins a block once more. While it is pinned it is not moved: glake_spill is answered -EBUSY, so is
 * glake_fetch of a block that lies in memory of the host, and glake_quiet, glake_suspend,
 * glake_tag_suspend and requests that find no room leave it where it is. It may be freed: its pins end
 * with it, and say nothing about the next block there. Who registered it should end that before.
 *
 * ptr	anywhere inside the block
 *
 * Returns 0, or -EINVAL (no live block there), -EBUSY (BUSY: it is away; it is managed memory, which the
 * driver moves), -ENOMEM (LIMIT: it is pinned 2^32 - 1 times; NOMEM_HOST), -ESTALE, -ENODEV (in a
 * forked child). A refused call changes nothing.
 * Thread: any. Blocks: for the lock of the GPU, and while the block is being moved. Driver calls: none.
 */
GLAKE_EXPORT int glake_pin(struct glake *ctx, void *ptr);

/*
 * Pins it once less. Returns 0, or -EINVAL (no live block there; INVAL: it is not pinned), -ESTALE,
 * -ENODEV (in a forked child).
 * Thread: any. Blocks: as glake_pin. Driver calls: none.
 */
GLAKE_EXPORT int glake_unpin(struct glake *ctx, void *ptr);

/* How a block moves. */
enum glake_move_way {
	/* Away: by glake_spill, a suspension, or since others needed the room. Afterwards there is no
	 * memory behind its addresses, or that of others. */
	GLAKE_MOVE_AWAY = 0,
	/* Back from there, to other memory than before. The contents are on their way: work on the stream
	 * of glake_fetch comes behind them, and the end of a suspension waits for them. */
	GLAKE_MOVE_BACK = 1,
	/* From memory of the host in place to the GPU, by glake_fetch, glake_quiet or glake_resume. */
	GLAKE_MOVE_IN = 2,
	/* The reverse, by glake_suspend_in_place. */
	GLAKE_MOVE_OUT = 3,
};

/* A move, before it and after. */
struct glake_move {
	size_t sz; /* of the structure, set by the library */
	int device;
	int way;      /* enum glake_move_way */
	int is_over;  /* 0: before it */
	int err;      /* afterwards: 0, or why the block is where it was */
	void *ptr;    /* as glake_alloc gave it */
	size_t size;  /* bytes asked for */
	uint32_t tag; /* see tag.h; 0: none */
};

/*
 * Is told of moves. What it returns counts before a move: 0, or anything else to have the block stay
 * where it is, as if it were pinned at that moment; then those that were told before are told that it
 * did. A block that comes back (GLAKE_MOVE_BACK) cannot be kept away.
 *
 * Rules: it is called by the thread that moves the block, which may be any that asks for memory, with no
 * lock of the library held, and may be called by several at once, for different blocks. It must not wait
 * for a thread that is inside the library. Calls about any context that it makes all the same are
 * answered -EBUSY, but frees of other blocks; glake_last_error works. It runs with cancellation put off, and must return.
 */
typedef int (*glake_move_fn)(const struct glake_move *move, void *arg);

/* Functions of a context that may be told. */
#define GLAKE_MOVE_WATCHES_MAX 16

/*
 * Has a function told of all moves of blocks of a context, on all GPUs, from then on.
 *
 * ret_watch	its number, for glake_move_unwatch
 *
 * Returns 0, or -EINVAL (NULL), -ENOMEM (LIMIT: GLAKE_MOVE_WATCHES_MAX are), -EBUSY (BUSY: called by such a
 * function), -ESTALE, -ENODEV (in a forked child).
 * Thread: any. Blocks: for the lock of each GPU. Driver calls: none.
 */
GLAKE_EXPORT int glake_move_watch(
	struct glake *ctx, glake_move_fn fn, void *arg, uint32_t *ret_watch);

/*
 * Ends that. When it returns the function is not running, and will not be called.
 *
 * Returns 0, or -EINVAL (no such number), -EBUSY (BUSY: called by such a function), -ESTALE, -ENODEV (in a
 * forked child).
 * Thread: any. Blocks: until the function has returned everywhere. Driver calls: none.
 */
GLAKE_EXPORT int glake_move_unwatch(struct glake *ctx, uint32_t watch);

GLAKE_END_DECLS

#endif
