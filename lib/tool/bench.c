/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * glakectl bench: the command and how its figures are shown. Seconds of a machine prove
 * nothing on another; so each part measures something to compare with, or counts calls.
 */
#include "tool/bench.h"

#include "base/json.h"
#include "tool/figure.h"
#include "tool/progress.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#define COMMAND "bench"

static const struct option long_options[] = {
	{"driver", required_argument, NULL, 'd'},
	{"conf", required_argument, NULL, 'c'},
	{"rounds", required_argument, NULL, 'r'},
	{"threads", required_argument, NULL, 't'},
	{"json", no_argument, NULL, 'j'},
	{"quiet", no_argument, NULL, 'q'},
	{"help", no_argument, NULL, 'h'},
	{0},
};

static const char help[] =
	"usage: glakectl bench [OPTION]... [alloc] [stitch]\n"
	"\n"
	"Measures parts of the library; without a name, all of them.\n"
	"\n"
	"  alloc   pairs of allocate and free in the steady state, beside a mutex\n"
	"  stitch  a large block on pages that lay apart: driver calls, time, contents\n"
	"\n"
	"  -d, --driver auto|soft|cuda  what to run on (auto)\n"
	"  -c, --conf KEY=VALUE         set a key of glake.conf(5); repeatable\n"
	"  -r, --rounds N               how often each is measured (20)\n"
	"  -t, --threads N              threads of alloc, each with a stream (1)\n"
	"  -j, --json                   the report as JSON\n"
	"  -q, --quiet                  no progress, no remarks\n"
	"  -h, --help                   this text\n";

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

struct bench_range bench_range_of(double *values, size_t count)
{
	qsort(values, count, sizeof(*values), by_value);
	return (struct bench_range){values[0], values[count / 2], values[count - 1]};
}

static void add_alloc(struct glk_json *json, const struct bench_alloc *alloc)
{
	glk_json_key(json, "alloc");
	glk_json_object(json);
	glk_json_add_uint(json, "pairs_a_round", alloc->pairs);
	glk_json_key(json, "cases");
	glk_json_array(json);
	for (int i = 0; i < BENCH_CASES; i++) {
		glk_json_object(json);
		glk_json_add_text(json, "name", alloc->cases[i].name);
		glk_json_key(json, "pair_ns");
		glk_json_object(json);
		glk_json_add_figure(json, "min", alloc->cases[i].ns.min, 5);
		glk_json_add_figure(json, "median", alloc->cases[i].ns.median, 5);
		glk_json_add_figure(json, "max", alloc->cases[i].ns.max, 5);
		glk_json_end(json);
		glk_json_add_uint(json, "misses", alloc->cases[i].misses);
		glk_json_end(json);
	}
	glk_json_end(json);
	glk_json_end(json);
}

static void print_alloc(const struct bench_alloc *alloc)
{
	printf("allocate and free, ns a pair, %zu pairs a round\n\n", alloc->pairs);
	printf("  %-16s %9s %9s %9s %9s\n", "", "min", "median", "max", "misses");
	for (int i = 0; i < BENCH_CASES; i++)
		printf("  %-16s %9.1f %9.1f %9.1f %9llu\n", alloc->cases[i].name,
			alloc->cases[i].ns.min, alloc->cases[i].ns.median,
			alloc->cases[i].ns.max,
			(unsigned long long)alloc->cases[i].misses);
	putchar('\n');
}

static double gib(const struct bench_stitch *stitch)
{
	return (double)stitch->block / (double)(UINT64_C(1) << 30);
}

static void add_stitched(struct glk_json *json, const char *key,
	const struct bench_stitch *stitch, const struct bench_stitched *stitched)
{
	glk_json_key(json, key);
	glk_json_object(json);
	glk_json_key(json, "driver_calls");
	glk_json_object(json);
	for (int i = 0; i < GLAKE_CALL_COUNT; i++)
		glk_json_add_uint(json, glake_call_name(i), stitched->calls[i]);
	glk_json_end(json);
	glk_json_add_figure(json, "driver_ms", stitched->driver_ms, 6);
	glk_json_add_figure(
		json, "driver_ms_per_gib", stitched->driver_ms / gib(stitch), 6);
	glk_json_add_figure(json, "wall_ms", stitched->wall_ms, 6);
	glk_json_end(json);
}

static void add_stitch(struct glk_json *json, const struct bench_stitch *stitch)
{
	glk_json_key(json, "stitch");
	glk_json_object(json);
	glk_json_add_text(json, "driver", stitch->backend);
	glk_json_add_uint(json, "block_bytes", stitch->block);
	glk_json_add_uint(json, "pages", stitch->pages);
	add_stitched(json, "first", stitch, &stitch->first);
	add_stitched(json, "again", stitch, &stitch->again);
	glk_json_add_uint(json, "stitches", stitch->stitches);
	glk_json_add_bool(json, "contents_checked", stitch->checked);
	glk_json_add_uint(json, "pages_seen_again", stitch->kept);
	glk_json_add_uint(json, "marks_broken", stitch->broken);
	glk_json_add_bool(json, "ok", stitch->ok);
	glk_json_end(json);
}

