/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Threads that write one trace: nothing is lost, nothing mixed, and the end comes for all. */
#include "rig.h"

#include "base/error.h"
#include "base/thread.h"

#include <sys/prctl.h>

#define MIB	((size_t)1 << 20)
#define PER	((size_t)GLK_TRACE_EVENTS - 1) /* events in a chunk of one thread */
#define ROOM	15u			       /* chunks of 1 MiB */
#define THREADS 8
#define EACH	5000u

static struct glk_trace *trace;

static void done(void)
{
	glk_trace_close(trace, START + 1000000000);
	unlink(rig_path);
}

static void test_event(void)
{
	const struct glake_trace_event *e;
	struct rig_file file;
	char name[17] = "";

	prctl(PR_SET_NAME, "writer of fifte");
	trace = rig_open(MIB);
	for (uint64_t i = 0; i < 3; i++)
		rig_put(trace, 100 + (int64_t)i, i);
	file = rig_read(); /* while it is open */
	is_int((int64_t)file.header.chunks, 1, "one chunk");
	is_int((int64_t)rig_events(&file, 0), 4, "four events: who writes, and three");
	e = rig_event(&file, 0, 0);
	is_int(rig_kind(&file, 0, 0), GLAKE_TRACE_THREAD, "who writes");
	is_int(e->ns, 100, "of the time of the first");
	is_int(glake_trace_size(e->what) & 0xffffff, gettid(), "its id");
	is_int((int64_t)(glake_trace_size(e->what) >> 24), 1, "its lane");
	memcpy(name, &e->address, 8);
	memcpy(name + 8, &e->stream, 8);
	is_str(name, "writer of fifte", "its name");
	e = rig_event(&file, 0, 3);
	ok(e->ns == 102 && e->address == 2 && e->stream == ~UINT64_C(2), "an event");
	ok(glake_trace_kind(e->what) == GLAKE_TRACE_ALLOC &&
			glake_trace_device(e->what) == 1 &&
			glake_trace_size(e->what) == 3,
		"and what it is");
	free(file.bytes);
	done();
}

static void test_refuse(void)
{
	struct glake_trace_event *event;
	struct rig_file file;

	trace = rig_open(MIB);
	event = rig_put(trace, 5, 7);
	glk_trace_refuse(event, -EINVAL);
	rig_put(trace, 6, 8);
	file = rig_read();
	is_int(rig_kind(&file, 0, 1), GLAKE_TRACE_FREE_FAILED, "a free that was refused");
	is_int((int64_t)glake_trace_size(rig_event(&file, 0, 1)->what), EINVAL,
		"and why");
	is_int((int64_t)rig_event(&file, 0, 1)->address, 7, "and of what");
	is_int(rig_kind(&file, 0, 2), GLAKE_TRACE_ALLOC, "the next one is not touched");
	glk_trace_refuse(NULL, -EINVAL);
	free(file.bytes);
	done();
}

static void test_chunks(void)
{
	struct rig_file file;
	bool right = true;

	trace = rig_open(MIB);
	for (uint64_t i = 0; i < 3 * PER; i++)
		right &= rig_put(trace, (int64_t)i, i) != NULL;
	glk_trace_close(trace, START);
	file = rig_read();
	ok(right, "all were recorded");
	is_int((int64_t)file.header.chunks, 3, "three chunks, each full");
	is_int((int64_t)file.size, 4 * 65536, "the file has no more");
	for (uint64_t i = 0; i < 3 * PER; i++)
		right &= rig_event(&file, i / PER, 1 + i % PER)->address == i;
	for (uint64_t i = 0; i < 3; i++)
		right &= rig_kind(&file, i, 0) == GLAKE_TRACE_THREAD;
	ok(right, "each says who writes, and has its events in order");
	free(file.bytes);
	unlink(rig_path);
}

/* Fills a whole chunk less one event, and waits. */
static pthread_barrier_t meet;

static void *fill_one(void *arg)
{
	(void)arg;
	rig_put(trace, 10, 1);
	pthread_barrier_wait(&meet); /* it has a chunk */
	pthread_barrier_wait(&meet); /* the others are used up */
	ok(rig_put(trace, 500, 2) != NULL, "what lies before the end is recorded still");
	ok(!rig_put(trace, 5000, 3), "what lies behind is not, though there is room");
	return NULL;
}

