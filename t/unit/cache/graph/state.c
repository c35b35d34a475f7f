/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* States of a pool that are taken and brought back. */
#include "seed.h"
#include "unit/cache/graph_parts.h"

#define MOST 400

struct state {
	struct glake_pool_block at[MOST];
	size_t count;
};

static struct state take(struct rig *rig, uint64_t pool)
{
	struct state s;

	if (glk_graph_blocks(&rig->cache, rig_id(pool), s.at, MOST, &s.count) ||
		s.count > MOST)
		tap_bail(rig_error().text);
	return s;
}

static int bring(struct rig *rig, uint64_t pool, const struct state *s)
{
	return glk_graph_restore(&rig->cache, rig_id(pool), s->at, s->count, NULL, NULL);
}

static bool is_same(const struct state *a, const struct state *b)
{
	if (a->count != b->count)
		return false;
	for (size_t i = 0; i < a->count; i++) {
		if (a->at[i].ptr != b->at[i].ptr || a->at[i].size != b->at[i].size ||
			a->at[i].stream != b->at[i].stream)
			return false;
	}
	return true;
}

static bool is_state(struct rig *rig, uint64_t pool, const struct state *s)
{
	struct state now = take(rig, pool);

	return is_same(&now, s);
}

static uint64_t every_call(struct rig *rig)
{
	struct glake_driver_stats stats = {.sz = sizeof(stats)};
	uint64_t sum = 0;

	rig->drv->ops->figures(rig->drv, &stats);
	for (int i = 0; i < GLAKE_CALL_COUNT; i++)
		sum += stats.calls[i];
	return sum;
}

/* Refused, with everything as it was. */
static void refused(struct rig *rig, const struct state *s, int want, int class,
	const char *part, const char *what)
{
	struct state before = take(rig, 1);
	struct glake_stats f = rig_figures(rig), g;

	is_int(bring(rig, 1, s), want, what);
	is_int(rig_error().error_class, class, "  its class");
	has_str(rig_error().text, part, "  its text");
	g = rig_figures(rig);
	ok(is_state(rig, 1, &before) && f.allocs == g.allocs && f.frees == g.frees,
		"  and nothing has changed");
	is_sound(rig, "  the books agree");
}

static void brings_back(void)
{
	struct state first, second, third;
	struct glake_stats f, g;
	struct CUstream_st *a;
	uint64_t x, y, z, calls;
	uint32_t graph, other;
	struct rig rig;

	rig_open(&rig, STEPPED);
	a = rig_stream(&rig);
	open_capture(&rig, 1, a);
	first = take(&rig, 1);
	is_int((int64_t)first.count, 0, "at first there are no blocks");
	x = give(&rig, 3 * PAGE, a);
	y = give(&rig, 100, a);
	rig_free(&rig, give(&rig, 5 * MIB, a), a);
	graph = close_capture(&rig, 1, a);
	second = take(&rig, 1);
	is_int((int64_t)second.count, 2, "the first graph leaves two");
	open_capture(&rig, 1, a);
	z = give(&rig, 3 * MIB, a);
	rig_free(&rig, y, a);
	other = close_capture(&rig, 1, a);
	third = take(&rig, 1);
	is_int((int64_t)third.count, 2, "and the second one two others");
	memset((void *)x, 1, 3 * PAGE);
	calls = every_call(&rig);
	f = rig_figures(&rig);
	is_int(bring(&rig, 1, &second), 0, "what the first one left");
	ok(is_state(&rig, 1, &second), "is there again");
	is_int((int64_t)(every_call(&rig) - calls), 0, "without a call of the driver");
	g = rig_figures(&rig);
	is_int((int64_t)(g.allocs - f.allocs), 1, "a block was given");
	is_int((int64_t)(g.frees - f.frees), 1, "and one was freed");
	is_int((int64_t)g.live, 3 * (int64_t)PAGE + 100, "so many bytes are live");
	is_int((int64_t)g.hits, (int64_t)f.hits, "none of them was a hit");
	is_int((int64_t)rig_pool(&rig, 1).live, 3 * (int64_t)PAGE + 100,
		"as the pool says");
	ok(((char *)x)[0] == 1 && ((char *)x)[3 * PAGE - 1] == 1,
		"what was live stays as it was");
	is_sound(&rig, "the books agree");
	is_int((int64_t)rig_query(&rig, y).size, 100, "the block is told of");
	ok(rig_pool_of(&rig, y + 50) == 1 && rig_query(&rig, y).stream == a,
		"as one of the pool and of its stream");
	is_int(rig_launch(&rig, graph, a), 0, "the first graph is replayed");
	is_int(bring(&rig, 1, &third), 0, "what the second one left");
	is_int(rig_launch(&rig, other, a), 0, "which is replayed too");
	is_int(bring(&rig, 1, &third), 0, "what is there already");
	ok(is_state(&rig, 1, &third), "stays");
	is_int(rig_free(&rig, y, a), -EINVAL, "what is not of it was freed");
	is_int(rig_error().error_class, GLAKE_ERROR_DOUBLE_FREE, "  its class");
	is_int(bring(&rig, 1, &first), 0, "no block at all");
	is_int((int64_t)rig_pool(&rig, 1).blocks, 0, "is live");
	is_int((int64_t)rig_pool(&rig, 1).live, 0, "of no bytes");
	is_sound(&rig, "the books agree");
	open_capture(&rig, 1, a);
	ok(give(&rig, 3 * PAGE, a) == x, "a capture has the memory at once");
	is_int(bring(&rig, 1, &second), 0,
		"a state is brought back while the pool is open");
	ok(is_state(&rig, 1, &second), "it is there");
	ok(give(&rig, 3 * MIB, a), "requests go on");
	rig_drop(&rig, close_capture(&rig, 1, a));
	glk_soft_run_all(rig.drv);
	is_int(rig_free(&rig, x, a), 0, "freed");
	is_int(rig_free(&rig, x, a), -EINVAL, "once");
	is_sound(&rig, "the books agree");
	(void)z;
	rig_drop(&rig, graph);
	rig_drop(&rig, other);
	rig_close(&rig, 2);
}

