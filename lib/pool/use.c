/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The streams of the crowd that a use names: a short list in order, in one word. */
#include "pool/use.h"

uint64_t glk_use_names(uint64_t a, uint64_t b)
{
	uint64_t named = 0;
	unsigned count = 0;

	while (a || b) {
		uint32_t x = glk_use_first(a), y = glk_use_first(b);
		uint32_t least = !y || (x && x < y) ? x : y;

		if (count == GLK_USE_NAMES)
			return 0;
		named |= (uint64_t)least << GLK_USE_NAME_BITS * count++;
		a = x == least ? glk_use_rest(a) : a;
		b = y == least ? glk_use_rest(b) : b;
	}
	return named;
}

bool glk_use_names_all(uint64_t named, uint64_t some)
{
	while (some && named) {
		uint32_t x = glk_use_first(named), y = glk_use_first(some);

		if (x > y)
			return false;
		named = glk_use_rest(named);
		some = x == y ? glk_use_rest(some) : some;
	}
	return !some;
}
