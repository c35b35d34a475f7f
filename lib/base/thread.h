/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_BASE_THREAD_H
#define GLK_BASE_THREAD_H

/*
 * What the library keeps per thread: one pointer of thread-local storage to a record from
 * type-stable memory. A record is claimed at a thread's first need and given back by a key
 * destructor when the thread ends.
 *
 * Thread-local storage of the whole library stays below 64 bytes, so that it can be loaded
 * late into a process with little static TLS left.
 */
#include <glake/error.h>

#include <stdbool.h>
#include <stdint.h>

struct glk_thread {
	struct glake_error error;
	uint32_t id;	   /* slot of this record */
	bool rcu_ready;	   /* the probe of base/rcu.h has passed */
	uint32_t lock_ranks; /* debug builds: a bit for each rank held */
};

/* The record of the calling thread; NULL when none can be had. Errno is preserved. */
struct glk_thread *glk_thread_self(void);

/* Most threads alive at once that have a record; the ones above go without error texts. */
#define GLK_THREAD_MAX 65536

#endif
