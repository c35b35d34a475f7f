/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Large blocks that stay whole where nothing beside them is free: who has them, and when they merge after all. */
#include "unit/cache/rig.h"

#include <errno.h>

#define BLOCK (4 * MIB)
#define MANY  (2 * GLK_LOOKASIDE + 4)

static struct rig rig;
static struct CUstream_st *a, *b;
static uint64_t addr[MANY];

/* Blocks in a row, of which those with an odd number have others on both sides. */
static void begin(const char *setting)
{
	rig_open(&rig, (const char *const[]){"policy.target=1.1", setting, NULL});
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	for (int i = 0; i < MANY; i++)
		addr[i] = rig_alloc(&rig, BLOCK, a);
}

static uint64_t hits(void)
{
	return rig_figures(&rig).hits;
}

static uint64_t quick(void)
{
	return rig_figures(&rig).quick;
}

/* The lock's turns so far. */
static uint64_t turns(void)
{
	struct glake_histogram sum;

	glk_times_read(&rig.cache.times[GLK_TIMED_HOLD], &sum);
	return sum.count;
}

static void stays_whole(void)
{
	uint64_t before, locked;

	begin(NULL);
	rig_free(&rig, addr[1], a);
	is_int((int64_t)quick(), BLOCK, "one between two others waits");
	before = hits();
	locked = turns();
	ok(rig_alloc(&rig, BLOCK - 100, a) == addr[1], "the next of its size has it");
	ok(turns() == locked, "without the lock");
	is_int((int64_t)(hits() - before), 1, "which is a hit");
	is_int((int64_t)quick(), 0, "it waits no longer");
	is_int((int64_t)rig_query(&rig, addr[1]).size, BLOCK - 100,
		"as it was asked for");
	is_sound(&rig, "the books agree");
	is_int(rig_free(&rig, addr[1], a), 0, "it is freed");
	is_int(rig_free(&rig, addr[1], a), -EINVAL, "and not twice");
	rig_free(&rig, addr[2], a);
	rig_free(&rig, addr[3], a);
	is_int((int64_t)quick(), 3 * BLOCK, "so do those beside each other");
	ok(rig_alloc(&rig, 3 * BLOCK, a) == addr[1],
		"which are one place for whoever finds no other");
	is_sound(&rig, "the books agree");
	rig_close(&rig, MANY - 2);
}

/* What is beside a block that becomes free merges with it; and what lies beside free memory does not wait. */
static void merges(void)
{
	begin(NULL);
	rig_free(&rig, addr[3], a);
	rig_free(&rig, addr[5], a);
	rig_free(&rig, addr[4], b);
	is_int((int64_t)quick(), 0,
		"those on both sides of what another stream frees merge");
	rig_free(&rig, addr[6], a);
	is_int((int64_t)quick(), 0, "one beside free memory does not wait");
	rig_free(&rig, addr[8], a);
	rig_free(&rig, addr[7], a);
	is_int((int64_t)quick(), 0, "and has the one behind it merge too");
	is_sound(&rig, "the books agree");
	ok(rig_alloc(&rig, 6 * BLOCK, b) == addr[3],
		"a large one lies across all of them");
	rig_close(&rig, MANY - 5);
}

/* As many as there are places; then one goes for each that comes. */
static void has_an_end(void)
{
	uint64_t most = GLK_LOOKASIDE * (uint64_t)BLOCK;

	begin(NULL);
	for (int i = 1; i < MANY; i += 2)
		rig_free(&rig, addr[i], a);
	is_int((int64_t)quick(), (int64_t)most, "no more than the list has places for");
	ok(glk_tree_largest(&rig.cache.arena.map, &rig.cache.arena.map.common) >= BLOCK,
		"the others are free");
	is_sound(&rig, "the books agree");
	ok(rig_alloc(&rig, BLOCK, b) == addr[1], "which were there for longest");
	rig_close(&rig, MANY / 2 + 1);
}

