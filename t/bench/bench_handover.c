/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a request costs that gets what another stream freed a moment ago, by why it may have it:
 *
 *	wait	work is pending on that stream, so a stream wait is inserted
 *	noted	work is pending, and the program told that it made the wait itself
 *	done	the work has finished, and an event that was recorded before tells so
 *
 * A row of blocks is given to one stream, and one after the other is freed there and asked for
 * on another stream, which has nothing else to take. That request alone is timed, in every
 * second round; in the others the driver's calls during it are counted, which takes time.
 *
 * Work is kept pending on CUDA by fills of a large block, for which the driver is called past
 * the library; whether they lasted is asked at the end of each round, else it does not count.
 * The software device runs nothing of its own accord in its stepped mode.
 */
#include "more.h"

#include "base/json.h"
#include "tool/figure.h"
#include "tool/latency.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS	 20
#define WARM	 3   /* rounds before them */
#define FIRST	 5   /* requests of a round that are not timed: events are made, say */
#define BLOCKS	 100 /* of a round: few enough for the queues of a stream */
#define GIVEN	 (FIRST + BLOCKS)
#define FILLED	 ((size_t)512 << 20)
#define FILLS	 200 /* of a round: some 30 ms on an H200 */
#define ATTEMPTS 3   /* at a round */

static const size_t sizes[] = {(size_t)8 << 20, (size_t)64 << 20};

enum policy { WAIT, NOTED, DONE, POLICIES };

static const char *const names[POLICIES] = {"wait", "noted", "done"};

#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

_Static_assert(SIZES *POLICIES == BENCH_HANDOVERS, "room for all cases");

struct relay {
	struct glake *ctx;
	struct bench_cuda cuda;
	bool on_cuda;
	enum policy policy;
	struct bench_handover_case *result;
	int64_t clock;
	int64_t *ns;
	size_t count, room;
	struct CUstream_st *from, *to, *third;
	struct CUevent_st *event;
	void *block[GIVEN + 1], *filled;
};

static int ask(struct relay *relay, struct CUstream_st *stream, size_t size, void **ret)
{
	return glake_alloc(relay->ctx, 0, size, stream, 0, ret);
}

static int begin_work(struct relay *relay)
{
	int err;

	if (!relay->on_cuda || relay->policy == DONE)
		return 0;
	err = ask(relay, relay->from, FILLED, &relay->filled);
	if (err)
		return err;
	err = bench_cuda_enter(&relay->cuda, relay->from);
	for (int i = 0; i < FILLS && !err; i++)
		err = relay->cuda.fill(
			      (uintptr_t)relay->filled, 0, FILLED / 4, relay->from)
			? -EIO
			: 0;
	return err;
}

/* Whether the work lasted. */
static bool is_pending(const struct relay *relay)
{
	return !relay->on_cuda || relay->policy == DONE ||
		relay->cuda.query(relay->from) == BENCH_CUDA_PENDING;
}

static void wait_for_work(const struct relay *relay)
{
	while (relay->on_cuda && relay->cuda.query(relay->from) == BENCH_CUDA_PENDING)
		;
}

static int release(struct relay *relay, void **block, struct CUstream_st *stream)
{
	int err = *block ? glake_free(relay->ctx, *block, stream) : 0;

	*block = NULL;
	return err;
}

/* One more block than is handed over: with the last of them a third stream has an event
 * recorded, see policy DONE. */
static int begin_round(struct relay *relay, size_t size)
{
	int err;

	err = glake_stream_new(relay->ctx, 0, &relay->from);
	if (!err)
		err = glake_stream_new(relay->ctx, 0, &relay->to);
	if (!err)
		err = glake_stream_new(relay->ctx, 0, &relay->third);
	if (!err)
		err = glake_event_new(relay->ctx, 0, &relay->event);
	for (int i = 0; i <= GIVEN && !err; i++)
		err = ask(relay, relay->from, size, &relay->block[i]);
	return err ? err : begin_work(relay);
}

/* Their ends wait for their work. */
static int end_round(struct relay *relay)
{
	struct CUstream_st **streams[] = {&relay->from, &relay->to, &relay->third};
	int err = release(relay, &relay->filled, relay->from), failed;

	for (int i = 0; i <= GIVEN; i++) {
		failed = release(relay, &relay->block[i], relay->to);
		err = err ? err : failed;
	}
	if (relay->event) {
		failed = glake_event_free(relay->ctx, 0, relay->event);
		err = err ? err : failed;
	}
	relay->event = NULL;
	for (size_t i = 0; i < sizeof(streams) / sizeof(streams[0]); i++) {
		failed = glake_stream_free(relay->ctx, 0, *streams[i]);
		err = err ? err : failed;
		*streams[i] = NULL;
	}
	return err;
}

