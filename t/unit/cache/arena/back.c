/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Pages behind blocks: stitched from where they lay, and kept where they were. */
#include "unit/cache/rig.h"

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
	uint64_t one, two;
	struct rig rig;

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	one = rig_alloc(&rig, 5 * MIB, a);
	two = rig_alloc(&rig, 5 * MIB, a);
	is_int((int64_t)two, (int64_t)(one + 5 * MIB), "two blocks beside each other");
	is_int((int64_t)rig_figures(&rig).reserved, 10 * (int64_t)MIB, "on five pages");
	is_int((int64_t)rig_figures(&rig).free_pages, 0, "all are touched");
	rig_free(&rig, one, a);
	rig_flush(&rig);
	is_int((int64_t)rig_figures(&rig).free_pages, 4 * (int64_t)MIB,
		"the third by the second too");
	rig_free(&rig, two, a);
	rig_flush(&rig);
	is_int((int64_t)rig_figures(&rig).free_pages, 10 * (int64_t)MIB, "until it goes");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

static uint64_t pages_of(struct rig *rig, uint64_t addr)
{
	struct glake_block block;

	return glk_cache_query(&rig->cache, addr, &block) ? 0 : block.pages;
}

/* Large pages inside, single ones at an end that others may share. */
static void cuts(void)
{
	static const struct {
		size_t below, size, pages;
		const char *what;
	} cut[] = {
		{0, 8 * MIB, 1, "a large page"},
		{0, 8 * MIB - 512, 4, "an end inside a slot: single ones"},
		{0, 10 * MIB - 512, 2, "behind a large one"},
		{0, 14 * MIB, 4, "one, and three single ones"},
		{0, 24 * MIB, 3, "three large ones"},
		{5 * MIB, 20 * MIB, 5, "a shared one, two large ones, two single ones"},
		{6 * MIB, 16 * MIB, 2, "large ones begin at any slot"},
		{MIB + 512, 512, 1, "a shared one"},
	};
	struct CUstream_st *a;
	uint64_t addr;
	struct rig rig;

	for (size_t i = 0; i < sizeof(cut) / sizeof(*cut); i++) {
		rig_open(&rig, (const char *const[]){"policy.bins=0", NULL});
		a = rig_stream(&rig);
		if (cut[i].below)
			rig_alloc(&rig, cut[i].below, a);
		addr = rig_alloc(&rig, cut[i].size, a);
		is_int((int64_t)pages_of(&rig, addr), (int64_t)cut[i].pages, cut[i].what);
		is_sound(&rig, "the books agree");
		rig_close(&rig, 1 + (cut[i].below > 0));
	}

	/* its own beginning inside a slot that nothing is mapped at */
	rig_open(&rig, (const char *const[]){"policy.ends=high", NULL});
	a = rig_stream(&rig);
	rig_free(&rig, rig_alloc(&rig, 32 * MIB, a), a);
	glk_cache_trim(&rig.cache, 0, &addr);
	is_int((int64_t)addr, 32 * (int64_t)MIB, "a hole without pages");
	addr = rig_alloc(&rig, 15 * MIB, a);
	is_int((int64_t)pages_of(&rig, addr), 5,
		"a single one, a large one, three single ones");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 1);

	/* no large pages at all */
	rig_open(&rig, (const char *const[]){"pool.large_page=2MiB", NULL});
	a = rig_stream(&rig);
	addr = rig_alloc(&rig, 20 * MIB, a);
	is_int((int64_t)pages_of(&rig, addr), 10, "where large pages are of one slot");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 1);
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
		glk_event_poll(&rig.cache.streams);
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

#define HOLES 40

/* A block of six MiB where one of eight was, on one large page, while many such pages are used in
 * part already; the size of its first page. */
static uint64_t strand(const char *target)
{
	uint64_t addr[2 * HOLES], got;
	struct glake_block block = {0};
	struct CUstream_st *a;
	struct rig rig;

	rig_open(&rig, (const char *const[]){target, NULL});
	a = rig_stream(&rig);
	for (int i = 0; i < 2 * HOLES; i++)
		addr[i] = rig_alloc(&rig, PAGE, a);
	for (int i = 0; i < 2 * HOLES; i += 2)
		rig_free(&rig, addr[i], a);
	rig_flush(&rig);
	for (int i = 2; i < 2 * HOLES; i += 2) {
		got = rig_alloc(&rig, 6 * MIB, a);
		if (!got || glk_cache_query(&rig.cache, got, &block))
			tap_bail("no block");
	}
	ok(rig.cache.arena.map.stranded > 0, "memory is stranded: %" PRIu64 " MiB",
		rig.cache.arena.map.stranded * 2);
	is_sound(&rig, "the books agree");
	got = rig_alloc(&rig, 6 * MIB, a);
	if (!got || glk_cache_query(&rig.cache, got, &block))
		tap_bail("no block");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 2 * HOLES);
	return block.page_size;
}

/* Where that is too much, an idle large page is not used in part, but goes elsewhere. */
static void strands(void)
{
	is_int((int64_t)strand("policy.target=2"), (int64_t)PAGE,
		"with memory to spare it lies on the large page");
	is_int((int64_t)strand("policy.target=1"), 2 * (int64_t)MIB,
		"with none on small ones");
}

int main(void)
{
	tap_plan_later();
	stitches();
	shares();
	cuts();
	strands();
	limits_aliases();
	return tap_done();
}
