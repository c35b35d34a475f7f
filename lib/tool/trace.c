/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Loading a trace: bytes into rows, and what to do with rows that are wrong. Nothing of a
 * trace is replayed before the whole of it has been read, so a mistake in the last row is found
 * before the first allocation. A file of our own format, and a pickle, are told by their first
 * bytes; their rows come from trace_binary.c and trace_pickle.c.
 *
 * Every message names the file and the row, as an editor counts lines.
 */
#include "tool/trace.h"

#include "tool/tool.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The longest row that can be right has some 130 bytes. */
#define LINE_MAX_SIZE ((size_t)1024)
#define PROGRESS_STEP 65536
#define CHUNK_SIZE    ((size_t)64 << 10)

struct loader {
	const char *path;
	struct trace_reading *reading;
	char *message;
	size_t message_size;

	size_t line; /* number of the row at hand; the header is 1 */

	char text[LINE_MAX_SIZE]; /* of the row at hand, as far as it is read */
	size_t length;
	bool too_long;
	bool is_old; /* RMM before 0.14.1 named no threads */
};

static int fail(struct loader *loader, int err, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
static int fail(struct loader *loader, int err, const char *format, ...)
{
	int length = snprintf(loader->message, loader->message_size,
		"%s:%zu: ", loader->path, loader->line);
	va_list args;

	if (length < 0 || (size_t)length >= loader->message_size)
		return err;
	va_start(args, format);
	vsnprintf(loader->message + length, loader->message_size - (size_t)length, format,
		args);
	va_end(args);
	return err;
}

static int fail_file(struct loader *loader, int err, const char *what)
{
	return trace_fail(
		loader->message, loader->message_size, err, "%s: %s", loader->path, what);
}

int trace_show_row(struct trace_reading *reading, const struct trace_row *row,
	char *message, size_t size)
{
	int gpu = row->device;

	/* which thread goes on is of no GPU */
	if (row->kind == GLAKE_TRACE_THREAD || reading->gpu == TRACE_ALL_GPUS)
		return reading->visit(reading->arg, row, message, size);
	if (reading->gpu >= 0 && gpu != reading->gpu) {
		reading->others++;
		return 0;
	}
	if (reading->seen_gpu && reading->seen_gpu - 1 != gpu)
		return trace_fail(message, size, -EXDEV,
			"the trace has events of GPU %d and of GPU %d: choose one with "
			"--gpu",
			reading->seen_gpu - 1, gpu);
	reading->seen_gpu = gpu + 1;
	return reading->visit(reading->arg, row, message, size);
}

static int add_row(struct loader *loader, const char *text, size_t length)
{
	char what[TRACE_MESSAGE_MAX], whole[LINE_MAX_SIZE + 3];
	struct trace_row row;
	int err;

	if (loader->is_old) {
		length = (size_t)snprintf(
			whole, sizeof(whole), "0,%.*s", (int)length, text);
		text = whole;
	}
	err = trace_row_parse(text, length, what, sizeof(what), &row);
	if (!err)
		err = trace_show_row(loader->reading, &row, what, sizeof(what));
	return err ? fail(loader, err, "%s%s", what,
			     err == -EINVAL ? "; --lenient leaves such rows out" : "")
		   : 0;
}

static int add_line(struct loader *loader)
{
	size_t length = loader->length;
	int err;

	loader->line++;
	if (length && loader->text[length - 1] == '\r')
		length--;
	if (loader->line == 1) {
		const char *header = loader->text, *old = strchr(trace_header, ',') + 1;

		if (length >= 3 && !memcmp(header, "\xef\xbb\xbf", 3)) {
			header += 3;
			length -= 3;
		}
		loader->is_old = length == strlen(old) && !memcmp(header, old, length);
		if (loader->is_old ||
			(length == strlen(trace_header) &&
				!memcmp(header, trace_header, length)))
			return 0;
		return fail(loader, -EINVAL,
			"this is no allocation trace, which begins with the row '%s'",
			trace_header);
	}
	loader->reading->rows++;
	if (!(loader->line % PROGRESS_STEP))
		progress_step(loader->line, 0);
	if (loader->too_long)
		err = fail(loader, -EINVAL, "broken row: longer than %zu bytes",
			LINE_MAX_SIZE);
	else
		err = add_row(loader, loader->text, length);
	/* a mistake in one row, as against one in the file or the machine */
	if (err == -EINVAL && loader->reading->lenient && loader->line > 1) {
		loader->reading->skipped++;
		err = 0;
	}
	return err;
}

static int add_bytes(struct loader *loader, const char *bytes, size_t size)
{
	const char *end = bytes + size;

	while (bytes < end) {
		const char *stop = memchr(bytes, '\n', (size_t)(end - bytes));
		size_t length = (size_t)((stop ? stop : end) - bytes);
		int err;

		if (length > LINE_MAX_SIZE - loader->length) {
			loader->too_long = true;
			length = LINE_MAX_SIZE - loader->length;
		}
		memcpy(loader->text + loader->length, bytes, length);
		loader->length += length;
		if (!stop)
			return 0;
		err = add_line(loader);
		if (err)
			return err;
		loader->length = 0;
		loader->too_long = false;
		bytes = stop + 1;
	}
	return 0;
}

/* The last row may lack its line end; in an archive that broke it is only a piece of a row. */
static int add_rest(struct loader *loader, bool broken)
{
	if (!loader->length)
		return 0;
	if (broken) {
		loader->line++;
		loader->reading->rows++;
		loader->reading->skipped++;
		return 0;
	}
	return add_line(loader);
}

static int read_log(
	struct loader *loader, struct trace_source *source, char *chunk, size_t size)
{
	char what[TRACE_MESSAGE_MAX];
	int err;

	while (size) {
		err = add_bytes(loader, chunk, size);
		if (err)
			return err;
		err = trace_source_read(
			source, chunk, CHUNK_SIZE, what, sizeof(what), &size);
		if (err && loader->reading->lenient && loader->line) {
			loader->reading->broken = true;
			return add_rest(loader, true);
		}
		if (err) {
			loader->line++;
			return fail(loader, err, "%s", what);
		}
	}
	return add_rest(loader, false);
}

/* A format that is read from a file, by one of these. */
static int read_file_by(int (*read)(int, struct trace_reading *, char *, size_t),
	struct loader *loader, struct trace_source *source, const char *begin,
	size_t size)
{
	char what[TRACE_MESSAGE_MAX];
	int fd = trace_source_file(source), spool = -1, err = 0;

	if (fd < 0)
		err = trace_spool(source, begin, size, what, sizeof(what), &spool);
	if (err && loader->reading->lenient && spool >= 0) {
		loader->reading->broken = true;
		err = 0;
	}
	if (!err)
		err = read(fd < 0 ? spool : fd, loader->reading, what, sizeof(what));
	if (spool >= 0)
		close(spool);
	return err ? fail_file(loader, err, what) : 0;
}

/* Reads until it is clear which format this is. */
static int read_all(struct loader *loader, struct trace_source *source, char *chunk)
{
	char what[TRACE_MESSAGE_MAX];
	size_t filled = 0, size = 1;
	int err = 0;

	while (!err && size && filled < GLAKE_TRACE_MAGIC_SIZE) {
		err = trace_source_read(source, chunk + filled, CHUNK_SIZE - filled, what,
			sizeof(what), &size);
		filled += err ? 0 : size;
	}
	if (!err && trace_binary_is(chunk, filled))
		return read_file_by(trace_binary_read, loader, source, chunk, filled);
	if (!err && trace_pickle_is(chunk, filled))
		return read_file_by(trace_pickle_read, loader, source, chunk, filled);
	if (!err)
		return read_log(loader, source, chunk, filled);
	loader->line++;
	return fail(loader, err, "%s", what);
}

/* The file's name without its folder and the endings that say how it is packed. */
static void take_name(struct trace *trace, const char *path)
{
	static const char *const endings[] = {
		".xz", ".gz", ".zst", ".csv", ".trace", ".pickle", ".json"};
	const char *slash = strrchr(path, '/');
	size_t length;

	snprintf(trace->name, sizeof(trace->name), "%s",
		strcmp(path, "-") ? (slash ? slash + 1 : path) : "stdin");
	for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
		length = strlen(trace->name);
		if (length > strlen(endings[i]) &&
			!strcmp(trace->name + length - strlen(endings[i]), endings[i]))
			trace->name[length - strlen(endings[i])] = '\0';
	}
}

