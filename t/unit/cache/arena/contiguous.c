/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Contiguous blocks: one page each, which is an ordinary idle one when they are freed. */
#include "unit/cache/rig.h"

#include <errno.h>

static void gives(void)
{
	struct CUstream_st *a;
	uint64_t one, two;
	struct rig rig;

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	one = rig_single(&rig, 20 * MIB, a);
	is_int((int64_t)rig_calls(&rig, GLAKE_CALL_CREATE), 1, "one handle");
	is_int((int64_t)rig_calls(&rig, GLAKE_CALL_MAP), 1, "one map");
	memset((void *)one, 0x77, 20 * MIB);
	two = rig_single(&rig, 3 * MIB, a);
	ok(one && two && one != two, "another");
	is_int((int64_t)rig_figures(&rig).reserved, 24 * (int64_t)MIB,
		"in whole granules");
	is_int((int64_t)rig_figures(&rig).given, 24 * (int64_t)MIB, "given");
	is_int((int64_t)rig_figures(&rig).live, 23 * (int64_t)MIB, "asked for");
	is_int(rig_free(&rig, one + 4 * MIB, a), -EINVAL, "the inside of it");
	is_int(rig_error().error_class, GLAKE_ERROR_INVAL, "  its class");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 2);
}

/* Freed, its page stays where it is and serves the next one of its size. */
static void serves_again(void)
{
	uint64_t one, again, calls;
	struct CUstream_st *a, *b;
	struct rig rig;

	rig_open(&rig, (const char *const[]){"soft.streams=stepped", NULL});
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	one = rig_single(&rig, 20 * MIB, a);
	rig_work(&rig, one, 20 * MIB, a);
	calls = rig_all_calls(&rig);
	rig_free(&rig, one, a);
	is_int((int64_t)(rig_all_calls(&rig) - calls), 0, "freed without a call");
	is_int(rig_free(&rig, one, a), -EINVAL, "freed twice");
	is_int(rig_error().error_class, GLAKE_ERROR_DOUBLE_FREE, "  its class");
	is_int((int64_t)rig_figures(&rig).free_pages, 20 * (int64_t)MIB,
		"its page is idle");
	is_int((int64_t)rig_figures(&rig).quick, 0, "in no bin");
	is_sound(&rig, "the books agree");
	again = rig_single(&rig, 20 * MIB - 1, a);
	is_int((int64_t)again, (int64_t)one, "the next of its size lies there");
	is_int((int64_t)(rig_all_calls(&rig) - calls), 0, "without a call of the driver");
	rig_free(&rig, again, a);
	ok(rig_single(&rig, 18 * MIB, a), "one of another size");
	is_int((int64_t)rig_figures(&rig).reserved, 38 * (int64_t)MIB,
		"has a page of its own");
	calls = rig_calls(&rig, GLAKE_CALL_CREATE);
	again = rig_single(&rig, 20 * MIB, b);
	ok(again, "one for another stream");
	is_int((int64_t)(rig_calls(&rig, GLAKE_CALL_CREATE) - calls), 0,
		"gets that page");
	is_int((int64_t)rig_calls(&rig, GLAKE_CALL_STREAM_WAIT), 1, "behind a wait");
	rig_work(&rig, again, 20 * MIB, b);
	is_sound(&rig, "the books agree");
	rig_close(&rig, 2);
}

/* And ordinary blocks, which it serves as it lies. */
static void serves_others(void)
{
	uint64_t one, calls;
	struct glake_block block;
	struct CUstream_st *a;
	struct rig rig;

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	one = rig_single(&rig, 20 * MIB, a);
	rig_free(&rig, one, a);
	calls = rig_all_calls(&rig);
	is_int((int64_t)rig_alloc(&rig, 7 * MIB, a), (int64_t)one, "an ordinary block");
	is_int((int64_t)rig_alloc(&rig, 13 * MIB, a), (int64_t)(one + 7 * MIB),
		"and another");
	is_int((int64_t)(rig_all_calls(&rig) - calls), 0,
		"on the page of a contiguous one");
	is_int((int64_t)rig_figures(&rig).free_pages, 0, "all of it is in use");
	ok(!glk_cache_query(&rig.cache, one, &block) && !block.flags &&
			!(block.can & GLAKE_CAN_CONTIGUOUS),
		"neither is told to be contiguous");
	is_sound(&rig, "the books agree");
	rig_free(&rig, one, a);
	one = rig_single(&rig, 20 * MIB, a);
	ok(one, "a contiguous one meanwhile");
	is_int((int64_t)rig_calls(&rig, GLAKE_CALL_CREATE), 2, "has a page of its own");
	ok(!glk_cache_query(&rig.cache, one, &block) &&
			block.flags == GLAKE_ALLOC_CONTIGUOUS && block.pages == 1,
		"one page, all of it");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 2);
}

