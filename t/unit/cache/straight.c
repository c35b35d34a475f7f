/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The straight miss has the place that the long way would have. Two GPUs of one kind are asked for the same blocks in
 * the same order; of one all requests go the long way, since a stream is said to have ended there each time.
 */
#include "cache/straight.h"
#include "seed.h"
#include "stepped.h"

#define MOST	300
#define STREAMS 4

static struct rig straight, crooked;
static struct CUstream_st *stream[2][STREAMS];
static struct {
	uint64_t addr[2];
	unsigned stream;
} block[MOST];
static unsigned live, apart, shorts, called, bent;
static uint64_t seed;

/* As if a stream had ended: the long way looks for it, and finds none. */
static void bend(void)
{
	crooked.cache.ended = crooked.cache.streams.ended - 1;
}

static size_t draw_size(void)
{
	switch (seed_below(&seed, 4)) {
	case 0: /* of a few sizes */
		return (size_t)(1 + seed_below(&seed, 8)) * 3 * MIB;
	case 1:
		return (size_t)(256 << 10) + 1 + seed_below(&seed, 2 * MIB);
	case 2:
		return (size_t)(1 + seed_below(&seed, 40)) * MIB;
	default:
		return (size_t)(1 + seed_below(&seed, 160)) * MIB + 512;
	}
}

static void allocate(unsigned at)
{
	const struct glk_times *times = &straight.cache.times[GLK_TIMED_REQUEST];
	uint32_t passed = glk_load_relaxed(&times->passed);
	uint64_t calls = rig_all_calls(&straight);
	size_t size = draw_size();

	block[live].addr[0] = rig_alloc(&straight, size, stream[0][at]);
	/* a turn that stayed short is counted there */
	if (glk_load_relaxed(&times->passed) != passed) {
		shorts++;
		called += rig_all_calls(&straight) != calls;
	}
	bend();
	times = &crooked.cache.times[GLK_TIMED_REQUEST];
	passed = glk_load_relaxed(&times->passed);
	block[live].addr[1] = rig_alloc(&crooked, size, stream[1][at]);
	bent += glk_load_relaxed(&times->passed) != passed;
	block[live].stream = at;
	apart += block[live].addr[0] - straight.cache.arena.map.range[0].base !=
		block[live].addr[1] - crooked.cache.arena.map.range[0].base;
	if (block[live].addr[0] && block[live].addr[1])
		live++;
}

/* On its own stream, or now and then on another one. */
static void drop(unsigned i, unsigned at)
{
	rig_free(&straight, block[i].addr[0], stream[0][at]);
	rig_free(&crooked, block[i].addr[1], stream[1][at]);
	block[i] = block[--live];
}

static void step(unsigned streams)
{
	unsigned i, at = (unsigned)seed_below(&seed, streams);

	if (live < MOST && seed_below(&seed, 100) < 50) {
		allocate(at);
		return;
	}
	if (streams > 1 && !seed_below(&seed, 20)) {
		glk_soft_run_all(straight.drv);
		glk_soft_run_all(crooked.drv);
	}
	if (!live)
		return;
	i = (unsigned)seed_below(&seed, live);
	at = streams > 1 && !seed_below(&seed, 10) ? at : block[i].stream;
	drop(i, at);
}

static void same_places(unsigned streams, const char *target)
{
	const char *settings[] = {"soft.streams=stepped", "soft.memory=16GiB",
		"policy.bins=0", target, NULL};
	uint64_t calls;

	rig_open(&straight, settings);
	rig_open(&crooked, settings);
	for (unsigned i = 0; i < streams; i++) {
		stream[0][i] = rig_stream(&straight);
		stream[1][i] = rig_stream(&crooked);
	}
	live = apart = shorts = called = bent = 0;
	for (unsigned i = 0; i < 6000; i++)
		step(streams);
	if (streams == 1)
		is_int(apart, 0, "each block lies where the long way has it");
	ok(rig_is_sound(&straight), "the books agree");
	ok(rig_is_sound(&crooked), "and those of the long way");
	ok(shorts > 100, "%u requests were straight", shorts);
	is_int(called, 0, "none of them called the driver");
	is_int(bent, 0, "of the others none was");
	calls = rig_calls(&straight, GLAKE_CALL_MAP);
	while (live)
		drop(live - 1, block[live - 1].stream);
	glk_soft_run_all(straight.drv);
	glk_soft_run_all(crooked.drv);
	is_int((int64_t)(rig_calls(&straight, GLAKE_CALL_MAP) - calls), 0,
		"a free calls nobody");
	rig_close(&straight, 0);
	rig_close(&crooked, 0);
}

