/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * From glakectl to the program or the module that has a command, and what that program does first.
 * One of another build would do well with other libraries; it is looked for from where this one
 * lies, and nowhere else, save that Python may have the package in a place of its own.
 */
#include "tool/tool.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GLK_TOOL_WORDS_MAX 4096 /* to a module of Python */

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

/* Where this program lies, and its folder. 0, or -errno after a message. */
static int find_here(const char *command, char *path, char *folder)
{
	ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - 1);
	char *end;

	if (length < 0) {
		int err = -errno;

		glk_tool_say("%s: /proc does not say where glakectl lies: %s", command,
			strerror(-err));
		return err;
	}
	path[length] = '\0';
	strcpy(folder, path);
	end = strrchr(folder, '/');
	if (end)
		*end = '\0';
	return 0;
}

int glk_tool_become(const char *part, char **argv)
{
	char path[PATH_MAX], here[PATH_MAX];

	if (find_here(argv[0], path, here))
		return GLK_TOOL_FAILED;
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

/* The first of these places that has the package; "": Python has to know one. */
static void find_package(const char *here, char *ret_folder)
{
	/* of a build folder, where it is installed, of a wheel */
	static const char *const places[] = {"../python", GLK_TOOL_PYTHON, "../.."};
	char module[PATH_MAX];

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		bool whole = places[i][0] == '/';
		int length = snprintf(ret_folder, PATH_MAX, "%s%s%s", whole ? "" : here,
			whole ? "" : "/", places[i]);

		if (!places[i][0] || length < 0 || length >= PATH_MAX)
			continue;
		length = snprintf(module, sizeof(module), "%s/glake/tool.py", ret_folder);
		if (length > 0 && (size_t)length < sizeof(module) &&
			!access(module, R_OK))
			return;
	}
	ret_folder[0] = '\0';
}

/* Not as python3 -m, which would take a package of this name from the folder one is in. */
static const char start[] =
	"import importlib.util, runpy, sys\n"
	"folder, name = sys.argv[1:3]\n"
	"sys.argv[:3] = ['glakectl']\n"
	"sys.path[:1] = [folder] if folder else []\n"
	"module = 'glake.' + name\n"
	"if not (importlib.util.find_spec('glake') and importlib.util.find_spec(module)):\n"
	"    sys.exit('glakectl: ' + name + ': Python has no module ' + module + ': install "
	"all of glake, or its package python3-glake')\n"
	"runpy.run_module(module, run_name='__main__', alter_sys=True)\n";

int glk_tool_become_python(char **argv)
{
	char path[PATH_MAX], here[PATH_MAX], folder[PATH_MAX];
	const char *words[GLK_TOOL_WORDS_MAX] = {"python3", "-c", start, folder, argv[0]};
	size_t count = 5;

	if (find_here(argv[0], path, here))
		return GLK_TOOL_FAILED;
	find_package(here, folder);
	for (argv++; *argv; argv++) {
		if (count + 1 == GLK_TOOL_WORDS_MAX)
			return glk_tool_usage(
				words[4], "more than %d arguments", GLK_TOOL_WORDS_MAX);
		words[count++] = *argv;
	}
	words[count] = NULL;
	if (!setenv("GLAKECTL", path, 1))
		execvp("python3", (char **)words);
	glk_tool_say("%s: it needs Python: python3 cannot be run: %s", words[4],
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
