/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What is known of work on streams, and how one stream is ordered behind another. */
#include "driver/fault.h"
#include "gpu.h"

#include <errno.h>

/* Two frees, two events; the device runs the first alone. */
static void steps(void)
{
	struct glk_use first, second;
	struct glk_stream *a;
	struct gpu gpu;

	gpu_open(&gpu);
	a = gpu_stream(&gpu);
	first = gpu_free(&gpu, a);
	glk_event_poll(&gpu.streams);
	second = gpu_free(&gpu, a);
	glk_event_poll(&gpu.streams);
	is_int((int64_t)gpu.streams.records, 2, "an event for each");
	is_int(glk_soft_step(gpu.drv, 0, a->handle), 0, "the first passes");
	glk_event_ask(&gpu.streams);
	ok(glk_clock_finished(&gpu.streams, &first), "its memory is free");
	ok(!glk_clock_finished(&gpu.streams, &second), "the other is not");
	is_int(glk_soft_step(gpu.drv, 0, a->handle), 0, "the second passes");
	glk_event_ask(&gpu.streams);
	ok(glk_clock_finished(&gpu.streams, &second), "now it is");
	gpu_close(&gpu);
}

static void knows(void)
{
	struct glk_stream *a, *b;
	struct glk_use use = {0};
	struct gpu gpu;

	gpu_open(&gpu);
	a = gpu_stream(&gpu);
	b = gpu_stream(&gpu);
	ok(glk_clock_finished(&gpu.streams, &use), "memory never used is free");
	is_int(gpu_waits(&gpu.streams, &use, a), 0, "for all");
	use = gpu_free(&gpu, a);
	ok(!glk_clock_finished(&gpu.streams, &use), "freed on A: may be in use");
	is_int(gpu_waits(&gpu.streams, &use, a), 0, "on A it needs no wait");
	is_int(gpu_waits(&gpu.streams, &use, b), 1, "on B it needs one");
	glk_event_ask(&gpu.streams);
	is_int((int64_t)gpu.streams.records, 0, "asking records no event");
	glk_event_poll(&gpu.streams);
	is_int((int64_t)gpu.streams.records, 1, "polling records one, on A alone");
	ok(!glk_clock_finished(&gpu.streams, &use), "which is pending");
	glk_event_poll(&gpu.streams);
	is_int((int64_t)gpu.streams.records, 1, "it covers the free: no second one");
	glk_soft_run_all(gpu.drv);
	ok(!glk_clock_finished(&gpu.streams, &use), "nobody asked yet");
	glk_event_ask(&gpu.streams);
	ok(glk_clock_finished(&gpu.streams, &use), "asked, it is known to be done");
	is_int(gpu_waits(&gpu.streams, &use, b), 0, "and B needs no wait");
	gpu_close(&gpu);
}

static void covers(void)
{
	struct glk_use use[100], late;
	struct glk_stream *a;
	bool all = true;
	struct gpu gpu;

	gpu_open(&gpu);
	a = gpu_stream(&gpu);
	for (int i = 0; i < 100; i++)
		use[i] = gpu_free(&gpu, a);
	glk_event_poll(&gpu.streams);
	is_int((int64_t)gpu.streams.records, 1, "one event covers 100 frees");
	late = gpu_free(&gpu, a);
	glk_soft_run_all(gpu.drv);
	glk_event_ask(&gpu.streams);
	for (int i = 0; i < 100; i++)
		all &= glk_clock_finished(&gpu.streams, &use[i]);
	ok(all, "all of them are done with it");
	ok(!glk_clock_finished(&gpu.streams, &late), "the one freed after it is not");
	glk_event_poll(&gpu.streams);
	glk_soft_run_all(gpu.drv);
	glk_event_poll(&gpu.streams);
	ok(glk_clock_finished(&gpu.streams, &late), "the next event covers it");
	is_int((int64_t)gpu.streams.records, 2, "two events in all");
	gpu_close(&gpu);
}

