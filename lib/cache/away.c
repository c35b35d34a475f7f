/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Blocks go away and come back: see away.h. */
#include "cache/away.h"

#include "base/conf.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "cache/advice.h"
#include "cache/arena/request.h"
#include "cache/device.h"
#include "cache/exchange.h"
#include "cache/learn.h"
#include "cache/part.h"
#include "cache/plan.h"
#include "cache/prefetch.h"
#include "cache/told.h"

#include <errno.h>
#include <inttypes.h>

int glk_away_start(struct glk_cache *cache)
{
	struct glake_device info = {.sz = sizeof(info)};
	int err;

	err = glk_cache_start(cache);
	if (err)
		return err;
	glk_lock(&cache->starting);
	if (glk_load_relaxed(&cache->moves))
		goto unlock;
	err = cache->drv->ops->device_info(cache->drv, cache->device, &info);
	if (!err)
		err = glk_mover_init(
			&cache->mover, &cache->streams, info.numa_node, cache->host);
	if (!err && cache->conf->tier_compress == GLK_TIER_COMPRESS_LZ4) {
		err = glk_pack_start(&cache->mover, cache->conf->tier_compress_rest);
		if (err)
			glk_mover_fini(&cache->mover);
	}
	if (err)
		goto unlock;
	cache->mover.io = cache->io;
	/* pages of the host that lie idle make way for contents */
	cache->mover.store.yield = glk_beside_release;
	cache->mover.store.arg = cache;
	glk_lock(&cache->lock);
	/* pairs with: the acquires of those who ask whether there is anything away */
	glk_store_release(&cache->moves, true);
	glk_unlock(&cache->lock);
unlock:
	glk_unlock(&cache->starting);
	return err;
}

int glk_away_fini(struct glk_cache *cache)
{
	return glk_load_relaxed(&cache->moves) ? glk_mover_fini(&cache->mover) : 0;
}

static int is_out(const struct glk_extent *e)
{
	return glk_error(-EBUSY, GLAKE_ERROR_BUSY,
		"the block at 0x%" PRIx64
		" is out: others have its memory until they say they do not",
		glk_load_relaxed(&e->addr));
}

static int is_pinned(const struct glk_extent *e)
{
	return glk_error(-EBUSY, GLAKE_ERROR_BUSY,
		"the block at 0x%" PRIx64 " is pinned: it stays where it is",
		glk_load_relaxed(&e->addr));
}

/* All that is here. */
static bool placed_whole(const struct glk_arena *arena, const struct glk_extent *e)
{
	uint64_t placed = arena->ops->fixed ? 0 : glk_beside_placed(&arena->map, e);

	return placed && placed == glk_part_here(arena, e);
}

int glk_away_keeps(const struct glk_arena *arena, const struct glk_extent *e)
{
	if (glk_pin_is_out(e))
		return is_out(e);
	return glk_advice_stays(arena, e) ? is_pinned(e) : 0;
}

int glk_away_may(const struct glk_arena *arena, const struct glk_extent *e)
{
	uint64_t addr = glk_load_relaxed(&e->addr);
	int err;

	if (glk_extent_away(e))
		return glk_error(-EALREADY, GLAKE_ERROR_BUSY,
			"the block at 0x%" PRIx64 " is away", addr);
	if (placed_whole(arena, e))
		return glk_error(-EALREADY, GLAKE_ERROR_BUSY,
			"the block at 0x%" PRIx64 " lies in memory of the host", addr);
	if (e->nested)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"the block at 0x%" PRIx64
			" is too small to move: it shares its page with others",
			addr);
	err = glk_away_keeps(arena, e);
	if (err)
		return err;
	if (arena->ops->stays)
		return glk_error(-EBUSY, GLAKE_ERROR_BUSY,
			"the block at 0x%" PRIx64 " %s", addr, arena->ops->stays);
	return 0;
}

int glk_away_discard(struct glk_arena *arena, struct glk_extent *e, uint32_t on)
{
	struct glk_part_way way = {.on = on, .drop = true};
	struct glk_telling telling = {0};
	struct glk_use use;
	int err = glk_away_may(arena, e);

	if (!err && glk_extent_part(e))
		return glk_part_send(arena, e, glk_part_all(&arena->map, e), &way);
	if (!err)
		err = glk_tell_before(arena, e, GLAKE_MOVE_AWAY, &telling);
	if (err)
		return err;
	use = glk_block_use(arena->gpu, e, on);
	glk_away_depart(arena, e, &use, 0);
	glk_prefetch_gone(arena->gpu, e);
	glk_tell_after(arena, e, GLAKE_MOVE_AWAY, &telling, 0);
	return 0;
}