/* What else makes them merge. */
static void goes_back(void)
{
	uint64_t unused, mapped;

	begin("pool.budget=96MiB");
	ok(MANY * BLOCK < 96 * MIB && (MANY + 5) * BLOCK > 96 * MIB,
		"there is room for four");
	rig_free(&rig, addr[1], a);
	mapped = rig_figures(&rig).reserved;
	ok(rig_alloc(&rig, BLOCK / 2, a) == addr[1], "a size that has no place");
	is_int((int64_t)rig_figures(&rig).reserved, (int64_t)mapped,
		"for which nothing is made");
	rig_free(&rig, addr[5], a);
	rig_free(&rig, addr[7], a);
	for (int i = 0; i < 6; i++)
		ok(rig_alloc(&rig, BLOCK, b),
			"another stream has what is left, and then that");
	is_int((int64_t)quick(), 0, "none waits when memory is short");
	rig_free(&rig, addr[9], a);
	is_int(glk_cache_trim(&rig.cache, 0, false, &unused), 0, "trimmed");
	is_int((int64_t)quick(), 0, "nor after a trim");
	is_sound(&rig, "the books agree");
	rig_free(&rig, addr[11], a);
	glk_cache_stream_end(&rig.cache, a);
	is_int((int64_t)quick(), 0, "nor when its stream has ended");
	is_sound(&rig, "the books agree");
	rig_close(&rig, MANY + 2);
}

/* Blocks that more was done with, and streams whose memory others are to have soon. */
static void never(void)
{
	begin(NULL);
	is_int(glk_cache_use(&rig.cache, addr[1], b), 0, "one that another stream used");
	rig_free(&rig, addr[1], a);
	rig_free(&rig, addr[3], b);
	is_int((int64_t)quick(), 0, "does not wait, nor one that another stream frees");
	rig_free(&rig, rig_alloc(&rig, 3 * BLOCK, GLK_STREAM_PER_THREAD),
		GLK_STREAM_PER_THREAD);
	is_int((int64_t)quick(), 0, "nor one of a thread's default stream");
	rig_begin(&rig, 1, b);
	rig_free(&rig, addr[5], a);
	is_int((int64_t)quick(), 0, "nor while a graph may be captured");
	rig_end_pool(&rig, 1);
	rig_release(&rig, 1);
	is_sound(&rig, "the books agree");
	rig_close(&rig, MANY - 3);
	begin("policy.bins=0");
	rig_free(&rig, addr[1], a);
	is_int((int64_t)quick(), 0, "nor where there are no bins");
	rig_close(&rig, MANY - 1);
	begin("policy.target=1.005");
	rig_free(&rig, addr[1], a);
	is_int((int64_t)quick(), 0, "nor where memory is short");
	rig_close(&rig, MANY - 1);
}

/* A capture that nobody announced has none of them. */
static void captured(void)
{
	uint64_t in;

	begin(NULL);
	rig_free(&rig, addr[1], a);
	rig_capture(&rig, a);
	in = rig_alloc(&rig, BLOCK, a);
	ok(in != addr[1] && rig_pool_of(&rig, in), "its block is of a pool");
	rig_free(&rig, in, a);
	rig_drop(&rig, rig_capture_end(&rig, a));
	is_int((int64_t)quick(), BLOCK, "the other one waits still");
	rig_close(&rig, MANY - 1);
}

/* Calls by which one stream comes behind another. */
static uint64_t waits(void)
{
	return rig_calls(&rig, GLAKE_CALL_STREAM_WAIT);
}

static void follow(struct CUevent_st *event)
{
	is_int(glk_cache_event_recorded(&rig.cache, event, a), 0, "an event is noted");
	rig_follow(&rig, b, a, event);
}

static void waited(const struct CUevent_st *event)
{
	is_int(glk_cache_stream_waited(&rig.cache, b, event), 0, "and who waits for it");
}

