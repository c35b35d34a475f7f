/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How the hit scales: several threads at once make the same pairs of allocate and free that
 * one of them makes alone, on a stream each and all on one stream. A round measures the three
 * one after the other, and ratios are taken within a round, so that what else runs on the
 * machine hits both sides. The ratio of the shortest times of all rounds, which nothing else
 * disturbed, stands beside their median.
 *
 * A round also measures a loop over a counter of the thread's own, alone and by all at once:
 * what the machine itself gains by threads, and the most that any library could.
 *
 * Threads wait for each other at a barrier, which sleeps, and then, to begin at the same
 * moment, at a counter. Time is from the first to begin to the last to end.
 */
#include "more.h"

#include "base/atomic.h"
#include "base/json.h"
#include "tool/figure.h"
#include "tool/latency.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define PAIRS	20000 /* a round and thread */
#define AHEAD	4     /* blocks of each thread that a bin holds before it is measured */
#define DEFAULT 20    /* rounds */

/* A phase: one thread alone, or all of them; of the library, or of the machine. */
enum { ALONE, OWN, SHARED, MACHINE_ALONE, MACHINE, PHASES };

struct lane {
	_Alignas(128) glk_atomic(uint64_t) counter;
	struct job *job;
	struct CUstream_st *stream;
	pthread_t thread;
	unsigned index;
	int64_t begin, end;
	int err;
};

struct job {
	struct glake *ctx;
	struct lane *lanes;
	unsigned threads;
	pthread_mutex_t start; /* held until all threads are there, or given up */
	bool give_up;
	pthread_barrier_t barrier;
	glk_atomic(uint32_t) ready;
	double *seconds[2][PHASES]; /* of each size and round */
	struct bench_hits count[2][PHASES];
	struct bench_scale *result;
};

static const size_t blocks[2] = {(size_t)64 << 10, (size_t)16 << 20};

/* Until `count` threads are here. With more threads than processors those who wait make way. */
static void line_up(struct job *job, uint32_t count)
{
	/* pairs with: itself, in the other threads */
	glk_add_acq_rel(&job->ready, 1);
	for (int spins = 0; glk_load_acquire(&job->ready) < count; spins++) {
		if (spins > 1000)
			sched_yield();
	}
}

static void make_pairs(struct lane *lane, struct CUstream_st *stream, size_t size)
{
	struct glake *ctx = lane->job->ctx;
	int err = 0;
	void *ptr;

	for (int i = 0; i < PAIRS && !err; i++) {
		err = glake_alloc(ctx, 0, size, stream, 0, &ptr);
		if (!err)
			err = glake_free(ctx, ptr, stream);
	}
	lane->err = lane->err ? lane->err : err;
}

static void count_alone(struct lane *lane)
{
	for (int i = 0; i < 4 * PAIRS; i++)
		glk_add_relaxed(&lane->counter, 1);
}

/* All hold blocks at once, so that nobody finds the bins empty later. */
static void fill_bins(struct lane *lane, struct CUstream_st *stream, size_t size)
{
	struct glake *ctx = lane->job->ctx;
	void *held[AHEAD] = {NULL};

	for (int i = 0; i < AHEAD && !lane->err; i++)
		lane->err = glake_alloc(ctx, 0, size, stream, 0, &held[i]);
	pthread_barrier_wait(&lane->job->barrier);
	for (int i = 0; i < AHEAD; i++)
		glake_free(ctx, held[i], stream);
	pthread_barrier_wait(&lane->job->barrier);
}

/* Seconds of a phase, known to the first thread. */
static double run_phase(struct lane *lane, int phase, size_t size)
{
	struct job *job = lane->job;
	unsigned count = phase == ALONE || phase == MACHINE_ALONE ? 1 : job->threads;
	struct CUstream_st *stream =
		phase == SHARED ? job->lanes[0].stream : lane->stream;
	int64_t begin, end;

	if (!lane->index)
		glk_store_relaxed(&job->ready, 0);
	pthread_barrier_wait(&job->barrier);
	if (lane->index < count) {
		line_up(job, count);
		lane->begin = latency_now();
		if (phase < MACHINE_ALONE)
			make_pairs(lane, stream, size);
		else
			count_alone(lane);
		lane->end = latency_now();
	}
	pthread_barrier_wait(&job->barrier);
	begin = job->lanes[0].begin;
	end = job->lanes[0].end;
	for (unsigned i = 1; i < count; i++) {
		begin = job->lanes[i].begin < begin ? job->lanes[i].begin : begin;
		end = job->lanes[i].end > end ? job->lanes[i].end : end;
	}
	return (double)(end - begin) / 1e9;
}

