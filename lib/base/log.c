/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One line, one write: messages of several threads never mix. The hook is a pair {function,
 * argument} that changes rarely; it is replaced under a lock that only writers of messages
 * take, and called outside of it.
 *
 * What a thread raises under a lock is formatted there, since what it is made of may not last,
 * and handed out behind the unlock. A hook may want a lock of its host, and stderr may be a pipe
 * that nobody reads.
 *
 * Errors and warnings that go to stderr are limited by kind (limit.h), since a program may do
 * thousand times a second what earns one. A hook gets all of them.
 */
#include "base/log.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/limit.h"
#include "base/lock.h"
#include "base/thread.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LINE_MAX_BYTES 512

static struct glk_lock lock = GLK_LOCK_INIT(GLK_RANK_LOG);
/* Two places, and which one counts: a child that is forked in between has the old pair. */
static struct {
	glake_log_fn fn;
	void *arg;
} hooks[2];
static unsigned current;
static glk_atomic(int) hook_level;
static glk_atomic(int) level_conf;

/* By level, of all threads: raised under a lock, with no room or no record to be kept in. */
static glk_atomic(uint32_t) dropped[GLAKE_LOG_DEBUG + 1];

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
	hooks[!current].fn = fn;
	hooks[!current].arg = arg;
	current = !current;
	glk_store_relaxed(&hook_level, fn ? level : GLAKE_LOG_NONE);
	glk_unlock(&lock);
}

/* Hands a line to the hook or to stderr. The calling thread holds no lock. */
static void say(int level, const char *line)
{
	static const char *const names[] = {"", "error", "warning", "info", "debug"};
	char whole[LINE_MAX_BYTES];
	glake_log_fn fn;
	int length;
	void *arg;

	glk_lock(&lock);
	fn = hooks[current].fn;
	arg = hooks[current].arg;
	glk_unlock(&lock);
	if (!glk_log_wants(level)) /* nor since it was raised */
		return;
	if (fn) {
		fn(level, line, arg);
		return;
	}
	length = snprintf(
		whole, sizeof(whole), "glake[%d] %s: %s", getpid(), names[level], line);
	if (length > (int)sizeof(whole) - 2)
		length = (int)sizeof(whole) - 2;
	whole[length++] = '\n';
	if (write(STDERR_FILENO, whole, (size_t)length) < 0)
		return; /* nowhere left to say so */
}

/* Tells of messages that are missing before the next one that is not. */
static void say_dropped(void)
{
	char line[128];
	uint32_t count;

	for (int level = GLAKE_LOG_ERROR; level <= GLAKE_LOG_DEBUG; level++) {
		if (!glk_load_relaxed(&dropped[level]))
			continue;
		count = glk_xchg_acq_rel(&dropped[level], 0);
		snprintf(line, sizeof(line),
			"%u messages of this level were dropped, for want of room while a "
			"lock was held",
			count);
		if (count)
			say(level, line);
	}
}

static void keep(int level, const char *line)
{
	struct glk_thread *self = glk_thread_self();
	size_t size = strlen(line) + 1;

	if (!self || size + 1 > sizeof(self->log.text) - self->log.used) {
		glk_add_relaxed(&dropped[level], 1);
		return;
	}
	self->log.text[self->log.used] = (char)level;
	memcpy(self->log.text + self->log.used + 1, line, size);
	self->log.used += size + 1;
}

void glk_log_flush(void)
{
	struct glk_thread *self = glk_thread_current;
	size_t used = self->log.used;
	char text[GLK_THREAD_LOG];
	int saved = errno;

	/* a copy: the unlocks on the way out come by here again */
	memcpy(text, self->log.text, used);
	self->log.used = 0;
	for (size_t at = 0; at < used; at += strlen(text + at + 1) + 2)
		say(text[at], text + at + 1);
	say_dropped();
	errno = saved;
}

/* Adds to a line what is left out of its kind; false if that is the line itself. */
static bool limit(int level, const char *format, char *line, size_t size)
{
	size_t length = strlen(line);
	uint32_t left_out;

	if (level > GLAKE_LOG_WARNING || glk_load_relaxed(&hook_level) != GLAKE_LOG_NONE)
		return true;
	switch (glk_limit_ask(format, glk_clock_ns(), &left_out)) {
	case GLK_LIMIT_LEAVE_OUT:
		return false;
	case GLK_LIMIT_LAST:
		snprintf(line + length, size - length,
			" (more lines like this are left out for up to %d s)",
			(int)(GLK_LIMIT_NS / 1000000000));
		break;
	case GLK_LIMIT_SAY:
		if (left_out)
			snprintf(line + length, size - length,
				" (%u lines like this were left out before it)",
				left_out);
	}
	return true;
}

void glk_log(int level, const char *format, ...)
{
	char line[LINE_MAX_BYTES];
	int saved = errno;
	va_list args;

	if (!glk_log_wants(level) || level < GLAKE_LOG_ERROR || level > GLAKE_LOG_DEBUG)
		return;
	va_start(args, format);
	if (vsnprintf(line, sizeof(line), format, args) < 0)
		line[0] = '\0';
	va_end(args);
	if (!limit(level, format, line, sizeof(line)))
		goto out;
	if (glk_lock_is_held()) {
		keep(level, line);
	} else {
		say_dropped();
		say(level, line);
	}
out:
	errno = saved;
}
