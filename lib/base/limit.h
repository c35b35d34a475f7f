/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_BASE_LIMIT_H
#define GLK_BASE_LIMIT_H

/*
 * How often a message is said that comes again and again. Messages are of one kind that have one
 * format, told by its address. Any thread may ask; nothing is waited for, and threads that
 * meet where a while begins may let as many lines more through, which is seldom.
 */
#include <stdint.h>

/* Lines of a kind in a while. */
#define GLK_LIMIT_LINES 10
#define GLK_LIMIT_NS	INT64_C(10000000000)

enum glk_limit {
	GLK_LIMIT_SAY,
	GLK_LIMIT_LAST, /* to be said, and that more of its kind are left out for a while */
	GLK_LIMIT_LEAVE_OUT,
};

/* What to do with a message of this kind at this time, and how many of its kind were left out
 * since the last that was said. */
enum glk_limit glk_limit_ask(const char *format, int64_t now_ns, uint32_t *ret_left_out);

#endif
