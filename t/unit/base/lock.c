/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Locks exclude, put cancellation off, know how long they were held, a forked child finds static
 * ones free, and in a debug build a lock out of rank, or given up by who does not hold it, ends the
 * program. */
#include "base/lock.h"
#include "base/atomic.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/rcu.h"
#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
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

static void *try(void *arg)
{
	bool *had = arg;

	*had = glk_lock_try(&device);
	if (*had)
		glk_unlock(&device);
	return NULL;
}

static bool tried(void)
{
	pthread_t thread;
	bool had = false;

	if (pthread_create(&thread, NULL, try, &had))
		tap_bail("no thread");
	pthread_join(thread, NULL);
	return had;
}

static void tries(void)
{
	ok(tried(), "one that is nobody's is had");
	glk_lock(&device);
	ok(!tried(), "  and not while another thread has it");
	glk_unlock(&device);
	ok(tried(), "  but then");
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

static void not_held(void)
{
	glk_lock(&device);
	glk_unlock(&node);
}

static void unlocked_twice(void)
{
	glk_lock(&device);
	glk_unlock(&device);
	glk_unlock(&device);
}

static void waits_without(void)
{
	pthread_cond_t wake = PTHREAD_COND_INITIALIZER;

	glk_lock_wait(&device, &wake);
}

static void waits_without_for(void)
{
	pthread_cond_t wake;

	glk_lock_cond_init(&wake);
	glk_lock_wait_for(&device, &wake, 1);
}

static void pauses_without(void)
{
	glk_lock_pause(&device);
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
	pthread_testcancel();
	return NULL;
}

/* Who waits on a condition does not hold it, and is not cancelled there either. */
static void waits(void)
{
	struct sleeper s = {.wake = PTHREAD_COND_INITIALIZER};
	void *end = NULL;
	pthread_t thread;
	int64_t woken = 0;

	glk_lock_init(&s.lock, GLK_RANK_DEVICE);
	glk_lock_time(&s.lock, CLOCK_MONOTONIC);
	pthread_create(&thread, NULL, sleep_once, &s);
	while (!woken) {
		glk_lock(&s.lock);
		if (s.asleep) {
			pthread_cancel(thread);
			s.awake = true;
			woken = glk_clock_ticks();
			pthread_cond_signal(&s.wake);
		}
		glk_unlock(&s.lock);
	}
	pthread_join(thread, &end);
	ok(s.since >= woken, "a turn begins anew behind a wait");
	ok(end == PTHREAD_CANCELED, "behind which a thread is cancelled");
	glk_lock_fini(&s.lock);
}

#define ROUNDS 2000

/* Two who take turns, each asleep on one condition while it is the other's, and others who want
 * the lock all the while. */
static void *take_once(void *arg)
{
	glk_lock(&device);
	*(bool *)arg = true;
	glk_unlock(&device);
	return NULL;
}

/* Who gives it up for a while is not cancelled meanwhile, and others have it. */
static void *pause_once(void *arg)
{
	bool *taken = arg;
	pthread_t other;

	glk_lock(&device);
	glk_lock_pause(&device);
	pthread_create(&other, NULL, take_once, taken);
	pthread_join(other, NULL);
	pthread_cancel(pthread_self());
	pthread_testcancel();
	/* another lock leaves that alone */
	glk_lock(&node);
	glk_unlock(&node);
	pthread_testcancel();
	glk_lock_resume(&device);
	taken[1] = glk_lock_is_held();
	glk_unlock(&device);
	pthread_testcancel();
	return NULL;
}

static void pauses(void)
{
	bool taken[2] = {false, false};
	pthread_t thread;
	void *end;

	pthread_create(&thread, NULL, pause_once, taken);
	pthread_join(thread, &end);
	ok(taken[0], "others take what was given up for a while");
	ok(taken[1] && end == PTHREAD_CANCELED,
		"a thread that does so is cancelled behind the last unlock");
	glk_lock(&device);
	glk_lock_pause(&device);
	glk_lock(&node);
	glk_lock_pause(&node);
	glk_lock_resume(&node);
	glk_unlock(&node);
	ok(glk_lock_is_held(),
		"one that is given up in the pause of another one ends none");
	glk_lock_resume(&device);
	glk_unlock(&device);
}

static struct {
	struct glk_lock lock;
	pthread_cond_t wake;
	int turn, done;
	int odd; /* errno was not kept */
} game = {.wake = PTHREAD_COND_INITIALIZER};

static void *take_turns(void *arg)
{
	int me = arg != NULL;

	for (int i = 0; i < ROUNDS; i++) {
		glk_lock(&game.lock);
		while (game.turn % 2 != me)
			glk_lock_wait(&game.lock, &game.wake);
		game.turn++;
		/* as it may be done: what is waited for has changed under the lock */
		if (i % 2)
			pthread_cond_broadcast(&game.wake);
		glk_unlock(&game.lock);
		if (i % 2 == 0)
			pthread_cond_broadcast(&game.wake);
	}
	return NULL;
}

static void *disturb(void *arg)
{
	bool done = false;

	while (!done) {
		errno = EDOM;
		glk_lock(&game.lock);
		done = game.done;
		game.odd += errno != EDOM;
		glk_unlock(&game.lock);
	}
	return arg;
}

static void takes_turns(void)
{
	pthread_t thread[2], other[2];

	glk_lock_init(&game.lock, GLK_RANK_DEVICE);
	for (uintptr_t i = 0; i < 2; i++) {
		pthread_create(&thread[i], NULL, take_turns, i ? &game : NULL);
		pthread_create(&other[i], NULL, disturb, NULL);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	glk_lock(&game.lock);
	game.done = 1;
	glk_unlock(&game.lock);
	for (int i = 0; i < 2; i++)
		pthread_join(other[i], NULL);
	is_int(game.turn, 2 * ROUNDS, "no wake is lost between a wait and its sleep");
	is_int(game.odd, 0, "errno is kept by who waits for the lock");
	glk_lock_fini(&game.lock);
}

struct cancel {
	int state, type;
};

/* What the calling thread has; nothing in between may act on it. */
static struct cancel cancel_of_self(void)
{
	struct cancel now;

	pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &now.type);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &now.state);
	pthread_setcancelstate(now.state, &(int){0});
	pthread_setcanceltype(now.type, &(int){0});
	return now;
}

