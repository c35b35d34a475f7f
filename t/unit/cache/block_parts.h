/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_UNIT_CACHE_BLOCK_PARTS_H
#define GLK_UNIT_CACHE_BLOCK_PARTS_H

/* What block.c and mark.c share. */
#include "rig.h"
#include <errno.h>
#include <pthread.h>

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
static inline void hits(void)
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

#endif
