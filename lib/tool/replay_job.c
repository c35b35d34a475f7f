/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One trace from open to close: a context of its own, its budget, the repeats, and, if asked
 * for, the squeeze: further repeats under a budget that shrinks step by step until a request
 * fails, which shows how little memory the job could have run in.
 *
 * A result is "ok" only if every request was served (those of the squeeze apart, which are
 * meant to fail in the end), every free taken, and the library gave everything back.
 */
#include "tool/replay.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SQUEEZE_FIRST 1.05
#define SQUEEZE_STEP  0.005

static void fail(struct replay_result *result, const char *what)
{
	result->ok = false;
	if (!result->failure[0])
		snprintf(result->failure, sizeof(result->failure), "%s", what);
}

/* Where the figures of a repeat go; NULL: nobody wants them. */
static struct replay_sample *samples_of(struct replay_result *result, unsigned repeat)
{
	if (!repeat)
		return result->sample;
	return result->options->timeline && repeat + 1 == result->options->repeats
		? result->last
		: NULL;
}

static int repeat(struct replay_result *result, struct replay_run *run)
{
	const struct replay_options *options = result->options;
	char label[320];
	int err = 0;

	for (unsigned i = 0; i < options->repeats && !err; i++) {
		char failure[TRACE_MESSAGE_MAX] = "";

		snprintf(label, sizeof(label), "%s, repeat %u of %u", result->trace->name,
			i + 1, options->repeats);
		progress_next(label);
		err = replay_run_pass(run, samples_of(result, i), result->samples,
			failure, sizeof(failure), &result->repeat[i]);
		if (err)
			break;
		result->repeats++;
		if (failure[0])
			fail(result, failure);
		if (result->repeat[i].oom && !failure[0])
			fail(result, "the library counts requests as out of memory");
	}
	return err;
}

/* Keeps what the repeats have shown, before the squeeze disturbs it. */
static int keep_figures(struct replay_result *result, struct glake *ctx)
{
	struct glake_stats stats = {.sz = sizeof(stats)};
	int err = glake_stats_get(ctx, 0, &stats);

	if (err)
		return err;
	result->budget = stats.budget;
	for (size_t i = 0; i < result->repeats; i++) {
		if (result->peak_reserved < result->repeat[i].peak_reserved)
			result->peak_reserved = result->repeat[i].peak_reserved;
		if (result->peak_host < result->repeat[i].peak_host)
			result->peak_host = result->repeat[i].peak_host;
	}
	memcpy(result->rungs, stats.rungs, sizeof(result->rungs));
	return 0;
}

static int squeeze_once(struct replay_result *result, struct glake *ctx,
	struct replay_run *run, struct replay_squeeze *squeeze, char *failure,
	size_t size)
{
	size_t released;
	int err;

	squeeze->budget = (uint64_t)(squeeze->ratio * (double)result->trace->peak_live);
	err = glake_budget_set(ctx, 0, squeeze->budget);
	if (!err)
		err = glake_trim(ctx, 0, squeeze->budget, &released);
	if (!err)
		err = replay_run_pass(run, NULL, 0, failure, size, &squeeze->repeat);
	return err;
}

static int squeeze(
	struct replay_result *result, struct glake *ctx, struct replay_run *run)
{
	int err = 0;

	for (int i = 0; i < REPLAY_SQUEEZES_MAX && !err; i++) {
		struct replay_squeeze *step = &result->squeeze[i];
		char failure[TRACE_MESSAGE_MAX] = "";
		char label[320];

		step->ratio = SQUEEZE_FIRST - SQUEEZE_STEP * i;
		snprintf(label, sizeof(label), "%s, budget x%.3f", result->trace->name,
			step->ratio);
		progress_next(label);
		err = squeeze_once(result, ctx, run, step, failure, sizeof(failure));
		if (err)
			break;
		result->squeezes++;
		if (step->repeat.refused || (!i && step->repeat.failed))
			fail(result, failure);
		if (step->repeat.failed)
			break;
	}
	return err;
}

