/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The tests' scheduler: of a program's threads one runs at a time, and a seed decides which, so that a
 * run with threads is the same each time. It takes the place of the calls that threads wait in, by the
 * linker's --wrap (names in meson.build), and of the clock. A test program that is linked with it sees
 * neither real time nor the scheduling of the machine.
 *
 * Points	A thread may be switched before each lock, wait, atomic operation of base/atomic.h and
 *		call of the driver (the software device locks in each). Between two points it is alone.
 * Choice	By epochs of 2^8 to 2^16 points. An epoch has either random priorities, which fall at one
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
#include "scheduler.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define POPULATE_WRITE 23 /* of Linux 5.14 */
#define THREADS	       70000 /* at once: a test has as many as the library keeps records for */
#define BARRIERS       64
#define POLLED	       1100 /* descriptors that threads wait for at once */
#define TICK_NS	       INT64_C(100)
#define SLICE	       20000
#define LONGEST	       UINT64_C(400000000)
#define NEVER	       INT64_MAX
#define START_NS                                                                         \
	INT64_C(1000000000000) /* of CLOCK_MONOTONIC, so that no difference is negative */
#define DATE_NS INT64_C(1800000000000000000) /* of CLOCK_REALTIME */

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
	bool cancellable, cancelled, detached;
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
static struct thread threads[THREADS];
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

static struct barrier {
	const void *of;
	unsigned count, came;
	uint64_t round;
} barriers[BARRIERS];

void __tsan_acquire(void *) __attribute__((weak));
void __tsan_release(void *) __attribute__((weak));

/* The calls themselves. */
int __real_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int __real_pthread_join(pthread_t, void **);
int __real_pthread_detach(pthread_t);
int __real_pthread_cancel(pthread_t);
int __real_pthread_mutex_lock(pthread_mutex_t *);
int __real_pthread_mutex_trylock(pthread_mutex_t *);
int __real_pthread_mutex_unlock(pthread_mutex_t *);
int __real_pthread_rwlock_tryrdlock(pthread_rwlock_t *);
int __real_pthread_rwlock_trywrlock(pthread_rwlock_t *);
int __real_pthread_rwlock_unlock(pthread_rwlock_t *);
int __real_pthread_once(pthread_once_t *, void (*)(void));
int __real_sem_trywait(sem_t *);
int __real_sem_post(sem_t *);
int __real_poll(struct pollfd *, nfds_t, int);
ssize_t __real_read(int, void *, size_t);
ssize_t __real_recv(int, void *, size_t, int);
ssize_t __real_recvmsg(int, struct msghdr *, int);
ssize_t __real_send(int, const void *, size_t, int);
ssize_t __real_sendmsg(int, const struct msghdr *, int);
int __real_accept4(int, struct sockaddr *, socklen_t *, int);
int __real_madvise(void *, size_t, int);
int __real_connect(int, const struct sockaddr *, socklen_t);
void __real_urcu_bp_synchronize_rcu(void);
int __real_clock_gettime(clockid_t, struct timespec *);

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

static uint64_t below(uint64_t n)
{
	return draw() % n;
}

static int64_t now(void)
{
	return START_NS + sched.skew + (int64_t)sched.steps * TICK_NS;
}

static int64_t ns_of(const struct timespec *ts)
{
	return (int64_t)ts->tv_sec * 1000000000 + ts->tv_nsec;
}

static struct timespec ts_of(int64_t ns)
{
	return (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
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

static void wake(const void *on)
{
	for (uint32_t i = 0; i < live_count; i++) {
		struct thread *t = &threads[live[i]];

		if (t->state == WAITS && t->on == on)
			set_ready(t);
	}
}

/* One of those that wait, any of them. */
static void wake_one(const void *on)
{
	struct thread *chosen = NULL;
	uint64_t count = 0;

	for (uint32_t i = 0; i < live_count; i++) {
		struct thread *t = &threads[live[i]];

		if (t->state == WAITS && t->on == on && !below(++count))
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
		if (t->until <= now() ||
			(t->polled && poll_now(t->polled, t->polled_count, 0) != 0))
			set_ready(t);
		else if (t->until < first)
			first = t->until;
	}
	return first;
}

static void begin_epoch(void)
{
	int falls = (int)(1 + below(4));
	uint64_t length = UINT64_C(1) << (8 + below(9));

	sched.epoch = sched.steps + length;
	sched.stride = below(2) ? UINT64_C(1) << (1 + below(8)) : 0;
	sched.floor = 0;
	for (uint32_t i = 0; i < live_count; i++)
		threads[live[i]].priority = (int64_t)below(1 << 20);
	for (int i = 0; i < 4; i++)
		sched.fall[i] = i < falls ? sched.steps + 1 + below(length) : 0;
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
			(sched.stride ? !below(count) : t->priority > best->priority))
			best = t;
	}
	return best;
}

