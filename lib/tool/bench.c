/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * glakectl bench: the command. Seconds of a machine prove nothing on another; so each part
 * measures something to compare with, or counts calls.
 */
#include "tool/bench.h"

#include "base/json.h"
#include "tool/progress.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#define COMMAND "bench"

/* The first two are what runs without a name. */
static const struct bench_part *const parts[] = {&bench_alloc, &bench_stitch,
	&bench_handover, &bench_sizes, &bench_tier, &bench_host, &bench_copy, &bench_kv,
	&bench_worst, &bench_policy};

enum { ALLOC, STITCH, HOST = 5, COPY, PARTS = sizeof(parts) / sizeof(parts[0]) };

static const struct option long_options[] = {
	{"driver", required_argument, NULL, 'd'},
	{"conf", required_argument, NULL, 'c'},
	{"rounds", required_argument, NULL, 'r'},
	{"threads", required_argument, NULL, 't'},
	{"requests", required_argument, NULL, 'n'},
	{"most", required_argument, NULL, 'm'},
	{"vary", required_argument, NULL, 'v'},
	{"svg", required_argument, NULL, 'o'},
	{"beside", no_argument, NULL, 'b'},
	{"size", required_argument, NULL, 's'},
	{"json", no_argument, NULL, 'j'},
	{"quiet", no_argument, NULL, 'q'},
	{"help", no_argument, NULL, 'h'},
	{0},
};

static const char help[] =
	"usage: glakectl bench [OPTION]... [alloc] [stitch] [handover] [sizes]\n"
	"                      [tier] [host] [copy] [kv] [worst] [policy [TRACE]...]\n"
	"\n"
	"Measures parts of the library; without a name, the first two.\n"
	"\n"
	"  alloc     pairs of allocate and free that the quick bins serve, beside a mutex\n"
	"  stitch    a large block on pages that lay apart: driver calls, time, contents\n"
	"  handover  a request for what another stream freed, with its work pending or done\n"
	"  sizes     millions of sizes that never repeat: what the library keeps stays bounded\n"
	"  tier      contents that leave the GPU for the host and come back, and blocks that lie\n"
	"            there in place, by size\n"
	"  host      pinned memory of the host: touched and locked at once, beside the driver's\n"
	"  copy      copies between the host and a GPU, by size and by the number of GPUs whose\n"
	"            links they may go over\n"
	"  kv        sequences of a KV cache that grow, end, are forked and adopted, beside the\n"
	"            driver\n"
	"  worst     the longest free, request and time under the lock, against the number of\n"
	"            blocks, streams, GPUs and contexts\n"
	"  policy    recorded jobs under variants of the policy: memory against driver time;\n"
	"            the jobs in t/data unless traces are named\n"
	"\n"
	"  -d, --driver auto|soft|cuda  what to run on (auto)\n"
	"  -c, --conf KEY=VALUE         set a key of glake.conf(5); repeatable\n"
	"  -r, --rounds N               how often each is measured (20; tier, host, copy, kv: 5;\n"
	"                               worst: 3; passes of policy: 4)\n"
	"  -t, --threads N              alloc also with N threads, beside one (1)\n"
	"  -n, --requests N             requests of sizes (7000000)\n"
	"  -m, --most N                 worst without counts above N (1000000)\n"
	"  -v, --vary KEY=VALUE,...     policy with these values of a key in turn, in place of\n"
	"                               its own list; repeatable\n"
	"  -o, --svg FILE               draw the frontier of policy, or what copy measured\n"
	"  -b, --beside                 copy also while the memory of the GPUs that lend is busy\n"
	"  -s, --size BYTES             of host (8GiB; on the software device 256MiB)\n"
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

static int add_vary(struct bench_options *options, const char *text)
{
	const char *value = strchr(text, '=');

	if (!value || value == text || !value[1])
		return glk_tool_usage(COMMAND,
			"--vary takes SECTION.KEY=VALUE,VALUE..., not '%s'", text);
	if (options->varied == BENCH_VARY_MAX)
		return glk_tool_usage(
			COMMAND, "more than %d keys to vary", BENCH_VARY_MAX);
	options->vary[options->varied++] = text;
	return 0;
}