static void test_full(void)
{
	struct rig_file file;
	pthread_t thread;
	int64_t ns = 1000;

	trace = rig_open(MIB);
	pthread_barrier_init(&meet, NULL, 2);
	pthread_create(&thread, NULL, fill_one, NULL);
	pthread_barrier_wait(&meet);
	tap_expect_log(1);
	while (rig_put(trace, ns, (uint64_t)ns))
		ns++;
	has_str(tap.last_log, "has ended: it has the size of trace.size", "says so");
	is_int(ns - 1000, (ROOM - 1) * PER, "a thread has all chunks but one");
	ok(!rig_put(trace, ns + 1, 0), "and no other");
	ns = 600;
	ok(!rig_put(trace, ns, 0), "nor for an event of an earlier time");
	pthread_barrier_wait(&meet);
	pthread_join(thread, NULL);
	pthread_barrier_destroy(&meet);
	glk_trace_close(trace, START);
	file = rig_read();
	is_int((int64_t)file.header.chunks, ROOM, "all chunks are in use");
	is_int((int64_t)file.header.dropped, 4, "four events were dropped");
	is_int(file.header.end_ns, ns, "the earliest of them is the end");
	free(file.bytes);
	unlink(rig_path);
}

static void *write_many(void *arg)
{
	uint64_t number = (uint64_t)(uintptr_t)arg;
	uint64_t lost = 0;

	for (uint64_t i = 0; i < EACH; i++)
		lost += !rig_put(
			trace, (int64_t)(i * THREADS + number), number << 32 | i);
	return (void *)(uintptr_t)lost;
}

static void test_threads(void)
{
	uint64_t lost = 0, next[THREADS] = {0}, signs = 0;
	bool right = true, same = true;
	pthread_t thread[THREADS];
	struct rig_file file;
	void *one;

	trace = rig_open(64 * MIB);
	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_create(&thread[i], NULL, write_many, (void *)i);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(thread[i], &one);
		lost += (uint64_t)(uintptr_t)one;
	}
	glk_trace_close(trace, START);
	file = rig_read();
	is_int((int64_t)lost, 0, "8 threads record 5000 events each");
	for (uint64_t c = 0; c < file.header.chunks; c++) {
		size_t events = rig_events(&file, c);
		int64_t last = -1;

		right &= events && rig_kind(&file, c, 0) == GLAKE_TRACE_THREAD;
		for (size_t i = 0; i < events; i++) {
			const struct glake_trace_event *e = rig_event(&file, c, i);

			right &= e->ns >= last;
			last = e->ns;
			if (glake_trace_kind(e->what) == GLAKE_TRACE_THREAD) {
				signs++;
				continue;
			}
			same &= (e->address & 0xffffffff) == next[e->address >> 32]++;
		}
	}
	ok(right, "every chunk begins with its thread and goes on in order");
	ok(same, "every thread's events are there, in order");
	for (int i = 0; i < THREADS; i++)
		right &= next[i] == EACH;
	ok(right, "all of them");
	tap_note("%" PRIu64 " chunks, signed %" PRIu64 " times", file.header.chunks,
		signs);
	free(file.bytes);
	unlink(rig_path);
}

static void *write_one(void *arg)
{
	rig_put(trace, (int64_t)(intptr_t)arg, 1);
	return NULL;
}

static void test_successors(void)
{
	struct rig_file file;

	trace = rig_open(MIB);
	for (intptr_t i = 0; i < 100; i++)
		rig_thread(write_one, (void *)(i * 10));
	file = rig_read();
	is_int((int64_t)file.header.chunks, 1,
		"100 threads one after the other write one chunk");
	is_int((int64_t)rig_events(&file, 0), 200, "and each says who it is");
	free(file.bytes);
	rig_thread(write_one, (void *)(intptr_t)985);
	file = rig_read();
	is_int((int64_t)file.header.chunks, 2,
		"one that read the clock before its predecessor begins a chunk");
	is_int(rig_event(&file, 1, 1)->ns, 985, "with its event");
	is_int((int64_t)(glake_trace_size(rig_event(&file, 1, 0)->what) >> 24), 1,
		"in the same lane");
	free(file.bytes);
	done();
}

static void *write_until(void *arg)
{
	(void)arg;
	for (uint64_t i = 0; i < PER - 1; i++)
		rig_put(trace, 1, i);
	return NULL;
}

/* Two events have to find room: who goes on, and what it records. */
static void test_last_place(void)
{
	struct rig_file file;

	trace = rig_open(MIB);
	rig_thread(write_until, NULL);
	rig_thread(write_one, (void *)(intptr_t)2);
	file = rig_read();
	is_int((int64_t)file.header.chunks, 2, "one place left is too little");
	is_int((int64_t)rig_events(&file, 0), GLK_TRACE_EVENTS - 1, "it stays free");
	is_int((int64_t)rig_events(&file, 1), 2, "and the next chunk begins");
	free(file.bytes);
	done();
}

/* A thread that ended between the last two steps of its last event. */
static void *die_early(void *arg)
{
	struct glk_lane *lane;

	(void)arg;
	rig_put(trace, 1, 41);
	rig_put(trace, 2, 42);
	lane = glk_thread_current->trace.lane;
	glk_store_relaxed(&lane->at, glk_load_relaxed(&lane->at) - 1);
	return NULL;
}

