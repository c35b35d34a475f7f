/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A program to be watched: does what the lines of its input say, and says "done" after each. Its
 * configuration comes from the environment.
 */
#include <glake/glake.h>

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BLOCKS_MAX 200000

#define CONTEXTS_MAX 32

static struct glake *contexts[CONTEXTS_MAX];
static void *blocks[BLOCKS_MAX];
static int held, block_count;
static pid_t child;

static int open_one(void)
{
	struct glake_options options = {
		.sz = sizeof(options), .backend = GLAKE_BACKEND_SOFT, .no_conf_file = 1};

	return held == CONTEXTS_MAX ? 1 : glake_open(&options, &contexts[held++]);
}

/* So many contexts, with a block on each of so many GPUs. */
static int spread(int count, int gpus)
{
	int err = 0;
	void *ptr;

	while (!err && held < count) {
		err = open_one();
		for (int gpu = 0; gpu < gpus && !err; gpu++)
			err = glake_alloc(contexts[held - 1], gpu, 1000, NULL, 0, &ptr);
	}
	return err;
}

static int allocate(int gpu, int count, size_t size)
{
	int err = 0;

	while (!err && count-- && block_count < BLOCKS_MAX) {
		err = glake_alloc(contexts[0], gpu, size, NULL, 0, &blocks[block_count]);
		block_count += !err;
	}
	return err;
}

/* Blocks of several sizes on two streams; some are freed, one has gone to the host. */
static int make_scene(void)
{
	static const size_t sizes[] = {40 << 20, 3 << 20, 700, 12 << 20, 5 << 20, 90000, 64 << 20};
	struct CUstream_st *stream;
	void *made[7];
	int err = glake_stream_new(contexts[0], 0, &stream);

	for (int i = 0; i < 7 && !err; i++)
		err = glake_alloc(contexts[0], 0, sizes[i], i % 2 ? stream : NULL, 0, &made[i]);
	if (!err)
		err = glake_spill(contexts[0], made[3], stream);
	if (!err)
		err = glake_free(contexts[0], made[1], stream);
	return err ? err : glake_free(contexts[0], made[6], NULL);
}

static int free_all(void)
{
	int err = 0;

	while (!err && block_count)
		err = glake_free(contexts[0], blocks[--block_count], NULL);
	return err;
}

/* On the line of the answer, before "done". */
static int tell_addresses(void)
{
	for (int i = 0; i < block_count; i++)
		printf("%llu ", (unsigned long long)(uintptr_t)blocks[i]);
	return 0;
}

/* A block on each of so many streams, each larger than the one before. */
static int use_streams(int count)
{
	struct CUstream_st *stream;
	void *ptr;
	int err = 0;

	for (int i = 1; i <= count && !err; i++) {
		err = glake_stream_new(contexts[0], 0, &stream);
		if (!err)
			err = glake_alloc(
				contexts[0], 0, 512 * (size_t)i, stream, 0, &ptr);
	}
	return err;
}

static int limit_files(int count)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files))
		return 1;
	files.rlim_cur = (rlim_t)count;
	return setrlimit(RLIMIT_NOFILE, &files);
}

/* A child that lives on, with all that the process had open. */
static int fork_one(void)
{
	child = fork();
	if (child)
		return child < 0;
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* no longer than who started it */
	glake_close(contexts[0], NULL); /* it may only close */
	for (;;)
		pause();
}

/* Children that end as programs do, while somebody asks. How many did not end well. */
static int fork_many(void)
{
	int status, wrong = 0;

	for (int i = 0; i < 300; i++) {
		pid_t one = fork();

		if (!one)
			exit(0);
		wrong += one < 0 || waitpid(one, &status, 0) != one || status;
	}
	return wrong;
}

static long time_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static long churn_end;

/* A thread that has blocks come and go, some of which others free; how many calls went wrong. */
static void *churn_one(void *arg)
{
	static _Atomic(void *) shared[64];
	unsigned seed = (unsigned)(uintptr_t)arg;
	uintptr_t wrong = 0;

	for (int i = 0; i % 64 || time_ms() < churn_end; i++) {
		void *block, *old;

		seed = seed * 1103515245 + 12345;
		wrong += glake_alloc(contexts[0], 0, (seed >> 8) % 100000 + 1, NULL, 0,
				 &block) != 0;
		old = atomic_exchange(&shared[(seed >> 24) % 64], block);
		wrong += old && glake_free(contexts[0], old, NULL);
	}
	for (int i = 0; i < 64; i++) {
		void *old = atomic_exchange(&shared[i], NULL);

		wrong += old && glake_free(contexts[0], old, NULL);
	}
	return (void *)wrong;
}

static int churn(int ms)
{
	pthread_t threads[3];
	int wrong = 0;
	void *one;

	churn_end = time_ms() + ms;
	for (uintptr_t i = 0; i < 3; i++)
		if (pthread_create(&threads[i], NULL, churn_one, (void *)(i + 1)))
			return 1;
	for (int i = 0; i < 3; i++) {
		pthread_join(threads[i], &one);
		wrong += one != NULL;
	}
	return wrong;
}

static int run(const char *line)
{
	int gpu, count;
	size_t size;

	if (sscanf(line, "alloc %d %d %zu", &gpu, &count, &size) == 3)
		return allocate(gpu, count, size);
	if (sscanf(line, "spread %d %d", &count, &gpu) == 2)
		return spread(count, gpu);
	if (sscanf(line, "streams %d", &count) == 1)
		return use_streams(count);
	if (sscanf(line, "files %d", &count) == 1)
		return limit_files(count);
	if (!strcmp(line, "scene\n"))
		return make_scene();
	if (sscanf(line, "churn %d", &count) == 1)
		return churn(count);
	if (!strcmp(line, "free\n"))
		return free_all();
	if (!strcmp(line, "addresses\n"))
		return tell_addresses();
	if (!strcmp(line, "open\n"))
		return open_one();
	if (!strcmp(line, "close\n"))
		return held ? glake_close(contexts[--held], NULL) : 1;
	if (!strcmp(line, "fork\n"))
		return fork_one();
	if (!strcmp(line, "forks\n"))
		return fork_many();
	if (!strcmp(line, "storm\n")) {
		/* contexts that come and go while somebody asks */
		for (int i = 0; i < 300; i++)
			if (open_one() || glake_close(contexts[--held], NULL))
				return 1;
		return 0;
	}
	return 1;
}

int main(void)
{
	char line[128];

	while (fgets(line, sizeof(line), stdin)) {
		printf("%s\n", run(line) ? "failed" : "done");
		fflush(stdout);
	}
	if (child > 0) {
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
	}
	return 0;
}
