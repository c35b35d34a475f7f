/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Snapshots of PyTorch's allocator as traces. Python reads them, as pickles or as JSON: the package's
 * module unpickled, started with the file as its standard input, writes the rows of a trace in the
 * order of their times, each with its GPU, and at last how many events it has read, or a sentence on
 * what is wrong. What it writes is checked as any other trace.
 */
#include "tool/trace.h"

#include "tool/tool.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROGRESS_STEP 65536

/* What a record is, as glake/unpickled.py has it. */
enum {
	ALLOCATE,
	FREE,
	FAILURE,
	OPENED, /* an allocation of a block that was live before the first event */
	BEGIN,	/* the time of the first event */
	END,	/* `pointer` events were read, `size` of them skipped */
	WRONG,	/* a sentence of `size` bytes comes behind */
};

struct record {
	int64_t time_us;
	uint64_t pointer, size, stream, number;
	uint32_t kind, gpu;
};

bool trace_pickle_is(const char *bytes, size_t size)
{
	size_t at = 0;

	if (size > 1 && bytes[0] == '\x80')
		return true;
	while (at < size && strchr(" \t\r\n", bytes[at]) && bytes[at])
		at++;
	return at < size && (bytes[at] == '{' || bytes[at] == '[');
}

/* 0, or -EINVAL with a sentence. */
static int take_wrong(FILE *file, uint64_t length, char *message, size_t size)
{
	char text[256];
	size_t most = length < sizeof(text) - 1 ? (size_t)length : sizeof(text) - 1;
	size_t got = fread(text, 1, most, file);

	text[got] = '\0';
	for (char *at = text; *at; at++)
		if ((unsigned char)*at < ' ' || *at == 0x7f)
			*at = '?';
	return trace_fail(message, size, -EINVAL, "%s", text);
}

static int show(struct trace_reading *reading, const struct record *record, char *message,
	size_t size)
{
	struct trace_row row = {.time_us = record->time_us,
		.action = record->kind == FREE	  ? TRACE_FREE
			: record->kind == FAILURE ? TRACE_FAILURE
						  : TRACE_ALLOCATE,
		.pointer = record->pointer,
		.size = record->size,
		.stream = record->stream,
		.device = (uint8_t)record->gpu};
	char what[TRACE_MESSAGE_MAX];
	int err = trace_show_row(reading, &row, what, sizeof(what));

	reading->opened += record->kind == OPENED;
	if (err == -EINVAL && reading->lenient) {
		reading->skipped++;
		return 0;
	}
	if (err)
		snprintf(message, size, "event %llu: %s",
			(unsigned long long)record->number, what);
	return err;
}

static int take_records(
	FILE *file, struct trace_reading *reading, char *message, size_t size)
{
	struct record record;
	size_t count = 0;
	int err = 0;

	while (!err && fread(&record, sizeof(record), 1, file) == 1) {
		if (!(++count % PROGRESS_STEP))
			progress_step(count, 0);
		if (record.kind == WRONG)
			return take_wrong(file, record.size, message, size);
		if (record.kind == END) {
			reading->rows = (size_t)record.pointer;
			reading->skipped += (size_t)record.size;
			return 0;
		}
		if (record.kind == BEGIN)
			reading->header.start_realtime_ns =
				record.time_us <= INT64_MAX / 1000 ? record.time_us * 1000
								   : 0;
		else
			err = show(reading, &record, message, size);
	}
	/* it has said why, on standard error */
	if (!err)
		snprintf(message, size,
			"Python, which reads snapshots for glakectl, has ended before it "
			"was through");
	return err ? err : -EINVAL;
}

int trace_pickle_read(int fd, struct trace_reading *reading, char *message, size_t size)
{
	pid_t pid;
	FILE *file;
	int out,
		err = glk_tool_run_python("glake.unpickled",
			reading->lenient ? "lenient" : "", fd, &pid, &out);

	reading->is_snapshot = true;
	if (err) {
		snprintf(message, size,
			"a snapshot of PyTorch, for which Python is needed: python3 "
			"cannot be run: %s",
			strerror(-err));
		return err;
	}
	file = fdopen(out, "r");
	if (file) {
		err = take_records(file, reading, message, size);
		fclose(file);
	} else {
		err = -ENOMEM;
		snprintf(message, size, "%s", strerror(ENOMEM));
		close(out);
	}
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return err;
}
