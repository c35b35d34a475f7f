/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * glakectl bench: the command. Seconds of a machine prove nothing on another; so each part
 * measures something to compare with, or counts calls.
 */
#include "tool/bench.h"

#include "base/json.h"
#include "tool/progress.h"

#include <getopt.h>
#include <string.h>

#define COMMAND "bench"

/* Each benchmark by name; the first two are what runs without one. */
enum { ALLOC, STITCH, HANDOVER, SIZES, POLICY, PARTS };

static const char *const names[PARTS] = {
	"alloc", "stitch", "handover", "sizes", "policy"};

static const struct option long_options[] = {
	{"driver", required_argument, NULL, 'd'},
	{"conf", required_argument, NULL, 'c'},
	{"rounds", required_argument, NULL, 'r'},
	{"threads", required_argument, NULL, 't'},
	{"requests", required_argument, NULL, 'n'},
	{"svg", required_argument, NULL, 'o'},
	{"json", no_argument, NULL, 'j'},
	{"quiet", no_argument, NULL, 'q'},
	{"help", no_argument, NULL, 'h'},
	{0},
};

static const char help[] =
	"usage: glakectl bench [OPTION]... [alloc] [stitch] [handover] [sizes]\n"
	"                      [policy [TRACE]...]\n"
	"\n"
	"Measures parts of the library; without a name, the first two.\n"
	"\n"
	"  alloc     pairs of allocate and free that the quick bins serve, beside a mutex\n"
	"  stitch    a large block on pages that lay apart: driver calls, time, contents\n"
	"  handover  a request for what another stream freed, with its work pending or done\n"
	"  sizes     millions of sizes that never repeat: what the library keeps stays bounded\n"
	"  policy    recorded jobs under variants of the policy: memory against driver time;\n"
	"            the jobs in t/data unless traces are named\n"
	"\n"
	"  -d, --driver auto|soft|cuda  what to run on (auto)\n"
	"  -c, --conf KEY=VALUE         set a key of glake.conf(5); repeatable\n"
	"  -r, --rounds N               how often each is measured (20; passes of policy: 4)\n"
	"  -t, --threads N              alloc also with N threads, beside one (1)\n"
	"  -n, --requests N             requests of sizes (7000000)\n"
	"  -o, --svg FILE               draw the frontier of policy\n"
	"  -j, --json                   the report as JSON\n"
	"  -q, --quiet                  no progress, no remarks\n"
	"  -h, --help                   this text\n";

static void count(struct glake *ctx, struct bench_hits *hits, uint64_t sign)
{
	struct glake_stats stats = {.sz = sizeof(stats)};

	if (glake_stats_get(ctx, 0, &stats))
		return;
	hits->requests += sign * stats.allocs;
	hits->hits += sign * stats.hits;
	hits->called += sign * stats.called;
}

void bench_hits_begin(struct glake *ctx, struct bench_hits *hits)
{
	count(ctx, hits, UINT64_MAX);
}

