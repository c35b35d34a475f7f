/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Plans that have to take mappings away first: wider ones than their place, of pages that have
 * several, some of which other plans need too. */
#include "plan_parts.h"

/* Two places of 16 MiB, whose four pages are in use through a third mapping each, or, where a second
 * block is given, through a fourth one. No addresses are left but those of the two. */
struct scene {
	struct held apart[3], wide[2], rest;
	uint64_t place[2];
	struct CUstream_st *s;
};

static void fill_addresses(struct rig *rig, struct scene *sc)
{
	const struct glk_map *map = &rig->cache.arena.map;

	if (plan_take(rig, &sc->rest, map->most - map->high, sc->s))
		tap_bail(rig_error().text);
}

static void set_up(struct rig *rig, struct scene *sc, bool twice)
{
	struct held place[2];

	*sc = (struct scene){.s = rig_stream(rig)};
	for (int i = 0; i < 2; i++) {
		plan_take(rig, &place[i], 16 * MIB, sc->s);
		plan_take(rig, &sc->apart[i], 2 * MIB, sc->s);
		sc->place[i] = place[i].addr;
	}
	for (int i = 0; i < 2; i++)
		plan_drop(rig, &place[i], sc->s);
	glk_store_relaxed(&rig->cache.node->budget, 36 * MIB);
	plan_take(rig, &sc->wide[0], 32 * MIB, sc->s);
	if (twice) {
		glk_store_relaxed(&rig->cache.node->budget, 54 * MIB);
		plan_take(rig, &sc->apart[2], 2 * MIB, sc->s);
		plan_drop(rig, &sc->wide[0], sc->s);
		plan_take(rig, &sc->wide[1], 48 * MIB, sc->s);
	}
	glk_store_relaxed(&rig->cache.node->budget, UINT64_MAX);
	fill_addresses(rig, sc);
}

static bool clear_up(struct rig *rig, struct scene *sc)
{
	bool same = plan_drop(rig, &sc->rest, sc->s);

	for (int i = 0; i < 3; i++)
		same &= plan_drop(rig, &sc->apart[i], sc->s);
	for (int i = 0; i < 2; i++)
		same &= plan_drop(rig, &sc->wide[i], sc->s);
	return same;
}

static const char *const few_addresses[] = {
	"policy.bins=0", "map.span=1GiB", "soft.memory=2GiB", "pool.pages=8192", NULL};

/* A needs 3 MiB of a place whose mapping is of 8: while that goes nobody may have the rest, and when
 * it stays nobody can. */
static void wider_than_the_place(int err)
{
	struct errand e = {.fn = errand_alloc, .size = 3 * MIB};
	struct held list[5], got;
	struct scene sc;
	struct rig rig;
	int count = 0, torn = 0;

	gate_open_rig(&rig, few_addresses);
	set_up(&rig, &sc, false);
	e.rig = &rig;
	e.stream = sc.s;
	ok(gate_send(&e, GLK_OP_unmap, 1), "a mapping that is stale has to go first");
	for (; count < 5 && !plan_take(&rig, &list[count], 4 * MIB, sc.s); count++)
		torn += list[count].addr < sc.place[0] + 8 * MIB &&
			list[count].addr + list[count].size > sc.place[0];
	ok(count == 5, "others find places beside it");
	is_int(torn, 0, "and none in what it covers");
	for (int i = 0; i < count; i += 2)
		plan_drop(&rig, &list[i], sc.s);
	is_int(gate_end(&e, err), err, "it ends as the call does");
	got = plan_got(&e);
	for (int i = 0; i < count; i++)
		torn += plan_overlap(&got, &list[i]);
	is_int(torn, 0, "blocks lie apart");
	is_sound(&rig, "the books agree");
	for (int i = 0; i < count; i++)
		torn += !plan_drop(&rig, &list[i], sc.s);
	torn += !plan_drop(&rig, &got, sc.s);
	ok(!torn && clear_up(&rig, &sc), "they keep what was written");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
	tap_expect_log(tap.logs - tap.expected);
}

