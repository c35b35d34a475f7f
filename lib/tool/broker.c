/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* glakectl broker: what a broker gives of each GPU, and to whom. */
#include "share/broker.h"

#include "tool/figure.h"
#include "tool/process.h"
#include "tool/tool.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define COMMAND	  "broker"
#define ANSWER_MS 2000

static const char help[] =
	"usage: glakectl broker [--json] [--socket PATH]\n"
	"\n"
	"Shows what glaked gives of each GPU: how much is left, and of that guaranteed; what\n"
	"each process holds, is guaranteed, may have, was asked to give and waits for. HEARS\n"
	"says who answers there: a thread, or calls that want more; or that the process has no\n"
	"connection any more and has not ended.\n"
	"\n"
	"  -s, --socket PATH  instead of that of the broker of this user\n"
	"  -j, --json         for programs\n"
	"  -h, --help         show this help\n";

static const struct option long_options[] = {
	{"json", no_argument, NULL, 'j'},
	{"socket", required_argument, NULL, 's'},
	{"help", no_argument, NULL, 'h'},
	{0},
};

static void print_client(struct json_object *client)
{
	uint64_t most = process_number(client, "most");
	char name[32], hears[16];

	process_word(client, "name", name, sizeof(name));
	process_word(client, "hears", hears, sizeof(hears));
	printf("  %8" PRIu64 "  %-16s %-6s %10s %10s %10s %10s %10s\n",
		process_number(client, "pid"), name, hears,
		figure_bytes(process_number(client, "held")).text,
		figure_bytes(process_number(client, "least")).text,
		figure_bytes(most).text,
		figure_bytes(process_number(client, "asked")).text,
		figure_bytes(process_number(client, "wanted")).text);
}

static void print_gpu(struct json_object *gpu)
{
	struct json_object *clients = process_array(gpu, "clients");
	size_t count = clients ? json_object_array_length(clients) : 0;
	char name[64];

	process_word(gpu, "gpu", name, sizeof(name));
	printf("%s: %s, %s left, %s of it guaranteed; asks %" PRIu64
	       ", not answered %" PRIu64 ", refusals %" PRIu64 "\n",
		name, figure_bytes(process_number(gpu, "total")).text,
		figure_bytes(process_number(gpu, "free")).text,
		figure_bytes(process_number(gpu, "guaranteed")).text,
		process_number(gpu, "asks"), process_number(gpu, "stalls"),
		process_number(gpu, "refusals"));
	if (count)
		printf("  %8s  %-16s %-6s %10s %10s %10s %10s %10s\n", "PID", "PROGRAM",
			"HEARS", "HELD", "LEAST", "MOST", "ASKED", "WANTS");
	for (size_t i = 0; i < count; i++)
		print_client(json_object_array_get_idx(clients, i));
}

/* 0 and what the broker says, or a status after a message. */
static int ask(const char *path, struct json_object **ret_all)
{
	struct glk_wire_frame frame;
	struct glk_wire_peer peer;
	char why[GLK_WIRE_WHY_MAX];
	int fd, err;

	err = glk_wire_dial(path, ANSWER_MS, &fd, &peer, why);
	if (err) {
		glk_tool_say("%s: %s", path,
			err == -ESRCH ? "there is no broker (glaked)" : why);
		return GLK_TOOL_FAILED;
	}
	err = glk_wire_send(fd, GLK_BROKER_LIST, NULL, 0, NULL, 0, ANSWER_MS);
	if (!err)
		err = glk_wire_receive(fd, &frame, ANSWER_MS);
	close(fd);
	if (err || frame.kind != GLK_BROKER_TEXT || frame.count != 1) {
		glk_tool_say("%s: the broker %s", path,
			err == -EAGAIN ? "does not answer" : "is of another version");
		if (!err)
			glk_wire_frame_close(&frame);
		return GLK_TOOL_FAILED;
	}
	lseek(frame.fd[0], 0, SEEK_SET);
	*ret_all = json_object_from_fd(frame.fd[0]);
	glk_wire_frame_close(&frame);
	if (!*ret_all)
		glk_tool_say("%s: what the broker says is no JSON", path);
	return *ret_all ? GLK_TOOL_OK : GLK_TOOL_FAILED;
}

int glk_tool_broker(int argc, char **argv)
{
	char path[PATH_MAX + sizeof(GLK_BROKER_SOCKET)];
	const char *given = NULL;
	struct json_object *all, *gpus;
	bool json = false;
	int c, status;

	while ((c = glk_tool_option(argc, argv, long_options)) != -1) {
		switch (c) {
		case 'j':
			json = true;
			break;
		case 's':
			given = optarg;
			break;
		case 'h':
			fputs(help, stdout);
			return GLK_TOOL_OK;
		default:
			return GLK_TOOL_USAGE;
		}
	}
	if (argc > optind)
		return glk_tool_usage(COMMAND, "there is no argument '%s'", argv[optind]);
	glk_wire_room_path(path, PATH_MAX);
	strcat(path, "/" GLK_BROKER_SOCKET);
	status = ask(given ? given : path, &all);
	if (status)
		return status;
	gpus = process_array(all, "gpus");
	if (json)
		process_print(all);
	else if (!gpus || !json_object_array_length(gpus))
		glk_tool_say("no process has come to the broker yet");
	for (size_t i = 0; !json && gpus && i < json_object_array_length(gpus); i++)
		print_gpu(json_object_array_get_idx(gpus, i));
	json_object_put(all);
	return GLK_TOOL_OK;
}
