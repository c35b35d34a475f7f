/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * glakectl replay: the command. Options are read, traces taken in turn, each with a context
 * of its own, and each result is shown when it is complete; what could not be read is never
 * shown as a result.
 */
#include "tool/replay.h"

#include "base/json.h"
#include "base/parse.h"
#include "tool/report.h"
#include "tool/trace_tool.h"

#include <errno.h>
#include <getopt.h>
#include <string.h>

#define COMMAND "replay"

static const struct option long_options[] = {
	{"driver", required_argument, NULL, 'd'},
	{"limit", required_argument, NULL, 'l'},
	{"repeat", required_argument, NULL, 'r'},
	{"threads", required_argument, NULL, 't'},
	{"gpu", required_argument, NULL, 'g'},
	{"conf", required_argument, NULL, 'c'},
	{"pressure", no_argument, NULL, 'p'},
	{"check", no_argument, NULL, 'k'},
	{"working-set", required_argument, NULL, 'w'},
	{"contents", no_argument, NULL, 'C'},
	{"timeline", required_argument, NULL, 'T'},
	{"lenient", no_argument, NULL, 'L'},
	{"json", no_argument, NULL, 'j'},
	{"quiet", no_argument, NULL, 'q'},
	{"help", no_argument, NULL, 'h'},
	{0},
};

static const char help[] =
	"usage: glakectl replay [OPTION]... FILE...\n"
	"\n"
	"Replays allocation traces through the library and reports how much physical memory\n"
	"they needed, which driver calls were made, and how long calls took. FILE is a trace\n"
	"that glake recorded or a log of RAPIDS Memory Manager, plain or packed by xz, gzip or\n"
	"zstd; - is standard input.\n"
	"\n"
	"  -d, --driver auto|soft|cuda  what to run on (auto)\n"
	"  -l, --limit BYTES|xRATIO     budget: bytes (40GiB), or a multiple of the trace's\n"
	"                               peak of live memory (x1.03)\n"
	"  -r, --repeat N               passes over the trace; memory is kept between them (3)\n"
	"  -t, --threads N              deal the trace's threads, or streams, out to N (1)\n"
	"  -g, --gpu N                  of a trace with several GPUs, the events of this one\n"
	"  -c, --conf KEY=VALUE         set a key of glake.conf(5); repeatable\n"
	"  -p, --pressure               squeeze the budget afterwards until a request fails\n"
	"  -k, --check                  mark one block in sixteen, and see that it keeps its marks;\n"
	"                               on the software device\n"
	"  -w, --working-set BYTES      what each thread reads and writes between two calls, so\n"
	"                               that these find the caches as in a job (0)\n"
	"  -T, --timeline FILE.csv      write live and reserved memory over time, of the first pass\n"
	"                               and of the last\n"
	"  -C, --contents               with --json: also sizes, lifetimes, streams and the timeline,\n"
	"                               which glakectl report and draw show\n"
	"  -L, --lenient                skip and count rows that are wrong\n"
	"  -j, --json                   the report as JSON\n"
	"  -q, --quiet                  no progress, no remarks\n"
	"  -h, --help                   this text\n";

static int read_limit(const char *text, struct replay_limit *limit)
{
	*limit = (struct replay_limit){0};
	if (text[0] == 'x' ? glk_parse_ratio(text, &limit->ratio)
			   : glk_parse_size(text, &limit->bytes) || !limit->bytes)
		return glk_tool_usage(COMMAND,
			"--limit takes a size like 40GiB or a ratio like x1.03, not '%s'",
			text);
	return 0;
}

static int read_working_set(const char *text, uint64_t *bytes)
{
	if (glk_parse_size(text, bytes) || *bytes > REPLAY_WORKING_SET_MAX)
		return glk_tool_usage(COMMAND,
			"--working-set takes a size up to 64MiB, not '%s'", text);
	return 0;
}

static int take_option(int c, struct replay_options *options)
{
	switch (c) {
	case 'l':
		return read_limit(optarg, &options->limit);
	case 'r':
		return glk_tool_read_count(COMMAND, "--repeat", optarg,
			REPLAY_REPEATS_MAX, &options->repeats);
	case 't':
		return glk_tool_read_count(COMMAND, "--threads", optarg,
			REPLAY_THREADS_MAX, &options->threads);
	case 'g':
		return glk_tool_read_gpu(COMMAND, optarg, &options->gpu);
	case 'p':
		options->pressure = true;
		return 0;
	case 'C':
		options->contents = true;
		options->samples = REPLAY_SAMPLES_MAX;
		return 0;
	case 'T':
		options->timeline = optarg;
		return 0;
	case 'k':
		options->check = true;
		return 0;
	case 'w':
		return read_working_set(optarg, &options->working_set);
	case 'L':
		options->lenient = true;
		return 0;
	default:
		return glk_tool_take_option(&options->context, COMMAND, c);
	}
}

