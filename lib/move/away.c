/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Blocks that are in the hands of who moves them, those who wait for that, and all that may be: see away.h. */
#include "move/away.h"

#include "base/conf.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "move/advice.h"
#include "move/gpu.h"
#include "move/look.h"
#include "move/marks.h"
#include "move/part.h"
#include "move/plan.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>

/* ---- What moves contents ---- */

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
	if (!err && glk_load_relaxed(&cache->encrypts))
		err = glk_cipher_start(&cache->mover);
	if (!err && cache->conf->tier_compress == GLK_TIER_COMPRESS_LZ4)
		err = glk_pack_start(&cache->mover, cache->conf->tier_compress_rest);
	if (!err)
		err = glk_mover_borrow(&cache->mover, cache->io);
	if (err) {
		glk_mover_fini(&cache->mover);
		goto unlock;
	}
	/* pages of the host that lie idle make way for contents */
	cache->mover.store.yield = cache->above->yield;
	cache->mover.store.arg = cache;
	glk_lock(&cache->lock);
	/* pairs with: the acquires of those who ask whether there is anything away */
	glk_store_release(&cache->moves, true);
	glk_unlock(&cache->lock);
unlock:
	glk_unlock(&cache->starting);
	return err;
}

int glk_cache_encrypt(struct glk_cache *cache)
{
	int err = glk_peek_relaxed(&cache->places)
		? glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			  "blocks lie on the host in place with tier.place, which security.level=3 does not allow")
		: glk_cipher_able();

	if (err)
		return err;
	glk_lock(&cache->starting);
	if (glk_load_relaxed(&cache->moves))
		err = glk_cipher_start(&cache->mover);
	if (!err) {
		glk_store_relaxed(&cache->encrypts, true);
		glk_store_relaxed(&cache->hostpool.wipes, true);
	}
	glk_unlock(&cache->starting);
	return err;
}

int glk_away_fini(struct glk_cache *cache)
{
	return glk_load_relaxed(&cache->moves) ? glk_mover_fini(&cache->mover) : 0;
}

/* ---- Blocks in hands ---- */

void glk_away_announce(struct glk_cache *cache, struct glk_moving *m)
{
	m->other = cache->moving;
	cache->moving = m;
}

void glk_away_done(struct glk_cache *cache, struct glk_moving *m)
{
	struct glk_moving **link = &cache->moving;

	while (*link != m)
		link = &(*link)->other;
	*link = m->other;
	pthread_cond_broadcast(&cache->moved);
}

bool glk_away_take(struct glk_cache *cache, struct glk_extent *e, struct glk_moving *m)
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
	*m = (struct glk_moving){.addr = addr, .size = e->size};
	glk_away_announce(cache, m);
	return true;
}

void glk_away_let_go(struct glk_cache *cache, struct glk_extent *e, struct glk_moving *m)
{
	glk_extent_set(e, GLK_EXTENT_LIVE);
	glk_away_done(cache, m);
}

bool glk_away_is_moving(const struct glk_cache *cache, uint64_t addr)
{
	for (const struct glk_moving *m = cache->moving; m; m = m->other) {
		if (addr >= m->addr && addr < m->addr + m->size)
			return true;
	}
	return false;
}

/* A function that is told of the move would wait for itself. */
bool glk_away_settled(struct glk_cache *cache, uint64_t addr, bool inside)
{
	const struct glk_range *range;
	struct glk_live live;
	bool found;

	if (!glk_load_relaxed(&cache->moves) || glk_thread_current->told)
		return false;
	glk_lock(&cache->lock);
	while (glk_away_is_moving(cache, addr))
		glk_lock_wait(&cache->lock, &cache->moved);
	range = glk_cache_range(cache, addr);
	found = range && glk_lookup_live(range, addr, &live) &&
		(inside || live.addr == addr);
	glk_unlock(&cache->lock);
	return found;
}

struct glk_extent *glk_away_find(
	struct glk_cache *cache, uint64_t addr, struct glk_arena **ret_arena)
{
	const struct glk_range *range;
	struct glk_extent *e;

	if (glk_away_is_moving(cache, addr)) {
		glk_plan_park(cache, false);
		while (glk_away_is_moving(cache, addr))
			glk_lock_wait(&cache->lock, &cache->moved);
		glk_plan_unpark(cache, false);
	}
	range = glk_cache_range(cache, addr);
	if (!range)
		return NULL;
	*ret_arena = glk_arena_of(range);
	e = glk_extent_at(range->map, glk_lookup_first(range, addr));
	return glk_load_relaxed(&e->addr) == addr ? e : NULL;
}

