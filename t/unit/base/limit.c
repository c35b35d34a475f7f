/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Ten lines of a kind in a while, kinds told apart, and threads that ask at once. */
#include "base/limit.h"

#include "base/atomic.h"
#include "tap.h"

#include <pthread.h>

#define THREADS 4
#define ASKED	1000

static char kinds[200]; /* whose addresses are formats */
static glk_atomic(int) said;

/* Lines that were said of so many; how many were left out before, and the number of the last. */
static int lines_of(const char *format, int64_t at_ns, int times, uint32_t *ret_left_out,
	int *ret_last)
{
	int lines = 0;

	*ret_left_out = 0;
	*ret_last = 0;
	for (int i = 0; i < times; i++) {
		uint32_t left_out;
		enum glk_limit limit = glk_limit_ask(format, at_ns + i, &left_out);

		lines += limit != GLK_LIMIT_LEAVE_OUT;
		*ret_left_out += left_out;
		if (limit == GLK_LIMIT_LAST)
			*ret_last = i + 1;
	}
	return lines;
}

static void *asks(void *arg)
{
	uint32_t left_out;

	for (int i = 0; i < ASKED; i++)
		if (glk_limit_ask(arg, 77, &left_out) != GLK_LIMIT_LEAVE_OUT)
			glk_add_relaxed(&said, 1);
	return NULL;
}

int main(void)
{
	int64_t now = INT64_C(5000000000);
	pthread_t threads[THREADS];
	int lines = 0, limited = 0, last;
	uint32_t left_out;

	tap_plan_later();
	is_int(lines_of(kinds, now, 3, &left_out, &last), 3, "three lines");
	is_int(lines_of(kinds, now + 100, 50, &left_out, &last), 7, "ten in a while");
	is_int(last, 7, "the tenth is told to be the last");
	is_int(lines_of(kinds + 1, now, 50, &left_out, &last), 10,
		"another kind has its own");
	is_int(left_out, 0, "of which none was left out before");
	is_int(lines_of(kinds, now + GLK_LIMIT_NS, 50, &left_out, &last), 10,
		"the next while");
	is_int(left_out, 43, "begins with how many were left out");
	is_int(lines_of(kinds, now + 3 * GLK_LIMIT_NS, 1, &left_out, &last), 1,
		"a while later");
	is_int(left_out, 40, "and so on");
	is_int(last, 0, "one line is not the last");
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, asks, kinds + 2);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	/* who begins the while may be held up before it counts anew: others have had ten by then */
	ok(said >= GLK_LIMIT_LINES && said <= 2 * GLK_LIMIT_LINES,
		"threads that ask at once get ten, or as many again (%d)", said);
	for (int i = 3; i < 100; i++)
		limited += lines_of(kinds + i, now, 20, &left_out, &last) == 10;
	is_int(limited, 97, "each of many kinds has ten");
	for (int i = 3; i < 200; i++)
		lines += lines_of(kinds + i, now + 2 * GLK_LIMIT_NS, 20, &left_out,
				 &last) >= 10;
	is_int(lines, 197, "more kinds than there is room for are said all the same");
	return tap_done();
}
