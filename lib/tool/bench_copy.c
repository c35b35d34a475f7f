/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How fast copies between locked memory of the host and a GPU are, by their size and by the number of
 * GPUs whose links they may go over: down, up, and both ways at once. What went down and came up again is
 * compared, all of it. Then the same over one link for memory of the host that is not locked, copied by the
 * driver and by threads of the library.
 *
 * On the software device memory of the host is not locked, so that there is one path, and the figures
 * are those of copies within that memory.
 */
#include "tool/bench_copy.h"
#include "base/json.h"
#include "tool/latency.h"

#include <glake/copy.h>
#include <glake/soft.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROUNDS	   5
#define LEAST	   (4 * KIB)
#define MOST	   (16384 * MIB) /* on CUDA, where there is room for four of them */
#define MOST_SOFT  (4 * MIB)
#define MOST_PLAIN (1024 * MIB) /* of memory that is not locked, which is slow */
#define THREADS	   8		/* where io.threads says none */
#define PORTABLE   1u		/* CU_MEMHOSTALLOC_PORTABLE */

static char *take_host(const struct trip *trip)
{
	void *ptr = NULL;

	if (!trip->on_cuda || trip->plain)
		return aligned_alloc(4 * KIB, trip->most);
	return trip->cuda.host_alloc(&ptr, trip->most, PORTABLE) ? NULL : ptr;
}

static void give_host(const struct trip *trip, char *ptr)
{
	if (!trip->on_cuda || trip->plain)
		free(ptr);
	else if (ptr)
		trip->cuda.host_free(ptr);
}

/* A power of four of pages, of which the GPU holds two in half of its memory, and the host in a quarter. */
static size_t most_of(const struct trip *trip)
{
	long pages = sysconf(_SC_AVPHYS_PAGES), page = sysconf(_SC_PAGESIZE);
	size_t room = pages > 0 && page > 0 ? (size_t)pages * (size_t)page / 8 : 0;
	struct glake_device info = {.sz = sizeof(info)};
	size_t most = LEAST;

	if (!trip->on_cuda)
		return MOST_SOFT;
	if (!glake_device_get(trip->ctx, 0, &info) && info.memory / 4 < room)
		room = info.memory / 4;
	while (most * 4 <= (trip->plain ? MOST_PLAIN : MOST) && most * 4 <= room)
		most *= 4;
	return most;
}

int trip_queue(const struct trip *trip, enum bench_copy_way way, size_t bytes)
{
	int err = 0;

	if (way != BENCH_COPY_UP)
		err = glake_copy(trip->ctx, trip->block[0], trip->host[0], bytes,
			trip->stream[0], 0, NULL);
	if (way != BENCH_COPY_DOWN && !err)
		err = glake_copy(trip->ctx, trip->host[1],
			trip->block[way == BENCH_COPY_BOTH], bytes, trip->stream[1], 0,
			NULL);
	return err;
}

int trip_wait(const struct trip *trip)
{
	int err = 0;

	if (trip->on_cuda)
		return trip->cuda.sync() ? -EIO : 0;
	for (int i = 0; i < 2 && !err; i++)
		err = trip->stream[i]
			? glake_soft_stream_sync(trip->ctx, 0, trip->stream[i])
			: 0;
	return err;
}

static int measure_way(const struct trip *trip, enum bench_copy_way way, unsigned rounds,
	double *took, struct bench_copy_case *ret)
{
	double calls = way == BENCH_COPY_BOTH ? 2 : 1, ns;
	int err = trip_queue(trip, way, ret->bytes);

	err = err ? err : trip_wait(trip);
	for (unsigned i = 0; i < rounds && !err; i++) {
		int64_t begin = latency_now();

		err = trip_queue(trip, way, ret->bytes);
		took[rounds + i] = (double)(latency_now() - begin) / 1e3 / calls;
		err = err ? err : trip_wait(trip);
		ns = (double)(latency_now() - begin);
		took[i] = calls * (double)ret->bytes / (ns < 1 ? 1 : ns);
	}
	if (err)
		return err;
	ret->rate[way] = bench_range_of(took, rounds);
	ret->call[way] = bench_range_of(took + rounds, rounds);
	return 0;
}

