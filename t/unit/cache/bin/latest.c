/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The large block that was freed last: kept where best fit would take its place again, and in nobody's way. */
#include "cache/bin/latest.h"

#include "unit/cache/rig.h"

#define SIZE (20 * MIB)

static struct rig rig;
static struct CUstream_st *a;

static bool kept(void)
{
	return glk_load_relaxed(&rig.cache.latest.word) != 0;
}

static uint64_t served(void)
{
	return rig.cache.served;
}

/* A block with live ones on both sides. */
static uint64_t between(uint64_t size)
{
	uint64_t block;

	rig_alloc(&rig, SIZE, a);
	block = rig_alloc(&rig, size, a);
	rig_alloc(&rig, SIZE, a);
	return block;
}

static void begin(const char *const *settings)
{
	rig_open(&rig, settings);
	a = rig_stream(&rig);
}

static void comes_back(void)
{
	uint64_t block, before;

	begin(NULL);
	block = between(SIZE);
	before = served();
	for (int i = 0; i < 3; i++) {
		is_int(rig_free(&rig, block, a), 0, "a large block is freed");
		ok(kept(), "and kept");
		is_int(rig_free(&rig, block, a), -EINVAL, "it is not freed twice");
		is_int(rig_alloc(&rig, SIZE - 5, a), block,
			"the next request of its size has it");
	}
	is_int(served() - before, 0, "without the lock");
	is_int(rig_figures(&rig).live, 3 * SIZE - 5, "it is live");
	ok(!kept(), "and settled where somebody asks for figures");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 3);
}

static void other_size(void)
{
	uint64_t block;

	begin(NULL);
	block = between(SIZE);
	rig_free(&rig, block, a);
	is_int(rig_alloc(&rig, SIZE / 2, a), block,
		"one of another size has a part of it");
	is_int(rig_alloc(&rig, SIZE / 2, a), block + SIZE / 2,
		"and the next one the rest");
	ok(!kept(), "it is no more");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 4);
}

static void neighbours(void)
{
	uint64_t block[3];

	begin(NULL);
	for (int i = 0; i < 3; i++)
		block[i] = rig_alloc(&rig, SIZE, a);
	rig_alloc(&rig, SIZE, a);
	rig_free(&rig, block[0], a);
	rig_free(&rig, block[2], a);
	ok(kept(), "at the end of no other hole");
	rig_free(&rig, block[1], a);
	ok(!kept(), "between two holes it is one with them");
	is_int(rig_figures(&rig).largest_hole, 3 * SIZE, "and with what was kept before");
	is_int(rig_alloc(&rig, 3 * SIZE, a), block[0],
		"which a request of their size has");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 2);
}

/* A hole whose size is between that of a block and that of the hole which it leaves is the better one. */
static void better_hole(void)
{
	uint64_t low, high, hole;

	begin(NULL);
	hole = between(SIZE + 2 * MIB);
	low = rig_alloc(&rig, SIZE, a);
	high = rig_alloc(&rig, SIZE / 2, a);
	rig_alloc(&rig, SIZE, a);
	rig_free(&rig, hole, a);
	rig_free(&rig, high, a);
	rig_free(&rig, low, a);
	ok(!kept(), "there is a better hole");
	is_int(rig_alloc(&rig, SIZE, a), hole, "which the next request has");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 4);
}

static void used_elsewhere(void)
{
	struct CUstream_st *b;
	uint64_t block;

	begin(NULL);
	block = between(SIZE);
	b = rig_stream(&rig);
	rig_alloc(&rig, SIZE, b);
	rig_free(&rig, block, a);
	ok(!kept(), "with two streams no block is kept");
	rig_close(&rig, 3);

	begin(NULL);
	block = between(SIZE);
	rig_free(&rig, block, a);
	b = rig_stream(&rig);
	rig_alloc(&rig, SIZE / 2, b);
	ok(!kept(), "one that was kept before the second one came is settled");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 3);
}

static void trimmed(void)
{
	uint64_t block, released = 0;

	begin(NULL);
	block = rig_alloc(&rig, SIZE, a);
	rig_free(&rig, block, a);
	ok(kept(), "kept");
	is_int(glk_cache_trim(&rig.cache, 0, &released), 0, "memory is given back");
	is_int(rig_figures(&rig).reserved, 0, "that of the block too");
	rig_close(&rig, 0);
}

int main(void)
{
	tap_plan_later();
	comes_back();
	other_size();
	neighbours();
	better_hole();
	used_elsewhere();
	trimmed();
	return tap_done();
}
