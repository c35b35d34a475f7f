/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Small blocks: in slots of their own, which come and go one by one. */
#include "unit/cache/rig.h"

#include "seed.h"

#include <errno.h>

#define KIB   ((size_t)1 << 10)
#define SLOT  (2 * MIB)
#define SMALL (256 * KIB) /* the largest small block */

static struct rig rig;
static struct CUstream_st *a, *b;

static void begin(const char *const *settings)
{
	rig_open(&rig, settings);
	a = rig_stream(&rig);
	b = rig_stream(&rig);
}

static const struct glk_extent *extent_of(uint64_t addr)
{
	return glk_extent_at(&rig.cache.arena.map,
		glk_lookup_around(glk_cache_range(&rig.cache, addr), addr));
}

static uint32_t nests(void)
{
	return glk_load_relaxed(&rig.cache.arena.map.nests.live);
}

static uint64_t page_size(uint64_t addr)
{
	struct glake_block block;

	return glk_cache_query(&rig.cache, addr, &block) ? 0 : block.page_size;
}

/* Up to an eighth of a slot they lie together; larger ones are never among them. */
static void keeps_apart(void)
{
	uint64_t one, two, large;

	begin(NULL);
	one = rig_alloc(&rig, SMALL, a);
	large = rig_alloc(&rig, SMALL + 1, a);
	two = rig_alloc(&rig, 1, a);
	ok(extent_of(one)->nested, "the largest small one");
	ok(!extent_of(large)->nested, "one byte more is none");
	is_int(one / SLOT, two / SLOT, "two of them share a slot");
	ok(large / SLOT != one / SLOT, "the larger one lies elsewhere");
	is_int(nests(), 1, "one slot is theirs");
	is_int(rig_figures(&rig).reserved, 2 * SLOT, "two pages in all");
	is_sound(&rig, "the books agree");

	/* empty, it is one of all sizes again */
	rig_free(&rig, one, a);
	rig_free(&rig, two, a);
	rig_free(&rig, large, a);
	rig_flush(&rig);
	is_int(nests(), 0, "none are left");
	is_int(rig_figures(&rig).free_extents, 1, "all is one hole");
	is_sound(&rig, "the books agree");
	is_int(rig_alloc(&rig, 2 * SLOT, a), one, "which serves a large one");
	is_int(rig_figures(&rig).reserved, 2 * SLOT, "on their pages");
	rig_close(&rig, 1);
}

/* None reaches from a slot into the next, whatever the sizes. */
static void fills_slots(uint64_t seed)
{
	uint64_t addr[600], state = seed_thread(seed, 3);
	bool inside = true, nested = true;
	size_t sum = 0;

	begin(NULL);
	for (int i = 0; i < 600; i++) {
		size_t size = 1 + seed_below(&state, SMALL);

		addr[i] = rig_alloc(&rig, size, a);
		inside &= addr[i] && addr[i] / SLOT == (addr[i] + size - 1) / SLOT;
		nested &= extent_of(addr[i])->nested;
		sum += size;
	}
	ok(inside, "each lies in one slot");
	ok(nested, "of small blocks");
	ok(rig_figures(&rig).reserved < sum + sum / 4, "which are well filled");
	is_int((int64_t)nests() * (int64_t)SLOT, rig_figures(&rig).reserved,
		"on one page each");
	is_sound(&rig, "the books agree");
	for (int i = 0; i < 600; i++)
		rig_free(&rig, addr[(i * 7) % 600], a);
	is_sound(&rig, "freed in another order");
	rig_flush(&rig);
	is_int(nests(), 0, "all slots are of all sizes again");
	is_int(rig_figures(&rig).free_extents, 1, "in one hole");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* The smallest hole that is large enough. */
static void fits_best(void)
{
	uint64_t addr[5], got;

	/* nothing waits in bins, and nothing is carved ahead for one block of a size */
	begin((const char *const[]){"policy.bins=0", NULL});
	addr[0] = rig_alloc(&rig, 200 * KIB, a);
	addr[1] = rig_alloc(&rig, 10 * KIB, a);
	addr[2] = rig_alloc(&rig, 100 * KIB, a);
	addr[3] = rig_alloc(&rig, 20 * KIB, a);
	addr[4] = rig_alloc(&rig, 150 * KIB, a);
	rig_alloc(&rig, 30 * KIB, a);
	for (int i = 0; i < 5; i += 2)
		rig_free(&rig, addr[i], a);
	rig_flush(&rig);
	is_sound(&rig, "the books agree");
	got = rig_alloc(&rig, 90 * KIB, a);
	is_int(got, addr[2], "a hole of 100 KiB for 90");
	got = rig_alloc(&rig, 110 * KIB, a);
	is_int(got, addr[4], "one of 150 for 110");
	got = rig_alloc(&rig, 40 * KIB, a);
	is_int(got, addr[4] + 110 * KIB, "its rest, 40, for 40");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 6);
}

