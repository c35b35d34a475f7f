/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * From rows to events. A row names a block by the address it had when the trace was recorded,
 * and the same address names many blocks one after another. Here each allocation gets a
 * number of its own, in order and never twice, so a replay finds a block's present address by
 * one index into an array, and threads can hand a block over by its entry alone.
 *
 * Rows are checked against those before them: a free must name a live block, an allocation
 * must not. A row that is refused leaves nothing behind but a number for its stream.
 *
 * Cost		24 bytes an event to keep; while compiling, 16 bytes a block and 32 a live one.
 */
#include "tool/trace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define CAPACITY_MIN 4096
#define DAY_US	     INT64_C(86400000000)

/* Where to put a sentence. */
struct text {
	char *to;
	size_t size;
};

static int no_memory(const struct text *text)
{
	return trace_fail(text->to, text->size, -ENOMEM, "no memory to hold the trace");
}

static int too_many(const struct text *text, size_t limit, const char *what)
{
	return trace_fail(text->to, text->size, -EFBIG, "more than %zu %s", limit, what);
}

/* Makes room for one more event. */
static int reserve_event(struct trace_compiler *compiler, const struct text *text)
{
	struct trace *trace = compiler->trace;
	size_t capacity = compiler->capacity ? compiler->capacity * 2 : CAPACITY_MIN;
	void *events, *times;

	if (trace->count == compiler->limits.events)
		return too_many(text, compiler->limits.events, "events");
	if (trace->count < compiler->capacity)
		return 0;
	events = realloc(trace->events, capacity * sizeof(*trace->events));
	if (!events)
		return no_memory(text);
	trace->events = events;
	times = realloc(trace->times_us, capacity * sizeof(*trace->times_us));
	if (!times)
		return no_memory(text);
	trace->times_us = times;
	compiler->capacity = capacity;
	return 0;
}

static int reserve_block(struct trace_compiler *compiler, const struct text *text)
{
	size_t capacity =
		compiler->made_capacity ? compiler->made_capacity * 2 : CAPACITY_MIN;
	void *made;

	if (compiler->trace->blocks < compiler->made_capacity)
		return 0;
	made = realloc(compiler->made, capacity * sizeof(*compiler->made));
	if (!made)
		return no_memory(text);
	compiler->made = made;
	compiler->made_capacity = capacity;
	return 0;
}

/* The number of a thread or stream, the next one if it is new. */
static int number_of(struct trace_table *table, uint64_t id, size_t limit,
	const char *what, const struct text *text, uint16_t *ret_number)
{
	int64_t found = trace_table_find(table, id);
	size_t next = table->count;

	if (found < 0 && next == limit)
		return too_many(text, limit, what);
	if (found < 0 && trace_table_add(table, id, (uint32_t)next))
		return no_memory(text);
	*ret_number = found < 0 ? (uint16_t)next : (uint16_t)found;
	return 0;
}

static int stream_of(struct trace_compiler *compiler, uint64_t id,
	const struct text *text, uint16_t *ret_number)
{
	struct trace *trace = compiler->trace;
	size_t before = compiler->streams.count;
	uint64_t *ids;
	int err;

	ids = realloc(trace->stream_ids, (before + 1) * sizeof(*ids));
	if (!ids)
		return no_memory(text);
	trace->stream_ids = ids;
	err = number_of(&compiler->streams, id, compiler->limits.streams, "streams", text,
		ret_number);
	if (!err && compiler->streams.count > before) {
		ids[before] = id;
		trace->streams = before + 1;
	}
	return err;
}

/*
 * A clock of day that jumps back by more than half a day has passed midnight; a smaller step
 * back, as rows of several threads can show, counts as none.
 */
int64_t trace_clock_step(struct trace_clock *clock, int64_t raw_us)
{
	int64_t now;

	if (!clock->started)
		clock->first_us = raw_us;
	else if (raw_us < DAY_US && clock->last_raw_us < DAY_US &&
		clock->last_raw_us - raw_us > DAY_US / 2)
		clock->day_us += DAY_US;
	clock->started = true;
	clock->last_raw_us = raw_us;
	if (!__builtin_add_overflow(raw_us - clock->first_us, clock->day_us, &now) &&
		now > clock->last_us)
		clock->last_us = now;
	return clock->last_us;
}

