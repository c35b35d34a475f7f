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
		is_int(glk_cache_trim(&rig.cache, 0, &unused), 0, "a trim comes by");
	is_int(gate_end(&e, err), err, "it ends as the call does");
	got = plan_got(&e);
	ok(!plan_overlap(&got, &second), "blocks lie apart");
	is_sound(&rig, "the books agree");
	same = plan_drop(&rig, &got, sc.s);
	same &= plan_drop(&rig, &second, sc.s);
	ok(same && clear_up(&rig, &sc), "they keep what was written");
	is_sound(&rig, "the books agree");
	/* a page whose mapping the driver keeps is lost when it is to be given back */
	is_int(glk_cache_trim(&rig.cache, 0, &unused), free_first ? 0 : err,
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
	return tap_done();
}
