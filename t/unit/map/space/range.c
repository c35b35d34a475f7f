/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The reservations of a map and its tables, and what is left when one of them cannot be had. */
#include "unit/map/serve.h"

static struct rig rig;

/* A pool and no map. */
static void start(uint64_t step, uint64_t most)
{
	rig_conf(&rig);
	rig.size = (struct glk_map_size){.step = step, .most = most};
	if (glk_pool_init(&rig.pool, fake_init(&rig.fake), &rig.conf, 1, 0, NULL))
		tap_bail("no pool");
}

static void stop(const char *what)
{
	rig_end(&rig);
	ok(!rig.fake.broken && !rig.fake.size, "%s: no rule broken, nothing reserved",
		what);
	glk_pool_fini(&rig.pool);
	fake_fini(&rig.fake);
}

static const struct glk_range *range(unsigned i)
{
	return &rig.map.range[i];
}

static void test_one(void)
{
	struct glk_map *map = &rig.map;

	start(GIB(4), GIB(4));
	is_int(rig_make(&rig), 0, "4 GiB at once");
	ok(map->ranges == 1 && map->size == GIB(4) && map->end == GIB(4) && !map->high &&
			!map->last,
		"are one range");
	is_int(map->shift, 21, "with slots of 2 MiB");
	is_int(map->large, 4, "large pages have four");
	ok(map->space->capacity >= GIB(4) >> 21, "tables for all of it");
	is_int((int64_t)glk_map_addr(map, S(5) + 7), (int64_t)(range(0)->base + S(5) + 7),
		"offsets count from its base");
	is_int((int64_t)glk_slot_addr(map, 9), (int64_t)(range(0)->base + S(9)),
		"so do slots");
	is_int(glk_map_fresh(map), 0, "no slot was touched");
	is_int(glk_map_extend(map, S(1)), -ENOMEM, "there are no more");
	is_int(fake_class(), 0, "without a record");
	rig_end(&rig);
	rig_end(&rig);
	is_int((int64_t)rig.fake.calls[FAKE_UNRESERVE], 1, "ended once");
	glk_map_fini(&(struct glk_map){0});
	stop("one range");
}

/* Steps, a GiB between two of them. */
static void test_steps(void)
{
	struct glk_map *map = &rig.map;
	uint64_t gap = GIB(1);

	start(GIB(1), GIB(8));
	is_int(rig_make(&rig), 0, "1 GiB of 8");
	is_int((int64_t)map->size, (int64_t)GIB(1), "is reserved");
	is_int(glk_map_extend(map, S(1)), 0, "one more");
	ok(range(1)->size == GIB(1) && range(1)->offset == GIB(1) + gap &&
			map->end == GIB(2) + gap,
		"behind the first, after a GiB of nobody");
	ok(map->high == range(1)->offset && !map->last, "the mark is where it begins");
	is_int(glk_map_extend(map, GIB(2) + 512), 0, "for a block larger than a step");
	is_int((int64_t)range(2)->size, (int64_t)GIB(3), "as much as it wants");
	is_int(glk_map_extend(map, GIB(3) + 512), -ENOMEM,
		"for one larger than what is left");
	is_int(glk_map_extend(map, UINT64_MAX - 512), -ENOMEM, "sums do not wrap");
	is_int(glk_map_extend(map, GIB(3)), 0, "for one that just fits");
	is_int((int64_t)map->size, (int64_t)GIB(8), "that is all");
	is_int(glk_map_extend(map, 512), -ENOMEM, "and then there is none");
	for (unsigned i = 0; i < 4; i++) {
		const struct glk_range *r = range(i);

		ok(glk_map_range(map, r->offset) == r &&
				glk_map_range(map, r->offset + r->size - 1) == r,
			"range %u is found from its first to its last byte", i);
		ok(glk_map_addr(map, r->offset + 5) == r->base + 5 &&
				!(r->base & (GIB(1) - 1)),
			"and begins at a multiple of a GiB");
	}
	ok(rig_sound(&rig), "sound");
	rig_end(&rig);
	is_int(rig_make(&rig), 0, "made again");
	ok(map->ranges == 1 && map->size == GIB(1) && map->end == GIB(1) && !map->high,
		"it begins with one step");
	stop("steps");
}

