/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The rule of aliasing: a page is in use through one of its slots, and which are usable. */
#include "unit/map/rig.h"

static struct rig rig;
static struct glk_span *span;

static void start(void)
{
	uint32_t id;

	rig_init(&rig);
	span = &rig.map.span[GLK_KIND_LARGE];
	/* sixteen slots below the mark; what lives in them is this test's */
	if (glk_extent_carve(span, 0, 0, 16 * MIB(8), &id))
		tap_bail("no addresses");
	glk_extent_give_back(span, id);
}

static void stop(void)
{
	is_int((int64_t)rig.fake.broken, 0, "no rule of the driver was broken");
	rig_fini(&rig);
}

/* The free extent that holds an offset. */
static uint32_t hole_at(uint64_t offset)
{
	uint32_t id = span->last;

	while (glk_extent_at(&rig.map, id)->offset > offset)
		id = glk_extent_at(&rig.map, id)->prev;
	return id;
}

/* The books agree, once as many blocks are there as were entered here without any. */
static bool sound(void)
{
	uint32_t id[32], n = 0;
	bool is;

	for (uint32_t slot = 0; slot < 16; slot++) {
		for (uint32_t k = 0; k < span->slot[slot].live; k++) {
			uint64_t offset = slot * MIB(8) + k * MIB(4);

			if (k > 1 ||
				glk_extent_carve(
					span, hole_at(offset), offset, MIB(4), &id[n]))
				tap_bail("no block");
			glk_lookup_enter(span, id[n++]);
		}
	}
	is = rig_sound(&rig);
	while (n) {
		glk_lookup_leave(span, id[--n]);
		glk_extent_give_back(span, id[n]);
	}
	return is;
}

/* A new page mapped at a slot, on no list. */
static uint32_t map_new(uint32_t slot)
{
	uint32_t page;

	if (glk_node_grow(&rig.pool.nodes[0], GLK_CLASS_LARGE, 0, &page) ||
		glk_slot_attach(span, slot, page))
		tap_bail("no page");
	return page;
}

static void map_again(uint32_t slot, uint32_t page)
{
	glk_idle_take(&rig.map, page);
	if (glk_slot_attach(span, slot, page))
		tap_bail("no mapping");
}

/* Bits of the first slots: u usable, s stale, - not mapped. */
static const char *bits(uint32_t n)
{
	static char text[17];

	for (uint32_t i = 0; i < n; i++)
		text[i] = glk_bit_get(span->usable, i) ? 'u'
			: glk_bit_get(span->mapped, i) ? 's'
						       : '-';
	text[n] = '\0';
	return text;
}

static bool busy(uint32_t page)
{
	return glk_page_busy(&rig.map, glk_map_page(&rig.map, page));
}

static bool listed(uint32_t page)
{
	return glk_idle_has(&rig.map, page);
}

static void test_one(void)
{
	uint32_t page;

	start();
	page = map_new(0);
	is_str(bits(2), "u-", "mapped: usable");
	ok(!busy(page) && !listed(page), "neither in use nor idle yet");
	glk_slot_enter(span, 0);
	ok(busy(page) && !listed(page), "entered: in use");
	glk_slot_enter(span, 0);
	is_int(span->slot[0].live, 2, "twice");
	glk_slot_leave(span, 0, 1, 5);
	ok(busy(page) && !listed(page), "left once: in use still");
	is_str(bits(2), "u-", "and usable");
	glk_slot_leave(span, 0, 2, 3);
	ok(!busy(page) && listed(page), "left by all: idle");
	is_int(span->slot[0].live, 0, "nothing lives there");
	is_int((int64_t)rig.map.idle_bytes, (int64_t)MIB(8), "a page is idle");
	ok(glk_page_use(&rig.map, page)->streams == 3 &&
			glk_page_use(&rig.map, page)->tick == 5,
		"its use: all streams, the last tick");
	glk_slot_enter(span, 0);
	ok(busy(page) && !listed(page) && !rig.map.idle_bytes,
		"entered again: off the list");
	glk_slot_leave(span, 0, 0, 9);
	is_int((int64_t)glk_page_use(&rig.map, page)->tick, 5, "a use by nobody is none");
	ok(sound(), "sound");
	stop();
}

static void test_two(void)
{
	uint32_t page;

	start();
	page = map_new(0);
	glk_slot_enter(span, 0);
	glk_slot_leave(span, 0, 1, 1);
	map_again(3, page);
	is_str(bits(4), "u--u", "a page with two mappings, both usable");
	glk_slot_enter(span, 3);
	is_str(bits(4), "s--u", "in use through one, the other is stale");
	is_int(glk_map_page(&rig.map, page)->in_use, glk_slot_name(span, 3),
		"through which");
	ok(busy(page) && !listed(page), "in use");
	ok(sound(), "sound");
	glk_slot_enter(span, 3);
	glk_slot_leave(span, 3, 2, 7);
	is_str(bits(4), "s--u", "left by one of two: as before");
	glk_slot_leave(span, 3, 4, 6);
	is_str(bits(4), "u--u", "left by all: both are usable");
	ok(!busy(page) && listed(page), "idle");
	ok(glk_page_use(&rig.map, page)->streams == 7 &&
			glk_page_use(&rig.map, page)->tick == 7,
		"the use of the page is that through both");
	ok(span->use[3].streams == 6 && span->use[3].tick == 7,
		"of a slot, that through it");
	ok(span->use[0].streams == 1 && span->use[0].tick == 1, "of the other too");
	ok(glk_slot_use(span, 0) == glk_page_use(&rig.map, page) &&
			glk_slot_use(span, 3) == glk_page_use(&rig.map, page),
		"either slot leads to the use of the page");
	glk_slot_enter(span, 0);
	is_str(bits(4), "u--s", "now through the other");
	ok(sound(), "sound");
	stop();
}

