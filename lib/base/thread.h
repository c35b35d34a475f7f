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
#include "base/atomic.h"

#include <glake/error.h>

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Room for messages that wait for the end of a lock: two of the longest, or some more. */
#define GLK_THREAD_LOG 1280

/* Most places a thread keeps, see cache/bin/seat.h: one a GPU of a context. */
#define GLK_THREAD_SEATS 16

struct glk_thread {
	struct glk_thread_seat {
		uint64_t name; /* see glk_seat_name(); 0: none */
		void *seat;
	} seats[GLK_THREAD_SEATS];
	struct {
		uint64_t
			serial; /* of the trace that it writes to, see watch/trace.c; 0: none */
		void *lane;
	} trace;
	struct {
		uint64_t
			serial; /* of the first GPU of the context that it is of; 0: there is none */
		uint32_t id;
	} tag; /* see cache/tag */
	unsigned
		told; /* functions of the program that it is inside of, see move/told.h */
	unsigned asked; /* the same of those that make room, see cache/ladder.c */
	unsigned forks; /* fork generation in which it was claimed */
	struct glake_error error;
	uint32_t id;	 /* slot of this record */
	uint32_t number; /* that the system has for it; 0: it was not asked yet */
	glk_atomic(
		uint64_t) serial; /* of the thread, never given twice; 0: it has ended */
	bool rcu_ready;		  /* the probe of base/rcu.h has passed */
	struct {
		size_t used; /* bytes; a message is its level, its text and a zero */
		char text[GLK_THREAD_LOG];
	} log; /* what was raised under a lock, see log.c */
};

/* The record of the calling thread; NULL when none can be had. Errno is preserved. */
struct glk_thread *glk_thread_self(void);

/* The same without claiming one: an empty record where the thread has none. */
extern _Thread_local struct glk_thread *glk_thread_current;

/* Whether the thread of a serial number is still there; the second is for callers that know its
 * record's slot, and looks nowhere else. */
bool glk_thread_lives(uint64_t serial);
bool glk_thread_lives_at(uint32_t id, uint64_t serial);

/* Has a function called with each record before it is given back at the end of its thread, in a
 * forked child too. A function that is there already is not added again. */
#define GLK_THREAD_ENDS 2
void glk_thread_at_end(void (*fn)(struct glk_thread *thread));

/* Starts a thread of the library, with a name of up to 15 characters. It takes no signals: they are for the
 * program's own threads. 0 or an error number. */
int glk_thread_start(
	pthread_t *ret_thread, const char *name, void *(*fn)(void *arg), void *arg);

/* Most threads alive at once that have a record, and as many as there are where the process may
 * have little memory; the ones above go without error texts. */
#define GLK_THREAD_MAX	 65536
#define GLK_THREAD_LEAST 16

#endif
