/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Pages behind blocks: stitched from where they lay, and kept where they were. */
#include "unit/cache/rig.h"

#define SLOT (2 * MIB)
#define SLOT (2 * MIB)
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
	glk_cache_trim(&rig.cache, 0, false, &addr);
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

/* With plenty of memory the last page at the mark is a large one, and what comes next begins there. */
static void grows_whole(void)
{
	uint64_t addr[4], maps, unused;
	struct CUstream_st *a;
	struct rig rig;

	rig_open(&rig, (const char *const[]){"policy.target=auto", NULL});
	a = rig_stream(&rig);
	addr[0] = rig_alloc(&rig, 3 * MIB, a);
	is_int((int64_t)pages_of(&rig, addr[0]), 1, "a page for two slots");
	is_int((int64_t)rig_figures(&rig).reserved, PAGE, "of four");
	is_int((int64_t)rig_figures(&rig).stranded, 2 * SLOT,
		"what the block leaves of it is stranded");
	is_sound(&rig, "the books agree");
	maps = rig_calls(&rig, GLAKE_CALL_MAP);
	addr[1] = rig_alloc(&rig, 4 * MIB, a);
	ok(addr[1] == addr[0] + 3 * MIB, "the next one lies there");
	is_int((int64_t)(rig_calls(&rig, GLAKE_CALL_MAP) - maps), 0, "without a call");
	is_sound(&rig, "the books agree");
	addr[2] = rig_alloc(&rig, 20 * MIB, a);
	ok(addr[2] == addr[1] + 4 * MIB, "one that is larger begins there");
	is_int((int64_t)pages_of(&rig, addr[2]), 4, "with three pages more");
	is_int((int64_t)rig_figures(&rig).reserved, 4 * PAGE, "large ones");
	is_sound(&rig, "the books agree");
	addr[3] = rig_alloc(&rig, 64 << 10, a);
	is_int((int64_t)rig_figures(&rig).reserved, 4 * PAGE + SLOT,
		"a slot of small blocks has a page of its own");
	is_sound(&rig, "the books agree");
	for (int i = 0; i < 4; i++)
		rig_free(&rig, addr[i], a);
	glk_cache_trim(&rig.cache, 0, false, &unused);
	is_int((int64_t)rig_figures(&rig).reserved, 0, "all goes back");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);

	/* as many as blocks need where a budget is near */
	rig_open(&rig,
		(const char *const[]){"policy.target=auto", "pool.budget=12MiB", NULL});
	a = rig_stream(&rig);
	addr[0] = rig_alloc(&rig, 3 * MIB, a);
	is_int((int64_t)pages_of(&rig, addr[0]), 2, "single ones within a budget");
	rig_close(&rig, 1);
}

int main(void)
{
	tap_plan_later();
	stitches();
	cuts();
	grows_whole();
	return tap_done();
}
