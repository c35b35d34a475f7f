/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Our own format: what threads wrote is put in one order, and what may be wrong with a file. */
#include "trace_file.h"

#include "t/seed.h"

#include <fcntl.h>
#include <sys/file.h>
#include <time.h>

static struct trace_row shown[FILE_CHUNKS * FILE_EVENTS];
static size_t shown_count;

static int keep(void *arg, const struct trace_row *row, char *text, size_t size)
{
	(void)arg;
	(void)text;
	(void)size;
	if (row->kind != GLAKE_TRACE_THREAD)
		shown[shown_count++] = *row;
	return 0;
}

static void some(void)
{
	made_empty();
	made_alloc(0, 1000, 0x1000, 100);
	made_alloc(0, 3000, 0x2000, 50);
	made_alloc(1, 2000, 0x3000, 10);
	made_free(1, 4000, 0x1000);
	made_free(0, 9500, 0x3000);
}

static void test_order(void)
{
	const struct trace_event *e;

	some();
	is_int(made_load(false), 0, "two threads");
	e = trace.events;
	is_int((int64_t)trace.count, 5, "five events");
	ok(e[0].size == 100 && e[1].size == 10 && e[2].size == 50,
		"in order of their times");
	ok(e[3].block == (0 | TRACE_FREE_BIT) && e[4].block == (1 | TRACE_FREE_BIT),
		"frees name the blocks of the other thread");
	ok(e[0].thread == 0 && e[1].thread == 1 && e[2].thread == 0 && e[3].thread == 1,
		"threads are told apart");
	is_int((int64_t)trace.peak_live, 160, "peak live");
	is_int(trace.job_us, 8, "time runs from the first event, in whole microseconds");
	is_int((int64_t)trace.stream_ids[0], 5, "the stream");
	is_int((int64_t)trace.rows, 5, "who writes is no row");
	is_str(trace.name, "a", "the name is without its ending");
}

static void test_ties(void)
{
	made_empty();
	made_alloc(1, 1000, 0x1000, 1);
	made_alloc(0, 1000, 0x2000, 2);
	made_free(0, 1000, 0x2000);
	made_alloc(2, 1000, 0x2000, 3);
	is_int(made_load(false), 0, "chunks with events of one time");
	ok(trace.events[0].size == 2 && trace.events[2].size == 1 &&
			trace.events[3].size == 3,
		"are read by their numbers");
}

static void test_threads(void)
{
	made_empty();
	made_alloc(0, 1, 0x1000, 1);
	made_add(0, 2, GLAKE_TRACE_THREAD, 0, UINT64_C(9) << 24 | 5);
	made_alloc(0, 3, 0x2000, 1);
	made_add(0, 4, GLAKE_TRACE_THREAD, 0, UINT64_C(1) << 24 | 6);
	made_alloc(0, 5, 0x3000, 1);
	is_int(made_load(false), 0, "threads one after the other in a chunk");
	ok(trace.events[0].thread == 0 && trace.events[1].thread == 1 &&
			trace.events[2].thread == 0,
		"are told apart by their lanes");
}

static void test_kinds(void)
{
	some();
	made_add(0, 9501, GLAKE_TRACE_ALLOC_FAILED, ENOMEM, GLAKE_TRACE_SIZE_MAX);
	made_add(1, 9502, GLAKE_TRACE_FREE_FAILED, 0x77, EINVAL);
	made_add(1, 9503, GLAKE_TRACE_USE, 0x2000, 0);
	made_add(1, 9504, GLAKE_TRACE_BUDGET, 1 << 20, 0);
	made_add(1, 9505, GLAKE_TRACE_FREE_AFTER, 0x2000, 2);
	is_int(made_load(false), 0, "events of other kinds");
	is_int((int64_t)trace.count, 6, "a free behind events is a free");
	is_int((int64_t)trace.noops, 4, "those without effect are counted");
	is_int((int64_t)trace.leftovers, 0, "nothing is left");
	some();
	made_add(0, 9999, GLAKE_TRACE_ALLOC_CONTIGUOUS, 0x9000, 70);
	is_int(made_load(false), 0, "a contiguous block");
	is_int((int64_t)trace.events[5].size, 70, "is a block");
}

/* What a program that was killed or is running leaves. */
static void test_unfinished(void)
{
	some();
	made.chunk[0][4].ns = 77777;
	made.chunk[0][4].address = 0x5000; /* `what` was not written yet */
	made.header.chunks = 5;		   /* claimed, and nothing in them */
	is_int(made_load_gpu(sizeof(made), false, TRACE_ONE_GPU), 0,
		"a file that is larger than what is in it");
	is_int((int64_t)trace.count, 5, "has what was completed");
	some();
	made.header.end_ns = 3000;
	is_int(made_load(false), 0, "a file that became full");
	is_int((int64_t)trace.count, 2, "has what lies before the end");
	some();
	made.header.end_ns = 0;
	is_int(made_load(false), -ENODATA, "full from the beginning");
	has_str(message, "a.trace: no event in it", "says so");
	made_empty();
	is_int(made_load(false), -ENODATA, "nothing in it");
}

