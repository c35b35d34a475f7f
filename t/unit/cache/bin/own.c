/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Streams that have arenas to themselves: who gets one, what it is good for, and when it goes. */
#include "cache/bin/own.h"
#include "guard/guard.h"
#include "unit/cache/stepped.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#define BLOCK (40 * MIB) /* more than may be held beside what is live */
#define MANY                                                                             \
	(GLK_TROUBLE_MUCH / (GLK_TROUBLE - 1) + 1) /* waits with nothing between them */

static struct rig rig;
static struct CUstream_st *a, *b;

/* Two streams with a live block each, whose work goes on. */
static void begin(const char *setting)
{
	rig_open(&rig,
		(const char *const[]){"policy.target=auto", "soft.streams=stepped",
			"soft.memory=16GiB", "soft.host_memory=2GiB", "map.span=64GiB",
			setting, NULL});
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	give(&rig, BLOCK, a);
	give(&rig, BLOCK, b);
}

/* A block that a kernel on the stream is at, and its free. */
static uint64_t turn(struct CUstream_st *stream)
{
	uint64_t addr = give(&rig, BLOCK, stream);

	rig_free(&rig, addr, stream);
	return addr;
}

/* They hand it to and fro, and wait each time. */
static void trouble(unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		turn(a);
		turn(b);
	}
}

static const struct glk_arena *arena_of(uint64_t addr)
{
	return glk_arena_of(glk_cache_range(&rig.cache, addr));
}

static unsigned number_of(uint64_t addr)
{
	return arena_of(addr)->number;
}

/* Has the two in trouble until one of them, which is a from then on, has an arena. */
static void part(void)
{
	trouble(MANY);
	if (number_of(turn(a)))
		return;
	if (!number_of(turn(b)))
		tap_bail("no stream has an arena");
	struct CUstream_st *other = a;
	a = b;
	b = other;
}

static uint64_t taken(void)
{
	return glk_own_any(&rig.cache) ? glk_load_relaxed(&rig.cache.owns)->taken : 0;
}

/* All that is queued has run. */
static void run_all(void)
{
	int err;

	glk_lock(&rig.cache.lock);
	err = glk_clock_sync_all(&rig.cache.streams);
	glk_unlock(&rig.cache.lock);
	if (err)
		tap_bail(rig_error().text);
}

static void gets_one(void)
{
	uint64_t waits, addr;

	begin(NULL);
	trouble(MANY / 2 - 1);
	is_int((int64_t)taken(), 0, "a few waits are no trouble");
	part();
	is_int((int64_t)taken(), 1, "after many one of the two has one");
	waits = waits_of(&rig);
	addr = turn(a);
	ok(number_of(addr) && !number_of(turn(b)), "in which its blocks lie");
	is_int(arena_of(addr)->ops->kind, GLAKE_ARENA_COMMON, "as those of all others");
	trouble(MANY);
	is_int((int64_t)(waits_of(&rig) - waits), 0, "and none waits any more");
	ok(turn(a) == addr, "a stream has what it freed");
	addr = rig_alloc(&rig, 512, a);
	is_int(number_of(addr), 0, "small blocks lie among those of all");
	rig_free(&rig, addr, a);
	is_sound(&rig, "the books agree");
	run_all();
	rig_close(&rig, 2);
}

/* A block of an arena is freed by whoever has it, and asked about as any. */
static void as_any(void)
{
	struct CUstream_st *c;
	uint64_t addr, other;

	begin(NULL);
	part();
	c = rig_stream(&rig);
	addr = give(&rig, 3 * BLOCK, a);
	other = give(&rig, 3 * BLOCK, a);
	ok(number_of(addr), "one of an arena of a stream");
	is_int((int64_t)rig_query(&rig, addr).size, 3 * BLOCK, "is known by its size");
	is_int(glk_cache_use(&rig.cache, addr, c), 0, "used on another stream");
	is_int(rig_free(&rig, addr, a), 0, "and freed");
	is_int(rig_free(&rig, addr, a), -EINVAL, "not twice");
	is_int(rig_free(&rig, other, c), 0, "one is freed on another stream");
	give(&rig, 5 * BLOCK, a);
	is_sound(&rig, "the books agree");
	run_all();
	rig_close(&rig, 3);
}

