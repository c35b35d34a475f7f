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

/* Bits of a word, without the instruction that not every x86-64 has. */
static uint32_t popcount(uint64_t x)
{
	x -= x >> 1 & UINT64_C(0x5555555555555555);
	x = (x & UINT64_C(0x3333333333333333)) + (x >> 2 & UINT64_C(0x3333333333333333));
	x = (x + (x >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
	return (uint32_t)(x * UINT64_C(0x0101010101010101) >> 56);
}

uint32_t glk_bits_count(const uint64_t *bits, uint32_t first, uint32_t last)
{
	uint32_t w = first >> 6, end = last >> 6, n = 0;
	uint64_t word = bits[w] & mask_from(first);

	for (; w < end; word = bits[++w])
		n += popcount(word);
	return n + popcount(word & mask_to(last));
}

bool glk_bits_meet(const uint64_t *a, const uint64_t *b, uint32_t first, uint32_t last)
{
	uint32_t w = first >> 6, end = last >> 6;
	uint64_t word = a[w] & b[w] & mask_from(first);

	for (; w < end && !word; w++, word = a[w] & b[w])
		;
	return w < end || (word & mask_to(last));
}

uint32_t glk_bits_count_only(
	const uint64_t *a, const uint64_t *b, uint32_t first, uint32_t last)
{
	uint32_t w = first >> 6, end = last >> 6, n = 0;
	uint64_t word = a[w] & ~b[w] & mask_from(first);

	for (; w < end; w++, word = a[w] & ~b[w])
		n += popcount(word);
	return n + popcount(word & mask_to(last));
}
