/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a section saw stays until it ends; fork and want of memory are survived. */
#include "base/rcu.h"
#include "base/error.h"
#include "base/thread.h"
#include "tap.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define READERS 2
#define UPDATES 50
#define YIELDS	200

struct table {
	int alive;
	int value;
};

static glk_atomic(struct table *) current;
static glk_atomic(bool) stop;
static glk_atomic(int) torn;
static glk_atomic(int) waits;

static struct table *table_new(int value)
{
	struct table *table = malloc(sizeof(*table));

	*table = (struct table){.alive = 1, .value = value};
	return table;
}

/* Replaces the table and gives the old one back once nobody can see it. */
static void replace(int value)
{
	struct table *old = glk_rcu_xchg(&current, table_new(value));

	glk_rcu_wait();
	old->alive = 0;
	free(old);
}

static void *read_all_along(void *arg)
{
	int value, last = 0;

	if (glk_rcu_ready())
		return arg;
	while (!glk_load_relaxed(&stop)) {
		const struct table *table;

		glk_rcu_read_lock();
		table = glk_rcu_load(&current);
		value = table->value;
		sched_yield();
		if (table->alive != 1 || table->value != value || value < last)
			glk_add_relaxed(&torn, 1);
		glk_rcu_read_unlock();
		last = value;
	}
	return NULL;
}

static void many_updates(void)
{
	pthread_t threads[READERS];

	for (int i = 0; i < READERS; i++)
		pthread_create(&threads[i], NULL, read_all_along, NULL);
	for (int i = 2; i < UPDATES; i++)
		replace(i);
	glk_store_relaxed(&stop, true);
	for (int i = 0; i < READERS; i++)
		pthread_join(threads[i], NULL);
	is_int(glk_load_relaxed(&torn), 0, "readers see whole tables in order");
}

static void *update_once(void *arg)
{
	replace(UPDATES);
	glk_add_acq_rel(&waits, 1);
	return arg;
}

static void wait_waits(void)
{
	const struct table *seen;
	int value, waited = 0;
	pthread_t writer;

	glk_rcu_read_lock();
	seen = glk_rcu_load(&current);
	value = seen->value;
	pthread_create(&writer, NULL, update_once, NULL);
	while (glk_rcu_load(&current) == seen)
		sched_yield();
	for (int i = 0; i < YIELDS; i++) {
		sched_yield();
		waited += glk_load_acquire(&waits);
	}
	ok(!waited && seen->alive == 1 && seen->value == value,
		"the table a section took survives its replacement");
	glk_rcu_read_unlock();
	pthread_join(writer, NULL);
	is_int(glk_load_acquire(&waits), 1, "the wait ends after the section");
}

struct gate {
	int inside[2], leave[2];
};

static void *stay_inside(void *arg)
{
	struct gate *gate = arg;
	char byte = 0;

	if (glk_rcu_ready())
		return NULL;
	glk_rcu_read_lock();
	if (write(gate->inside[1], &byte, 1) != 1 || read(gate->leave[0], &byte, 1) != 1)
		gate = NULL;
	glk_rcu_read_unlock();
	return gate;
}

static void fork_beside_reader(void)
{
	unsigned before = glk_fork_generation();
	struct gate gate;
	void *left = NULL;
	pthread_t reader;
	int status = -1;
	char byte = 0;
	pid_t child;

	if (pipe(gate.inside) || pipe(gate.leave))
		tap_bail("no pipe");
	pthread_create(&reader, NULL, stay_inside, &gate);
	if (read(gate.inside[0], &byte, 1) != 1)
		tap_bail("the reader did not start");
	fflush(stdout);
	child = fork();
	if (!child)
		_exit(glk_fork_generation() == before + 1 ? 0 : 1);
	waitpid(child, &status, 0);
	is_int(status, 0, "a child knows that it is one");
	is_int(glk_fork_generation(), before, "the parent is not");
	if (write(gate.leave[1], &byte, 1) != 1)
		tap_bail("the reader cannot leave");
	pthread_join(reader, &left);
	ok(left == &gate, "the reader went on");
	replace(UPDATES + 1);
	ok(true, "and a wait still returns");
}

/* Before the first section of a process: the probe answers in place of an abort. */
static int without_memory(void)
{
	struct rlimit full, none;
	struct glake_error error = {.sz = sizeof(error)};
	int err;

	if (!glk_thread_self() || getrlimit(RLIMIT_AS, &full))
		return 1;
	none = full;
	none.rlim_cur = 0;
	setrlimit(RLIMIT_AS, &none);
	err = glk_rcu_ready();
	setrlimit(RLIMIT_AS, &full);
	glake_last_error(&error);
	if (err != -ENOMEM || error.error_class != GLAKE_ERROR_NOMEM_HOST ||
		error.native != ENOMEM)
		return 2;
	if (glk_rcu_init(false) || glk_rcu_ready())
		return 3;
	glk_rcu_read_lock();
	glk_rcu_read_unlock();
	glk_rcu_wait();
	return 0;
}

/* Fork hooks of the host: ours only count. */
static int hooks_of_host(void)
{
	unsigned before = glk_fork_generation();
	int status = -1;
	pid_t child;

	if (glk_rcu_init(true))
		return 1;
	child = fork();
	if (!child)
		_exit(glk_fork_generation() == before + 1 ? 0 : 1);
	waitpid(child, &status, 0);
	return status;
}

static int in_child(int (*body)(void))
{
	int status = -1;
	pid_t child = fork();

	if (!child)
		_exit(body());
	waitpid(child, &status, 0);
	return status;
}

int main(void)
{
	int memory = in_child(without_memory), host = in_child(hooks_of_host);

	tap_plan(11);
	is_int(memory, 0, "no memory to register: -ENOMEM, and well once there is");
	is_int(host, 0, "a host with hooks of its own");
	is_int(glk_rcu_init(false), 0, "hooks");
	is_int(glk_rcu_init(false), 0, "are installed once, however often asked");
	tap_note("membarrier: %s", glk_rcu_is_fast() ? "yes" : "no");
	glk_rcu_xchg(&current, table_new(1));
	many_updates();
	wait_waits();
	fork_beside_reader();
	free(glk_rcu_xchg(&current, NULL));
	return tap_done();
}
