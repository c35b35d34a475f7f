/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Mappings that come and go, and those the driver refuses to make, to grant or to remove. */
#include "unit/map/rig.h"

static struct rig rig;
static struct glk_span *span;
static struct glk_node *node;

static void start(void)
{
	uint32_t id;

	rig_init(&rig);
	node = &rig.pool.nodes[0];
	span = &rig.map.span[GLK_KIND_LARGE];
	if (glk_extent_carve(span, 0, 0, 16 * MIB(8), &id))
		tap_bail("no addresses");
	glk_extent_give_back(span, id);
}

static void stop(void)
{
	is_int((int64_t)rig.fake.broken, 0, "no rule of the driver was broken");
	rig_fini(&rig);
}

static uint32_t grow(void)
{
	uint32_t page;

	if (glk_node_grow(node, GLK_CLASS_LARGE, 0, &page))
		tap_bail("no page");
	return page;
}

static struct glk_page *at(uint32_t page)
{
	return glk_map_page(&rig.map, page);
}

static uint64_t addr(uint32_t slot)
{
	return span->base + slot * MIB(8);
}

static void attach(uint32_t slot, uint32_t page)
{
	if (glk_slot_attach(span, slot, page))
		tap_bail("no mapping");
}

static void test_attach(void)
{
	uint32_t page;

	start();
	page = grow();
	at(page)->use = (struct glk_use){.streams = 5, .tick = 6};
	is_int(glk_slot_attach(span, 2, page), 0, "a page is mapped");
	is_int((int64_t)fake_page_at(&rig.fake, addr(2)), (int64_t)at(page)->handle,
		"at the address of its slot");
	ok(!fake_access_at(&rig.fake, addr(2)), "without access");
	is_int(span->slot[2].page, page, "the slot names it");
	is_int(at(page)->first_alias, glk_slot_name(span, 2), "and it the slot");
	is_int((int64_t)rig.map.mapped_bytes, (int64_t)MIB(8), "the sum of mappings");
	ok(glk_page_use(&rig.map, page)->streams == 5 &&
			glk_page_use(&rig.map, page)->tick == 6,
		"its use is kept");
	attach(7, page);
	is_int(at(page)->first_alias, glk_slot_name(span, 7),
		"the most recent is the first");
	is_int(span->more[7].next_alias, glk_slot_name(span, 2), "before the older one");
	ok(glk_page_use(&rig.map, page)->tick == 6 && !span->use[7].tick,
		"the use of the page is kept, the new slot has none");
	is_int((int64_t)rig.map.mapped_bytes, 2 * (int64_t)MIB(8), "both count");
	glk_idle_put(&rig.map, page);
	ok(rig_sound(&rig), "sound");
	stop();
}

static void test_attach_fails(void)
{
	struct glk_page before;
	uint32_t page;

	for (uint32_t mappings = 0; mappings < 3; mappings++) {
		start();
		page = grow();
		for (uint32_t i = 0; i < mappings; i++)
			attach(i, page);
		before = *at(page);
		fake_fail(&rig.fake, FAKE_MAP, 1, -ENOMEM, false);
		is_int(glk_slot_attach(span, 9, page), -ENOMEM,
			"the driver refuses a mapping");
		ok(!memcmp(&before, at(page), sizeof(before)), "the page is as before");
		ok(!span->slot[9].page && !glk_bit_get(span->mapped, 9) &&
				!glk_bit_get(span->usable, 9) &&
				!glk_bit_get(span->shared, 9),
			"so is the slot");
		is_int((int64_t)rig.map.mapped_bytes, (int64_t)(mappings * MIB(8)),
			"and the sum of mappings");
		if (mappings)
			glk_idle_put(&rig.map, page);
		else
			glk_node_put(node, page);
		ok(rig_sound(&rig), "sound");
		stop();
	}
}

