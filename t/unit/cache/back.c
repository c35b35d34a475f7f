/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Pages behind blocks: stitched from where they lay, and kept where they were. */
#include "rig.h"

#include <errno.h>

#define PAGE (8 * MIB)

static uint64_t word(uint64_t addr)
{
	return *(uint64_t *)addr;
}

static void set_word(uint64_t addr, uint64_t value)
{
	*(uint64_t *)addr = value;
}

/* Eight pages, every other one freed; then a block over the four that lie apart. */
static void stitches(void)
{
	uint64_t addr[8], wide, again, calls, sum = 0, made;
	struct CUstream_st *a;
	struct rig rig;
	bool kept = true;

	rig_open(&rig, (const char *const[]){"pool.budget=64MiB", NULL});
	a = rig_stream(&rig);
	for (uint64_t i = 0; i < 8; i++) {
		addr[i] = rig_alloc(&rig, PAGE, a);
		set_word(addr[i], 1 + i);
		set_word(addr[i] + PAGE - 8, 101 + i);
	}
	for (int i = 0; i < 8; i += 2)
		rig_free(&rig, addr[i], a);
	made = rig_calls(&rig, GLAKE_CALL_CREATE);
	calls = rig_calls(&rig, GLAKE_CALL_MAP);
	wide = rig_alloc(&rig, 4 * PAGE, a);
	ok(wide, "a block over four pages that lay apart");
	is_int((int64_t)(rig_calls(&rig, GLAKE_CALL_MAP) - calls), 4, "four maps");
	is_int((int64_t)(rig_calls(&rig, GLAKE_CALL_CREATE) - made), 0, "no new page");
	is_int((int64_t)rig_figures(&rig).stitches, 1, "it counts as stitched");
	for (uint64_t i = 0; i < 4; i++) {
		uint64_t first = word(wide + i * PAGE);

		sum += first;
		kept &= word(wide + (i + 1) * PAGE - 8) == first + 100;
	}
	is_int((int64_t)sum, 1 + 3 + 5 + 7, "what was written through the old mappings");
	ok(kept, "to the last word, page by page");
	is_int((int64_t)rig_figures(&rig).reserved, 64 * (int64_t)MIB,
		"the budget holds");
	is_sound(&rig, "the books agree");

	/* both mappings stay: from now on neither shape needs the driver */
	for (uint64_t i = 0; i < 4; i++)
		set_word(wide + i * PAGE, 1000 + i);
	rig_free(&rig, wide, a);
	calls = rig_all_calls(&rig);
	sum = 0;
	for (int i = 0; i < 8; i += 2) {
		again = rig_alloc(&rig, PAGE, a);
		sum += word(again);
	}
	is_int((int64_t)sum, 1000 + 1001 + 1002 + 1003,
		"written through the new, read through the old");
	is_int((int64_t)(rig_all_calls(&rig) - calls), 0, "without a call of the driver");
	for (int i = 0; i < 8; i += 2)
		rig_free(&rig, addr[i], a);
	calls = rig_all_calls(&rig);
	ok(rig_alloc(&rig, 4 * PAGE, a) == wide, "the wide one again, where it was");
	is_int((int64_t)(rig_all_calls(&rig) - calls), 0, "without a call of the driver");
	is_int((int64_t)rig_figures(&rig).stitches, 1, "nothing to stitch");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 5);
}

