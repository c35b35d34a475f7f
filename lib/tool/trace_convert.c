/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * glakectl trace convert: a trace of either format into one of either format. RMM's log has
 * requests, frees and failures alone, so what else our own format tells is left out there, and
 * counted. Our own into our own makes the file of a program that was killed as small as what is
 * in it.
 */
#include "tool/trace_tool.h"

#include "base/json.h"
#include "tool/tool.h"

#include <errno.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>

struct convert {
	const struct trace_tool_options *options;
	struct trace_reading reading;
	struct trace_output output;
	struct trace_writer writer;
	struct trace_live live;
	struct trace_cut cut;
	struct trace_clock clock;
	bool to_ours, begun;
	bool wants_file; /* but has no name for one */
	int64_t last_ns;
	size_t events, left_out;
};

/* The format is known with the first row. */
static int begin(struct convert *job, char *message, size_t size)
{
	const struct trace_tool_options *options = job->options;
	struct glake_trace_header header = job->reading.header;

	job->begun = true;
	if (options->format)
		job->to_ours = !strcmp(options->format, "glake");
	else /* a part stays what it is; a snapshot has no writer */
		job->to_ours = options->cuts
			? job->reading.is_ours || job->reading.is_snapshot
			: !job->reading.is_ours;
	if (!job->reading.is_ours)
		header.end_ns = GLAKE_TRACE_NEVER;
	if (job->to_ours && !job->output.path) {
		job->wants_file = true;
		return trace_fail(message, size, -ESPIPE, "a file is wanted");
	}
	/* our own format can hold them all */
	if (job->to_ours && job->reading.gpu == TRACE_ONE_GPU)
		job->reading.gpu = TRACE_ALL_GPUS;
	if (job->to_ours)
		return trace_writer_begin(
			&job->writer, job->output.file, &header, message, size);
	return trace_log_begin(job->output.file, message, size);
}

static int put(void *arg, const struct trace_row *row, int64_t ns, uint64_t bytes,
	char *message, size_t size)
{
	struct convert *job = arg;
	int err;

	if (job->to_ours)
		err = trace_writer_row(&job->writer, row, ns, message, size);
	else
		err = trace_log_row(job->output.file, row,
			job->reading.header.start_realtime_ns + job->cut.base_ns + ns,
			bytes, message, size);
	job->last_ns = ns;
	job->events += !err && row->kind != GLAKE_TRACE_THREAD;
	return err;
}

static int take_row(void *arg, const struct trace_row *row, char *message, size_t size)
{
	struct convert *job = arg;
	uint64_t bytes;
	int64_t ns;
	int err = job->begun ? 0 : begin(job, message, size);

	if (err)
		return err;
	if (trace_row_idle(row, &job->live.blocks) ||
		(row->action == TRACE_OTHER && !job->to_ours)) {
		job->left_out += row->kind != GLAKE_TRACE_THREAD;
		return 0;
	}
	err = trace_live_row(&job->live, row, message, size, &bytes);
	if (err)
		return err;
	ns = 1000 *
		(job->reading.is_ours ? row->time_us
				      : trace_clock_step(&job->clock, row->time_us));
	ns += job->reading.is_ours ? row->time_ns : 0;
	if (!job->options->cuts)
		return put(job, row, ns, bytes, message, size);
	return trace_cut_row(&job->cut, row, ns, bytes, message, size);
}

/* The header of a part tells of that part. */
static void move_header(struct convert *job, struct glake_trace_header *header)
{
	int64_t base = job->cut.base_ns;

	header->start_ns += base;
	header->start_realtime_ns += base;
	if (header->end_ns != GLAKE_TRACE_NEVER && header->end_ns > base + job->last_ns) {
		/* nothing is missing up to its end */
		header->end_ns = GLAKE_TRACE_NEVER;
		header->dropped = job->reading.header.dropped = job->reading.late = 0;
	} else if (header->end_ns != GLAKE_TRACE_NEVER) {
		header->end_ns = header->end_ns > base ? header->end_ns - base : 0;
	}
	header->closed_ns = job->last_ns;
}

static int complete(struct convert *job, char *message, size_t size)
{
	struct glake_trace_header *header = &job->writer.header;
	int err = job->options->cuts ? trace_cut_end(&job->cut, message, size) : 0;

	if (err)
		return err;
	if (!job->events)
		return trace_fail(message, size, -ENODATA, "%s: no event %s",
			job->options->file,
			job->options->cuts ? "in that part of it" : "in it to convert");
	if (!job->to_ours)
		return 0;
	if (job->options->cuts)
		move_header(job, header);
	header->dropped += job->reading.late;
	if (!job->reading.is_ours)
		header->closed_ns = job->last_ns;
	return trace_writer_end(&job->writer, message, size);
}

