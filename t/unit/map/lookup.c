/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* From addresses to extents: the edges of every kind, and random blocks against a list. */
#include "seed.h"
#include "unit/map/rig.h"

#define BLOCKS 300
#define MOVES  6000

static struct rig rig;

static uint32_t enter(enum glk_kind kind, uint64_t offset, uint64_t size)
{
	struct glk_span *span = &rig.map.span[kind];
	uint32_t id;

	if (glk_extent_carve(span, 0, offset, size, &id))
		tap_bail("no addresses");
	glk_lookup_enter(span, id);
	return id;
}

static void leave(enum glk_kind kind, uint32_t id)
{
	glk_lookup_leave(&rig.map.span[kind], id);
	glk_extent_give_back(&rig.map.span[kind], id);
}

static uint32_t find(enum glk_kind kind, uint64_t offset)
{
	struct glk_span *span = &rig.map.span[kind];

	return glk_span_lookup(span, span->base + offset);
}

/* Base, inside, last byte; one before and one past belong to others. */
static void test_edges(enum glk_kind kind, uint32_t id, const char *what)
{
	struct glk_extent *e = glk_extent_at(&rig.map, id);

	ok(find(kind, e->offset) == id, "%s: base", what);
	ok(find(kind, e->offset + 1) == id, "%s: a byte in", what);
	ok(find(kind, e->offset + e->size / 2) == id, "%s: the middle", what);
	ok(find(kind, e->offset + e->size - 1) == id, "%s: the last byte", what);
	ok(find(kind, e->offset + e->size) != id, "%s: one past", what);
	ok(!e->offset || find(kind, e->offset - 1) != id, "%s: one before", what);
}

static void test_small(uint64_t page)
{
	uint32_t grain, half, border, low, high;

	tap_note("small pages of %d MiB", (int)(page >> 20));
	rig_conf(&rig);
	rig.conf.pool_small_page = page;
	rig.conf.pool_large_page = page;
	rig_start(&rig);
	is_int(find(GLK_KIND_SMALL, 0), 0, "nothing in an empty span");
	half = enter(GLK_KIND_SMALL, 0, page / 2);
	test_edges(GLK_KIND_SMALL, half, "half a page");
	grain = enter(GLK_KIND_SMALL, page / 2, 512);
	test_edges(GLK_KIND_SMALL, grain, "a grain after it");
	is_int(find(GLK_KIND_SMALL, page / 2 + 512), 0, "nothing above the mark");
	border = enter(GLK_KIND_SMALL, page + page / 2 + 512, page / 2);
	test_edges(GLK_KIND_SMALL, border, "half a page across the border of two");
	low = enter(GLK_KIND_SMALL, 3 * page - 1024, 1024);
	high = enter(GLK_KIND_SMALL, 3 * page, 1024);
	test_edges(GLK_KIND_SMALL, low, "up to the end of a page");
	test_edges(GLK_KIND_SMALL, high, "from the start of a page");
	is_int(find(GLK_KIND_SMALL, page), 0, "a hole of half a page");
	is_int(find(GLK_KIND_SMALL, page + page / 2 + 511), 0, "its last byte");
	leave(GLK_KIND_SMALL, half);
	is_int(find(GLK_KIND_SMALL, 0), 0, "freed: base");
	is_int(find(GLK_KIND_SMALL, page / 2 - 1), 0, "freed: last byte");
	is_int(find(GLK_KIND_SMALL, page / 2), grain, "its neighbour is still there");
	leave(GLK_KIND_SMALL, grain);
	is_int(find(GLK_KIND_SMALL, page / 2), 0, "and then not");
	rig_fini(&rig);
}

static void test_medium(void)
{
	uint64_t page = MIB(2);
	uint32_t a, b, c;

	rig_init(&rig);
	a = enter(GLK_KIND_MEDIUM, 0, page / 2 + 512);
	b = enter(GLK_KIND_MEDIUM, page / 2 + 512, 2 * page);
	c = enter(GLK_KIND_MEDIUM, 5 * page / 2 + 512, page / 2 + 512);
	test_edges(GLK_KIND_MEDIUM, a, "first of two that begin in a slot");
	test_edges(GLK_KIND_MEDIUM, b, "second of two, over three slots");
	test_edges(GLK_KIND_MEDIUM, c, "in a slot that another reaches into");
	is_int(find(GLK_KIND_MEDIUM, page), b, "the slot it covers");
	is_int(find(GLK_KIND_MEDIUM, 2 * page), b, "the last slot it reaches into");
	leave(GLK_KIND_MEDIUM, a);
	is_int(find(GLK_KIND_MEDIUM, 0), 0, "the first is freed");
	test_edges(GLK_KIND_MEDIUM, b, "the second stays");
	a = enter(GLK_KIND_MEDIUM, 8 * page, page);
	is_int(glk_extent_carve(&rig.map.span[GLK_KIND_MEDIUM],
		       glk_extent_at(&rig.map, b)->prev, 0, page / 2 + 512, &a),
		0, "the hole is taken again");
	glk_lookup_enter(&rig.map.span[GLK_KIND_MEDIUM], a);
	test_edges(GLK_KIND_MEDIUM, a, "begins in the slot again");
	leave(GLK_KIND_MEDIUM, b);
	is_int(find(GLK_KIND_MEDIUM, page), 0, "the second is freed");
	is_int(find(GLK_KIND_MEDIUM, 2 * page), 0, "with all its slots");
	test_edges(GLK_KIND_MEDIUM, a, "the first stays");
	test_edges(GLK_KIND_MEDIUM, c, "the third stays");
	rig_fini(&rig);
}

