/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Memory that nobody uses goes back to the driver, and what is in use stays. */
#include "unit/cache/rig.h"

#include <errno.h>

static uint64_t trim(struct rig *rig, uint64_t keep)
{
	uint64_t released = 0;

	is_int(glk_cache_trim(&rig->cache, keep, &released), 0, "trimmed");
	return released;
}

static void gives_back(void)
{
	uint64_t live, held;
	struct CUstream_st *a;
	struct rig rig;

	rig_open(&rig, NULL);
	is_int((int64_t)trim(&rig, 0), 0, "a GPU that was never used");
	a = rig_stream(&rig);
	live = rig_alloc(&rig, 10 * MIB, a);
	rig_free(&rig, rig_alloc(&rig, 40 * MIB, a), a);
	rig_free(&rig, rig_alloc(&rig, 3 * MIB, a), a);
	rig_free(&rig, rig_alloc(&rig, 1, a), a);
	rig_free(&rig, rig_single(&rig, 6 * MIB, a), a);
	held = rig_figures(&rig).reserved;
	is_int((int64_t)trim(&rig, held), 0, "nothing above what is kept");
	is_int((int64_t)rig_figures(&rig).reserved, (int64_t)held, "all is there");
	ok(trim(&rig, held - 1) > 0, "one byte above it, a page goes");
	is_sound(&rig, "the books agree");
	trim(&rig, 20 * MIB);
	ok(rig_figures(&rig).reserved <= 20 * MIB &&
			rig_figures(&rig).reserved > 12 * MIB,
		"down to what is kept, and not further than a page");
	is_sound(&rig, "the books agree");
	trim(&rig, 0);
	is_int((int64_t)rig_figures(&rig).reserved, 10 * (int64_t)MIB,
		"the pages of a live block stay");
	is_int((int64_t)rig_figures(&rig).free_pages, 0, "and no others");
	is_int((int64_t)trim(&rig, 0), 0, "there is no more");
	is_sound(&rig, "the books agree");
	rig_free(&rig, live, a);
	is_int((int64_t)trim(&rig, 0), 10 * (int64_t)MIB, "the last ones");
	is_int((int64_t)rig_figures(&rig).mapped, 0, "nothing is mapped");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

static void keeps_busy(void)
{
	uint64_t busy, single, done, calls;
	struct CUstream_st *a, *b;
	struct rig rig;

	rig_open(&rig, (const char *const[]){"soft.streams=stepped", NULL});
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	busy = rig_alloc(&rig, 8 * MIB, a);
	single = rig_single(&rig, 2 * MIB, a);
	done = rig_alloc(&rig, 4 * MIB, b);
	rig_work(&rig, busy, 8 * MIB, a);
	rig_work(&rig, single, 2 * MIB, a);
	rig_work(&rig, done, 4 * MIB, b);
	rig_free(&rig, single, a);
	rig_free(&rig, done, b);
	is_int((int64_t)trim(&rig, 0), 0, "events are recorded, nothing is ready");
	glk_soft_run_all(rig.drv);
	/* A goes on and frees more, behind what is done */
	rig_work(&rig, busy, 8 * MIB, a);
	rig_free(&rig, busy, a);
	glk_soft_hold(rig.drv, 0, a, true);
	calls = rig_calls(&rig, GLAKE_CALL_SYNC);
	is_int((int64_t)trim(&rig, 0), 2 * (int64_t)MIB + 4 * (int64_t)MIB,
		"what is done goes");
	is_int((int64_t)(rig_calls(&rig, GLAKE_CALL_SYNC) - calls), 0, "nobody waited");
	is_int((int64_t)rig_figures(&rig).reserved, 8 * (int64_t)MIB, "the rest stays");
	is_sound(&rig, "the books agree");
	glk_soft_hold(rig.drv, 0, a, false);
	rig_close(&rig, 0);
}

/* A budget below what is held: no growth, but what is there serves. */
static void lowers_budget(void)
{
	uint64_t one, two, got = 0;
	struct CUstream_st *a;
	struct rig rig;

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	one = rig_alloc(&rig, 32 * MIB, a);
	two = rig_alloc(&rig, 32 * MIB, a);
	glk_store_relaxed(&rig.cache.node->budget, 48 * MIB);
	is_int(rig_try(&rig, 40 * MIB, a, 0, &got), -ENOMEM, "no growth");
	is_int((int64_t)rig_figures(&rig).reserved, 64 * (int64_t)MIB,
		"live blocks stay");
	rig_free(&rig, two, a);
	two = rig_alloc(&rig, 24 * MIB, a);
	ok(two, "freed memory serves");
	is_int(rig_try(&rig, 10 * MIB, a, 0, &got), -ENOMEM, "and no more than that");
	ok(rig_figures(&rig).reserved <= 64 * MIB, "nothing was added");
	is_sound(&rig, "the books agree");
	rig_free(&rig, one, a);
	is_int(rig_try(&rig, 3 * MIB, a, GLAKE_ALLOC_CONTIGUOUS, &got), 0,
		"a page of another kind, with room for it");
	ok(rig_figures(&rig).reserved <= 48 * MIB, "the budget holds again");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 2);
}

