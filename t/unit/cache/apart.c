/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Requests and frees with a part of the lock of the GPU: which they are, what they leave to who has all of it, and when
 * streams have arenas for that. */
#include "cache/bin/own.h"
#include "unit/cache/stepped.h"

#define BLOCK (3 * MIB)

static struct rig rig;
static struct CUstream_st *a, *b;
static uint64_t kept; /* one of a that lives */

static struct glk_row *row_of(const struct CUstream_st *stream)
{
	uint32_t id = glk_stream_find(&rig.cache.streams, (struct CUstream_st *)stream);

	return &rig.cache.rows[id];
}

static uint32_t number_of(uint64_t addr)
{
	return glk_arena_of(glk_cache_range(&rig.cache, addr))->number;
}

/* As if its thread had met others all the time; under the lock. */
static void meet(const struct CUstream_st *stream)
{
	glk_supply_sum(&rig.cache);
	rig.cache.crowded = true;
	glk_poke_relaxed(&row_of(stream)->met, GLK_MET_MOST);
	row_of(stream)->same = GLK_OWN_SAME;
}

/* Two streams, of which a has an arena, as it has where threads meet. */
static void begin(const char *setting)
{
	rig_open(&rig,
		(const char *const[]){"policy.target=auto", "soft.streams=stepped",
			"soft.memory=16GiB", "map.span=64GiB", setting, NULL});
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	rig_free(&rig, rig_alloc(&rig, BLOCK, b), b);
	kept = rig_alloc(&rig, BLOCK, a);
	glk_lock(&rig.cache.lock);
	meet(a);
	glk_unlock(&rig.cache.lock);
	rig_free(&rig, rig_alloc(&rig, 40 * MIB, a), a);
	if (!glk_load_relaxed(&row_of(a)->own))
		tap_bail("the stream has no arena");
}

static void end(size_t live)
{
	is_sound(&rig, "the books agree");
	rig_close(&rig, live);
}

static void divide(void)
{
	glk_lock_short(&rig.cache.lock, 0);
	glk_load_relaxed(&rig.cache.owns)->rest = 0;
	glk_own_divide(&rig.cache);
	glk_unlock_short(&rig.cache.lock, 0, &rig.cache.times[GLK_TIMED_FREE]);
}

static bool divided(void)
{
	return glk_load_relaxed(&rig.cache.lock.divided);
}

static const struct glk_own_part *part(void)
{
	return &glk_load_relaxed(&rig.cache.owns)->part[0];
}

static uint64_t apart(void)
{
	return glk_load_relaxed(&rig.cache.owns)->apart;
}

/* They need no more, and the figures are what they are otherwise. */
static void served(void)
{
	struct glake_stats before, after;
	uint64_t addr[3], calls;

	begin(NULL);
	before = rig_figures(&rig);
	calls = rig.cache.called;
	divide();
	for (unsigned i = 0; i < 3; i++)
		addr[i] = rig_alloc(&rig, (i + 1) * MIB, a);
	ok(divided(), "requests of a stream with an arena need a part of the lock");
	is_int(part()->served, 3, "which are to be booked");
	ok(number_of(addr[0]) && number_of(addr[2]), "they lie in that arena");
	is_int(rig_free(&rig, addr[1], a), 0, "a free does as well");
	ok(divided() && part()->freed == 1, "likewise");
	is_int(rig_free(&rig, addr[1], a), -EINVAL, "twice is refused");
	after = rig_figures(&rig);
	ok(!divided(), "figures are read with all of the lock");
	is_int((int64_t)(after.allocs - before.allocs), 3, "with three requests more");
	is_int((int64_t)(after.frees - before.frees), 1, "and one free");
	is_int((int64_t)apart(), 4, "all of them booked");
	is_int((int64_t)(rig.cache.called - calls), 0, "without a call of the driver");
	is_int((int64_t)(after.live - before.live), 4 * (int64_t)MIB, "bytes are live");
	ok(after.reserved == before.reserved, "in memory that was there");
	rig_free(&rig, addr[0], a);
	rig_free(&rig, addr[2], a);
	end(1);
}

/* What lies aside, and its neighbours, merge where a place is wanted. */
static void merges(void)
{
	uint64_t addr[6], whole;

	begin(NULL);
	whole = rig_alloc(&rig, 36 * MIB, a);
	rig_free(&rig, whole, a);
	divide();
	for (unsigned i = 0; i < 6; i++)
		addr[i] = rig_alloc(&rig, 6 * MIB, a);
	for (unsigned i = 0; i < 6; i++)
		rig_free(&rig, addr[i], a);
	ok(rig_alloc(&rig, 36 * MIB, a) == whole, "six blocks are one place again");
	ok(divided(), "by a part of the lock");
	rig_free(&rig, whole, a);
	divide();
	for (unsigned i = 0; i < 6; i++)
		addr[i] = rig_alloc(&rig, 6 * MIB, a);
	for (unsigned i = 0; i < 6; i += 2)
		rig_free(&rig, addr[i], a);
	whole = rig_alloc(&rig, 6 * MIB, a);
	ok(whole == addr[0] || whole == addr[2] || whole == addr[4],
		"one that lies aside is given again");
	ok(divided(), "without any lock");
	end(5);
}