static bool is_off(void)
{
	struct cancel now = cancel_of_self();

	return now.state == PTHREAD_CANCEL_DISABLE && now.type == PTHREAD_CANCEL_DEFERRED;
}

/* Takes two locks, and gives them back one way and the other. */
static void restores(int state, int type, const char *name)
{
	struct glk_lock *const locks[] = {&device, &node};
	struct cancel now;
	int odd = 0;

	for (int first = 0; first < 2; first++) {
		pthread_setcancelstate(state, &(int){0});
		pthread_setcanceltype(type, &(int){0});
		glk_lock(&device);
		odd += !is_off();
		glk_lock(&node);
		odd += !is_off();
		if (first)
			glk_warn("raised under a lock, said under that of the log");
		glk_unlock(locks[first]);
		odd += !is_off();
		glk_unlock(locks[!first]);
		now = cancel_of_self();
		odd += now.state != state || now.type != type;
	}
	pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &(int){0});
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &(int){0});
	ok(!odd, "%s: off while a lock is held, restored behind it", name);
}

static struct {
	pthread_barrier_t gate;
	int type;
	glk_atomic(int) reached; /* how far who was cancelled came */
} fate;

/* Cancelled with two locks, while it passes points of cancellation. */
static void *be_cancelled(void *arg)
{
	pthread_setcanceltype(fate.type, &(int){0});
	glk_lock(&device);
	glk_lock(&node);
	pthread_barrier_wait(&fate.gate); /* it is cancelled now */
	pthread_barrier_wait(&fate.gate);
	pthread_testcancel();
	usleep(1);
	glk_store_relaxed(&fate.reached, 1);
	glk_unlock(&node);
	pthread_testcancel();
	usleep(1);
	glk_store_relaxed(&fate.reached, 2);
	glk_unlock(&device);
	glk_store_relaxed(&fate.reached, 3);
	pthread_testcancel();
	glk_store_relaxed(&fate.reached, 4);
	return arg;
}

static void puts_off(int type, int reaches, const char *name)
{
	pthread_t thread;
	void *end = NULL;

	fate.type = type;
	glk_store_relaxed(&fate.reached, 0);
	pthread_barrier_init(&fate.gate, NULL, 2);
	pthread_create(&thread, NULL, be_cancelled, NULL);
	pthread_barrier_wait(&fate.gate);
	pthread_cancel(thread);
	pthread_barrier_wait(&fate.gate);
	pthread_join(thread, &end);
	ok(end == PTHREAD_CANCELED, "%s: a thread is cancelled", name);
	ok(glk_load_relaxed(&fate.reached) == reaches,
		"%s: behind the unlock of its last lock", name);
	glk_lock(&device);
	glk_lock(&node);
	glk_unlock(&node);
	glk_unlock(&device);
	pthread_barrier_destroy(&fate.gate);
}

static void cancels(void)
{
	tap_expect_log(4);
	restores(PTHREAD_CANCEL_ENABLE, PTHREAD_CANCEL_DEFERRED, "enabled, deferred");
	restores(PTHREAD_CANCEL_ENABLE, PTHREAD_CANCEL_ASYNCHRONOUS, "enabled, any time");
	restores(PTHREAD_CANCEL_DISABLE, PTHREAD_CANCEL_DEFERRED, "disabled, deferred");
	restores(PTHREAD_CANCEL_DISABLE, PTHREAD_CANCEL_ASYNCHRONOUS,
		"disabled, any time");
	puts_off(PTHREAD_CANCEL_DEFERRED, 3, "deferred");
	puts_off(PTHREAD_CANCEL_ASYNCHRONOUS, 2, "any time");
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
	alarm(100);
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
	tap_plan(37);
	glk_lock_init(&device, GLK_RANK_DEVICE);
	glk_lock_init(&node, GLK_RANK_NODE);
	excludes();
	tries();
	holds(CLOCK_MONOTONIC, "wall");
	holds(CLOCK_THREAD_CPUTIME_ID, "cpu");
	untimed();
	waits();
	pauses();
	takes_turns();
	cancels();
	is_int(ends_by(rising), 0, "rising ranks, let go in any order");
	asserted(falling, "a falling rank");
	asserted(twice, "one rank twice");
	asserted(after_unlock, "an outer rank after an inner unlock");
	asserted(not_held, "an unlock of another lock than the one it holds");
	asserted(unlocked_twice, "a second unlock");
	asserted(waits_without, "a wait without the lock");
	asserted(waits_without_for, "or for a time");
	asserted(pauses_without, "or a pause");
	held_at_fork();
	glk_lock_fini(&node);
	glk_lock_fini(&device);
	return tap_done();
}
