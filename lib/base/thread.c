/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Records live in a slab that is made at the first need and never freed. A process that is not
 * allowed the addresses for all there may be (RLIMIT_AS, RLIMIT_DATA) has room for fewer, so that
 * its failures have a text all the same. The key destructor gives a record back when its thread
 * ends; a thread that is killed keeps it, which the maximum bounds. No RCU section is opened here,
 * because liburcu's own destructor may already have run.
 */
#include "base/thread.h"

#include "base/cancel.h"
#include "base/lock.h"
#include "base/slab.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <string.h>

static struct glk_thread nobody;
_Thread_local struct glk_thread *glk_thread_current = &nobody;

static struct glk_lock start_lock = GLK_LOCK_INIT(GLK_RANK_THREAD);
static pthread_key_t key;
static struct glk_slab records;
static glk_atomic(bool) ready;
static _Thread_local bool busy;

static glk_atomic(uint64_t) last_serial;

typedef void (*end_fn)(struct glk_thread *thread);
static glk_atomic(end_fn) at_end[GLK_THREAD_ENDS];

void glk_thread_at_end(void (*fn)(struct glk_thread *thread))
{
	end_fn there;

	for (int i = 0; i < GLK_THREAD_ENDS; i++) {
		there = NULL;
		/* pairs with: give_back */
		if (glk_cas_acq_rel(&at_end[i], &there, fn) || there == fn)
			return;
	}
	assert(false && "GLK_THREAD_ENDS is too small");
}

bool glk_thread_lives(uint64_t serial)
{
	/* pairs with: the release in start */
	uint32_t used = glk_load_acquire(&ready) ? glk_load_relaxed(&records.used) : 0;

	for (uint32_t id = 1; id <= used; id++) {
		const struct glk_thread *thread = glk_slab_at(&records, id);

		if (glk_load_relaxed(&thread->serial) == serial)
			return true;
	}
	return false;
}

bool glk_thread_lives_at(uint32_t id, uint64_t serial)
{
	const struct glk_thread *thread = glk_slab_at(&records, id);

	return glk_load_relaxed(&thread->serial) == serial;
}

static void give_back(void *arg)
{
	struct glk_thread *thread = arg;
	end_fn end;

	glk_thread_current = thread;
	for (int i = 0; i < GLK_THREAD_ENDS; i++) {
		end = glk_load_acquire(&at_end[i]); /* pairs with: glk_thread_at_end */
		if (end)
			end(thread);
	}
	glk_thread_current = &nobody;
	glk_store_relaxed(&thread->serial, 0);
	glk_slab_put(&records, thread->id);
}

/* Room for as many records as can be had. */
static int make_room(void)
{
	int err = -ENOMEM;

	for (uint32_t max = GLK_THREAD_MAX; err && max >= GLK_THREAD_LEAST; max /= 8)
		err = glk_slab_init(&records, sizeof(struct glk_thread), max);
	return err;
}

/* Want of memory at a first try is forgiven: the next need tries again. */
static bool start(void)
{
	if (glk_load_acquire(&ready)) /* pairs with: the release below */
		return true;
	glk_lock(&start_lock);
	if (glk_load_relaxed(&ready))
		goto out;
	if (make_room())
		goto out;
	if (pthread_key_create(&key, give_back)) {
		glk_slab_fini(&records);
		goto out;
	}
	glk_store_release(&ready, true); /* pairs with: the acquire above */
out:
	glk_unlock(&start_lock);
	return glk_load_relaxed(&ready);
}

/* The slab reports its own failures through a record, so a nested call finds none. */
static struct glk_thread *claim(void)
{
	struct glk_thread *thread;
	uint32_t id;

	if (!start())
		return NULL;
	id = glk_slab_get(&records);
	if (!id)
		return NULL;
	thread = glk_slab_at(&records, id);
	memset(thread, 0, sizeof(*thread));
	thread->id = id;
	glk_store_relaxed(&thread->serial, glk_add_relaxed(&last_serial, 1) + 1);
	if (pthread_setspecific(key, thread)) {
		glk_store_relaxed(&thread->serial, 0);
		glk_slab_put(&records, id);
		return NULL;
	}
	return thread;
}

struct glk_thread *glk_thread_self(void)
{
	struct glk_thread *thread;
	int saved, cancel;

	if (glk_thread_current != &nobody)
		return glk_thread_current;
	if (busy)
		return NULL;
	saved = errno;
	cancel = glk_cancel_off();
	busy = true;
	thread = claim();
	busy = false;
	errno = saved;
	if (thread)
		glk_thread_current = thread;
	glk_cancel_restore(cancel);
	return thread;
}

int glk_thread_start(
	pthread_t *ret_thread, const char *name, void *(*fn)(void *arg), void *arg)
{
	sigset_t all, before;
	int err;

	sigfillset(&all);
	err = pthread_sigmask(SIG_SETMASK, &all, &before);
	if (err)
		return err;
	err = pthread_create(ret_thread, NULL, fn, arg);
	if (!err)
		pthread_setname_np(*ret_thread, name);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return err;
}
