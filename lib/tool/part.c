/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * From glakectl to the program or the module that has a command, and what that program does first.
 * One of another build would do well with other libraries; it is looked for from where this one
 * lies, and nowhere else, save that Python may have the package in a place of its own.
 */
#include "tool/tool.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WORDS_MAX 4096	     /* to a module of Python */
#define HERE	  "GLAKECTL" /* the variable that names glakectl, for its parts and modules */

/* The folder that glakectl lies in. */
static void find_here(char *folder)
{
	const char *path = getenv(HERE);
	char *end;

	snprintf(folder, PATH_MAX, "%s", path ? path : "");
	end = strrchr(folder, '/');
	if (end)
		*end = '\0';
}

/* The path of a file in a folder, which is from where glakectl lies, or a whole one. False: it is too long. */
static bool find_path(const char *folder, const char *name, char path[PATH_MAX])
{
	char here[PATH_MAX] = "";
	int length;

	if (folder[0] != '/')
		find_here(here);
	length = snprintf(
		path, PATH_MAX, "%s%s%s/%s", here, *here ? "/" : "", folder, name);
	return length > 0 && length < PATH_MAX;
}

int glk_tool_here(void)
{
	char path[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);

	path[length < 0 ? 0 : length] = '\0';
	if (length < 0 || setenv(HERE, path, 1)) {
		glk_tool_say(
			"/proc does not say where glakectl lies: %s", strerror(errno));
		return GLK_TOOL_FAILED;
	}
	return GLK_TOOL_OK;
}

int glk_tool_become(const char *part, char **argv)
{
	static const char *const places[] = {".", GLK_TOOL_PARTS};
	char here[PATH_MAX], name[64], path[PATH_MAX];

	snprintf(name, sizeof(name), "glakectl-%s", part);
	errno = ENOENT;
	for (size_t i = 0; i < 2 && errno == ENOENT; i++) {
		errno = ENAMETOOLONG;
		if (find_path(places[i], name, path))
			execv(path, argv);
	}
	find_here(here);
	if (errno == ENOENT)
		glk_tool_say(
			"%s: there is no %s, which has this command, in %s nor in %s from "
			"there: build or install all of glake",
			argv[0], name, here, GLK_TOOL_PARTS);
	else
		glk_tool_say("%s: %s cannot be run: %s", argv[0], name, strerror(errno));
	return GLK_TOOL_FAILED;
}

bool glk_tool_find_library(const char *name, char path[PATH_MAX])
{
	/* of a build folder, where it is installed, of t/gpu/bundle and a wheel */
	static const char *const places[] = {"../front", GLK_TOOL_LIBS, "../lib"};

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		char *real =
			find_path(places[i], name, path) ? realpath(path, NULL) : NULL;

		if (real) {
			snprintf(path, PATH_MAX, "%s", real);
			free(real);
			return true;
		}
	}
	return false;
}

/* The first of these places that has the package; "": Python has to know one. */
static void find_package(char *ret_folder)
{
	/* of a build folder, where it is installed, of a wheel, of t/gpu/bundle */
	static const char *const places[] = {"../python", GLK_TOOL_PYTHON, "../..", "."};
	char module[PATH_MAX];

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		if (places[i][0] && find_path(places[i], "glake/tool.py", module) &&
			!access(module, R_OK)) {
			snprintf(ret_folder, PATH_MAX, "%.*s",
				(int)(strlen(module) - strlen("/glake/tool.py")), module);
			return;
		}
	ret_folder[0] = '\0';
}

/* Not as python3 -m, and nothing is imported before that folder is left out: one would take any module from the folder
 * one is in. */
static const char start[] =
	"import sys\n"
	"folder, name, module = sys.argv[1:4]\n"
	"if sys.version_info < (3, 9):\n"
	"    sys.exit('glakectl: ' + name + ': ' + sys.executable + ' is Python ' + sys.version.split()[0] + ', and 3.9 is needed')\n"
	"sys.argv[:4] = ['glakectl', name]\n"
	"sys.path = [place for place in [folder] + sys.path if place]\n"
	"import importlib.util, runpy\n"
	"if not (importlib.util.find_spec('glake') and importlib.util.find_spec(module)):\n"
	"    sys.exit('glakectl: ' + name + ': Python has no module ' + module + ': install "
	"all of glake, or its package python3-glake')\n"
	"runpy.run_module(module, run_name='__main__', alter_sys=True)\n";

#define WORDS 6 /* before those of the command */

/* The words that start a module, up to those of the command. */
static void first_words(
	const char *name, const char *module, char *folder, const char **words)
{
	find_package(folder);
	words[0] = "python3";
	words[1] = "-c";
	words[2] = start;
	words[3] = folder;
	words[4] = name;
	words[5] = module;
}

int glk_tool_become_python(const char *module, char **argv)
{
	const char *words[WORDS_MAX], *name = argv[0];
	char folder[PATH_MAX];
	size_t count = WORDS;
	sigset_t held;

	first_words(name, module, folder, words);
	for (argv++; *argv; argv++) {
		if (count + 1 == WORDS_MAX)
			return glk_tool_usage(name, "more than %d arguments", WORDS_MAX);
		words[count++] = *argv;
	}
	words[count] = NULL;
	/* until tool.main() is ready for it: Python would tell of its own insides */
	sigemptyset(&held);
	sigaddset(&held, SIGINT);
	sigprocmask(SIG_BLOCK, &held, NULL);
	execvp(words[0], (char **)words);
	glk_tool_say(
		"%s: it needs Python: python3 cannot be run: %s", name, strerror(errno));
	return GLK_TOOL_FAILED;
}

int glk_tool_run_python(
	const char *module, const char *word, int in, pid_t *ret_pid, int *ret_out)
{
	const char *words[WORDS + 2];
	posix_spawn_file_actions_t actions;
	char folder[PATH_MAX];
	int out[2], err;

	first_words(module, module, folder, words);
	words[WORDS] = word;
	words[WORDS + 1] = NULL;
	if (pipe2(out, O_CLOEXEC))
		return -errno;
	err = posix_spawn_file_actions_init(&actions);
	if (!err) {
		err = posix_spawn_file_actions_adddup2(&actions, in, 0);
		err = err ? err : posix_spawn_file_actions_adddup2(&actions, out[1], 1);
		err = err ? err
			  : posix_spawnp(ret_pid, words[0], &actions, NULL,
				    (char **)words, environ);
		posix_spawn_file_actions_destroy(&actions);
	}
	close(out[1]);
	if (err)
		close(out[0]);
	else
		*ret_out = out[0];
	return -err;
}

int glk_tool_part(
	const char *name, int (*run)(int argc, char **argv), int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN);
	if (argc && !strcmp(argv[0], name))
		return glk_tool_finish(run(argc, argv));
	glk_tool_say("this program is a part of glakectl, which starts it");
	return GLK_TOOL_USAGE;
}