static bool is_any(struct CUstream_st *stream, void *arg)
{
	(void)stream;
	(void)arg;
	return true;
}

/* What was freed by a state is had at once, though work on it is queued. */
static void at_once(void)
{
	struct state all, none = {.count = 0};
	struct CUstream_st *a;
	uint64_t x, y, z;
	struct rig rig;

	rig_open(&rig, STEPPED);
	a = rig_stream(&rig);
	is_int(rig_begin_for(&rig, 1, is_any, NULL), 0, "a pool for all streams");
	x = give(&rig, PAGE, a);
	rig_free(&rig, x, a);
	ok(give(&rig, PAGE, a) == x, "memory is given again outside of captures");
	is_int(rig_end_pool(&rig, 1), 0, "closed");
	is_int(bring(&rig, 1, &none), 0, "it is freed by a state");
	open_capture(&rig, 1, a);
	ok(give(&rig, PAGE, a) == x, "and had by a capture");
	y = give(&rig, PAGE, a);
	rig_drop(&rig, close_capture(&rig, 1, a));
	rig_free(&rig, y, a);
	open_capture(&rig, 1, a);
	ok(give(&rig, PAGE, a) != y, "what the program frees is not");
	rig_drop(&rig, close_capture(&rig, 1, a));
	all = take(&rig, 1);
	is_int(bring(&rig, 1, &none), 0, "all are freed");
	rig_free(&rig, rig_alloc(&rig, 3 * PAGE, a), a);
	is_int(bring(&rig, 1, &all), 0, "and come back");
	z = rig_alloc(&rig, 2 * PAGE, a);
	is_int(bring(&rig, 1, &none), 0, "with another one beside them all go");
	rig_free(&rig, rig_alloc(&rig, PAGE, a), a);
	z = rig_free(&rig, z, a) ? 0 : rig_alloc(&rig, 4 * PAGE, a);
	is_int(bring(&rig, 1, &all), 0, "and come back");
	is_int((int64_t)rig_figures(&rig).peak_live, 6 * (int64_t)PAGE,
		"the most that was live is more than before");
	rig_free(&rig, z, a);
	is_sound(&rig, "the books agree");
	rig_close(&rig, 2);
}

static void lists(void)
{
	struct glake_pool_block some[2] = {{0}};
	struct state all, mixed;
	struct CUstream_st *a, *b;
	size_t count = 0;
	struct rig rig;

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	is_int(glk_graph_blocks(&rig.cache, rig_id(1), some, 2, &count), -EINVAL,
		"no pool on a GPU that was never used");
	is_int(glk_graph_restore(&rig.cache, rig_id(1), some, 0, NULL, NULL), -EINVAL,
		"to be brought back neither");
	open_capture(&rig, 1, a);
	rig_follow(&rig, b, a, rig_event(&rig));
	for (size_t n = 0; n < 100; n++)
		give(&rig, n % 3 ? 300 * n + 1 : (n + 1) * 100000, n % 2 ? a : b);
	rig_follow(&rig, a, b, rig_event(&rig));
	rig_drop(&rig, close_capture(&rig, 1, a));
	is_int(glk_graph_blocks(&rig.cache, rig_id(1), some, 2, &count), 0,
		"more than there is room for");
	is_int((int64_t)count, 100, "their number is told");
	all = take(&rig, 1);
	ok(all.at[0].ptr == some[0].ptr && all.at[1].ptr == some[1].ptr &&
			some[0].ptr < some[1].ptr,
		"and the first of them");
	is_int(glk_graph_blocks(&rig.cache, rig_id(1), NULL, 0, &count), 0,
		"none asked for");
	mixed = (struct state){.count = 100};
	for (size_t i = 0; i < 100; i++)
		mixed.at[i] = all.at[i * 37 % 100];
	mixed.count = 50;
	is_int(bring(&rig, 1, &mixed), 0, "half of them, in no order");
	is_int((int64_t)rig_pool(&rig, 1).blocks, 50, "are live");
	is_sound(&rig, "the books agree");
	mixed.count = 100;
	is_int(bring(&rig, 1, &mixed), 0, "all of them");
	ok(is_state(&rig, 1, &all), "are there again, with their streams");
	is_sound(&rig, "the books agree");
	memcpy(mixed.at, mixed.at + 50, 50 * sizeof(mixed.at[0]));
	mixed.count = 50;
	is_int(bring(&rig, 1, &mixed), 0, "the other half");
	is_int(bring(&rig, 1, &all), 0, "and all");
	is_sound(&rig, "the books agree");
	mixed = all;
	mixed.at[7].stream = mixed.at[7].stream == a ? b : a;
	is_int(bring(&rig, 1, &mixed), 0, "one of them of another stream");
	ok(is_state(&rig, 1, &mixed), "is of that");
	mixed.at[9].size--;
	is_int(bring(&rig, 1, &mixed), 0, "or of another size");
	ok(is_state(&rig, 1, &mixed), "has that");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 100);
}