/* Neighbours share the page between them, and it goes when both have gone. */
static void shares(void)
{
	struct CUstream_st *a;
	uint64_t one, two, held;
	struct rig rig;

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	one = rig_alloc(&rig, 5 * MIB, a);
	two = rig_alloc(&rig, 5 * MIB, a);
	is_int((int64_t)two, (int64_t)(one + 5 * MIB), "two blocks beside each other");
	held = rig_figures(&rig).reserved;
	is_int((int64_t)held, 16 * (int64_t)MIB, "on two pages");
	is_int((int64_t)rig_figures(&rig).free_pages, 0, "both are touched");
	rig_free(&rig, one, a);
	rig_flush(&rig);
	is_int((int64_t)rig_figures(&rig).free_pages, 0, "by the second too");
	rig_free(&rig, two, a);
	rig_flush(&rig);
	is_int((int64_t)rig_figures(&rig).free_pages, (int64_t)held, "until it goes");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* A page with as many mappings as wanted gives one up for the next, the oldest. */
static void limits_aliases(void)
{
	struct CUstream_st *a;
	uint64_t one, wide, calls;
	struct glake_stats s;
	struct rig rig;

	rig_open(&rig,
		(const char *const[]){"pool.budget=64MiB", "map.aliases=2",
			"soft.streams=stepped", NULL});
	a = rig_stream(&rig);
	for (size_t pages = 1; pages <= 8; pages++) {
		wide = rig_alloc(&rig, pages * PAGE, a);
		one = pages < 8 ? rig_alloc(&rig, PAGE, a) : 0;
		if (!wide || (pages < 8 && !one))
			tap_bail("no block");
		rig_free(&rig, wide, a);
		if (one)
			rig_free(&rig, one, a);
		glk_soft_run_all(rig.drv);
		glk_event_poll(rig.cache.streams);
	}
	s = rig_figures(&rig);
	ok(s.mapped <= 2 * s.reserved, "pages have two mappings at most");
	is_sound(&rig, "the books agree");

	/* while the oldest mapping may be in use it stays, and the request goes on */
	wide = rig_alloc(&rig, 8 * PAGE, a);
	rig_work(&rig, wide, 8 * PAGE, a);
	rig_free(&rig, wide, a);
	calls = rig_calls(&rig, GLAKE_CALL_SYNC);
	for (int i = 0; i < 4; i++) {
		one = rig_alloc(&rig, 2 * PAGE - 512, a);
		rig_work(&rig, one, 2 * PAGE - 512, a);
	}
	ok(one, "more blocks while work is queued");
	is_int((int64_t)(rig_calls(&rig, GLAKE_CALL_SYNC) - calls), 0, "nobody waited");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 4);
}

/*
 * A page mapped at two places of one extent can serve only one of them. Two pages swap their
 * neighbours until both lie in one free run, then a block over all of it is asked for.
 */
static void splits_aliases(void)
{
	uint64_t state = 88172645463325252, addr[24] = {0};
	struct CUstream_st *a;
	bool apart = true;
	struct rig rig;

	rig_open(&rig, (const char *const[]){"pool.budget=64MiB", NULL});
	a = rig_stream(&rig);
	for (uint64_t n = 0; n < 3000; n++) {
		int i = (int)((state ^= state << 13, state ^= state >> 7,
				      state ^= state << 17) %
			24);
		size_t size = (1 + state % 7) * 4 * MIB;

		if (addr[i]) {
			rig_free(&rig, addr[i], a);
			addr[i] = 0;
			continue;
		}
		addr[i] = rig_alloc(&rig, size, a);
		if (!addr[i])
			continue;
		/* no page lies under two words of the block */
		for (uint64_t at = 0; at < size; at += PAGE / 2)
			set_word(addr[i] + at, n * 100 + at / (PAGE / 2));
		for (uint64_t at = 0; at < size; at += PAGE / 2)
			apart &= word(addr[i] + at) == n * 100 + at / (PAGE / 2);
		if (n % 100 == 0 && !rig_is_sound(&rig))
			apart = false;
	}
	ok(apart, "each word of 700 blocks is its own");
	ok(rig_figures(&rig).stitches > 50, "many of them stitched");
	for (int i = 0; i < 24; i++) {
		if (addr[i])
			rig_free(&rig, addr[i], a);
	}
	ok(rig_alloc(&rig, 64 * MIB, a), "all of it in one block");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 1);
}

int main(void)
{
	tap_plan_later();
	stitches();
	shares();
	limits_aliases();
	splits_aliases();
	return tap_done();
}
