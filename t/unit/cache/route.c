/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Which pool a request goes to: by its capture, by the program's choice, or none. */
#include "rig.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>

#define PAGE (8 * MIB)

#define STEPPED                                                                          \
	(const char *const[])                                                            \
	{                                                                                \
		"soft.streams=stepped", NULL                                             \
	}

/* A request, and the pool that served it: 0 none, UINT64_MAX one that nobody named. */
static uint64_t goes_to(struct rig *rig, struct CUstream_st *stream)
{
	struct glake_block block;
	uint64_t addr = rig_alloc(rig, 3 * MIB, stream);

	if (!addr || glk_cache_query(&rig->cache, addr, &block))
		tap_bail(rig_error().text);
	rig_work(rig, addr, 3 * MIB, stream);
	rig_free(rig, addr, stream);
	return block.pool.high == UINT64_MAX ? UINT64_MAX : block.pool.low;
}

static void announced(void)
{
	struct CUstream_st *a, *b, *c;
	struct CUevent_st *fork;
	uint32_t graph;
	struct rig rig;

	rig_open(&rig, STEPPED);
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	c = rig_stream(&rig);
	fork = rig_event(&rig);
	rig_begin(&rig, 1, a);
	is_int((int64_t)goes_to(&rig, a), 0, "a pool is open, and nothing is captured");
	rig_capture(&rig, a);
	is_int((int64_t)goes_to(&rig, a), 1, "the stream that captures");
	is_int((int64_t)goes_to(&rig, b), 0, "another one");
	is_int((int64_t)goes_to(&rig, NULL), 0, "the default stream");
	rig_follow(&rig, b, a, fork);
	is_int((int64_t)goes_to(&rig, b), 1, "one that joined the capture");
	is_int((int64_t)goes_to(&rig, c), 0, "one that did not");
	rig_follow(&rig, c, b, fork);
	is_int((int64_t)goes_to(&rig, c), 1, "one that joined by way of another");
	rig_follow(&rig, a, b, fork);
	rig_follow(&rig, a, c, fork);
	graph = rig_capture_end(&rig, a);
	ok(graph, "the capture is whole");
	is_int((int64_t)goes_to(&rig, a), 0, "it is over, and the pool still open");
	is_int((int64_t)goes_to(&rig, b), 0, "for the others too");
	rig_end_pool(&rig, 1);
	rig_drop(&rig, graph);
	rig_release(&rig, 1);
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* Announced when it was under way already. */
static void announced_late(void)
{
	struct CUstream_st *a;
	uint32_t graph;
	struct rig rig;

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	rig_capture(&rig, a);
	is_int(rig_begin(&rig, 1, a), 0, "a pool begins in the middle of a capture");
	is_int((int64_t)goes_to(&rig, a), 1, "and serves it");
	rig_end_pool(&rig, 1);
	is_int((int64_t)goes_to(&rig, a), -1,
		"ended before it is over, another one does");
	graph = rig_capture_end(&rig, a);
	ok(graph, "the capture is whole");
	rig_drop(&rig, graph);
	is_int((int64_t)goes_to(&rig, a), 0, "after it none");
	rig_release(&rig, 1);
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* Captures side by side, each with its pool. */
static void side_by_side(void)
{
	struct CUstream_st *a, *b;
	uint32_t of_a, of_b;
	struct rig rig;

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	rig_begin(&rig, 1, a);
	rig_begin(&rig, 2, b);
	rig_capture(&rig, b);
	is_int((int64_t)goes_to(&rig, b), 2, "the second one captures");
	rig_capture(&rig, a);
	is_int((int64_t)goes_to(&rig, a), 1, "both do");
	is_int((int64_t)goes_to(&rig, b), 2, "each has its own");
	of_b = rig_capture_end(&rig, b);
	rig_end_pool(&rig, 2);
	is_int((int64_t)goes_to(&rig, b), 0, "one is over");
	is_int((int64_t)goes_to(&rig, a), 1, "the other is not");
	of_a = rig_capture_end(&rig, a);
	rig_end_pool(&rig, 1);
	ok(of_a && of_b, "both captures are whole");
	rig_drop(&rig, of_a);
	rig_drop(&rig, of_b);
	/* a second graph of a pool on another stream */
	rig_begin(&rig, 1, b);
	rig_capture(&rig, b);
	is_int((int64_t)goes_to(&rig, b), 1, "the pool goes with its stream");
	rig_drop(&rig, rig_capture_end(&rig, b));
	rig_end_pool(&rig, 1);
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

struct choice {
	struct rig *rig;
	struct CUstream_st *stream;
	glk_atomic(int) asked;
	glk_atomic(bool) over;
	glk_atomic(int) late; /* asked after it was over */
};

static bool choose(struct CUstream_st *stream, void *arg)
{
	struct choice *c = arg;

	glk_add_relaxed(&c->asked, 1);
	/* without locks held: it may ask back */
	rig_figures(c->rig);
	return stream == c->stream;
}

static void chosen(void)
{
	struct CUstream_st *a, *b;
	struct choice c = {0}, other = {0};
	uint64_t held;
	struct rig rig;

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	c = (struct choice){.rig = &rig, .stream = a};
	other = (struct choice){.rig = &rig, .stream = b};
	is_int((int64_t)goes_to(&rig, a), 0, "no pool");
	is_int(rig_begin_for(&rig, 1, choose, &c), 0,
		"a pool for a choice of the program");
	is_int((int64_t)goes_to(&rig, a), 1, "the stream it chose, capturing nothing");
	is_int((int64_t)goes_to(&rig, b), 0, "another");
	is_int(glk_load_relaxed(&c.asked), 2, "it was asked for each request");
	rig_capture(&rig, a);
	is_int((int64_t)goes_to(&rig, a), 1, "the one it chose, capturing");
	rig_drop(&rig, rig_capture_end(&rig, a));
	rig_capture(&rig, b);
	is_int((int64_t)goes_to(&rig, b), -1,
		"another, capturing, has a pool of its own");
	rig_drop(&rig, rig_capture_end(&rig, b));
	is_int(rig_begin_for(&rig, 2, choose, &other), 0, "a choice for that");
	is_int((int64_t)goes_to(&rig, b), 2, "is heard");
	is_int((int64_t)goes_to(&rig, a), 1, "as is the other");
	is_int(rig_end_pool(&rig, 1), 0, "ended");
	glk_store_relaxed(&c.asked, 0);
	is_int((int64_t)goes_to(&rig, a), 0, "it chooses no more");
	is_int(glk_load_relaxed(&c.asked), 0, "and is not asked");
	is_int(rig_end_pool(&rig, 2), 0, "nor is the other");
	held = rig_pool(&rig, 1).held;
	is_int((int64_t)held, 4 * (int64_t)MIB, "what it got stays with the pool");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* Work outside of graphs is work: what one stream freed another has not before it has finished,
 * whatever begins or ends meanwhile. */
static void chosen_eager(void)
{
	struct CUstream_st *a, *b;
	struct choice c = {0};
	uint64_t x, y;
	struct rig rig;

	rig_open(&rig, STEPPED);
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	c = (struct choice){.rig = &rig, .stream = a};
	rig_begin_for(&rig, 1, choose, &c);
	x = rig_alloc(&rig, PAGE, a);
	rig_work(&rig, x, PAGE, a);
	rig_free(&rig, x, a);
	ok(rig_alloc(&rig, PAGE, a) == x, "a stream gets again what it freed");
	rig_work(&rig, x, PAGE, a);
	rig_free(&rig, x, a);
	rig_end_pool(&rig, 1);
	c.stream = b;
	rig_begin_for(&rig, 1, choose, &c);
	y = rig_alloc(&rig, PAGE, b);
	is_int(glk_soft_work(rig.drv, 0, b, y, PAGE, true), 0,
		"another one after the next begin: its kernel may run");
	rig_end_pool(&rig, 1);
	is_sound(&rig, "the books agree");
	rig_close(&rig, 1);
}

static bool choose_all(struct CUstream_st *stream, void *arg)
{
	struct choice *c = arg;

	(void)stream;
	if (glk_load_relaxed(&c->over))
		glk_add_relaxed(&c->late, 1);
	glk_add_relaxed(&c->asked, 1);
	return true;
}

struct asker {
	struct rig *rig;
	struct CUstream_st *stream;
	glk_atomic(bool) stop;
	int odd;
};

static void *ask_on(void *arg)
{
	struct asker *asker = arg;

	while (!glk_load_relaxed(&asker->stop)) {
		uint64_t addr = 0;
		int err = rig_try(asker->rig, 5 * MIB, asker->stream, 0, &addr);

		/* the pool was ended between the choice and the request */
		if (err && err != -EBUSY)
			asker->odd++;
		if (!err && rig_free(asker->rig, addr, asker->stream))
			asker->odd++;
	}
	return NULL;
}

/* Pools are ended while threads are in their choices: after the end nobody is. */
static void ends_in_between(void)
{
	static struct choice choices[200];
	struct asker asker[3] = {{0}};
	pthread_t thread[3];
	int late = 0, asked = 0, odd = 0, err = 0;
	struct rig rig;

	rig_open(&rig, NULL);
	for (int i = 0; i < 3; i++) {
		asker[i] = (struct asker){.rig = &rig, .stream = rig_stream(&rig)};
		pthread_create(&thread[i], NULL, ask_on, &asker[i]);
	}
	for (uint64_t n = 0; n < 200; n++) {
		err |= rig_begin_for(&rig, 1 + n % 3, choose_all, &choices[n]);
		while (!glk_load_relaxed(&choices[n].asked))
			sched_yield();
		err |= rig_end_pool(&rig, 1 + n % 3);
		glk_store_relaxed(&choices[n].over, true);
		err |= rig_release(&rig, 1 + n % 3);
	}
	for (int i = 0; i < 3; i++) {
		glk_store_relaxed(&asker[i].stop, true);
		pthread_join(thread[i], NULL);
		odd += asker[i].odd;
	}
	for (int n = 0; n < 200; n++) {
		late += glk_load_relaxed(&choices[n].late);
		asked += glk_load_relaxed(&choices[n].asked);
	}
	tap_note("%d requests asked", asked);
	is_int(err, 0, "200 pools begin, end and go while three threads allocate");
	is_int(late, 0, "nobody is asked after the end");
	is_int(odd, 0, "each request is served, or told that its pool has ended");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

struct ender {
	struct rig *rig;
	pthread_t thread;
};

static void *end_one(void *arg)
{
	struct ender *e = arg;

	rig_end_pool(e->rig, 1);
	return NULL;
}

/* The pool ends while its choice is made, which its end then waits for. */
static bool choose_and_end(struct CUstream_st *stream, void *arg)
{
	struct ender *e = arg;

	(void)stream;
	pthread_create(&e->thread, NULL, end_one, e);
	while (rig_pool(e->rig, 1).is_open)
		sched_yield();
	return true;
}

static void ends_meanwhile(void)
{
	struct ender e;
	struct CUstream_st *a;
	uint64_t addr = 5;
	struct rig rig;

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	e.rig = &rig;
	rig_begin_for(&rig, 1, choose_and_end, &e);
	is_int(rig_try(&rig, MIB, a, 0, &addr), -EBUSY,
		"a pool that ends during the request");
	is_int(rig_error().error_class, GLAKE_ERROR_CAPTURE, "  its class");
	is_int((int64_t)addr, 5, "the output is as it was");
	pthread_join(e.thread, NULL);
	is_int(rig_release(&rig, 1), 0, "released");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* Another thread ends the stream of a request, which it may not. */
static bool end_it(struct CUstream_st *stream, void *arg)
{
	struct rig *rig = arg;

	rig->drv->ops->stream_sync(rig->drv, 0, stream);
	glk_cache_stream_end(&rig->cache, stream);
	return false;
}

static void loses_stream(void)
{
	struct CUstream_st *a, *b;
	uint64_t addr = 5;
	struct rig rig;

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	rig_free(&rig, rig_alloc(&rig, 100, b), b);
	rig_begin_for(&rig, 1, end_it, &rig);
	for (int i = 0; i < 3; i++)
		is_int(rig_try(&rig, MIB, a, 0, &addr), -EINVAL,
			"a stream that another thread ends during its request");
	is_int(rig_error().error_class, GLAKE_ERROR_INVAL, "  its class");
	is_int((int64_t)addr, 5, "the output is as it was");
	is_int((int64_t)rig_figures(&rig).streams, 1, "nothing is left of it");
	rig_end_pool(&rig, 1);
	addr = rig_alloc(&rig, MIB, a);
	ok(addr, "later it is served");
	is_int(rig_free(&rig, addr, a), 0, "freed");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

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
		glk_cache_trim(&rig.cache, SIZE_MAX, &unused);
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
			glk_cache_trim(&rig.cache, SIZE_MAX, &unused);
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
	for (int n = 0; n < 2 * GLAKE_POOLS_MAX; n++) {
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

/* Threads that capture on default streams of their own: one name for all of them. */
struct own {
	struct rig *rig;
	pthread_barrier_t *turn;
	bool announces;
	uint64_t pool, pools[3];
	struct glake_pool_id id;
	uint64_t addr[3];
	bool whole;
};

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
	announced();
	announced_late();
	side_by_side();
	chosen();
	chosen_eager();
	ends_in_between();
	ends_meanwhile();
	loses_stream();
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
