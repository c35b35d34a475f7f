/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * glakectl: what a person meets first. This file knows the commands by one table and hands
 * over to them, or to the program that has them; each answers 0 done, 1 failed, 2 used wrongly,
 * which is the exit status.
 */
#include "tool/feature.h"
#include "tool/tool.h"

#include <glake/context.h>

#include <signal.h>
#include <stdio.h>
#include <string.h>

static const struct command {
	const char *name;
	int (*run)(int argc, char **argv); /* NULL: another program has it */
	const char *part; /* its name, or a module of the package for Python */
	const char *help;
} commands[] = {
	{"info", glk_tool_info, "",
		"show version, driver, GPUs, NUMA nodes, configuration"},
	{"run", glk_tool_run, "", "run a program whose GPU memory comes from glake"},
	{"doctor", NULL, "doctor", "say whether this machine is fit for glake"},
	{"replay", glk_tool_replay, "", "replay allocation traces through the library"},
	{"trace", NULL, "trace", "show, convert and cut allocation traces"},
	{"report", NULL, "glake.report", "make a page of a trace, for a browser"},
	{"try", NULL, "glake.trial",
		"show what a job would hold under PyTorch's allocators and glake"},
	{"draw", NULL, "glake.draw", "draw what another command reported as JSON"},
	{"bench", NULL, "bench", "measure the hot path and stitching"},
	{"ps", NULL, "glake.tables", "list processes that can be watched"},
	{"stat", NULL, "glake.tables", "show the figures of a running process"},
	{"kv", NULL, "glake.asks", "show the KV caches of a running process"},
	{"broker", NULL, "glake.asks",
		"show what a broker gives of each GPU, and to whom"},
	{"whose", NULL, "glake.asks", "say what an address of a running process is"},
	{"check", NULL, "glake.asks", "have it look at the blocks that it guards"},
	{"dedup", NULL, "glake.asks",
		"show what exists once, and what is there more than once"},
	{"map", NULL, "glake.space", "show the address space of a running process"},
	{"snapshot", NULL, "glake.snapshots", "write it as a snapshot of PyTorch"},
	{"top", NULL, "glake.top", "watch all of them, in a window"},
	{"export", NULL, "glake.export",
		"serve the figures of all of them to Prometheus"},
	{"conf", glk_tool_conf, "", "check the configuration, show the values that hold"},
	{"engine", NULL, "engine", NULL}, /* for a module: see lib/kv/engine_main.c */
};

#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

static void print_help(void)
{
	puts("usage: glakectl [--version] [--help] COMMAND [OPTION]... [ARGUMENT]...\n\n"
	     "Commands:");
	for (size_t i = 0; i < COMMANDS && commands[i].help; i++)
		printf("  %-8s  %s\n", commands[i].name, commands[i].help);
	puts("\n'glakectl help COMMAND' lists the options of a command; see glakectl(1).\n"
	     "Exit status: 0 done, 1 failed, 2 wrong usage.");
}

static int run(int argc, char **argv)
{
	static char help_word[] = "--help";
	const char *name = argc > 1 ? argv[1] : NULL, *best = NULL;

	if (!name)
		return glk_tool_usage("", "a command is missing");
	if (!strcmp(name, "help") && argc > 2) {
		/* help COMMAND is COMMAND --help */
		argv[1] = argv[2];
		argv[2] = help_word;
		argv[3] = NULL;
		return run(3, argv);
	}
	if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
		print_help();
		return GLK_TOOL_OK;
	}
	if (!strcmp(name, "--version") || !strcmp(name, "-V") ||
		!strcmp(name, "version")) {
		printf("glakectl %s\n", glake_version_string());
		return glk_feature_print();
	}
	for (size_t i = 0; i < COMMANDS; i++) {
		const struct command *command = &commands[i];

		if (strcmp(name, command->name))
			continue;
		if (command->run)
			return command->run(argc - 1, argv + 1);
		return strchr(command->part, '.')
			? glk_tool_become_python(command->part, argv + 1)
			: glk_tool_become(command->part, argv + 1);
	}
	if (name[0] == '-')
		return glk_tool_usage("", "unknown option '%s'", name);
	for (size_t i = 0; i < COMMANDS && commands[i].help; i++)
		best = glk_tool_nearest(name, commands[i].name, best);
	if (best)
		return glk_tool_usage("", "unknown command '%s', is it %s", name, best);
	return glk_tool_usage("", "unknown command '%s'", name);
}

int main(int argc, char **argv)
{
	/* A reader that goes away is a failed write like any other, noticed at the end. */
	signal(SIGPIPE, SIG_IGN);
	return glk_tool_here() ? GLK_TOOL_FAILED : glk_tool_finish(run(argc, argv));
}
