/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Events that are recorded before anybody asks, and what a wait is for. */
#include "gpu.h"

#include "base/error.h"
#include "soft/fault.h"

#include <errno.h>
#include <pthread.h>

#define MUCH (UINT64_C(1) << 30) /* bytes */

/*
 * Much that two streams used was freed: an event tells of it, and who waits for that does not wait for what
 * they are given afterwards.
 */
static void is_due(void)
{
	struct glk_stream *a, *b, *c;
	struct glk_use use, late, first;
	struct gpu gpu;

	gpu_open(&gpu);
	a = gpu_stream(&gpu);
	b = gpu_stream(&gpu);
	c = gpu_stream(&gpu);
	first = use = gpu_free(&gpu, a);
	ok(!glk_event_record_due(&gpu.streams, 0), "nothing is due");
	glk_event_due(&gpu.streams, glk_stream_mask(a), 1023);
	ok(!glk_event_record_due(&gpu.streams, 1 << 20), "too little was freed");
	is_int(gpu.streams.records, 0, "no event");
	is_int(glk_clock_waits(&gpu.streams, &use, b), 1 + GLK_WAITS_LATE,
		"who has it waits for all");
	glk_event_due(&gpu.streams, glk_stream_mask(b), 1);
	ok(glk_event_record_due(&gpu.streams, 1 << 20), "a part of 1024 is enough");
	is_int(gpu.streams.records, 1, "an event on the one that was given something");
	ok(!glk_event_record_due(&gpu.streams, 0), "nothing is due any more");
	late = gpu_free(&gpu, a);
	is_int(glk_clock_waits(&gpu.streams, &use, b), 1, "who has it waits for that");
	is_int(glk_clock_waits(&gpu.streams, &late, b), 1 + GLK_WAITS_LATE,
		"what is freed later is behind all");
	is_int(glk_clock_order(&gpu.streams, &use, b), 0, "a wait");
	is_int(gpu.streams.records, 1, "for the event that there is");
	is_int(glk_soft_step(gpu.drv, 0, a->handle), 0, "which passes");
	ok(glk_event_ask_few(&gpu.streams), "that is found out");
	ok(glk_clock_finished(&gpu.streams, &first), "what was freed has finished");
	for (int i = 0; i < 2 * GLK_STREAM_EVENTS; i++) {
		late = gpu_free(&gpu, a);
		glk_event_due(&gpu.streams, glk_stream_mask(a), 1 << 20);
		glk_event_record_due(&gpu.streams, 1 << 20);
		glk_soft_step(gpu.drv, 0, a->handle);
	}
	is_int(glk_clock_waits(&gpu.streams, &late, c), 1,
		"a full ring makes room by what has passed");
	ok(a->done > first.tick, "which was found out");
	gpu_close(&gpu);
}

/* None is recorded where it would decide nothing, or may not be. */
static void is_not_due(void)
{
	struct glk_stream *a;
	struct gpu gpu;

	gpu_open(&gpu);
	a = gpu_stream(&gpu);
	gpu_stream(&gpu);
	gpu_free(&gpu, a);
	glk_event_due(&gpu.streams,
		glk_stream_mask(a) | GLK_USE_CROWD | UINT64_C(1) << 40, MUCH);
	a->announced = 1;
	ok(!glk_event_record_due(&gpu.streams, 0), "not on a stream that may capture");
	is_int(gpu.streams.records, 0, "no event");
	gpu_close(&gpu);
}

/* A host that is far ahead: of more events than a ring has room for each second one stays. */
static void is_far_ahead(void)
{
	struct glk_stream *a, *b;
	struct glk_use use[20], ninth;
	struct gpu gpu;

	gpu_open(&gpu);
	a = gpu_stream(&gpu);
	b = gpu_stream(&gpu);
	for (int i = 0; i < 20; i++) {
		use[i] = gpu_free(&gpu, a);
		glk_event_due(&gpu.streams, glk_stream_mask(a), MUCH);
		glk_event_record_due(&gpu.streams, MUCH);
	}
	ok(a->count > 2 && a->count <= GLK_STREAM_EVENTS,
		"20 events, and none has passed");
	ninth = use[8];
	is_int(glk_clock_order(&gpu.streams, &use[8], b), 0, "who waits for the ninth");
	ok(gpu.streams.seen[b->bit][a->bit] >= ninth.tick &&
			gpu.streams.seen[b->bit][a->bit] < use[16].tick,
		"does not wait for the seventeenth");
	is_int(glk_clock_waits(&gpu.streams, &use[19], b), 1, "the last one is told of");
	for (int i = 0; i < 3; i++)
		glk_soft_step(gpu.drv, 0, a->handle);
	glk_event_ask(&gpu.streams);
	ok(glk_clock_finished(&gpu.streams, &use[0]),
		"what was first is seen to pass first");
	ok(!glk_clock_finished(&gpu.streams, &use[19]), "and not the last");
	glk_soft_run_all(gpu.drv);
	gpu_close(&gpu);
}

static struct glk_stream *stream[GLK_STREAM_CROWD + 80];

#define STREAMS (sizeof(stream) / sizeof(*stream))

/* It gives the lock up. */
static bool poll_crowd(struct gpu *gpu)
{
	bool learned;

	glk_lock(gpu->streams.gpu);
	learned = glk_event_poll_crowd(&gpu->streams);
	glk_unlock(gpu->streams.gpu);
	return learned;
}

