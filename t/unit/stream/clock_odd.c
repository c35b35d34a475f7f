/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The clock of streams where the driver fails, or a graph is captured. */
#include "gpu.h"
#include "soft/fault.h"

#include <errno.h>

/*
 * Without an event or a wait, one stream can still be ordered behind another: by waiting for
 * the GPU. A program may also have ended a stream that it freed memory on.
 */
static void falls_back(void)
{
	static const char *const faults[] = {"event_new:from=1:err=ENOMEM",
		"event_record:from=1:err=EIO", "stream_wait:from=1:err=EIO"};
	struct glk_stream *a, *b, *gone;
	struct CUstream_st *handle;
	struct glk_use use, kept;
	struct gpu gpu;

	gpu_open(&gpu);
	a = gpu_stream(&gpu);
	b = gpu_stream(&gpu);
	for (int i = 0; i < 3; i++) {
		use = gpu_free(&gpu, a);
		kept = use;
		if (glk_fault_set(gpu.drv, faults[i]))
			tap_bail(faults[i]);
		is_int(glk_clock_order(&gpu.streams, &use, b), 0, faults[i]);
		is_int((int64_t)gpu.streams.waits, 0, "no wait was inserted");
		ok(glk_clock_finished(&gpu.streams, &kept), "the GPU was waited for");
		ok(glk_clock_finished(&gpu.streams, &use) ||
				use.streams == glk_stream_mask(b),
			"the memory is B's");
		glk_fault_set(gpu.drv, "off");
	}
	use = gpu_free(&gpu, a);
	kept = use;
	glk_fault_set(gpu.drv, "event_record:from=1;stream_sync:nth=1:err=EIO");
	is_int(glk_clock_order(&gpu.streams, &use, b), -EIO, "when that fails too");
	ok(use.streams == kept.streams && use.tick == kept.tick &&
			!glk_clock_finished(&gpu.streams, &kept),
		"nothing has changed");
	glk_fault_set(gpu.drv, "event_record:nth=1:sticky=1");
	is_int(glk_clock_order(&gpu.streams, &use, b), -ENODEV, "a GPU that is lost");
	glk_fault_set(gpu.drv, "off");

	handle = gpu_handle(&gpu);
	gpu.handles--;
	gone = gpu_enter(&gpu, handle);
	use = gpu_free(&gpu, gone);
	gpu.drv->ops->stream_free(gpu.drv, 0, handle);
	is_int(glk_clock_order(&gpu.streams, &use, b), -EAGAIN,
		"memory freed on a stream that the program has ended");
	is_int((int64_t)gpu_waits(&gpu.streams, &use, b), GLK_WAITS_NEVER,
		"which nobody can wait for");
	is_int(gone->state, GLK_STREAM_GONE, "since it is gone");
	is_int(gpu_sync_all(&gpu), 0, "but with the whole GPU");
	is_int((int64_t)gpu_waits(&gpu.streams, &use, b), 0, "after that it is free");
	gpu_close(&gpu);
}

/* A query that fails tells nothing. */
static void cannot_ask(void)
{
	struct glk_stream *a;
	struct glk_use use;
	struct gpu gpu;

	gpu_open(&gpu);
	a = gpu_stream(&gpu);
	use = gpu_free(&gpu, a);
	glk_event_poll(&gpu.streams);
	glk_soft_run_all(gpu.drv);
	glk_fault_set(gpu.drv, "event_query:from=1:err=EIO");
	glk_event_poll(&gpu.streams);
	ok(!glk_clock_finished(&gpu.streams, &use), "a query that fails tells nothing");
	glk_fault_set(gpu.drv, "off");
	glk_event_poll(&gpu.streams);
	ok(glk_clock_finished(&gpu.streams, &use), "the next one does");
	use = gpu_free(&gpu, a);
	glk_fault_set(gpu.drv, "event_record:from=1:err=EIO");
	glk_event_poll(&gpu.streams);
	glk_fault_set(gpu.drv, "off");
	ok(!glk_clock_finished(&gpu.streams, &use) && !a->count,
		"an event that was not recorded is not waited for");
	glk_event_poll(&gpu.streams);
	glk_soft_run_all(gpu.drv);
	glk_event_poll(&gpu.streams);
	ok(glk_clock_finished(&gpu.streams, &use), "the next one is");
	gpu_close(&gpu);
}

