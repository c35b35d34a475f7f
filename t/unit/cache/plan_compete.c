/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Requests that are too large together: as many of them are served as fit, whoever that is, and
 * nobody hangs.
 */
#include "plan_parts.h"

#include <stdlib.h>

#define MOST   8
#define BUDGET (200 * MIB)

struct part {
	pthread_t thread;
	struct CUstream_st *stream;
	struct held held;
	int err;
	bool whole; /* nobody else wrote to its block */
	bool trims; /* gives memory back instead */
};

static struct rig rig;
static struct part parts[MOST];
static pthread_barrier_t barrier;
static int rounds;
static bool stop;

static void *compete(void *arg)
{
	struct part *p = arg;
	uint64_t unused;

	for (;;) {
		pthread_barrier_wait(&barrier);
		if (stop)
			return NULL;
		if (p->trims)
			p->err = glk_cache_trim(&rig.cache, 20 * MIB, &unused);
		else
			p->err = plan_take(&rig, &p->held, p->held.size, p->stream);
		pthread_barrier_wait(&barrier);
		p->whole = plan_drop(&rig, &p->held, p->stream);
		pthread_barrier_wait(&barrier);
	}
}

/* `count` requests of `size` bytes at once, of which `fit` are served, each time; and some that
 * give memory back meanwhile. All memory can be had by one request in the end. */
static void rivals(
	int count, int trims, size_t size, int fit, const char *const *settings)
{
	int least = count, most = 0, strange = 0, torn = 0;
	struct CUstream_st *s;
	uint64_t all;

	rig_open(&rig, settings);
	s = rig_stream(&rig);
	pthread_barrier_init(&barrier, NULL, (unsigned)(count + trims) + 1);
	stop = false;
	for (int i = 0; i < count + trims; i++) {
		parts[i] = (struct part){.stream = rig_stream(&rig),
			.held = {.size = size},
			.trims = i >= count};
		pthread_create(&parts[i].thread, NULL, compete, &parts[i]);
	}
	for (int n = 0; n < rounds; n++) {
		char rules[256];
		int served = 0;

		snprintf(rules, sizeof(rules),
			"create:p=300000:delay=80:seed=%d;map:p=200000:delay=60:seed=%d;"
			"unmap:p=300000:delay=70:seed=%d;release:p=200000:delay=50:seed=%d",
			4 * n, 4 * n + 1, 4 * n + 2, 4 * n + 3);
		glk_fault_set(rig.drv, rules);
		pthread_barrier_wait(&barrier);
		pthread_barrier_wait(&barrier);
		for (int i = 0; i < count; i++) {
			served += !parts[i].err;
			strange += parts[i].err && parts[i].err != -ENOMEM;
		}
		least = served < least ? served : least;
		most = served > most ? served : most;
		pthread_barrier_wait(&barrier);
		for (int i = 0; i < count + trims; i++)
			torn += !parts[i].whole;
	}
	stop = true;
	pthread_barrier_wait(&barrier);
	for (int i = 0; i < count + trims; i++)
		pthread_join(parts[i].thread, NULL);
	pthread_barrier_destroy(&barrier);
	glk_fault_set(rig.drv, "off");
	tap_note("%d of %zu MiB: %d to %d served", count, size >> 20, least, most);
	ok(least >= fit, "%d of %d are served each time", fit, count);
	is_int(strange, 0, "the others are told that there is no memory");
	is_int(torn, 0, "nobody has memory of another one");
	is_sound(&rig, "the books agree");
	all = rig_alloc(&rig, BUDGET, s);
	ok(all, "all memory can be had by one request");
	rig_free(&rig, all, s);
	rig_close(&rig, 0);
}

/* All requests. */
static bool is_for_all(struct CUstream_st *stream, void *arg)
{
	return true;
}

/* A request of a pool reserves addresses, the last that there may be; but another one has had them
 * meanwhile, and left enough. */
