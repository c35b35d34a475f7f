/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The word of an extent: who may claim it, and what a move keeps. */
#include "map/word.h"
#include "tap.h"

#define G(n) ((uint64_t)(n) << GLK_GRAIN_SHIFT)

static uint64_t live_at(uint64_t offset)
{
	return glk_word_next(0, offset, GLK_EXTENT_LIVE);
}

static uint32_t generation(uint64_t word)
{
	return (uint32_t)((word & GLK_WORD_GENERATION) >> 4);
}

static void claims(void)
{
	static const enum glk_extent_state others[] = {
		GLK_EXTENT_NONE, GLK_EXTENT_FREE, GLK_EXTENT_PARKED, GLK_EXTENT_QUICK};
	glk_atomic(uint64_t) word = live_at(G(7));
	uint64_t before = glk_load_relaxed(&word);

	ok(glk_word_claim(&word, G(7)), "a live one is claimed");
	is_int(glk_word_state(glk_load_relaxed(&word)), GLK_EXTENT_QUICK, "and is quick");
	is_int(generation(glk_load_relaxed(&word)), generation(before),
		"of the same generation");
	ok(glk_word_begins(glk_load_relaxed(&word), G(7)), "at the same place");
	ok(!glk_word_claim(&word, G(7)), "nobody claims it twice");
	for (int i = 0; i < 4; i++) {
		glk_store_relaxed(&word, glk_word_next(before, G(7), others[i]));
		before = glk_load_relaxed(&word);
		ok(!glk_word_claim(&word, G(7)), "state %d is not claimed", others[i]);
		ok(glk_load_relaxed(&word) == before, "and stays as it is");
	}
}

static void looks_at_place(void)
{
	glk_atomic(uint64_t) word = live_at(G(1000));
	uint64_t before = glk_load_relaxed(&word);

	ok(!glk_word_claim(&word, G(999)), "the grain before");
	ok(!glk_word_claim(&word, G(1001)), "the grain behind");
	ok(!glk_word_claim(&word, G(1000) + 1), "a byte in");
	ok(!glk_word_claim(&word, G(1000) + 511), "the last byte of its first grain");
	ok(!glk_word_claim(&word, 0), "the beginning of the span");
	ok(glk_load_relaxed(&word) == before, "all of them change nothing");
	ok(glk_word_claim(&word, G(1000)), "its beginning");

	/* the largest span has more grains than the word has bits for */
	glk_store_relaxed(&word, live_at(G(UINT64_C(1) << 32 | 5)));
	ok(glk_word_claim(&word, G(UINT64_C(1) << 32 | 5)), "beyond 2 TiB");
	ok(glk_word_begins(glk_load_relaxed(&word), G(5)), "by its grain modulo 2^32");
}

/* The generation steps with each life, so a compare-and-swap with an old word fails. */
static void grows_old(void)
{
	glk_atomic(uint64_t) word = live_at(G(3));
	uint64_t stale = glk_load_relaxed(&word), next;

	ok(glk_word_claim(&word, G(3)), "freed");
	next = glk_word_next(glk_load_relaxed(&word), G(3), GLK_EXTENT_LIVE);
	is_int(generation(next), generation(stale) + 1, "given again: a generation on");
	glk_store_relaxed(&word, next);
	ok(!glk_cas_acq_rel(&word, &stale, stale ^ GLK_EXTENT_LIVE ^ GLK_EXTENT_QUICK),
		"a free that was overtaken does not strike the new block");
	ok(glk_load_relaxed(&word) == next, "which stays live");
	ok(generation(glk_word_next(next, G(3), GLK_EXTENT_FREE)) == generation(next) &&
			generation(glk_word_next(next, G(3), GLK_EXTENT_QUICK)) ==
				generation(next),
		"other moves keep the generation");

	next = GLK_WORD_GENERATION | GLK_EXTENT_QUICK;
	next = glk_word_next(next, G(3), GLK_EXTENT_LIVE);
	is_int(generation(next), 0, "the last generation is followed by the first");
	is_int(glk_word_state(next), GLK_EXTENT_LIVE, "with the state untouched");
	ok(glk_word_begins(next, G(3)), "and the place");
	next = glk_word_next(next, G(4), GLK_EXTENT_FREE);
	ok(glk_word_begins(next, G(4)) && !glk_word_begins(next, G(3)),
		"a move may change the place");
}

int main(void)
{
	tap_plan_later();
	claims();
	looks_at_place();
	grows_old();
	return tap_done();
}
