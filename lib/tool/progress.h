/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TOOL_PROGRESS_H
#define GLK_TOOL_PROGRESS_H

/*
 * A line on stderr for what takes longer than a second, on a terminal only, gone at the end.
 * One at a time, from one thread.
 */
#include <stdbool.h>
#include <stdint.h>

void progress_start(bool quiet, const char *what);
/* The next part of the same work: the second runs on. */
void progress_next(const char *what);
/* Cheap enough for every few thousand steps. total 0: not known. */
void progress_step(uint64_t done, uint64_t total);
/* Makes room for a message; the line comes back with the next step. */
void progress_hide(void);
void progress_end(void);

#endif