/* What is left of a range is free for smaller blocks. */
static void test_behind(void)
{
	uint32_t id[4];

	rig_conf(&rig);
	rig.size = (struct glk_map_size){.step = GIB(1), .most = GIB(4)};
	rig_start(&rig);
	id[0] = rig_alloc(&rig, GIB(1) - S(3));
	id[1] = rig_alloc(&rig, S(5));
	is_int(rig.map.ranges, 2, "a block that does not fit any more has a range");
	id[2] = rig_alloc(&rig, S(3));
	is_int((int64_t)glk_extent_at(&rig.map, id[2])->offset, (int64_t)(GIB(1) - S(3)),
		"one that does lies in the first");
	id[3] = rig_alloc(&rig, GIB(2));
	is_int((int64_t)range(2)->size, (int64_t)GIB(2), "one larger than a step");
	ok(rig_sound(&rig), "sound");
	ok(!rig_alloc(&rig, GIB(1)), "nothing is left for a fourth");
	for (int i = 0; i < 4; i++)
		rig_free(&rig, id[i]);
	is_int(rig.map.common.count, 3, "freed, each range is one extent");
	ok(rig_sound(&rig), "sound");
	rig_stop(&rig);
}

/* As many ranges as there may be. */
static void test_most(void)
{
	int wrong = 0;

	start(GIB(1), GIB(40));
	is_int(rig_make(&rig), 0, "the first");
	for (unsigned i = 1; i < GLK_RANGES_MAX; i++)
		wrong += glk_map_extend(&rig.map, 512);
	is_int(wrong, 0, "and 31 more");
	is_int(glk_map_extend(&rig.map, 512), -ENOMEM, "and no other");
	ok(rig_sound(&rig), "sound");
	stop("most ranges");
}

static void test_halved(void)
{
	start((uint64_t)1 << 42, (uint64_t)1 << 42);
	rig.fake.limit = GIB(9);
	is_int(rig_make(&rig), 0, "4 TiB are not to be had");
	is_int((int64_t)rig.map.size, (int64_t)GIB(8), "8 GiB are");
	is_int((int64_t)rig.fake.calls[FAKE_RESERVE], 10, "by halving");
	is_int(glk_map_extend(&rig.map, GIB(9) + 1), -ENOMEM,
		"for a block of more there are none");
	is_int(glk_map_extend(&rig.map, GIB(8)), 0, "for one of as much there are");
	rig_end(&rig);
	rig.fake.limit = GIB(1) - 1;
	is_int(rig_make(&rig), -ENOMEM, "less than a GiB is refused");
	is_int(fake_class(), GLAKE_ERROR_ADDRESS, "for want of addresses");
	stop("halved");
	start(GIB(4), GIB(4));
	fake_fail(&rig.fake, FAKE_RESERVE, 1, -ENODEV, false);
	is_int(rig_make(&rig), -ENODEV, "another error");
	is_int((int64_t)rig.fake.calls[FAKE_RESERVE], 1, "is not tried again");
	stop("another error");
}

/* A driver that does not keep to the alignment. */
static void test_skewed(void)
{
	start(GIB(2), GIB(8));
	rig.fake.skew = S(3);
	is_int(rig_make(&rig), 0, "addresses that are not aligned");
	ok(!(range(0)->base & (GIB(1) - 1)) && range(0)->size == GIB(2),
		"are from inside");
	is_int((int64_t)rig.fake.size, (int64_t)GIB(3), "of a GiB more");
	is_int((int64_t)rig.fake.calls[FAKE_UNRESERVE], 1, "the first ones went back");
	is_int(glk_map_extend(&rig.map, S(1)), 0, "for further ranges too");
	ok(glk_index_find(range(1)->base) == range(1) &&
			glk_index_find(range(1)->base + GIB(2) - 1) == range(1),
		"found from the first byte to the last");
	fake_fail(&rig.fake, FAKE_RESERVE, 2, -ENOMEM, true);
	is_int(glk_map_extend(&rig.map, S(1)), -ENOMEM,
		"when the larger ones are refused");
	fake_fail(&rig.fake, FAKE_RESERVE, 0, 0, false);
	is_int((int64_t)rig.fake.size, (int64_t)GIB(6), "nothing is left of the others");
	ok(rig_sound(&rig), "sound");
	stop("skewed");
}