static struct state one(uint64_t addr, size_t size, struct CUstream_st *stream)
{
	return (struct state){.count = 1,
		.at = {{.ptr = (void *)addr, .size = size, .stream = stream}}};
}

static void refuses(void)
{
	const struct glk_range *range;
	struct glake_suspended did;
	struct CUstream_st *a, *b;
	struct glk_extent *e;
	struct state s, both;
	uint64_t x, y, home;
	struct rig rig;
	uint32_t max;

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	home = give(&rig, PAGE, a);
	open_capture(&rig, 1, a);
	x = give(&rig, PAGE, a);
	y = give(&rig, 1000, a);
	rig_free(&rig, give(&rig, 7 * MIB, a), a);
	rig_drop(&rig, close_capture(&rig, 1, a));
	s = one(home, PAGE, a);
	refused(&rig, &s, -EINVAL, GLAKE_ERROR_INVAL, "among the addresses",
		"a block of none");
	s = one(16, PAGE, a);
	refused(&rig, &s, -EINVAL, GLAKE_ERROR_INVAL, "among the addresses",
		"no memory of anybody");
	s = one(x + 100, PAGE, a);
	refused(&rig, &s, -EINVAL, GLAKE_ERROR_INVAL, "no multiple", "misaligned");
	s = one(x, 0, a);
	refused(&rig, &s, -EINVAL, GLAKE_ERROR_INVAL, "no size", "no bytes");
	s = one(x, SIZE_MAX, a);
	refused(&rig, &s, -EINVAL, GLAKE_ERROR_INVAL, "no size", "too many bytes");
	s = one(x, 100 * MIB, a);
	refused(&rig, &s, -EINVAL, GLAKE_ERROR_INVAL, "never gave",
		"more than was ever given there");
	s = one(x + 100 * MIB, 100, a);
	refused(&rig, &s, -EINVAL, GLAKE_ERROR_INVAL, "never gave",
		"addresses that nobody ever had");
	range = glk_cache_range(&rig.cache, x);
	s = one(range->base + range->size - GLAKE_GRAIN, GLAKE_GRAIN, a);
	refused(&rig, &s, -EINVAL, GLAKE_ERROR_INVAL, "no size",
		"the last addresses, where no slot was one of small blocks");
	s = one(x, 100, b);
	refused(&rig, &s, -EINVAL, GLAKE_ERROR_INVAL, "stream",
		"a stream that is not known");
	s = take(&rig, 1);
	s.at[2] = s.at[0];
	s.count = 3;
	refused(&rig, &s, -EINVAL, GLAKE_ERROR_INVAL, "overlaps", "one of them twice");
	s.at[2].ptr = (void *)(x + 512);
	s.at[2].size = MIB;
	refused(&rig, &s, -EINVAL, GLAKE_ERROR_INVAL, "overlaps", "two that overlap");
	s = take(&rig, 1);
	s.at[2] = (struct glake_pool_block){
		.ptr = (void *)((y & ~(2 * MIB - 1)) + MIB), .size = MIB, .stream = a};
	s.count = 3;
	refused(&rig, &s, -EINVAL, GLAKE_ERROR_INVAL, "among small blocks",
		"a large one beside small ones");
	s = one(y, 1000, a);
	e = glk_lookup_hold(glk_cache_range(&rig.cache, x), x);
	is_int(bring(&rig, 1, &s), -EBUSY, "one that would go is in a call");
	has_str(rig_error().text, "another thread", "  its text");
	glk_word_let_go(&e->word);
	for (int i = 0; i < 2; i++) {
		s = take(&rig, 1);
		s.count = 0;
		e = glk_lookup_hold(glk_cache_range(&rig.cache, i ? y : x), i ? y : x);
		is_int(bring(&rig, 1, &s), -EBUSY, "one of two that would go");
		glk_word_let_go(&e->word);
		e = glk_lookup_hold(glk_cache_range(&rig.cache, i ? x : y), i ? x : y);
		ok(e, "the other is nobody's");
		if (e)
			glk_word_let_go(&e->word);
	}
	s = one(x, PAGE, a);
	e = glk_lookup_claim(glk_cache_range(&rig.cache, x), x);
	s.at[0].size -= 1000;
	is_int(bring(&rig, 1, &s), -EBUSY, "one that is about to be freed");
	has_str(rig_error().text, "in the hands", "  its text");
	glk_extent_set(e, GLK_EXTENT_LIVE);
	s = one((y & ~(2 * MIB - 1)) + MIB, MIB, a);
	e = glk_lookup_claim(glk_cache_range(&rig.cache, y), y);
	is_int(bring(&rig, 1, &s), -EBUSY,
		"a slot in which a small one is about to be freed");
	has_str(rig_error().text, "in the hands", "  its text");
	glk_extent_set(e, GLK_EXTENT_LIVE);
	s = take(&rig, 1);
	max = rig.cache.arena.map.extents.max;
	glk_graph_at(glk_graphs(&rig.cache), 1)->arena.map.extents.max = 4;
	refused(&rig, &s, -ENOMEM, GLAKE_ERROR_LIMIT, "map.extents", "too many extents");
	glk_graph_at(glk_graphs(&rig.cache), 1)->arena.map.extents.max = max;
	glk_region_fail_after(1);
	refused(&rig, &s, -ENOMEM, GLAKE_ERROR_NOMEM_HOST, "", "no memory of the host");
	glk_region_fail_after(0);
	is_int(glk_cache_suspend(&rig.cache, false, &did), 0, "the GPU is suspended");
	ok(did.stayed && did.stayed == glk_graph_held(&rig.cache),
		"the memory of its graphs stays: %d MiB", (int)(did.stayed / MIB));
	is_int(bring(&rig, 1, &s), -EAGAIN, "then nothing is brought back");
	is_int(glk_graph_hold(&rig.cache, rig_id(2)), -EAGAIN, "or held");
	ok(is_state(&rig, 1, &s), "but told");
	is_int(glk_cache_resume(&rig.cache, false, &did), 0, "resumed");
	is_int(bring(&rig, 1, &s), 0, "brought back");
	both = s;
	is_sound(&rig, "the books agree");
	rig_free(&rig, x, a);
	rig_free(&rig, y, a);
	is_int(rig_release(&rig, 1), 0, "the pool ends");
	is_int(bring(&rig, 1, &both), -EINVAL, "with its states");
	rig_close(&rig, 1);
}

