/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * All blocks of a suspended GPU lie on the host in place, and come back from there. What lies side by side
 * goes together, in parts of so many slots, whatever the sizes of the blocks, so that many small ones
 * cost no more calls of the driver than a large one. A part with a block that may not move, or that is
 * in somebody's hands, goes page by page but for the pages of that one; what is left for the second
 * reason is tried again.
 *
 * A contiguous block would lose its one page; it does not go this way.
 */
#include "base/error.h"
#include "cache/bin/quick.h"
#include "cache/cache.h"
#include "cache/exchange.h"

#include <errno.h>
#include <sched.h>

/* Times that blocks are tried which others have in their hands. */
#define PASSES 4

/* Extents of a part that is larger than one mapping, beside the first: the lock is held while they are
 * looked at. */
#define MEMBERS 1024

struct pass {
	struct glk_arena *arena;
	struct glk_line line;
	bool again;		   /* something was in somebody's hands */
	struct glk_stretch singly; /* the last part that could not go as a whole */
	struct glk_stretch stays;  /* and the last mapping in it that could not */
};

static bool may_go(const struct glk_line *line, const struct glk_extent *e)
{
	return (glk_extent_state(e) == GLK_EXTENT_LIVE ||
		       (line && glk_line_has(line, e))) &&
		!glk_extent_away(e) && !glk_load_relaxed(&e->whole);
}

/* Large ones go alone, since pages of the host are cut by them. */
static bool is_large(const struct glk_map *map, const struct glk_extent *e)
{
	return e->size >> map->shift >= 2 * map->large;
}

/* The last slot of what lies side by side from an extent on, in a part from a slot on. */
static uint32_t reach(struct pass *p, const struct glk_extent *e, uint32_t slot)
{
	const struct glk_map *map = &p->arena->map;
	uint32_t last = glk_extent_last(map, e), members = 0;

	while (e->next && last - slot < GLK_EXCHANGE_PART && !is_large(map, e) &&
		members++ < MEMBERS) {
		e = glk_extent_at(map, e->next);
		/* what lies in the gaps of one that is away in part does not go */
		if (!may_go(&p->line, e) || is_large(map, e) || glk_extent_part(e))
			break;
		last = glk_extent_last(map, e);
	}
	glk_plan_count(p->arena->gpu, members);
	return last;
}

static bool is_in(const struct glk_stretch *run, uint32_t slot)
{
	return slot >= run->first && slot <= run->last;
}

/* The next mapping of an extent, from a slot on, that goes; and what it stands on there. */
static struct glk_stretch next_own(const struct pass *p, const struct glk_extent *e,
	uint32_t slot, struct glk_stretch *ret_here)
{
	const struct glk_map *map = &p->arena->map;
	struct glk_stretch here = glk_exchange_here(map, e, slot);
	struct glk_stretch run = {1, 0};

	for (; here.first <= here.last; here = glk_exchange_here(map, e, here.last + 1)) {
		run = glk_exchange_next(map, here.first, here.last, 0, p->line.way);
		while (run.first <= run.last && is_in(&p->stays, run.first))
			run = glk_exchange_next(
				map, run.last + 1, here.last, 0, p->line.way);
		if (run.first <= run.last)
			break;
	}
	*ret_here = here;
	return run;
}

/* What goes next of an extent, from a slot on: a mapping, with what lies beside it. Where all of its own have
 * gone nobody else is looked at. */
static struct glk_stretch next(struct pass *p, const struct glk_extent *e, uint32_t slot)
{
	struct glk_stretch here;
	struct glk_stretch run = next_own(p, e, slot, &here);
	uint32_t last;

	if (run.first > run.last || is_in(&p->singly, run.first))
		return run;
	last = glk_extent_part(e) ? here.last : reach(p, e, run.first);
	return glk_exchange_next(
		&p->arena->map, run.first, last, GLK_EXCHANGE_PART, p->line.way);
}

