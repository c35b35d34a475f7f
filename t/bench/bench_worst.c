/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The worst case of a call, against what it might grow with. Means hide it: one free that
 * takes seconds among a million others is what an iteration of a job waits for, and what
 * other threads wait for if it holds the lock meanwhile. Each pattern is played with a few
 * counts of blocks, streams, GPUs or contexts, from one thread, in a context of its own each
 * round; what is bounded stays where it is from row to row.
 *
 * The processor time of a thread has what interrupts and a hypervisor take, 0.1 ms at a time here and there.
 * All rounds make the same calls, so each of these is told by its quickest round as well: the longest of them
 * is what the call itself takes.
 *
 * A pattern that took long is not played with more: what grows with the square would take
 * hours.
 */
#include "more.h"

#include "base/json.h"
#include "tool/figure.h"
#include "tool/latency.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT	 3		     /* rounds */
#define TOO_LONG INT64_C(3000000000) /* ns a round, to play it with more */
#define ENOUGH	 INT64_C(5000000000) /* ns of a row, for another round */

/* Work stays pending until the software device is stepped; no stream waits for another. */
#define STEPPED	   "soft.streams=stepped"
#define OWN_MEMORY "stream.internal_dependencies=no"

static const unsigned blocks[] = {1000, 4000, 16000, 160000, 0};
static const unsigned to_million[] = {1000, 4000, 16000, 160000, 1000000, 0};
static const unsigned streams[] = {1, 64, 1024, 4000, 0};
static const unsigned gpus[] = {1, 8, 0};
static const unsigned contexts[] = {1, 16, 64, 0};

static const struct worst_pattern patterns[] = {
	{"bin merges", "blocks", blocks, worst_bin_merges, {NULL}},
	{"big beside", "blocks", blocks, worst_big_beside, {NULL}},
	{"half freed", "blocks", blocks, worst_half_freed, {NULL}},
	{"bins flushed", "blocks", blocks, worst_bins_flushed, {NULL}},
	{"checkerboard", "blocks", blocks, worst_checkerboard, {NULL}},
	{"new sizes", "blocks", blocks, worst_new_sizes, {NULL}},
	{"freed elsewhere", "blocks", blocks, worst_freed_elsewhere, {NULL}},
	{"busy pages", "blocks", blocks, worst_busy_pages, {STEPPED, OWN_MEMORY}},
	{"trim", "blocks", to_million, worst_trim, {NULL}},
	{"figures", "blocks", to_million, worst_figures, {NULL}},
	{"map", "blocks", to_million, worst_map, {NULL}},
	{"suspension", "blocks", to_million, worst_suspension, {NULL}},
	{"fetch of all", "blocks", to_million, worst_fetch_all, {NULL}},
	{"in place", "blocks", to_million, worst_suspension_in_place, {NULL}},
	{"from there", "blocks", to_million, worst_resumption_in_place, {NULL}},
	{"quiet point", "blocks", to_million, worst_quiet, {NULL}},
	{"idle streams", "streams", streams, worst_idle_streams, {NULL}},
	{"streams in turn", "streams", streams, worst_streams_in_turn, {NULL}},
	{"busy streams", "streams", streams, worst_busy_streams, {STEPPED}},
	{"freed on others", "streams", streams, worst_freed_on_others, {STEPPED}},
	{"used on others", "streams", streams, worst_used_on_others, {STEPPED}},
	{"last GPU", "GPUs", gpus, worst_last_gpu, {NULL}},
	{"last GPU, pools", "GPUs", gpus, worst_gpu_pools, {NULL}},
	{"last context", "contexts", contexts, worst_last_context, {NULL}},
};

#define PATTERNS (sizeof(patterns) / sizeof(patterns[0]))

_Static_assert(PATTERNS *WORST_COUNTS <= BENCH_WORST_ROWS, "room for all rows");

static const char *const keys[WORST_FIGURES] = {
	"free_ns", "request_ns", "mapping_request_ns", "call_ns", "hold_ns", "pair_ns"};

