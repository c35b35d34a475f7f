/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The word of an extent: who may claim it, and what a move keeps. */
#include "map/word.h"
#include "tap.h"

#define G(n) ((uint64_t)(n) << GLK_GRAIN_SHIFT)

static uint64_t live_at(uint64_t offset)
{
	return glk_word_next(0, offset, GLK_EXTENT_LIVE);
}

/* Whether a word can be claimed at an offset. */
static bool yields_at(uint64_t value, uint64_t offset)
{
	glk_atomic(uint64_t) word = value;

	return glk_word_claim(&word, offset);
}

/* Two words differ in nothing but place and state if their next lives are the same. */
static bool same_generation(uint64_t a, uint64_t b)
{
	return glk_word_next(a, 0, GLK_EXTENT_LIVE) ==
		glk_word_next(b, 0, GLK_EXTENT_LIVE);
}

static void claims(void)
{
	static const enum glk_extent_state others[] = {
		GLK_EXTENT_NONE, GLK_EXTENT_FREE, GLK_EXTENT_PARKED, GLK_EXTENT_QUICK};
	glk_atomic(uint64_t) word = live_at(G(7));
	uint64_t before = glk_load_relaxed(&word), after;

	ok(glk_word_claim(&word, G(7)), "a live one is claimed");
	after = glk_load_relaxed(&word);
	is_int(glk_word_state(after), GLK_EXTENT_QUICK, "and is quick");
	ok(same_generation(before, after), "of the same generation");
	ok(after == glk_word_next(before, G(7), GLK_EXTENT_QUICK), "at the same place");
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
	uint64_t far = G(UINT64_C(1) << 32 | 5);
	glk_atomic(uint64_t) word = live_at(G(1000));
	uint64_t before = glk_load_relaxed(&word);

	ok(!glk_word_claim(&word, G(999)), "the grain before");
	ok(!glk_word_claim(&word, G(1001)), "the grain behind");
	ok(!glk_word_claim(&word, 0), "the beginning of the span");
	ok(glk_load_relaxed(&word) == before, "all of them change nothing");
	ok(glk_word_claim(&word, G(1000)), "its beginning");

	/* each bit of the grain counts */
	for (int bit = 0; bit < 32; bit++) {
		if (yields_at(live_at(0), G(UINT64_C(1) << bit)))
			ok(false, "bit %d of the grain is not looked at", bit);
	}
	/* the largest span has more grains than the word has bits for */
	ok(yields_at(live_at(far), far), "beyond 2 TiB");
	ok(same_generation(live_at(far), live_at(0)), "which reaches into nothing else");
	is_int(glk_word_state(live_at(far)), GLK_EXTENT_LIVE, "neither the state");
}

/* The generation steps with each life, so a compare-and-swap with an old word fails. */
static void grows_old(void)
{
	glk_atomic(uint64_t) word = live_at(G(3));
	uint64_t stale = glk_load_relaxed(&word), next;

	ok(glk_word_claim(&word, G(3)), "freed");
	next = glk_word_next(glk_load_relaxed(&word), G(3), GLK_EXTENT_LIVE);
	ok(next != stale && !same_generation(next, stale),
		"given again: a new generation");
	glk_store_relaxed(&word, next);
	ok(!glk_cas_acq_rel(&word, &stale, stale ^ GLK_EXTENT_LIVE ^ GLK_EXTENT_QUICK),
		"a free that was overtaken does not strike the new block");
	ok(yields_at(next, G(3)), "which is live");
	for (enum glk_extent_state s = GLK_EXTENT_NONE; s <= GLK_EXTENT_QUICK; s++) {
		if (s != GLK_EXTENT_LIVE)
			ok(same_generation(glk_word_next(next, G(9), s), next),
				"a move to state %d keeps it", s);
	}

	next = glk_word_next(UINT64_MAX, G(3), GLK_EXTENT_QUICK);
	next = glk_word_next(next, G(3), GLK_EXTENT_LIVE);
	ok(same_generation(next, 0), "the last generation is followed by the first");
	ok(yields_at(next, G(3)), "with state and place untouched");
	next = glk_word_next(next, G(4), GLK_EXTENT_LIVE);
	ok(yields_at(next, G(4)) && !yields_at(next, G(3)),
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
