/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Blocks go away and come back: see away.h. */
#include "cache/away.h"

#include "base/error.h"
#include "cache/arena/request.h"
#include "cache/device.h"
#include "cache/plan.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>

/* Beside the bin that a content keeps: it went because the GPU was suspended. */
#define SUSPENDED (UINT32_C(1) << 31)

int glk_away_start(struct glk_cache *cache)
{
	struct glake_device info = {.sz = sizeof(info)};
	struct glk_mover mover;
	int err;

	err = glk_cache_start(cache);
	if (err || glk_load_acquire(&cache->moves)) /* pairs with: the release below */
		return err;
	glk_lock(&cache->starting);
	if (!glk_load_relaxed(&cache->moves)) {
		err = cache->drv->ops->device_info(cache->drv, cache->device, &info);
		if (!err)
			err = glk_mover_init(&mover, &cache->streams, info.numa_node,
				cache->host);
	}
	if (!err && !glk_load_relaxed(&cache->moves)) {
		glk_lock(&cache->lock);
		cache->mover = mover;
		/* pairs with: the acquire above */
		glk_store_release(&cache->moves, true);
		glk_unlock(&cache->lock);
	}
	glk_unlock(&cache->starting);
	return err;
}

int glk_away_fini(struct glk_cache *cache)
{
	bool moves = glk_load_relaxed(&cache->moves);

	glk_store_relaxed(&cache->moves, false);
	return moves ? glk_mover_fini(&cache->mover) : 0;
}

int glk_away_may(const struct glk_arena *arena, const struct glk_extent *e)
{
	uint64_t addr = glk_load_relaxed(&e->addr);

	if (glk_extent_away(e))
		return glk_error(-EALREADY, GLAKE_ERROR_BUSY,
			"the block at 0x%" PRIx64 " is away", addr);
	if (arena->ops->host)
		return glk_error(-EALREADY, GLAKE_ERROR_BUSY,
			"the block at 0x%" PRIx64 " lies in memory of the host", addr);
	if (e->nested)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"the block at 0x%" PRIx64
			" is too small to move: it shares its page with others",
			addr);
	if (glk_pin_is_out(e))
		return glk_error(-EBUSY, GLAKE_ERROR_BUSY,
			"the block at 0x%" PRIx64
			" is out: others have its memory until they say they do not",
			addr);
	if (!arena->binned)
		return glk_error(-EBUSY, GLAKE_ERROR_BUSY,
			"the block at 0x%" PRIx64 " is of a pool of graphs", addr);
	return 0;
}

int glk_away_send(struct glk_arena *arena, struct glk_extent *e, uint32_t on)
{
	struct glk_cache *cache = arena->gpu;
	struct glk_map *map = &arena->map;
	uint32_t run, bin = glk_load_relaxed(&e->bin);
	struct glk_use use;
	int err;

	err = glk_away_may(arena, e);
	if (err)
		return err;
	do {
		use = glk_block_use(cache, e, on);
		err = glk_move_out(&cache->mover, glk_load_relaxed(&e->addr),
			glk_extent_asked(e), &use, &run);
	} while (err == -ENOMEM && glk_beside_release(cache, GLK_STORE_PIECE));
	if (err)
		return err;
	glk_slots_leave(map, glk_extent_first(map, e), glk_extent_last(map, e), &use);
	glk_store_at(&cache->mover.store, run)->owner = bin;
	glk_store_relaxed(&e->kept, run);
	glk_store_release(&e->bin, GLK_EXTENT_AWAY); /* pairs with: glk_extent_away */
	cache->away += glk_extent_asked(e);
	cache->away_blocks++;
	cache->spills++;
	return 0;
}

