/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* glakectl whose: what an address of a running process is. */
#include "tool/process.h"
#include "tool/tool.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static const char help[] =
	"usage: glakectl whose [--json] ADDRESS [PID|PROGRAM]\n"
	"\n"
	"Says what an address is for a process that runs with glake and rpc.socket=yes: whose\n"
	"block it lies in or behind, or whose it was, or that it never was the library's. The\n"
	"process may be left out where there is but one.\n"
	"\n"
	"  -j, --json  for programs\n"
	"  -h, --help  show this help\n";

static double seconds(struct json_object *object, const char *name)
{
	return (double)process_number(object, name) / 1e9;
}

static void print_neighbour(struct json_object *d, const char *name, const char *size)
{
	if (process_number(d, name))
		printf("%-8s  0x%" PRIx64 ", %" PRIu64 " bytes\n", name,
			process_number(d, name), process_number(d, size));
}

static void print_whose(struct json_object *d)
{
	char what[32];

	process_word(d, "what", what, sizeof(what));
	printf("what      %s\n", what);
	if (process_number(d, "base"))
		printf("block     0x%" PRIx64 " of GPU %" PRIu64 ", %" PRIu64
		       " bytes asked for, %" PRIu64 " given\n"
		       "offset    %" PRIu64 "\n",
			process_number(d, "base"), process_number(d, "gpu"),
			process_number(d, "size"), process_number(d, "given"),
			process_number(d, "offset"));
	if (process_number(d, "thread"))
		printf("asked by  thread %" PRIu64 " on stream 0x%" PRIx64
		       ", %.3f s old\n",
			process_number(d, "thread"), process_number(d, "stream"),
			seconds(d, "age_ns"));
	if (process_number(d, "freed_by"))
		printf("freed by  thread %" PRIu64 ", %.3f s ago\n",
			process_number(d, "freed_by"), seconds(d, "freed_ns"));
	print_neighbour(d, "before", "before_size");
	print_neighbour(d, "behind", "behind_size");
}

int glk_tool_whose(int argc, char **argv)
{
	struct json_object *params, *result;
	uint64_t address;
	bool json;
	char *end;
	int status;

	if (!glk_tool_only_json(argc, argv, help, &json, &status))
		return status;
	if (argc == optind || argc - optind > 2)
		return glk_tool_usage("whose", "an address, and one process at most");
	errno = 0;
	address = strtoull(argv[optind], &end, 0);
	if (errno || *end || !address || address > INT64_MAX)
		return glk_tool_usage("whose", "an address, as 0x7f0000000000");
	params = json_object_new_object();
	json_object_object_add(
		params, "address", json_object_new_int64((int64_t)address));
	result = process_result(argv[optind + 1], "whose", params);
	if (!result)
		return GLK_TOOL_FAILED;
	if (json)
		process_print(result);
	else
		print_whose(result);
	json_object_put(result);
	return fflush(stdout) ? GLK_TOOL_FAILED : GLK_TOOL_OK;
}
