/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Debug builds keep the ranks a thread holds as a set of bits in its record and assert that a
 * new one lies above all of them.
 */
#include "base/lock.h"

#include "base/cancel.h"
#include "base/thread.h"

#include <assert.h>

void glk_lock_init(struct glk_lock *lock, enum glk_rank rank)
{
	pthread_mutex_init(&lock->mutex, NULL);
	lock->rank = rank;
}

void glk_lock_fini(struct glk_lock *lock)
{
	pthread_mutex_destroy(&lock->mutex);
}

void glk_lock(struct glk_lock *lock)
{
	int was = glk_cancel_off();
#ifndef NDEBUG
	struct glk_thread *self = glk_thread_self();

	if (self) {
		assert(!(self->lock_ranks >> lock->rank));
		self->lock_ranks |= 1u << lock->rank;
	}
#endif
	pthread_mutex_lock(&lock->mutex);
	lock->cancel = was;
}

void glk_unlock(struct glk_lock *lock)
{
	int was = lock->cancel;
#ifndef NDEBUG
	struct glk_thread *self = glk_thread_self();

	if (self)
		self->lock_ranks &= ~(1u << lock->rank);
#endif
	pthread_mutex_unlock(&lock->mutex);
	glk_cancel_restore(was);
}