static int show_text(const struct replay_result *result)
{
	struct report report;
	int status;

	if (report_begin(&report, false))
		return GLK_TOOL_FAILED;
	replay_add(&report.json, result);
	status = report_end(&report);
	printf("\ndriver: time in its calls%s; called: requests that called it\n",
		result->backend[0] == 's' ? ", as on an H200" : "");
	return status;
}

static int show(const struct replay_result *result, struct glk_json *json)
{
	if (!result->options->context.json) {
		if (show_text(result))
			return GLK_TOOL_FAILED;
	} else if (replay_add(json, result)) {
		glk_tool_say("%s", strerror(ENOMEM));
		return GLK_TOOL_FAILED;
	}
	if (!result->ok)
		glk_tool_say("%s: %s", result->trace->name, result->failure);
	if (result->options->timeline &&
		replay_write_timeline(result, result->options->timeline))
		return GLK_TOOL_FAILED;
	return result->ok ? GLK_TOOL_OK : GLK_TOOL_FAILED;
}

/* A trace that could not be replayed leaves a member without figures in an array, so that
 * members and files keep their order; alone it leaves nothing. */
static void show_error(const char *path, const char *message, struct glk_json *json)
{
	glk_json_object(json);
	glk_json_add_text(json, "trace", path);
	glk_json_add_bool(json, "ok", false);
	glk_json_add_text(json, "failure", message);
	glk_json_end(json);
}

static int replay_file(const char *path, const struct replay_options *options,
	bool several, struct glk_json *json)
{
	static struct replay_result result;
	char message[TRACE_MESSAGE_MAX] = "see standard error";
	struct trace_limits limits = TRACE_LIMITS;
	struct trace trace = {0};
	int status = GLK_TOOL_FAILED;
	int err;

	progress_start(options->context.quiet, path);
	limits.gpu = options->gpu;
	err = trace_load(
		path, options->lenient, &limits, message, sizeof(message), &trace);
	if (err) {
		progress_end();
		glk_tool_say("%s", message);
	} else {
		err = replay_job(&trace, options, &result);
		progress_end();
		if (!err) {
			status = show(&result, json);
			replay_result_fini(&result);
		}
	}
	if (err && options->context.json && several)
		show_error(path, message, json);
	trace_fini(&trace);
	return status;
}

static int replay_files(int count, char **paths, const struct replay_options *options)
{
	struct glk_json json;
	int status = GLK_TOOL_OK;

	glk_json_init(&json, stdout, 2);
	if (options->context.json && count > 1)
		glk_json_array(&json);
	for (int i = 0; i < count; i++) {
		int one = replay_file(paths[i], options, count > 1, &json);

		status = one ? one : status;
	}
	if (!options->context.json)
		return status;
	if (count > 1)
		glk_json_end(&json);
	if (json.done && glk_json_fini(&json))
		status = GLK_TOOL_FAILED;
	return status;
}

int glk_tool_replay(int argc, char **argv)
{
	struct replay_options options = {
		.repeats = 3, .threads = 1, .gpu = TRACE_ONE_GPU};
	int c;

	while ((c = glk_tool_option(argc, argv, long_options)) != -1) {
		if (c == 'h') {
			fputs(help, stdout);
			return GLK_TOOL_OK;
		}
		if (c == '?' || take_option(c, &options))
			return GLK_TOOL_USAGE;
	}
	if (optind == argc)
		return glk_tool_usage(COMMAND, "a trace is missing");
	if (options.contents && !options.context.json)
		return glk_tool_usage(COMMAND, "--contents is told as JSON: --json too");
	if (options.timeline && argc - optind > 1)
		return glk_tool_usage(COMMAND, "--timeline is of one trace");
	if (trace_output_is(options.timeline, argv[optind]))
		return glk_tool_usage(COMMAND,
			"-T %s is the trace itself, which it would replace",
			options.timeline);
	return replay_files(argc - optind, argv + optind, &options);
}