/* A program that runs has a lock on the file. */
static void test_written(void)
{
	struct trace_reading reading = {.gpu = TRACE_ALL_GPUS, .visit = keep};
	int64_t hour = INT64_C(3600000000000);
	struct timespec now;
	int fd;

	clock_gettime(CLOCK_MONOTONIC, &now);
	some();
	made.header.start_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec - 1000000;
	made_alloc(0, hour, 0x7000, 1);
	made_alloc(2, hour, 0x8000, 1);
	made.chunk[1][6] = made_event(hour, GLAKE_TRACE_ALLOC, 0x9000, 1);
	made_store(made_size());
	fd = open(made_path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || flock(fd, LOCK_EX))
		tap_bail("no lock");
	shown_count = 0;
	is_int(trace_read(made_path, &reading, message, sizeof(message)), 0,
		"a trace that is being written");
	ok(reading.is_written, "is known");
	is_int((int64_t)shown_count, 5, "and read up to the time when reading began");
	made.header.closed_ns = 9000;
	made_store(made_size());
	is_int(made_load(false), -EINVAL, "one that was closed is all there");
	has_str(message, "chunk 1, event 6: it stands behind",
		"what follows is a mistake");
	close(fd);
	made.header.closed_ns = 0;
	made_store(made_size());
	is_int(made_load(false), -EINVAL, "and so is that of a killed program");
}

static void refuses(int err, const char *what, const char *says)
{
	is_int(made_load(false), err, what);
	has_str(message, "a.trace: ", "  names the file");
	has_str(message, says, "  and what is wrong");
	is_int((int64_t)trace.count, 0, "  and gives nothing");
}

static void test_header(void)
{
	some();
	made.header.version = GLAKE_TRACE_VERSION + 1;
	refuses(-EPROTONOSUPPORT, "a later version", "version 3 of the format");
	is_int(made_load(true), -EPROTONOSUPPORT, "lenient or not");
	some();
	made.header.event_size = 40;
	refuses(-EINVAL, "events of another size", "events of 40 bytes");
	some();
	made.header.header_size = 100;
	is_int(made_load_gpu(sizeof(made), false, TRACE_ONE_GPU), -EINVAL,
		"a header that is too small");
	has_str(message, "a header of 100 bytes", "says so");
	made.header.header_size = UINT32_MAX;
	is_int(made_load_gpu(sizeof(made), false, TRACE_ONE_GPU), -EINVAL,
		"one that is too large");
	some();
	made.header.chunk_size = 0;
	is_int(made_load_gpu(sizeof(made), false, TRACE_ONE_GPU), -EINVAL, "no chunks");
	made.header.chunk_size = 100;
	is_int(made_load_gpu(sizeof(made), false, TRACE_ONE_GPU), -EINVAL,
		"chunks of no whole events");
	has_str(message, "chunks of 100 bytes", "says so");
	made.header.chunk_size = UINT32_MAX - 31;
	is_int(made_load_gpu(sizeof(made), false, TRACE_ONE_GPU), -EINVAL,
		"chunks of gigabytes");
	some();
	made.header.chunks = UINT64_MAX;
	is_int(made_load_gpu(sizeof(made), true, TRACE_ONE_GPU), -EFBIG,
		"more chunks than there can be");
	has_str(message, "18446744073709551615 chunks", "says so");
	some();
	memset(made.header.program, 'x', sizeof(made.header.program));
	refuses(-EINVAL, "a name without an end", "a text in the header");
}

static void test_cut_off(void)
{
	some();
	is_int(made_load_gpu(100, false, TRACE_ONE_GPU), -ENODATA, "cut in the header");
	has_str(message, "cut off in its header", "says so");
	is_int(made_load_gpu(100, true, TRACE_ONE_GPU), -ENODATA, "lenient or not");
	some();
	is_int(made_load_gpu(made_size() - 1, false, TRACE_ONE_GPU), -ENODATA,
		"one byte is missing");
	has_str(message, "the file is cut off: of 1024 bytes it has 1023", "says so");
	is_int(made_load_gpu(512 + 256 + 32 + 31, true, TRACE_ONE_GPU), 0,
		"lenient takes what is there");
	is_int((int64_t)trace.count, 2, "whole events");
	is_int((int64_t)trace.skipped, 1, "less those that need what is gone");
	ok(trace.broken, "and says so");
	is_int(made_load_gpu(512, true, TRACE_ONE_GPU), -ENODATA, "nothing is there");
}

/* A place in a file that is wrong; lenient leaves `left` events. */
static void spoilt(const char *what, const char *says, size_t left, size_t skipped)
{
	refuses(-EINVAL, what, says);
	is_int(made_load(true), 0, "  lenient");
	is_int((int64_t)trace.count, (int64_t)left, "  takes the others");
	is_int((int64_t)trace.skipped, (int64_t)skipped, "  and counts it");
}