/* Streams that share a bit have no event that is due, and waits for them are no better than others. */
static void is_of_crowd(void)
{
	struct glk_use crowd, one;
	struct gpu gpu;

	gpu_open(&gpu);
	for (size_t i = 0; i < STREAMS; i++)
		stream[i] = gpu_stream(&gpu);
	for (size_t i = 1; i < STREAMS; i++)
		one = gpu_free(&gpu, stream[i]);
	crowd = glk_use_of(GLK_USE_CROWD, gpu.streams.tick);
	is_int(glk_clock_waits(&gpu.streams, &one, stream[0]), 1 + GLK_WAITS_LATE,
		"one of the crowd is late");
	ok(glk_clock_waits(&gpu.streams, &crowd, stream[0]) > 2 * GLK_WAITS_LATE,
		"all of it are late many times");
	ok(glk_clock_waits(&gpu.streams, &crowd, stream[0]) < GLK_WAITS_NEVER,
		"and can be waited for");
	glk_event_due(&gpu.streams, one.streams, MUCH);
	ok(!glk_event_record_due(&gpu.streams, 0), "none of it has an event that is due");
	glk_event_due(&gpu.streams, UINT64_C(0x1ff), MUCH);
	ok(!glk_event_record_due(&gpu.streams, 0), "nor have nine streams at once");
	poll_crowd(&gpu);
	one = gpu_free(&gpu, stream[1]);
	glk_event_due(&gpu.streams, one.streams, MUCH);
	ok(glk_event_record_due(&gpu.streams, 0), "beside events of the crowd");
	glk_event_ask_few(&gpu.streams);
	ok(stream[1]->done < one.tick, "one is asked, and has not passed");
	glk_soft_run_all(gpu.drv);
	ok(glk_event_ask_few(&gpu.streams) && stream[1]->done >= one.tick,
		"it is asked again");
	gpu_close(&gpu);
}

/* Events of a crowd whose work somebody is to wait for: one each, and none that is there already. */
static void is_covered(void)
{
	size_t bare = 0;
	struct gpu gpu;

	gpu_open(&gpu);
	for (size_t i = 0; i < STREAMS; i++)
		stream[i] = gpu_stream(&gpu);
	for (size_t i = GLK_STREAM_CROWD; i < STREAMS; i++)
		gpu_free(&gpu, stream[i]);
	ok(poll_crowd(&gpu),
		"of many streams nothing is learned, and others had the lock");
	for (size_t i = GLK_STREAM_CROWD; i < STREAMS; i++)
		bare += glk_event_newest(stream[i]) <
			glk_stream_freed(&gpu.streams, stream[i]);
	is_int(bare, 0, "each has an event");
	is_int(gpu.streams.records, STREAMS - GLK_STREAM_CROWD, "just one");
	ok(!poll_crowd(&gpu), "nobody has the lock for nothing");
	is_int(gpu.streams.records, STREAMS - GLK_STREAM_CROWD, "nor one event more");
	glk_soft_run_all(gpu.drv);
	gpu_close(&gpu);
}

/* Of a record that fails nobody hears, since nobody asked for it. */
static void is_quiet(void)
{
	struct glake_error error = {.sz = sizeof(error)};
	struct glk_stream *a;
	struct gpu gpu;

	gpu_open(&gpu);
	a = gpu_stream(&gpu);
	gpu_free(&gpu, a);
	glk_error(-EDOM, GLAKE_ERROR_INVAL, "what failed last");
	is_int(glk_fault_set(gpu.drv, "event_record:from=1:err=EIO"), 0,
		"no event can be recorded");
	glk_event_due(&gpu.streams, glk_stream_mask(a), MUCH);
	ok(!glk_event_record_due(&gpu.streams, 0), "nor that one");
	glk_event_poll(&gpu.streams);
	glake_last_error(&error);
	is_int(error.err, -EDOM, "what failed last is on record");
	is_int(glk_fault_set(gpu.drv, "off"), 0, "events again");
	gpu_close(&gpu);
}

/* A thread's own default stream is recorded on by that thread alone. */
struct other {
	struct gpu *gpu;
	struct glk_stream *own;
	pthread_barrier_t meet;
	bool recorded;
};

static void *go_on(void *arg)
{
	struct other *o = arg;

	o->own = gpu_enter(o->gpu, GLK_STREAM_PER_THREAD);
	gpu_free(o->gpu, o->own);
	glk_event_due(&o->gpu->streams, glk_stream_mask(o->own), MUCH);
	pthread_barrier_wait(&o->meet);
	pthread_barrier_wait(&o->meet);
	o->recorded = glk_event_record_due(&o->gpu->streams, 0);
	return NULL;
}

static void is_of_thread(void)
{
	pthread_t thread;
	struct other o;
	struct gpu gpu;

	gpu_open(&gpu);
	o = (struct other){.gpu = &gpu};
	pthread_barrier_init(&o.meet, NULL, 2);
	pthread_create(&thread, NULL, go_on, &o);
	pthread_barrier_wait(&o.meet);
	ok(!glk_event_record_due(&gpu.streams, 0), "not by another thread");
	pthread_barrier_wait(&o.meet);
	pthread_join(thread, NULL);
	ok(o.recorded, "but by its own, later");
	pthread_barrier_destroy(&o.meet);
	glk_soft_run_all(gpu.drv);
	gpu_close(&gpu);
}

int main(void)
{
	tap_plan_later();
	is_due();
	is_not_due();
	is_far_ahead();
	is_of_crowd();
	is_covered();
	is_quiet();
	is_of_thread();
	return tap_done();
}
