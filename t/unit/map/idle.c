/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The order in which idle pages are taken: fewest mappings, then idle for longest. */
#include "seed.h"
#include "unit/map/rig.h"

#define PAGES 12

static struct rig rig;
static struct glk_span *span;
static uint32_t page[PAGES]; /* at slots 16 * i and on */

static void start(void)
{
	uint32_t id;

	rig_init(&rig);
	span = &rig.map.span[GLK_KIND_LARGE];
	if (glk_extent_carve(span, 0, 0, 16 * PAGES * MIB(8), &id))
		tap_bail("no addresses");
	glk_extent_give_back(span, id);
}

static void stop(void)
{
	is_int((int64_t)rig.fake.broken, 0, "no rule of the driver was broken");
	rig_fini(&rig);
}

/* Page `i`, mapped `times` times, in nobody's hands. */
static void make(uint32_t i, uint32_t times)
{
	if (glk_node_grow(&rig.pool.nodes[0], GLK_CLASS_LARGE, 0, &page[i]))
		tap_bail("no page");
	for (uint32_t k = 0; k < times; k++) {
		if (glk_slot_attach(span, 16 * i + k, page[i]))
			tap_bail("no mapping");
	}
	glk_idle_put(&rig.map, page[i]);
}

/* The idle pages in an order, by letter. */
static const char *listed(uint32_t id, uint32_t (*next)(struct glk_map *, uint32_t))
{
	static char text[PAGES + 2];
	uint32_t n = 0;

	for (; id && n <= PAGES; id = next(&rig.map, id)) {
		char letter = '?';

		for (uint32_t i = 0; i < PAGES; i++)
			letter = page[i] == id ? (char)('a' + i) : letter;
		text[n++] = letter;
	}
	text[n] = '\0';
	return text;
}

static const char *order(void)
{
	return listed(glk_idle_first(&rig.map, GLK_CLASS_LARGE), glk_idle_next);
}

static const char *youngest(void)
{
	return listed(glk_idle_last(&rig.map, GLK_CLASS_LARGE), glk_idle_before);
}

static void use(uint32_t i, uint32_t k)
{
	glk_slot_enter(span, 16 * i + k);
	glk_slot_leave(span, 16 * i + k, 1, 1);
}

static void test_order(void)
{
	start();
	is_str(order(), "", "none");
	is_str(youngest(), "", "in either order");
	make(0, 2);
	make(1, 1);
	make(2, 3);
	make(3, 1);
	make(4, 2);
	is_str(order(), "bdaec", "fewest mappings, then idle for longest");
	is_str(youngest(), "dbeac", "or idle for the shortest time");
	is_int((int64_t)rig.map.idle_bytes, 5 * (int64_t)MIB(8), "five idle pages");
	use(1, 0);
	is_str(order(), "dbaec", "one that was used is the youngest of its like");
	use(0, 1);
	is_str(order(), "dbeac", "through whichever mapping");
	glk_idle_take(&rig.map, page[4]);
	is_str(order(), "dbac", "one is taken from the middle");
	is_str(youngest(), "bdac", "which leaves the end of its list");
	ok(!glk_idle_has(&rig.map, page[4]) && glk_idle_has(&rig.map, page[0]),
		"that one");
	glk_idle_take(&rig.map, page[4]);
	is_int((int64_t)rig.map.idle_bytes, 4 * (int64_t)MIB(8),
		"taking it twice does nothing");
	glk_idle_take(&rig.map, page[3]);
	glk_idle_take(&rig.map, page[2]);
	is_str(order(), "ba", "from the beginning and from the end");
	glk_idle_put(&rig.map, page[2]);
	glk_idle_put(&rig.map, page[3]);
	glk_idle_put(&rig.map, page[4]);
	is_str(order(), "bdaec", "and put back");
	ok(rig_sound(&rig), "sound");
	glk_slot_enter(span, 0);
	is_str(order(), "bdec", "one in use is not idle");
	is_int(glk_slot_detach(span, 1), 0, "its other mapping goes");
	glk_slot_leave(span, 0, 1, 1);
	is_str(order(), "bdaec", "now it is of those with one");
	is_int(glk_slot_detach(span, 32), 0, "an idle page loses one of three");
	is_str(order(), "bdaec", "and is the youngest of those with two");
	ok(rig_sound(&rig), "sound");
	stop();
}

/* All with as many mappings as there are lists, or more, are alike. */
static void test_many(void)
{
	start();
	for (uint32_t i = 0; i < PAGES; i++)
		make(i, PAGES - i);
	is_str(order(), "lkjihgfabcde", "the last list is by age alone");
	for (uint32_t i = 0; i < PAGES; i++)
		use(i, 0);
	is_str(order(), "lkjihgfabcde", "again");
	use(0, 0);
	is_str(order(), "lkjihgfbcdea", "the one with most is the youngest");
	ok(rig_sound(&rig), "sound");
	stop();
}

