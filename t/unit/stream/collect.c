/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Frees behind events of the program, in whose place a stream of the library waits. */
#include "gpu.h"

#include "soft/fault.h"

#include <errno.h>

#define EVENTS 40

struct scene {
	struct gpu gpu;
	struct glk_stream *s[4];
	struct CUevent_st *event[EVENTS];
};

static void scene_open(struct scene *s)
{
	gpu_open(&s->gpu);
	for (int i = 0; i < 4; i++)
		s->s[i] = gpu_stream(&s->gpu);
	for (int i = 0; i < EVENTS; i++) {
		if (s->gpu.drv->ops->user_event_new(s->gpu.drv, 0, &s->event[i]))
			tap_bail("no event");
	}
}

static void scene_close(struct scene *s)
{
	for (int i = 0; i < EVENTS; i++) {
		if (s->event[i])
			s->gpu.drv->ops->user_event_free(s->gpu.drv, s->event[i]);
	}
	gpu_close(&s->gpu);
}

/* Recorded behind the work of a stream so far. */
static void record(struct scene *s, int event, int stream)
{
	if (s->gpu.drv->ops->user_event_record(
		    s->gpu.drv, 0, s->event[event], s->s[stream]->handle))
		tap_bail("no record");
}

/* Memory freed behind some events; its stream. */
static struct glk_stream *collect(
	struct scene *s, int first, size_t count, struct glk_use *ret_use)
{
	struct glk_stream *stream;
	uint32_t id = 0;

	if (glk_collect(&s->gpu.streams, &s->event[first], count, &id))
		tap_bail("nothing waits for the events");
	stream = glk_stream_enter(&s->gpu.streams, id);
	*ret_use = gpu_free(&s->gpu, stream);
	return stream;
}

static void waits(void)
{
	struct glk_stream *stream;
	struct glk_use use, kept;
	struct scene s;

	scene_open(&s);
	gpu_hold(&s.gpu, s.s[1], true);
	record(&s, 0, 0);
	record(&s, 1, 1);
	stream = collect(&s, 0, 2, &use);
	kept = use;
	is_int((int64_t)use.streams, (int64_t)glk_stream_mask(stream),
		"one stream stands for both");
	is_int(gpu_pending(&s.gpu, stream), 2, "and waits for two events");
	ok(stream != s.s[0] && stream != s.s[1], "a stream of the library");
	is_int(gpu_waits(&s.gpu.streams, &use, s.s[0]), 1,
		"who wants the memory waits for it");
	is_int(glk_clock_order(&s.gpu.streams, &use, s.s[2]), 0, "ordered");
	/* what the events stand for was taken at the call */
	record(&s, 1, 3);
	s.gpu.drv->ops->user_event_free(s.gpu.drv, s.event[0]);
	s.event[0] = NULL;
	gpu_finish(&s.gpu);
	is_int(gpu_pending(&s.gpu, stream), 2, "one has passed, one is in front");
	is_int(gpu_pending(&s.gpu, s.s[2]), 2,
		"the device holds the waiter, and its event");
	ok(!glk_clock_finished(&s.gpu.streams, &kept), "the memory is not free");
	gpu_hold(&s.gpu, s.s[1], false);
	gpu_finish(&s.gpu);
	ok(glk_clock_finished(&s.gpu.streams, &kept), "when both have passed it is");
	is_int(gpu_pending(&s.gpu, s.s[2]), 0, "and the waiter goes on");
	scene_close(&s);
}

/* Events that are done, that were never recorded, the same one twice, and many. */
static void takes_any(void)
{
	struct glk_use use;
	struct scene s;

	scene_open(&s);
	record(&s, 0, 0);
	glk_soft_run_all(s.gpu.drv);
	collect(&s, 0, 2, &use);
	gpu_finish(&s.gpu);
	ok(glk_clock_finished(&s.gpu.streams, &use), "done, and never recorded");
	for (int i = 0; i < EVENTS; i++)
		record(&s, i, i % 4);
	collect(&s, 0, EVENTS, &use);
	gpu_finish(&s.gpu);
	ok(glk_clock_finished(&s.gpu.streams, &use), "forty on four streams");
	record(&s, 0, 0);
	s.gpu.drv->ops->user_event_free(s.gpu.drv, s.event[1]);
	s.event[1] = s.event[0];
	collect(&s, 0, 2, &use);
	s.event[1] = NULL;
	gpu_finish(&s.gpu);
	ok(glk_clock_finished(&s.gpu.streams, &use), "one of them twice");
	scene_close(&s);
}

/* There are a few of them, by turns. */
static void takes_turns(void)
{
	struct glk_stream *seen[GLK_COLLECTORS] = {NULL};
	struct glk_use use[100];
	bool turns = true, free = true;
	uint32_t known;
	struct scene s;

	scene_open(&s);
	known = gpu_known(&s.gpu);
	for (int i = 0; i < 100; i++) {
		struct glk_stream *stream;

		record(&s, i % EVENTS, i % 4);
		stream = collect(&s, i % EVENTS, 1, &use[i]);
		turns &= !seen[i % GLK_COLLECTORS] || seen[i % GLK_COLLECTORS] == stream;
		seen[i % GLK_COLLECTORS] = stream;
	}
	ok(turns, "a hundred frees take turns");
	is_int(gpu_known(&s.gpu) - known, GLK_COLLECTORS, "on a few streams");
	gpu_finish(&s.gpu);
	for (int i = 0; i < 100; i++)
		free &= glk_clock_finished(&s.gpu.streams, &use[i]);
	ok(free, "all pass");
	scene_close(&s);
}