static void print_json(const struct convert *job)
{
	struct glk_json json;

	glk_json_init(&json, stdout, 2);
	glk_json_object(&json);
	glk_json_add_text(&json, "trace", job->options->file);
	glk_json_add_text(&json, "from", trace_format_name(&job->reading));
	glk_json_add_text(&json, "to", job->to_ours ? "glake" : "csv");
	glk_json_add_text(&json, "output", job->output.path);
	glk_json_add_uint(&json, "events", job->events);
	glk_json_add_uint(&json, "left_out", job->left_out);
	glk_json_add_uint(&json, "opened", job->cut.opened + job->reading.opened);
	if (job->options->cuts)
		glk_json_add_uint(&json, "freed", job->cut.freed);
	glk_json_add_uint(&json, "other_gpus", job->reading.others);
	glk_json_add_uint(&json, "skipped", job->reading.skipped);
	glk_json_add_bool(&json, "cut_off", job->reading.broken);
	glk_json_add_uint(
		&json, "dropped", job->reading.header.dropped + job->reading.late);
	glk_json_add_bool(&json, "ok", true);
	glk_json_end(&json);
	glk_json_fini(&json);
}

/* For people, beside a trace on standard output: what is not in it. */
static void say(const struct convert *job)
{
	const struct trace_reading *reading = &job->reading;
	uint64_t dropped = reading->header.dropped + reading->late;

	if (job->options->quiet)
		return;
	if (job->output.path)
		printf("%s: %zu events, written to %s as %s\n", job->options->file,
			job->events, job->output.path,
			job->to_ours ? "a trace of glake" : "a log of RMM");
	if (job->cut.opened + job->reading.opened)
		glk_tool_say(
			"%zu blocks that were live before are allocated where it begins",
			job->cut.opened + job->reading.opened);
	if (job->cut.freed)
		glk_tool_say("%zu blocks that were live at the end are freed there",
			job->cut.freed);
	if (job->left_out)
		glk_tool_say("%zu events are left out: they have no effect, or a log has "
			     "none such",
			job->left_out);
	if (reading->others)
		glk_tool_say("%zu events of other GPUs are left out", reading->others);
	if (reading->skipped || reading->broken)
		glk_tool_say("SKIPPED %zu of %zu rows%s", reading->skipped, reading->rows,
			reading->broken ? ", and the rest of a broken file" : "");
	if (dropped)
		glk_tool_say(
			"%llu events were not recorded", (unsigned long long)dropped);
}

static const char *command_of(const struct trace_tool_options *options)
{
	return options->cuts ? TRACE_TOOL_CUT : TRACE_TOOL_CONVERT;
}

/* What is wrong is in what was read, or with what is written. */
static void say_failed(const struct convert *job, const char *message, int err)
{
	if (!ferror(job->output.file)) {
		glk_tool_say("%s", message);
		return;
	}
	glk_tool_say("%s: %s", job->output.path ? job->output.path : "standard output",
		strerror(-err));
	if (job->output.file == stdout) { /* not once more at the end */
		__fpurge(stdout);
		clearerr(stdout);
	}
}

static int convert(struct convert *job)
{
	char message[TRACE_MESSAGE_MAX];
	int err;

	progress_start(job->options->quiet, job->options->file);
	err = trace_read(job->options->file, &job->reading, message, sizeof(message));
	if (!err)
		err = complete(job, message, sizeof(message));
	progress_end();
	if (job->wants_file)
		glk_tool_usage(command_of(job->options),
			"-o is missing: %s becomes a trace of glake's own format, which is "
			"written to a file",
			job->options->file);
	else if (err && err != -EPIPE) /* a reader that has seen enough knows */
		say_failed(job, message, err);
	return err;
}

int trace_tool_convert(const struct trace_tool_options *options)
{
	struct convert *job = calloc(1, sizeof(*job));
	int err = -ENOMEM, closed, status = GLK_TOOL_OK;

	if (!job) {
		glk_tool_say("%s", strerror(ENOMEM));
		return GLK_TOOL_FAILED;
	}
	job->options = options;
	job->reading = (struct trace_reading){.lenient = options->lenient,
		.gpu = options->gpu,
		.visit = take_row,
		.arg = job};
	job->cut = (struct trace_cut){.options = options, .put = put, .arg = job};
	err = trace_output_open(&job->output, options->output);
	if (err == -EOPNOTSUPP)
		glk_tool_usage(command_of(options),
			"-o %s: a trace is packed as .xz, .gz or .zst, or plain",
			options->output);
	else if (err)
		glk_tool_say("%s: %s", options->output, strerror(-err));
	if (err)
		goto out;
	err = convert(job);
	closed = trace_output_close(&job->output, !err);
	if (!err && closed) {
		err = closed;
		glk_tool_say("%s: %s",
			options->output ? options->output : "standard output",
			err == -ENOPKG ? "the program that packs it cannot be run"
				       : strerror(-err));
	}
	if (!err && options->json)
		print_json(job);
	else if (!err)
		say(job);
out:
	trace_writer_fini(&job->writer);
	trace_live_fini(&job->live);
	trace_cut_fini(&job->cut);
	if (job->wants_file || err == -EOPNOTSUPP)
		status = GLK_TOOL_USAGE;
	else if (err)
		status = GLK_TOOL_FAILED;
	free(job);
	return status;
}
