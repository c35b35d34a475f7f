/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a program may do beside a plan that stands in a call of the driver: streams and pools end,
 * the budget changes, the device is lost, threads are cancelled, figures are read. */
#include "plan_parts.h"

/* A, and what it meets. */
struct scene {
	struct rig rig;
	struct errand a;
	struct CUstream_st *b;
};

static void set_up(struct scene *sc, const char *const *settings)
{
	*sc = (struct scene){.a = {.fn = errand_alloc, .size = 20 * MIB}};
	gate_open_rig(&sc->rig, settings);
	sc->a.rig = &sc->rig;
	sc->a.stream = rig_stream(&sc->rig);
	sc->b = rig_stream(&sc->rig);
}

/* A's block, if it has one, can be used, and is all that is left. */
static void clear_up(struct scene *sc)
{
	struct held got = plan_got(&sc->a);
	uint64_t unused;

	is_sound(&sc->rig, "the books agree");
	ok(plan_drop(&sc->rig, &got, sc->a.stream), "its block can be used");
	is_int(glk_cache_trim(&sc->rig.cache, 0, false, &unused), 0, "all is given back");
	glk_soft_run_all(sc->rig.drv);
	is_int(glk_cache_trim(&sc->rig.cache, 0, false, &unused), 0,
		"also what had work left");
	is_int((int64_t)rig_figures(&sc->rig).reserved, 0, "to the last page");
	is_sound(&sc->rig, "the books agree");
	rig_close(&sc->rig, 0);
	tap_expect_log(tap.logs - tap.expected);
}

static bool was_cancelled;

static void errand_cancelled(struct errand *e)
{
	e->err = rig_try(e->rig, e->size, e->stream, e->flags, &e->addr);
	was_cancelled = true;
	pthread_testcancel();
	was_cancelled = false;
}

static void is_cancelled(const struct plan_op *op, int err)
{
	struct scene sc;

	set_up(&sc, NULL);
	sc.a.fn = errand_cancelled;
	was_cancelled = false;
	ok(gate_send(&sc.a, op->op, 1), "a thread stands in %s", op->name);
	pthread_cancel(sc.a.thread);
	is_int(gate_end(&sc.a, err), err, "it is cancelled, and the request ends");
	ok(was_cancelled, "the thread ends behind it");
	clear_up(&sc);
}

/* The device is lost while A stands, by a call of B. */
static void is_lost(const struct plan_op *op)
{
	struct held first;
	uint64_t addr = 0;
	struct scene sc;

	set_up(&sc, (const char *const[]){"policy.bins=0", NULL});
	plan_take(&sc.rig, &first, 4 * MIB, sc.b);
	ok(gate_send(&sc.a, op->op, 1), "a request stands in %s", op->name);
	glk_fault_set(gate.drv.inner, "any:nth=1:sticky=1");
	is_int(rig_try(&sc.rig, 30 * MIB, sc.b, 0, &addr), -ENODEV,
		"another one finds that the device is lost");
	is_int(rig_free(&sc.rig, first.addr, sc.b), 0, "blocks may be freed");
	is_int(gate_end(&sc.a, 0), -ENODEV, "the request ends with that");
	ok(rig_verify(&sc.rig), "the books agree");
	glk_fault_set(gate.drv.inner, "off");
	is_sound(&sc.rig, "also with the device");
	rig_close(&sc.rig, 0);
	tap_expect_log(tap.logs - tap.expected);
}

static void wait_for_waiters(struct rig *rig)
{
	bool waits;

	do {
		glk_lock(&rig->cache.lock);
		waits = rig->cache.plans.waiters > 0;
		glk_unlock(&rig->cache.lock);
	} while (!waits);
}

/* A request that finds no memory waits for one that may give some up. It asks for more than the one
 * page that A may have made and left. */
