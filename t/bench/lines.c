/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * lines PAIRS [shared | misses]: two threads allocate and free small blocks, each on a stream of its own and
 * one after the other, for whoever watches from outside which memory they touch. Each says when
 * by a store to a place whose address is printed first: begin and end of one, of the other. With `shared`
 * both also add to one counter, which the watcher has to find. Exit status 3 if a request was no hit.
 *
 * With `misses` the blocks are large, of sizes that do not come again, and the streams have arenas while the lock of the
 * GPU is divided, as it is where threads have met: see lib/cache/apart.h. Exit status 3 if a request or free needed more
 * than its part of it.
 */
#include "api/context.h"
#include "cache/bin/own.h"

#include <glake/glake.h>

#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 2
#define WARM	64 /* carves blocks ahead, or maps */
#define HELD	4
#define SIZE	512
#define ARENAS	2 /* passes in which the streams get their arenas */

static struct glake *ctx;
static long pairs;
static int is_shared, misses;
static volatile long marks[2 * THREADS];
static _Alignas(64) volatile long common;

static struct worker {
	_Alignas(64) pthread_t thread;
	struct CUstream_st *stream;
	sem_t go, done;
	int failed;
	unsigned size; /* of the last block, in grains */
} workers[THREADS];

/* None comes again among so many. */
static size_t next_size(struct worker *worker)
{
	if (!misses)
		return SIZE;
	worker->size = (worker->size + 2741) % 4093;
	return ((size_t)3 << 20) + SIZE * worker->size;
}

static int run(struct worker *worker, long count)
{
	struct CUstream_st *stream = worker->stream;
	void *held[HELD];

	for (; count > 0; count -= HELD) {
		for (int i = 0; i < HELD; i++)
			if (glake_alloc(ctx, 0, next_size(worker), stream, 0, &held[i]))
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

	worker->failed |= run(worker, WARM);
	for (int i = 0; i < (misses ? ARENAS : 0); i++) {
		sem_post(&worker->done);
		sem_wait(&worker->go);
		worker->failed |= run(worker, WARM);
	}
	sem_post(&worker->done);
	sem_wait(&worker->go);
	/* the turn of its seat is its own from here on: see cache/bin/seat.h */
	worker->failed |= run(worker, WARM);
	marks[at] = 1;
	worker->failed |= run(worker, pairs);
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

static struct glk_cache *cache(void)
{
	return &glk_context_entry(ctx)->caches[0];
}

/* As if the threads had met all the time. */
static void meet(void)
{
	glk_lock(&cache()->lock);
	cache()->crowded = true;
	for (uint32_t i = 1; i <= cache()->last_row; i++) {
		glk_poke_relaxed(&cache()->rows[i].met, GLK_MET_MOST);
		cache()->rows[i].same = GLK_OWN_SAME;
	}
	glk_unlock(&cache()->lock);
}

static void divide(void)
{
	glk_lock_short(&cache()->lock, 0);
	glk_load_relaxed(&cache()->owns)->rest = 0;
	glk_own_divide(cache());
	glk_unlock_short(&cache()->lock, 0, &cache()->times[GLK_TIMED_FREE]);
}

/* Each in its turn. */
static void pass(void)
{
	for (int i = 0; i < THREADS; i++) {
		sem_post(&workers[i].go);
		sem_wait(&workers[i].done);
	}
}

/* Both have arenas, and the lock is divided. False: they have not. */
static bool set_apart(void)
{
	for (int i = 0; i < ARENAS; i++) {
		meet();
		pass();
	}
	if (glk_own_count(cache()) != THREADS)
		return false;
	divide();
	return true;
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
	is_shared = argc > 2 && !strcmp(argv[2], "shared");
	misses = argc > 2 && !strcmp(argv[2], "misses");
	for (int i = 0; i < 2 * THREADS; i++)
		printf("%jx\n", (uintmax_t)(uintptr_t)&marks[i]);
	fflush(stdout);
	if (glake_open(&options, &ctx) || begin() || glake_stats_get(ctx, 0, &before))
		return 1;
	if (misses && !set_apart())
		return 3;
	pass();
	if (misses && !glk_load_relaxed(&cache()->lock.divided))
		return 3;
	if (glake_stats_get(ctx, 0, &after) || end() || glake_close(ctx, NULL))
		return 1;
	if (!misses && after.hits - before.hits != (uint64_t)(THREADS * (pairs + WARM)))
		return 3;
	return 0;
}
