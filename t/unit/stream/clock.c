/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What is known of work on streams, and how one stream is ordered behind another. */
#include "gpu.h"

#include "driver/fault.h"
#include "seed.h"

#include <errno.h>

static void knows(void)
{
	struct glk_stream *a, *b;
	struct glk_use use = {0};
	struct gpu gpu;

	gpu_open(&gpu);
	a = gpu_stream(&gpu);
	b = gpu_stream(&gpu);
	ok(glk_clock_finished(&gpu.streams, &use), "memory never used is free");
	is_int(glk_clock_waits(&gpu.streams, &use, a), 0, "for all");
	use = gpu_free(&gpu, a);
	ok(!glk_clock_finished(&gpu.streams, &use), "freed on A: may be in use");
	is_int(glk_clock_waits(&gpu.streams, &use, a), 0, "on A it needs no wait");
	is_int(glk_clock_waits(&gpu.streams, &use, b), 1, "on B it needs one");
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
	is_int(glk_clock_waits(&gpu.streams, &use, b), 0, "and B needs no wait");
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
	is_int(glk_clock_waits(&gpu.streams, &old, b), 0,
		"what A freed before needs no second wait");
	is_int(glk_clock_order(&gpu.streams, &old, b), 0, "it is taken as it is");
	is_int((int64_t)gpu.streams.waits, 1, "without a call");
	is_int(glk_clock_waits(&gpu.streams, &use, c), 1, "C has to wait for B");
	is_int(glk_clock_waits(&gpu.streams, &use, a), 1, "and so has A");
	later = gpu_free(&gpu, a);
	is_int(glk_clock_waits(&gpu.streams, &later, b), 1,
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
	glk_use_add(&use, glk_stream_mask(b), glk_clock_tick(&gpu.streams, b));
	same = use;
	is_int(glk_clock_waits(&gpu.streams, &use, c), 2, "a third waits for both");
	is_int(glk_clock_waits(&gpu.streams, &use, a), 1, "one of them for the other");
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
	is_int(glk_clock_sync_all(&gpu.streams), -EBUSY, "the driver cannot wait");
	ok(!glk_clock_finished(&gpu.streams, &of_a) &&
			!glk_clock_finished(&gpu.streams, &of_b),
		"nothing is known for it");
	gpu_hold(&gpu, a, false);
	is_int(glk_clock_sync_all(&gpu.streams), 0, "it waits for all work");
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
	is_int(glk_clock_waits(&gpu.streams, &new, b), 1, "B never waited for C");
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
	is_int(glk_clock_waits(&gpu.streams, &old, a), 1, "has not waited for C");
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
	is_int(glk_clock_waits(&gpu.streams, &of_x, y), 1, "one waits for the other");
	is_int(glk_clock_order(&gpu.streams, &of_x, y), 0, "is ordered");
	is_int((int64_t)gpu.streams.waits, 1, "by one wait");
	is_int(glk_clock_order(&gpu.streams, &own, x), 0, "its own");
	is_int((int64_t)gpu.streams.waits, 1, "needs none");
	glk_clock_sync_all(&gpu.streams);

	/* X is done until the tick of the memory and has freed more since, Y is not done */
	of_y = gpu_free(&gpu, y);
	x->done = gpu.streams.tick;
	of_x = gpu_free(&gpu, x);
	is_int(glk_clock_order(&gpu.streams, &of_y, a), 0, "a stream waits for Y");
	is_int(glk_clock_waits(&gpu.streams, &of_x, a), 1,
		"and has not waited for what X freed since");
	is_int(glk_clock_order(&gpu.streams, &of_x, a), 0, "so it does");
	gpu_hold(&gpu, x, true);
	glk_soft_run_all(gpu.drv);
	is_int(gpu_pending(&gpu, a), 1, "and the device holds it");
	gpu_hold(&gpu, x, false);
	glk_soft_run_all(gpu.drv);
	gpu_close(&gpu);
}

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
	is_int((int64_t)glk_clock_waits(&gpu.streams, &use, b), GLK_WAITS_NEVER,
		"which nobody can wait for");
	is_int(gone->state, GLK_STREAM_GONE, "since it is gone");
	is_int(glk_clock_sync_all(&gpu.streams), 0, "but with the whole GPU");
	is_int((int64_t)glk_clock_waits(&gpu.streams, &use, b), 0,
		"after that it is free");
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
	is_int(glk_clock_sync_all(&gpu.streams), -EBUSY, "a capture that nobody told of");
	is_int(gpu_class(), GLAKE_ERROR_CAPTURE, "  its class");
	is_int(gpu_capture_end(&gpu, a->handle), 0, "it is whole");
	is_int(glk_clock_sync_all(&gpu.streams), 0, "after that the GPU is waited for");
	gpu_capture(&gpu, own);
	is_int(glk_clock_sync_all(&gpu.streams), -EBUSY, "one on our own default stream");
	is_int(gpu_capture_end(&gpu, own->handle), 0, "is whole too");
	gpu.streams.captures++;
	is_int(glk_clock_sync_all(&gpu.streams), -EBUSY,
		"one of which only its pool is known");
	gpu.streams.captures--;

	/* streams that are not of it are waited for each for itself */
	gpu_free(&gpu, b);
	gpu_capture(&gpu, a);
	is_int(glk_clock_sync(&gpu.streams, glk_stream_mask(b)), 0,
		"a stream beside a capture");
	is_int(gpu_pending(&gpu, b), 0, "has run");
	gpu_free(&gpu, a);
	gpu_free(&gpu, b);
	is_int(glk_clock_sync(&gpu.streams, glk_stream_mask(a) | glk_stream_mask(b)),
		-EBUSY, "not the one that captures");
	is_int((int64_t)b->done, (int64_t)b->freed, "but all that can be waited for");
	is_int(gpu_capture_end(&gpu, a->handle), 0, "the capture is whole");
	is_int(glk_clock_sync(&gpu.streams, ~UINT64_C(0)), 0, "now all are");
	gpu_close(&gpu);
}

