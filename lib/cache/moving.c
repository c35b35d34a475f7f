/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Blocks that are in the hands of who moves them, and those who wait for that: see away.h. */
#include "cache/away.h"

#include "base/error.h"
#include "base/thread.h"
#include "cache/plan.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>

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