static void test_killed(void)
{
	struct rig_file file;

	trace = rig_open(MIB);
	rig_thread(die_early, NULL);
	rig_thread(write_one, (void *)(intptr_t)3);
	file = rig_read();
	is_int((int64_t)rig_event(&file, 0, 2)->address, 42,
		"the last event of a killed thread stays");
	is_int(rig_kind(&file, 0, 3), GLAKE_TRACE_THREAD,
		"and the next goes on behind it");
	free(file.bytes);
	done();
}

/* One thread and two traces by turns, then one of them closed. */
static void test_two(void)
{
	struct glk_trace *other = NULL;
	char path[300];
	struct rig_file file;
	bool right = true;

	snprintf(path, sizeof(path), "%s/b.trace", rig_folder);
	trace = rig_open(MIB);
	if (rig_open_at(path, MIB, &other))
		tap_bail("no second trace");
	for (uint64_t i = 0; i < 100; i++) {
		right &= rig_put(trace, (int64_t)i, i) != NULL;
		right &= rig_put(other, (int64_t)i, i) != NULL;
	}
	ok(right, "two traces by turns");
	file = rig_read();
	ok(file.header.chunks == 1 && rig_events(&file, 0) == 200, "one chunk does");
	free(file.bytes);
	is_int(glk_load_relaxed(&trace->lanes.live), 0, "the lane of one is free");
	is_int(glk_load_relaxed(&other->lanes.live), 1, "that of the other is taken");
	glk_trace_close(other, START);
	unlink(path);
	ok(rig_put(trace, 1000, 1) != NULL, "the other is closed, this one goes on");
	done();
}

static void *outlive(void *arg)
{
	(void)arg;
	rig_put(trace, 1, 1);
	pthread_barrier_wait(&meet);
	pthread_barrier_wait(&meet);
	return NULL;
}

static void test_outlived(void)
{
	uint64_t bytes = glk_region_bytes();
	pthread_t thread;

	pthread_barrier_init(&meet, NULL, 2);
	trace = rig_open(MIB);
	pthread_create(&thread, NULL, outlive, NULL);
	pthread_barrier_wait(&meet);
	done();
	pthread_barrier_wait(&meet);
	pthread_join(thread, NULL);
	pthread_barrier_destroy(&meet);
	is_int((int64_t)glk_region_bytes(), (int64_t)bytes,
		"a thread may outlive the trace it wrote");
}

static void test_no_lane(void)
{
	struct rig_file file;

	trace = rig_open(MIB);
	rig_put(trace, 1, 1);
	trace->lanes.max = 1;
	tap_expect_log(1);
	rig_thread(write_one, (void *)(intptr_t)9);
	has_str(tap.last_log, "no memory for another thread", "no lane: says so");
	ok(!rig_put(trace, 10, 2), "recording ends for all");
	file = rig_read();
	is_int(file.header.end_ns, 9, "at the time of what was lost");
	free(file.bytes);
	done();
}

/* A child writes nothing, whatever ends in it. */
static void test_fork(void)
{
	struct rig_file file;
	int status = -1;
	pid_t pid;

	trace = rig_open(MIB);
	rig_put(trace, 1, 1);
	pid = fork();
	if (!pid) {
		struct glk_thread *self = glk_thread_current;

		glk_trace_forked();
		rig_thread(write_one, (void *)(intptr_t)2); /* a new thread ends */
		_exit(self->trace.serial != trace->serial);
	}
	waitpid(pid, &status, 0);
	is_int(status, 0, "a forked child ends threads");
	ok(rig_put(trace, 3, 3) != NULL, "its parent goes on");
	file = rig_read();
	is_int((int64_t)rig_event(&file, 0, 2)->address, 3, "where it was");
	free(file.bytes);
	done();
}

/* What a call has left for the caller to read is not changed by recording it. */
static void test_errors(void)
{
	struct glake_error error = {.sz = sizeof(error)};

	trace = rig_open(MIB);
	trace->lanes.max = 0;
	glk_error(-EBUSY, GLAKE_ERROR_BUSY, "as it was");
	errno = ENOTTY;
	tap_expect_log(1);
	ok(!rig_put(trace, 1, 1), "no lane at all");
	is_int(errno, ENOTTY, "errno is kept");
	glake_last_error(&error);
	is_str(error.text, "as it was", "and the error record");
	done();
}

int main(void)
{
	tap_plan_later();
	rig_start();
	test_event();
	test_refuse();
	test_chunks();
	test_full();
	test_threads();
	test_successors();
	test_last_place();
	test_killed();
	test_two();
	test_outlived();
	test_no_lane();
	test_fork();
	test_errors();
	rig_end();
	return tap_done();
}