static bool has_child(void)
{
	siginfo_t info;

	return !waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT | __WALL);
}

/* Nobody can run: time goes on, or the kernel is asked. */
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
	/* what another process does takes real time */
	if (count && (has_child() || first == NEVER)) {
		int64_t ms = first == NEVER ? 20000 : (first - now()) / 1000000 + 1;

		if (poll_now(all, count, (int)(ms > 20000 ? 20000 : ms)) != 0 ||
			first != NEVER) {
			if (first != NEVER && !poll_now(all, count, 0))
				sched.skew += first - now();
			return;
		}
	}
	if (first == NEVER)
		give_up("all threads wait");
	sched.skew += first - now();
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
	if (sched.stride && to == me && live_count > 1 &&
		sched.steps - me->since >= SLICE)
		me->since = sched.steps;
	sched.next = sched.steps +
		(sched.stride ? 1 + below(2 * sched.stride) : (uint64_t)SLICE);
	if (sched.next > sched.epoch)
		sched.next = sched.epoch;
	for (int i = 0; !sched.stride && i < 4; i++)
		if (sched.fall[i] && sched.fall[i] < sched.next)
			sched.next = sched.fall[i];
	if (first != NEVER &&
		sched.next > sched.steps + (uint64_t)((first - now()) / TICK_NS) + 1)
		sched.next = sched.steps + (uint64_t)((first - now()) / TICK_NS) + 1;
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
static void wait_in(const char *where, const void *on, int64_t until)
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
static void wait_cancellable(const char *where, const void *on, int64_t until)
{
	pthread_testcancel();
	me->cancellable = true;
	wait_in(where, on, until);
	me->cancellable = false;
	pthread_testcancel();
}

static bool is_alone(void)
{
	return !me || live_count < 2;
}

bool glk_sched_fails(void)
{
	return !is_alone() && !below(64);
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
	t->priority = (int64_t)below(1 << 20);
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
	wake(t);
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
		if (until <= now())
			return ETIMEDOUT;
		wait_cancellable("pthread_join", t, until);
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

/* --- locks and conditions --- */

int __wrap_pthread_mutex_trylock(pthread_mutex_t *mutex)
{
	glk_sched_point();
	return __real_pthread_mutex_trylock(mutex);
}

static int lock_until(pthread_mutex_t *mutex, int64_t until)
{
	int err;

	while ((err = __real_pthread_mutex_trylock(mutex)) == EBUSY) {
		if (until <= now())
			return ETIMEDOUT;
		wait_in("pthread_mutex_lock", mutex, until);
	}
	return err;
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
	if (!me)
		return __real_pthread_mutex_lock(mutex);
	glk_sched_point();
	return lock_until(mutex, NEVER);
}

int __wrap_pthread_mutex_timedlock(pthread_mutex_t *mutex, const struct timespec *date)
{
	glk_sched_point();
	return lock_until(mutex, ns_of(date) - DATE_NS);
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex)
{
	int err = __real_pthread_mutex_unlock(mutex);

	if (me && live_count > 1) {
		wake(mutex);
		glk_sched_point();
	}
	return err;
}

struct waiting {
	pthread_mutex_t *mutex;
};

static void lock_again(void *arg)
{
	struct waiting *w = arg;

	me->cancellable = false;
	me->on = NULL;
	lock_until(w->mutex, NEVER);
}

/* One in 128 wakes for no reason, as POSIX allows. */
static int cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t until)
{
	struct waiting w = {.mutex = mutex};
	int err = 0;

	__real_pthread_mutex_unlock(mutex);
	wake(mutex);
	pthread_cleanup_push(lock_again, &w);
	if (below(128) || is_alone())
		wait_cancellable("pthread_cond_wait", cond, until);
	else
		turn();
	err = until <= now() ? ETIMEDOUT : 0;
	pthread_cleanup_pop(1);
	return err;
}

int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
	return cond_wait(cond, mutex, NEVER);
}

/* The library's and the tests' conditions are told by CLOCK_MONOTONIC, or by the date. */
int __wrap_pthread_cond_timedwait(
	pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *when)
{
	int64_t until = ns_of(when);

	return cond_wait(cond, mutex, until >= DATE_NS ? until - DATE_NS : until);
}

int __wrap_pthread_cond_signal(pthread_cond_t *cond)
{
	wake_one(cond);
	glk_sched_point();
	return 0;
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *cond)
{
	wake(cond);
	glk_sched_point();
	return 0;
}

int __wrap_pthread_rwlock_rdlock(pthread_rwlock_t *lock)
{
	int err;

	glk_sched_point();
	while ((err = __real_pthread_rwlock_tryrdlock(lock)) == EBUSY)
		wait_in("pthread_rwlock_rdlock", lock, NEVER);
	return err;
}

