/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Mappings that come and go, and those the driver refuses to make, to grant or to remove. */
#include "unit/map/page/mapping_parts.h"

static uint64_t addr(uint32_t slot)
{
	return rig_addr(&rig, slot);
}

/* Maps a page, which stays in the caller's hands. */
static void make(uint32_t slot, uint32_t page)
{
	if (glk_mapping_make(&rig.map, slot, &page, 1))
		tap_bail("no mapping");
}

static void test_make(uint32_t slots)
{
	uint32_t page;
	struct glk_mapping m;
	int wrong = 0;

	start();
	page = rig_grow(&rig, slots);
	at(page)->use = (struct glk_use){.streams = 5, .tick = 6};
	is_int(glk_mapping_make(&rig.map, 60, &page, 1), 0, "a page is mapped");
	for (uint32_t i = 60; i < 60 + slots; i++) {
		m = glk_mapping_at(&rig.map, i);
		wrong += fake_page_at(&rig.fake, addr(i)) != at(page)->handle;
		wrong += rig.map.page[i] != page;
		wrong += m.first != 60 || m.last != 60 + slots - 1;
	}
	is_int(wrong, 0, "at all its slots, each of which leads to it");
	ok(fake_access_at(&rig.fake, addr(60)), "with access");
	ok(bits(rig.map.mapped, 60, slots, true) &&
			bits(rig.map.usable, 60, slots, true) &&
			bits(rig.map.shared, 60, slots, false),
		"mapped, usable, not shared");
	ok(!rig.map.page[59] && !rig.map.page[60 + slots], "nothing beside them");
	is_int(at(page)->first_alias, 60, "the page names the first");
	is_int((int64_t)rig.map.space->mapped_bytes, (int64_t)S(slots),
		"the sum of mappings");
	is_int((int64_t)rig.map.space->of[0].page_bytes, (int64_t)S(slots),
		"and of pages");
	ok(glk_page_use(&rig.map, page).streams == 5 &&
			glk_page_use(&rig.map, page).tick == 6,
		"its use is kept");
	make(200, page);
	is_int(at(page)->first_alias, 200, "the most recent is the first");
	is_int(rig.map.alias[200], 60, "before the older one");
	ok(bits(rig.map.shared, 60, slots, true) &&
			bits(rig.map.shared, 200, slots, true),
		"both are shared");
	for (uint32_t i = 0; i < slots; i++) {
		wrong += glk_mapping_at(&rig.map, 60 + i).first != 60;
		wrong += glk_mapping_at(&rig.map, 200 + i).first != 200;
	}
	is_int(wrong, 0, "each slot leads to its own");
	ok(glk_page_use(&rig.map, page).tick == 6 && !glk_use_at(&rig.map, 200).tick,
		"the use of the page is kept, the new slots have none");
	is_int((int64_t)rig.map.space->mapped_bytes, 2 * (int64_t)S(slots), "both count");
	is_int((int64_t)rig.map.space->of[0].page_bytes, (int64_t)S(slots),
		"the page once");
	glk_page_put_back(&rig.map, page);
	is_int((int64_t)rig.map.space->of[0].idle_slots, slots, "put back, it is idle");
	ok(rig_sound(&rig), "sound");
	rig_stop(&rig);
}

static void test_make_fails(uint32_t slots)
{
	struct glk_page before;
	uint32_t page;

	for (uint32_t mappings = 0; mappings < 3; mappings++) {
		start();
		page = rig_grow(&rig, slots);
		for (uint32_t i = 0; i < mappings; i++)
			make(64 * i, page);
		glk_page_put_back(&rig.map, page);
		if (mappings)
			glk_page_take(&rig.map, page);
		else
			page = rig_grow(&rig, slots);
		before = *at(page);
		fake_fail(&rig.fake, FAKE_MAP, 1, -ENOMEM, false);
		is_int(glk_mapping_make(&rig.map, 300, &page, 1), -ENOMEM,
			"the driver refuses a mapping");
		ok(!memcmp(&before, at(page), sizeof(before)), "the page is as before");
		ok(!rig.map.page[300] && bits(rig.map.mapped, 300, slots, false) &&
				bits(rig.map.usable, 300, slots, false) &&
				bits(rig.map.shared, 300, slots, false),
			"so are the slots");
		is_int((int64_t)rig.map.space->mapped_bytes,
			(int64_t)(mappings * S(slots)), "and the sum of mappings");
		glk_page_put_back(&rig.map, page);
		ok(rig_sound(&rig), "sound");
		rig_stop(&rig);
	}
}

