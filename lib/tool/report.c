/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * glakectl report: a trace as one page of HTML. The trace is read and summed up, replayed, and
 * only then is the page written, beside the file that it is to become; whoever interrupts it
 * finds what was there before.
 */
#include "tool/report.h"

#include "base/json.h"
#include "base/parse.h"
#include "tool/progress.h"
#include "tool/trace_tool.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COMMAND "report"

static const struct option long_options[] = {
	{"output", required_argument, NULL, 'o'},
	{"recorded", required_argument, NULL, 'R'},
	{"frontier", required_argument, NULL, 'f'},
	{"driver", required_argument, NULL, 'd'},
	{"gpu", required_argument, NULL, 'g'},
	{"conf", required_argument, NULL, 'c'},
	{"lenient", no_argument, NULL, 'L'},
	{"json", no_argument, NULL, 'j'},
	{"quiet", no_argument, NULL, 'q'},
	{"help", no_argument, NULL, 'h'},
	{0},
};

static const char help[] =
	"usage: glakectl report [OPTION]... TRACE -o PAGE.html\n"
	"\n"
	"Makes one page of HTML of an allocation trace, that needs nothing else: live and\n"
	"reserved memory over time, sizes, lifetimes, streams, driver calls, and memory against\n"
	"driver time. What is reserved comes from a replay of the trace through the library.\n"
	"TRACE is one that glake recorded or a log of RAPIDS Memory Manager, plain or packed by\n"
	"xz, gzip or zstd; - is standard input.\n"
	"\n"
	"  -o, --output FILE            the page to write, - for standard output; packed where\n"
	"                               its name ends in .xz, .gz or .zst\n"
	"  -R, --recorded NAME=BYTES    what another allocator reserved for the same job, to be\n"
	"                               shown beside glake (default=39.4GiB); repeatable\n"
	"  -f, --frontier auto|yes|no   replay under other values of policy.target too (auto: if\n"
	"                               the trace has no more than 250000 events)\n"
	"  -d, --driver auto|soft|cuda  what to replay on (soft)\n"
	"  -g, --gpu N                  of a trace with several GPUs, the events of this one\n"
	"  -c, --conf KEY=VALUE         set a key of glake.conf(5); repeatable\n"
	"  -L, --lenient                skip and count rows that are wrong\n"
	"  -j, --json                   the figures as JSON on standard output\n"
	"  -q, --quiet                  no progress, no remarks\n"
	"  -h, --help                   this text\n";

/* The name is shown behind "recorded"; without one that has to do. */
static int read_recorded(const char *text, struct report_options *options)
{
	struct report_recorded *record = &options->record[options->recorded];
	const char *equals = strrchr(text, '=');
	size_t length = equals ? (size_t)(equals - text) : 0;

	if (options->recorded == REPORT_RECORDED_MAX)
		return glk_tool_usage(
			COMMAND, "more than %d times --recorded", REPORT_RECORDED_MAX);
	if (length >= sizeof(record->name))
		return glk_tool_usage(COMMAND,
			"--recorded takes a name of up to %zu bytes",
			sizeof(record->name) - 1);
	if (glk_parse_size(equals ? equals + 1 : text, &record->bytes) || !record->bytes)
		return glk_tool_usage(COMMAND,
			"--recorded takes NAME=BYTES as default=39.4GiB, not '%s'", text);
	memcpy(record->name, text, length);
	record->name[length] = '\0';
	if (!length)
		snprintf(record->name, sizeof(record->name), "allocator");
	options->recorded++;
	return 0;
}

static int read_frontier(const char *text, struct report_options *options)
{
	if (!strcmp(text, "auto"))
		options->frontier = REPORT_AUTO;
	else if (!strcmp(text, "yes"))
		options->frontier = REPORT_YES;
	else if (!strcmp(text, "no"))
		options->frontier = REPORT_NO;
	else
		return glk_tool_usage(
			COMMAND, "--frontier is auto, yes or no, not '%s'", text);
	return 0;
}

static int take_option(int c, struct report_options *options)
{
	switch (c) {
	case 'o':
		options->output = optarg;
		return 0;
	case 'R':
		return read_recorded(optarg, options);
	case 'f':
		return read_frontier(optarg, options);
	case 'g':
		return glk_tool_read_gpu(COMMAND, optarg, &options->gpu);
	case 'L':
		options->lenient = true;
		return 0;
	default:
		return glk_tool_take_option(&options->context, COMMAND, c);
	}
}

