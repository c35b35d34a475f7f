/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_BASE_CANCEL_H
#define GLK_BASE_CANCEL_H

/*
 * Cancellation of threads. A thread that is cancelled with a lock in its hands, or half way
 * through a table, would stop all others for good; the kernel's and the driver's calls that are
 * made there can be points of cancellation. So the slow paths put it off until they are done.
 * A hit does not: it has no lock and no half-way state, and a thread that is killed in one,
 * asynchronously, takes at most the block with it that it was about to give or take.
 *
 * Type		is made deferred too: glibc (seen with 2.36) sends the signal to a thread that
 *		is cancelled asynchronously after a look at its state, and the handler looks at
 *		the type alone, so a thread that has put it off meanwhile would be ended
 * Callers	any thread, also one that may be cancelled asynchronously at any moment
 * Cost		some nanoseconds, no system call
 */
#include <pthread.h>

/* Puts it off; what was found, to be restored. */
static inline int glk_cancel_off(void)
{
	int type, state;

	pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	return (type == PTHREAD_CANCEL_ASYNCHRONOUS) * 2 +
		(state == PTHREAD_CANCEL_DISABLE);
}

/* May not return. */
static inline void glk_cancel_restore(int was)
{
	int unused;

	pthread_setcancelstate(
		was & 1 ? PTHREAD_CANCEL_DISABLE : PTHREAD_CANCEL_ENABLE, &unused);
	if (was & 2)
		pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &unused);
}

#endif