/* The device itself shows whether B waits for A. */
static void orders(void)
{
	struct glk_use old, use, later, of_b;
	struct glk_stream *a, *b, *c;
	struct gpu gpu;

	gpu_open(&gpu);
	a = gpu_stream(&gpu);
	b = gpu_stream(&gpu);
	c = gpu_stream(&gpu);
	gpu_hold(&gpu, a, true);
	old = gpu_free(&gpu, a);
	use = gpu_free(&gpu, a);
	is_int(glk_clock_order(&gpu.streams, &use, b), 0, "B is ordered behind A");
	is_int((int64_t)gpu.streams.records, 1, "with one event");
	is_int((int64_t)gpu.streams.waits, 1, "and one wait");
	is_int((int64_t)use.streams, (int64_t)glk_stream_mask(b), "it is B's now");
	is_int(gpu_pending(&gpu, b), 1, "the wait is in B's queue");
	is_int(glk_soft_step(gpu.drv, 0, b->handle), -EAGAIN, "which stands");
	is_int(gpu_waits(&gpu.streams, &old, b), 0,
		"what A freed before needs no second wait");
	is_int(glk_clock_order(&gpu.streams, &old, b), 0, "it is taken as it is");
	is_int((int64_t)gpu.streams.waits, 1, "without a call");
	is_int(gpu_waits(&gpu.streams, &use, c), 1, "C has to wait for B");
	is_int(gpu_waits(&gpu.streams, &use, a), 1, "and so has A");
	later = gpu_free(&gpu, a);
	is_int(gpu_waits(&gpu.streams, &later, b), 1,
		"what A freed since needs a wait again");
	of_b = gpu_free(&gpu, b);
	glk_event_poll(&gpu.streams);
	glk_soft_run_all(gpu.drv);
	glk_event_ask(&gpu.streams);
	ok(!glk_clock_finished(&gpu.streams, &of_b), "B stands as long as A does");
	gpu_hold(&gpu, a, false);
	glk_soft_run_all(gpu.drv);
	glk_event_ask(&gpu.streams);
	ok(glk_clock_finished(&gpu.streams, &of_b) &&
			glk_clock_finished(&gpu.streams, &use) &&
			glk_clock_finished(&gpu.streams, &later),
		"and goes on with it");
	gpu_close(&gpu);
}

/* Memory that two streams used, for one of them and for a third. */
static void counts_both(void)
{
	struct glk_stream *a, *b, *c;
	struct glk_use use, same;
	struct gpu gpu;

	gpu_open(&gpu);
	a = gpu_stream(&gpu);
	b = gpu_stream(&gpu);
	c = gpu_stream(&gpu);
	use = gpu_free(&gpu, a);
	same = gpu_free(&gpu, b);
	glk_use_add(&use, &same);
	same = use;
	is_int(gpu_waits(&gpu.streams, &use, c), 2, "a third waits for both");
	is_int(gpu_waits(&gpu.streams, &use, a), 1, "one of them for the other");
	is_int(glk_clock_order(&gpu.streams, &use, c), 0, "ordered");
	is_int((int64_t)gpu.streams.waits, 2, "by two waits");
	gpu_hold(&gpu, a, true);
	glk_soft_run_all(gpu.drv);
	is_int(gpu_pending(&gpu, c), 2, "the device holds C");
	gpu_hold(&gpu, a, false);
	glk_soft_run_all(gpu.drv);
	is_int(gpu_pending(&gpu, c), 0, "until A went on");
	glk_event_poll(&gpu.streams);
	glk_soft_run_all(gpu.drv);
	glk_event_poll(&gpu.streams);
	ok(glk_clock_finished(&gpu.streams, &same), "both are done");
	gpu_close(&gpu);
}

static void fills_ring(void)
{
	struct glk_use use[GLK_STREAM_EVENTS + 2];
	struct glk_stream *a, *b;
	bool all = true;
	struct gpu gpu;

	gpu_open(&gpu);
	a = gpu_stream(&gpu);
	b = gpu_stream(&gpu);
	for (int i = 0; i < GLK_STREAM_EVENTS; i++) {
		use[i] = gpu_free(&gpu, a);
		glk_event_poll(&gpu.streams);
	}
	is_int((int64_t)gpu.streams.records, GLK_STREAM_EVENTS, "all events in flight");
	use[GLK_STREAM_EVENTS] = gpu_free(&gpu, a);
	glk_event_poll(&gpu.streams);
	is_int((int64_t)gpu.streams.records, GLK_STREAM_EVENTS, "polling waits");
	is_int(glk_clock_order(&gpu.streams, &use[GLK_STREAM_EVENTS], b), 0,
		"a wait does not");
	is_int((int64_t)gpu.streams.records, GLK_STREAM_EVENTS + 1,
		"the newest moves on");
	is_int(a->count, GLK_STREAM_EVENTS, "there are no more than before");
	glk_soft_step(gpu.drv, 0, a->handle);
	glk_event_ask(&gpu.streams);
	ok(glk_clock_finished(&gpu.streams, &use[0]) &&
			!glk_clock_finished(&gpu.streams, &use[1]),
		"the oldest still passes first");
	use[GLK_STREAM_EVENTS + 1] = gpu_free(&gpu, a);
	glk_event_poll(&gpu.streams);
	is_int(a->count, GLK_STREAM_EVENTS, "and leaves room for one");
	glk_soft_run_all(gpu.drv);
	glk_event_ask(&gpu.streams);
	for (int i = 0; i < GLK_STREAM_EVENTS + 2; i++)
		all &= glk_clock_finished(&gpu.streams, &use[i]);
	ok(all, "all pass in the end");
	gpu_close(&gpu);
}