static void run_size(struct lane *lane, int size)
{
	struct job *job = lane->job;
	unsigned rounds = job->result->rounds;

	fill_bins(lane, lane->stream, blocks[size]);
	fill_bins(lane, job->lanes[0].stream, blocks[size]);
	for (unsigned i = 0; i <= rounds; i++) {
		for (int phase = 0; phase < PHASES; phase++) {
			struct bench_hits *count = &job->count[size][phase];
			double seconds;

			if (!lane->index && i)
				bench_hits_begin(job->ctx, count);
			seconds = run_phase(lane, phase, blocks[size]);
			if (!lane->index && i) {
				bench_hits_end(job->ctx, count);
				job->seconds[size][phase][i - 1] = seconds;
			}
		}
		if (!lane->index)
			progress_step((uint64_t)size * rounds + i, 2 * rounds);
	}
}

static void *lane_main(void *arg)
{
	struct lane *lane = arg;
	struct job *job = lane->job;
	bool give_up;

	pthread_mutex_lock(&job->start);
	give_up = job->give_up;
	pthread_mutex_unlock(&job->start);
	for (int size = 0; size < 2 && !give_up; size++)
		run_size(lane, size);
	return NULL;
}

/* The ratios of two phases, and that of their shortest times. */
static struct bench_range ratio_of(struct job *job, const double *one, const double *all,
	double *values, double *ret_best)
{
	struct bench_scale *scale = job->result;
	double least_one = one[0], least_all = all[0];

	for (unsigned i = 0; i < scale->rounds; i++) {
		values[i] = one[i] / all[i] * job->threads;
		least_one = one[i] < least_one ? one[i] : least_one;
		least_all = all[i] < least_all ? all[i] : least_all;
	}
	*ret_best = least_one / least_all * job->threads;
	return bench_range_of(values, scale->rounds);
}

static struct bench_range range_of(
	struct job *job, const double *seconds, double *values, double factor, bool rate)
{
	unsigned rounds = job->result->rounds;

	for (unsigned i = 0; i < rounds; i++)
		values[i] = rate ? factor / seconds[i] : seconds[i] * factor;
	return bench_range_of(values, rounds);
}

static void sum_up(struct job *job, double *values)
{
	struct bench_scale *scale = job->result;

	for (int i = 0; i < BENCH_SCALES; i++) {
		struct bench_scale_mode *mode = &scale->modes[i];
		int size = i / 2, phase = i % 2 ? SHARED : OWN;
		const double *one = job->seconds[size][ALONE];
		const double *all = job->seconds[size][phase];

		mode->name = phase == OWN ? "own streams" : "one stream";
		mode->block = blocks[size];
		mode->count = job->count[size][phase];
		mode->one_ns = range_of(job, one, values, 1e9 / PAIRS, false);
		mode->ns = range_of(job, all, values, 1e9 / PAIRS, false);
		mode->one_rate = range_of(job, one, values, PAIRS, true);
		mode->rate =
			range_of(job, all, values, (double)PAIRS * job->threads, true);
		mode->ratio = ratio_of(job, one, all, values, &mode->best);
		if (mode->count.hits != mode->count.requests)
			scale->all_hits = false;
	}
	scale->machine = ratio_of(job, job->seconds[0][MACHINE_ALONE],
		job->seconds[0][MACHINE], values, &scale->machine_best);
}

static int run_lanes(struct job *job)
{
	unsigned started = 0;
	int err = 0;

	for (unsigned i = 0; i < job->threads && !err; i++) {
		job->lanes[i].job = job;
		job->lanes[i].index = i;
		err = glake_stream_new(job->ctx, 0, &job->lanes[i].stream);
	}
	pthread_barrier_init(&job->barrier, NULL, job->threads);
	pthread_mutex_init(&job->start, NULL);
	pthread_mutex_lock(&job->start);
	for (; started < job->threads && !err; started += !err)
		err = -pthread_create(&job->lanes[started].thread, NULL, lane_main,
			&job->lanes[started]);
	job->give_up = err;
	pthread_mutex_unlock(&job->start);
	while (started--) {
		pthread_join(job->lanes[started].thread, NULL);
		err = err ? err : job->lanes[started].err;
	}
	for (unsigned i = 0; i < job->threads; i++)
		glake_stream_free(job->ctx, 0, job->lanes[i].stream);
	pthread_barrier_destroy(&job->barrier);
	return err;
}

