/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The large block that was freed last: kept where best fit would take its place again, and in nobody's way. */
#include "cache/bin/latest.h"

#include "cache/away.h"
#include "unit/cache/plan_parts.h"

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
	struct glake_stats stats;
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
	glk_cache_figures(&rig.cache, &stats);
	is_int(stats.live, 3 * SIZE - 5, "it is live");
	ok(kept(), "whoever asks for figures changes nothing");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 3);
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

/* One that was taken and went away is on none of its slots: what is booked of its contents on their way
 * stays as it is. The device judges who touches them when. */
static void sent_away(void)
{
	struct held one, two = {.size = 24 * MIB};

	begin((const char *const[]){"soft.streams=stepped", NULL});
	glk_store_relaxed(&rig.cache.node->budget, 64 * MIB);
	/* its ends lie on pages that others are on */
	rig_alloc(&rig, 19 * MIB, a);
	plan_take(&rig, &one, 40 * MIB, a);
	rig_alloc(&rig, 5 * MIB, a);
	rig_free(&rig, one.addr, a);
	ok(kept(), "a block is kept");
	plan_take(&rig, &one, 40 * MIB, a);
	glk_soft_run_all(rig.drv);
	is_int(glk_cache_spill(&rig.cache, one.addr, a), 0, "taken, it goes away");
	is_int(rig_try(&rig, two.size, a, 0, &two.addr), 0, "another one has its memory");
	is_int(glk_soft_work(rig.drv, 0, a, two.addr, two.size, true), 0,
		"behind the copy of what was in it");
	rig_free(&rig, two.addr, a);
	is_int(glk_cache_fetch(&rig.cache, one.addr, a), 0, "and it comes back");
	glk_soft_run_all(rig.drv);
	ok(has_marks(&one), "with what was written");
	is_sound(&rig, "the books agree");
	rig_free(&rig, one.addr, a);
	rig_close(&rig, 2);
}

/* No event can be recorded on a stream that captures: what was freed before is the pool's at once. */
static void before_capture(void)
{
	struct held one;

	begin((const char *const[]){"soft.streams=stepped", NULL});
	glk_store_relaxed(&rig.cache.node->budget, SIZE);
	plan_take(&rig, &one, SIZE, a);
	glk_soft_run_all(rig.drv);
	rig_free(&rig, one.addr, a);
	ok(kept(), "a block is kept");
	is_int(rig_begin(&rig, 1, a), 0, "a pool is announced");
	ok(!kept(), "and it is settled");
	glk_soft_run_all(rig.drv);
	rig_capture(&rig, a);
	ok(rig_alloc(&rig, SIZE, a) != 0, "the graph has a block in its memory");
	is_sound(&rig, "the books agree");
	rig_capture_end(&rig, a);
	rig_end_pool(&rig, 1);
	rig_release(&rig, 1);
	rig_end(&rig);
}

/* A capture that nobody announced is met by the request, as by every large one. */
static void captured(void)
{
	struct glake_block block;
	uint64_t addr;

	begin((const char *const[]){"soft.streams=stepped", NULL});
	rig_free(&rig, rig_alloc(&rig, SIZE, a), a);
	ok(kept(), "a block is kept");
	rig_capture(&rig, a);
	addr = rig_alloc(&rig, SIZE, a);
	is_int(glk_cache_query(&rig.cache, addr, &block), 0,
		"its stream captures a graph");
	ok(block.pool.low, "and has memory of a pool");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 1);
}

int main(void)
{
	tap_plan_later();
	comes_back();
	used_elsewhere();
	trimmed();
	sent_away();
	before_capture();
	captured();
	return tap_done();
}
