/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Requests of all kinds, and blocks taken back. */
#include "rig.h"

#include <errno.h>

/* size, flags, size of the first page, pages if it is alone */
static const struct {
	size_t size;
	uint32_t flags;
	size_t page_size, pages;
} kinds[] = {
	{1, 0, 2 * MIB, 1},
	{511, 0, 2 * MIB, 1},
	{512, 0, 2 * MIB, 1},
	{513, 0, 2 * MIB, 1},
	{MIB, 0, 2 * MIB, 1},
	{MIB + 1, 0, 2 * MIB, 1},
	{3 * MIB, 0, 2 * MIB, 2},
	{4 * MIB, 0, 2 * MIB, 2},
	{8 * MIB, 0, 8 * MIB, 1},
	{20 * MIB, 0, 8 * MIB, 4},
	{1, GLAKE_ALLOC_CONTIGUOUS, 2 * MIB, 1},
	{20 * MIB - 512, GLAKE_ALLOC_CONTIGUOUS, 20 * MIB, 1},
};

/* The steady state: the same sizes on the same stream need no driver, and up to policy.bins no
 * lock either. */
static void hits(void)
{
	static const size_t sizes[] = {700, 5 * MIB, 2 * MIB, 64 * MIB, 100 << 10};
	uint64_t addr[5], calls;
	struct glake_stats s;
	bool same = true;
	struct rig rig;
	struct CUstream_st *a;

	rig_open(&rig, (const char *const[]){"soft.streams=stepped", NULL});
	a = rig_stream(&rig);
	for (int i = 0; i < 5; i++) {
		addr[i] = rig_alloc(&rig, sizes[i], a);
		rig_work(&rig, addr[i], sizes[i], a);
	}
	for (int i = 0; i < 5; i++)
		rig_free(&rig, addr[i], a);
	calls = rig_all_calls(&rig);
	s = rig_figures(&rig);
	for (int n = 0; n < 20; n++) {
		for (int i = 0; i < 5; i++) {
			uint64_t got = rig_alloc(&rig, sizes[i], a);

			if (n < 2)
				addr[i] = got;
			same &= got == addr[i];
		}
		for (int i = 0; i < 5; i++)
			rig_free(&rig, addr[4 - i], a);
	}
	ok(same, "the same requests get the same addresses");
	is_int((int64_t)(rig_all_calls(&rig) - calls), 0, "without a call of the driver");
	ok(rig_figures(&rig).hits - s.hits >= 40, "those for small blocks are hits");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

static void gives(void)
{
	struct glake_block block;
	struct CUstream_st *a;
	struct rig rig;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		bool single = kinds[i].flags;
		size_t grain = single ? 2 * MIB : GLAKE_GRAIN;
		size_t given = (kinds[i].size + grain - 1) / grain * grain;
		uint64_t addr = 0;

		rig_open(&rig, NULL);
		a = rig_stream(&rig);
		tap_note("%zu bytes, flags %x", kinds[i].size, kinds[i].flags);
		is_int(rig_try(&rig, kinds[i].size, a, kinds[i].flags, &addr), 0,
			"a block");
		ok(addr && addr % GLAKE_GRAIN == 0, "aligned to the grain");
		memset((void *)addr, 0x5a, given);
		is_int(glk_cache_query(&rig.cache, addr + given - 1, &block), 0,
			"found by its last byte");
		ok(block.base == (void *)addr && block.size == kinds[i].size &&
				block.given == given && block.device == 0 &&
				block.flags == kinds[i].flags && block.stream == a,
			"as it was asked for");
		is_int((int64_t)block.page_size, (int64_t)kinds[i].page_size,
			"page size");
		is_int((int64_t)block.pages, (int64_t)kinds[i].pages, "pages");
		is_int((int64_t)rig_figures(&rig).live, (int64_t)kinds[i].size, "live");
		is_int((int64_t)rig_figures(&rig).given, (int64_t)given, "given");
		is_sound(&rig, "the books agree");
		is_int(rig_free(&rig, addr, a), 0, "freed");
		is_int(glk_cache_query(&rig.cache, addr, &block), -EINVAL, "gone");
		is_sound(&rig, "the books agree still");
		rig_close(&rig, 0);
	}
}

