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
	if (err || glk_load_acquire(&cache->moves)) /* pairs with: the release below */
		return err;
	glk_lock(&cache->starting);
	if (glk_load_relaxed(&cache->moves))
		goto unlock;
	err = cache->drv->ops->device_info(cache->drv, cache->device, &info);
	if (!err)
		err = glk_mover_init(
			&cache->mover, &cache->streams, info.numa_node, cache->host);
	if (err)
		goto unlock;
	cache->mover.io = cache->io;
	glk_lock(&cache->lock);
	glk_store_release(&cache->moves, true); /* pairs with: the acquire above */
	glk_unlock(&cache->lock);
unlock:
	glk_unlock(&cache->starting);
	return err;
}

int glk_away_fini(struct glk_cache *cache)
{
	bool moves = glk_load_relaxed(&cache->moves);

	glk_store_relaxed(&cache->moves, false);
	return moves ? glk_mover_fini(&cache->mover) : 0;
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

static bool placed_whole(const struct glk_arena *arena, const struct glk_extent *e)
{
	uint64_t placed = arena->ops->fixed ? 0 : glk_beside_placed(&arena->map, e);

	return placed && placed == glk_extent_asked(e);
}

int glk_away_may(const struct glk_arena *arena, const struct glk_extent *e)
{
	uint64_t addr = glk_load_relaxed(&e->addr);

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
	if (glk_pin_is_out(e))
		return is_out(e);
	if (glk_advice_stays(arena, e))
		return is_pinned(e);
	if (arena->ops->stays)
		return glk_error(-EBUSY, GLAKE_ERROR_BUSY, "the block at 0x%" PRIx64 " %s",
			addr, arena->ops->stays);
	return 0;
}

int glk_away_discard(struct glk_arena *arena, struct glk_extent *e, uint32_t on)
{
	struct glk_telling telling = {0};
	struct glk_use use;
	int err = glk_away_may(arena, e);

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
	int64_t since = glk_clock_ticks();
	struct glk_telling telling = {0};
	struct glk_use use;
	uint32_t run;
	int err;

	err = glk_away_may(arena, e);
	if (!err)
		err = glk_tell_before(arena, e, GLAKE_MOVE_AWAY, &telling);
	if (err)
		return err;
	/* who finds no room meanwhile waits for this block's */
	glk_plan_begin(cache);
	cache->sending++;
	do {
		use = glk_block_use(cache, e, on);
		err = glk_move_out(&cache->mover, glk_load_relaxed(&e->addr),
			glk_extent_asked(e), &use, &run);
	} while (err == -ENOMEM && glk_beside_release(cache, GLK_STORE_PIECE));
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
		glk_warn("GPU %d: the block at 0x%" PRIx64 " stays away: %s", cache->device,
			glk_load_relaxed(&e->addr), glk_thread_current->error.text);
	return err;
}

/* Has the contents in the memory behind it, and the stream behind that. */
static int fill(struct glk_cache *cache, struct glk_extent *e, struct glk_stream *on,
	struct glk_use *ret_use)
{
	struct glk_use use;
	int err;

	err = glk_away_fill(
		cache, glk_away_run(e), glk_load_relaxed(&e->addr), ret_use);
	use = *ret_use;
	/* it may have been announced for a capture meanwhile */
	if (!err && on)
		err = glk_stream_silent(on) ? -EAGAIN
					    : glk_clock_order(&cache->streams, &use, on);
	return err == -EAGAIN ? glk_error(-EBUSY, GLAKE_ERROR_CAPTURE,
					"the stream captures a graph")
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
	if (arena->ops->host) {
		err = glk_exchange_start(cache, GLK_TO_GPU);
		if (err)
			return err;
		request.source = &cache->stage;
	}
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
	struct glk_telling telling = {0};
	int err;

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

/* The first live block at or behind an offset that begins an eighth of a slot for itself; 0: none. */
static uint32_t next_block(const struct glk_map *map, uint64_t *offset)
{
	uint32_t eighth = (uint32_t)(*offset >> map->eighth), id;
	uint32_t end = map->high ? (uint32_t)((map->high - 1) >> map->eighth) : 0;

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

int glk_away_each(struct glk_arena *arena, glk_away_fn fn, void *arg)
{
	struct glk_map *map = &arena->map;
	uint64_t offset = 0;
	int err = 0;
	uint32_t id;

	while (!err && (id = next_block(map, &offset))) {
		struct glk_extent *e = glk_extent_at(map, id);
		struct glk_moving m;

		offset += GLAKE_GRAIN;
		if (glk_away_take(arena->gpu, e, &m)) {
			err = fn(arena, e, arg);
			glk_away_let_go(arena->gpu, e, &m);
		}
		offset = (offset + (UINT64_C(1) << map->eighth) - 1) >> map->eighth
			<< map->eighth;
	}
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

typedef int (*move_fn)(struct glk_arena *arena, struct glk_extent *e, uint32_t on);

/* Gives the lock up. While the GPU is suspended: `err`, or what the address is refused for. */
static int refuse(struct glk_cache *cache, uint64_t addr, int err)
{
	const struct glk_range *range = glk_cache_range(cache, addr);
	struct glk_live live;
	bool found = glk_away_is_moving(cache, addr) ||
		(range && glk_lookup_live(range, addr, &live) && live.addr == addr);

	glk_unlock(&cache->lock);
	return found ? err : glk_block_refuse(cache, addr);
}

/* `fn` moves a block, which is claimed; where it takes memory not while the GPU is suspended. `told`: what
 * a ticket has to know; NULL: there is none. */
static int move(struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream,
	move_fn fn, bool takes, struct glk_told *told)
{
	struct glk_stream_facts facts = {0};
	struct glk_arena *arena = NULL;
	struct glk_extent *e;
	struct glk_moving m;
	uint32_t on = 0;
	bool found;
	int err;

	err = glk_away_start(cache);
	if (!err)
		err = glk_stream_get(&cache->streams, stream, &facts, &on);
	if (err)
		return err;
	if (facts.capture)
		return glk_error(-EBUSY, GLAKE_ERROR_CAPTURE,
			"no block moves on a stream that captures a graph");
	glk_lock(&cache->lock);
	if (takes)
		err = glk_plan_ask(cache);
	else
		glk_plan_enter(cache);
	if (err)
		return refuse(cache, addr, err);
	do {
		e = glk_away_find(cache, addr, &arena);
		found = e && glk_away_take(cache, e, &m);
		/* others who move it were first, and are waited for */
	} while (e && !found && glk_away_is_moving(cache, addr));
	if (found) {
		err = takes ? glk_suspended(cache) : 0;
		if (!err && takes)
			err = glk_arena_open(arena);
		if (!err && told)
			glk_told_before(arena, e, on, takes, told);
		if (!err)
			err = fn(arena, e, on);
		if (!err && told)
			glk_told_after(arena, on, takes, told);
		glk_away_let_go(cache, e, &m);
	}
	glk_plan_leave(cache);
	glk_unlock(&cache->lock);
	return found ? err : glk_block_refuse(cache, addr);
}

/* Who has its memory next waits for the copy of this block, and not for those of later ones. */
static int send(struct glk_arena *arena, struct glk_extent *e, uint32_t on)
{
	int err;

	if (arena->ops->move)
		return arena->ops->move(arena, e, on, false);
	err = glk_away_send(arena, e, on);
	if (err)
		return err;
	glk_advice_leave(arena, e);
	glk_mover_mark(&arena->gpu->mover);
	return 0;
}

int glk_cache_spill(struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream)
{
	return move(cache, addr, stream, send, false, NULL);
}

/* One that lies on the host in place comes to the GPU, unless it may not move. */
static int have_placed(struct glk_arena *arena, struct glk_extent *e, uint32_t on)
{
	struct glk_telling telling = {0};
	int err;

	if (glk_pin_is_out(e))
		return is_out(e);
	if (glk_advice_stays(arena, e))
		return is_pinned(e);
	err = glk_tell_before(arena, e, GLAKE_MOVE_IN, &telling);
	if (err)
		return err;
	err = glk_exchange_have(arena, e, on);
	glk_tell_after(arena, e, GLAKE_MOVE_IN, &telling, err);
	if (!err)
		glk_away_mark(arena->gpu, e, on);
	return err;
}

/* What is fetched is about to be used. */
static int have(struct glk_arena *arena, struct glk_extent *e, uint32_t on)
{
	uint32_t said = glk_advice_of(arena, e);
	uint64_t placed;
	int err;

	if (arena->ops->move)
		return arena->ops->move(arena, e, on, true);
	if (said & GLAKE_ADVICE_COLD)
		glk_advice_set(arena, e, said & ~(uint32_t)GLAKE_ADVICE_COLD);
	if (glk_extent_away(e)) {
		glk_prefetch_hold(arena->gpu, e);
		err = glk_away_have(arena, e, on);
		glk_prefetch_let_go(arena->gpu, e, !err);
		return err;
	}
	placed = glk_beside_placed(&arena->map, e);
	/* what a hint brought back may have gone to the host in place since */
	if (glk_prefetch_meet(arena, e, on, &err) && (err || !placed))
		return err;
	return placed ? have_placed(arena, e, on) : glk_away_have(arena, e, on);
}

static int fetch(struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream,
	struct glk_told *told)
{
	int err = move(cache, addr, stream, have, true, told);

	/* one that is here is wanted as well */
	if (!err || err == -EALREADY)
		glk_learn_fetched(cache, addr);
	return err;
}

int glk_cache_fetch(struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream)
{
	return fetch(cache, addr, stream, NULL);
}

int glk_cache_move(struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream,
	bool to_gpu, struct glk_told *ret_told)
{
	return to_gpu ? fetch(cache, addr, stream, ret_told)
		      : move(cache, addr, stream, send, false, ret_told);
}
