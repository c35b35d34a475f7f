/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* glakectl dedup: what of a running process exists once, and what is there more than once. */
#include "tool/figure.h"
#include "tool/process.h"
#include "tool/tool.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>

static const char help[] =
	"usage: glakectl dedup [--dry-run] [--json] [PID|PROGRAM]\n"
	"\n"
	"Shows how much memory of a process that runs with glake and rpc.socket=yes exists once\n"
	"and is in use in several places. The process may be left out where there is but one.\n"
	"\n"
	"  -n, --dry-run  have it look how much of its memory is there more than once; nothing is\n"
	"                 changed\n"
	"  -j, --json     for programs\n"
	"  -h, --help     show this help\n";

static const struct option long_options[] = {
	{"dry-run", no_argument, NULL, 'n'},
	{"json", no_argument, NULL, 'j'},
	{"help", no_argument, NULL, 'h'},
	{0},
};

static void print_likeness(struct json_object *gpu, const char *of, uint64_t part,
	const char *looked, const char *equal)
{
	uint64_t all = process_number(gpu, looked), twice = process_number(gpu, equal);

	printf("  in %s of %s: %s of %s are there more than once, %.1f %%\n", of,
		figure_bytes(part).text, figure_bytes(twice).text, figure_bytes(all).text,
		all ? 100.0 * (double)twice / (double)all : 0.0);
}

static void print_dedup(struct json_object *result, bool look)
{
	for (size_t i = 0; i < json_object_array_length(result); i++) {
		struct json_object *gpu = json_object_array_get_idx(result, i);

		printf("context %" PRIu64 ", GPU %" PRIu64
		       ": %s exist once and are in use again\n",
			process_number(gpu, "context"), process_number(gpu, "gpu"),
			figure_bytes(process_number(gpu, "shared_bytes")).text);
		if (!look)
			continue;
		print_likeness(gpu, "parts", 64 << 10, "looked_bytes", "equal_bytes");
		print_likeness(gpu, "pages", process_number(gpu, "page_bytes"),
			"pages_looked_bytes", "pages_equal_bytes");
	}
}

int glk_tool_dedup(int argc, char **argv)
{
	struct json_object *params, *result;
	bool look = false, json = false;
	int c, status = GLK_TOOL_FAILED;

	while ((c = glk_tool_option(argc, argv, long_options)) != -1) {
		switch (c) {
		case 'n':
			look = true;
			break;
		case 'j':
			json = true;
			break;
		case 'h':
			fputs(help, stdout);
			return GLK_TOOL_OK;
		default:
			return GLK_TOOL_USAGE;
		}
	}
	if (argc - optind > 1)
		return glk_tool_usage("dedup", "one process at a time");
	params = json_object_new_object();
	json_object_object_add(params, "look", json_object_new_boolean(look));
	result = process_result(argv[optind], "dedup", params);
	if (!result)
		return GLK_TOOL_FAILED;
	if (json_object_get_type(result) != json_type_array) {
		glk_tool_say("what the process answers is no such list");
	} else {
		if (json)
			process_print(result);
		else
			print_dedup(result, look);
		status = GLK_TOOL_OK;
	}
	json_object_put(result);
	return fflush(stdout) ? GLK_TOOL_FAILED : status;
}
