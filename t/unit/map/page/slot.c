/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The rule of aliasing: a page is in use through one of its mappings, and which are usable. */
#include "seed.h"
#include "unit/map/rig.h"

static struct rig rig;

static void start(void)
{
	rig_init(&rig);
	rig_raise(&rig, 256);
}

/* The first slots: u usable, s stale, x kept by the driver, - not mapped. */
static const char *bits(uint32_t n)
{
	static char text[257];

	for (uint32_t i = 0; i < n; i++)
		text[i] = glk_bit_get(rig.map.usable, i)  ? 'u'
			: !glk_bit_get(rig.map.mapped, i) ? '-'
			: rig.map.page[i]		  ? 's'
							  : 'x';
	text[n] = '\0';
	return text;
}

static struct glk_use use_of(uint32_t page)
{
	return glk_page_use(&rig.map, page);
}

static void test_one(void)
{
	uint32_t page, low, high;

	start();
	page = rig_new(&rig, 0, 1);
	is_str(bits(2), "u-", "mapped: usable");
	is_int((int64_t)rig.map.space->of[0].idle_slots, 1, "and idle");
	low = rig_enter(&rig, 0, MIB(1));
	is_int((int64_t)rig.map.space->of[0].idle_slots, 0, "entered: in use");
	high = rig_enter(&rig, MIB(1), MIB(1));
	is_int(rig.map.count[0], 2, "twice");
	ok(rig_sound(&rig), "sound");
	rig_leave(&rig, low, 1);
	is_int(rig.map.count[0], 1, "left once");
	ok(glk_bit_get(rig.map.busy, 0) && !rig.map.space->of[0].idle_slots,
		"in use still");
	is_str(bits(2), "u-", "and usable");
	rig_leave(&rig, high, 2);
	ok(!glk_bit_get(rig.map.busy, 0) && !rig.map.count[0], "left by all");
	is_int((int64_t)rig.map.space->of[0].idle_slots, 1, "idle");
	ok(use_of(page).streams == 3 && use_of(page).tick == 2,
		"its use: all streams, the last tick");
	low = rig_enter(&rig, 0, S(1));
	is_int((int64_t)rig.map.space->of[0].idle_slots, 0, "entered again");
	rig_leave(&rig, low, 0);
	is_int((int64_t)use_of(page).tick, 2, "a use by nobody is none");
	ok(rig_sound(&rig), "sound");
	rig_stop(&rig);
}

static void test_two(void)
{
	uint32_t page, a, b;

	start();
	page = rig_new(&rig, 0, 1);
	a = rig_enter(&rig, 0, S(1));
	rig_leave(&rig, a, 1);
	rig_again(&rig, 3, page);
	is_str(bits(4), "u--u", "a page with two mappings, both usable");
	is_int((int64_t)rig.map.space->of[0].idle_slots, 1, "is idle once");
	a = rig_enter(&rig, S(3), S(1) / 2);
	is_str(bits(4), "s--u", "in use through one, the other is stale");
	is_int(rig_page(&rig, page)->in_use, 3, "through which");
	is_int((int64_t)rig.map.space->of[0].idle_slots, 0, "not idle");
	ok(rig_sound(&rig), "sound");
	b = rig_enter(&rig, S(3) + S(1) / 2, S(1) / 2);
	rig_leave(&rig, a, 2);
	is_str(bits(4), "s--u", "left by one of two: as before");
	rig_leave(&rig, b, 4);
	is_str(bits(4), "u--u", "left by all: both are usable");
	is_int((int64_t)rig.map.space->of[0].idle_slots, 1, "idle");
	is_int(rig_page(&rig, page)->in_use, GLK_NO_SLOT, "through none");
	ok(use_of(page).streams == 7 && use_of(page).tick == 3,
		"the use of the page is that through both");
	ok(glk_use_at(&rig.map, 3).streams == 6 && glk_use_at(&rig.map, 3).tick == 3,
		"of a slot, that through it");
	ok(glk_use_at(&rig.map, 0).streams == 1 && glk_use_at(&rig.map, 0).tick == 1,
		"of the other too");
	ok(glk_use_of_page(&rig.map, 0).tick == 3 &&
			glk_use_of_page(&rig.map, 3).tick == 3,
		"either slot leads to the use of the page");
	a = rig_enter(&rig, 0, S(1));
	is_str(bits(4), "u--s", "now through the other");
	rig_leave(&rig, a, 0);
	is_int((int64_t)use_of(page).tick, 3, "a use by nobody is none");
	ok(rig_sound(&rig), "sound");
	rig_stop(&rig);
}

