/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* From any address to its range. */
#include "unit/map/rig.h"

static struct glk_range low = {.base = GIB(5), .size = GIB(3)};
static struct glk_range high = {.base = GIB(8), .size = GIB(1)};
static struct glk_range last = {.base = (UINT64_C(1) << 48) - GIB(2), .size = GIB(2)};

/* All addresses from `from` up to `to` are the range's. */
static bool all(uint64_t from, uint64_t to, const struct glk_range *range)
{
	int wrong = 0;

	for (uint64_t addr = from; addr < to; addr += GIB(1) / 8)
		wrong += glk_index_find(addr) != range;
	return !wrong && glk_index_find(to - 1) == range;
}

static void test_find(void)
{
	ok(!glk_index_find(0) && !glk_index_find(GIB(5)) && !glk_index_find(UINT64_MAX),
		"no range, no array");
	is_int(glk_index_add(&low), 0, "a range");
	is_int(glk_index_add(&high), 0, "another behind it");
	is_int(glk_index_add(&last), 0, "and one at the end of all addresses");
	ok(all(GIB(5), GIB(8), &low), "from the first byte to the last");
	ok(all(GIB(8), GIB(9), &high), "and where the next one begins");
	ok(all(GIB(0), GIB(5), NULL) && all(GIB(9), GIB(64), NULL),
		"nothing beside them");
	ok(all(last.base, UINT64_C(1) << 48, &last), "up to 48 bits");
	ok(!glk_index_find(last.base - 1), "nothing before it");
	ok(!glk_index_find(UINT64_C(1) << 48) && !glk_index_find(UINT64_MAX) &&
			!glk_index_find((UINT64_C(1) << 48) + GIB(5)),
		"nor above");
	glk_index_remove(&low);
	ok(all(GIB(5), GIB(8), NULL) && all(GIB(8), GIB(9), &high), "one is removed");
	is_int(glk_index_add(&low), 0, "and comes again");
	ok(all(GIB(5), GIB(8), &low), "whole");
	glk_index_remove(&low);
	glk_index_remove(&high);
	glk_index_remove(&last);
	ok(all(GIB(4), GIB(10), NULL) && !glk_index_find(last.base), "all are removed");
}

static void test_refused(void)
{
	struct glk_range wide = {.base = (UINT64_C(1) << 48) - GIB(1), .size = GIB(2)};

	is_int(glk_index_add(&wide), -EOPNOTSUPP, "addresses above 48 bits");
	is_int(fake_class(), GLAKE_ERROR_UNSUPPORTED, "class of the record");
	ok(!glk_index_find(wide.base), "nothing of it is there");
}

/* Host memory for the array, before anybody had it. */
static void test_array(void)
{
	uint64_t before = glk_region_bytes();

	glk_region_fail_after(1);
	is_int(glk_index_add(&low), -ENOMEM, "no memory for the array");
	glk_region_fail_after(0);
	is_int(fake_class(), GLAKE_ERROR_NOMEM_HOST, "class of the record");
	ok(glk_region_bytes() == before && !glk_index_entries, "there is none");
}

/* Two maps: each address leads to its own. */
static void test_maps(void)
{
	static struct rig rig[2];
	struct glk_map *map[2] = {&rig[0].map, &rig[1].map};
	int wrong = 0;

	rig_init(&rig[0]);
	memset(&rig[1], 0, sizeof(rig[1]));
	rig[1].conf = rig[0].conf;
	if (glk_map_init(map[1], &rig[0].space, &rig[0].conf,
		    (struct glk_map_size){.step = GIB(1), .most = GIB(2)}) ||
		glk_map_extend(map[1], S(1)))
		tap_bail("no second map");
	for (int i = 0; i < 2; i++) {
		for (unsigned r = 0; r < map[i]->ranges; r++) {
			struct glk_range *range = &map[i]->range[r];

			wrong += !all(range->base, range->base + range->size, range);
			wrong += range->map != map[i];
		}
	}
	is_int(wrong, 0, "each address leads to its map");
	glk_map_fini(map[1]);
	ok(glk_index_find(map[0]->range[0].base) == &map[0]->range[0],
		"one ends, the other stays");
	rig_stop(&rig[0]);
}

int main(void)
{
	tap_plan_later();
	test_array();
	test_find();
	test_refused();
	test_maps();
	return tap_done();
}
