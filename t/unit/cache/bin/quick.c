/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What lies in the bins: sizes, waves, and bins that change hands. */
#include "unit/cache/rig.h"

#include <errno.h>

static struct rig rig;
static struct CUstream_st *a;

static void begin(const char *const *settings)
{
	rig_open(&rig, settings);
	a = rig_stream(&rig);
}

/* Large blocks wait in bins, any number of them. */
#define ALL                                                                              \
	(const char *const[])                                                            \
	{                                                                                \
		"policy.bins=64MiB", NULL                                                \
	}

static uint64_t quick(void)
{
	return rig_figures(&rig).quick;
}

static uint64_t misses(void)
{
	return rig_figures(&rig).misses;
}

static struct glk_row *row_of(struct CUstream_st *stream)
{
	for (uint32_t i = 1; i <= rig.cache.last_row; i++) {
		if (glk_load_relaxed(&rig.cache.rows[i].handle) == stream)
			return &rig.cache.rows[i];
	}
	tap_bail("no row");
}

/* To the grain. */
static void rounds(void)
{
	is_int(glk_quick_grains(1), 1, "a byte takes a grain");
	is_int(glk_quick_grains(GLAKE_GRAIN), 1, "which it may fill");
	is_int(glk_quick_grains(GLAKE_GRAIN + 1), 2, "one more takes two");
	is_int(glk_quick_grains(5 * MIB - 511), 5 * MIB / GLAKE_GRAIN,
		"large ones alike");
	is_int(glk_quick_grains(SIZE_MAX), SIZE_MAX / GLAKE_GRAIN + 1,
		"up to the largest");
}

/* A wave of one size misses at its powers of two, and goes upwards. */
static void refills(void)
{
	uint64_t first = 0, addr, before, calls = 0;
	bool upwards = true, doubles = true;

	begin(NULL);
	for (uint64_t n = 1; n <= 127; n++) {
		before = n > 1 ? misses() : 0;
		addr = rig_alloc(&rig, 4096, a);
		first = n > 1 ? first : addr;
		upwards &= addr == first + (n - 1) * 4096;
		doubles &= (misses() - before == 1) == !(n & (n - 1));
		if (n == 1)
			calls = rig_all_calls(&rig);
	}
	ok(doubles, "the 1st, 2nd, 4th, 8th ... miss");
	ok(upwards, "each lies behind the one before");
	is_int(misses(), 7, "of 127, seven missed");
	is_int(rig_all_calls(&rig) - calls, 0, "what is carved ahead costs no call");
	ok(quick() <= 256 << 10, "and is bounded");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 127);

	/* no page is mapped for what nobody asked for */
	begin(NULL);
	for (int i = 0; i < 7; i++)
		rig_alloc(&rig, 256 << 10, a);
	is_int(quick(), 0, "large for a small one: nothing is carved ahead");
	is_int(rig_calls(&rig, GLAKE_CALL_CREATE), 1, "on one page");
	rig_close(&rig, 7);
}

/* Sizes whose bins have one place, or the one beside it. */
static void collide(size_t *ret_sizes, int count)
{
	uint64_t grains = 3 * MIB >> GLK_GRAIN_SHIFT;
	uint32_t place = glk_row_hash(grains) & ~1u;

	for (int found = 0; found < count; grains++) {
		if ((glk_row_hash(grains) & ~1u) != place)
			continue;
		ret_sizes[found++] = grains << GLK_GRAIN_SHIFT;
		if (grains << GLK_GRAIN_SHIFT >= 4 * MIB)
			tap_bail("no such sizes");
	}
}