static void refuses(void)
{
	uint64_t a1, a2, other = 7, most = 512 * MIB;
	struct glake_block block;
	struct CUstream_st *a;
	struct glake_stats s;
	struct rig rig;

	rig_open(&rig, (const char *const[]){"soft.memory=512MiB", NULL});
	a = rig_stream(&rig);
	a1 = rig_alloc(&rig, 100 << 10, a);
	a2 = rig_alloc(&rig, 9 * MIB, a);
	s = rig_figures(&rig);
	is_int(rig_free(&rig, a1 + 512, a), -EINVAL, "the inside of a small block");
	is_int(rig_error().error_class, GLAKE_ERROR_INVAL, "  its class");
	is_int(rig_free(&rig, a1 + 1, a), -EINVAL, "one byte in");
	is_int(rig_free(&rig, a2 + 8 * MIB, a), -EINVAL, "the inside of a large block");
	is_int(rig_error().error_class, GLAKE_ERROR_INVAL, "  its class");
	is_int(rig_free(&rig, a2 + 9 * MIB, a), -EINVAL, "one past the end");
	is_int(rig_error().error_class, GLAKE_ERROR_NOT_MINE, "  its class");
	is_int(rig_free(&rig, a2 + (1u << 30), a), -EINVAL, "addresses never used");
	is_int(rig_error().error_class, GLAKE_ERROR_NOT_MINE, "  its class");
	is_int(glk_cache_query(&rig.cache, a2 + 9 * MIB, &block), -EINVAL,
		"nothing to tell of them");
	is_int(rig_error().error_class, GLAKE_ERROR_NOT_MINE, "  its class");
	is_int(rig_try(&rig, most + 1, a, 0, &other), -ENOMEM, "more than the GPU");
	is_int(rig_error().error_class, GLAKE_ERROR_NOMEM_DEVICE, "  its class");
	is_int(rig_try(&rig, SIZE_MAX, a, 0, &other), -ENOMEM, "SIZE_MAX");
	is_int(rig_try(&rig, SIZE_MAX - 511, a, GLAKE_ALLOC_CONTIGUOUS, &other), -ENOMEM,
		"SIZE_MAX - 511, contiguous");
	is_int((int64_t)other, 7, "the output is as it was");
	is_int((int64_t)rig_figures(&rig).oom, 3, "three were counted");
	is_int((int64_t)rig_figures(&rig).live, (int64_t)s.live, "nothing was lost");
	is_int(rig_free(&rig, a1, a), 0, "freed");
	is_int(rig_free(&rig, a1, a), -EINVAL, "twice");
	is_int(rig_error().error_class, GLAKE_ERROR_DOUBLE_FREE, "  its class");
	is_int(rig_free(&rig, a2, a), 0, "freed");
	is_int(rig_free(&rig, a2, a), -EINVAL, "twice");
	is_int(rig_error().error_class, GLAKE_ERROR_DOUBLE_FREE, "  its class");
	is_int((int64_t)rig_figures(&rig).frees, 2, "two frees were counted");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* Exactly the GPU, in one block, in grains, and one more byte. */
static void fills(void)
{
	uint64_t all, rest = 0;
	struct CUstream_st *a;
	struct rig rig;

	rig_open(&rig, (const char *const[]){"soft.memory=64MiB", NULL});
	a = rig_stream(&rig);
	all = rig_alloc(&rig, 64 * MIB, a);
	ok(all, "all of the GPU in one block");
	is_int(rig_try(&rig, 1, a, 0, &rest), -ENOMEM, "one byte more");
	has_str(rig_error().text, "has no room", "  says so");
	is_int(rig_free(&rig, all, a), 0, "freed");
	for (int i = 0; i < 32; i++)
		rest = rig_alloc(&rig, i % 2 ? 3 * MIB : MIB, a);
	ok(rest, "all of it in blocks of 1 and 3 MiB");
	is_int((int64_t)rig_figures(&rig).reserved, 64 * (int64_t)MIB, "all is held");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 32);
}

