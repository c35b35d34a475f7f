/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* glakectl ps: the processes with glake that this user may talk to, a line each. */
#include "base/json.h"
#include "tool/figure.h"
#include "tool/process.h"
#include "tool/tool.h"
#include "wire/wire.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define COMMAND "ps"

static const char help[] =
	"usage: glakectl ps [--json]\n"
	"\n"
	"Lists the processes of this user that run with glake and have rpc.socket=yes, as the\n"
	"file, the environment (GLAKE_RPC_SOCKET=yes) or the program says: their numbers, their\n"
	"GPUs, the bytes of live blocks and the memory held.\n"
	"\n"
	"  -j, --json  for programs\n"
	"  -h, --help  show this help\n";

/* GPUs of a process, over its contexts: a bit each, and what they hold. */
struct sum {
	uint64_t gpus, live, reserved;
};

static struct sum add_up(struct json_object *stats)
{
	struct json_object *contexts = process_array(stats, "contexts");
	size_t count = contexts ? json_object_array_length(contexts) : 0;
	struct sum sum = {0};

	for (size_t c = 0; c < count; c++) {
		struct json_object *gpus =
			process_array(json_object_array_get_idx(contexts, c), "gpus");
		size_t used = gpus ? json_object_array_length(gpus) : 0;

		for (size_t g = 0; g < used; g++) {
			struct json_object *gpu = json_object_array_get_idx(gpus, g);

			sum.gpus |= UINT64_C(1) << (process_number(gpu, "gpu") % 64);
			sum.live += process_number(gpu, "live_bytes");
			sum.reserved += process_number(gpu, "reserved_bytes");
		}
	}
	return sum;
}

static int print_json(const struct process *list, int count)
{
	struct glk_json json;
	struct sum sum;

	glk_json_init(&json, stdout, 2);
	glk_json_object(&json);
	glk_json_key(&json, "processes");
	glk_json_array(&json);
	for (int i = 0; i < count; i++) {
		sum = add_up(list[i].stats);
		glk_json_object(&json);
		glk_json_add_int(&json, "pid", list[i].pid);
		glk_json_add_text(&json, "program", list[i].program);
		glk_json_add_text(&json, "version", list[i].version);
		glk_json_key(&json, "gpus");
		glk_json_array(&json);
		for (int gpu = 0; gpu < 64; gpu++)
			if (sum.gpus >> gpu & 1)
				glk_json_int(&json, gpu);
		glk_json_end(&json);
		glk_json_add_uint(&json, "live_bytes", sum.live);
		glk_json_add_uint(&json, "reserved_bytes", sum.reserved);
		glk_json_end(&json);
	}
	glk_json_end(&json);
	glk_json_end(&json);
	return glk_json_fini(&json) ? GLK_TOOL_FAILED : GLK_TOOL_OK;
}

static void gpus_text(uint64_t gpus, char *buffer, size_t size)
{
	size_t at = 0;

	snprintf(buffer, size, "-");
	for (int gpu = 0; gpu < 64 && at + 4 < size; gpu++)
		if (gpus >> gpu & 1)
			at += (size_t)snprintf(
				buffer + at, size - at, "%s%d", at ? "," : "", gpu);
}

static void print_table(const struct process *list, int count)
{
	char gpus[256];
	struct sum sum;

	if (count)
		printf("%8s  %-16s %-8s %10s %10s  %s\n", "PID", "PROGRAM", "VERSION",
			"LIVE", "RESERVED", "GPUS");
	for (int i = 0; i < count; i++) {
		sum = add_up(list[i].stats);
		gpus_text(sum.gpus, gpus, sizeof(gpus));
		printf("%8d  %-16.64s %-8.32s %10s %10s  %s\n", list[i].pid,
			list[i].program, list[i].version, figure_bytes(sum.live).text,
			figure_bytes(sum.reserved).text, gpus);
	}
}

static int list_all(bool json)
{
	struct process *list = NULL;
	char path[512];
	int room, count = 0, status = GLK_TOOL_OK;
	int err = process_room(&room);

	if (err && err != -ENOENT)
		return GLK_TOOL_FAILED;
	if (!err) {
		count = process_list(room, &list);
		close(room);
	}
	if (count < 0)
		return GLK_TOOL_FAILED;
	glk_wire_room_path(path, sizeof(path));
	if (json)
		status = print_json(list, count);
	else
		print_table(list, count);
	if (!count)
		glk_tool_say(
			"no process has a socket in %s; rpc.socket=yes makes one", path);
	process_list_free(list, count);
	return status;
}

int glk_tool_ps(int argc, char **argv)
{
	bool json;
	int status;

	if (!glk_tool_only_json(argc, argv, help, &json, &status))
		return status;
	if (optind < argc)
		return glk_tool_usage(
			COMMAND, "no argument is expected, not '%s'", argv[optind]);
	return list_all(json);
}