static void both_extend(void)
{
	struct errand e = {.fn = errand_alloc, .size = 500 * MIB};
	uint64_t first, second;
	struct CUstream_st *s;

	gate_open_rig(
		&rig, (const char *const[]){"soft.memory=4GiB", "map.span=4GiB", NULL});
	s = rig_stream(&rig);
	e.rig = &rig;
	e.stream = rig_stream(&rig);
	is_int(rig_begin_for(&rig, 1, is_for_all, NULL), 0, "a pool begins");
	first = rig_alloc(&rig, 1700 * MIB, s);
	ok(first, "its addresses are almost all in use");
	ok(gate_send(&e, GLK_OP_reserve, 1), "a request reserves more");
	second = rig_alloc(&rig, 500 * MIB, s);
	ok(second, "another one was faster");
	is_int(gate_end(&e, 0), 0, "and left enough for both");
	is_int(rig_end_pool(&rig, 1), 0, "the pool ends");
	is_sound(&rig, "the books agree");
	rig_free(&rig, first, s);
	rig_free(&rig, second, s);
	if (e.addr)
		rig_free(&rig, e.addr, s);
	is_int(rig_release(&rig, 1), 0, "and goes");
	rig_close(&rig, 0);
}

/* All slots but one that small blocks may have for themselves are theirs: two requests are about to
 * add one. */
static void last_of_the_small(void)
{
	struct errand e = {.fn = errand_alloc, .size = 200 << 10};
	struct CUstream_st *s;
	uint64_t syncs, addr = 0;
	struct glk_slab *nests;
	struct glk_map *map;
	uint32_t hole;

	gate_open_rig(
		&rig, (const char *const[]){"map.span=1GiB", "policy.bins=0", NULL});
	s = rig_stream(&rig);
	e.rig = &rig;
	e.stream = rig_stream(&rig);
	is_int(rig_begin_for(&rig, 1, is_for_all, NULL), 0, "a pool begins");
	ok(rig_alloc(&rig, 200 << 10, s), "a small block");
	map = &glk_graphs(&rig.cache)->at[0].arena.map;
	nests = &map->nests;
	while (glk_load_relaxed(&nests->live) < nests->max - 1 ||
		glk_tree_find(map, &map->nested, 200 << 10, &hole, 1)) {
		if (!rig_alloc(&rig, 200 << 10, s))
			tap_bail(rig_error().text);
	}
	syncs = rig_calls(&rig, GLAKE_CALL_SYNC);
	ok(gate_send(&e, GLK_OP_map, 1),
		"a request is about to add a slot for small blocks");
	is_int(rig_try(&rig, 200 << 10, s, 0, &addr), 0, "another one has the last");
	is_int((int64_t)glk_load_relaxed(&nests->live), (int64_t)nests->max,
		"there are no more");
	is_int(gate_end(&e, 0), 0, "the first one is served elsewhere");
	is_int((int64_t)(rig_calls(&rig, GLAKE_CALL_SYNC) - syncs), 0,
		"and waits for nobody");
	rig_end_pool(&rig, 1);
	is_sound(&rig, "the books agree");
	rig_end(&rig);
}

int main(void)
{
	static const char *const budget[] = {"pool.budget=200MiB", NULL};
	static const char *const lean[] = {
		"pool.budget=200MiB", "policy.bins=0", "map.aliases=3", NULL};
	/* addresses are what is short */
	static const char *const narrow[] = {
		"soft.memory=4GiB", "map.span=1GiB", "policy.bins=0", NULL};
	const char *given = getenv("GLAKE_TEST_ROUNDS");

	tap_plan_later();
	rounds = given ? atoi(given) : tap_rounds(100);
	rivals(2, 0, BUDGET / 100 * 60, 1, budget);
	rivals(3, 0, BUDGET / 100 * 40, 2, lean);
	rivals(8, 0, BUDGET / 100 * 30, 3, budget);
	rivals(3, 1, BUDGET / 100 * 40, 2, budget);
	rounds = rounds / 10 + 1;
	rivals(2, 2, 600 * MIB, 1, narrow);
	rivals(3, 2, 300 * MIB, 3, narrow);
	both_extend();
	last_of_the_small();
	return tap_done();
}
