/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Rights on all that is mapped, given and taken, and where the driver refuses. */
#include "unit/map/rig.h"

static struct rig rig;

/* Slots 0..3 a page, 4 one, 5 none, 6..12 one, 13 kept by the driver; then a second range. */
static void start(void)
{
	rig_conf(&rig);
	rig.size = (struct glk_map_size){.step = GIB(1), .most = GIB(2)};
	rig_start(&rig);
	rig_raise(&rig, 20);
	rig_new(&rig, 0, 4);
	rig_new(&rig, 4, 1);
	rig_new(&rig, 6, 7);
	rig_new(&rig, 13, 1);
	tap_expect_log(1);
	fake_fail(&rig.fake, FAKE_UNMAP, 1, -EIO, false);
	glk_mapping_remove(&rig.map, 13, 13);
	if (glk_map_extend(&rig.map, S(1)))
		tap_bail("no range");
	glk_extent_raise(&rig.map, rig.map.high + S(64));
	rig_new(&rig, 1024, 64);
	rig.fake.calls[FAKE_SET_ACCESS] = 0;
	for (uint64_t i = 0; i < rig.fake.granules; i++)
		rig.fake.granule[i].access = false;
}

/* Slots with access. */
static uint32_t granted(void)
{
	uint32_t n = 0;

	for (uint64_t i = 0; i < rig.fake.granules; i++)
		n += rig.fake.granule[i].access;
	return n;
}

static struct glk_sweep sweep(size_t most, bool anyway)
{
	return (struct glk_sweep){
		.grant = {.who = rig.map.node->place, .access = GLK_ACCESS_WRITE},
		.most = most,
		.anyway = anyway};
}

static void test_all(void)
{
	struct glk_sweep s;

	start();
	s = sweep(SIZE_MAX, false);
	is_int(glk_map_access(&rig.map, &s), 0, "a right on all that is mapped");
	is_int((int64_t)rig.fake.calls[FAKE_SET_ACCESS], 3, "a call for each run");
	is_int((int64_t)s.done, 3, "as many are counted");
	is_int(granted(), 4 + 1 + 7 + 64, "on all that has a page");
	rig_stop(&rig);
}

static void test_most(void)
{
	struct glk_sweep s;

	start();
	s = sweep(2, false);
	is_int(glk_map_access(&rig.map, &s), 0, "no more than two runs");
	is_int((int64_t)rig.fake.calls[FAKE_SET_ACCESS], 2, "are two calls");
	is_int(granted(), 4 + 1 + 7, "of the first range");
	s = sweep(0, false);
	is_int(glk_map_access(&rig.map, &s), 0, "none");
	is_int((int64_t)rig.fake.calls[FAKE_SET_ACCESS], 2, "is no call");
	rig_stop(&rig);
}

static void test_refused(void)
{
	struct glk_sweep s;

	start();
	s = sweep(SIZE_MAX, false);
	fake_fail(&rig.fake, FAKE_SET_ACCESS, 2, -EIO, false);
	is_int(glk_map_access(&rig.map, &s), -EIO, "the second run is refused");
	is_int((int64_t)s.done, 1, "one is done");
	is_int((int64_t)rig.fake.calls[FAKE_SET_ACCESS], 2, "and the last is not tried");
	s = sweep(SIZE_MAX, true);
	fake_fail(&rig.fake, FAKE_SET_ACCESS, 1, -ENOMEM, false);
	is_int(glk_map_access(&rig.map, &s), -ENOMEM, "the same of one that goes on");
	is_int((int64_t)s.done, 3, "all are gone through");
	is_int(granted(), 5 + 7 + 64, "and the others are given");
	rig_stop(&rig);
}

/* Pages that are mapped above the mark count, what lies above those does not. */
static void test_ahead(void)
{
	struct glk_sweep s;

	start();
	rig.map.ahead = glk_map_fresh(&rig.map) + 8;
	rig_new(&rig, rig.map.ahead - 8, 8);
	for (uint64_t i = 0; i < rig.fake.granules; i++)
		rig.fake.granule[i].access = false;
	s = sweep(SIZE_MAX, false);
	is_int(glk_map_access(&rig.map, &s), 0, "with pages ahead");
	is_int(granted(), 4 + 1 + 7 + 64 + 8, "these too");
	ok(rig_sound(&rig), "sound");
	rig_stop(&rig);
}

int main(void)
{
	tap_plan_later();
	test_all();
	test_most();
	test_refused();
	test_ahead();
	return tap_done();
}
