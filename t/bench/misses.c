/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * misses COUNT [ROUNDS [LIVE]]: so many threads of one process, each on a stream of its own, allocate and free blocks
 * of 1 to 8 MiB, of which LIVE live (4), and of sizes that do not come again, which miss and call no driver once there
 * is enough memory; and so many processes with one thread do the same. Pairs a second of all together, least, median
 * and most of the rounds, which go by turns. A machine with fewer processors than COUNT says little.
 */
#include <glake/glake.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOST	256
#define WARM	20000
#define LIVE	256
#define SECONDS 0.5

/* What threads and processes share. */
struct shared {
	atomic_uint ready, failed;
	atomic_bool go, stop;
	atomic_ulong pairs;
};

static struct shared *shared;
static unsigned live = 4;
static double hits; /* of the threads' requests, in the last round */

static void rest(double seconds)
{
	struct timespec ts = {(time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9)};

	nanosleep(&ts, NULL);
}

struct lane {
	struct glake *ctx;
	struct CUstream_st *stream;
	void *block[LIVE];
	uint64_t state;
};

static uint64_t draw(struct lane *lane, uint64_t below)
{
	lane->state = lane->state * 6364136223846793005u + 1442695040888963407u;
	return (lane->state >> 33) % below;
}

static int pairs(struct lane *lane, unsigned long count)
{
	for (unsigned long i = 0; i < count; i++) {
		void **block = &lane->block[draw(lane, live)];

		if (*block && glake_free(lane->ctx, *block, lane->stream))
			return 1;
		*block = NULL;
		if (glake_alloc(lane->ctx, 0, (1ul << 20) + draw(lane, 14336) * 512,
			    lane->stream, 0, block))
			return 1;
	}
	return 0;
}

/* From the start to the end that the others have too. */
static void *work(void *ctx)
{
	static atomic_uint number;
	struct lane lane = {.ctx = ctx, .state = atomic_fetch_add(&number, 1)};
	unsigned long done = 0;
	int err = glake_stream_new(ctx, 0, &lane.stream) || pairs(&lane, WARM);

	atomic_fetch_add(&shared->ready, 1);
	while (!err && !atomic_load(&shared->go))
		rest(1e-4);
	for (; !err && !atomic_load(&shared->stop); done += 100)
		err = pairs(&lane, 100);
	for (unsigned i = 0; i < LIVE; i++)
		err |= lane.block[i] && glake_free(ctx, lane.block[i], lane.stream);
	err |= glake_stream_free(ctx, 0, lane.stream) != 0;
	atomic_fetch_add(&shared->pairs, done);
	atomic_fetch_add(&shared->failed, err != 0);
	return NULL;
}

static struct glake *open_soft(void)
{
	struct glake_options options = {
		.sz = sizeof(options), .backend = GLAKE_BACKEND_SOFT};
	struct glake *ctx;

	return glake_open(&options, &ctx) ? NULL : ctx;
}

/* Pairs a second; 0: something failed. */
static double told(unsigned count)
{
	while (atomic_load(&shared->ready) < count)
		rest(1e-3);
	atomic_store(&shared->go, true);
	rest(SECONDS);
	atomic_store(&shared->stop, true);
	return SECONDS;
}

static double by_threads(unsigned count)
{
	struct glake *ctx = open_soft();
	struct glake_stats s = {.sz = sizeof(s)};
	pthread_t threads[MOST];
	double seconds;

	if (!ctx)
		return 0;
	for (unsigned i = 0; i < count; i++)
		if (pthread_create(&threads[i], NULL, work, ctx))
			exit(1);
	seconds = told(count);
	for (unsigned i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	if (!glake_stats_get(ctx, 0, &s))
		hits = (double)s.hits / (double)s.allocs;
	glake_close(ctx, NULL);
	return seconds;
}

static double by_processes(unsigned count)
{
	double seconds;

	for (unsigned i = 0; i < count; i++) {
		pid_t pid = fork();

		if (pid < 0)
			exit(1);
		if (!pid) {
			struct glake *ctx = open_soft();

			if (ctx)
				work(ctx);
			_exit(!ctx);
		}
	}
	seconds = told(count);
	while (wait(NULL) > 0)
		;
	return seconds;
}

static double rate(double (*run)(unsigned count), unsigned count)
{
	double seconds;

	*shared = (struct shared){0};
	seconds = run(count);
	if (atomic_load(&shared->failed)) {
		fputs("misses: a request failed\n", stderr);
		exit(1);
	}
	return (double)atomic_load(&shared->pairs) / seconds;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double show(const char *what, unsigned count, double *rates, unsigned rounds)
{
	qsort(rates, rounds, sizeof(*rates), compare);
	printf("%u %-9s  %8.3f  %8.3f  %8.3f  million pairs a second\n", count, what,
		rates[0] / 1e6, rates[rounds / 2] / 1e6, rates[rounds - 1] / 1e6);
	return rates[rounds / 2];
}

int main(int argc, char **argv)
{
	unsigned count = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 0;
	unsigned rounds = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 5;
	double threads[MOST], processes[MOST], t, p;

	live = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : live;
	if (!count || count > MOST || !rounds || rounds > MOST || !live || live > LIVE) {
		fputs("usage: misses COUNT [ROUNDS [LIVE]]\n", stderr);
		return 2;
	}
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return 1;
	for (unsigned i = 0; i < rounds; i++) {
		threads[i] = rate(by_threads, count);
		processes[i] = rate(by_processes, count);
	}
	t = show("threads", count, threads, rounds);
	p = show("processes", count, processes, rounds);
	printf("%.3f of the processes' rate, %.1f %% hits in the last round\n", t / p,
		hits * 100);
	return 0;
}
