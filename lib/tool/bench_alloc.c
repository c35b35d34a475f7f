/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a hit costs: pairs of glake_alloc and glake_free in the steady state, beside the pair
 * of lock and unlock of a mutex nobody else wants, taken in the same round, so that the two
 * can be compared on any machine.
 *
 * No clock is read within a round. Threads have a stream each, as programs do, and start
 * each round together.
 */
#include "tool/bench.h"

#include "tool/latency.h"
#include "tool/progress.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define PAIRS 10000
#define SIZES 1024 /* of the mixed cases, a power of two */
#define LIVE  64   /* blocks held in the last case */

struct lane {
	struct shared *shared;
	struct CUstream_st *stream;
	pthread_t thread;
	pthread_mutex_t mutex;
	unsigned index;
	int err;
	double *ns[BENCH_CASES]; /* a pair, of each round */
	uint64_t misses[BENCH_CASES];
};

struct shared {
	struct glake *ctx;
	const struct bench_options *options;
	pthread_mutex_t start; /* held until all threads are there, or given up */
	bool give_up;
	pthread_barrier_t barrier;
	size_t sizes[SIZES];
	struct lane *lanes;
};

static int pair(struct lane *lane, size_t size)
{
	struct glake *ctx = lane->shared->ctx;
	void *ptr;
	int err = glake_alloc(ctx, 0, size, lane->stream, 0, &ptr);

	return err ? err : glake_free(ctx, ptr, lane->stream);
}

static int fixed(struct lane *lane, size_t size)
{
	int err = 0;

	for (int i = 0; i < PAIRS && !err; i++)
		err = pair(lane, size);
	return err;
}

static int run_mutex(struct lane *lane)
{
	for (int i = 0; i < PAIRS; i++) {
		pthread_mutex_lock(&lane->mutex);
		pthread_mutex_unlock(&lane->mutex);
	}
	return 0;
}

static int run_512(struct lane *lane)
{
	return fixed(lane, 512);
}

static int run_64k(struct lane *lane)
{
	return fixed(lane, (size_t)64 << 10);
}

static int run_16m(struct lane *lane)
{
	return fixed(lane, (size_t)16 << 20);
}

static int run_mixed(struct lane *lane)
{
	int err = 0;

	for (int i = 0; i < PAIRS && !err; i++)
		err = pair(lane, lane->shared->sizes[i & (SIZES - 1)]);
	return err;
}

/* The oldest of the blocks at hand goes, a new one comes. */
static int run_queue(struct lane *lane)
{
	struct glake *ctx = lane->shared->ctx;
	void *live[LIVE] = {NULL};
	int err = 0, failed;

	for (int i = 0; i < PAIRS && !err; i++) {
		void **slot = &live[i % LIVE];

		err = glake_free(ctx, *slot, lane->stream);
		*slot = NULL;
		if (!err)
			err = glake_alloc(ctx, 0, lane->shared->sizes[i & (SIZES - 1)],
				lane->stream, 0, slot);
	}
	for (int i = 0; i < LIVE; i++) {
		failed = glake_free(ctx, live[i], lane->stream);
		err = err ? err : failed;
	}
	return err;
}

static const struct {
	const char *name;
	int (*run)(struct lane *lane);
} cases[BENCH_CASES] = {
	{"mutex", run_mutex},
	{"512 B", run_512},
	{"64 KiB", run_64k},
	{"16 MiB", run_16m},
	{"mixed", run_mixed},
	{"mixed, 64 live", run_queue},
};

static uint64_t misses_now(struct lane *lane)
{
	struct glake_stats stats = {.sz = sizeof(stats)};

	return glake_stats_get(lane->shared->ctx, 0, &stats) ? 0 : stats.misses;
}

static void run_round(struct lane *lane, int which, double *ret_ns)
{
	int64_t start;
	int err;

	pthread_barrier_wait(&lane->shared->barrier);
	start = latency_now();
	err = cases[which].run(lane);
	*ret_ns = (double)(latency_now() - start) / PAIRS;
	lane->err = lane->err ? lane->err : err;
}

static void *lane_main(void *arg)
{
	struct lane *lane = arg;
	unsigned rounds = lane->shared->options->rounds;
	bool give_up;
	double warm;

	pthread_mutex_lock(&lane->shared->start);
	give_up = lane->shared->give_up;
	pthread_mutex_unlock(&lane->shared->start);
	if (give_up)
		return NULL;
	for (int which = 0; which < BENCH_CASES; which++) {
		uint64_t before;

		/* The first round maps what the others need. */
		run_round(lane, which, &warm);
		pthread_barrier_wait(&lane->shared->barrier);
		before = misses_now(lane);
		for (unsigned i = 0; i < rounds; i++) {
			run_round(lane, which, &lane->ns[which][i]);
			if (!lane->index)
				progress_step((uint64_t)which * rounds + i,
					(uint64_t)BENCH_CASES * rounds);
		}
		pthread_barrier_wait(&lane->shared->barrier);
		lane->misses[which] = misses_now(lane) - before;
	}
	return NULL;
}

