/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A quiet point: the program says that nothing is under way on the blocks of a GPU that lie on the
 * host, so they come to the GPU as far as there is room. The largest are tried first, since they are
 * had with the fewest calls of the driver; each once, in parts of so many slots, with whatever shares
 * a page with them. Others touch pages at the ends of a block alone: a part that has to stay for one of
 * them is tried without those. Where parts had no room, what there is goes to smaller ones, in a second walk, again
 * of the largest first: each refusal halves them, so there are no more than a few. Requests that would have to look
 * for a place wait meanwhile.
 */
#include "base/error.h"
#include "cache/bin/quick.h"
#include "cache/cache.h"
#include "cache/exchange.h"

#include <errno.h>
#include <sched.h>

struct quiet {
	struct glk_arena *arena;
	struct glk_line line;
	uint64_t most; /* bytes of a part that are tried: larger ones were refused */
	bool cuts; /* parts are cut to what there is room for; else they are passed over */
	bool passed; /* some were */
};

/* An extent, and some of its slots at a time, are as much as a step. */
static void see(struct quiet *q, const struct glk_extent *e)
{
	glk_plan_count(q->arena->gpu,
		(uint32_t)(e->size >> (q->arena->map.shift + GLK_EIGHTH_SHIFT)));
	glk_plan_step(q->arena->gpu);
}

/* Bytes of a part for which there may be room. */
static uint64_t room_of(const struct quiet *q)
{
	const struct glk_cache *cache = q->arena->gpu;
	uint64_t budget = glk_node_most(cache->node);
	uint64_t held = glk_load_relaxed(&cache->node->held);
	uint64_t room = budget > held ? budget - held : 0;

	if (budget == UINT64_MAX)
		return q->most;
	room += glk_arena_idle(&cache->arena, cache->node);
	return room < q->most ? room : q->most;
}

/* Slots of a part that is tried; 0: there is no room for any. */
static uint32_t slots_of(const struct quiet *q)
{
	uint64_t slots = room_of(q) >> q->arena->map.shift;

	return !q->cuts || slots > GLK_EXCHANGE_PART ? GLK_EXCHANGE_PART
						     : (uint32_t)slots;
}

static bool is_placed(const struct quiet *q, const struct glk_extent *e)
{
	return (glk_extent_state(e) == GLK_EXTENT_LIVE || glk_line_has(&q->line, e)) &&
		glk_beside_placed(&q->arena->map, e);
}

/* The next part of a stretch that a block stands on, of what lies on the host. Of one that had to stay
 * the mappings at both ends go by themselves. */
static struct glk_stretch next_part(
	const struct quiet *q, struct glk_stretch here, const struct glk_stretch *stayed)
{
	const struct glk_map *map = &q->arena->map;
	struct glk_stretch run =
		glk_exchange_next(map, here.first, here.last, slots_of(q), GLK_TO_GPU);
	uint32_t end;

	if (run.first > run.last || run.first < stayed->first || run.first > stayed->last)
		return run;
	end = glk_mapping_at(map, stayed->last).first;
	if (run.first == stayed->first || run.first == end)
		run.last = glk_mapping_at(map, run.first).last;
	else if (run.last >= end)
		run.last = end - 1;
	return run;
}

/* Whether a part may go in pieces that has to stay as a whole: it has several mappings, of which others
 * touch one. */
static bool is_shared(const struct glk_map *map, const struct glk_extent *e,
	const struct glk_stretch *run)
{
	return run->last > glk_mapping_at(map, run->first).last &&
		(run->first <= glk_extent_first(map, e) ||
			run->last >= glk_extent_last(map, e));
}

/* A block, part by part. 0, or an error that is the end of it all. */
static int have_block(struct quiet *q, struct glk_extent *e)
{
	const struct glk_map *map = &q->arena->map;
	uint32_t slot = glk_extent_first(map, e), last = glk_extent_last(map, e);
	struct glk_stretch stayed = {1, 0};
	int err = 0;

	while (!err && slot <= last && slots_of(q) && is_placed(q, e)) {
		struct glk_stretch here = glk_exchange_here(map, e, slot);
		struct glk_stretch run = next_part(q, here, &stayed);
		uint64_t bytes = (uint64_t)(run.last - run.first + 1) << map->shift;

		if (here.first > here.last)
			break;
		slot = (run.first > run.last ? here.last : run.last) + 1;
		if (run.first > run.last)
			continue;
		if (bytes > room_of(q)) {
			q->passed = true;
			continue;
		}
		err = glk_line_add(&q->line, e, &run);
		if (q->line.err)
			break;
		if (err == -ENOMEM) {
			q->passed = true;
			q->most = bytes / 2;
			slot = q->cuts ? run.first : slot;
		}
		if (err == -EAGAIN && is_shared(map, e, &run) &&
			(stayed.first != run.first || stayed.last != run.last)) {
			stayed = run;
			slot = run.first;
		}
		err = err == -ENOMEM || err == -EAGAIN ? 0 : err;
	}
	return err;
}

