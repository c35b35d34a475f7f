/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A sound map is said to be sound, and each table that does not agree with the others is named:
 * one word at a time is falsified and put right again.
 */
#include "unit/map/serve.h"

static struct rig rig;

/* The map is unsound and the record says `part`. */
#define unsound(part, what)                                                              \
	do {                                                                             \
		is_int(map_verify(&rig.map), -EIO, what);                                \
		is_int(fake_class(), GLAKE_ERROR_CORRUPT, what ": its class");           \
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

/* With a bit turned over. */
#define turned(bits, i, part, what)                                                      \
	falsified((bits)[(i) >> 6], (bits)[(i) >> 6] ^ UINT64_C(1) << ((i)&63), part,    \
		what)

#define sound_again() ok(rig_sound(&rig), "sound again")

static struct glk_map *map = &rig.map;
static uint32_t small[3], block[4], page[4];

static struct glk_extent *at(uint32_t id)
{
	return glk_extent_at(map, id);
}

/*
 * Slots	0	small blocks: live, free, live
 *		1..4	a page of four, two live blocks on it and free space between
 *		5..11	an idle page of seven
 *		12	a page in use here, and stale at 13; 14 shared by an idle one with 15
 *		20..147	two of 64 slots under a block that ends inside
 */
static void build(void)
{
	rig_init(&rig);
	for (unsigned i = 0; i < 3; i++)
		small[i] = rig_alloc(&rig, 65536);
	rig_free(&rig, small[1]);
	rig_raise(&rig, 200);
	rig_new(&rig, 1, 4);
	page[0] = rig_new(&rig, 5, 7);
	page[1] = rig_new(&rig, 13, 1);
	rig_again(&rig, 12, page[1]);
	page[2] = rig_new(&rig, 14, 1);
	rig_again(&rig, 15, page[2]);
	page[3] = rig_new(&rig, 20, 64);
	rig_new(&rig, 84, 64);
	block[0] = rig_enter(&rig, S(1), S(1) + 512);
	block[1] = rig_enter(&rig, S(3), S(2));
	block[2] = rig_enter(&rig, S(12), MIB(1));
	block[3] = rig_enter(&rig, S(21), S(110));
}

/* The word of an extent in another state. */
static uint64_t state_of(uint32_t id, enum glk_extent_state state)
{
	glk_atomic(uint64_t) word = glk_load_relaxed(&at(id)->word);

	glk_word_set(&word, state);
	return word;
}

static void test_rows(void)
{
	uint32_t hole = at(block[0])->next;

	falsified(map->high, map->high + 512, "the mark is",
		"a mark above the last extent");
	falsified(map->last, block[3], "the mark is", "another last extent");
	falsified(at(hole)->offset, at(hole)->offset + 512, "does not begin",
		"a gap between extents");
	falsified(at(hole)->prev, block[1], "does not begin", "a link back to another");
	falsified(at(block[0])->next, block[1], "does not begin",
		"a link that leaves one out");
	falsified(at(block[0])->next, 0, "the mark is", "a row that breaks off");
	falsified(at(block[1])->prev, 0, "begins no range", "one that nobody precedes");
	falsified(at(block[0])->size, S(1) + 100, "bytes at", "a size off the grain");
	falsified(at(block[0])->size, 0, "bytes at", "no size");
	falsified(at(map->last)->size, GIB(5), "bytes at", "one that leaves its range");
	falsified(at(block[0])->addr, glk_map_addr(map, S(2)), "bytes at",
		"a wrong address");
	falsified(at(block[0])->word, state_of(block[0], GLK_EXTENT_NONE), "",
		"an extent in no state");
	falsified(at(hole)->word, state_of(hole, GLK_EXTENT_LIVE), "not found",
		"live without being found");
	falsified(at(block[0])->word, state_of(block[0], GLK_EXTENT_FREE),
		"not in the tree", "free by state only");
	falsified(at(small[0])->word, state_of(small[0], GLK_EXTENT_FREE),
		"not in the tree", "a small one, too");
	falsified(at(block[3])->word, state_of(block[3], (enum glk_extent_state)3),
		"state 3", "a state that is none");
	falsified(at(block[3])->word, state_of(block[3], GLK_EXTENT_HELD),
		"with 0 holders", "held by nobody");
	falsified(at(block[3])->word, at(block[3])->word + GLK_WORD_HOLDER,
		"with 1 holders", "held, and said to be live");
	falsified(map->taken, map->taken + 512, "given out", "a wrong sum");
	falsified(map->nested_taken, map->nested_taken + 512, "of them nested",
		"a wrong sum of small ones");
	at(block[2])->word = state_of(block[2], GLK_EXTENT_QUICK);
	ok(rig_sound(&rig), "a quick one is sound");
	at(block[2])->word = state_of(block[2], GLK_EXTENT_LIVE);
	ok(glk_word_hold(&at(block[2])->word, &at(block[2])->addr, at(block[2])->addr) &&
			rig_sound(&rig),
		"one that a thread holds is sound");
	glk_word_let_go(&at(block[2])->word);
	sound_again();
}

static void test_trees(void)
{
	uint32_t hole = at(block[0])->next;
	uint32_t *root = &map->common.root[glk_tree_class(at(hole)->size)];

	falsified(map->common.count, map->common.count + 1, "holds",
		"a count of free extents");
	falsified(map->nested.count, 1, "holds", "of nested ones");
	falsified(*root, 0, "not in the tree", "an empty class");
	turned(map->common.some, glk_tree_class(at(hole)->size), "does not tell",
		"a class that is not told of");
	turned(map->nested.some, 1, "does not tell", "an empty one that is");
	glk_tree_remove(map, &map->common, hole);
	unsound("not in the tree", "one that is missing");
	glk_tree_insert(map, &map->nested, hole);
	unsound("not in the tree", "one in the other tree");
	glk_tree_remove(map, &map->nested, hole);
	glk_tree_insert(map, &map->common, hole);
	at(block[0])->word = state_of(block[0], GLK_EXTENT_FREE);
	glk_tree_insert(map, &map->common, block[0]);
	unsound("free beside", "two free ones that touch");
	glk_tree_remove(map, &map->common, block[0]);
	at(block[0])->word = state_of(block[0], GLK_EXTENT_LIVE);
	at(block[0])->marks = 0;
	sound_again();
}

static void test_nests(void)
{
	uint32_t nest = glk_load_relaxed(&map->start[0]) & ~GLK_START_NEST;
	glk_atomic(uint32_t) *entry = &glk_nest_entries(map, nest)[0];
	glk_atomic(uint32_t) *start = map->start;

	falsified(at(small[0])->nested, false, "of them nested",
		"a small block of the others");
	falsified(at(block[2])->nested, true, "nested", "a large one in a nest");
	falsified(*entry, small[2], "not found", "another block at a grain");
	falsified(*entry, 0, "not found", "none");
	falsified(glk_nest_entries(map, nest)[9], small[0], "grain 9", "one more entry");
	turned(glk_nest_begins(map, nest), 4000, "grain 4000", "a begin of nobody");
	falsified(start[1], 0, "not inside a nest", "an eighth that leads elsewhere");
	falsified(start[7], GLK_START_NEST | (nest + 1), "two nests",
		"or there where nobody is");
	falsified(
		start[80], GLK_START_NEST | nest, "does not begin there", "and one more");
	falsified(
		map->nested_bytes, map->nested_bytes + 512, "of nests", "bytes of none");
	falsified(map->nests.live, 2, "nests", "a nest of no slot");
	sound_again();
}

static void test_lookup(void)
{
	glk_atomic(uint32_t) *start = map->start;

	glk_lookup_leave(map, block[0]);
	unsound("not found", "a block without its entry");
	glk_lookup_enter(map, block[0]);
	falsified(start[8], block[1], "not found", "with that of another");
	falsified(start[24], 0, "not found", "with none");
	falsified(start[20], block[1], "a begin at eighth 4", "an entry too many");
	turned(map->begins, 20, "a begin at eighth 4", "a begin too many");
	turned(map->begins, 200, "a begin at eighth 0", "far from any block");
	falsified(map->cover[1], 0, "group 1", "a block that covers nothing");
	falsified(map->cover[1], block[0], "group 1", "that another covers for");
	falsified(map->cover[glk_map_end(map) >> GLK_GROUP_SHIFT], block[0],
		"does not reach into it", "in the last group too");
	falsified(map->cover[2], 0, "not found", "nor its end");
	falsified(map->cover[0], block[0], "does not reach", "a cover of nobody");
	sound_again();
}

static void test_counts(void)
{
	falsified(map->count[2], 2, "live extents", "one too many on a slot");
	falsified(map->count[1], 0, "live extents", "one too few");
	falsified(map->count[22], 1, "inside extent", "one inside another");
	falsified(map->count[160], 1, "live extents", "one where none is");
	turned(map->busy, 5, "live extents", "busy for nobody");
	turned(map->busy, 30, "inside extent", "a block that is not busy");
	turned(map->busy, 131, "live extents", "behind its end");
	sound_again();
}

static void test_mappings(void)
{
	struct glk_page *shared = rig_page(&rig, page[1]),
			*idle = rig_page(&rig, page[0]);

	falsified(map->page[7], page[1], "inside a mapping", "a slot of another page");
	falsified(map->page[7], 0, "inside a mapping", "or of none");
	falsified(map->page[18], page[0], "its chain", "a mapping of no chain");
	falsified(map->page[18], 5000, "is EMPTY", "a page that is none");
	turned(map->mapped, 22, "not mapped", "part of a mapping that is not mapped");
	turned(map->mapped, 205, "above the high-water", "a mapping above the mark");
	turned(map->usable, 13, "in use elsewhere", "stale and usable");
	turned(map->usable, 12, "in use here", "in use and not usable");
	turned(map->usable, 8, "usable on 6 of 7", "usable in part");
	turned(map->lost, 8, "said to be lost", "lost and mapped");
	turned(map->shared, 8, "shared on 1 of 7", "shared in part");
	turned(map->shared, 13, "several mappings", "not shared");
	turned(map->head, 5, "is not marked so", "a mapping that begins nowhere");
	turned(map->head, 8, "not marked so", "one that begins inside another");
	turned(map->wide, 5, "wide on 6 of 7",
		"one of several slots, of which one is not");
	turned(map->wide, 13, "wide on 1 of 1",
		"one of one slot that is said to have more");
	turned(map->head, 18, "no page", "a beginning without a page");
	turned(map->wide, 18, "no page", "several slots without a page");
	turned(map->usable, 18, "no page", "usable without a page");
	turned(map->shared, 18, "no page", "shared without a page");
	falsified(shared->in_use, 13, "in use at", "in use at another slot");
	falsified(shared->in_use, GLK_NO_SLOT, "in use at", "in use by nobody");
	falsified(shared->aliases, 1, "in its chain", "a count below the chain");
	falsified(shared->aliases, 3, "in its chain", "a count above the chain");
	falsified(shared->first_alias, 13, "in its chain", "a chain that lost a mapping");
	falsified(map->alias[13], 12, "in its chain", "a chain that turns back");
	falsified(map->alias[13], 14, "does not hold", "a chain that leads elsewhere");
	falsified(idle->size, S(8), "inside a mapping", "a page that is longer");
	falsified(idle->size, S(7) + 512, "whole slots", "or odd");
	falsified(idle->class, GLK_CLASS_LARGE, "of class", "a class of another size");
	falsified(idle->node, 3, "of class", "a page of another node");
	glk_page_move(idle, GLK_PAGE_OWNED, GLK_PAGE_LOST);
	unsound("is LOST", "a lost page that is mapped");
	glk_store_relaxed(&idle->word, GLK_PAGE_OWNED);
	glk_page_take(map, page[0]);
	unsound("usable on 0 of 7", "a page that is taken");
	glk_page_put_back(map, page[0]);
	sound_again();
}

static void test_sums(void)
{
	falsified(map->space->mapped_bytes, map->space->mapped_bytes - 512,
		"bytes mapped", "mapped bytes");
	falsified(map->space->of[0].page_bytes, map->space->of[0].page_bytes + S(1),
		"bytes mapped", "bytes of pages");
	falsified(map->space->of[0].idle_slots, map->space->of[0].idle_slots + 1,
		"idle pages", "idle slots");
	falsified(map->space->of[0].stranded, map->space->of[0].stranded + 1, "stranded",
		"stranded slots");
	glk_bit_set(map->mapped, 18);
	ok(rig_sound(&rig), "a slot out of use for good is sound");
	glk_bit_clear(map->mapped, 18);
	sound_again();
}

static void test_groups(void)
{
	struct glk_idle_links *all = map->idle, links = all[1];

	falsified(all[0].older, 4, "list of groups", "another newest");
	falsified(all[0].newer, all[0].older, "list of groups", "another oldest");
	falsified(all[1].older, 1, "list of groups", "a link back to itself");
	falsified(all[1].newer, 1, "list of groups", "a link to itself");
	falsified(all[all[0].older].newer, 4, "list of groups",
		"a link to one that is not");
	falsified(all[4].older, 1, "list of groups", "one that is linked from one side");
	falsified(map->space->of[0].listed, map->space->of[0].listed + 1,
		"list of groups", "one more than there are");
	all[links.older].newer = links.newer;
	all[links.newer].older = links.older;
	all[1] = (struct glk_idle_links){0};
	map->space->of[0].listed--;
	unsound("on no list", "an idle page in a group on no list");
	glk_idle_touch(map, 0, 0);
	sound_again();
}

int main(void)
{
	tap_plan_later();
	rig_init(&rig);
	ok(rig_sound(&rig), "an empty map is sound");
	rig_fini(&rig);
	build();
	ok(rig_sound(&rig), "a map with every kind of block is sound");
	test_rows();
	test_trees();
	test_nests();
	test_lookup();
	test_counts();
	test_mappings();
	test_sums();
	test_groups();
	rig_stop(&rig);
	return tap_done();
}
