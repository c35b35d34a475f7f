/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Which blocks wait in bins, and the way back from there: bounded, or all of them. */
#include "unit/cache/rig.h"

#define KIB ((size_t)1 << 10)

/* By default the largest block of which any number waits. */
#define MOST (256 * KIB)

static struct rig rig;
static struct CUstream_st *a, *b;

static void begin(const char *const *settings)
{
	rig_open(&rig, settings);
	a = rig_stream(&rig);
	b = rig_stream(&rig);
}

static uint64_t quick(void)
{
	return rig_figures(&rig).quick;
}

/* Asks for three blocks and frees them; the bytes that wait then. */
static uint64_t wait_three(size_t size, struct CUstream_st *stream)
{
	uint64_t addr[3], before;

	for (int i = 0; i < 3; i++)
		addr[i] = rig_alloc(&rig, size, stream);
	before = quick();
	for (int i = 0; i < 3; i++) {
		if (!addr[i] || rig_free(&rig, addr[i], stream))
			tap_bail("no block");
	}
	is_sound(&rig, "the books agree");
	return quick() - before;
}

static void waits(void)
{
	begin(NULL);
	is_int(wait_three(MOST, a), 3 * MOST, "up to policy.bins any number waits");
	is_int(wait_three(MOST + 1, a), 0, "of larger ones, none");
	rig_close(&rig, 0);

	begin((const char *const[]){"policy.bins=0", NULL});
	is_int(wait_three(1, a), 0, "policy.bins=0: whatever its size");
	rig_close(&rig, 0);

	begin((const char *const[]){"policy.bins=4MiB", NULL});
	is_int(wait_three(4 * MIB, a), 12 * MIB, "policy.bins=4MiB: any number of those");
	is_int(wait_three(4 * MIB + 1, a), 0, "none of larger ones");
	rig_close(&rig, 0);
}

/* A larger one merges with what is free beside it at once, and has its place again. */
static void merges(void)
{
	uint64_t one, two, calls;

	begin(NULL);
	one = rig_alloc(&rig, 3 * MIB, a);
	two = rig_alloc(&rig, 5 * MIB, a);
	rig_free(&rig, one, a);
	rig_free(&rig, two, a);
	is_int(quick(), 0, "neither waits");
	is_int(rig_figures(&rig).free_extents, 1, "they are one hole");
	calls = rig_all_calls(&rig);
	is_int(rig_alloc(&rig, 3 * MIB, a), one, "each has its place again");
	is_int(rig_alloc(&rig, 5 * MIB, a), two, "the other too");
	is_int(rig_all_calls(&rig) - calls, 0, "without a call of the driver");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 2);
}

#define BLOCKS 160

/* Fills bins of a stream: BLOCKS of them. */
static void fill(struct CUstream_st *stream, size_t size)
{
	uint64_t addr[BLOCKS];

	for (int i = 0; i < BLOCKS; i++)
		addr[i] = rig_alloc(&rig, size, stream);
	for (int i = 0; i < BLOCKS; i++)
		rig_free(&rig, addr[i], stream);
}

/* What a request that has to map gives back first: no more than a bounded number. */
static void is_bounded(void)
{
	uint64_t before, given, flushes;

	/* memory to spare */
	begin((const char *const[]){"policy.target=10", NULL});
	fill(a, MOST);
	before = quick();
	is_int(before, BLOCKS * MOST, "many blocks wait");
	flushes = rig_figures(&rig).flushes;
	ok(rig_alloc(&rig, 24 * MIB, a), "a request that has to map");
	given = (before - quick()) / MOST;
	ok(given && given <= 64, "%" PRIu64 " blocks go back", given);
	is_int(rig_figures(&rig).flushes - flushes, 1, "as one flush");
	is_sound(&rig, "the books agree");
	before = quick();
	ok(rig_alloc(&rig, 20 * MIB, b), "one of another stream");
	is_int(quick(), before, "gives back none that are not its own");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 2);
}

/* A request that needs no page gives nothing back. */
static void is_spared(void)
{
	uint64_t before, calls, one;

	begin(NULL);
	rig_free(&rig, rig_alloc(&rig, 16 * MIB, a), a);
	rig_flush(&rig);
	fill(a, 4 * KIB);
	one = rig_alloc(&rig, 8 * MIB, a);
	before = quick();
	calls = rig_all_calls(&rig);
	ok(before >= BLOCKS * 4 * KIB, "blocks wait");
	ok(one && rig_alloc(&rig, 4 * MIB, a), "one that finds its pages");
	is_int(quick(), before, "they stay");
	is_int(rig_all_calls(&rig) - calls, 0, "no call of the driver");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 2);
}

/* What goes back serves: whole slots of small blocks become a place for a large one. */
static void serves(void)
{
	uint64_t calls;

	begin(NULL);
	fill(a, MOST);
	calls = rig_all_calls(&rig);
	ok(rig_alloc(&rig, 3 * MIB, a), "a large block in their place");
	is_int(rig_all_calls(&rig) - calls, 0, "without a call of the driver");
	ok(quick() > 0 && quick() < BLOCKS * MOST, "some wait on");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 1);
}

/* All go back before memory is held beyond what the policy allows, and before a refusal. */
static void is_all(void)
{
	begin((const char *const[]){"pool.budget=40MiB", NULL});
	fill(a, MOST);
	is_int(rig_figures(&rig).reserved, 40 * MIB, "all memory is in bins");
	ok(rig_alloc(&rig, 40 * MIB, b), "one block takes all of it");
	is_int(quick(), 0, "nothing waits");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 1);
}

int main(void)
{
	tap_plan_later();
	waits();
	merges();
	is_bounded();
	is_spared();
	serves();
	is_all();
	return tap_done();
}
