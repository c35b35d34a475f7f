/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How fast contents leave the GPU for the host and come back, by the size of blocks, how fast a block is
 * written that lies on the host in place, and, where there are several GPUs, how fast contents go to the
 * second one and come back. Blocks hold a word that differs from block to block and
 * from round to round, which is looked for when they are back.
 *
 * The figures of the software device are those of copies within the memory of the host; it runs
 * work when it is queued, so there is nothing to wait for.
 */
#include "tool/bench.h"

#include "base/json.h"
#include "tool/latency.h"

#include <glake/soft.h>
#include <glake/tier.h>

#include <errno.h>
#include <stdlib.h>

#define MIB ((size_t)1 << 20)

#define ROUNDS	   5
#define TOTAL	   (4096 * MIB) /* of the blocks of a size, on CUDA */
#define TOTAL_SOFT (32 * MIB)

#define CASES 3

enum step {
	STEP_CALL, /* us that the call of a spill takes; GB/s where nothing else is said */
	STEP_SPILL,
	STEP_FETCH,
	STEP_BOTH,
	STEP_SUSPEND,
	STEP_RESUME,
	STEP_LOWER, /* suspended in place */
	STEP_LAZY,  /* us until that has ended lazily */
	STEP_QUIET, /* what lies in place then comes to the GPU */
	STEP_PLACE,
	STEP_PEER_SPILL, /* to another GPU that lends its memory, and back */
	STEP_PEER_FETCH,
	STEP_PEER_BOTH,
	STEPS,
};

struct tier {
	unsigned rounds;
	struct tier_case {
		size_t block, count;
		bool peer; /* another GPU has lent memory */
		/* Of the first round, which makes memory of the host. */
		double first[STEPS];
		struct bench_range figure[STEPS];
		size_t torn; /* blocks that did not hold what was written */
	} cases[CASES];
	size_t torn;
};

static const size_t sizes[CASES] = {MIB, 16 * MIB, 128 * MIB};
static const size_t sizes_soft[CASES] = {MIB, 4 * MIB, 16 * MIB};

struct trip {
	struct glake *ctx;
	struct bench_cuda cuda;
	bool on_cuda;
	struct tier_case *result;
	struct CUstream_st *stream;
	size_t size, count;
	void **block;
	double *took[STEPS]; /* GB/s, of the rounds */
	unsigned round;
	bool peer; /* to another GPU, and back */
};

static uint32_t word_of(const struct trip *trip, size_t i)
{
	return (uint32_t)(i + 1) * 2654435761u ^ trip->round * 40503u;
}

static int fill(const struct trip *trip, void *ptr, size_t bytes, uint32_t word)
{
	if (!trip->on_cuda)
		return glake_soft_fill(trip->ctx, trip->stream, ptr, word, bytes / 4);
	return trip->cuda.fill((uintptr_t)ptr, word, bytes / 4, trip->stream) ? -EIO : 0;
}

static int wait_for_all(const struct trip *trip)
{
	return trip->on_cuda && trip->cuda.sync() ? -EIO : 0;
}

static bool holds(const struct trip *trip, size_t i)
{
	const char *at[] = {trip->block[i], (char *)trip->block[i] + trip->size - 4};
	uint32_t word = 0;

	for (int end = 0; end < 2; end++) {
		if (!trip->on_cuda)
			word = *(const uint32_t *)(const void *)at[end];
		else if (trip->cuda.read(&word, (uintptr_t)at[end], sizeof(word)))
			return false;
		if (word != word_of(trip, i))
			return false;
	}
	return true;
}

static void note(struct trip *trip, enum step step, size_t bytes, int64_t since)
{
	double ns = (double)(latency_now() - since);

	trip->took[step][trip->round] = (double)bytes / (ns < 1 ? 1 : ns);
}

typedef int (*move_fn)(struct glake *ctx, void *ptr, struct CUstream_st *stream);

/* Every block from the first on, or every second one. */
static int move(const struct trip *trip, move_fn fn, size_t first, size_t step)
{
	int err = 0;

	for (size_t i = first; i < trip->count && !err; i += step)
		err = fn(trip->ctx, trip->block[i], trip->stream);
	return err;
}