/* Sizes that do not go together well. */
static void test_odd(void)
{
	start(1, 1);
	is_int(rig_make(&rig), 0, "a byte");
	is_int((int64_t)rig.map.size, (int64_t)GIB(1), "is a GiB");
	stop("a byte");
	start(GIB(4), GIB(2));
	is_int(rig_make(&rig), 0, "steps of more than all");
	is_int((int64_t)rig.map.size, (int64_t)GIB(2), "are all");
	stop("a large step");
	start(GIB(3) + MIB(100), GIB(4));
	is_int(rig_make(&rig), 0, "an odd step");
	is_int((int64_t)rig.map.size, (int64_t)GIB(4), "is rounded up");
	stop("an odd step");
	start(GIB(3), GIB(4));
	rig.conf.pool_large_page = S(1);
	rig.pool.nodes[0].page_size[GLK_CLASS_LARGE] = S(1);
	is_int(rig_make(&rig), 0, "one size of page");
	is_int(rig.map.large, 1, "large pages have one slot");
	is_int(glk_map_extend(&rig.map, S(1)), 0, "a range of what is left");
	is_int((int64_t)range(1)->size, (int64_t)GIB(1), "a GiB of it");
	stop("one size");
}

/* The largest map: its last slot is found, and its last grain. */
static void test_largest(void)
{
	uint64_t most = (uint64_t)64 << 40;
	uint32_t low, high;

	start(most, most);
	is_int(rig_make(&rig), 0, "64 TiB");
	low = rig_carve(&rig, 0, S(1));
	high = rig_carve(&rig, most - S(1), S(1));
	is_int(glk_lookup_around(range(0), range(0)->base), low, "the first byte");
	is_int(glk_lookup_around(range(0), range(0)->base + most - 1), high, "the last");
	is_int(glk_lookup_around(range(0), range(0)->base + most - S(1) - 1), 0,
		"nothing before it");
	is_int((int64_t)rig.map.high, (int64_t)most, "the mark is at the end");
	stop("the largest map");
}

static void test_refused(void)
{
	uint64_t before;
	uint32_t n = 0;
	int err;

	start(GIB(2), GIB(4));
	/* the index of the process is made once, and stays */
	if (rig_make(&rig))
		tap_bail("no map");
	rig_end(&rig);
	before = glk_region_bytes();
	do {
		glk_region_fail_after(++n);
		err = rig_make(&rig);
		glk_region_fail_after(0);
		if (!err)
			break;
		is_int(err, -ENOMEM, "a table is refused");
		is_int(fake_class(), GLAKE_ERROR_NOMEM_HOST, "for want of host memory");
		ok(glk_region_bytes() == before && !rig.fake.size, "nothing is left");
		rig_end(&rig);
		ok(!rig.fake.broken, "ending it does no harm");
	} while (n < 100);
	ok(!err && n > 16, "each of the tables was refused once");
	rig_end(&rig);
	ok(glk_region_bytes() == before, "nothing is left");
	rig.conf.map_extents = 0;
	is_int(rig_make(&rig), -EINVAL, "no extents at all");
	stop("refused");
}

static void test_bytes(void)
{
	uint64_t empty;

	rig_init(&rig);
	empty = glk_map_bytes(&rig.map);
	ok(empty < 65536, "an empty map uses next to nothing");
	for (int i = 0; i < 64; i++)
		rig_alloc(&rig, S(4));
	ok(glk_map_bytes(&rig.map) >= empty + 256 * sizeof(*rig.map.use), "slots count");
	ok(glk_map_bytes(&rig.map) < empty + 65536, "those in use alone");
	ok(!glk_lookup_around(range(0), range(0)->base - 1),
		"nothing is found beside it");
	ok(rig_sound(&rig), "sound");
	rig_stop(&rig);
}

