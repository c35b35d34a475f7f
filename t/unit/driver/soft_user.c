/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the software device tells of its streams, and events as a program makes them. */
#include "setup.h"

#include "base/slab.h"
#include "driver/soft.h"

#include <errno.h>

static struct glk_drv *drv;
static struct CUstream_st *a, *b, *far;

static uint64_t id_of(int device, struct CUstream_st *stream)
{
	struct glk_stream_facts facts = {0, 7};

	if (drv->ops->stream_facts(drv, device, stream, &facts) || facts.capture)
		return 0;
	return facts.id;
}

static void facts(void)
{
	struct glk_conf conf = setup_conf();
	struct glk_stream_facts got = {77, 77};
	uint64_t first = id_of(0, a), other;
	struct CUstream_st *again = NULL;
	struct glk_drv *second;

	ok(first, "a stream has a number");
	ok(first != id_of(0, b), "another stream another");
	ok(first == id_of(0, a), "which stays");
	ok(id_of(0, NULL) && id_of(0, NULL) == id_of(0, GLK_STREAM_LEGACY),
		"the default stream has two names");
	ok(id_of(0, NULL) != id_of(1, NULL), "and is another on each GPU");
	drv->ops->stream_free(drv, 0, a);
	drv->ops->stream_new(drv, 0, &again);
	ok(id_of(0, again) != first, "a slot used again has another number");
	breaks(drv->ops->stream_facts(drv, 0, a, &got), -EINVAL, "was freed");
	is_int((int64_t)got.id, 77, "the output is left alone");
	a = again;
	breaks(drv->ops->stream_facts(drv, 1, a, &got), -EINVAL,
		"of GPU 0, not of GPU 1");
	breaks(drv->ops->stream_facts(drv, 7, NULL, &got), -EINVAL, "GPU 7 does not");

	other = id_of(0, NULL);
	second = drv;
	drv = setup_open(&conf);
	ok(id_of(0, NULL) != other, "another device has other numbers");
	glk_drv_close(drv);
	drv = second;
}

static void owners(void)
{
	is_int(drv->ops->stream_owner(drv, 0, a), 0, "a stream of GPU 0");
	is_int(drv->ops->stream_owner(drv, 1, far), 0, "and one of GPU 1");
	breaks(drv->ops->stream_owner(drv, 1, a), -EINVAL,
		"the stream is of GPU 0, not of GPU 1");
	is_int(setup_error().error_class, GLAKE_ERROR_INVAL, "its class");
	breaks(drv->ops->stream_owner(drv, 0, (struct CUstream_st *)&drv), -EINVAL,
		"is no stream");
	is_int(drv->ops->stream_owner(drv, 0, NULL), 0, "default streams");
	is_int(drv->ops->stream_owner(drv, 1, NULL), 0, "are of every GPU");
	is_int(drv->ops->stream_owner(drv, 1, GLK_STREAM_LEGACY), 0, "by each name");
	breaks(drv->ops->stream_owner(drv, 2, NULL), -EINVAL, "GPU 2 does not exist");
}

static void events(void)
{
	struct CUevent_st *event = NULL, *old;
	struct glk_drv_event *ours = NULL;
	uint32_t word = 0;

	is_int(drv->ops->user_event_new(drv, 0, &event), 0, "an event");
	is_int(drv->ops->user_event_wait(drv, 0, b, event), 0,
		"a wait for what was never recorded");
	is_int(drv->ops->fill(drv, (uint64_t)&word, 5, 1, a), 0, "work");
	is_int(drv->ops->user_event_record(drv, 0, event, a), 0, "a record behind it");
	is_int(drv->ops->user_event_wait(drv, 1, far, event), 0,
		"a stream of another GPU waits");
	is_int(glk_soft_step(drv, 1, far), -EAGAIN, "and cannot run");
	is_int(word, 0, "nothing has");
	is_int(drv->ops->stream_sync(drv, 1, far), 0, "the host waits for it");
	is_int(word, 5, "so all has");
	breaks(drv->ops->user_event_record(drv, 1, event, far), -EINVAL,
		"an event of GPU 0 cannot be recorded on a stream of GPU 1");
	breaks(drv->ops->user_event_record(drv, 1, event, a), -EINVAL,
		"of GPU 0, not of GPU 1");
	breaks(drv->ops->user_event_wait(drv, 1, a, event), -EINVAL,
		"of GPU 0, not of GPU 1");
	is_int(drv->ops->user_event_record(drv, 0, event, NULL), 0, "the default stream");
	is_int(drv->ops->user_event_wait(drv, 0, GLK_STREAM_LEGACY, event), 0,
		"waits for itself");
	is_int(drv->ops->device_sync(drv, 0), 0, "which ends");

	/* Handles of the two kinds are told apart, and so are old ones. */
	breaks(drv->ops->user_event_new(drv, 2, &old), -EINVAL, "GPU 2 does not exist");
	drv->ops->event_new(drv, 0, &ours);
	breaks(drv->ops->user_event_record(drv, 0, (struct CUevent_st *)ours, a), -EINVAL,
		"is no event");
	breaks(drv->ops->event_record(drv, (struct glk_drv_event *)event, a), -EINVAL,
		"must be alive");
	drv->ops->event_free(drv, ours);
	old = event;
	is_int(drv->ops->user_event_free(drv, event), 0, "the event goes");
	is_int(drv->ops->user_event_new(drv, 0, &event), 0, "another comes");
	ok(event != old, "with another handle");
	breaks(drv->ops->user_event_free(drv, old), -EINVAL, "was freed");
	breaks(drv->ops->user_event_record(drv, 0, old, a), -EINVAL, "was freed");
	breaks(drv->ops->user_event_wait(drv, 0, a, old), -EINVAL, "was freed");
	breaks(drv->ops->user_event_wait(drv, 0, a, (struct CUevent_st *)&word), -EINVAL,
		"is no event");
	/* It stays: what a program leaves behind is not the library's. */
}

int main(void)
{
	struct glk_conf conf = setup_conf();
	uint64_t before;

	tap_plan_later();
	/* What the process keeps once a device was open. */
	glk_drv_close(setup_open(&conf));
	before = glk_region_bytes();
	conf.soft_streams = GLK_SOFT_STREAMS_STEPPED;
	drv = setup_open(&conf);
	if (drv->ops->stream_new(drv, 0, &a) || drv->ops->stream_new(drv, 0, &b) ||
		drv->ops->stream_new(drv, 1, &far))
		tap_bail("no streams");
	facts();
	owners();
	events();
	drv->ops->stream_free(drv, 0, a);
	drv->ops->stream_free(drv, 0, b);
	drv->ops->stream_free(drv, 1, far);
	is_int(glk_drv_close(drv), 0, "nothing is left");
	is_int((int64_t)glk_region_bytes(), (int64_t)before, "all is given back");
	return tap_done();
}