static int moves(struct trip *trip, enum step step, move_fn fn)
{
	int64_t begin = latency_now();
	int err = move(trip, fn, 0, 1);

	if (step == STEP_SPILL)
		trip->took[STEP_CALL][trip->round] =
			(double)(latency_now() - begin) / 1e3 / (double)trip->count;
	err = err ? err : wait_for_all(trip);
	note(trip, step, trip->size * trip->count, begin);
	return err;
}

/* One half goes while the other half comes. */
static int both(struct trip *trip)
{
	int64_t begin;
	int err = move(trip, glake_spill, 0, 2);

	err = err ? err : wait_for_all(trip);
	begin = latency_now();
	for (size_t i = 0; i < trip->count && !err; i++)
		err = (i % 2 ? glake_spill : glake_fetch)(
			trip->ctx, trip->block[i], trip->stream);
	err = err ? err : wait_for_all(trip);
	note(trip, trip->peer ? STEP_PEER_BOTH : STEP_BOTH, trip->size * trip->count,
		begin);
	err = err ? err : move(trip, glake_fetch, 1, 2);
	return err ? err : wait_for_all(trip);
}

static int suspends(struct trip *trip)
{
	int64_t begin = latency_now();
	int err = glake_suspend(trip->ctx, 0, NULL);

	note(trip, STEP_SUSPEND, trip->size * trip->count, begin);
	begin = latency_now();
	if (!err)
		err = glake_resume(trip->ctx, 0, NULL);
	note(trip, STEP_RESUME, trip->size * trip->count, begin);
	return err;
}

/* To the host in place, where all could be used at once, and from there. */
static int lowers(struct trip *trip)
{
	size_t bytes = trip->size * trip->count;
	int64_t begin = latency_now();
	int err = glake_suspend_in_place(trip->ctx, 0, NULL);

	note(trip, STEP_LOWER, bytes, begin);
	begin = latency_now();
	if (!err)
		err = glake_resume_lazy(trip->ctx, 0, NULL);
	trip->took[STEP_LAZY][trip->round] = (double)(latency_now() - begin) / 1e3;
	begin = latency_now();
	if (!err)
		err = glake_quiet(trip->ctx, 0, NULL);
	note(trip, STEP_QUIET, bytes, begin);
	return err;
}

/* The GPU may hold what it holds: one block more lies on the host, in place. */
static int places(struct trip *trip)
{
	struct glake_stats stats = {.sz = sizeof(stats)};
	struct glake_block block = {.sz = sizeof(block)};
	void *ptr = NULL;
	int64_t begin;
	int err = glake_stats_get(trip->ctx, 0, &stats), failed;

	if (!err)
		err = glake_budget_set(trip->ctx, 0, stats.reserved);
	/* so that no idle page of the GPU is enough */
	if (!err)
		err = glake_alloc(
			trip->ctx, 0, trip->size * trip->count, trip->stream, 0, &ptr);
	if (!err)
		err = glake_query(trip->ctx, ptr, &block);
	if (!err && !block.placed)
		err = -ENOTSUP;
	/* the first touch of addresses is the driver's */
	if (!err)
		err = fill(trip, ptr, trip->size, 1);
	err = err ? err : wait_for_all(trip);
	begin = latency_now();
	if (!err)
		err = fill(trip, ptr, trip->size * trip->count, 2);
	err = err ? err : wait_for_all(trip);
	note(trip, STEP_PLACE, trip->size * trip->count, begin);
	failed = ptr ? glake_free(trip->ctx, ptr, trip->stream) : 0;
	err = err ? err : failed;
	failed = glake_budget_set(trip->ctx, 0, SIZE_MAX);
	return err ? err : failed;
}

/* Whether all of a block has gone to the other GPU. */
static bool is_there(const struct trip *trip)
{
	struct glake_block block = {.sz = sizeof(block)};

	return !glake_query(trip->ctx, trip->block[0], &block) &&
		block.away_peer == trip->size;
}

