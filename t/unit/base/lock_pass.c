/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Who holds a lock in a long walk lets those pass who wait for it. */
#include "base/lock.h"
#include "tap.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <unistd.h>

#define THREADS 4
#define TURNS	2000

static struct glk_lock device;
static int counter;

static void *count(void *arg)
{
	for (int i = 0; i < TURNS; i++) {
		glk_lock(&device);
		counter++;
		glk_unlock(&device);
	}
	return arg;
}

/* Who holds it lets one pass who waits for it, each time. */
static void *pass_once(void *arg)
{
	bool *passed = arg;

	glk_lock(&device);
	*passed = true;
	glk_unlock(&device);
	return NULL;
}

static void lets_pass(void)
{
	int missed = 0;

	for (int i = 0; i < 200; i++) {
		pthread_t threads[2];
		bool passed[2] = {false, false};

		glk_lock(&device);
		for (int k = 0; k < 2; k++)
			pthread_create(&threads[k], NULL, pass_once, &passed[k]);
		while (glk_load_relaxed(&device.waiters) < 2)
			sched_yield();
		glk_lock_yield(&device);
		missed += !passed[0] && !passed[1];
		glk_lock_yield(&device);
		missed += !passed[0] || !passed[1];
		/* nobody is there any more */
		glk_lock_yield(&device);
		glk_unlock(&device);
		for (int k = 0; k < 2; k++)
			pthread_join(threads[k], NULL);
	}
	/* a wait may end for no reason, as POSIX allows: then they pass the next time */
	ok(missed <= 20,
		"one of those who wait has it before who let it pass: not %d times of 400",
		missed);
}

static sem_t stopped, on;

static void stop_here(int signal)
{
	int kept = errno;

	(void)signal;
	sem_post(&stopped);
	while (sem_wait(&on))
		;
	errno = kept;
}

/* A thread that is stopped while it waits, as some runtimes stop theirs, is not waited for for ever. */
static void not_for_stopped(void)
{
	const struct sigaction action = {.sa_handler = stop_here};
	bool passed = false;
	pthread_t thread;

#if defined(__SANITIZE_THREAD__) || defined(GLK_SCHED)
	for (int i = 0; i < 2; i++)
		tap_skip("a thread that is stopped",
			"the handler would run in its turn alone");
	return;
#endif
	sem_init(&stopped, 0, 0);
	sem_init(&on, 0, 0);
	sigaction(SIGUSR1, &action, NULL);
	glk_lock(&device);
	pthread_create(&thread, NULL, pass_once, &passed);
	while (!glk_load_relaxed(&device.waiters))
		sched_yield();
	pthread_kill(thread, SIGUSR1);
	while (sem_wait(&stopped))
		;
	alarm(10);
	glk_lock_yield(&device);
	alarm(0);
	ok(!passed, "one who waits and is stopped does not keep a walk");
	glk_unlock(&device);
	sem_post(&on);
	pthread_join(thread, NULL);
	ok(passed && !device.letting, "and passes later");
}

static glk_atomic(uint32_t) walking;

static void *walk(void *arg)
{
	uint64_t *steps = arg;

	glk_lock(&device);
	for (int i = 0; i < TURNS; i++) {
		++*steps;
		glk_lock_yield(&device);
	}
	glk_unlock(&device);
	glk_sub_relaxed(&walking, 1);
	return NULL;
}

/* Several who let others pass come to an end, whoever else is there. */
static void walk_together(void)
{
	pthread_t threads[THREADS], other;
	uint64_t steps[THREADS] = {0}, sum = 0;

	counter = 0;
	glk_store_relaxed(&walking, THREADS);
	pthread_create(&other, NULL, count, NULL);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, walk, &steps[i]);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	pthread_join(other, NULL);
	for (int i = 0; i < THREADS; i++)
		sum += steps[i];
	is_int((int64_t)sum, THREADS * TURNS, "several walks end");
	is_int(counter, TURNS, "and so does who passes");
	is_int(glk_load_relaxed(&device.waiters) + device.letting, 0, "nobody is there");
}

int main(void)
{
	tap_plan(6);
	glk_lock_init(&device, GLK_RANK_DEVICE);
	lets_pass();
	walk_together();
	not_for_stopped();
	glk_lock_fini(&device);
	return tap_done();
}
