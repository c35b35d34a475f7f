/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Threads touch memory: see touch.h. */
#include "tier/touch.h"

#include "base/error.h"
#include "base/thread.h"

#include <errno.h>
#include <sched.h>
#include <sys/mman.h>

#define SLICE GLK_TOUCH_SLICE

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE                                                              \
	23 /* of Linux 5.14; before, the driver touches what it locks */
#endif

/* The next slice, if there is one; with the lock, which is given up meanwhile. */
static bool touch_one(struct glk_touch *t)
{
	uint32_t slice = t->next, piece;
	size_t at, size;
	bool refused;

	if (slice == t->slices)
		return false;
	t->next++;
	piece = slice / t->each;
	at = slice % t->each * SLICE;
	size = t->size - at < SLICE ? t->size - at : SLICE;
	glk_unlock(&t->lock);
	refused = madvise(t->base[piece] + at, size, MADV_POPULATE_WRITE) &&
		errno == ENOMEM;
	glk_lock(&t->lock);
	t->refused[piece] |= refused;
	if (!--t->left[piece])
		pthread_cond_broadcast(&t->touched);
	return true;
}

static void *run(void *arg)
{
	struct glk_touch *t = arg;

	glk_lock(&t->lock);
	while (touch_one(t))
		;
	glk_unlock(&t->lock);
	return NULL;
}

/* One for each processor that the process has beside the caller's, and four slices. */
static unsigned threads_for(uint32_t slices, unsigned most)
{
	unsigned wanted = slices / 4;
	cpu_set_t cpus;

	if (most > GLK_TOUCH_THREADS)
		most = GLK_TOUCH_THREADS;
	if (wanted > most)
		wanted = most;
	/* more processors than the set has room for are enough */
	if (!sched_getaffinity(0, sizeof(cpus), &cpus) &&
		wanted > (unsigned)CPU_COUNT(&cpus) - 1)
		wanted = (unsigned)CPU_COUNT(&cpus) - 1;
	return wanted;
}

void glk_touch_begin(struct glk_touch *t, char *const *base, uint32_t count, size_t size,
	unsigned threads)
{
	uint32_t each = (uint32_t)((size + SLICE - 1) / SLICE);

	threads = threads_for(count * each, threads);
	*t = (struct glk_touch){
		.base = base, .size = size, .each = each, .slices = count * each};
	glk_lock_init(&t->lock, GLK_RANK_TOUCH);
	pthread_cond_init(&t->touched, NULL);
	for (uint32_t i = 0; i < count; i++)
		t->left[i] = each;
	while (t->threads < threads &&
		!glk_thread_start(&t->thread[t->threads], "glake-touch", run, t))
		t->threads++;
}

int glk_touch_wait(struct glk_touch *t, uint32_t piece)
{
	bool refused;

	glk_lock(&t->lock);
	while (t->next < (piece + 1) * t->each && touch_one(t))
		;
	while (t->left[piece])
		glk_lock_wait(&t->lock, &t->touched);
	refused = t->refused[piece];
	glk_unlock(&t->lock);
	return refused ? glk_error_native(-ENOMEM, GLAKE_ERROR_NOMEM_HOST, "madvise",
				 ENOMEM, "no memory of the host for what is to be locked")
		       : 0;
}

void glk_touch_end(struct glk_touch *t)
{
	glk_lock(&t->lock);
	t->next = t->slices;
	glk_unlock(&t->lock);
	while (t->threads)
		pthread_join(t->thread[--t->threads], NULL);
	pthread_cond_destroy(&t->touched);
	glk_lock_fini(&t->lock);
}
