/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What every hook begins with: whether it is served, and by which way it was reached.
 *
 * The former is read from the environment before main, or at the first look-up of a library that
 * is loaded earlier; there are no threads then. That neither allocates nor looks a symbol up: an
 * allocator may be asking, from inside of its own start.
 *
 * And messages: to stderr, never to stdout, one line by one write, as log.level asks, and not more of
 * a kind than the library's. Its own hook for messages is the program's, so it is left alone.
 */
#include "front/preload/preload.h"

#include "base/clock.h"
#include "base/limit.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

static glk_atomic(int) log_level;

enum mode {
	UNREAD = 0,
	INERT,
	ACTIVE,
	STOPPED, /* at exit, or in a child */
};

static glk_atomic(int) mode;
static glk_atomic(bool) started;

static glk_atomic(glk_preload_fn *) at_exit_too;

pthread_mutex_t glk_preload_lock = PTHREAD_MUTEX_INITIALIZER;
_Thread_local bool glk_preload_inside;

static const char *const levels[] = {"none", "error", "warning", "info", "debug", NULL};

/* The index of a name; for none of them the default. */
static int level_of(const char *name)
{
	for (int i = 0; name && levels[i]; i++)
		if (!strcmp(name, levels[i]))
			return i;
	return GLAKE_LOG_WARNING;
}

static bool is_set(const char *name)
{
	const char *value = secure_getenv(name);

	return value && *value && strcmp(value, "0");
}

static void read_environment(void)
{
	bool inert;

	if (glk_load_acquire(&mode) != UNREAD) /* pairs with: the release below */
		return;
	glk_store_relaxed(&log_level, level_of(secure_getenv("GLAKE_LOG_LEVEL")));
	inert = getauxval(AT_SECURE) || is_set("GLAKE_DISABLE");
	/* pairs with: the acquire above and in glk_preload_active */
	glk_store_release(&mode, inert ? INERT : ACTIVE);
}

int glk_preload_log_level(void)
{
	read_environment();
	return glk_load_relaxed(&log_level);
}

void glk_preload_log_level_set(const char *name)
{
	glk_store_relaxed(&log_level, level_of(name));
}

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

bool glk_preload_active(void)
{
	int now =
		glk_load_acquire(&mode); /* pairs with: the release in read_environment */

	if (now == UNREAD) {
		read_environment();
		now = glk_load_relaxed(&mode);
	}
	return now == ACTIVE;
}

bool glk_preload_inert(void)
{
	return glk_load_relaxed(&mode) == INERT;
}

void glk_preload_stop(void)
{
	glk_store_relaxed(&mode, STOPPED);
}

bool glk_preload_stopped(void)
{
	return glk_load_relaxed(&mode) == STOPPED;
}

void glk_preload_on_exit(glk_preload_fn *fn)
{
	glk_store_release(&at_exit_too, fn); /* pairs with: at_exit */
}

static void at_exit(void)
{
	glk_preload_fn *fn;

	glk_preload_stop();
	fn = glk_load_acquire(&at_exit_too); /* pairs with: glk_preload_on_exit */
	if (fn)
		fn();
}

void glk_preload_started(void)
{
	if (glk_load_relaxed(&started))
		return;
	glk_store_relaxed(&started, true);
	/* Installed behind the handlers of the driver, so it runs before them. */
	atexit(at_exit);
}

void glk_preload_child(void)
{
	glk_preload_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	if (glk_load_relaxed(&started))
		glk_preload_stop();
}

/* 1 for each way by which a hook was reached. */
static struct {
	glk_atomic(bool) called, found, given;
} reached[GLK_PRELOAD_COUNT];

unsigned glk_preload_routes(enum glk_preload_id id)
{
	return (unsigned)GLK_PRELOAD_BY_CALL * glk_load_relaxed(&reached[id].called) |
		(unsigned)GLK_PRELOAD_BY_DLSYM * glk_load_relaxed(&reached[id].found) |
		(unsigned)GLK_PRELOAD_BY_PROC * glk_load_relaxed(&reached[id].given);
}

void glk_preload_reach(enum glk_preload_id id, enum glk_preload_route route)
{
	if (route == GLK_PRELOAD_BY_DLSYM)
		glk_store_relaxed(&reached[id].found, true);
	else
		glk_store_relaxed(&reached[id].given, true);
}

bool glk_preload_called(enum glk_preload_id id)
{
	if (!glk_load_relaxed(&reached[id].found) &&
		!glk_load_relaxed(&reached[id].given))
		glk_store_relaxed(&reached[id].called, true);
	return glk_preload_active() && !glk_preload_inside;
}
