/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What it costs to have contents that are away compressed (tier.compress): how fast the thread of the library
 * makes them smaller, how much is left of them, and how fast they come back, as a whole or for a range of each. Every second 4 KiB of them are
 * noise, which does not shrink, and the others are alike.
 */
#include "more.h"

#include "base/json.h"
#include "tool/figure.h"
#include "tool/latency.h"

#include <glake/copy.h>
#include <glake/soft.h>
#include <glake/stats.h>
#include <glake/tier.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MIB ((size_t)1 << 20)

#define BLOCK	   (64 * MIB)
#define COUNT	   16 /* on CUDA */
#define COUNT_SOFT 1
#define PART	   4096
#define LOOK_NS	   2000000
#define ROUNDS	   5
#define ROUNDS_MAX 64
#define PATIENCE   (INT64_C(10) * 1000000000) /* without any progress */

struct scene {
	struct glake *ctx;
	struct CUstream_st *stream;
	char *pattern, *back;
	void *block[COUNT];
	int count;
};

static void make_pattern(char *pattern)
{
	uint64_t noise = 1;

	for (size_t at = 0; at < BLOCK; at += sizeof(noise)) {
		noise = noise * UINT64_C(6364136223846793005) + 1442695040888963407u;
		if (at / PART % 2)
			memcpy(pattern + at, &noise, sizeof(noise));
	}
}

static int make(struct scene *s)
{
	int err = glake_stream_new(s->ctx, 0, &s->stream);

	for (int i = 0; i < s->count && !err; i++) {
		err = glake_alloc(s->ctx, 0, BLOCK, s->stream, 0, &s->block[i]);
		if (!err)
			err = glake_copy(s->ctx, s->block[i], s->pattern, BLOCK,
				s->stream, 0, NULL);
	}
	return err;
}

/* Until all that went away is smaller; -ETIMEDOUT: there is no room on the host for that. */
static int wait_for_all(const struct scene *s, struct glake_stats *ret)
{
	uint64_t bytes = (uint64_t)s->count * BLOCK, before = 0;
	int64_t since = latency_now();
	int err;

	do {
		nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
		*ret = (struct glake_stats){.sz = sizeof(*ret)};
		err = glake_stats_get(s->ctx, 0, ret);
		if (ret->packed > before)
			since = latency_now();
		before = ret->packed;
		if (!err && latency_now() - since > PATIENCE)
			err = -ETIMEDOUT;
	} while (!err && ret->packed < bytes);
	return err;
}

static double speed(const struct scene *s, int64_t since)
{
	double ns = (double)(latency_now() - since);

	return (double)s->count * (double)BLOCK / (ns < 1 ? 1 : ns);
}

struct times {
	double pack[ROUNDS_MAX], unpack[ROUNDS_MAX], loosen[ROUNDS_MAX];
};

/* All of a block becomes what it was, for a page of it that comes. */
static int have_ranges(const struct scene *s, double *ret_speed)
{
	struct glake_stats stats;
	int64_t begin;
	int err = 0;

	for (int i = 0; i < s->count && !err; i++)
		err = glake_spill(s->ctx, s->block[i], s->stream);
	err = err ? err : wait_for_all(s, &stats);
	begin = latency_now();
	for (int i = 0; i < s->count && !err; i++)
		err = glake_fetch_range(
			s->ctx, s->block[i], BLOCK / 2, 1, s->stream, NULL);
	*ret_speed = speed(s, begin);
	for (int i = 0; i < s->count && !err; i++)
		err = glake_fetch(s->ctx, s->block[i], s->stream);
	return err;
}

static int turn(const struct scene *s, unsigned round, struct times *times,
	struct bench_packed *ret)
{
	struct glake_stats stats;
	int64_t begin = latency_now();
	int err = glake_suspend(s->ctx, 0, NULL);

	err = err ? err : wait_for_all(s, &stats);
	if (err)
		return err;
	times->pack[round] = speed(s, begin);
	ret->bytes = stats.packed;
	ret->held = stats.packed_held;
	begin = latency_now();
	err = glake_resume(s->ctx, 0, NULL);
	times->unpack[round] = speed(s, begin);
	return err ? err : have_ranges(s, &times->loosen[round]);
}

/* How many blocks do not hold what was written. */
static int compare(const struct scene *s, size_t *ret_torn)
{
	int err = 0;

	for (int i = 0; i < s->count && !err; i++) {
		struct glake_copy_job *job = NULL;

		err = glake_copy(s->ctx, s->back, s->block[i], BLOCK, s->stream, 0, &job);
		if (!err)
			err = glake_copy_wait(job, -1);
		glake_copy_close(job);
		*ret_torn += memcmp(s->back, s->pattern, BLOCK) != 0;
	}
	return err;
}

