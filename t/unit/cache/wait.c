/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A request that waits for the GPU does so without the lock: others are served meanwhile, streams
 * end, and what it waits for may be told to somebody else first.
 */
#include "plan_parts.h"

struct scene {
	struct rig rig;
	struct errand a;
	struct CUstream_st *b, *c;
	struct held work;	  /* of B, freed behind work that is queued */
	struct held small, large; /* of C */
};

/* A wants what B has freed, and there is no other memory. */
static void set_up(struct scene *sc)
{
	*sc = (struct scene){.a = {.fn = errand_alloc, .size = 40 * MIB}};
	gate_open_rig(&sc->rig,
		(const char *const[]){
			"soft.streams=stepped", "policy.bins=0", RIG_DONE, NULL});
	sc->a.rig = &sc->rig;
	sc->a.stream = rig_stream(&sc->rig);
	sc->c = rig_stream(&sc->rig);
	sc->b = rig_stream(&sc->rig);
	glk_store_relaxed(&sc->rig.cache.node->budget, 60 * MIB);
	plan_take(&sc->rig, &sc->small, 600, sc->c);
	plan_take(&sc->rig, &sc->large, 6 * MIB, sc->c);
	plan_take(&sc->rig, &sc->work, 44 * MIB, sc->b);
	rig_work(&sc->rig, sc->work.addr, sc->work.size, sc->b);
	rig_free(&sc->rig, sc->work.addr, sc->b);
}

/* They free, and have memory of their own again. */
static void others_go_on(struct scene *sc)
{
	ok(plan_drop(&sc->rig, &sc->small, sc->c) &&
			plan_drop(&sc->rig, &sc->large, sc->c),
		"others may free");
	is_int(plan_take(&sc->rig, &sc->small, 600, sc->c), 0, "a small block is served");
	is_int(plan_take(&sc->rig, &sc->large, 6 * MIB, sc->c), 0, "and a large one");
	ok(rig_figures(&sc->rig).live == 600 + 6 * MIB, "figures are told");
}

static void clear_up(struct scene *sc)
{
	struct held got = plan_got(&sc->a);

	is_sound(&sc->rig, "the books agree");
	ok(plan_drop(&sc->rig, &got, sc->a.stream), "its block can be used");
	ok(plan_drop(&sc->rig, &sc->small, sc->c) &&
			plan_drop(&sc->rig, &sc->large, sc->c),
		"and those of others");
	rig_close(&sc->rig, 0);
}

static void waits_for_stream(void)
{
	struct scene sc;

	set_up(&sc);
	ok(gate_send(&sc.a, GLK_OP_event_sync, 1), "a request waits for a stream");
	others_go_on(&sc);
	is_int(gate_end(&sc.a, 0), 0, "it is served");
	clear_up(&sc);
}

static void enter(struct rig *rig)
{
	struct CUstream_st *stream = rig_stream(rig);
	uint32_t id = 0;

	if (glk_stream_get(&rig->cache.streams, stream, NULL, &id))
		tap_bail("a stream cannot be known");
	glk_lock(&rig->cache.lock);
	glk_clock_tick(&rig->cache.streams, glk_stream_enter(&rig->cache.streams, id));
	glk_event_poll(&rig->cache.streams);
	glk_unlock(&rig->cache.lock);
}

/* Somebody else sees the event pass, and the stream ends; its place and its event go to others. */
static void event_is_told(void)
{
	struct glk_streams *streams;
	struct scene sc;
	uint64_t made;

	set_up(&sc);
	streams = &sc.rig.cache.streams;
	ok(gate_send(&sc.a, GLK_OP_event_sync, 1), "a request waits for a stream");
	glk_soft_run_all(sc.rig.drv);
	others_go_on(&sc);
	glk_lock(&sc.rig.cache.lock);
	glk_event_poll(streams);
	made = streams->events.made;
	ok(streams->awaited && streams->awaited->dropped, "another one is told first");
	glk_unlock(&sc.rig.cache.lock);
	glk_cache_stream_end(&sc.rig.cache, sc.b);
	for (int i = 0; i < 20; i++)
		enter(&sc.rig);
	is_int(gate_end(&sc.a, 0), 0, "the request is served all the same");
	glk_lock(&sc.rig.cache.lock);
	ok(!streams->awaited && streams->events.made >= made, "and the event given back");
	glk_unlock(&sc.rig.cache.lock);
	clear_up(&sc);
}

/* Two wait for the same event. */
static void two_wait(void)
{
	struct errand second = {.fn = errand_alloc, .size = 40 * MIB};
	struct scene sc;
	bool both;

	set_up(&sc);
	second.rig = &sc.rig;
	second.stream = sc.c;
	ok(gate_send(&sc.a, GLK_OP_event_sync, 1), "a request waits for a stream");
	pthread_create(&second.thread, NULL, gate_run, &second);
	do {
		glk_lock(&sc.rig.cache.lock);
		both = (sc.rig.cache.streams.awaited &&
			       sc.rig.cache.streams.awaited->other) ||
			sc.rig.cache.plans.waiters || glk_load_acquire(&second.done);
		glk_unlock(&sc.rig.cache.lock);
	} while (!both);
	gate_end(&sc.a, 0);
	pthread_join(second.thread, NULL);
	ok(!sc.a.err + !second.err == 1, "one of two is served");
	ok(sc.a.err == -ENOMEM || second.err == -ENOMEM, "for both there is no room");
	if (sc.a.err) {
		sc.a.addr = second.addr;
		sc.a.stream = second.stream;
	}
	clear_up(&sc);
}