/* As many mappings as the counter of a page holds, and one more. */
static void test_most(uint32_t slots)
{
	uint32_t page, most = UINT8_MAX, id;
	int wrong = 0;

	rig_conf(&rig);
	rig.size.step = rig.size.most = GIB(64);
	rig_start(&rig);
	rig_raise(&rig, (most + 1) * slots);
	page = rig_grow(&rig, slots);
	for (uint32_t i = 0; i < most; i++)
		make(i * slots, page);
	is_int(at(page)->aliases, (int)most, "255 mappings of a page");
	is_int(glk_mapping_make(&rig.map, most * slots, &page, 1), -ENOMEM,
		"one more is refused");
	is_int(fake_class(), GLAKE_ERROR_LIMIT, "for it is a limit");
	is_int((int64_t)rig.fake.calls[FAKE_MAP], (int)most,
		"and the driver is not asked");
	is_int(at(page)->aliases, (int)most, "nothing has changed");
	glk_page_put_back(&rig.map, page);
	for (uint32_t i = 0; i < most * slots; i++)
		wrong += glk_mapping_at(&rig.map, i).first != i - i % slots;
	is_int(wrong, 0, "each slot leads to its mapping");
	ok(rig_sound(&rig), "sound");
	id = rig_enter(&rig, S(3 * slots), S(1));
	is_int(glk_bits_count(rig.map.usable, 0, most * slots), slots,
		"in use through one, 254 are stale");
	ok(rig_sound(&rig), "sound");
	rig_free(&rig, id);
	is_int(glk_bits_count(rig.map.usable, 0, most * slots), most * slots,
		"idle, all are usable");
	for (uint32_t i = 0; i < most; i++)
		wrong += unmap((i * 7 % most) * slots);
	is_int(wrong, 0, "all go");
	is_int(glk_page_state(at(page)), GLK_PAGE_FREE, "and the page is free");
	ok(rig_sound(&rig), "sound");
	rig_stop(&rig);
}

static void test_make_run(void)
{
	uint32_t page[3];

	start();
	for (int i = 0; i < 3; i++)
		page[i] = rig_grow(&rig, i == 1 ? 8 : 1);
	is_int(glk_mapping_make(&rig.map, 5, page, 3), 0, "pages of two sizes in a run");
	is_int((int64_t)rig.fake.calls[FAKE_MAP], 3, "three are mapped");
	is_int((int64_t)rig.fake.calls[FAKE_SET_ACCESS], 1, "and granted in one call");
	ok(!fake_access_at(&rig.fake, addr(4)) && fake_access_at(&rig.fake, addr(5)) &&
			fake_access_at(&rig.fake, addr(14)) &&
			!fake_access_at(&rig.fake, addr(15)),
		"to those and no others");
	ok(rig.map.page[5] == page[0] && rig.map.page[6] == page[1] &&
			rig.map.page[13] == page[1] && rig.map.page[14] == page[2],
		"one behind the other");
	is_int((int64_t)rig.map.space->of[0].idle_slots, 0, "booked and not idle yet");
	for (int i = 0; i < 3; i++)
		glk_page_put_back(&rig.map, page[i]);
	is_int((int64_t)rig.map.space->of[0].idle_slots, 10, "until they are put back");
	ok(rig_sound(&rig), "sound");
	rig_stop(&rig);
}

/* Each call of the driver fails; with `kept` the way back does too. */
static void test_run_fails(enum fake_op call, uint64_t nth, bool kept)
{
	uint32_t page[3];
	int owned = 0;

	start();
	for (int i = 0; i < 3; i++)
		page[i] = rig_grow(&rig, 4);
	fake_fail(&rig.fake, call, nth, -EIO, false);
	if (kept) {
		fake_fail(&rig.fake, FAKE_UNMAP, 1, -EIO, false);
		tap_expect_log((int)(call == FAKE_MAP ? nth - 1 : 3));
	}
	is_int(glk_mapping_make(&rig.map, 8, page, 3), -EIO, "the driver refuses");
	for (int i = 0; i < 3; i++) {
		owned += glk_page_state(at(page[i])) == GLK_PAGE_OWNED &&
			!at(page[i])->aliases;
		if (glk_page_state(at(page[i])) == GLK_PAGE_OWNED)
			glk_page_put_back(&rig.map, page[i]);
	}
	is_int(owned, kept ? (call == FAKE_MAP ? 4 - (int)nth : 0) : 3,
		kept ? "those that it keeps are lost" : "and nothing has changed");
	is_int((int64_t)rig.map.space->mapped_bytes, 0, "nothing is mapped");
	is_int((int64_t)glk_bits_count(rig.map.mapped, 8, 19), kept ? 4 * (3 - owned) : 0,
		"its slots stay out of use with it");
	ok(rig_sound(&rig), "sound");
	rig_stop(&rig);
}