static void budget_falls(const struct plan_op *op, int expected)
{
	struct errand e = {.fn = errand_alloc, .size = 12 * MIB};
	struct held live, more;
	struct scene sc;

	set_up(&sc, (const char *const[]){"policy.bins=0", NULL});
	plan_take(&sc.rig, &live, 30 * MIB, sc.b);
	ok(gate_send(&sc.a, op->op, 1), "a request stands in %s", op->name);
	glk_store_relaxed(&sc.rig.cache.node->budget, 16 * MIB);
	e.rig = &sc.rig;
	e.stream = sc.b;
	pthread_create(&e.thread, NULL, gate_run, &e);
	wait_for_waiters(&sc.rig);
	is_int(gate_end(&sc.a, 0), expected, "it has what it got in time");
	pthread_join(e.thread, NULL);
	is_int(e.err, -ENOMEM, "there is no memory for another one");
	is_sound(&sc.rig, "the books agree");
	glk_store_relaxed(&sc.rig.cache.node->budget, UINT64_MAX);
	is_int(plan_take(&sc.rig, &more, 50 * MIB, sc.b), 0, "and there is room again");
	ok(plan_drop(&sc.rig, &live, sc.b) && plan_drop(&sc.rig, &more, sc.b),
		"blocks keep what was written");
	clear_up(&sc);
}

static void errand_peer(struct errand *e)
{
	e->err = glk_cache_peer(&e->rig->cache, 1, e->flags);
}

static void wait_closed(struct rig *rig)
{
	bool closed;

	do {
		glk_lock(&rig->cache.lock);
		closed = rig->cache.plans.closed;
		glk_unlock(&rig->cache.lock);
	} while (!closed);
}

/* Rights change when no plan is under way, and requests that come meanwhile wait. */
static void peers_wait(const struct plan_op *op, int err)
{
	struct errand peer = {.fn = errand_peer, .flags = 1}, next = {.fn = errand_alloc};
	struct held first, got;
	struct scene sc;

	set_up(&sc, (const char *const[]){"soft.gpus=2", "policy.bins=0", NULL});
	plan_take(&sc.rig, &first, 4 * MIB, sc.b);
	ok(gate_send(&sc.a, op->op, 1), "a request stands in %s", op->name);
	peer.rig = next.rig = &sc.rig;
	next.stream = sc.b;
	next.size = 12 * MIB;
	pthread_create(&peer.thread, NULL, gate_run, &peer);
	wait_closed(&sc.rig);
	ok(!glk_load_acquire(&peer.done), "who changes rights waits for it");
	pthread_create(&next.thread, NULL, gate_run, &next);
	ok(plan_drop(&sc.rig, &first, sc.b), "others may free");
	is_int(gate_end(&sc.a, err), err, "it ends as the call does");
	pthread_join(peer.thread, NULL);
	pthread_join(next.thread, NULL);
	is_int(peer.err, 0, "the rights change");
	is_int(next.err, 0, "who came behind it is served");
	is_int((int64_t)glk_load_relaxed(&sc.rig.cache.node->peers), 2, "GPU 1 may");
	got = plan_got(&next);
	is_sound(&sc.rig, "the books agree");
	is_int(glk_cache_peer(&sc.rig.cache, 1, false), 0, "and no longer");
	ok(plan_drop(&sc.rig, &got, sc.b), "it keeps what was written");
	clear_up(&sc);
}

/* Pools come and go, of graphs that are captured meanwhile on B's stream and on that of A. */
static void pools_live(const struct plan_op *op, int err)
{
	uint64_t block[2];
	struct scene sc;
	uint32_t graph;

	set_up(&sc, (const char *const[]){"policy.bins=0", NULL});
	ok(gate_send(&sc.a, op->op, 1), "a request stands in %s", op->name);
	for (int i = 0; i < 2; i++) {
		struct CUstream_st *s = i ? sc.b : rig_stream(&sc.rig);

		is_int(rig_begin(&sc.rig, 1, s), 0, "a pool begins");
		rig_capture(&sc.rig, s);
		block[i] = rig_alloc(&sc.rig, 10 * MIB, s);
		ok(block[i], "it has a block");
		graph = rig_capture_end(&sc.rig, s);
		ok(graph, "the capture is whole");
		is_int(rig_end_pool(&sc.rig, 1), 0, "the pool ends");
		rig_free(&sc.rig, block[i], s);
		rig_drop(&sc.rig, graph);
		is_int(rig_release(&sc.rig, 1), 0, "and goes");
	}
	is_int(gate_end(&sc.a, err), err, "it ends as the call does");
	clear_up(&sc);
}

