/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A program that resets a context under the library: its GPU is lost, and no handle of what was
 * in that context reaches the driver again. */
#include "cuda_fake.h"
#include "tap.h"

#include <errno.h>

#include <glake/error.h>

static struct glk_cuda_lib lib;
static struct fake *fake;
static struct glk_drv *drv;

static void is_lost(int err, const char *what)
{
	struct glake_error record = {.sz = sizeof(record)};

	glake_last_error(&record);
	ok(err == -ENODEV && record.error_class == GLAKE_ERROR_DEVICE_LOST &&
			record.native == GLK_CU_CONTEXT_IS_DESTROYED,
		"%s", what);
}

static void loses(unsigned reset, const char *how)
{
	struct glk_stream_facts facts;
	struct CUstream_st *stream;
	struct glk_drv_event *event, *kept;
	uint64_t page = 0;
	int calls;

	fake->context_reset = 0;
	is_int(drv->ops->event_new(drv, 0, &event), 0, "an event");
	is_int(drv->ops->event_new(drv, 0, &kept), 0, "and one that is never ended");
	is_int(drv->ops->create(
		       drv, (struct glk_place){GLK_PLACE_GPU, 0}, 2 << 20, 0, &page),
		0, "a page");
	fake->context_reset = reset;
	calls = fake->calls;
	is_lost(drv->ops->event_record(drv, event, FAKE_STREAM), how);
	is_lost(drv->ops->event_query(drv, event), "a query");
	is_lost(drv->ops->event_sync(drv, event), "a wait of the host");
	is_lost(drv->ops->stream_wait(drv, FAKE_STREAM, event), "a wait of a stream");
	is_lost(drv->ops->stream_facts(drv, 0, FAKE_STREAM, &facts), "facts");
	is_lost(drv->ops->stream_new(drv, 0, &stream), "a new stream");
	is_lost(drv->ops->device_sync(drv, 0), "a wait for the GPU");
	is_int(drv->ops->event_free(drv, event), 0, "the end of an event");
	is_int(fake->calls, calls, "nothing of that reaches the driver");
	is_int(drv->ops->release(drv, page), 0, "memory is given back all the same");
	is_int(drv->ops->event_new(drv, 1, &event), 0, "the other GPU goes on");
	is_int(drv->ops->event_free(drv, event), 0, "with all it has");
}

static void reset(unsigned how, const char *what)
{
	struct glk_cuda *cuda = fake_open(&lib, &fake);

	if (!cuda)
		tap_bail("no fake libcuda");
	drv = &cuda->drv;
	loses(how, what);
	tap_expect_log(1); /* of the event that was left */
	is_int(drv->ops->close(drv), 0, "close");
	fake->context_reset = 0;
}

int main(void)
{
	tap_plan_later();
	reset(1, "a record after a reset");
	reset(2, "a record after a reset, where the program goes on");
	return tap_done();
}