/* Requests for a size on a stream, each of which is freed, that took a short turn. */
static unsigned shorts_of(size_t size, struct CUstream_st *a, unsigned count)
{
	const struct glk_times *times = &straight.cache.times[GLK_TIMED_REQUEST];
	unsigned found = 0;

	while (count--) {
		uint32_t passed = glk_load_relaxed(&times->passed);
		uint64_t addr = rig_alloc(&straight, size, a);

		found += glk_load_relaxed(&times->passed) != passed;
		rig_free(&straight, addr, a);
	}
	return found;
}

/* Pages that are mapped at two places serve several streams straight; what one did with them at the one place another
 * one waits for at the other. */
static void stitched(void)
{
	uint64_t part[5], whole, waits;
	struct CUstream_st *a, *b;

	rig_open(&straight, STEPPED);
	a = rig_stream(&straight);
	b = rig_stream(&straight);
	rig_alloc(&straight, 8 * MIB, b);
	for (int i = 0; i < 5; i++)
		part[i] = rig_alloc(&straight, 8 * MIB, a);
	rig_free(&straight, part[1], a);
	rig_free(&straight, part[3], a);
	glk_store_relaxed(&straight.cache.node->budget, 48 * MIB);
	whole = rig_alloc(&straight, 16 * MIB, a);
	is_int((int64_t)rig_figures(&straight).stitches, 1, "a block is stitched");
	rig_free(&straight, whole, a);
	shorts = shorts_of(16 * MIB, a, 20);
	ok(shorts >= 18, "then it is had straight, %u times of 20", shorts);
	is_int((int64_t)rig_figures(&straight).stitches, 1, "at its place");
	ok(give(&straight, 8 * MIB, b) == part[1], "another stream has one page of it");
	rig_free(&straight, part[1], b);
	waits = waits_of(&straight);
	ok(give(&straight, 16 * MIB, a) == whole, "and the first one both again");
	is_int((int64_t)(waits_of(&straight) - waits), 1, "behind the work of the other");
	ok(rig_is_sound(&straight), "the books agree");
	rig_close(&straight, 5);
}

/* Two streams that are known, each with memory of its own in use, and a block that the first one freed; its work there is
 * under way, or there was none. */
static uint64_t freed_on(struct CUstream_st **a, struct CUstream_st **b, bool works,
	const char *const *settings)
{
	uint64_t addr;

	rig_open(&straight, settings);
	*a = rig_stream(&straight);
	*b = rig_stream(&straight);
	rig_alloc(&straight, 3 * MIB, *a);
	rig_alloc(&straight, 3 * MIB, *b);
	addr = rig_alloc(&straight, 8 * MIB, *a);
	if (works)
		rig_work(&straight, addr, 8 * MIB, *a);
	rig_free(&straight, addr, *a);
	return addr;
}

/* What another stream has freed is had behind a wait; but nobody waits for what has come to an end. */
static void hands_over(void)
{
	struct CUstream_st *a, *b;
	uint64_t addr = freed_on(&a, &b, true, STEPPED);
	uint64_t misses = rig_figures(&straight).misses;
	uint64_t before = rig_figures(&straight).called;

	ok(give(&straight, 8 * MIB, b) == addr, "a block goes from stream to stream");
	is_int((int64_t)waits_of(&straight), 1, "behind a wait");
	is_int((int64_t)rig_figures(&straight).rungs[GLAKE_RUNG_CROSS_STREAM], 1,
		"which is counted");
	is_int((int64_t)(rig_figures(&straight).misses - misses), 1, "as is the request");
	is_int((int64_t)(rig_figures(&straight).called - before), 1,
		"which has called the driver");
	is_int((int64_t)rig_calls(&straight, GLAKE_CALL_EVENT_RECORD), 1, "for an event");
	rig_close(&straight, 3);

	addr = freed_on(&a, &b, false, NULL);
	ok(rig_alloc(&straight, 8 * MIB, b) == addr, "from one that has finished");
	is_int((int64_t)rig_calls(&straight, GLAKE_CALL_EVENT_RECORD), 1, "it is asked");
	is_int((int64_t)waits_of(&straight), 0, "and not waited for");
	rig_close(&straight, 3);

	addr = freed_on(&a, &b, true,
		(const char *const[]){RIG_DONE, "soft.streams=stepped", NULL});
	ok(rig_alloc(&straight, 8 * MIB, b) != addr,
		"where no waits may be inserted it stays");
	is_int((int64_t)waits_of(&straight), 0, "nor is there one");
	ok(rig_is_sound(&straight), "the books agree");
	rig_close(&straight, 3);
}