/* A place with pages that lie under others too. */
static void other_places(void)
{
	struct state apart, together, both;
	struct CUstream_st *a;
	uint64_t x[6], y;
	struct rig rig;

	rig_open(&rig, (const char *const[]){"pool.budget=48MiB", NULL});
	a = rig_stream(&rig);
	open_capture(&rig, 1, a);
	for (int i = 0; i < 6; i++)
		x[i] = give(&rig, PAGE, a);
	apart = take(&rig, 1);
	for (int i = 0; i < 6; i += 2)
		rig_free(&rig, x[i], a);
	y = give(&rig, 3 * PAGE, a);
	is_int((int64_t)rig_pool(&rig, 1).held, 6 * (int64_t)PAGE,
		"a block has pages from three places");
	rig_drop(&rig, close_capture(&rig, 1, a));
	together = take(&rig, 1);
	memset((void *)x[1], 7, PAGE);
	for (int i = 0; i < 3; i++) {
		is_int(bring(&rig, 1, &apart), 0, "they are back at their own");
		ok(is_state(&rig, 1, &apart), "as they were");
		is_sound(&rig, "the books agree");
		is_int(bring(&rig, 1, &together), 0, "and with that one");
		ok(is_state(&rig, 1, &together), "as that was");
		is_sound(&rig, "the books agree");
	}
	ok(((char *)x[1])[0] == 7 && ((char *)x[1])[PAGE - 1] == 7,
		"one that was live is as it was");
	both = together;
	both.at[both.count++] =
		(struct glake_pool_block){.ptr = (void *)x[2], .size = 100, .stream = a};
	refused(&rig, &both, -EBUSY, GLAKE_ERROR_BUSY, "no memory of its own",
		"both at once");
	both = one(x[0], PAGE, a);
	both.at[both.count++] = (struct glake_pool_block){
		.ptr = (void *)(y + PAGE), .size = 2 * PAGE, .stream = a};
	both.at[both.count++] =
		(struct glake_pool_block){.ptr = (void *)y, .size = PAGE, .stream = a};
	refused(&rig, &both, -EBUSY, GLAKE_ERROR_BUSY, "no memory of its own",
		"a part of them");
	rig_close(&rig, together.count);
}

/* A block that others have keeps its memory until they are done. */
static void out(void)
{
	struct state with, without = {.count = 0};
	struct CUstream_st *a;
	struct glk_pin pin;
	struct rig rig;
	uint64_t x;

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	open_capture(&rig, 1, a);
	x = give(&rig, PAGE, a);
	rig_drop(&rig, close_capture(&rig, 1, a));
	with = take(&rig, 1);
	is_int(glk_cache_pin(&rig.cache, x, false, &pin), 0, "a block is out");
	is_int(bring(&rig, 1, &with), 0, "it is one of those that are live");
	is_int((int64_t)rig_query(&rig, x).exports, 1, "and out");
	with.at[0].size--;
	refused(&rig, &with, -EBUSY, GLAKE_ERROR_BUSY, "is out",
		"another one in its place");
	with.at[0].size++;
	is_int(bring(&rig, 1, &without), 0, "it is freed");
	is_int((int64_t)rig_pool(&rig, 1).blocks, 0, "and live no more");
	is_sound(&rig, "the books agree");
	refused(&rig, &with, -EBUSY, GLAKE_ERROR_BUSY, "is out",
		"its memory serves nobody else");
	is_int(glk_cache_unpin(&rig.cache, x), 0, "until it comes back");
	is_int(bring(&rig, 1, &with), 0, "then it is given again");
	is_int((int64_t)rig_query(&rig, x).exports, 0, "and is not out");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 1);
}

