/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The calls in which threads wait, or ask what time it is, as the scheduler has them: a thread that would
 * wait gives its turn away until what it waits for may be there, and then makes the call. So the locks are
 * the program's own, and the thread sanitizer knows them.
 */
#include "turn.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define POPULATE_WRITE 23 /* of Linux 5.14 */
#define BARRIERS       64

static struct barrier {
	const void *of;
	unsigned count, came;
	uint64_t round;
} barriers[BARRIERS];

void __tsan_acquire(void *) __attribute__((weak));
void __tsan_release(void *) __attribute__((weak));

/* The calls themselves. */
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
int __real_clock_gettime(clockid_t, struct timespec *);

static int64_t ns_of(const struct timespec *ts)
{
	return (int64_t)ts->tv_sec * 1000000000 + ts->tv_nsec;
}

static struct timespec ts_of(int64_t ns)
{
	return (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
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
		if (until <= turn_now())
			return ETIMEDOUT;
		turn_wait("pthread_mutex_lock", mutex, until);
	}
	return err;
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
	if (!turn_is_ours())
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

	if (!turn_is_alone()) {
		turn_wake(mutex);
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

	turn_cancelled();
	lock_until(w->mutex, NEVER);
}

/* One in 128 wakes for no reason, as POSIX allows. */
static int cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t until)
{
	struct waiting w = {.mutex = mutex};
	int err = 0;

	__real_pthread_mutex_unlock(mutex);
	turn_wake(mutex);
	pthread_cleanup_push(lock_again, &w);
	if (turn_below(128) || turn_is_alone())
		turn_wait_cancellable("pthread_cond_wait", cond, until);
	else
		glk_sched_point();
	err = until <= turn_now() ? ETIMEDOUT : 0;
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
	turn_wake_one(cond);
	glk_sched_point();
	return 0;
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *cond)
{
	turn_wake(cond);
	glk_sched_point();
	return 0;
}

int __wrap_pthread_rwlock_rdlock(pthread_rwlock_t *lock)
{
	int err;

	glk_sched_point();
	while ((err = __real_pthread_rwlock_tryrdlock(lock)) == EBUSY)
		turn_wait("pthread_rwlock_rdlock", lock, NEVER);
	return err;
}

int __wrap_pthread_rwlock_wrlock(pthread_rwlock_t *lock)
{
	int err;

	glk_sched_point();
	while ((err = __real_pthread_rwlock_trywrlock(lock)) == EBUSY)
		turn_wait("pthread_rwlock_wrlock", lock, NEVER);
	return err;
}

int __wrap_pthread_rwlock_unlock(pthread_rwlock_t *lock)
{
	int err = __real_pthread_rwlock_unlock(lock);

	turn_wake(lock);
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
			turn_wait("pthread_once", once, NEVER);
	}
	for (at = 0; at < 15 && inside[at]; at++)
		;
	inside[at] = once;
	err = __real_pthread_once(once, fn);
	inside[at] = NULL;
	turn_wake(once);
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
		turn_wake(b);
		answer = PTHREAD_BARRIER_SERIAL_THREAD;
	}
	while (b->round == round)
		turn_wait("pthread_barrier_wait", b, NEVER);
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
		if (until <= turn_now()) {
			errno = ETIMEDOUT;
			return -1;
		}
		turn_wait_cancellable("sem_wait", sem, until);
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

	turn_wake(sem);
	glk_sched_point();
	return err;
}

/* --- time --- */

static void sleep_ns(int64_t ns)
{
	pthread_testcancel();
	if (turn_is_alone())
		turn_pass(ns > 0 ? ns : 0);
	else
		turn_wait_cancellable("nanosleep", NULL, turn_now() + (ns > 0 ? ns : 0));
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
		ns -= clock == CLOCK_REALTIME ? DATE_NS + turn_now() : turn_now();
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
	if (turn_is_outside())
		return __real_clock_gettime(clock, ret_ts);
	glk_sched_point();
	*ret_ts = ts_of(turn_now() + (clock == CLOCK_REALTIME ? DATE_NS : 0));
	return 0;
}

time_t __wrap_time(time_t *ret_time)
{
	time_t date = (time_t)((turn_now() + DATE_NS) / 1000000000);

	if (ret_time)
		*ret_time = date;
	return date;
}

int __wrap_gettimeofday(struct timeval *ret_time, void *zone)
{
	struct timespec ts = ts_of(turn_now() + DATE_NS);

	(void)zone;
	*ret_time = (struct timeval){.tv_sec = ts.tv_sec, .tv_usec = ts.tv_nsec / 1000};
	return 0;
}

/* --- descriptors --- */

int __wrap_poll(struct pollfd *polled, nfds_t count, int ms)
{
	int64_t until = ms < 0 ? NEVER : turn_now() + (int64_t)ms * 1000000;
	int ready;

	glk_sched_point();
	while (!(ready = __real_poll(polled, count, 0)) && turn_now() < until) {
		if (turn_is_alone() && (turn_has_child() || ms < 0))
			return __real_poll(polled, count, ms);
		if (turn_is_alone()) {
			turn_pass(until - turn_now());
			continue;
		}
		turn_wait_polled(polled, count, until);
	}
	return ready;
}

/* Returns when a call on a descriptor that may wait will not. */
static void wait_fd(int fd, short events, int flags)
{
	struct pollfd polled = {.fd = fd, .events = events};

	if (turn_is_alone() || flags & MSG_DONTWAIT || fcntl(fd, F_GETFL) & O_NONBLOCK)
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

	if (turn_is_alone() || flags & O_NONBLOCK)
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
