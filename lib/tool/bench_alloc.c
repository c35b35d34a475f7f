/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a hit costs: pairs of glake_alloc and glake_free by one thread, beside the pair of lock
 * and unlock of a mutex nobody else wants. All are measured in turn in every round, so that
 * they can be compared on any machine, and no clock is read within a round.
 *
 * The figures of the library say afterwards whether what was meant to be hits were hits.
 *
 * The C library leaves out the atomic operations of a mutex for as long as a process has one
 * thread, which no program that needs a mutex has. So the work is done by a second thread, and
 * the mutex is measured once more before that begins.
 */
#include "tool/bench.h"

#include "base/json.h"
#include "tool/latency.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#define PAIRS	10000
#define MIXED	1000 /* pairs of the cases that miss, which take longer */
#define SIZES	1024 /* of the mixed cases, a power of two */
#define LIVE	64   /* blocks held in the last case */
#define STEADY	2    /* of the cases come first and hit */
#define DEFAULT 20   /* rounds */
#define CASES	5

struct bench_alloc {
	unsigned rounds;
	size_t pairs; /* a round */
	/* Of a mutex; and in a process with one thread, where it needs no atomic operation. */
	struct bench_range mutex_ns, mutex_alone_ns;
	struct {
		const char *name;
		bool steady;	       /* each request should be a hit */
		struct bench_range ns; /* a pair */
		struct bench_hits count;
	} cases[CASES];
	bool all_hits; /* the steady cases measured nothing else */
};

struct job {
	struct glake *ctx;
	struct CUstream_st *stream;
	pthread_mutex_t mutex;
	size_t sizes[SIZES];
	double *mutex_ns, *mutex_alone_ns, *ns[CASES]; /* a pair, of each round */
	struct bench_alloc *result;
	int err;
};

static int pair(struct job *job, size_t size)
{
	void *ptr;
	int err = glake_alloc(job->ctx, 0, size, job->stream, 0, &ptr);

	return err ? err : glake_free(job->ctx, ptr, job->stream);
}

static int fixed(struct job *job, size_t size)
{
	int err = 0;

	for (int i = 0; i < PAIRS && !err; i++)
		err = pair(job, size);
	return err;
}

static int run_512(struct job *job)
{
	return fixed(job, 512);
}

static int run_64k(struct job *job)
{
	return fixed(job, (size_t)64 << 10);
}

static int run_16m(struct job *job)
{
	return fixed(job, (size_t)16 << 20);
}

static int run_mixed(struct job *job)
{
	int err = 0;

	for (int i = 0; i < MIXED && !err; i++)
		err = pair(job, job->sizes[i & (SIZES - 1)]);
	return err;
}

/* The oldest of the blocks at hand goes, a new one comes. */
static int run_queue(struct job *job)
{
	void *live[LIVE] = {NULL};
	int err = 0, failed;

	for (int i = 0; i < MIXED && !err; i++) {
		void **slot = &live[i % LIVE];

		err = glake_free(job->ctx, *slot, job->stream);
		*slot = NULL;
		if (!err)
			err = glake_alloc(job->ctx, 0, job->sizes[i & (SIZES - 1)],
				job->stream, 0, slot);
	}
	for (int i = 0; i < LIVE; i++) {
		failed = glake_free(job->ctx, live[i], job->stream);
		err = err ? err : failed;
	}
	return err;
}

static const struct {
	const char *name;
	int pairs;
	int (*run)(struct job *job);
} cases[CASES] = {
	{"512 B", PAIRS, run_512},
	{"64 KiB", PAIRS, run_64k},
	{"16 MiB", PAIRS, run_16m},
	{"mixed", MIXED, run_mixed},
	{"mixed, 64 live", MIXED, run_queue},
};

static double time_mutex(struct job *job)
{
	int64_t start = latency_now();

	for (int i = 0; i < PAIRS; i++) {
		pthread_mutex_lock(&job->mutex);
		pthread_mutex_unlock(&job->mutex);
	}
	return (double)(latency_now() - start) / PAIRS;
}

static double time_case(struct job *job, int which)
{
	struct bench_hits *count = &job->result->cases[which].count;
	int64_t start;
	double ns;
	int err;

	bench_hits_begin(job->ctx, count);
	start = latency_now();
	err = cases[which].run(job);
	ns = (double)(latency_now() - start) / cases[which].pairs;
	bench_hits_end(job->ctx, count);
	job->err = job->err ? job->err : err;
	return ns;
}

