/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Snapshots of PyTorch's allocator as traces: the files of torch.cuda.memory._dump_snapshot() have,
 * for each GPU, the last events of its allocator. A block is freed when the program frees it
 * (free_requested); when the allocator has it back, and what it does with segments, is no event of
 * the program.
 *
 * A snapshot has no more than the last events, so blocks were live before the first of them: those
 * that are freed and were never allocated, and those that are live at the end and were not either.
 * The trace begins with them, at the time of the first event.
 *
 * Streams are those of the allocator, by their handles; there are no threads.
 */
#include "tool/trace.h"

#include "tool/progress.h"
#include "tool/unpickle.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GPUS_MAX      256 /* that a row can tell */
#define PROGRESS_STEP 65536

/* Numbers of these words, from 1. */
enum word {
	TRACES = 1,
	SEGMENTS,
	ACTION,
	ADDR,
	SIZE,
	STREAM,
	TIME,
	ALLOC,
	FREE_REQUESTED,
	FREE_COMPLETED,
	OOM,
	BLOCKS,
	STATE,
	ADDRESS,
	REQUESTED,
	DEVICE,
	ACTIVE,
};

static const char *const words[] = {"device_traces", "segments", "action", "addr", "size",
	"stream", "time_us", "alloc", "free_requested", "free_completed", "oom", "blocks",
	"state", "address", "requested_size", "device", "active_allocated", NULL};

/* The events of one GPU, at the next of them. */
struct gpu {
	struct unpickle_value events;
	uint32_t place; /* 0: none is left */
	struct trace_row row;
	struct trace_table seen; /* addresses that an event before was about */
};

struct snapshot {
	struct unpickle *u;
	struct trace_reading *reading;
	char *message;
	size_t message_size;
	struct gpu *gpus;
	size_t count;
	int64_t first_us;
	size_t number; /* of the event, for messages */
	size_t items;  /* that were looked at */
};

static bool number_of(const struct snapshot *s, struct unpickle_value dict, enum word key,
	uint64_t *ret_number)
{
	struct unpickle_value value = unpickle_member(s->u, dict, key);

	if (value.type != UNPICKLE_INT)
		return false;
	*ret_number = value.number;
	return true;
}

static bool is_endless(const struct snapshot *s)
{
	return s->items > 2 * unpickle_items(s->u);
}

/* unpickle_item(), until more have come than the lists have. Events are looked at twice and what
 * else there is once, so a list is named in many places then: a file of some KiB tells of billions. */
static uint32_t next_item(struct snapshot *s, struct unpickle_value list, uint32_t place,
	struct unpickle_value *ret_value)
{
	place = is_endless(s) ? 0 : unpickle_item(s->u, list, place, ret_value);
	s->items += place != 0;
	return is_endless(s) ? 0 : place;
}

static unsigned word_of(
	const struct snapshot *s, struct unpickle_value dict, enum word key)
{
	struct unpickle_value value = unpickle_member(s->u, dict, key);

	return value.type == UNPICKLE_TEXT ? value.at : 0;
}

static int fail(struct snapshot *s, int err, const char *what)
{
	snprintf(s->message, s->message_size, "event %zu: %s", s->number, what);
	return err;
}

/* What an event is for a trace; those that are none are TRACE_OTHER. -EINVAL: it lacks something. */
static int read_event(const struct snapshot *s, size_t gpu, struct unpickle_value event,
	struct trace_row *ret)
{
	struct trace_row row = {.device = (uint8_t)gpu, .action = TRACE_OTHER};
	unsigned action = word_of(s, event, ACTION);
	uint64_t time = 0;

	/* older ones have no times */
	number_of(s, event, TIME, &time);
	number_of(s, event, STREAM, &row.stream);
	row.time_us = (int64_t)(time & INT64_MAX);
	if (action == ALLOC)
		row.action = TRACE_ALLOCATE;
	else if (action == FREE_REQUESTED)
		row.action = TRACE_FREE;
	else if (action == OOM)
		row.action = TRACE_FAILURE;
	if (row.action != TRACE_OTHER && !number_of(s, event, SIZE, &row.size))
		return -EINVAL;
	if ((row.action == TRACE_ALLOCATE || row.action == TRACE_FREE ||
		    action == FREE_COMPLETED) &&
		!number_of(s, event, ADDR, &row.pointer))
		return -EINVAL;
	*ret = row;
	return 0;
}

static int show(struct snapshot *s, const struct trace_row *row)
{
	char what[TRACE_MESSAGE_MAX];
	int err = trace_show_row(s->reading, row, what, sizeof(what));

	if (err == -EINVAL && s->reading->lenient) {
		s->reading->skipped++;
		return 0;
	}
	return err ? fail(s, err, what) : 0;
}

static int no_memory(struct snapshot *s)
{
	return fail(s, -ENOMEM, strerror(ENOMEM));
}

/* Shows a block that was live before the first event. */
static int open_block(struct snapshot *s, const struct trace_row *row)
{
	struct trace_row opened = *row;

	opened.action = TRACE_ALLOCATE;
	opened.time_us = s->first_us;
	s->reading->opened++;
	return show(s, &opened);
}

/* Finds those that are freed and were not allocated. */
static int open_freed(struct snapshot *s, size_t number)
{
	struct gpu *gpu = &s->gpus[number];
	struct unpickle_value event;
	struct trace_row row;
	int err = 0;

	for (uint32_t at = 0; !err && (at = next_item(s, gpu->events, at, &event));) {
		if (read_event(s, number, event, &row) || !row.pointer ||
			trace_table_find(&gpu->seen, row.pointer) >= 0)
			continue;
		if (trace_table_add(&gpu->seen, row.pointer, 0))
			return no_memory(s);
		if (row.action == TRACE_FREE && row.size)
			err = open_block(s, &row);
	}
	return err;
}

