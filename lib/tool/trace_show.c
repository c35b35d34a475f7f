/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * glakectl trace show: what is in a trace before it is replayed. Who recorded it and whether all
 * of it is there, then its events by kind, GPU, thread and stream.
 */
#include "tool/trace_tool.h"

#include "tool/report.h"
#include "tool/tool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct thread {
	uint64_t lane, tid;
	char name[17];
	uint64_t events;
};

struct stream {
	uint64_t handle;
	unsigned gpu;
	uint64_t events;
};

struct list {
	void *items;
	size_t count, capacity;
};

struct show {
	const struct trace_tool_options *options;
	struct trace_reading reading;
	struct trace_live live;
	struct trace_clock clock;
	int64_t first_ns, last_ns;
	uint64_t events, kinds[GLAKE_TRACE_KINDS], gpus[GLK_TOOL_GPUS];
	struct list threads, streams;
	struct trace_table lanes; /* -> its thread of now */
	struct trace_table handles[GLK_TOOL_GPUS];
};

/* A new item at the end of a list; NULL: no memory. */
static void *append(struct list *list, size_t size)
{
	size_t capacity = list->capacity ? 2 * list->capacity : 16;
	void *more;

	if (list->count == list->capacity) {
		more = realloc(list->items, capacity * size);
		if (!more)
			return NULL;
		list->items = more;
		list->capacity = capacity;
	}
	return memset((char *)list->items + list->count++ * size, 0, size);
}

/* Letters that a terminal shows and does not obey. */
static void copy_name(char *to, const struct trace_row *row)
{
	memcpy(to, &row->pointer, 8);
	memcpy(to + 8, &row->stream, 8);
	to[16] = '\0';
	for (; *to; to++) {
		if (*to < ' ' || *to > '~')
			*to = '?';
	}
}

/* The thread of a lane from a row on. */
static int meet_thread(struct show *show, const struct trace_row *row)
{
	int64_t found = trace_table_find(&show->lanes, row->thread);
	struct thread one = {.lane = row->thread, .tid = row->thread}, *threads;
	struct thread *made;

	if (row->kind == GLAKE_TRACE_THREAD) {
		one.tid = row->size & ((1u << 24) - 1);
		copy_name(one.name, row);
	}
	threads = show->threads.items;
	if (found >= 0 &&
		(row->kind != GLAKE_TRACE_THREAD ||
			(threads[found].tid == one.tid &&
				!strcmp(threads[found].name, one.name))))
		return 0;
	made = append(&show->threads, sizeof(one));
	if (!made)
		return -ENOMEM;
	*made = one;
	if (found >= 0)
		trace_table_remove(&show->lanes, row->thread);
	return trace_table_add(
		&show->lanes, row->thread, (uint32_t)(show->threads.count - 1));
}

static bool has_stream(unsigned kind)
{
	return kind < GLAKE_TRACE_BUDGET || kind == GLAKE_TRACE_POOL_BEGIN ||
		kind >= GLAKE_TRACE_KV_OPEN;
}

static int count_stream(struct show *show, const struct trace_row *row)
{
	struct trace_table *handles = &show->handles[row->device];
	int64_t found = trace_table_find(handles, row->stream);
	struct stream *stream;

	if (found < 0) {
		stream = append(&show->streams, sizeof(*stream));
		if (!stream)
			return -ENOMEM;
		found = (int64_t)show->streams.count - 1;
		stream->handle = row->stream;
		stream->gpu = row->device;
		if (trace_table_add(handles, row->stream, (uint32_t)found))
			return -ENOMEM;
	}
	stream = show->streams.items;
	stream[found].events++;
	return 0;
}

static int take_row(void *arg, const struct trace_row *row, char *message, size_t size)
{
	struct show *show = arg;
	unsigned kind = trace_kind_of(row);
	struct thread *threads;
	uint64_t bytes;
	int err = 0;

	if (!trace_row_idle(row, &show->live.blocks))
		err = trace_live_row(&show->live, row, message, size, &bytes);
	if (err)
		return err;
	if (meet_thread(show, row) ||
		(kind != GLAKE_TRACE_THREAD && has_stream(kind) &&
			count_stream(show, row)))
		return trace_fail(
			message, size, -ENOMEM, "no memory for threads and streams");
	if (kind == GLAKE_TRACE_THREAD)
		return 0;
	threads = show->threads.items;
	threads[trace_table_find(&show->lanes, row->thread)].events++;
	show->kinds[kind]++;
	show->gpus[row->device]++;
	show->last_ns = show->reading.is_ours
		? row->time_us * 1000 + row->time_ns
		: trace_clock_step(&show->clock, row->time_us) * 1000;
	if (!show->events++)
		show->first_ns = show->last_ns;
	return 0;
}

static int more_events(const void *a, const void *b)
{
	const struct thread *x = a, *y = b;

	return x->events > y->events ? -1 : x->events < y->events;
}

static int more_on_stream(const void *a, const void *b)
{
	const struct stream *x = a, *y = b;

	return x->events > y->events ? -1 : x->events < y->events;
}

static void sort(struct show *show)
{
	if (show->threads.count)
		qsort(show->threads.items, show->threads.count, sizeof(struct thread),
			more_events);
	if (show->streams.count)
		qsort(show->streams.items, show->streams.count, sizeof(struct stream),
			more_on_stream);
}

static uint64_t dropped(const struct show *show)
{
	return show->reading.header.dropped + show->reading.late;
}

