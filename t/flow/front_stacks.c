/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Threads that ask for memory outside of Python: for front_stacks.py, which loads it. */
#include <pthread.h>
#include <stddef.h>
#include <time.h>

typedef void *(*alloc_fn)(size_t, int, void *);
typedef void (*free_fn)(void *, size_t, int, void *);

__attribute__((visibility("default"))) int run_thread(alloc_fn alloc);
__attribute__((visibility("default"))) void run_for(alloc_fn alloc, free_fn free, int ms);

static void *ask_once(void *arg)
{
	alloc_fn alloc = *(alloc_fn *)arg;

	return alloc(1000, 0, NULL);
}

/* A thread that Python never hears of. Whether it was given memory. */
int run_thread(alloc_fn alloc)
{
	pthread_t thread;
	void *ptr = NULL;

	return !pthread_create(&thread, NULL, ask_once, &alloc) &&
		!pthread_join(thread, &ptr) && ptr;
}

/* Asks and frees without Python's lock, as PyTorch does, for so long or until the process ends. */
void run_for(alloc_fn alloc, free_fn free, int ms)
{
	struct timespec begun, now;

	clock_gettime(CLOCK_MONOTONIC, &begun);
	do {
		free(alloc(1000, 0, NULL), 0, 0, NULL);
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while ((now.tv_sec - begun.tv_sec) * 1000 +
			(now.tv_nsec - begun.tv_nsec) / 1000000 < ms);
}