/* The same program on two GPUs, of which one does all work at once and one none. */
#define USES 40

struct pair {
	struct gpu gpu[2];
	struct glk_stream *s[2][6];
	struct glk_use use[2][USES];
};

static void fast_runs(struct pair *p)
{
	glk_soft_run_all(p->gpu[0].drv);
}

static bool same_knowledge(const struct pair *p)
{
	for (int i = 0; i < USES; i++) {
		if (p->use[0][i].streams != p->use[1][i].streams ||
			p->use[0][i].tick != p->use[1][i].tick)
			return false;
	}
	return true;
}

static bool same_waits(struct pair *p)
{
	for (int i = 0; i < USES; i++) {
		for (int k = 0; k < 6; k++) {
			unsigned waits[2];

			for (int g = 0; g < 2; g++)
				waits[g] = glk_clock_waits(
					&p->gpu[g].streams, &p->use[g][i], p->s[g][k]);
			if (waits[0] != waits[1]) {
				tap_note("use %d, stream %d: %u waits and %u", i, k,
					waits[0], waits[1]);
				return false;
			}
		}
	}
	return true;
}

static int turn(
	struct gpu *gpu, struct glk_stream **s, struct glk_use *use, uint64_t draw)
{
	unsigned a = (unsigned)(draw % 6), u = (unsigned)(draw / 6 % USES);
	struct CUevent_st *event = (struct CUevent_st *)(0x100 * (1 + draw / 1000 % 3));
	int err;

	switch (draw / 10000 % 12) {
	default:
		use[u] = gpu_free(gpu, s[a]);
		return 0;
	case 6:
	case 7:
		return glk_clock_order(&gpu->streams, &use[u], s[a]);
	case 8:
		glk_clock_forget(&gpu->streams, &use[u]);
		return 0;
	case 9:
		return glk_note_record(&gpu->streams, event, s[a]);
	case 10:
		glk_note_wait(&gpu->streams, event, s[a]);
		return 0;
	case 11:
		if (draw / 120000 % 8)
			return 0;
		err = glk_stream_leave(&gpu->streams, s[a]->handle);
		gpu_destroy(gpu, s[a]->handle);
		s[a] = gpu_stream(gpu);
		return err;
	}
}

static void determines(uint64_t seed)
{
	uint64_t state = seed_thread(seed, 0);
	bool same = true, answered = true;
	static struct pair p;

	memset(&p, 0, sizeof(p));
	for (int g = 0; g < 2; g++) {
		gpu_open(&p.gpu[g]);
		p.gpu[g].streams.opportunistic = false;
		for (int i = 0; i < 6; i++)
			p.s[g][i] = gpu_stream(&p.gpu[g]);
	}
	for (int n = 0; n < 3000 && same; n++) {
		uint64_t draw = seed_next(&state) >> 20;
		int err[2];

		for (int g = 0; g < 2; g++) {
			err[g] = turn(&p.gpu[g], p.s[g], p.use[g], draw);
			if (n % 3 == 0)
				glk_event_poll(&p.gpu[g].streams);
		}
		fast_runs(&p);
		answered &= !err[0] && !err[1];
		same = same_knowledge(&p) && same_waits(&p);
	}
	ok(answered, "3000 steps on two GPUs, one fast and one that stands");
	ok(same, "what is known of order is the same");
	tap_note("%d and %d waits", (int)p.gpu[0].streams.waits,
		(int)p.gpu[1].streams.waits);
	for (int g = 0; g < 2; g++)
		gpu_close(&p.gpu[g]);
}

/* What an event covers can be had from a stream that captures, passed or not. */
static void had_before(void)
{
	struct glk_stream *a, *b;
	struct glk_use use;
	struct gpu gpu;

	for (int passed = 0; passed < 2; passed++) {
		gpu_open(&gpu);
		gpu.streams.opportunistic = false;
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
		is_int(glk_clock_waits(&gpu.streams, &use, b), 1, "it needs a wait");
		is_int(glk_clock_order(&gpu.streams, &use, b), 0, "which can be had");
		is_int(gpu_capture_end(&gpu, a->handle), 0, "the capture is whole");
		gpu_close(&gpu);
	}
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
	falls_back();
	cannot_ask();
	had_before();
	spares_captures();
	determines(seed_start());
	return tap_done();
}