static void contiguous(const char *const *settings, uint64_t size)
{
	struct state first, none = {.count = 0};
	uint64_t x, y, z, w;
	struct CUstream_st *a;
	struct rig rig;

	rig_open(&rig, settings);
	a = rig_stream(&rig);
	open_capture(&rig, 1, a);
	x = rig_single(&rig, size - 5, a);
	y = rig_single(&rig, MIB, a);
	z = rig_alloc(&rig, 20 * MIB, a);
	w = rig_single(&rig, 100, a);
	first = take(&rig, 1);
	rig_drop(&rig, close_capture(&rig, 1, a));
	is_int(bring(&rig, 1, &none), 0, "all are freed");
	is_int(bring(&rig, 1, &first), 0, "and given again");
	ok(is_state(&rig, 1, &first), "as they were");
	is_int(rig_query(&rig, x).flags, GLAKE_ALLOC_CONTIGUOUS, "one is contiguous");
	ok(rig_query(&rig, x).can & GLAKE_CAN_CONTIGUOUS, "  and can be used so");
	is_int(rig_query(&rig, x).given, size, "  of whole slots");
	is_int((int64_t)rig_query(&rig, y).pages, 1, "one has its handle");
	is_int((int64_t)rig_query(&rig, w).pages, 1, "as another one");
	is_int(rig_query(&rig, z).flags, 0, "and one is none of them");
	is_sound(&rig, "the books agree");
	first = one(x, size / 2, a);
	is_int(bring(&rig, 1, &first), 0, "half of the contiguous one");
	is_int(rig_query(&rig, x).flags, 0, "is none, with a page larger than it is");
	is_sound(&rig, "the books agree");
	first = one(x, size - MIB, a);
	first.at[first.count++] = (struct glake_pool_block){
		.ptr = (void *)(x + size - MIB), .size = MIB, .stream = a};
	is_int(bring(&rig, 1, &first), 0, "or with another one on its page");
	ok(is_state(&rig, 1, &first), "both are there");
	is_int(rig_query(&rig, x).flags, 0, "and neither is");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 2);
}

/* Streams that have ended meanwhile leave nothing behind in the bins. */
static void stream_has_ended(void)
{
	struct state s, none = {.count = 0};
	struct CUstream_st *a, *b;
	struct rig rig;

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	open_capture(&rig, 1, a);
	rig_follow(&rig, b, a, rig_event(&rig));
	give(&rig, 1000, b);
	give(&rig, 1000, a);
	rig_follow(&rig, a, b, rig_event(&rig));
	rig_drop(&rig, close_capture(&rig, 1, a));
	s = take(&rig, 1);
	rig_free(&rig, give(&rig, 1000, b), b);
	is_int(bring(&rig, 1, &none), 0, "all are freed");
	is_int(glk_cache_stream_leave(&rig.cache, b), 0, "a stream ends");
	refused(&rig, &s, -EINVAL, GLAKE_ERROR_INVAL, "stream",
		"a block of it is refused");
	s = one((uint64_t)s.at[s.at[0].stream == b].ptr, 1000, a);
	is_int(bring(&rig, 1, &s), 0, "that of another one comes");
	ok(rig.cache.ended == rig.cache.streams.ended, "and its bins are gone through");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 1);
}

/* Lists that no memory could hold. */
static void too_long(void)
{
	struct CUstream_st *a;
	struct state s;
	struct rig rig;

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	open_capture(&rig, 1, a);
	give(&rig, 1000, a);
	rig_drop(&rig, close_capture(&rig, 1, a));
	s = take(&rig, 1);
	/* whatever the size of an entry is: all of them, and none of what else there is, fit a word */
	for (size_t part = 8; part <= 128; part += 8)
		is_int(glk_graph_restore(
			       &rig.cache, rig_id(1), s.at, SIZE_MAX / part, NULL, NULL),
			-ENOMEM, "a list of so many blocks");
	is_int(rig_error().error_class, GLAKE_ERROR_NOMEM_HOST, "  its class");
	ok(is_state(&rig, 1, &s), "nothing has changed");
	rig_close(&rig, 1);
}