static int run(struct scene *s, unsigned rounds, struct bench_packed *ret)
{
	int err = make(s), failed;
	struct times times;

	for (unsigned round = 0; round < rounds && !err; round++)
		err = turn(s, round, &times, ret);
	if (!err)
		err = compare(s, &ret->torn);
	for (int i = 0; i < s->count; i++) {
		failed = s->block[i] ? glake_free(s->ctx, s->block[i], s->stream) : 0;
		err = err ? err : failed;
	}
	failed = s->stream ? glake_stream_free(s->ctx, 0, s->stream) : 0;
	if (!err) {
		ret->pack = bench_range_of(times.pack, rounds);
		ret->unpack = bench_range_of(times.unpack, rounds);
		ret->loosen = bench_range_of(times.loosen, rounds);
	}
	return err ? err : failed;
}

/* -EOPNOTSUPP without a word: the library cannot. */
static int open_context(const struct bench_options *options, struct scene *s)
{
	struct glk_tool_context context = options->context;
	struct glake_options wanted = {.sz = sizeof(wanted),
		.backend = context.backend,
		.no_soft_warning = 1,
		.settings = context.settings};
	int err = glk_tool_add_setting(&context, "bench", "tier.compress=lz4");

	if (!err)
		err = glk_tool_add_setting(&context, "bench", "tier.compress_rest=0s");
	if (!err)
		err = glake_open(&wanted, &s->ctx);
	if (err && err != -EOPNOTSUPP)
		glk_tool_say_error("the library did not open", err);
	if (err)
		return err;
	s->count = glake_backend(s->ctx) == GLAKE_BACKEND_CUDA ? COUNT : COUNT_SOFT;
	return 0;
}

static int measure(const struct bench_options *options, void *measured)
{
	struct scene s = {.pattern = calloc(1, BLOCK), .back = calloc(1, BLOCK)};
	int err = s.pattern && s.back ? open_context(options, &s) : -ENOMEM;
	struct bench_packed *packed = measured;

	packed->able = err != -EOPNOTSUPP;
	packed->rounds = options->rounds ? options->rounds : ROUNDS;
	if (packed->rounds > ROUNDS_MAX)
		packed->rounds = ROUNDS_MAX;
	if (!err) {
		make_pattern(s.pattern);
		err = bench_close(&bench_packed, s.ctx, run(&s, packed->rounds, packed));
	}
	free(s.pattern);
	free(s.back);
	return packed->able ? err : 0;
}

/* The part that is left. */
static double ratio(const struct bench_packed *p)
{
	return p->bytes ? (double)p->held / (double)p->bytes : 0;
}

static void add_packed(struct glk_json *json, const void *measured)
{
	const struct bench_packed *p = measured;

	glk_json_key(json, "packed");
	if (!p->able) {
		glk_json_null(json);
		return;
	}
	glk_json_object(json);
	glk_json_add_uint(json, "bytes", p->bytes);
	glk_json_add_uint(json, "held_bytes", p->held);
	glk_json_add_figure(json, "ratio", ratio(p), 5);
	bench_add_range(json, "compress_gbs", p->pack);
	bench_add_range(json, "resume_gbs", p->unpack);
	bench_add_range(json, "range_gbs", p->loosen);
	glk_json_add_uint(json, "torn", p->torn);
	glk_json_end(json);
}

static void print_packed(const void *measured)
{
	const struct bench_packed *p = measured;

	if (!p->able) {
		printf("nothing is compressed: this library has no lz4\n\n");
		return;
	}
	printf("%s, half of it noise, compressed to %.2f, GB/s, %u rounds\n\n  %-17s %8s %8s %8s %8s\n",
		figure_bytes(p->bytes).text, ratio(p), p->rounds, "", "", "least",
		"median", "most");
	printf("  %-17s %8s %8.1f %8.1f %8.1f\n", "compress", "", p->pack.min,
		p->pack.median, p->pack.max);
	printf("  %-17s %8s %8.1f %8.1f %8.1f\n", "resume", "", p->unpack.min,
		p->unpack.median, p->unpack.max);
	printf("  %-17s %8s %8.1f %8.1f %8.1f\n", "for a range of it", "", p->loosen.min,
		p->loosen.median, p->loosen.max);
	if (p->torn)
		printf("  FAILED: %zu blocks do not hold what was written\n", p->torn);
	putchar('\n');
}

static bool finish(const struct bench_options *options, const void *measured)
{
	const struct bench_packed *packed = measured;

	(void)options;
	return !packed->torn;
}

const struct bench_part bench_packed = {.name = "packed",
	.size = sizeof(struct bench_packed),
	.measure = measure,
	.add = add_packed,
	.print = print_packed,
	.finish = finish};