static void waits_fail(void)
{
	struct scene sc;

	set_up(&sc);
	ok(gate_send(&sc.a, GLK_OP_event_sync, 1), "a request waits for a stream");
	others_go_on(&sc);
	is_int(gate_end(&sc.a, -EIO), 0, "if that fails the next rung waits again");
	clear_up(&sc);
}

static void errand_begin(struct errand *e)
{
	e->err = rig_begin(e->rig, 1, e->stream);
}

/* B has ended unannounced, so only the whole GPU can be waited for; a capture would be broken by
 * that, and does not begin before. */
static void waits_for_all(void)
{
	struct errand begin = {.fn = errand_begin};
	struct scene sc;

	set_up(&sc);
	sc.rig.drv->ops->stream_free(sc.rig.drv, 0, sc.b);
	sc.rig.streams--;
	ok(gate_send(&sc.a, GLK_OP_device_sync, 1), "a request waits for the GPU");
	others_go_on(&sc);
	begin.rig = &sc.rig;
	begin.stream = sc.c;
	pthread_create(&begin.thread, NULL, gate_run, &begin);
	others_go_on(&sc);
	ok(!glk_load_acquire(&begin.done), "a pool of graphs begins later");
	is_int(gate_end(&sc.a, 0), 0, "the request is served");
	pthread_join(begin.thread, NULL);
	is_int(begin.err, 0, "the pool begins");
	is_int(rig_end_pool(&sc.rig, 1), 0, "and ends");
	is_int(rig_release(&sc.rig, 1), 0, "and goes");
	clear_up(&sc);
}

/* The memory of a pool of graphs goes when the GPU has been waited for. */
static void pool_goes(void)
{
	struct errand release = {.fn = errand_release, .pool = 1};
	uint32_t graph;
	uint64_t block;
	struct scene sc;

	set_up(&sc);
	glk_store_relaxed(&sc.rig.cache.node->budget, 100 * MIB);
	release.rig = &sc.rig;
	is_int(rig_begin(&sc.rig, 1, sc.a.stream), 0, "a pool begins");
	rig_capture(&sc.rig, sc.a.stream);
	block = rig_alloc(&sc.rig, 10 * MIB, sc.a.stream);
	rig_free(&sc.rig, block, sc.a.stream);
	graph = rig_capture_end(&sc.rig, sc.a.stream);
	rig_end_pool(&sc.rig, 1);
	rig_drop(&sc.rig, graph);
	ok(gate_send(&release, GLK_OP_device_sync, 1),
		"who releases it waits for the GPU");
	others_go_on(&sc);
	is_int(gate_end(&release, 0), 0, "it goes");
	clear_up(&sc);
}

static void errand_spill(struct errand *e)
{
	e->err = glk_cache_spill(&e->rig->cache, e->addr, e->stream);
}

/* A producer that is faster than the link: what it asks for is about to be free, and the copy is not even
 * queued, since memory of the host is had first. With `fails` that is refused. */
static void spill_under_way(bool fails)
{
	struct errand out = {.fn = errand_spill, .size = 40 * MIB};
	struct errand next = {.fn = errand_alloc, .size = 40 * MIB};
	struct held got;
	struct rig rig;
	bool waits;

	gate_open_rig(&rig, (const char *const[]){"policy.bins=0", NULL});
	out.rig = next.rig = &rig;
	out.stream = rig_stream(&rig);
	next.stream = rig_stream(&rig);
	glk_store_relaxed(&rig.cache.node->budget, 60 * MIB);
	out.addr = rig_alloc(&rig, out.size, out.stream);
	ok(gate_send(&out, GLK_OP_host_lock, 1), "a block is about to go");
	pthread_create(&next.thread, NULL, gate_run, &next);
	do {
		glk_lock(&rig.cache.lock);
		waits = rig.cache.plans.waiters || glk_load_acquire(&next.done);
		glk_unlock(&rig.cache.lock);
	} while (!waits);
	ok(!glk_load_acquire(&next.done), "a request waits for its memory");
	is_int(gate_end(&out, fails ? -ENOMEM : 0), fails ? -ENOMEM : 0,
		fails ? "it stays" : "it goes");
	pthread_join(next.thread, NULL);
	is_int(next.err, fails ? -ENOMEM : 0,
		fails ? "and so there is none" : "and is served");
	is_int((int64_t)rig_figures(&rig).spill_waits, 1, "which is counted");
	is_sound(&rig, "the books agree");
	got = plan_got(&next);
	ok(plan_drop(&rig, &got, next.stream), "its block can be used");
	is_int(rig_free(&rig, out.addr, out.stream), 0, "the other one is freed");
	rig_close(&rig, 0);
}

int main(void)
{
	tap_plan_later();
	waits_for_stream();
	event_is_told();
	two_wait();
	waits_fail();
	waits_for_all();
	pool_goes();
	spill_under_way(false);
	spill_under_way(true);
	return tap_done();
}