static int set_size(struct bench_options *options, const char *text)
{
	uint64_t size;

	if (glake_size_parse(text, &size) || !size)
		return glk_tool_usage(
			COMMAND, "--size takes bytes, as 8GiB, not '%s'", text);
	options->size = size;
	return 0;
}

static int take_option(int c, struct bench_options *options)
{
	switch (c) {
	case 'r':
		return glk_tool_read_count(
			COMMAND, "--rounds", optarg, BENCH_ROUNDS_MAX, &options->rounds);
	case 't':
		return glk_tool_read_count(COMMAND, "--threads", optarg,
			BENCH_THREADS_MAX, &options->threads);
	case 'n':
		return glk_tool_read_count(COMMAND, "--requests", optarg, BENCH_SIZES_MAX,
			&options->requests);
	case 'm':
		return glk_tool_read_count(
			COMMAND, "--most", optarg, BENCH_WORST_MOST, &options->most);
	case 'v':
		return add_vary(options, optarg);
	case 'o':
		options->svg = optarg;
		return 0;
	case 'b':
		options->beside = true;
		return 0;
	case 's':
		return set_size(options, optarg);
	default:
		return glk_tool_take_option(&options->context, COMMAND, c);
	}
}

int bench_close(const struct bench_part *part, struct glake *ctx, int err)
{
	char name[64];
	size_t leaked = 0;
	int failed;

	snprintf(name, sizeof(name), "bench %s", part->name);
	if (err)
		glk_tool_say_error(name, err);
	failed = glake_close(ctx, &leaked);
	if (!failed && !leaked)
		return err;
	glk_tool_say("%s: %zu blocks were lost", name, leaked);
	return err ? err : -EIO;
}

static int run_part(const struct bench_part *part, const struct bench_options *options,
	struct glk_json *json)
{
	void *measured = calloc(1, part->size);
	char label[64];
	int err;

	if (!measured) {
		glk_tool_say("bench %s: %s", part->name, strerror(ENOMEM));
		return GLK_TOOL_FAILED;
	}
	snprintf(label, sizeof(label), "bench %s", part->name);
	progress_start(options->context.quiet, label);
	err = part->measure(options, measured);
	progress_end();
	if (!err && json)
		part->add(json, measured);
	else if (!err)
		part->print(measured);
	if (!err && part->finish && !part->finish(options, measured))
		err = -EIO;
	free(measured);
	return err ? GLK_TOOL_FAILED : GLK_TOOL_OK;
}

static int run(const struct bench_options *options, const bool *wanted)
{
	struct glk_json json, *out = options->context.json ? &json : NULL;
	int status = GLK_TOOL_OK;

	glk_json_init(&json, stdout, 2);
	if (out)
		glk_json_object(out);
	for (int i = 0; i < PARTS; i++) {
		int one = wanted[i] ? run_part(parts[i], options, out) : GLK_TOOL_OK;

		if (!one && wanted[i] && parts[i] == &bench_alloc && options->threads > 1)
			one = run_part(&bench_scale, options, out);
		status = status ? status : one;
	}
	if (!out)
		return status;
	glk_json_add_bool(out, "ok", status == GLK_TOOL_OK);
	glk_json_end(out);
	return glk_json_fini(out) ? GLK_TOOL_FAILED : status;
}

/* Names of benchmarks; behind policy, names of files. */
static int take_argument(const char *text, struct bench_options *options, bool *wanted)
{
	for (int i = 0; i < PARTS; i++) {
		if (strcmp(text, parts[i]->name))
			continue;
		wanted[i] = true;
		options->policy |= parts[i] == &bench_policy;
		return 0;
	}
	if (!options->policy)
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
	if (options.svg && options.policy == wanted[COPY])
		return glk_tool_usage(
			COMMAND, "--svg draws what policy measures, or copy");
	if (options.beside && !wanted[COPY])
		return glk_tool_usage(COMMAND, "--beside is for copy");
	if (options.size && !wanted[HOST])
		return glk_tool_usage(COMMAND, "--size is that of host");
	if (options.varied && !options.policy)
		return glk_tool_usage(COMMAND, "--vary is for policy");
	return run(&options, wanted);
}