/* Bits of the size of an extent. */
static unsigned bits_of(const struct glk_extent *e)
{
	return e->size ? 64 - (unsigned)__builtin_clzll(e->size) : 0;
}

/* The sizes that there are, by their bits: none comes to the host meanwhile. Somebody may look at one, so that
 * it is not live for a moment. */
static void find_classes(struct quiet *q, bool some[65])
{
	const struct glk_map *map = &q->arena->map;
	uint32_t used = glk_load_relaxed(&map->extents.used);

	for (uint32_t id = 1; id <= used; id++) {
		const struct glk_extent *e = glk_extent_at(map, id);

		see(q, e);
		if (!some[bits_of(e)] && glk_extent_state(e) != GLK_EXTENT_FREE)
			some[bits_of(e)] = glk_beside_placed(map, e);
	}
}

/* Those of a size with so many bits. */
static int have_class(struct quiet *q, unsigned bits)
{
	const struct glk_map *map = &q->arena->map;
	uint32_t used = glk_load_relaxed(&map->extents.used);
	int err = 0;

	for (uint32_t id = 1; id <= used && !err; id++) {
		struct glk_extent *e = glk_extent_at(map, id);

		see(q, e);
		if (bits_of(e) == bits && is_placed(q, e))
			err = have_block(q, e);
	}
	return err;
}

/* All of them, the largest first. */
static int have_classes(struct quiet *q)
{
	bool some[65] = {false};
	int err = 0;

	find_classes(q, some);
	for (unsigned bits = 64; bits && !err && slots_of(q); bits--)
		err = some[bits] ? have_class(q, bits) : 0;
	return err;
}

int glk_quiet_arena(struct glk_arena *arena)
{
	struct quiet q = {.arena = arena,
		.line = {.arena = arena, .way = GLK_TO_GPU},
		.most = UINT64_MAX};
	int err = have_classes(&q), failed;

	if (!err && q.passed) {
		q.cuts = true;
		q.most = UINT64_MAX;
		err = have_classes(&q);
	}
	failed = glk_line_end(&q.line);
	return err ? err : failed;
}

static int have_all(struct glk_cache *cache, bool settles)
{
	int err;

	/* work on streams that nobody told of is over too */
	err = glk_clock_sync_all(&cache->streams);
	if (err)
		return err;
	glk_plan_close(cache);
	glk_quick_flush(cache);
	if (settles)
		glk_peer_settle(cache);
	for (struct glk_arena *a = &cache->arena; a && !err; a = a->next) {
		if (a->map.hosted && !a->shut)
			err = glk_quiet_arena(a);
	}
	glk_plan_open(cache);
	return err;
}

int glk_cache_quiet(struct glk_cache *cache, struct glake_returned *ret)
{
	struct glake_returned did = {.sz = sizeof(did)};
	uint64_t returned, blocks;
	bool settles;
	int err;

	err = glk_away_start(cache);
	if (err)
		return err;
	glk_turn_begin(cache);
	returned = cache->returned;
	blocks = cache->returned_blocks;
	err = glk_suspended(cache);
	settles = !err && cache->rights_left;
	if (!err && (cache->placed || settles))
		err = have_all(cache, settles);
	else if (!err)
		err = glk_clock_uncaptured(&cache->streams);
	did.returned = cache->returned - returned;
	did.returned_blocks = cache->returned_blocks - blocks;
	did.left = cache->placed;
	did.left_blocks = cache->placed_blocks;
	glk_turn_end(cache);
	*ret = did;
	return err;
}

/*
 * All blocks of a suspended GPU lie on the host in place, and come back from there. What lies side by side
 * goes together, in parts of so many slots, whatever the sizes of the blocks, so that many small ones
 * cost no more calls of the driver than a large one. A part with a block that may not move, or that is
 * in somebody's hands, goes page by page but for the pages of that one; what is left for the second
 * reason is tried again.
 *
 * A contiguous block would lose its one page; it does not go this way.
 */

/* Times that blocks are tried which others have in their hands. */
#define PASSES 4

/* Extents of a part that is larger than one mapping, beside the first: the lock is held while they are
 * looked at. A mapping goes by itself where there are more than half as many on a slot. */
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

	while (map->count[slot] < MEMBERS / 2 && e->next &&
		last - slot < GLK_EXCHANGE_PART && !is_large(map, e) &&
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

	for (struct glk_arena *a = &cache->arena; a && !err; a = a->next) {
		if (!a->binned || !a->map.hosted)
			continue;
		err = go_all(a, GLK_TO_GPU);
		if (err == -ENOMEM && !cache->in_place)
			err = glk_quiet_arena(a);
	}
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
