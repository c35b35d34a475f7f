/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Two maps with the same life: an extent leaves its slots in one and comes back at once, and is told of again in
 * the other. Groups with idle pages are then in the same order in both, and slots and pages have the same use.
 */
#include "seed.h"
#include "unit/map/rig.h"

#define GROUPS 6
#define SLOTS  (64 * GROUPS)
#define PAGES  192
#define LIVES  24
#define ROUNDS 300

static struct rig rigs[2]; /* who leaves and comes back; who is told of again */
static uint32_t pages[PAGES], count;
static struct {
	uint32_t id, first, last;
} lives[LIVES];

static void start(void)
{
	for (int i = 0; i < 2; i++) {
		rig_init(&rigs[i]);
		rig_raise(&rigs[i], SLOTS);
	}
	count = 0;
	memset(lives, 0, sizeof(lives));
}

static void stop(void)
{
	for (int i = 0; i < 2; i++)
		rig_stop(&rigs[i]);
}

/* The same in both, where all numbers are the same. */
static void new_page(uint32_t slot, uint32_t slots)
{
	for (int i = 0; i < 2; i++)
		pages[count] = rig_new(&rigs[i], slot, slots);
	count++;
}

static void again(uint32_t slot, uint32_t page)
{
	for (int i = 0; i < 2; i++)
		rig_again(&rigs[i], slot, page);
}

static uint32_t enter(uint64_t offset, uint64_t size)
{
	uint32_t id = 0;

	for (int i = 0; i < 2; i++)
		id = rig_enter(&rigs[i], offset, size);
	return id;
}

static void leave(uint32_t id, uint64_t streams)
{
	for (int i = 0; i < 2; i++)
		rig_leave(&rigs[i], id, streams);
}

/* What is tested. */
static void tell(uint32_t first, uint32_t last, uint64_t streams)
{
	struct glk_use use = glk_use_of(streams, ++rigs[0].tick);

	rigs[1].tick++;
	glk_slots_leave(&rigs[0].map, first, last, &use);
	glk_slots_enter(&rigs[0].map, first, last);
	glk_slots_again(&rigs[1].map, first, last, &use);
}

static bool same_order(void)
{
	uint32_t a = glk_idle_oldest(rigs[0].space.of),
		 b = glk_idle_oldest(rigs[1].space.of);

	for (; a && a == b; b = rigs[1].map.idle[b].newer)
		a = rigs[0].map.idle[a].newer;
	if (a == b)
		return true;
	tap_note("group %u, which is %u where it left", b, a);
	return false;
}

static bool same_use(struct glk_use a, struct glk_use b)
{
	return a.streams == b.streams && a.tick == b.tick;
}

static bool same_uses(void)
{
	const struct glk_map *a = &rigs[0].map, *b = &rigs[1].map;

	for (uint32_t slot = 0; slot < SLOTS; slot++) {
		if (!a->page[slot])
			continue;
		if (same_use(glk_use_at(a, slot), glk_use_at(b, slot)) &&
			same_use(glk_use_of_page(a, slot), glk_use_of_page(b, slot)))
			continue;
		tap_note("slot %u", slot);
		return false;
	}
	return true;
}

static bool same(void)
{
	const struct glk_map *a = &rigs[0].map, *b = &rigs[1].map;
	bool bits = !memcmp(a->usable, b->usable, SLOTS / 8) &&
		!memcmp(a->busy, b->busy, SLOTS / 8);

	return bits && a->space->of[0].idle_slots == b->space->of[0].idle_slots &&
		a->space->of[0].stranded == b->space->of[0].stranded &&
		a->space->of[0].listed == b->space->of[0].listed && same_order() &&
		same_uses();
}

