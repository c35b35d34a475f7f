/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Memory of the host is taken by several at once, and a child takes up nothing of its parent's. */
#include "tier/piece.h"

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

/* What came of it, while another thread wants most of it too. */
struct turn {
	int most, little;
	uint32_t some;
	bool early;
	void *failed;
};

static struct turn turn(uint64_t size)
{
	struct turn is = {.some = 3};
	uint32_t one = 1;
	pthread_t thread;

	atomic_store(&has, false);
	is.most = glk_spare_take(-1, size, &one);
	is.little = glk_spare_take(-1, MIB, &is.some);
	pthread_create(&thread, NULL, take, &size);
	for (int i = 0; i < 1000; i++)
		sched_yield();
	is.early = atomic_load(&has);
	if (!is.little)
		glk_spare_taken(is.some * MIB);
	if (!is.most)
		glk_spare_taken(size);
	pthread_join(thread, &is.failed);
	return is;
}

/* Whether others took or gave back so much meanwhile that nothing can be told. */
static bool has_moved(uint64_t before)
{
	uint64_t now = glk_numa_usable(NULL);

	return now > before / 10 * 11 || now < before / 10 * 9;
}

static void takes_turns(void)
{
	struct turn is;
	uint64_t there;

	for (int i = 0; i < 100; i++) {
		there = glk_numa_usable(NULL);
		is = turn(there / 4 * 3);
		if (!is.most && !is.little && is.some == 3 && !is.early && !is.failed)
			break;
		if (!has_moved(there))
			break;
	}
	is_int(is.most, 0, "most of it is taken");
	is_int(is.little, 0, "and a little more");
	is_int(is.some, 3, "  as much as was wanted");
	ok(!is.early, "what is not there beside that is waited for");
	ok(!is.failed && atomic_load(&has), "  until it is not wanted any more");
}

static void takes_less(void)
{
	uint64_t size = glk_numa_usable(NULL) / 4;
	uint32_t count = 1000;

	is_int(glk_spare_take(-1, size, &count), 0, "more is wanted than there is");
	tap_note("%u quarters", count);
	ok(count >= 2 && count <= 6, "  as much is taken as there is");
	glk_spare_taken(count * size);
}

static void refuses(void)
{
	struct glake_error error = {.sz = sizeof(error)};
	uint32_t one = 1;

	is_int(glk_spare_take(-1, UINT64_MAX / 2, &one), -ENOMEM,
		"more than the machine has");
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
