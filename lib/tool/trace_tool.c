/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * glakectl trace: the command. A trace is recorded by the program itself, where the key trace.file of
 * its configuration asks for it, or while it runs, when it is asked at its socket, by a module of the
 * package for Python; here traces are looked at, cut and converted.
 */
#include "tool/trace_tool.h"

#include "base/parse.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

static const struct option long_options[] = {
	{"output", required_argument, NULL, 'o'},
	{"format", required_argument, NULL, 'f'},
	{"gpu", required_argument, NULL, 'g'},
	{"lenient", no_argument, NULL, 'L'},
	{"json", no_argument, NULL, 'j'},
	{"quiet", no_argument, NULL, 'q'},
	{"from", required_argument, NULL, 'b'},
	{"to", required_argument, NULL, 'e'},
	{"events", required_argument, NULL, 'n'},
	{"stream", required_argument, NULL, 'S'},
	{"free", no_argument, NULL, 'F'},
	{"help", no_argument, NULL, 'h'},
	{0},
};

static const char help[] =
	"usage: glakectl trace show [OPTION]... FILE\n"
	"       glakectl trace convert [OPTION]... FILE [-o OUT]\n"
	"       glakectl trace cut [OPTION]... FILE [-o OUT]\n"
	"       glakectl trace record [OPTION]... [PID|PROGRAM] -o OUT\n"
	"\n"
	"show tells what is in a trace: who recorded it, events by kind, GPUs, threads, streams.\n"
	"convert writes a trace as a log of RAPIDS Memory Manager or in glake's own format.\n"
	"cut writes a part of a trace that stands for itself: blocks that are live where it begins are\n"
	"allocated there.\n"
	"record has a running process record itself, until it is interrupted; see glakectl ps.\n"
	"FILE is either, or a snapshot of PyTorch's (a pickle), plain or packed by xz, gzip or zstd; -\n"
	"is standard input.\n"
	"A program records itself from its beginning where GLAKE_TRACE_FILE names the file to write.\n"
	"\n"
	"  -o, --output OUT        convert, cut, record: the file to write; packed, but for record, where\n"
	"                          its name ends in .xz, .gz or .zst; a log goes to standard output\n"
	"                          without it\n"
	"  -f, --format csv|glake  convert, cut: the format to write (convert: the other one, cut: the\n"
	"                          same)\n"
	"  -b, --from TIME         cut: from here on, since the first event, as 1500ms (0)\n"
	"  -e, --to TIME           cut: up to before this (the end)\n"
	"  -n, --events A-B        cut: those of these numbers, from 1, in the order of their times\n"
	"  -S, --stream ID         cut: blocks that were asked for on this stream; may be given again\n"
	"  -F, --free              cut: what is live at the end is freed there\n"
	"  -t, --for TIME          record: for so long at most, as 10s\n"
	"  -s, --size BYTES        record: so much at most, as 100M (1GiB)\n"
	"  -x, --context N         record: this one, where the process has several\n"
	"  -g, --gpu N             show, convert, cut: events of this GPU alone\n"
	"  -L, --lenient           show, convert, cut: skip and count what is wrong\n"
	"  -j, --json              the report as JSON\n"
	"  -q, --quiet             no progress, no remarks\n"
	"  -h, --help              this text\n";

const char *trace_kind_name(unsigned kind)
{
	static const char *const names[GLAKE_TRACE_KINDS] = {"none", "thread", "allocate",
		"allocate_contiguous", "allocate_failed", "free", "free_after",
		"free_failed", "use", "stream_end", "event_recorded", "stream_waited",
		"budget", "trim", "pool_begin", "pool_end", "pool_release", "kv_open",
		"kv_close", "kv_new", "kv_grow", "kv_step", "kv_trim", "kv_free",
		"kv_fork", "kv_publish", "kv_adopt", "kv_withdraw", "kv_spill",
		"kv_fetch", "kv_prefix_spill", "kv_prefix_fetch", "kv_layer_grow",
		"kv_layer_done", "kv_layer_wait"};

	return names[kind];
}

unsigned trace_kind_of(const struct trace_row *row)
{
	static const unsigned kinds[] = {
		[TRACE_ALLOCATE] = GLAKE_TRACE_ALLOC,
		[TRACE_FREE] = GLAKE_TRACE_FREE,
		[TRACE_FAILURE] = GLAKE_TRACE_ALLOC_FAILED,
		[TRACE_OTHER] = GLAKE_TRACE_NONE,
	};

	return row->kind ? row->kind : kinds[row->action];
}

const char *trace_format_name(const struct trace_reading *reading)
{
	if (reading->is_snapshot)
		return "pickle";
	return reading->is_ours ? "glake" : "csv";
}

static int read_time(const char *name, int64_t *ret_ns)
{
	if (!glk_parse_time(optarg, ret_ns) && *ret_ns >= 0)
		return 0;
	return glk_tool_usage(TRACE_TOOL_CUT,
		"--%s takes a time as 10s or 500ms, not '%s'", name, optarg);
}

