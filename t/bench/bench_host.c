/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How long it takes to have pinned memory of the host: by glake_host_alloc, whose threads touch it
 * before the driver locks it; beside that, in the same round, memory of the same size that the driver
 * locks as it comes, and the driver's own. Each round begins with nothing held.
 *
 * On the software device locking costs nothing: beside it memory is touched by one thread.
 */
#include "more.h"

#include "base/json.h"
#include "tool/figure.h"
#include "tool/latency.h"

#include <glake/host.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

#define ROUNDS	  5
#define SIZE	  (8 * GIB) /* on CUDA */
#define SIZE_SOFT (256 * MIB)
#define EACH	  (2 * MIB) /* a word is written */

enum step {
	POOL,  /* the first block; s, as the others */
	AGAIN, /* one of the same size after it was freed, and the free */
	PLAIN,
	DRIVER,
	STEPS,
};

static const struct {
	const char *key, *name;
} steps[STEPS] = {
	[POOL] = {"pool_s", "glake_host_alloc"},
	[AGAIN] = {"again_s", "freed and again"},
	[PLAIN] = {"plain_s", "locked as it comes"},
	[DRIVER] = {"driver_s", "the driver's own"},
};

struct bench_host {
	unsigned rounds;
	size_t bytes;
	bool on_cuda;
	struct bench_range took[STEPS];
	struct bench_range plain_over_pool, driver_over_pool; /* ratios of rounds */
	size_t torn; /* words that were not what was written */
};

struct host_run {
	struct glake *ctx;
	struct bench_cuda cuda;
	struct bench_host *result;
	double *took; /* STEPS for each round */
};

/* Writes all over a block, and looks whether it is there. */
static size_t write_words(char *ptr, size_t bytes, uint32_t word)
{
	size_t torn = 0;

	for (size_t at = 0; at + sizeof(word) <= bytes; at += EACH)
		memcpy(ptr + at, &(uint32_t){word + (uint32_t)(at / EACH)}, sizeof(word));
	for (size_t at = 0; at + sizeof(word) <= bytes; at += EACH) {
		uint32_t found;

		memcpy(&found, ptr + at, sizeof(found));
		torn += found != word + (uint32_t)(at / EACH);
	}
	return torn;
}

static double since(int64_t begin)
{
	int64_t ns = latency_now() - begin;

	return (double)(ns < 1 ? 1 : ns) / 1e9;
}

static int from_pool(struct host_run *run, unsigned round)
{
	size_t bytes = run->result->bytes;
	double *took = run->took + (size_t)round * STEPS;
	int64_t begin = latency_now();
	void *ptr = NULL;
	int err = glake_host_alloc(run->ctx, 0, bytes, 0, &ptr);

	took[POOL] = since(begin);
	if (err)
		return err;
	run->result->torn += write_words(ptr, bytes, round * 40503u);
	begin = latency_now();
	err = glake_host_free(run->ctx, ptr);
	if (!err)
		err = glake_host_alloc(run->ctx, 0, bytes, 0, &ptr);
	took[AGAIN] = since(begin);
	if (!err)
		err = glake_host_free(run->ctx, ptr);
	return err ? err : glake_trim(run->ctx, 0, SIZE_MAX, NULL);
}

