/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TIER_IO_BOUNCE_H
#define GLK_TIER_IO_BOUNCE_H

/*
 * Copies between a GPU and memory of the host that the driver does not know as pinned, through bounce
 * buffers: pinned memory near the GPU, which threads of the library fill and empty (crew.h). The driver
 * has such buffers of its own, which the calling thread fills.
 *
 * The buffers of a GPU are some slots for each way, made at the first such copy and kept until the context
 * is closed. The threads fill a slot while the copy engine takes others; a slot is filled again
 * when the event behind its last copy has passed. The calling thread waits for events and queues copies,
 * on the program's stream, so that all is done when it returns but for the copies to a GPU, which have
 * only the buffers left to read.
 *
 * One copy at a time has the slots of a GPU and a way. Another one that comes meanwhile does not wait for
 * it, since what that one waits for may be up to this thread: it is made by the driver alone.
 *
 * Threads	any; the flag `busy` is taken by a compare and swap, and guards the ring
 */
#include "tier/io/crew.h"

#include "base/atomic.h"

#include <stdbool.h>
#include <stdint.h>

struct CUstream_st;
struct glk_conf;
struct glk_drv;
struct glk_drv_event;
struct glk_io;
struct glk_pool;
struct glake_copy_range;

#define GLK_BOUNCE_SLOTS 4
#define GLK_BOUNCE_SLOT	 ((uint64_t)4 << 20)
#define GLK_BOUNCE_SIZE	 (GLK_BOUNCE_SLOTS * GLK_BOUNCE_SLOT)
/* A smaller range is the driver's: its buffers hold as much at once. */
#define GLK_BOUNCE_LEAST ((uint64_t)1 << 20)

struct glk_bounce_slot {
	struct glk_crew_task task;
	struct glk_drv_event *event; /* behind its last copy */
	bool pending;		     /* which may not have passed */
};

/* Of one GPU for one way. */
struct glk_bounce_ring {
	glk_atomic(bool) busy;
	/* Of whoever has set that. */
	bool off; /* no more: what was queued of it cannot be waited for */
	char *base;
	struct glk_bounce_slot slot[GLK_BOUNCE_SLOTS];
	glk_atomic(uint64_t) bytes; /* that went through it */
};

struct glk_bounce {
	struct glk_drv *drv; /* NULL: there are no threads */
	struct glk_pool *pool;
	int gpus;
	struct glk_bounce_ring (*ring)[2]; /* of each GPU and way of io.h */
	struct glk_crew crew;
};

/* 0 or -ENOMEM. Without io.threads it is nothing, and the driver makes all copies. */
int glk_bounce_init(struct glk_bounce *bounce, struct glk_drv *drv, struct glk_pool *pool,
	const struct glk_conf *conf, int gpus);
/* Waits for what is under way. Takes a zeroed one. */
void glk_bounce_fini(struct glk_bounce *bounce);
/*
 * Copies a range over one link: through these buffers where it is for them, else by one call of the driver.
 * 0 or the driver's error; *ret_done: bytes from its beginning that were queued, or made.
 */
int glk_bounce_copy(struct glk_io *io, const struct glake_copy_range *range,
	struct CUstream_st *stream, uint64_t *ret_done);

#endif