/* Behind addresses that are free and begin inside a slot, with new ones. */
static void begins_at_slot(void)
{
	uint64_t low, one, released;
	struct CUstream_st *a;
	struct rig rig;

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	low = rig_alloc(&rig, 3 * MIB, a);
	rig_free(&rig, rig_alloc(&rig, 3 * MIB, a), a);
	glk_cache_trim(&rig.cache, 0, &released);
	is_int((int64_t)rig_figures(&rig).largest_hole, 3 * (int64_t)MIB,
		"a hole below the mark");
	one = rig_single(&rig, 4 * MIB, a);
	is_int((int64_t)one, (int64_t)(low + 4 * MIB), "its whole slots, and one behind");
	is_int((int64_t)rig_figures(&rig).largest_hole, (int64_t)MIB,
		"the rest stays free");
	is_sound(&rig, "the books agree");
	rig_free(&rig, one, a);
	is_int((int64_t)rig_figures(&rig).largest_hole, 5 * (int64_t)MIB, "and merges");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 1);
}

/* Of several idle pages, the one that needs no wait. */
static void chooses(void)
{
	struct CUstream_st *a, *b;
	uint64_t of_a, of_b;
	struct rig rig;

	rig_open(&rig, (const char *const[]){"soft.streams=stepped", NULL});
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	of_a = rig_single(&rig, 4 * MIB, a);
	of_b = rig_single(&rig, 4 * MIB, b);
	rig_work(&rig, of_a, 4 * MIB, a);
	rig_work(&rig, of_b, 4 * MIB, b);
	rig_free(&rig, of_a, a);
	rig_free(&rig, of_b, b);
	is_int((int64_t)rig_single(&rig, 4 * MIB, a), (int64_t)of_a, "A gets its own");
	is_int((int64_t)rig_single(&rig, 4 * MIB, b), (int64_t)of_b, "so does B");
	is_int((int64_t)rig_calls(&rig, GLAKE_CALL_STREAM_WAIT), 0, "nobody waits");
	rig_close(&rig, 2);

	rig_open(&rig, (const char *const[]){"soft.streams=stepped", RIG_NEVER, NULL});
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	of_a = rig_single(&rig, 4 * MIB, a);
	rig_free(&rig, of_a, a);
	ok(rig_single(&rig, 4 * MIB, b) != of_a, "never: B does not get A's");
	ok(rig_single(&rig, 4 * MIB, a) == of_a, "A does");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 2);
}

/* Sizes that never come again: what is held stays near what was ever live at once. */
static void accumulates(const char *const *settings, uint64_t most)
{
	uint64_t addr[4] = {0}, state = 88172645463325252, peak = 0;
	struct CUstream_st *a;
	struct glake_stats s;
	bool served = true;
	struct rig rig;

	rig_open(&rig, settings);
	a = rig_stream(&rig);
	for (int n = 0; n < 400; n++) {
		uint64_t *slot = &addr[n % 4];

		state ^= state << 13, state ^= state >> 7, state ^= state << 17;
		if (*slot)
			rig_free(&rig, *slot, a);
		*slot = rig_single(&rig, (1 + state % 40) * 2 * MIB, a);
		served &= *slot != 0;
		s = rig_figures(&rig);
		peak = s.given > peak ? s.given : peak;
	}
	ok(served, "400 contiguous blocks of 1 to 40 slots");
	ok(s.peak_reserved <= peak + peak / 100 * most,
		"at the most %" PRIu64 " MiB were held, and %" PRIu64 " live",
		s.peak_reserved >> 20, peak >> 20);
	is_sound(&rig, "the books agree");
	rig_close(&rig, 4);
}

/*
 * The driver keeps a mapping of many granules. None of its addresses may be given again, not
 * even the last ones there are: a map over them would fail for ever.
 */
static void is_kept(void)
{
	struct CUstream_st *a;
	uint64_t one, got = 0, released = 1;
	struct rig rig;
	int err, given = 0;

	rig_open(&rig, (const char *const[]){"soft.memory=1GiB", "map.span=1GiB", NULL});
	a = rig_stream(&rig);
	one = rig_single(&rig, 16 * MIB, a);
	rig_free(&rig, one, a);
	tap_expect_log(1);
	glk_fault_set(rig.drv, "unmap:nth=1:err=EIO");
	is_int(glk_cache_trim(&rig.cache, 0, &released), -EIO,
		"the driver keeps a mapping");
	glk_fault_set(rig.drv, "off");
	is_int((int64_t)released, 0, "nothing went");
	is_int((int64_t)rig_figures(&rig).lost, 16 * (int64_t)MIB, "its page is lost");
	is_sound(&rig, "the books agree");
	while (!(err = rig_try(&rig, 2 * MIB, a, GLAKE_ALLOC_CONTIGUOUS, &got)))
		given++;
	is_int(err, -ENOMEM, "all addresses are given");
	is_int(rig_error().error_class, GLAKE_ERROR_ADDRESS, "  its class");
	is_int(given, (1024 - 16) / 2, "but those");
	is_sound(&rig, "the books agree");
	rig_close(&rig, (size_t)given);
}

int main(void)
{
	tap_plan_later();
	gives();
	serves_again();
	serves_others();
	begins_at_slot();
	chooses();
	accumulates((const char *const[]){"policy.target=1.05", NULL}, 6);
	is_kept();
	return tap_done();
}