static void test_large(void)
{
	uint64_t page = MIB(8);
	uint32_t a, b, c, single;

	rig_init(&rig);
	a = enter(GLK_KIND_LARGE, 0, page / 2);
	b = enter(GLK_KIND_LARGE, page / 2, page / 2);
	c = enter(GLK_KIND_LARGE, page, 5 * page + 512);
	test_edges(GLK_KIND_LARGE, a, "half of a large page");
	test_edges(GLK_KIND_LARGE, b, "the other half");
	test_edges(GLK_KIND_LARGE, c, "five pages and a grain");
	is_int(find(GLK_KIND_LARGE, 6 * page + 511), c, "that grain");
	is_int(find(GLK_KIND_LARGE, 6 * page + 512), 0, "and not beyond");
	leave(GLK_KIND_LARGE, c);
	is_int(find(GLK_KIND_LARGE, 6 * page + 511), 0, "freed");
	is_int(find(GLK_KIND_LARGE, 6 * page + 512), 0, "and never given");
	single = enter(GLK_KIND_SINGLE, MIB(2), MIB(6));
	test_edges(GLK_KIND_SINGLE, single, "contiguous");
	is_int(find(GLK_KIND_SINGLE, MIB(8)), 0, "the slot after it");
	leave(GLK_KIND_SINGLE, single);
	is_int(find(GLK_KIND_SINGLE, MIB(4)), 0, "contiguous, freed");
	rig_fini(&rig);
}

static bool any(struct glk_span *span, uint32_t first, uint32_t last, struct glk_fit *fit,
	void *arg)
{
	return true;
}

static uint64_t random_size(enum glk_kind kind, uint64_t *state)
{
	uint64_t small = rig.conf.pool_small_page, large = rig.conf.pool_large_page;
	uint64_t low[] = {512, small / 2 + 512, large / 2},
		 high[] = {small / 2, large / 2 - 512, 4 * large};
	uint64_t grains = (high[kind] - low[kind]) / 512 + 1;

	if (seed_below(state, 3) == 0)
		return seed_below(state, 2) ? low[kind] : high[kind];
	return low[kind] +
		512 * seed_below(state, seed_below(state, 2) ? grains : 1 + grains / 50);
}

/* Random blocks; every so often, what random addresses say against the list of blocks. */
static int random_blocks(enum glk_kind kind, uint64_t *state)
{
	struct glk_span *span = &rig.map.span[kind];
	uint32_t id[BLOCKS];
	int n = 0, wrong = 0;

	for (int i = 0; i < MOVES; i++) {
		uint64_t offset;
		uint32_t want = 0;

		if (n < BLOCKS && (!n || seed_below(state, 100) < 52)) {
			uint64_t size = random_size(kind, state);
			struct glk_fit fit;

			if (glk_fit_search(span, size, any, NULL, &fit) ||
				glk_extent_carve(
					span, fit.from, fit.offset, size, &id[n]))
				continue;
			glk_lookup_enter(span, id[n++]);
		} else {
			int which = (int)seed_below(state, (uint64_t)n);

			leave(kind, id[which]);
			id[which] = id[--n];
		}
		offset = seed_below(state, span->high + 1024);
		if (n && seed_below(state, 2)) {
			struct glk_extent *e = glk_extent_at(
				&rig.map, id[seed_below(state, (uint64_t)n)]);

			offset = e->offset + (seed_below(state, 2) ? e->size : 0) -
				seed_below(state, 2);
		}
		for (int k = 0; k < n; k++) {
			struct glk_extent *e = glk_extent_at(&rig.map, id[k]);

			if (offset - e->offset < e->size)
				want = id[k];
		}
		wrong += glk_span_lookup(span, span->base + offset) != want;
	}
	return wrong;
}

static void test_random(uint64_t *state, uint64_t small, uint64_t large)
{
	static const char *const names[] = {"small", "medium", "large"};

	rig_conf(&rig);
	rig.conf.pool_small_page = small;
	rig.conf.pool_large_page = large;
	rig.conf.map_span = GIB(16);
	rig_start(&rig);
	for (int kind = 0; kind < GLK_KIND_SINGLE; kind++) {
		if (kind == GLK_KIND_MEDIUM && small / 2 + 512 > large / 2 - 512)
			continue;
		ok(!random_blocks((enum glk_kind)kind, state),
			"random %s blocks, pages of %d and %d MiB", names[kind],
			(int)(small >> 20), (int)(large >> 20));
	}
	rig_fini(&rig);
}

int main(void)
{
	uint64_t state;

	tap_plan_later();
	state = seed_start() | 1;
	test_small(MIB(2));
	test_small(MIB(8));
	test_medium();
	test_large();
	test_random(&state, MIB(2), MIB(8));
	test_random(&state, MIB(8), MIB(8));
	test_random(&state, MIB(2), MIB(2));
	test_random(&state, MIB(4), MIB(32));
	return tap_done();
}
