/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Traces of either format, from whoever may have written them. The first byte says whether the
 * rest is a file, or what follows a right header of our own format, and whether it is read
 * leniently. What comes out has to be a trace that a replay can walk.
 *
 *	CC=clang meson setup build-fuzz -Dfuzz=true && ninja -C build-fuzz t/fuzz/fuzz-trace
 *	build-fuzz/t/fuzz/fuzz-trace -max_len=8192 -max_total_time=60
 */
#include "tool/trace.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct trace_limits limits = {
	.events = 4096, .streams = 64, .threads = 64, .gpu = TRACE_ONE_GPU};

static void put_header(int fd, size_t size)
{
	struct glake_trace_header header = {
		.version = GLAKE_TRACE_VERSION,
		.header_size = sizeof(header),
		.chunk_size = 256,
		.event_size = sizeof(struct glake_trace_event),
		.chunks = size / 256,
		.end_ns = GLAKE_TRACE_NEVER,
	};

	memcpy(header.magic, GLAKE_TRACE_MAGIC, GLAKE_TRACE_MAGIC_SIZE);
	if (write(fd, &header, sizeof(header)) != sizeof(header))
		abort();
}

/* Every index that a replay follows is within its array. */
static void walk(const struct trace *trace)
{
	for (size_t i = 0; i < trace->count; i++) {
		const struct trace_event *event = &trace->events[i];

		if ((event->block & ~TRACE_FREE_BIT) >= trace->blocks ||
			event->stream >= trace->streams ||
			event->thread >= trace->threads || trace->times_us[i] < 0)
			abort();
	}
	if (trace->count > limits.events || trace->leftovers > trace->blocks)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char path[64], message[TRACE_MESSAGE_MAX] = "";
	struct trace trace = {0};
	uint8_t how = size ? data[0] : 0;
	int fd;

	if (!size)
		return 0;
	fd = memfd_create("trace", MFD_CLOEXEC);
	if (fd < 0)
		abort();
	if (how & 1)
		put_header(fd, size - 1);
	if (write(fd, data + 1, size - 1) != (ssize_t)(size - 1))
		abort();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (!trace_load(path, how & 2, &limits, message, sizeof(message), &trace))
		walk(&trace);
	else if (!message[0])
		abort();
	trace_fini(&trace);
	close(fd);
	return 0;
}
