/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* From addresses to extents: the edges of every size. */
#include "unit/map/serve.h"

static struct rig rig;

static uint32_t enter(uint64_t offset, uint64_t size)
{
	return rig_carve(&rig, offset, size);
}

static void leave(uint32_t id)
{
	glk_lookup_leave(&rig.map, id);
	glk_extent_give_back(&rig.map, id);
}

static uint32_t find(uint64_t offset)
{
	const struct glk_range *range = glk_map_range(&rig.map, offset);

	return glk_lookup_around(range, range->base + (offset - range->offset));
}

static uint32_t begins(uint64_t offset)
{
	const struct glk_range *range = glk_map_range(&rig.map, offset);

	return glk_lookup_first(range, range->base + (offset - range->offset));
}

/* Base, inside, last byte; one before and one past belong to others. */
static bool edges(uint32_t id)
{
	struct glk_extent *e = glk_extent_at(&rig.map, id);
	uint64_t end = e->offset + e->size;
	int wrong = 0;

	wrong += begins(e->offset) != id;
	for (uint64_t at = e->offset;
		at<end; at += e->size> S(64) ? S(1) / 2 - 512 : e->size / 97 + 1)
		wrong += find(at) != id;
	wrong += find(e->offset) != id || find(end - 1) != id;
	wrong += find(end) == id || (e->offset && find(e->offset - 1) == id);
	return !wrong;
}

static void test_common(void)
{
	uint32_t a, b, c;
	uint64_t small = S(1) / 8;

	rig_init(&rig);
	is_int(find(0), 0, "nothing in an empty map");
	a = enter(0, S(1) / 2);
	b = enter(S(1) / 2, small + 512);
	ok(edges(a) && edges(b), "half a slot, and the smallest block behind it");
	is_int(find(S(1) / 2 + small + 512), 0, "nothing above the mark");
	c = enter(S(3) - 512, S(200) + 1024);
	ok(edges(c), "over 202 slots and four groups");
	is_int(find(S(64)), c, "the first byte of a group");
	is_int(find(S(3) - 513), 0, "nothing before it");
	leave(b);
	is_int(find(S(1) / 2), 0, "freed: base");
	is_int(find(S(1) / 2 + small + 511), 0, "freed: last byte");
	is_int(find(S(1) / 2 - 1), a, "its neighbour is still there");
	b = enter(S(3) - 512 - small - 512, small + 512);
	ok(edges(b) && edges(c) && edges(a), "one that ends where another begins");
	leave(c);
	is_int(find(S(64)), 0, "freed with its groups");
	is_int(find(S(130) + 5), 0, "and all its slots");
	ok(edges(b), "and nobody else");
	c = enter(S(3) - 512, S(61) + 512);
	is_int(find(S(64)), 0, "one that ends where a group does");
	ok(edges(c), "does not reach into the next");
	rig_stop(&rig);
}

/* As many blocks in a row as can begin in a slot. */
static void test_row(void)
{
	uint32_t id[200];
	uint64_t size = S(1) / 8 + 512;
	int wrong = 0;

	rig_init(&rig);
	for (uint32_t i = 0; i < 200; i++)
		id[i] = enter(i * size, size);
	for (uint32_t i = 0; i < 200; i++)
		wrong += !edges(id[i]);
	is_int(wrong, 0, "200 blocks of an eighth of a slot and a grain");
	for (uint32_t i = 0; i < 200; i += 2)
		leave(id[i]);
	for (uint32_t i = 0; i < 200; i++)
		wrong += i % 2 ? !edges(id[i]) : find(i * size + 7) != 0;
	is_int(wrong, 0, "every second one freed");
	rig_stop(&rig);
}

static void open_nest(uint32_t slot)
{
	uint32_t id, from = rig_at(&rig, S(slot));

	if (glk_extent_carve(&rig.map, from, S(slot), S(1), &id) ||
		glk_nest_open(&rig.map, id))
		tap_bail("no nest");
}

/* Every grain of a slot begins a block, in every size up to an eighth. */
static void test_nested(void)
{
	static uint32_t id[4096];
	int wrong = 0;

	rig_init(&rig);
	for (uint32_t grains = 1; grains <= 512;
		grains = grains < 8 ? grains + 1 : grains * 2) {
		uint32_t n = 4096 / grains;

		rig_carve(&rig, 0, S(1));
		open_nest(1);
		for (uint32_t i = 0; i < n; i++)
			id[i] = enter(S(1) + i * grains * 512, grains * 512);
		for (uint32_t i = 0; i < 4096; i++) {
			uint32_t want = i / grains < n ? id[i / grains] : 0;

			wrong += find(S(1) + i * 512) != want;
			wrong += find(S(1) + i * 512 + 511) != want;
			wrong += begins(S(1) + i * 512) != (i % grains ? 0 : want);
		}
		wrong += find(S(1) - 1) != rig_at(&rig, 0) || find(S(2)) != 0;
		for (uint32_t i = 0; i < n; i++)
			leave(id[i]);
		wrong += glk_load_relaxed(&rig.map.nests.live) != 0;
		leave(rig_at(&rig, 0));
	}
	is_int(wrong, 0, "found from each grain of a slot of small blocks");
	ok(rig_sound(&rig), "sound");
	rig_stop(&rig);
}