int glk_away_send(struct glk_arena *arena, struct glk_extent *e, uint32_t on)
{
	struct glk_cache *cache = arena->gpu;
	struct glk_part_way way = {.on = on};
	int64_t since = glk_clock_ticks();
	struct glk_telling telling = {0};
	struct glk_use use;
	uint32_t run;
	int err;

	err = glk_away_may(arena, e);
	if (!err && glk_extent_part(e))
		return glk_part_send(arena, e, glk_part_all(&arena->map, e), &way);
	if (!err)
		err = glk_tell_before(arena, e, GLAKE_MOVE_AWAY, &telling);
	if (err)
		return err;
	/* who finds no room meanwhile waits for this block's */
	glk_plan_begin(cache);
	cache->sending++;
	use = glk_block_use(cache, e, on);
	err = glk_move_out(&cache->mover, glk_load_relaxed(&e->addr), glk_extent_asked(e),
		&use, &run);
	cache->sending--;
	if (!err)
		glk_away_depart(arena, e, &use, run);
	glk_plan_end(cache);
	if (!err) {
		glk_prefetch_gone(cache, e);
		if (cache->conf->tier_verify)
			glk_verify_keep(&cache->mover, run);
	}
	glk_tell_after(arena, e, GLAKE_MOVE_AWAY, &telling, err);
	if (!err)
		glk_times_since(&cache->times[GLK_TIMED_SPILL], since);
	return err;
}

/* With its contents or without, as was said of the block. */
static int give(struct glk_arena *arena, struct glk_extent *e)
{
	return glk_advice_is(arena, e, GLAKE_ADVICE_DISCARDABLE)
		? glk_away_discard(arena, e, 0)
		: glk_away_send(arena, e, 0);
}

int glk_away_fill(
	struct glk_cache *cache, uint32_t run, uint64_t addr, struct glk_use *ret_use)
{
	struct glk_stream *back = glk_stream_enter(&cache->streams, cache->mover.back);

	if (run)
		return glk_move_back(&cache->mover, run, addr, ret_use);
	*ret_use = glk_stream_use(back, glk_clock_tick(&cache->streams, back));
	return 0;
}

/* What is kept of it is what was sent. 0, or -EIO with a warning. */
static int check(struct glk_cache *cache, const struct glk_extent *e)
{
	uint32_t run = glk_away_run(e);
	int err = run ? glk_verify_check(&cache->mover, run) : 0;

	if (err)
		glk_warn("GPU %d: the block at 0x%" PRIx64 " stays away: %s",
			cache->device, glk_load_relaxed(&e->addr),
			glk_thread_current->error.text);
	return err;
}

/* Has the contents in the memory behind it, and the stream behind that. */
static int fill(struct glk_cache *cache, struct glk_extent *e, struct glk_stream *on,
	struct glk_use *ret_use)
{
	struct glk_use use;
	int err;

	err = glk_away_fill(cache, glk_away_run(e), glk_load_relaxed(&e->addr), ret_use);
	use = *ret_use;
	/* it may have been announced for a capture meanwhile */
	if (!err && on)
		err = glk_stream_silent(on) ? -EAGAIN
					    : glk_clock_order(&cache->streams, &use, on);
	return err == -EAGAIN
		? glk_error(-EBUSY, GLAKE_ERROR_CAPTURE, "the stream captures a graph")
		: err;
}

static int come(struct glk_arena *arena, struct glk_extent *e, uint32_t on)
{
	struct glk_cache *cache = arena->gpu;
	struct glk_map *map = &arena->map;
	struct glk_request request = {
		.size = glk_extent_asked(e), .rounded = e->size, .patient = true};
	struct glk_stream *stream = NULL;
	int64_t since = glk_clock_ticks();
	struct glk_use use = {0};
	int err;

	err = check(cache, e);
	if (err)
		return err;
	if (on)
		stream = glk_stream_enter(&cache->streams, on);
	request.stream = glk_stream_enter(&cache->streams, cache->mover.back);
	/* it went from the GPU, at least in part, and comes back there */
	request.node = cache->node;
	err = glk_arena_back(arena, &request, glk_extent_id(map, e));
	if (err)
		return err;
	err = fill(cache, e, stream, &use);
	if (err) {
		glk_slots_leave(
			map, glk_extent_first(map, e), glk_extent_last(map, e), &use);
		return err;
	}
	glk_away_arrive(arena, e, on, use.tick);
	glk_times_since(&cache->times[GLK_TIMED_FETCH], since);
	return 0;
}

