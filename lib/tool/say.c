/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Messages of the tool. stdout belongs to the report alone, so that it can be piped into
 * something else; whatever is meant for the person at the keyboard goes to stderr, one line
 * a message, and names the program.
 *
 * A report that could not be written whole is a failure, whatever the command found out: a
 * full disk must not look like success. Of a reader that went away nothing is said.
 *
 * Progress. A person waits a second without wondering; after that a line says what is being
 * done and how far it is, ten times a second at most, and takes itself away when it is done,
 * so nothing of it is left between the messages that matter. Not on a terminal: nothing.
 */
#include "tool/tool.h"

#include "tool/latency.h"

#include <glake/error.h>

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FIRST_NS INT64_C(1000000000)
#define NEXT_NS	 INT64_C(100000000)

static struct {
	char what[320];
	int64_t begun_ns, next_ns;
	bool on, shown;
} progress;

static void progress_hide(void)
{
	if (progress.shown)
		fputs("\r\033[K", stderr);
	progress.shown = false;
}

void progress_end(void)
{
	progress_hide();
	progress.on = false;
}

void progress_start(bool quiet, const char *what)
{
	progress_end();
	snprintf(progress.what, sizeof(progress.what), "%s", what);
	progress.on = !quiet && isatty(STDERR_FILENO);
	progress.begun_ns = latency_now();
	progress.next_ns = progress.begun_ns + FIRST_NS;
}

void progress_next(const char *what)
{
	snprintf(progress.what, sizeof(progress.what), "%s", what);
	progress.begun_ns = latency_now();
}

void progress_step(uint64_t done, uint64_t total)
{
	int64_t now;

	if (!progress.on)
		return;
	now = latency_now();
	if (now < progress.next_ns)
		return;
	progress.next_ns = now + NEXT_NS;
	progress.shown = true;
	if (total && done)
		fprintf(stderr, "\r\033[K%s: %3u %%, %.0f s left", progress.what,
			(unsigned)((double)done / (double)total * 100),
			(double)(now - progress.begun_ns) / 1e9 * (double)(total - done) /
				(double)done);
	else
		fprintf(stderr, "\r\033[K%s: %llu", progress.what,
			(unsigned long long)done);
	fflush(stderr);
}

void glk_tool_say(const char *format, ...)
{
	va_list args;

	progress_hide();
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

void glk_tool_say_error(const char *what, int err)
{
	struct glake_error record = {.sz = sizeof(record)};

	if (!glake_last_error(&record) && record.err == err && record.text[0])
		glk_tool_say("%s: %s (%s)", what, record.text,
			glake_error_class_name(record.error_class));
	else
		glk_tool_say("%s: %s", what, strerror(-err));
}

void glk_tool_keep_error(int err, char *text, size_t size)
{
	struct glake_error record = {.sz = sizeof(record)};

	if (!glake_last_error(&record) && record.err == err && record.text[0])
		snprintf(text, size, "%s", record.text);
	else
		snprintf(text, size, "%s", strerror(-err));
}

int glk_tool_finish(int status)
{
	struct pollfd out = {.fd = STDOUT_FILENO};
	bool before = ferror(stdout);

	if (!fflush(stdout) && !before)
		return status;
	if (before) /* why was told then: a pipe without a reader tells it again */
		errno = poll(&out, 1, 0) == 1 && out.revents & POLLERR ? EPIPE : 0;
	/* A reader that has seen enough knows. */
	if (errno != EPIPE)
		glk_tool_say("the report could not be written%s%s", before ? "" : ": ",
			before ? "" : strerror(errno));
	return status ? status : GLK_TOOL_FAILED;
}