static int plainly(struct host_run *run, unsigned round)
{
	size_t bytes = run->result->bytes;
	int64_t begin = latency_now();
	void *ptr = mmap(
		NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned failed = 0;

	if (ptr == MAP_FAILED)
		return -errno;
	if (run->result->on_cuda)
		failed = run->cuda.host_register(ptr, bytes, 0);
	else
		memset(ptr, 1, bytes);
	run->took[(size_t)round * STEPS + PLAIN] = since(begin);
	if (run->result->on_cuda && !failed)
		run->cuda.host_unregister(ptr);
	munmap(ptr, bytes);
	return failed ? -EIO : 0;
}

static int by_driver(struct host_run *run, unsigned round)
{
	int64_t begin = latency_now();
	void *ptr = NULL;
	unsigned failed = run->cuda.host_alloc(&ptr, run->result->bytes, 0);

	run->took[(size_t)round * STEPS + DRIVER] = since(begin);
	if (!failed)
		run->cuda.host_free(ptr);
	return failed ? -EIO : 0;
}

static int run_rounds(struct host_run *run)
{
	unsigned rounds = run->result->rounds;
	int err = 0;

	for (unsigned round = 0; round < rounds && !err; round++) {
		err = from_pool(run, round);
		if (!err)
			err = plainly(run, round);
		if (!err && run->result->on_cuda)
			err = by_driver(run, round);
		progress_step(round + 1, rounds);
	}
	return err;
}

static struct bench_range ranged(const struct host_run *run, int step, int over)
{
	double values[BENCH_ROUNDS_MAX];

	for (unsigned i = 0; i < run->result->rounds; i++) {
		const double *took = run->took + (size_t)i * STEPS;

		values[i] = over < 0 ? took[step] : took[step] / took[over];
	}
	return bench_range_of(values, run->result->rounds);
}

static void sum_up(struct host_run *run)
{
	struct bench_host *host = run->result;

	for (int step = 0; step < STEPS; step++)
		host->took[step] = ranged(run, step, -1);
	host->plain_over_pool = ranged(run, PLAIN, POOL);
	host->driver_over_pool = ranged(run, DRIVER, POOL);
}

/* A piece of the block's own size, whatever that is. */
static int open_context(const struct bench_options *options, struct host_run *run)
{
	struct glk_tool_context context = options->context;
	struct CUstream_st *stream = NULL;
	int err = glk_tool_add_setting(&context, "bench", "host.piece=4MiB");

	if (!err)
		err = glk_tool_open(&context, &run->ctx);
	if (err)
		return err;
	run->result->on_cuda = glake_backend(run->ctx) == GLAKE_BACKEND_CUDA;
	if (!run->result->on_cuda)
		return 0;
	err = bench_cuda_find(&bench_host, &run->cuda);
	if (!err)
		err = glake_stream_new(run->ctx, 0, &stream);
	if (!err) {
		err = bench_cuda_enter(&run->cuda, stream);
		glake_stream_free(run->ctx, 0, stream);
	}
	return err;
}

static int measure(const struct bench_options *options, void *measured)
{
	struct bench_host *host = measured;
	struct host_run run = {.result = host};
	int err;

	host->rounds = options->rounds ? options->rounds : ROUNDS;
	run.took = calloc((size_t)host->rounds * STEPS, sizeof(*run.took));
	err = run.took ? open_context(options, &run) : -ENOMEM;
	host->bytes = options->size ? options->size : host->on_cuda ? SIZE : SIZE_SOFT;
	if (!err)
		err = run_rounds(&run);
	if (!err)
		sum_up(&run);
	err = bench_close(&bench_host, run.ctx, err);
	free(run.took);
	return err;
}

static void add(struct glk_json *json, const void *measured)
{
	const struct bench_host *host = measured;

	glk_json_key(json, "host");
	glk_json_object(json);
	glk_json_add_uint(json, "rounds", host->rounds);
	glk_json_add_uint(json, "bytes", host->bytes);
	for (int step = 0; step < STEPS; step++)
		if (step != DRIVER || host->on_cuda)
			bench_add_range(json, steps[step].key, host->took[step]);
	glk_json_add_figure(json, "pool_s_8gib",
		host->took[POOL].median * (double)(8 * GIB) / (double)host->bytes, 5);
	bench_add_range(json, "plain_over_pool", host->plain_over_pool);
	if (host->on_cuda)
		bench_add_range(json, "driver_over_pool", host->driver_over_pool);
	glk_json_add_bool(json, "whole", !host->torn);
	glk_json_end(json);
}

static void print(const void *measured)
{
	const struct bench_host *host = measured;

	printf("pinned memory of the host, %s, ms, %u rounds\n\n  %-20s %10s %10s %10s %8s\n",
		figure_bytes(host->bytes).text, host->rounds, "", "least", "median",
		"most", "GB/s");
	for (int step = 0; step < STEPS; step++) {
		const struct bench_range *r = &host->took[step];
		bool touched = step == PLAIN && !host->on_cuda;

		if (step == DRIVER && !host->on_cuda)
			continue;
		printf("  %-20s %10.3f %10.3f %10.3f",
			touched ? "one thread touches" : steps[step].name, r->min * 1e3,
			r->median * 1e3, r->max * 1e3);
		if (step != AGAIN)
			printf(" %8.1f", (double)host->bytes / r->median / 1e9);
		putchar('\n');
	}
	if (host->torn)
		printf("  FAILED: %zu words are not what was written\n", host->torn);
	putchar('\n');
}

static bool finish(const struct bench_options *options, const void *measured)
{
	const struct bench_host *host = measured;

	(void)options;
	return !host->torn;
}

const struct bench_part bench_host = {.name = "host",
	.size = sizeof(struct bench_host),
	.measure = measure,
	.add = add,
	.print = print,
	.finish = finish};
