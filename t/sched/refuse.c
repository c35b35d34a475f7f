/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * For test programs that load what they test, which the scheduler does not reach: a call by which their
 * result could hang on time or luck ends them, but in a build with -Dreal_time=true, whose tests are told so
 * by GLAKE_TEST_REAL_TIME. tap_moment() is there for a loop that waits for another process.
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define REFUSED(X)                                                                       \
	X(int, clock_gettime, (clockid_t a, struct timespec * b), (a, b))                \
	X(int, clock_nanosleep,                                                          \
		(clockid_t a, int b, const struct timespec *c, struct timespec *d),      \
		(a, b, c, d))                                                            \
	X(ssize_t, getrandom, (void *a, size_t b, unsigned c), (a, b, c))                \
	X(int, gettimeofday, (struct timeval * a, void *b), (a, b))                      \
	X(int, nanosleep, (const struct timespec *a, struct timespec *b), (a, b))        \
	X(int, pthread_cond_timedwait,                                                   \
		(pthread_cond_t * a, pthread_mutex_t * b, const struct timespec *c),     \
		(a, b, c))                                                               \
	X(int, pthread_mutex_timedlock, (pthread_mutex_t * a, const struct timespec *b), \
		(a, b))                                                                  \
	X(int, pthread_timedjoin_np, (pthread_t a, void **b, const struct timespec *c),  \
		(a, b, c))                                                               \
	X(int, sem_timedwait, (sem_t * a, const struct timespec *b), (a, b))             \
	X(unsigned, sleep, (unsigned a), (a))                                            \
	X(time_t, time, (time_t * a), (a))                                               \
	X(int, usleep, (useconds_t a), (a))

static void refuse(const char *name)
{
	if (getenv("GLAKE_TEST_REAL_TIME"))
		return;
	printf("not ok 99998 - a test of the gate calls %s()\n", name);
	fflush(stdout);
	_exit(1);
}

/* clang-format off */
#define X(type, name, params, args)                                                      \
	type __real_##name params;                                                       \
	type __wrap_##name params;                                                       \
	type __wrap_##name params                                                        \
	{                                                                                \
		refuse(#name);                                                           \
		return __real_##name args;                                               \
	}
REFUSED(X)