int __wrap_pthread_rwlock_wrlock(pthread_rwlock_t *lock)
{
	int err;

	glk_sched_point();
	while ((err = __real_pthread_rwlock_trywrlock(lock)) == EBUSY)
		wait_in("pthread_rwlock_wrlock", lock, NEVER);
	return err;
}

int __wrap_pthread_rwlock_unlock(pthread_rwlock_t *lock)
{
	int err = __real_pthread_rwlock_unlock(lock);

	wake(lock);
	glk_sched_point();
	return err;
}

/* A thread that is inside of the function may be switched: others wait here and not in the call. */
int __wrap_pthread_once(pthread_once_t *once, void (*fn)(void))
{
	static const void *inside[16];
	int at = 0, err;

	glk_sched_point();
	while (at < 16) {
		for (at = 0; at < 16 && inside[at] != once; at++)
			;
		if (at < 16)
			wait_in("pthread_once", once, NEVER);
	}
	for (at = 0; at < 15 && inside[at]; at++)
		;
	inside[at] = once;
	err = __real_pthread_once(once, fn);
	inside[at] = NULL;
	wake(once);
	return err;
}

static struct barrier *find_barrier(const void *of)
{
	for (int i = 0; i < BARRIERS; i++)
		if (barriers[i].of == of)
			return &barriers[i];
	return NULL;
}

int __wrap_pthread_barrier_init(
	pthread_barrier_t *barrier, const pthread_barrierattr_t *attr, unsigned count)
{
	struct barrier *b = find_barrier(barrier);

	(void)attr;
	b = b ? b : find_barrier(NULL);
	if (!b)
		return ENOMEM;
	*b = (struct barrier){.of = barrier, .count = count};
	return 0;
}

int __wrap_pthread_barrier_destroy(pthread_barrier_t *barrier)
{
	struct barrier *b = find_barrier(barrier);

	if (b)
		b->of = NULL;
	return b ? 0 : EINVAL;
}

int __wrap_pthread_barrier_wait(pthread_barrier_t *barrier)
{
	struct barrier *b = find_barrier(barrier);
	uint64_t round = b->round;
	int answer = 0;

	if (__tsan_release)
		__tsan_release(barrier);
	glk_sched_point();
	if (++b->came == b->count) {
		b->came = 0;
		b->round++;
		wake(b);
		answer = PTHREAD_BARRIER_SERIAL_THREAD;
	}
	while (b->round == round)
		wait_in("pthread_barrier_wait", b, NEVER);
	if (__tsan_acquire)
		__tsan_acquire(barrier);
	glk_sched_point();
	return answer;
}

static int sem_until(sem_t *sem, int64_t until)
{
	glk_sched_point();
	while (__real_sem_trywait(sem)) {
		if (errno != EAGAIN)
			return -1;
		if (until <= now()) {
			errno = ETIMEDOUT;
			return -1;
		}
		wait_cancellable("sem_wait", sem, until);
	}
	return 0;
}

int __wrap_sem_wait(sem_t *sem)
{
	return sem_until(sem, NEVER);
}

int __wrap_sem_timedwait(sem_t *sem, const struct timespec *date)
{
	return sem_until(sem, ns_of(date) - DATE_NS);
}

int __wrap_sem_post(sem_t *sem)
{
	int err = __real_sem_post(sem);

	wake(sem);
	glk_sched_point();
	return err;
}

/* --- RCU --- */

void glk_sched_section(int step)
{
	if (!me)
		return;
	me->sections += step;
	if (step < 0 && !me->sections)
		wake(&threads);
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
			wait_in("synchronize_rcu", &threads, NEVER);
	}
	__real_urcu_bp_synchronize_rcu();
	glk_sched_point();
}

/* --- time --- */

int __wrap_sched_yield(void)
{
	if (is_alone()) {
		sched.steps++;
		return 0;
	}
	fall(me);
	sched.steps++;
	/* nobody else can run: what this one waits for is a time that another waits for */
	for (uint32_t i = 0; i < live_count; i++)
		if (&threads[live[i]] != me && threads[live[i]].state == READY) {
			turn();
			return 0;
		}
	{
		int64_t first = wake_due();

		if (first != NEVER && first > now())
			sched.skew += first - now();
	}
	turn();
	return 0;
}

static void sleep_ns(int64_t ns)
{
	pthread_testcancel();
	if (is_alone())
		sched.skew += ns > 0 ? ns : 0;
	else
		wait_cancellable("nanosleep", NULL, now() + (ns > 0 ? ns : 0));
}

int __wrap_nanosleep(const struct timespec *ts, struct timespec *ret_left)
{
	int64_t ns = ns_of(ts);

	if (ret_left)
		*ret_left = (struct timespec){0}; /* may be the same */
	sleep_ns(ns);
	return 0;
}

