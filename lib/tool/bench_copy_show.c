/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What bench copy measured, for programs and for people. */
#include "tool/bench_copy.h"
#include "tool/figure.h"

#include "base/json.h"

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

void bench_add_copy(struct glk_json *json, const void *measured)
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

static void print_head(const struct bench_copy_case *c, bool plain)
{
	printf("\n  %d link%s", c->links, c->links > 1 ? "s" : "");
	if (plain && c->threads)
		printf(", memory of the host that is not locked, copied by %d threads",
			c->threads);
	else if (plain)
		printf(", memory of the host that is not locked, copied by the driver");
	printf("\n  %-10s %8s %8s %8s %8s %8s %8s\n", "", "down", "call", "up", "call",
		"both", "call");
}

static void print_cases(const struct bench_copy_case *cases, unsigned count, bool plain)
{
	for (unsigned i = 0; i < count; i++) {
		const struct bench_copy_case *c = &cases[i];

		if (!i || c->links != c[-1].links || c->threads != c[-1].threads)
			print_head(c, plain);
		printf("  %-10s", figure_bytes(c->bytes).text);
		for (int way = 0; way < BENCH_COPY_WAYS; way++)
			printf(" %8.2f %8.1f", c->rate[way].median, c->call[way].median);
		printf("%s\n", c->torn ? " NOT WHOLE" : "");
	}
}

void bench_print_copy(const void *measured)
{
	const struct bench_copy *copy = measured;

	printf("copies between the host and a GPU, GB/s and us a call, medians of %u rounds\n",
		copy->rounds);
	print_cases(copy->cases, copy->count, false);
	print_cases(copy->plain, copy->plain_count, true);
}
