/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One line, one write: messages of several threads never mix. The hook is a pair {function,
 * argument} that changes rarely; it is replaced under a lock that only writers of messages
 * take, and called outside of it.
 */
#include "base/log.h"

#include "base/atomic.h"
#include "base/lock.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

static struct glk_lock lock = GLK_LOCK_INIT(GLK_RANK_LOG);
static glake_log_fn hook;
static void *hook_arg;
static glk_atomic(int) hook_level;
static glk_atomic(int) level_conf;

void glk_log_level_set(int level)
{
	glk_store_relaxed(&level_conf, level);
}

bool glk_log_wants(int level)
{
	return level <= glk_load_relaxed(&level_conf) ||
		level <= glk_load_relaxed(&hook_level);
}

void glake_log_hook(glake_log_fn fn, void *arg, int level)
{
	glk_lock(&lock);
	hook = fn;
	hook_arg = arg;
	glk_store_relaxed(&hook_level, fn ? level : GLAKE_LOG_NONE);
	glk_unlock(&lock);
}

void glk_log(int level, const char *format, ...)
{
	static const char *const names[] = {"", "error", "warning", "info", "debug"};
	glake_log_fn fn;
	char line[512];
	int saved = errno, head, body;
	size_t length;
	va_list args;
	void *arg;

	if (!glk_log_wants(level) || level < GLAKE_LOG_ERROR || level > GLAKE_LOG_DEBUG)
		return;
	glk_lock(&lock);
	fn = hook;
	arg = hook_arg;
	glk_unlock(&lock);

	head = fn
		? 0
		: snprintf(line, sizeof(line), "glake[%d] %s: ", getpid(), names[level]);
	va_start(args, format);
	body = vsnprintf(line + head, sizeof(line) - (size_t)head - 1, format, args);
	va_end(args);
	if (body < 0)
		goto out;
	if (fn) {
		fn(level, line, arg);
		goto out;
	}
	length = (size_t)(head + body);
	if (length > sizeof(line) - 2)
		length = sizeof(line) - 2;
	line[length++] = '\n';
	if (write(STDERR_FILENO, line, length) < 0)
		goto out; /* nowhere left to say so */
out:
	errno = saved;
}
