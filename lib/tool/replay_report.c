/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a replay reports: what it needed first, then what it cost, repeat by repeat. The first repeat
 * starts with nothing and maps what the job needs; the later ones are the steady state and should
 * need no driver call. The names are a promise: members may be added behind those that are there, none
 * goes or changes its meaning.
 */
#include "tool/replay.h"

#include "base/json.h"

/* Kinds of driver calls that are shown, in this order. */
static const int shown_calls[] = {GLAKE_CALL_CREATE, GLAKE_CALL_MAP,
	GLAKE_CALL_SET_ACCESS, GLAKE_CALL_UNMAP, GLAKE_CALL_RELEASE,
	GLAKE_CALL_EVENT_RECORD, GLAKE_CALL_EVENT_QUERY, GLAKE_CALL_STREAM_WAIT,
	GLAKE_CALL_SYNC};

static void add_latency(
	struct glk_json *json, const char *key, const struct latency_figures *figures)
{
	glk_json_key(json, key);
	glk_json_object(json);
	glk_json_add_figure(json, "mean", figures->mean, 5);
	glk_json_add_uint(json, "p50", figures->p50);
	glk_json_add_uint(json, "p99", figures->p99);
	glk_json_add_uint(json, "p999", figures->p999);
	glk_json_add_uint(json, "max", figures->max);
	glk_json_end(json);
}

/* Members of one pass, into an open object. */
static void add_pass(struct glk_json *json, const struct replay_result *result,
	const struct replay_repeat *repeat)
{
	glk_json_add_figure(json, "wall_s", (double)repeat->wall_ns / 1e9, 6);
	glk_json_add_figure(json, "driver_ms", (double)repeat->driver.now_ns / 1e6, 9);
	glk_json_key(json, "driver_calls");
	glk_json_object(json);
	for (size_t i = 0; i < sizeof(shown_calls) / sizeof(shown_calls[0]); i++)
		glk_json_add_uint(json, glake_call_name(shown_calls[i]),
			repeat->driver.calls[shown_calls[i]]);
	glk_json_end(json);
	add_latency(json, "malloc_ns", &repeat->malloc_ns);
	add_latency(json, "free_ns", &repeat->free_ns);
	glk_json_add_uint(json, "hits", repeat->hits);
	glk_json_add_uint(json, "misses", repeat->misses);
	glk_json_add_uint(json, "oom", repeat->oom);
	glk_json_add_uint(json, "failed", repeat->failed);
	glk_json_add_uint(json, "called", repeat->called);
	glk_json_key(json, "hold_ns");
	glk_json_object(json);
	glk_json_add_uint(json, "max", (uint64_t)repeat->hold_ns);
	glk_json_add_text(json, "clock", result->hold_clock.text);
	glk_json_end(json);
	if (result->trace->job_us)
		glk_json_add_figure(json, "of_job_percent",
			(double)repeat->driver.now_ns / (double)result->trace->job_us /
				10,
			4);
}

static void add_repeats(struct glk_json *json, const struct replay_result *result)
{
	glk_json_key(json, "repeats");
	glk_json_array(json);
	for (size_t i = 0; i < result->repeats; i++) {
		glk_json_object(json);
		add_pass(json, result, &result->repeat[i]);
		glk_json_end(json);
	}
	glk_json_end(json);
}

static void add_ladder(struct glk_json *json, const struct replay_result *result)
{
	glk_json_key(json, "ladder");
	glk_json_object(json);
	for (int i = 0; i < GLAKE_RUNG_COUNT; i++)
		glk_json_add_uint(json, glake_rung_name(i), result->rungs[i]);
	glk_json_end(json);
}

static void add_pressure(struct glk_json *json, const struct replay_result *result)
{
	const struct replay_squeeze *smallest = NULL;

	glk_json_key(json, "pressure");
	glk_json_object(json);
	glk_json_key(json, "steps");
	glk_json_array(json);
	for (size_t i = 0; i < result->squeezes; i++) {
		const struct replay_squeeze *step = &result->squeeze[i];

		glk_json_object(json);
		glk_json_add_figure(json, "ratio", step->ratio, 4);
		glk_json_add_uint(json, "budget_bytes", step->budget);
		glk_json_add_bool(json, "ok", !step->repeat.failed);
		add_pass(json, result, &step->repeat);
		glk_json_end(json);
		if (!step->repeat.failed)
			smallest = step;
	}
	glk_json_end(json);
	glk_json_key(json, "smallest_ratio");
	if (smallest)
		glk_json_figure(json, smallest->ratio, 4);
	else
		glk_json_null(json);
	glk_json_end(json);
}

static void add_budget(struct glk_json *json, const struct replay_result *result)
{
	glk_json_key(json, "budget_bytes");
	if (result->budget == UINT64_MAX)
		glk_json_null(json);
	else
		glk_json_uint(json, result->budget);
}

int replay_add(struct glk_json *json, const struct replay_result *result)
{
	const struct trace *trace = result->trace;
	int err = 0;

	glk_json_object(json);
	glk_json_add_text(json, "trace", trace->name);
	glk_json_add_text(json, "driver", result->backend);
	glk_json_add_uint(json, "events", trace->count);
	glk_json_add_uint(json, "peak_live_bytes", trace->peak_live);
	glk_json_add_uint(json, "peak_reserved_bytes", result->peak_reserved);
	glk_json_add_figure(json, "reserved_over_live",
		(double)result->peak_reserved / (double)trace->peak_live, 6);
	glk_json_add_figure(json, "job_s", (double)trace->job_us / 1e6, 9);
	add_repeats(json, result);
	add_ladder(json, result);
	glk_json_add_bool(json, "ok", result->ok);

	glk_json_add_uint(json, "rows", trace->rows);
	glk_json_add_uint(json, "skipped", trace->skipped);
	glk_json_add_uint(json, "noops", trace->noops);
	glk_json_add_bool(json, "cut_off", trace->broken);
	glk_json_add_uint(json, "streams", trace->streams);
	glk_json_add_uint(json, "threads", result->threads);
	add_budget(json, result);
	glk_json_add_uint(json, "peak_host_bytes", result->peak_host);
	glk_json_add_uint(json, "lost_bytes", result->lost);
	glk_json_add_uint(json, "leaked_blocks", result->leaked);
	if (result->options->pressure)
		add_pressure(json, result);
	if (result->options->working_set)
		glk_json_add_uint(
			json, "working_set_bytes", result->options->working_set);
	if (!result->ok)
		glk_json_add_text(json, "failure", result->failure);
	if (result->options->contents)
		err = replay_add_contents(json, result);
	glk_json_end(json);
	return err;
}
