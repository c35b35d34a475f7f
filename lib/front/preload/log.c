/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Messages: to stderr, never to stdout, one line by one write, as log.level asks, and not more of
 * a kind than the library's. Its own hook for messages is the program's, so it is left alone.
 */
#include "front/preload/preload.h"

#include "base/clock.h"
#include "base/limit.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

void glk_preload_log(int level, const char *format, ...)
{
	static const char *const names[] = {"", "error", "warning", "info", "debug"};
	int saved = errno, head, body;
	uint32_t left_out;
	char line[512];
	size_t length;
	va_list args;

	if (level > glk_preload_log_level() || level < GLAKE_LOG_ERROR ||
		level > GLAKE_LOG_DEBUG)
		return;
	if (level <= GLAKE_LOG_WARNING &&
		glk_limit_ask(format, glk_clock_ns(), &left_out) == GLK_LIMIT_LEAVE_OUT)
		return;
	head = snprintf(
		line, sizeof(line), "glake[%d] %s: preload: ", getpid(), names[level]);
	va_start(args, format);
	body = vsnprintf(line + head, sizeof(line) - (size_t)head - 1, format, args);
	va_end(args);
	if (body >= 0) {
		length = (size_t)(head + body);
		if (length > sizeof(line) - 2)
			length = sizeof(line) - 2;
		line[length++] = '\n';
		if (write(STDERR_FILENO, line, length) < 0)
			saved = saved ? saved : errno; /* nowhere left to say so */
	}
	errno = saved;
}
