/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * From glakectl to the program that has a command, and what that one does first. A program of
 * another build would do well with other libraries; it is looked for from where this one lies, and
 * nowhere else.
 */
#include "tool/tool.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Becomes the program, if it lies there. `folder`: from where this one lies, or a whole path. */
static void try_folder(
	const char *here, const char *folder, const char *part, char **argv)
{
	bool whole = folder[0] == '/';
	char path[PATH_MAX];
	int length = snprintf(path, sizeof(path), "%s%s%s/glakectl-%s", whole ? "" : here,
		whole ? "" : "/", folder, part);

	errno = ENAMETOOLONG;
	if (length > 0 && (size_t)length < sizeof(path))
		execv(path, argv);
}

int glk_tool_become(const char *part, char **argv)
{
	char here[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", here, sizeof(here) - 1);
	char *end;

	if (length < 0) {
		glk_tool_say("%s: /proc does not say where glakectl lies: %s", argv[0],
			strerror(errno));
		return GLK_TOOL_FAILED;
	}
	here[length] = '\0';
	end = strrchr(here, '/');
	if (end)
		*end = '\0';
	try_folder(here, ".", part, argv);
	if (errno == ENOENT)
		try_folder(here, GLK_TOOL_PARTS, part, argv);
	if (errno == ENOENT)
		glk_tool_say(
			"%s: there is no glakectl-%s, which has this command, in %s nor "
			"in %s from there: build or install all of glake",
			argv[0], part, here, GLK_TOOL_PARTS);
	else
		glk_tool_say("%s: glakectl-%s cannot be run: %s", argv[0], part,
			strerror(errno));
	return GLK_TOOL_FAILED;
}

int glk_tool_part(const struct glk_tool_command *commands, int argc, char **argv)
{
	/* A reader that goes away is a failed write like any other, noticed at the end. */
	signal(SIGPIPE, SIG_IGN);
	for (; commands->name; commands++)
		if (argc && !strcmp(argv[0], commands->name))
			return glk_tool_finish(commands->run(argc, argv));
	glk_tool_say("this program is a part of glakectl, which starts it");
	return GLK_TOOL_USAGE;
}