/* When a stream ends its arena is the next one's. */
static void ends(void)
{
	uint64_t first;

	begin(NULL);
	part();
	first = taken();
	run_all();
	glk_cache_stream_end(&rig.cache, a);
	is_int((int64_t)taken(), 0, "the arena of a stream that ended is nobody's");
	is_sound(&rig, "the books agree");
	a = rig_stream(&rig);
	give(&rig, BLOCK, a);
	part();
	is_int((int64_t)taken(), (int64_t)first, "and the next one's that needs one");
	is_int(glk_own_made(&rig.cache), 1, "there is no other");
	is_sound(&rig, "the books agree");
	run_all();
	rig_close(&rig, 3);
}

/* What keeps streams from having one, or takes them away. */
static void has_none(void)
{
	uint64_t addr;

	begin("policy.target=1.10");
	trouble(2 * MANY);
	is_int((int64_t)taken(), 0, "none has one with a target that is a number");
	run_all();
	rig_close(&rig, 2);
	begin("soft.memory=4GiB");
	trouble(2 * MANY);
	is_int((int64_t)taken(), 0, "nor where what is live is much of the GPU");
	run_all();
	rig_close(&rig, 2);
	begin(NULL);
	part();
	is_int((int64_t)taken(), 1, "where it is little they do");
	addr = turn(a);
	give(&rig, 200 * MIB, a);
	give(&rig, 100 * MIB, a);
	is_int((int64_t)taken(), 0, "until it is much");
	ok(!number_of(turn(a)) && number_of(addr), "then they are as all others");
	is_sound(&rig, "the books agree");
	run_all();
	rig_close(&rig, 4);
}

/* Guard has them go, and knows no block that was born in one. */
static void guarded(void)
{
	struct CUstream_st *c;
	uint64_t addr[3];
	int i;

	begin(NULL);
	c = rig_stream(&rig);
	part();
	for (i = 0; i < 3; i++)
		addr[i] = give(&rig, BLOCK / 2, a);
	run_all();
	ok(number_of(addr[2]), "blocks of an arena of a stream");
	is_int(glk_guard_set(&rig.cache, GLK_GUARD_CANARY, 1), 0, "guard looks on");
	is_int((int64_t)taken(), 0, "no stream has an arena then");
	is_int(rig_free(&rig, addr[0], a), 0, "one that was born in one is freed");
	is_int(rig_free(&rig, addr[1], c), 0, "one on another stream");
	is_int(glk_cache_free_after(&rig.cache, addr[2], NULL, 0), 0,
		"and one behind no work");
	glk_guard_set(&rig.cache, GLK_GUARD_OFF, 1);
	is_sound(&rig, "the books agree");
	glk_guard_fini(&rig.cache);
	rig_close(&rig, 2);
}

/* Where there is no memory for its tables a stream goes on without one, and is not tried with each request. */
static void cannot(uint32_t allowed)
{
	struct glake_error before, after;

	begin(NULL);
	before = rig_error();
	glk_region_fail_after(allowed + 1);
	trouble(MANY);
	glk_region_fail_after(0);
	after = rig_error();
	is_int((int64_t)taken(), 0, "none has one for which there are no tables");
	ok(!strcmp(before.text, after.text), "which is no error");
	trouble(MANY / 4);
	is_int((int64_t)taken(), 0, "nor is it tried at once");
	part();
	is_int((int64_t)taken(), 1, "later there is one");
	is_sound(&rig, "the books agree");
	run_all();
	rig_close(&rig, 2);
}

/* They may hold three times what is live, a rest ends that, and what lies idle goes to whoever needs it. */
static void holds_more(void)
{
	uint64_t most, unused;

	begin(NULL);
	part();
	glk_lock(&rig.cache.lock);
	most = glk_supply_target(&rig.cache, 0);
	is_int((int64_t)most, 9 * BLOCK, "three times what was live may be held");
	glk_fill_settle(&rig.cache);
	ok(glk_supply_target(&rig.cache, 0) < most / 2, "until there is a rest");
	glk_unlock(&rig.cache.lock);
	is_int((int64_t)taken(), 0, "with which the streams have no arenas any more");
	run_all();
	is_int(glk_cache_trim(&rig.cache, 0, false, &unused), 0, "trimmed");
	is_int((int64_t)rig_figures(&rig).reserved, 2 * BLOCK, "all that is idle goes");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 2);
}

static void release_idle(void)
{
	run_all();
	glk_lock(&rig.cache.lock);
	glk_quick_flush(&rig.cache);
	glk_trim_release(&rig.cache.arena, rig.cache.node, UINT64_MAX, UINT32_MAX, NULL);
	glk_unlock(&rig.cache.lock);
}