/* A and B need the places of two mappings of the same pages. */
static void of_the_same_page(int err, bool free_first)
{
	struct errand e = {.fn = errand_alloc, .size = 14 * MIB};
	struct held got, second;
	uint64_t unused;
	struct scene sc;
	struct rig rig;
	bool same;

	gate_open_rig(&rig, few_addresses);
	set_up(&rig, &sc, true);
	e.rig = &rig;
	e.stream = sc.s;
	ok(gate_send(&e, GLK_OP_unmap, 1), "a request takes a mapping away");
	is_int(plan_take(&rig, &second, 30 * MIB, sc.s), 0,
		"another one meanwhile another mapping of the same pages");
	if (free_first)
		ok(plan_drop(&rig, &sc.wide[1], sc.s), "who used the pages is gone");
	if (free_first)
		is_int(glk_cache_trim(&rig.cache, 0, false, &unused), 0,
			"a trim comes by");
	is_int(gate_end(&e, err), err, "it ends as the call does");
	got = plan_got(&e);
	ok(!plan_overlap(&got, &second), "blocks lie apart");
	is_sound(&rig, "the books agree");
	same = plan_drop(&rig, &got, sc.s);
	same &= plan_drop(&rig, &second, sc.s);
	ok(same && clear_up(&rig, &sc), "they keep what was written");
	is_sound(&rig, "the books agree");
	/* a page whose mapping the driver keeps is lost when it is to be given back */
	is_int(glk_cache_trim(&rig.cache, 0, false, &unused), free_first ? 0 : err,
		"all goes back");
	is_int((int64_t)rig_figures(&rig).reserved, (int64_t)rig_figures(&rig).lost,
		"but what the driver keeps");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
	tap_expect_log(tap.logs - tap.expected);
}

/* A mapping that a trim takes away is of a page that is about to go to the driver, and others need
 * the places of its other mappings. */
static void of_a_page_in_hands(int err)
{
	struct errand e = {.fn = errand_trim};
	struct held second;
	struct scene sc;
	struct rig rig;
	bool same;

	gate_open_rig(&rig, few_addresses);
	set_up(&rig, &sc, true);
	e.rig = &rig;
	same = plan_drop(&rig, &sc.wide[1], sc.s);
	ok(gate_send(&e, GLK_OP_unmap, 1), "a trim takes a mapping away");
	is_int(plan_take(&rig, &second, 30 * MIB, sc.s), 0,
		"a request has a place with other mappings of the same pages");
	is_int(gate_end(&e, err), err, "it ends as the call does");
	is_sound(&rig, "the books agree");
	same &= plan_drop(&rig, &second, sc.s);
	ok(same && clear_up(&rig, &sc), "blocks keep what was written");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
	tap_expect_log(tap.logs - tap.expected);
}

/* Free pages of which the driver keeps a mapping. */
static int free_and_kept(const struct rig *rig)
{
	uint32_t last = glk_load_relaxed(&rig->pool.pages.used);
	int count = 0;

	for (uint32_t id = 1; id <= last; id++) {
		const struct glk_page *page = glk_page_at(&rig->pool, id);

		count += glk_page_state(page) == GLK_PAGE_FREE && page->kept;
	}
	return count;
}

/* A page of which the driver keeps a mapping serves on: here a pool of graphs, which leaves it in the
 * list of free ones. From there too it goes back at the end. */
static void serves_on(void)
{
	struct held got;
	struct glk_node *node;
	struct scene sc;
	struct rig rig;

	rig_open(&rig, few_addresses);
	set_up(&rig, &sc, false);
	glk_fault_set(rig.drv, "unmap:nth=1:err=EIO");
	is_int(plan_take(&rig, &got, 3 * MIB, sc.s), -EIO,
		"the driver keeps a mapping of a page in use");
	glk_fault_set(rig.drv, "off");
	ok(plan_drop(&rig, &sc.wide[0], sc.s), "who used the page is gone");
	/* the pool gets none from the driver */
	node = rig.cache.node;
	glk_store_relaxed(&node->budget, glk_load_relaxed(&node->held));
	is_int(rig_begin(&rig, 1, sc.s), 0, "a pool");
	rig_capture(&rig, sc.s);
	is_int(plan_take(&rig, &got, 32 * MIB, sc.s), 0, "takes the idle pages");
	ok(plan_drop(&rig, &got, sc.s), "and has no other use of them");
	rig_drop(&rig, rig_capture_end(&rig, sc.s));
	is_int(rig_end_pool(&rig, 1), 0, "it ends");
	is_int(rig_release(&rig, 1), 0, "and leaves them to all");
	is_int(free_and_kept(&rig), 1, "that page is a free one");
	ok(clear_up(&rig, &sc), "blocks keep what was written");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
	tap_expect_log(1);
}

