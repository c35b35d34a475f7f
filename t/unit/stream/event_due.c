/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Events that are recorded before anybody asks, and what a wait is for. */
#include "gpu.h"

#define MUCH (UINT64_C(1) << 30) /* bytes */

/*
 * Much that two streams used was freed: an event tells of it, and who waits for that does not wait for what
 * they are given afterwards.
 */
static void is_due(void)
{
	struct glk_stream *a, *b, *c;
	struct glk_use use, late, first;
	struct gpu gpu;

	gpu_open(&gpu);
	a = gpu_stream(&gpu);
	b = gpu_stream(&gpu);
	c = gpu_stream(&gpu);
	first = use = gpu_free(&gpu, a);
	ok(!glk_event_record_due(&gpu.streams, 0), "nothing is due");
	glk_event_due(&gpu.streams, glk_stream_mask(a), 1023);
	ok(!glk_event_record_due(&gpu.streams, 1 << 20), "too little was freed");
	is_int(gpu.streams.records, 0, "no event");
	is_int(glk_clock_waits(&gpu.streams, &use, b), 1 + GLK_WAITS_LATE,
		"who has it waits for all");
	glk_event_due(&gpu.streams, glk_stream_mask(b), 1);
	ok(glk_event_record_due(&gpu.streams, 1 << 20), "a part of 1024 is enough");
	is_int(gpu.streams.records, 1, "an event on the one that was given something");
	ok(!glk_event_record_due(&gpu.streams, 0), "nothing is due any more");
	late = gpu_free(&gpu, a);
	is_int(glk_clock_waits(&gpu.streams, &use, b), 1, "who has it waits for that");
	is_int(glk_clock_waits(&gpu.streams, &late, b), 1 + GLK_WAITS_LATE,
		"what is freed later is behind all");
	is_int(glk_clock_order(&gpu.streams, &use, b), 0, "a wait");
	is_int(gpu.streams.records, 1, "for the event that there is");
	is_int(glk_soft_step(gpu.drv, 0, a->handle), 0, "which passes");
	ok(glk_event_ask_few(&gpu.streams), "that is found out");
	ok(glk_clock_finished(&gpu.streams, &first), "what was freed has finished");
	for (int i = 0; i < 2 * GLK_STREAM_EVENTS; i++) {
		late = gpu_free(&gpu, a);
		glk_event_due(&gpu.streams, glk_stream_mask(a), 1 << 20);
		glk_event_record_due(&gpu.streams, 1 << 20);
		glk_soft_step(gpu.drv, 0, a->handle);
	}
	is_int(glk_clock_waits(&gpu.streams, &late, c), 1,
		"a full ring makes room by what has passed");
	ok(a->done > first.tick, "which was found out");
	gpu_close(&gpu);
}

/* None is recorded where it would decide nothing, or may not be. */
static void is_not_due(void)
{
	struct glk_stream *a, *b;
	struct glk_use use;
	struct gpu gpu;

	gpu_open(&gpu);
	a = gpu_stream(&gpu);
	b = gpu_stream(&gpu);
	use = gpu_free(&gpu, a);
	glk_event_due(&gpu.streams,
		glk_stream_mask(a) | GLK_USE_CROWD | UINT64_C(1) << 40, MUCH);
	a->announced = 1;
	ok(!glk_event_record_due(&gpu.streams, 0), "not on a stream that may capture");
	a->announced = 0;
	gpu.streams.opportunistic = false;
	glk_event_due(&gpu.streams, glk_stream_mask(a), MUCH);
	ok(!glk_event_record_due(&gpu.streams, 0),
		"nor where what has passed decides nothing");
	is_int(glk_clock_waits(&gpu.streams, &use, b), 1,
		"there no wait is later than others");
	is_int(gpu.streams.records, 0, "no event");
	gpu.streams.opportunistic = true;
	gpu_close(&gpu);
}

int main(void)
{
	tap_plan_later();
	is_due();
	is_not_due();
	return tap_done();
}