/* The last page of a block is a large one, which what comes next has, also where others lie beyond. */
static void shares_a_page(void)
{
	uint64_t addr[4], held, unused;

	begin(NULL);
	part();
	addr[0] = rig_alloc(&rig, BLOCK, a);
	addr[1] = rig_alloc(&rig, BLOCK, a);
	ok(number_of(addr[0]) && addr[1] > addr[0], "two in the arena of a stream");
	rig_free(&rig, addr[0], a);
	release_idle();
	held = rig_figures(&rig).reserved;
	addr[2] = rig_alloc(&rig, 21 * MIB, a);
	is_int((int64_t)(addr[2] - addr[0]), 0, "one comes in place of the first");
	is_int((int64_t)(rig_figures(&rig).reserved - held), 24 * MIB,
		"with three pages of 8 MiB");
	addr[3] = rig_alloc(&rig, 11 * MIB, a);
	is_int((int64_t)(addr[3] - addr[2]), 21 * MIB, "the next begins in the last");
	is_int((int64_t)(rig_figures(&rig).reserved - held), 32 * MIB,
		"and has one more");
	for (int i = 1; i < 4; i++)
		rig_free(&rig, addr[i], a);
	run_all();
	is_int(glk_cache_trim(&rig.cache, 0, false, &unused), 0, "trimmed");
	is_int((int64_t)rig_figures(&rig).reserved, 2 * BLOCK, "all that is idle goes");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 2);
}

/* What is mapped in a slot is lost, as where the driver maps neither new pages there nor the old ones again. */
static void lose(struct glk_map *map, uint32_t slot)
{
	uint32_t pages;

	glk_lock(&rig.cache.lock);
	pages = glk_swap_take(map, slot, slot);
	if (glk_swap_unmap(map, slot, slot))
		tap_bail(rig_error().text);
	glk_swap_lose(map, slot, slot);
	glk_swap_put_back(map, pages);
	glk_unlock(&rig.cache.lock);
}

/* Not where that page would be mapped in a slot of a block that lost its contents there. */
static void keeps_off(void)
{
	const size_t low = 23 * MIB + 512 * 1024, beside = 9 * MIB;
	struct glk_map *map;
	uint64_t addr[4];
	uint32_t slot;

	begin("policy.ends=low");
	part();
	release_idle();
	addr[0] = rig_alloc(&rig, low, a);
	addr[1] = rig_alloc(&rig, beside, a);
	addr[2] = rig_alloc(&rig, 64 * MIB - low - beside, a);
	ok(number_of(addr[0]) && addr[1] == addr[0] + low && addr[2] == addr[1] + beside,
		"three side by side in the arena of a stream");
	rig_free(&rig, addr[0], a);
	release_idle();
	map = &glk_arena_of(glk_cache_range(&rig.cache, addr[1]))->map;
	slot = glk_slot_of(map, map->range->offset + (addr[1] - map->range->base));
	lose(map, slot);
	addr[3] = rig_alloc(&rig, 21 * MIB, a);
	is_int((int64_t)(addr[3] - addr[0]), 0, "one comes in place of the first");
	ok(map->page[slot - 1] && !map->page[slot],
		"with no page where the second lost its contents");
	ok(rig_verify(&rig), "the tables are sound");
	for (int i = 1; i < 4; i++)
		rig_free(&rig, addr[i], a);
	run_all();
	is_sound(&rig, "the books agree");
	rig_close(&rig, 2);
}

/* What lies in arenas of streams hides nothing of what waits in bins. */
static void drains(void)
{
	uint64_t addr[32], taken;
	unsigned i;

	begin(NULL);
	part();
	ok(number_of(give(&rig, 3 * BLOCK, a)), "one of an arena of a stream");
	for (i = 0; i < 32; i++)
		addr[i] = rig_alloc(&rig, 256 << 10, b);
	for (i = 0; i < 32; i++)
		rig_free(&rig, addr[i], b);
	glk_lock(&rig.cache.lock);
	glk_fill_settle(&rig.cache);
	glk_supply_sum(&rig.cache);
	taken = glk_own_taken(&rig.cache);
	ok(glk_supply_drain(&rig.cache.arena, 0),
		"blocks in bins go back where they are much");
	ok(glk_own_taken(&rig.cache) < taken &&
			glk_own_taken(&rig.cache) >= taken - 24 * (256 << 10),
		"a few at a time");
	while (glk_supply_drain(&rig.cache.arena, 0))
		;
	ok(glk_own_taken(&rig.cache) <= rig.cache.sum.given + 5 * MIB,
		"until they are little");
	glk_unlock(&rig.cache.lock);
	is_sound(&rig, "the books agree");
	run_all();
	rig_close(&rig, 3);
}

