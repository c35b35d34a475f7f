/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The tests' scheduler itself: the same order for a seed each time and another one for another seed, a
 * mistake that two threads show is found within some seeds, threads that wait for each other for ever are
 * told of, time goes on at once where all threads wait. Each scene is played by a child with its own seed.
 */
#include "tap.h"

#include "base/atomic.h"

#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef GLK_SCHED
int main(void)
{
	tap_skip_all("there is no scheduler in real time");
}
#else

#define STEPS 40
#define SEEDS 20

static pthread_mutex_t first = PTHREAD_MUTEX_INITIALIZER,
		       second = PTHREAD_MUTEX_INITIALIZER;
static glk_atomic(uint32_t) counter, order;

/* An order is a number: a digit a step, of who made it. */
static void *step(void *arg)
{
	for (int i = 0; i < STEPS; i++)
		glk_store_relaxed(
			&order, glk_load_relaxed(&order) * 3 + *(const uint32_t *)arg);
	return NULL;
}

static void *count_badly(void *arg)
{
	for (int i = 0; i < STEPS; i++) {
		uint32_t seen = glk_load_relaxed(&counter);

		glk_store_relaxed(&counter, seen + 1);
	}
	return arg;
}

static void *lock_both(void *arg)
{
	pthread_mutex_t *one = arg, *other = one == &first ? &second : &first;

	for (int i = 0; i < STEPS; i++) {
		pthread_mutex_lock(one);
		pthread_mutex_lock(other);
		pthread_mutex_unlock(other);
		pthread_mutex_unlock(one);
	}
	return NULL;
}

static void *sleep_long(void *arg)
{
	nanosleep(&(struct timespec){.tv_sec = 86400}, NULL);
	return arg;
}

static void both(void *(*fn)(void *), void *one, void *other)
{
	pthread_t thread[2];

	pthread_create(&thread[0], NULL, fn, one);
	pthread_create(&thread[1], NULL, fn, other);
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
}

static int play_order(void)
{
	uint32_t who[2] = {1, 2};

	both(step, &who[0], &who[1]);
	printf("order %u\n", glk_load_relaxed(&order));
	return 0;
}

static int play_count(void)
{
	both(count_badly, NULL, NULL);
	return glk_load_relaxed(&counter) != 2 * STEPS;
}

static int play_locks(void)
{
	both(lock_both, &first, &second);
	return 0;
}

static int play_sleep(void)
{
	struct timespec a, b;

	clock_gettime(CLOCK_MONOTONIC, &a);
	both(sleep_long, NULL, NULL);
	clock_gettime(CLOCK_MONOTONIC, &b);
	return b.tv_sec - a.tv_sec != 86400;
}

static const struct {
	const char *name;
	int (*fn)(void);
} scenes[] = {{"order", play_order}, {"count", play_count}, {"locks", play_locks},
	{"sleep", play_sleep}};

/* What a child says, and how it ends. */
static int play(const char *program, const char *scene, int seed, char *said, size_t size)
{
	char command[4096];
	size_t used;
	FILE *pipe;
	int status;

	snprintf(command, sizeof(command), "GLAKE_TEST_SEED=%d '%s' %s", seed, program,
		scene);
	fflush(stdout);
	pipe = popen(command, "re");
	if (!pipe)
		tap_bail("no child");
	used = fread(said, 1, size - 1, pipe);
	said[used] = 0;
	status = pclose(pipe);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void judge(const char *program)
{
	char said[2][8192];
	int other = 0, lost = 0, stuck = 0, told = 0;

	for (int seed = 1; seed <= SEEDS; seed++) {
		play(program, "order", seed, said[0], sizeof(said[0]));
		play(program, "order", seed, said[1], sizeof(said[1]));
		if (seed <= 3)
			is_str(strstr(said[1], "order"), strstr(said[0], "order"),
				"the same order twice");
		play(program, "order", seed + 1, said[1], sizeof(said[1]));
		other += strcmp(strstr(said[0], "order"), strstr(said[1], "order")) != 0;
		lost += play(program, "count", seed, said[0], sizeof(said[0]));
		if (!play(program, "locks", seed, said[0], sizeof(said[0])))
			continue;
		stuck++;
		told += strstr(said[0], "all threads wait") &&
			strstr(said[0], "waits in pthread_mutex_lock") &&
			strstr(said[0], "GLAKE_TEST_SEED=");
	}
	ok(other > SEEDS / 2, "another one for another seed, %d times in %d", other,
		SEEDS);
	ok(lost > SEEDS / 4, "a count that two threads lose is found by %d seeds", lost);
	ok(stuck > SEEDS / 4, "locks taken in two orders by %d", stuck);
	is_int(told, stuck, "which say who waits for what, and the seed");
	is_int(play(program, "sleep", 1, said[0], sizeof(said[0])), 0, "a day passes");
}

int main(int argc, char **argv)
{
	for (size_t i = 0; argc > 1 && i < sizeof(scenes) / sizeof(*scenes); i++)
		if (!strcmp(argv[1], scenes[i].name))
			return scenes[i].fn();
	tap_plan_later();
	judge(argv[0]);
	return tap_done();
}
#endif