/* A block is freed, and whatever lets another stream have it happens. */
static int let_go(struct relay *relay, int i, size_t size)
{
	int err = release(relay, &relay->block[i], relay->from);

	if (!err && relay->policy == NOTED)
		err = glake_event_record(relay->ctx, 0, relay->event, relay->from);
	if (!err && relay->policy == NOTED)
		err = glake_stream_wait(relay->ctx, 0, relay->to, relay->event);
	if (err || relay->policy != DONE)
		return err;
	/* what the third stream gets is behind an event that covers the block before too */
	err = release(relay, &relay->block[GIVEN], relay->from);
	if (!err)
		err = ask(relay, relay->third, size, &relay->block[GIVEN]);
	wait_for_work(relay);
	return err;
}

/* The request itself, between two readings of the clock or of the driver's figures. */
static int take(struct relay *relay, int i, size_t size, bool profiled)
{
	struct glake_driver_stats before = {.sz = sizeof(before)}, after = before;
	int64_t start;
	int err;

	if (!profiled) {
		start = latency_now();
		err = ask(relay, relay->to, size, &relay->block[i]);
		relay->ns[relay->count++] = latency_now() - start - relay->clock;
		return err;
	}
	err = glake_driver_stats_get(relay->ctx, &before);
	if (!err)
		err = ask(relay, relay->to, size, &relay->block[i]);
	if (!err)
		err = glake_driver_stats_get(relay->ctx, &after);
	for (int k = 0; k < GLAKE_CALL_COUNT; k++) {
		relay->result->calls[k] += (double)(after.calls[k] - before.calls[k]);
		relay->result->driver_ns[k] += (double)(after.ns[k] - before.ns[k]);
	}
	return err;
}

static int run_round(struct relay *relay, size_t size, bool profiled)
{
	struct bench_handover_case before = *relay->result;
	size_t count = relay->count;
	int err = begin_round(relay, size), failed;
	bool lasted;

	for (int i = 0; i < GIVEN && !err; i++) {
		err = let_go(relay, i, size);
		if (!err && i < FIRST)
			err = ask(relay, relay->to, size, &relay->block[i]);
		else if (!err)
			err = take(relay, i, size, profiled);
	}
	lasted = err || is_pending(relay);
	failed = end_round(relay);
	if (lasted)
		return err ? err : failed;
	*relay->result = before;
	relay->count = count;
	return failed ? failed : -EAGAIN;
}

static int by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return x < y ? -1 : x > y;
}

static void sum_up(struct relay *relay, unsigned profiled)
{
	struct bench_handover_case *result = relay->result;
	double requests = (double)profiled * BLOCKS;

	qsort(relay->ns, relay->count, sizeof(relay->ns[0]), by_value);
	result->requests = relay->count;
	result->min = relay->ns[0];
	result->median = relay->ns[relay->count / 2];
	result->p99 = relay->ns[relay->count * 99 / 100];
	result->max = relay->ns[relay->count - 1];
	for (size_t i = 0; i < relay->count; i++)
		result->mean += (double)relay->ns[i] / (double)relay->count;
	for (int k = 0; k < GLAKE_CALL_COUNT; k++) {
		result->calls[k] /= requests;
		result->driver_ns[k] /= requests;
		result->driver += result->driver_ns[k];
	}
}

static int run_rounds(struct relay *relay, size_t size, unsigned rounds)
{
	int err;

	/* for nothing: memory is made, code and tables come to hand */
	for (int i = 0; i < WARM; i++) {
		err = run_round(relay, size, true);
		if (err && err != -EAGAIN)
			return err;
	}
	memset(relay->result->calls, 0, sizeof(relay->result->calls));
	memset(relay->result->driver_ns, 0, sizeof(relay->result->driver_ns));
	relay->count = 0;
	for (unsigned round = 0; round < 2 * rounds; round++) {
		int attempts = ATTEMPTS;

		do {
			err = run_round(relay, size, round % 2);
		} while (err == -EAGAIN && --attempts);
		if (err == -EAGAIN)
			glk_tool_say(
				"bench handover: the GPU finished its work too soon");
		if (err)
			return err;
		progress_step(round + 1, 2 * rounds);
	}
	sum_up(relay, rounds);
	return 0;
}

static int open_context(const struct bench_options *options, struct relay *relay)
{
	struct glk_tool_context context = options->context;
	int err;

	err = glk_tool_add_setting(&context, "bench",
		relay->policy == DONE ? "soft.streams=worker" : "soft.streams=stepped");
	/* what waits in a bin of one stream is not given to another */
	if (!err)
		err = glk_tool_add_setting(&context, "bench", "policy.bins=0");
	/* streams that wait so often get memory to themselves where the blocks are small beside the GPU */
	if (!err)
		err = glk_tool_add_setting(&context, "bench", "pool.budget=16GiB");
	if (!err)
		err = glk_tool_open(&context, &relay->ctx);
	if (err)
		return err;
	relay->on_cuda = glake_backend(relay->ctx) == GLAKE_BACKEND_CUDA;
	return relay->on_cuda ? bench_cuda_find(&bench_handover, &relay->cuda) : 0;
}