/* "A-B", "A-" or "-B". */
static int read_events(struct trace_tool_options *options)
{
	const char *dash = strchr(optarg, '-');
	char first[24] = "", last[24] = "";
	int64_t a = 1, b = 0;

	if (dash && dash - optarg < (int)sizeof(first) && strlen(dash) < sizeof(last)) {
		memcpy(first, optarg, (size_t)(dash - optarg));
		memcpy(last, dash + 1, strlen(dash));
	}
	if ((*first || *last) && (!*first || (!glk_parse_int(first, &a) && a > 0)) &&
		(!*last || (!glk_parse_int(last, &b) && b >= a))) {
		options->first = (uint64_t)a;
		options->last = (uint64_t)b;
		return 0;
	}
	return glk_tool_usage(
		TRACE_TOOL_CUT, "--events takes numbers as 1000-2000, not '%s'", optarg);
}

static int add_stream(struct trace_tool_options *options)
{
	char *end;

	if (options->streams == TRACE_CUT_STREAMS)
		return glk_tool_usage(
			TRACE_TOOL_CUT, "--stream at most %d times", TRACE_CUT_STREAMS);
	errno = 0;
	options->stream[options->streams++] = strtoull(optarg, &end, 0);
	if (!errno && *optarg >= '0' && *optarg <= '9' && !*end)
		return 0;
	return glk_tool_usage(TRACE_TOOL_CUT,
		"--stream takes a number as trace show has it, as 0x55d0c8a0, not '%s'",
		optarg);
}

/* Which part. */
static int take_part(int c, struct trace_tool_options *options)
{
	switch (c) {
	case 'b':
		return read_time("from", &options->from_ns);
	case 'e':
		return read_time("to", &options->to_ns);
	case 'n':
		return read_events(options);
	case 'S':
		return add_stream(options);
	default:
		options->frees = true;
		return 0;
	}
}

static int take_option(int c, const char *command, struct trace_tool_options *options)
{
	const char *known = !strcmp(command, TRACE_TOOL_CONVERT) ? "ofgLjq"
		: !strcmp(command, TRACE_TOOL_CUT)		 ? "ofgLjqbenSF"
								 : "gLjq";

	if (!strchr(known, c))
		return glk_tool_usage(command, "-%c is none of its options", c);
	switch (c) {
	case 'o':
		options->output = strcmp(optarg, "-") ? optarg : NULL;
		return 0;
	case 'f':
		options->format = optarg;
		if (!strcmp(optarg, "csv") || !strcmp(optarg, "glake"))
			return 0;
		return glk_tool_usage(
			command, "--format is csv or glake, not '%s'", optarg);
	case 'b':
	case 'e':
	case 'n':
	case 'S':
	case 'F':
		return take_part(c, options);
	case 'g':
		return glk_tool_read_gpu(command, optarg, &options->gpu);
	case 'L':
		options->lenient = true;
		return 0;
	case 'j':
		options->json = true;
		return 0;
	case 'q':
		options->quiet = true;
		return 0;
	default:
		return GLK_TOOL_USAGE;
	}
}

static int run(
	int argc, char **argv, int (*command)(const struct trace_tool_options *options))
{
	struct trace_tool_options options = {
		.gpu = TRACE_ONE_GPU, .cuts = !strcmp(argv[0], TRACE_TOOL_CUT)};
	int c;

	while ((c = glk_tool_option(argc, argv, long_options)) != -1) {
		if (c == 'h') {
			fputs(help, stdout);
			return GLK_TOOL_OK;
		}
		if (c == '?' || take_option(c, argv[0], &options))
			return GLK_TOOL_USAGE;
	}
	if (optind == argc)
		return glk_tool_usage(argv[0], "a trace is missing");
	if (argc - optind > 1)
		return glk_tool_usage(
			argv[0], "one FILE is expected, not also '%s'", argv[optind + 1]);
	if (options.json && !options.output && command == trace_tool_convert)
		return glk_tool_usage(argv[0],
			"--json reports on standard output, so the trace needs -o");
	if (options.to_ns && options.to_ns <= options.from_ns)
		return glk_tool_usage(argv[0], "--to is a time behind --from");
	options.file = argv[optind];
	if (trace_output_is(options.output, options.file))
		return glk_tool_usage(argv[0],
			"-o %s is the trace itself, which it would replace",
			options.output);
	return command(&options);
}

int glk_tool_trace(int argc, char **argv)
{
	static const struct {
		const char *word, *name;
		int (*command)(const struct trace_tool_options *options);
	} commands[] = {{"show", TRACE_TOOL_SHOW, trace_tool_show},
		{"convert", TRACE_TOOL_CONVERT, trace_tool_convert},
		{"cut", TRACE_TOOL_CUT, trace_tool_convert},
		{"record", TRACE_TOOL_RECORD, NULL}};
	const char *what = argc > 1 ? argv[1] : NULL;

	if (!what)
		return glk_tool_usage(
			"trace", "'show', 'convert', 'cut' or 'record' is missing");
	if (!strcmp(what, "--help") || !strcmp(what, "-h")) {
		fputs(help, stdout);
		return GLK_TOOL_OK;
	}
	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
		if (strcmp(what, commands[i].word))
			continue;
		argv[1] = (char *)commands[i].name;
		if (commands[i].command)
			return run(argc - 1, argv + 1, commands[i].command);
		/* a process is asked, as other modules do */
		return glk_tool_become_python("glake.record", argv + 1);
	}
	return glk_tool_usage("trace",
		"'show', 'convert', 'cut' or 'record' is expected, not '%s'", what);
}
