/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a trace is made of, for those who draw it: blocks by size and by how long they live,
 * streams, and what was live when most was, in sums and classes, so that their size does not grow
 * with the number of events. Two walks over the events, the second up to the peak; then the driver
 * calls of each pass and the timeline. The names are a promise: members may be added.
 */
#include "tool/replay.h"

#include "base/json.h"

#include <errno.h>
#include <stdlib.h>

#define SIZES	   64 /* classes: from a power of two to the next */
#define AGES	   11 /* classes: tenfold from 10 us on, then longer, then not freed */
#define AGE_LONGER 9
#define AGE_NEVER  10

struct size {
	uint64_t blocks, bytes;
	uint64_t at_peak;   /* bytes live when most was live */
	uint64_t age[AGES]; /* blocks */
};

struct stream {
	uint64_t id, allocations, frees, bytes;
	uint64_t live, peak, at_peak; /* of what was allocated on it */
};

/* Where each block was born; it counts as never freed until it is. */
struct birth {
	uint32_t event;
	uint16_t stream;
};

struct contents {
	const struct trace *trace;
	struct size size[SIZES];
	struct stream *streams; /* most bytes first */
	struct birth *births;
	size_t peak_event;
	uint64_t largest;
};

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

/* Where an event lies on the axis of time, which counts events if all times are the same. */
static uint64_t at(const struct trace *trace, size_t event)
{
	return trace->job_us ? (uint64_t)trace->times_us[event] : event;
}

static unsigned age_of(const struct trace *trace, size_t born, size_t died)
{
	uint64_t age = at(trace, died) - at(trace, born), limit = 10;
	unsigned class = 0;

	for (; class < AGE_LONGER && age >= limit; limit *= 10)
		class ++;
	return class;
}

static void take_allocation(struct contents *contents, size_t i)
{
	const struct trace_event *event = &contents->trace->events[i];
	struct size *size = &contents->size[class_of(event->size)];
	struct stream *stream = &contents->streams[event->stream];

	contents->births[event->block] = (struct birth){(uint32_t)i, event->stream};
	size->blocks++;
	add_up(&size->bytes, event->size);
	size->age[AGE_NEVER]++;
	stream->allocations++;
	add_up(&stream->bytes, event->size);
	stream->live += event->size;
	if (stream->live > stream->peak)
		stream->peak = stream->live;
	if (event->size > contents->largest)
		contents->largest = event->size;
}

static void take_free(struct contents *contents, size_t i)
{
	const struct trace_event *event = &contents->trace->events[i];
	const struct birth *birth = &contents->births[event->block & ~TRACE_FREE_BIT];
	struct size *size = &contents->size[class_of(event->size)];

	size->age[AGE_NEVER]--;
	size->age[age_of(contents->trace, birth->event, i)]++;
	contents->streams[event->stream].frees++;
	contents->streams[birth->stream].live -= event->size;
}

static void walk(struct contents *contents)
{
	const struct trace *trace = contents->trace;
	uint64_t live = 0, most = 0;

	for (size_t i = 0; i < trace->count; i++) {
		if (trace->events[i].block & TRACE_FREE_BIT) {
			take_free(contents, i);
			live -= trace->events[i].size;
			continue;
		}
		take_allocation(contents, i);
		live += trace->events[i].size;
		if (live > most) {
			most = live;
			contents->peak_event = i;
		}
	}
}

