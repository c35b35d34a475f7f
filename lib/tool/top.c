/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * glakectl top: what all processes with glake hold and do, again and again. On a terminal it is a
 * window; elsewhere, and by --batch, a table each time. A process that ends, or does not answer, is
 * told of and ends nothing.
 */
#include "tool/top.h"

#include "tool/process.h"
#include "tool/tool.h"
#include "wire/wire.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define COMMAND "top"

static const char help[] =
	"usage: glakectl top [OPTION]... [PID|PROGRAM]...\n"
	"\n"
	"Shows what processes that run with glake and rpc.socket=yes hold on each GPU and what they\n"
	"do, all of them or those named: in a window, or as a table each time where the output is no\n"
	"terminal. In the window, h shows the keys and q ends it.\n"
	"\n"
	"  -i, --interval SECONDS  how often to look (1)\n"
	"  -n, --count N           look so many times, then end\n"
	"  -s, --sort reserved|live|ratio|allocs|misses|pid  which first\n"
	"  -b, --batch             tables, on a terminal too\n"
	"  -j, --json              for programs, a line each time\n"
	"  -h, --help              show this help\n";

static const struct option long_options[] = {
	{"interval", required_argument, NULL, 'i'},
	{"count", required_argument, NULL, 'n'},
	{"sort", required_argument, NULL, 's'},
	{"batch", no_argument, NULL, 'b'},
	{"json", no_argument, NULL, 'j'},
	{"help", no_argument, NULL, 'h'},
	{0},
};

struct options {
	int64_t interval; /* ns */
	unsigned count;	  /* 0: no end */
	bool batch, json;
	enum top_sort sort;
};

static void wait_for(int64_t ns)
{
	struct timespec left = {ns / 1000000000, ns % 1000000000};

	while (nanosleep(&left, &left) && errno == EINTR)
		;
}

static int print(
	const struct options *options, const struct top_sample *sample, bool first)
{
	if (options->json)
		return top_print_json(sample) ? GLK_TOOL_FAILED : GLK_TOOL_OK;
	if (*sample->ended)
		glk_tool_say("%s", sample->ended);
	if (!first)
		puts("");
	top_print_table(sample);
	return fflush(stdout) ? GLK_TOOL_FAILED : GLK_TOOL_OK;
}

static int run_tables(
	const struct options *options, int room, const struct top_wanted *wanted)
{
	struct top_sample sample = {0};
	int status = GLK_TOOL_OK;

	for (unsigned i = 0; !status && (!options->count || i < options->count); i++) {
		if (i)
			wait_for(options->interval);
		status = top_sample_take(room, wanted, &sample)
			? GLK_TOOL_FAILED
			: print(options, &sample, !i);
	}
	top_sample_fini(&sample);
	return status;
}

static int run(const struct options *options, char **names)
{
	bool window = !options->batch && !options->json && isatty(STDOUT_FILENO) &&
		isatty(STDIN_FILENO);
	struct top_wanted wanted = {.names = names, .sort = options->sort};
	char why[GLK_WIRE_WHY_MAX];
	int room, status, err = process_room(&room);

	/* who watches may have begun before the first process that is watched */
	if (err == -ENOENT && glk_wire_room_open(true, &room, why)) {
		glk_tool_say("no process can be asked: %s", why);
		return GLK_TOOL_FAILED;
	}
	if (err && err != -ENOENT)
		return GLK_TOOL_FAILED;
	status = window ? top_window(room, &wanted, options->interval, options->count)
			: run_tables(options, room, &wanted);
	close(room);
	return status;
}

static int read_sort(const char *text, enum top_sort *ret_sort)
{
	for (int sort = 0; sort < TOP_SORTS; sort++) {
		if (strcmp(text, top_sort_name((enum top_sort)sort)))
			continue;
		*ret_sort = (enum top_sort)sort;
		return 0;
	}
	return glk_tool_usage(COMMAND,
		"--sort takes reserved, live, ratio, allocs, misses or pid, not '%s'",
		text);
}

static int take(struct options *options, int c)
{
	switch (c) {
	case 'i':
		return glk_tool_read_interval(COMMAND, optarg, &options->interval);
	case 'n':
		return glk_tool_read_count(
			COMMAND, "--count", optarg, INT32_MAX, &options->count);
	case 's':
		return read_sort(optarg, &options->sort);
	case 'b':
		options->batch = true;
		return 0;
	case 'j':
		options->json = true;
		return 0;
	default:
		return GLK_TOOL_USAGE;
	}
}

int glk_tool_top(int argc, char **argv)
{
	struct options options = {.interval = 1000000000};
	int c, status = 0;

	while (!status && (c = glk_tool_option(argc, argv, long_options)) != -1) {
		if (c == 'h') {
			fputs(help, stdout);
			return GLK_TOOL_OK;
		}
		status = take(&options, c);
	}
	return status ? status : run(&options, argv + optind);
}