#define STRANDED 12

/* So much memory is stranded that an idle page gives no part of itself to a place that it reaches
 * beyond: it goes first, and others have not its place until it is gone. */
static void at_the_end(const struct plan_op *op, int err)
{
	struct errand e = {.fn = errand_alloc, .size = 10 * MIB};
	struct held page[STRANDED], apart[STRANDED + 1], hole, live, list[4];
	struct CUstream_st *s;
	struct rig rig;
	struct glk_node *node;
	uint64_t unused;
	bool same = true;
	int missed = 0;

	gate_open_rig(
		&rig, (const char *const[]){"policy.bins=0", "pool.budget=206MiB", NULL});
	s = rig_stream(&rig);
	plan_take(&rig, &live, 60 * MIB, s);
	for (int i = 0; i < STRANDED; i++) {
		plan_take(&rig, &page[i], 8 * MIB, s);
		plan_take(&rig, &apart[i], 2 * MIB, s);
	}
	plan_take(&rig, &hole, 16 * MIB, s);
	plan_take(&rig, &apart[STRANDED], 2 * MIB, s);
	for (int i = 0; i < STRANDED; i++) {
		plan_drop(&rig, &page[i], s);
		plan_take(&rig, &page[i], 4 * MIB + 512, s);
	}
	same &= plan_drop(&rig, &hole, s);
	e.rig = &rig;
	e.stream = s;
	/* pages that are mapped nowhere would do */
	node = rig.cache.node;
	is_int(glk_cache_trim(&rig.cache,
		       glk_load_relaxed(&node->held) - glk_node_free(node), false,
		       &unused),
		0, "memory is short");
	glk_store_relaxed(&node->budget, glk_load_relaxed(&node->held) + 4 * MIB);
	ok(glk_supply_tight(&rig.cache.arena, e.size), "and much of it stranded");
	ok(gate_send(&e, op->op, 1), "for a place with a part of a page one stands in %s",
		op->name);
	ok(op->op != GLK_OP_unmap || rig.cache.arena.map.space->claims,
		"which is its plan's");
	for (int i = 0; i < 3; i++)
		missed += plan_take(&rig, &list[i], (size_t)(i + 1) * MIB + 512, s) != 0;
	is_int(missed, 0, "others are served");
	same &= plan_drop(&rig, &list[1], s);
	is_int(gate_end(&e, err), err, "it ends as the call does");
	list[3] = plan_got(&e);
	for (int i = 0; i < 3; i++)
		ok(!plan_overlap(&list[3], &list[i]), "blocks lie apart");
	is_sound(&rig, "the books agree");
	for (int i = 0; i < 4; i++)
		same &= plan_drop(&rig, &list[i], s);
	for (int i = 0; i < STRANDED; i++)
		same &= plan_drop(&rig, &page[i], s);
	same &= plan_drop(&rig, &live, s);
	for (int i = 0; i <= STRANDED; i++)
		same &= plan_drop(&rig, &apart[i], s);
	ok(same, "they keep what was written");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
	tap_expect_log(tap.logs - tap.expected);
}

int main(void)
{
	tap_plan_later();
	wider_than_the_place(0);
	wider_than_the_place(-EIO);
	for (int i = 0; i < 2; i++) {
		of_the_same_page(0, i);
		of_the_same_page(-EIO, i);
	}
	of_a_page_in_hands(0);
	of_a_page_in_hands(-EIO);
	serves_on();
	for (size_t i = 0; i < PLAN_OPS - 1; i++) {
		at_the_end(&plan_ops[i], 0);
		at_the_end(&plan_ops[i], -EIO);
	}
	return tap_done();
}