/* Every request did what the case is about. */
static bool is_meant(const struct bench_handover_case *result)
{
	double waits = result->calls[GLAKE_CALL_STREAM_WAIT];

	return result->calls[GLAKE_CALL_MAP] <= 0 &&
		(result->waits ? waits > 0.99 && waits < 1.01 : waits <= 0);
}

static int run_case(const struct bench_options *options, enum policy policy, size_t size,
	unsigned rounds, struct bench_handover_case *ret_case)
{
	struct relay relay = {.policy = policy,
		.result = ret_case,
		.clock = latency_clock_cost(),
		.ns = malloc((size_t)rounds * BLOCKS * sizeof(int64_t))};
	int err = relay.ns ? open_context(options, &relay) : -ENOMEM;

	*ret_case = (struct bench_handover_case){
		.policy = names[policy], .block = size, .waits = policy == WAIT};
	if (!err)
		err = run_rounds(&relay, size, rounds);
	ret_case->meant = !err && is_meant(ret_case);
	err = bench_close(&bench_handover, relay.ctx, err);
	free(relay.ns);
	return err;
}

static int measure(const struct bench_options *options, void *measured)
{
	struct bench_handover *handover = measured;
	int err = 0;

	*handover = (struct bench_handover){
		.rounds = options->rounds ? options->rounds : ROUNDS,
		.blocks = BLOCKS,
		.meant = true};
	for (int i = 0; i < BENCH_HANDOVERS && !err; i++) {
		struct bench_handover_case *c = &handover->cases[i];

		err = run_case(options, (enum policy)(i % POLICIES), sizes[i / POLICIES],
			handover->rounds, c);
		handover->meant = handover->meant && c->meant;
	}
	return err;
}

static void add(struct glk_json *json, const void *measured)
{
	const struct bench_handover *handover = measured;

	glk_json_key(json, "handover");
	glk_json_object(json);
	glk_json_add_uint(json, "rounds", handover->rounds);
	glk_json_add_uint(json, "requests_a_round", handover->blocks);
	glk_json_key(json, "cases");
	glk_json_array(json);
	for (int i = 0; i < BENCH_HANDOVERS; i++) {
		const struct bench_handover_case *c = &handover->cases[i];

		glk_json_object(json);
		glk_json_add_text(json, "policy", c->policy);
		glk_json_add_uint(json, "block_bytes", c->block);
		glk_json_add_uint(json, "requests", c->requests);
		glk_json_key(json, "ns");
		glk_json_object(json);
		glk_json_add_figure(json, "mean", c->mean, 5);
		glk_json_add_figure(json, "min", (double)c->min, 9);
		glk_json_add_figure(json, "median", (double)c->median, 9);
		glk_json_add_figure(json, "p99", (double)c->p99, 9);
		glk_json_add_figure(json, "max", (double)c->max, 9);
		glk_json_end(json);
		glk_json_key(json, "driver_calls_a_request");
		glk_json_object(json);
		for (int k = 0; k < GLAKE_CALL_COUNT; k++)
			glk_json_add_figure(json, glake_call_name(k), c->calls[k], 5);
		glk_json_end(json);
		glk_json_key(json, "driver_ns_a_request");
		glk_json_object(json);
		for (int k = 0; k < GLAKE_CALL_COUNT; k++)
			glk_json_add_figure(json, glake_call_name(k), c->driver_ns[k], 5);
		glk_json_end(json);
		glk_json_add_bool(json, "as_meant", c->meant);
		glk_json_end(json);
	}
	glk_json_end(json);
	glk_json_add_bool(json, "as_meant", handover->meant);
	glk_json_end(json);
}

static void print(const void *measured)
{
	const struct bench_handover *handover = measured;

	printf("a block that another stream freed, ns a request, %u rounds of %u\n\n",
		handover->rounds, handover->blocks);
	printf("  %-6s %8s %8s %8s %8s %8s %8s   %s\n", "", "block", "mean", "min",
		"median", "99 %", "max", "driver calls, and ns of each request in them");
	for (int i = 0; i < BENCH_HANDOVERS; i++) {
		const struct bench_handover_case *c = &handover->cases[i];

		printf("  %-6s %8s %8.0f %8lld %8lld %8lld %8lld  ", c->policy,
			figure_bytes(c->block).text, c->mean, (long long)c->min,
			(long long)c->median, (long long)c->p99, (long long)c->max);
		for (int k = 0; k < GLAKE_CALL_COUNT; k++)
			if (c->calls[k] > 0)
				printf(" %.2f %s %.0f", c->calls[k], glake_call_name(k),
					c->driver_ns[k]);
		printf("%s\n", c->meant ? "" : "  NOT AS MEANT");
	}
	putchar('\n');
}

static bool finish(const struct bench_options *options, const void *measured)
{
	const struct bench_handover *handover = measured;

	(void)options;
	return handover->meant;
}

const struct bench_part bench_handover = {.name = "handover",
	.size = sizeof(struct bench_handover),
	.measure = measure,
	.add = add,
	.print = print,
	.finish = finish};