/* Three mappings, each in use in turn, then one gone after the other while in use. */
static void test_three(void)
{
	uint32_t page;

	start();
	page = map_new(0);
	map_again(1, page);
	map_again(2, page);
	is_str(bits(3), "uuu", "three mappings");
	for (uint32_t slot = 0; slot < 3; slot++) {
		glk_slot_enter(span, slot);
		is_str(bits(3),
			slot == 0	    ? "uss"
				: slot == 1 ? "sus"
					    : "ssu",
			"one at a time");
		glk_slot_leave(span, slot, UINT64_C(1) << slot, slot + 1);
	}
	glk_slot_enter(span, 1);
	is_int(glk_slot_detach(span, 2), 0, "a stale mapping goes");
	is_str(bits(3), "su-", "the others stay as they were");
	ok(sound(), "sound");
	is_int(glk_slot_detach(span, 0), 0, "the other stale one too");
	is_str(bits(3), "-u-", "one is left");
	ok(busy(page), "in use");
	ok(sound(), "sound");
	ok(glk_page_use(&rig.map, page)->streams == 7 &&
			glk_page_use(&rig.map, page)->tick == 3,
		"the use through those that went is not forgotten");
	glk_slot_leave(span, 1, 8, 2);
	ok(!busy(page) && listed(page), "idle");
	ok(glk_page_use(&rig.map, page)->streams == 15 &&
			glk_page_use(&rig.map, page)->tick == 3,
		"and added to");
	ok(sound(), "sound");
	stop();
}

/* Runs of slots against the same slots one by one. */
static void test_runs(void)
{
	static const char *const shapes[] = {
		"uuuuuu", "u-uu-u", "-u--u-", "------", "usuusu", "susuus", "uUuuUu"};

	for (unsigned i = 0; i < sizeof(shapes) / sizeof(*shapes); i++) {
		uint32_t page, entered = 0;
		int wrong = 0;

		start();
		/* s: its page is in use at a slot beyond; U: it has a mapping there, idle */
		for (uint32_t slot = 0; slot < 6; slot++) {
			if (shapes[i][slot] == '-')
				continue;
			page = map_new(slot);
			glk_slot_enter(span, slot);
			glk_slot_leave(span, slot, 1, 1);
			if (shapes[i][slot] == 'u')
				continue;
			map_again(8 + slot, page);
			glk_slot_enter(span, 8 + slot);
			if (shapes[i][slot] == 'U')
				glk_slot_leave(span, 8 + slot, 1, 1);
		}
		if (!ok(sound(), "%s: sound", shapes[i]))
			break;
		glk_slots_enter(span, 0, 5);
		for (uint32_t slot = 0; slot < 6; slot++) {
			bool usable = shapes[i][slot] == 'u' || shapes[i][slot] == 'U';

			wrong += span->slot[slot].live != usable;
			entered += usable;
		}
		ok(!wrong, "%s: the usable ones are entered", shapes[i]);
		is_int((int64_t)rig.map.idle_bytes, 0, "none of them is idle");
		for (uint32_t slot = 0, end; slot < 6; slot = end + 1) {
			for (end = slot; end < 6 && span->slot[end].live;)
				end++;
			if (end > slot)
				glk_slots_leave(span, slot, end - 1, 2, 4);
		}
		is_int((int64_t)rig.map.idle_bytes, (int64_t)(entered * MIB(8)),
			"all are again");
		for (uint32_t slot = 0; slot < 6; slot++)
			wrong += span->slot[slot].live ||
				(strchr("uU", shapes[i][slot]) &&
					span->use[slot].tick != 4);
		ok(!wrong, "%s: with their use", shapes[i]);
		ok(sound(), "%s: sound", shapes[i]);
		stop();
	}
}

/* Blocks that share their end slots: these stay in use. */
static void test_shared_ends(void)
{
	uint32_t low, mid, high;

	rig_init(&rig);
	span = &rig.map.span[GLK_KIND_LARGE];
	low = rig_place(&rig, GLK_KIND_LARGE, 0, MIB(12));
	mid = rig_place(&rig, GLK_KIND_LARGE, MIB(12), MIB(24));
	high = rig_place(&rig, GLK_KIND_LARGE, MIB(36), MIB(12));
	ok(rig_sound(&rig), "three blocks over six slots");
	is_int(span->slot[1].live, 2, "two on a slot");
	is_int((int64_t)rig.fake.pages, 6, "six pages");
	glk_lookup_leave(span, mid);
	glk_slots_leave(span, 1, 4, 1, 1);
	glk_extent_give_back(span, mid);
	ok(rig_sound(&rig), "sound");
	is_int((int64_t)rig.map.idle_bytes, (int64_t)MIB(16),
		"the two in the middle are idle");
	rig_free(&rig, GLK_KIND_LARGE, low);
	rig_free(&rig, GLK_KIND_LARGE, high);
	ok(rig_sound(&rig), "sound");
	is_int((int64_t)rig.map.idle_bytes, (int64_t)MIB(48), "then all");
	stop();
}

int main(void)
{
	tap_plan_later();
	test_one();
	test_two();
	test_three();
	test_runs();
	test_shared_ends();
	return tap_done();
}