/* What is no event; a capture's own events. */
static void refuses(void)
{
	struct CUevent_st *list[3], *none = (struct CUevent_st *)0x1234;
	struct glk_use use;
	uint32_t id = 77, streams;
	struct scene s;

	scene_open(&s);
	record(&s, 0, 0);
	list[0] = s.event[0];
	list[1] = none;
	list[2] = s.event[2];
	is_int(glk_collect(&s.gpu.streams, list, 3, &id), -EINVAL, "no event among them");
	is_int(gpu_class(), GLAKE_ERROR_INVAL, "  its class");
	is_int(glk_collect(&s.gpu.streams, &none, 1, &id), -EINVAL, "nothing but that");
	list[1] = NULL;
	is_int(glk_collect(&s.gpu.streams, list, 3, &id), -EINVAL, "NULL");
	s.gpu.drv->ops->user_event_free(s.gpu.drv, s.event[2]);
	s.event[2] = NULL;
	is_int(glk_collect(&s.gpu.streams, &list[2], 1, &id), -EINVAL,
		"one that was destroyed");
	is_int(id, 77, "the output is as it was");
	collect(&s, 0, 1, &use);
	gpu_finish(&s.gpu);
	ok(glk_clock_finished(&s.gpu.streams, &use), "the next free is as ever");

	gpu_capture(&s.gpu, s.s[0]);
	record(&s, 1, 0);
	for (int i = 0; i < 2 * GLK_COLLECTORS; i++)
		is_int(glk_collect(&s.gpu.streams, &s.event[1], 1, &id), -EBUSY,
			"an event of a capture");
	is_int(gpu_class(), GLAKE_ERROR_CAPTURE, "  its class");
	list[0] = s.event[1];
	list[1] = s.event[3];
	record(&s, 3, 1);
	is_int(glk_collect(&s.gpu.streams, list, 2, &id), -EBUSY,
		"and another one behind it");
	collect(&s, 3, 1, &use);
	gpu_finish(&s.gpu);
	ok(glk_clock_finished(&s.gpu.streams, &use), "other events can be had meanwhile");
	for (int i = 0; i < GLK_COLLECT_MOST; i++)
		glk_collect(&s.gpu.streams, list, 1, &id);
	is_int(glk_collect(&s.gpu.streams, &s.event[3], 1, &id), -EBUSY,
		"until too many streams have been drawn in");
	streams = gpu_known(&s.gpu);
	is_int(gpu_capture_end(&s.gpu, s.s[0]->handle), 0, "the capture is whole");
	is_int(gpu_known(&s.gpu), streams, "nothing is known of it");
	for (int i = 0; i < 2 * GLK_COLLECTORS; i++)
		collect(&s, 3, 1, &use);
	gpu_finish(&s.gpu);
	ok(glk_clock_finished(&s.gpu.streams, &use), "the next free is as ever");
	scene_close(&s);
}

/* Each call fails once: an answer, and nothing is left that a later free would trip over. */
static void fails(void)
{
	static const char *const faults[] = {"stream_new:nth=1:err=ENOMEM",
		"stream_new:nth=1:err=EIO", "user_event_wait:nth=1:err=EIO",
		"user_event_wait:nth=2:err=EIO", "stream_facts:nth=1:err=EIO",
		"stream_owner:nth=1:err=EIO", "stream_facts:nth=2:err=EIO",
		"any:nth=1:sticky=1", "any:nth=3:sticky=1"};
	static const int codes[] = {
		-ENOMEM, -EIO, -EIO, -EIO, -EIO, -EIO, -EIO, -ENODEV, -ENODEV};
	uint32_t id = 77;
	struct glk_use use;
	struct scene s;

	for (int i = 0; i < 9; i++) {
		scene_open(&s);
		record(&s, 0, 0);
		record(&s, 1, 1);
		glk_fault_set(s.gpu.drv, faults[i]);
		is_int(glk_collect(&s.gpu.streams, s.event, 2, &id), codes[i], faults[i]);
		glk_fault_set(s.gpu.drv, "off");
		collect(&s, 0, 2, &use);
		gpu_finish(&s.gpu);
		ok(id == 77 && glk_clock_finished(&s.gpu.streams, &use),
			"the next free is as ever");
		scene_close(&s);
	}
	scene_open(&s);
	gpu_fill(&s.gpu);
	glk_region_fail_after(1);
	is_int(glk_collect(&s.gpu.streams, s.event, 1, &id), -ENOMEM,
		"no memory to know its stream");
	glk_region_fail_after(0);
	collect(&s, 0, 1, &use);
	scene_close(&s);
}

int main(void)
{
	tap_plan_later();
	waits();
	takes_any();
	takes_turns();
	refuses();
	fails();
	return tap_done();
}
