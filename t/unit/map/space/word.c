/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The word of an extent: who may claim it, and what a move keeps. */
#include "map/space/word.h"
#include "tap.h"

#define AT UINT64_C(0x7f0012345600)

static glk_atomic(uint64_t) word, at;

static void begin(uint64_t value)
{
	glk_store_relaxed(&word, value);
	glk_store_relaxed(&at, AT);
}

static uint64_t generation(void)
{
	return glk_load_relaxed(&word) / GLK_WORD_STEP;
}

static enum glk_extent_state state(void)
{
	return glk_word_state(glk_load_relaxed(&word));
}

static const enum glk_extent_state others[] = {
	GLK_EXTENT_NONE, GLK_EXTENT_FREE, GLK_EXTENT_QUICK};

static void claims(void)
{
	uint64_t before;

	begin(0);
	glk_word_set(&word, GLK_EXTENT_LIVE);
	before = generation();
	ok(glk_word_claim(&word, &at, AT), "a live one is claimed");
	is_int(state(), GLK_EXTENT_QUICK, "and is quick");
	ok(generation() == before, "of the same generation");
	ok(glk_load_relaxed(&at) == AT, "at the same address");
	ok(!glk_word_claim(&word, &at, AT), "nobody claims it twice");
	for (int i = 0; i < 3; i++) {
		glk_word_set(&word, others[i]);
		before = glk_load_relaxed(&word);
		ok(!glk_word_claim(&word, &at, AT), "state %d is not claimed", others[i]);
		ok(glk_load_relaxed(&word) == before, "and stays as it is");
		ok(!(before & GLK_EXTENT_LIVE), "state %d has nothing of LIVE",
			others[i]);
	}
}

static void looks_at_address(void)
{
	uint64_t before;
	int blind = 0;

	begin(0);
	glk_word_set(&word, GLK_EXTENT_LIVE);
	before = glk_load_relaxed(&word);
	ok(!glk_word_claim(&word, &at, AT - 512), "the grain before");
	ok(!glk_word_claim(&word, &at, AT + 512), "the grain behind");
	ok(!glk_word_claim(&word, &at, 0), "no address");
	for (int bit = 0; bit < 64; bit++)
		blind += glk_word_claim(&word, &at, AT ^ UINT64_C(1) << bit);
	is_int(blind, 0, "each bit of the address counts");
	ok(glk_load_relaxed(&word) == before, "all of them change nothing");
	ok(glk_word_claim(&word, &at, AT), "its beginning");
	glk_word_set(&word, GLK_EXTENT_FREE);
	glk_store_relaxed(&at, AT + 512);
	glk_word_set(&word, GLK_EXTENT_LIVE);
	ok(!glk_word_claim(&word, &at, AT) && glk_word_claim(&word, &at, AT + 512),
		"the next life may be elsewhere");
}

/* The generation steps with each life, so a compare-and-swap with an old word fails. */
static void grows_old(void)
{
	uint64_t stale, before;

	begin(0);
	glk_word_set(&word, GLK_EXTENT_LIVE);
	stale = glk_load_relaxed(&word);
	ok(glk_word_claim(&word, &at, AT), "freed");
	before = generation();
	glk_word_revive(&word);
	is_int(state(), GLK_EXTENT_LIVE, "given again: live");
	is_int(generation() - before, 1, "of the next generation");
	ok(!glk_cas_acq_rel(&word, &stale, stale ^ GLK_EXTENT_LIVE ^ GLK_EXTENT_QUICK),
		"a free that was overtaken does not strike the new block");
	before = generation();
	for (int i = 0; i < 3; i++) {
		glk_word_set(&word, others[i]);
		is_int(state(), others[i], "a move");
		ok(generation() == before, "to state %d keeps the generation", others[i]);
	}
	glk_word_set(&word, GLK_EXTENT_LIVE);
	is_int(generation() - before, 1, "a move to LIVE does not");

	begin(UINT64_MAX & ~GLK_WORD_STATE);
	glk_word_set(&word, GLK_EXTENT_LIVE);
	is_int(generation(), 0, "the last generation is followed by the first");
	is_int(state(), GLK_EXTENT_LIVE, "with the state untouched");
	begin((UINT64_MAX & ~GLK_WORD_STATE) | GLK_EXTENT_QUICK);
	glk_word_revive(&word);
	is_int(generation(), 0, "from a bin too");
	is_int(state(), GLK_EXTENT_LIVE, "with the state untouched");
}

/* Holders come and go; a free is refused meanwhile, and looks see the life it is. */
static void is_held(void)
{
	uint64_t life, other, before;
	int many = 0;

	begin(0);
	ok(!glk_word_hold(&word, &at, AT), "nothing is held that is not live");
	glk_word_set(&word, GLK_EXTENT_LIVE);
	before = glk_load_relaxed(&word);
	ok(glk_word_look(&word, &life), "a live one is looked at");
	ok(!glk_word_hold(&word, &at, AT + 512), "nor what lies elsewhere");
	ok(glk_word_hold(&word, &at, AT) && glk_word_hold(&word, &at, AT), "held twice");
	is_int(state(), GLK_EXTENT_HELD, "is held");
	ok(!glk_word_claim(&word, &at, AT), "it cannot be freed");
	ok(glk_word_is_still(&word, life), "it is what it was");
	ok(glk_word_look(&word, &other) && other == life, "also for who looks now");
	glk_word_let_go(&word);
	ok(!glk_word_claim(&word, &at, AT), "nor when one has let go");
	glk_word_let_go(&word);
	ok(glk_load_relaxed(&word) == before, "the last one leaves it as it was");
	for (int i = 0; i < 4095; i++)
		many += glk_word_hold(&word, &at, AT);
	is_int(many, 4095, "as many holders as there is room for");
	ok(generation() == before / GLK_WORD_STEP, "they do not touch the life");
	for (int i = 0; i < 4095; i++)
		glk_word_let_go(&word);
	ok(glk_load_relaxed(&word) == before, "nor leave anything");
	ok(glk_word_claim(&word, &at, AT), "it can be freed");
	ok(!glk_word_is_still(&word, life), "and is not what it was");
	ok(!glk_word_look(&word, &other), "nor live");
	ok(!glk_word_hold(&word, &at, AT), "nor held");
	glk_word_revive(&word);
	ok(!glk_word_is_still(&word, life) && glk_word_look(&word, &other) &&
			other == life + 1,
		"the next life is another one");
}

int main(void)
{
	tap_plan_later();
	claims();
	looks_at_address();
	grows_old();
	is_held();
	return tap_done();
}
