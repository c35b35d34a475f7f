/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_BASE_PARSE_H
#define GLK_BASE_PARSE_H

/*
 * Values as people write them, and back. Knows nothing of glake and allocates nothing; the
 * locale of the host has no influence.
 *
 * Every reader takes the whole text: blanks, signs and letters that do not belong are
 * refused, nothing is guessed. 0; -EINVAL for what is no such value; -ERANGE for one too
 * large for its type. Nothing is written on failure, and no error record is filled.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* "512", "24G", "24GB", "1.5 GiB"; K, M, G and T, of 1024, each alone or with B, i or iB, in capitals
 * or not, and one blank before it or none. Rounded down to whole bytes. */
int glk_parse_size(const char *text, uint64_t *ret_bytes);

/* "2700ns", "1.5ms", "3s"; ns, us, ms, s. Rounded down to whole ns. Only 0 needs no unit. */
int glk_parse_time(const char *text, int64_t *ret_ns);

/* "x1.02", above 0, of 15 digits at most: the double nearest to what is written. */
int glk_parse_ratio(const char *text, double *ret_ratio);

/* yes, true, on, 1; no, false, off, 0. */
int glk_parse_bool(const char *text, bool *ret_value);

/* Decimal, with a minus where it is below 0. */
int glk_parse_int(const char *text, int64_t *ret_value);

/* The longest text the two functions below write, with its end. */
#define GLK_FORMAT_MAX 24

/* The value exactly, in the largest unit that needs no fraction: "8MiB", "1536MiB", "0". */
void glk_format_size(uint64_t bytes, char *buffer, size_t size);
void glk_format_time(int64_t ns, char *buffer, size_t size);

/* A size in a sentence, with its unit: "512 bytes", "8 MiB", "1.50 GiB". Hundredths that are left
 * over are left out. */
struct glk_said {
	char text[40];
};
struct glk_said glk_say_bytes(uint64_t bytes);

#endif
