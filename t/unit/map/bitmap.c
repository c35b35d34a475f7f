/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Counts over runs of bits against counting one by one. */
#include "map/map.h"
#include "seed.h"

#define BITS	1024
#define WORDS	(BITS / 64)
#define RANDOMS 20000

static uint64_t a[WORDS], b[WORDS];

static bool naive_bit(const uint64_t *bits, uint32_t i)
{
	return ((const uint8_t *)bits)[i / 8] >> (i % 8) & 1;
}

static uint32_t naive(uint32_t first, uint32_t last, bool only)
{
	uint32_t n = 0;

	for (uint32_t i = first; i <= last; i++)
		n += naive_bit(a, i) && !(only && naive_bit(b, i));
	return n;
}

/* 1 when a range is counted wrongly. */
static int range(uint32_t first, uint32_t last)
{
	uint32_t all = glk_bits_count(a, first, last);
	uint32_t only = glk_bits_count_only(a, b, first, last);
	int wrong = 0;

	if (all != naive(first, last, false) || only != naive(first, last, true)) {
		tap_note("[%u, %u]: %u and %u", first, last, all, only);
		wrong = 1;
	}
	return wrong;
}

/* All ranges that begin and end within two bits of an edge of a word. */
static int edges(void)
{
	int wrong = 0;

	for (uint32_t f = 0; f < BITS; f++) {
		if ((f + 2) % 64 > 4)
			continue;
		for (uint32_t l = f; l < BITS; l++) {
			if ((l + 2) % 64 <= 4)
				wrong += range(f, l);
		}
	}
	return wrong;
}

static void fill(uint64_t *state, unsigned density)
{
	memset(a, 0, sizeof(a));
	memset(b, 0, sizeof(b));
	for (uint32_t i = 0; i < BITS; i++) {
		if (seed_below(state, 8) < density)
			glk_bit_set(a, i);
		if (seed_below(state, 8) < density)
			glk_bit_set(b, i);
	}
}

static void test_bit(void)
{
	int wrong = 0;

	memset(a, 0, sizeof(a));
	for (uint32_t i = 0; i < BITS; i++) {
		wrong += glk_bit_get(a, i);
		glk_bit_set(a, i);
		wrong += !glk_bit_get(a, i) || !naive_bit(a, i);
		wrong += glk_bits_count(a, 0, BITS - 1) != i + 1;
	}
	is_int(wrong, 0, "a bit set is the one that is read");
	for (uint32_t i = 0; i < BITS; i += 2)
		glk_bit_clear(a, i);
	is_int(glk_bits_count(a, 0, BITS - 1), BITS / 2,
		"a bit cleared leaves the others");
	is_int(a[WORDS - 1] == UINT64_C(0xaaaaaaaaaaaaaaaa), 1,
		"every second one is left");
}

int main(void)
{
	uint64_t state;
	int wrong = 0;

	tap_plan(3 + 9 + 1);
	state = seed_start();
	test_bit();
	for (unsigned density = 0; density <= 8; density++) {
		fill(&state, density);
		ok(!edges(), "ranges at the edges of words, %u of 8 bits set", density);
	}
	fill(&state, 4);
	for (int i = 0; i < RANDOMS; i++) {
		uint32_t x = (uint32_t)seed_below(&state, BITS);
		uint32_t y = (uint32_t)seed_below(&state, BITS);

		wrong += range(x < y ? x : y, x < y ? y : x);
	}
	is_int(wrong, 0, "random ranges");
	return tap_done();
}
