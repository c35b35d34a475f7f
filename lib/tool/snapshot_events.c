/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The events of a snapshot, from a trace: what PyTorch's allocator would have noted. A block that is
 * freed is there again at once, so each free is two events.
 */
#include "tool/snapshot.h"

#include "tool/pickle.h"
#include "tool/tool.h"
#include "tool/trace_tool.h"

#include <errno.h>

struct events {
	struct pickle *pickle;
	struct trace_reading reading;
	struct trace_live live;
};

static void add(struct events *events, const char *action, const struct trace_row *row,
	uint64_t bytes, int64_t time_us)
{
	struct pickle *pickle = events->pickle;
	bool is_failure = row->action == TRACE_FAILURE;

	pickle_dict(pickle);
	pickle_add_text(pickle, "action", action);
	/* how much was free is not in a trace */
	pickle_add_int(pickle, is_failure ? "device_free" : "addr",
		is_failure ? 0 : row->pointer);
	pickle_add_int(pickle, "size", bytes);
	pickle_add_int(pickle, "stream", row->stream);
	pickle_add_int(pickle, "time_us", (uint64_t)time_us);
	pickle_text(pickle, "frames");
	pickle_list(pickle);
	pickle_close(pickle);
	pickle_close(pickle);
}

static int take_row(void *arg, const struct trace_row *row, char *message, size_t size)
{
	struct events *events = arg;
	int64_t time_us = row->time_us;
	uint64_t bytes;
	int err;

	if (row->action == TRACE_OTHER || trace_live_idle(&events->live, row))
		return 0;
	err = trace_live_row(&events->live, row, message, size, &bytes);
	if (err)
		return err;
	if (events->reading.is_ours)
		time_us += events->reading.header.start_realtime_ns / 1000;
	if (row->action == TRACE_ALLOCATE) {
		add(events, "alloc", row, bytes, time_us);
	} else if (row->action == TRACE_FAILURE) {
		add(events, "oom", row, bytes, time_us);
	} else {
		add(events, "free_requested", row, bytes, time_us);
		add(events, "free_completed", row, bytes, time_us);
	}
	return 0;
}

int snapshot_add_events(struct pickle *pickle, const char *trace, int gpu)
{
	struct events events = {
		.pickle = pickle, .reading = {.gpu = gpu, .visit = take_row}};
	char message[TRACE_MESSAGE_MAX];
	int err;

	events.reading.arg = &events;
	err = trace_read(trace, &events.reading, message, sizeof(message));
	trace_live_fini(&events.live);
	if (!err)
		return 0;
	glk_tool_say("%s", message);
	return -ENODATA;
}