/* The first error is told, and the rest goes on. */
static void goes_on(void)
{
	uint64_t released = 9;
	struct CUstream_st *a;
	struct rig rig;

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	rig_free(&rig, rig_alloc(&rig, 32 * MIB, a), a);
	tap_expect_log(1);
	glk_fault_set(rig.drv, "unmap:nth=2:err=EIO");
	is_int(glk_cache_trim(&rig.cache, 0, &released), -EIO, "one of four is refused");
	glk_fault_set(rig.drv, "off");
	is_int((int64_t)rig_figures(&rig).lost, 8 * (int64_t)MIB, "it is lost");
	is_int((int64_t)rig_figures(&rig).reserved, 8 * (int64_t)MIB, "the others went");
	is_sound(&rig, "the books agree");
	ok(rig_alloc(&rig, 32 * MIB, a), "and are made again");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 1);
}

/*
 * The driver keeps one of two mappings of a page that a block is on. The block is not
 * disturbed; once it is freed and the page released, its memory stays with that mapping, so it
 * is lost and not given back.
 */
static void is_kept(void)
{
	uint64_t addr[6], wide, released;
	struct CUstream_st *a;
	struct rig rig;

	rig_open(&rig, (const char *const[]){"pool.budget=48MiB", NULL});
	a = rig_stream(&rig);
	for (int i = 0; i < 6; i++)
		addr[i] = rig_alloc(&rig, 8 * MIB, a);
	for (int i = 0; i < 6; i += 2)
		rig_free(&rig, addr[i], a);
	rig_free(&rig, rig_alloc(&rig, 24 * MIB, a), a);
	addr[0] = rig_alloc(&rig, 8 * MIB, a);
	addr[2] = rig_alloc(&rig, 8 * MIB, a);
	rig_free(&rig, addr[0], a);
	/* the next block wants the place of a mapping of the page that is in use */
	glk_store_relaxed(&rig.cache.node->budget, 56 * MIB);
	tap_expect_log(1);
	glk_fault_set(rig.drv, "unmap:nth=1:err=EIO");
	is_int(rig_try(&rig, 24 * MIB, a, 0, &wide), -EIO, "the driver keeps a mapping");
	glk_fault_set(rig.drv, "off");
	is_int((int64_t)rig_figures(&rig).live_blocks, 4, "the block on its page stays");
	is_sound(&rig, "the books agree");
	rig_free(&rig, addr[2], a);
	is_int(glk_cache_trim(&rig.cache, 0, &released), -EIO, "trimmed, and told");
	is_int((int64_t)released, 16 * (int64_t)MIB, "two of three idle pages go");
	is_int((int64_t)rig_figures(&rig).lost, 8 * (int64_t)MIB, "the third is lost");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 3);
}

int main(void)
{
	tap_plan_later();
	gives_back();
	keeps_busy();
	lowers_budget();
	goes_on();
	is_kept();
	return tap_done();
}
