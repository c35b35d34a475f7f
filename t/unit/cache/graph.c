/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Pools of graphs, from their first graph to the last block. */
#include "graph_parts.h"

/* Pools that could not go when they were released, since a graph was captured: when they do. */
enum later {
	BY_TRIM,
	BY_SHORTAGE,
	BY_RELEASE,
	LATER_COUNT,
};

static void lives(void)
{
	uint64_t before, a1, a2, a3, home, made;
	struct CUstream_st *a;
	uint32_t graph, second;
	struct glake_stats s;
	struct rig rig;

	rig_open(&rig, STEPPED);
	a = rig_stream(&rig);
	is_int(rig_begin(&rig, 1, a), 0, "a pool begins");
	ok(rig_pool(&rig, 1).is_open && rig_pool(&rig, 1).graphs == 1,
		"open for one graph");
	before = give(&rig, PAGE, a);
	is_int((int64_t)rig_pool_of(&rig, before), 0,
		"before the capture nothing goes to it");
	rig_capture(&rig, a);
	a1 = give(&rig, 3 * PAGE, a);
	is_int((int64_t)rig_pool_of(&rig, a1), 1, "in the capture all does");
	ok(glk_arena_of(glk_cache_range(&rig.cache, a1)) != &rig.cache.arena,
		"at addresses of its own");
	a2 = give(&rig, 100, a);
	rig_free(&rig, a1, a);
	ok(give(&rig, 3 * PAGE, a) == a1, "what the stream freed it gets again");
	is_sound(&rig, "the books agree");
	s = rig_figures(&rig);
	is_int((int64_t)s.pools, 1, "a pool is counted");
	is_int((int64_t)s.pool_held, 26 * (int64_t)MIB, "with its pages");
	is_int((int64_t)rig_pool(&rig, 1).held, 26 * (int64_t)MIB, "which it tells too");
	is_int((int64_t)rig_pool(&rig, 1).blocks, 2, "two blocks are live");
	is_int((int64_t)rig_pool(&rig, 1).live, 24 * (int64_t)MIB + 100,
		"of so many bytes");
	graph = close_capture(&rig, 1, a);
	ok(!rig_pool(&rig, 1).is_open, "it is closed");
	home = give(&rig, PAGE, a);
	is_int((int64_t)rig_pool_of(&rig, home), 0, "nothing goes to it any more");
	rig_free(&rig, a1, a);
	is_int((int64_t)rig_pool(&rig, 1).held, 26 * (int64_t)MIB,
		"what is freed stays with it");
	is_int(rig_launch(&rig, graph, a), 0, "for a replay");
	glk_soft_run_all(rig.drv);

	open_capture(&rig, 1, a);
	is_int((int64_t)rig_pool(&rig, 1).graphs, 2, "a second graph");
	glk_soft_run_all(rig.drv);
	a3 = give(&rig, 2 * PAGE, a);
	ok(a3 == a1, "has what the first one left");
	second = close_capture(&rig, 1, a);
	is_int((int64_t)rig_pool(&rig, 1).held, 26 * (int64_t)MIB, "and nothing more");
	is_int(rig_launch(&rig, graph, a), 0, "both are replayed");
	is_int(rig_launch(&rig, second, a), 0, "one after the other");
	rig_free(&rig, a3, a);
	rig_free(&rig, a2, a);
	rig_drop(&rig, graph);
	is_int(rig_release(&rig, 1), 0, "the first graph is given up");
	is_int((int64_t)rig_pool(&rig, 1).graphs, 1, "the other holds the pool");
	rig_drop(&rig, second);
	is_sound(&rig, "the books agree");
	made = rig_calls(&rig, GLAKE_CALL_CREATE);
	is_int(rig_release(&rig, 1), 0, "the last one ends it");
	is_int(rig_release(&rig, 1), -EINVAL, "which happens once");
	ok(!glk_cache_range(&rig.cache, a1), "its addresses are nobody's");
	s = rig_figures(&rig);
	ok(!s.pools && !s.pool_held, "no pool is left");
	is_int((int64_t)s.free_pages, 26 * (int64_t)MIB, "its pages are there");
	ok(give(&rig, 3 * PAGE, a), "for all");
	is_int((int64_t)(rig_calls(&rig, GLAKE_CALL_CREATE) - made), 0,
		"no new one is made");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 3);
}