static void changes_size(void)
{
	struct glake_block block;
	uint64_t addr[4];
	size_t sizes[4];
	bool exact = true;

	begin(ALL);
	collide(sizes, 4);
	for (int i = 0; i < 4; i++)
		addr[i] = rig_alloc(&rig, sizes[i], a);
	for (int i = 0; i < 4; i++) {
		is_int(rig_free(&rig, addr[i], a), 0, "freed, whatever its bin is for");
		is_int(rig_free(&rig, addr[i], a), -EINVAL, "once");
		is_sound(&rig, "the books agree");
	}
	is_int(quick(), sizes[0] + sizes[1] + sizes[2] + sizes[3],
		"into the one that each was given from");
	for (int n = 0; n < 50; n++) {
		for (int i = 0; i < 4; i++) {
			addr[i] = rig_alloc(&rig, sizes[i], a);
			exact &= !glk_cache_query(&rig.cache, addr[i], &block) &&
				block.given == sizes[i];
		}
		for (int i = 0; i < 4; i++)
			exact &= !rig_free(&rig, addr[(i + n) % 4], a);
	}
	ok(exact, "each gets its size, many times");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* A block in a bin that is for another size: the push of a thread that read the old. */
static void strays(int other, uint32_t beside)
{
	struct glake_block block;
	struct glk_row *row;
	size_t sizes[4];
	uint64_t addr;
	uint32_t i;

	begin(ALL);
	collide(sizes, 4);
	rig_free(&rig, rig_alloc(&rig, sizes[0], a), a);
	is_int(quick(), sizes[0], "in its bin");
	row = row_of(a);
	i = glk_row_find(row, sizes[0] >> GLK_GRAIN_SHIFT);
	is_int(i ^ glk_row_hash(sizes[other] >> GLK_GRAIN_SHIFT), beside,
		"where one for another size may be, too");
	glk_store_relaxed(&row->bin[i].key, sizes[other] >> GLK_GRAIN_SHIFT);
	addr = rig_alloc(&rig, sizes[other], a);
	ok(!glk_cache_query(&rig.cache, addr, &block) && block.given == sizes[other],
		"the request does not get the stray one");
	is_int(quick(), 0, "which went back to its extent");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 1);
}

