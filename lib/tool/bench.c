/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * glakectl bench: the command. Seconds of a machine prove nothing on another; so each part
 * measures something to compare with, or counts calls.
 */
#include "tool/bench.h"

#include "tool/report.h"

#include <dlfcn.h>
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#define COMMAND "bench"

#define PARTS_MAX 16

static const struct bench_part *const parts[] = {
	&bench_alloc, &bench_stitch, &bench_tier, &bench_copy};

static const struct option long_options[] = {
	{"driver", required_argument, NULL, 'd'},
	{"conf", required_argument, NULL, 'c'},
	{"rounds", required_argument, NULL, 'r'},
	{"json", no_argument, NULL, 'j'},
	{"quiet", no_argument, NULL, 'q'},
	{"help", no_argument, NULL, 'h'},
	{0},
};

static const char help[] =
	"usage: glakectl bench [OPTION]... [alloc] [stitch] [tier] [copy]\n"
	"\n"
	"Measures parts of the library; without a name, the first two.\n"
	"\n"
	"  alloc   pairs of allocate and free that the quick bins serve, beside a mutex\n"
	"  stitch  a large block on pages that lay apart: driver calls, time, contents\n"
	"  tier    contents that leave the GPU for the host and come back, and blocks that lie\n"
	"          there in place, by size\n"
	"  copy    copies between the host and a GPU, by size and by the number of GPUs whose\n"
	"          links they may go over\n"
	"\n"
	"  -d, --driver auto|soft|cuda  what to run on (auto)\n"
	"  -c, --conf KEY=VALUE         set a key of glake.conf(5); repeatable\n"
	"  -r, --rounds N               how often each is measured (20; tier, copy: 5)\n"
	"  -j, --json                   the report as JSON, which of copy glakectl draw draws\n"
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

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

struct bench_range bench_range_of(double *values, size_t count)
{
	struct bench_range range = {0};

	for (size_t i = 0; i < count; i++)
		range.mean += values[i] / (double)count;
	qsort(values, count, sizeof(*values), by_value);
	range.min = values[0];
	range.median = values[count / 2];
	range.max = values[count - 1];
	return range;
}

void bench_add_range(struct glk_json *json, const char *key, struct bench_range range)
{
	glk_json_key(json, key);
	glk_json_object(json);
	glk_json_add_figure(json, "mean", range.mean, 5);
	glk_json_add_figure(json, "min", range.min, 5);
	glk_json_add_figure(json, "median", range.median, 5);
	glk_json_add_figure(json, "max", range.max, 5);
	glk_json_end(json);
}

void bench_add_hits(struct glk_json *json, const struct bench_hits *count)
{
	glk_json_add_uint(json, "requests", count->requests);
	glk_json_add_uint(json, "hits", count->hits);
	glk_json_add_uint(json, "misses", count->requests - count->hits);
	glk_json_add_uint(json, "driver_called", count->called);
}

int bench_cuda_find(const struct bench_part *part, struct bench_cuda *cuda)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	const struct {
		void *fn;
		const char *name;
	} table[] = {
		{&cuda->fill, "cuMemsetD32Async"},
		{&cuda->read, "cuMemcpyDtoH_v2"},
		{&cuda->query, "cuStreamQuery"},
		{&cuda->sync, "cuCtxSynchronize"},
		{&cuda->context_of, "cuStreamGetCtx"},
		{&cuda->set_context, "cuCtxSetCurrent"},
		{&cuda->host_register, "cuMemHostRegister_v2"},
		{&cuda->host_unregister, "cuMemHostUnregister"},
		{&cuda->host_alloc, "cuMemHostAlloc"},
		{&cuda->host_free, "cuMemFreeHost"},
	};

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		void *found = library ? dlsym(library, table[i].name) : NULL;

		if (!found) {
			glk_tool_say("bench %s: the driver has no %s", part->name,
				table[i].name);
			return -EIO;
		}
		memcpy(table[i].fn, &found, sizeof(found));
	}
	return 0;
}

int bench_cuda_enter(const struct bench_cuda *cuda, struct CUstream_st *stream)
{
	void *context = NULL;

	return cuda->context_of(stream, &context) || cuda->set_context(context) ? -EIO
										: 0;
}

static int take_option(const struct bench_set *set, int c, struct bench_options *options)
{
	if (c == 'r')
		return glk_tool_read_count(
			COMMAND, "--rounds", optarg, BENCH_ROUNDS_MAX, &options->rounds);
	return set->take ? set->take(c, options)
			 : glk_tool_take_option(&options->context, COMMAND, c);
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
	if (!err && part->print && !options->context.json)
		part->print(measured);
	else if (!err)
		part->add(json, measured);
	if (!err && part->finish && !part->finish(options, measured))
		err = -EIO;
	free(measured);
	return err ? GLK_TOOL_FAILED : GLK_TOOL_OK;
}

static int run(const struct bench_set *set, const struct bench_options *options,
	const bool *wanted)
{
	struct report report;
	int status = GLK_TOOL_OK, one;

	if (report_begin(&report, options->context.json))
		return GLK_TOOL_FAILED;
	glk_json_object(&report.json);
	for (size_t i = 0; i < set->count; i++) {
		one = wanted[i] ? run_part(set->parts[i], options, &report.json) : 0;
		status = status ? status : one;
	}
	glk_json_add_bool(&report.json, "ok", status == GLK_TOOL_OK);
	glk_json_end(&report.json);
	return report_end(&report) ? GLK_TOOL_FAILED : status;
}

int bench_run(const struct bench_set *set, int argc, char **argv)
{
	struct bench_options options = {.threads = 2, .requests = 7000000};
	bool wanted[PARTS_MAX] = {false};
	int c;

	while ((c = glk_tool_option(argc, argv, set->options)) != -1) {
		if (c == 'h') {
			fputs(set->help, stdout);
			return GLK_TOOL_OK;
		}
		if (c == '?' || take_option(set, c, &options))
			return GLK_TOOL_USAGE;
	}
	for (int i = optind; i < argc; i++) {
		const char *best = NULL;
		size_t part = 0;

		for (; part < set->count && strcmp(argv[i], set->parts[part]->name);
			part++)
			best = glk_tool_nearest(argv[i], set->parts[part]->name, best);
		if (part == set->count)
			return glk_tool_usage(set->command, "unknown benchmark '%s'%s%s",
				argv[i], best ? ", is it " : "", best ? best : "");
		wanted[part] = true;
	}
	for (size_t i = 0; optind == argc && i < set->usual; i++)
		wanted[i] = true;
	return run(set, &options, wanted);
}

int glk_tool_bench(int argc, char **argv)
{
	static const struct bench_set set = {.command = COMMAND,
		.help = help,
		.options = long_options,
		.parts = parts,
		.count = sizeof(parts) / sizeof(parts[0]),
		.usual = 2};

	return bench_run(&set, argc, argv);
}