static void refuses(void)
{
	struct glake_pool got = {.graphs = 77};
	struct CUstream_st *a;
	struct rig rig;

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	is_int(rig_end_pool(&rig, 1), -EINVAL, "no pool, on a GPU that was never used");
	is_int(rig_release(&rig, 1), -EINVAL, "to be released neither");
	is_int(glk_graph_get(&rig.cache, rig_id(1), &got), -EINVAL, "or told of");
	is_int(glk_graph_begin(&rig.cache, &(struct glk_graph_begin){.stream = a}),
		-EINVAL, "two zeroes are no name");
	is_int(rig_error().error_class, GLAKE_ERROR_INVAL, "  its class");
	is_int(rig_begin(&rig, 1, (struct CUstream_st *)0x1230), -EINVAL, "no stream");
	is_int((int64_t)rig_figures(&rig).pools, 0, "nothing was made");
	is_int(rig_begin(&rig, 1, a), 0, "a pool begins");
	is_int(rig_begin(&rig, 1, a), -EBUSY, "twice");
	is_int(rig_error().error_class, GLAKE_ERROR_BUSY, "  its class");
	is_int(rig_pool(&rig, 1).graphs, 1, "and is counted once");
	is_int(rig_release(&rig, 1), -EBUSY, "released while it is open");
	is_int(rig_error().error_class, GLAKE_ERROR_BUSY, "  its class");
	is_int(rig_end_pool(&rig, 2), -EINVAL, "another one that there is not");
	is_int(rig_end_pool(&rig, 1), 0, "ended");
	is_int(rig_end_pool(&rig, 1), -EINVAL, "twice");
	is_int(rig_error().error_class, GLAKE_ERROR_INVAL, "  its class");
	is_int(rig_release(&rig, 1), 0, "released");
	is_int(rig_release(&rig, 1), -EINVAL, "twice");
	is_int(rig_error().error_class, GLAKE_ERROR_INVAL, "  its class");
	is_int(glk_graph_get(&rig.cache, rig_id(1), &got), -EINVAL, "it is not told of");
	is_int(got.graphs, 77, "the output is as it was");
	is_int(rig_begin(&rig, 1, a), 0, "its name can be used again");
	is_int(rig_pool(&rig, 1).graphs, 1, "for a new one");
	is_int(rig_end_pool(&rig, 1), 0, "ended");
	is_int(rig_release(&rig, 1), 0, "released");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* Blocks that outlive the release of their pool. */
static void leaves_blocks(void)
{
	struct CUstream_st *a, *b;
	struct glake_block block;
	uint64_t x, y, z, unused;
	struct rig rig;

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	open_capture(&rig, 1, a);
	x = give(&rig, PAGE, a);
	y = give(&rig, MIB, a);
	rig_free(&rig, give(&rig, 3 * MIB, a), a);
	rig_drop(&rig, close_capture(&rig, 1, a));
	is_int(rig_release(&rig, 1), 0, "released with two live blocks");
	is_int((int64_t)rig_figures(&rig).pools, 1, "it is still there");
	is_int(rig_release(&rig, 1), -EINVAL, "but has no name");
	is_int(glk_cache_query(&rig.cache, x + 1, &block), 0, "a block is found");
	ok(block.base == (void *)x && block.pool.low == 1 && block.pool.high == 7,
		"as one of the pool it came from");
	memset((void *)x, 1, PAGE);
	rig_work(&rig, x, PAGE, b);
	is_int(glk_cache_use(&rig.cache, x, b), 0, "it can be used");
	is_int(rig_begin(&rig, 1, b), 0, "the name can be used, too");
	rig_capture(&rig, b);
	z = give(&rig, PAGE, b);
	ok(z != x && rig_pool_of(&rig, z) == 1, "by another pool");
	is_int((int64_t)rig_figures(&rig).pools, 2, "there are two");
	is_sound(&rig, "the books agree");
	is_int(rig_free(&rig, x, a), 0, "one block is freed");
	is_int((int64_t)rig_figures(&rig).pools, 2, "both are there");
	is_int(rig_free(&rig, x, a), -EINVAL, "a second time");
	is_int(rig_error().error_class, GLAKE_ERROR_DOUBLE_FREE, "  its class");
	is_int(rig_free(&rig, y, a), 0, "the last one, while the other pool is open");
	glk_cache_trim(&rig.cache, SIZE_MAX, false, &unused);
	is_int((int64_t)rig_figures(&rig).pools, 2, "nobody may wait for the GPU");
	is_sound(&rig, "the books agree");
	rig_drop(&rig, close_capture(&rig, 1, b));
	glk_cache_trim(&rig.cache, SIZE_MAX, false, &unused);
	is_int((int64_t)rig_figures(&rig).pools, 1, "when that is over the pool goes");
	is_int(glk_cache_query(&rig.cache, y, &block), -EINVAL, "with its addresses");
	is_sound(&rig, "the books agree");
	is_int(rig_free(&rig, y, a), -EINVAL, "which nobody can free");
	is_int(rig_error().error_class, GLAKE_ERROR_NOT_MINE, "  its class");
	rig_free(&rig, z, b);
	is_int(rig_release(&rig, 1), 0, "the other one");
	is_int((int64_t)rig_figures(&rig).pools, 0, "goes at once");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

static void goes_later(void)
{
	static const char *const names[] = {
		"trim", "want of memory", "the release of another pool"};
	struct CUstream_st *a, *b;
	uint64_t released;
	struct rig rig;

	for (int later = 0; later < LATER_COUNT; later++) {
		rig_open(&rig, (const char *const[]){"pool.budget=64MiB", NULL});
		a = rig_stream(&rig);
		b = rig_stream(&rig);
		/* so that B is known */
		rig_free(&rig, give(&rig, 100, b), b);
		open_capture(&rig, 2, a);
		give(&rig, MIB, a);
		rig_drop(&rig, close_capture(&rig, 2, a));
		open_capture(&rig, 1, a);
		rig_free(&rig, give(&rig, 5 * PAGE, a), a);
		rig_drop(&rig, close_capture(&rig, 1, a));
		rig_capture(&rig, b);
		is_int(rig_release(&rig, 1), 0, "released while a graph is captured");
		is_int((int64_t)rig_figures(&rig).pools, 2, "the pool stays");
		is_int(glk_cache_trim(&rig.cache, 0, false, &released), 0, "trimmed");
		is_int((int64_t)rig_figures(&rig).pools, 2, "it stays");
		rig_drop(&rig, rig_capture_end(&rig, b));
		if (later == BY_TRIM)
			glk_cache_trim(&rig.cache, SIZE_MAX, false, &released);
		if (later == BY_SHORTAGE)
			ok(rig_alloc(&rig, 6 * PAGE, b), "there is memory again");
		if (later == BY_RELEASE)
			rig_release(&rig, 2);
		ok(rig_figures(&rig).pools < 2, "it goes by %s", names[later]);
		is_sound(&rig, "the books agree");
		rig_close(&rig, later == BY_SHORTAGE ? 2 : 1);
	}
}

#define MANY 2000

/* As many as there are addresses for, closed and open. */
static void many(void)
{
	uint64_t *addr = calloc(MANY + 1, sizeof(*addr));
	struct CUstream_st *a;
	struct rig rig;
	int wrong = 0;

	rig_open(&rig, (const char *const[]){"map.span=1GiB", NULL});
	a = rig_stream(&rig);
	for (uint64_t n = 1; addr && n <= MANY; n++)
		wrong += rig_begin(&rig, n, a) || rig_end_pool(&rig, n);
	is_int(wrong, 0, "as many pools as anybody wants");
	is_int((int64_t)rig_figures(&rig).pools, MANY, "all are counted");
	for (uint64_t n = 1; addr && n <= MANY; n += 100) {
		open_capture(&rig, n, a);
		addr[n] = give(&rig, MIB, a);
		rig_drop(&rig, close_capture(&rig, n, a));
		wrong += rig_pool_of(&rig, addr[n]) != n;
	}
	is_int(wrong, 0, "each is used by its name");
	is_sound(&rig, "the books agree");
	for (uint64_t n = MANY; n; n--)
		wrong += n % 100 != 1 && rig_release(&rig, n);
	is_int((int64_t)rig_figures(&rig).pools, MANY / 100, "those without a block go");
	is_sound(&rig, "the books agree");
	for (uint64_t n = 1; n <= MANY; n++)
		wrong += n % 100 != 1 && rig_begin(&rig, n, a);
	is_int(wrong, 0, "many are open at once");
	rig_capture(&rig, a);
	addr[0] = give(&rig, MIB, a);
	ok(rig_pool_of(&rig, addr[0]) > 1, "one of them serves a capture");
	rig_drop(&rig, rig_capture_end(&rig, a));
	for (uint64_t n = 1; n <= MANY; n++)
		wrong += n % 100 != 1 && rig_end_pool(&rig, n);
	for (uint64_t n = 1; n <= MANY; n++)
		wrong += rig_release(&rig, n) || (n % 100 == 1 && rig_release(&rig, n));
	is_int(wrong, 0, "all are released");
	is_int((int64_t)rig_figures(&rig).pools, MANY / 100 + 1,
		"those with a block stay");
	for (uint64_t n = 1; n <= MANY; n += 100)
		wrong += rig_free(&rig, addr[n], a);
	rig_free(&rig, addr[0], a);
	is_int(rig_begin(&rig, 1, a), 0, "one more");
	is_int(rig_end_pool(&rig, 1), 0, "  closed");
	is_int(rig_release(&rig, 1), 0, "  and released");
	is_int((int64_t)rig_figures(&rig).pools, 0, "takes all others along");
	is_int(wrong, 0, "nothing was refused");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
	free(addr);
}

/* The table of names cannot grow: then its lists are longer. */
static void few_lists(void)
{
	struct CUstream_st *a;
	uint32_t buckets;
	struct rig rig;
	int wrong = 0, err = -ENOMEM;

	rig_open(&rig, (const char *const[]){"map.span=1GiB", NULL});
	a = rig_stream(&rig);
	rig_begin(&rig, 1, a);
	rig_end_pool(&rig, 1);
	buckets = glk_graphs(&rig.cache)->buckets;
	for (uint64_t n = 2; n <= buckets; n++)
		wrong += rig_begin(&rig, n, a) || rig_end_pool(&rig, n);
	for (uint32_t fail = 1; err == -ENOMEM; fail++) {
		glk_region_fail_after(fail);
		err = rig_begin(&rig, buckets + 1, a);
		glk_region_fail_after(0);
	}
	is_int(err, 0, "one more pool than there are lists of names");
	is_int(glk_graphs(&rig.cache)->buckets, buckets, "which are no more");
	wrong += rig_end_pool(&rig, buckets + 1);
	is_int(rig_begin(&rig, buckets + 2, a), 0, "the next one");
	is_int(glk_graphs(&rig.cache)->buckets, 2 * buckets, "makes more of them");
	wrong += rig_end_pool(&rig, buckets + 2);
	for (uint64_t n = 1; n <= buckets + 2; n++) {
		struct glake_pool_id other = rig_id(n);
		struct glake_pool got;

		other.high++;
		wrong += glk_graph_get(&rig.cache, other, &got) != -EINVAL;
	}
	is_int(wrong, 0, "none is found by half of its name");
	for (uint64_t n = 1; n <= buckets + 2; n++)
		wrong += rig_pool(&rig, n).graphs != 1 || rig_release(&rig, n);
	is_int(wrong, 0, "all are found");
	is_int((int64_t)rig_figures(&rig).pools, 0, "and gone");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* It cannot be noted which graphs may use a block of another pool: that one stays. */
static void stays_for_good(void)
{
	struct CUstream_st *a, *b;
	struct rig rig;
	uint32_t max;
	uint64_t x;

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	open_capture(&rig, 1, a);
	x = give(&rig, PAGE, a);
	rig_drop(&rig, close_capture(&rig, 1, a));
	max = glk_graphs(&rig.cache)->heirs.max;
	glk_graphs(&rig.cache)->heirs.max = 0;
	open_capture(&rig, 2, b);
	give(&rig, PAGE, b);
	is_int(rig_free(&rig, x, b), 0, "a free in the capture of another pool");
	rig_drop(&rig, close_capture(&rig, 2, b));
	glk_graphs(&rig.cache)->heirs.max = max; /* as large as its table is */
	is_int(rig_release(&rig, 1), 0, "its pool is released");
	rig_free(&rig, rig_alloc(&rig, 100, b), b);
	is_int(rig_release(&rig, 2), 0, "and the other one");
	is_int((int64_t)rig_figures(&rig).pools, 2, "the first one stays with the GPU");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 1);
}

/* A free in a capture of which no pool knows yet is that of the newest one without a request. */
static void inherits_the_newest(void)
{
	struct CUstream_st *a, *b, *c;
	struct rig rig;
	uint64_t x;

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	c = rig_stream(&rig);
	open_capture(&rig, 1, a);
	x = give(&rig, PAGE, a);
	rig_drop(&rig, close_capture(&rig, 1, a));
	open_capture(&rig, 2, b);
	open_capture(&rig, 3, c);
	is_int(rig_free(&rig, x, c), 0,
		"a free in the capture of the newest of two pools");
	give(&rig, PAGE, c);
	give(&rig, PAGE, b);
	rig_drop(&rig, close_capture(&rig, 3, c));
	rig_drop(&rig, close_capture(&rig, 2, b));
	is_int(rig_release(&rig, 1), 0, "its pool is released");
	rig_free(&rig, rig_alloc(&rig, 100, b), b);
	is_int((int64_t)rig_figures(&rig).pools, 3, "and waits for that one");
	is_int(rig_release(&rig, 3), 0, "which is");
	rig_free(&rig, rig_alloc(&rig, 100, b), b);
	is_int((int64_t)rig_figures(&rig).pools, 2, "and the first has gone");
	is_int(rig_release(&rig, 2), 0, "and the last");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 2);
}

/* Inside a graph memory stays on its stream, whatever events the capture has. */
static void keeps_streams(void)
{
	struct CUstream_st *a, *b;
	struct CUevent_st *fork;
	uint64_t x, y, held;
	uint32_t first, second;
	struct rig rig;

	rig_open(&rig, STEPPED);
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	fork = rig_event(&rig);
	open_capture(&rig, 1, a);
	rig_follow(&rig, b, a, fork);
	x = give(&rig, PAGE, a);
	rig_free(&rig, x, a);
	y = give(&rig, PAGE, b);
	ok(y != x, "a stream of the capture does not get what another one freed");
	is_int((int64_t)rig_pool_of(&rig, y), 1, "though it is of the same pool");
	rig_follow(&rig, b, a, fork);
	ok(give(&rig, PAGE, b) != x, "not if it waits for it, either");
	ok(give(&rig, PAGE, a) == x, "the one that freed it does");
	rig_free(&rig, y, b);
	ok(give(&rig, PAGE, b) == y, "as does the other");
	rig_free(&rig, y, b);
	rig_free(&rig, x, a);
	rig_follow(&rig, a, b, fork);
	first = close_capture(&rig, 1, a);
	is_int((int64_t)rig_calls(&rig, GLAKE_CALL_STREAM_WAIT), 3,
		"all waits were the program's");
	held = rig_pool(&rig, 1).held;
	open_capture(&rig, 1, b);
	ok(give(&rig, PAGE, b) == x || give(&rig, PAGE, b) == x,
		"the next graph has all of it");
	rig_free(&rig, x, b);
	ok(give(&rig, PAGE, b) == x, "again and again");
	is_int((int64_t)rig_pool(&rig, 1).held, (int64_t)held, "and needs no more");
	second = close_capture(&rig, 1, b);
	is_int(rig_launch(&rig, first, a), 0, "a replay");
	is_int(rig_launch(&rig, second, a), 0, "and one of the other graph behind it");
	glk_soft_run_all(rig.drv);
	rig_drop(&rig, first);
	rig_drop(&rig, second);
	rig.drv->ops->user_event_free(rig.drv, fork);
	is_sound(&rig, "the books agree");
	rig_close(&rig, rig_figures(&rig).live_blocks);
}

/* A pool takes what the GPU's own cache has idle, and that only when it is done with. */
static void borrows(void)
{
	uint64_t home[8], made, x;
	struct CUstream_st *a, *b;
	struct rig rig;

	rig_open(&rig,
		(const char *const[]){"soft.streams=stepped", "pool.budget=64MiB", NULL});
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	for (int i = 0; i < 8; i++)
		home[i] = give(&rig, PAGE, b);
	glk_soft_run_all(rig.drv);
	rig_work(&rig, home[0], PAGE, b);
	for (int i = 0; i < 4; i++)
		rig_free(&rig, home[i], b);
	glk_soft_hold(rig.drv, 0, b, true);
	made = rig_calls(&rig, GLAKE_CALL_CREATE);
	open_capture(&rig, 1, a);
	is_int(rig_try(&rig, PAGE, a, 0, &x), -ENOMEM,
		"memory with work that does not end");
	is_sound(&rig, "the books agree");
	glk_soft_hold(rig.drv, 0, b, false);
	glk_soft_run_all(rig.drv);
	x = rig_alloc(&rig, 4 * PAGE, a);
	ok(x, "idle pages of the GPU's own cache serve a pool");
	rig_work(&rig, x, 4 * PAGE, a);
	is_int((int64_t)(rig_calls(&rig, GLAKE_CALL_CREATE) - made), 0, "none is made");
	is_int(rig_try(&rig, 1, a, 0, &x), -ENOMEM, "there is no more");
	is_int(rig_error().error_class, GLAKE_ERROR_NOMEM_DEVICE, "  its class");
	is_sound(&rig, "the books agree");
	rig_drop(&rig, close_capture(&rig, 1, a));
	ok(!rig_alloc(&rig, PAGE, b), "what the pool has nobody else can have");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 5);
}

