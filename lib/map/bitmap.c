/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Counting over runs of bits: how many pages a place would need is two of these, a word for
 * every 64 slots.
 */
#include "map/map.h"

static uint64_t mask_from(uint32_t bit)
{
	return ~UINT64_C(0) << (bit & 63);
}

static uint64_t mask_to(uint32_t bit)
{
	return ~UINT64_C(0) >> (63 - (bit & 63));
}

uint32_t glk_bits_count(const uint64_t *bits, uint32_t first, uint32_t last)
{
	uint32_t w = first >> 6, end = last >> 6, n = 0;
	uint64_t word = bits[w] & mask_from(first);

	for (; w < end; word = bits[++w])
		n += (uint32_t)__builtin_popcountll(word);
	return n + (uint32_t)__builtin_popcountll(word & mask_to(last));
}

uint32_t glk_bits_count_only(
	const uint64_t *a, const uint64_t *b, uint32_t first, uint32_t last)
{
	uint32_t w = first >> 6, end = last >> 6, n = 0;
	uint64_t word = a[w] & ~b[w] & mask_from(first);

	for (; w < end; w++, word = a[w] & ~b[w])
		n += (uint32_t)__builtin_popcountll(word);
	return n + (uint32_t)__builtin_popcountll(word & mask_to(last));
}