/* Addresses and memory for all of it; what the person sets wins. */
static int open_contexts(const struct bench_options *options,
	const struct worst_pattern *pattern, struct worst_scene *scene)
{
	bool many = !strcmp(pattern->against, "contexts");
	bool wide = !strcmp(pattern->against, "blocks");
	struct glk_tool_context context = {
		.backend = options->context.backend, .quiet = options->context.quiet};
	char own_gpus[32];
	int err = 0;

	snprintf(own_gpus, sizeof(own_gpus), "soft.gpus=%u",
		strcmp(pattern->against, "GPUs") ? 1 : scene->count);
	const char *const own[] = {own_gpus, "stats.hold_clock=cpu",
		wide ? "map.span=16TiB" : "map.span=64GiB",
		wide ? "soft.memory=16TiB" : "soft.memory=32GiB"};

	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]) && !err; i++)
		err = glk_tool_add_setting(&context, "bench", own[i]);
	for (size_t i = 0; i < 2 && pattern->settings[i] && !err; i++)
		err = glk_tool_add_setting(&context, "bench", pattern->settings[i]);
	for (size_t i = 0; i < options->context.count && !err; i++)
		err = glk_tool_add_setting(
			&context, "bench", options->context.settings[i]);
	for (unsigned i = 0; i < (many ? scene->count : 1) && !err; i++) {
		err = glk_tool_open(&context, &scene->ctx[i]);
		scene->last = scene->ctx[i];
	}
	return err;
}

static int play(const struct bench_options *options, const struct worst_pattern *pattern,
	struct worst_scene *scene)
{
	int err = open_contexts(options, pattern, scene), failed;

	scene->clock_cost = worst_clock_cost();
	scene->block = calloc(scene->count, sizeof(*scene->block));
	scene->stream = calloc(scene->count, sizeof(struct CUstream_st *));
	if (!err && (!scene->block || !scene->stream))
		err = -ENOMEM;
	for (int i = 0; i < WORST_FIGURES; i++)
		scene->figure[i] = -1;
	if (!err)
		err = pattern->play(scene);
	if (err && err != -ENOMEM)
		glk_tool_say_error(pattern->name, err);
	for (unsigned i = 0; scene->stream && i < scene->count; i++) {
		if (scene->stream[i])
			glake_stream_free(scene->last, 0, scene->stream[i]);
	}
	/* with the blocks that are live */
	for (unsigned i = 0; i < WORST_CONTEXTS; i++) {
		failed = glake_close(scene->ctx[i], NULL);
		err = err ? err : failed;
	}
	free(scene->block);
	free(scene->stream);
	return err;
}

/* The rounds of one row; says how long the longest took. */
static int play_row(const struct bench_options *options,
	const struct worst_pattern *pattern, struct bench_worst_row *row, int64_t *ret_ns)
{
	unsigned rounds = options->rounds ? options->rounds : DEFAULT;
	double *values = calloc(WORST_FIGURES * (size_t)rounds, sizeof(*values));
	struct worst_quickest quickest[WORST_FIGURES] = {{NULL}};
	int64_t begin = latency_now(), last = begin;
	int err = values ? 0 : -ENOMEM;

	*ret_ns = 0;
	while (!err && row->rounds < rounds && last - begin < ENOUGH) {
		struct worst_scene scene = {.count = row->count, .quickest = quickest};
		int64_t now;

		err = play(options, pattern, &scene);
		if (err)
			break;
		for (int i = 0; i < WORST_FIGURES; i++) {
			values[(size_t)i * rounds + row->rounds] = scene.figure[i];
			row->has[i] = scene.figure[i] >= 0;
		}
		if (row->calls < scene.calls)
			row->calls = scene.calls;
		row->rounds++;
		now = latency_now();
		*ret_ns = now - last > *ret_ns ? now - last : *ret_ns;
		last = now;
	}
	for (int i = 0; i < WORST_FIGURES; i++) {
		if (row->rounds)
			row->figure[i] =
				bench_range_of(values + (size_t)i * rounds, row->rounds);
		for (size_t k = 0; k < quickest[i].used; k++)
			row->calm[i] = row->calm[i] > quickest[i].ns[k]
				? row->calm[i]
				: quickest[i].ns[k];
		free(quickest[i].ns);
	}
	free(values);
	return err;
}

