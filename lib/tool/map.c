/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * glakectl map: the address space of a running process, as a picture in the terminal or in a file,
 * or run by run for programs. The process walks its tables for it, a little at a time; see
 * glake_map(3).
 */
#include "tool/map.h"

#include "base/parse.h"
#include "tool/tool.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define COMMAND "map"

/* Columns of a picture; a terminal may be of any. */
#define WIDTH_MIN 16
#define WIDTH_MAX 400

static const char help[] =
	"usage: glakectl map [OPTION]... [PID|PROGRAM]\n"
	"\n"
	"Shows the address space of a process that runs with glake and rpc.socket=yes: its blocks,\n"
	"and what lies between them. It may be left out where there is but one.\n"
	"\n"
	"  -b, --by state|stream|size  what letters and colours stand for\n"
	"  -g, --gpu N                 of this GPU alone\n"
	"  -j, --json                  for programs, and for glakectl draw: each run of addresses\n"
	"  -h, --help                  show this help\n";

static const struct option long_options[] = {
	{"by", required_argument, NULL, 'b'},
	{"gpu", required_argument, NULL, 'g'},
	{"json", no_argument, NULL, 'j'},
	{"help", no_argument, NULL, 'h'},
	{0},
};

struct wanted {
	enum space_by by;
	int gpu; /* -1: all */
	bool json;
};

static int read_by(const char *text, enum space_by *ret_by)
{
	static const char *const names[] = {"state", "stream", "size"};

	for (int i = 0; i < 3; i++) {
		if (!strcmp(text, names[i])) {
			*ret_by = (enum space_by)i;
			return 0;
		}
	}
	return glk_tool_usage(COMMAND, "--by is state, stream or size, not '%s'", text);
}

static int take(struct wanted *wanted, int c)
{
	switch (c) {
	case 'b':
		return read_by(optarg, &wanted->by);
	case 'g':
		return glk_tool_read_gpu(COMMAND, optarg, &wanted->gpu);
	case 'j':
		wanted->json = true;
		return 0;
	default:
		return GLK_TOOL_USAGE;
	}
}

/* Of the terminal; elsewhere what COLUMNS says. */
static unsigned find_width(void)
{
	const char *text = getenv("COLUMNS");
	struct winsize size;
	int64_t width = 80, said;

	if (!ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) && size.ws_col)
		width = size.ws_col;
	else if (text && !glk_parse_int(text, &said))
		width = said;
	return width < WIDTH_MIN    ? WIDTH_MIN
		: width > WIDTH_MAX ? WIDTH_MAX
				    : (unsigned)width;
}

static bool wants_colour(void)
{
	const char *none = getenv("NO_COLOR"), *term = getenv("TERM");

	return isatty(STDOUT_FILENO) && !(none && *none) && term && strcmp(term, "dumb");
}

static int show(const struct wanted *wanted, const char *name)
{
	struct space space;
	int status = space_read(name, wanted->gpu, &space);

	if (status)
		return status;
	if (wanted->json)
		status = map_print_json(&space);
	else
		status = map_print_text(&space, wanted->by, find_width(), wants_colour());
	if (!status && !wanted->json)
		space_say_changed(&space);
	if (!status && space.partial)
		status = GLK_TOOL_FAILED;
	space_free(&space);
	return status;
}

int glk_tool_map(int argc, char **argv)
{
	struct wanted wanted = {.gpu = -1};
	int c, status = 0;

	while (!status && (c = glk_tool_option(argc, argv, long_options)) != -1) {
		if (c == 'h') {
			fputs(help, stdout);
			return GLK_TOOL_OK;
		}
		status = take(&wanted, c);
	}
	if (status)
		return status;
	if (optind + 1 < argc)
		return glk_tool_usage(COMMAND, "one process is expected, not also '%s'",
			argv[optind + 1]);
	return show(&wanted, argv[optind]);
}
