/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Sizes of the pages inside blocks: up to 64 MiB on a GPU that is empty, less the fuller it is. */
#include "unit/cache/rig.h"

#define SLOT  (2 * MIB)
#define HALF  (8 * MIB)
#define LARGE (16 * MIB)
#define TWICE (32 * MIB)
#define HUGE  (64 * MIB)
#define BLOCK (200 * MIB)

#define AUTO "pool.large_page=0", "policy.target=auto", "soft.host_memory=512MiB"

static struct rig rig;
static struct CUstream_st *a;

static void begin(const char *const *settings)
{
	rig_open(&rig, settings);
	a = rig_stream(&rig);
}

/* Mappings of a size behind the first block of a GPU. */
static int count(size_t size)
{
	const struct glk_map *map = &rig.cache.arena.map;
	int found = 0;

	for (uint32_t slot = 0; slot < BLOCK / SLOT;) {
		struct glk_mapping m = glk_mapping_at(map, slot);

		found += (size_t)(m.last - m.first + 1) << map->shift == size;
		slot = m.last + 1;
	}
	return found;
}

static void write_words(uint64_t addr)
{
	for (uint64_t at = 0; at < BLOCK; at += SLOT)
		*(uint64_t *)(addr + at) = at + 1;
}

static size_t wrong_words(uint64_t addr)
{
	size_t wrong = 0;

	for (uint64_t at = 0; at < BLOCK; at += SLOT)
		wrong += *(uint64_t *)(addr + at) != at + 1;
	return wrong;
}

/* The block goes away, the GPU holds nothing, and it comes back. */
static void there_and_back(uint64_t addr, const char *fault)
{
	uint64_t trimmed;

	is_int(glk_cache_spill(&rig.cache, addr, a), 0, "the block goes away");
	rig_flush(&rig);
	is_int(glk_cache_trim(&rig.cache, 0, true, &trimmed), 0, "its pages too");
	is_int(rig_figures(&rig).reserved, 0, "all of them");
	if (fault && glk_fault_set(rig.drv, fault))
		tap_bail(fault);
	is_int(glk_cache_fetch(&rig.cache, addr, a), 0, "it comes back");
	is_int((int64_t)wrong_words(addr), 0, "as it was");
	is_sound(&rig, "the books agree");
}

static void comes_in_huge(void)
{
	uint64_t addr, calls;

	begin((const char *const[]){AUTO, NULL});
	addr = rig_alloc(&rig, BLOCK, a);
	write_words(addr);
	is_int(count(HUGE), 3, "a new block has three huge pages");
	is_int(count(HALF), 1, "and behind them one of what is left");
	there_and_back(addr, NULL);
	is_int(count(HUGE), 3, "it comes back to three");
	is_int(count(SLOT), 4, "and what does not fill a large one in single pages");
	is_int(rig_figures(&rig).reserved, BLOCK, "no more than it has");

	rig_free(&rig, addr, a);
	calls = rig_all_calls(&rig);
	for (uint64_t i = 0; i < 5; i++)
		ok(rig_alloc(&rig, 40 * MIB, a), "a block in its place");
	is_int(rig_all_calls(&rig) - calls, 0, "without a call of the driver");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 5);
}

static void not_where_it_is_tight(const char *setting, const char *why)
{
	uint64_t addr;

	begin((const char *const[]){AUTO, setting, NULL});
	addr = rig_alloc(&rig, BLOCK, a);
	write_words(addr);
	there_and_back(addr, NULL);
	is_int(count(HUGE), 0, why);
	rig_free(&rig, addr, a);
	rig_close(&rig, 0);
}

/* Once there was more than half, there may be again. */
static void not_after_a_peak(void)
{
	uint64_t addr, more;

	begin((const char *const[]){AUTO, NULL});
	addr = rig_alloc(&rig, BLOCK, a);
	more = rig_alloc(&rig, 400 * MIB, a);
	rig_free(&rig, more, a);
	write_words(addr);
	there_and_back(addr, NULL);
	is_int(count(HUGE), 0, "none where most was live once");
	rig_free(&rig, addr, a);
	rig_close(&rig, 0);
}

/* Pages behind a block, by size. */
static void is_made_of(const struct glk_map *map, uint64_t addr, size_t bytes,
	const char *want, const char *what)
{
	uint32_t slot = glk_slot_of(map, addr - map->range[0].base);
	uint32_t behind = slot + glk_slot_of(map, bytes);
	char got[256] = "";

	while (slot < behind) {
		struct glk_mapping m = glk_mapping_at(map, slot);
		size_t end = strlen(got);

		snprintf(got + end, sizeof(got) - end, "%s%zu", end ? " " : "",
			(size_t)(m.last - m.first + 1) * SLOT / MIB);
		slot = m.last + 1;
	}
	is_str(got, want, what);
}

