/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Locks exclude, a forked child finds static ones free, and in a debug build a lock out of rank
 * ends the program. */
#include "base/lock.h"
#include "base/rcu.h"
#include "tap.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 4
#define TURNS	2000

static struct glk_lock context = GLK_LOCK_INIT(GLK_RANK_CONTEXT);
static struct glk_lock device, node;
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

static void excludes(void)
{
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, count, NULL);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	is_int(counter, THREADS * TURNS, "one thread at a time");
}

static void rising(void)
{
	glk_lock(&context);
	glk_lock(&device);
	glk_lock(&node);
	glk_unlock(&device);
	glk_unlock(&node);
	glk_unlock(&context);
}

static void falling(void)
{
	glk_lock(&node);
	glk_lock(&device);
}

static void twice(void)
{
	struct glk_lock same;

	glk_lock_init(&same, GLK_RANK_DEVICE);
	glk_lock(&device);
	glk_lock(&same);
}

/* Not undone by an inner unlock: the outer rank still counts. */
static void after_unlock(void)
{
	glk_lock(&device);
	glk_lock(&node);
	glk_unlock(&node);
	glk_lock(&context);
}

static pthread_barrier_t gate;

static void *hold(void *arg)
{
	glk_lock(&context);
	pthread_barrier_wait(&gate);
	pthread_barrier_wait(&gate);
	glk_unlock(&context);
	return arg;
}

/* The signal that ends a child which runs `body`; 0 if none does. */
static int ends_by(void (*body)(void))
{
	int status = 0;
	pid_t child;

	fflush(stdout);
	child = fork();
	if (!child) {
		int quiet = open("/dev/null", O_WRONLY | O_CLOEXEC);

		dup2(quiet, STDERR_FILENO);
		signal(SIGABRT, SIG_DFL);
		body();
		_exit(0);
	}
	waitpid(child, &status, 0);
	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void take_held(void)
{
	alarm(10);
	glk_lock(&context);
	glk_unlock(&context);
}

/* A lock that another thread holds while this one forks. */
static void held_at_fork(void)
{
	pthread_t thread;

	is_int(glk_rcu_init(false), 0, "hooks of fork");
	pthread_barrier_init(&gate, NULL, 2);
	pthread_create(&thread, NULL, hold, NULL);
	pthread_barrier_wait(&gate);
	is_int(ends_by(take_held), 0, "a child finds a static lock free");
	pthread_barrier_wait(&gate);
	pthread_join(thread, NULL);
	glk_lock(&context);
	glk_unlock(&context);
	pthread_barrier_destroy(&gate);
}

static void asserted(void (*body)(void), const char *what)
{
#ifdef NDEBUG
	(void)body;
	tap_skip(what, "ranks are checked in debug builds");
#else
	is_int(ends_by(body), SIGABRT, what);
#endif
}

int main(void)
{
	tap_plan(7);
	glk_lock_init(&device, GLK_RANK_DEVICE);
	glk_lock_init(&node, GLK_RANK_NODE);
	excludes();
	is_int(ends_by(rising), 0, "rising ranks, let go in any order");
	asserted(falling, "a falling rank");
	asserted(twice, "one rank twice");
	asserted(after_unlock, "an outer rank after an inner unlock");
	held_at_fork();
	glk_lock_fini(&node);
	glk_lock_fini(&device);
	return tap_done();
}
