/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_BASE_LOG_H
#define GLK_BASE_LOG_H

/*
 * Messages to the hook of the host, else to stderr. Nothing is said before log_level_set: a
 * context that is opened sets what log.level says.
 *
 * Neither is reached while the calling thread holds a lock (lock.h): what it raises then waits in
 * its record and goes out after its outermost unlock, in order. The room for that is bounded;
 * what found none is counted, and a line says how many there were.
 */
#include "base/thread.h"

#include <glake/context.h>

#include <stdbool.h>

void glk_log(int level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Hands out what the calling thread raised under locks; called where it holds none any more. */
void glk_log_flush(void);

/* Whether it raised any. */
static inline bool glk_log_has_kept(void)
{
	return glk_thread_current->log.used;
}

/* The level from the configuration; a hook of the host has its own. */
void glk_log_level_set(int level);
bool glk_log_wants(int level);

#define glk_err(...)   glk_log(GLAKE_LOG_ERROR, __VA_ARGS__)
#define glk_warn(...)  glk_log(GLAKE_LOG_WARNING, __VA_ARGS__)
#define glk_info(...)  glk_log(GLAKE_LOG_INFO, __VA_ARGS__)
#define glk_debug(...) glk_log(GLAKE_LOG_DEBUG, __VA_ARGS__)

#endif
