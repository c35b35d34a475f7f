/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* glakectl check: what a running process finds behind the blocks that it guards. */
#include "tool/process.h"
#include "tool/tool.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>

static const char help[] =
	"usage: glakectl check [--json] [PID|PROGRAM]\n"
	"\n"
	"Has a process that runs with glake and rpc.socket=yes look at all blocks that it\n"
	"guards (guard.mode), behind the work of its GPUs, and shows what it found, now and\n"
	"before. Exit status 1 where something was written that should not have been. The\n"
	"process may be left out where there is but one.\n"
	"\n"
	"  -j, --json  for programs\n"
	"  -h, --help  show this help\n";

/* Of all contexts; how many mistakes were found. */
static uint64_t sum(struct json_object *result)
{
	uint64_t all = 0;

	for (size_t i = 0; i < json_object_array_length(result); i++)
		all += process_number(json_object_array_get_idx(result, i), "findings");
	return all;
}

static void print_finding(struct json_object *f)
{
	char kind[32];

	process_word(f, "kind", kind, sizeof(kind));
	printf("  GPU %" PRIu64 ": %s, %" PRIu64 " bytes from offset %" PRIu64
	       " of 0x%" PRIx64 " (%" PRIu64 " bytes, thread %" PRIu64 ")\n",
		process_number(f, "gpu"), kind, process_number(f, "bytes"),
		process_number(f, "offset"), process_number(f, "base"),
		process_number(f, "size"), process_number(f, "thread"));
}

static void print_check(struct json_object *result)
{
	for (size_t i = 0; i < json_object_array_length(result); i++) {
		struct json_object *c = json_object_array_get_idx(result, i);
		struct json_object *found = process_array(c, "last");

		printf("context %" PRIu64 ": %" PRIu64 " blocks looked at, %" PRIu64
		       " broken; %" PRIu64 " freed ones, %" PRIu64
		       " without a look, %" PRIu64 " unguarded; %" PRIu64 " findings\n",
			process_number(c, "context"), process_number(c, "blocks"),
			process_number(c, "broken"), process_number(c, "freed"),
			process_number(c, "unchecked"), process_number(c, "unguarded"),
			process_number(c, "findings"));
		for (size_t k = 0; found && k < json_object_array_length(found); k++)
			print_finding(json_object_array_get_idx(found, k));
	}
}

int glk_tool_check(int argc, char **argv)
{
	struct json_object *result;
	bool json;
	int status;

	if (!glk_tool_only_json(argc, argv, help, &json, &status))
		return status;
	if (argc - optind > 1)
		return glk_tool_usage("check", "one process at a time");
	result = process_result(argv[optind], "check", NULL);
	if (!result)
		return GLK_TOOL_FAILED;
	status = GLK_TOOL_FAILED;
	if (json_object_get_type(result) != json_type_array) {
		glk_tool_say("what the process answers is no check");
	} else {
		if (json)
			process_print(result);
		else
			print_check(result);
		status = sum(result) ? GLK_TOOL_FAILED : GLK_TOOL_OK;
	}
	json_object_put(result);
	return fflush(stdout) ? GLK_TOOL_FAILED : status;
}
