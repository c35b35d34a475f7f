/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Whose memory a stream may have: the policies of the section stream. */
#include "unit/cache/rig.h"

#include "seed.h"

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
	glk_event_poll(&p->rig.cache.streams);
	glk_soft_run_all(p->rig.drv);
	glk_event_poll(&p->rig.cache.streams);
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

/* A stream that ended leaves its memory to all. */
static void ends(void)
{
	struct pair p;
	uint64_t waits;

	pair_open(&p, RIG_DONE, NULL);
	p.rig.drv->ops->stream_sync(p.rig.drv, 0, p.a);
	glk_stream_retire(&p.rig.cache.streams, p.a);
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
	if (!ok(rig_alloc(&p.rig, SIZE, p.b),
		    "memory of a stream that the program ended"))
		tap_note("%s", rig_error().text);
	is_int((int64_t)rig_calls(&p.rig, GLAKE_CALL_STREAM_WAIT), 0,
		"without a stream wait");
	is_int((int64_t)rig_calls(&p.rig, GLAKE_CALL_SYNC), 2,
		"when memory is short, by waiting for the GPU (and the stream's own end)");
	is_sound(&p.rig, "the books agree");
	rig_close(&p.rig, 1);
}

/*
 * The same program on two GPUs, one that has done all work at once and one that does none until
 * it is waited for: with stream.opportunistic=no both give the same addresses.
 */
#define STREAMS 5
#define EVENTS	3
#define BLOCKS	30

struct twin {
	struct rig rig[2];
	struct CUstream_st *s[2][STREAMS];
	struct CUevent_st *event[2][EVENTS];
	struct {
		uint64_t addr[2];
		int stream;
	} held[BLOCKS];
};

/* One step on one of them; the answer, and where a block was given. */
static int step(struct twin *t, int g, uint64_t draw, uint64_t *ret_at)
{
	unsigned a = (unsigned)(draw % STREAMS), h = (unsigned)(draw / 8 % BLOCKS);
	unsigned b = (unsigned)(draw / 512 % STREAMS),
		 e = (unsigned)(draw / 4096 % EVENTS);
	struct CUevent_st *event = t->event[g][e];
	struct rig *rig = &t->rig[g];
	uint64_t *addr = &t->held[h].addr[g];
	size_t size = 1 + draw / 16384 % (draw / 64 % 2 ? 24 * MIB : 3 * MIB);
	uint32_t flags = draw / 128 % 16 ? 0 : GLAKE_ALLOC_CONTIGUOUS;
	int err;

	switch (draw / 1024 % 16) {
	case 0:
		err = glk_cache_event_recorded(&rig->cache, event, t->s[g][b]);
		rig_follow(rig, t->s[g][a], t->s[g][b], event);
		return err | glk_cache_stream_waited(&rig->cache, t->s[g][a], event);
	case 1:
		return *addr ? glk_cache_use(&rig->cache, *addr, t->s[g][b]) : 0;
	case 2:
		if (draw / 32 % 4)
			return 0;
		err = glk_cache_stream_leave(&rig->cache, t->s[g][a]);
		rig->drv->ops->stream_free(rig->drv, 0, t->s[g][a]);
		rig->drv->ops->stream_new(rig->drv, 0, &rig->stream[a]);
		t->s[g][a] = rig->stream[a];
		return err;
	case 3:
		if (!*addr)
			return 0;
		rig->drv->ops->user_event_record(rig->drv, 0, event, t->s[g][b]);
		err = glk_cache_free_after(&rig->cache, *addr, &event, 1);
		*addr = 0;
		return err;
	default:
		if (*addr) {
			err = rig_free(rig, *addr, t->s[g][t->held[h].stream]);
			*addr = 0;
			return err;
		}
		t->held[h].stream = (int)a;
		err = rig_try(rig, size, t->s[g][a], flags, addr);
		if (err)
			*addr = 0;
		else
			*ret_at = *addr - rig->cache.arena.map.range[0].base;
		return err;
	}
}

static void determines(uint64_t seed)
{
	uint64_t state = seed_thread(seed, 1), served = 0;
	bool same = true, answered = true;
	static struct twin t;

	memset(&t, 0, sizeof(t));
	for (int g = 0; g < 2; g++) {
		rig_open(&t.rig[g],
			(const char *const[]){"soft.streams=stepped",
				"pool.budget=200MiB", "stream.opportunistic=no",
				"map.aliases=3", NULL});
		for (int i = 0; i < STREAMS; i++)
			t.s[g][i] = rig_stream(&t.rig[g]);
		for (int i = 0; i < EVENTS; i++)
			t.event[g][i] = rig_event(&t.rig[g]);
	}
	for (int n = 0; n < 3000 && same; n++) {
		uint64_t draw = seed_next(&state) >> 8, at[2] = {0};
		int err[2];

		for (int g = 0; g < 2; g++)
			err[g] = step(&t, g, draw, &at[g]);
		glk_soft_run_all(t.rig[0].drv);
		served += at[0] != 0;
		answered &= !err[0] || err[0] == -ENOMEM;
		same = err[0] == err[1] && at[0] == at[1];
		if (!same)
			tap_note("step %d: %d at %" PRIx64 ", %d at %" PRIx64, n, err[0],
				at[0], err[1], at[1]);
	}
	tap_note("%" PRIu64 " served, %" PRIu64 " and %" PRIu64 " waits", served,
		t.rig[0].cache.streams.waits, t.rig[1].cache.streams.waits);
	ok(answered, "3000 steps on a fast GPU and one that stands");
	ok(same, "the same requests get the same addresses");
	is_sound(&t.rig[0], "the books agree");
	is_sound(&t.rig[1], "on both");
	for (int g = 0; g < 2; g++) {
		struct rig_end end = rig_end(&t.rig[g]);

		ok(!end.cache && !end.device, "all goes back");
	}
}

int main(void)
{
	tap_plan_later();
	waits();
	waits_until_done();
	never();
	ends();
	vanishes();
	determines(seed_start());
	return tap_done();
}
