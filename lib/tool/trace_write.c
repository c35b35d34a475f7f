/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Writing traces of either format. Our own is written by one hand: chunk after chunk, and who
 * goes on is told whenever it is another thread than before. Readers merge chunks by time and
 * then by number, so the order of the rows is kept as long as no time goes back.
 */
#include "tool/trace_tool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_SIZE  4096u
#define CHUNK_SIZE   ((size_t)64 << 10)
#define CHUNK_EVENTS (CHUNK_SIZE / sizeof(struct glake_trace_event))
#define TID_MAX	     ((UINT64_C(1) << 22) - 1)
#define DAY_US	     INT64_C(86400000000)

static int put_chunk(struct trace_writer *writer, char *message, size_t size)
{
	if (!writer->at)
		return 0;
	memset(writer->chunk + writer->at, 0,
		(CHUNK_EVENTS - writer->at) * sizeof(*writer->chunk));
	if (fwrite(writer->chunk, CHUNK_SIZE, 1, writer->file) != 1)
		return trace_fail(message, size, -errno, "%s", strerror(errno));
	writer->header.chunks++;
	writer->at = 0;
	writer->lane = 0;
	return 0;
}

/* The header proper and what fills it up. */
static int put_header(struct trace_writer *writer, char *message, size_t size)
{
	char page[HEADER_SIZE] = "";

	memcpy(page, &writer->header, sizeof(writer->header));
	if (fseek(writer->file, 0, SEEK_SET) ||
		fwrite(page, sizeof(page), 1, writer->file) != 1)
		return trace_fail(message, size, -errno, "%s", strerror(errno));
	return 0;
}

int trace_writer_begin(struct trace_writer *writer, FILE *file,
	const struct glake_trace_header *header, char *message, size_t size)
{
	writer->file = file;
	writer->header = *header;
	memcpy(writer->header.magic, GLAKE_TRACE_MAGIC, sizeof(writer->header.magic));
	writer->header.version = GLAKE_TRACE_VERSION;
	writer->header.header_size = HEADER_SIZE;
	writer->header.chunk_size = CHUNK_SIZE;
	writer->header.event_size = sizeof(struct glake_trace_event);
	writer->header.chunks = 0;
	writer->chunk = calloc(CHUNK_EVENTS, sizeof(*writer->chunk));
	if (!writer->chunk)
		return trace_fail(message, size, -ENOMEM, "%s", strerror(ENOMEM));
	return put_header(writer, message, size);
}

/* The lane of a thread, a new one if it was not seen before. */
static int find_lane(struct trace_writer *writer, const struct trace_row *row,
	char *message, size_t size, size_t *ret_lane)
{
	int64_t found = trace_table_find(&writer->lanes, row->thread);
	size_t lane = writer->lanes.count, capacity = writer->signatures_capacity;
	uint64_t tid = row->thread <= TID_MAX ? row->thread : 0;
	struct trace_signature *more;

	*ret_lane = (size_t)found;
	if (found >= 0)
		return 0;
	if (lane > GLAKE_TRACE_LANE_MAX)
		return trace_fail(
			message, size, -EFBIG, "more threads than the format has");
	if (lane == capacity) {
		capacity = capacity ? 2 * capacity : 16;
		more = realloc(writer->signatures, capacity * sizeof(*more));
		if (!more)
			return trace_fail(message, size, -ENOMEM, "%s", strerror(ENOMEM));
		writer->signatures = more;
		writer->signatures_capacity = capacity;
	}
	if (trace_table_add(&writer->lanes, row->thread, (uint32_t)lane))
		return trace_fail(message, size, -ENOMEM, "%s", strerror(ENOMEM));
	writer->signatures[lane] =
		(struct trace_signature){.what = glake_trace_what(GLAKE_TRACE_THREAD, 0,
						 (uint64_t)lane << 24 | tid)};
	*ret_lane = lane;
	return 0;
}

