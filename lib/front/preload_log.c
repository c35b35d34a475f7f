/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Messages: to stderr, never to stdout, one line by one write, as log.level asks, and not more of
 * a kind than the library's. Its own hook for messages is the program's, so it is left alone.
 */
#include "front/preload.h"

#include "base/clock.h"
#include "base/limit.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
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

/* All that was reached in one way, a few lines of names. */
static void report_route(enum glk_preload_route route, const char *how)
{
	char names[400] = "";
	size_t used = 0;

	for (int i = 0; i < GLK_PRELOAD_COUNT; i++) {
		const char *name = glk_preload_name(i);

		if (!(glk_preload_routes(i) & route))
			continue;
		if (used + strlen(name) + 2 > sizeof(names)) {
			glk_preload_log(GLAKE_LOG_INFO, "hooked %s:%s", how, names);
			used = 0;
		}
		used += (size_t)snprintf(names + used, sizeof(names) - used, " %s", name);
	}
	if (used)
		glk_preload_log(GLAKE_LOG_INFO, "hooked %s:%s", how, names);
}

void glk_preload_report_seat(struct glk_preload_seat *seat)
{
	struct glake_stats stats = {.sz = sizeof(stats)};
	int err;

	if (!glk_preload_in(seat))
		return;
	err = glk_library.stats_get(seat->glake, seat->device, &stats);
	glk_preload_out(seat);
	if (err)
		return;
	glk_preload_log(GLAKE_LOG_INFO,
		"GPU %d: %" PRIu64 " blocks given, %" PRIu64 " taken back, %" PRIu64
		" bytes live at most on %" PRIu64 " bytes of pages",
		seat->device, stats.allocs, stats.frees, stats.peak_live,
		stats.peak_reserved);
}

void glk_preload_report(void)
{
	struct glk_preload_seat *seat;

	if (glk_preload_log_level() < GLAKE_LOG_INFO)
		return;
	report_route(GLK_PRELOAD_BY_CALL, "by symbol");
	report_route(GLK_PRELOAD_BY_DLSYM, "by dlsym");
	report_route(GLK_PRELOAD_BY_PROC, "by cuGetProcAddress");
	for (int i = 0; i < GLK_PRELOAD_GPUS_MAX; i++) {
		seat = glk_preload_seat_at(i);
		if (seat)
			glk_preload_report_seat(seat);
	}
}