/* Three streams that are known, of which the first and the last one freed a half of a place each, with their work there
 * under way. */
static uint64_t halves(
	struct CUstream_st **a, struct CUstream_st **b, struct CUstream_st **c)
{
	struct CUstream_st **name[] = {a, b, c};
	uint64_t low, high;

	rig_open(&straight, STEPPED);
	for (int i = 0; i < 3; i++) {
		*name[i] = rig_stream(&straight);
		rig_alloc(&straight, 3 * MIB, *name[i]);
	}
	low = give(&straight, 8 * MIB, *a);
	high = give(&straight, 8 * MIB, *c);
	if (high != low + 8 * MIB)
		tap_bail("two blocks lie apart");
	rig_free(&straight, low, *a);
	rig_free(&straight, high, *c);
	return low;
}

/* A stream is behind the one half of a place, and cannot come behind the other. */
static void half_way(void)
{
	struct CUstream_st *a, *b, *c;
	uint64_t place = halves(&a, &b, &c), addr;

	glk_fault_set(straight.drv, "event_record:from=2:err=EBUSY");
	addr = give(&straight, 16 * MIB, b);
	ok(addr != place, "a place that is had behind one of two stays");
	is_int((int64_t)waits_of(&straight), 1, "behind the one");
	is_int((int64_t)rig_figures(&straight).rungs[GLAKE_RUNG_CROSS_STREAM], 2,
		"though both were asked for");
	glk_fault_set(straight.drv, "off");
	ok(rig_is_sound(&straight), "the books agree");
	rig_free(&straight, addr, b);
	ok(give(&straight, 8 * MIB, a) && give(&straight, 8 * MIB, c),
		"and others have their memory in its order");
	rig_close(&straight, 5);
}

/* The program begins a capture of which the library was not told: no event is put on that stream. */
static void captured(void)
{
	struct CUstream_st *a, *b, *c;
	uint64_t place = halves(&a, &b, &c), addr;
	uint32_t graph;

	rig_capture(&straight, a);
	addr = give(&straight, 16 * MIB, b);
	ok(addr != place, "nothing is had of a stream that captures");
	ok(rig_is_sound(&straight), "the books agree");
	graph = rig_capture_end(&straight, a);
	ok(graph, "and the capture goes on");
	rig_drop(&straight, graph);
	rig_free(&straight, addr, b);
	rig_close(&straight, 3);
}

/* Of places of one size that are behind waits the one with the fewest is had, though others lie lower. */
static void chooses(void)
{
	struct CUstream_st *a, *b;
	uint64_t low, part[2];

	rig_open(&straight, STEPPED);
	a = rig_stream(&straight);
	b = rig_stream(&straight);
	rig_alloc(&straight, 3 * MIB, a);
	rig_alloc(&straight, 3 * MIB, b);
	low = give(&straight, 16 * MIB, a);
	rig_alloc(&straight, 3 * MIB, a);
	part[0] = give(&straight, 8 * MIB, a);
	part[1] = give(&straight, 8 * MIB, b);
	rig_alloc(&straight, 3 * MIB, b);
	rig_free(&straight, low, a);
	rig_free(&straight, part[0], a);
	rig_free(&straight, part[1], b);
	ok(give(&straight, 16 * MIB, b) == part[0],
		"a place that is a stream's own in part");
	is_int((int64_t)waits_of(&straight), 1, "is had behind a wait for the rest");
	ok(rig_is_sound(&straight), "the books agree");
	rig_close(&straight, 5);
}

/* Where an event in flight tells that places which were behind a wait are not any more, the first of them is had, though a
 * larger one is the stream's own. */
static void tells(void)
{
	struct CUstream_st *name[3];
	uint64_t part[5], large, waits;

	rig_open(&straight, STEPPED);
	for (int i = 0; i < 3; i++) {
		name[i] = rig_stream(&straight);
		rig_alloc(&straight, 3 * MIB, name[i]);
	}
	for (int i = 0; i < 5; i++) {
		part[i] = give(&straight, 8 * MIB, name[0]);
		rig_alloc(&straight, 3 * MIB, name[0]);
	}
	large = give(&straight, 16 * MIB, name[2]);
	rig_alloc(&straight, 3 * MIB, name[2]);
	for (int i = 0; i < 5; i++)
		rig_free(&straight, part[i], name[0]);
	rig_free(&straight, large, name[2]);
	ok(give(&straight, 8 * MIB, name[1]) == part[1], "a place is had behind a wait");
	glk_soft_run_all(straight.drv);
	waits = waits_of(&straight);
	ok(give(&straight, 8 * MIB, name[2]) == part[0], "and one once that has told");
	is_int((int64_t)(waits_of(&straight) - waits), 0, "behind none");
	ok(rig_is_sound(&straight), "the books agree");
	rig_close(&straight, 11);
}