/* What others know of the free is true of the block when it merges: whatever the stream does since. */
static void merges_as_freed(void)
{
	struct CUevent_st *event;
	uint64_t before;

	begin("pool.budget=80MiB");
	is_int(MANY * BLOCK, 80 * MIB, "there is room for no more");
	event = rig_event(&rig);
	rig_free(&rig, addr[1], a);
	follow(event);
	waited(event);
	rig_work(&rig, addr[0], BLOCK, a);
	rig_capture(&rig, a);
	before = waits();
	ok(rig_alloc(&rig, BLOCK, b),
		"who comes behind the free has the memory, though nobody could wait for its stream");
	is_int((int64_t)(waits() - before), 0, "and waits for nothing");
	rig_drop(&rig, rig_capture_end(&rig, a));
	is_sound(&rig, "the books agree");
	rig_close(&rig, MANY);
}

/* A trim gives back what has finished. */
static void is_trimmed(void)
{
	uint64_t released;

	begin("policy.target=1.5");
	rig_free(&rig, rig_alloc(&rig, BLOCK, b), b);
	rig_work(&rig, addr[4], 2 * BLOCK, a);
	rig_free(&rig, addr[4], a);
	rig_free(&rig, addr[5], a);
	glk_lock(&rig.cache.lock);
	glk_event_poll(&rig.cache.streams);
	glk_unlock(&rig.cache.lock);
	glk_soft_run_all(rig.drv);
	glk_soft_hold(rig.drv, 0, a, true);
	rig_work(&rig, addr[0], BLOCK, a);
	is_int(glk_cache_trim(&rig.cache, 0, false, &released), 0, "trimmed");
	ok(released >= 2 * BLOCK,
		"with what the stream has used, though it is at work again");
	is_int((int64_t)rig_figures(&rig).idle, 0, "nothing idle is left");
	glk_soft_hold(rig.drv, 0, a, false);
	rig_close(&rig, MANY - 2);
}

/* One that merges late hides nothing of what was freed after it and merged before it, in the slot that both lie in. */
static void hides_nothing(void)
{
	uint64_t left, mid, right, got, before;
	struct CUevent_st *event;

	rig_open(&rig, (const char *const[]){"policy.target=1.5", NULL});
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	event = rig_event(&rig);
	rig_alloc(&rig, 2 * MIB, a);
	left = rig_alloc(&rig, 5 * MIB / 2, a);
	mid = rig_alloc(&rig, MIB / 2, a);
	right = rig_alloc(&rig, MIB, a);
	for (int i = 0; i < MANY; i++)
		addr[i] = rig_alloc(&rig, BLOCK, a);
	ok(left % (2 * MIB) == 0 && left + 5 * MIB / 2 == mid && mid + MIB / 2 == right,
		"one ends in the slot that another one fills");
	rig_free(&rig, addr[1], a);
	rig_free(&rig, left, a);
	follow(event);
	ok(rig_alloc(&rig, BLOCK, a) == addr[1],
		"the first place of the list is free again");
	glk_soft_hold(rig.drv, 0, a, true);
	rig_work(&rig, right, MIB, a);
	rig_free(&rig, right, a);
	for (int i = 1; i <= 2 * GLK_LOOKASIDE; i += 2)
		rig_free(&rig, addr[i], a);
	is_int((int64_t)quick(), GLK_LOOKASIDE * (int64_t)BLOCK,
		"neither is there any more");
	waited(event);
	before = waits();
	got = rig_alloc(&rig, MIB, b);
	ok(got != right || waits() > before, "who has the later one waits for its work");
	glk_soft_hold(rig.drv, 0, a, false);
	is_sound(&rig, "the books agree");
	rig_close(&rig, MANY + 3 - GLK_LOOKASIDE);
}

int main(void)
{
	tap_plan_later();
	stays_whole();
	merges();
	has_an_end();
	goes_back();
	never();
	captured();
	merges_as_freed();
	is_trimmed();
	hides_nothing();
	return tap_done();
}
