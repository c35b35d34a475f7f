/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Slots of small blocks, opened and closed. */
#include "unit/map/serve.h"

static struct rig rig;

static uint32_t carve(uint64_t offset, uint64_t size)
{
	uint32_t from = rig_at(&rig, offset), id = 0;

	if (glk_extent_carve(&rig.map, from, offset, size, &id))
		tap_bail("no addresses");
	return id;
}

static void test_open(void)
{
	uint32_t id, small, nest;
	int wrong = 0;

	rig_init(&rig);
	id = carve(0, S(1));
	carve(S(1), S(1));
	is_int((int64_t)rig.map.taken, (int64_t)S(2), "two slots given out");
	is_int(glk_nest_open(&rig.map, id), 0, "one is for small blocks");
	is_int((int64_t)rig.map.taken, (int64_t)S(1), "its bytes are free");
	ok(glk_extent_at(&rig.map, id)->nested && rig.map.nested.count == 1 &&
			!rig.map.common.count,
		"among the nested");
	is_int(glk_load_relaxed(&rig.map.nests.live), 1, "a nest is in use");
	nest = glk_load_relaxed(&rig.map.start[0]);
	ok(nest & GLK_START_NEST, "lookups are led to it");
	for (uint32_t i = 0; i < 8; i++)
		wrong += glk_load_relaxed(&rig.map.start[i]) != nest;
	is_int(wrong, 0, "from all eighths");
	is_int(glk_load_relaxed(&rig.map.start[8]), 0, "of that slot alone");
	is_int(glk_nest_grain(&rig.map, S(7) + 1024), 2, "grains count in the slot");
	small = carve(1024, 512);
	ok(glk_extent_at(&rig.map, small)->nested, "a block in it is nested");
	glk_extent_give_back(&rig.map, small);
	is_int(glk_load_relaxed(&rig.map.nests.live), 0, "empty, it is closed");
	for (uint32_t i = 0; i < 8; i++)
		wrong += glk_load_relaxed(&rig.map.start[i]) != 0;
	is_int(wrong, 0, "no lookup is led there");
	ok(!rig.map.nested.count && rig.map.common.count == 1, "its bytes are common");
	ok(!glk_extent_at(&rig.map, rig_at(&rig, 0))->nested, "and not nested");
	rig_stop(&rig);
}

/* As many as there may be, and one more. */
static void test_most(void)
{
	uint32_t id, n = 0;
	int err = 0;

	rig_conf(&rig);
	rig.size = (struct glk_map_size){.step = GIB(1), .most = GIB(1)};
	rig_start(&rig);
	for (; n < 512 && !err; n++) {
		id = carve(S(n), S(1));
		err = glk_nest_open(&rig.map, id);
	}
	is_int(err, -ENOMEM, "no more");
	is_int(fake_class(), GLAKE_ERROR_LIMIT, "is a limit");
	is_int(n - 1, rig.map.nests.max, "a quarter of all slots");
	ok(!glk_extent_at(&rig.map, id)->nested &&
			glk_extent_state(glk_extent_at(&rig.map, id)) ==
				GLK_EXTENT_QUICK &&
			rig.map.taken == S(1) &&
			!glk_load_relaxed(&rig.map.start[8 * (n - 1)]),
		"nothing has changed");
	glk_extent_give_back(&rig.map, id);
	id = carve(0, 512);
	glk_extent_give_back(&rig.map, id);
	id = carve(S(n), S(1));
	is_int(glk_nest_open(&rig.map, id), 0, "one closed, another can be opened");
	ok(rig_sound(&rig), "sound");
	rig_stop(&rig);
}

int main(void)
{
	tap_plan_later();
	test_open();
	test_most();
	return tap_done();
}