/*
 * Where to look during a pass. Looking after every event would cost more than the events, so
 * the job's time is cut into slices and each is looked at twice: where the trace has the most
 * live memory in it, since peaks decide how much must be reserved, and after its last event,
 * which is how things stay until something happens again.
 */

static size_t slice_of(const struct trace *trace, size_t event, size_t slices)
{
	double share = trace->job_us
		? (double)trace->times_us[event] / ((double)trace->job_us + 1)
		: (double)event / (double)trace->count;

	return (size_t)(share * (double)slices);
}

/* In order; all figures 0. */
static size_t replay_choose_samples(
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

static int run_all(struct replay_result *result, struct glake *ctx)
{
	const struct replay_options *options = result->options;
	const struct replay_limit *limit = &options->limit;
	uint64_t budget = limit->ratio > 0
		? (uint64_t)(limit->ratio * (double)result->trace->peak_live)
		: limit->bytes;
	struct replay_run *run = NULL;
	int err = 0, end;

	if (budget)
		err = glake_budget_set(ctx, 0, budget);
	if (!err)
		err = replay_run_new(ctx, result->trace, options, &run);
	if (!err) {
		result->threads = replay_run_threads(run);
		err = repeat(result, run);
	}
	if (!err)
		err = keep_figures(result, ctx);
	if (!err && options->pressure)
		err = squeeze(result, ctx, run);
	end = replay_run_free(run);
	return err ? err : end;
}

static void close_context(struct replay_result *result, struct glake *ctx)
{
	struct glake_stats stats = {.sz = sizeof(stats)};
	char text[TRACE_MESSAGE_MAX];
	int err;

	if (!glake_stats_get(ctx, 0, &stats))
		result->lost = stats.lost;
	err = glake_close(ctx, &result->leaked);
	if (result->lost) {
		snprintf(text, sizeof(text), "the driver did not take back %llu bytes",
			(unsigned long long)result->lost);
		fail(result, text);
	}
	if (result->leaked) {
		snprintf(text, sizeof(text),
			"the library still held %zu blocks at the end", result->leaked);
		fail(result, text);
	}
	if (err) {
		snprintf(text, sizeof(text), "the library did not close: %s",
			strerror(-err));
		fail(result, text);
	}
}

int replay_job(const struct trace *trace, const struct replay_options *options,
	struct replay_result *ret_result)
{
	struct replay_result *result = ret_result;
	struct glake *ctx;
	int err;

	*result = (struct replay_result){.trace = trace, .options = options, .ok = true};
	result->repeat = calloc(options->repeats, sizeof(*result->repeat));
	if (!result->repeat) {
		glk_tool_say("%s: %s", trace->name, strerror(ENOMEM));
		return -ENOMEM;
	}
	result->samples = replay_choose_samples(trace, result->sample,
		options->samples ? options->samples : REPLAY_SAMPLES);
	memcpy(result->last, result->sample, result->samples * sizeof(*result->last));
	err = glk_tool_open(&options->context, &ctx);
	if (err)
		goto fail;
	result->backend = glk_tool_backend_name(ctx);
	if (options->check && strcmp(result->backend, "soft") != 0) {
		glk_tool_say(
			"--check reads blocks from the host, which only the software "
			"device allows: -d soft");
		glake_close(ctx, NULL);
		err = -EOPNOTSUPP;
		goto fail;
	}
	err = glk_tool_value(ctx, "stats", "hold_clock", &result->hold_clock);
	if (!err)
		err = glk_tool_value(ctx, "policy", "target", &result->target);
	if (!err)
		err = run_all(result, ctx);
	if (err)
		glk_tool_say_error(trace->name, err);
	close_context(result, ctx);
	if (err)
		goto fail;
	return 0;

fail:
	replay_result_fini(result);
	return err;
}

void replay_result_fini(struct replay_result *result)
{
	free(result->repeat);
	result->repeat = NULL;
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