/* A bin at which two threads met: its blocks are hits as before, and all are found. */
static void crowds(void)
{
	uint64_t addr[4], hits;
	struct glk_crowd *crowd;
	struct glk_bin *bin;
	size_t sizes[4];
	bool same = true;

	begin(ALL);
	collide(sizes, 4);
	for (int i = 0; i < 4; i++)
		addr[i] = rig_alloc(&rig, sizes[0], a);
	rig_free(&rig, addr[0], a);
	bin = &row_of(a)->bin[glk_row_find(row_of(a), sizes[0] >> GLK_GRAIN_SHIFT)];
	glk_quick_crowd(&rig.cache, bin);
	crowd = glk_load_relaxed(&bin->crowd);
	ok(crowd, "more heads");
	ok(glk_load_relaxed(&bin->key) & GLK_BIN_CROWDED, "as its key says");
	glk_quick_crowd(&rig.cache, bin);
	ok(glk_load_relaxed(&bin->crowd) == crowd, "once for all");

	hits = rig_figures(&rig).hits;
	is_int(rig_alloc(&rig, sizes[0], a), addr[0], "a block from before is found");
	for (int n = 0; n < 50; n++) {
		for (int i = 0; i < 4; i++)
			rig_free(&rig, addr[i], a);
		for (int i = 4; i-- > 0;)
			same &= rig_alloc(&rig, sizes[0], a) == addr[i];
	}
	ok(same, "one thread has the last first, as without a crowd");
	is_int(rig_figures(&rig).hits - hits, 201, "all are hits");
	for (int i = 0; i < 4; i++)
		rig_free(&rig, addr[i], a);
	is_int(quick(), 4 * sizes[0], "all in the bin");
	is_sound(&rig, "the books agree");
	rig_flush(&rig);
	is_int(quick(), 0, "none after a flush");
	is_sound(&rig, "the books agree");

	/* another size takes the place */
	rig_free(&rig, rig_alloc(&rig, sizes[0], a), a);
	for (int i = 1; i < 4; i++)
		addr[i] = rig_alloc(&rig, sizes[i], a);
	ok(glk_bin_grains(bin) != sizes[0] >> GLK_GRAIN_SHIFT, "a bin for another size");
	ok(glk_load_relaxed(&bin->key) & GLK_BIN_CROWDED, "keeps its crowd");
	is_int(quick(), 0, "and nothing of the old one");
	for (int i = 1; i < 4; i++)
		rig_free(&rig, addr[i], a);
	for (int n = 0; n < 20; n++)
		same &= !rig_free(&rig, rig_alloc(&rig, sizes[n % 4], a), a);
	ok(same, "serves on");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* The stream a block was given on has ended, and its place may be another's by now. */
static void outlives_stream(void)
{
	uint64_t small, medium, large, binned;
	struct CUstream_st *b;

	begin(NULL);
	b = rig_stream(&rig);
	small = rig_alloc(&rig, 5000, b);
	medium = rig_alloc(&rig, 3 * MIB, b);
	large = rig_alloc(&rig, 32 * MIB, b);
	binned = rig_alloc(&rig, 200 << 10, b);
	rig_free(&rig, binned, b);
	ok(quick() >= 200 << 10, "something is in its bins");
	glk_cache_stream_end(&rig.cache, b);
	is_int(quick(), 0, "nothing, when it has ended");
	is_sound(&rig, "the books agree");
	is_int(rig_free(&rig, medium, a), 0, "freed on another stream");
	is_int(quick(), 0, "into no bin");
	is_int(rig_free(&rig, medium, a), -EINVAL, "freed twice");
	is_int(rig_error().error_class, GLAKE_ERROR_DOUBLE_FREE, "  its class");
	b = rig_stream(&rig);
	ok(rig_alloc(&rig, 5000, b), "a new stream, perhaps in its place");
	is_int(rig_free(&rig, small, b), 0, "freed on that");
	is_int(rig_free(&rig, large, NULL), 0, "on the legacy stream");
	is_sound(&rig, "the books agree");
	rig_flush(&rig);
	is_int(quick(), 0, "all of it can be had");
	is_sound(&rig, "the books agree");
	is_int(rig_figures(&rig).live, 5000, "but what is live");
	rig_close(&rig, 1);
}

/* The bins keep no descriptors from a request, and sizes that never come again none for good:
 * after all sizes were asked for some times, 16384 requests each, and the bins of small ones carve
 * no more than they did, no more come. */
static void never_repeats(void)
{
	uint64_t addr[64] = {0}, early = 0;
	struct glake_stats s;
	bool served = true;
	size_t size = 1;

	begin((const char *const[]){"pool.budget=700MiB", NULL});
	for (uint64_t n = 0; n < 400000; n++) {
		uint64_t *slot = &addr[n * 37 % 64];

		if (*slot)
			rig_free(&rig, *slot, a);
		size = (size * 48271) % 0x7fffffff;
		*slot = rig_alloc(&rig, n * 512 % (8 * MIB) + size % 512 + 1, a);
		served &= *slot != 0;
		if (n == 200000)
			early = glk_load_relaxed(&rig.cache.arena.map.extents.used);
	}
	s = rig_figures(&rig);
	ok(served, "all are served");
	ok(glk_load_relaxed(&rig.cache.arena.map.extents.used) <= early + early / 8,
		"extents: %u after twice the requests of %" PRIu64,
		glk_load_relaxed(&rig.cache.arena.map.extents.used), early);
	ok(s.mapped <= (uint64_t)rig.conf.map_aliases * s.reserved,
		"mappings: %" PRIu64 " MiB of %" PRIu64, s.mapped >> 20,
		s.reserved >> 20);
	is_sound(&rig, "the books agree");
	rig_close(&rig, 64);

	/* pages are mapped for more blocks than there are descriptors */
	begin((const char *const[]){"map.extents=64", NULL});
	for (int i = 0; i < 40; i++)
		addr[i] = rig_alloc(&rig, 4 * MIB - 512, a);
	for (int i = 0; i < 40; i++)
		rig_free(&rig, addr[i], a);
	rig_flush(&rig);
	served = true;
	for (size_t n = 0; n < 2000; n++) {
		addr[0] = rig_alloc(&rig, 1 + n * 1000 % (3 * MIB), a);
		served &= addr[0] && !rig_free(&rig, addr[0], a);
	}
	ok(served, "one block at a time, with few descriptors");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

int main(void)
{
	tap_plan_later();
	rounds();
	refills();
	changes_size();
	strays(1, 1); /* a miss finds it */
	strays(2, 0); /* a hit */
	crowds();
	outlives_stream();
	never_repeats();
	return tap_done();
}