static int measure(struct job *job)
{
	struct bench_scale *scale = job->result;
	double *values =
		calloc((size_t)scale->rounds * (2 * PHASES + 1), sizeof(*values));
	int err = -ENOMEM;

	job->lanes =
		aligned_alloc(_Alignof(struct lane), job->threads * sizeof(*job->lanes));
	if (!values || !job->lanes)
		goto out;
	memset(job->lanes, 0, job->threads * sizeof(*job->lanes));
	for (int i = 0; i < 2 * PHASES; i++)
		job->seconds[i / PHASES][i % PHASES] =
			values + (size_t)scale->rounds * (size_t)(i + 1);
	err = run_lanes(job);
	if (!err)
		sum_up(job, values);
out:
	free(job->lanes);
	free(values);
	return err;
}

static int measure_all(const struct bench_options *options, void *measured)
{
	struct bench_scale *scale = measured;
	struct job job = {.result = scale, .threads = options->threads};
	int err = glk_tool_open(&options->context, &job.ctx);

	if (err)
		return err;
	*scale = (struct bench_scale){
		.rounds = options->rounds ? options->rounds : DEFAULT,
		.threads = options->threads,
		.pairs = PAIRS,
		.all_hits = true,
	};
	err = measure(&job);
	return bench_close(&bench_scale, job.ctx, err);
}

static void add_scale(struct glk_json *json, const void *measured)
{
	const struct bench_scale *scale = measured;

	glk_json_key(json, "scale");
	glk_json_object(json);
	glk_json_add_uint(json, "rounds", scale->rounds);
	glk_json_add_uint(json, "threads", scale->threads);
	glk_json_add_uint(json, "pairs_a_round", scale->pairs);
	glk_json_key(json, "modes");
	glk_json_array(json);
	for (int i = 0; i < BENCH_SCALES; i++) {
		glk_json_object(json);
		glk_json_add_text(json, "name", scale->modes[i].name);
		glk_json_add_uint(json, "block_bytes", scale->modes[i].block);
		bench_add_range(json, "pair_ns", scale->modes[i].ns);
		bench_add_range(json, "pairs_per_s", scale->modes[i].rate);
		bench_add_range(json, "one_thread_pair_ns", scale->modes[i].one_ns);
		bench_add_range(json, "one_thread_pairs_per_s", scale->modes[i].one_rate);
		bench_add_range(json, "ratio", scale->modes[i].ratio);
		glk_json_add_figure(json, "best_ratio", scale->modes[i].best, 5);
		bench_add_hits(json, &scale->modes[i].count);
		glk_json_end(json);
	}
	glk_json_end(json);
	bench_add_range(json, "machine_ratio", scale->machine);
	glk_json_add_figure(json, "machine_best_ratio", scale->machine_best, 5);
	glk_json_add_bool(json, "all_hits", scale->all_hits);
	glk_json_end(json);
}

static void print_scale(const void *measured)
{
	const struct bench_scale *scale = measured;

	printf("%u threads beside one, medians of %u rounds of %zu pairs a thread\n\n",
		scale->threads, scale->rounds, scale->pairs);
	printf("  %-12s %8s %11s %8s %11s %8s %7s %7s %9s\n", "", "block", "M pairs/s",
		"ns", "M/s of one", "ns", "ratio", "best", "misses");
	for (int i = 0; i < BENCH_SCALES; i++) {
		const struct bench_hits *count = &scale->modes[i].count;

		printf("  %-12s %8s %11.2f %8.1f %11.2f %8.1f %7.2f %7.2f %9llu\n",
			scale->modes[i].name, figure_bytes(scale->modes[i].block).text,
			scale->modes[i].rate.median / 1e6, scale->modes[i].ns.median,
			scale->modes[i].one_rate.median / 1e6,
			scale->modes[i].one_ns.median, scale->modes[i].ratio.median,
			scale->modes[i].best,
			(unsigned long long)(count->requests - count->hits));
	}
	printf("  %-59s %7.2f %7.2f\n", "the machine: a counter of each thread",
		scale->machine.median, scale->machine_best);
	if (!scale->all_hits)
		printf("\n  NOT ALL HITS: bins were empty, or gave blocks back\n");
	putchar('\n');
}

const struct bench_part bench_scale = {.name = "scale",
	.size = sizeof(struct bench_scale),
	.measure = measure_all,
	.add = add_scale,
	.print = print_scale};
