/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TIER_IO_AGREE_H
#define GLK_TIER_IO_AGREE_H

/*
 * Processes of one user agree on whose copies go over which link. Without that, eight processes that
 * each lend themselves all links of the host would each plan with all of them.
 *
 * What is agreed on is kept by the kernel, as locks on ranges of one file, `links` in the user's directory
 * of sockets (wire/room.c): the file has no content, nor is any looked at. Each context has a
 * description of its own of it (F_OFD_SETLK), and two contexts of one process are to each other
 * as two processes. The locks of one that dies, or is killed, are gone with its descriptors, and nobody
 * waits for a lock, so one that is stopped holds up nobody. A GPU has 256 bytes, at a place that its
 * UUID says:
 *
 *	0		read locks of those that use the GPU, and lend its link to no other process
 *	1		read locks of those that use it and lend it
 *	16, 32		four shares of its link to the host, one way and the other: a write lock each of who
 *			borrows it
 *
 * Who wants to go over the link of a GPU borrows shares of it first: none while another one uses the GPU
 * and does not lend it, the first two at the most while another one does and lends, else all four. He
 * plans with so many quarters of what the link carries. So two never have the same share, and what is
 * borrowed of a link that its user needs is half of it.
 *
 * Where there is no such file, or it is another's, open to others or no plain file, nothing is agreed on:
 * all four shares of each link are there for each context, as if there were no other.
 *
 * Threads	the caller's lock
 * Cost		a borrow and its return: seven system calls, 2 us; one that is looked at again: two, 0.6 us
 */
#include "wire/wire.h"

#include <stdbool.h>
#include <stdint.h>

#define GLK_AGREE_GPUS	 64
#define GLK_AGREE_SHARES 4
#define GLK_AGREE_WAYS	 2

enum glk_agree_when { /* in the order of io.agree */
	GLK_AGREE_AUTO,
	GLK_AGREE_ALWAYS,
	GLK_AGREE_NEVER,
};

struct glk_agree {
	bool on;   /* it is wanted */
	bool tell; /* a warning where it cannot be had */
	uint64_t
		lent; /* GPUs that are lent to other processes while they are used here */
	int fd;	      /* -1: not opened yet, or not to be had */
	struct glk_wire_mark mark;
	struct {
		uint64_t base; /* of its bytes */
		bool used;
		uint8_t shares[GLK_AGREE_WAYS]; /* that are borrowed, a bit each */
	} gpu[GLK_AGREE_GPUS];
};

/* Nothing is opened. */
void glk_agree_init(struct glk_agree *agree, bool on, bool tell, uint64_t lent);
/* All that is borrowed is given back; in a forked child the locks stay the parent's, and go when it ends. Takes a
 * zeroed one. */
void glk_agree_fini(struct glk_agree *agree);
/* A GPU is used by this process from here on, until the end. */
void glk_agree_use(struct glk_agree *agree, int gpu, const char *uuid);
/* Shares of the link of a GPU, which stay borrowed until they are given back, and are looked at again by each
 * borrow: their number, 0 to 4. */
unsigned glk_agree_borrow(struct glk_agree *agree, int gpu, int way, const char *uuid);
void glk_agree_give(struct glk_agree *agree, int gpu, int way);

#endif
