/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Which pool a request goes to: by its capture, by the program's choice, or none. */
#include "route_parts.h"

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
	/* what was freed before the capture has to have finished for it, and be known to */
	ok(held == 4 * MIB || held == 8 * MIB, "what it got stays with the pool");
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

int main(void)
{
	tap_plan_later();
	announced();
	announced_late();
	side_by_side();
	chosen();
	chosen_eager();
	ends_meanwhile();
	loses_stream();
	return tap_done();
}