static int to_host(struct trip *trip)
{
	int err = moves(trip, STEP_SPILL, glake_spill);

	err = err ? err : moves(trip, STEP_FETCH, glake_fetch);
	err = err ? err : both(trip);
	err = err ? err : suspends(trip);
	err = err ? err : lowers(trip);
	return err ? err : places(trip);
}

static int to_peer(struct trip *trip)
{
	int err = moves(trip, STEP_PEER_SPILL, glake_spill);

	trip->result->peer = is_there(trip);
	err = err ? err : moves(trip, STEP_PEER_FETCH, glake_fetch);
	return err ? err : both(trip);
}

static int run_round(struct trip *trip)
{
	int err = 0;

	for (size_t i = 0; i < trip->count && !err; i++)
		err = fill(trip, trip->block[i], trip->size, word_of(trip, i));
	err = err ? err : wait_for_all(trip);
	if (!err)
		err = trip->peer ? to_peer(trip) : to_host(trip);
	for (size_t i = 0; i < trip->count && !err; i++)
		trip->result->torn += !holds(trip, i);
	return err;
}

static int open_context(const struct bench_options *options, struct trip *trip)
{
	struct glk_tool_context context = options->context;
	int err = glk_tool_add_setting(
		&context, "bench", trip->peer ? "tier.away=peer" : "tier.place=host");

	if (!err && trip->peer)
		err = glk_tool_add_setting(&context, "bench", "tier.peer=1");
	if (!err)
		err = glk_tool_open(&context, &trip->ctx);
	if (err)
		return err;
	trip->on_cuda = glake_backend(trip->ctx) == GLAKE_BACKEND_CUDA;
	err = glake_stream_new(trip->ctx, 0, &trip->stream);
	if (!err && trip->on_cuda)
		err = bench_cuda_find(&bench_tier, &trip->cuda);
	if (!err && trip->on_cuda)
		err = bench_cuda_enter(&trip->cuda, trip->stream);
	return err;
}

static bool is_step_of(const struct trip *trip, int step)
{
	return trip->peer == (step >= STEP_PEER_SPILL && step <= STEP_PEER_BOTH);
}

/* The first round has the memory of the host to make, and is told apart. */
static int run_rounds(struct trip *trip, unsigned rounds)
{
	struct tier_case *c = trip->result;
	int err = 0;

	for (size_t i = 0; i < trip->count && !err; i++)
		err = glake_alloc(
			trip->ctx, 0, trip->size, trip->stream, 0, &trip->block[i]);
	for (trip->round = 0; trip->round <= rounds && !err; trip->round++) {
		err = run_round(trip);
		progress_step(trip->round, rounds);
	}
	if (err)
		return err;
	for (int step = 0; step < STEPS; step++) {
		if (!is_step_of(trip, step))
			continue;
		c->first[step] = trip->took[step][0];
		c->figure[step] = bench_range_of(trip->took[step] + 1, rounds);
	}
	return 0;
}

static int free_all(struct trip *trip)
{
	int err = 0, failed;

	for (size_t i = 0; trip->block && i < trip->count; i++) {
		failed = trip->block[i]
			? glake_free(trip->ctx, trip->block[i], trip->stream)
			: 0;
		err = err ? err : failed;
	}
	failed = trip->stream ? glake_stream_free(trip->ctx, 0, trip->stream) : 0;
	return err ? err : failed;
}

static int run_case(const struct bench_options *options, bool peer, unsigned rounds,
	struct tier_case *ret_case)
{
	struct trip trip = {.result = ret_case, .size = ret_case->block, .peer = peer};
	double *took = calloc((size_t)STEPS * (rounds + 1), sizeof(*took));
	int err = took ? open_context(options, &trip) : -ENOMEM, failed;

	trip.count = (trip.on_cuda ? TOTAL : TOTAL_SOFT) / trip.size;
	trip.block = calloc(trip.count, sizeof(*trip.block));
	if (!trip.block)
		err = err ? err : -ENOMEM;
	for (int step = 0; step < STEPS; step++)
		trip.took[step] = took + (size_t)step * (rounds + 1);
	ret_case->count = trip.count;
	if (!err)
		err = run_rounds(&trip, rounds);
	failed = trip.ctx ? free_all(&trip) : 0;
	err = bench_close(&bench_tier, trip.ctx, err ? err : failed);
	free(trip.block);
	free(took);
	return err;
}

