/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Threads that ask for memory outside of Python: for front_stacks.py, which loads it. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

typedef void *(*alloc_fn)(size_t, int, void *);
typedef void (*free_fn)(void *, size_t, int, void *);

__attribute__((visibility("default"))) int run_thread(alloc_fn alloc);
__attribute__((visibility("default"))) void run_on(alloc_fn alloc, free_fn free);
__attribute__((visibility("default"))) void halt(void);

static atomic_bool halted;

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

/* Asks and frees without Python's lock, as PyTorch does, until halt() or the process ends. */
void run_on(alloc_fn alloc, free_fn free)
{
	while (!atomic_load(&halted))
		free(alloc(1000, 0, NULL), 0, 0, NULL);
}

void halt(void)
{
	atomic_store(&halted, true);
}
