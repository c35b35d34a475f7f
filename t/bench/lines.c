/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * lines PAIRS [shared]: two threads allocate and free small blocks, each on a stream of its own and
 * one after the other, for whoever watches from outside which memory they touch. Each says when
 * by a store to a place whose address is printed first: begin and end of one, of the other. With
 * a second word both also add to one counter, which the watcher has to find. Exit status 3 if a
 * request was no hit.
 */
#include <glake/glake.h>

#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define THREADS 2
#define WARM	64 /* carves blocks ahead, or maps */
#define HELD	4
#define SIZE	512

static struct glake *ctx;
static long pairs;
static int is_shared;
static volatile long marks[2 * THREADS];
static _Alignas(64) volatile long common;

static struct worker {
	pthread_t thread;
	struct CUstream_st *stream;
	sem_t go, done;
	int failed;
} workers[THREADS];

static int run(struct CUstream_st *stream, long count)
{
	void *held[HELD];

	for (; count > 0; count -= HELD) {
		for (int i = 0; i < HELD; i++)
			if (glake_alloc(ctx, 0, SIZE, stream, 0, &held[i]))
				return 1;
		for (int i = 0; i < HELD; i++)
			if (glake_free(ctx, held[i], stream))
				return 1;
		if (is_shared)
			common++;
	}
	return 0;
}

static void *work(void *arg)
{
	struct worker *worker = arg;
	long at = 2 * (worker - workers);

	worker->failed |= run(worker->stream, WARM);
	sem_post(&worker->done);
	sem_wait(&worker->go);
	marks[at] = 1;
	worker->failed |= run(worker->stream, pairs);
	marks[at + 1] = 1;
	sem_post(&worker->done);
	sem_wait(&worker->go); /* its seat stays taken while the other one runs */
	return NULL;
}

static int begin(void)
{
	for (int i = 0; i < THREADS; i++) {
		if (glake_stream_new(ctx, 0, &workers[i].stream) ||
			sem_init(&workers[i].go, 0, 0) ||
			sem_init(&workers[i].done, 0, 0) ||
			pthread_create(&workers[i].thread, NULL, work, &workers[i]))
			return 1;
		sem_wait(&workers[i].done);
	}
	return 0;
}

static int end(void)
{
	int failed = 0;

	for (int i = 0; i < THREADS; i++) {
		sem_post(&workers[i].go);
		pthread_join(workers[i].thread, NULL);
		failed |= workers[i].failed;
		failed |= glake_stream_free(ctx, 0, workers[i].stream) != 0;
	}
	return failed;
}

int main(int argc, char **argv)
{
	struct glake_options options = {
		.sz = sizeof(options), .backend = GLAKE_BACKEND_SOFT};
	struct glake_stats before = {.sz = sizeof(before)}, after = before;

	if (argc < 2)
		return 2;
	pairs = atol(argv[1]);
	is_shared = argc > 2;
	for (int i = 0; i < 2 * THREADS; i++)
		printf("%jx\n", (uintmax_t)(uintptr_t)&marks[i]);
	fflush(stdout);
	if (glake_open(&options, &ctx) || begin() || glake_stats_get(ctx, 0, &before))
		return 1;
	for (int i = 0; i < THREADS; i++) {
		sem_post(&workers[i].go);
		sem_wait(&workers[i].done);
	}
	if (glake_stats_get(ctx, 0, &after) || end() || glake_close(ctx, NULL))
		return 1;
	if (after.hits - before.hits != (uint64_t)(THREADS * pairs))
		return 3;
	return 0;
}