/* Three mappings, each in use in turn, then one gone after the other while in use. */
static void test_three(void)
{
	uint32_t page, id;

	start();
	page = rig_new(&rig, 0, 1);
	rig_again(&rig, 1, page);
	rig_again(&rig, 2, page);
	is_str(bits(3), "uuu", "three mappings");
	for (uint32_t slot = 0; slot < 3; slot++) {
		id = rig_enter(&rig, S(slot), S(1));
		is_str(bits(3),
			slot == 0	    ? "uss"
				: slot == 1 ? "sus"
					    : "ssu",
			"one at a time");
		ok(rig_sound(&rig), "sound");
		rig_leave(&rig, id, UINT64_C(1) << slot);
	}
	id = rig_enter(&rig, S(1), S(1));
	is_int(glk_mapping_remove(&rig.map, 2, 2), 0, "a stale mapping goes");
	is_str(bits(3), "su-", "the others stay as they were");
	ok(rig_sound(&rig), "sound");
	is_int(glk_mapping_remove(&rig.map, 0, 0), 0, "the other stale one too");
	is_str(bits(3), "-u-", "one is left");
	ok(rig_sound(&rig), "sound");
	ok(use_of(page).streams == 7 && use_of(page).tick == 3,
		"the use through those that went is not forgotten");
	rig_leave(&rig, id, 8);
	ok(use_of(page).streams == 15 && use_of(page).tick == 4, "and added to");
	is_int((int64_t)rig.map.space->of[0].idle_slots, 1, "idle");
	ok(rig_sound(&rig), "sound");
	rig_stop(&rig);
}

#define SLOTS 256
#define LIVE  24

/* The pages of the whole slots: some of one slot, some of four, in all groups. */
static void back(uint64_t seed)
{
	for (uint32_t slot = 0; slot < SLOTS;) {
		uint32_t slots = slot + 4 <= SLOTS && seed_below(&seed, 2) ? 4 : 1;

		rig_new(&rig, slot, slots);
		slot += slots;
	}
}

static uint32_t enter_apart(struct glk_apart *apart, uint64_t offset, uint64_t size)
{
	uint32_t id = rig_carve(&rig, offset, size);
	const struct glk_extent *e = glk_extent_at(&rig.map, id);

	if (!glk_slots_may_apart(&rig.map, glk_extent_first(&rig.map, e),
		    glk_extent_last(&rig.map, e)))
		tap_bail("not a plain place");
	glk_slots_enter_apart(&rig.map, apart, glk_extent_first(&rig.map, e),
		glk_extent_last(&rig.map, e));
	return id;
}

static void leave_apart(struct glk_apart *apart, uint32_t id, struct glk_use use)
{
	const struct glk_extent *e = glk_extent_at(&rig.map, id);

	glk_slots_leave_apart(&rig.map, apart, glk_extent_first(&rig.map, e),
		glk_extent_last(&rig.map, e), &use);
	glk_lookup_leave(&rig.map, id);
	glk_extent_give_back(&rig.map, id);
}

static enum glk_idle_answer count_page(struct glk_map *map, uint32_t page, void *arg)
{
	(void)map;
	(void)page;
	++*(uint32_t *)arg;
	return GLK_IDLE_NEXT;
}

/* Idle pages that a walk along the groups meets. */
static uint32_t met(void)
{
	const struct glk_idle_walk walk = {.of = GLK_OF_NODE, .groups = UINT32_MAX};
	uint32_t count = 0;

	glk_idle_each(&rig.map, &walk, count_page, &count);
	return count;
}

/* Blocks of random places come and go, and the space is told now and then. */
static void test_apart(void)
{
	uint64_t seed = seed_thread(seed_start(), 0), idle;
	struct glk_apart apart = {0};
	uint32_t live[LIVE] = {0}, all;
	bool sound = true;

	start();
	back(seed);
	all = met();
	idle = rig.space.of[0].idle_slots;
	is_int((int64_t)idle, SLOTS, "all is idle");
	for (unsigned i = 0; i < 4000; i++) {
		unsigned at = (unsigned)seed_below(&seed, LIVE);
		uint64_t part = S(SLOTS) / LIVE & ~(uint64_t)511;
		uint64_t from = seed_below(&seed, part / 2) & ~(uint64_t)511;
		uint64_t size =
			512 + (seed_below(&seed, part / 2 - 512) & ~(uint64_t)511);

		if (live[at])
			leave_apart(&apart, live[at], glk_use_of(1, i));
		live[at] = live[at] ? 0 : enter_apart(&apart, at * part + from, size);
		if (i % 100)
			continue;
		glk_slots_join(&rig.map, &apart);
		sound &= rig_sound(&rig);
	}
	ok(sound, "what was told apart is in the books when it is told");
	for (unsigned i = 0; i < LIVE; i++)
		if (live[i])
			leave_apart(&apart, live[i], glk_use_of(1, 4000));
	ok(rig.space.of[0].idle_slots != SLOTS, "and not before");
	glk_slots_join(&rig.map, &apart);
	is_int((int64_t)rig.space.of[0].idle_slots, SLOTS, "all is idle again");
	live[0] = enter_apart(&apart, 0, S(SLOTS));
	glk_slots_join(&rig.map, &apart);
	is_int(met(), 0, "one block on all of it");
	leave_apart(&apart, live[0], glk_use_of(1, 4001));
	glk_slots_join(&rig.map, &apart);
	is_int(met(), all, "and what it left is found again");
	ok(!glk_slots_may_apart(&rig.map, GLK_APART_GROUPS << GLK_GROUP_SHIFT,
		   GLK_APART_GROUPS << GLK_GROUP_SHIFT),
		"what lies far behind the beginning cannot be told so");
	rig_stop(&rig);
}

int main(void)
{
	tap_plan_later();
	test_one();
	test_two();
	test_three();
	test_apart();
	return tap_done();
}