#define FULL 6 /* the largest small blocks, three quarters of a slot */

/* A slot of A with a hole behind work of A, and FULL blocks or one beside it; then one for B. */
static uint64_t ask_beside(int full, uint64_t *ret_hole, uint64_t *ret_whole)
{
	begin((const char *const[]){"soft.streams=stepped", "policy.bins=0", NULL});
	*ret_hole = rig_alloc(&rig, 64 * KIB, a);
	rig_work(&rig, *ret_hole, 64 * KIB, a);
	*ret_whole = rig_alloc(&rig, SLOT, b);
	for (int i = 0; i < full; i++)
		rig_alloc(&rig, SMALL, a);
	is_int(nests(), 1, "a slot of small blocks of A");
	rig_free(&rig, *ret_hole, a);
	rig_free(&rig, *ret_whole, b);
	rig_flush(&rig);
	return rig_alloc(&rig, 64 * KIB, b);
}

/* A hole that needs no wait goes before one that does, and a whole slot that needs nothing too,
 * unless a quarter of the slots there are is free. */
static void avoids_waits(void)
{
	uint64_t of_a, whole, got;

	got = ask_beside(FULL, &of_a, &whole);
	is_int(rig_calls(&rig, GLAKE_CALL_STREAM_WAIT), 0, "B does not wait for A");
	is_int(got / SLOT, whole / SLOT, "it takes a slot of its own memory");
	is_int(nests(), 2, "which is one of small blocks now");
	is_sound(&rig, "the books agree");
	is_int(rig_alloc(&rig, 64 * KIB, b) / SLOT, got / SLOT, "and another hole there");
	is_int(rig_alloc(&rig, 64 * KIB, a), of_a, "A goes on in its own");
	is_int(rig_calls(&rig, GLAKE_CALL_STREAM_WAIT), 0, "nobody waited");
	is_sound(&rig, "the books agree");
	rig_close(&rig, FULL + 3);

	got = ask_beside(FULL - 1, &of_a, &whole);
	is_int(rig_calls(&rig, GLAKE_CALL_STREAM_WAIT), 1, "too empty: B waits for A");
	is_int(got, of_a, "and takes the hole");
	rig_work(&rig, got, 64 * KIB, b);
	is_int(nests(), 1, "no other slot is one of small blocks");
	is_sound(&rig, "the books agree");
	rig_close(&rig, FULL);

	/* with no other memory to be had, it waits rather than map a page */
	begin((const char *const[]){"soft.streams=stepped", "policy.bins=0", NULL});
	of_a = rig_alloc(&rig, 64 * KIB, a);
	ok(rig_alloc(&rig, 4 * KIB, a), "a block of A that stays");
	rig_work(&rig, of_a, 64 * KIB, a);
	rig_free(&rig, of_a, a);
	rig_flush(&rig);
	got = rig_alloc(&rig, 64 * KIB, b);
	is_int(got, of_a, "B has the hole of A");
	is_int(rig_calls(&rig, GLAKE_CALL_STREAM_WAIT), 1, "behind a wait");
	rig_work(&rig, got, 64 * KIB, b);
	is_int(rig_figures(&rig).reserved, SLOT, "on one page");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 2);

	/* where no wait may be inserted, it has a page of its own */
	begin((const char *const[]){
		"soft.streams=stepped", "policy.bins=0", RIG_ALONE, NULL});
	of_a = rig_alloc(&rig, 64 * KIB, a);
	ok(rig_alloc(&rig, 4 * KIB, a), "a block of A that stays");
	rig_free(&rig, of_a, a);
	rig_flush(&rig);
	got = rig_alloc(&rig, 64 * KIB, b);
	ok(got && got / SLOT != of_a / SLOT, "never: B has other memory");
	is_int(rig_calls(&rig, GLAKE_CALL_STREAM_WAIT), 0, "nobody waits");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 2);
}