static void test_classes(void)
{
	uint32_t small, id;

	start();
	make(0, 1);
	small = rig_place(&rig, GLK_KIND_SMALL, 0, 512);
	id = rig.map.span[GLK_KIND_SMALL].slot[0].page;
	rig_free(&rig, GLK_KIND_SMALL, small);
	is_int(glk_idle_first(&rig.map, GLK_CLASS_SMALL), id, "a small page");
	is_int(glk_idle_next(&rig.map, id), 0, "alone");
	is_str(order(), "a", "a large one, alone");
	small = rig_place(&rig, GLK_KIND_MEDIUM, 0, MIB(2));
	rig_free(&rig, GLK_KIND_MEDIUM, small);
	is_int((int64_t)rig.fake.pages, 2,
		"the medium block had the page of the small one");
	is_int(glk_idle_first(&rig.map, GLK_CLASS_SMALL), id,
		"which is idle with two mappings");
	ok(rig_sound(&rig), "sound");
	stop();
}

/* Two GPUs of one pool: a page that moved from one to the other is on one list. */
static void test_gpus(void)
{
	static struct rig other;
	struct glk_node *nodes;
	uint32_t ours, theirs;

	rig_conf(&rig);
	if (glk_pool_init(&rig.pool, fake_init(&rig.fake), &rig.conf, 2, 0, NULL))
		tap_bail("no pool");
	nodes = rig.pool.nodes;
	fake_init(&other.fake);
	if (glk_map_init(&rig.map, &rig.pool, &nodes[0], &rig.conf, rig.conf.map_span))
		tap_bail("no map");
	rig.fake.size = 0; /* a second reservation at the same addresses */
	free(rig.fake.granule);
	if (glk_map_init(&other.map, &rig.pool, &nodes[1], &rig.conf, rig.conf.map_span))
		tap_bail("no map");
	if (glk_node_grow(&nodes[0], GLK_CLASS_LARGE, 0, &ours) ||
		glk_slot_attach(&rig.map.span[GLK_KIND_LARGE], 0, ours))
		tap_bail("no page");
	glk_idle_put(&rig.map, ours);
	glk_idle_take(&rig.map, ours);
	glk_slot_detach(&rig.map.span[GLK_KIND_LARGE], 0);
	glk_node_release(&nodes[0], ours);
	if (glk_node_grow(&nodes[1], GLK_CLASS_LARGE, 0, &theirs) ||
		glk_slot_attach(&other.map.span[GLK_KIND_LARGE], 0, theirs))
		tap_bail("no page");
	is_int(theirs, ours, "a descriptor serves the other GPU");
	glk_idle_put(&other.map, theirs);
	is_int(glk_idle_first(&other.map, GLK_CLASS_LARGE), theirs, "where it is idle");
	is_int(glk_idle_first(&rig.map, GLK_CLASS_LARGE), 0, "and not on the first");
	glk_slot_detach(&other.map.span[GLK_KIND_LARGE], 0);
	glk_map_fini(&other.map);
	rig.fake.size = rig.map.size;
	glk_map_fini(&rig.map);
	glk_pool_fini(&rig.pool);
	fake_fini(&rig.fake);
	fake_fini(&other.fake);
}

/* More moves than a list has entries to leave behind, against an array in the right order. */
static void test_moves(uint64_t *state)
{
	uint32_t want[PAGES];
	int wrong = 0;

	start();
	for (uint32_t i = 0; i < PAGES; i++) {
		make(i, 1);
		want[i] = i;
	}
	for (int i = 0; i < 300000; i++) {
		uint32_t at = (uint32_t)seed_below(state, PAGES), moved = want[at];
		uint32_t id;

		/* mostly from the front, as pages for requests elsewhere are */
		use(moved, 0);
		memmove(&want[at], &want[at + 1], (PAGES - 1 - at) * sizeof(*want));
		want[PAGES - 1] = moved;
		if (i % 64)
			continue;
		id = glk_idle_first(&rig.map, GLK_CLASS_LARGE);
		for (uint32_t k = 0; k < PAGES; k++, id = glk_idle_next(&rig.map, id))
			wrong += id != page[want[k]];
		wrong += id != 0;
	}
	is_int(wrong, 0, "the order after any number of moves");
	ok(rig_sound(&rig), "sound");
	is_int((int64_t)rig.map.idle_bytes, PAGES * (int64_t)MIB(8), "none was lost");
	stop();
}

/* The same by runs of slots. */
static void test_runs(void)
{
	uint32_t id, n = 0, wrong_slot = 0;

	rig_init(&rig);
	span = &rig.map.span[GLK_KIND_LARGE];
	id = rig_place(&rig, GLK_KIND_LARGE, 0, 16 * MIB(8));
	for (int i = 0; i < 20000; i++) {
		uint32_t first = i % 2 ? 8 : 0;

		glk_slots_leave(span, first, first + 7, 1, 1);
		glk_slots_enter(span, first, first + 7);
	}
	is_int((int64_t)rig.map.idle_bytes, 0, "all are in use at the end");
	is_int(glk_idle_first(&rig.map, GLK_CLASS_LARGE), 0, "and none is on a list");
	rig_free(&rig, GLK_KIND_LARGE, id);
	for (id = glk_idle_first(&rig.map, GLK_CLASS_LARGE); id;
		id = glk_idle_next(&rig.map, id), n++)
		wrong_slot += span->slot[n].page != id;
	ok(n == 16 && !wrong_slot, "freed, all are, in the order of their slots");
	ok(rig_sound(&rig), "sound");
	stop();
}

int main(void)
{
	uint64_t state;

	tap_plan_later();
	state = seed_start() | 1;
	test_order();
	test_many();
	test_classes();
	test_gpus();
	test_moves(&state);
	test_runs();
	return tap_done();
}
