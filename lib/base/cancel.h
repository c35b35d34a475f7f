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
 * On its way	may be that signal when the state is changed. It would end the thread in the next system
 *		call that is a point of cancellation: there glibc (seen with 2.36) has the type asynchronous,
 *		whatever the state. So a thread of that type makes such a call before it has anything in its
 *		hands
 * Callers	any thread, also one that may be cancelled asynchronously at any moment
 * Cost		some nanoseconds; for a thread of the asynchronous type a system call
 */
#include <pthread.h>

/* What was found, to be restored. */
struct glk_cancel {
	int state, type;
};

/* The state was left as it is. */
#define GLK_CANCEL_LEFT (-1)

/* Has a signal that is on its way arrive: here the thread may end. Nothing is sent any more. */
void glk_cancel_settle(void);

/* Puts it off. `was` is the calling thread's own. May not return. */
static inline void glk_cancel_put_off(struct glk_cancel *was)
{
	pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &was->type);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &was->state);
	if (was->type == PTHREAD_CANCEL_ASYNCHRONOUS)
		glk_cancel_settle();
}

/*
 * The type alone: for who comes to no point of cancellation before he puts the rest off, or has this undone. It
 * costs half. A thread of the asynchronous type has put all of it off. May not return.
 */
static inline void glk_cancel_put_off_type(struct glk_cancel *was)
{
	pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &was->type);
	was->state = GLK_CANCEL_LEFT;
	if (was->type == PTHREAD_CANCEL_ASYNCHRONOUS) {
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &was->state);
		glk_cancel_settle();
	}
}

static inline void glk_cancel_put_off_rest(struct glk_cancel *was)
{
	if (was->state == GLK_CANCEL_LEFT)
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &was->state);
}

/* May not return. Nothing is called that changes nothing; `was` is used up. */
static inline void glk_cancel_put_back(struct glk_cancel *was)
{
	int type = was->type;

	if (was->state == PTHREAD_CANCEL_ENABLE)
		pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &was->state);
	if (type == PTHREAD_CANCEL_ASYNCHRONOUS)
		pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &was->type);
}

/* The same, with what was found in a number. */
static inline int glk_cancel_off(void)
{
	struct glk_cancel was;

	glk_cancel_put_off(&was);
	return (was.type == PTHREAD_CANCEL_ASYNCHRONOUS) * 2 +
		(was.state == PTHREAD_CANCEL_DISABLE);
}

/* May not return. */
static inline void glk_cancel_restore(int was)
{
	struct glk_cancel found = {
		.state = was & 1 ? PTHREAD_CANCEL_DISABLE : PTHREAD_CANCEL_ENABLE,
		.type = was & 2 ? PTHREAD_CANCEL_ASYNCHRONOUS : PTHREAD_CANCEL_DEFERRED,
	};

	glk_cancel_put_back(&found);
}

#endif
