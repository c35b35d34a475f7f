/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * glakectl trace: the command. A trace is recorded by the program itself, where the key
 * trace.file of its configuration asks for it; here it is looked at and converted.
 */
#include "tool/trace_tool.h"

#include <getopt.h>
#include <string.h>

static const struct option long_options[] = {
	{"output", required_argument, NULL, 'o'},
	{"format", required_argument, NULL, 'f'},
	{"gpu", required_argument, NULL, 'g'},
	{"lenient", no_argument, NULL, 'L'},
	{"json", no_argument, NULL, 'j'},
	{"quiet", no_argument, NULL, 'q'},
	{"help", no_argument, NULL, 'h'},
	{0},
};

static const char help[] =
	"usage: glakectl trace show [OPTION]... FILE\n"
	"       glakectl trace convert [OPTION]... FILE [-o OUT]\n"
	"\n"
	"show tells what is in a trace: who recorded it, events by kind, GPUs, threads, streams.\n"
	"convert writes a trace as a log of RAPIDS Memory Manager or in glake's own format.\n"
	"FILE is either, plain or packed by xz, gzip or zstd; - is standard input.\n"
	"A program records itself where GLAKE_TRACE_FILE names the file to write.\n"
	"\n"
	"  -o, --output OUT        convert: the file to write, packed where its name ends in .xz,\n"
	"                          .gz or .zst; a log goes to standard output without it\n"
	"  -f, --format csv|glake  convert: the format to write (the other one)\n"
	"  -g, --gpu N             events of this GPU alone\n"
	"  -L, --lenient           skip and count what is wrong\n"
	"  -j, --json              the report as JSON\n"
	"  -q, --quiet             no progress, no remarks\n"
	"  -h, --help              this text\n";

const char *trace_kind_name(unsigned kind)
{
	static const char *const names[GLAKE_TRACE_KINDS] = {"none", "thread", "allocate",
		"allocate_contiguous", "allocate_failed", "free", "free_after",
		"free_failed", "use", "stream_end", "event_recorded", "stream_waited",
		"budget", "trim", "pool_begin", "pool_end", "pool_release"};

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

static int take_option(int c, const char *command, struct trace_tool_options *options)
{
	bool converts = !strcmp(command, TRACE_TOOL_CONVERT);

	if ((c == 'o' || c == 'f') && !converts)
		return glk_tool_usage(command,
			"nothing is written here, so -%c is none of "
			"its options",
			c);
	switch (c) {
	case 'o':
		options->output = optarg;
		return 0;
	case 'f':
		options->format = optarg;
		if (!strcmp(optarg, "csv") || !strcmp(optarg, "glake"))
			return 0;
		return glk_tool_usage(
			command, "--format is csv or glake, not '%s'", optarg);
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
	struct trace_tool_options options = {.gpu = TRACE_ONE_GPU};
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
	options.file = argv[optind];
	return command(&options);
}

int glk_tool_trace(int argc, char **argv)
{
	static char show_name[] = TRACE_TOOL_SHOW, convert_name[] = TRACE_TOOL_CONVERT;
	const char *what = argc > 1 ? argv[1] : NULL;

	if (!what)
		return glk_tool_usage("trace", "'show' or 'convert' is missing");
	if (!strcmp(what, "--help") || !strcmp(what, "-h")) {
		fputs(help, stdout);
		return GLK_TOOL_OK;
	}
	if (!strcmp(what, "show")) {
		argv[1] = show_name;
		return run(argc - 1, argv + 1, trace_tool_show);
	}
	if (!strcmp(what, "convert")) {
		argv[1] = convert_name;
		return run(argc - 1, argv + 1, trace_tool_convert);
	}
	return glk_tool_usage("trace", "'show' or 'convert' is expected, not '%s'", what);
}