/* Ten thousand of random sizes need no turn of all of it but for what is mapped. */
static void lasts(void)
{
	uint64_t live[4] = {0}, state = 1;
	unsigned joined = 0;

	begin(NULL);
	for (unsigned i = 0; i < 10000; i++) {
		uint64_t size = MIB + (state >> 40) % 4096 * 512;

		state = state * 6364136223846793005u + 1442695040888963407u;
		if (!divided()) {
			divide();
			joined++;
		}
		if (live[i % 4])
			rig_free(&rig, live[i % 4], a);
		live[i % 4] = rig_alloc(&rig, size, a);
	}
	tap_note("joined %u times", joined);
	ok(joined < 100, "a hundredth of them at most");
	for (unsigned i = 0; i < 4; i++)
		rig_free(&rig, live[i], a);
	end(1);
}

/* One thing after the other that is for who has all of the lock. */
static void others(void)
{
	uint64_t addr[5], mine;

	begin(NULL);
	for (unsigned i = 0; i < 5; i++)
		addr[i] = rig_alloc(&rig, (i + 1) * MIB, a);
	mine = rig_alloc(&rig, BLOCK, b);
	divide();
	rig_free(&rig, addr[0], b);
	ok(!divided(), "a free on another stream");
	is_int(glk_cache_use(&rig.cache, addr[1], b), 0,
		"a block is used on another one");
	divide();
	rig_free(&rig, addr[1], a);
	ok(!divided(), "which its free tells of");
	divide();
	rig_free(&rig, kept, a);
	ok(!divided(), "a block from before the stream had its arena");
	divide();
	rig_free(&rig, mine, b);
	ok(!divided(), "one of a stream that has none");
	divide();
	mine = rig_alloc(&rig, 2 * BLOCK, b);
	ok(!divided(), "a request of that");
	divide();
	addr[0] = rig_alloc(&rig, 400 * MIB, a);
	ok(!divided(), "one that memory has to be mapped for");
	rig_free(&rig, addr[0], a);
	rig_free(&rig, mine, b);
	divide();
	glk_lock(&rig.cache.lock);
	glk_own_leave(&rig.cache);
	glk_unlock(&rig.cache.lock);
	ok(!divided(), "and when the stream has no arena any more");
	rig_free(&rig, addr[2], a);
	ok(number_of(rig_alloc(&rig, BLOCK, a)) == 0, "its requests are as all others");
	rig_free(&rig, addr[3], a);
	rig_free(&rig, addr[4], a);
	end(1);
}

/* A request tells that the capture of its stream is over, so that others may wait for it. */
static void captured(void)
{
	struct glk_stream *on;
	uint64_t addr;
	int err;

	begin(NULL);
	on = glk_stream_at(&rig.cache.streams, (uint32_t)(row_of(a) - rig.cache.rows));
	rig_capture(&rig, a);
	glk_lock(&rig.cache.lock);
	err = glk_event_ready(&rig.cache.streams, on);
	glk_unlock(&rig.cache.lock);
	rig_drop(&rig, rig_capture_end(&rig, a));
	is_int(err, -EAGAIN, "others see that it captures");
	ok(glk_stream_silent(on), "which is known until it asks for memory");
	divide();
	addr = rig_alloc(&rig, BLOCK, a);
	ok(!glk_stream_silent(on), "and no longer");
	divide();
	rig_free(&rig, addr, a);
	rig_free(&rig, rig_alloc(&rig, 2 * BLOCK, a), a);
	ok(divided(), "from then on a part of the lock will do again");
	end(1);
}

/* The arena is another stream's by now. */
static void succeeds(void)
{
	uint64_t addr[3], mine, unused;

	begin(NULL);
	for (unsigned i = 0; i < 3; i++)
		addr[i] = rig_alloc(&rig, (i + 1) * MIB, a);
	mine = rig_alloc(&rig, BLOCK, b);
	/* so that what it gets has no mapping of a */
	glk_cache_trim(&rig.cache, 0, false, &unused);
	glk_lock(&rig.cache.lock);
	glk_own_leave(&rig.cache);
	meet(b);
	glk_unlock(&rig.cache.lock);
	rig_free(&rig, rig_alloc(&rig, 80 * MIB, b), b);
	divide();
	rig_free(&rig, rig_alloc(&rig, 79 * MIB, b), b);
	ok(divided(), "its part of the lock is another stream's with it");
	rig_free(&rig, addr[0], a);
	ok(!divided(), "a free on the one before");
	divide();
	rig_free(&rig, addr[1], b);
	ok(!divided(), "or of a block of that one");
	rig_free(&rig, addr[2], a);
	rig_free(&rig, mine, b);
	end(1);
}