/* Two maps of one space: a page lies in both, and each counts it while it was used there last. */
static void test_shared(void)
{
	static struct glk_map other;
	const struct glk_stock *stock = &rig.space.of[GLK_OF_NODE];
	struct glk_use use = glk_use_of(1, 1);
	uint32_t page, slot;

	rig_conf(&rig);
	rig.size.step = GIB(1);
	rig_start(&rig);
	is_int(glk_map_init(&other, &rig.space, &rig.conf, rig.size), 0, "a second map");
	other.lock = NULL;
	slot = glk_slot_of(&other, other.range[0].offset);
	is_int((int64_t)other.range[0].offset, (int64_t)GIB(2),
		"whose slots come behind those of the first");
	ok(glk_slot_map(&rig.map, 3) == &rig.map &&
			glk_slot_map(&rig.map, slot + 3) == &other,
		"a slot leads to its map");
	ok(glk_slot_addr(&rig.map, slot + 3) == glk_slot_addr(&other, slot + 3) &&
			glk_slot_addr(&other, slot + 3) == other.range[0].base + S(3),
		"and to its address, by either");
	rig_raise(&rig, 8);
	glk_extent_raise(&other, other.range[0].offset + S(8));
	page = rig_new(&rig, 0, 4);
	is_int((int64_t)rig.map.held, (int64_t)S(4), "the first has a page");
	glk_page_take(&rig.map, page);
	is_int(glk_mapping_make(&other, slot, &page, 1), 0, "which the second takes");
	glk_slots_enter(&other, slot, slot + 3);
	ok(!rig.map.held && other.held == S(4), "and counts");
	ok(!stock->idle_slots && !glk_bit_get(rig.map.usable, 0),
		"it is stale in the first");
	glk_slots_leave(&other, slot, slot + 3, &use);
	ok(stock->idle_slots == 4 && other.held == S(4),
		"idle, it was the second's last");
	ok(glk_bit_get(rig.map.usable, 0) && glk_bit_get(other.usable, slot),
		"usable in both");
	ok(rig_sound(&rig) && !map_verify(&other), "sound");
	glk_slots_enter(&rig.map, 0, 0);
	ok(rig.map.held == S(4) && !other.held, "used in the first it is the first's");
	ok(!glk_bit_get(other.usable, slot), "and stale in the second");
	glk_slots_leave(&rig.map, 0, 0, &use);
	is_int(glk_mapping_remove(&rig.map, 0, 3), 0, "it leaves the first");
	ok(!rig.map.held && other.held == S(4), "and is the second's alone");
	ok(rig_sound(&rig) && !map_verify(&other), "sound");
	is_int(glk_mapping_remove(&other, slot, slot + 3), 0, "and that");
	ok(!other.held && !stock->page_bytes, "it is nobody's");
	glk_map_fini(&other);
	rig_stop(&rig);
}

/* The tables of a space have an end, whatever a map may have. */
static void test_full(void)
{
	static struct glk_map other;
	struct glk_map_size size = {.step = GIB(20), .most = GIB(400)};

	rig_conf(&rig);
	rig_start(&rig);
	is_int(glk_map_init(&other, &rig.space, &rig.conf, size), 0, "a second map");
	is_int(glk_map_extend(&other, GIB(20)), -ENOMEM,
		"there are no slots for all that it may have");
	is_int(glk_map_extend(&other, S(1)), 0, "but for some");
	is_int((int64_t)other.size, (int64_t)GIB(20 + 10), "all that there are");
	is_int(glk_map_extend(&other, S(1)), -ENOMEM, "and then none");
	glk_map_fini(&other);
	rig_stop(&rig);
}

int main(void)
{
	tap_plan_later();
	test_one();
	test_steps();
	test_behind();
	test_most();
	test_halved();
	test_skewed();
	test_odd();
	test_largest();
	test_refused();
	test_bytes();
	test_shared();
	test_full();
	return tap_done();
}