static int find_gpus(
	const struct bench_options *options, int *ret_gpus, bool *ret_on_cuda)
{
	struct glk_tool_context context = options->context;
	struct glake *ctx = NULL;
	int err = glk_tool_open(&context, &ctx);

	*ret_gpus = err ? 0 : glake_device_count(ctx);
	*ret_on_cuda = !err && glake_backend(ctx) == GLAKE_BACKEND_CUDA;
	return bench_close(&bench_tier, ctx, err);
}

static int measure(const struct bench_options *options, void *measured)
{
	struct tier *tier = measured;
	bool on_cuda;
	int err, gpus;

	tier->rounds = options->rounds ? options->rounds : ROUNDS;
	err = find_gpus(options, &gpus, &on_cuda);
	for (int i = 0; i < CASES && !err; i++) {
		struct tier_case *c = &tier->cases[i];

		*c = (struct tier_case){.block = (on_cuda ? sizes : sizes_soft)[i]};
		err = run_case(options, false, tier->rounds, c);
		if (!err && gpus > 1)
			err = run_case(options, true, tier->rounds, c);
		tier->torn += c->torn;
	}
	return err;
}

static const struct {
	const char *key;
	const char *
		first; /* the first round makes what contents go to, and is told apart; or NULL */
} steps[STEPS] = {
	[STEP_CALL] = {"spill_call_us", NULL},
	[STEP_SPILL] = {"spill_gbs", "first_spill_gbs"},
	[STEP_FETCH] = {"fetch_gbs", NULL},
	[STEP_BOTH] = {"both_gbs", NULL},
	[STEP_SUSPEND] = {"suspend_gbs", "first_suspend_gbs"},
	[STEP_RESUME] = {"resume_gbs", NULL},
	[STEP_LOWER] = {"suspend_in_place_gbs", "first_suspend_in_place_gbs"},
	[STEP_LAZY] = {"resume_lazy_us", NULL},
	[STEP_QUIET] = {"quiet_gbs", NULL},
	[STEP_PLACE] = {"place_gbs", NULL},
	[STEP_PEER_SPILL] = {"peer_spill_gbs", "first_peer_spill_gbs"},
	[STEP_PEER_FETCH] = {"peer_fetch_gbs", NULL},
	[STEP_PEER_BOTH] = {"peer_both_gbs", NULL},
};

/* Of those that were taken: without another GPU that lends the last are not. */
static int steps_of(const struct tier_case *c)
{
	return c->peer ? STEPS : STEP_PEER_SPILL;
}

static void add(struct glk_json *json, const void *measured)
{
	const struct tier *tier = measured;

	glk_json_key(json, "tier");
	glk_json_object(json);
	glk_json_add_uint(json, "rounds", tier->rounds);
	glk_json_key(json, "cases");
	glk_json_array(json);
	for (int i = 0; i < CASES; i++) {
		const struct tier_case *c = &tier->cases[i];

		glk_json_object(json);
		glk_json_add_uint(json, "block_bytes", c->block);
		glk_json_add_uint(json, "blocks", c->count);
		for (int step = 0; step < steps_of(c); step++) {
			if (steps[step].first)
				glk_json_add_figure(
					json, steps[step].first, c->first[step], 5);
			bench_add_range(json, steps[step].key, c->figure[step]);
		}
		glk_json_add_uint(json, "torn", c->torn);
		glk_json_end(json);
	}
	glk_json_end(json);
	glk_json_add_bool(json, "whole", !tier->torn);
	glk_json_end(json);
}

static bool finish(const struct bench_options *options, const void *measured)
{
	const struct tier *tier = measured;

	(void)options;
	return !tier->torn;
}

const struct bench_part bench_tier = {.name = "tier",
	.size = sizeof(struct tier),
	.measure = measure,
	.add = add,
	.finish = finish};
