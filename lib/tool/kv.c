/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* glakectl kv: the KV caches of a running process. */
#include "tool/figure.h"
#include "tool/process.h"
#include "tool/simulate.h"
#include "tool/tool.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char help[] =
	"usage: glakectl kv [--json] [PID|PROGRAM]\n"
	"       glakectl kv simulate [OPTION]... [REQUESTS]\n"
	"\n"
	"Shows the KV caches (glake_kv_open) of a process that runs with glake and\n"
	"rpc.socket=yes: sequences and their tokens, what these need, the pages held for them,\n"
	"what sharing saves, how many pages were there before they were needed and how many\n"
	"calls met all they needed, waited, or were refused, and what is on the host. It may be\n"
	"left out where there is but one process. With 'simulate' requests of an engine that is\n"
	"not there are planned: see glakectl kv simulate --help.\n"
	"\n"
	"  -j, --json  for programs\n"
	"  -h, --help  show this help\n";

static void print_cache(struct json_object *gpu, struct json_object *cache)
{
	uint64_t pages = process_number(cache, "pages");
	uint64_t met = process_number(cache, "grows");
	uint64_t grown = met + process_number(cache, "extends");
	uint64_t limit = process_number(cache, "limit_bytes");

	printf("%3" PRIu64 "  %5" PRIu64 "/%-5" PRIu64 " %8" PRIu64 " %10" PRIu64
	       " %10s %10s %10s %10s %9" PRIu64 " %5.1f %% %5.1f %% %8" PRIu64
	       " %8" PRIu64 " %5" PRIu64 "\n",
		process_number(gpu, "gpu"), process_number(cache, "sequences"),
		process_number(cache, "slots"), process_number(cache, "prefixes"),
		process_number(cache, "tokens"),
		figure_bytes(process_number(cache, "needed_bytes")).text,
		figure_bytes(process_number(cache, "held_bytes")).text,
		figure_bytes(process_number(cache, "shared_bytes")).text,
		limit ? figure_bytes(limit).text : "none", pages,
		pages ? 100.0 * (double)process_number(cache, "pages_ahead") /
				(double)pages
		      : 0.0,
		grown ? 100.0 * (double)met / (double)grown : 0.0,
		process_number(cache, "refused"), process_number(cache, "waits"),
		process_number(cache, "away") + process_number(cache, "prefixes_away"));
}

static void print_table(struct json_object *gpus)
{
	size_t count = json_object_array_length(gpus), caches_shown = 0;

	printf("%3s  %11s %8s %10s %10s %10s %10s %10s %9s %7s %7s %8s %8s %5s\n", "GPU",
		"SEQUENCES", "PREFIXES", "TOKENS", "NEEDED", "HELD", "SHARED", "LIMIT",
		"PAGES", "AHEAD", "MET", "REFUSED", "WAITS", "AWAY");
	for (size_t i = 0; i < count; i++) {
		struct json_object *gpu = json_object_array_get_idx(gpus, i);
		struct json_object *caches = process_array(gpu, "caches");
		size_t n = caches ? json_object_array_length(caches) : 0;

		for (size_t c = 0; c < n; c++)
			print_cache(gpu, json_object_array_get_idx(caches, c));
		caches_shown += n;
	}
	if (!caches_shown)
		glk_tool_say("the process has no KV cache");
}

static int show(const char *name, bool json)
{
	struct json_object *result = process_result(name, "kv", NULL);
	int status = GLK_TOOL_OK;

	if (!result)
		return GLK_TOOL_FAILED;
	if (json_object_get_type(result) != json_type_array) {
		glk_tool_say("what the process answers are no KV caches");
		status = GLK_TOOL_FAILED;
	} else if (json) {
		process_print(result);
	} else {
		print_table(result);
	}
	json_object_put(result);
	return fflush(stdout) ? GLK_TOOL_FAILED : status;
}

int glk_tool_kv(int argc, char **argv)
{
	bool json;
	int status;

	if (argc > 1 && !strcmp(argv[1], "simulate")) {
		argv[1] = argv[0];
		return sim_command(argc - 1, argv + 1);
	}
	if (!glk_tool_only_json(argc, argv, help, &json, &status))
		return status;
	if (argc - optind > 1)
		return glk_tool_usage("kv", "one process at a time");
	return show(argv[optind], json);
}