/* A GPU is suspended with all blocks, those that come back lie where they were. */
static void suspends(bool in_place)
{
	struct glake_suspended did = {.sz = sizeof(did)};
	uint64_t addr;

	begin(NULL);
	part();
	addr = give(&rig, 3 * BLOCK, a);
	ok(number_of(addr), "one of an arena of a stream");
	run_all();
	is_int(glk_cache_suspend(&rig.cache, in_place, &did), 0,
		in_place ? "suspended in place" : "suspended");
	is_int((int64_t)did.moved, 5 * BLOCK, "all blocks have gone");
	is_int((int64_t)rig_figures(&rig).reserved, 0, "and all memory");
	is_sound(&rig, "the books agree");
	is_int(glk_cache_resume(&rig.cache, false, &did), 0, "resumed");
	is_int((int64_t)did.moved, 5 * BLOCK, "they are back");
	is_int((int64_t)did.stayed, 0, "all of them");
	is_sound(&rig, "the books agree");
	rig_work(&rig, addr, 3 * BLOCK, a);
	run_all();
	is_int(rig_free(&rig, addr, a), 0, "one is freed");
	trouble(MANY);
	is_sound(&rig, "the books agree");
	run_all();
	rig_close(&rig, 2);
}

static void *ask(void *ret)
{
	*(uint64_t *)ret = rig_alloc(&rig, 3 * BLOCK, a);
	return NULL;
}

/* A request that waits for the lock while its stream loses its arena, in which all places are behind a wait. */
static void loses(void)
{
	uint64_t addr, other;
	pthread_t thread;

	begin(NULL);
	part();
	addr = give(&rig, 3 * BLOCK, a);
	ok(number_of(addr), "one of an arena of a stream");
	rig_free(&rig, addr, b);
	glk_lock(&rig.cache.lock);
	glk_event_record_due(&rig.cache.streams, glk_load_relaxed(&rig.cache.node->held));
	if (pthread_create(&thread, NULL, ask, &other))
		tap_bail("no thread");
	while (!glk_load_relaxed(&rig.cache.lock.waiters))
		sched_yield();
	glk_own_leave(&rig.cache);
	glk_unlock(&rig.cache.lock);
	pthread_join(thread, NULL);
	ok(other, "a request is served whose stream just loses its arena");
	rig_work(&rig, other, 3 * BLOCK, a);
	is_sound(&rig, "the books agree");
	run_all();
	rig_close(&rig, 3);
}

/* Where an arena cannot be had for want of addresses (of tables: see cannot()), or has none left, the request is served
 * from that of all. */
static void refused(void)
{
	struct glake_error before, after;
	uint64_t addr;

	begin(NULL);
	rig_alloc(&rig, 0, a);
	before = rig_error();
	glk_fault_set(rig.drv, "reserve:from=1:err=ENOMEM");
	trouble(2 * MANY);
	after = rig_error();
	is_int((int64_t)taken(), 0, "no addresses, no arena");
	ok(!strcmp(before.text, after.text), "nor an error of a request that was served");
	glk_fault_set(rig.drv, "off");
	part();
	glk_fault_set(rig.drv, "reserve:from=1:err=ENOMEM");
	addr = rig_alloc(&rig, (size_t)5 << 30, a);
	ok(addr && !number_of(addr),
		"what finds no addresses in one of a stream lies in that of all");
	glk_fault_set(rig.drv, "off");
	is_sound(&rig, "the books agree");
	run_all();
	rig_close(&rig, 3);
}

/* What waits on a stream for a request of its size goes at a rest, too. */
static void rests(void)
{
	const size_t small = BLOCK / 5;
	struct glake_stats s;
	uint64_t block[20];

	begin("pool.rest=100ms");
	part();
	for (int i = 0; i < 20; i++)
		block[i] = give(&rig, small, a);
	ok(number_of(block[0]) && number_of(block[19]), "blocks of an arena of a stream");
	glk_soft_run_all(rig.drv);
	for (int i = 1; i < 17; i += 2)
		rig_free(&rig, block[i], a);
	ok(rig_figures(&rig).quick >= 8 * small, "some wait for requests of their size");
	for (int i = 0; i < 10; i++) {
		glk_soft_run_all(rig.drv);
		usleep(100000);
	}
	s = rig_figures(&rig);
	ok(s.reserved <= s.given + s.given / 8, "after a rest none is held for them");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 14);
}

int main(void)
{
	gets_one();
	as_any();
	ends();
	has_none();
	guarded();
	cannot(0);
	cannot(2);
	holds_more();
	shares_a_page();
	keeps_off();
	drains();
	suspends(false);
	suspends(true);
	loses();
	refused();
	rests();
	return tap_done();
}
