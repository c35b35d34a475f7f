/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a KV cache costs who calls it, for the lanes of a 7B model (32 layers of keys and values, 8 heads of 128 halves),
 * with either order: a token that finds its memory there, and one that needs a page in each lane; the end of a sequence
 * and the next one of its slot; a fork, the fork of its slot again, and an adopted prefix. Beside each what the driver
 * took of it, and behind them what is held over what is needed.
 *
 * On the software device the driver's time is modelled, and not part of the other.
 */
#include "more.h"
#include "tool/figure.h"
#include "tool/latency.h"

#include "base/json.h"

#include <errno.h>
#include <stdlib.h>

#define ROUNDS 5
#define MOST   100   /* rounds */
#define TOKENS 8192u /* of a prompt */
#define LANES  64u
#define BYTES  2048u

static const char *const names[BENCH_KV_ROWS] = {"prompt", "token, memory there",
	"token, a page a lane", "end", "next in its slot", "fork",
	"fork in the same slot", "adopt"};

enum row { PROMPT, MET, PAGE, END, NEXT, FORK, AGAIN, ADOPT };

struct series {
	double us[MOST], driver_us[MOST];
	size_t count;
};

struct run {
	struct glake *ctx;
	struct glake_kv *kv;
	struct series *series;
	int64_t began, driver;
	int err;
};

static int64_t driver_ns(const struct run *r)
{
	struct glake_driver_stats stats = {.sz = sizeof(stats)};

	return glake_driver_stats_get(r->ctx, &stats) ? 0 : (int64_t)stats.now_ns;
}

static void begin(struct run *r)
{
	r->driver = driver_ns(r);
	r->began = latency_now();
}

/* Of so many calls. */
static void end(struct run *r, enum row row, int err, unsigned calls)
{
	int64_t took = latency_now() - r->began, driver = driver_ns(r) - r->driver;
	struct series *s = &r->series[row];

	r->err = r->err ? r->err : err;
	if (r->err || s->count == MOST)
		return;
	s->us[s->count] = (double)took / 1e3 / calls;
	s->driver_us[s->count++] = (double)driver / 1e3 / calls;
}

static void fork_and_adopt(struct run *r, uint32_t slot, uint32_t tokens)
{
	struct glake_kv *kv = r->kv;
	uint32_t other = 0, adopted;
	int err;

	for (int i = 0; i < 2 && !r->err; i++) {
		begin(r);
		err = glake_kv_fork(kv, slot, tokens, 2 * TOKENS, NULL, &other);
		end(r, i ? AGAIN : FORK, err, 1);
		r->err = r->err ? r->err : glake_kv_free(kv, other, NULL);
	}
	err = glake_kv_publish(kv, slot, TOKENS, "prompt", 6, NULL);
	if (!err)
		err = glake_kv_new(kv, 2 * TOKENS, NULL, &other);
	begin(r);
	if (!err)
		err = glake_kv_adopt(kv, other, "prompt", 6, NULL, &adopted);
	end(r, ADOPT, err, 1);
}

/* A cache of its own for each round, so that nothing lies where it grows. */
static void run_round(struct run *r, uint32_t flags, struct bench_kv_order *order)
{
	const struct glake_kv_options o = {.sz = sizeof(o),
		.slots = 4,
		.tokens = 2 * TOKENS,
		.lanes = LANES,
		.lane_bytes = BYTES,
		.flags = flags,
		.prefixes = 1};
	struct glake_kv_figures f = {.sz = sizeof(f)};
	uint32_t slot = 0, tokens = TOKENS - 100;
	int err;

	r->err = glake_kv_open(r->ctx, 0, &o, NULL, &r->kv);
	if (r->err)
		return;
	r->err = glake_kv_new(r->kv, 2 * TOKENS, NULL, &slot);
	begin(r);
	err = r->err ? 0 : glake_kv_grow(r->kv, slot, tokens, NULL);
	end(r, PROMPT, err, 1);
	begin(r);
	for (unsigned i = 0; i < 1000 && !err; i++)
		err = glake_kv_grow(r->kv, slot, tokens, NULL);
	end(r, MET, err, 1000);
	begin(r);
	err = r->err ? 0 : glake_kv_grow(r->kv, slot, TOKENS + 1, NULL);
	end(r, PAGE, err, 1);
	begin(r);
	err = r->err ? 0 : glake_kv_free(r->kv, slot, NULL);
	end(r, END, err, 1);
	begin(r);
	err = r->err ? 0 : glake_kv_new(r->kv, 2 * TOKENS, NULL, &slot);
	if (!err)
		err = glake_kv_grow(r->kv, slot, TOKENS + 1, NULL);
	end(r, NEXT, err, 1);
	if (!r->err && !glake_kv_figures_get(r->kv, &f)) {
		order->held = f.held;
		order->needed = f.needed;
	}
	if (!r->err)
		fork_and_adopt(r, slot, TOKENS + 1);
	if (!r->err && !glake_kv_figures_get(r->kv, &f))
		order->shared = f.shared;
	err = glake_kv_close(r->kv, NULL);
	r->err = r->err ? r->err : err;
	if (!r->err)
		r->err = glake_trim(r->ctx, 0, 0, NULL);
}

