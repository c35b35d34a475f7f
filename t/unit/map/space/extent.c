/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Cutting and merging extents. The rows of all ranges are compared as text, in grains: L live, F
 * free, in small letters the nested ones; from-to; behind the bar the free ones in the order of
 * the tree, behind a second one the nested.
 */
#include "unit/map/rig.h"

static struct rig rig;

#define G(n) ((uint64_t)(n) << GLK_GRAIN_SHIFT)

static char text[1024];

static void add(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void add(const char *format, ...)
{
	size_t len = strlen(text);
	va_list args;

	va_start(args, format);
	vsnprintf(text + len, sizeof(text) - len, format, args);
	va_end(args);
}

static void add_tree(const struct glk_tree *tree)
{
	uint32_t found[32];
	unsigned n = glk_tree_find(&rig.map, tree, 0, found, 32);

	add("|");
	for (unsigned i = 0; i < n; i++)
		add(" %d", (int)(glk_extent_at(&rig.map, found[i])->offset / G(1)));
	if (n != tree->count)
		add(" count %u", tree->count);
}

/* The extents from an offset on. */
static uint64_t add_row(uint64_t offset)
{
	uint64_t taken = 0;

	for (uint32_t id = rig_at(&rig, offset); id;) {
		struct glk_extent *e = glk_extent_at(&rig.map, id);
		const char *letters = e->nested ? "lf?" : "LF?";

		taken += glk_extent_state(e) == GLK_EXTENT_FREE ? 0 : e->size;
		add("%c%d-%d ",
			glk_extent_state(e) == GLK_EXTENT_QUICK		 ? letters[0]
				: glk_extent_state(e) == GLK_EXTENT_FREE ? letters[1]
									 : '?',
			(int)(e->offset / G(1)), (int)((e->offset + e->size) / G(1)));
		id = e->next;
	}
	return taken;
}

static const char *row(void)
{
	uint64_t taken = 0;

	text[0] = '\0';
	for (unsigned r = 0; r < rig.map.ranges; r++)
		taken += add_row(rig.map.range[r].offset);
	add_tree(&rig.map.common);
	if (rig.map.nested.count)
		add_tree(&rig.map.nested);
	if (taken != rig.map.taken)
		add(" taken %d", (int)(rig.map.taken / G(1)));
	return text;
}

/* With `n` descriptors left. */
static void start(uint32_t n)
{
	rig_conf(&rig);
	rig.conf.map_extents = 64;
	rig_start(&rig);
	for (uint32_t i = 64; i > n; i--) {
		if (!glk_slab_get(&rig.map.extents))
			tap_bail("no descriptor");
	}
}

static void starve(uint32_t n)
{
	while (glk_load_relaxed(&rig.map.extents.live) < 64 - n) {
		if (!glk_slab_get(&rig.map.extents))
			tap_bail("no descriptor");
	}
}

static void stop(void)
{
	rig_fini(&rig);
}

/* Carves [from, to) grains; inside the free extent `in`, or new addresses with 0. */
static uint32_t carve(uint32_t in, uint32_t from, uint32_t to)
{
	uint32_t id = 0;

	return glk_extent_carve(&rig.map, in, G(from), G(to - from), &id) ? 0 : id;
}

static void give(uint32_t id)
{
	glk_extent_give_back(&rig.map, id);
}

/* One free extent [0, 100) before a live one; its id is that of the extent returned. */
static uint32_t hole(void)
{
	uint32_t id = carve(0, 0, 100);

	carve(0, 100, 110);
	give(id);
	return id;
}

static void test_inside(void)
{
	uint32_t id;

	start(64);
	is_str(row(), "|", "an empty map");
	id = hole();
	is_str(row(), "F0-100 L100-110 | 0", "a hole");
	is_int(carve(id, 0, 10), id, "the low end keeps the descriptor");
	is_str(row(), "L0-10 F10-100 L100-110 | 10", "low end");
	give(id);
	is_str(row(), "F0-100 L100-110 | 0", "and back");
	id = carve(id, 90, 100);
	is_str(row(), "F0-90 L90-100 L100-110 | 0", "high end");
	give(id);
	is_str(row(), "F0-100 L100-110 | 0", "and back");
	id = carve(id, 40, 60);
	is_str(row(), "F0-40 L40-60 F60-100 L100-110 | 0 60", "middle: a tie by address");
	give(id);
	is_str(row(), "F0-100 L100-110 | 0", "and back");
	id = carve(id, 0, 100);
	is_str(row(), "L0-100 L100-110 |", "whole");
	give(id);
	id = carve(id, 1, 99);
	is_str(row(), "F0-1 L1-99 F99-100 L100-110 | 0 99",
		"all but a grain at each end");
	give(id);
	is_int(glk_load_relaxed(&rig.map.extents.live), 2,
		"no descriptor is left behind");
	stop();
}

static void test_new(void)
{
	uint32_t a, b, c;

	start(64);
	a = carve(0, 0, 10);
	is_str(row(), "L0-10 |", "the first");
	b = carve(0, 10, 20);
	is_str(row(), "L0-10 L10-20 |", "at the mark");
	c = carve(0, 30, 40);
	is_str(row(), "L0-10 L10-20 F20-30 L30-40 | 20",
		"above it: a free extent between");
	is_int((int64_t)rig.map.high, (int64_t)G(40), "the mark has risen");
	give(c);
	is_str(row(), "L0-10 L10-20 F20-40 | 20", "the end is free");
	is_int((int64_t)rig.map.high, (int64_t)G(40), "the mark stays");
	c = carve(0, 20, 70);
	is_str(row(), "L0-10 L10-20 L20-70 |",
		"beginning with the free extent below the mark");
	give(c);
	c = carve(0, 60, 80);
	is_str(row(), "L0-10 L10-20 F20-60 L60-80 | 20", "beginning inside that one");
	give(c);
	c = carve(0, 90, 95);
	is_str(row(), "L0-10 L10-20 F20-90 L90-95 | 20",
		"above it: the free extent grows");
	give(c);
	give(b);
	give(a);
	is_str(row(), "F0-95 | 0", "all is free, in one");
	a = carve(0, 0, 100);
	is_str(row(), "L0-100 |", "and taken whole, and more");
	is_int(rig.map.last, a, "the last extent");
	is_int(glk_load_relaxed(&rig.map.extents.live), 1,
		"no descriptor is left behind");
	stop();
	start(64);
	carve(0, 5, 10);
	is_str(row(), "F0-5 L5-10 | 0", "the first, above the base");
	stop();
}

static void test_merge(void)
{
	uint32_t id[5];

	start(64);
	for (uint32_t i = 0; i < 5; i++)
		id[i] = carve(0, 10 * i, 10 * i + 10);
	give(id[2]);
	is_str(row(), "L0-10 L10-20 F20-30 L30-40 L40-50 | 20", "with no neighbour");
	give(id[1]);
	is_str(row(), "L0-10 F10-30 L30-40 L40-50 | 10", "with the right one");
	id[1] = carve(id[1], 10, 20);
	give(id[1]);
	give(id[3]);
	is_str(row(), "L0-10 F10-40 L40-50 | 10", "with the left one");
	id[2] = carve(id[3], 20, 30);
	is_str(row(), "L0-10 F10-20 L20-30 F30-40 L40-50 | 10 30", "cut in three");
	give(id[2]);
	is_str(row(), "L0-10 F10-40 L40-50 | 10", "with both");
	give(id[0]);
	is_str(row(), "F0-40 L40-50 | 0", "the first of the row");
	give(id[4]);
	is_str(row(), "F0-50 | 0", "the last of the row");
	is_int(rig.map.last, id[4], "which is the last extent still");
	is_int(glk_load_relaxed(&rig.map.extents.live), 1,
		"one descriptor for all of it");
	stop();
}

/* A carve with `left` descriptors free fails and leaves the row as it was. */
static void refused(
	uint32_t left, uint32_t in, uint32_t from, uint32_t to, const char *what)
{
	char before[512];
	uint64_t high = rig.map.high;
	uint32_t live, id = 77;

	snprintf(before, sizeof(before), "%s", row());
	starve(left);
	live = glk_load_relaxed(&rig.map.extents.live);
	is_int(glk_extent_carve(&rig.map, in, G(from), G(to - from), &id), -ENOMEM, what);
	is_int(fake_class(), GLAKE_ERROR_LIMIT, "class of the record");
	is_str(row(), before, "the row is as before");
	ok(rig.map.high == high && id == 77, "so is the mark, and no extent is given");
	is_int(glk_load_relaxed(&rig.map.extents.live), live, "so are the descriptors");
}

static void test_starved(void)
{
	uint32_t id;

	start(64);
	id = hole();
	refused(0, id, 0, 10, "low end, none left");
	stop();
	start(64);
	id = hole();
	refused(0, id, 90, 100, "high end, none left");
	stop();
	start(64);
	id = hole();
	refused(0, id, 40, 60, "middle, none left");
	stop();
	start(64);
	id = hole();
	refused(1, id, 40, 60, "middle, one left");
	is_int(carve(id, 0, 100), id, "whole needs none");
	stop();
	start(0);
	refused(0, 0, 0, 10, "the first, none left");
	stop();
	start(64);
	hole();
	refused(0, 0, 110, 120, "at the mark, none left");
	refused(0, 0, 120, 130, "above the mark, none left");
	stop();
	start(64);
	hole();
	refused(1, 0, 120, 130, "above the mark, one left");
	stop();
	start(64);
	id = carve(0, 0, 10);
	give(id);
	refused(0, 0, 20, 30, "above a free extent, none left");
	refused(0, 0, 5, 30, "beginning inside it, none left");
	is_int(carve(0, 0, 30), id, "beginning with it needs none");
	stop();
}

static void test_raise(void)
{
	uint32_t id;

	start(64);
	glk_extent_raise(&rig.map, G(10));
	is_str(row(), "F0-10 | 0", "an empty map");
	glk_extent_raise(&rig.map, G(20));
	is_str(row(), "F0-20 | 0", "the free extent that ends at the mark");
	id = carve(rig.map.last, 15, 20);
	glk_extent_raise(&rig.map, G(30));
	is_str(row(), "F0-15 L15-20 F20-30 | 20 0", "behind one that is not");
	give(id);
	is_str(row(), "F0-30 | 0", "and all of it");
	carve(0, 30, 40);
	starve(0);
	glk_extent_raise(&rig.map, G(50));
	is_str(row(), "F0-30 L30-40 | 0", "without a descriptor, nothing happens");
	is_int((int64_t)rig.map.high, (int64_t)G(40), "to the mark neither");
	stop();
}

/* Free extents of slots of small blocks merge inside their slot, and with nobody else. */
static void test_nested(void)
{
	uint32_t slot[3], id[3];

	start(64);
	for (uint32_t i = 0; i < 3; i++) {
		slot[i] = carve(0, 4096 * i, 4096 * (i + 1));
		if (glk_nest_open(&rig.map, slot[i]))
			tap_bail("no nest");
	}
	is_str(row(), "f0-4096 f4096-8192 f8192-12288 || 0 4096 8192",
		"three slots of small blocks stay apart");
	for (uint32_t i = 0; i < 3; i++)
		id[i] = carve(slot[i], 4096 * i + 10, 4096 * i + 20);
	is_str(row(),
		"f0-10 l10-20 f20-4096 f4096-4106 l4106-4116 f4116-8192 f8192-8202 "
		"l8202-8212 f8212-12288 || 0 4096 8192 20 4116 8212",
		"cut inside, all is nested");
	carve(0, 12288, 12290);
	give(id[2]);
	is_str(row(),
		"f0-10 l10-20 f20-4096 f4096-4106 l4106-4116 f4116-8192 F8192-12288 "
		"L12288-12290 | 8192| 0 4096 20 4116",
		"an empty one is common again");
	give(id[0]);
	is_str(row(),
		"F0-4096 f4096-4106 l4106-4116 f4116-8192 F8192-12288 L12288-12290 "
		"| 0 8192| 4096 4116",
		"and another");
	id[0] = carve(id[0], 4095, 4096);
	is_str(row(),
		"F0-4095 L4095-4096 f4096-4106 l4106-4116 f4116-8192 F8192-12288 "
		"L12288-12290 | 0 8192| 4096 4116",
		"a common one beside a nested one");
	give(id[0]);
	give(id[1]);
	is_str(row(), "F0-12288 L12288-12290 | 0", "the last merges on both sides");
	is_int(glk_load_relaxed(&rig.map.extents.live), 2,
		"no descriptor is left behind");
	is_int(glk_load_relaxed(&rig.map.nests.live), 0, "nor a nest");
	stop();
}

/* A slot of small blocks at the mark is no beginning for other blocks. */
static void test_nested_last(void)
{
	uint32_t slot, id, low;

	start(64);
	low = carve(0, 0, 4096);
	slot = carve(0, 4096, 8192);
	if (glk_nest_open(&rig.map, slot))
		tap_bail("no nest");
	id = carve(slot, 4096, 4100);
	is_str(row(), "L0-4096 l4096-4100 f4100-8192 || 4100",
		"free up to the mark, nested");
	carve(0, 8192, 8200);
	is_str(row(), "L0-4096 l4096-4100 f4100-8192 L8192-8200 || 4100",
		"a block at the mark");
	give(rig.map.last);
	glk_extent_raise(&rig.map, G(8300));
	is_str(row(), "L0-4096 l4096-4100 f4100-8192 F8192-8300 | 8192| 4100",
		"common and nested beside each other");
	give(id);
	is_str(row(), "L0-4096 F4096-8300 | 4096", "merged with what is behind");
	give(low);
	is_str(row(), "F0-8300 | 0", "and before");
	is_int((int64_t)rig.map.high, (int64_t)G(8300), "the mark stays");
	stop();
}

/* Eighths of a slot are nests for themselves; where places are to be the smallest they are common again one by one. */
static void test_nested_parts(void)
{
	uint32_t low, high, id[2];

	start(64);
	low = carve(0, 512, 1024);
	high = carve(0, 2048, 2560);
	if (glk_nest_open(&rig.map, low) || glk_nest_open(&rig.map, high))
		tap_bail("no nest");
	is_str(row(), "F0-512 f512-1024 F1024-2048 f2048-2560 | 0 1024| 512 2048",
		"two nests of an eighth in a slot");
	is_int(glk_load_relaxed(&rig.map.nests.live), 1, "have one table");
	id[0] = carve(low, 512, 600);
	id[1] = carve(high, 2100, 2200);
	give(id[1]);
	is_str(row(), "F0-512 l512-600 f600-1024 F1024-2560 | 0 1024| 600",
		"an empty one is common again");
	is_int(glk_load_relaxed(&rig.map.nests.live), 1, "the other one has the table");
	high = carve(id[1], 1024, 1536);
	if (glk_nest_open(&rig.map, high))
		tap_bail("no nest");
	is_str(row(), "F0-512 l512-600 f600-1536 F1536-2560 | 0 1536| 600",
		"one beside the other is free with it");
	id[1] = carve(high, 900, 1200);
	carve(0, 2560, 3000);
	give(id[1]);
	is_str(row(), "F0-512 l512-600 f600-1536 F1536-2560 L2560-3000 | 0 1536| 600",
		"a whole eighth stays with the rest");
	id[1] = carve(id[1], 1400, 1500);
	rig.map.packs = true;
	give(id[1]);
	is_str(row(), "F0-512 l512-600 f600-1024 F1024-2560 L2560-3000 | 0 1024| 600",
		"or is common, where places are to be the smallest");
	give(id[0]);
	is_str(row(), "F0-2560 L2560-3000 | 0", "and with the last block all is");
	is_int(glk_load_relaxed(&rig.map.nests.live), 0, "no table is left");
	is_int((int64_t)rig.map.nested_bytes, 0, "nor a byte of a nest");
	stop();
}

/* An eighth without descriptors for what is left beside it stays. */
static void test_nested_starved(void)
{
	uint32_t slot, id[3];

	start(64);
	slot = carve(0, 0, 4096);
	if (glk_nest_open(&rig.map, slot))
		tap_bail("no nest");
	id[0] = carve(slot, 0, 10);
	id[1] = carve(glk_extent_at(&rig.map, id[0])->next, 10, 2000);
	id[2] = carve(glk_extent_at(&rig.map, id[1])->next, 2000, 4096);
	rig.map.packs = true;
	starve(0);
	give(id[1]);
	is_str(row(), "l0-10 f10-2000 l2000-4096 || 10", "it is free as it is");
	give(id[2]);
	is_str(row(), "l0-10 f10-512 F512-4096 | 512| 10", "until one merges with it");
	give(id[0]);
	is_str(row(), "F0-4096 | 0", "all of it");
	stop();
}

#define RANGE (GIB(1) / 512)
#define NEXT  (2 * RANGE) /* a GiB between two */

/* Ranges do not merge, and what is left of one is free. */
static void test_ranges(void)
{
	uint32_t id[3];
	char want[200];

	rig_conf(&rig);
	rig.conf.map_extents = 64;
	rig.size = (struct glk_map_size){.step = GIB(1), .most = GIB(3)};
	rig_start(&rig);
	id[0] = carve(0, 0, 10);
	is_int(glk_map_extend(&rig.map, S(1)), 0, "a second range");
	snprintf(want, sizeof(want), "L0-10 F10-%d | 10", (int)RANGE);
	is_str(row(), want, "the rest of the first is free");
	ok(rig.map.high == G(NEXT) && !rig.map.last,
		"the mark is where the second begins");
	id[1] = carve(0, NEXT, NEXT + 10);
	snprintf(want, sizeof(want), "L0-10 F10-%d L%d-%d | 10", (int)RANGE, (int)NEXT,
		(int)NEXT + 10);
	is_str(row(), want, "a block in the second");
	ok(!glk_extent_at(&rig.map, id[1])->prev, "has nobody before it");
	give(id[1]);
	give(id[0]);
	snprintf(want, sizeof(want), "F0-%d F%d-%d | %d 0", (int)RANGE, (int)NEXT,
		(int)NEXT + 10, (int)NEXT);
	is_str(row(), want, "both free, they stay apart");
	ok(rig_sound(&rig), "sound");
	id[0] = carve(0, NEXT, NEXT + RANGE);
	is_int((int64_t)rig.map.high, (int64_t)rig.map.end, "a whole range");
	starve(0);
	is_int(glk_map_extend(&rig.map, S(1)), 0,
		"a third range, of which nothing is left over");
	give(id[0]);
	is_int(glk_extent_carve(&rig.map, 0, G(2 * NEXT), G(1), &id[2]), -ENOMEM,
		"without a descriptor");
	is_int((int64_t)rig.map.high, (int64_t)G(2 * NEXT), "the mark stays");
	stop();
}

/* Pieces from elsewhere, two of which happen to lie side by side. */
static void test_pieces(void)
{
	struct glk_map map = {0};
	uint32_t piece[2], block, more;
	uint64_t base = UINT64_C(0x7f0000000000);

	if (glk_slab_init(&map.extents, sizeof(struct glk_extent), 4))
		tap_bail("no descriptors");
	glk_extent_pieces(&map);
	is_int(glk_extent_add(&map, base, S(2), &piece[0]), 0, "a piece");
	is_int(glk_extent_add(&map, base + S(2), S(2), &piece[1]), 0,
		"the one behind it");
	is_int((int64_t)glk_tree_largest(&map, &map.common), (int64_t)S(2),
		"are not one");
	is_int(glk_extent_carve(&map, piece[0], base + G(1), G(1), &block), 0,
		"a block of one");
	ok(glk_load_relaxed(&glk_extent_at(&map, block)->addr) == base + G(1),
		"at its address");
	is_int(glk_extent_add(&map, base + S(8), S(2), &more), -ENOMEM,
		"all descriptors are used");
	is_int(map.common.count, 3, "nothing has changed");
	glk_extent_give_back(&map, block);
	ok(glk_extent_whole_piece(glk_extent_at(&map, block)), "given back it is whole");
	is_int((int64_t)glk_tree_largest(&map, &map.common), (int64_t)S(2),
		"and of its size");
	glk_extent_drop(&map, block);
	glk_extent_drop(&map, piece[1]);
	is_int(map.common.count, 0, "they go");
	is_int((int64_t)glk_load_relaxed(&map.extents.live), 0,
		"and so do their descriptors");
	glk_slab_fini(&map.extents);
}

int main(void)
{
	tap_plan_later();
	test_pieces();
	test_inside();
	test_new();
	test_merge();
	test_starved();
	test_raise();
	test_nested();
	test_nested_last();
	test_nested_parts();
	test_nested_starved();
	test_ranges();
	return tap_done();
}
