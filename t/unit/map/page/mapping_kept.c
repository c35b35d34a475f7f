/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Mappings that the driver does not remove: what is out of use then, and what is not. */
#include "unit/map/page/mapping_parts.h"

/* The driver keeps a mapping of a page that is in use elsewhere. */
static void test_kept_in_use(uint32_t slots)
{
	uint32_t page, id;

	start();
	page = rig_new(&rig, 0, slots);
	rig_again(&rig, 100, page);
	rig_again(&rig, 200, page);
	id = rig_enter(&rig, S(100 + slots / 2), S(1));
	tap_expect_log(1);
	fake_fail(&rig.fake, FAKE_UNMAP, 1, -EIO, false);
	is_int(unmap(0), -EIO, "a mapping is kept");
	ok(bits(rig.map.mapped, 0, slots, true) &&
			bits(rig.map.usable, 0, slots, false) &&
			bits(rig.map.shared, 0, slots, false) && !rig.map.page[0] &&
			!rig.map.page[slots - 1],
		"its slots are out of use");
	is_int(glk_page_state(at(page)), GLK_PAGE_OWNED, "the page is not lost");
	is_int(at(page)->aliases, 2, "but in use as before");
	is_int((int64_t)glk_load_relaxed(&rig.map.node->lost), 0, "nothing is");
	ok(rig_sound(&rig), "sound");
	rig_free(&rig, id);
	ok(bits(rig.map.usable, 100, slots, true) &&
			bits(rig.map.usable, 200, slots, true) &&
			bits(rig.map.usable, 0, slots, false),
		"idle, its other mappings are usable");
	ok(rig_sound(&rig), "sound");
	/* its memory cannot come back while the driver has that mapping */
	glk_page_take(&rig.map, page);
	ok(!unmap(100) && !unmap(200), "they go");
	is_int(glk_node_release(rig.map.node, page), -EIO, "the page cannot be released");
	is_int(glk_page_state(at(page)), GLK_PAGE_LOST, "it is lost now");
	is_int((int64_t)glk_load_relaxed(&rig.map.node->lost), (int64_t)S(slots),
		"and counted");
	is_int((int64_t)glk_load_relaxed(&rig.map.node->held), (int64_t)rig.fake.held,
		"and held");
	has_str(fake_text(), "kept a mapping", "the record says why");
	rig_stop(&rig);
}

/* The driver keeps a mapping of a page nobody is on: idle, or in the caller's hands. */
static void test_kept_idle(uint32_t slots, bool taken)
{
	uint32_t page, id;

	start();
	page = rig_new(&rig, 0, slots);
	rig_again(&rig, slots, page);
	rig_again(&rig, 2 * slots, page);
	rig_new(&rig, 500, 4);
	if (taken)
		glk_page_take(&rig.map, page);
	tap_expect_log(1);
	fake_fail(&rig.fake, FAKE_UNMAP, 1, -EIO, false);
	is_int(unmap(slots), -EIO,
		taken ? "a mapping of a page in the caller's hands is kept"
		      : "a mapping of an idle page is kept");
	is_int(glk_page_state(at(page)), GLK_PAGE_LOST, "the page is lost");
	is_int((int64_t)glk_load_relaxed(&rig.map.node->lost), (int64_t)S(slots),
		"and counted");
	ok(!at(page)->aliases && at(page)->first_alias == GLK_NO_SLOT,
		"it has no mappings");
	ok(bits(rig.map.mapped, 0, 3 * slots, true) &&
			bits(rig.map.usable, 0, 3 * slots, false) &&
			bits(rig.map.shared, 0, 3 * slots, false),
		"all its slots are out of use");
	is_int((int64_t)rig.map.space->of[0].idle_slots, 4, "another idle page stays");
	is_int((int64_t)rig.map.space->mapped_bytes, (int64_t)S(4),
		"what is lost is not mapped");
	ok(rig_sound(&rig), "sound");
	id = rig_alloc(&rig, S(1022));
	ok(id && glk_extent_at(&rig.map, id)->offset >= S(3 * slots),
		"a block is found elsewhere");
	ok(rig.skipped > 0, "those slots were passed over");
	ok(rig_sound(&rig), "sound");
	rig_stop(&rig);
}

/* One with one mapping. */
static void test_kept_alone(uint32_t slots, bool taken)
{
	uint32_t page;

	start();
	page = rig_new(&rig, 60, slots);
	if (taken)
		glk_page_take(&rig.map, page);
	tap_expect_log(1);
	fake_fail(&rig.fake, FAKE_UNMAP, 1, -EIO, false);
	is_int(unmap(60), -EIO, "the only mapping is kept");
	is_int(glk_page_state(at(page)), GLK_PAGE_LOST, "the page is lost");
	ok(bits(rig.map.mapped, 60, slots, true) && !rig.map.page[60] &&
			!rig.map.space->of[0].idle_slots &&
			!rig.map.space->of[0].page_bytes,
		"with its slots");
	ok(rig_sound(&rig), "sound");
	rig_stop(&rig);
}

static void test_run_kept(void)
{
	uint32_t page[4], id = make_run(page);

	tap_expect_log(4);
	fake_fail(&rig.fake, FAKE_UNMAP, 1, -EIO, false);
	is_int(glk_mapping_remove(&rig.map, 0, 79), -EIO, "five mappings are kept");
	for (uint32_t i = 0; i < 3; i++)
		is_int(glk_page_state(at(page[i])), GLK_PAGE_LOST,
			"an idle page is lost");
	is_int((int64_t)glk_load_relaxed(&rig.map.node->lost), (int64_t)S(12),
		"three are");
	is_int(glk_page_state(at(page[3])), GLK_PAGE_OWNED,
		"one in use elsewhere is not");
	is_int(glk_bits_count_only(rig.map.mapped, rig.map.usable, 0, 199), 87,
		"all slots are out of use, those elsewhere too");
	ok(rig_sound(&rig), "sound");
	rig_free(&rig, id);
	ok(rig_sound(&rig), "sound");
	rig_stop(&rig);
}

int main(void)
{
	tap_plan_later();
	for (int i = 0; i < 4; i++) {
		test_kept_in_use(sizes[i]);
		test_kept_idle(sizes[i], false);
		test_kept_idle(sizes[i], true);
		test_kept_alone(sizes[i], false);
		test_kept_alone(sizes[i], true);
	}
	test_run_kept();
	return tap_done();
}