/* It is here again, or never will be: what is kept of it is nobody's. The bin it was for. */
static uint32_t forget(struct glk_cache *cache, const struct glk_extent *e, uint64_t read)
{
	uint32_t run = glk_load_relaxed(&e->kept);
	uint32_t owner = glk_store_at(&cache->mover.store, run)->owner;

	cache->suspended_blocks -= (owner & SUSPENDED) > 0;
	glk_store_put(&cache->mover.store, run, read);
	cache->away -= glk_extent_asked(e);
	cache->away_blocks--;
	return owner & ~SUSPENDED;
}

bool glk_away_suspended(const struct glk_cache *cache, const struct glk_extent *e)
{
	return glk_extent_away(e) &&
		glk_store_at(&cache->mover.store, glk_load_relaxed(&e->kept))->owner &
		SUSPENDED;
}

void glk_away_suspend(struct glk_cache *cache, const struct glk_extent *e)
{
	glk_store_at(&cache->mover.store, glk_load_relaxed(&e->kept))->owner |= SUSPENDED;
	cache->suspended_blocks++;
}

/* Where it goes when it is freed: to the bin it would have gone to, if nobody but its own stream is
 * to be waited for. Where no stream was put behind the copy, it is the copy's that is. */
static void restore(
	struct glk_cache *cache, struct glk_extent *e, uint32_t on, uint32_t bin)
{
	uint32_t user = on ? on : cache->mover.back;

	if (user != glk_load_relaxed(&e->stream))
		glk_or_relaxed(&e->marks,
			glk_stream_mask(glk_stream_at(&cache->streams, user)));
	if (glk_block_marks(e))
		bin = GLK_BIN_MARKED;
	glk_store_relaxed(&e->pins, 0);
	glk_store_release(&e->bin, bin); /* pairs with: glk_extent_away */
}

/* Has the contents in the memory behind it, and the stream behind that. */
static int fill(struct glk_cache *cache, struct glk_extent *e, struct glk_stream *on,
	struct glk_use *ret_use)
{
	struct glk_use use;
	int err;

	err = glk_move_back(&cache->mover, glk_load_relaxed(&e->kept),
		glk_load_relaxed(&e->addr), ret_use);
	use = *ret_use;
	/* it may have been announced for a capture meanwhile */
	if (!err && on)
		err = glk_stream_silent(on) ? -EAGAIN
					    : glk_clock_order(&cache->streams, &use, on);
	return err == -EAGAIN ? glk_error(-EBUSY, GLAKE_ERROR_CAPTURE,
					"the stream captures a graph")
			      : err;
}

int glk_away_have(struct glk_arena *arena, struct glk_extent *e, uint32_t on)
{
	struct glk_cache *cache = arena->gpu;
	struct glk_map *map = &arena->map;
	struct glk_request request = {
		.size = glk_extent_asked(e), .rounded = e->size, .patient = true};
	struct glk_stream *stream = NULL;
	struct glk_use use = {0};
	int err;

	if (!glk_extent_away(e))
		return glk_error(-EALREADY, GLAKE_ERROR_BUSY,
			"the block at 0x%" PRIx64 " is here", glk_load_relaxed(&e->addr));
	if (on)
		stream = glk_stream_enter(&cache->streams, on);
	request.stream = glk_stream_enter(&cache->streams, cache->mover.back);
	err = glk_arena_back(arena, &request, glk_extent_id(map, e));
	if (err)
		return err;
	err = fill(cache, e, stream, &use);
	if (err) {
		glk_slots_leave(
			map, glk_extent_first(map, e), glk_extent_last(map, e), &use);
		return err;
	}
	restore(cache, e, on, forget(cache, e, use.tick));
	cache->fetches++;
	return 0;
}

void glk_away_drop(struct glk_arena *arena, struct glk_extent *e)
{
	uint32_t id = glk_extent_id(&arena->map, e);

	/* what writes it is the stream that writes what comes next */
	forget(arena->gpu, e, 0);
	glk_store_relaxed(&e->bin, 0);
	glk_lookup_leave(&arena->map, id);
	glk_extent_give_back(&arena->map, id);
}