/* Nests between large blocks, and two side by side. */
static void test_beside(void)
{
	uint32_t low, high, a, b;

	rig_init(&rig);
	low = enter(0, S(64) + S(1));
	open_nest(65);
	open_nest(66);
	high = enter(S(67), S(3));
	a = enter(S(66) - 512, 512);
	b = enter(S(66), 512);
	ok(edges(low) && edges(high) && edges(a) && edges(b), "four blocks side by side");
	is_int(find(S(65)), 0, "the rest of a nest is nobody's");
	is_int(find(S(67) - 1), 0, "to its end");
	leave(a);
	is_int(find(S(66) - 512), 0, "one is freed, and its nest with it");
	ok(edges(low) && edges(b), "the others stay");
	a = enter(S(65), S(1));
	ok(edges(a) && edges(low) && edges(b), "its slot is a block's");
	ok(edges(high), "all of them");
	rig_stop(&rig);
}

/* Several ranges; addresses beside them. */
static void test_ranges(void)
{
	const struct glk_range *range;
	uint32_t id[4];
	int wrong = 0;

	rig_conf(&rig);
	rig.size = (struct glk_map_size){.step = GIB(1), .most = GIB(4)};
	rig_start(&rig);
	for (int r = 0; r < 4; r++) {
		range = &rig.map.range[r];
		id[r] = enter(range->offset, GIB(1) - (r % 2 ? 0 : 512));
		ok(edges(id[r]), "a block that fills a range");
		wrong += glk_lookup_around(range, range->base - 1) != 0;
		wrong += glk_lookup_around(range, range->base + GIB(1)) != 0;
		wrong += r < 3 && glk_map_extend(&rig.map, S(1));
	}
	is_int(wrong, 0, "nothing beside it");
	for (int r = 0; r < 4; r++)
		wrong += !edges(id[r]);
	is_int(wrong, 0, "all four are found");
	rig_stop(&rig);
}

/* Without the lock: by the word of the extent that begins there. */
static void test_claim(void)
{
	const struct glk_range *range;
	struct glk_extent *e;
	uint64_t addr;
	uint32_t id;

	rig_init(&rig);
	range = &rig.map.range[0];
	id = enter(0, S(1));
	addr = range->base;
	ok(!glk_lookup_claim(range, addr + 512), "not from inside");
	ok(!glk_lookup_claim(range, addr + S(1) / 2), "nor from another eighth");
	e = glk_lookup_claim(range, addr);
	ok(e == glk_extent_at(&rig.map, id), "from where it begins");
	ok(!glk_lookup_claim(range, addr), "once");
	is_int(find(5), id, "it is entered still");
	leave(id);
	ok(!glk_lookup_claim(range, addr), "not when it is free");
	ok(!glk_lookup_claim(range, addr + S(4)), "nor where nothing ever was");
	open_nest(0);
	id = enter(1024, 512);
	ok(!glk_lookup_claim(range, addr) && !glk_lookup_claim(range, addr + 1025),
		"in a nest neither beside it");
	ok(glk_lookup_claim(range, addr + 1024) == glk_extent_at(&rig.map, id),
		"nor anywhere but there");
	rig_stop(&rig);
}

/* The same for who does not own it: what is live, and as what. */
static void test_live(void)
{
	const struct glk_range *range;
	struct glk_live live = {0};
	struct glk_extent *e;
	uint64_t addr;
	uint32_t id, behind;

	rig_init(&rig);
	range = &rig.map.range[0];
	addr = range->base;
	id = enter(0, S(1) + 1024);
	behind = enter(S(1) + 1024, S(70));
	glk_store_relaxed(&glk_extent_at(&rig.map, id)->slack, 100);
	ok(glk_lookup_live(range, addr + 7, &live) && live.addr == addr &&
			live.size == S(1) + 1024 && live.asked == live.size - 100,
		"a live one, from inside");
	ok(glk_live_is_still(&live), "is what it was");
	ok(glk_lookup_live(range, addr + S(1) + 1023, &live) && live.addr == addr,
		"before one that begins in the same eighth");
	ok(glk_lookup_live(range, addr + S(1) + 1024, &live) &&
			live.e == glk_extent_at(&rig.map, behind),
		"that one");
	ok(glk_lookup_live(range, addr + S(70), &live) &&
			live.e == glk_extent_at(&rig.map, behind),
		"in the next group");
	ok(!glk_lookup_live(range, addr - 1, &live) &&
			!glk_lookup_live(range, addr + S(72), &live),
		"nothing beside them");
	e = glk_lookup_hold(range, addr);
	ok(e == glk_extent_at(&rig.map, id) && !glk_lookup_claim(range, addr),
		"held, it is not claimed");
	ok(glk_lookup_live(range, addr, &live), "and live");
	glk_word_let_go(&e->word);
	ok(glk_lookup_claim(range, addr) == e, "let go, it is");
	ok(!glk_live_is_still(&live) && !glk_lookup_live(range, addr, &live) &&
			!glk_lookup_hold(range, addr),
		"and is not live then");
	is_int(find(0), id, "it is entered still");
	rig_stop(&rig);
}

int main(void)
{
	tap_plan_later();
	test_common();
	test_row();
	test_nested();
	test_beside();
	test_ranges();
	test_claim();
	test_live();
	return tap_done();
}
