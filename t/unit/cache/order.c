/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Whose memory a stream may have: the policies of the section stream. */
#include "rig.h"

#include <errno.h>

#define SIZE (8 * MIB)

struct pair {
	struct rig rig;
	struct CUstream_st *a, *b;
	uint64_t freed; /* on A, with a kernel queued behind it */
};

#define pair_open(p, ...)                                                                \
	pair_open_as(p, (const char *const[]){"soft.streams=stepped", __VA_ARGS__})

static void pair_open_as(struct pair *p, const char *const *settings)
{
	rig_open(&p->rig, settings);
	p->a = rig_stream(&p->rig);
	p->b = rig_stream(&p->rig);
	p->freed = rig_alloc(&p->rig, SIZE, p->a);
	rig_work(&p->rig, p->freed, SIZE, p->a);
	rig_free(&p->rig, p->freed, p->a);
}

static void finish(struct pair *p)
{
	glk_event_poll(p->rig.cache.streams);
	glk_soft_run_all(p->rig.drv);
	glk_event_poll(p->rig.cache.streams);
}

static void waits(void)
{
	struct pair p;
	uint64_t got;

	pair_open(&p, NULL);
	got = rig_alloc(&p.rig, SIZE, p.b);
	ok(got == p.freed, "wait: B gets what A freed");
	is_int((int64_t)rig_calls(&p.rig, GLAKE_CALL_STREAM_WAIT), 1, "behind a wait");
	is_int((int64_t)rig_figures(&p.rig).rungs[GLAKE_RUNG_CROSS_STREAM], 1,
		"which is counted");
	rig_work(&p.rig, got, SIZE, p.b);
	is_int(glk_soft_step(p.rig.drv, 0, p.b), -EAGAIN, "the device holds B");
	glk_soft_run_all(p.rig.drv);
	rig_free(&p.rig, got, p.b);
	ok(rig_alloc(&p.rig, SIZE, p.b) == p.freed, "now it is B's");
	is_int((int64_t)rig_calls(&p.rig, GLAKE_CALL_STREAM_WAIT), 1, "without a wait");
	is_sound(&p.rig, "the books agree");
	rig_close(&p.rig, 1);
}

static void waits_until_done(void)
{
	uint64_t got, calls;
	struct pair p;

	pair_open(&p, RIG_DONE, NULL);
	got = rig_alloc(&p.rig, SIZE, p.b);
	ok(got && got != p.freed, "done: B gets other memory while A may use it");
	is_int((int64_t)rig_figures(&p.rig).rungs[GLAKE_RUNG_CROSS_STREAM], 0,
		"it waited for nobody");
	finish(&p);
	calls = rig_calls(&p.rig, GLAKE_CALL_STREAM_WAIT);
	ok(rig_alloc(&p.rig, SIZE, p.b) == p.freed, "and gets it when A is done");
	is_int((int64_t)(rig_calls(&p.rig, GLAKE_CALL_STREAM_WAIT) - calls), 0,
		"without a wait");
	is_sound(&p.rig, "the books agree");
	rig_close(&p.rig, 2);
}

static void never(void)
{
	struct pair p;
	uint64_t got;

	pair_open(&p, RIG_NEVER, NULL);
	finish(&p);
	got = rig_alloc(&p.rig, SIZE, p.b);
	ok(got && got != p.freed, "never: B gets other memory though A is done");
	ok(rig_alloc(&p.rig, SIZE, p.a) == p.freed, "A gets its own");
	is_int((int64_t)rig_calls(&p.rig, GLAKE_CALL_STREAM_WAIT), 0, "nobody waits");
	rig_free(&p.rig, p.freed, p.a);
	finish(&p);
	/* under pressure the page itself changes hands, by way of the driver */
	glk_store_relaxed(&p.rig.cache.node->budget, 2 * SIZE);
	ok(rig_alloc(&p.rig, SIZE, p.b), "when nothing else is left");
	is_int((int64_t)rig_calls(&p.rig, GLAKE_CALL_RELEASE), 1,
		"the page goes back to the driver");
	is_int((int64_t)rig_figures(&p.rig).rungs[GLAKE_RUNG_RECUT], 1, "as a rung");
	is_sound(&p.rig, "the books agree");
	rig_close(&p.rig, 2);
}

/* More streams than bits: those that share the last one still wait for each other. */
static void crowds(void)
{
	struct CUstream_st *stream[GLK_STREAM_CROWD + 2];
	uint64_t first, got, waits;
	struct rig rig;

	rig_open(&rig, (const char *const[]){"soft.streams=stepped", NULL});
	for (int i = 0; i < GLK_STREAM_CROWD + 2; i++) {
		stream[i] = rig_stream(&rig);
		first = rig_alloc(&rig, SIZE, stream[i]);
		if (i < GLK_STREAM_CROWD + 1)
			rig_free(&rig, first, stream[i]);
	}
	rig_work(&rig, first, SIZE, stream[GLK_STREAM_CROWD + 1]);
	rig_free(&rig, first, stream[GLK_STREAM_CROWD + 1]);
	waits = rig_calls(&rig, GLAKE_CALL_STREAM_WAIT);
	got = rig_alloc(&rig, SIZE, stream[GLK_STREAM_CROWD]);
	ok(got == first, "one of the crowd gets what another freed");
	is_int((int64_t)(rig_calls(&rig, GLAKE_CALL_STREAM_WAIT) - waits), 1,
		"behind a wait");
	/* the device would refuse the kernel were it not ordered */
	rig_work(&rig, got, SIZE, stream[GLK_STREAM_CROWD]);
	is_sound(&rig, "the books agree");
	rig_close(&rig, 1);
}

/* A stream that ended leaves its memory to all. */
static void ends(void)
{
	struct pair p;
	uint64_t waits;

	pair_open(&p, RIG_DONE, NULL);
	p.rig.drv->ops->stream_sync(p.rig.drv, 0, p.a);
	glk_stream_retire(p.rig.cache.streams, p.a);
	waits = rig_calls(&p.rig, GLAKE_CALL_STREAM_WAIT);
	ok(rig_alloc(&p.rig, SIZE, p.b) == p.freed, "what an ended stream freed is free");
	is_int((int64_t)(rig_calls(&p.rig, GLAKE_CALL_STREAM_WAIT) - waits), 0,
		"without a wait");
	is_int(rig_free(&p.rig, p.freed, p.a), 0, "freed on a handle that came back");
	is_sound(&p.rig, "the books agree");
	rig_close(&p.rig, 0);
}

/* A program that ends its stream without a word: nobody can tell when its work has finished,
 * but who waits for the GPU. */
static void vanishes(void)
{
	struct pair p;

	pair_open(&p, "pool.budget=8MiB", NULL);
	p.rig.drv->ops->stream_free(p.rig.drv, 0, p.a);
	p.rig.stream[0] = rig_stream(&p.rig);
	p.rig.streams--;
	if (!ok(rig_alloc(&p.rig, SIZE, p.b), "memory of a stream that the program ended"))
		tap_note("%s", rig_error().text);
	is_int((int64_t)rig_calls(&p.rig, GLAKE_CALL_STREAM_WAIT), 0, "without a stream wait");
	is_int((int64_t)rig_calls(&p.rig, GLAKE_CALL_SYNC), 2,
		"when memory is short, by waiting for the GPU (and the stream's own end)");
	is_sound(&p.rig, "the books agree");
	rig_close(&p.rig, 1);
}

int main(void)
{
	tap_plan_later();
	waits();
	waits_until_done();
	never();
	crowds();
	ends();
	vanishes();
	return tap_done();
}
