/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The driver maps neither the new pages of an exchange nor the old ones again: what lay there is lost,
 * which is said once. The tables are sound, other blocks have what they had, and the block without
 * contents is freed like any other.
 */
#include "plan_parts.h"

#include <stdlib.h>

#define BLOCKS 4

static struct rig rig;
static struct CUstream_st *a;

/* Ways in which blocks change their pages. */
enum way { FETCH, QUIET, LOWER, RESUME, WAYS };

static int turn(enum way way, uint64_t addr)
{
	struct glake_returned came;
	struct glake_suspended went;

	switch (way) {
	case FETCH:
		return glk_cache_fetch(&rig.cache, addr, a);
	case QUIET:
		return glk_cache_quiet(&rig.cache, &came);
	case LOWER:
		return glk_cache_suspend(&rig.cache, true, &went);
	default:
		return glk_cache_resume(&rig.cache, false, &went);
	}
}

/* Blocks where such a turn begins. */
static void set_up(enum way way, struct held *list)
{
	const char *settings[] = {"tier.host=512MiB", "soft.host_memory=512MiB",
		"pool.large_page=4MiB", "policy.bins=0",
		way == FETCH || way == QUIET ? "tier.place=host" : NULL, NULL};
	bool small = way == FETCH || way == QUIET;
	struct held one;

	rig_open(&rig, settings);
	a = rig_stream(&rig);
	glk_store_relaxed(&rig.cache.node->budget, small ? 12 * MIB : 50 * MIB);
	if (small)
		plan_take(&rig, &one, 11 * MIB, a);
	plan_take(&rig, &list[0], 5 * MIB + 512, a);
	plan_take(&rig, &list[1], 2 * MIB, a);
	plan_take(&rig, &list[2], 3000, a);
	plan_take(&rig, &list[3], 3 * MIB, a);
	if (small)
		plan_drop(&rig, &one, a);
	if (way == RESUME)
		turn(LOWER, 0);
	glk_store_relaxed(&rig.cache.node->budget, 50 * MIB);
}

/* Bytes of a block that nothing is mapped behind. */
static size_t lost_in(struct glk_map *map, const struct held *h)
{
	size_t lost = 0;

	for (uint32_t id = 1; id <= glk_load_relaxed(&map->extents.used); id++) {
		const struct glk_extent *e = glk_extent_at(map, id);

		if (glk_extent_state(e) != GLK_EXTENT_LIVE || glk_extent_away(e) ||
			glk_load_relaxed(&e->addr) != h->addr)
			continue;
		for (uint32_t s = glk_extent_first(map, e); s <= glk_extent_last(map, e);
			s++)
			lost += map->page[s] ? 0 : glk_slot_bytes(map);
	}
	return lost;
}

static size_t lost_bytes(const struct held *h)
{
	return lost_in(&rig.cache.arena.map, h) +
		(rig.cache.beside.map.pool ? lost_in(&rig.cache.beside.map, h) : 0);
}

static bool any_lost(const struct held *list)
{
	size_t lost = 0;

	for (int i = 0; i < BLOCKS; i++)
		lost += list[i].addr ? lost_bytes(&list[i]) : 0;
	return lost > 0;
}

/* A walk for people tells where all bytes of a block lie, and these lie nowhere. */
static bool is_sound_but(const struct held *list)
{
	struct glake_stats told = rig_figures(&rig), seen;

	if (!any_lost(list))
		return rig_is_sound(&rig);
	seen = rig_walk(&rig);
	if (told.placed != seen.placed || told.placed_blocks != seen.placed_blocks)
		tap_note("placed: told %" PRIu64 " bytes of %" PRIu64
			 " blocks, walked %" PRIu64 " of %" PRIu64,
			told.placed, told.placed_blocks, seen.placed, seen.placed_blocks);
	return rig_verify(&rig) && told.placed == seen.placed &&
		told.placed_blocks == seen.placed_blocks;
}

/* The driver refuses an operation from its nth call on. Whether contents were lost, and whether there was one. */
static bool loses(enum way way, const char *call, int nth, int *torn, bool *struck)
{
	struct held list[BLOCKS], more;
	struct glake_suspended did;
	bool lost = false;
	char rule[64];
	int err;

	set_up(way, list);
	snprintf(rule, sizeof(rule), "%s:from=%d:err=EIO", call, nth);
	glk_fault_set(rig.drv, rule);
	err = turn(way, list[0].addr);
	*struck = rig_struck(&rig);
	glk_fault_set(rig.drv, "off");
	*torn += !is_sound_but(list);
	if (glk_load_relaxed(&rig.cache.suspended))
		*torn += glk_cache_resume(&rig.cache, false, &did) != 0;
	*torn += !is_sound_but(list);
	for (int i = 0; i < BLOCKS; i++) {
		size_t bytes = lost_bytes(&list[i]);

		lost |= bytes > 0;
		*torn += bytes && !strstr(tap.last_log, "is lost");
		/* a suspension answers for all blocks, and goes on with the others */
		*torn += bytes ? way == FETCH && !err : !has_marks(&list[i]);
		*torn += rig_free(&rig, list[i].addr, a) != 0;
		list[i].addr = 0;
		*torn += !is_sound_but(list);
	}
	*torn += plan_take(&rig, &more, 15 * MIB, a) != 0;
	*torn += lost_bytes(&more) != 0;
	*torn += !plan_drop(&rig, &more, a) || !rig_is_sound(&rig);
	if (*torn)
		tap_note("way %d, %s from %d on", (int)way, call, nth);
	return lost;
}

int main(void)
{
	static const char *const names[WAYS] = {
		"a fetch", "a quiet point", "a suspension", "its end"};
	static const char *const calls[] = {"map", "set_access"};
	int most = tap_storms_take_long() ? 3 : 12;

	tap_plan_later();
	for (enum way way = 0; way < WAYS; way++) {
		int lost = 0, torn = 0;

		for (size_t c = 0; c < sizeof(calls) / sizeof(*calls); c++) {
			bool struck = true;

			for (int nth = 1; nth <= most && struck && !torn; nth++) {
				lost += loses(way, calls[c], nth, &torn, &struck);
				rig_close(&rig, 0);
				tap_expect_log(tap.logs - tap.expected);
			}
		}
		ok(!torn, "%s: the tables are sound", names[way]);
		ok(lost, "  where contents were lost, %d times", lost);
	}
	return tap_done();
}