static void print_stitched(const char *name, const struct bench_stitch *stitch,
	const struct bench_stitched *stitched)
{
	static const int calls[] = {GLAKE_CALL_CREATE, GLAKE_CALL_MAP,
		GLAKE_CALL_SET_ACCESS, GLAKE_CALL_UNMAP, GLAKE_CALL_RELEASE};

	printf("  %-12s", name);
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		printf(" %8llu", (unsigned long long)stitched->calls[calls[i]]);
	printf(" %10s", figure_ns(stitched->driver_ms * 1e6).text);
	printf(" %12s", figure_ns(stitched->driver_ms / gib(stitch) * 1e6).text);
	printf(" %10s\n", figure_ns(stitched->wall_ms * 1e6).text);
}

static void print_stitch(const struct bench_stitch *stitch)
{
	printf("a block of %s on %zu pages that lay apart, %s\n\n",
		figure_bytes(stitch->block).text, stitch->pages,
		stitch->backend[0] == 's' ? "software device (driver time is modelled)"
					  : "CUDA");
	printf("  %-12s %8s %8s %8s %8s %8s %10s %12s %10s\n", "", "create", "map",
		"access", "unmap", "release", "driver", "driver/GiB", "wall");
	print_stitched("first time", stitch, &stitch->first);
	print_stitched("afterwards", stitch, &stitch->again);
	if (stitch->checked)
		printf("\n  contents: %zu pages seen again through the new mapping, %zu marks "
		       "of other blocks broken\n",
			stitch->kept, stitch->broken);
	if (!stitch->ok)
		printf("\n  FAILED: %s\n",
			stitch->broken ? "blocks in use were overwritten"
				: !stitch->stitches
				? "no block was stitched"
				: "pages do not hold what was written");
	putchar('\n');
}

static int take_option(int c, struct bench_options *options)
{
	switch (c) {
	case 'd':
		return glk_tool_set_driver(&options->context, COMMAND, optarg);
	case 'c':
		return glk_tool_add_setting(&options->context, COMMAND, optarg);
	case 'r':
		return glk_tool_read_count(
			COMMAND, "--rounds", optarg, BENCH_ROUNDS_MAX, &options->rounds);
	case 't':
		return glk_tool_read_count(COMMAND, "--threads", optarg,
			BENCH_THREADS_MAX, &options->threads);
	case 'j':
		options->json = true;
		return 0;
	case 'q':
		options->context.quiet = true;
		return 0;
	default:
		return GLK_TOOL_USAGE;
	}
}

static int measure_alloc(const struct bench_options *options, struct bench_alloc *alloc)
{
	int err;

	progress_start(options->context.quiet, "bench alloc");
	err = bench_alloc(options, alloc);
	progress_end();
	return err;
}

static int measure_stitch(
	const struct bench_options *options, struct bench_stitch *stitch)
{
	int err;

	progress_start(options->context.quiet, "bench stitch");
	err = bench_stitch(options, stitch);
	progress_end();
	return err;
}

static int run(const struct bench_options *options, bool alloc, bool stitch)
{
	struct bench_alloc allocated;
	struct bench_stitch stitched;
	struct glk_json json;
	bool ok = true;

	if (alloc && measure_alloc(options, &allocated))
		return GLK_TOOL_FAILED;
	if (alloc && !options->json)
		print_alloc(&allocated);
	if (stitch && measure_stitch(options, &stitched))
		return GLK_TOOL_FAILED;
	if (stitch && !options->json)
		print_stitch(&stitched);
	if (stitch)
		ok = stitched.ok;
	if (!options->json)
		return ok ? GLK_TOOL_OK : GLK_TOOL_FAILED;
	glk_json_init(&json, stdout, 2);
	glk_json_object(&json);
	glk_json_add_uint(&json, "rounds", options->rounds);
	glk_json_add_uint(&json, "threads", options->threads);
	if (alloc)
		add_alloc(&json, &allocated);
	if (stitch)
		add_stitch(&json, &stitched);
	glk_json_add_bool(&json, "ok", ok);
	glk_json_end(&json);
	return glk_json_fini(&json) || !ok ? GLK_TOOL_FAILED : GLK_TOOL_OK;
}

int glk_tool_bench(int argc, char **argv)
{
	struct bench_options options = {.rounds = 20, .threads = 1};
	bool alloc = false, stitch = false;
	int c;

	while ((c = glk_tool_option(argc, argv, long_options)) != -1) {
		if (c == 'h') {
			fputs(help, stdout);
			return GLK_TOOL_OK;
		}
		if (c == '?' || take_option(c, &options))
			return GLK_TOOL_USAGE;
	}
	for (int i = optind; i < argc; i++) {
		if (!strcmp(argv[i], "alloc"))
			alloc = true;
		else if (!strcmp(argv[i], "stitch"))
			stitch = true;
		else
			return glk_tool_usage(COMMAND, "unknown benchmark '%s'", argv[i]);
	}
	if (!alloc && !stitch)
		alloc = stitch = true;
	return run(&options, alloc, stitch);
}