/* A stream among so many that share a bit has what it freed itself, when all others that used it have finished. */
static void of_a_crowd(void)
{
	struct CUstream_st *own = NULL;
	uint64_t addr, calls, before;

	rig_open(&straight, STEPPED);
	for (int i = 0; i < GLK_STREAM_CROWD + 8; i++) {
		own = rig_stream(&straight);
		rig_alloc(&straight, 4 << 10, own);
	}
	addr = give(&straight, 8 * MIB, own);
	for (int i = 0; i < 7; i++) {
		if (glk_cache_use(
			    &straight.cache, addr, straight.stream[GLK_STREAM_CROWD + i]))
			tap_bail(rig_error().text);
	}
	rig_free(&straight, addr, own);
	glk_lock(&straight.cache.lock);
	glk_event_poll_whole(&straight.cache.streams, false);
	for (int i = 0; straight.stream[i] != own; i++)
		glk_soft_step(straight.drv, 0, straight.stream[i]);
	glk_event_poll_whole(&straight.cache.streams, false);
	glk_unlock(&straight.cache.lock);
	calls = rig_all_calls(&straight);
	before = rig_figures(&straight).called;
	ok(give(&straight, 8 * MIB, own) == addr,
		"a stream of a crowd has its own again");
	is_int((int64_t)(rig_all_calls(&straight) - calls), 0, "nobody is asked");
	is_int((int64_t)(rig_figures(&straight).called - before), 0, "nor is it said");
	is_int((int64_t)rig_figures(&straight).rungs[GLAKE_RUNG_CROSS_STREAM], 0,
		"or that it waits for another one");
	rig_close(&straight, GLK_STREAM_CROWD + 9);
}

/* Memory is not tight, whatever is stranded, while a fifth of it is free or idle: also where it is free alone. */
static void not_tight(void)
{
	uint64_t whole, addr;
	uint32_t page;

	rig_open(&straight, NULL);
	stream[0][0] = rig_stream(&straight);
	whole = rig_alloc(&straight, 64 * MIB, stream[0][0]);
	addr = rig_alloc(&straight, 8 * MIB, stream[0][0]);
	rig_free(&straight, whole, stream[0][0]);
	rig_alloc(&straight, 59 * MIB, stream[0][0]);
	ok(rig_figures(&straight).stranded > 0, "some is stranded");
	for (int i = 0; i < 20; i++) {
		if (glk_node_grow(straight.cache.node, 8 * MIB, &page))
			tap_bail("no page");
		glk_node_put(straight.cache.node, page);
	}
	shorts = 0;
	for (int i = 0; i < 100; i++) {
		const struct glk_times *times = &straight.cache.times[GLK_TIMED_REQUEST];
		uint32_t passed = glk_load_relaxed(&times->passed);

		rig_free(&straight, addr, stream[0][0]);
		addr = rig_alloc(&straight, 8 * MIB, stream[0][0]);
		shorts += glk_load_relaxed(&times->passed) != passed;
	}
	ok(shorts > 90, "%u of 100 requests were straight", shorts);
	rig_close(&straight, 2);
}

/* Keys of the configuration with which no request is straight. */
static const char *const keys[] = {"policy.ends=high", "pool.managed=yes", NULL};

/* While the GPU is suspended nobody has memory of it, also where a place is usable as it is. */
static void odd(void)
{
	uint64_t addr;

	rig_open(&straight, NULL);
	stream[0][0] = rig_stream(&straight);
	rig_free(&straight, rig_alloc(&straight, 64 * MIB, stream[0][0]), stream[0][0]);
	glk_store_relaxed(&straight.cache.suspended, true);
	ok(rig_try(&straight, 9 * MIB, stream[0][0], 0, &addr),
		"while it is suspended a request is refused");
	glk_store_relaxed(&straight.cache.suspended, false);
	ok(shorts_of(9 * MIB, stream[0][0], 20) > 10, "most are straight afterwards");
	is_int(rig_try(&straight, SIZE_MAX, stream[0][0], 0, &addr), -ENOMEM,
		"and none for more bytes than can be rounded");
	straight.cache.arena.map.hosted++;
	is_int(shorts_of(9 * MIB, stream[0][0], 20), 0,
		"and none while some memory is the host's");
	straight.cache.arena.map.hosted--;
	rig_close(&straight, 0);
	for (int i = 0; keys[i]; i++) {
		rig_open(&straight, (const char *const[]){keys[i], NULL});
		stream[0][0] = rig_stream(&straight);
		ok(!shorts_of(9 * MIB, stream[0][0], 20), "or with %s", keys[i]);
		rig_close(&straight, 0);
	}
}

