/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Where to look during a pass. Looking after every event would cost more than the events, so
 * the job's time is cut into slices and each is looked at twice: where the trace has the most
 * live memory in it, since peaks decide how much must be reserved, and after its last event,
 * which is how things stay until something happens again.
 */
#include "tool/replay.h"

#include <errno.h>
#include <string.h>

static size_t slice_of(const struct trace *trace, size_t event, size_t slices)
{
	double share = trace->job_us
		? (double)trace->times_us[event] / ((double)trace->job_us + 1)
		: (double)event / (double)trace->count;

	return (size_t)(share * (double)slices);
}

size_t replay_choose_samples(
	const struct trace *trace, struct replay_sample *samples, size_t max)
{
	uint64_t live = 0, highest = 0;
	size_t count = 0, slices = max / 2, slice = 0;
	uint32_t peak = 0;

	for (size_t i = 0; i < trace->count; i++) {
		const struct trace_event *event = &trace->events[i];

		if (event->block & TRACE_FREE_BIT)
			live -= event->size;
		else
			live += event->size;
		if (live >= highest) {
			highest = live;
			peak = (uint32_t)i;
		}
		if (i + 1 < trace->count && slice_of(trace, i + 1, slices) == slice)
			continue;
		samples[count++] = (struct replay_sample){.event = peak};
		if (peak != i)
			samples[count++] = (struct replay_sample){.event = (uint32_t)i};
		if (i + 1 < trace->count)
			slice = slice_of(trace, i + 1, slices);
		highest = 0;
	}
	return count;
}

/*
 * The timeline as figures, for pictures that others draw: those of the first pass, in which a
 * job takes its memory, and of the last, which shows what it holds in its steady state.
 */

static void put_pass(FILE *file, const struct replay_result *result, size_t pass,
	const struct replay_sample *samples)
{
	for (size_t i = 0; i < result->samples; i++)
		fprintf(file, "%zu,%u,%.6f,%llu,%llu\n", pass, samples[i].event,
			(double)result->trace->times_us[samples[i].event] / 1e6,
			(unsigned long long)samples[i].live,
			(unsigned long long)samples[i].reserved);
}

int replay_write_timeline(const struct replay_result *result, const char *path)
{
	FILE *file = fopen(path, "we");
	int err = 0;

	if (!file) {
		err = -errno;
	} else {
		fputs("pass,event,seconds,live,reserved\n", file);
		put_pass(file, result, 1, result->sample);
		if (result->repeats > 1)
			put_pass(file, result, result->repeats, result->last);
		if (ferror(file))
			err = -EIO;
		if (fclose(file) && !err)
			err = -errno;
	}
	if (err)
		glk_tool_say("%s: %s", path, strerror(-err));
	return err;
}
