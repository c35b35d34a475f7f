/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Threads that copy, or touch: see crew.h. */
#include "tier/io/crew.h"

#include "base/thread.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE                                                              \
	23 /* of Linux 5.14; before, the driver touches what it locks */
#endif

void glk_crew_init(struct glk_crew *crew, const char *name, unsigned threads)
{
	*crew = (struct glk_crew){
		.name = name, .most = threads < GLK_CREW_MOST ? threads : GLK_CREW_MOST};
	glk_lock_init(&crew->lock, GLK_RANK_CREW);
	pthread_cond_init(&crew->posted, NULL);
	pthread_cond_init(&crew->copied, NULL);
}

/* The task leaves the row with its last slice, whoever takes that. */
static void leave_row(struct glk_crew *crew, struct glk_crew_task *task)
{
	struct glk_crew_task **at = &crew->first, *before = NULL;

	for (; *at != task; at = &before->next)
		before = *at;
	*at = task->next;
	if (crew->last == task)
		crew->last = before;
}

/* False: the system has no memory for it. */
static bool treat(const struct glk_crew_task *task, size_t at, size_t bytes)
{
	if (!task->src)
		return !madvise(task->dst + at, bytes, MADV_POPULATE_WRITE) ||
			errno != ENOMEM;
	memcpy(task->dst + at, task->src + at, bytes);
	return true;
}

/* With the lock, which is given up meanwhile. The task has a slice left to take. */
static void take_slice(struct glk_crew *crew, struct glk_crew_task *task)
{
	size_t at = task->taken, bytes = task->bytes - at;
	size_t slice = task->src ? GLK_CREW_SLICE : GLK_CREW_TOUCH;
	bool refused;

	bytes = bytes < slice ? bytes : slice;
	task->taken += bytes;
	if (task->taken == task->bytes)
		leave_row(crew, task);
	glk_unlock(&crew->lock);
	refused = !treat(task, at, bytes);
	glk_lock(&crew->lock);
	task->refused |= refused;
	task->left -= bytes;
	/* it may be gone once its waiter knows */
	if (!task->left)
		pthread_cond_broadcast(&crew->copied);
}

static void let_faults_through(void)
{
	sigset_t faults;

	sigemptyset(&faults);
	sigaddset(&faults, SIGSEGV);
	sigaddset(&faults, SIGBUS);
	pthread_sigmask(SIG_UNBLOCK, &faults, NULL);
}

static void *run(void *arg)
{
	struct glk_crew *crew = arg;

	let_faults_through();
	glk_lock(&crew->lock);
	while (!crew->ended) {
		if (crew->first)
			take_slice(crew, crew->first);
		else
			glk_lock_wait(&crew->lock, &crew->posted);
	}
	glk_unlock(&crew->lock);
	return NULL;
}

static void start(struct glk_crew *crew)
{
	crew->started = true;
	while (crew->threads < crew->most &&
		!glk_thread_start(&crew->thread[crew->threads], crew->name, run, crew))
		crew->threads++;
}

void glk_crew_post(struct glk_crew *crew, struct glk_crew_task *task)
{
	task->taken = 0;
	task->left = task->bytes;
	task->refused = false;
	task->next = NULL;
	glk_lock(&crew->lock);
	if (!crew->started)
		start(crew);
	if (task->bytes) {
		if (crew->first)
			crew->last->next = task;
		else
			crew->first = task;
		crew->last = task;
	}
	pthread_cond_broadcast(&crew->posted);
	glk_unlock(&crew->lock);
}

void glk_crew_wait(struct glk_crew *crew, struct glk_crew_task *task)
{
	glk_lock(&crew->lock);
	while (task->taken < task->bytes)
		take_slice(crew, task);
	while (task->left)
		glk_lock_wait(&crew->lock, &crew->copied);
	glk_unlock(&crew->lock);
}

void glk_crew_fini(struct glk_crew *crew)
{
	glk_lock(&crew->lock);
	crew->ended = true;
	pthread_cond_broadcast(&crew->posted);
	glk_unlock(&crew->lock);
	while (crew->threads)
		pthread_join(crew->thread[--crew->threads], NULL);
	pthread_cond_destroy(&crew->copied);
	pthread_cond_destroy(&crew->posted);
	glk_lock_fini(&crew->lock);
}