/* A block that is live is claimed, and in the hands of the caller until let_go(). */
static bool take(struct glk_cache *cache, struct glk_extent *e, struct glk_moving *m)
{
	uint64_t addr = glk_load_relaxed(&e->addr);

	/* who names a stream or looks for its pages holds it for a moment, without the lock */
	while (!glk_word_claim(&e->word, &e->addr, addr)) {
		if (!(glk_load_relaxed(&e->word) & (GLK_EXTENT_LIVE | GLK_EXTENT_HELD)))
			return false;
		glk_lock_pause(&cache->lock);
		sched_yield();
		glk_lock_resume(&cache->lock);
		if (glk_load_relaxed(&e->addr) != addr)
			return false;
	}
	*m = (struct glk_moving){addr, e->size, cache->moving};
	cache->moving = m;
	return true;
}

static void let_go(struct glk_cache *cache, struct glk_extent *e, struct glk_moving *m)
{
	struct glk_moving **link = &cache->moving;

	while (*link != m)
		link = &(*link)->other;
	*link = m->other;
	glk_extent_set(e, GLK_EXTENT_LIVE);
	pthread_cond_broadcast(&cache->moved);
}

static bool is_moving(const struct glk_cache *cache, uint64_t addr)
{
	for (const struct glk_moving *m = cache->moving; m; m = m->other) {
		if (addr >= m->addr && addr < m->addr + m->size)
			return true;
	}
	return false;
}

bool glk_away_settled(struct glk_cache *cache, uint64_t addr, bool inside)
{
	const struct glk_range *range;
	struct glk_live live;
	bool found;

	if (!glk_load_relaxed(&cache->moves))
		return false;
	glk_lock(&cache->lock);
	while (is_moving(cache, addr))
		glk_lock_wait(&cache->lock, &cache->moved);
	range = glk_cache_range(cache, addr);
	found = range && glk_lookup_live(range, addr, &live) &&
		(inside || live.addr == addr);
	glk_unlock(&cache->lock);
	return found;
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
		if (take(arena->gpu, e, &m)) {
			err = fn(arena, e, arg);
			let_go(arena->gpu, e, &m);
		}
		offset = (offset + (UINT64_C(1) << map->eighth) - 1) >> map->eighth
			<< map->eighth;
	}
	return err;
}

typedef int (*move_fn)(struct glk_arena *arena, struct glk_extent *e, uint32_t on);

/* A live block that begins at an address; NULL: there is none. Waits for others who move it. */
static struct glk_extent *find(
	struct glk_cache *cache, uint64_t addr, struct glk_arena **ret_arena)
{
	const struct glk_range *range;
	struct glk_extent *e;

	while (is_moving(cache, addr))
		glk_lock_wait(&cache->lock, &cache->moved);
	range = glk_cache_range(cache, addr);
	if (!range)
		return NULL;
	*ret_arena = glk_arena_of(range);
	e = glk_extent_at(range->map, glk_lookup_first(range, addr));
	return glk_load_relaxed(&e->addr) == addr ? e : NULL;
}

/* `fn` moves a block, which is claimed; where it takes memory not while the GPU is suspended. */
static int move(struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream,
	move_fn fn, bool takes)
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
	glk_plan_enter(cache);
	e = find(cache, addr, &arena);
	found = e && take(cache, e, &m);
	if (found) {
		err = takes ? glk_suspended(cache) : 0;
		if (!err)
			err = fn(arena, e, on);
		let_go(cache, e, &m);
	}
	glk_plan_leave(cache);
	glk_unlock(&cache->lock);
	return found ? err : glk_block_refuse(cache, addr);
}

int glk_cache_spill(struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream)
{
	return move(cache, addr, stream, glk_away_send, false);
}

int glk_cache_fetch(struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream)
{
	return move(cache, addr, stream, glk_away_have, true);
}