/* They would keep a page of several slots from ever being whole again. */
static void spares_large_pages(void)
{
	uint64_t large, small;

	begin(NULL);
	large = rig_alloc(&rig, 8 * MIB, a);
	rig_free(&rig, large, a);
	rig_flush(&rig);
	small = rig_alloc(&rig, KIB, a);
	is_int(page_size(small), SLOT, "a small block has a page of one slot");
	ok(small / SLOT < large / SLOT || small / SLOT >= (large + 8 * MIB) / SLOT,
		"beside an idle one of several");
	is_int(rig_alloc(&rig, 8 * MIB, a), large, "which serves a large block");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 2);
}

/* Whatever fails, the slot is what it was. */
static void fails_with(const char *fault, int want)
{
	struct glake_stats was, is;
	uint64_t addr = 3;

	was = rig_figures(&rig);
	glk_fault_set(rig.drv, fault);
	is_int(rig_try(&rig, KIB, a, 0, &addr), want, fault);
	glk_fault_set(rig.drv, "off");
	is = rig_figures(&rig);
	ok(addr == 3 && is.live == was.live && !is.lost && is.free_extents <= 1 &&
			is.free_pages + 3 * SLOT == is.reserved,
		"  all is as it was");
	is_int(nests(), 0, "  no slot is one of small blocks");
	is_sound(&rig, "the books agree");
}

static void fails(void)
{
	uint64_t addr = 3;
	uint32_t max;

	begin(NULL);
	ok(rig_alloc(&rig, 3 * SLOT, a), "a large block");
	fails_with("create:nth=1:err=EIO", -EIO);
	fails_with("map:nth=1:err=EIO", -EIO);
	fails_with("set_access:nth=1:err=EIO", -EIO);
	/* the hole that is left there is a slot, and no descriptor is for the block in it */
	max = rig.cache.arena.map.extents.max;
	rig.cache.arena.map.extents.max =
		glk_load_relaxed(&rig.cache.arena.map.extents.used);
	is_int(glk_load_relaxed(&rig.cache.arena.map.extents.live),
		rig.cache.arena.map.extents.max, "no descriptor is left");
	fails_with("off", -ENOMEM);
	is_int(rig_error().error_class, GLAKE_ERROR_LIMIT, "  its class");
	rig.cache.arena.map.extents.max = max;
	is_int(rig_try(&rig, KIB, a, 0, &addr), 0, "then it works");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 2);
}

/* There is an end to the slots that small blocks may have for themselves: then they lie among all
 * others, and memory that is free is not refused. */
static void overflows(void)
{
	uint64_t first, out[3], unused;
	uint32_t max;

	begin(NULL);
	first = rig_alloc(&rig, 256 * KIB, a);
	max = rig.cache.arena.map.nests.max;
	rig.cache.arena.map.nests.max = 1;
	for (int i = 1; i < 8; i++)
		rig_alloc(&rig, 256 * KIB, a);
	is_int(nests(), 1, "the one slot of small blocks is full");
	for (int i = 0; i < 3; i++) {
		out[i] = rig_alloc(&rig, 4 * KIB, a);
		ok(out[i] && out[i] - first >= SLOT, "one more is served, elsewhere");
	}
	is_int(nests(), 1, "with no slot more of them");
	is_sound(&rig, "the books agree");
	for (int i = 0; i < 3; i++)
		is_int(rig_free(&rig, out[i], a), 0, "it is freed");
	is_int(rig_free(&rig, first, a), 0, "room in the slot");
	is_int((int64_t)rig_alloc(&rig, 4 * KIB, a), (int64_t)first, "serves the next");
	is_int(glk_cache_trim(&rig.cache, 0, false, &unused), 0, "trimmed");
	is_sound(&rig, "the books agree");
	rig.cache.arena.map.nests.max = max; /* as large as its table is */
	rig_close(&rig, 8);
}

static pthread_barrier_t steps;

static void *on_own(void *arg)
{
	uint64_t addr = rig_alloc(&rig, 4 * KIB, GLK_STREAM_PER_THREAD);

	rig_work(&rig, addr, 4 * KIB, GLK_STREAM_PER_THREAD);
	*(uint64_t *)arg = addr;
	pthread_barrier_wait(&steps);
	pthread_barrier_wait(&steps);
	return NULL;
}

/* A slot whose page has another mapping, and is in the order of a stream that is waited for with the GPU
 * alone: another thread's own. */
