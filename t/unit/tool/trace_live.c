/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The live blocks of a trace: sizes come back with the frees, and peaks are those of each GPU. */
#include "t/seed.h"
#include "t/tap.h"
#include "tool/trace_tool.h"

#include <errno.h>

static struct trace_live live;
static char message[TRACE_MESSAGE_MAX];
static uint64_t size;

static int give(uint8_t gpu, uint64_t pointer, uint64_t bytes)
{
	struct trace_row row = {.action = TRACE_ALLOCATE,
		.kind = GLAKE_TRACE_ALLOC,
		.device = gpu,
		.pointer = pointer,
		.size = bytes};

	return trace_live_row(&live, &row, message, sizeof(message), &size);
}

static int take(uint8_t gpu, uint64_t pointer)
{
	struct trace_row row = {.action = TRACE_FREE,
		.kind = GLAKE_TRACE_FREE,
		.device = gpu,
		.pointer = pointer};

	size = 0;
	return trace_live_row(&live, &row, message, sizeof(message), &size);
}

static void test_rows(void)
{
	is_int(give(0, 0x1000, 10), 0, "a block");
	is_int(give(1, 0x2000, 20), 0, "one of another GPU");
	is_int(give(0, 0x1000, 30), -EINVAL, "a second one at its address");
	has_str(message, "allocate of 0x1000, which is live", "says so");
	is_int(take(0, 0x1000), 0, "the first is freed");
	is_int((int64_t)size, 10, "with its size");
	is_int(take(0, 0x1000), -EINVAL, "once");
	has_str(message, "free of 0x1000, which is not live", "says so");
	is_int(give(0, 0x1000, 5), 0, "and its address is given again");
	ok(live.used == 2 && live.bytes[0] == 5 && live.bytes[1] == 20,
		"its entry too, and bytes are right");
	ok(live.peak[0] == 10 && live.peak[1] == 20, "peaks stay");
}

static void test_idle(void)
{
	struct trace_row row = {.action = TRACE_ALLOCATE};

	ok(trace_row_idle(&row, &live.blocks), "an allocation of nothing in a log");
	row.size = 1;
	ok(!trace_row_idle(&row, &live.blocks), "one of something has an effect");
	row = (struct trace_row){.action = TRACE_FREE, .pointer = 0x77};
	ok(trace_row_idle(&row, &live.blocks), "a free of nothing");
	row.kind = GLAKE_TRACE_FREE;
	ok(!trace_row_idle(&row, &live.blocks), "which is a mistake in a trace of ours");
	row = (struct trace_row){.action = TRACE_FREE, .pointer = 0x1000};
	ok(!trace_row_idle(&row, &live.blocks), "a free without its size");
}

static void test_random(void)
{
	enum { COUNT = 5000 };
	static uint64_t sizes[COUNT];
	uint64_t state = seed_thread(seed_start(), 0), bytes = 0;
	bool right = true;

	for (int i = 0; i < 200000; i++) {
		uint64_t at = seed_below(&state, COUNT), pointer = 0x100000 + at * 512;

		if (sizes[at]) {
			right &= !take(3, pointer) && size == sizes[at];
			bytes -= sizes[at];
			sizes[at] = 0;
		} else {
			sizes[at] = 1 + seed_below(&state, 1 << 20);
			bytes += sizes[at];
			right &= !give(3, pointer, sizes[at]);
		}
		right &= live.bytes[3] == bytes && live.used <= COUNT + 2;
	}
	ok(right, "200000 blocks at random keep their sizes, in 5000 entries");
}

int main(void)
{
	tap_plan(17);
	test_rows();
	test_idle();
	test_random();
	trace_live_fini(&live);
	return tap_done();
}
