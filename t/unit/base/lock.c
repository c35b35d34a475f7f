/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Locks exclude, know how long they were held, a forked child finds static ones free, and in a
 * debug build a lock out of rank ends the program. */
#include "base/clock.h"
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

static int64_t read_clock(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

#define WHILE INT64_C(2000000) /* ns */

/* Until a clock has gone on by WHILE. */
static void spend(clockid_t clock)
{
	int64_t start = read_clock(clock);

	while (read_clock(clock) - start < WHILE)
		;
}

static void holds(clockid_t clock, const char *name)
{
	struct glk_lock lock;
	int64_t most;

	glk_lock_init(&lock, GLK_RANK_DEVICE);
	glk_lock_time(&lock, clock);
	glk_lock(&lock);
	spend(clock);
	ok(!lock.hold_max, "%s: the turn under way is not counted", name);
	glk_unlock(&lock);
	most = lock.hold_max;
	/* the counter is compared with the clock over a short time */
	ok(most >= WHILE - WHILE / 50, "%s: the time it was held", name);
	spend(clock);
	glk_lock(&lock);
	glk_unlock(&lock);
	ok(lock.hold_max >= most, "%s: the longest stays", name);
	glk_lock_fini(&lock);
}

static void untimed(void)
{
	struct glk_lock lock;

	glk_lock_init(&lock, GLK_RANK_DEVICE);
	glk_lock_time(&lock, CLOCK_MONOTONIC);
	glk_lock_init(&lock, GLK_RANK_DEVICE);
	ok(!lock.timed && !context.timed, "only locks that were asked to read a clock");
	glk_lock_fini(&lock);
}

struct sleeper {
	struct glk_lock lock;
	pthread_cond_t wake;
	bool asleep, awake;
	int64_t since; /* of the turn after it woke */
};

static void *sleep_once(void *arg)
{
	struct sleeper *s = arg;

	glk_lock(&s->lock);
	s->asleep = true;
	while (!s->awake)
		glk_lock_wait(&s->lock, &s->wake);
	s->since = s->lock.since;
	glk_unlock(&s->lock);
	return NULL;
}

/* Who waits on a condition does not hold it. */
static void waits(void)
{
	struct sleeper s = {.wake = PTHREAD_COND_INITIALIZER};
	pthread_t thread;
	int64_t woken = 0;

	glk_lock_init(&s.lock, GLK_RANK_DEVICE);
	glk_lock_time(&s.lock, CLOCK_MONOTONIC);
	pthread_create(&thread, NULL, sleep_once, &s);
	while (!woken) {
		glk_lock(&s.lock);
		if (s.asleep) {
			s.awake = true;
			woken = glk_clock_ticks();
			pthread_cond_signal(&s.wake);
		}
		glk_unlock(&s.lock);
	}
	pthread_join(thread, NULL);
	ok(s.since >= woken, "a turn begins anew behind a wait");
	glk_lock_fini(&s.lock);
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
	tap_plan(15);
	glk_lock_init(&device, GLK_RANK_DEVICE);
	glk_lock_init(&node, GLK_RANK_NODE);
	excludes();
	holds(CLOCK_MONOTONIC, "wall");
	holds(CLOCK_THREAD_CPUTIME_ID, "cpu");
	untimed();
	waits();
	is_int(ends_by(rising), 0, "rising ranks, let go in any order");
	asserted(falling, "a falling rank");
	asserted(twice, "one rank twice");
	asserted(after_unlock, "an outer rank after an inner unlock");
	held_at_fork();
	glk_lock_fini(&node);
	glk_lock_fini(&device);
	return tap_done();
}