int __wrap_clock_nanosleep(
	clockid_t clock, int flags, const struct timespec *ts, struct timespec *ret_left)
{
	int64_t ns = ns_of(ts);

	(void)ret_left;
	if (flags & TIMER_ABSTIME)
		ns -= clock == CLOCK_REALTIME ? DATE_NS + now() : now();
	sleep_ns(ns);
	return 0;
}

int __wrap_usleep(useconds_t us)
{
	sleep_ns((int64_t)us * 1000);
	return 0;
}

unsigned __wrap_sleep(unsigned seconds)
{
	sleep_ns((int64_t)seconds * 1000000000);
	return 0;
}

int __wrap_pause(void)
{
	for (;;)
		sleep_ns(INT64_C(3600) * 1000000000);
}

/* Also of processors: a thread's own time is the time of all. */
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_ts)
{
	if (!me && live_count)
		return __real_clock_gettime(clock, ret_ts);
	glk_sched_point();
	*ret_ts = ts_of(now() + (clock == CLOCK_REALTIME ? DATE_NS : 0));
	return 0;
}

time_t __wrap_time(time_t *ret_time)
{
	time_t date = (time_t)((now() + DATE_NS) / 1000000000);

	if (ret_time)
		*ret_time = date;
	return date;
}

int __wrap_gettimeofday(struct timeval *ret_time, void *zone)
{
	struct timespec ts = ts_of(now() + DATE_NS);

	(void)zone;
	*ret_time = (struct timeval){.tv_sec = ts.tv_sec, .tv_usec = ts.tv_nsec / 1000};
	return 0;
}

/* --- descriptors --- */

int __wrap_poll(struct pollfd *polled, nfds_t count, int ms)
{
	int64_t until = ms < 0 ? NEVER : now() + (int64_t)ms * 1000000;
	int ready;

	glk_sched_point();
	while (!(ready = __real_poll(polled, count, 0)) && now() < until) {
		if (is_alone() && (has_child() || ms < 0))
			return __real_poll(polled, count, ms);
		if (is_alone()) {
			sched.skew += until - now();
			continue;
		}
		me->polled = polled;
		me->polled_count = count;
		wait_cancellable("poll", NULL, until);
	}
	return ready;
}

/* Returns when a call on a descriptor that may wait will not. */
static void wait_fd(int fd, short events, int flags)
{
	struct pollfd polled = {.fd = fd, .events = events};

	if (is_alone() || flags & MSG_DONTWAIT || fcntl(fd, F_GETFL) & O_NONBLOCK)
		return;
	__wrap_poll(&polled, 1, -1);
}

ssize_t __wrap_read(int fd, void *to, size_t size)
{
	wait_fd(fd, POLLIN, 0);
	return __real_read(fd, to, size);
}

ssize_t __wrap_recv(int fd, void *to, size_t size, int flags)
{
	wait_fd(fd, POLLIN, flags);
	return __real_recv(fd, to, size, flags);
}

ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags)
{
	wait_fd(fd, POLLIN, flags);
	return __real_recvmsg(fd, message, flags);
}

ssize_t __wrap_send(int fd, const void *from, size_t size, int flags)
{
	wait_fd(fd, POLLOUT, flags);
	return __real_send(fd, from, size, flags);
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags)
{
	wait_fd(fd, POLLOUT, flags);
	return __real_sendmsg(fd, message, flags);
}

int __wrap_accept4(int fd, struct sockaddr *from, socklen_t *size, int flags)
{
	wait_fd(fd, POLLIN, 0);
	return __real_accept4(fd, from, size, flags);
}

/* Where too many wait to be accepted the caller has to let who accepts go on. */
int __wrap_connect(int fd, const struct sockaddr *to, socklen_t size)
{
	int flags = fcntl(fd, F_GETFL), tries = 0, err, saved;

	if (is_alone() || flags & O_NONBLOCK)
		return __real_connect(fd, to, size);
	fcntl(fd, F_SETFL, flags | O_NONBLOCK);
	while ((err = __real_connect(fd, to, size)) && errno == EAGAIN && tries++ < 20000)
		sleep_ns(1000000);
	saved = errno;
	fcntl(fd, F_SETFL, flags);
	errno = saved;
	return err;
}

/* --- memory --- */

bool glk_sched_real_memory;

/* What is touched ahead comes when it is used, in small pages, where a test does not look: most use little
 * of what the library makes ready, and a machine may take a second for a GiB. */
int __wrap_madvise(void *at, size_t size, int advice)
{
	if (!glk_sched_real_memory &&
		(advice == POPULATE_WRITE || advice == MADV_HUGEPAGE))
		return 0;
	return __real_madvise(at, size, advice);
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
	me = add_thread();
	me->id = pthread_self();
	begin_epoch();
}