/* What is about to go is nobody's, and its page goes to the list with the last of it. */
static void test_going(bool fails)
{
	uint32_t page, id;

	start();
	page = rig_new(&rig, 0, 4);
	rig_again(&rig, 8, page);
	glk_mapping_detach(&rig.map, 0, 3);
	ok(bits(rig.map.mapped, 0, 4, true) && !rig.map.page[0] &&
			bits(rig.map.usable, 0, 4, false) && at(page)->going == 1,
		"taken out of the tables, and mapped still");
	is_int((int64_t)rig.map.space->of[0].idle_slots, 4,
		"its page is idle by another mapping");
	id = rig_enter(&rig, S(8), S(4));
	glk_mapping_gone(&rig.map, 0, 3, 0, false);
	ok(bits(rig.map.mapped, 0, 4, false) && !at(page)->going, "gone");
	rig_free(&rig, id);
	is_int((int64_t)rig.map.space->of[0].idle_slots, 4, "and idle again");
	glk_mapping_detach(&rig.map, 8, 11);
	ok(at(page)->left && !rig.map.space->of[0].idle_slots,
		"with the last it is nobody's");
	is_int(glk_page_state(at(page)), GLK_PAGE_OWNED, "and on no list");
	if (fails)
		tap_expect_log(1);
	glk_mapping_gone(&rig.map, 8, 11, fails ? -EIO : 0, false);
	is_int(glk_page_state(at(page)), fails ? GLK_PAGE_LOST : GLK_PAGE_FREE,
		fails ? "lost" : "free when it is gone");
	fake_fail(&rig.fake, FAKE_UNMAP, 0, 0, false);
	rig.fake.ops.unmap(&rig.fake.drv, addr(0), S(4));
	if (!fails)
		rig.fake.ops.unmap(&rig.fake.drv, addr(8), S(4));
	ok(rig_sound(&rig), "sound");
	rig_stop(&rig);
}

static void test_remove(uint32_t slots)
{
	uint32_t page;

	start();
	page = rig_new(&rig, 0, slots);
	rig_again(&rig, 100, page);
	is_int(unmap(0), 0, "an idle page loses one of two mappings");
	is_int((int64_t)rig.map.space->of[0].idle_slots, slots, "it stays idle");
	is_int(at(page)->aliases, 1, "with one");
	ok(bits(rig.map.shared, 100, slots, false), "which is not shared");
	is_int((int64_t)fake_page_at(&rig.fake, addr(0)), 0, "the addresses are free");
	ok(bits(rig.map.mapped, 0, slots, false) &&
			bits(rig.map.usable, 0, slots, false) && !rig.map.page[0] &&
			!rig.map.page[slots - 1],
		"so are the slots");
	is_int((int64_t)rig.map.space->mapped_bytes, (int64_t)S(slots),
		"the sum of mappings");
	ok(rig_sound(&rig), "sound");
	is_int(unmap(100), 0, "and the last");
	is_int(glk_page_state(at(page)), GLK_PAGE_FREE,
		"it goes to the list of its node");
	ok(!rig.map.space->of[0].idle_slots && !rig.map.space->mapped_bytes &&
			!rig.map.space->of[0].page_bytes,
		"nothing is mapped nor idle");
	ok(rig_sound(&rig), "sound");

	rig_new(&rig, 300, slots);
	page = rig.map.page[300];
	rig_again(&rig, 400, page);
	glk_page_take(&rig.map, page);
	is_int((int64_t)rig.map.space->of[0].idle_slots, 0, "in the caller's hands");
	is_int(unmap(400), 0, "it loses one of two mappings");
	ok(at(page)->aliases == 1 && !rig.map.space->of[0].idle_slots, "it stays there");
	is_int(unmap(300), 0, "and the other");
	is_int(glk_page_state(at(page)), GLK_PAGE_OWNED, "and stays there");
	glk_page_take(&rig.map, page);
	glk_page_put_back(&rig.map, page);
	is_int(glk_page_state(at(page)), GLK_PAGE_FREE, "until it is put back");
	ok(rig_sound(&rig), "sound");
	rig_stop(&rig);
}