/* Small blocks that had no slot for themselves. */
static void no_slot(void)
{
	struct state all, some, none = {.count = 0};
	struct CUstream_st *a;
	struct glk_map *map;
	struct rig rig;
	uint64_t given;
	uint32_t max;
	int wrong = 0;

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	open_capture(&rig, 1, a);
	map = &glk_graph_at(glk_graphs(&rig.cache), 1)->arena.map;
	max = map->nests.max;
	give(&rig, 100, a);
	map->nests.max = 1;
	/* one reaches from a slot into the next */
	give(&rig, 2 * MIB - 100 * 1024, a);
	give(&rig, 200 * 1024, a);
	for (int i = 0; i < 60; i++)
		give(&rig, i % 5 ? 200 * 1024 : 3 * MIB - 512 * (size_t)i, a);
	all = take(&rig, 1);
	given = rig_figures(&rig).given;
	rig_drop(&rig, close_capture(&rig, 1, a));
	is_int(bring(&rig, 1, &none), 0, "all are freed");
	is_int((int64_t)glk_load_relaxed(&map->nests.live), 0,
		"no slot is one of small ones");
	map->nests.max = max;
	is_int(bring(&rig, 1, &all), 0, "and given again");
	ok(is_state(&rig, 1, &all), "as they were");
	is_int((int64_t)rig_figures(&rig).given, (int64_t)given,
		"with as much as they had");
	is_sound(&rig, "the books agree");
	for (size_t i = 1; i < all.count; i++) {
		some.count = all.count - i > 2 ? 2 : all.count - i;
		memcpy(some.at, all.at + i, some.count * sizeof(some.at[0]));
		wrong += bring(&rig, 1, &none) || bring(&rig, 1, &some) ||
			!is_state(&rig, 1, &some) || !rig_is_sound(&rig);
	}
	is_int(wrong, 0, "two of them, wherever they lie");
	is_int(bring(&rig, 1, &all), 0, "and all again");
	is_sound(&rig, "the books agree");
	rig_close(&rig, all.count);
}

/* The last one ends with its slot. */
static void full_slot(void)
{
	struct state all, none = {.count = 0};
	struct CUstream_st *a;
	struct glk_map *map;
	struct rig rig;

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	open_capture(&rig, 1, a);
	for (int i = 0; i < 16; i++)
		give(&rig, 128 * 1024, a);
	all = take(&rig, 1);
	rig_drop(&rig, close_capture(&rig, 1, a));
	map = &glk_graph_at(glk_graphs(&rig.cache), 1)->arena.map;
	is_int((int64_t)((uint64_t)all.at[15].ptr + all.at[15].size) % (2 * (int64_t)MIB),
		0, "small blocks fill a slot");
	is_int(bring(&rig, 1, &none), 0, "all are freed");
	is_int(bring(&rig, 1, &all), 0, "and given again");
	is_int((int64_t)glk_load_relaxed(&map->nests.live), 1,
		"in a slot of small blocks");
	ok(is_state(&rig, 1, &all), "as they were");
	is_sound(&rig, "the books agree");
	rig_close(&rig, all.count);
}

/* Addresses that were reserved later, above or below. */
static void more_addresses(void)
{
	struct state all, some, none = {.count = 0};
	struct CUstream_st *a;
	struct rig rig;

	rig_open(&rig, (const char *const[]){"soft.memory=4GiB", "map.span=64GiB", NULL});
	a = rig_stream(&rig);
	open_capture(&rig, 1, a);
	for (int i = 0; i < 5; i++) {
		give(&rig, 700 * MIB, a);
		give(&rig, 100, a);
	}
	ok(glk_graph_at(glk_graphs(&rig.cache), 1)->arena.map.ranges > 1,
		"a pool has several ranges");
	all = some = take(&rig, 1);
	rig_drop(&rig, close_capture(&rig, 1, a));
	is_int(bring(&rig, 1, &none), 0, "all are freed");
	is_int(bring(&rig, 1, &all), 0, "and given again");
	ok(is_state(&rig, 1, &all), "as they were");
	is_sound(&rig, "the books agree");
	some.count /= 2;
	is_int(bring(&rig, 1, &some), 0, "half of them");
	is_int(bring(&rig, 1, &all), 0, "and all");
	ok(is_state(&rig, 1, &all), "as they were");
	is_sound(&rig, "the books agree");
	rig_close(&rig, all.count);
}

