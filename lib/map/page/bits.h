/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MAP_BITS_H
#define GLK_MAP_BITS_H

/*
 * Runs of bits, [first, last], a word at a time. A property that a slot has or has not is a
 * bitmap, so that a block of 500 MiB, 250 slots, is asked and booked in four steps.
 *
 * Threads	one writer at a time, under the lock of the map. A bit, and the last of a run, may be
 *		asked for without it: what others write into the same word changes no bit of it;
 *		but for `busy`, which is asked for under the lock alone
 * Cost		one step for each 64 bits of the run, begun or whole
 */
#include "base/atomic.h"

#include <stdbool.h>
#include <stdint.h>

#define GLK_BITS_NONE UINT32_MAX

static inline bool glk_bit_get(const uint64_t *bits, uint32_t i)
{
	return glk_peek_relaxed(&bits[i >> 6]) >> (i & 63) & 1;
}

static inline void glk_bit_set(uint64_t *bits, uint32_t i)
{
	glk_poke_relaxed(&bits[i >> 6], bits[i >> 6] | UINT64_C(1) << (i & 63));
}

static inline void glk_bit_clear(uint64_t *bits, uint32_t i)
{
	glk_poke_relaxed(&bits[i >> 6], bits[i >> 6] & ~(UINT64_C(1) << (i & 63)));
}

static inline void glk_bit_put(uint64_t *bits, uint32_t i, bool value)
{
	glk_poke_relaxed(&bits[i >> 6],
		(bits[i >> 6] & ~(UINT64_C(1) << (i & 63))) |
			(uint64_t)value << (i & 63));
}

/* The bits of word `w` that belong to [first, last]. */
static inline uint64_t glk_bits_mask(uint32_t w, uint32_t first, uint32_t last)
{
	uint64_t mask = ~UINT64_C(0);

	if (w == first >> 6)
		mask <<= first & 63;
	if (w == last >> 6)
		mask &= ~UINT64_C(0) >> (63 - (last & 63));
	return mask;
}

/*
 * Calls `step` with each word of a run and the bits of it that belong to the run: a loop over all but
 * the last word needs no look at both ends in each turn.
 */
#define GLK_BITS_EACH(w, mask, first, last, step)                                        \
	do {                                                                             \
		uint32_t w = (first) >> 6, w##_last = (last) >> 6;                       \
		uint64_t mask = ~UINT64_C(0) << ((first)&63);                            \
                                                                                         \
		for (; w < w##_last; w++, mask = ~UINT64_C(0))                           \
			step;                                                            \
		mask &= ~UINT64_C(0) >> (63 - ((last)&63));                              \
		step;                                                                    \
	} while (0)

static inline void glk_bits_set(uint64_t *bits, uint32_t first, uint32_t last)
{
	GLK_BITS_EACH(w, mask, first, last, glk_poke_relaxed(&bits[w], bits[w] | mask));
}

static inline void glk_bits_clear(uint64_t *bits, uint32_t first, uint32_t last)
{
	GLK_BITS_EACH(w, mask, first, last, glk_poke_relaxed(&bits[w], bits[w] & ~mask));
}

/* Bits set in a word; what the compiler has is a call on processors of any age. */
static inline uint32_t glk_bits_of(uint64_t word)
{
	word -= word >> 1 & UINT64_C(0x5555555555555555);
	word = (word & UINT64_C(0x3333333333333333)) +
		(word >> 2 & UINT64_C(0x3333333333333333));
	word = (word + (word >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
	return (uint32_t)(word * UINT64_C(0x0101010101010101) >> 56);
}

/* How many are set. */
static inline uint32_t glk_bits_count(const uint64_t *bits, uint32_t first, uint32_t last)
{
	uint32_t count = 0;

	GLK_BITS_EACH(w, mask, first, last, {
		uint64_t word = bits[w] & mask;

		count += word == ~UINT64_C(0) ? 64 : word ? glk_bits_of(word) : 0;
	});
	return count;
}

/* How many are set in `a` and not in `b`. */
static inline uint32_t glk_bits_count_only(
	const uint64_t *a, const uint64_t *b, uint32_t first, uint32_t last)
{
	uint32_t count = 0;

	GLK_BITS_EACH(w, mask, first, last, {
		uint64_t word = a[w] & ~b[w] & mask;

		count += word ? glk_bits_of(word) : 0;
	});
	return count;
}

/* Whether any is set in both. */
static inline bool glk_bits_meet(
	const uint64_t *a, const uint64_t *b, uint32_t first, uint32_t last)
{
	GLK_BITS_EACH(w, mask, first, last, {
		if (a[w] & b[w] & mask)
			return true;
	});
	return false;
}

static inline bool glk_bits_any(const uint64_t *bits, uint32_t first, uint32_t last)
{
	GLK_BITS_EACH(w, mask, first, last, {
		if (bits[w] & mask)
			return true;
	});
	return false;
}

static inline bool glk_bits_all(const uint64_t *bits, uint32_t first, uint32_t last)
{
	GLK_BITS_EACH(w, mask, first, last, {
		if (~bits[w] & mask)
			return false;
	});
	return true;
}

/* The first that is set, or that is clear, in a run; GLK_BITS_NONE: there is none. */
static inline uint32_t glk_bits_first(const uint64_t *bits, uint32_t first, uint32_t last)
{
	if (first > last)
		return GLK_BITS_NONE;
	GLK_BITS_EACH(w, mask, first, last, {
		if (bits[w] & mask)
			return w << 6 | (uint32_t)__builtin_ctzll(bits[w] & mask);
	});
	return GLK_BITS_NONE;
}

/* The same for one that is set in `a` and not in `b`. */
static inline uint32_t glk_bits_first_only(
	const uint64_t *a, const uint64_t *b, uint32_t first, uint32_t last)
{
	if (first > last)
		return GLK_BITS_NONE;
	GLK_BITS_EACH(w, mask, first, last, {
		uint64_t word = a[w] & ~b[w] & mask;

		if (word)
			return w << 6 | (uint32_t)__builtin_ctzll(word);
	});
	return GLK_BITS_NONE;
}

static inline uint32_t glk_bits_first_clear(
	const uint64_t *bits, uint32_t first, uint32_t last)
{
	if (first > last)
		return GLK_BITS_NONE;
	GLK_BITS_EACH(w, mask, first, last, {
		if (~bits[w] & mask)
			return w << 6 | (uint32_t)__builtin_ctzll(~bits[w] & mask);
	});
	return GLK_BITS_NONE;
}

/* The last one set in [first, last]; GLK_BITS_NONE: there is none. */
static inline uint32_t glk_bits_last(const uint64_t *bits, uint32_t first, uint32_t last)
{
	for (uint32_t w = last >> 6; w + 1 > first >> 6; w--) {
		uint64_t word =
			glk_peek_relaxed(&bits[w]) & glk_bits_mask(w, first, last);

		if (word)
			return w << 6 | (63 - (uint32_t)__builtin_clzll(word));
		if (!w)
			break;
	}
	return GLK_BITS_NONE;
}

#endif
