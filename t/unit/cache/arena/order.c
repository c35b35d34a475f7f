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

/* The pages of what A freed, ordered behind it for B, are as B's from then on: whoever is next waits for B alone. */
static void is_adopted(void)
{
	struct glk_request request = {0};
	struct glk_arena *arena;
	struct glk_use use;
	uint32_t id, page;
	struct pair p;
	int64_t waits;

	pair_open(&p, "policy.bins=0", NULL);
	arena = &p.rig.cache.arena;
	if (glk_stream_get(&p.rig.cache.streams, p.b, NULL, &id))
		tap_bail("no stream");
	glk_lock(&p.rig.cache.lock);
	request.stream = glk_stream_enter(&p.rig.cache.streams, id);
	page = arena->map.page[glk_slot_of(
		&arena->map, p.freed - arena->map.range[0].base)];
	use = glk_page_use(&arena->map, page);
	ok(glk_stream_foreign(request.stream, &use), "a page that another stream used");
	is_int(glk_request_order_page(arena, &request, page), 0, "is ordered");
	use = glk_page_use(&arena->map, page);
	ok(use.streams && !glk_stream_foreign(request.stream, &use),
		"and is as the stream's own");
	waits = (int64_t)rig_calls(&p.rig, GLAKE_CALL_STREAM_WAIT);
	is_int(waits, 1, "behind a wait");
	is_int(glk_request_order_page(arena, &request, page), 0, "again");
	is_int((int64_t)rig_calls(&p.rig, GLAKE_CALL_STREAM_WAIT), waits,
		"it needs none");
	glk_unlock(&p.rig.cache.lock);
	is_sound(&p.rig, "the books agree");
	rig_close(&p.rig, 0);
}

/*
 * The same program of one stream on two GPUs, one that has done all work at once and one that does none
 * until it is waited for: with stream.opportunistic=no both give the same addresses.
 */
#define BLOCKS 30

struct twin {
	struct rig rig[2];
	struct CUstream_st *s[2];
	uint64_t held[BLOCKS][2];
};

/* One step on one of them; the answer, and where a block was given. */
static int step(struct twin *t, int g, uint64_t draw, uint64_t *ret_at)
{
	size_t size = 1 + draw / 16384 % (draw / 64 % 2 ? 24 * MIB : 3 * MIB);
	uint32_t flags = draw / 128 % 16 ? 0 : GLAKE_ALLOC_CONTIGUOUS;
	uint64_t *addr = &t->held[draw / 8 % BLOCKS][g];
	struct rig *rig = &t->rig[g];
	int err;

	if (*addr) {
		err = rig_free(rig, *addr, t->s[g]);
		*addr = 0;
		return err;
	}
	err = rig_try(rig, size, t->s[g], flags, addr);
	if (err)
		*addr = 0;
	else
		*ret_at = *addr - rig->cache.arena.map.range[0].base;
	return err;
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
		t.s[g] = rig_stream(&t.rig[g]);
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
	ok(served > 1000, "%" PRIu64 " requests are served", served);
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
	ends();
	vanishes();
	is_adopted();
	determines(seed_start());
	return tap_done();
}
