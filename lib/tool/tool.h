/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TOOL_TOOL_H
#define GLK_TOOL_TOOL_H

/*
 * What the commands of glakectl share: exit statuses, messages, opening a context, and the
 * end of a report. Reports go to stdout, everything else to stderr.
 */
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct glake;
struct glake_options;
struct option;

enum glk_tool_status {
	GLK_TOOL_OK = 0,
	GLK_TOOL_FAILED = 1,
	GLK_TOOL_USAGE = 2,
};

/* One a command, each in the file of its name. argv[0] is the name of the command. */
int glk_tool_bench(int argc, char **argv);
int glk_tool_conf(int argc, char **argv);
int glk_tool_doctor(int argc, char **argv);
int glk_tool_info(int argc, char **argv);
int glk_tool_replay(int argc, char **argv);
int glk_tool_run(int argc, char **argv);
int glk_tool_trace(int argc, char **argv);

/*
 * part.c: commands that are programs of their own, beside glakectl in a build folder and in the
 * folder for such where it is installed. glk_tool_become() becomes one, with the arguments from
 * the command's name on; 1 after a message if it is not there. What such a program does with
 * them is glk_tool_part().
 */
int glk_tool_become(const char *part, char **argv);
/* The same for a command that is a module of the package glake for Python. */
int glk_tool_become_python(const char *module, char **argv);
/* Starts a module with a word, `in` as its standard input; *ret_out, which is the caller's, reads its
 * standard output. 0 or -errno. */
int glk_tool_run_python(
	const char *module, const char *word, int in, pid_t *ret_pid, int *ret_out);
/* What glakectl does first: its parts and modules are told where it lies. 0, or 1 after a message. */
int glk_tool_here(void);
/* The path of a library that lies where glakectl's build or installation has it. */
bool glk_tool_find_library(const char *name, char path[PATH_MAX]);
int glk_tool_part(
	const char *name, int (*run)(int argc, char **argv), int argc, char **argv);

/* "glakectl: " and the text as one line on stderr. */
void glk_tool_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The same for a mistake in the command line, with a pointer to --help; returns 2. */
int glk_tool_usage(const char *command, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/*
 * getopt_long with messages of ours. Returns the option, -1 at their end, or '?' after a
 * message has been printed. `argv[0]` names the command.
 */
int glk_tool_option(int argc, char **argv, const struct option *options);
/* Likewise, of those before the first other word alone: what follows is somebody else's. */
int glk_tool_option_before(int argc, char **argv, const struct option *options);
/* Of a name and the best one so far, or NULL, what a misspelt word may have been meant to be. */
const char *glk_tool_nearest(const char *word, const char *name, const char *best);

/* The record of the last failed call, as "what: sentence (class)"; and its sentence alone. */
void glk_tool_say_error(const char *what, int err);
void glk_tool_keep_error(int err, char *text, size_t size);

/*
 * A line on stderr for what takes longer than a second, on a terminal only, gone at the end.
 * One at a time, from one thread.
 */
void progress_start(bool quiet, const char *what);
/* The next part of the same work: the second runs on. */
void progress_next(const char *what);
/* Cheap enough for every few thousand steps. total 0: not known. */
void progress_step(uint64_t done, uint64_t total);
void progress_end(void);

/* The options that commands share: what a context is opened with, and how to report. */
#define GLK_TOOL_SETTINGS_MAX 256

struct glk_tool_context {
	int backend; /* enum glake_backend */
	bool quiet;  /* not a word about the device, no progress */
	bool json;   /* the report */
	size_t count;
	const char *settings[GLK_TOOL_SETTINGS_MAX + 1]; /* "section.key=value", NULL */
};

/*
 * Takes one of --driver, --conf, --json and --quiet by its letter, and its argument from
 * getopt's optarg. 0; 2 after a message, or for any other letter.
 */
int glk_tool_take_option(struct glk_tool_context *wanted, const char *command, int c);
/* What --conf does. 0, or 2 after a message. */
int glk_tool_add_setting(
	struct glk_tool_context *wanted, const char *command, const char *text);

/* Reads a number from 1 to max. 0, or 2 after a message. */
int glk_tool_read_count(const char *command, const char *option, const char *text,
	int64_t max, unsigned *ret_count);

#define GLK_TOOL_GPUS 256 /* that a trace can tell apart */

/* The argument of --gpu. 0, or 2 after a message. */
int glk_tool_read_gpu(const char *command, const char *text, int *ret_gpu);

/*
 * Opens a context. The first time it runs on the software device because there is no GPU,
 * one line says so. Says why it failed. 0 or -errno.
 */
int glk_tool_open(const struct glk_tool_context *wanted, struct glake **ret_ctx);

/* The value of a key in a context. 0 or -errno. */
struct glake_conf_value;
int glk_tool_value(struct glake *ctx, const char *section, const char *key,
	struct glake_conf_value *ret_value);

/* Where a value of the configuration is from: "default", "file", "environment", "option". */
const char *glk_tool_origin(int origin);

/* "soft" or "cuda". */
const char *glk_tool_backend_name(struct glake *ctx);

/* Flushes stdout; `status`, or 1 with a message if something could not be written. */
int glk_tool_finish(int status);

#endif