/* Memory that was freed so is another stream's behind the work on it: the device refuses what nothing orders. */
static void ordered(void)
{
	uint64_t addr, waits;

	begin("pool.budget=400MiB");
	rig_free(&rig, kept, a);
	rig_free(&rig, give(&rig, BLOCK, a), a);
	/* all of it is known to have finished */
	glk_lock(&rig.cache.lock);
	if (glk_clock_sync_all(&rig.cache.streams))
		tap_bail(rig_error().text);
	glk_unlock(&rig.cache.lock);
	divide();
	addr = give(&rig, 2 * BLOCK, a);
	rig_free(&rig, addr, a);
	ok(divided(), "a block that a kernel is at is freed");
	waits = waits_of(&rig) + rig_calls(&rig, GLAKE_CALL_SYNC);
	addr = give(&rig, 396 * MIB, b);
	ok(waits_of(&rig) + rig_calls(&rig, GLAKE_CALL_SYNC) > waits,
		"another stream that gets the memory waits for it");
	glk_soft_run_all(rig.drv);
	rig_free(&rig, addr, b);
	end(0);
}

/* Threads that meet now and then are no trouble, those that meet all the time are. */
static void crowds(void)
{
	struct glk_cache *cache = &rig.cache;
	struct glk_row *row;
	unsigned met = 0;
	bool due = false;

	rig_open(&rig,
		(const char *const[]){"policy.target=auto", "soft.memory=16GiB",
			"map.span=64GiB", NULL});
	a = rig_stream(&rig);
	kept = rig_alloc(&rig, BLOCK, a);
	row = row_of(a);
	glk_lock(&cache->lock);
	glk_supply_sum(cache);
	glk_poke_relaxed(&row->met, GLK_MET_MOST);
	row->same = GLK_OWN_SAME;
	for (unsigned i = 0; i < 10000; i++) {
		cache->sum.allocs += GLK_TROUBLE + 1;
		due |= glk_own_met(cache, row);
	}
	ok(!due, "one request in seventeen that met others");
	while (!due && met < 10000) {
		cache->sum.allocs++;
		due = glk_own_met(cache, row);
		met++;
	}
	tap_note("%u in a row", met);
	ok(due && met > 1000 && met < 1200, "a thousand of them in a row are many");
	ok(cache->crowded, "so streams get arenas");
	row->same = GLK_OWN_SAME - 1;
	ok(!glk_own_met(cache, row), "but none that several threads use by turns");
	row->same = GLK_OWN_SAME;
	glk_own_leave(cache);
	ok(!cache->crowded && !glk_own_met(cache, row), "until they all lose them");
	glk_unlock(&cache->lock);
	rig_close(&rig, 1);
}

/* What may be held where threads meet is for those that do. */
static void keeps(void)
{
	struct glk_cache *cache = &rig.cache;
	uint64_t large, addr;

	begin(NULL);
	large = rig_alloc(&rig, 600 * MIB, b);
	glk_lock(&cache->lock);
	glk_supply_sum(cache);
	ok(glk_supply_target(cache, 0) < 700 * MIB,
		"what others have is no reason to hold more");
	for (unsigned i = 0; i < GLK_TROUBLE_MUCH; i++)
		glk_own_waited(cache);
	ok(!cache->waited && cache->crowded,
		"a stream that waits has an arena in small jobs alone");
	glk_unlock(&cache->lock);
	addr = rig_alloc(&rig, 100 * MIB, a);
	ok(number_of(addr), "one that met others keeps its own");
	rig_free(&rig, addr, a);
	glk_lock(&cache->lock);
	glk_poke_relaxed(&row_of(a)->met, 0);
	glk_unlock(&cache->lock);
	addr = rig_alloc(&rig, 200 * MIB, a);
	ok(!number_of(addr) && cache->crowded, "until it has met nobody of late");
	rig_free(&rig, addr, a);
	rig_free(&rig, large, b);
	end(1);
}

int main(void)
{
	tap_plan_later();
	keeps();
	served();
	merges();
	lasts();
	others();
	captured();
	succeeds();
	ordered();
	crowds();
	return tap_done();
}