int trip_measure(const struct trip *trip, unsigned rounds, double *took,
	struct bench_copy_case *ret)
{
	int err = 0;

	for (int way = 0; way < BENCH_COPY_WAYS && !err; way++) {
		/* of what went down right before */
		if (way == BENCH_COPY_UP)
			memset(trip->host[1], 0, ret->bytes);
		err = measure_way(trip, (enum bench_copy_way)way, rounds, took, ret);
		if (way == BENCH_COPY_UP && !err)
			ret->torn = memcmp(trip->host[0], trip->host[1], ret->bytes) != 0;
	}
	return err;
}

static int open_context(const struct bench_options *options, const struct means *means,
	struct glake **ret_ctx)
{
	struct glk_tool_context context = options->context;
	char lend[32], threads[32];
	int err;

	/* nobody, whatever the configuration says */
	snprintf(lend, sizeof(lend), "io.lend=");
	if (means->links > 1)
		snprintf(lend, sizeof(lend), "io.lend=1-%d", means->links - 1);
	snprintf(threads, sizeof(threads), "io.threads=%d", means->threads);
	err = glk_tool_add_setting(&context, "bench", lend);
	if (!err)
		err = glk_tool_add_setting(&context, "bench", threads);
	return err ? err : glk_tool_open(&context, ret_ctx);
}

int trip_open(
	const struct bench_options *options, const struct means *means, struct trip *trip)
{
	int err;

	*trip = (struct trip){.plain = means->plain};
	err = open_context(options, means, &trip->ctx);
	if (err)
		return err;
	trip->on_cuda = glake_backend(trip->ctx) == GLAKE_BACKEND_CUDA;
	for (int i = 0; i < 2 && !err; i++)
		err = glake_stream_new(trip->ctx, 0, &trip->stream[i]);
	if (!err && trip->on_cuda)
		err = bench_cuda_find(&bench_copy, &trip->cuda);
	if (!err && trip->on_cuda)
		err = bench_cuda_enter(&trip->cuda, trip->stream[0]);
	trip->most = most_of(trip);
	for (int i = 0; i < 2 && !err; i++) {
		trip->host[i] = take_host(trip);
		err = trip->host[i] ? 0 : -ENOMEM;
		if (!err)
			err = glake_alloc(trip->ctx, 0, trip->most, trip->stream[i], 0,
				&trip->block[i]);
	}
	for (size_t i = 0; i < trip->most / 4 && !err; i++)
		((uint32_t *)(void *)trip->host[0])[i] = (uint32_t)i * 2654435761u;
	return err;
}

int trip_close(struct trip *trip, int err)
{
	int failed = trip->ctx ? trip_wait(trip) : 0;

	for (int i = 0; i < 2; i++) {
		if (trip->block[i])
			glake_free(trip->ctx, trip->block[i], trip->stream[i]);
		if (trip->stream[i])
			glake_stream_free(trip->ctx, 0, trip->stream[i]);
		give_host(trip, trip->host[i]);
	}
	return bench_close(&bench_copy, trip->ctx, err ? err : failed);
}

/* Every size. */
static int run(const struct bench_options *options, const struct means *means,
	struct bench_copy *copy)
{
	double *took = calloc(2 * (size_t)copy->rounds, sizeof(*took));
	struct glake_conf_value lend = {.sz = sizeof(lend)};
	struct trip trip = {0};
	int err = took ? trip_open(options, means, &trip) : -ENOMEM;

