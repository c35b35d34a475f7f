/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * glakectl run: a program whose GPU memory comes from glake. It becomes the program, so that signals,
 * the terminal and the status are the program's own; what it asked for the preload tells at its end.
 */
#include "tool/tool.h"

#include <glake/conf.h>
#include <glake/context.h>

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PRELOAD "libglake-preload.so"
#define LEVEL	"log.level="

/* As env(1) and nohup(1) have them. */
#define CANNOT_BE_RUN 126
#define NOT_FOUND     127

static const struct option long_options[] = {
	{"conf", required_argument, NULL, 'c'},
	{"trace", required_argument, NULL, 't'},
	{"quiet", no_argument, NULL, 'q'},
	{"help", no_argument, NULL, 'h'},
	{0},
};

static const char help[] =
	"usage: glakectl run [OPTION]... PROGRAM [ARGUMENT]...\n\n"
	"Becomes a program whose GPU memory comes from glake, as glake-preload(7) has it, and\n"
	"that says at its end how much that was.\n\n"
	"  -c, --conf KEY=VALUE   set a key of glake.conf(5); repeatable\n"
	"  -t, --trace OUT        record all its requests in a file, as trace.file does\n"
	"  -q, --quiet            not a word of glake but errors and warnings\n"
	"  -h, --help             this text\n\n"
	"Exit status: that of the program; 127 if it is not found, 126 if it cannot be run.\n";

static void say_finding(const struct glake_conf_finding *finding, void *arg)
{
	(void)arg;
	if (finding->error)
		glk_tool_say("run: %s%s%s", finding->key, *finding->key ? ": " : "",
			finding->text);
}

/* "pool.budget=8GiB" as GLAKE_POOL_BUDGET. The program's own processes have it too. */
static int put(const char *setting)
{
	const char *value = strchr(setting, '=');
	char name[128] = "GLAKE_";
	size_t at = strlen(name);

	for (; setting < value && at + 1 < sizeof(name); setting++)
		name[at++] =
			*setting == '.' ? '_' : (char)toupper((unsigned char)*setting);
	name[at] = '\0';
	return setenv(name, value + 1, 1);
}

/* What was given is right, with the configuration that holds. */
static int check(const struct glk_tool_context *wanted)
{
	struct glake_options options = {
		.sz = sizeof(options), .settings = wanted->settings};
	int err = glake_conf_check(&options, say_finding, NULL);

	return err ? GLK_TOOL_USAGE : GLK_TOOL_OK;
}

static bool says_level(const struct glk_tool_context *wanted)
{
	for (size_t i = 0; i < wanted->count; i++)
		if (!strncmp(wanted->settings[i], LEVEL, strlen(LEVEL)))
			return true;
	return getenv("GLAKE_LOG_LEVEL") != NULL;
}

/* Beside what is preloaded already, and before it. */
static int preload(const char *path)
{
	const char *before = getenv("LD_PRELOAD");
	char all[2 * PATH_MAX];
	int length = snprintf(all, sizeof(all), "%s%s%s", path,
		before && *before ? ":" : "", before ? before : "");

	if (strpbrk(path, ": ")) { /* which the dynamic linker takes for two */
		glk_tool_say("run: %s: LD_PRELOAD takes no path with a space or a colon",
			path);
		return GLK_TOOL_FAILED;
	}
	if (length < 0 || (size_t)length >= sizeof(all)) {
		glk_tool_say("run: LD_PRELOAD is too long");
		return GLK_TOOL_FAILED;
	}
	return setenv("LD_PRELOAD", all, 1) ? GLK_TOOL_FAILED : GLK_TOOL_OK;
}

static int become(const struct glk_tool_context *wanted, char **program)
{
	char path[PATH_MAX];
	int status;

	if (!glk_tool_find_library(PRELOAD, path)) {
		glk_tool_say("run: there is no " PRELOAD " where glakectl lies: build or "
			     "install all of glake");
		return GLK_TOOL_FAILED;
	}
	status = preload(path);
	for (size_t i = 0; !status && i < wanted->count; i++)
		status = put(wanted->settings[i]) ? GLK_TOOL_FAILED : GLK_TOOL_OK;
	if (!status && !wanted->quiet && !says_level(wanted))
		status = put(LEVEL "info") ? GLK_TOOL_FAILED : GLK_TOOL_OK;
	if (status)
		return status;
	unsetenv("GLAKECTL"); /* which is for its own parts */
	signal(SIGPIPE, SIG_DFL);
	execvp(program[0], program);
	status = errno == ENOENT ? NOT_FOUND : CANNOT_BE_RUN;
	glk_tool_say("run: %s: %s", program[0], strerror(errno));
	return status;
}

int glk_tool_run(int argc, char **argv)
{
	struct glk_tool_context wanted = {.count = 0};
	char trace[PATH_MAX + 16];
	int c, status = 0;

	while (!status && (c = glk_tool_option_before(argc, argv, long_options)) != -1) {
		switch (c) {
		case 't':
			snprintf(trace, sizeof(trace), "trace.file=%s", optarg);
			status = glk_tool_add_setting(&wanted, argv[0], trace);
			break;
		case 'h':
			fputs(help, stdout);
			return GLK_TOOL_OK;
		default:
			status = glk_tool_take_option(&wanted, argv[0], c);
		}
	}
	if (!status && optind == argc)
		status = glk_tool_usage(argv[0], "a program is missing");
	if (!status)
		status = check(&wanted);
	return status ? status : become(&wanted, argv + optind);
}
