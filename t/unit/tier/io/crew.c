/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Threads that copy: every byte, with threads and without, for one who waits and for many. */
#include "tier/io/crew.h"

#include "base/atomic.h"
#include "seed.h"
#include "tap.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ROOM	(9 * GLK_CREW_SLICE + 77)
#define TASKS	5
#define POSTERS 3

static unsigned char from[ROOM], to[ROOM + 2];
static struct glk_crew crew;

static bool is_there(size_t bytes)
{
	return !memcmp(to + 1, from, bytes) && !to[0] && !to[bytes + 1];
}

static void sizes(unsigned threads)
{
	const size_t each[] = {
		0, 1, GLK_CREW_SLICE - 1, GLK_CREW_SLICE, GLK_CREW_SLICE + 1, ROOM};
	int wrong = 0;

	glk_crew_init(&crew, "glake-copy", threads);
	for (size_t i = 0; i < sizeof(each) / sizeof(*each); i++) {
		struct glk_crew_task task = {.dst = (char *)to + 1,
			.src = (const char *)from,
			.bytes = each[i]};

		memset(to, 0, sizeof(to));
		glk_crew_post(&crew, &task);
		glk_crew_wait(&crew, &task);
		wrong += !is_there(each[i]) || task.left;
	}
	is_int(wrong, 0, "tasks of all sizes");
	is_int(crew.threads, threads, "by so many threads");
	ok(!crew.first, "none is left");
	glk_crew_fini(&crew);
}

/* Several in the row; they are waited for in any order, those in its middle too. */
static void row(unsigned threads)
{
	struct glk_crew_task task[TASKS];
	const size_t part = ROOM / TASKS;
	static const int order[] = {2, 0, 4, 3, 1};
	int wrong = 0;

	glk_crew_init(&crew, "glake-copy", threads);
	for (int round = 0; round < 20; round++) {
		memset(to, 0, sizeof(to));
		for (size_t i = 0; i < TASKS; i++) {
			task[i] = (struct glk_crew_task){.dst = (char *)to + i * part,
				.src = (const char *)from + i * part,
				.bytes = part};
			glk_crew_post(&crew, &task[i]);
		}
		for (size_t i = 0; i < TASKS; i++) {
			size_t at = (size_t)order[i] * part;

			glk_crew_wait(&crew, &task[order[i]]);
			wrong += memcmp(to + at, from + at, part) != 0;
		}
	}
	is_int(wrong, 0, "several tasks, whichever is waited for");
	glk_crew_fini(&crew);
}

struct poster {
	pthread_t thread;
	unsigned char to[3 * GLK_CREW_SLICE];
	int wrong;
};

static void *post(void *arg)
{
	struct poster *p = arg;

	for (int i = 0; i < 20; i++) {
		struct glk_crew_task task = {.dst = (char *)p->to,
			.src = (const char *)from + i,
			.bytes = sizeof(p->to)};

		glk_crew_post(&crew, &task);
		glk_crew_wait(&crew, &task);
		p->wrong += memcmp(p->to, from + i, sizeof(p->to)) != 0;
	}
	return NULL;
}

static void many(void)
{
	static struct poster posters[POSTERS];
	int wrong = 0;

	glk_crew_init(&crew, "glake-copy", 2);
	for (int i = 0; i < POSTERS; i++)
		if (pthread_create(&posters[i].thread, NULL, post, &posters[i]))
			tap_bail("no thread");
	for (int i = 0; i < POSTERS; i++) {
		pthread_join(posters[i].thread, NULL);
		wrong += posters[i].wrong;
	}
	is_int(wrong, 0, "tasks of several threads at once");
	glk_crew_fini(&crew);
}

/* Pages that a handler of the program opens when they are touched. */
static char *closed;
static size_t page;
static glk_atomic(int) faults;

static void on_fault(int sig, siginfo_t *info, void *unused)
{
	uintptr_t at = (uintptr_t)info->si_addr & ~(uintptr_t)(page - 1);

	(void)sig;
	(void)unused;
	if (at < (uintptr_t)closed || at >= (uintptr_t)closed + 16 * GLK_CREW_SLICE)
		_exit(3);
	mprotect((char *)at, page, PROT_READ | PROT_WRITE);
	glk_add_relaxed(&faults, 1);
}

static void protected(void)
{
	struct sigaction mine = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO},
			 before;
	struct glk_crew_task task;
	size_t size = 8 * GLK_CREW_SLICE;

	page = (size_t)sysconf(_SC_PAGESIZE);
	closed = mmap(
		NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (closed == MAP_FAILED)
		tap_bail("no memory");
	memcpy(closed, from, size);
	mprotect(closed, size, PROT_NONE);
	sigaction(SIGSEGV, &mine, &before);
	glk_crew_init(&crew, "glake-copy", 2);
	task = (struct glk_crew_task){
		.dst = (char *)to + 1, .src = closed, .bytes = size};
	memset(to, 0, sizeof(to));
	glk_crew_post(&crew, &task);
	/* the threads alone, so that they meet the pages */
	glk_lock(&crew.lock);
	while (task.left)
		glk_lock_wait(&crew.lock, &crew.copied);
	glk_unlock(&crew.lock);
	ok(is_there(size), "memory that the program opens when it is touched");
	is_int(glk_load_relaxed(&faults), (int64_t)(size / page),
		"its handler was called for each page");
	sigaction(SIGSEGV, &before, NULL);
	glk_crew_fini(&crew);
	munmap(closed, size);
}

int main(void)
{
	uint64_t rolled;

	tap_plan_later();
	rolled = seed_thread(seed_start(), 0);
	for (size_t i = 0; i < ROOM; i++)
		from[i] = (unsigned char)seed_next(&rolled);
	glk_crew_init(&crew, "glake-copy", 3);
	is_int(crew.threads, 0, "no thread before there is a task");
	glk_crew_fini(&crew);
	sizes(0);
	sizes(3);
	row(0);
	row(3);
	many();
	protected();
	return tap_done();
}
