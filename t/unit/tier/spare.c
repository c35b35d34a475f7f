/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Memory of the host is taken by several at once, and a child takes up nothing of its parent's. */
#include "tier/spare.h"

#include "base/error.h"
#include "base/fork.h"
#include "numa/topology.h"
#include "tap.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)

/* More than half of what there is, so that two do not fit. */
static uint64_t most_of(void)
{
	return glk_numa_usable(NULL) / 4 * 3;
}

static atomic_bool has;

static void *take(void *arg)
{
	uint32_t count = 1;

	if (glk_spare_take(-1, *(uint64_t *)arg, &count))
		return arg;
	atomic_store(&has, true);
	glk_spare_taken(*(uint64_t *)arg);
	return NULL;
}

static void takes_turns(void)
{
	uint64_t size = most_of();
	uint32_t one = 1, some = 3;
	pthread_t thread;
	void *failed = NULL;

	is_int(glk_spare_take(-1, size, &one), 0, "most of it is taken");
	is_int(glk_spare_take(-1, MIB, &some), 0, "and a little more");
	is_int(some, 3, "  as much as was wanted");
	pthread_create(&thread, NULL, take, &size);
	for (int i = 0; i < 1000; i++)
		sched_yield();
	ok(!atomic_load(&has), "what is not there beside that is waited for");
	glk_spare_taken(3 * MIB);
	glk_spare_taken(size);
	pthread_join(thread, &failed);
	ok(!failed && atomic_load(&has), "  until it is not wanted any more");
}

static void takes_less(void)
{
	uint64_t size = glk_numa_usable(NULL) / 4;
	uint32_t count = 1000;

	is_int(glk_spare_take(-1, size, &count), 0, "more is wanted than there is");
	ok(count >= 2 && count <= 6, "  as much is taken as there is: %u quarters", count);
	glk_spare_taken(count * size);
}

static void refuses(void)
{
	struct glake_error error = {.sz = sizeof(error)};
	uint32_t one = 1;

	is_int(glk_spare_take(-1, UINT64_MAX / 2, &one), -ENOMEM, "more than the machine has");
	glake_last_error(&error);
	is_int(error.error_class, GLAKE_ERROR_NOMEM_HOST, "  its class");
	is_int(glk_spare_take(777, MIB, &one), -ENOMEM, "of a node that is not there");
}

static void forks(void)
{
	uint64_t size = most_of();
	uint32_t one = 1;
	int status = -1;
	pid_t pid;

	is_int(glk_spare_take(-1, size, &one), 0, "while a thread takes most of it");
	pid = fork();
	if (!pid) {
		atomic_fetch_add(&glk_forks, 1);
		_exit(glk_spare_take(-1, size, &one) ? 1 : 0);
	}
	waitpid(pid, &status, 0);
	is_int(status, 0, "a child waits for nobody");
	glk_spare_taken(size);
}

int main(void)
{
	tap_plan_later();
	takes_turns();
	takes_less();
	refuses();
	forks();
	return tap_done();
}