static void holds(void)
{
	struct CUstream_st *a;
	struct rig rig;
	uint64_t x;

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	is_int(glk_graph_hold(&rig.cache, (struct glake_pool_id){0}), -EINVAL,
		"two zeroes are no name");
	is_int(glk_graph_hold(&rig.cache, rig_id(1)), 0, "a pool is held");
	ok(rig_pool(&rig, 1).graphs == 1 && !rig_pool(&rig, 1).is_open, "and not open");
	is_int(rig_end_pool(&rig, 1), -EINVAL, "so it cannot be ended");
	is_int((int64_t)take(&rig, 1).count, 0, "there is no block");
	open_capture(&rig, 1, a);
	is_int(glk_graph_hold(&rig.cache, rig_id(1)), 0, "once more, while it is open");
	is_int((int64_t)rig_pool(&rig, 1).graphs, 3, "that counts");
	x = give(&rig, PAGE, a);
	rig_drop(&rig, close_capture(&rig, 1, a));
	rig_free(&rig, x, a);
	is_int(rig_release(&rig, 1), 0, "taken back");
	is_int(rig_release(&rig, 1), 0, "and again");
	is_int((int64_t)rig_pool(&rig, 1).held, (int64_t)PAGE, "it has its memory");
	is_int(rig_release(&rig, 1), 0, "with the last one");
	is_int((int64_t)rig_figures(&rig).pools, 0, "it goes");
	/* one that nobody announced */
	rig_capture(&rig, a);
	x = give(&rig, PAGE, a);
	is_int(glk_graph_hold(&rig.cache, rig_query(&rig, x).pool), 0,
		"one that nobody announced is held");
	rig_drop(&rig, rig_capture_end(&rig, a));
	rig_free(&rig, x, a);
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* ---- Beside others ---- */

#define KEPT   4
#define OTHERS 20
#define ROUNDS STORM_SIZE(2000)

struct beside {
	struct rig rig;
	struct CUstream_st *b;
	struct state all;
	glk_atomic(bool) done;
	glk_atomic(int) wrong;
};

static void note_wrong(struct beside *s, bool wrong)
{
	if (wrong)
		glk_add_relaxed(&s->wrong, 1);
}

/* Blocks that are in all states are there all the time, for whoever asks, uses or has them. */
static void *looks(void *arg)
{
	struct beside *s = arg;
	struct glake_block block;
	struct glk_pin pin;

	for (size_t n = 0; !glk_load_acquire(&s->done); n++) {
		const struct glake_pool_block *p = &s->all.at[n % s->all.count];
		uint64_t addr = (uint64_t)p->ptr;
		bool kept = n % s->all.count < KEPT;
		int err = glk_cache_query(&s->rig.cache, addr + p->size / 2, &block);

		note_wrong(s, err ? kept : block.base != p->ptr || block.size != p->size);
		err = glk_cache_use(&s->rig.cache, addr, s->b);
		note_wrong(s, err && kept);
		err = glk_cache_pin(&s->rig.cache, addr, false, &pin);
		note_wrong(s, err ? kept : glk_cache_unpin(&s->rig.cache, addr) != 0);
	}
	return NULL;
}

static void *allocates(void *arg)
{
	struct beside *s = arg;

	while (!glk_load_acquire(&s->done)) {
		uint64_t addr = rig_alloc(&s->rig, 3 * MIB, s->b);

		note_wrong(s, !addr || rig_free(&s->rig, addr, s->b));
	}
	return NULL;
}

static void beside_others(void)
{
	static struct beside s;
	struct state some = {.count = 0};
	pthread_t looker, allocator;
	struct CUstream_st *a;
	int refusals = 0;

	memset(&s, 0, sizeof(s));
	rig_open(&s.rig, NULL);
	a = rig_stream(&s.rig);
	s.b = rig_stream(&s.rig);
	rig_free(&s.rig, rig_alloc(&s.rig, 100, s.b), s.b);
	open_capture(&s.rig, 1, a);
	for (int i = 0; i < OTHERS; i++)
		give(&s.rig, i % 3 ? 5000 : MIB * 3, a);
	rig_drop(&s.rig, close_capture(&s.rig, 1, a));
	s.all = take(&s.rig, 1);
	pthread_create(&looker, NULL, looks, &s);
	pthread_create(&allocator, NULL, allocates, &s);
	for (int n = 0; n < ROUNDS; n++) {
		int err;

		some.count = KEPT;
		memcpy(some.at, s.all.at, sizeof(some.at));
		for (size_t i = KEPT; i < OTHERS; i++)
			if ((i + (size_t)n) % 3)
				some.at[some.count++] = s.all.at[i];
		err = bring(&s.rig, 1, n % 4 ? &some : &s.all);
		refusals += err == -EBUSY;
		note_wrong(&s, err && err != -EBUSY);
	}
	glk_store_release(&s.done, true);
	pthread_join(looker, NULL);
	pthread_join(allocator, NULL);
	tap_note("%d times refused", refusals);
	ok(refusals < ROUNDS, "states come back beside other threads");
	is_int(glk_load_relaxed(&s.wrong), 0, "who see what stays all the time");
	is_int(bring(&s.rig, 1, &s.all), 0, "the last time");
	ok(is_state(&s.rig, 1, &s.all), "all are there");
	is_sound(&s.rig, "the books agree");
	rig_close(&s.rig, OTHERS);
}

/* ---- At random, with an oracle ---- */

#define STATES 8
#define STEPS  STORM_SIZE(3000)

static uint64_t dice_state;

static uint32_t dice(uint32_t sides)
{
	return (uint32_t)seed_below(&dice_state, sides);
}

static size_t some_size(void)
{
	switch (dice(4)) {
	case 0:
		return 1 + dice(3000);
	case 1:
		return 1 + dice(300 * 1024);
	case 2:
		return 1 + dice(6 * MIB);
	default:
		return 2 * MIB * (1 + dice(8));
	}
}

/* What lies in a block: its first and last byte, and one in the middle, by its address and the step at which
 * it was given. */
struct mark {
	uint64_t addr;
	unsigned char byte;
};

static void put(uint64_t addr, size_t size, unsigned char byte)
{
	*(unsigned char *)addr = byte;
	*(unsigned char *)(addr + size / 2) = byte;
	*(unsigned char *)(addr + size - 1) = byte;
}

static bool has(uint64_t addr, size_t size, unsigned char byte)
{
	return *(unsigned char *)addr == byte &&
		*(unsigned char *)(addr + size / 2) == byte &&
		*(unsigned char *)(addr + size - 1) == byte;
}

struct oracle {
	struct rig rig;
	struct CUstream_st *a;
	struct state now, old[STATES];
	struct mark marks[MOST];
	size_t states;
	bool capturing;
	int wrong;
};

static void note(struct oracle *o, bool right, const char *what)
{
	if (right)
		return;
	tap_note("%s", what);
	o->wrong++;
}

static size_t find(const struct state *s, const void *ptr)
{
	size_t i = 0;

	while (i < s->count && s->at[i].ptr != ptr)
		i++;
	return i;
}

static void allocate(struct oracle *o)
{
	size_t size = some_size(), i = o->now.count;
	uint64_t addr;

	if (i == MOST || !o->capturing)
		return;
	addr = rig_alloc(&o->rig, size, o->a);
	if (!addr)
		return;
	for (size_t k = 0; k < i; k++)
		note(o,
			addr + size <= (uint64_t)o->now.at[k].ptr ||
				addr >= (uint64_t)o->now.at[k].ptr + o->now.at[k].size,
			"a block lies in another one");
	o->marks[i] = (struct mark){.addr = addr, .byte = (unsigned char)(1 + dice(255))};
	put(addr, size, o->marks[i].byte);
	o->now.at[o->now.count++] = (struct glake_pool_block){
		.ptr = (void *)addr, .size = size, .stream = o->a};
}

static void release(struct oracle *o)
{
	size_t i;

	if (!o->now.count)
		return;
	i = dice((uint32_t)o->now.count);
	note(o, !rig_free(&o->rig, (uint64_t)o->now.at[i].ptr, o->a),
		"a free is refused");
	o->now.at[i] = o->now.at[--o->now.count];
	o->marks[i] = o->marks[o->now.count];
}

static void bring_one(struct oracle *o)
{
	struct state *s = &o->old[dice((uint32_t)o->states)];
	struct mark marks[MOST];

	if (bring(&o->rig, 1, s)) {
		note(o, false, rig_error().text);
		return;
	}
	note(o, is_state(&o->rig, 1, s), "it is another state");
	for (size_t i = 0; i < s->count; i++) {
		const struct glake_pool_block *b = &s->at[i];
		size_t was = find(&o->now, b->ptr);

		marks[i].addr = (uint64_t)b->ptr;
		marks[i].byte = (unsigned char)(1 + dice(255));
		if (was < o->now.count && o->now.at[was].size == b->size)
			marks[i].byte = o->marks[was].byte;
		else
			put((uint64_t)b->ptr, b->size, marks[i].byte);
	}
	o->now = *s;
	memcpy(o->marks, marks, sizeof(marks));
}

static void look(struct oracle *o)
{
	struct glake_pool pool = rig_pool(&o->rig, 1);
	uint64_t live = 0;

	for (size_t i = 0; i < o->now.count; i++) {
		live += o->now.at[i].size;
		note(o, has(o->marks[i].addr, o->now.at[i].size, o->marks[i].byte),
			"the contents of a block have changed");
	}
	note(o, pool.blocks == o->now.count && pool.live == live,
		"the pool tells something else");
}

static void step(struct oracle *o)
{
	switch (dice(16)) {
	case 0:
		if (o->capturing)
			rig_drop(&o->rig, close_capture(&o->rig, 1, o->a));
		else
			open_capture(&o->rig, 1, o->a);
		o->capturing = !o->capturing;
		break;
	case 1:
		o->old[o->states < STATES ? o->states++ : dice(STATES)] =
			take(&o->rig, 1);
		break;
	case 2:
		if (o->states)
			bring_one(o);
		break;
	case 3:
	case 4:
	case 5:
	case 6:
		release(o);
		break;
	default:
		allocate(o);
	}
}

/* With little memory pages serve several places. */
static void random_states(const char *const *settings)
{
	struct oracle *o = calloc(1, sizeof(*o));

	if (!o)
		tap_bail("no memory");
	rig_open(&o->rig, settings);
	o->a = rig_stream(&o->rig);
	is_int(glk_graph_hold(&o->rig.cache, rig_id(1)), 0, "a pool for random states");
	for (int i = 0; i < STEPS; i++) {
		step(o);
		look(o);
		if (i % 100 == 0 && !rig_is_sound(&o->rig))
			note(o, false, "the books do not agree");
	}
	is_int(o->wrong, 0, "states come back, whatever the pool did meanwhile");
	is_sound(&o->rig, "the books agree");
	rig_close(&o->rig, o->now.count);
	free(o);
}

int main(void)
{
	tap_plan_later();
	brings_back();
	at_once();
	lists();
	refuses();
	other_places();
	out();
	contiguous(NULL, 20 * MIB);
	contiguous((const char *const[]){"policy.target=auto", "pool.large_page=0", NULL},
		32 * MIB); /* of which pools have no other pages */
	stream_has_ended();
	too_long();
	no_slot();
	full_slot();
	more_addresses();
	holds();
	beside_others();
	dice_state = seed_thread(seed_start(), 0);
	random_states(NULL);
	random_states((const char *const[]){"pool.budget=96MiB", NULL});
	return tap_done();
}
