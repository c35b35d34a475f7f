/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_UNIT_CACHE_BLOCK_PARTS_H
#define GLK_UNIT_CACHE_BLOCK_PARTS_H

/* What block.c and mark.c share. */
#include "rig.h"
#include <errno.h>
#include <pthread.h>

/* size, flags, page size, pages if it is alone */
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
	{4 * MIB, 0, 8 * MIB, 1},
	{8 * MIB, 0, 8 * MIB, 1},
	{20 * MIB, 0, 8 * MIB, 3},
	{1, GLAKE_ALLOC_CONTIGUOUS, 2 * MIB, 1},
	{20 * MIB - 512, GLAKE_ALLOC_CONTIGUOUS, 20 * MIB, 1},
};

/* The steady state: the same sizes on the same stream need no driver. */
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
		/* stays, so that the large ones are not neighbours and do not merge */
		if (sizes[i] == 5 * MIB)
			rig_alloc(&rig, 9 * MIB, a);
	}
	for (int i = 0; i < 5; i++)
		rig_free(&rig, addr[i], a);
	calls = rig_all_calls(&rig);
	s = rig_figures(&rig);
	for (int n = 0; n < 20; n++) {
		for (int i = 0; i < 5; i++)
			same &= rig_alloc(&rig, sizes[i], a) == addr[i];
		for (int i = 0; i < 5; i++)
			rig_free(&rig, addr[4 - i], a);
	}
	ok(same, "the same requests get the same addresses");
	is_int((int64_t)(rig_all_calls(&rig) - calls), 0, "without a call of the driver");
	is_int((int64_t)(rig_figures(&rig).hits - s.hits), 100, "all are hits");
	is_int((int64_t)rig_figures(&rig).misses, (int64_t)s.misses, "none is a miss");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 1);
}

#endif
