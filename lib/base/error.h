/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_BASE_ERROR_H
#define GLK_BASE_ERROR_H

/*
 * The per-thread record behind glake_last_error(). It is filled where the cause of a failure
 * is first known; callers on the way up only pass the errno value on.
 */
#include <glake/error.h>

#include <stdint.h>

/*
 * Fills the record and returns `err`, so that a failure reads
 *
 *	return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "size is 0");
 *
 * Never fails: a thread for which no record can be had loses only the text.
 */
int glk_error(int err, enum glake_error_class class, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* The same for a call below us: its name and its CUresult or errno. */
int glk_error_native(int err, enum glake_error_class class, const char *call, int native,
	const char *format, ...) __attribute__((format(printf, 5, 6)));

/* After calls whose failure is not the caller's: the record is what it was before. A thread that has none still
 * has none. */
void glk_error_back(const struct glake_error *was);

#endif