static int play_pattern(const struct bench_options *options,
	const struct worst_pattern *pattern, struct bench_worst *worst)
{
	const char *skipped = NULL;
	int err = 0;

	for (const unsigned *count = pattern->counts; *count && !err; count++) {
		struct bench_worst_row *row = &worst->row[worst->rows];
		char label[64];
		int64_t ns;

		if (options->most && *count > options->most)
			break;
		worst->rows++;
		row->pattern = pattern->name;
		row->against = pattern->against;
		row->count = *count;
		row->skipped = skipped;
		if (skipped)
			continue;
		snprintf(label, sizeof(label), "bench worst, %s, %u %s", pattern->name,
			*count, pattern->against);
		progress_next(label);
		err = play_row(options, pattern, row, &ns);
		if (err == -ENOMEM) {
			row->skipped = skipped = "no memory or no mappings for it";
			err = 0;
		} else if (ns > TOO_LONG) {
			skipped = "fewer took too long";
		}
	}
	return err;
}

static int measure(const struct bench_options *options, void *measured)
{
	struct bench_worst *worst = measured;
	int err = 0;

	for (size_t i = 0; i < PATTERNS && !err; i++)
		err = play_pattern(options, &patterns[i], worst);
	return err;
}

static void add(struct glk_json *json, const void *measured)
{
	const struct bench_worst *worst = measured;

	glk_json_key(json, "worst");
	glk_json_object(json);
	glk_json_key(json, "rows");
	glk_json_array(json);
	for (size_t i = 0; i < worst->rows; i++) {
		const struct bench_worst_row *row = &worst->row[i];

		glk_json_object(json);
		glk_json_add_text(json, "pattern", row->pattern);
		glk_json_add_text(json, "against", row->against);
		glk_json_add_uint(json, "count", row->count);
		glk_json_add_uint(json, "rounds", row->rounds);
		for (int k = 0; k < WORST_FIGURES; k++) {
			if (row->has[k])
				bench_add_range(json, keys[k], row->figure[k]);
		}
		glk_json_key(json, "calm");
		glk_json_object(json);
		for (int k = 0; k < WORST_FIGURES; k++) {
			if (row->has[k])
				glk_json_add_figure(json, keys[k], row->calm[k], 5);
		}
		glk_json_end(json);
		glk_json_add_uint(json, "request_calls", row->calls);
		if (row->skipped)
			glk_json_add_text(json, "skipped", row->skipped);
		glk_json_end(json);
	}
	glk_json_end(json);
	glk_json_end(json);
}

static void print_ns(bool has, double ns)
{
	printf(" %8s", has ? figure_ns(ns).text : "-");
}

static void print_row(const struct bench_worst_row *row)
{
	static const int spread[] = {WORST_FREE, WORST_REQUEST, WORST_HOLD};
	static const int single[] = {WORST_MAPPING, WORST_CALL, WORST_PAIR};

	printf("  %7u %-8s", row->count, row->against);
	if (row->skipped) {
		printf("   %s\n", row->skipped);
		return;
	}
	for (int i = 0; i < 3; i++) {
		const struct bench_range *range = &row->figure[spread[i]];
		bool has = row->has[spread[i]];

		fputs(" |", stdout);
		print_ns(has, row->calm[spread[i]]);
		print_ns(has, range->min);
		print_ns(has, range->median);
		print_ns(has, range->max);
	}
	fputs(" |", stdout);
	for (int i = 0; i < 3; i++)
		print_ns(row->has[single[i]], row->figure[single[i]].median);
	putchar('\n');
}

static void print(const void *measured)
{
	const struct bench_worst *worst = measured;
	const char *before = "";

	printf("the longest call and the longest time under the lock, of the thread's processor "
	       "time; calm: with each\ncall in its quickest round\n\n%18s | %-35s | %-35s | "
	       "%-35s | %s\n%18s",
		"", "free", "request", "lock", "medians", "");
	for (int i = 0; i < 3; i++)
		printf(" | %8s %8s %8s %8s", "calm", "least", "median", "most");
	printf(" | %8s %8s %8s\n", "mapping", "call", "pair");
	for (size_t i = 0; i < worst->rows; i++) {
		if (strcmp(before, worst->row[i].pattern))
			printf("  %s\n", worst->row[i].pattern);
		before = worst->row[i].pattern;
		print_row(&worst->row[i]);
	}
	putchar('\n');
}

const struct bench_part bench_worst = {.name = "worst",
	.size = sizeof(struct bench_worst),
	.measure = measure,
	.add = add,
	.print = print};
