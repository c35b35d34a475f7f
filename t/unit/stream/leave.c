/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Streams end: announced or not, with work left or none, while a graph is captured. */
#include "gpu.h"
#include "soft/fault.h"
#include "stream/table.h"
#include <errno.h>
#include <pthread.h>

static bool is_known(struct gpu *gpu, const struct CUstream_st *handle)
{
	return glk_table_find(&gpu->streams, glk_stream_key(handle)) != 0;
}

/* Announced, with work left: what names the stream keeps its meaning until that has passed, and
 * the handle is left alone. */
static void leaves(void)
{
	struct glk_stream *a, *b, *c;
	struct CUstream_st *handle;
	struct glk_use use, kept;
	uint64_t records;
	uint8_t bit;
	struct gpu gpu;

	gpu_open(&gpu);
	gpu_listen(&gpu);
	a = gpu_stream(&gpu);
	b = gpu_stream(&gpu);
	handle = a->handle;
	bit = a->bit;
	use = gpu_free(&gpu, a);
	kept = use;
	gpu_hold(&gpu, a, true);
	is_int(glk_stream_leave(&gpu.streams, handle), 0, "A ends with work left");
	is_int(a->state, GLK_STREAM_LEAVING, "it is leaving");
	ok(!is_known(&gpu, handle), "its handle is not known any more");
	is_int((int64_t)gpu.streams.records, 1, "a last event was recorded");
	is_int(gpu_known(&gpu), 2, "its slot is kept");
	is_int(gpu.streams.by_bit[bit], a->id, "so is its bit");
	gpu_says.watched = handle;
	ok(!glk_clock_finished(&gpu.streams, &use), "its memory is not free");
	is_int(gpu_waits(&gpu.streams, &use, b), 1, "B has to wait for it");
	is_int(glk_stream_leave(&gpu.streams, handle), -ENOENT, "it ends once");
	records = gpu.streams.records;
	is_int(glk_clock_order(&gpu.streams, &use, b), 0, "B waits");
	is_int((int64_t)gpu.streams.waits, 1, "by one wait");
	is_int((int64_t)(gpu.streams.records - records), 0,
		"for the event that is there");
	glk_soft_run_all(gpu.drv);
	is_int(gpu_pending(&gpu, b), 1, "the device holds B");
	c = gpu_stream(&gpu);
	ok(c->bit != bit && c->id != a->id, "a new stream gets neither bit nor slot");
	glk_event_poll(&gpu.streams);
	is_int(a->state, GLK_STREAM_LEAVING, "asking does not end it");
	is_int(gpu_says.touched, 0, "nothing is done with the handle");
	gpu_says.watched = NULL;
	glk_soft_hold(gpu.drv, 0, handle, false);
	glk_soft_run_all(gpu.drv);
	is_int(gpu_waits(&gpu.streams, &kept, c), 1, "done, but nobody asked");
	glk_event_ask(&gpu.streams);
	ok(glk_clock_finished(&gpu.streams, &kept), "asked, its memory is free");
	is_int(gpu_known(&gpu), 2, "its slot is free");
	is_int(gpu.streams.by_bit[bit], 0, "so is its bit");
	is_int(gpu_stream(&gpu)->bit, bit, "which the next stream gets");
	ok(glk_clock_finished(&gpu.streams, &kept), "and says nothing of A");
	gpu_close(&gpu);
}

/* Streams with nothing under way. */
static void leaves_idle(void)
{
	struct CUstream_st *unused, *known, *never;
	struct glk_stream *quiet;
	struct glk_use use;
	uint64_t records;
	uint32_t id = 0;
	struct gpu gpu;

	gpu_open(&gpu);
	unused = gpu_handle(&gpu);
	known = gpu_handle(&gpu);
	never = gpu_handle(&gpu);
	glk_stream_get(&gpu.streams, unused, NULL, &id);
	is_int(glk_stream_leave(&gpu.streams, unused), 0,
		"a stream that never got a bit");
	is_int(gpu_known(&gpu), 0, "is gone at once");
	is_int((int64_t)gpu.streams.records, 0, "without an event");
	is_int(glk_stream_leave(&gpu.streams, never), -ENOENT, "one that was never seen");
	quiet = gpu_enter(&gpu, known);
	is_int(glk_stream_leave(&gpu.streams, known), 0, "one that freed nothing");
	is_int(quiet->state, GLK_STREAM_LEAVING, "may have work of a block that lives");
	gpu_finish(&gpu);
	is_int(gpu_known(&gpu), 0, "it goes when that has passed");
	/* its events all passed, and known to have */
	quiet = gpu_enter(&gpu, known);
	use = gpu_free(&gpu, quiet);
	gpu_finish(&gpu);
	ok(glk_clock_finished(&gpu.streams, &use), "a stream whose work is done");
	records = gpu.streams.records;
	is_int(glk_stream_leave(&gpu.streams, known), 0, "ends");
	is_int((int64_t)(gpu.streams.records - records), 1,
		"behind an event all the same: blocks that live may have been used since");
	gpu_finish(&gpu);
	is_int(gpu_known(&gpu), 0, "and is gone");
	gpu_close(&gpu);
}