static int add_allocation(struct trace_compiler *compiler, const struct trace_row *row,
	const struct text *text, struct trace_event *event)
{
	struct trace *trace = compiler->trace;
	uint64_t bytes;

	if (trace_table_find(&compiler->live, row->pointer) >= 0)
		return trace_refuse(text->to, text->size, row, "live");
	if (__builtin_add_overflow(compiler->live_bytes, row->size, &bytes))
		return trace_fail(text->to, text->size, -EINVAL,
			"live sizes add up to more than 64 bits hold");
	if (reserve_block(compiler, text))
		return -ENOMEM;
	if (trace_table_add(&compiler->live, row->pointer, (uint32_t)trace->blocks))
		return no_memory(text);
	event->block = (uint32_t)trace->blocks;
	event->size = row->size;
	compiler->made[trace->blocks++] = (struct trace_made){row->size, event->stream};
	compiler->live_bytes = bytes;
	if (bytes > trace->peak_live)
		trace->peak_live = bytes;
	return 0;
}

static int add_free(struct trace_compiler *compiler, const struct trace_row *row,
	const struct text *text, struct trace_event *event)
{
	int64_t block = trace_table_find(&compiler->live, row->pointer);

	if (block < 0)
		return trace_refuse(text->to, text->size, row, "not live");
	trace_table_remove(&compiler->live, row->pointer);
	event->block = (uint32_t)block | TRACE_FREE_BIT;
	event->size = compiler->made[block].size;
	compiler->live_bytes -= event->size;
	return 0;
}

int trace_compile_row(struct trace_compiler *compiler, const struct trace_row *row,
	char *message, size_t size)
{
	struct trace *trace = compiler->trace;
	const struct text text = {message, size};
	struct trace_event event;
	int err;

	if (row->action == TRACE_FAILURE || row->action == TRACE_OTHER ||
		trace_row_idle(row, &compiler->live)) {
		trace->noops++;
		return 0;
	}
	err = reserve_event(compiler, &text);
	if (!err)
		err = stream_of(compiler, row->stream, &text, &event.stream);
	if (!err)
		err = number_of(&compiler->threads, row->thread, compiler->limits.threads,
			"threads", &text, &event.thread);
	if (!err)
		err = row->action == TRACE_ALLOCATE
			? add_allocation(compiler, row, &text, &event)
			: add_free(compiler, row, &text, &event);
	if (err)
		return err;
	trace->times_us[trace->count] = trace_clock_step(&compiler->clock, row->time_us);
	trace->events[trace->count++] = event;
	return 0;
}

static int by_block(const void *a, const void *b)
{
	const struct trace_event *x = a, *y = b;

	return x->block < y->block ? -1 : x->block > y->block;
}

int trace_compile_end(struct trace_compiler *compiler, char *message, size_t size)
{
	const struct trace_table *live = &compiler->live;
	struct trace *trace = compiler->trace;
	const struct text text = {message, size};

	trace->threads = compiler->threads.count;
	trace->job_us = trace->count ? trace->times_us[trace->count - 1] : 0;
	trace->leftover = calloc(live->count + 1, sizeof(*trace->leftover));
	if (!trace->leftover)
		return no_memory(&text);
	for (size_t i = 0; i < live->capacity; i++) {
		uint32_t block = live->slots[i].value;

		if (!block--)
			continue;
		trace->leftover[trace->leftovers++] = (struct trace_event){
			.block = block | TRACE_FREE_BIT,
			.stream = compiler->made[block].stream,
			.size = compiler->made[block].size,
		};
	}
	qsort(trace->leftover, trace->leftovers, sizeof(*trace->leftover), by_block);
	return 0;
}

void trace_compile_fini(struct trace_compiler *compiler)
{
	trace_table_fini(&compiler->live);
	trace_table_fini(&compiler->streams);
	trace_table_fini(&compiler->threads);
	free(compiler->made);
	compiler->made = NULL;
}
