/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Rows as the writers of logs write them, and rows that are wrong. */
#include "t/tap.h"
#include "tool/trace.h"

#include <errno.h>

static const struct good {
	const char *line;
	struct trace_row row;
} good[] = {
	{"0,4,allocate,0x7f5727e00000,37632,0",
		{0, 4, TRACE_ALLOCATE, 0x7f5727e00000, 37632, 0, 0, 0, 0}},
	{"1,5,free,7F5727E00000,37632,2",
		{1, 5, TRACE_FREE, 0x7f5727e00000, 37632, 2, 0, 0, 0}},
	{"140213,23:59:59.000001,allocate,0X10,1,0x5600",
		{140213, 86399000001, TRACE_ALLOCATE, 16, 1, 0x5600, 0, 0, 0}},
	{"0,00:00:01:5,free,10,1,0", {0, 1500000, TRACE_FREE, 16, 1, 0, 0, 0, 0}},
	{"0,00:01:00,free,10,1,0", {0, 60000000, TRACE_FREE, 16, 1, 0, 0, 0, 0}},
	{"0,1,allocate failure,(nil),99,0", {0, 1, TRACE_FAILURE, 0, 99, 0, 0, 0, 0}},
	{"0,1,allocate,(nil),0,0", {0, 1, TRACE_ALLOCATE, 0, 0, 0, 0, 0, 0}},
	{"0,1,allocate,0xffffffffffffffff,18446744073709551615,18446744073709551615",
		{0, 1, TRACE_ALLOCATE, UINT64_MAX, UINT64_MAX, UINT64_MAX, 0, 0, 0}},
};

static const struct bad {
	const char *line, *message;
} bad[] = {
	{"", "1 columns instead of 6"},
	{"0,4,allocate,0x10,1", "5 columns instead of 6"},
	{"0,4,allocate,0x10,1,0,", "7 columns instead of 6"},
	{"x,4,allocate,0x10,1,0", "Thread is 'x'"},
	{"0,,allocate,0x10,1,0", "Time is ''"},
	{"0,-4,allocate,0x10,1,0", "Time is '-4'"},
	{"0,24:00:00.0,allocate,0x10,1,0", "Time is '24:00:00.0'"},
	{"0,1:2,allocate,0x10,1,0", "Time is '1:2'"},
	{"0,1:2:3.1234567,allocate,0x10,1,0", "Time is '1:2:3.1234567'"},
	{"0,1.2.3:4,allocate,0x10,1,0", "Time is '1.2.3:4'"},
	{"0,9223372036854775808,allocate,0x10,1,0", "too large for 64 bits"},
	{"0,4,alloc,0x10,1,0", "unknown action 'alloc'"},
	{"0,4,,0x10,1,0", "unknown action ''"},
	{"0,4,free\001,0x10,1,0", "unknown action 'free?'"},
	{"0,4,free,0x,1,0", "Pointer is '0x'"},
	{"0,4,free,0x1g,1,0", "Pointer is '0x1g'"},
	{"0,4,free,0x10000000000000000,1,0", "Pointer is '0x10000000000000000'"},
	{"0,4,free,0x10,0x1,0", "Size is '0x1'"},
	{"0,4,free,0x10, 1,0", "Size is ' 1'"},
	{"0,4,free,0x10,18446744073709551616,0",
		"Size is 18446744073709551616, too large for 64 bits"},
	{"0,4,free,0x10,1,default", "Stream is 'default'"},
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static bool same(const struct trace_row *a, const struct trace_row *b)
{
	return a->thread == b->thread && a->time_us == b->time_us &&
		a->action == b->action && a->pointer == b->pointer &&
		a->size == b->size && a->stream == b->stream && !a->kind && !a->device &&
		!a->time_ns;
}

int main(void)
{
	char message[TRACE_MESSAGE_MAX];
	struct trace_row row;

	tap_plan((int)(COUNT(good) + 2 * COUNT(bad)));
	for (size_t i = 0; i < COUNT(good); i++) {
		int err = trace_row_parse(good[i].line, strlen(good[i].line), message,
			sizeof(message), &row);

		ok(!err && same(&row, &good[i].row), "%s", good[i].line);
	}
	for (size_t i = 0; i < COUNT(bad); i++) {
		is_int(trace_row_parse(bad[i].line, strlen(bad[i].line), message,
			       sizeof(message), &row),
			-EINVAL, "refused");
		has_str(message, bad[i].message, bad[i].message);
	}
	return tap_done();
}
