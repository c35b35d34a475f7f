/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A sound map is said to be sound, and each book that does not agree with the others is named:
 * one word at a time is falsified and put right again.
 */
#include "unit/map/rig.h"

static struct rig rig;

/* The map is unsound and the record says `part`. */
#define unsound(part, what)                                                              \
	do {                                                                             \
		is_int(glk_map_verify(&rig.map), -EIO, what);                            \
		has_str(fake_text(), part, what ": named");                              \
	} while (0)

/* With `lvalue` set to `value` for a moment. */
#define falsified(lvalue, value, part, what)                                             \
	do {                                                                             \
		__typeof__(lvalue) was = (lvalue);                                       \
		(lvalue) = (value);                                                      \
		unsound(part, what);                                                     \
		(lvalue) = was;                                                          \
	} while (0)

static uint32_t small[4], medium[3], large[2], single;
static uint32_t page, slot;

/*
 * small	live, free, live, free to the mark; one page
 * large	two blocks of 12 MiB that share their middle page; the first is freed, so that
 *		its first page is idle and mapped at a second place too
 */
static void build(void)
{
	struct glk_span *span = &rig.map.span[GLK_KIND_LARGE];

	rig_init(&rig);
	for (unsigned i = 0; i < 4; i++)
		small[i] = rig_place(&rig, GLK_KIND_SMALL, i * 65536, 65536);
	rig_free(&rig, GLK_KIND_SMALL, small[1]);
	rig_free(&rig, GLK_KIND_SMALL, small[3]);
	for (unsigned i = 0; i < 3; i++)
		medium[i] = rig_place(&rig, GLK_KIND_MEDIUM, i * MIB(3), MIB(3));
	rig_free(&rig, GLK_KIND_MEDIUM, medium[1]);
	large[0] = rig_place(&rig, GLK_KIND_LARGE, 0, MIB(12));
	large[1] = rig_place(&rig, GLK_KIND_LARGE, MIB(12), MIB(12));
	rig_free(&rig, GLK_KIND_LARGE, large[0]);
	page = span->slot[0].page;
	glk_idle_take(&rig.map, page);
	slot = 7;
	if (glk_extent_carve(span, 0, MIB(56), MIB(8), &large[0]) ||
		glk_slot_attach(span, slot, page))
		tap_bail("no alias");
	glk_slot_enter(span, slot);
	glk_lookup_enter(span, large[0]);
	single = rig_single(&rig, MIB(2), MIB(6));
}

/* The word of an extent in another state. */
static uint64_t state_of(const struct glk_map *map, uint32_t id, enum glk_extent_state state)
{
	glk_atomic(uint64_t) word = glk_load_relaxed(&glk_extent_at(map, id)->word);

	glk_word_set(&word, state);
	return word;
}

static void test_extents(void)
{
	struct glk_map *map = &rig.map;
	struct glk_span *span = &map->span[GLK_KIND_SMALL];
	struct glk_extent *e = glk_extent_at(map, small[1]);

	falsified(span->high, span->high + 512, "last extent",
		"a mark above the last extent");
	falsified(e->offset, e->offset + 512, "does not begin", "a gap between extents");
	falsified(glk_extent_at(map, small[0])->next, small[2], "does not begin",
		"a link that passes one over");
	falsified(glk_extent_at(map, small[0])->size, 65536 - 100, "does not begin",
		"a size off the grain");
	falsified(e->word, state_of(map, small[1], GLK_EXTENT_LIVE), "not found", "live without being found");
	falsified(e->word, state_of(map, small[1], GLK_EXTENT_NONE), "state 0", "an extent in no state");
	falsified(glk_extent_at(map, small[2])->word, state_of(map, small[2], GLK_EXTENT_FREE), "",
		"free by state only");
	falsified(glk_extent_at(map, small[2])->word, state_of(map, small[2], GLK_EXTENT_PARKED), "state 2",
		"parked, and not contiguous");
	falsified(span->free_count, 3, "counted", "a wrong count of free extents");
	falsified(span->live_count, 3, "counted", "a wrong count of live extents");
	falsified(span->root, 0, "not in the tree", "an empty tree");
	glk_tree_insert(&map->span[GLK_KIND_MEDIUM], small[1]);
	map->span[GLK_KIND_MEDIUM].free_count--;
	unsound("tree does not hold", "a live extent in the tree");
	map->span[GLK_KIND_MEDIUM].free_count++;
	glk_tree_remove(&map->span[GLK_KIND_MEDIUM], small[1]);
	ok(rig_sound(&rig), "sound again");
}

