/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef FLOW_GUARDED_H
#define FLOW_GUARDED_H

/* What tests of guard share. Memory of the software device is the process's own, so that a test writes where a kernel would. */
#include "context.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

static struct {
	pthread_mutex_t lock;
	int count;
	char last[512];
} said = {.lock = PTHREAD_MUTEX_INITIALIZER};

static inline void hook(int level, const char *line, void *arg)
{
	(void)arg;
	pthread_mutex_lock(&said.lock);
	said.count += level == GLAKE_LOG_ERROR;
	snprintf(said.last, sizeof(said.last), "%s", line);
	pthread_mutex_unlock(&said.lock);
}

static inline struct glake *open_with(const char *const *settings)
{
	said.count = 0;
	said.last[0] = 0;
	return flow_open(settings);
}

/* Bytes that are not what they were, whatever that was. */
static inline void spoil(void *at, size_t size)
{
	for (size_t i = 0; i < size; i++)
		((unsigned char *)at)[i] ^= 0xff;
}

static inline void *given(struct glake *ctx, size_t size)
{
	void *p = flow_alloc(ctx, size, NULL);

	if (!p)
		tap_bail("no block");
	return p;
}

static inline struct glake_finding finding(struct glake *ctx, uint64_t number)
{
	struct glake_finding f = {.sz = sizeof(f)};

	if (glake_finding_get(ctx, 0, number, &f))
		f.kind = 0;
	return f;
}

static inline struct glake_checked checked(struct glake *ctx, int want)
{
	struct glake_checked c = {.sz = sizeof(c)};

	is_int(glake_check(ctx, &c), want,
		want ? "a check says that something is wrong" : "a check finds nothing");
	return c;
}

#define COUNT(a) (sizeof(a) / sizeof(*(a)))

static inline struct glake_described described(struct glake *ctx, const void *p)
{
	struct glake_described d = {.sz = sizeof(d)};

	if (glake_describe(ctx, p, &d))
		tap_bail("no answer");
	return d;
}

static inline size_t grains(size_t size)
{
	return (size + 511) / 512 * 512;
}

/* A kernel of the device that writes so many bytes there: what a GPU would do. */
static inline int kernel(struct glake *ctx, const char *p, size_t size)
{
	return glake_soft_kernel(ctx, 0, NULL, p, size, 1);
}

/* A read by the processor, in a child: the signal that it ends by, or 0. */
static inline int signal_at(char *p)
{
	pid_t pid = flow_fork(60);
	int status;

	if (!pid) {
		/* a sanitizer of addresses has one of its own */
		signal(SIGSEGV, SIG_DFL);
		(void)*(volatile char *)p;
		_exit(0);
	}
	status = flow_wait(pid);
	return status >= 1000 ? status - 1000 : 0;
}

#endif
