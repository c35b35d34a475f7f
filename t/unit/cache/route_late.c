/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Captures that nobody announced, that were broken, or that cannot be asked about. */
#include "route_parts.h"

/* Captures that nobody announced. */
static void unannounced(void)
{
	struct CUstream_st *a, *b, *c;
	struct glake_block x, y;
	struct CUevent_st *fork;
	uint64_t addr, other;
	uint32_t graph, second;
	struct rig rig;

	rig_open(&rig, STEPPED);
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	c = rig_stream(&rig);
	fork = rig_event(&rig);
	rig_capture(&rig, a);
	addr = rig_alloc(&rig, PAGE, a);
	rig_work(&rig, addr, PAGE, a);
	is_int(glk_cache_query(&rig.cache, addr, &x), 0, "a request in a capture");
	ok(x.pool.high == UINT64_MAX && x.pool.low, "has a pool of its own");
	is_int((int64_t)goes_to(&rig, a), -1, "as all that follow");
	rig_follow(&rig, b, a, fork);
	other = rig_alloc(&rig, MIB, b);
	is_int(glk_cache_query(&rig.cache, other, &y), 0, "a stream that joined");
	ok(x.pool.low == y.pool.low && x.pool.high == y.pool.high, "has the same");
	is_int((int64_t)goes_to(&rig, c), 0, "another has none");
	rig_capture(&rig, c);
	is_int((int64_t)goes_to(&rig, c), -1, "a second capture has one too");
	is_int((int64_t)rig_figures(&rig).pools, 2, "there are two");
	rig_follow(&rig, a, b, fork);
	graph = rig_capture_end(&rig, a);
	second = rig_capture_end(&rig, c);
	ok(graph && second, "both captures are whole");
	is_int((int64_t)goes_to(&rig, a), 0, "after them nothing goes to a pool");
	is_sound(&rig, "the books agree");
	is_int(rig_launch(&rig, graph, a), 0, "replayed");
	glk_soft_run_all(rig.drv);
	rig_free(&rig, addr, a);
	rig_free(&rig, other, a);
	rig_drop(&rig, graph);
	rig_drop(&rig, second);
	is_int(glk_graph_release(&rig.cache, x.pool), 0, "released by the name it has");
	is_int((int64_t)rig_figures(&rig).pools, 1, "one has gone");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* What finds out that such a capture is over. */
static void closes(void)
{
	static const char *const names[] = {"a request of its stream",
		"one of another stream", "release", "trim", "its end by name"};
	struct CUstream_st *a, *b;
	struct glake_block block;
	uint64_t addr, unused;
	struct rig rig;

	for (int way = 0; way < 5; way++) {
		rig_open(&rig, NULL);
		a = rig_stream(&rig);
		b = rig_stream(&rig);
		rig_free(&rig, rig_alloc(&rig, 100, b), b);
		rig_capture(&rig, a);
		addr = rig_alloc(&rig, PAGE, a);
		glk_cache_query(&rig.cache, addr, &block);
		rig_free(&rig, addr, a);
		glk_cache_trim(&rig.cache, SIZE_MAX, false, &unused);
		rig_free(&rig, rig_alloc(&rig, 100, b), b);
		ok(glk_load_relaxed(&rig.cache.diverted), "it is open while it lasts");
		rig_drop(&rig, rig_capture_end(&rig, a));
		if (way == 0)
			rig_free(&rig, rig_alloc(&rig, 100, a), a);
		if (way == 1)
			rig_free(&rig, rig_alloc(&rig, 100, b), b);
		if (way == 2)
			is_int(glk_graph_release(&rig.cache, block.pool), 0, "released");
		if (way == 3)
			glk_cache_trim(&rig.cache, SIZE_MAX, false, &unused);
		if (way == 4)
			is_int(glk_graph_end(&rig.cache, block.pool), 0, "ended");
		ok(!glk_load_relaxed(&rig.cache.diverted), "then closed by %s",
			names[way]);
		is_int((int64_t)rig_figures(&rig).pools, way != 2,
			"and kept, unless released");
		is_sound(&rig, "the books agree");
		rig_close(&rig, 0);
	}
}

/* One that got nothing leaves nothing, and one whose stream is gone is over. */
static void leaves_nothing(void)
{
	struct CUstream_st *a, *b;
	uint64_t addr, unused;
	struct rig rig;

	rig_open(&rig, (const char *const[]){"pool.budget=32MiB", NULL});
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	addr = rig_alloc(&rig, 4 * PAGE, b);
	for (int n = 0; n < 128; n++) {
		rig_capture(&rig, a);
		if (rig_try(&rig, PAGE, a, 0, &unused) != -ENOMEM)
			tap_bail("memory from nowhere");
		rig_drop(&rig, rig_capture_end(&rig, a));
	}
	is_int((int64_t)rig_error().error_class, GLAKE_ERROR_NOMEM_DEVICE,
		"128 captures that got no memory");
	rig_free(&rig, addr, b);
	addr = rig_alloc(&rig, PAGE, b);
	is_int((int64_t)rig_figures(&rig).pools, 0, "leave no pools");
	rig_free(&rig, addr, b);
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* A stream with blocks in its bins from before may be given one of those. */
static void hits_before(void)
{
	struct CUstream_st *a;
	uint64_t addr;
	struct rig rig;

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	addr = rig_alloc(&rig, 100, a);
	rig_free(&rig, addr, a);
	rig_capture(&rig, a);
	ok(rig_alloc(&rig, 100, a) == addr, "not announced: a block of its bins");
	is_int((int64_t)rig_pool_of(&rig, addr), 0, "which is no graph's");
	rig_drop(&rig, rig_capture_end(&rig, a));
	rig_free(&rig, addr, a);
	rig_begin(&rig, 1, a);
	rig_capture(&rig, a);
	ok(rig_alloc(&rig, 100, a) != addr, "announced: not that");
	rig_drop(&rig, rig_capture_end(&rig, a));
	rig_end_pool(&rig, 1);
	rig_close(&rig, 1);
}

/* A capture that was broken gets no graph, and its requests no pool. */
static void broken(void)
{
	struct CUstream_st *a;
	struct rig rig;

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	rig_free(&rig, rig_alloc(&rig, 100, a), a);
	rig_begin(&rig, 1, a);
	rig_capture(&rig, a);
	is_int((int64_t)goes_to(&rig, a), 1, "a capture");
	rig.drv->ops->stream_sync(rig.drv, 0, a);
	rig_free(&rig, rig_alloc(&rig, 3 * MIB, a), a);
	is_int((int64_t)rig_pool(&rig, 1).blocks, 0,
		"that is broken gets nothing from its pool");
	is_int(rig_capture_end(&rig, a), 0, "there is no graph");
	is_int(rig_end_pool(&rig, 1), 0, "the pool ends");
	is_int(rig_release(&rig, 1), 0, "and goes");
	rig_capture(&rig, a);
	rig.drv->ops->stream_sync(rig.drv, 0, a);
	rig_free(&rig, rig_alloc(&rig, 5 * MIB, a), a);
	is_int((int64_t)rig_figures(&rig).pools, 0, "nobody makes a pool for such a one");
	rig_capture_end(&rig, a);
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* A question that fails says nothing of the capture, which goes on, in its pool. */
static void cannot_ask(void)
{
	struct CUstream_st *a, *b;
	uint64_t first, addr = 0;
	struct glake_block block;
	struct rig rig;
	int odd = 0;

	for (int n = 1; n < 6; n++) {
		char fault[64];

		rig_open(&rig, STEPPED);
		a = rig_stream(&rig);
		b = rig_stream(&rig);
		rig_free(&rig, rig_alloc(&rig, 100, b), b);
		rig_capture(&rig, a);
		first = rig_alloc(&rig, PAGE, a);
		rig_work(&rig, first, PAGE, a);
		glk_cache_query(&rig.cache, first, &block);
		rig_free(&rig, first, a);
		snprintf(fault, sizeof(fault), "stream_facts:nth=%d:err=EIO", n);
		glk_fault_set(rig.drv, fault);
		for (int i = 0; i < 3; i++) {
			struct CUstream_st *s = i == 1 ? a : b;
			int err = rig_try(&rig, 100 + (size_t)i * 3000, s, 0, &addr);

			odd += err && err != -EIO;
			if (!err)
				rig_free(&rig, addr, s);
		}
		glk_fault_set(rig.drv, "off");
		addr = rig_alloc(&rig, PAGE, a);
		ok(addr == first, "question %d fails: the capture has its pool", n);
		is_int(rig_figures(&rig).pools, 1, "and no other");
		rig_work(&rig, addr, PAGE, a);
		rig_free(&rig, addr, a);
		rig_drop(&rig, rig_capture_end(&rig, a));
		is_int(glk_graph_release(&rig.cache, block.pool), 0, "which goes");
		is_int(rig_figures(&rig).pools, 0, "at one release");
		is_sound(&rig, "the books agree");
		rig_close(&rig, 0);
	}
	is_int(odd, 0, "requests are served, or answered as the question was");
}

static void *capture_own(void *arg)
{
	struct CUstream_st *s = GLK_STREAM_PER_THREAD;
	struct own *o = arg;
	uint32_t graph;

	if (o->announces && rig_begin(o->rig, o->pool, s))
		tap_bail("no pool");
	pthread_barrier_wait(o->turn);
	rig_capture(o->rig, s);
	pthread_barrier_wait(o->turn);
	for (int i = 0; i < 3; i++) {
		struct glake_block block;

		o->addr[i] = rig_alloc(o->rig, PAGE, s);
		if (!o->addr[i] || glk_cache_query(&o->rig->cache, o->addr[i], &block))
			tap_bail(rig_error().text);
		rig_work(o->rig, o->addr[i], PAGE, s);
		o->pools[i] = block.pool.low;
		o->id = block.pool;
		pthread_barrier_wait(o->turn);
	}
	for (int i = 0; i < 3; i++)
		rig_free(o->rig, o->addr[i], s);
	pthread_barrier_wait(o->turn);
	graph = rig_capture_end(o->rig, s);
	o->whole = graph != 0;
	if (graph)
		rig_drop(o->rig, graph);
	pthread_barrier_wait(o->turn);
	if (o->announces)
		rig_end_pool(o->rig, o->pool);
	glk_cache_stream_leave(&o->rig->cache, s);
	return NULL;
}

static void own_streams(bool announces)
{
	pthread_barrier_t turn;
	struct own own[2] = {{0}};
	pthread_t thread[2];
	struct rig rig;

	rig_open(&rig, NULL);
	rig_free(&rig, rig_alloc(&rig, 100, NULL), NULL);
	pthread_barrier_init(&turn, NULL, 2);
	for (uint64_t i = 0; i < 2; i++) {
		own[i] = (struct own){.rig = &rig,
			.turn = &turn,
			.announces = announces,
			.pool = i + 1};
		pthread_create(&thread[i], NULL, capture_own, &own[i]);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	pthread_barrier_destroy(&turn);
	tap_note("%s", announces ? "announced" : "not announced");
	ok(own[0].whole && own[1].whole, "two threads capture on their default streams");
	for (int i = 0; i < 2; i++)
		ok(own[i].pools[0] == own[i].pools[1] &&
				own[i].pools[1] == own[i].pools[2],
			"each has one pool");
	ok(own[0].pools[0] != own[1].pools[0], "of its own");
	is_int((int64_t)rig_figures(&rig).pools, 2, "there are two");
	for (int i = 0; i < 2; i++) {
		if (announces)
			is_int((int64_t)own[i].pools[0], (int64_t)own[i].pool,
				"as announced");
		is_int(glk_graph_release(&rig.cache, own[i].id), 0, "one release");
	}
	is_int((int64_t)rig_figures(&rig).pools, 0, "ends each");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

int main(void)
{
	tap_plan_later();
	unannounced();
	closes();
	leaves_nothing();
	hits_before();
	broken();
	cannot_ask();
	own_streams(true);
	own_streams(false);
	return tap_done();
}
