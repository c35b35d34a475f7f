/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Cutting and merging extents. The row of a span is compared as text, in grains: L live, F
 * free, from-to; behind the bar the free ones in the order of the tree.
 */
#include "unit/map/rig.h"

static struct rig rig;
static struct glk_span *span;

#define G(n) ((uint64_t)(n) << GLK_GRAIN_SHIFT)

static const char *row(void)
{
	static char text[512];
	uint32_t id = span->last, found[32];
	unsigned n, live = 0;
	size_t len = 0;

	text[0] = '\0';
	while (id && glk_extent_at(&rig.map, id)->prev)
		id = glk_extent_at(&rig.map, id)->prev;
	for (; id; id = glk_extent_at(&rig.map, id)->next) {
		struct glk_extent *e = glk_extent_at(&rig.map, id);

		live += glk_extent_state(e) == GLK_EXTENT_LIVE;
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%c%d-%d ",
			glk_extent_state(e) == GLK_EXTENT_LIVE	      ? 'L'
				: glk_extent_state(e) == GLK_EXTENT_FREE ? 'F'
							      : '?',
			(int)(e->offset / G(1)), (int)((e->offset + e->size) / G(1)));
	}
	n = glk_tree_find(span, 0, found, 32);
	len += (size_t)snprintf(text + len, sizeof(text) - len, "|");
	for (unsigned i = 0; i < n; i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len, " %d",
			(int)(glk_extent_at(&rig.map, found[i])->offset / G(1)));
	if (n != span->free_count || live != span->live_count)
		snprintf(text + len, sizeof(text) - len, " counts %u %u",
			span->free_count, span->live_count);
	return text;
}

/* With `n` descriptors left. */
static void start(uint32_t n)
{
	rig_conf(&rig);
	rig.conf.map_extents = 64;
	rig_start(&rig);
	span = &rig.map.span[GLK_KIND_SMALL];
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

	return glk_extent_carve(span, in, G(from), G(to - from), &id) ? 0 : id;
}

static void give(uint32_t id)
{
	glk_extent_give_back(span, id);
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
	is_str(row(), "|", "an empty span");
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
	is_int((int64_t)span->high, (int64_t)G(40), "the mark has risen");
	give(c);
	is_str(row(), "L0-10 L10-20 F20-40 | 20", "the end is free");
	is_int((int64_t)span->high, (int64_t)G(40), "the mark stays");
	c = carve(0, 20, 70);
	is_str(row(), "L0-10 L10-20 L20-70 |",
		"beginning with the free extent below the mark");
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
	is_int(span->last, a, "the last extent");
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
	is_int(span->last, id[4], "which is the last extent still");
	is_int(glk_load_relaxed(&rig.map.extents.live), 1,
		"one descriptor for all of it");
	stop();
}

/* A carve with `left` descriptors free fails and leaves the row as it was. */
static void refused(
	uint32_t left, uint32_t in, uint32_t from, uint32_t to, const char *what)
{
	char before[512];
	uint64_t high = span->high;
	uint32_t live, id = 77;

	snprintf(before, sizeof(before), "%s", row());
	starve(left);
	live = glk_load_relaxed(&rig.map.extents.live);
	is_int(glk_extent_carve(span, in, G(from), G(to - from), &id), -ENOMEM, what);
	is_int(fake_class(), GLAKE_ERROR_LIMIT, "class of the record");
	is_str(row(), before, "the row is as before");
	ok(span->high == high && id == 77, "so is the mark, and no extent is given");
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
	is_int(carve(0, 0, 30), id, "beginning with it needs none");
	stop();
}

static void test_bounds(void)
{
	uint64_t size;
	uint32_t id = 77;

	start(64);
	size = span->size;
	is_int(glk_extent_carve(span, 0, 0, size + 512, &id), -ENOMEM,
		"larger than the span");
	is_int(fake_class(), GLAKE_ERROR_ADDRESS, "is for want of addresses");
	is_int(glk_extent_carve(span, 0, 512, size, &id), -ENOMEM,
		"a grain past its end");
	is_int(glk_extent_carve(span, 0, UINT64_MAX - 511, 1024, &id), -ENOMEM,
		"sums do not wrap");
	is_int(glk_extent_carve(span, 0, 0, UINT64_MAX - 511, &id), -ENOMEM,
		"of either kind");
	ok(!span->high && !span->last && id == 77, "nothing has changed");
	is_int(glk_extent_carve(span, 0, size - 512, 512, &id), 0, "the last grain");
	is_int((int64_t)span->high, (int64_t)size, "the mark is at the end");
	is_int(glk_extent_carve(span, 0, size, 512, &id), -ENOMEM, "and no further");
	stop();
}

int main(void)
{
	tap_plan_later();
	test_inside();
	test_new();
	test_merge();
	test_starved();
	test_bounds();
	return tap_done();
}