/* Says why the address is not that of a live block. */
int glk_block_refuse(struct glk_cache *cache, uint64_t addr)
{
	struct glk_look look = glk_look_begin(cache);
	const struct glk_range *range = glk_cache_range(cache, addr);
	struct glk_live live;
	uint64_t inside = 0;
	bool freed = false, found = false;

	if (range && glk_lookup_live(range, addr, &live)) {
		inside = addr - live.addr;
		found = !inside;
	} else if (range)
		freed = addr - range->base + range->offset <
			glk_peek_relaxed(&range->map->high);
	glk_look_end(cache, &look);
	if (glk_thread_current->told)
		return glk_error(-EBUSY, GLAKE_ERROR_BUSY,
			"a function that is told of moves calls for the block at 0x%" PRIx64,
			addr);
	if (inside)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"0x%" PRIx64 " lies %" PRIu64 " bytes inside a block", addr,
			inside);
	if (found)
		return glk_error(-EBUSY, GLAKE_ERROR_BUSY,
			"another thread uses the block at 0x%" PRIx64 " in a call", addr);
	if (freed && glk_guard_ops(cache))
		glk_guard_ops(cache)->refused(cache, addr);
	if (freed)
		return glk_error(-EINVAL, GLAKE_ERROR_DOUBLE_FREE,
			"no live block at 0x%" PRIx64 ": it was freed before", addr);
	return glk_error(-EINVAL, GLAKE_ERROR_NOT_MINE,
		"0x%" PRIx64 " was never given to anyone", addr);
}

void glk_turn_begin(struct glk_cache *cache)
{
	glk_lock(&cache->lock);
	while (cache->turning)
		glk_lock_wait(&cache->lock, &cache->moved);
	cache->turning = true;
}

void glk_turn_end(struct glk_cache *cache)
{
	cache->turning = false;
	pthread_cond_broadcast(&cache->moved);
	glk_unlock(&cache->lock);
}

/* ---- All of them ---- */

/* The first live block of a range that begins an eighth of a slot for itself, from one of them on, which becomes the
 * next one; 0: none. */
static uint32_t next_block(const struct glk_map *map, unsigned range, uint32_t *eighth)
{
	struct glk_stretch slots = glk_map_slots(map, range);
	uint32_t end = (slots.last << GLK_EIGHTH_SHIFT) | ((1u << GLK_EIGHTH_SHIFT) - 1);
	uint32_t id = 0;

	if (slots.first > slots.last)
		return 0;
	while (!id && *eighth <= end) {
		*eighth = glk_bits_first(map->begins, *eighth, end);
		if (*eighth == GLK_BITS_NONE)
			return 0;
		id = glk_load_relaxed(&map->start[(*eighth)++]);
		if (id & GLK_START_NEST)
			id = 0;
	}
	return id;
}

