/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * From an address to the live extent around it, in constant time.
 *
 * Medium, large and contiguous extents are longer than half a slot, so at most two begin in
 * one; a slot names them and the one that reaches in from before. Small extents are found by
 * a bit for each grain where one begins: the nearest set bit at or below the address, at most
 * half a page away, 32 words for pages of 2 MiB.
 */
#include "map/map.h"

static void small_enter(struct glk_span *span, uint32_t extent)
{
	struct glk_extent *e = glk_extent_at(span->map, extent);
	uint32_t grain = (uint32_t)(e->offset >> GLK_GRAIN_SHIFT);

	glk_store_relaxed(&span->grain[grain], extent);
	glk_bit_set(span->begins, grain);
}

static void small_leave(struct glk_span *span, uint32_t extent)
{
	struct glk_extent *e = glk_extent_at(span->map, extent);
	uint32_t grain = (uint32_t)(e->offset >> GLK_GRAIN_SHIFT);

	glk_store_relaxed(&span->grain[grain], 0);
	glk_bit_clear(span->begins, grain);
}

static uint32_t small_lookup(const struct glk_span *span, uint64_t offset)
{
	uint32_t grain = (uint32_t)(offset >> GLK_GRAIN_SHIFT), word = grain >> 6;
	uint32_t reach = (UINT32_C(1) << (span->shift - GLK_GRAIN_SHIFT - 6)) / 2 + 1;
	uint64_t bits = span->begins[word] & ~UINT64_C(0) >> (63 - (grain & 63));

	while (!bits && word && reach--)
		bits = span->begins[--word];
	if (!bits)
		return 0;
	return glk_load_relaxed(
		&span->grain[word * 64 + 63 - (uint32_t)__builtin_clzll(bits)]);
}

void glk_lookup_enter(struct glk_span *span, uint32_t extent)
{
	struct glk_extent *e = glk_extent_at(span->map, extent);
	uint32_t slot = glk_slot_of(span, e->offset);
	uint32_t last = glk_slot_of(span, e->offset + e->size - 1);
	glk_atomic(uint32_t) * start;

	if (span->kind == GLK_KIND_SMALL) {
		small_enter(span, extent);
		return;
	}
	start = span->more[slot].start;
	glk_store_relaxed(&start[glk_load_relaxed(&start[0]) != 0], extent);
	while (slot++ < last)
		span->slot[slot].cover = extent;
}

void glk_lookup_leave(struct glk_span *span, uint32_t extent)
{
	struct glk_extent *e = glk_extent_at(span->map, extent);
	uint32_t slot = glk_slot_of(span, e->offset);
	uint32_t last = glk_slot_of(span, e->offset + e->size - 1);
	glk_atomic(uint32_t) * start;

	if (span->kind == GLK_KIND_SMALL) {
		small_leave(span, extent);
		return;
	}
	start = span->more[slot].start;
	glk_store_relaxed(&start[glk_load_relaxed(&start[0]) != extent], 0);
	while (slot++ < last)
		span->slot[slot].cover = 0;
}

static bool covers(const struct glk_span *span, uint32_t extent, uint64_t offset)
{
	const struct glk_extent *e;

	if (!extent)
		return false;
	e = glk_extent_at(span->map, extent);
	return offset - e->offset < e->size;
}

uint32_t glk_span_lookup(const struct glk_span *span, uint64_t addr)
{
	uint64_t offset = addr - span->base;
	uint32_t extent, slot;

	if (offset >= span->high)
		return 0;
	if (span->kind == GLK_KIND_SMALL) {
		extent = small_lookup(span, offset);
		return covers(span, extent, offset) ? extent : 0;
	}
	slot = glk_slot_of(span, offset);
	for (int i = 0; i < GLK_SLOT_STARTS; i++) {
		extent = glk_load_relaxed(&span->more[slot].start[i]);
		if (covers(span, extent, offset))
			return extent;
	}
	extent = span->slot[slot].cover;
	return covers(span, extent, offset) ? extent : 0;
}
