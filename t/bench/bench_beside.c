/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What copies over lent links and work that lives on memory take from each other: a thread for each GPU that
 * lends keeps copies from one block of it to another queued in a row, as a kernel would that is bound by memory,
 * and counts the bytes. No program is compiled for it, so it runs wherever the driver does.
 */
#include "more.h"

#include "base/atomic.h"
#include "base/json.h"
#include "tool/figure.h"
#include "tool/latency.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

/* In a row, whose end is waited for while the next one runs. */
#define ROW   4
#define BYTES (256 * MIB)
#define SOFT  (256 * KIB)
/* For so long at least, so that a row at either end is a few percent. */
#define WINDOW_NS      20000000
#define WINDOW_SOFT_NS 2000000
/* Windows in which a row should end. */
#define PATIENCE 10
#define ROUNDS	 5
#define LEAST	 (4 * KIB)

struct lane {
	struct busy *busy;
	int device;
	struct CUstream_st *stream;
	void *block[2];
	pthread_t thread;
	bool runs;
	glk_atomic(uint64_t) bytes; /* that were copied */
	glk_atomic(int) err;
};

struct busy {
	struct glake *ctx;
	size_t size; /* of a copy */
	int64_t window;
	glk_atomic(bool) stop;
	double alone; /* GB/s of each */
	int count;
	struct lane lane[BENCH_COPY_LINKS];
};

static int queue_row(const struct lane *lane, struct glake_copy_job **ret_job)
{
	struct glake *ctx = lane->busy->ctx;
	int err = 0;

	for (int i = 0; i < ROW && !err; i++)
		err = glake_copy(ctx, lane->block[1], lane->block[0], lane->busy->size,
			lane->stream, GLAKE_COPY_DIRECT, i == ROW - 1 ? ret_job : NULL);
	return err;
}

static int end_row(struct lane *lane, struct glake_copy_job *job)
{
	int err = glake_copy_wait(job, -1), failed = glake_copy_close(job);

	if (!err)
		glk_add_relaxed(&lane->bytes, ROW * lane->busy->size);
	return err ? err : failed;
}

static void *keep_busy(void *arg)
{
	struct lane *lane = arg;
	struct glake_copy_job *before = NULL, *job;
	int err = 0, failed;

	while (!err && !glk_load_relaxed(&lane->busy->stop)) {
		job = NULL;
		err = queue_row(lane, &job);
		if (before) {
			failed = end_row(lane, before);
			err = err ? err : failed;
		}
		before = job;
	}
	if (before) {
		failed = end_row(lane, before);
		err = err ? err : failed;
	}
	glk_store_relaxed(&lane->err, err);
	return NULL;
}

static uint64_t copied(const struct busy *busy)
{
	uint64_t sum = 0;

	for (int i = 0; i < busy->count; i++)
		sum += glk_load_relaxed(&busy->lane[i].bytes);
	return sum;
}

static int failure(const struct busy *busy)
{
	for (int i = 0; i < busy->count; i++)
		if (glk_load_relaxed(&busy->lane[i].err))
			return glk_load_relaxed(&busy->lane[i].err);
	return 0;
}

static int start_lane(struct busy *busy, int device)
{
	struct lane *lane = &busy->lane[busy->count++];
	int err;

	lane->busy = busy;
	lane->device = device;
	err = glake_stream_new(busy->ctx, device, &lane->stream);
	for (int i = 0; i < 2 && !err; i++)
		err = glake_alloc(
			busy->ctx, device, busy->size, lane->stream, 0, &lane->block[i]);
	if (err)
		return err;
	err = -pthread_create(&lane->thread, NULL, keep_busy, lane);
	lane->runs = !err;
	return err;
}

/* What they copy while nothing else does. */
static int measure_alone(struct busy *busy)
{
	int64_t since = latency_now();
	uint64_t before;

	/* each runs, and at its pace */
	while (!failure(busy) &&
		copied(busy) < 4 * ROW * busy->size * (uint64_t)busy->count)
		;
	since = latency_now();
	before = copied(busy);
	while (!failure(busy) &&
		(latency_now() - since < 4 * busy->window || copied(busy) == before))
		;
	busy->alone = (double)(copied(busy) - before) / (double)(latency_now() - since) /
		busy->count;
	return failure(busy);
}

static int busy_start(struct trip *trip, int gpus, struct busy **ret_busy)
{
	struct busy *busy = calloc(1, sizeof(*busy));
	int err = 0;

	if (!busy)
		return -ENOMEM;
	*ret_busy = busy;
	busy->ctx = trip->ctx;
	busy->size = trip->on_cuda ? BYTES : SOFT;
	busy->window = trip->on_cuda ? WINDOW_NS : WINDOW_SOFT_NS;
	for (int device = 1; device <= gpus && !err; device++)
		err = start_lane(busy, device);
	return err ? err : measure_alone(busy);
}

/* Percent by which a rate is less than another one. */
static double slower(double rate, double alone)
{
	return alone > 0 ? 100 * (1 - rate / alone) : 0;
}

static int busy_measure(
	struct busy *busy, const struct trip *trip, struct bench_beside_case *ret)
{
	int err = failure(busy);

