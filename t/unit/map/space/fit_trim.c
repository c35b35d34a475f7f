/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Idle pages of several slots that lie behind a place: those that reach beyond an end of it are
 * not used where the request says so, and contiguous blocks take one of exactly their size.
 */
#include "unit/map/space/fit_parts.h"

static struct glk_want want_of(uint32_t n, bool trim)
{
	return (struct glk_want){
		.size = S(n), .kind = kind, .trim = trim, .fn = check, .arg = &rig};
}

static struct glk_fit seek(uint32_t n, bool trim)
{
	struct glk_want want = want_of(n, trim);
	struct glk_fit fit = {.offset = UINT64_MAX};

	asked = 0;
	if (glk_fit_search(&rig.map, &want, &fit))
		fit.offset = UINT64_MAX;
	return fit;
}

/* The place for `n` slots is slot `want`, and so many are to be mapped. */
static void lies(uint32_t n, bool trim, uint32_t want, uint32_t maps, const char *what)
{
	struct glk_fit fit = seek(n, trim);

	if (!ok(fit.offset == S(want) && fit.maps == maps, "%s", what))
		tap_note("slot %d: %u maps", (int)(fit.offset / S(1)), fit.maps);
}

/* The same with trimming, and whether mappings at its ends go. */
static void trims(uint32_t n, uint32_t want, uint32_t maps, bool any, const char *what)
{
	lies(n, true, want, maps, what);
	is_int(seek(n, true).trims, any, any ? "pages have to go" : "no page has to go");
}

/* With real pages, which the rig unmaps. */
static void end(void)
{
	uint64_t held = glk_load_relaxed(&rig.map.node->held);

	kind = GLK_FIT_BLOCK;
	glk_store_relaxed(&rig.map.node->held, held - S(SLOTS));
	rig_stop(&rig);
}

/* The mapping at an end of a place that reaches beyond it begins at slot `want`; 0: none does. */
static void sticks(
	uint32_t slot, uint32_t first, uint32_t last, uint32_t want, const char *what)
{
	struct glk_mapping m = glk_fit_end(&rig.map, slot, first, last);

	ok(want ? m.first == want && m.last == want + 3 : m.first > m.last, "%s", what);
}

static void test_end(void)
{
	uint32_t page, id;

	start("AbbbbbbbbbbbbC");
	page = rig_new(&rig, 4, 4);
	rig_new(&rig, 8, 1);
	sticks(2, 2, 5, 0, "there is no page");
	sticks(5, 2, 5, 4, "one that reaches beyond the last slot");
	sticks(6, 6, 8, 4, "or the first");
	sticks(5, 5, 6, 4, "or both");
	sticks(7, 7, 7, 4, "or a single one");
	sticks(4, 4, 7, 0, "not one that is as long as the place");
	sticks(7, 3, 7, 0, "nor one inside it");
	sticks(8, 5, 8, 0, "nor one of a slot");
	rig_again(&rig, 14, page);
	sticks(5, 2, 5, 4, "one that has another mapping");
	id = rig_enter(&rig, S(14), MIB(1));
	sticks(5, 2, 5, 0, "not one that is in use elsewhere");
	sticks(14, 12, 14, 0, "nor in use here");
	sticks(17, 17, 17, 0, "nor its stranded slots");
	rig_free(&rig, id);
	sticks(17, 17, 17, 14, "until it is left");
	glk_page_take(&rig.map, page);
	sticks(5, 2, 5, 0, "nor one that is taken");
	glk_page_put_back(&rig.map, page);
	end();
}