/* A pair of requests for a size: whether the second one is a hit. */
static bool hits_again(size_t size, struct CUstream_st *a)
{
	uint64_t hits;

	rig_free(&straight, rig_alloc(&straight, size, a), a);
	hits = rig_figures(&straight).hits;
	rig_free(&straight, rig_alloc(&straight, size, a), a);
	return rig_figures(&straight).hits > hits;
}

/* A stream that has met others at the lock of late keeps its large blocks in bins, where they are hits; and no
 * longer when nobody waits for it. */
static void keeps(void)
{
	glk_atomic(uint32_t) *waiters = &straight.cache.lock.waiters;
	struct CUstream_st *a, *b;
	uint64_t freed;

	rig_open(&straight, NULL);
	a = rig_stream(&straight);
	b = rig_stream(&straight);
	ok(!hits_again(3 * MIB, a), "a large block is no hit while nobody waits");
	for (size_t i = 0; i < 4; i++) {
		/* as if a thread waited, once in so many */
		glk_store_relaxed(waiters, 1);
		rig_free(&straight, rig_alloc(&straight, 3 * MIB, a), a);
		glk_store_relaxed(waiters, 0);
		for (size_t k = 0; k < GLK_MET_STEP; k++)
			rig_free(&straight, rig_alloc(&straight, 3 * MIB, a), a);
	}
	ok(!hits_again(3 * MIB, a), "nor where somebody does now and then");
	glk_store_relaxed(waiters, 1);
	for (int i = 0; i < 4; i++)
		hits_again(5 * MIB, a);
	ok(hits_again(3 * MIB, a) && hits_again(5 * MIB, a),
		"it is one where somebody waits each time");
	is_int((int64_t)rig_figures(&straight).quick, 8 * (int64_t)MIB,
		"which lie in bins meanwhile");
	ok(!hits_again(3 * MIB, b), "another stream has met nobody");
	glk_store_relaxed(waiters, 1);
	for (int i = 0; i < 8; i++)
		rig_free(&straight, rig_alloc(&straight, 3 * MIB, GLK_STREAM_PER_THREAD),
			GLK_STREAM_PER_THREAD);
	ok(!hits_again(3 * MIB, GLK_STREAM_PER_THREAD),
		"a thread's default stream keeps none");
	glk_store_relaxed(waiters, 0);
	ok(hits_again(3 * MIB, a), "what it has stays");
	for (size_t i = 0; i < GLK_MET_MOST; i++)
		rig_free(&straight, rig_alloc(&straight, (10 + i) * MIB, a), a);
	ok(!hits_again(7 * MIB, a),
		"and what is born when nobody waits any more is none");
	is_int((int64_t)rig_figures(&straight).quick, 0, "what it kept made way");
	glk_store_relaxed(waiters, 1);
	for (int i = 0; i < 4; i++)
		hits_again(5 * MIB, b);
	glk_store_relaxed(waiters, 0);
	glk_cache_stream_end(&straight.cache, b);
	b = rig_stream(&straight);
	ok(!hits_again(5 * MIB, b),
		"nor does a stream that has the number of one that ended");
	ok(rig_is_sound(&straight), "the books agree");
	glk_cache_trim(&straight.cache, 0, false, &freed);
	is_int((int64_t)rig_figures(&straight).reserved, 0, "a trim has all of it");
	rig_close(&straight, 0);
}

int main(void)
{
	tap_plan_later();
	not_tight();
	odd();
	keeps();
	stitched();
	hands_over();
	half_way();
	captured();
	chooses();
	tells();
	of_a_crowd();
	seed = seed_thread(seed_start(), 1);
	same_places(1, "policy.target=auto");
	same_places(1, "policy.target=1.005");
	same_places(3, "policy.target=auto");
	same_places(3, "policy.target=1.005");
	return tap_done();
}