static void put(struct trace_writer *writer, int64_t ns, uint64_t address,
	uint64_t stream, uint64_t what)
{
	writer->chunk[writer->at++] = (struct glake_trace_event){
		.ns = ns, .address = address, .stream = stream, .what = what};
}

/* Room for an event of a lane, behind its signature. */
static int make_room(
	struct trace_writer *writer, size_t lane, int64_t ns, char *message, size_t size)
{
	const struct trace_signature *signature = &writer->signatures[lane];
	bool is_signed = writer->lane == lane + 1;
	int err = 0;

	if (writer->at + (is_signed ? 1 : 2) > CHUNK_EVENTS) {
		err = put_chunk(writer, message, size);
		is_signed = false;
	}
	if (!err && !is_signed)
		put(writer, ns, signature->low, signature->high, signature->what);
	writer->lane = lane + 1;
	return err;
}

int trace_writer_row(struct trace_writer *writer, const struct trace_row *row, int64_t ns,
	char *message, size_t size)
{
	unsigned kind = trace_kind_of(row);
	uint64_t address = row->pointer;
	size_t lane;
	int err = find_lane(writer, row, message, size, &lane);

	if (err)
		return err;
	if (kind == GLAKE_TRACE_THREAD) {
		writer->signatures[lane] = (struct trace_signature){
			row->pointer, row->stream, glake_trace_what(kind, 0, row->size)};
		writer->lane = writer->lane == lane + 1 ? 0 : writer->lane;
		return 0;
	}
	if (row->size > GLAKE_TRACE_SIZE_MAX && row->action != TRACE_FAILURE)
		return trace_fail(
			message, size, -EINVAL, "a size that the format cannot hold");
	if (row->action == TRACE_FAILURE && !row->kind)
		address = ENOMEM;
	if (ns < writer->last_ns)
		ns = writer->last_ns;
	err = make_room(writer, lane, ns, message, size);
	if (err)
		return err;
	put(writer, ns, address, row->stream,
		glake_trace_what(kind, row->device,
			row->action == TRACE_FREE && !row->kind	   ? 0
				: row->size > GLAKE_TRACE_SIZE_MAX ? GLAKE_TRACE_SIZE_MAX
								   : row->size));
	writer->last_ns = ns;
	return 0;
}

int trace_writer_end(struct trace_writer *writer, char *message, size_t size)
{
	int err = put_chunk(writer, message, size);

	return err ? err : put_header(writer, message, size);
}

void trace_writer_fini(struct trace_writer *writer)
{
	trace_table_fini(&writer->lanes);
	free(writer->signatures);
	free(writer->chunk);
}

static int printed(int length, char *message, size_t size)
{
	if (length >= 0)
		return 0;
	return trace_fail(message, size, -errno, "%s", strerror(errno));
}

int trace_log_begin(FILE *file, char *message, size_t size)
{
	return printed(fprintf(file, "%s\n", trace_header), message, size);
}

int trace_log_row(FILE *file, const struct trace_row *row, int64_t ns, uint64_t bytes,
	char *message, size_t size)
{
	static const char *const actions[] = {
		[TRACE_ALLOCATE] = "allocate",
		[TRACE_FREE] = "free",
		[TRACE_FAILURE] = "allocate failure",
	};
	long long us = ns / 1000 % DAY_US, second = us / 1000000;
	char pointer[24] = "(nil)";
	int length;

	if (row->action != TRACE_FAILURE)
		snprintf(pointer, sizeof(pointer), "0x%llx",
			(unsigned long long)row->pointer);
	length = fprintf(file, "%llu,%02lld:%02lld:%02lld.%06lld,%s,%s,%llu,0x%llx\n",
		(unsigned long long)row->thread, second / 3600, second / 60 % 60,
		second % 60, us % 1000000, actions[row->action], pointer,
		(unsigned long long)bytes, (unsigned long long)row->stream);
	return printed(length, message, size);
}