/* As many mappings as the counter of a page holds, and one more. */
static void test_most(void)
{
	uint32_t page, most = UINT8_MAX;

	rig_conf(&rig);
	rig.conf.map_span = GIB(16);
	rig_start(&rig);
	node = &rig.pool.nodes[0];
	span = &rig.map.span[GLK_KIND_LARGE];
	if (glk_extent_carve(span, 0, 0, (most + 1) * MIB(8), &page))
		tap_bail("no addresses");
	glk_extent_give_back(span, page);
	page = grow();
	for (uint32_t i = 0; i < most; i++)
		attach(i, page);
	is_int(at(page)->aliases, (int)most, "255 mappings of a page");
	is_int(glk_slot_attach(span, most, page), -ENOMEM, "one more is refused");
	is_int(fake_class(), GLAKE_ERROR_LIMIT, "for it is a limit");
	is_int((int64_t)rig.fake.calls[FAKE_MAP], (int)most,
		"and the driver is not asked");
	is_int(at(page)->aliases, (int)most, "nothing has changed");
	glk_idle_put(&rig.map, page);
	ok(rig_sound(&rig), "sound");
	glk_slot_enter(span, 3);
	is_int(glk_bits_count(span->usable, 0, most), 1,
		"in use through one, 254 are stale");
	glk_slot_leave(span, 3, 1, 1);
	is_int(glk_bits_count(span->usable, 0, most), (int)most, "idle, all are usable");
	for (uint32_t i = 0; i < most; i++) {
		if (glk_slot_detach(span, i))
			tap_bail("no unmap");
	}
	is_int(glk_page_state(at(page)), GLK_PAGE_FREE, "all go, and the page is free");
	stop();
}

static void test_grant(void)
{
	uint32_t single;

	start();
	for (uint32_t i = 2; i < 6; i++)
		attach(i, grow());
	is_int(glk_slot_grant(span, 3, 5), 0, "access to a run of slots");
	is_int((int64_t)rig.fake.calls[FAKE_SET_ACCESS], 1, "in one call");
	ok(!fake_access_at(&rig.fake, addr(2)) && fake_access_at(&rig.fake, addr(3)) &&
			fake_access_at(&rig.fake, addr(5)),
		"to those and no others");
	fake_fail(&rig.fake, FAKE_SET_ACCESS, 1, -EIO, false);
	is_int(glk_slot_grant(span, 2, 2), -EIO, "the driver's error is passed on");
	ok(!fake_access_at(&rig.fake, addr(2)), "no access");
	is_int(glk_slot_grant(span, 2, 2), 0, "until it is asked again");
	for (uint32_t i = 2; i < 6; i++)
		glk_idle_put(&rig.map, span->slot[i].page);
	single = rig_single(&rig, 0, MIB(6));
	ok(single &&
			fake_access_at(
				&rig.fake, rig.map.span[GLK_KIND_SINGLE].base + MIB(4)),
		"a contiguous block is granted whole");
	ok(rig_sound(&rig), "sound");
	stop();
}

static void test_detach(void)
{
	uint32_t page;

	start();
	page = grow();
	attach(0, page);
	attach(1, page);
	glk_idle_put(&rig.map, page);
	is_int(glk_slot_detach(span, 0), 0, "an idle page loses one of two mappings");
	ok(glk_idle_has(&rig.map, page) && at(page)->aliases == 1, "it stays idle");
	is_int((int64_t)fake_page_at(&rig.fake, addr(0)), 0, "the address is free");
	ok(!glk_bit_get(span->mapped, 0) && !glk_bit_get(span->usable, 0),
		"so is the slot");
	is_int((int64_t)rig.map.mapped_bytes, (int64_t)MIB(8), "the sum of mappings");
	ok(rig_sound(&rig), "sound");
	is_int(glk_slot_detach(span, 1), 0, "and the last");
	is_int(glk_page_state(at(page)), GLK_PAGE_FREE,
		"it goes to the list of its node");
	ok(!glk_idle_has(&rig.map, page) && !rig.map.idle_bytes, "and is not idle");
	is_int((int64_t)rig.map.mapped_bytes, 0, "nothing is mapped");
	ok(rig_sound(&rig), "sound");

	is_int(glk_node_take(node, GLK_CLASS_LARGE), page, "in the caller's hands");
	attach(0, page);
	attach(1, page);
	is_int(glk_slot_detach(span, 1), 0, "it loses one of two mappings");
	ok(!glk_idle_has(&rig.map, page) && at(page)->aliases == 1, "and stays there");
	is_int(glk_slot_detach(span, 0), 0, "and the last");
	is_int(glk_page_state(at(page)), GLK_PAGE_OWNED, "and stays there too");
	glk_node_put(node, page);
	ok(rig_sound(&rig), "sound");
	stop();
}