/* What is known of the use of a page goes from slots to the page and back. */
static void test_use(uint32_t slots)
{
	uint32_t page, id;
	struct glk_use use;

	start();
	page = rig_new(&rig, 0, slots);
	id = rig_enter(&rig, S(slots) - MIB(1), MIB(1));
	rig_leave(&rig, id, 1);
	id = rig_enter(&rig, 0, MIB(1));
	rig_leave(&rig, id, 2);
	glk_page_take(&rig.map, page);
	unmap(0);
	use = glk_page_use(&rig.map, page);
	ok(use.streams == 3 && use.tick == 2, "mapped nowhere: the use of all its slots");
	rig_map(&rig, 100, page);
	use = glk_page_use(&rig.map, page);
	ok(use.streams == 3 && use.tick == 2, "mapped again: the same");
	ok(glk_use_at(&rig.map, 100 + slots - 1).tick == 2, "at all its slots");
	glk_page_put_back(&rig.map, page);
	rig_leave(&rig, rig_enter(&rig, S(100), S(1)), 4);
	rig_again(&rig, 200, page);
	rig_leave(&rig, rig_enter(&rig, S(200 + slots - 1), S(1)), 8);
	ok(glk_use_at(&rig.map, 200 + slots - 1).streams == 8, "a slot knows its own");
	is_int(unmap(100), 0, "one of two mappings gone");
	use = glk_page_use(&rig.map, page);
	ok(use.streams == 15 && use.tick == 4, "all of it");
	ok(glk_use_sum(&rig.map, 200, 200 + slots - 1).streams == 15, "in its slots");
	unmap(200);
	use = glk_page_use(&rig.map, page);
	ok(use.streams == 15 && use.tick == 4, "both: all of it");
	rig_stop(&rig);
}

/* Taking and putting back, again and again, of a page with many mappings. */
static void test_taken(void)
{
	uint32_t page;
	int wrong = 0;

	start();
	page = rig_new(&rig, 0, 7);
	for (uint32_t i = 1; i < 100; i++)
		rig_again(&rig, 7 * i, page);
	rig_new(&rig, 700, 64);
	for (int i = 0; i < 100; i++) {
		glk_page_take(&rig.map, page);
		wrong += rig.map.space->of[0].idle_slots != 64;
		wrong += glk_bits_any(rig.map.usable, 0, 699);
		wrong += !glk_bits_all(rig.map.mapped, 0, 699);
		wrong += !glk_bits_all(rig.map.usable, 700, 763);
		glk_page_put_back(&rig.map, page);
		wrong += rig.map.space->of[0].idle_slots != 71;
		wrong += !glk_bits_all(rig.map.usable, 0, 763);
	}
	is_int(wrong, 0, "taken, all its mappings are stale; put back, none");
	ok(rig_sound(&rig), "sound");
	glk_page_link(&rig.map, page, 77);
	is_int(glk_page_next(&rig.map, page), 77, "a taken one can be linked");
	page = rig_grow(&rig, 1);
	glk_page_take(&rig.map, page);
	ok(rig.map.space->of[0].idle_slots == 71 &&
			glk_page_state(at(page)) == GLK_PAGE_OWNED,
		"one without mappings is the caller's anyway");
	glk_page_put_back(&rig.map, page);
	is_int(glk_page_state(at(page)), GLK_PAGE_FREE, "and goes to its node");
	rig_stop(&rig);
}

static void test_run(void)
{
	uint32_t page[4], id = make_run(page);

	is_int(glk_mapping_remove(&rig.map, 0, 79), 0, "five mappings at once");
	is_int((int64_t)rig.fake.calls[FAKE_UNMAP], 1, "in one call");
	is_int((int64_t)rig.fake.mappings, 2, "two are left");
	is_int(glk_page_state(at(page[0])), GLK_PAGE_FREE, "an idle page is free");
	ok(glk_page_state(at(page[1])) == GLK_PAGE_OWNED &&
			rig.map.space->of[0].idle_slots == 7,
		"one with a mapping elsewhere is idle");
	is_int(glk_page_state(at(page[2])), GLK_PAGE_FREE,
		"one that lay there twice is free");
	ok(glk_page_state(at(page[3])) == GLK_PAGE_OWNED &&
			bits(rig.map.usable, 200, 64, true),
		"one in use elsewhere is in use");
	ok(bits(rig.map.mapped, 0, 80, false), "no slot is mapped");
	ok(rig_sound(&rig), "sound");
	rig_free(&rig, id);
	ok(rig_sound(&rig), "sound");
	rig_stop(&rig);
}

int main(void)
{
	tap_plan_later();
	for (int i = 0; i < 4; i++) {
		test_make(sizes[i]);
		test_make_fails(sizes[i]);
		test_remove(sizes[i]);
		test_use(sizes[i]);
	}
	test_most(1);
	test_most(7);
	test_make_run();
	for (uint64_t nth = 1; nth <= 3; nth++) {
		test_run_fails(FAKE_MAP, nth, false);
		test_run_fails(FAKE_MAP, nth, true);
	}
	test_run_fails(FAKE_SET_ACCESS, 1, false);
	test_run_fails(FAKE_SET_ACCESS, 1, true);
	test_going(false);
	test_going(true);
	test_taken();
	test_run();
	return tap_done();
}