static const char *start_time(const struct show *show, char *text, size_t size)
{
	time_t seconds = (time_t)(show->reading.header.start_realtime_ns / 1000000000);
	struct tm tm;

	text[0] = '\0';
	if (show->reading.header.start_realtime_ns > 0 && gmtime_r(&seconds, &tm))
		strftime(text, size, "%Y-%m-%dT%H:%M:%SZ", &tm);
	return text[0] ? text : NULL;
}

static void add_program(struct glk_json *json, const struct show *show)
{
	const struct glake_trace_header *h = &show->reading.header;
	char text[64];

	glk_json_add_uint(json, "version", h->version);
	glk_json_add_text(json, "program", h->program);
	glk_json_add_uint(json, "pid", h->pid);
	glk_json_add_text(json, "library", h->library);
	glk_json_add_text(json, "backend", h->backend);
	glk_json_add_uint(json, "gpus_of_program", h->devices);
	glk_json_add_text(json, "started", start_time(show, text, sizeof(text)));
	glk_json_add_bool(json, "closed", h->closed_ns);
	glk_json_add_bool(json, "written_now", show->reading.is_written);
}

static void add_lists(struct glk_json *json, const struct show *show)
{
	const struct thread *threads = show->threads.items;
	const struct stream *streams = show->streams.items;
	char text[24];

	glk_json_key(json, "threads");
	glk_json_array(json);
	for (size_t i = 0; i < show->threads.count; i++) {
		glk_json_object(json);
		glk_json_add_uint(json, "lane", threads[i].lane);
		glk_json_add_uint(json, "thread", threads[i].tid);
		glk_json_add_text(json, "name", threads[i].name);
		glk_json_add_uint(json, "events", threads[i].events);
		glk_json_end(json);
	}
	glk_json_end(json);
	glk_json_key(json, "streams");
	glk_json_array(json);
	for (size_t i = 0; i < show->streams.count; i++) {
		snprintf(text, sizeof(text), "0x%llx",
			(unsigned long long)streams[i].handle);
		glk_json_object(json);
		glk_json_add_uint(json, "gpu", streams[i].gpu);
		glk_json_add_text(json, "stream", text);
		glk_json_add_uint(json, "events", streams[i].events);
		glk_json_end(json);
	}
	glk_json_end(json);
}

static void add(struct glk_json *json, const struct show *show)
{
	glk_json_object(json);
	glk_json_add_text(json, "trace", show->options->file);
	glk_json_add_text(json, "format", trace_format_name(&show->reading));
	if (show->reading.is_ours)
		add_program(json, show);
	glk_json_add_figure(
		json, "job_s", (double)(show->last_ns - show->first_ns) / 1e9, 9);
	glk_json_add_uint(json, "events", show->events);
	glk_json_add_uint(json, "dropped", dropped(show));
	glk_json_add_bool(json, "midway", show->reading.header.midway);
	glk_json_add_uint(json, "frees_of_before", show->reading.before);
	glk_json_add_uint(json, "skipped", show->reading.skipped);
	glk_json_add_bool(json, "cut_off", show->reading.broken);
	glk_json_key(json, "kinds");
	glk_json_object(json);
	for (unsigned i = 0; i < GLAKE_TRACE_KINDS; i++) {
		if (show->kinds[i])
			glk_json_add_uint(json, trace_kind_name(i), show->kinds[i]);
	}
	glk_json_end(json);
	glk_json_key(json, "gpus");
	glk_json_array(json);
	for (unsigned i = 0; i < GLK_TOOL_GPUS; i++) {
		if (!show->gpus[i])
			continue;
		glk_json_object(json);
		glk_json_add_uint(json, "gpu", i);
		glk_json_add_uint(json, "events", show->gpus[i]);
		glk_json_add_uint(json, "peak_live_bytes", show->live.peak[i]);
		glk_json_add_uint(json, "live_bytes_at_end", show->live.bytes[i]);
		glk_json_end(json);
	}
	glk_json_end(json);
	add_lists(json, show);
	glk_json_add_bool(json, "ok", true);
	glk_json_end(json);
}

static void finish(struct show *show)
{
	trace_live_fini(&show->live);
	trace_table_fini(&show->lanes);
	for (unsigned i = 0; i < GLK_TOOL_GPUS; i++)
		trace_table_fini(&show->handles[i]);
	free(show->threads.items);
	free(show->streams.items);
	free(show);
}

int trace_tool_show(const struct trace_tool_options *options)
{
	struct show *show = calloc(1, sizeof(*show));
	char message[TRACE_MESSAGE_MAX];
	struct report report;
	int err;

	if (!show) {
		glk_tool_say("%s", strerror(ENOMEM));
		return GLK_TOOL_FAILED;
	}
	show->options = options;
	show->reading = (struct trace_reading){.lenient = options->lenient,
		.gpu = options->gpu == TRACE_ONE_GPU ? TRACE_ALL_GPUS : options->gpu,
		.visit = take_row,
		.arg = show};
	progress_start(options->quiet, options->file);
	err = trace_read(options->file, &show->reading, message, sizeof(message));
	progress_end();
	sort(show);
	if (err) {
		glk_tool_say("%s", message);
		err = GLK_TOOL_FAILED;
	} else {
		err = report_begin(&report, options->json);
		if (!err) {
			add(&report.json, show);
			err = report_end(&report);
		}
	}
	finish(show);
	return err ? GLK_TOOL_FAILED : GLK_TOOL_OK;
}