static void walk_to_peak(struct contents *contents)
{
	for (size_t i = 0; i <= contents->peak_event; i++) {
		const struct trace_event *event = &contents->trace->events[i];
		const struct birth *birth =
			&contents->births[event->block & ~TRACE_FREE_BIT];
		uint64_t *size = &contents->size[class_of(event->size)].at_peak;
		uint64_t *stream = &contents->streams[birth->stream].at_peak;

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
	const struct stream *x = a, *y = b;

	if (x->bytes != y->bytes)
		return x->bytes > y->bytes ? -1 : 1;
	return x->id < y->id ? -1 : x->id > y->id;
}

static void add_sizes(struct glk_json *json, const struct contents *contents)
{
	glk_json_key(json, "sizes");
	glk_json_array(json);
	for (unsigned i = 0; i < SIZES; i++) {
		const struct size *size = &contents->size[i];

		if (!size->blocks)
			continue;
		glk_json_object(json);
		glk_json_add_uint(json, "from", UINT64_C(1) << i);
		glk_json_add_uint(json, "blocks", size->blocks);
		glk_json_add_uint(json, "bytes", size->bytes);
		glk_json_add_uint(json, "bytes_at_peak", size->at_peak);
		glk_json_key(json, "lifetimes");
		glk_json_array(json);
		for (unsigned age = 0; age < AGES; age++)
			glk_json_uint(json, size->age[age]);
		glk_json_end(json);
		glk_json_end(json);
	}
	glk_json_end(json);
}

static void add_streams(struct glk_json *json, const struct contents *contents)
{
	char text[24];

	glk_json_key(json, "per_stream");
	glk_json_array(json);
	for (size_t i = 0; i < contents->trace->streams; i++) {
		const struct stream *stream = &contents->streams[i];

		snprintf(text, sizeof(text), "0x%llx", (unsigned long long)stream->id);
		glk_json_object(json);
		glk_json_add_text(json, "stream", text);
		glk_json_add_uint(json, "allocations", stream->allocations);
		glk_json_add_uint(json, "frees", stream->frees);
		glk_json_add_uint(json, "bytes", stream->bytes);
		glk_json_add_uint(json, "peak_live_bytes", stream->peak);
		glk_json_add_uint(json, "bytes_at_peak", stream->at_peak);
		glk_json_end(json);
	}
	glk_json_end(json);
}

/* Calls and ns of each kind of call, of each pass. */
static void add_calls(struct glk_json *json, const struct replay_result *result)
{
	glk_json_key(json, "driver");
	glk_json_array(json);
	for (size_t i = 0; i < result->repeats; i++) {
		const struct glake_driver_stats *driver = &result->repeat[i].driver;

		glk_json_object(json);
		for (int call = 0; call < GLAKE_CALL_COUNT; call++) {
			glk_json_key(json, glake_call_name(call));
			glk_json_array(json);
			glk_json_uint(json, driver->calls[call]);
			glk_json_uint(json, (uint64_t)driver->ns[call]);
			glk_json_end(json);
		}
		glk_json_end(json);
	}
	glk_json_end(json);
}

static void add_list(struct glk_json *json, const struct replay_result *result,
	const char *name, int which)
{
	glk_json_key(json, name);
	glk_json_array(json);
	for (size_t i = 0; i < result->samples; i++) {
		const struct replay_sample *sample = &result->sample[i];

		glk_json_uint(json,
			which == 0	     ? at(result->trace, sample->event)
				: which == 1 ? sample->live
					     : sample->reserved);
	}
	glk_json_end(json);
}

static void add_timeline(struct glk_json *json, const struct replay_result *result)
{
	const struct trace *trace = result->trace;
	uint64_t end = at(trace, trace->count - 1);

	glk_json_key(json, "timeline");
	glk_json_object(json);
	glk_json_add_text(json, "unit", trace->job_us ? "us" : "events");
	glk_json_add_uint(json, "end", end ? end : 1);
	add_list(json, result, "at", 0);
	add_list(json, result, "live", 1);
	add_list(json, result, "reserved", 2);
	glk_json_end(json);
}

static void add_contents(
	struct glk_json *json, const struct contents *contents, const char *target)
{
	const struct trace *trace = contents->trace;

	glk_json_add_text(json, "program", trace->header.program);
	glk_json_add_uint(json, "allocations", trace->blocks);
	glk_json_add_uint(json, "threads", trace->threads);
	glk_json_add_uint(json, "dropped", trace->dropped);
	glk_json_add_uint(json, "largest_bytes", contents->largest);
	glk_json_add_text(json, "target", target);
	add_sizes(json, contents);
	add_streams(json, contents);
}

int replay_add_contents(struct glk_json *json, const struct replay_result *result)
{
	const struct trace *trace = result->trace;
	struct contents *contents = calloc(1, sizeof(*contents));
	int err = -ENOMEM;

	if (!contents)
		return err;
	contents->trace = trace;
	contents->births = calloc(trace->blocks + 1, sizeof(*contents->births));
	contents->streams = calloc(trace->streams, sizeof(*contents->streams));
	if (contents->births && contents->streams) {
		for (size_t i = 0; i < trace->streams; i++)
			contents->streams[i].id = trace->stream_ids[i];
		walk(contents);
		walk_to_peak(contents);
		qsort(contents->streams, trace->streams, sizeof(*contents->streams),
			more_bytes);
		glk_json_key(json, "contents");
		glk_json_object(json);
		add_contents(json, contents, result->target.text);
		add_calls(json, result);
		add_timeline(json, result);
		glk_json_end(json);
		err = 0;
	}
	free(contents->streams);
	free(contents->births);
	free(contents);
	return err;
}