/* Sizes from 512 B to 32 MiB, every power of two as often as any other. */
static void choose_sizes(size_t *sizes)
{
	uint32_t x = 1;

	for (int i = 0; i < SIZES; i++) {
		x = (uint32_t)((uint64_t)x * 16807 % 2147483647);
		sizes[i] = (size_t)512 << (x >> 8) % 16;
		x = (uint32_t)((uint64_t)x * 16807 % 2147483647);
		sizes[i] += ((x >> 8) % (sizes[i] / 512)) * 512;
	}
}

static int make_lanes(struct shared *shared)
{
	unsigned rounds = shared->options->rounds;
	int err = 0;

	for (unsigned i = 0; i < shared->options->threads && !err; i++) {
		struct lane *lane = &shared->lanes[i];

		lane->shared = shared;
		lane->index = i;
		pthread_mutex_init(&lane->mutex, NULL);
		err = glake_stream_new(shared->ctx, 0, &lane->stream);
		for (int which = 0; which < BENCH_CASES && !err; which++) {
			lane->ns[which] = calloc(rounds, sizeof(double));
			err = lane->ns[which] ? 0 : -ENOMEM;
		}
	}
	return err;
}

static int run_lanes(struct shared *shared)
{
	unsigned threads = shared->options->threads, started = 1;
	int err = 0;

	pthread_barrier_init(&shared->barrier, NULL, threads);
	pthread_mutex_init(&shared->start, NULL);
	pthread_mutex_lock(&shared->start);
	for (; started < threads && !err; started += !err) {
		struct lane *lane = &shared->lanes[started];

		err = -pthread_create(&lane->thread, NULL, lane_main, lane);
	}
	shared->give_up = err;
	pthread_mutex_unlock(&shared->start);
	if (!err)
		lane_main(&shared->lanes[0]);
	while (--started)
		pthread_join(shared->lanes[started].thread, NULL);
	for (unsigned i = 0; i < threads && !err; i++)
		err = shared->lanes[i].err;
	return err;
}

static int sum_up(struct shared *shared, struct bench_alloc *alloc)
{
	unsigned threads = shared->options->threads, rounds = shared->options->rounds;
	double *all = calloc((size_t)threads * rounds, sizeof(*all));

	if (!all)
		return -ENOMEM;
	alloc->pairs = PAIRS;
	for (int which = 0; which < BENCH_CASES; which++) {
		for (unsigned i = 0; i < threads; i++)
			memcpy(all + (size_t)i * rounds, shared->lanes[i].ns[which],
				rounds * sizeof(*all));
		alloc->cases[which].name = cases[which].name;
		alloc->cases[which].ns = bench_range_of(all, (size_t)threads * rounds);
		alloc->cases[which].misses = shared->lanes[0].misses[which];
	}
	free(all);
	return 0;
}

static void free_lanes(struct shared *shared)
{
	for (unsigned i = 0; i < shared->options->threads; i++) {
		struct lane *lane = &shared->lanes[i];

		glake_stream_free(shared->ctx, 0, lane->stream);
		for (int which = 0; which < BENCH_CASES; which++)
			free(lane->ns[which]);
	}
	free(shared->lanes);
}

int bench_alloc(const struct bench_options *options, struct bench_alloc *ret_alloc)
{
	struct shared shared = {.options = options};
	size_t leaked = 0;
	int err = glk_tool_open(&options->context, &shared.ctx);

	if (err)
		return err;
	choose_sizes(shared.sizes);
	shared.lanes = calloc(options->threads, sizeof(*shared.lanes));
	err = shared.lanes ? make_lanes(&shared) : -ENOMEM;
	if (!err)
		err = run_lanes(&shared);
	if (!err)
		err = sum_up(&shared, ret_alloc);
	if (err)
		glk_tool_say_error("bench alloc", err);
	if (shared.lanes)
		free_lanes(&shared);
	if (glake_close(shared.ctx, &leaked) || leaked) {
		glk_tool_say("bench alloc: %zu blocks were lost", leaked);
		err = err ? err : -EIO;
	}
	return err;
}