/* A block at a time, so that who climbs has not to wait for all of them. */
static int each_in(struct glk_arena *arena, unsigned range, glk_away_fn fn, void *arg)
{
	struct glk_map *map = &arena->map;
	uint32_t eighth = (uint32_t)(map->range[range].offset >> map->eighth), id;
	int err = 0;

	do {
		struct glk_extent *e;
		struct glk_moving m;

		glk_plan_enter(arena->gpu);
		id = next_block(map, range, &eighth);
		e = glk_extent_at(map, id);
		if (id && glk_away_take(arena->gpu, e, &m)) {
			err = fn(arena, e, arg);
			glk_away_let_go(arena->gpu, e, &m);
		}
		glk_plan_leave(arena->gpu);
		glk_plan_step(arena->gpu);
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

/* All blocks that may have memory of the GPU outside of graphs. */
int glk_away_everywhere(struct glk_cache *cache, glk_away_fn fn, void *arg)
{
	int err = 0;

	for (struct glk_arena *a = &cache->arena; a && !err; a = a->next)
		err = glk_away_each(a, fn, arg);
	return err;
}

/* The part that lies on the host has a hash, and another one when there is more of it: that is not made of what
 * has changed meanwhile. */
int glk_away_home(struct glk_cache *cache, uint32_t run)
{
	int err;

	if (!run || !glk_store_at(&cache->mover.store, run)->afar)
		return 0;
	err = glk_verify_check(&cache->mover, run);
	if (err) {
		glk_warn("GPU %d: contents with another GPU stay there: %s",
			cache->device, glk_thread_current->error.text);
		return err;
	}
	err = glk_move_home(&cache->mover, run);
	if (cache->conf->tier_verify)
		glk_verify_keep(&cache->mover, run);
	return err;
}

/*
 * What is booked of small blocks that are away: those of a slot have one content together, whose owner is how many
 * they are; each keeps its run. And what is booked of any block that is here again: see away.h.
 */

uint32_t glk_kept_run(const struct glk_extent *e)
{
	return glk_load_relaxed(&e->kept) & GLK_KEPT_RUN;
}

/* How many of the GPU went with it, or of the arena. */
static void count(struct glk_arena *arena, uint32_t kept, uint64_t more)
{
	arena->gpu->suspended_blocks += kept & GLK_KEPT_SUSPENDED ? more : 0;
	arena->suspended_blocks += kept & GLK_KEPT_TAGGED ? more : 0;
}

void glk_kept_depart(struct glk_arena *arena, struct glk_extent *e,
	const struct glk_use *use, uint32_t run, uint32_t why)
{
	struct glk_cache *cache = arena->gpu;
	struct glk_map *map = &arena->map;
	uint64_t bytes = glk_extent_asked(e);

	glk_beside_count(arena, e, false);
	glk_slots_leave(map, glk_extent_first(map, e), glk_extent_last(map, e), use);
	if (run)
		glk_store_at(&cache->mover.store, run)->owner++;
	glk_guard_left(arena, e);
	glk_store_relaxed(&e->kept, run | why);
	glk_store_release(&e->bin, GLK_EXTENT_AWAY); /* pairs with: glk_extent_away */
	count(arena, why, 1);
	cache->away += bytes;
	cache->away_blocks++;
	if (run) {
		cache->spills++;
		cache->spilled += bytes;
	} else {
		cache->discards++;
		cache->discarded += bytes;
	}
	GLK_PROBE3(spill, cache->device, glk_load_relaxed(&e->addr), bytes);
}

/* It is here again, or never will be: what is kept of it is nobody's. */
static void forget(struct glk_arena *arena, const struct glk_extent *e, uint64_t read)
{
	struct glk_store *store = &arena->gpu->mover.store;
	uint32_t run = glk_kept_run(e);

	count(arena, glk_load_relaxed(&e->kept), UINT64_MAX);
	arena->gpu->away -= glk_extent_asked(e);
	arena->gpu->away_blocks--;
	if (run && !--glk_store_at(store, run)->owner)
		glk_store_put(store, run, read);
}

void glk_away_mark(struct glk_cache *cache, struct glk_extent *e, uint32_t stream)
{
	if (stream == glk_load_relaxed(&e->stream))
		return;
	glk_stream_enter(&cache->streams, stream);
	glk_marks_add(&cache->streams, e, stream);
}

void glk_away_restore(
	struct glk_arena *arena, struct glk_extent *e, uint32_t on, uint32_t bin)
{
	bool advised = glk_advice_is_said(arena, e);
	struct glk_cache *cache = arena->gpu;

	glk_away_mark(cache, e, on ? on : cache->mover.back);
	/* what lies on the host goes to no bin: others would find it there */
	if (glk_marks_any(e) || advised || glk_beside_placed(&arena->map, e))
		bin = GLK_BIN_MARKED;
	glk_store_relaxed(&e->pins, 0);
	glk_store_release(&e->bin, bin); /* pairs with: glk_extent_away */
}

void glk_kept_arrive(struct glk_arena *arena, struct glk_extent *e, uint64_t read)
{
	struct glk_cache *cache = arena->gpu;

	forget(arena, e, read);
	glk_away_restore(arena, e, 0, GLK_BIN_MARKED);
	glk_beside_count(arena, e, true);
	cache->fetches++;
	cache->fetched += glk_extent_asked(e);
	GLK_PROBE3(fetch, cache->device, glk_load_relaxed(&e->addr), glk_extent_asked(e));
}

void glk_kept_drop(struct glk_arena *arena, struct glk_extent *e)
{
	uint32_t id = glk_extent_id(&arena->map, e);

	/* what writes it is the stream that writes what comes next */
	forget(arena, e, 0);
	glk_store_relaxed(&e->bin, 0);
	glk_lookup_leave(&arena->map, id);
	glk_extent_give_back(&arena->map, id);
}

/* ---- What blocks have on the host in place, and of that with another GPU ---- */

static uint64_t sum(const struct glk_map *map, const struct glk_extent *e, bool lent)
{
	uint32_t last = glk_extent_last(map, e);
	uint64_t end = e->offset + glk_extent_asked(e), bytes = 0;

	if (!map->hosted || glk_extent_away(e))
		return 0;
	for (uint32_t slot = glk_extent_first(map, e); slot <= last; slot++) {
		if (glk_bit_get(map->host, slot) && glk_part_stands(map, e, slot) &&
			(!lent || glk_map_is_lent(map, map->page[slot])))
			bytes += glk_slot_part(map, slot, e->offset, end);
	}
	return bytes;
}

uint64_t glk_beside_placed(const struct glk_map *map, const struct glk_extent *e)
{
	return sum(map, e, false);
}

uint64_t glk_beside_lent(const struct glk_map *map, const struct glk_extent *e)
{
	return sum(map, e, true);
}

void glk_beside_count(struct glk_arena *arena, const struct glk_extent *e, bool more)
{
	struct glk_cache *gpu = arena->gpu;
	uint64_t bytes;

	bytes = glk_beside_placed(&arena->map, e);
	if (bytes && gpu->host->peer->lender)
		gpu->placed_peer += more ? glk_beside_lent(&arena->map, e)
					 : -glk_beside_lent(&arena->map, e);
	gpu->placed_blocks += !bytes ? 0 : more ? 1 : UINT64_MAX;
	gpu->placed += more ? bytes : -bytes;
	if (gpu->most_placed < gpu->placed)
		gpu->most_placed = gpu->placed;
}