/* A GPU of 1 GiB. */
static void the_fuller_the_smaller(void)
{
	const struct glk_map *map = &rig.cache.arena.map;
	uint64_t addr[4], calls;

	begin((const char *const[]){AUTO, NULL});
	addr[0] = rig_alloc(&rig, 184 * MIB, a);
	is_made_of(map, addr[0], 184 * MIB, "64 64 32 16 8", "to a quarter up to 64 MiB");
	addr[1] = rig_alloc(&rig, 120 * MIB, a);
	is_made_of(map, addr[1], 120 * MIB, "64 32 16 8", "of what comes next too");
	addr[2] = rig_alloc(&rig, 256 * MIB, a);
	is_made_of(
		map, addr[2], 256 * MIB, "32 32 32 32 32 32 32 32", "to a half 32 MiB");
	addr[3] = rig_alloc(&rig, 64 * MIB, a);
	is_made_of(map, addr[3], 64 * MIB, "8 8 8 8 8 8 8 8", "beyond it 8 MiB");

	/* a block that lies elsewhere */
	rig_free(&rig, addr[0], a);
	rig_free(&rig, addr[2], a);
	rig_flush(&rig);
	calls = rig_calls(&rig, GLAKE_CALL_CREATE);
	addr[0] = rig_alloc(&rig, 440 * MIB, a);
	is_made_of(map, addr[0], 440 * MIB, "64 64 32 32 32 32 32 32 32 32 32 16 8",
		"what is idle serves as it is");
	is_int(rig_calls(&rig, GLAKE_CALL_CREATE) - calls, 1,
		"and the smallest alone is new: the target allows it");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 3);
}

/* The driver has memory, but not in one piece. */
static void in_large_instead(void)
{
	uint64_t addr;

	begin((const char *const[]){AUTO, NULL});
	addr = rig_alloc(&rig, BLOCK, a);
	write_words(addr);
	there_and_back(addr, "create:nth=2:err=ENOMEM");
	ok(rig_struck(&rig), "the second page was refused");
	is_int(count(HUGE), 1, "the first is huge");
	is_int(count(LARGE), 8, "large ones stand for the others");
	is_int(rig_figures(&rig).reserved, BLOCK, "no more than it has");
	rig_free(&rig, addr, a);
	rig_close(&rig, 0);
}

/* A block has two runs without pages, of which the second ends in a large page that reaches beyond it, and all else is
 * made of halves. */
static void ends_large_behind_halves(void)
{
	const struct glk_map *map = &rig.cache.arena.map;
	uint64_t addr[2], trimmed;

	begin((const char *const[]){AUTO, "policy.bins=0", NULL});
	addr[0] = rig_alloc(&rig, 3 * HUGE, a);
	addr[1] = rig_alloc(&rig, LARGE, a);
	rig_free(&rig, addr[0], a);
	rig_flush(&rig);
	is_int(glk_cache_trim(&rig.cache, 0, false, &trimmed), 0, "a hole without pages");
	rig_free(&rig, addr[1], a);
	rig_flush(&rig);
	if (glk_fault_set(rig.drv, "create:nth=1:err=ENOMEM"))
		tap_bail("no fault");
	addr[1] = rig_alloc(&rig, 3 * HUGE + LARGE + 12 * MIB, a);
	ok(rig_struck(&rig), "a huge page is refused");
	ok(addr[1] == addr[0], "of a block over the hole and what lies behind it");
	is_made_of(map, addr[1], 3 * HUGE + LARGE + 12 * MIB,
		"8 8 8 8 8 8 8 8 8 8 8 8 8 8 8 8 8 8 8 8 8 8 8 8 16 16",
		"it ends in a large one");
	is_int(rig_figures(&rig).stranded, 2 * SLOT, "of which a part lies beyond it");
	is_sound(&rig, "the books agree");
	rig_free(&rig, addr[1], a);
	rig_close(&rig, 0);
}

int main(void)
{
	tap_plan_later();
	comes_in_huge();
	the_fuller_the_smaller();
	not_where_it_is_tight(
		"pool.budget=390MiB", "none with a budget of less than twice that");
	not_where_it_is_tight("soft.memory=390MiB", "nor on a GPU of so little");
	not_where_it_is_tight(
		"pool.large_page=16MiB", "nor where somebody said how large pages are");
	not_where_it_is_tight("policy.target=1.05", "nor where the target is a number");
	not_after_a_peak();
	in_large_instead();
	ends_large_behind_halves();
	return tap_done();
}