static void test_trim(void)
{
	start("AbbbbbbC");
	rig_new(&rig, 1, 1);
	rig_new(&rig, 2, 1);
	rig_new(&rig, 3, 4);
	lies(4, false, 1, 0, "a part of an idle page will do");
	ok(!seek(4, false).trims, "and it stays where it is");
	trims(4, 3, 0, false, "but where memory is short, all of it does");
	trims(6, 1, 0, false, "or more than it");
	trims(2, 1, 0, false, "or none of it");
	trims(3, 1, 1, true, "or the place that has the smallest part of it");
	end();

	start("AbbbbbbbbbbbbC");
	rig_new(&rig, 1, 4);
	rig_new(&rig, 5, 4);
	rig_new(&rig, 9, 4);
	trims(6, 1, 2, true, "one that reaches beyond the high end");
	veto[1] = true;
	trims(6, 7, 2, true, "or beyond the low end");
	trims(8, 5, 0, false, "two whole ones");
	veto[12] = true;
	trims(8, 14, 8, false, "new addresses, when there is no hole");
	memset(veto, 0, sizeof(veto));
	trims(12, 1, 0, false, "three whole ones");
	end();

	start("AbbbbbbbbC");
	rig_new(&rig, 1, 8);
	trims(3, 1, 3, true, "one page at both ends counts once");
	trims(8, 1, 0, false, "all of it");
	end();
}

/* With trimming, the place that brings the fewest slots into use is looked for. */
static void test_fewest(void)
{
	start("AbbbCdddE");
	slots("uuuuubbbu");
	lies(3, false, 1, 0, "the lowest place that needs no page");
	lies(3, true, 5, 0, "the one whose slots are in use already");
	stop();
	start("AbbCddEffGhhIjjKllMnnO");
	slots("uuuuuuuuuuuuuuuuuuubuu");
	search(S(2));
	is_int(asked, 1, "the first hole will do");
	lies(2, true, 19, 0, "or is the last that is looked at");
	stop();
	start("AbbbbbbbbCddddddddE");
	slots("uuuuuuuuuubbbbbbb-u");
	lies(8, true, 1, 0, "but no slot is saved for a map");
	stop();
	start("AbbbbbbbbCddddddddE");
	slots("u-uuuuuuuubbbbbb--u");
	lies(8, true, 10, 2, "unless there is one to make anyway");
	stop();
}

/* Pages above the high-water mark, which reach beyond the place too, count once. */
static void test_ahead(void)
{
	struct glk_want want = want_of(2, true);
	struct glk_fit fit;

	start("A");
	rig_new(&rig, 1, 4);
	rig.map.ahead = 5;
	trims(2, 1, 2, true, "at the mark a page reaches beyond the place");
	fit = seek(2, true);
	is_int(glk_fit_ahead(&rig.map, &want, &fit), 0, "which saves nothing");
	trims(4, 1, 4, false, "all of it");
	want = want_of(4, true);
	fit = seek(4, true);
	is_int(glk_fit_ahead(&rig.map, &want, &fit), 4, "saves as much");
	want = want_of(6, true);
	fit = seek(6, true);
	is_int(glk_fit_ahead(&rig.map, &want, &fit), 4, "for more than it, too");
	end();
}

/* Contiguous blocks, on an idle page of their size. */
static void test_whole(void)
{
	uint32_t page, id;

	start("AbbbbbbC");
	rig_new(&rig, 1, 2);
	page = rig_new(&rig, 3, 4);
	kind = GLK_FIT_WHOLE;
	lies(4, false, 3, 0, "one of four slots");
	lies(2, false, 1, 0, "one of two");
	trims(4, 3, 0, false, "with trimming, too");
	lies(1, false, 8, 1, "not a part of one");
	lies(3, false, 8, 3, "nor parts of two");
	lies(6, false, 8, 6, "nor two, however long they are together");
	rig_again(&rig, 20, page);
	lies(4, false, 3, 0, "one with two mappings");
	id = rig_enter(&rig, S(23), S(1));
	lies(4, false, 8, 4, "not one that is in use elsewhere");
	rig_free(&rig, id);
	lies(4, false, 3, 0, "until it is left");
	veto[4] = true;
	lies(4, false, 20, 0, "at either of its mappings");
	end();
}

int main(void)
{
	tap_plan_later();
	test_end();
	test_trim();
	test_fewest();
	test_ahead();
	test_whole();
	return tap_done();
}
