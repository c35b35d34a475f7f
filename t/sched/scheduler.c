/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The tests' scheduler: of a program's threads one runs at a time, and a seed decides which, so that a
 * run with threads is the same each time. It takes the place of the calls that threads wait in, by the
 * linker's --wrap (names in meson.build), and of the clock. A test program that is linked with it sees
 * neither real time nor the scheduling of the machine.
 *
 * Points	A thread may be switched before each lock, wait, atomic operation of base/atomic.h and
 *		call of the driver (the software device locks in each). Between two points it is alone.
 * Choice	By epochs of 2^4 to 2^16 points. An epoch has either random priorities, which fall at one
 *		to four chosen points (PCT: Burckhardt et al., "A Randomized Scheduler with Probabilistic
 *		Guarantees of Finding Bugs", ASPLOS 2010), or a random walk whose strides are drawn once.
 *		A thread that yields, or runs for SLICE points while others could, falls below all.
 * Time		CLOCK_MONOTONIC and its kin go on by TICK_NS a point. Where all threads wait the clock
 *		goes on to the first time that one of them waits for, at once.
 * Files	A thread that waits for a descriptor is looked at with each switch. Where nobody can run
 *		and a child of the process lives, the kernel is waited for: what such a test sees of
 *		other processes is as real as they are.
 * Sanitizer	Threads hand over by a futex of their own, in this file, which is compiled without
 *		instrumentation: the thread sanitizer sees the program's own synchronisation alone, and
 *		reports a race whether or not the two accesses met.
 * End		A deadlock, and a run longer than LONGEST points, fail the program and say who waits
 *		for what. The seed is GLAKE_TEST_SEED, else 1; GLAKE_SCHED_SHOW=1 shows each switch.
 *
 * Addresses are the same in each run: the program starts itself again without randomised ones. Threads
 * that others than the program's own objects start are not scheduled.
 */
#include "turn.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define THREADS	 70000 /* at once: a test has as many as the library keeps records for */
#define BARRIERS 64
#define POLLED	 1100  /* descriptors that threads wait for at once */
#define STUCK_MS 20000 /* of real time in which no other process did anything */
#define TICK_NS	 INT64_C(100)
#define SLICE	 20000
#define LONGEST	 UINT64_C(400000000)
#define START_NS                                                                         \
	INT64_C(1000000000000) /* of CLOCK_MONOTONIC, so that no difference is negative */

enum state {
	FREE,
	READY,
	WAITS, /* for `on`, or a time */
	OVER,  /* nothing of the program runs in it any more */
};

struct thread {
	uint32_t turn; /* futex: it may go on */
	enum state state;
	const void *on;	   /* an object of the program, by its address */
	const char *where; /* the call that it waits in */
	int64_t until;
	struct pollfd *polled;
	nfds_t polled_count;
	bool cancellable, detached;
	int64_t priority;
	uint64_t since; /* the point at which it got its turn */
	int sections;	/* of RCU that it is in */
	int ends;	/* rounds of destructors seen */
	uint32_t place; /* in live[] */
	pthread_t id;
	void *(*fn)(void *);
	void *arg;
};

bool glk_sched_one_thread;
/* Mapped: a search for leaks reads all variables of a program at its end. */
static struct thread *threads;
static uint32_t live[THREADS], live_count, last_slot;
static _Thread_local struct thread *me;
static pthread_key_t end_key;

static struct {
	uint64_t seed, random;
	uint64_t steps; /* points so far */
	uint64_t next;	/* the point at which somebody has to be chosen */
	uint64_t epoch; /* the point at which this one ends */
	uint64_t
		fall[4]; /* points at which the running thread falls, in order; 0: done */
	uint64_t stride; /* mean; 0: by priority */
	int64_t floor;	 /* the lowest priority so far */
	int64_t skew;	 /* ns that the clock has gone on beyond the points */
	bool show, said;
} sched;

/* The calls themselves. */
void __real_urcu_bp_synchronize_rcu(void);
int __real_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int __real_pthread_join(pthread_t, void **);
int __real_pthread_detach(pthread_t);
int __real_pthread_cancel(pthread_t);

/* --- chance and time --- */

static uint64_t draw(void)
{
	uint64_t x = sched.random;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	sched.random = x;
	return (x * UINT64_C(0x2545f4914f6cdd1d)) >> 11;
}

uint64_t turn_below(uint64_t n)
{
	return draw() % n;
}

int64_t turn_now(void)
{
	return START_NS + sched.skew + (int64_t)sched.steps * TICK_NS;
}

void turn_pass(int64_t ns)
{
	sched.skew += ns;
}

static int64_t ns_of(const struct timespec *ts)
{
	return (int64_t)ts->tv_sec * 1000000000 + ts->tv_nsec;
}

uint64_t glk_sched_seed(void)
{
	return sched.seed;
}

/* --- whose turn it is --- */

static void futex(uint32_t *word, int op, uint32_t value)
{
	syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

static __attribute__((noreturn)) void give_up(const char *why)
{
	fflush(stdout);
	printf("not ok 99999 - %s at point %lu\n# GLAKE_TEST_SEED=%lu\n", why,
		(unsigned long)sched.steps, (unsigned long)sched.seed);
	for (uint32_t i = 0; i < live_count && i < 40; i++) {
		struct thread *t = &threads[live[i]];

		printf("# thread %u %s %s %p%s\n", live[i],
			t->state == WAITS ? "waits in" : "can run",
			t->state == WAITS ? t->where : "", t->on,
			t == me ? ", this one" : "");
	}
	fflush(stdout);
	_exit(1);
}

/* The kernel's answer, without the sanitizer: what is polled is of the thread that waits. */
static int poll_now(const struct pollfd *polled, nfds_t count, int ms)
{
	struct timespec most = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
	struct pollfd copy[POLLED];

	if (count > POLLED)
		give_up("too many descriptors are waited for");
	for (nfds_t i = 0; i < count; i++) /* memcpy() is the sanitizer's too */
		copy[i] = polled[i];
	return (int)syscall(SYS_ppoll, copy, count, &most, NULL, 0);
}

static void hand_over(struct thread *to)
{
	struct thread *from = me;
	bool is_over = from->state == OVER || from->state == FREE;

	if (to == from)
		return;
	if (sched.show)
		fprintf(stderr, "# %lu: thread %u to %u\n", (unsigned long)sched.steps,
			(unsigned)(from - threads), (unsigned)(to - threads));
	to->since = sched.steps;
	__atomic_store_n(&to->turn, 1, __ATOMIC_RELEASE);
	futex(&to->turn, FUTEX_WAKE, 1);
	if (is_over)
		return;
	while (!__atomic_load_n(&from->turn, __ATOMIC_ACQUIRE))
		futex(&from->turn, FUTEX_WAIT, 0);
	__atomic_store_n(&from->turn, 0, __ATOMIC_RELAXED);
}

static void set_ready(struct thread *t)
{
	t->state = READY;
	sched.next = 0;
}

void turn_wake(const void *on)
{
	for (uint32_t i = 0; i < live_count; i++) {
		struct thread *t = &threads[live[i]];

		if (t->state == WAITS && t->on == on)
			set_ready(t);
	}
}

/* One of those that wait, any of them. */
void turn_wake_one(const void *on)
{
	struct thread *chosen = NULL;
	uint64_t count = 0;

	for (uint32_t i = 0; i < live_count; i++) {
		struct thread *t = &threads[live[i]];

		if (t->state == WAITS && t->on == on && !turn_below(++count))
			chosen = t;
	}
	if (chosen)
		set_ready(chosen);
}

/* Those whose time has come, and whose descriptors are ready; the first time that is to come. */
static int64_t wake_due(void)
{
	int64_t first = NEVER;

	for (uint32_t i = 0; i < live_count; i++) {
		struct thread *t = &threads[live[i]];

		if (t->state != WAITS)
			continue;
		if (t->until <= turn_now() ||
			(t->polled && poll_now(t->polled, t->polled_count, 0) != 0))
			set_ready(t);
		else if (t->until < first)
			first = t->until;
	}
	return first;
}

static void begin_epoch(void)
{
	int falls = (int)(1 + turn_below(4));
	uint64_t length = UINT64_C(1) << (4 + turn_below(13));

	sched.epoch = sched.steps + length;
	sched.stride = turn_below(2) ? UINT64_C(1) << turn_below(8) : 0;
	sched.floor = 0;
	for (uint32_t i = 0; i < live_count; i++)
		threads[live[i]].priority = (int64_t)turn_below(1 << 20);
	for (int i = 0; i < 4; i++)
		sched.fall[i] = i < falls ? sched.steps + 1 + turn_below(length) : 0;
}

static void fall(struct thread *t)
{
	t->priority = --sched.floor;
}

static struct thread *choose(void)
{
	struct thread *best = NULL;
	uint64_t count = 0;

	for (uint32_t i = 0; i < live_count; i++) {
		struct thread *t = &threads[live[i]];

		if (t->state != READY)
			continue;
		count++;
		if (!best ||
			(sched.stride ? !turn_below(count)
				      : t->priority > best->priority))
			best = t;
	}
	return best;
}

bool turn_has_child(void)
{
	siginfo_t info;

	return !waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT | __WALL);
}

/* Nobody can run. What another process may do takes real time, at most until the first time that a thread
 * waits for; else the clock goes on to that at once. */
static void pass_time(int64_t first)
{
	struct pollfd all[POLLED];
	nfds_t count = 0;

	for (uint32_t i = 0; i < live_count; i++) {
		struct thread *t = &threads[live[i]];

		for (nfds_t k = 0; t->state == WAITS && t->polled && k < t->polled_count;
			k++)
			if (count < POLLED)
				all[count++] = t->polled[k];
	}
	if (count && (first == NEVER || turn_has_child())) {
		int64_t ms =
			first == NEVER ? STUCK_MS : (first - turn_now()) / 1000000 + 1;

		if (poll_now(all, count, (int)(ms < STUCK_MS ? ms : STUCK_MS)))
			return;
	}
	if (first == NEVER)
		give_up("all threads wait");
	sched.skew += first - turn_now();
}

/* Somebody is chosen, and the caller goes on when it is its turn again. */
static void turn(void)
{
	int64_t first = wake_due();
	struct thread *to;

	if (sched.steps > LONGEST)
		give_up("no end");
	if (sched.steps >= sched.epoch)
		begin_epoch();
	for (int i = 0; i < 4; i++) {
		if (sched.fall[i] && sched.fall[i] <= sched.steps) {
			fall(me);
			sched.fall[i] = 0;
		}
	}
	if (me->state == READY && sched.steps - me->since > SLICE) {
		fall(me);
		me->since = sched.steps;
	}
	while (!(to = choose())) {
		pass_time(first);
		first = wake_due();
	}
	sched.next = sched.steps +
		(sched.stride ? 1 + turn_below(2 * sched.stride) : (uint64_t)SLICE);
	if (sched.next > sched.epoch)
		sched.next = sched.epoch;
	for (int i = 0; !sched.stride && i < 4; i++)
		if (sched.fall[i] && sched.fall[i] < sched.next)
			sched.next = sched.fall[i];
	if (first != NEVER &&
		sched.next > sched.steps + (uint64_t)((first - turn_now()) / TICK_NS) + 1)
		sched.next = sched.steps + (uint64_t)((first - turn_now()) / TICK_NS) + 1;
	hand_over(to);
}

void glk_sched_point(void)
{
	if (!me)
		return;
	sched.steps++;
	if (sched.steps < sched.next || live_count < 2)
		return;
	turn();
}

/* Waits for an object, a time, or descriptors. */
void turn_wait(const char *where, const void *on, int64_t until)
{
	me->state = WAITS;
	me->where = where;
	me->on = on;
	me->until = until;
	sched.steps++;
	turn();
	me->on = NULL;
	me->polled = NULL;
	me->until = NEVER;
}

/* The same at a point of cancellation; the caller holds nothing. */
void turn_wait_cancellable(const char *where, const void *on, int64_t until)
{
	pthread_testcancel();
	me->cancellable = true;
	turn_wait(where, on, until);
	me->cancellable = false;
	pthread_testcancel();
}

void turn_wait_polled(struct pollfd *polled, nfds_t count, int64_t until)
{
	me->polled = polled;
	me->polled_count = count;
	turn_wait_cancellable("poll", NULL, until);
}

void turn_cancelled(void)
{
	me->cancellable = false;
	me->on = NULL;
	me->polled = NULL;
	me->until = NEVER;
}

bool turn_is_ours(void)
{
	return me;
}

bool turn_is_outside(void)
{
	return !me && live_count;
}

bool turn_is_alone(void)
{
	return !me || live_count < 2;
}

bool glk_sched_fails(void)
{
	return !turn_is_alone() && !turn_below(64);
}

static bool is_another_ready(void)
{
	for (uint32_t i = 0; i < live_count; i++)
		if (&threads[live[i]] != me && threads[live[i]].state == READY)
			return true;
	return false;
}

/* Where nobody else can run, what the caller waits for is a time that another thread waits for. */
int __wrap_sched_yield(void)
{
	int64_t first;

	sched.steps++;
	if (turn_is_alone())
		return 0;
	fall(me);
	first = is_another_ready() ? NEVER : wake_due();
	if (first != NEVER)
		sched.skew += first - turn_now();
	turn();
	return 0;
}

/* --- RCU --- */

void glk_sched_section(int step)
{
	if (!me)
		return;
	me->sections += step;
	if (step < 0 && !me->sections)
		turn_wake(threads);
}

/* A grace period: until all sections that are open now have ended. Those that are entered meanwhile end
 * before liburcu is asked too, or it would wait for a thread whose turn does not come. */
void __wrap_urcu_bp_synchronize_rcu(void)
{
	bool open = me;

	glk_sched_point();
	while (open) {
		open = false;
		for (uint32_t i = 0; i < live_count; i++)
			open |= &threads[live[i]] != me && threads[live[i]].sections > 0;
		if (open)
			turn_wait("synchronize_rcu", threads, NEVER);
	}
	__real_urcu_bp_synchronize_rcu();
	glk_sched_point();
}

/* --- lives of threads --- */

static struct thread *add_thread(void)
{
	struct thread *t = NULL;

	for (uint32_t i = 0; i < THREADS && !t; i++) {
		last_slot = (last_slot + 1) % THREADS;
		if (threads[last_slot].state == FREE)
			t = &threads[last_slot];
	}
	if (!t)
		return NULL;
	memset(t, 0, sizeof(*t));
	t->state = READY;
	t->until = NEVER;
	t->priority = (int64_t)turn_below(1 << 20);
	t->place = live_count;
	live[live_count++] = (uint32_t)(t - threads);
	return t;
}

static void drop_thread(struct thread *t)
{
	live[t->place] = live[--live_count];
	threads[live[t->place]].place = t->place;
}

/* Destructors of the program run in the first rounds: in the third the thread has none. */
static void end_thread(void *arg)
{
	struct thread *t = arg;

	if (++t->ends < 3 && !pthread_setspecific(end_key, t))
		return;
	t->state = t->detached ? FREE : OVER;
	drop_thread(t);
	turn_wake(t);
	turn();
	me = NULL;
}

static void *run_thread(void *arg)
{
	struct thread *t = arg;

	me = t;
	pthread_setspecific(end_key, t);
	while (!__atomic_load_n(&t->turn, __ATOMIC_ACQUIRE))
		futex(&t->turn, FUTEX_WAIT, 0);
	__atomic_store_n(&t->turn, 0, __ATOMIC_RELAXED);
	return t->fn(t->arg);
}

static struct thread *find_thread(pthread_t id)
{
	for (uint32_t i = 0; i < live_count; i++)
		if (pthread_equal(threads[live[i]].id, id))
			return &threads[live[i]];
	for (uint32_t i = 0; i < THREADS; i++)
		if (threads[i].state == OVER && !threads[i].detached &&
			pthread_equal(threads[i].id, id))
			return &threads[i];
	return NULL;
}

int __wrap_pthread_create(
	pthread_t *ret_id, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
	int detached = PTHREAD_CREATE_JOINABLE, err;
	struct thread *t;

	if (!me)
		return __real_pthread_create(ret_id, attr, fn, arg);
	if (glk_sched_one_thread)
		give_up("a test of one thread has started another: it belongs to unit_threads");
	if (!sched.said)
		printf("# GLAKE_TEST_SEED=%lu\n", (unsigned long)sched.seed);
	sched.said = true;
	t = add_thread();
	if (!t)
		return EAGAIN;
	if (attr)
		pthread_attr_getdetachstate(attr, &detached);
	t->detached = detached == PTHREAD_CREATE_DETACHED;
	t->fn = fn;
	t->arg = arg;
	err = __real_pthread_create(&t->id, attr, run_thread, t);
	if (err) {
		drop_thread(t);
		t->state = FREE;
		return err;
	}
	*ret_id = t->id;
	sched.next = 0;
	glk_sched_point();
	return 0;
}

static int join(pthread_t id, void **ret_value, int64_t until)
{
	struct thread *t = me ? find_thread(id) : NULL;
	int err;

	while (t && t->state != OVER) {
		if (until <= turn_now())
			return ETIMEDOUT;
		turn_wait_cancellable("pthread_join", t, until);
	}
	err = __real_pthread_join(id, ret_value);
	if (t && !err)
		t->state = FREE;
	return err;
}

int __wrap_pthread_join(pthread_t id, void **ret_value)
{
	return join(id, ret_value, NEVER);
}

int __wrap_pthread_timedjoin_np(
	pthread_t id, void **ret_value, const struct timespec *date)
{
	return join(id, ret_value, ns_of(date) - DATE_NS);
}

int __wrap_pthread_detach(pthread_t id)
{
	struct thread *t = me ? find_thread(id) : NULL;

	if (t && t->state == OVER)
		t->state = FREE;
	else if (t)
		t->detached = true;
	return __real_pthread_detach(id);
}

int __wrap_pthread_cancel(pthread_t id)
{
	struct thread *t = me ? find_thread(id) : NULL;
	int err = __real_pthread_cancel(id);

	if (t && t->state == WAITS && t->cancellable)
		set_ready(t);
	glk_sched_point();
	return err;
}

/* --- processes --- */

/* A child has the thread that made it. */
static void be_child(void)
{
	for (uint32_t i = 0; i < live_count; i++)
		if (&threads[live[i]] != me)
			threads[live[i]].state = FREE;
	live_count = 0;
	if (me) {
		me->place = 0;
		live[live_count++] = (uint32_t)(me - threads);
	}
}

static __attribute__((constructor)) void start(int argc, char **argv)
{
	const char *seed = getenv("GLAKE_TEST_SEED"), *preload = getenv("LD_PRELOAD");
	int old = personality(0xffffffff);

	(void)argc;
	if (old != -1 && !(old & ADDR_NO_RANDOMIZE) && !getenv("GLAKE_SCHED_AGAIN") &&
		!(preload && strstr(preload, "vgpreload")) &&
		personality((unsigned long)old | ADDR_NO_RANDOMIZE) != -1) {
		setenv("GLAKE_SCHED_AGAIN", "1", 1);
		execv("/proc/self/exe", argv);
	}
	unsetenv("GLAKE_SCHED_AGAIN");
	sched.seed = seed ? strtoull(seed, NULL, 0) : 1;
	sched.random = (sched.seed * UINT64_C(0x9e3779b97f4a7c15)) | 1;
	draw();
	sched.show = getenv("GLAKE_SCHED_SHOW");
	pthread_key_create(&end_key, end_thread);
	pthread_atfork(NULL, NULL, be_child);
	threads = mmap(NULL, THREADS * sizeof(*threads), PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (threads == MAP_FAILED)
		give_up("no memory for the threads");
	me = add_thread();
	me->id = pthread_self();
	begin_epoch();
}
