/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Traces that the tool writes are read back as they were, in either format. */
#include "trace_file.h"

#include "t/seed.h"
#include "tool/trace_tool.h"

#define ROWS 20000

static struct trace_writer writer;
static struct trace_row rows[ROWS], got[ROWS + 8];
static size_t count, threads;

static FILE *begin(const struct glake_trace_header *header)
{
	FILE *file = fopen(made_path, "w+e");

	writer = (struct trace_writer){0};
	if (!file || trace_writer_begin(&writer, file, header, message, sizeof(message)))
		tap_bail("no file for the test");
	return file;
}

static int put(const struct trace_row *row)
{
	return trace_writer_row(&writer, row, row->time_us * 1000 + row->time_ns, message,
		sizeof(message));
}

static void end(FILE *file)
{
	is_int(trace_writer_end(&writer, message, sizeof(message)), 0, "complete");
	fclose(file);
	trace_writer_fini(&writer);
}

static int keep(void *arg, const struct trace_row *row, char *text, size_t size)
{
	(void)arg;
	(void)text;
	(void)size;
	if (row->kind == GLAKE_TRACE_THREAD)
		threads++;
	else if (count < sizeof(got) / sizeof(got[0]))
		got[count++] = *row;
	return 0;
}

static int load_back(struct trace_reading *reading)
{
	*reading = (struct trace_reading){.gpu = TRACE_ALL_GPUS, .visit = keep};
	count = threads = 0;
	message[0] = '\0';
	return trace_read(made_path, reading, message, sizeof(message));
}

/* Rows of our own format, of many threads and with many equal times. */
static void test_ours(void)
{
	struct glake_trace_header header = {.end_ns = GLAKE_TRACE_NEVER,
		.devices = 4,
		.pid = 7,
		.start_realtime_ns = 5,
		.closed_ns = 99,
		.dropped = 3,
		.program = "/bin/x"};
	uint64_t state = seed_thread(seed_start(), 0), same = 0;
	struct trace_reading reading;
	int64_t ns = 0;
	FILE *file = begin(&header);
	int failed = 0;

	for (size_t i = 0; i < ROWS; i++) {
		ns += (int64_t)seed_below(&state, 3) * (int64_t)seed_below(&state, 2000);
		rows[i] = (struct trace_row){.thread = seed_below(&state, 50) * i / ROWS,
			.time_us = ns / 1000,
			.time_ns = (uint16_t)(ns % 1000),
			.kind = (uint8_t)(2 + seed_below(&state, 15)),
			.device = (uint8_t)seed_below(&state, 4),
			.pointer = seed_next(&state) | 1,
			.size = 1 + seed_below(&state, GLAKE_TRACE_SIZE_MAX),
			.stream = seed_next(&state)};
		failed += put(&rows[i]) != 0;
	}
	is_int(failed, 0, "20000 rows of ours are written");
	end(file);
	is_int(load_back(&reading), 0, "and read");
	is_int((int64_t)count, ROWS, "all of them");
	for (size_t i = 0; i < ROWS; i++) {
		same += got[i].pointer == rows[i].pointer &&
			got[i].size == rows[i].size && got[i].stream == rows[i].stream &&
			got[i].time_us == rows[i].time_us &&
			got[i].time_ns == rows[i].time_ns &&
			got[i].kind == rows[i].kind && got[i].device == rows[i].device;
	}
	is_int((int64_t)same, ROWS, "in the same order, each as it was");
	ok(reading.header.pid == 7 && reading.header.closed_ns == 99 &&
			reading.header.dropped == 3 &&
			!strcmp(reading.header.program, "/bin/x"),
		"the header too");
	tap_note("signed %zu times", threads);
}

/* The threads of a log get lanes; those of ours keep names and lanes. */
static void test_threads(void)
{
	struct trace_row row = {.thread = 0xffffffffffff, .size = 1, .pointer = 1};
	struct trace_row sign = {.kind = GLAKE_TRACE_THREAD,
		.thread = 6,
		.size = UINT64_C(6) << 24 | 1234,
		.action = TRACE_OTHER};
	struct glake_trace_header header = {.end_ns = GLAKE_TRACE_NEVER};
	struct trace_reading reading;
	FILE *file = begin(&header);

	put(&row);
	row.pointer = 2;
	put(&row);
	row.thread = 6;
	row.pointer = 3;
	put(&row);
	end(file);
	is_int(load_back(&reading), 0, "a log of two threads");
	ok(count == 3 && got[0].thread == 0 && got[1].thread == 0 && got[2].thread == 1,
		"each has a lane");
	is_int((int64_t)threads, 2, "signed when another goes on");
	file = begin(&header);
	put(&sign);
	row.kind = GLAKE_TRACE_ALLOC;
	put(&row);
	put(&sign); /* another one in the same lane */
	row.pointer = 4;
	put(&row);
	end(file);
	is_int(load_back(&reading), 0, "threads of ours");
	ok(count == 2 && got[0].thread == 6 && got[1].thread == 6, "keep their lane");
	is_int((int64_t)threads, 2, "and are signed again");
}

static void test_log_rows(void)
{
	struct glake_trace_header header = {.end_ns = GLAKE_TRACE_NEVER};
	struct trace_row row = {.action = TRACE_FAILURE, .size = UINT64_MAX};
	struct trace_reading reading;
	FILE *file = begin(&header);

	is_int(put(&row), 0, "a failure of any size");
	row.action = TRACE_ALLOCATE;
	is_int(put(&row), -EINVAL, "but no block");
	has_str(message, "a size that the format cannot hold", "says so");
	row.size = GLAKE_TRACE_SIZE_MAX;
	row.pointer = 9;
	row.time_us = 50;
	is_int(put(&row), 0, "of more than the format holds");
	row.action = TRACE_FREE;
	row.time_us = 40;
	is_int(put(&row), 0, "a time that goes back");
	end(file);
	is_int(load_back(&reading), 0, "read back");
	ok(got[0].kind == GLAKE_TRACE_ALLOC_FAILED && got[0].pointer == ENOMEM &&
			got[0].size == GLAKE_TRACE_SIZE_MAX,
		"the failure");
	ok(got[1].kind == GLAKE_TRACE_ALLOC && got[1].size == GLAKE_TRACE_SIZE_MAX,
		"the block");
	ok(got[2].kind == GLAKE_TRACE_FREE && got[2].time_us == 50 && !got[2].size,
		"the free, at the time of the row before");
}

/* Rows that fill chunks to their last place, with a change of threads there. */
static void test_edges(void)
{
	struct glake_trace_header header = {.end_ns = GLAKE_TRACE_NEVER};
	struct trace_reading reading;
	bool right = true;

	for (size_t first = 2040; first < 2052; first++) {
		struct trace_row row = {.size = 1, .pointer = 1};
		FILE *file = begin(&header);

		for (size_t i = 0; i < first + 5; i++, row.pointer++) {
			row.thread = i >= first;
			right &= !put(&row);
		}
		right &= !trace_writer_end(&writer, message, sizeof(message));
		fclose(file);
		trace_writer_fini(&writer);
		right &= !load_back(&reading) && count == first + 5 &&
			got[first - 1].thread == 0 && got[first].thread == 1 &&
			got[first + 4].pointer == first + 5;
	}
	ok(right, "a chunk is used up to its last place, whoever goes on there");
}

int main(void)
{
	made_start();
	tap_plan_later();
	test_ours();
	test_threads();
	test_log_rows();
	test_edges();
	made_stop();
	return tap_done();
}
