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
#include "cache/bin/quick.h"
#include "cache/cache.h"
#include "cache/exchange.h"

#include <errno.h>

struct quiet {
	struct glk_arena *arena;
	struct glk_line line;
	uint64_t most; /* bytes of a part that are tried: larger ones were refused */
	bool cuts; /* parts are cut to what there is room for; else they are passed over */
	bool passed;   /* some were */
	uint32_t seen; /* extents and slots, since the last step */
};

/* Extents and slots that are looked at for what a step may take. */
#define SEEN 16

static void see(struct quiet *q, const struct glk_extent *e)
{
	q->seen += 1 + (uint32_t)(e->size >> q->arena->map.shift);
	if (q->seen < SEEN)
		return;
	glk_plan_count(q->arena->gpu, q->seen / SEEN - 1);
	q->seen = 0;
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