static void map_by_chance(uint64_t *state)
{
	static const uint32_t sizes[] = {1, 1, 1, 4, 4, 7};

	for (uint32_t slot = (uint32_t)seed_below(state, 4); slot + 7 < SLOTS;) {
		uint32_t slots = sizes[seed_below(state, 6)];
		uint32_t page = count ? pages[seed_below(state, count)] : 0;

		if (page)
			slots = seed_below(state, 2)
				? glk_page_slots(&rigs[0].map, rig_page(&rigs[0], page))
				: slots;
		if (page &&
			slots == glk_page_slots(&rigs[0].map, rig_page(&rigs[0], page)) &&
			rig_page(&rigs[0], page)->aliases < 4)
			again(slot, page);
		else if (count < PAGES)
			new_page(slot, slots);
		slot += slots +
			(seed_below(state, 30) ? 0 : (uint32_t)seed_below(state, 9));
	}
}

/* Where it may lie: nobody is on any other mapping of what it would touch. */
static bool is_usable(uint32_t first, uint32_t last)
{
	const struct glk_map *map = &rigs[0].map;

	for (uint32_t slot = first; slot <= last; slot++) {
		if (!map->page[slot] || !glk_bit_get(map->usable, slot))
			return false;
		for (uint32_t at = first; at < slot; at++) {
			struct glk_mapping m = glk_mapping_at(map, slot);

			/* no page twice: a request takes the second mapping down */
			if (map->page[at] == map->page[slot] && at < m.first)
				return false;
		}
	}
	return true;
}

static void live(uint64_t *state, uint32_t i)
{
	uint64_t size = MIB(1) * (1 + seed_below(state, 30));
	uint64_t offset = MIB(1) * seed_below(state, 2 * SLOTS - size / MIB(1));
	uint32_t at = rig_at(&rigs[0], offset);
	const struct glk_extent *e = glk_extent_at(&rigs[0].map, at);
	uint32_t first = (uint32_t)(offset >> 21);
	uint32_t last = (uint32_t)((offset + size - 1) >> 21);

	if (!at || glk_extent_state(e) != GLK_EXTENT_FREE ||
		offset + size > e->offset + e->size || !is_usable(first, last))
		return;
	lives[i].id = enter(offset, size);
	lives[i].first = first;
	lives[i].last = last;
}

static void test_chance(uint64_t seed)
{
	uint64_t state = seed_thread(seed, 0);
	int wrong = 0, told = 0;

	for (int map = 0; map < 8; map++) {
		start();
		map_by_chance(&state);
		for (int round = 0; round < ROUNDS && !wrong; round++) {
			uint32_t i = (uint32_t)seed_below(&state, LIVES);
			uint64_t streams = seed_below(&state, 8);

			if (!lives[i].id) {
				live(&state, i);
			} else if (seed_below(&state, 3)) {
				tell(lives[i].first, lives[i].last, streams);
				told++;
			} else {
				leave(lives[i].id, streams);
				lives[i].id = 0;
			}
			wrong += !same();
		}
		wrong += !rig_sound(&rigs[0]) || !rig_sound(&rigs[1]);
		stop();
	}
	is_int(wrong, 0, "by chance: as if it had left and come back");
	ok(told > 100, "%d times", told);
}

/* A run of whole groups, behind which somebody is: nobody else on the pages at its ends, then others on both. Their
 * newest mappings lie in other groups, which were touched before another one. */
static void test_ends(void)
{
	start();
	new_page(64, 1);
	new_page(127, 1);
	new_page(128, 1);
	again(192, pages[0]);
	again(256, pages[1]);
	enter(S(128), S(1));
	enter(S(64) + MIB(1), S(64) - MIB(2));
	new_page(320, 1);
	tell(64, 127, 1);
	ok(same(), "nobody else is on the pages at the ends of a run");
	enter(S(64), MIB(1));
	enter(S(127) + MIB(1), MIB(1));
	new_page(321, 1);
	tell(64, 127, 2);
	ok(same(), "others are on both");
	stop();
}

int main(void)
{
	tap_plan_later();
	test_ends();
	test_chance(seed_start());
	return tap_done();
}