/* What a page keeps of its use when its mappings go and come. */
static void test_use(void)
{
	struct glk_use *use;
	uint32_t page;

	start();
	page = grow();
	attach(0, page);
	glk_slot_enter(span, 0);
	glk_slot_leave(span, 0, 3, 10);
	glk_slot_detach(span, 0);
	use = glk_page_use(&rig.map, page);
	ok(use->streams == 3 && use->tick == 10,
		"mapped nowhere: the use of its last mapping");
	glk_node_take(node, GLK_CLASS_LARGE);
	attach(1, page);
	use = glk_page_use(&rig.map, page);
	ok(use->streams == 3 && use->tick == 10, "mapped again: the same");
	glk_slot_enter(span, 1);
	glk_slot_leave(span, 1, 4, 12);
	glk_idle_take(&rig.map, page);
	attach(2, page);
	glk_slot_enter(span, 2);
	glk_slot_leave(span, 2, 8, 11);
	glk_slot_detach(span, 1);
	use = glk_page_use(&rig.map, page);
	ok(use->streams == 15 && use->tick == 12, "one of two mappings gone: all of it");
	glk_slot_detach(span, 2);
	use = glk_page_use(&rig.map, page);
	ok(use->streams == 15 && use->tick == 12, "both: all of it");
	stop();
}

/* The driver keeps a mapping of a page that is in use elsewhere. */
static void test_kept_in_use(void)
{
	uint32_t page;

	start();
	page = grow();
	attach(0, page);
	attach(1, page);
	attach(2, page);
	glk_slot_enter(span, 1);
	tap_expect_log(1);
	fake_fail(&rig.fake, FAKE_UNMAP, 1, -EIO, false);
	is_int(glk_slot_detach(span, 0), -EIO, "a mapping is kept");
	ok(glk_bit_get(span->mapped, 0) && !glk_bit_get(span->usable, 0) &&
			!span->slot[0].page,
		"its slot is out of use");
	is_int(glk_page_state(at(page)), GLK_PAGE_OWNED, "the page is not lost");
	ok(glk_page_busy(&rig.map, at(page)) && at(page)->aliases == 2,
		"but in use as before");
	is_int((int64_t)glk_load_relaxed(&node->lost), 0, "nothing is");
	glk_slot_leave(span, 1, 1, 1);
	ok(glk_bit_get(span->usable, 1) && glk_bit_get(span->usable, 2) &&
			!glk_bit_get(span->usable, 0),
		"idle, its other slots are usable");
	ok(rig_sound(&rig), "sound");
	/* its memory cannot come back while the driver has that mapping */
	glk_idle_take(&rig.map, page);
	ok(!glk_slot_detach(span, 1) && !glk_slot_detach(span, 2), "they go");
	is_int(glk_node_release(node, page), -EIO, "the page cannot be released");
	is_int(glk_page_state(at(page)), GLK_PAGE_LOST, "it is lost now");
	is_int((int64_t)glk_load_relaxed(&node->lost), (int64_t)MIB(8), "and counted");
	is_int((int64_t)glk_load_relaxed(&node->held), (int64_t)rig.fake.held,
		"and held");
	has_str(fake_text(), "kept a mapping", "the record says why");
	stop();
}

/* The driver keeps a mapping of a page nobody is on. */
static void test_kept_idle(bool in_hand)
{
	uint32_t page, other;

	start();
	page = grow();
	other = grow();
	for (uint32_t i = 0; i < 3; i++)
		attach(i, page);
	attach(4, other);
	glk_idle_put(&rig.map, other);
	if (!in_hand)
		glk_idle_put(&rig.map, page);
	tap_expect_log(1);
	fake_fail(&rig.fake, FAKE_UNMAP, 1, -EIO, false);
	is_int(glk_slot_detach(span, 1), -EIO,
		in_hand ? "a mapping of a page in the caller's hands is kept"
			: "a mapping of an idle page is kept");
	is_int(glk_page_state(at(page)), GLK_PAGE_LOST, "the page is lost");
	is_int((int64_t)glk_load_relaxed(&node->lost), (int64_t)MIB(8), "and counted");
	ok(!at(page)->aliases && at(page)->first_alias == GLK_NO_SLOT,
		"it has no mappings");
	is_int(glk_bits_count(span->mapped, 0, 2), 3, "all its slots are out of use");
	is_int(glk_bits_count(span->usable, 0, 2), 0, "and not usable");
	ok(!span->slot[0].page && !span->slot[1].page && !span->slot[2].page,
		"nor named");
	is_int(glk_idle_first(&rig.map, GLK_CLASS_LARGE), other,
		"another idle page stays");
	is_int(glk_idle_next(&rig.map, other), 0, "alone");
	is_int((int64_t)rig.map.mapped_bytes, (int64_t)MIB(8),
		"what is lost is not mapped");
	ok(rig_sound(&rig), "sound");
	ok(rig_alloc(&rig, MIB(16)), "a block is found elsewhere");
	ok(rig.skipped > 0, "those slots were passed over");
	ok(rig_sound(&rig), "sound");
	stop();
}

