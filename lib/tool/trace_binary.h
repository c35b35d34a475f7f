/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TOOL_TRACE_BINARY_H
#define GLK_TOOL_TRACE_BINARY_H

/* The inside of reading our own format. */
#include "tool/trace.h"

#define BINARY_EVENT  sizeof(struct glake_trace_event)
#define BINARY_WINDOW 128 /* events of an open chunk in memory */

struct binary {
	int fd;
	struct trace_reading *reading;
	char *message;
	size_t message_size;
	uint64_t size;	/* of the file */
	int64_t now_ns; /* of a trace that is being written: what is later is not read */
	struct binary_place *places;
	size_t count, next;
	struct binary_chunk **heap;
	size_t open, capacity;
	struct trace_table blocks; /* that are live, where recording began midway */
};

/* A chunk that has something in it. */
struct binary_place {
	int64_t ns; /* of the first event */
	uint64_t chunk;
};

/* An open chunk: at its next event, which is right and wanted. */
struct binary_chunk {
	uint64_t chunk, lane;
	int64_t last_ns;
	size_t at, count; /* in the window */
	size_t number,
		numbers; /* of the next event to read; those of the chunk in the file */
	struct glake_trace_event events[BINARY_WINDOW];
};

/* Leaves a sentence; returns `err`. */
int binary_fail(struct binary *b, int err, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Something in a chunk is wrong: counted when lenient, and 0; else an error. */
int binary_wrong(struct binary *b, uint64_t chunk, size_t event, const char *what);
/* As many bytes as there are, up to `size`. 0 or an error. */
int binary_read_at(struct binary *b, void *to, size_t size, uint64_t at, size_t *ret_got);

/* Where an event lies in the file, and how many of its chunk are there. */
uint64_t binary_place(const struct binary *b, uint64_t chunk, size_t event);
size_t binary_events(const struct binary *b, uint64_t chunk);

/* Begins with a chunk, and goes on to the next event that is right, the one at hand included.
 * *ret_end: there is none. 0 or an error. */
void binary_chunk_begin(struct binary *b, struct binary_chunk *c, uint64_t chunk);
int binary_chunk_settle(struct binary *b, struct binary_chunk *c, bool *ret_end);

static inline const struct glake_trace_event *binary_chunk_event(
	const struct binary_chunk *c)
{
	return &c->events[c->at];
}

#endif