/* Freed on another stream than it was given to: both have used it. */
static void counts_both(void)
{
	struct CUstream_st *a, *b, *c;
	uint64_t addr, waits;
	struct rig rig;

	rig_open(&rig, (const char *const[]){"soft.streams=stepped", NULL});
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	c = rig_stream(&rig);
	addr = rig_alloc(&rig, 8 * MIB, a);
	rig_work(&rig, addr, 8 * MIB, a);
	rig_free(&rig, addr, b);
	waits = rig_calls(&rig, GLAKE_CALL_STREAM_WAIT);
	ok(rig_alloc(&rig, 8 * MIB, c) == addr, "a third stream gets it");
	is_int((int64_t)(rig_calls(&rig, GLAKE_CALL_STREAM_WAIT) - waits), 2,
		"behind both");
	rig_free(&rig, addr, c);
	rig_close(&rig, 0);
}

/* A free is never refused for want of a place to remember its stream. */
static void frees_anyway(void)
{
	struct CUstream_st *a, *b;
	uint64_t addr, syncs;
	struct rig rig;

	rig_open(&rig, NULL);
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	addr = rig_alloc(&rig, 8 * MIB, a);
	rig_work(&rig, addr, 8 * MIB, b);
	rig_fill_streams(&rig);
	syncs = rig_calls(&rig, GLAKE_CALL_SYNC);
	glk_region_fail_after(1);
	is_int(rig_free(&rig, addr, b), 0, "freed on a stream there is no table for");
	glk_region_fail_after(0);
	is_int((int64_t)(rig_calls(&rig, GLAKE_CALL_SYNC) - syncs), 1,
		"whose work was waited for");
	is_int((int64_t)rig_figures(&rig).live_blocks, 0, "the block is free");
	ok(rig_alloc(&rig, 8 * MIB, a) == addr, "for its own stream");
	rig_free(&rig, addr, a);
	addr = rig_alloc(&rig, 8 * MIB, a);
	glk_region_fail_after(1);
	glk_fault_set(rig.drv, "stream_sync:from=1:err=EIO");
	is_int(rig_free(&rig, addr, b), -EIO, "when the driver cannot wait either");
	glk_fault_set(rig.drv, "off");
	glk_region_fail_after(0);
	is_int((int64_t)rig_figures(&rig).live_blocks, 1, "it stays a block");
	is_int(rig_free(&rig, addr, b), 0, "and is freed later");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* Whatever is freed, on whichever stream, while the GPU has work: no call of the driver. */
static void frees_alone(void)
{
	static const size_t sizes[] = {700, 100 << 10, MIB, 3 * MIB, 40 * MIB};
	struct CUstream_st *a, *b;
	uint64_t addr[10], single, marked, calls;
	struct rig rig;
	int err = 0;

	rig_open(&rig, (const char *const[]){"soft.streams=stepped", NULL});
	a = rig_stream(&rig);
	b = rig_stream(&rig);
	rig_free(&rig, rig_alloc(&rig, 1, b), b);
	for (int n = 0; n < 3; n++) {
		for (int i = 0; i < 10; i++) {
			addr[i] = rig_alloc(&rig, sizes[i / 2], a);
			rig_work(&rig, addr[i], sizes[i / 2], a);
		}
		single = rig_single(&rig, 6 * MIB, a);
		marked = rig_alloc(&rig, 5 * MIB, a);
		rig_work(&rig, single, 6 * MIB, a);
		glk_cache_use(&rig.cache, marked, b);
		calls = rig_all_calls(&rig);
		for (int i = 0; i < 10; i++)
			err |= rig_free(&rig, addr[i], i % 2 ? a : b);
		err |= rig_free(&rig, single, b);
		err |= rig_free(&rig, marked, a);
		is_int((int64_t)(rig_all_calls(&rig) - calls), 0,
			"freed, with work queued behind it");
	}
	is_int(err, 0, "all of them");
	is_int((int64_t)rig_figures(&rig).live_blocks, 0, "nothing is live");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

int main(void)
{
	tap_plan_later();
	gives();
	hits();
	refuses();
	fills();
	counts_both();
	frees_anyway();
	frees_alone();
	return tap_done();
}