/* An extent, with what lies beside it. The plan is closed, so that it stays the same one until it is freed. */
static int go(struct pass *p, struct glk_extent *e)
{
	const struct glk_map *map = &p->arena->map;
	uint32_t slot = glk_extent_first(map, e);
	int err = 0;

	while (!err && may_go(&p->line, e)) {
		struct glk_stretch run = next(p, e, slot);
		bool one;

		if (run.first > run.last)
			break;
		one = run.last <= glk_mapping_at(map, run.first).last;
		err = glk_line_add(&p->line, e, &run);
		if (p->line.err)
			break;
		if (!one && (err == -EAGAIN || err == -ENOMEM)) {
			p->singly = run;
			slot = run.first;
			err = 0;
			continue;
		}
		if (err == -EAGAIN) {
			p->again = true;
			p->stays = run;
			err = 0;
		}
		slot = run.last + 1;
	}
	return err;
}

static int go_once(struct pass *p)
{
	const struct glk_map *map = &p->arena->map;
	uint32_t used = glk_load_relaxed(&map->extents.used);
	int err = 0, failed;

	p->again = false;
	p->singly = p->stays = (struct glk_stretch){1, 0};
	for (uint32_t id = 1; id <= used && !err; id++) {
		struct glk_extent *e = glk_extent_at(map, id);

		glk_plan_step(p->arena->gpu);
		if (may_go(&p->line, e))
			err = go(p, e);
	}
	failed = glk_line_end(&p->line);
	return err ? err : failed;
}

static int go_all(struct glk_arena *arena, enum glk_way way)
{
	struct pass p = {.arena = arena, .line = {.arena = arena, .way = way}};
	struct glk_cache *cache = arena->gpu;
	int err = go_once(&p);

	for (int i = 1; i < PASSES && !err && p.again; i++) {
		glk_lock_pause(&cache->lock);
		sched_yield();
		glk_lock_resume(&cache->lock);
		glk_quick_flush(cache);
		err = go_once(&p);
	}
	return err;
}

int glk_lower_all(struct glk_cache *cache)
{
	int err = 0;

	if (!cache->host)
		return glk_error(-EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED,
			"GPU %d has no memory of the host near it", cache->device);
	cache->in_place = true;
	for (struct glk_arena *a = &cache->arena; a && !err; a = a->next) {
		if (!a->ops->leaves && a->map.held)
			err = go_all(a, GLK_TO_HOST);
	}
	return err;
}

/* Blocks that were placed on the host at their birth come as they do at a quiet point, and so do those that
 * were there before a suspension which has moved none there: others have had their memory since. */
int glk_raise_all(struct glk_cache *cache)
{
	int err = 0;

	if (cache->arena.map.hosted)
		err = go_all(&cache->arena, GLK_TO_GPU);
	if (err == -ENOMEM && !cache->in_place)
		err = glk_quiet_arena(&cache->arena);
	if (!err && cache->in_place && cache->beside.map.pool)
		err = glk_quiet_arena(&cache->beside);
	return err;
}

static void count(struct glk_arena *arena, uint64_t *bytes, uint64_t *blocks)
{
	const struct glk_map *map = &arena->map;
	uint32_t used = glk_load_relaxed(&map->extents.used);

	for (uint32_t id = 1; id <= used; id++) {
		const struct glk_extent *e = glk_extent_at(map, id);
		uint64_t here;

		glk_plan_step(arena->gpu);
		if (!may_go(NULL, e))
			continue;
		here = glk_part_may_go(arena, e) - glk_beside_placed(map, e);
		*bytes += here;
		*blocks += here > 0;
	}
}

void glk_lower_left(struct glk_cache *cache, uint64_t *ret_bytes, uint64_t *ret_blocks)
{
	*ret_bytes = *ret_blocks = 0;
	for (struct glk_arena *a = &cache->arena; a; a = a->next) {
		if (!a->ops->leaves)
			count(a, ret_bytes, ret_blocks);
	}
}
