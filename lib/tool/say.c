/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Messages of the tool. stdout belongs to the report alone, so that it can be piped into
 * something else; whatever is meant for the person at the keyboard goes to stderr, one line
 * a message, and names the program.
 *
 * A report that could not be written whole is a failure, whatever the command found out: a
 * full disk must not look like success.
 */
#include "tool/tool.h"

#include <glake/error.h>

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void glk_tool_say(const char *format, ...)
{
	va_list args;

	flockfile(stderr);
	fputs("glakectl: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	funlockfile(stderr);
}

int glk_tool_usage(const char *command, const char *format, ...)
{
	const char *space = *command ? " " : "";
	va_list args;

	flockfile(stderr);
	fprintf(stderr, "glakectl%s%s: ", space, command);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, "; see glakectl%s%s --help\n", space, command);
	funlockfile(stderr);
	return GLK_TOOL_USAGE;
}

/* Makes the short form ":hqV..." that getopt wants from the table of long options. */
static void short_options(const struct option *options, char *buffer, size_t size)
{
	size_t at = 0;

	buffer[at++] = ':';
	for (; options->name && at + 3 < size; options++) {
		if (options->val <= ' ' || options->val > '~')
			continue;
		buffer[at++] = (char)options->val;
		if (options->has_arg == required_argument)
			buffer[at++] = ':';
	}
	buffer[at] = '\0';
}

int glk_tool_option(int argc, char **argv, const struct option *options)
{
	char shorts[64];
	int c;

	short_options(options, shorts, sizeof(shorts));
	opterr = 0;
	c = getopt_long(argc, argv, shorts, options, NULL);
	if (c == ':')
		glk_tool_usage(
			argv[0], "option '%s' needs an argument", argv[optind - 1]);
	else if (c == '?' && !optopt)
		glk_tool_usage(argv[0], "unknown option '%s'", argv[optind - 1]);
	else if (c == '?' && strchr(argv[optind - 1], '='))
		glk_tool_usage(argv[0], "'%s': it takes no argument", argv[optind - 1]);
	else if (c == '?')
		glk_tool_usage(argv[0], "unknown option '-%c'", optopt);
	return c == ':' ? '?' : c;
}

void glk_tool_say_error(const char *what, int err)
{
	struct glake_error record = {.sz = sizeof(record)};

	if (!glake_last_error(&record) && record.err == err && record.text[0])
		glk_tool_say("%s: %s (%s)", what, record.text,
			glake_error_class_name(record.error_class));
	else
		glk_tool_say("%s: %s", what, strerror(-err));
}

int glk_tool_finish(int status)
{
	bool before = ferror(stdout);

	if (!fflush(stdout) && !before)
		return status;
	glk_tool_say("the report could not be written%s%s", before ? "" : ": ",
		before ? "" : strerror(errno));
	return status ? status : GLK_TOOL_FAILED;
}
