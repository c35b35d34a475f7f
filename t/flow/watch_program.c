/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A program to be watched: does what the lines of its input say, and says "done" after each. Its
 * configuration comes from the environment. Some of it goes on until the next line comes.
 *
 * Where driver.fault delays a call by ten seconds, that call waits for SIGUSR1 instead: the library's
 * nanosleep is the one below. It says "held" once somebody waits, and is never held again.
 */
#include <glake/glake.h>

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BLOCKS_MAX 200000

#define CONTEXTS_MAX 32
#define HELD_S	     10
#define CHURNERS     3

static struct glake *contexts[CONTEXTS_MAX];
static void *blocks[BLOCKS_MAX];
static int held, block_count;
static pid_t child;
static sem_t gate;
static atomic_bool was_held;

__attribute__((visibility("default"))) int nanosleep(
	const struct timespec *time, struct timespec *left)
{
	if (time->tv_sec < HELD_S) {
		errno = clock_nanosleep(CLOCK_MONOTONIC, 0, time, left);
		return errno ? -1 : 0;
	}
	if (atomic_exchange(&was_held, true))
		return 0;
	puts("held");
	fflush(stdout);
	while (sem_wait(&gate))
		;
	return 0;
}

static void let_go(int number)
{
	(void)number;
	sem_post(&gate);
}

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
	static const size_t sizes[] = {
		40 << 20, 3 << 20, 700, 12 << 20, 5 << 20, 90000, 64 << 20};
	struct CUstream_st *stream;
	void *made[7];
	int err = glake_stream_new(contexts[0], 0, &stream);

	for (int i = 0; i < 7 && !err; i++)
		err = glake_alloc(
			contexts[0], 0, sizes[i], i % 2 ? stream : NULL, 0, &made[i]);
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

/* A byte of the first block, or behind it, is not what it was. */
static int spoil(size_t offset)
{
	((unsigned char *)blocks[0])[offset] ^= 0xff;
	return 0;
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
	glake_close(contexts[0], NULL);	  /* it may only close */
	for (;;)
		pause();
}

/* Children that end as programs do, while somebody asks, until the next line comes. How many did
 * not end well. */
static int fork_many(void)
{
	struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
	int status, wrong = 0;

	do {
		pid_t one = fork();

		if (!one)
			exit(0);
		wrong += one < 0 || waitpid(one, &status, 0) != one || status;
	} while (!poll(&input, 1, 0));
	return wrong;
}

static atomic_bool resting;
static pthread_t churners[CHURNERS];
static int churner_count;

/* A thread that has blocks come and go, some of which others free; how many calls went wrong. */
static void *churn_one(void *arg)
{
	static _Atomic(void *) shared[64];
	unsigned seed = (unsigned)(uintptr_t)arg;
	uintptr_t wrong = 0;

	while (!atomic_load(&resting)) {
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

static bool is_in_graph(struct CUstream_st *stream, void *arg)
{
	(void)stream, (void)arg;
	return true;
}

/* A block of a graph's pool, and a KV cache of two sequences, one forked from the other, with a prefix. */
static int make_cache(void)
{
	const struct glake_pool_id id = {1, 2};
	const struct glake_kv_options options = {.sz = sizeof(options),
		.slots = 4,
		.tokens = 4096,
		.lanes = 2,
		.lane_bytes = 4096,
		.limit = 64 << 20,
		.prefixes = 2};
	struct glake_kv *kv;
	uint32_t slot, other;

	return glake_pool_begin_for(contexts[0], 0, id, is_in_graph, NULL) ||
		allocate(0, 1, 5000) || glake_pool_end(contexts[0], 0, id) ||
		glake_kv_open(contexts[0], 0, &options, NULL, &kv) ||
		glake_kv_new(kv, 4096, NULL, &slot) ||
		glake_kv_grow(kv, slot, 2000, NULL) ||
		glake_kv_fork(kv, slot, 1000, 4096, NULL, &other) ||
		glake_kv_publish(kv, slot, 1000, "key", 3, NULL);
}

/* Until `rest`. */
static int churn(void)
{
	for (; churner_count < CHURNERS; churner_count++)
		if (pthread_create(&churners[churner_count], NULL, churn_one,
			    (void *)((uintptr_t)churner_count + 1)))
			return 1;
	return 0;
}

static int rest(void)
{
	int wrong = 0;
	void *one;

	atomic_store(&resting, true);
	while (churner_count) {
		pthread_join(churners[--churner_count], &one);
		wrong += one != NULL;
	}
	atomic_store(&resting, false);
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
	if (sscanf(line, "spoil %zu", &size) == 1)
		return spoil(size);
	if (!strcmp(line, "check\n"))
		return glake_check(contexts[0], NULL);
	if (!strcmp(line, "scene\n"))
		return make_scene();
	if (!strcmp(line, "cache\n"))
		return make_cache();
	if (!strcmp(line, "churn\n"))
		return churn();
	if (!strcmp(line, "rest\n"))
		return rest();
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
	struct sigaction go = {.sa_handler = let_go, .sa_flags = SA_RESTART};
	char line[128];

	sem_init(&gate, 0, 0);
	sigaction(SIGUSR1, &go, NULL);
	setvbuf(stdin, NULL, _IONBF, 0); /* the next line stays where poll sees it */
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