/* A block of a pool that was released is used and freed by a later graph: replays find it. */
static void is_inherited(void)
{
	struct CUstream_st *a, *b;
	uint32_t graph, other;
	uint64_t x, y, unused;
	struct rig rig;

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	open_capture(&rig, 1, a);
	x = give(&rig, PAGE, a);
	rig_drop(&rig, close_capture(&rig, 1, a));
	is_int(rig_release(&rig, 1), 0, "a pool is released");
	open_capture(&rig, 2, a);
	y = give(&rig, PAGE, a);
	rig_work(&rig, x, PAGE, a);
	rig_free(&rig, x, a);
	rig_free(&rig, y, a);
	graph = close_capture(&rig, 2, a);
	is_int((int64_t)rig_figures(&rig).pools, 2,
		"with a block freed in another's capture it stays");
	for (int i = 0; i < 3; i++)
		is_int(rig_launch(&rig, graph, a), 0, "for replays");
	glk_soft_run_all(rig.drv);
	open_capture(&rig, 3, a);
	y = give(&rig, PAGE, a);
	rig_begin(&rig, 4, b);
	rig_free(&rig, y, a);
	other = close_capture(&rig, 3, a);
	is_int((int64_t)rig_figures(&rig).pools, 4, "also when further captures end");
	rig_drop(&rig, other);
	rig_release(&rig, 3);
	rig_end_pool(&rig, 4);
	glk_cache_trim(&rig.cache, SIZE_MAX, false, &unused);
	is_int((int64_t)rig_figures(&rig).pools, 3,
		"what a capture frees to its own pool has no heir");
	rig_drop(&rig, graph);
	is_int(rig_release(&rig, 2), 0, "the other's release");
	is_int((int64_t)rig_figures(&rig).pools, 1, "ends both");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* It is noted once which graphs may use blocks of a pool, however many of those they free. */
static void is_noted_once(void)
{
	struct CUstream_st *a;
	struct rig rig;
	uint64_t x[8];

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	open_capture(&rig, 1, a);
	for (int i = 0; i < 8; i++)
		x[i] = give(&rig, 1000, a);
	rig_drop(&rig, close_capture(&rig, 1, a));
	for (uint64_t pool = 2; pool < 4; pool++) {
		open_capture(&rig, pool, a);
		for (size_t i = 0; i < 4; i++)
			rig_free(&rig, x[i + (pool - 2) * 4], a);
		rig_drop(&rig, close_capture(&rig, pool, a));
		is_int(glk_load_relaxed(&glk_graphs(&rig.cache)->heirs.used),
			(int64_t)pool - 1, "four blocks, and one note of who freed them");
	}
	is_int(rig_release(&rig, 1), 0, "their pool is released");
	is_int(rig_release(&rig, 2), 0, "and one of those that freed them");
	is_int((int64_t)rig_figures(&rig).pools, 2, "the first one stays for the other");
	is_int(rig_release(&rig, 3), 0, "which is released too");
	is_int((int64_t)rig_figures(&rig).pools, 0, "all are gone");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* There is no room for the second note of a pool: it stays, whatever becomes of the first. */
static void is_noted_no_more(void)
{
	struct CUstream_st *a;
	struct rig rig;
	uint64_t x[4];
	uint32_t max;

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	open_capture(&rig, 1, a);
	for (int i = 0; i < 4; i++)
		x[i] = give(&rig, 1000, a);
	rig_drop(&rig, close_capture(&rig, 1, a));
	max = glk_graphs(&rig.cache)->heirs.max;
	glk_graphs(&rig.cache)->heirs.max = 1;
	for (uint64_t pool = 2; pool < 4; pool++) {
		open_capture(&rig, pool, a);
		is_int(rig_free(&rig, x[pool - 2], a), 0,
			"a free in the capture of another pool");
		rig_drop(&rig, close_capture(&rig, pool, a));
	}
	open_capture(&rig, 2, a);
	is_int(rig_free(&rig, x[2], a), 0, "and one of the first of them again");
	rig_drop(&rig, close_capture(&rig, 2, a));
	is_int(rig_free(&rig, x[3], a), 0, "the last block is freed");
	glk_graphs(&rig.cache)->heirs.max = max; /* as large as its table is */
	is_int(rig_release(&rig, 1), 0, "their pool is released");
	is_int(rig_release(&rig, 2) | rig_release(&rig, 2) | rig_release(&rig, 3), 0,
		"and both others");
	is_int((int64_t)rig_figures(&rig).pools, 1, "it stays with the GPU");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* A capture of no pool leaves no graph that is known of. */
static void has_no_heir(void)
{
	struct CUstream_st *a;
	struct rig rig;
	uint64_t x;

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	open_capture(&rig, 1, a);
	x = give(&rig, PAGE, a);
	rig_drop(&rig, close_capture(&rig, 1, a));
	rig_capture(&rig, a);
	is_int(rig_free(&rig, x, a), 0, "a free in a capture of no pool");
	rig_drop(&rig, rig_capture_end(&rig, a));
	is_int(glk_load_relaxed(&glk_graphs(&rig.cache)->heirs.used), 0,
		"of which nothing is noted");
	is_int(rig_release(&rig, 1), 0, "its pool is released");
	is_int((int64_t)rig_figures(&rig).pools, 0, "and gone");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* The driver keeps all memory of pools at the end of the GPU. */
static void end_is_refused(void)
{
	struct CUstream_st *a;
	struct rig_end end;
	struct rig rig;

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	for (uint64_t pool = 1; pool < 4; pool++) {
		open_capture(&rig, pool, a);
		give(&rig, PAGE, a);
		rig_drop(&rig, close_capture(&rig, pool, a));
	}
	glk_fault_set(rig.drv, "unmap:from=1:err=EIO");
	tap_expect_log(4);
	end = rig_end(&rig);
	is_int(end.cache, -EIO, "the end says so");
	is_int((int64_t)end.live, 3, "of so many blocks");
	is_int(end.device, -EBUSY, "as does the device");
}

/* The driver refuses a call while a pool ends: it is told, and the rest goes. */
static void ends_badly(void)
{
	static const char *const faults[] = {"unmap:nth=1:err=EIO", "unmap:nth=2:err=EIO",
		"device_sync:nth=1:err=EIO", "unreserve:nth=1:err=EIO"};
	static const int answers[] = {-EIO, -EIO, -EIO, 0};
	struct CUstream_st *a;
	struct glake_stats s;
	uint64_t unused;
	struct rig rig;

	for (int i = 0; i < 4; i++) {
		struct rig_end end;

		rig_open(&rig, NULL);
		a = rig_stream(&rig);
		open_capture(&rig, 1, a);
		for (int n = 0; n < 3; n++)
			rig_free(&rig, give(&rig, (size_t)(n + 1) * 3 * PAGE, a), a);
		rig_free(&rig, rig_single(&rig, 4 * MIB, a), a);
		rig_drop(&rig, close_capture(&rig, 1, a));
		tap_note("%s", faults[i]);
		glk_fault_set(rig.drv, faults[i]);
		tap_expect_log(i < 2 || i == 3);
		is_int(rig_release(&rig, 1), answers[i], "the answer");
		glk_fault_set(rig.drv, "off");
		s = rig_figures(&rig);
		tap_note("%" PRIu64 " pools, %" PRIu64 " MiB held, %" PRIu64 " MiB lost",
			s.pools, s.reserved >> 20, s.lost >> 20);
		is_sound(&rig, "the books agree");
		is_int(glk_cache_trim(&rig.cache, 0, false, &unused), 0, "trimmed");
		is_sound(&rig, "the books agree still");
		s = rig_figures(&rig);
		is_int((int64_t)s.pools, 0, "the pool has gone");
		is_int((int64_t)(s.reserved - s.lost), 0, "with all but what was lost");
		end = rig_end(&rig);
		is_int(end.cache, 0, "at the end all goes back");
		is_int(end.device, i == 3 ? -EBUSY : 0, "to the device too");
	}
}

int main(void)
{
	tap_plan_later();
	lives();
	refuses();
	leaves_blocks();
	goes_later();
	many();
	few_lists();
	stays_for_good();
	inherits_the_newest();
	keeps_streams();
	borrows();
	is_inherited();
	is_noted_once();
	is_noted_no_more();
	has_no_heir();
	end_is_refused();
	ends_badly();
	return tap_done();
}
