/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TIER_IO_CREW_H
#define GLK_TIER_IO_CREW_H

/*
 * Threads of the library that copy memory of the host, since one alone does not fill the link of a GPU, or touch
 * fresh memory.
 *
 * A task is cut into slices, which are taken in rising order by whichever thread is free, those of an
 * earlier task first. Whoever waits for a task copies slices of it too, so that a crew without threads
 * does the same work. The threads are there from the first task to the end, which leaves undone what nobody has begun.
 *
 * Faults	SIGSEGV and SIGBUS reach the handlers of the program in these threads as they would in its
 *		own, so that memory may be copied which it protects and opens again when it is touched
 * Threads	any; one lock, which is not held while memory is copied
 */
#include "base/lock.h"

#include <stddef.h>

#define GLK_CREW_MOST  64
#define GLK_CREW_SLICE ((size_t)256 << 10) /* that a thread copies at a time */
#define GLK_CREW_TOUCH ((size_t)4 << 20)   /* or touches */

/* Its memory is the caller's, from the post until it was waited for. */
struct glk_crew_task {
	char *dst;
	const char *src; /* NULL: `dst` is touched */
	size_t bytes;
	/* Of the crew, under its lock. */
	size_t taken, left; /* bytes that somebody has begun; that are not there yet */
	bool refused;	    /* the system had no memory for some of them */
	struct glk_crew_task *next;
};

struct glk_crew {
	struct glk_lock lock;
	pthread_cond_t posted, copied;
	const char *name; /* of threads */
	unsigned most;	  /* of them */
	/* Under the lock. */
	struct glk_crew_task *first, *last; /* of which somebody has to begin a slice */
	pthread_t thread[GLK_CREW_MOST];
	unsigned threads;
	bool started, ended;
};

/* No thread is started yet. */
void glk_crew_init(struct glk_crew *crew, const char *name, unsigned threads);
/* Nobody waits for a task. Ends the threads. */
void glk_crew_fini(struct glk_crew *crew);
/* Begins a task: dst, src and bytes are set. Fewer threads than there should be copy all the same. */
void glk_crew_post(struct glk_crew *crew, struct glk_crew_task *task);
/* Returns when all bytes of a posted task are there. */
void glk_crew_wait(struct glk_crew *crew, struct glk_crew_task *task);

#endif
