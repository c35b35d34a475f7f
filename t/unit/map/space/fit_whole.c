/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Places of whole slots, for pages of their own and for small blocks, and pages above the mark. */
#include "unit/map/space/fit_parts.h"

/* An extent from the middle of slot `low` to the middle of slot `high`, live or free. */
static uint32_t halves(uint32_t low, uint32_t high, bool freed)
{
	uint64_t offset = S(low) + MIB(1);
	uint32_t id;

	/* what lies before the first is somebody's */
	if (!rig.map.high && glk_extent_carve(&rig.map, 0, 0, MIB(1), &id))
		tap_bail("no addresses");
	if (glk_extent_carve(&rig.map, 0, offset, S(high - low), &id))
		tap_bail("no addresses");
	if (freed)
		glk_extent_give_back(&rig.map, id);
	return id;
}

/* Slots for small blocks, and for pages of their own, are whole ones. */
static void test_whole(void)
{
	struct glk_fit fit;
	uint32_t id;

	start("");
	halves(0, 3, true);
	halves(3, 4, false);
	kind = GLK_FIT_WHOLE;
	fit = search(S(1));
	ok(fit.offset == S(1) && fit.from, "the first slot that is whole");
	fit = search(S(2));
	ok(fit.offset == S(1) && fit.from, "two");
	fit = search(S(3));
	ok(fit.offset == S(5) && !fit.from, "three are not in it: new addresses");
	glk_bit_set(rig.map.usable, 1);
	fit = search(S(1));
	ok(fit.offset == S(1) && !fit.maps, "one that has a page of its size already");
	ok(search(S(2)).offset == S(5), "but no run with one");
	kind = GLK_FIT_BLOCK;
	ok(search(S(1)).offset == MIB(1), "a block begins where the extent does");
	stop();

	start("AbbbC");
	kind = GLK_FIT_NEST;
	slots("uuu");
	/* behind the first slot a page of four, behind the second one of one */
	id = rig_grow(&rig, 4);
	rig.map.page[1] = id;
	rig.map.page[2] = rig_grow(&rig, 1);
	rig.map.usable[0] &= ~UINT64_C(8);
	fit = search(S(1));
	ok(fit.offset == S(3), "a nest is tried at both ends, and not on a large page");
	rig.map.page[3] = id;
	glk_bit_set(rig.map.usable, 3);
	ok(search(S(1)).offset == S(5), "else at new addresses");
	ok(!glk_extent_carve(&rig.map, rig_at(&rig, S(1)), S(1), S(1), &id),
		"a block in its way");
	fit = search(S(1));
	ok(fit.offset == S(2) && !fit.maps, "then on a page of one slot");
	glk_node_release(rig.map.node, rig.map.page[1]);
	glk_node_release(rig.map.node, rig.map.page[2]);
	memset(rig.map.page, 0, SLOTS * sizeof(*rig.map.page));
	stop();
}

/* New addresses for whole slots, where the free extent that ends at the mark is not. */
static void test_whole_tail(void)
{
	struct glk_fit fit;
	uint32_t id;

	start("");
	halves(0, 2, true);
	kind = GLK_FIT_WHOLE;
	fit = search(S(4));
	ok(fit.offset == S(1) && !fit.from, "they begin inside that one");
	is_int(glk_extent_carve(&rig.map, fit.from, fit.offset, S(4), &id), 0, "carved");
	ok(glk_extent_at(&rig.map, id)->offset == S(1) && rig.map.high == S(5) &&
			rig.map.last == id,
		"from there on");
	ok(rig_at(&rig, MIB(2) - 512) != id && rig_at(&rig, S(1)) == id,
		"and nobody else has them");
	glk_lookup_enter(&rig.map, id);
	for (uint32_t i = 0; i < 5; i++)
		rig_new(&rig, i, 1);
	glk_slots_enter(&rig.map, 1, 4);
	glk_lookup_enter(&rig.map, rig_at(&rig, 0));
	glk_slots_enter(&rig.map, 0, 0);
	ok(rig_sound(&rig), "sound");
	rig_free(&rig, id);
	ok(rig_sound(&rig), "sound");
	is_int((int64_t)glk_extent_at(&rig.map, rig.map.last)->offset, (int64_t)MIB(1),
		"free, it is one again");
	stop();
}

/* Many holes that are large enough and begin beside a slot hide none that holds a whole one. */
static void test_hidden(void)
{
	uint32_t id[41], n;
	struct glk_fit fit;

	start("");
	if (glk_extent_carve(&rig.map, 0, 0, MIB(1), &id[0]))
		tap_bail("no addresses");
	/* 2 MiB each from the middle of a slot on, of which every second one is free */
	for (n = 0; n < 40; n++) {
		if (glk_extent_carve(&rig.map, 0, MIB(1) + n * MIB(4), MIB(2), &id[n]) ||
			glk_extent_carve(
				&rig.map, 0, MIB(3) + n * MIB(4), MIB(2), &id[40]))
			tap_bail("no addresses");
		glk_extent_give_back(&rig.map, id[n]);
	}
	glk_extent_raise(&rig.map, S(100));
	if (glk_extent_carve(&rig.map, 0, S(100), GIB(4) - S(100), &id[40]))
		tap_bail("no addresses");
	kind = GLK_FIT_WHOLE;
	fit = search(S(1));
	ok(fit.offset == S(81) && fit.from,
		"a whole slot is found behind 40 halves of two");
	kind = GLK_FIT_NEST;
	ok(search(S(1)).offset == S(81), "for small blocks, too");
	kind = GLK_FIT_WHOLE;
	ok(search(S(19)).offset == S(81), "as many as there are");
	ok(search(S(20)).offset == UINT64_MAX, "and no more");
	stop();
}

/* Pages that are mapped above the mark. */
static void test_ahead(void)
{
	struct glk_want want = {.size = S(2), .fn = check, .arg = &rig};
	struct glk_fit fit;

	start("AbbC");
	slots("u---uuuu");
	fit = search(S(2));
	is_int(fit.maps, 2, "a hole without pages");
	is_int(glk_fit_ahead(&rig.map, &want, &fit), 0, "none are ahead");
	rig.map.ahead = 8;
	is_int(glk_fit_ahead(&rig.map, &want, &fit), 2, "two slots fewer to map");
	ok(fit.offset == S(4) && !fit.maps && !fit.from, "at the mark");
	is_int(glk_fit_ahead(&rig.map, &want, &fit), 0, "there is none better");
	stop();
	start("Abb");
	slots("u--uuuu");
	rig.map.ahead = 7;
	want.size = S(3);
	fit = search(S(3));
	ok(fit.offset == S(1) && fit.maps == 3,
		"beginning with a free extent that has no pages");
	is_int(glk_fit_ahead(&rig.map, &want, &fit), 3, "behind it there are");
	is_int((int64_t)fit.offset, (int64_t)S(3), "at the mark");
	stop();
	start("Abb");
	slots("u--uuuu");
	rig.map.ahead = 3;
	fit = search(S(3));
	is_int(glk_fit_ahead(&rig.map, &want, &fit), 0,
		"pages below the mark are not ahead");
	stop();
}

int main(void)
{
	tap_plan_later();
	test_whole();
	test_whole_tail();
	test_hidden();
	test_ahead();
	return tap_done();
}
