/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Events: without timing, safe beside captures, found again at close. */
#include "cuda_rig.h"

static void life(void)
{
	struct glk_drv_event *event = NULL;

	is_int(drv->ops->event_new(drv, 1, &event), 0, "new");
	is_int(fake->event_flags, GLK_CU_EVENT_DISABLE_TIMING, "without timing");
	is_int(drv->ops->event_record(drv, event, NULL), 0, "record");
	ok(fake->context == FAKE_CONTEXT(1), "in the context of its GPU");
	is_int(drv->ops->stream_wait(drv, FAKE_STREAM, event), 0, "wait");
	is_int(drv->ops->event_query(drv, event), 0, "done");
	fake->query = GLK_CU_NOT_READY;
	is_int(drv->ops->event_query(drv, event), -EAGAIN, "pending");
	fake->query = GLK_CU_ILLEGAL_ADDRESS;
	is_int(drv->ops->event_query(drv, event), -ENODEV, "lost");
	fake->query = GLK_CU_SUCCESS;
	is_int(drv->ops->event_sync(drv, event), 0, "the host waits");
	fail("cuEventSynchronize", GLK_CU_ILLEGAL_ADDRESS);
	is_int(drv->ops->event_sync(drv, event), -ENODEV, "in vain, the GPU is lost");
	fake->fail_call = NULL;
	is_int(drv->ops->event_free(drv, event), 0, "free");
	is_int(fake->events, 0, "none left");
	is_int(drv->ops->event_free(drv, event), -EINVAL, "free again");
	is_int(drv->ops->event_query(drv, event), -EINVAL, "query after");
	is_int(drv->ops->event_sync(drv, event), -EINVAL, "wait of the host after");
	is_int(drv->ops->event_record(drv, event, NULL), -EINVAL, "record after");
	is_int(drv->ops->stream_wait(drv, NULL, event), -EINVAL, "wait after");
	is_int(fake->events, 0, "the driver was not asked");
}

static void contexts(void)
{
	struct glk_drv_event *event = NULL;
	int pushes;

	drv->ops->event_new(drv, 1, &event);
	pushes = fake->pushes;
	is_int(drv->ops->event_record(drv, event, FAKE_STREAM), 0, "a real stream");
	is_int(drv->ops->stream_wait(drv, FAKE_STREAM, event), 0, "its wait");
	is_int(drv->ops->event_query(drv, event), 0, "a query");
	is_int(drv->ops->event_sync(drv, event), 0, "and a wait of the host");
	is_int(fake->pushes, pushes, "take no context");
	is_int(drv->ops->stream_wait(drv, GLK_STREAM_PER_THREAD, event), 0,
		"a default stream");
	ok(fake->context == FAKE_CONTEXT(1), "does");
	fake->want_context = true;
	is_int(drv->ops->event_record(drv, event, FAKE_STREAM), 0, "if it is wanted");
	ok(fake->context == FAKE_CONTEXT(1), "the event's is given");
	is_int(drv->ops->stream_wait(drv, FAKE_STREAM, event), 0, "to a wait");
	ok(fake->context == FAKE_CONTEXT(1), "too");
	is_int(drv->ops->event_query(drv, event), 0, "to a query");
	ok(fake->context == FAKE_CONTEXT(1), "too");
	is_int(drv->ops->event_sync(drv, event), 0, "and to a wait of the host");
	ok(fake->context == FAKE_CONTEXT(1), "too");
	is_int(fake->mode, 0, "the thread's mode is as before");
	fail("cuCtxPushCurrent", GLK_CU_CONTEXT_IS_DESTROYED);
	is_int(drv->ops->event_query(drv, event), -ENODEV, "unless it has gone");
	is_int(drv->ops->event_record(drv, event, FAKE_STREAM), -ENODEV, "for records");
	is_int(drv->ops->stream_wait(drv, FAKE_STREAM, event), -ENODEV, "and waits");
	fake->fail_call = NULL;
	fake->want_context = false;
	drv->ops->event_free(drv, event);
}

static void captures(void)
{
	struct glk_drv_event *event = NULL;

	fake->capturing = 1;
	is_int(drv->ops->event_new(drv, 0, &event), 0, "new beside a capture");
	is_int(drv->ops->event_query(drv, event), 0, "query beside a capture");
	is_int(drv->ops->event_sync(drv, event), 0, "wait of the host beside one");
	ok(!fake->capture_broken, "which lives");
	is_int(fake->mode, 0, "the thread's mode is as before");
	fake->capturing = 0;
	fake->query = 907;
	is_int(drv->ops->event_query(drv, event), -EBUSY,
		"an event recorded in a capture");
	fake->query = GLK_CU_SUCCESS;
	drv->ops->event_free(drv, event);
}

static void failing(void)
{
	struct glk_drv_event *event = NULL, *again = NULL;

	fail("cuEventCreate", GLK_CU_OUT_OF_MEMORY);
	is_int(drv->ops->event_new(drv, 0, &event), -ENOMEM, "none to be had");
	ok(!event, "the output is left alone");
	fake->fail_call = NULL;
	is_int(glk_load_relaxed(&glk_cuda_of(drv)->events.live), 0,
		"and its slot is back");
	is_int(drv->ops->event_new(drv, 2, &event), -EINVAL, "GPU 2 of 2");
	is_int(drv->ops->event_new(drv, 0, &event), 0, "one more");
	fail("cuEventDestroy", GLK_CU_DEINITIALIZED);
	is_int(drv->ops->event_free(drv, event), 0, "free when the driver has gone");
	fake->fail_call = NULL;
	is_int(drv->ops->event_new(drv, 0, &again), 0, "one more");
	ok(again == event, "in the same slot");
	drv->ops->event_free(drv, again);
}

static void full(void)
{
	struct glk_drv_event *event = NULL;
	struct glake_error record = {.sz = sizeof(record)};
	int err = 0, count = 0;

	fake->events = 0;
	while (!err && count <= GLK_CUDA_EVENTS_MAX) {
		err = drv->ops->event_new(drv, 0, &event);
		count += !err;
	}
	is_int(count, GLK_CUDA_EVENTS_MAX, "the most there may be");
	is_int(err, -ENOMEM, "one more");
	glake_last_error(&record);
	is_int(record.error_class, GLAKE_ERROR_LIMIT, "is a limit");
}

int main(void)
{
	rig_begin();
	life();
	contexts();
	captures();
	failing();
	full();
	is_int(fake->pushes, fake->pops, "as many pops as pushes");
	tap_expect_log(1); /* events left over */
	is_int(drv->ops->close(drv), 0, "close");
	is_int(fake->events, 0, "ends every event");
	is_int(fake->retained[0] + fake->retained[1], 0, "and gives the contexts back");
	return tap_done();
}