static int fail(const char *path, int err)
{
	glk_tool_say("%s: %s", path, strerror(-err));
	return GLK_TOOL_FAILED;
}

/* The page that is being written, for whoever interrupts that. */
static struct trace_output output;

static void give_up(int sig)
{
	unlink(output.part);
	signal(sig, SIG_DFL);
	raise(sig);
}

static void when_interrupted(void (*handler)(int))
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP};

	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
		struct sigaction before;

		/* what is ignored stays so, as behind nohup(1) */
		if (!sigaction(signals[i], NULL, &before) && before.sa_handler != SIG_IGN)
			signal(signals[i], handler);
	}
}

/* 0 or -errno after a message. */
static int open_page(const char *path)
{
	int err;

	when_interrupted(give_up);
	err = trace_output_open(&output, strcmp(path, "-") ? path : NULL);
	if (err == -EOPNOTSUPP)
		glk_tool_say("%s: its name promises a packer that is not there", path);
	else if (err)
		fail(path, err);
	return err;
}

/* The same; the file appears if `err`, of what went before, is 0. */
static int close_page(const struct report *report, int err)
{
	const char *path = report->options->output;
	int wrote = err ? err : report_put_page(report, output.file);
	int closed = trace_output_close(&output, !wrote);

	when_interrupted(SIG_DFL);
	if (err)
		return err;
	wrote = wrote ? wrote : closed;
	if (wrote)
		fail(strcmp(path, "-") ? path : "the page", wrote);
	return wrote;
}

static int print_figures(const struct report *report)
{
	struct glk_json json;

	glk_json_init(&json, stdout, 2);
	report_put_data(report, false, &json);
	return glk_json_fini(&json) ? GLK_TOOL_FAILED : GLK_TOOL_OK;
}

/* An allocator cannot have held less than was asked for. */
static int check_recorded(const struct report *report)
{
	const struct report_options *options = report->options;

	for (size_t i = 0; i < options->recorded; i++) {
		const struct report_recorded *record = &options->record[i];

		if (record->bytes < report->trace.peak_live)
			return glk_tool_usage(COMMAND,
				"--recorded %s=%llu is less than the %llu bytes that were live",
				record->name, (unsigned long long)record->bytes,
				(unsigned long long)report->trace.peak_live);
	}
	return 0;
}

/* All that the page shows. The exit status; not that of a replay that failed. */
static int gather(struct report *report)
{
	const struct report_options *options = report->options;
	struct trace_limits limits = TRACE_LIMITS;
	char message[TRACE_MESSAGE_MAX];
	int err, status;

	limits.gpu = options->gpu;
	err = trace_load(options->file, options->lenient, &limits, message,
		sizeof(message), &report->trace);
	if (err) {
		glk_tool_say("%s", message);
		return GLK_TOOL_FAILED;
	}
	status = check_recorded(report);
	if (status)
		return status;
	err = report_sum_up(report);
	if (err)
		return fail(options->file, err);
	return report_replay(report) ? GLK_TOOL_FAILED : GLK_TOOL_OK;
}

static int make(struct report *report)
{
	const struct report_options *options = report->options;
	int status;

	if (options->output && open_page(options->output))
		return GLK_TOOL_FAILED;
	progress_start(options->context.quiet, options->file);
	status = gather(report);
	progress_end();
	if (options->output && close_page(report, status))
		status = status ? status : GLK_TOOL_FAILED;
	if (!status && options->context.json)
		status = print_figures(report);
	if (status || report->result.ok)
		return status;
	glk_tool_say("%s: %s", report->trace.name, report->result.failure);
	return GLK_TOOL_FAILED;
}

static int run(const struct report_options *options)
{
	struct report *report = calloc(1, sizeof(*report));
	int status;

	if (!report)
		return fail(options->file, -ENOMEM);
	report->options = options;
	status = make(report);
	report_fini(report);
	free(report);
	return status;
}

int glk_tool_report(int argc, char **argv)
{
	struct report_options options = {
		.context.backend = GLAKE_BACKEND_SOFT, .gpu = TRACE_ONE_GPU};
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
	if (argc - optind > 1)
		return glk_tool_usage(COMMAND, "one TRACE is expected, not also '%s'",
			argv[optind + 1]);
	if (!options.output && !options.context.json)
		return glk_tool_usage(
			COMMAND, "where to write the page is missing: -o FILE, or -o -");
	if (options.output && !strcmp(options.output, "-") && options.context.json)
		return glk_tool_usage(COMMAND,
			"--json reports on standard output, so the page needs a file");
	options.file = argv[optind];
	return run(&options);
}
