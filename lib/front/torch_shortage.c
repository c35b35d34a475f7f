/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A function in Python that makes room, see glake_shortage_set. It cannot be called as one in C: whoever has Python's
 * lock may wait for what the thread of the request has. So a thread of Python's waits here for requests, and takes its
 * lock before it takes one up; the request waits for that, and for the end, no longer than a while.
 */
#include "front/torch.h"

#include "base/clock.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>

/* Until it begins: a thread of Python's that computes gives the lock away after 5 ms, and there may be several. And
 * until it has ended. */
#define BEGINS_NS ((int64_t)100 * 1000 * 1000)
#define ENDS_NS	  ((int64_t)10 * 1000 * 1000 * 1000)

static struct {
	pthread_once_t once;
	pthread_mutex_t lock;
	pthread_cond_t moved;
	enum { IDLE, ASKED, BEGUN, ENDED } is;
	bool left; /* by the request, while it was begun */
	struct glake_torch_shortage asked;
	size_t freed;
	bool serves;	    /* the thread of Python's has come */
	pthread_t server;   /* which it is then */
	int (*holds)(void); /* whether a thread has Python's lock; NULL: not known */
} relay = {.once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER};

static void begin(void)
{
	void *holds = dlsym(RTLD_DEFAULT, "PyGILState_Check");
	pthread_condattr_t attr;

	memcpy(&relay.holds, &holds, sizeof(holds));
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&relay.moved, &attr);
	pthread_condattr_destroy(&attr);
}

/* Until something has changed; false: the time has passed. */
static bool wait_until(int64_t ns)
{
	struct timespec t = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};

	return pthread_cond_timedwait(&relay.moved, &relay.lock, &t) != ETIMEDOUT;
}

static void becomes(int is)
{
	relay.is = is;
	pthread_cond_broadcast(&relay.moved);
}

/* Whether this thread is the one that would serve it, or keeps that one from its lock. */
static bool is_in_the_way(void)
{
	return (relay.serves && pthread_equal(relay.server, pthread_self())) ||
		(relay.holds && relay.holds());
}

static size_t ask(void *user, int device, size_t want, struct CUstream_st *stream,
	int64_t deadline_ns)
{
	int64_t begins, ends = glk_clock_ns() + ENDS_NS;
	size_t freed = 0;
	uint64_t number;

	if (deadline_ns && deadline_ns < ends)
		ends = deadline_ns;
	pthread_mutex_lock(&relay.lock);
	if (is_in_the_way())
		goto unlock;
	while (relay.is != IDLE) {
		if (!wait_until(ends))
			goto unlock;
	}
	number = relay.asked.number + 1;
	relay.asked = (struct glake_torch_shortage){.number = number,
		.want = want,
		.stream = (uint64_t)(uintptr_t)stream,
		.deadline_ns = deadline_ns,
		.device = device};
	becomes(ASKED);
	begins = glk_clock_ns() + BEGINS_NS;
	while (relay.is == ASKED && wait_until(begins < ends ? begins : ends))
		;
	while (relay.is == BEGUN && wait_until(ends))
		;
	relay.left = relay.is == BEGUN;
	if (relay.is == ENDED)
		freed = relay.freed;
	if (!relay.left)
		becomes(IDLE);
unlock:
	pthread_mutex_unlock(&relay.lock);
	return freed;
}

int glake_torch_shortage_set(int on)
{
	pthread_once(&relay.once, begin);
	return glake_shortage_set(glake_torch_context(), on ? ask : NULL, NULL);
}

void glake_torch_shortage_next(struct glake_torch_shortage *ret_asked)
{
	pthread_mutex_lock(&relay.lock);
	relay.server = pthread_self();
	relay.serves = true;
	while (relay.is != ASKED || relay.asked.number == ret_asked->number)
		pthread_cond_wait(&relay.moved, &relay.lock);
	*ret_asked = relay.asked;
	pthread_mutex_unlock(&relay.lock);
}

int glake_torch_shortage_begin(uint64_t number)
{
	bool begins;

	pthread_mutex_lock(&relay.lock);
	begins = relay.is == ASKED && relay.asked.number == number;
	if (begins)
		becomes(BEGUN);
	pthread_mutex_unlock(&relay.lock);
	return begins;
}

void glake_torch_shortage_end(size_t freed)
{
	pthread_mutex_lock(&relay.lock);
	relay.freed = freed;
	becomes(relay.left ? IDLE : ENDED);
	relay.left = false;
	pthread_mutex_unlock(&relay.lock);
}
