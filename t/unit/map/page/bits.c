/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Runs of bits against bits one by one. */
#include "map/page/bits.h"
#include "seed.h"

#define BITS	1024
#define WORDS	(BITS / 64)
#define RANDOMS 20000

static uint64_t a[WORDS], b[WORDS];

static bool naive_bit(const uint64_t *bits, uint32_t i)
{
	return ((const uint8_t *)bits)[i / 8] >> (i % 8) & 1;
}

struct naive {
	uint32_t count, only, first, clear, last;
	bool meet;
};

static struct naive naive(uint32_t first, uint32_t last)
{
	struct naive n = {
		.first = GLK_BITS_NONE, .clear = GLK_BITS_NONE, .last = GLK_BITS_NONE};

	for (uint32_t i = first; i <= last; i++) {
		bool x = naive_bit(a, i), y = naive_bit(b, i);

		n.count += x;
		n.only += x && !y;
		n.meet |= x && y;
		n.first = x && n.first == GLK_BITS_NONE ? i : n.first;
		n.clear = !x && n.clear == GLK_BITS_NONE ? i : n.clear;
		n.last = x ? i : n.last;
	}
	return n;
}

/* 1 when a range is answered wrongly. */
static int range(uint32_t first, uint32_t last)
{
	struct naive n = naive(first, last);
	int wrong = 0;

	wrong += glk_bits_count(a, first, last) != n.count;
	wrong += glk_bits_count_only(a, b, first, last) != n.only;
	wrong += glk_bits_meet(a, b, first, last) != n.meet;
	wrong += glk_bits_any(a, first, last) != (n.count > 0);
	wrong += glk_bits_all(a, first, last) != (n.count == last - first + 1);
	wrong += glk_bits_first(a, first, last) != n.first;
	wrong += glk_bits_first_clear(a, first, last) != n.clear;
	wrong += glk_bits_last(a, first, last) != n.last;
	if (wrong)
		tap_note("[%u, %u]", first, last);
	return wrong > 0;
}

/* Whether setting or clearing a run touches that and nothing else. */
static int change(uint32_t first, uint32_t last, bool set)
{
	uint64_t was[WORDS];
	int wrong = 0;

	memcpy(was, a, sizeof(was));
	if (set)
		glk_bits_set(a, first, last);
	else
		glk_bits_clear(a, first, last);
	for (uint32_t i = 0; i < BITS; i++)
		wrong += naive_bit(a, i) !=
			(i >= first && i <= last ? set : naive_bit(was, i));
	memcpy(a, was, sizeof(was));
	return wrong > 0;
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
		if (i % 2)
			glk_bit_set(a, i);
		else
			glk_bit_put(a, i, true);
		wrong += !glk_bit_get(a, i) || !naive_bit(a, i);
		wrong += glk_bits_count(a, 0, BITS - 1) != i + 1;
	}
	is_int(wrong, 0, "a bit set is the one that is read");
	for (uint32_t i = 0; i < BITS; i += 4) {
		glk_bit_clear(a, i);
		glk_bit_put(a, i + 2, false);
	}
	is_int(glk_bits_count(a, 0, BITS - 1), BITS / 2,
		"a bit cleared leaves the others");
	is_int(a[WORDS - 1] == UINT64_C(0xaaaaaaaaaaaaaaaa), 1,
		"every second one is left");
	is_int(glk_bits_first(a, 5, 4), GLK_BITS_NONE,
		"an empty run has none that is set");
	is_int(glk_bits_first_clear(a, 5, 4), GLK_BITS_NONE, "nor clear");
	is_int(glk_bits_first_only(a, b, 5, 4), GLK_BITS_NONE, "nor in one of two alone");
}

int main(void)
{
	uint64_t state;
	int wrong = 0, changed = 0;

	tap_plan(6 + 9 + 2);
	state = seed_start() | 1;
	test_bit();
	for (unsigned density = 0; density <= 8; density++) {
		fill(&state, density);
		ok(!edges(), "ranges at the edges of words, %u of 8 bits set", density);
	}
	for (int i = 0; i < RANDOMS; i++) {
		uint32_t x = (uint32_t)seed_below(&state, BITS);
		uint32_t y = (uint32_t)seed_below(&state, BITS);

		if (i % 1000 == 0)
			fill(&state, (unsigned)(i / 1000 % 9));
		wrong += range(x < y ? x : y, x < y ? y : x);
		if (i % 8 == 0)
			changed += change(x < y ? x : y, x < y ? y : x, i % 16 == 0);
	}
	is_int(wrong, 0, "random ranges");
	is_int(changed, 0, "set and cleared");
	return tap_done();
}