int glk_away_have(struct glk_arena *arena, struct glk_extent *e, uint32_t on)
{
	struct glk_part_way way = {.on = on};
	struct glk_telling telling = {0};
	int err;

	if (glk_part_is(e))
		return glk_part_have(arena, e, glk_part_all(&arena->map, e), &way);
	if (!glk_extent_away(e))
		return glk_error(-EALREADY, GLAKE_ERROR_BUSY,
			"the block at 0x%" PRIx64 " is here", glk_load_relaxed(&e->addr));
	err = glk_tell_before(arena, e, GLAKE_MOVE_BACK, &telling);
	if (err)
		return err;
	err = come(arena, e, on);
	if (!err)
		glk_prefetch_back(arena->gpu, e);
	glk_tell_after(arena, e, GLAKE_MOVE_BACK, &telling, err);
	return err;
}

int glk_away_resume(
	struct glk_arena *arena, struct glk_extent *e, uint32_t why, uint64_t *ret_bytes)
{
	uint64_t here = glk_part_here(arena, e);
	struct glk_part_way way = {.why = why};
	int err;

	err = glk_part_is(e) ? glk_part_have(arena, e, glk_part_all(&arena->map, e), &way)
			     : glk_away_have(arena, e, 0);
	*ret_bytes = glk_part_here(arena, e) - here;
	return err;
}

/* The first live block at or behind an offset, in a range, that begins an eighth of a slot for itself; 0:
 * none. */
static uint32_t next_block(const struct glk_map *map, unsigned range, uint64_t *offset)
{
	struct glk_stretch slots = glk_map_slots(map, range);
	uint32_t eighth = (uint32_t)(*offset >> map->eighth), id;
	uint32_t end = (slots.last << GLK_EIGHTH_SHIFT) | ((1u << GLK_EIGHTH_SHIFT) - 1);

	if (slots.first > slots.last)
		return 0;
	for (; eighth <= end; eighth++) {
		eighth = glk_bits_first(map->begins, eighth, end);
		if (eighth == GLK_BITS_NONE)
			return 0;
		id = glk_load_relaxed(&map->start[eighth]);
		if (!id || id & GLK_START_NEST)
			continue;
		*offset = glk_extent_at(map, id)->offset;
		return id;
	}
	return 0;
}

/* A block at a time, so that who climbs has not to wait for all of them. */
static int each_in(struct glk_arena *arena, unsigned range, glk_away_fn fn, void *arg)
{
	struct glk_map *map = &arena->map;
	uint64_t offset = map->range[range].offset;
	int err = 0;
	uint32_t id;

	do {
		struct glk_extent *e;
		struct glk_moving m;

		glk_plan_enter(arena->gpu);
		id = next_block(map, range, &offset);
		e = glk_extent_at(map, id);
		offset += GLAKE_GRAIN;
		if (id && glk_away_take(arena->gpu, e, &m)) {
			err = fn(arena, e, arg);
			glk_away_let_go(arena->gpu, e, &m);
		}
		glk_plan_leave(arena->gpu);
		glk_plan_step(arena->gpu);
		offset = (offset + (UINT64_C(1) << map->eighth) - 1) >> map->eighth
				<< map->eighth;
	} while (id && !err);
	return err;
}

int glk_away_each(struct glk_arena *arena, glk_away_fn fn, void *arg)
{
	int err = 0;

	for (unsigned i = 0; i < arena->map.ranges && !err; i++)
		err = each_in(arena, i, fn, arg);
	return err;
}

int glk_away_victim(struct glk_arena *arena, struct glk_extent *e)
{
	struct glk_moving m;
	int err;

	if (!glk_away_take(arena->gpu, e, &m))
		return -EAGAIN;
	/* others may have had the lock meanwhile */
	if (!glk_advice_is(arena, e, GLAKE_ADVICE_COLD))
		err = -EAGAIN;
	else if (glk_prefetch_cold(arena->gpu, e))
		err = glk_away_send(arena, e, 0);
	else
		err = give(arena, e);
	glk_away_let_go(arena->gpu, e, &m);
	return err;
}