/* And those of a segment that are live and were not allocated. */
static int open_segment(struct snapshot *s, struct unpickle_value segment)
{
	struct unpickle_value blocks = unpickle_member(s->u, segment, BLOCKS), block;
	struct trace_row row = {0};
	uint64_t device = 0;
	int err = 0;

	number_of(s, segment, DEVICE, &device);
	number_of(s, segment, STREAM, &row.stream);
	if (device >= s->count)
		return 0;
	row.device = (uint8_t)device;
	for (uint32_t at = 0; !err && (at = next_item(s, blocks, at, &block));) {
		struct gpu *gpu = &s->gpus[device];

		if (word_of(s, block, STATE) != ACTIVE ||
			!number_of(s, block, ADDRESS, &row.pointer) || !row.pointer ||
			(!number_of(s, block, REQUESTED, &row.size) &&
				!number_of(s, block, SIZE, &row.size)) ||
			!row.size || trace_table_find(&gpu->seen, row.pointer) >= 0)
			continue;
		if (trace_table_add(&gpu->seen, row.pointer, 0))
			return no_memory(s);
		err = open_block(s, &row);
	}
	return err;
}

/* Goes on to the next event of a GPU that is one of a trace. 0 or an error. */
static int step(struct snapshot *s, size_t number)
{
	struct gpu *gpu = &s->gpus[number];
	struct unpickle_value event;

	for (;;) {
		gpu->place = next_item(s, gpu->events, gpu->place, &event);
		if (!gpu->place)
			return 0;
		s->number++;
		s->reading->rows++;
		if (!(s->number % PROGRESS_STEP))
			progress_step(s->number, 0);
		if (read_event(s, number, event, &gpu->row)) {
			if (!s->reading->lenient)
				return fail(s, -EINVAL, "it has no size, or no address");
			s->reading->skipped++;
		} else if (gpu->row.action != TRACE_OTHER) {
			return 0;
		}
	}
}

/* The events of all GPUs by their times. */
static int show_events(struct snapshot *s)
{
	int err = 0;

	for (size_t i = 0; i < s->count && !err; i++)
		err = step(s, i);
	while (!err) {
		size_t next = s->count;

		for (size_t i = 0; i < s->count; i++)
			if (s->gpus[i].place &&
				(next == s->count ||
					s->gpus[i].row.time_us <
						s->gpus[next].row.time_us))
				next = i;
		if (next == s->count)
			break;
		err = show(s, &s->gpus[next].row);
		if (!err)
			err = step(s, next);
	}
	return err;
}

static void find_first(struct snapshot *s)
{
	struct unpickle_value event;
	struct trace_row row;
	bool found = false;

	for (size_t i = 0; i < s->count; i++) {
		if (!unpickle_item(s->u, s->gpus[i].events, 0, &event) ||
			read_event(s, i, event, &row))
			continue;
		if (!found || row.time_us < s->first_us)
			s->first_us = row.time_us;
		found = true;
	}
}

/* A list for each GPU. */
static int find_gpus(struct snapshot *s)
{
	struct unpickle_value root = unpickle_root(s->u);
	struct unpickle_value traces = unpickle_member(s->u, root, TRACES), events;

	if (root.type != UNPICKLE_DICT || traces.type != UNPICKLE_LIST) {
		snprintf(s->message, s->message_size,
			"a pickle, and no snapshot of PyTorch's, which has device_traces");
		return -EINVAL;
	}
	s->gpus = calloc(GPUS_MAX, sizeof(*s->gpus));
	if (!s->gpus)
		return no_memory(s);
	for (uint32_t at = 0; (at = unpickle_item(s->u, traces, at, &events));) {
		if (s->count == GPUS_MAX) {
			snprintf(s->message, s->message_size, "more than %d GPUs",
				GPUS_MAX);
			return -EFBIG;
		}
		s->gpus[s->count++].events = events;
	}
	return 0;
}

static int show_all(struct snapshot *s)
{
	struct unpickle_value segments, segment;
	int err = find_gpus(s);

	if (err)
		return err;
	find_first(s);
	s->reading->header.start_realtime_ns =
		s->first_us <= INT64_MAX / 1000 ? s->first_us * 1000 : 0;
	for (size_t i = 0; i < s->count && !err; i++)
		err = open_freed(s, i);
	segments = unpickle_member(s->u, unpickle_root(s->u), SEGMENTS);
	for (uint32_t at = 0; !err && (at = next_item(s, segments, at, &segment));)
		err = open_segment(s, segment);
	if (!err)
		err = show_events(s);
	if (!err && is_endless(s)) {
		snprintf(s->message, s->message_size,
			"a pickle that names its lists again and again, as no snapshot does");
		err = -EINVAL;
	}
	return err;
}

int trace_pickle_read(struct trace_source *source, const char *begin, size_t begin_size,
	struct trace_reading *reading, char *message, size_t size)
{
	struct snapshot s = {
		.reading = reading, .message = message, .message_size = size};
	int err = unpickle_read(source, begin, begin_size, words, message, size, &s.u);

	reading->is_snapshot = true;
	if (!err)
		err = show_all(&s);
	for (size_t i = 0; i < s.count; i++)
		trace_table_fini(&s.gpus[i].seen);
	free(s.gpus);
	unpickle_free(s.u);
	return err;
}
