/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_UNIT_TOOL_TRACE_FILE_H
#define GLK_UNIT_TOOL_TRACE_FILE_H

/* Traces of our own format, made by hand: chunks of 8 events, right unless a test spoils them. */
#include "t/tap.h"
#include "tool/trace.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define FILE_EVENTS 8
#define FILE_CHUNKS 64

static struct {
	struct glake_trace_header header;
	char rest[512 - sizeof(struct glake_trace_header)];
	struct glake_trace_event chunk[FILE_CHUNKS][FILE_EVENTS];
} made;

static char made_folder[128];
static char made_path[192];
static char message[TRACE_MESSAGE_MAX];
static struct trace trace;

static inline void made_start(void)
{
	if (!mkdtemp(tap_template(made_folder, sizeof(made_folder), "made")))
		tap_bail("no folder for the test");
	snprintf(made_path, sizeof(made_path), "%s/a.trace", made_folder);
}

static inline void made_stop(void)
{
	trace_fini(&trace);
	unlink(made_path);
	rmdir(made_folder);
}

static inline void made_empty(void)
{
	memset(&made, 0, sizeof(made));
	made.header = (struct glake_trace_header){
		.version = GLAKE_TRACE_VERSION,
		.header_size = 512,
		.chunk_size = FILE_EVENTS * sizeof(struct glake_trace_event),
		.event_size = sizeof(struct glake_trace_event),
		.end_ns = GLAKE_TRACE_NEVER,
		.devices = 2,
		.backend = "soft",
	};
	memcpy(made.header.magic, GLAKE_TRACE_MAGIC, GLAKE_TRACE_MAGIC_SIZE);
}

static inline struct glake_trace_event made_event(
	int64_t ns, unsigned kind, uint64_t address, uint64_t size)
{
	return (struct glake_trace_event){.ns = ns,
		.address = address,
		.stream = 5,
		.what = glake_trace_what(kind, 0, size)};
}

/* Puts an event at the end of a chunk, behind who writes it. */
static inline struct glake_trace_event *made_add(
	size_t chunk, int64_t ns, unsigned kind, uint64_t address, uint64_t size)
{
	struct glake_trace_event *e = made.chunk[chunk];

	if (made.header.chunks <= chunk)
		made.header.chunks = chunk + 1;
	if (!e->what)
		*e = made_event(ns, GLAKE_TRACE_THREAD, 0, (chunk + 1) << 24 | 77);
	while (e->what)
		e++;
	*e = made_event(ns, kind, address, size);
	return e;
}

static inline void made_alloc(size_t chunk, int64_t ns, uint64_t address, uint64_t size)
{
	made_add(chunk, ns, GLAKE_TRACE_ALLOC, address, size);
}

static inline void made_free(size_t chunk, int64_t ns, uint64_t address)
{
	made_add(chunk, ns, GLAKE_TRACE_FREE, address, 0);
}

static inline size_t made_size(void)
{
	return made.header.header_size + made.header.chunks * made.header.chunk_size;
}

static inline void made_store(size_t size)
{
	FILE *file = fopen(made_path, "we");

	if (!file || fwrite(&made, 1, size, file) != size || fclose(file))
		tap_bail("no file for the test");
}

static inline int made_load_gpu(size_t size, bool lenient, int gpu)
{
	struct trace_limits limits = TRACE_LIMITS;
	int err;

	limits.gpu = gpu;
	made_store(size);
	message[0] = '\0';
	trace_fini(&trace);
	err = trace_load(made_path, lenient, &limits, message, sizeof(message), &trace);
	return err;
}

static inline int made_load(bool lenient)
{
	return made_load_gpu(made_size(), lenient, TRACE_ONE_GPU);
}

#endif