static int read_file(struct loader *loader)
{
	struct trace_source *source;
	char what[TRACE_MESSAGE_MAX];
	char *chunk;
	int err = trace_source_open(loader->path, what, sizeof(what), &source);

	if (err)
		return fail_file(loader, err, what);
	chunk = malloc(CHUNK_SIZE);
	err = chunk ? read_all(loader, source, chunk)
		    : fail_file(loader, -ENOMEM, strerror(ENOMEM));
	free(chunk);
	trace_source_close(source);
	if (!err && !loader->line && !loader->reading->is_ours &&
		!loader->reading->is_snapshot)
		err = fail_file(loader, -ENODATA, "the file is empty");
	return err;
}

int trace_read(
	const char *path, struct trace_reading *reading, char *message, size_t size)
{
	struct loader *loader = calloc(1, sizeof(*loader));
	int err;

	if (!loader)
		return trace_fail(
			message, size, -ENOMEM, "%s: %s", path, strerror(ENOMEM));
	loader->path = path;
	loader->reading = reading;
	loader->message = message;
	loader->message_size = size;
	err = read_file(loader);
	free(loader);
	return err;
}

static int compile_row(void *arg, const struct trace_row *row, char *message, size_t size)
{
	if (row->kind == GLAKE_TRACE_THREAD)
		return 0;
	return trace_compile_row(arg, row, message, size);
}

static int complete(
	struct trace_compiler *compiler, const char *path, char *message, size_t size)
{
	char what[TRACE_MESSAGE_MAX] = "no event in it to replay";
	int err = -ENODATA;

	if (compiler->trace->count)
		err = trace_compile_end(compiler, what, sizeof(what));
	if (err)
		snprintf(message, size, "%s: %s", path, what);
	return err;
}

int trace_load(const char *path, bool lenient, const struct trace_limits *limits,
	char *message, size_t size, struct trace *ret_trace)
{
	struct trace trace = {0};
	struct trace_compiler compiler = {.trace = &trace, .limits = *limits};
	struct trace_reading reading = {.lenient = lenient,
		.gpu = limits->gpu,
		.visit = compile_row,
		.arg = &compiler};
	int err;

	take_name(&trace, path);
	err = trace_read(path, &reading, message, size);
	if (!err)
		err = complete(&compiler, path, message, size);
	trace_compile_fini(&compiler);
	trace.rows = reading.rows;
	trace.skipped = reading.skipped;
	trace.broken = reading.broken;
	trace.header = reading.header;
	trace.dropped = reading.header.dropped + reading.late;
	if (err)
		trace_fini(&trace);
	else
		*ret_trace = trace;
	return err;
}

void trace_fini(struct trace *trace)
{
	free(trace->events);
	free(trace->times_us);
	free(trace->leftover);
	free(trace->stream_ids);
	*trace = (struct trace){0};
}
