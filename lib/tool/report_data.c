/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The figures of a report for programs: what --json prints, and what the script of the page reads
 * to say what lies under the pointer. The names are a promise: members may be added.
 */
#include "tool/report.h"

#include "base/json.h"

#include <math.h>

static void add_trace(const struct report *report, struct glk_json *json)
{
	const struct trace *trace = &report->trace;

	glk_json_add_text(json, "trace", trace->name);
	glk_json_add_text(json, "program", trace->header.program);
	glk_json_add_uint(json, "events", trace->count);
	glk_json_add_uint(json, "allocations", trace->blocks);
	glk_json_add_uint(json, "streams", trace->streams);
	glk_json_add_uint(json, "threads", trace->threads);
	glk_json_add_figure(json, "job_s", (double)trace->job_us / 1e6, 9);
	glk_json_add_uint(json, "skipped", trace->skipped);
	glk_json_add_bool(json, "cut_off", trace->broken);
	glk_json_add_uint(json, "dropped", trace->dropped);
	glk_json_add_uint(json, "largest_bytes", report->largest);
	glk_json_add_uint(json, "peak_live_bytes", trace->peak_live);
}

static void add_replay(const struct report *report, struct glk_json *json)
{
	const struct replay_result *result = &report->result;

	glk_json_add_text(json, "driver", result->backend);
	glk_json_add_uint(json, "peak_reserved_bytes", result->peak_reserved);
	glk_json_add_figure(json, "reserved_over_live",
		report_ratio(report, result->peak_reserved), 6);
	glk_json_key(json, "passes");
	glk_json_array(json);
	for (size_t i = 0; i < result->repeats; i++) {
		const struct replay_repeat *pass = &result->repeat[i];

		glk_json_object(json);
		glk_json_add_figure(
			json, "driver_ms", (double)pass->driver.now_ns / 1e6, 9);
		glk_json_key(json, "driver_calls");
		glk_json_object(json);
		for (int call = 0; call < GLAKE_CALL_COUNT; call++)
			glk_json_add_uint(
				json, glake_call_name(call), pass->driver.calls[call]);
		glk_json_end(json);
		glk_json_add_uint(json, "hits", pass->hits);
		glk_json_add_uint(json, "misses", pass->misses);
		glk_json_add_uint(json, "failed", pass->failed);
		glk_json_end(json);
	}
	glk_json_end(json);
}

static void add_sizes(const struct report *report, struct glk_json *json)
{
	glk_json_key(json, "sizes");
	glk_json_array(json);
	for (unsigned i = 0; i < REPORT_SIZES; i++) {
		const struct report_size *size = &report->size[i];

		if (!size->blocks)
			continue;
		glk_json_object(json);
		glk_json_add_uint(json, "from", UINT64_C(1) << i);
		glk_json_add_uint(json, "blocks", size->blocks);
		glk_json_add_uint(json, "bytes", size->bytes);
		glk_json_add_uint(json, "bytes_at_peak", size->at_peak);
		glk_json_key(json, "lifetimes");
		glk_json_array(json);
		for (unsigned age = 0; age < REPORT_AGES; age++)
			glk_json_uint(json, size->age[age]);
		glk_json_end(json);
		glk_json_end(json);
	}
	glk_json_end(json);
}

static void add_streams(const struct report *report, struct glk_json *json)
{
	char text[24];

	glk_json_key(json, "per_stream");
	glk_json_array(json);
	for (size_t i = 0; i < report->trace.streams; i++) {
		const struct report_stream *stream = &report->streams[i];

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

static void add_frontier(const struct report *report, struct glk_json *json)
{
	const struct report_options *options = report->options;

	glk_json_key(json, "recorded");
	glk_json_array(json);
	for (size_t i = 0; i < options->recorded; i++) {
		const struct report_recorded *record = &options->record[i];

		glk_json_object(json);
		glk_json_add_text(json, "name", record->name);
		glk_json_add_uint(json, "reserved_bytes", record->bytes);
		glk_json_add_figure(json, "reserved_over_live",
			report_ratio(report, record->bytes), 6);
		glk_json_end(json);
	}
	glk_json_end(json);
	glk_json_key(json, "frontier");
	glk_json_array(json);
	for (size_t i = 0; i < report->points; i++) {
		const struct report_point *point = &report->point[i];

		glk_json_object(json);
		glk_json_add_figure(
			json, "target", point->target > 0 ? point->target : NAN, 6);
		glk_json_add_bool(json, "configured", point->chosen);
		glk_json_add_uint(json, "peak_reserved_bytes", point->reserved);
		glk_json_add_figure(json, "reserved_over_live",
			report_ratio(report, point->reserved), 6);
		glk_json_add_figure(json, "first_ms", point->first_ms, 9);
		glk_json_add_figure(json, "later_ms", point->later_ms, 9);
		glk_json_add_bool(json, "ok", point->ok);
		glk_json_end(json);
	}
	glk_json_end(json);
}

static void add_list(
	const struct report *report, struct glk_json *json, const char *name, int which)
{
	glk_json_key(json, name);
	glk_json_array(json);
	for (size_t i = 0; i < report->result.samples; i++) {
		const struct replay_sample *sample = &report->result.sample[i];

		if (which)
			glk_json_uint(json, which == 1 ? sample->live : sample->reserved);
		else
			glk_json_uint(json, (uint64_t)report_at(report, sample->event));
	}
	glk_json_end(json);
}

static void add_timeline(const struct report *report, struct glk_json *json)
{
	glk_json_key(json, "timeline");
	glk_json_object(json);
	glk_json_add_text(json, "unit", report->by_event ? "events" : "us");
	glk_json_add_uint(json, "end", (uint64_t)report_end(report));
	add_list(report, json, "at", 0);
	add_list(report, json, "live", 1);
	add_list(report, json, "reserved", 2);
	glk_json_end(json);
}

void report_put_data(const struct report *report, bool timeline, struct glk_json *json)
{
	glk_json_object(json);
	add_trace(report, json);
	add_replay(report, json);
	add_sizes(report, json);
	add_streams(report, json);
	add_frontier(report, json);
	if (timeline)
		add_timeline(report, json);
	glk_json_add_bool(json, "ok", report->result.ok);
	if (!report->result.ok)
		glk_json_add_text(json, "failure", report->result.failure);
	glk_json_end(json);
}
