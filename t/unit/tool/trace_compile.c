/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Rows into events: numbers, peaks, times, what is refused, and the maxima. */
#include "t/tap.h"
#include "tool/trace.h"

#include <errno.h>

static char message[TRACE_MESSAGE_MAX];

struct subject {
	struct trace trace;
	struct trace_compiler compiler;
};

static void begin(struct subject *subject, struct trace_limits limits)
{
	*subject = (struct subject){0};
	subject->compiler.trace = &subject->trace;
	subject->compiler.limits = limits;
}

static void end(struct subject *subject)
{
	trace_compile_fini(&subject->compiler);
	trace_fini(&subject->trace);
}

static int add(struct subject *subject, const char *line)
{
	struct trace_row row;

	message[0] = '\0';
	if (trace_row_parse(line, strlen(line), message, sizeof(message), &row))
		tap_bail(message);
	return trace_compile_row(&subject->compiler, &row, message, sizeof(message));
}

static void test_events(void)
{
	struct subject s;
	const struct trace_event *e;

	begin(&s, TRACE_LIMITS);
	add(&s, "7,100,allocate,0x1000,100,0");
	add(&s, "8,110,allocate,0x2000,50,0x55");
	add(&s, "7,120,free,0x1000,100,0");
	add(&s, "7,130,allocate,0x1000,20,0");
	is_int(trace_compile_end(&s.compiler, message, sizeof(message)), 0, "complete");
	e = s.trace.events;
	is_int(s.trace.count, 4, "four events");
	is_int(s.trace.blocks, 3, "an address used twice names two blocks");
	is_int(e[2].block, 0 | TRACE_FREE_BIT, "the free names the first");
	is_int(e[3].block, 2, "the next allocation has a number of its own");
	is_int(e[2].size, 100, "a free carries the size of the block");
	ok(e[1].stream == 1 && e[1].thread == 1 && e[3].stream == 0 && e[3].thread == 0,
		"streams and threads are numbered as they appear");
	is_int(s.trace.stream_ids[1], 0x55, "the stream's name is kept");
	is_int(s.trace.peak_live, 150, "peak live");
	is_int(s.trace.job_us, 30, "time runs from the first event");
	is_int(s.trace.leftovers, 2, "two blocks are alive at the end");
	ok(s.trace.leftover[0].block == (1 | TRACE_FREE_BIT) &&
			s.trace.leftover[0].stream == 1,
		"listed with their stream, in order");
	end(&s);
}

static void test_refused(void)
{
	struct subject s;

	begin(&s, TRACE_LIMITS);
	add(&s, "0,1,allocate,0x1000,100,0");
	is_int(add(&s, "0,2,free,0x3000,1,0"), -EINVAL, "free of an unknown pointer");
	has_str(message, "free of 0x3000, which is not live", "says so");
	is_int(add(&s, "0,2,allocate,0x1000,1,0"), -EINVAL, "allocate of a live pointer");
	has_str(message, "allocate of 0x1000, which is live", "says so");
	is_int(add(&s, "0,2,allocate,0x2000,18446744073709551615,0"), -EINVAL,
		"sizes that overflow");
	has_str(message, "add up", "says so");
	is_int(add(&s, "0,2,free,0x1000,100,0"), 0, "a right row is taken after them");
	is_int(add(&s, "0,2,free,0x1000,100,0"), -EINVAL, "free of a freed pointer");
	is_int(s.trace.count, 2, "what was refused left no event");
	end(&s);
}

static void test_noops(void)
{
	struct subject s;

	begin(&s, TRACE_LIMITS);
	is_int(add(&s, "0,1,allocate,(nil),0,0"), 0, "size 0 at no address");
	is_int(add(&s, "0,1,allocate,(nil),0,0"), 0, "again");
	is_int(add(&s, "0,1,free,(nil),0,0"), 0, "and its free");
	is_int(add(&s, "0,1,allocate,0x99,0,0"), 0, "size 0 at an address");
	is_int(add(&s, "0,1,free,0x99,0,0"), 0, "and its free");
	is_int(add(&s, "0,1,allocate failure,(nil),5,0"), 0, "an allocation that failed");
	is_int(s.trace.noops, 6, "all are counted");
	is_int(s.trace.count, 0, "none is an event");
	is_int(add(&s, "0,1,allocate,0x99,7,0"), 0, "a block");
	is_int(add(&s, "0,1,free,0x99,0,0"), 0, "freed by a row without a size");
	is_int(s.trace.count, 2, "is an event");
	end(&s);
}

static void test_time(void)
{
	struct subject s;

	begin(&s, TRACE_LIMITS);
	add(&s, "0,23:59:59.0,allocate,0x1,1,0");
	add(&s, "0,23:59:58.0,allocate,0x2,1,0");
	add(&s, "0,00:00:01.5,allocate,0x3,1,0");
	is_int(s.trace.times_us[1], 0, "a small step back counts as none");
	is_int(s.trace.times_us[2], 2500000, "midnight passes");
	end(&s);
}

static void test_limits(void)
{
	struct subject s;

	begin(&s, (struct trace_limits){.events = 3, .streams = 2, .threads = 2});
	is_int(add(&s, "0,1,allocate,0x1,1,0"), 0, "first");
	is_int(add(&s, "1,1,allocate,0x2,1,1"), 0, "second thread and stream");
	is_int(add(&s, "0,1,allocate,0x3,1,2"), -EFBIG, "a third stream is one too many");
	has_str(message, "more than 2 streams", "says so");
	is_int(add(&s, "2,1,allocate,0x3,1,1"), -EFBIG, "a third thread is one too many");
	has_str(message, "more than 2 threads", "says so");
	is_int(add(&s, "0,1,allocate,0x3,1,1"), 0, "the third event is the last");
	is_int(add(&s, "0,1,free,0x3,1,1"), -EFBIG, "a fourth is one too many");
	has_str(message, "more than 3 events", "says so");
	end(&s);
}

int main(void)
{
	tap_plan(43);
	test_events();
	test_refused();
	test_noops();
	test_time();
	test_limits();
	return tap_done();
}
