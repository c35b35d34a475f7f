/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Cancellation that is put off. A thread of the asynchronous type whose lock is taken while the signal that
 * cancels it is on its way does not end in a system call under that lock, which nobody could take then, but
 * where it gives it back. What was found is there again afterwards.
 */
#include "base/cancel.h"
#include "base/atomic.h"
#include "base/lock.h"
#include "tap.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

/* The signal by which glibc cancels, which its own calls for masks leave out. */
#define CANCEL (UINT64_C(1) << (__SIGRTMIN - 1))

static struct glk_lock device, node;
static int ends[2];
static glk_atomic(int) number, held_up, cancelled, went_on, left;

/* Lets a signal that was held up arrive. */
static void arrive(int signal, siginfo_t *info, void *context)
{
	uint64_t mask;

	(void)signal;
	(void)info;
	memcpy(&mask, &((ucontext_t *)context)->uc_sigmask, sizeof(mask));
	mask &= ~CANCEL;
	memcpy(&((ucontext_t *)context)->uc_sigmask, &mask, sizeof(mask));
}

static void *wait_in_lock(void *arg)
{
	uint64_t mask = CANCEL;
	int unused;
	char byte;

	glk_store_release(&number, (int)gettid());
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &unused);
	syscall(SYS_rt_sigprocmask, SIG_BLOCK, &mask, NULL, sizeof(mask));
	glk_store_release(&held_up, 1);
	while (!glk_load_acquire(&cancelled))
		;
	glk_lock(&device);
	while (read(ends[0], &byte, 1) != 1)
		;
	glk_store_release(&went_on, 1);
	glk_unlock(&device);
	glk_store_release(&left, 1);
	return arg;
}

/* Whether a thread of this process sleeps: the letter behind its name. */
static bool sleeps(int thread)
{
	char path[64], line[256];
	const char *name;
	FILE *file;
	bool is;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", thread);
	file = fopen(path, "re");
	if (!file)
		return false;
	name = fgets(line, sizeof(line), file) ? strrchr(line, ')') : NULL;
	is = name && name[1] == ' ' && name[2] == 'S';
	fclose(file);
	return is;
}

static void on_its_way(void)
{
	struct sigaction action = {
		.sa_sigaction = arrive, .sa_flags = SA_SIGINFO | SA_RESTART};
	pthread_t thread;
	void *end = NULL;

	if (pipe(ends) || sigaction(SIGUSR1, &action, NULL) ||
		pthread_create(&thread, NULL, wait_in_lock, NULL))
		tap_bail("no thread");
	while (!glk_load_acquire(&held_up))
		sched_yield();
	is_int(pthread_cancel(thread), 0,
		"a thread is cancelled, and the signal held up");
	glk_store_release(&cancelled, 1);
	while (!sleeps(glk_load_acquire(&number)))
		sched_yield();
	is_int(pthread_kill(thread, SIGUSR1), 0, "it arrives");
	is_int(write(ends[1], "", 1), 1,
		"what the thread waits for under its lock comes");
	pthread_join(thread, &end);
	is_int(glk_load_acquire(&went_on), 1, "the thread went on to its unlock");
	ok(end == PTHREAD_CANCELED, "it was cancelled");
	is_int(glk_load_acquire(&left), 0, "  there and not later");
	is_int(pthread_mutex_trylock(&device.mutex), 0, "its lock is free");
	pthread_mutex_unlock(&device.mutex);
}

static void *restores(void *arg)
{
	int type, state;

	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
	errno = EDOM;
	glk_lock(&device);
	is_int(errno, EDOM, "errno stays");
	glk_lock(&node);
	glk_unlock(&node);
	pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
	is_int(type, PTHREAD_CANCEL_DEFERRED, "who holds a lock is of the other type");
	glk_unlock(&device);
	pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
	is_int(type, PTHREAD_CANCEL_ASYNCHRONOUS, "then its type is what it was");
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
	is_int(state, PTHREAD_CANCEL_ENABLE, "and its state");
	return arg;
}

/* A short turn leaves the state of a thread as it is until it becomes a long one, or another lock is taken. */
static void *short_turns(void *arg)
{
	int type, state;

	pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
	glk_lock_short(&device, 0);
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
	is_int(state, PTHREAD_CANCEL_ENABLE, "a short turn leaves the state");
	glk_lock(&node);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	is_int(state, PTHREAD_CANCEL_DISABLE, "another lock puts it off");
	glk_unlock(&node);
	glk_unlock(&device);
	glk_lock_short(&device, 0);
	glk_lock_lengthen(&device);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	is_int(state, PTHREAD_CANCEL_DISABLE, "and so does who stays");
	glk_unlock(&device);
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
	is_int(state, PTHREAD_CANCEL_ENABLE, "until the last unlock");
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
	glk_lock_short(&device, 0);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	is_int(state, PTHREAD_CANCEL_DISABLE,
		"that of a thread of the asynchronous type is put off at once");
	pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
	is_int(type, PTHREAD_CANCEL_DEFERRED, "with its type");
	glk_unlock(&device);
	pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
	is_int(type, PTHREAD_CANCEL_ASYNCHRONOUS, "both are restored");
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
	is_int(state, PTHREAD_CANCEL_ENABLE, "both are");
	return arg;
}

int main(void)
{
	pthread_t thread;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	tap_skip_all("a sanitizer does not follow a thread that is cancelled");
#endif
	if (tap_on_valgrind())
		tap_skip_all("valgrind has signals of its own");
	tap_plan(19);
	alarm(60);
	glk_lock_init(&device, GLK_RANK_DEVICE);
	glk_lock_init(&node, GLK_RANK_NODE);
	if (pthread_create(&thread, NULL, restores, NULL))
		tap_bail("no thread");
	pthread_join(thread, NULL);
	if (pthread_create(&thread, NULL, short_turns, NULL))
		tap_bail("no thread");
	pthread_join(thread, NULL);
	on_its_way();
	return tap_done();
}