/* To wait for the GPU would end a capture: streams are asked before, whoever has captured. */
static void spares_captures(void)
{
	struct glk_stream *a, *own, *b;
	struct gpu gpu;

	gpu_open(&gpu);
	a = gpu_stream(&gpu);
	b = gpu_stream(&gpu);
	own = gpu_enter(&gpu, GLK_STREAM_PER_THREAD);
	gpu_capture(&gpu, a);
	is_int(gpu_sync_all(&gpu), -EBUSY, "a capture that nobody told of");
	is_int(gpu_class(), GLAKE_ERROR_CAPTURE, "  its class");
	is_int(gpu_capture_end(&gpu, a->handle), 0, "it is whole");
	is_int(gpu_sync_all(&gpu), 0, "after that the GPU is waited for");
	gpu_capture(&gpu, own);
	is_int(gpu_sync_all(&gpu), -EBUSY, "one on our own default stream");
	is_int(gpu_capture_end(&gpu, own->handle), 0, "is whole too");
	gpu.streams.captures++;
	is_int(gpu_sync_all(&gpu), -EBUSY, "one of which only its pool is known");
	gpu.streams.captures--;

	/* streams that are not of it are waited for each for itself */
	gpu_free(&gpu, b);
	gpu_capture(&gpu, a);
	is_int(gpu_sync(&gpu, glk_stream_mask(b)), 0, "a stream beside a capture");
	is_int(gpu_pending(&gpu, b), 0, "has run");
	gpu_free(&gpu, a);
	gpu_free(&gpu, b);
	is_int(gpu_sync(&gpu, glk_stream_mask(a) | glk_stream_mask(b)), -EBUSY,
		"not the one that captures");
	is_int((int64_t)b->done, (int64_t)b->freed, "but all that can be waited for");
	is_int(gpu_capture_end(&gpu, a->handle), 0, "the capture is whole");
	is_int(gpu_sync(&gpu, ~UINT64_C(0)), 0, "now all are");
	gpu_close(&gpu);
}

/* What an event covers can be had from a stream that captures, passed or not. */
static void had_before(void)
{
	struct glk_stream *a, *b;
	struct glk_use use;
	struct gpu gpu;

	for (int passed = 0; passed < 2; passed++) {
		gpu_open(&gpu);
		a = gpu_stream(&gpu);
		b = gpu_stream(&gpu);
		use = gpu_free(&gpu, a);
		glk_event_poll(&gpu.streams);
		if (passed)
			glk_soft_run_all(gpu.drv);
		glk_event_poll(&gpu.streams);
		gpu_free(&gpu, a);
		gpu_capture(&gpu, a);
		glk_event_poll(&gpu.streams);
		ok(a->mute, passed ? "its event has passed" : "its event is in front");
		is_int(gpu_waits(&gpu.streams, &use, b), !passed,
			"it needs a wait where that has not passed");
		is_int(glk_clock_order(&gpu.streams, &use, b), 0, "and can be had");
		is_int(gpu_capture_end(&gpu, a->handle), 0, "the capture is whole");
		gpu_close(&gpu);
	}
}

/* The stream of a request is found to be gone while it is under way: it has no bit any more, and
 * what lies behind the table of bits stays as it is. */
static void is_gone_itself(void)
{
	struct glk_stream *a, *b;
	struct glk_use use;
	struct gpu gpu;

	gpu_open(&gpu);
	a = gpu_stream(&gpu);
	b = gpu_stream(&gpu);
	use = gpu_free(&gpu, a);
	glk_stream_lose(&gpu.streams, b);
	gpu_sync_all(&gpu);
	glk_stream_settle(&gpu.streams, b);
	is_int(b->bit, GLK_STREAM_BITS, "a stream without a bit");
	use.tick = gpu_free(&gpu, a).tick;
	gpu.streams.records = 0;
	gpu.streams.waits = 0;
	glk_fault_set(gpu.drv, "event_record:from=1:err=EIO;stream_wait:from=1:err=EIO");
	is_int(glk_clock_order(&gpu.streams, &use, b), 0, "is ordered by waiting");
	glk_fault_set(gpu.drv, "off");
	is_int((int64_t)gpu.streams.records, 0, "no event was recorded");
	is_int((int64_t)gpu.streams.waits, 0, "no wait was inserted");
	gpu_close(&gpu);
}

int main(void)
{
	tap_plan_later();
	falls_back();
	is_gone_itself();
	cannot_ask();
	had_before();
	spares_captures();
	return tap_done();
}
