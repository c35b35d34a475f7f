/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The sums of a report, at the ends of what may come: sizes and times up to their types' maxima. */
#include "tool/report.h"

#include "t/tap.h"

#define BLOCKS 5
#define HALF   (UINT64_C(1) << 63)

static struct trace_event events[] = {
	{.block = 0, .size = HALF},
	{.block = 0 | TRACE_FREE_BIT, .size = HALF},
	{.block = 1, .size = HALF, .stream = 1},
	{.block = 2, .size = 1},
	{.block = 1 | TRACE_FREE_BIT, .size = HALF},
	{.block = 3, .size = 511},
	{.block = 4, .size = 512},
	{.block = 2 | TRACE_FREE_BIT, .size = 1, .stream = 1},
};
static int64_t times[] = {0, 9, 10, 20, 109, 110, 120, INT64_MAX};
static uint64_t ids[] = {0, 7};

#define EVENTS (sizeof(events) / sizeof(events[0]))

static uint64_t ages_of(const struct report_size *size)
{
	uint64_t blocks = 0;

	for (unsigned i = 0; i < REPORT_AGES; i++)
		blocks += size->age[i];
	return blocks;
}

static void check_sizes(const struct report *report)
{
	const struct report_size *large = &report->size[63], *one = &report->size[0];

	is_int(large->blocks, 2, "two of the largest blocks");
	ok(large->bytes == UINT64_MAX, "whose bytes are more than 64 bits hold");
	ok(large->at_peak == HALF, "one of them at the peak");
	is_int(large->age[0], 1, "9 us are less than 10");
	is_int(large->age[1], 1, "99 us are not");
	is_int(one->age[REPORT_AGE_LONGER], 1, "a life longer than all classes");
	is_int(one->at_peak, 1, "the small one was there too");
	is_int(report->size[8].age[REPORT_AGE_NEVER], 1, "511 bytes, not freed");
	is_int(report->size[9].age[REPORT_AGE_NEVER], 1,
		"512 bytes are of the next class");
	for (unsigned i = 0; i < REPORT_SIZES; i++) {
		if (report->size[i].blocks)
			is_int(ages_of(&report->size[i]), report->size[i].blocks,
				"each block has one lifetime");
	}
}

static void check_streams(const struct report *report)
{
	const struct report_stream *first = &report->streams[0];
	const struct report_stream *second = &report->streams[1];

	is_int(first->id, 0, "most bytes first");
	is_int(first->allocations, 4, "allocations are of their stream");
	is_int(first->frees, 2, "frees of theirs");
	ok(first->peak == HALF, "its own peak");
	is_int(first->at_peak, 1, "and its part of the peak");
	is_int(second->frees, 1, "who frees a block of another stream counts");
	is_int(second->live, 0, "but its memory is the other's");
	is_int(first->live, 511 + 512, "what is left");
}

int main(void)
{
	static struct report report = {
		.trace = {.count = EVENTS,
			.events = events,
			.times_us = times,
			.blocks = BLOCKS,
			.streams = 2,
			.stream_ids = ids,
			.job_us = INT64_MAX,
			.peak_live = HALF + 1},
	};

	tap_plan(25);
	is_int(report_sum_up(&report), 0, "summed up");
	is_int(report.peak_event, 3, "the peak");
	ok(report.largest == HALF, "the largest block");
	check_sizes(&report);
	check_streams(&report);
	ok(report_end(&report) > 9e18, "the end of the job");
	free(report.streams);
	return tap_done();
}