/* The same handle at once for another stream, with the old one still there. */
static void comes_back(void)
{
	struct glk_stream *old, *new;
	struct glk_use before, after;
	struct CUstream_st *handle;
	struct gpu gpu;

	gpu_open(&gpu);
	old = gpu_stream(&gpu);
	handle = old->handle;
	before = gpu_free(&gpu, old);
	is_int(glk_stream_leave(&gpu.streams, handle), 0, "a stream ends");
	new = gpu_enter(&gpu, handle);
	ok(new != old &&new->bit != old->bit, "its handle is another stream's at once");
	after = gpu_free(&gpu, new);
	is_int(gpu_waits(&gpu.streams, &before, new), 1, "which waits for the old one");
	is_int(glk_soft_step(gpu.drv, 0, handle), 0, "the old one's last event passes");
	glk_event_poll(&gpu.streams);
	is_int(gpu_known(&gpu), 1, "it is gone");
	is_int((int64_t) new->state, GLK_STREAM_LIVE, "the new one is not");
	ok(glk_clock_finished(&gpu.streams, &before) &&
			!glk_clock_finished(&gpu.streams, &after),
		"each has its own memory");
	ok(is_known(&gpu, handle), "the handle names the new one");
	gpu_close(&gpu);
}

/* Unannounced: recognised by the number that the driver gives the stream. */
static void is_lost(void)
{
	struct glk_stream_facts facts;
	struct glk_stream *old, *b, *new;
	struct CUstream_st *handle;
	struct glk_use use, late;
	uint32_t id = 0;
	uint8_t bit;
	struct gpu gpu;

	gpu_open(&gpu);
	gpu_listen(&gpu);
	b = gpu_stream(&gpu);
	old = gpu_stream(&gpu);
	handle = old->handle;
	bit = old->bit;
	use = gpu_free(&gpu, old);
	glk_event_poll(&gpu.streams);
	late = gpu_free(&gpu, old);
	gpu_says.back = handle;
	is_int(glk_stream_get(&gpu.streams, handle, &facts, &id), 0,
		"its handle is back");
	new = glk_stream_at(&gpu.streams, id);
	ok(new != old, "for another stream");
	is_int(old->state, GLK_STREAM_GONE, "the old one is gone");
	is_int(gpu.streams.by_bit[bit], old->id, "its bit is kept");
	is_int(gpu_waits(&gpu.streams, &use, b), 1,
		"what an event covers can be waited for");
	is_int((int64_t)gpu_waits(&gpu.streams, &late, b), GLK_WAITS_NEVER,
		"what none covers can not");
	glk_soft_run_all(gpu.drv);
	glk_event_poll(&gpu.streams);
	ok(glk_clock_finished(&gpu.streams, &use), "events that passed tell of it still");
	ok(!glk_clock_finished(&gpu.streams, &late), "what came after them is not known");
	is_int(gpu_known(&gpu), 3, "so it is still there");
	new = glk_stream_enter(&gpu.streams, id);
	ok(new->bit != bit, "and the new one has a bit of its own");
	is_int(gpu_sync_all(&gpu), 0, "until the GPU is waited for");
	ok(glk_clock_finished(&gpu.streams, &late), "then its memory is free");
	is_int(gpu_known(&gpu), 2, "and its slot");
	is_int(gpu.streams.by_bit[bit], 0, "and its bit");
	is_int(glk_stream_get(&gpu.streams, handle, NULL, &id), 0, "the handle is known");
	is_int(id, new->id, "for the new one");
	gpu_close(&gpu);
}

