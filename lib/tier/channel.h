/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TIER_CHANNEL_H
#define GLK_TIER_CHANNEL_H

/*
 * A way that contents go, to the host or to the GPU: a stream of the library, and a second one beside it.
 *
 * A copy engine takes what one stream has ready until there is nothing left of it, so a program that reads
 * eight bytes on a stream of its own waited for all that was queued here: 77 ms for 4 GiB (H200, driver
 * 580.159.04). Between two streams that wait for each other it looks around. So each copy that would make it
 * more than GLK_CHANNEL_TURN in a row takes a turn on the side, behind the main stream and before what comes next
 * there: the program's copy waits for 0.6 ms at most, and 4 GiB take 0.4 % longer. Of three streams one may share
 * its way to the engine with the program's; with two that was never seen.
 *
 * To everybody else a channel is its main stream, in whose order all of it is. Where links of other GPUs carry contents
 * too there is a third one, the gate, on which nothing but waits is queued: what a content has to come after. Its
 * pieces on those links are behind that, and not behind the contents before it, which the main stream is.
 */
#include "stream/stream.h"

#define GLK_CHANNEL_TURN ((uint64_t)32 << 20)

struct glk_channel {
	struct CUstream_st *main, *side;
	struct glk_drv_event *turn[2]; /* there and back; recorded again and again */
	struct CUstream_st *gate;      /* NULL: there is none */
	struct glk_drv_event *passed;  /* behind what was last queued there */
	uint32_t gate_id;	       /* among the streams */
	bool gated; /* and the main stream is not behind that yet; under the lock */
	glk_atomic(uint64_t) in_a_row; /* bytes on the main stream since the last turn */
};

/* Makes the streams; *ret_id is the main one, among the streams. Without the lock. 0 or the driver's error, with
 * what there is for glk_channel_fini(). */
int glk_channel_init(
	struct glk_channel *channel, struct glk_streams *streams, uint32_t *ret_id);
/* With a gate from now on. Likewise. */
int glk_channel_open_gate(struct glk_channel *channel, struct glk_streams *streams);
/* Under the lock: the main stream goes on behind what was queued at the gate. 0 or the driver's error. */
int glk_channel_pass(struct glk_channel *channel, struct glk_streams *streams);
/* The GPU is idle. Takes a zeroed one. 0 or the driver's error. */
int glk_channel_fini(struct glk_channel *channel, struct glk_streams *streams);
/* Copies, in the order of the main stream. Threads: any at a time, with the lock or without. 0, or the driver's
 * error with a part of it queued there, or under way where the GPU cannot be waited for. */
int glk_channel_copy(struct glk_channel *channel, struct glk_drv *drv, int device,
	uint64_t dst, uint64_t src, uint64_t bytes);

#endif
