/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Slots of pages in use that no live extent touches, as page/slot.c counts them. */
#include "unit/map/rig.h"

static struct rig rig;

static void start(void)
{
	rig_init(&rig);
	rig_raise(&rig, 256);
}

/* So many are stranded and idle, and the map says nothing else when counted afresh. */
static void counts(uint64_t stranded, uint64_t idle, const char *what)
{
	bool sound = rig_sound(&rig);

	if (!ok(rig.map.stranded == stranded && rig.map.idle_slots == idle && sound, "%s",
		    what))
		tap_note("%d stranded, %d idle", (int)rig.map.stranded,
			(int)rig.map.idle_slots);
}

static void test_one(void)
{
	uint32_t id, low, high;

	start();
	rig_new(&rig, 0, 1);
	rig_new(&rig, 1, 7);
	for (uint32_t slot = 8; slot < 11; slot++)
		rig_new(&rig, slot, 1);
	counts(0, 11, "a page of seven slots, idle, among small ones");
	id = rig_enter(&rig, S(3), S(2));
	counts(5, 4, "a block on two of them strands five");
	low = rig_enter(&rig, S(1), MIB(1));
	counts(4, 4, "another, on its first, leaves four");
	high = rig_enter(&rig, S(7), S(4));
	counts(3, 1, "one that begins on its last, three");
	rig_free(&rig, id);
	counts(5, 1, "the first has left");
	rig_free(&rig, high);
	counts(6, 4, "and the third");
	rig_free(&rig, low);
	counts(0, 11, "and all");
	id = rig_enter(&rig, 0, S(9));
	counts(0, 2, "one over all of it strands nothing");
	rig_free(&rig, id);
	id = rig_enter(&rig, S(1), S(7));
	counts(0, 4, "nor one of its size");
	rig_free(&rig, id);
	counts(0, 11, "idle again");
	rig_stop(&rig);
}

static void test_small(void)
{
	uint32_t id;

	start();
	rig_new(&rig, 0, 1);
	rig_new(&rig, 1, 1);
	id = rig_enter(&rig, MIB(1), MIB(2));
	counts(0, 0, "pages of one slot have nothing to strand");
	rig_free(&rig, id);
	counts(0, 2, "idle again");
	rig_stop(&rig);
}

/* A page that begins in the first slot of a run, or ends in its last, and is inside it: another
 * block in that slot keeps it in use. */
static void test_shared_ends(void)
{
	uint32_t low, mid, high;

	start();
	rig_new(&rig, 0, 1);
	rig_new(&rig, 1, 4);
	rig_new(&rig, 5, 4);
	rig_new(&rig, 9, 1);
	low = rig_enter(&rig, 0, S(1) + MIB(1));
	counts(3, 5, "a block ends in the first slot of a page");
	mid = rig_enter(&rig, S(1) + MIB(1), S(7));
	counts(0, 1, "the next one begins there");
	high = rig_enter(&rig, S(8) + MIB(1), S(1));
	counts(0, 0, "and the third in the last slot of the second page");
	rig_free(&rig, mid);
	counts(6, 0, "without the one between, three of either page");
	mid = rig_enter(&rig, S(1) + MIB(1), S(7));
	counts(0, 0, "which come into use again");
	rig_free(&rig, low);
	counts(0, 1, "without the low one, it is on all slots");
	rig_free(&rig, mid);
	counts(3, 5, "without both, the low page is idle");
	mid = rig_enter(&rig, S(1), S(7) + MIB(1));
	rig_free(&rig, high);
	counts(0, 2, "without the high one, neither are those");
	rig_free(&rig, mid);
	counts(0, 10, "without all, everything is");
	rig_stop(&rig);
}

/* The same for both ends in one page, and in one slot. */
static void test_inside(void)
{
	uint32_t low, mid, high, tiny;

	start();
	rig_new(&rig, 60, 9);
	low = rig_enter(&rig, S(61), S(1) + MIB(1));
	mid = rig_enter(&rig, S(62) + MIB(1), S(3));
	high = rig_enter(&rig, S(65) + MIB(1), S(1));
	counts(3, 0, "three blocks on six of nine slots");
	rig_free(&rig, mid);
	counts(5, 0, "between them two are stranded");
	tiny = rig_enter(&rig, S(62) + MIB(1), MIB(1));
	counts(5, 0, "a block in a slot that is in use changes nothing");
	rig_free(&rig, low);
	counts(6, 0, "until the other there has left");
	rig_free(&rig, tiny);
	counts(7, 0, "and that one, too");
	rig_free(&rig, high);
	counts(0, 9, "the last");
	rig_stop(&rig);
}

/* Of a page with several mappings, only what it is in use through strands anything. */
static void test_aliases(void)
{
	uint32_t page, id, over;

	start();
	page = rig_new(&rig, 0, 4);
	rig_again(&rig, 10, page);
	rig_again(&rig, 20, page);
	counts(0, 4, "three mappings of four idle slots");
	id = rig_enter(&rig, S(10), S(1));
	counts(3, 0, "in use through one of them");
	is_int(glk_mapping_remove(&rig.map, 20, 23), 0, "one that is stale goes");
	counts(3, 0, "which strands nothing");
	over = rig_carve(&rig, S(3), S(2));
	glk_slots_enter(&rig.map, 3, 4);
	is_int((int64_t)rig.map.stranded, 3,
		"nor does a block that ends in a stale one, before that goes");
	glk_slots_leave(&rig.map, 3, 4, &(struct glk_use){0});
	glk_lookup_leave(&rig.map, over);
	glk_extent_give_back(&rig.map, over);
	counts(3, 0, "or the block");
	is_int(glk_mapping_remove(&rig.map, 0, 3), 0, "the other stale one goes");
	counts(3, 0, "and the page has one mapping");
	rig_free(&rig, id);
	counts(0, 4, "through which it is idle");
	rig_stop(&rig);
}

/* A block over two mappings of one page is on the first of them only. */
static void test_twice(void)
{
	uint32_t id;

	start();
	rig_again(&rig, 4, rig_new(&rig, 0, 4));
	id = rig_carve(&rig, S(2), S(4));
	glk_slots_enter(&rig.map, 2, 5);
	is_int((int64_t)rig.map.stranded, 2, "two slots before it, none behind");
	glk_slots_leave(&rig.map, 2, 5, &(struct glk_use){0});
	glk_lookup_leave(&rig.map, id);
	glk_extent_give_back(&rig.map, id);
	counts(0, 4, "left, nothing is stranded");
	rig_stop(&rig);
}

int main(void)
{
	tap_plan_later();
	test_one();
	test_small();
	test_shared_ends();
	test_inside();
	test_aliases();
	test_twice();
	return tap_done();
}