static void test_lookup(void)
{
	struct glk_map *map = &rig.map;
	struct glk_span *span = &map->span[GLK_KIND_MEDIUM];
	struct glk_span *low = &map->span[GLK_KIND_SMALL];

	glk_lookup_leave(span, medium[0]);
	unsound("not found", "a block without its entry");
	glk_lookup_enter(span, medium[0]);
	falsified(span->slot[1].cover, 0, "not found", "a block that covers nothing");
	falsified(span->slot[2].cover, medium[0], "reach in",
		"a cover that does not reach");
	falsified(
		span->more[2].start[0], medium[0], "does not begin", "a start elsewhere");
	glk_bit_set(low->begins, 128);
	unsound("do not begin there", "a start of a freed small block");
	glk_bit_clear(low->begins, 128);
	ok(rig_sound(&rig), "sound again");
}

static void test_slots(void)
{
	struct glk_map *map = &rig.map;
	struct glk_span *span = &map->span[GLK_KIND_LARGE];
	struct glk_page *p = glk_map_page(map, page);

	falsified(span->slot[1].live, 2, "live extents counted",
		"a slot with one too many");
	falsified(span->slot[0].live, 1, "in use at", "a live extent that is none");
	falsified(map->span[GLK_KIND_SINGLE].slot[2].live, 1, "no page",
		"a live extent on a slot without a page");
	falsified(p->in_use, GLK_NO_SLOT, "bits", "in use by state, idle by page");
	falsified(p->in_use, 0, "bits", "in use at a slot that is not its own");
	falsified(p->aliases, 1, "in its chain", "a count of mappings below the chain");
	falsified(p->aliases, 3, "in its chain", "a count of mappings above the chain");
	falsified(p->first_alias, glk_slot_name(span, 0), "in its chain",
		"a chain that lost a slot");
	falsified(p->class, GLK_CLASS_SMALL, "class", "a page of the wrong class");
	falsified(
		span->slot[1].place, 8, "on an idle list", "in use and on an idle list");
	glk_page_move(p, GLK_PAGE_OWNED, GLK_PAGE_LOST);
	unsound("LOST", "a lost page that is mapped");
	glk_store_relaxed(&p->word, GLK_PAGE_OWNED);
	glk_bit_set(span->usable, 0);
	unsound("usable", "usable while in use elsewhere");
	glk_bit_clear(span->usable, 0);
	glk_bit_clear(span->mapped, 1);
	unsound("bits mapped 0", "a page on a slot that is not mapped");
	glk_bit_set(span->mapped, 1);
	glk_bit_set(span->mapped, 100);
	unsound("high-water", "a mapping above the mark");
	glk_bit_clear(span->mapped, 100);
	glk_bit_set(span->mapped, 4);
	ok(rig_sound(&rig), "a slot out of use for good is sound");
	glk_bit_set(span->usable, 4);
	unsound("no page", "usable without a page");
	glk_bit_clear(span->usable, 4);
	glk_bit_clear(span->mapped, 4);
	ok(rig_sound(&rig), "sound again");
}

static void test_idle(void)
{
	struct glk_map *map = &rig.map;
	uint32_t id = glk_idle_first(map, GLK_CLASS_SMALL);
	uint32_t name = glk_map_page(map, id)->first_alias;
	struct glk_slot *s;

	ok(id != 0, "there is an idle page");
	s = &glk_slot_span(map, name)->slot[glk_slot_number(name)];
	falsified(
		s->place, s->place ^ 1, "idle list", "on another list than it should be");
	falsified(s->place, 0, "on an idle list 0", "idle and on no list");
	falsified(map->idle_bytes, map->idle_bytes + 1, "booked",
		"a wrong sum of idle bytes");
	falsified(map->mapped_bytes, map->mapped_bytes - 1, "booked",
		"a wrong sum of mappings");
	glk_idle_take(map, id);
	unsound("on an idle list 0", "a page in somebody's hands");
	glk_idle_put(map, id);
	ok(rig_sound(&rig), "sound again");
}

int main(void)
{
	tap_plan_later();
	rig_init(&rig);
	ok(rig_sound(&rig), "an empty map is sound");
	rig_fini(&rig);
	build();
	ok(rig_sound(&rig), "a map with every kind of block is sound");
	test_extents();
	test_lookup();
	test_slots();
	test_idle();
	is_int((int64_t)rig.fake.broken, 0, "no rule of the driver was broken");
	rig_fini(&rig);
	return tap_done();
}
