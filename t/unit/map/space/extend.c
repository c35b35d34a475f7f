/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Blocks, pages and free extents of a map that has grown: each belongs to one range. */
#include "unit/map/serve.h"

static struct rig rig;
static struct glk_map *const map = &rig.map;

static void start(uint64_t step, uint64_t most)
{
	rig_conf(&rig);
	rig.size = (struct glk_map_size){.step = step, .most = most};
	rig_start(&rig);
}

static struct glk_extent *at(uint32_t id)
{
	return glk_extent_at(map, id);
}

static const struct glk_range *range(unsigned i)
{
	return &map->range[i];
}

/* Whether a block lies in a range, is found there by its first and last byte, and has neighbours
 * there alone. */
static bool lies_in(uint32_t id, unsigned r)
{
	const struct glk_extent *e = at(id);
	uint64_t addr = range(r)->base + (e->offset - range(r)->offset);

	return id && glk_map_range(map, e->offset) == range(r) &&
		e->offset - range(r)->offset + e->size <= range(r)->size &&
		glk_load_relaxed(&e->addr) == addr && glk_index_find(addr) == range(r) &&
		glk_index_find(addr + e->size - 1) == range(r) &&
		glk_lookup_around(range(r), addr) == id &&
		glk_lookup_around(range(r), addr + e->size - 1) == id &&
		(!e->prev || glk_map_range(map, at(e->prev)->offset) == range(r)) &&
		(!e->next || glk_map_range(map, at(e->next)->offset) == range(r));
}

/* No descriptor for the rest: its addresses are lost, and nothing else. */
static void test_lost(void)
{
	uint32_t low, high;

	rig_conf(&rig);
	rig.conf.map_extents = 2;
	rig.size = (struct glk_map_size){.step = GIB(1), .most = GIB(4)};
	rig_start(&rig);
	low = rig_alloc(&rig, S(3));
	while (glk_slab_get(&map->extents))
		;
	is_int(glk_map_extend(map, S(1)), 0, "more, when there are no descriptors");
	is_int(map->common.count, 0, "for the rest of the first range");
	ok(map->high == range(1)->offset && map->end == range(1)->offset + GIB(1),
		"the second one is whole");
	rig_free(&rig, low);
	high = rig_alloc(&rig, S(3));
	ok(lies_in(high, 0), "what was given out before is used again");
	ok(!rig_alloc(&rig, S(1)), "and no more");
	is_int(fake_class(), GLAKE_ERROR_LIMIT, "for want of descriptors");
	rig_stop(&rig);
}

/* Pages that were mapped above the mark lie in the rest of their range. */
static void test_ahead(void)
{
	uint32_t id;

	start(GIB(1), GIB(2));
	rig_new(&rig, 4, 4);
	rig_new(&rig, 508, 4);
	map->ahead = 512;
	is_int(glk_map_extend(map, S(1)), 0, "more, with pages ahead");
	is_int(map->ahead, 0, "none is ahead any more");
	is_int((int64_t)map->idle_slots, 8, "and all are idle");
	ok(rig_sound(&rig), "sound");
	id = rig_carve(&rig, S(506), S(6));
	rig_new(&rig, 506, 1);
	rig_new(&rig, 507, 1);
	glk_slots_enter(map, 506, 511);
	is_int((int64_t)map->idle_slots, 4, "one is in use at the end of the range");
	ok(lies_in(id, 0) && rig_sound(&rig), "sound");
	ok(!glk_bit_get(map->busy, 512) && !map->page[512],
		"the slot behind is nobody's");
	rig_free(&rig, id);
	ok(rig_sound(&rig), "sound");
	rig_stop(&rig);
}

/* A page at the last slots of a range and one at the first of the next: wide on both sides of
 * the slot between them. */
static void test_pages(void)
{
	uint32_t first = 513, low, high;

	start(GIB(1), GIB(2));
	glk_map_extend(map, S(1));
	is_int(glk_slot_of(map, range(1)->offset), first,
		"a slot lies between two ranges");
	glk_extent_raise(map, range(1)->offset + S(8));
	rig_new(&rig, first - 5, 4);
	rig_new(&rig, first, 4);
	low = rig_enter(&rig, S(first - 2), S(1));
	is_int((int64_t)map->stranded, 3, "the last slot of a range is in use");
	high = rig_enter(&rig, range(1)->offset, S(1));
	is_int((int64_t)map->stranded, 6, "and the first of the next");
	ok(rig_sound(&rig), "sound");
	rig_free(&rig, low);
	ok(map->stranded == 3 && map->idle_slots == 4, "one is left");
	rig_free(&rig, high);
	ok(!map->stranded && map->idle_slots == 8 && rig_sound(&rig), "both are");
	rig_stop(&rig);
}

/* Small blocks have slots of all ranges, which are given back to them. */
static void test_small(void)
{
	uint32_t fill, small, other;

	start(GIB(1), GIB(2));
	fill = rig_alloc(&rig, GIB(1) - S(1));
	small = rig_alloc(&rig, 512);
	is_int(at(small)->nested && lies_in(small, 0), true,
		"in the last slot of a range");
	other = rig_enter(&rig, range(0)->offset + GIB(1) - MIB(1), 512);
	is_int(at(other)->nested, true, "two of them");
	rig_free(&rig, fill);
	fill = rig_alloc(&rig, GIB(1));
	ok(lies_in(fill, 1), "they keep a block of a whole range away");
	rig_free(&rig, small);
	rig_free(&rig, other);
	ok(map->common.count == 1 && !map->nested.count, "empty, the slot is one of all");
	ok(rig_sound(&rig), "sound");
	ok(lies_in(rig_alloc(&rig, GIB(1)), 0), "a range again");
	rig_stop(&rig);
}

/* Blocks larger than a step, while there are addresses; the last range may be less than one. */
static void test_steps(void)
{
	uint32_t id[4];

	start(GIB(3), GIB(16));
	id[0] = rig_alloc(&rig, S(1));
	id[1] = rig_alloc(&rig, GIB(3));
	ok(lies_in(id[1], 1) && range(1)->size == GIB(3),
		"a step holds a block of a step");
	id[2] = rig_alloc(&rig, GIB(4) + 512);
	ok(lies_in(id[2], 2) && range(2)->size == GIB(5),
		"a larger one has what it needs");
	id[3] = rig_alloc(&rig, GIB(4));
	ok(lies_in(id[3], 3) && range(3)->size == GIB(4), "to the GiB");
	is_int((int64_t)(map->most - map->size), (int64_t)GIB(1), "a GiB is left");
	ok(!rig_alloc(&rig, GIB(3)), "not enough for another step");
	is_int(map->ranges, 4, "so nothing is reserved");
	is_int(glk_map_extend(map, GIB(1)), 0, "but for a block of a GiB");
	is_int((int64_t)range(4)->size, (int64_t)GIB(1), "as much as there is");
	is_int(glk_map_extend(map, 512), -ENOMEM, "and then no more");
	ok(rig_sound(&rig), "sound");
	for (int i = 0; i < 4; i++)
		rig_free(&rig, id[i]);
	is_int(map->common.count, 4, "free, each range is one extent");
	ok(rig_sound(&rig), "sound");
	rig_stop(&rig);
}

int main(void)
{
	tap_plan_later();
	test_lost();
	test_ahead();
	test_pages();
	test_small();
	test_steps();
	return tap_done();
}
