/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The log hook of a host that has one lock for everything, as an interpreter has: a thread that
 * holds it calls the library, while another one, inside the library, has something to say and
 * its hook wants that lock. Neither may wait for the other.
 */
#include "context.h"

#include <pthread.h>
#include <semaphore.h>

#define STUCK_S 100

static pthread_mutex_t interpreter = PTHREAD_MUTEX_INITIALIZER;
static sem_t held, wanted;
static struct glake *ctx;
static int lines;

static void hook(int level, const char *line, void *arg)
{
	(void)level;
	(void)line;
	(void)arg;
	if (!lines++)
		sem_post(&wanted);
	pthread_mutex_lock(&interpreter);
	pthread_mutex_unlock(&interpreter);
}

static void *call_with_lock(void *arg)
{
	struct glake_stats stats = {.sz = sizeof(stats)};

	pthread_mutex_lock(&interpreter);
	sem_post(&held);
	sem_wait(&wanted);
	is_int(glake_stats_get(ctx, 0, &stats), 0, "a thread with the lock is answered");
	pthread_mutex_unlock(&interpreter);
	return arg;
}

int main(void)
{
	pthread_t thread;
	void *none = NULL;

	tap_plan_later();
	ctx = flow_open(
		(const char *const[]){"soft.memory=64MiB", "map.span=16GiB", NULL});
	ok(flow_alloc(ctx, 40 * MIB, NULL), "most of the memory is in use");
	sem_init(&held, 0, 0);
	sem_init(&wanted, 0, 0);
	pthread_create(&thread, NULL, call_with_lock, NULL);
	sem_wait(&held);
	glake_log_hook(hook, NULL, GLAKE_LOG_DEBUG);
	alarm(STUCK_S);
	is_int(glake_alloc(ctx, 0, 40 * MIB, NULL, 0, &none), -ENOMEM,
		"one that logs a failure is, too");
	pthread_join(thread, NULL);
	alarm(0);
	ok(lines > 0, "%d lines came", lines);
	glake_log_hook(NULL, NULL, 0);
	flow_close(ctx, 1);
	return tap_done();
}
