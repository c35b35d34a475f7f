/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_WATCH_TRACE_H
#define GLK_WATCH_TRACE_H

/* The inside of a trace that is being recorded. */
#include "base/slab.h"
#include "watch/watch.h"

#define GLK_TRACE_CHUNK	   ((size_t)64 << 10)
#define GLK_TRACE_HEADER   GLK_TRACE_CHUNK /* so that chunks begin at pages of any size */
#define GLK_TRACE_PATH_MAX 256
#define GLK_TRACE_EVENTS   (GLK_TRACE_CHUNK / sizeof(struct glake_trace_event))

/* The writer of a chunk. Type-stable; whoever takes one that was given back goes on where the
 * last thread has stopped. */
struct glk_lane {
	/* Where the next event goes, and the end of the chunk; both NULL at first. */
	glk_atomic(struct glake_trace_event *) at;
	struct glake_trace_event *end;
	uint32_t id;
	uint32_t pad[11];
};

_Static_assert(sizeof(struct glk_lane) == 64, "two threads never share a cache line");

struct glk_trace {
	uint64_t serial; /* never given twice */
	/* The mapping; the counts in the header are atomics of all threads. */
	struct glake_trace_header *header;
	size_t size;
	uint64_t chunks; /* that there is room for */
	int64_t start_ns;
	struct glk_slab lanes;
	struct glk_trace *next_open;
	int fd;
	char path[GLK_TRACE_PATH_MAX];
};

/* The fields of the header that change while it is recorded. */
static inline glk_atomic(uint64_t) * glk_trace_shared(uint64_t *field)
{
	return (glk_atomic(uint64_t) *)field;
}

static inline glk_atomic(int64_t) * glk_trace_shared_ns(int64_t *field)
{
	return (glk_atomic(int64_t) *)field;
}

#endif
