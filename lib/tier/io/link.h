/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TIER_IO_LINK_H
#define GLK_TIER_IO_LINK_H

/* What links there are, what they carry, what is on its way over them, and what of them is borrowed. Under the lock
 * of io.h. */
#include "numa/topology.h"
#include "tier/io/io.h"

/* Finds out what there is to know, the first time. */
void glk_link_learn(struct glk_io *io);
/* Which of some GPUs, by their bus ids, share a port of the host: the index of the first of them, -1 for
 * one that shares none. */
void glk_link_groups(const struct glk_sysroot *root, const char (*ids)[GLK_PCI_MAX],
	int count, int *ret_groups);
/* What the links of a GPU that lends its own carry, once it has staging memory, and what
 * comes from there to a target, which takes 2 MiB of that for a moment, so that it waits for one that is
 * not suspended. The GPUs should be idle; where they are not, it takes the best of a few.
 * False: something that was queued for it may be under way still. */
bool glk_link_measure(struct glk_io *io, int relay, int target);
void glk_link_probe_end(struct glk_io *io);
/* Says that this process uses a GPU; borrows the link of a relay for one way, as far as other processes leave it. False:
 * not at all. */
void glk_link_use(struct glk_io *io, int gpu);
bool glk_link_borrow(struct glk_io *io, int relay, int turn);
/* It is given back, if it was borrowed, unless a copy is on its way over it or counts on it. */
void glk_link_rest(struct glk_io *io, int relay, int turn);
/* What has passed is booked no longer. `now`: ns. */
void glk_link_settle(struct glk_io *io, double now);
/* 0: all that copies have in a ring has passed, to whichever GPU; -EAGAIN: not yet; or the driver's error. */
int glk_link_pass(struct glk_io *io, struct glk_io_ring *ring);
/* Whether nothing that was queued here is on its way over the link of a GPU. */
bool glk_link_idle(struct glk_io *io, struct glk_io_gpu *g, int turn);
/* The paths of one copy to a GPU, or from it: of its own link, and with that of another, through a buffer that all
 * copies share. */
void glk_link_direct(
	struct glk_io *io, int target, int turn, struct glk_plan_path *ret_path);
void glk_link_relay(struct glk_io *io, int relay, int target, int turn,
	struct glk_plan_path *ret_path);

#endif