static void waits_for_shared(void)
{
	uint64_t addr[4], wide, first, got;
	pthread_t thread;

	begin((const char *const[]){
		"pool.budget=8MiB", "soft.streams=stepped", "policy.bins=0", NULL});
	for (int i = 0; i < 4; i++)
		addr[i] = rig_alloc(&rig, SLOT, a);
	rig_free(&rig, addr[0], a);
	rig_free(&rig, addr[2], a);
	wide = rig_alloc(&rig, 2 * SLOT, a);
	rig_work(&rig, wide, 2 * SLOT, a);
	rig_free(&rig, wide, a);
	pthread_barrier_init(&steps, NULL, 2);
	pthread_create(&thread, NULL, on_own, &first);
	pthread_barrier_wait(&steps);
	ok(rig_alloc(&rig, SLOT, a), "no other slot is left");
	got = rig_alloc(&rig, 4 * KIB, b);
	ok(got && got / SLOT == first / SLOT, "room in a slot is waited for");
	is_sound(&rig, "the books agree");
	pthread_barrier_wait(&steps);
	pthread_join(thread, NULL);
	pthread_barrier_destroy(&steps);
	rig_close(&rig, 5);
}

/*
 * Each of many streams has a small block live, and has freed another one in the same slot behind work.
 * It may be had by no other stream at once.
 */
#define MANY 16

static void leaves_room(const char *policy)
{
	struct CUstream_st *s[MANY];
	uint64_t live[MANY], freed, large;

	rig_open(&rig,
		(const char *const[]){"soft.streams=stepped", "pool.budget=32MiB",
			"policy.bins=0", RIG_DONE, policy, NULL});
	for (int i = 0; i < MANY; i++) {
		s[i] = rig_stream(&rig);
		live[i] = rig_alloc(&rig, 4096, s[i]);
		freed = rig_alloc(&rig, 4096, s[i]);
		rig_work(&rig, live[i], 4096, s[i]);
		rig_work(&rig, freed, 4096, s[i]);
		rig_free(&rig, freed, s[i]);
	}
	a = rig_stream(&rig);
	large = rig_alloc(&rig, 16 * MIB, a);
	ok(large, "%s: %d small blocks leave half of the memory to a large one: %s",
		policy, MANY, large ? "yes" : rig_error().text);
	for (int i = 0; i < MANY; i++)
		rig_free(&rig, live[i], s[i]);
	if (large)
		rig_free(&rig, large, a);
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* Of two slots with holes behind work the one that was used longer ago is waited for; not by a request that may lie on
 * the host, which waits for nothing before it has looked there. */
static void awaits_oldest(bool places)
{
	struct CUstream_st *s[2];
	uint64_t live[2], freed, got;

	begin((const char *const[]){"soft.streams=stepped", "pool.budget=12MiB",
		"policy.bins=0", RIG_ALONE, places ? "tier.place=host" : NULL, NULL});
	for (int i = 0; i < 2; i++) {
		s[i] = rig_stream(&rig);
		live[i] = rig_alloc(&rig, 4 * KIB, s[i]);
		freed = rig_alloc(&rig, 4 * KIB, s[i]);
		rig_work(&rig, live[i], 4 * KIB, s[i]);
		rig_work(&rig, freed, 4 * KIB, s[i]);
		rig_free(&rig, freed, s[i]);
	}
	ok(live[0] / SLOT != live[1] / SLOT, "two streams have a slot each");
	got = rig_alloc(&rig, 4 * KIB, a);
	if (places)
		ok(got && got / SLOT != live[0] / SLOT && got / SLOT != live[1] / SLOT,
			"a third one does not wait where there is the host");
	else
		is_int((int64_t)(got / SLOT), (int64_t)(live[0] / SLOT),
			"a third one waits for the slot that was used longer ago");
	is_int(nests(), places ? 3 : 2, places ? "and opens one more" : "and opens none");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 3);
}

int main(void)
{
	uint64_t seed;

	tap_plan_later();
	seed = seed_start();
	keeps_apart();
	fills_slots(seed);
	fits_best();
	avoids_waits();
	spares_large_pages();
	fails();
	overflows();
	waits_for_shared();
	leaves_room("stream.opportunistic=yes");
	leaves_room("stream.opportunistic=no");
	awaits_oldest(false);
	awaits_oldest(true);
	return tap_done();
}