static void test_events(void)
{
	some();
	made.chunk[1][0].what = glake_trace_what(GLAKE_TRACE_USE, 0, 0);
	spoilt("a chunk of nobody", "chunk 1, event 0: the chunk does not begin", 2, 2);
	some();
	made.chunk[0][2].what = glake_trace_what(GLAKE_TRACE_KINDS, 0, 5);
	spoilt("an unknown kind", "chunk 0, event 2: of a kind that is not known", 4, 1);
	some();
	made.chunk[0][2].what = glake_trace_what(0, 1, 5);
	spoilt("no kind", "chunk 0, event 2: of a kind", 4, 1);
	some();
	made.chunk[0][2].ns = 999;
	spoilt("a time that goes back", "chunk 0, event 2: its time lies before", 4, 1);
	some();
	made.chunk[0][2].ns = -5;
	spoilt("a time before all", "chunk 0, event 2: its time lies before", 4, 1);
	some();
	made.chunk[0][2].what |= 2;
	spoilt("a GPU that is not there", "chunk 0, event 2: of a GPU", 4, 1);
	some();
	made.chunk[0][2].what = glake_trace_what(GLAKE_TRACE_ALLOC, 0, 0);
	spoilt("a block of nothing", "chunk 0, event 2: a block of no bytes", 4, 1);
	some();
	made.chunk[0][2].address = 0;
	spoilt("a block nowhere", "chunk 0, event 2: a block of no bytes", 4, 1);
	some();
	made.chunk[1][6] = made_event(9999, GLAKE_TRACE_ALLOC, 0x9000, 1);
	spoilt("an event behind the end", "chunk 1, event 6: it stands behind", 5, 1);
	some();
	made.chunk[0][1].address = 0x7000;
	spoilt("a free of nothing", "event 4: free of 0x1000, which is not live", 4, 1);
	some();
	made.chunk[0][2].address = 0x1000;
	spoilt("a second block at one place",
		"event 3: allocate of 0x1000, which is live", 4, 1);
}

static void test_gpus(void)
{
	some();
	made.chunk[0][2].what |= 1;
	is_int(made_load(false), -EXDEV, "events of two GPUs");
	has_str(message,
		"event 3: the trace has events of GPU 0 and of GPU 1: choose one",
		"says so");
	is_int(made_load(true), -EXDEV, "lenient or not");
	is_int(made_load_gpu(made_size(), false, 0), 0, "the first alone");
	is_int((int64_t)trace.count, 4, "has its events");
	is_int(made_load_gpu(made_size(), false, 1), 0, "the second alone");
	is_int((int64_t)trace.count, 1, "has its own");
	is_int(made_load_gpu(made_size(), false, 7), -ENODATA, "one that is not there");
	made.chunk[0][1].what |= 1;
	made.chunk[0][3].what |= 1;
	made.chunk[1][1].what |= 1;
	made.chunk[1][2].what |= 1;
	is_int(made_load(false), 0, "one GPU, if not the first");
}

/* Chunks of random times against all events sorted. */
static bool in_order(const struct trace_row *x, const struct trace_row *y)
{
	return x->time_us != y->time_us ? x->time_us < y->time_us : x->size < y->size;
}

static void test_random(void)
{
	uint64_t state = seed_thread(seed_start(), 0);
	bool right = true;

	for (int turn = 0; turn < 200 && right; turn++) {
		struct trace_reading reading = {.gpu = TRACE_ALL_GPUS, .visit = keep};
		size_t count = 0;

		made_empty();
		for (size_t c = 0; c < FILE_CHUNKS; c++) {
			int64_t us = (int64_t)seed_below(&state, 100);
			size_t events = seed_below(&state, FILE_EVENTS);

			for (size_t i = 0; i < events; i++, count++) {
				/* sizes grow with chunk and place, as ties are broken */
				made_alloc(
					c, us * 1000, 1 + count, 1 + c * FILE_EVENTS + i);
				us += (int64_t)seed_below(&state, 30);
			}
		}
		made_store(made_size());
		shown_count = 0;
		right &= !trace_read(made_path, &reading, message, sizeof(message));
		right &= shown_count == count && reading.rows == count;
		for (size_t i = 1; i < count; i++)
			right &= in_order(&shown[i - 1], &shown[i]);
	}
	ok(right, "200 files of chunks at random: all events, in order");
}

/* Whatever is in a file: an answer. */
static void test_damage(void)
{
	uint64_t state = seed_thread(seed_start(), 1);
	size_t good = 0, odd = 0;

	for (int turn = 0; turn < 5000; turn++) {
		int err;

		some();
		for (uint64_t n = 1 + seed_below(&state, 4); n; n--)
			((unsigned char *)&made)[8 + seed_below(&state, 1024 - 8)] ^=
				(unsigned char)(1u << seed_below(&state, 8));
		err = made_load_gpu(1024, turn & 1, TRACE_ONE_GPU);
		good += !err;
		odd += err && !strstr(message, "a.trace: ");
	}
	ok(good > 100 && !odd,
		"5000 damaged files: %zu are readable still, the others "
		"are errors",
		good);
}

int main(void)
{
	made_start();
	tap_plan_later();
	test_order();
	test_ties();
	test_threads();
	test_kinds();
	test_unfinished();
	test_written();
	test_header();
	test_cut_off();
	test_events();
	test_gpus();
	test_random();
	test_damage();
	made_stop();
	return tap_done();
}