	if (!err)
		err = glk_tool_value(trip.ctx, "io", "lend", &lend);
	copy->gpus = err ? 0 : glake_device_count(trip.ctx);
	for (size_t bytes = LEAST; !err && bytes <= trip.most; bytes *= 4) {
		struct bench_copy_case *c = means->plain
			? &copy->plain[copy->plain_count++]
			: &copy->cases[copy->count++];

		*c = (struct bench_copy_case){
			.links = means->links, .threads = means->threads, .bytes = bytes};
		snprintf(c->lend, sizeof(c->lend), "%.15s", lend.text);
		err = trip_measure(&trip, copy->rounds, took, c);
		copy->torn |= c->torn;
		progress_step(copy->count + copy->plain_count,
			BENCH_COPY_CASES + BENCH_COPY_PLAIN);
	}
	err = trip_close(&trip, err);
	free(took);
	return err;
}

/* As many as the configuration says, if it does. */
static int threads_of(const struct bench_options *options, int *ret_threads)
{
	struct glk_tool_context context = options->context;
	struct glake_conf_value value = {.sz = sizeof(value)};
	struct glake *ctx = NULL;
	int err = glk_tool_open(&context, &ctx);

	if (!err)
		err = glk_tool_value(ctx, "io", "threads", &value);
	*ret_threads = err ? 0 : atoi(value.text);
	*ret_threads = *ret_threads ? *ret_threads : THREADS;
	return bench_close(&bench_copy, ctx, err);
}

static int measure(const struct bench_options *options, void *measured)
{
	struct means means = {.links = 1}, plain = {.links = 1, .plain = true};
	struct bench_copy *copy = measured;
	int err;

	copy->rounds = options->rounds ? options->rounds : ROUNDS;
	err = run(options, &means, copy);
	for (means.links = 2;
		means.links <= copy->gpus && means.links <= BENCH_COPY_LINKS && !err;
		means.links++)
		err = run(options, &means, copy);
	if (!err)
		err = run(options, &plain, copy);
	if (!err)
		err = threads_of(options, &plain.threads);
	return err ? err : run(options, &plain, copy);
}

static const struct {
	const char *rate, *call;
} names[BENCH_COPY_WAYS] = {
	[BENCH_COPY_DOWN] = {"down_gbs", "down_call_us"},
	[BENCH_COPY_UP] = {"up_gbs", "up_call_us"},
	[BENCH_COPY_BOTH] = {"both_gbs", "both_call_us"},
};

void bench_copy_add_case(struct glk_json *json, const struct bench_copy_case *c)
{
	glk_json_add_uint(json, "links", (uint64_t)c->links);
	glk_json_add_text(json, "lend", c->lend);
	glk_json_add_uint(json, "threads", (uint64_t)c->threads);
	glk_json_add_uint(json, "bytes", c->bytes);
	for (int way = 0; way < BENCH_COPY_WAYS; way++) {
		bench_add_range(json, names[way].rate, c->rate[way]);
		bench_add_range(json, names[way].call, c->call[way]);
	}
}

static void add_cases(struct glk_json *json, const char *name,
	const struct bench_copy_case *cases, unsigned count)
{
	glk_json_key(json, name);
	glk_json_array(json);
	for (unsigned i = 0; i < count; i++) {
		glk_json_object(json);
		bench_copy_add_case(json, &cases[i]);
		glk_json_end(json);
	}
	glk_json_end(json);
}

static void add(struct glk_json *json, const void *measured)
{
	const struct bench_copy *copy = measured;

	glk_json_key(json, "copy");
	glk_json_object(json);
	glk_json_add_uint(json, "rounds", copy->rounds);
	add_cases(json, "cases", copy->cases, copy->count);
	add_cases(json, "unpinned", copy->plain, copy->plain_count);
	glk_json_add_bool(json, "whole", !copy->torn);
	glk_json_end(json);
}

static bool finish(const struct bench_options *options, const void *measured)
{
	const struct bench_copy *copy = measured;

	return !copy->torn;
}

const struct bench_part bench_copy = {.name = "copy",
	.size = sizeof(struct bench_copy),
	.measure = measure,
	.add = add,
	.finish = finish};
