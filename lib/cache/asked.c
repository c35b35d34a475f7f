/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Blocks, and ranges of them, that the program itself sends away and has back: see away.h, part.h. */
#include "cache/asked.h"

#include "base/error.h"
#include "cache/cache.h"
#include "cache/exchange.h"
#include "cache/fetch.h"

#include <errno.h>
#include <inttypes.h>

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

static int claimed(struct glk_arena *arena, struct glk_extent *e, uint32_t on,
	const struct glk_asking *how)
{
	int err = how->takes ? glk_suspended(arena->gpu) : 0;

	if (!err && how->takes)
		err = glk_arena_open(arena);
	if (!err && how->told)
		glk_told_before(arena, e, on, how->takes, how->told);
	if (how->told && how->portion)
		how->told->bytes = how->portion->bytes;
	if (!err)
		err = how->fn(arena, e, on, how);
	if (!err && how->told)
		glk_told_after(arena, on, how->takes, how->told);
	return err;
}

int glk_asked(struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream,
	const struct glk_asking *how)
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
	if (how->takes)
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
		err = claimed(arena, e, on, how);
		glk_away_let_go(cache, e, &m);
	}
	glk_plan_leave(cache);
	glk_unlock(&cache->lock);
	return found ? err : glk_block_refuse(cache, addr);
}

static int is_managed(const struct glk_extent *e)
{
	return glk_error(-EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED,
		"the block at 0x%" PRIx64
		" is managed memory: the driver moves its parts",
		glk_load_relaxed(&e->addr));
}

/* Who has its memory next waits for the copy of this block, and not for those of later ones. */
static int send(struct glk_arena *arena, struct glk_extent *e, uint32_t on,
	const struct glk_asking *how)
{
	const struct glk_portion *portion = how->portion;
	struct glk_part_way way = {.on = on};
	int err;

	if (arena->ops->move)
		return portion ? is_managed(e) : arena->ops->move(arena, e, on, false);
	err = portion ? glk_portion_send(arena, e, on, portion)
		      : glk_spill(arena, e, &way);
	if (err)
		return err;
	if (glk_extent_away(e))
		glk_advice_leave(arena, e);
	glk_mover_mark(&arena->gpu->mover);
	return 0;
}

/* One that lies on the host in place comes to the GPU, unless it may not move. */
static int have_placed(struct glk_arena *arena, struct glk_extent *e, uint32_t on)
{
	struct glk_telling telling = {0};
	int err;

	err = glk_spill_keeps(arena, e);
	if (!err)
		err = glk_tell_before(arena, e, GLAKE_MOVE_IN, &telling);
	if (err)
		return err;
	err = glk_exchange_have(arena, e, on);
	glk_tell_after(arena, e, GLAKE_MOVE_IN, &telling, err);
	if (!err)
		glk_away_mark(arena->gpu, e, on);
	return err;
}

/* One that is away, as a whole or in part. */
static int have_away(struct glk_arena *arena, struct glk_extent *e, uint32_t on,
	const struct glk_asking *how)
{
	struct glk_part_way way = {.on = on, .large = how->large};
	int err;

	glk_prefetch_hold(arena->gpu, e);
	err = how->portion ? glk_fetch_portions(arena, e, how->portion, how->count, &way)
			   : glk_fetch(arena, e, &way);
	glk_prefetch_let_go(arena->gpu, e, !err && !glk_extent_lacks(e));
	return err;
}

/* What is fetched is about to be used. */
static int have(struct glk_arena *arena, struct glk_extent *e, uint32_t on,
	const struct glk_asking *how)
{
	const struct glk_portion *portion = how->portion;
	uint32_t said = glk_advice_of(arena, e);
	const struct glk_part_way way = {.on = on};
	uint64_t placed;
	int err = 0;

	for (size_t i = 0; i < how->count && !err; i++)
		err = glk_portion_check(e, &portion[i]);
	if (err)
		return err;
	if (arena->ops->move)
		return portion ? is_managed(e) : arena->ops->move(arena, e, on, true);
	if (said & GLAKE_ADVICE_COLD)
		glk_advice_set(arena, e, said & ~(uint32_t)GLAKE_ADVICE_COLD);
	if (glk_extent_lacks(e))
		return have_away(arena, e, on, how);
	placed = glk_beside_placed(&arena->map, e);
	/* what a hint brought back may have gone to the host in place since */
	if (glk_prefetch_meet(arena, e, on, &err) && (err || !placed))
		return err;
	return placed ? have_placed(arena, e, on) : glk_fetch(arena, e, &way);
}

int glk_cache_spill(struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream)
{
	return glk_cache_move(cache, addr, stream, false, NULL, NULL);
}

int glk_cache_fetch(struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream)
{
	return glk_cache_move(cache, addr, stream, true, NULL, NULL);
}

int glk_cache_move(struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream,
	bool to_gpu, const struct glk_portion *portion, struct glk_told *ret_told)
{
	const struct glk_asking how = {.fn = to_gpu ? have : send,
		.portion = portion,
		.count = portion != NULL,
		.takes = to_gpu,
		.told = ret_told};

	return glk_asked(cache, addr, stream, &how);
}

int glk_cache_have(struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream,
	const struct glk_portion *portions, size_t count, bool large)
{
	const struct glk_asking how = {.fn = have,
		.portion = portions,
		.count = count,
		.takes = true,
		.large = large};

	return glk_asked(cache, addr, stream, &how);
}