/*
 * A run of slots at once: 0 an idle page alone, 1 one that has a mapping at 8 too, 2 and 3 one
 * page, 4 one that is in use at 9.
 */
static void make_run(uint32_t *page)
{
	start();
	for (uint32_t i = 0; i < 5; i++) {
		page[i] = i == 3 ? page[2] : grow();
		attach(i, page[i]);
	}
	attach(8, page[1]);
	attach(9, page[4]);
	glk_slot_enter(span, 9);
	for (uint32_t i = 0; i < 3; i++)
		glk_idle_put(&rig.map, page[i]);
}

static void test_run(void)
{
	uint32_t page[5];

	make_run(page);
	is_int(glk_slots_detach(span, 0, 4), 0, "five mappings at once");
	is_int((int64_t)rig.fake.calls[FAKE_UNMAP], 1, "in one call");
	is_int((int64_t)rig.fake.mappings, 2, "two are left");
	is_int(glk_page_state(at(page[0])), GLK_PAGE_FREE, "an idle page is free");
	ok(glk_page_state(at(page[1])) == GLK_PAGE_OWNED &&
			glk_idle_has(&rig.map, page[1]),
		"one with a mapping elsewhere is idle");
	is_int(glk_page_state(at(page[2])), GLK_PAGE_FREE,
		"one that lay there twice is free");
	ok(glk_page_busy(&rig.map, at(page[4])) && glk_bit_get(span->usable, 9),
		"one in use elsewhere is in use");
	is_int(glk_bits_count(span->mapped, 0, 4), 0, "no slot is mapped");
	glk_slot_leave(span, 9, 1, 1);
	ok(rig_sound(&rig), "sound");
	stop();
}

static void test_run_kept(void)
{
	uint32_t page[5];

	make_run(page);
	tap_expect_log(4);
	fake_fail(&rig.fake, FAKE_UNMAP, 1, -EIO, false);
	is_int(glk_slots_detach(span, 0, 4), -EIO, "five mappings are kept");
	for (uint32_t i = 0; i < 3; i++)
		is_int(glk_page_state(at(page[i])), GLK_PAGE_LOST,
			"an idle page is lost");
	is_int((int64_t)glk_load_relaxed(&node->lost), 3 * (int64_t)MIB(8), "three are");
	ok(glk_page_busy(&rig.map, at(page[4])), "one in use elsewhere is not");
	is_int(glk_bits_count_only(span->mapped, span->usable, 0, 8), 6,
		"all slots are out of use, the one elsewhere too");
	glk_slot_leave(span, 9, 1, 1);
	ok(rig_sound(&rig), "sound");
	stop();
}

/* The driver keeps the mapping of a contiguous block: none of its slots may be used again. */
static void test_kept_single(void)
{
	struct glk_span *one = &rig.map.span[GLK_KIND_SINGLE];
	struct glk_fit fit;
	uint32_t extent;
	int wrong = 0;

	start();
	extent = rig_single(&rig, 0, MIB(8));
	rig_single(&rig, MIB(8), MIB(2));
	glk_lookup_leave(one, extent);
	one->slot[0].live = 0;
	glk_map_page(&rig.map, one->slot[0].page)->in_use = GLK_NO_SLOT;
	tap_expect_log(1);
	fake_fail(&rig.fake, FAKE_UNMAP, 1, -EIO, false);
	is_int(glk_slot_detach(one, 0), -EIO,
		"the mapping of a contiguous block is kept");
	glk_extent_give_back(one, extent);
	is_int(glk_bits_count(one->mapped, 0, 3), 4,
		"all four slots under it are out of use");
	is_int(glk_bits_count(one->mapped, 0, 15), 5, "and none beyond");
	ok(rig_sound(&rig), "sound");
	for (uint64_t size = MIB(2); size <= MIB(8); size += MIB(2)) {
		wrong += glk_fit_search(one, size, rig_check, &rig, &fit) != 0;
		wrong += fit.offset < MIB(10);
	}
	is_int(wrong, 0, "no block is placed there");
	stop();
}

int main(void)
{
	tap_plan_later();
	test_attach();
	test_attach_fails();
	test_most();
	test_grant();
	test_detach();
	test_use();
	test_kept_in_use();
	test_kept_idle(false);
	test_kept_idle(true);
	test_run();
	test_run_kept();
	test_kept_single();
	return tap_done();
}
