/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a trace is made of: blocks by size and by how long they live, streams, and what was live
 * when most was. Two walks over the events, the second up to the peak.
 */
#include "tool/report.h"

#include <errno.h>
#include <stdlib.h>

/* A sum over a whole job may be more than 64 bits hold. */
static void add_up(uint64_t *sum, uint64_t value)
{
	if (__builtin_add_overflow(*sum, value, sum))
		*sum = UINT64_MAX;
}

static unsigned class_of(uint64_t size)
{
	return 63 - (unsigned)__builtin_clzll(size | 1);
}

double report_at(const struct report *report, size_t event)
{
	return report->by_event ? (double)event : (double)report->trace.times_us[event];
}

double report_end(const struct report *report)
{
	double end = report_at(report, report->trace.count - 1);

	return end > 0 ? end : 1;
}

double report_ratio(const struct report *report, uint64_t bytes)
{
	/* no trace is taken that has a block of no bytes */
	return (double)bytes / (double)report->trace.peak_live;
}

static unsigned age_of(const struct report *report, size_t born, size_t died)
{
	double age = report_at(report, died) - report_at(report, born), limit = 10;
	unsigned class = 0;

	for (; class < REPORT_AGE_LONGER && age >= limit; limit *= 10)
		class ++;
	return class;
}

/* Where each block was born; it counts as never freed until it is. */
struct birth {
	uint32_t event;
	uint16_t stream;
};

static void take_allocation(struct report *report, size_t at, struct birth *birth)
{
	const struct trace_event *event = &report->trace.events[at];
	struct report_size *size = &report->size[class_of(event->size)];
	struct report_stream *stream = &report->streams[event->stream];

	*birth = (struct birth){(uint32_t)at, event->stream};
	size->blocks++;
	add_up(&size->bytes, event->size);
	size->age[REPORT_AGE_NEVER]++;
	stream->allocations++;
	add_up(&stream->bytes, event->size);
	stream->live += event->size;
	if (stream->live > stream->peak)
		stream->peak = stream->live;
	if (event->size > report->largest)
		report->largest = event->size;
}

static void take_free(struct report *report, size_t at, const struct birth *birth)
{
	const struct trace_event *event = &report->trace.events[at];
	struct report_size *size = &report->size[class_of(event->size)];

	size->age[REPORT_AGE_NEVER]--;
	size->age[age_of(report, birth->event, at)]++;
	report->streams[event->stream].frees++;
	report->streams[birth->stream].live -= event->size;
}

static void walk(struct report *report, struct birth *births)
{
	const struct trace *trace = &report->trace;
	uint64_t live = 0, most = 0;

	for (size_t i = 0; i < trace->count; i++) {
		const struct trace_event *event = &trace->events[i];

		if (event->block & TRACE_FREE_BIT) {
			take_free(report, i, &births[event->block & ~TRACE_FREE_BIT]);
			live -= event->size;
			continue;
		}
		take_allocation(report, i, &births[event->block]);
		live += event->size;
		if (live > most) {
			most = live;
			report->peak_event = i;
		}
	}
}

static void walk_to_peak(struct report *report, const struct birth *births)
{
	for (size_t i = 0; i <= report->peak_event; i++) {
		const struct trace_event *event = &report->trace.events[i];
		const struct birth *birth = &births[event->block & ~TRACE_FREE_BIT];
		uint64_t *size = &report->size[class_of(event->size)].at_peak;
		uint64_t *stream = &report->streams[birth->stream].at_peak;

		if (event->block & TRACE_FREE_BIT) {
			*size -= event->size;
			*stream -= event->size;
		} else {
			*size += event->size;
			*stream += event->size;
		}
	}
}

static int more_bytes(const void *a, const void *b)
{
	const struct report_stream *x = a, *y = b;

	if (x->bytes != y->bytes)
		return x->bytes > y->bytes ? -1 : 1;
	return x->id < y->id ? -1 : x->id > y->id;
}

int report_sum_up(struct report *report)
{
	const struct trace *trace = &report->trace;
	struct birth *births = calloc(trace->blocks + 1, sizeof(*births));

	report->by_event = !trace->job_us;
	report->streams = calloc(trace->streams, sizeof(*report->streams));
	if (!births || !report->streams) {
		free(births);
		return -ENOMEM;
	}
	for (size_t i = 0; i < trace->streams; i++)
		report->streams[i].id = trace->stream_ids[i];
	walk(report, births);
	walk_to_peak(report, births);
	free(births);
	qsort(report->streams, trace->streams, sizeof(*report->streams), more_bytes);
	return 0;
}

void report_fini(struct report *report)
{
	replay_result_fini(&report->result);
	trace_fini(&report->trace);
	free(report->streams);
	report->streams = NULL;
}