static int run_order(
	struct glake *ctx, unsigned rounds, uint32_t flags, struct bench_kv_order *order)
{
	struct series *series = calloc(BENCH_KV_ROWS, sizeof(*series));
	struct run r = {.ctx = ctx, .series = series};

	if (!series)
		return -ENOMEM;
	for (unsigned i = 0; i < rounds && !r.err; i++) {
		run_round(&r, flags, order);
		progress_step(i + 1, rounds);
	}
	for (int i = 0; i < BENCH_KV_ROWS && !r.err; i++) {
		order->row[i].us = bench_range_of(series[i].us, series[i].count);
		order->row[i].driver_us =
			bench_range_of(series[i].driver_us, series[i].count);
	}
	free(series);
	return r.err;
}

static int measure(const struct bench_options *options, void *measured)
{
	unsigned rounds = options->rounds ? options->rounds : ROUNDS;
	struct bench_kv *result = measured;
	struct glake *ctx;
	int err = glk_tool_open(&options->context, &ctx);

	if (err)
		return err;
	rounds = rounds > MOST ? MOST : rounds;
	result->backend = glk_tool_backend_name(ctx);
	result->rounds = rounds;
	err = run_order(ctx, rounds, 0, &result->order[0]);
	if (!err)
		err = run_order(ctx, rounds, GLAKE_KV_TOKEN_FRONT, &result->order[1]);
	return bench_close(&bench_kv, ctx, err);
}

static void add(struct glk_json *json, const void *measured)
{
	const struct bench_kv *kv = measured;
	static const char *const orders[] = {"layer_front", "token_front"};

	glk_json_key(json, "kv");
	glk_json_object(json);
	glk_json_add_text(json, "driver", kv->backend);
	glk_json_add_uint(json, "rounds", kv->rounds);
	for (int i = 0; i < 2; i++) {
		glk_json_key(json, orders[i]);
		glk_json_object(json);
		glk_json_add_uint(json, "needed_bytes", kv->order[i].needed);
		glk_json_add_uint(json, "held_bytes", kv->order[i].held);
		glk_json_add_uint(json, "shared_bytes", kv->order[i].shared);
		glk_json_key(json, "rows");
		glk_json_array(json);
		for (int n = 0; n < BENCH_KV_ROWS; n++) {
			glk_json_object(json);
			glk_json_add_text(json, "name", names[n]);
			bench_add_range(json, "us", kv->order[i].row[n].us);
			bench_add_range(json, "driver_us", kv->order[i].row[n].driver_us);
			glk_json_end(json);
		}
		glk_json_end(json);
		glk_json_end(json);
	}
	glk_json_end(json);
}

static void print(const void *measured)
{
	const struct bench_kv *kv = measured;

	printf("a sequence of %u tokens in %u lanes of %u bytes, us, %u rounds, %s\n\n",
		TOKENS, LANES, BYTES, kv->rounds,
		kv->backend[0] == 's' ? "software device (driver time is modelled)"
				      : "CUDA");
	for (int i = 0; i < 2; i++) {
		const struct bench_kv_order *o = &kv->order[i];

		printf("  %-24s %10s %10s %10s %12s\n",
			i ? "the token in front" : "the layer in front", "min", "median",
			"max", "driver");
		for (int n = 0; n < BENCH_KV_ROWS; n++)
			printf("    %-22s %10.2f %10.2f %10.2f %12.2f\n", names[n],
				o->row[n].us.min, o->row[n].us.median, o->row[n].us.max,
				o->row[n].driver_us.median);
		printf("    %s are needed, %s held; a prefix and who adopted it share %s\n\n",
			figure_bytes(o->needed).text, figure_bytes(o->held).text,
			figure_bytes(o->shared).text);
	}
}

const struct bench_part bench_kv = {.name = "kv",
	.size = sizeof(struct bench_kv),
	.measure = measure,
	.add = add,
	.print = print};
