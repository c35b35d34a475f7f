/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Fork and exit under the preload. A child of a process that has used CUDA is left to the
 * driver; one of a process that has not is served as if it were the first. Whoever frees memory
 * after the driver has gone is answered, and the driver is not called. Children speak by their
 * exit status; an alarm ends one that is stuck.
 */
#define TAP_NO_LOG
#include "tap.h"

#include "preload_calls.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#define FORKS	30
#define STUCK_S 900 /* the test itself has less time */

static struct calls cu;
static const struct fake_state *fake;
static fake_address plain, ordered;
static struct CUstream_st *stream;

static pid_t child(void)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid)
		alarm(STUCK_S);
	return pid;
}

static int result(pid_t pid)
{
	int status = 0;

	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		tap_bail("no child");
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static int use(void)
{
	int wrong = 0;

	calls_use(&cu, 0);
	wrong |= 1 * (cu.cuStreamCreate(&stream, 0) != 0);
	wrong |= 2 * (cu.cuMemAlloc(&plain, MIB) != 0);
	wrong |= 4 * (cu.cuMemAllocAsync(&ordered, MIB, stream) != 0);
	wrong |= 8 * (fake->count("cuMemAlloc_v2") || fake->count("cuMemAllocAsync"));
	if (!wrong)
		memset((void *)(uintptr_t)plain, 0x5a, MIB);
	return wrong;
}

/* What a child finds whose parent has used the GPU. */
static int left_alone(void)
{
	int before = fake->count("cuMemAlloc_v2"), wrong = 0;
	fake_address ptr = 0;

	wrong |= 1 * (cu.cuMemAlloc(&ptr, MIB) != 0);
	wrong |= 2 * (fake->count("cuMemAlloc_v2") != before + 1);
	wrong |= 4 * (cu.cuMemFree(ptr) != 0);
	wrong |= 8 * (cu.cuMemFree(plain) != 1);
	wrong |= 16 * (cu.cuMemFreeAsync(ordered, stream) != 1);
	return wrong;
}

static atomic_bool stop, inside;

static void *busy(void *arg)
{
	struct CUstream_st *own;

	calls_use(&cu, 0);
	cu.cuStreamCreate(&own, 0);
	atomic_store(&inside, true);
	while (!atomic_load(&stop)) {
		fake_address p, q;

		if (!cu.cuMemAlloc(&p, 100000))
			cu.cuMemFree(p);
		if (!cu.cuMemAllocAsync(&q, 300000, own))
			cu.cuMemFreeAsync(q, own);
	}
	cu.cuStreamDestroy(own);
	return NULL;
}

static void forks_amid_threads(void)
{
	pthread_t thread[3];
	int wrong = 0;

	for (int i = 0; i < 3; i++)
		pthread_create(&thread[i], NULL, busy, NULL);
	for (int i = 0; i < FORKS && !wrong; i++) {
		pid_t pid = child();

		if (!pid) {
			fake_address ptr = 0;

			_exit(cu.cuMemGetAddressRange(&ptr, NULL, plain) == 0 ||
				cu.cuMemAlloc(&ptr, MIB) || cu.cuMemFree(ptr));
		}
		wrong = result(pid);
	}
	atomic_store(&stop, true);
	for (int i = 0; i < 3; i++)
		pthread_join(thread[i], NULL);
	is_int(wrong, 0, "children of a process with threads inside");
}

static void driver_goes(void)
{
	fake->end();
}

/* Runs after the driver has gone, as a destructor of the program does. */
static void free_late(void)
{
	int wrong = 0;

	wrong |= 1 * (cu.cuMemFree(plain) != 0);
	wrong |= 2 * (cu.cuMemFreeAsync(ordered, stream) != 0);
	wrong |= 4 * (fake->after() != 0);
	wrong |= 8 * (cu.cuMemAlloc(&plain, MIB) != 4); /* the driver says so itself */
	_exit(wrong);
}

static void *hold_on(void *arg)
{
	busy(NULL);
	return NULL;
}

/* Ends by exit, with blocks, and with a thread that goes on using them. */
static void end_with(bool thread)
{
	pthread_t other;

	atexit(free_late);
	atexit(driver_goes);
	if (use())
		_exit(99);
	if (thread) {
		pthread_create(&other, NULL, hold_on, NULL);
		/* once the driver has gone, no context is to be had */
		while (!atomic_load(&inside))
			sched_yield();
	}
	exit(98);
}

static void end_in_peace(void)
{
	if (use())
		_exit(99);
	exit(0);
}

int main(int count, char **arguments)
{
	pid_t pid;

	tap_plan_later();
	fake = driver_state();
	cu = calls_by(count > 1 ? arguments[1] : "dlsym");
	pid = child();
	if (!pid)
		_exit(use());
	is_int(result(pid), 0, "a child before the first use is served");
	pid = child();
	if (!pid)
		end_with(false);
	is_int(result(pid), 0, "frees after the driver has gone");
	pid = child();
	if (!pid)
		end_with(true);
	is_int(result(pid) & ~(4 | 8), 0, "the same beside a thread that goes on");
	pid = child();
	if (!pid)
		end_in_peace();
	is_int(result(pid), 0, "an end with blocks");
	is_int(use(), 0, "the first use");
	pid = child();
	if (!pid)
		_exit(left_alone());
	is_int(result(pid), 0, "a child after it is left to the driver");
	pid = child();
	if (!pid)
		exit(left_alone());
	is_int(result(pid), 0, "and ends as others do");
	forks_amid_threads();
	ok(((char *)(uintptr_t)plain)[MIB - 1] == 0x5a, "the parent's memory stands");
	is_int(cu.cuMemFree(plain), 0, "and is freed");
	is_int(cu.cuMemFreeAsync(ordered, stream), 0, "in order too");
	return tap_done();
}