/* The ways in which that is found out. */
static void is_noticed(void)
{
	struct glk_stream_facts facts;
	struct glk_stream *a, *b;
	struct CUstream_st *handle;
	struct glk_use use;
	uint32_t id = 77;
	struct gpu gpu;

	gpu_open(&gpu);
	gpu_listen(&gpu);
	b = gpu_stream(&gpu);
	a = gpu_stream(&gpu);
	use = gpu_free(&gpu, a);
	gpu_says.back = a->handle;
	glk_event_poll(&gpu.streams);
	is_int(a->state, GLK_STREAM_GONE, "when an event was to be recorded");
	is_int((int64_t)gpu.streams.records, 0, "and was not");
	is_int((int64_t)gpu_waits(&gpu.streams, &use, b), GLK_WAITS_NEVER,
		"nobody can wait for it");
	gpu_says.back = NULL;
	gpu_sync_all(&gpu);

	/* one that never got a bit is gone at once */
	handle = gpu_handle(&gpu);
	is_int(glk_stream_get(&gpu.streams, handle, &facts, &id), 0, "a stream is known");
	gpu_destroy(&gpu, handle);
	id = 77;
	is_int(glk_stream_get(&gpu.streams, handle, &facts, &id), -EINVAL,
		"when it is asked for, and is no stream any more");
	is_int(id, 77, "the output is as it was");
	is_int(gpu_known(&gpu), 1, "nothing is kept of it");
	ok(!is_known(&gpu, handle), "its handle is forgotten");

	a = gpu_stream(&gpu);
	handle = a->handle;
	use = gpu_free(&gpu, a);
	gpu_destroy(&gpu, handle);
	is_int(glk_stream_get(&gpu.streams, handle, &facts, &id), -EINVAL, "the same");
	is_int(a->state, GLK_STREAM_GONE, "for one with a bit");
	ok(!glk_clock_finished(&gpu.streams, &use), "whose memory stays");
	glk_stream_lose(&gpu.streams, a);
	is_int(gpu_known(&gpu), 2, "losing it once more does nothing");
	is_int(glk_stream_leave(&gpu.streams, handle), -ENOENT, "nor can it be ended");
	gpu_sync_all(&gpu);
	is_int(gpu_known(&gpu), 1, "until the GPU was waited for");
	gpu_close(&gpu);
}

/* It ends by glk_stream_retire after its work is done, however it was before. */
static void retires(void)
{
	struct glk_stream *a;
	struct glk_use use;
	struct gpu gpu;

	gpu_open(&gpu);
	a = gpu_stream(&gpu);
	use = gpu_free(&gpu, a);
	glk_event_poll(&gpu.streams);
	gpu_free(&gpu, a);
	glk_event_poll(&gpu.streams);
	is_int(a->count, 2, "two events in flight");
	gpu.drv->ops->stream_sync(gpu.drv, 0, a->handle);
	glk_stream_retire(&gpu.streams, a->handle);
	is_int(gpu_known(&gpu), 0, "a stream is retired");
	is_int(gpu.streams.events.count, 2, "its events are spare");
	ok(glk_clock_finished(&gpu.streams, &use), "its memory is free");
	a = gpu_stream(&gpu);
	gpu_free(&gpu, a);
	glk_event_poll(&gpu.streams);
	is_int(gpu.streams.events.made, 2, "and serve the next one");
	gpu_close(&gpu);
}

/* No event can be had from a stream that captures. */
static void captures(void)
{
	struct glk_stream *a, *b;
	struct CUstream_st *handle;
	struct glk_use use;
	struct gpu gpu;

	gpu_open(&gpu);
	gpu_listen(&gpu);
	a = gpu_stream(&gpu);
	b = gpu_stream(&gpu);
	handle = a->handle;
	use = gpu_free(&gpu, a);
	gpu_capture(&gpu, a);
	is_int(glk_stream_leave(&gpu.streams, handle), -EBUSY, "a stream that captures");
	is_int(gpu_class(), GLAKE_ERROR_CAPTURE, "  its class");
	ok(a->state == GLK_STREAM_LIVE && is_known(&gpu, handle), "it stays as it is");
	is_int((int64_t)gpu.streams.ended, 0, "nothing has ended");
	is_int((int64_t)gpu_waits(&gpu.streams, &use, b), GLK_WAITS_NEVER,
		"nobody can wait for it");
	is_int(gpu_capture_end(&gpu, handle), 0, "its capture is whole");
	is_int(glk_stream_leave(&gpu.streams, handle), 0, "after that it ends");
	gpu_finish(&gpu);
	is_int(gpu_known(&gpu), 1, "and is gone");
	gpu_close(&gpu);
}

/* One that was seen to capture and has ended unannounced: its handle is that of another. */
static void is_not_mistaken(void)
{
	struct glk_stream *a;
	struct gpu gpu;

	gpu_open(&gpu);
	gpu_listen(&gpu);
	a = gpu_stream(&gpu);
	gpu_free(&gpu, a);
	gpu_capture(&gpu, a);
	glk_event_poll(&gpu.streams);
	ok(a->mute, "a stream is seen to capture");
	gpu_capture_end(&gpu, a->handle);
	gpu_says.back = a->handle;
	is_int(glk_stream_leave(&gpu.streams, a->handle), 0,
		"the one that has its handle now does not");
	is_int(a->state, GLK_STREAM_GONE, "the old one is gone");
	is_int(gpu_sync_all(&gpu), 0, "and was when the GPU is idle");
	is_int(gpu_known(&gpu), 0, "nothing is left of it");
	gpu_close(&gpu);
}

int main(void)
{
	tap_plan_later();
	leaves();
	leaves_idle();
	comes_back();
	is_lost();
	is_noticed();
	retires();
	captures();
	is_not_mistaken();
	return tap_done();
}