/* Cases that miss make the bins give blocks back; so the steady ones are measured first. */
static void run_cases(struct job *job, int first, int last)
{
	unsigned rounds = job->result->rounds;

	/* the first round maps what the others need */
	for (int which = first; which < last; which++)
		time_case(job, which);
	for (int which = first; which < last; which++)
		job->result->cases[which].count = (struct bench_hits){0};
	for (unsigned i = 0; i < rounds && !job->err; i++) {
		if (!first)
			job->mutex_ns[i] = time_mutex(job);
		for (int which = first; which < last; which++)
			job->ns[which][i] = time_case(job, which);
		progress_step((uint64_t)first * rounds + (uint64_t)(last - first) * i,
			(uint64_t)CASES * rounds);
	}
}

static void *run(void *arg)
{
	struct job *job = arg;

	run_cases(job, 0, STEADY);
	run_cases(job, STEADY, CASES);
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

static void sum_up(struct job *job)
{
	struct bench_alloc *alloc = job->result;

	alloc->pairs = PAIRS;
	alloc->mutex_ns = bench_range_of(job->mutex_ns, alloc->rounds);
	alloc->mutex_alone_ns = bench_range_of(job->mutex_alone_ns, alloc->rounds);
	alloc->all_hits = true;
	for (int which = 0; which < CASES; which++) {
		const struct bench_hits *count = &alloc->cases[which].count;

		alloc->cases[which].name = cases[which].name;
		alloc->cases[which].steady = which < STEADY;
		alloc->cases[which].ns = bench_range_of(job->ns[which], alloc->rounds);
		if (which < STEADY && count->hits != count->requests)
			alloc->all_hits = false;
	}
}

static int measure(struct job *job)
{
	unsigned rounds = job->result->rounds;
	double *values = calloc((size_t)rounds * (CASES + 2), sizeof(*values));
	pthread_t thread;
	int err;

	if (!values)
		return -ENOMEM;
	job->mutex_ns = values;
	job->mutex_alone_ns = values + (size_t)rounds * (CASES + 1);
	for (int which = 0; which < CASES; which++)
		job->ns[which] = values + (size_t)rounds * (size_t)(which + 1);
	choose_sizes(job->sizes);
	pthread_mutex_init(&job->mutex, NULL);
	for (unsigned i = 0; i < rounds; i++)
		job->mutex_alone_ns[i] = time_mutex(job);
	err = glake_stream_new(job->ctx, 0, &job->stream);
	if (!err)
		err = -pthread_create(&thread, NULL, run, job);
	if (!err)
		err = -pthread_join(thread, NULL);
	if (!err)
		err = job->err;
	if (!err)
		sum_up(job);
	glake_stream_free(job->ctx, 0, job->stream);
	free(values);
	return err;
}

static int measure_all(const struct bench_options *options, void *measured)
{
	struct bench_alloc *alloc = measured;
	struct job job = {.result = alloc};
	int err = glk_tool_open(&options->context, &job.ctx);

	if (err)
		return err;
	alloc->rounds = options->rounds ? options->rounds : DEFAULT;
	err = measure(&job);
	return bench_close(&bench_alloc, job.ctx, err);
}

static void add(struct glk_json *json, const void *measured)
{
	const struct bench_alloc *alloc = measured;

	glk_json_key(json, "alloc");
	glk_json_object(json);
	glk_json_add_uint(json, "rounds", alloc->rounds);
	glk_json_add_uint(json, "pairs_a_round", alloc->pairs);
	glk_json_key(json, "mutex");
	glk_json_object(json);
	bench_add_range(json, "pair_ns", alloc->mutex_ns);
	bench_add_range(json, "pair_ns_one_thread", alloc->mutex_alone_ns);
	glk_json_end(json);
	glk_json_key(json, "cases");
	glk_json_array(json);
	for (int i = 0; i < CASES; i++) {
		glk_json_object(json);
		glk_json_add_text(json, "name", alloc->cases[i].name);
		glk_json_add_bool(json, "steady", alloc->cases[i].steady);
		bench_add_range(json, "pair_ns", alloc->cases[i].ns);
		bench_add_hits(json, &alloc->cases[i].count);
		glk_json_end(json);
	}
	glk_json_end(json);
	glk_json_add_bool(json, "all_hits", alloc->all_hits);
	glk_json_end(json);
}

const struct bench_part bench_alloc = {
	.name = "alloc",
	.size = sizeof(struct bench_alloc),
	.measure = measure_all,
	.add = add,
};
