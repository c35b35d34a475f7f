/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A record per thread, claimed at first need, given back at the end, never piling up. */
#include "base/thread.h"
#include "base/error.h"
#include "base/slab.h"
#include "tap.h"

#include <errno.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 1000
#define AT_ONCE 8

static pthread_key_t late_key;
static pthread_barrier_t all_here;

struct seen {
	struct glk_thread *record;
	uint32_t id;
	int err;
	bool steady;
};

static void *look(void *arg)
{
	struct seen *seen = arg;
	struct glake_error error = {.sz = sizeof(error)};

	seen->record = glk_thread_self();
	seen->id = seen->record ? seen->record->id : 0;
	seen->err = seen->record ? seen->record->error.err : -1;
	seen->steady = glk_thread_self() == seen->record;
	glk_error(-EBUSY, GLAKE_ERROR_BUSY, "left behind");
	pthread_barrier_wait(&all_here);
	return NULL;
}

/* Those that still had the record at their end, which others may have by then. */
static glk_atomic(uint32_t) kept;
static _Thread_local const struct glk_thread *had;

/* Runs after the record was given back, so it claims another. */
static void late(void *arg)
{
	(void)arg;
	if (glk_thread_current == had)
		glk_add_relaxed(&kept, 1);
	had = NULL; /* what it has now goes, too, and this is called again */
	glk_error(-EBUSY, GLAKE_ERROR_BUSY, "in a destructor");
}

static void *look_late(void *arg)
{
	pthread_setspecific(late_key, arg);
	had = glk_thread_self();
	return look(arg);
}

/* One batch of threads alive together; the highest slot any of them had. */
static uint32_t batch(void *(*body)(void *), int count, bool *ret_good)
{
	struct seen seen[AT_ONCE] = {0};
	pthread_t threads[AT_ONCE];
	uint32_t highest = 0;

	pthread_barrier_init(&all_here, NULL, (unsigned)count);
	for (int i = 0; i < count; i++)
		pthread_create(&threads[i], NULL, body, &seen[i]);
	for (int i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	pthread_barrier_destroy(&all_here);
	for (int i = 0; i < count; i++) {
		*ret_good &= seen[i].id && !seen[i].err && seen[i].steady;
		for (int k = 0; k < i; k++)
			*ret_good &= seen[i].record != seen[k].record;
		highest = seen[i].id > highest ? seen[i].id : highest;
	}
	return highest;
}

static uint32_t many(void *(*body)(void *), int count, const char *what)
{
	uint32_t highest = 0, top;
	bool good = true;

	for (int done = 0; done < count; done += AT_ONCE) {
		top = batch(body, AT_ONCE, &good);
		highest = top > highest ? top : highest;
	}
	ok(good, "%s: each has a fresh record of its own", what);
	return highest;
}

/* Before any record exists: the first need finds no memory, a later one does. */
static int without_memory(void)
{
	struct glk_thread *record;

	errno = ENOTTY;
	for (uint32_t n = 1; n <= 2; n++) {
		glk_region_fail_after(n);
		if (glk_thread_self() || errno != ENOTTY)
			return (int)n;
	}
	glk_region_fail_after(0);
	record = glk_thread_self();
	return record && record == glk_thread_self() && errno == ENOTTY ? 0 : 3;
}

static struct {
	struct glk_thread *record;
	int calls;
} ended[2];

static void end_first(struct glk_thread *thread)
{
	ended[0].record = thread;
	ended[0].calls++;
}

static void end_second(struct glk_thread *thread)
{
	ended[1].record = glk_thread_self();
	ended[1].calls++;
}

static void ends(void)
{
	struct glk_thread *record = NULL;
	pthread_t thread;
	struct seen seen;

	glk_thread_at_end(end_first);
	glk_thread_at_end(end_second);
	glk_thread_at_end(end_first);
	pthread_barrier_init(&all_here, NULL, 1);
	pthread_create(&thread, NULL, look, &seen);
	pthread_join(thread, NULL);
	pthread_barrier_destroy(&all_here);
	record = seen.record;
	ok(ended[0].calls == 1 && ended[1].calls == 1, "each function is called once");
	ok(record && ended[0].record == record && ended[1].record == record,
		"with the record, which is still the thread's");
}

static void *serial_of(void *arg)
{
	*(uint64_t *)arg = glk_load_relaxed(&glk_thread_self()->serial);
	return NULL;
}

int main(void)
{
	int status = -1;
	pid_t child = fork();
	uint64_t before, mine, other = 0;
	uint32_t highest;
	pthread_t thread;

	if (!child)
		_exit(without_memory());
	waitpid(child, &status, 0);

	tap_plan_later();
	is_int(status, 0, "no memory at first: no record, and one as soon as there is");
	errno = ENOTTY;
	ok(glk_thread_self() && glk_thread_self() == glk_thread_self(),
		"one record a thread");
	is_int(errno, ENOTTY, "errno is kept");

	mine = glk_load_relaxed(&glk_thread_self()->serial);
	if (pthread_create(&thread, NULL, serial_of, &other) ||
		pthread_join(thread, NULL))
		tap_bail("no thread");
	ok(mine && glk_thread_lives(mine), "a thread lives");
	ok(other && other != mine && !glk_thread_lives(other), "until it ends");

	before = glk_region_bytes();
	highest = many(look, THREADS, "1000 threads come and go");
	ok(highest <= AT_ONCE + 1, "slots are used again (highest %u)", highest);
	pthread_key_create(&late_key, late);
	highest = many(look_late, 4 * AT_ONCE, "threads that fail in a destructor");
	is_int(glk_load_relaxed(&kept), 0, "which have no record any more");
	highest = many(look, AT_ONCE, "threads after those");
	ok(highest <= 2 * AT_ONCE + 1, "destructors lose no slot (highest %u)", highest);
	is_int((int64_t)glk_region_bytes(), (int64_t)before, "and no memory is added");
	ends();
	return tap_done();
}
