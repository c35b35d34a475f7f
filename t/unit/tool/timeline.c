/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The events that are looked at: few, in order, with the peak and the end among them. */
#include "t/tap.h"
#include "tool/replay.h"

#define EVENTS 10000
#define BLOCKS (EVENTS / 2)

static struct trace_event events[EVENTS];
static int64_t times[EVENTS];
static struct replay_sample samples[REPLAY_SAMPLES_MAX];

/* Blocks of growing size up to the middle, then their frees; all in the last tenth of time. */
static struct trace mountain(void)
{
	for (uint32_t i = 0; i < EVENTS; i++) {
		bool up = i < BLOCKS;

		events[i] = (struct trace_event){
			.block = up ? i : (EVENTS - 1 - i) | TRACE_FREE_BIT,
			.size = up ? i + 1 : EVENTS - i,
		};
		times[i] = i ? 9 * EVENTS + i : 0;
	}
	return (struct trace){.count = EVENTS,
		.events = events,
		.times_us = times,
		.blocks = BLOCKS,
		.job_us = times[EVENTS - 1]};
}

static void test(const struct trace *trace, size_t max, const char *what)
{
	size_t count = replay_choose_samples(trace, samples, max);
	size_t wrong = 0, peak = 0;

	tap_note("%s: %zu samples", what, count);
	ok(count >= 1 && count <= max, "as many as asked for at most");
	for (size_t i = 0; i < count; i++) {
		wrong += i && samples[i].event <= samples[i - 1].event;
		peak += samples[i].event == BLOCKS - 1;
	}
	is_int(wrong, 0, "in the order of the trace");
	is_int(peak, 1, "the peak is there");
	is_int(samples[count - 1].event, trace->count - 1, "so is the end");
}

int main(void)
{
	struct trace trace = mountain();

	tap_plan(14);
	test(&trace, REPLAY_SAMPLES_MAX, "slices of time");
	test(&trace, 2, "a single slice");
	trace.job_us = 0;
	test(&trace, REPLAY_SAMPLES_MAX, "a trace without times");
	trace.count = 1;
	is_int(replay_choose_samples(&trace, samples, REPLAY_SAMPLES_MAX), 1,
		"one event");
	is_int(samples[0].event, 0, "is looked at");
	return tap_done();
}
