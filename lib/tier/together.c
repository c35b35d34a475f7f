/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Threads that have units back, for as long as that takes: see pack.h. */
#include "base/thread.h"
#include "tier/pack.h"

#include <sched.h>

struct crew {
	void (*fn)(void *arg);
	void *arg;
};

static void *run(void *arg)
{
	const struct crew *crew = arg;

	crew->fn(crew->arg);
	return NULL;
}

/* Threads beside the caller's: one for each unit more and each processor more. */
static uint32_t threads_for(uint32_t units)
{
	uint32_t most = units < GLK_PACK_THREADS ? units : GLK_PACK_THREADS, have;
	cpu_set_t cpus;

	most -= most > 0;
	if (sched_getaffinity(0, sizeof(cpus), &cpus))
		return most;
	have = (uint32_t)CPU_COUNT(&cpus) - 1;
	return most < have ? most : have;
}

void glk_pack_together(uint32_t units, void (*fn)(void *arg), void *arg)
{
	uint32_t wanted = threads_for(units), threads = 0;
	struct crew crew = {.fn = fn, .arg = arg};
	pthread_t thread[GLK_PACK_THREADS];

	while (threads < wanted &&
		!glk_thread_start(&thread[threads], "glake-compress", run, &crew))
		threads++;
	fn(arg);
	while (threads)
		pthread_join(thread[--threads], NULL);
}
