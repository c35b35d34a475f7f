/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TIER_TOUCH_H
#define GLK_TIER_TOUCH_H

/*
 * Fresh memory of the host is touched by several threads at once, in the order in which somebody
 * wants it. The threads are there for one batch; where none can be had the one who waits touches all.
 * The slices of a piece are handed out in rising order, the last of a piece may be shorter.
 */
#include "base/lock.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GLK_TOUCH_SLICE	  ((size_t)4 << 20) /* that a thread touches at a time */
#define GLK_TOUCH_PIECES  16		    /* at a time */
#define GLK_TOUCH_THREADS 15		    /* most, beside the one who waits */

struct glk_touch {
	char *const *base;
	size_t size;	 /* of each */
	uint32_t each;	 /* slices of a piece */
	uint32_t slices; /* of all */
	pthread_t thread[GLK_TOUCH_THREADS];
	unsigned threads;
	struct glk_lock lock;
	pthread_cond_t touched;
	uint32_t next;			 /* slice that nobody has begun */
	uint32_t left[GLK_TOUCH_PIECES]; /* slices that are not touched yet */
	bool refused[GLK_TOUCH_PIECES];	 /* the system had no memory for one */
};

/* Begins with `count` pieces of one size, in whole OS pages, and up to `threads` beside the caller's. They
 * stay where they are until the end. */
void glk_touch_begin(struct glk_touch *touch, char *const *base, uint32_t count,
	size_t size, unsigned threads);
/* Returns when a piece is touched: 0 or -ENOMEM (class NOMEM_HOST). In rising order. */
int glk_touch_wait(struct glk_touch *touch, uint32_t piece);
/* Ends it, also before all are touched. */
void glk_touch_end(struct glk_touch *touch);

#endif
