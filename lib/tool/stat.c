/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * glakectl stat: the figures of a running process, once or again and again. It asks at the socket
 * of the process, which answers from its tables and stops for nothing.
 */
#include "tool/stat.h"

#include "tool/process.h"
#include "tool/tool.h"
#include "wire/wire.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define COMMAND "stat"

static const char help[] =
	"usage: glakectl stat [OPTION]... [PID|PROGRAM]\n"
	"\n"
	"Shows the figures of a process that runs with glake and rpc.socket=yes; see glakectl ps.\n"
	"It may be left out where there is but one.\n"
	"\n"
	"  -a, --all               also figures that are 0\n"
	"  -i, --interval SECONDS  again and again, until the process ends\n"
	"  -n, --count N           so many times at most, with -i\n"
	"  -t, --times             also how long requests, waits and calls took\n"
	"  -j, --json              for programs, a line each time with -i\n"
	"  -p, --prometheus        the text that Prometheus scrapes\n"
	"  -o, --oom               why each GPU refused memory last, and what would have helped\n"
	"  -h, --help              show this help\n";

static const struct option long_options[] = {
	{"all", no_argument, NULL, 'a'},
	{"interval", required_argument, NULL, 'i'},
	{"count", required_argument, NULL, 'n'},
	{"times", no_argument, NULL, 't'},
	{"json", no_argument, NULL, 'j'},
	{"prometheus", no_argument, NULL, 'p'},
	{"oom", no_argument, NULL, 'o'},
	{"help", no_argument, NULL, 'h'},
	{0},
};

struct wanted {
	bool json, prometheus, oom, times, all;
	int64_t interval; /* ns; 0: once */
	unsigned count;	  /* 0: no end */
	const char *name;
};

static int print(const struct wanted *wanted, struct json_object *result)
{
	int flags = JSON_C_TO_STRING_NOSLASHESCAPE;

	if (json_object_get_type(result) !=
		(wanted->prometheus ? json_type_string : json_type_object)) {
		glk_tool_say("what the process answers are no figures");
		return GLK_TOOL_FAILED;
	}
	if (wanted->prometheus) {
		fputs(json_object_get_string(result), stdout);
	} else if (wanted->json) {
		if (!wanted->interval)
			flags |= JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED;
		puts(json_object_to_json_string_ext(result, flags));
	} else {
		stat_print_table(result, wanted->times, wanted->all);
	}
	return fflush(stdout) ? GLK_TOOL_FAILED : GLK_TOOL_OK;
}

static void wait_for(int64_t ns)
{
	struct timespec left = {ns / 1000000000, ns % 1000000000};

	while (nanosleep(&left, &left) && errno == EINTR)
		;
}

static int watch(const struct wanted *wanted, int room, pid_t pid)
{
	char why[GLK_WIRE_WHY_MAX];
	struct json_object *result;
	int err, status = GLK_TOOL_OK;

	for (unsigned i = 0; !status; i++) {
		if (i)
			wait_for(wanted->interval);
		err = process_ask(room, pid, wanted->prometheus ? "metrics" : "stats",
			NULL, &result, why);
		if (err && i && (err == -ESRCH || err == -EPIPE)) {
			glk_tool_say("process %d has ended, or closed its socket", pid);
			return GLK_TOOL_OK;
		}
		if (err) {
			process_say_failed(pid, err, why);
			return GLK_TOOL_FAILED;
		}
		if (i && !wanted->json && !wanted->prometheus)
			puts("");
		status = print(wanted, result);
		json_object_put(result);
		if (!wanted->interval || i + 1 == wanted->count)
			break;
	}
	return status;
}

/* A text of the process, of which the lines are kept and nothing else of what a terminal knows. */
static void print_text(const char *text)
{
	for (; *text; text++)
		putchar(*text == '\n' || (*text >= ' ' && *text <= '~') ? *text : '?');
}

static int show_refusals(const struct wanted *wanted, int room, pid_t pid)
{
	char why[GLK_WIRE_WHY_MAX];
	struct json_object *list;
	int err = process_ask(room, pid, "refusals", NULL, &list, why);
	size_t count;

	if (err) {
		process_say_failed(pid, err, why);
		return GLK_TOOL_FAILED;
	}
	if (json_object_get_type(list) != json_type_array) {
		glk_tool_say("what the process answers are no refusals");
		json_object_put(list);
		return GLK_TOOL_FAILED;
	}
	count = json_object_array_length(list);
	if (wanted->json)
		puts(json_object_to_json_string_ext(list,
			JSON_C_TO_STRING_NOSLASHESCAPE | JSON_C_TO_STRING_PRETTY |
				JSON_C_TO_STRING_SPACED));
	else if (!count)
		puts("No request was refused for want of memory.");
	for (size_t i = 0; i < count && !wanted->json; i++) {
		struct json_object *one = json_object_array_get_idx(list, i);

		printf("%sContext %u: ", i ? "\n" : "",
			(unsigned)process_number(one, "context"));
		print_text(process_text(one, "text"));
	}
	json_object_put(list);
	return GLK_TOOL_OK;
}

static int run(const struct wanted *wanted)
{
	int room, status;
	pid_t pid = process_find(wanted->name, &room);

	if (!pid)
		return GLK_TOOL_FAILED;
	status =
		wanted->oom ? show_refusals(wanted, room, pid) : watch(wanted, room, pid);
	close(room);
	return status;
}

static int take(struct wanted *wanted, int c)
{
	switch (c) {
	case 'i':
		return glk_tool_read_interval(COMMAND, optarg, &wanted->interval);
	case 'n':
		return glk_tool_read_count(
			COMMAND, "--count", optarg, INT32_MAX, &wanted->count);
	case 't':
		wanted->times = true;
		return 0;
	case 'a':
		wanted->all = true;
		return 0;
	case 'j':
		wanted->json = true;
		return 0;
	case 'p':
		wanted->prometheus = true;
		return 0;
	case 'o':
		wanted->oom = true;
		return 0;
	default:
		return GLK_TOOL_USAGE;
	}
}

int glk_tool_stat(int argc, char **argv)
{
	struct wanted wanted = {0};
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
	if (wanted.json && wanted.prometheus)
		return glk_tool_usage(COMMAND, "--json or --prometheus, not both");
	if (wanted.oom && (wanted.prometheus || wanted.interval || wanted.times))
		return glk_tool_usage(COMMAND, "--oom stands alone, or with --json");
	if (wanted.times && (wanted.json || wanted.prometheus))
		return glk_tool_usage(COMMAND,
			"--times is for the table; %s has them anyway",
			wanted.json ? "--json" : "--prometheus");
	if (wanted.count && !wanted.interval)
		return glk_tool_usage(COMMAND, "--count needs --interval");
	if (optind + 1 < argc)
		return glk_tool_usage(COMMAND, "one process is expected, not also '%s'",
			argv[optind + 1]);
	wanted.name = argv[optind];
	return run(&wanted);
}