/* The pool that A's request is of ends and is released before the request does. */
static void own_pool_ends(const struct plan_op *op, int err)
{
	struct scene sc;
	uint32_t graph;

	set_up(&sc, (const char *const[]){"policy.bins=0", NULL});
	rig_begin(&sc.rig, 1, sc.a.stream);
	rig_capture(&sc.rig, sc.a.stream);
	ok(gate_send(&sc.a, op->op, 1), "in a capture a request stands in %s", op->name);
	is_int(rig_release(&sc.rig, 1), -EBUSY, "its pool is open");
	is_int(rig_end_pool(&sc.rig, 1), 0, "it ends");
	is_int(rig_release(&sc.rig, 1), 0, "and is released");
	is_int(rig_begin(&sc.rig, 1, sc.b), 0, "another one of that name begins");
	is_int(gate_end(&sc.a, err), err, "the request ends as the call does");
	graph = rig_capture_end(&sc.rig, sc.a.stream);
	ok(graph, "the capture is whole");
	rig_drop(&sc.rig, graph);
	is_int(rig_end_pool(&sc.rig, 1), 0, "the other one ends");
	is_sound(&sc.rig, "the books agree");
	is_int(rig_release(&sc.rig, 1), 0, "and goes");
	clear_up(&sc);
}

/* Idle memory of B, whose work is under way: A must not wait for B in a graph that begins on its own
 * stream meanwhile. */
static void capture_begins(void)
{
	struct held held;
	struct scene sc;
	uint32_t graph;

	set_up(&sc,
		(const char *const[]){"policy.bins=0", "soft.streams=stepped",
			"policy.target=1", NULL});
	sc.a.size = 60 * MIB;
	plan_take(&sc.rig, &held, 12 * MIB, sc.b);
	rig_work(&sc.rig, held.addr, held.size, sc.b);
	plan_drop(&sc.rig, &held, sc.b);
	ok(gate_send(&sc.a, GLK_OP_create, 1), "a request stands in create");
	is_int(rig_begin(&sc.rig, 1, sc.a.stream), 0, "its stream begins to capture");
	rig_capture(&sc.rig, sc.a.stream);
	is_int(gate_end(&sc.a, 0), 0, "the request is served");
	graph = rig_capture_end(&sc.rig, sc.a.stream);
	ok(graph, "the capture is whole");
	rig_drop(&sc.rig, graph);
	rig_end_pool(&sc.rig, 1);
	rig_release(&sc.rig, 1);
	clear_up(&sc);
}

/* Streams end, also that of A. */
static void streams_end(const struct plan_op *op, int err, size_t size, bool own)
{
	struct CUstream_st *other;
	uint64_t block;
	struct scene sc;

	set_up(&sc, NULL);
	sc.a.size = size;
	other = rig_stream(&sc.rig);
	for (int i = 0; i < 3; i++) {
		block = rig_alloc(&sc.rig, 3000, i ? sc.a.stream : other);
		rig_free(&sc.rig, block, i ? sc.a.stream : other);
		block = rig_alloc(&sc.rig, 3 * MIB, other);
		rig_free(&sc.rig, block, other);
	}
	if (!gate_send(&sc.a, op->op, 1))
		tap_note("%zu bytes need no %s", size, op->name);
	glk_cache_stream_end(&sc.rig.cache, other);
	is_int(glk_cache_stream_leave(&sc.rig.cache, own ? sc.a.stream : sc.b), 0,
		"streams end");
	if (own)
		glk_cache_stream_end(&sc.rig.cache, sc.a.stream);
	block = rig_alloc(&sc.rig, 3 * MIB, sc.b);
	ok(block && !rig_free(&sc.rig, block, sc.b), "others go on");
	sc.a.err = gate_end(&sc.a, err);
	ok(!sc.a.err || sc.a.err == err, "the request ends as the call does");
	if (own)
		sc.a.stream = sc.b;
	clear_up(&sc);
}

