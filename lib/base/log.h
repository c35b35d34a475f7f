/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_BASE_LOG_H
#define GLK_BASE_LOG_H

/*
 * Messages to the hook of the host, else to stderr; silent unless a level was asked for.
 * Never called under a lock that a hit could want.
 */
#include <glake/context.h>

#include <stdbool.h>

void glk_log(int level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The level from the configuration; a hook of the host has its own. */
void glk_log_level_set(int level);
bool glk_log_wants(int level);

#define glk_err(...)   glk_log(GLAKE_LOG_ERROR, __VA_ARGS__)
#define glk_warn(...)  glk_log(GLAKE_LOG_WARNING, __VA_ARGS__)
#define glk_info(...)  glk_log(GLAKE_LOG_INFO, __VA_ARGS__)
#define glk_debug(...) glk_log(GLAKE_LOG_DEBUG, __VA_ARGS__)

#endif