void bench_hits_end(struct glake *ctx, struct bench_hits *hits)
{
	count(ctx, hits, 1);
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
	case 'n':
		return glk_tool_read_count(COMMAND, "--requests", optarg, BENCH_SIZES_MAX,
			&options->requests);
	case 'o':
		options->svg = optarg;
		return 0;
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

static int measure_alloc(const struct bench_options *options, struct glk_json *json)
{
	struct bench_alloc alloc;
	struct bench_scale scale;

	progress_start(options->context.quiet, "bench alloc");
	if (bench_alloc(options, &alloc))
		return GLK_TOOL_FAILED;
	if (options->threads > 1) {
		progress_next("bench alloc, threads");
		if (bench_scale(options, &scale))
			return GLK_TOOL_FAILED;
	}
	progress_end();
	if (json)
		bench_add_alloc(json, &alloc);
	else
		bench_print_alloc(&alloc);
	if (options->threads > 1 && json)
		bench_add_scale(json, &scale);
	else if (options->threads > 1)
		bench_print_scale(&scale);
	return GLK_TOOL_OK;
}

static int measure_stitch(const struct bench_options *options, struct glk_json *json)
{
	struct bench_stitch stitch;

	progress_start(options->context.quiet, "bench stitch");
	if (bench_stitch(options, &stitch))
		return GLK_TOOL_FAILED;
	progress_end();
	if (json)
		bench_add_stitch(json, &stitch);
	else
		bench_print_stitch(&stitch);
	return stitch.ok ? GLK_TOOL_OK : GLK_TOOL_FAILED;
}

static int measure_handover(const struct bench_options *options, struct glk_json *json)
{
	struct bench_handover handover;

	progress_start(options->context.quiet, "bench handover");
	if (bench_handover(options, &handover))
		return GLK_TOOL_FAILED;
	progress_end();
	if (json)
		bench_add_handover(json, &handover);
	else
		bench_print_handover(&handover);
	return handover.meant ? GLK_TOOL_OK : GLK_TOOL_FAILED;
}

static int measure_sizes(const struct bench_options *options, struct glk_json *json)
{
	struct bench_sizes sizes;

	progress_start(options->context.quiet, "bench sizes");
	if (bench_sizes(options, &sizes))
		return GLK_TOOL_FAILED;
	progress_end();
	if (json)
		bench_add_sizes(json, &sizes);
	else
		bench_print_sizes(&sizes);
	return sizes.bounded ? GLK_TOOL_OK : GLK_TOOL_FAILED;
}

static int measure_policy(const struct bench_options *options, struct glk_json *json)
{
	static struct bench_policy policy;
	int err;

	progress_start(options->context.quiet, "bench policy");
	if (bench_policy(options, &policy))
		return GLK_TOOL_FAILED;
	progress_end();
	if (json)
		bench_add_policy(json, &policy);
	else
		bench_print_policy(&policy);
	err = options->svg ? bench_plot_policy(&policy, options->svg) : 0;
	return err || !policy.ok ? GLK_TOOL_FAILED : GLK_TOOL_OK;
}

static int run(const struct bench_options *options, const bool *wanted)
{
	static int (*const measure[PARTS])(
		const struct bench_options *, struct glk_json *) = {
		measure_alloc, measure_stitch, measure_handover, measure_sizes,
		measure_policy};
	struct glk_json json;
	int status = GLK_TOOL_OK;

	glk_json_init(&json, stdout, 2);
	if (options->json)
		glk_json_object(&json);
	for (int i = 0; i < PARTS; i++) {
		int one = !wanted[i] ? GLK_TOOL_OK
				     : measure[i](options, options->json ? &json : NULL);

		progress_end();
		status = status ? status : one;
	}
	if (!options->json)
		return status;
	glk_json_add_bool(&json, "ok", status == GLK_TOOL_OK);
	glk_json_end(&json);
	return glk_json_fini(&json) ? GLK_TOOL_FAILED : status;
}

/* Names of benchmarks; behind policy, names of files. */
static int take_argument(const char *text, struct bench_options *options, bool *wanted)
{
	for (int i = 0; i < PARTS; i++) {
		if (!strcmp(text, names[i])) {
			wanted[i] = true;
			return 0;
		}
	}
	if (!wanted[POLICY])
		return glk_tool_usage(COMMAND, "unknown benchmark '%s'", text);
	if (options->traces == BENCH_TRACES_MAX)
		return glk_tool_usage(
			COMMAND, "policy takes %d traces at most", BENCH_TRACES_MAX);
	options->trace[options->traces++] = text;
	return 0;
}

int glk_tool_bench(int argc, char **argv)
{
	struct bench_options options = {.threads = 1, .requests = 7000000};
	bool wanted[PARTS] = {false}, any = false;
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
		if (take_argument(argv[i], &options, wanted))
			return GLK_TOOL_USAGE;
		any = true;
	}
	if (!any)
		wanted[ALLOC] = wanted[STITCH] = true;
	if (options.svg && !wanted[POLICY])
		return glk_tool_usage(COMMAND, "--svg draws what policy measures");
	return run(&options, wanted);
}