/* All that asks about blocks. */
static void others_are_asked(const struct plan_op *op, int err)
{
	struct glake_block block = {.sz = sizeof(block)};
	struct held list[2];
	struct glake_stats s;
	struct glk_pin pin;
	struct scene sc;
	uint64_t claimed = 0;
	struct glk_map *map;

	set_up(&sc, (const char *const[]){"policy.bins=0", NULL});
	plan_take(&sc.rig, &list[0], 9 * MIB, sc.b);
	plan_take(&sc.rig, &list[1], 600, sc.b);
	ok(gate_send(&sc.a, op->op, 1), "a request stands in %s", op->name);
	map = &sc.rig.cache.arena.map;
	for (uint32_t slot = 0; slot < 64 && !claimed; slot++)
		claimed = glk_bit_get(map->claimed, slot) ? glk_slot_addr(map, slot) : 0;
	ok(claimed, "in these slots");
	is_int(glk_cache_query(&sc.rig.cache, claimed, &block), -EINVAL, "nobody's yet");
	is_int(rig_free(&sc.rig, claimed, sc.b), -EINVAL, "and not to be freed");
	is_int(glk_cache_pin(&sc.rig.cache, claimed, true, &pin), -EINVAL, "nor pinned");
	is_int(glk_cache_use(&sc.rig.cache, claimed, sc.b), -EINVAL, "nor used");
	for (int i = 0; i < 2; i++) {
		uint64_t addr = list[i].addr;

		is_int(glk_cache_query(&sc.rig.cache, addr, &block), 0,
			"a block is told of");
		ok(block.size == list[i].size, "as it is");
		is_int(glk_cache_use(&sc.rig.cache, addr, sc.a.stream), 0, "it is used");
		is_int(glk_cache_pin(&sc.rig.cache, addr, false, &pin), 0, "pinned");
		ok(glk_pin_page(&pin, 0).size, "looked at");
		ok(plan_drop(&sc.rig, &list[i], sc.b), "freed");
		is_int(glk_cache_unpin(&sc.rig.cache, addr), 0, "and unpinned");
	}
	glk_cache_reset_peaks(&sc.rig.cache);
	s = rig_figures(&sc.rig);
	ok(!s.live && s.reserved >= s.free_pages + s.lost, "figures are told");
	is_int(gate_end(&sc.a, err), err, "it ends as the call does");
	s = rig_figures(&sc.rig);
	is_int((int64_t)s.reserved, (int64_t)(s.free_pages + (sc.a.addr ? 20 * MIB : 0)),
		"what is held is live or free");
	clear_up(&sc);
}

int main(void)
{
	tap_plan_later();
	for (size_t i = 0; i < 3; i++) {
		const struct plan_op *op = &plan_ops[i];

		is_lost(op);
		budget_falls(op, op->op == GLK_OP_create ? -ENOMEM : 0);
		for (int n = 0; n < 2; n++) {
			int err = n ? -EIO : 0;

			is_cancelled(op, err);
			peers_wait(op, err);
			pools_live(op, err);
			own_pool_ends(op, err);
			streams_end(op, err, 300 << 10, false);
			streams_end(op, err, 20 * MIB, true);
			streams_end(op, err, 5000, true);
			others_are_asked(op, err);
		}
	}
	capture_begins();
	return tap_done();
}