	ret->memory = busy->alone;
	for (int way = 0; way < BENCH_COPY_WAYS && !err; way++) {
		double calls = way == BENCH_COPY_BOTH ? 2 : 1, took, bytes = 0;
		uint64_t before = copied(busy);
		int64_t since = latency_now();

		do {
			err = trip_queue(
				trip, (enum bench_copy_way)way, ret->alone.bytes);
			err = err ? err : trip_wait(trip);
			bytes += calls * (double)ret->alone.bytes;
			took = (double)(latency_now() - since);
		} while (!err &&
			(took < (double)busy->window ||
				(copied(busy) == before &&
					took < PATIENCE * (double)busy->window)));
		ret->beside[way].rate = bytes / took;
		ret->beside[way].slowed =
			slower(ret->beside[way].rate, ret->alone.rate[way].median);
		ret->beside[way].memory_slowed =
			slower((double)(copied(busy) - before) / took / busy->count,
				busy->alone);
	}
	return err ? err : failure(busy);
}

static int busy_end(struct busy *busy, int err)
{
	int failed;

	if (!busy)
		return err;
	glk_store_relaxed(&busy->stop, true);
	for (int i = 0; i < busy->count; i++) {
		struct lane *lane = &busy->lane[i];

		if (lane->runs)
			pthread_join(lane->thread, NULL);
		for (int k = 0; k < 2; k++)
			if (lane->block[k])
				glake_free(busy->ctx, lane->block[k], lane->stream);
		if (lane->stream)
			glake_stream_free(busy->ctx, lane->device, lane->stream);
	}
	failed = failure(busy);
	free(busy);
	return err ? err : failed;
}

/* Every size over so many links. */
static int run(
	const struct bench_options *options, int links, struct bench_beside *beside)
{
	const struct means means = {.links = links};
	double *took = calloc(2 * (size_t)beside->rounds, sizeof(*took));
	struct busy *busy = NULL;
	struct trip trip = {0};
	int err = took ? trip_open(options, &means, &trip) : -ENOMEM;

	if (!err)
		err = busy_start(&trip, links - 1, &busy);
	for (size_t bytes = LEAST; !err && bytes <= trip.most; bytes *= 4) {
		struct bench_beside_case *c = &beside->cases[beside->count++];

		c->alone = (struct bench_copy_case){.links = links, .bytes = bytes};
		err = trip_measure(&trip, beside->rounds, took, &c->alone);
		if (!err)
			err = busy_measure(busy, &trip, c);
		progress_step(beside->count, BENCH_COPY_CASES);
	}
	err = busy_end(busy, err);
	err = trip_close(&trip, err);
	free(took);
	return err;
}

static int measure(const struct bench_options *options, void *measured)
{
	struct bench_beside *beside = measured;
	struct glake *ctx = NULL;
	int err = glk_tool_open(&options->context, &ctx), gpus;

	if (err)
		return err;
	gpus = glake_device_count(ctx);
	beside->rounds = options->rounds ? options->rounds : ROUNDS;
	err = bench_close(&bench_beside, ctx, 0);
	if (!err && gpus < 2) {
		glk_tool_say("bench beside: no other GPU could lend its link");
		return -ENODEV;
	}
	for (int links = 2; links <= gpus && links <= BENCH_COPY_LINKS && !err; links++)
		err = run(options, links, beside);
	return err;
}

static const char *const beside_names[BENCH_COPY_WAYS][3] = {
	[BENCH_COPY_DOWN] = {"down_gbs", "down_slowed_percent",
		"down_memory_slowed_percent"},
	[BENCH_COPY_UP] = {"up_gbs", "up_slowed_percent", "up_memory_slowed_percent"},
	[BENCH_COPY_BOTH] = {"both_gbs", "both_slowed_percent",
		"both_memory_slowed_percent"},
};

/* As glakectl draw takes it. */
static void add(struct glk_json *json, const void *measured)
{
	const struct bench_beside *beside = measured;

	glk_json_key(json, "copy");
	glk_json_object(json);
	glk_json_add_uint(json, "rounds", beside->rounds);
	glk_json_key(json, "cases");
	glk_json_array(json);
	for (unsigned i = 0; i < beside->count; i++) {
		const struct bench_beside_case *c = &beside->cases[i];

		glk_json_object(json);
		bench_copy_add_case(json, &c->alone);
		glk_json_key(json, "beside");
		glk_json_object(json);
		glk_json_add_figure(json, "memory_gbs", c->memory, 5);
		for (int way = 0; way < BENCH_COPY_WAYS; way++) {
			const char *const *name = beside_names[way];

			glk_json_add_figure(json, name[0], c->beside[way].rate, 5);
			glk_json_add_figure(json, name[1], c->beside[way].slowed, 5);
			glk_json_add_figure(
				json, name[2], c->beside[way].memory_slowed, 5);
		}
		glk_json_end(json);
		glk_json_end(json);
	}
	glk_json_end(json);
	glk_json_end(json);
}

static void print(const void *measured)
{
	const struct bench_beside *beside = measured;
	int links = 0;

	for (unsigned i = 0; i < beside->count; i++) {
		const struct bench_beside_case *c = &beside->cases[i];

		if (links != c->alone.links)
			printf("\n  %d links, beside copies within the memory of the GPUs that lend "
			       "(%.1f GB/s alone): percent\n  by which the copies are slower, and "
			       "those\n  %-10s %8s %8s %8s %8s %8s %8s\n",
				c->alone.links, c->memory, "", "down", "memory", "up",
				"memory", "both", "memory");
		links = c->alone.links;
		printf("  %-10s", figure_bytes(c->alone.bytes).text);
		for (int way = 0; way < BENCH_COPY_WAYS; way++)
			printf(" %8.1f %8.1f", c->beside[way].slowed,
				c->beside[way].memory_slowed);
		printf("\n");
	}
}

const struct bench_part bench_beside = {.name = "beside",
	.size = sizeof(struct bench_beside),
	.measure = measure,
	.add = add,
	.print = print};