static void syncs(void)
{
	struct glk_stream *a, *b;
	struct glk_use of_a, of_b;
	struct gpu gpu;

	gpu_open(&gpu);
	a = gpu_stream(&gpu);
	b = gpu_stream(&gpu);
	of_a = gpu_free(&gpu, a);
	glk_event_poll(&gpu.streams);
	of_b = gpu_free(&gpu, b);
	gpu_hold(&gpu, a, true);
	is_int(gpu_sync_all(&gpu), -EBUSY, "the driver cannot wait");
	ok(!glk_clock_finished(&gpu.streams, &of_a) &&
			!glk_clock_finished(&gpu.streams, &of_b),
		"nothing is known for it");
	gpu_hold(&gpu, a, false);
	is_int(gpu_sync_all(&gpu), 0, "it waits for all work");
	ok(glk_clock_finished(&gpu.streams, &of_a) &&
			glk_clock_finished(&gpu.streams, &of_b),
		"so all is done");
	of_a = gpu_free(&gpu, a);
	ok(!glk_clock_finished(&gpu.streams, &of_a), "until the next free");
	gpu_close(&gpu);
}

/* A bit of nobody stands for finished work, and tells nothing of who has it next. */
static void ends(void)
{
	struct glk_stream *a, *b, *c;
	struct glk_use old, new;
	struct gpu gpu;
	uint8_t bit;

	gpu_open(&gpu);
	a = gpu_stream(&gpu);
	b = gpu_stream(&gpu);
	bit = a->bit;
	old = gpu_free(&gpu, a);
	new = old;
	is_int(glk_clock_order(&gpu.streams, &new, b), 0, "B waits for A");
	glk_soft_run_all(gpu.drv);
	glk_stream_retire(&gpu.streams, a->handle);
	ok(glk_clock_finished(&gpu.streams, &old), "A ended: its work has finished");
	c = gpu_stream(&gpu);
	is_int(c->bit, bit, "C has its bit");
	ok(glk_clock_finished(&gpu.streams, &old), "which says nothing of A");
	new = gpu_free(&gpu, c);
	is_int(gpu_waits(&gpu.streams, &new, b), 1, "B never waited for C");
	ok(!glk_clock_finished(&gpu.streams, &new), "whose work is its own");

	/* and the other way round: the next one has waited for nobody */
	old = gpu_free(&gpu, c);
	new = old;
	is_int(glk_clock_order(&gpu.streams, &new, b), 0, "B waits for C");
	bit = b->bit;
	glk_soft_run_all(gpu.drv);
	glk_stream_retire(&gpu.streams, b->handle);
	a = gpu_stream(&gpu);
	is_int(a->bit, bit, "a new stream in the place of B");
	is_int(gpu_waits(&gpu.streams, &old, a), 1, "has not waited for C");
	gpu_close(&gpu);
}

/* The streams of the crowd share a bit and wait for each other. */
static void crowds(void)
{
	struct glk_stream *s[GLK_STREAM_CROWD], *x, *y, *a;
	struct glk_use of_x, of_y, own;
	struct gpu gpu;

	gpu_open(&gpu);
	for (int i = 0; i < GLK_STREAM_CROWD; i++)
		s[i] = gpu_stream(&gpu);
	a = s[0];
	x = gpu_stream(&gpu);
	y = gpu_stream(&gpu);
	is_int(y->bit, GLK_STREAM_CROWD, "two streams in the crowd");
	of_x = gpu_free(&gpu, x);
	own = of_x;
	is_int(gpu_waits(&gpu.streams, &of_x, y), 1, "one waits for the other");
	is_int(glk_clock_order(&gpu.streams, &of_x, y), 0, "is ordered");
	is_int((int64_t)gpu.streams.waits, 1, "by one wait");
	is_int(glk_clock_order(&gpu.streams, &own, x), 0, "its own");
	is_int((int64_t)gpu.streams.waits, 1, "needs none");
	gpu_sync_all(&gpu);

	/* X is done until the tick of the memory and has freed more since, Y is not done */
	of_y = gpu_free(&gpu, y);
	x->done = gpu.streams.tick;
	of_x = gpu_free(&gpu, x);
	is_int(glk_clock_order(&gpu.streams, &of_y, a), 0, "a stream waits for Y");
	is_int(gpu_waits(&gpu.streams, &of_x, a), 1,
		"and has not waited for what X freed since");
	is_int(glk_clock_order(&gpu.streams, &of_x, a), 0, "so it does");
	gpu_hold(&gpu, x, true);
	glk_soft_run_all(gpu.drv);
	is_int(gpu_pending(&gpu, a), 1, "and the device holds it");
	gpu_hold(&gpu, x, false);
	glk_soft_run_all(gpu.drv);
	gpu_close(&gpu);
}

int main(void)
{
	tap_plan_later();
	knows();
	covers();
	steps();
	orders();
	counts_both();
	fills_ring();
	syncs();
	ends();
	crowds();
	return tap_done();
}
