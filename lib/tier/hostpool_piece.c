/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Pieces of a pool of locked memory come and go: see hostpool.h. */
#include "tier/hostpool.h"

#include "base/conf.h"
#include "base/error.h"
#include "base/parse.h"
#include "tier/piece.h"

#include <errno.h>

#define MIB ((uint64_t)1 << 20)

/*
 * How large pieces are. The pool holds an eighth more than was in use at a time, and SLACK. As far as that
 * allows, a piece has an eighth of what is in use, so that their number grows with the logarithm, up to
 * host.piece. A block of which there would be fewer than SHARERS in such a piece has one of its own size,
 * because the end of a piece that is too small for the next block is lost. Together: however sizes grow,
 * an eighth is lost at the ends of pieces, or lies free in the last one.
 */
#define SLACK	(32 * MIB)
#define SHARERS 8
#define LEAST	(4 * MIB)  /* of one that blocks share */
#define MOST	(8 * MIB)  /* of the first ones */
#define PAGE	(64 << 10) /* the largest one of the system */

void glk_hostpool_put(struct glk_hostpool *pool, uint32_t extent)
{
	pool->side[extent].prev = pool->whole.last;
	pool->side[extent].next = 0;
	if (pool->whole.last)
		pool->side[pool->whole.last].next = extent;
	else
		pool->whole.first = extent;
	pool->whole.last = extent;
	pool->whole.bytes += glk_extent_at(&pool->map, extent)->size;
}

void glk_hostpool_take(struct glk_hostpool *pool, uint32_t extent)
{
	struct glk_hostpool_side *side = &pool->side[extent];

	*(side->prev ? &pool->side[side->prev].next : &pool->whole.first) = side->next;
	*(side->next ? &pool->side[side->next].prev : &pool->whole.last) = side->prev;
	pool->whole.bytes -= glk_extent_at(&pool->map, extent)->size;
}

void glk_hostpool_merge(struct glk_hostpool *pool, uint32_t extent)
{
	glk_extent_give_back(&pool->map, extent);
	if (glk_extent_whole_piece(glk_extent_at(&pool->map, extent)))
		glk_hostpool_put(pool, extent);
}

uint64_t glk_hostpool_limit(const struct glk_hostpool *pool)
{
	uint64_t limit = glk_peek_relaxed(&pool->conf->host_limit);

	limit = limit ? limit : pool->half;
	return limit ? limit : UINT64_MAX;
}

static int refuse(const struct glk_hostpool *pool, uint64_t size)
{
	return glk_error(-ENOMEM, GLAKE_ERROR_LIMIT,
		"%s of the host are locked in blocks for the program near GPU %d, and %s more "
		"are above the %s that host.limit allows",
		glk_say_bytes(pool->held).text, pool->device, glk_say_bytes(size).text,
		glk_say_bytes(glk_hostpool_limit(pool)).text);
}

static uint64_t whole_pages(uint64_t bytes)
{
	return (bytes + PAGE - 1) & ~(uint64_t)(PAGE - 1);
}

/* What may be held when there is a block more. */
static uint64_t allowance(const struct glk_hostpool *pool, uint64_t size)
{
	uint64_t used = pool->given + pool->waits + size;

	if (used < pool->most)
		used = pool->most;
	return used + used / 8 + SLACK;
}

/* Of a piece for blocks like this one; `gone` of what is held goes for it. */
static uint64_t shared_size(const struct glk_hostpool *pool, uint64_t size, uint64_t gone)
{
	uint64_t allowed = allowance(pool, size), held = pool->held - gone;
	uint64_t part = (pool->given + pool->waits) / 8, piece;

	piece = allowed > held ? allowed - held : 0;
	part = part > MOST ? part : MOST;
	piece = piece < part ? piece : part;
	piece = piece > LEAST ? piece : LEAST;
	return (piece < pool->conf->host_piece ? piece : pool->conf->host_piece) &
		~(uint64_t)(PAGE - 1);
}

bool glk_hostpool_spares(const struct glk_hostpool *pool, uint64_t size, uint64_t whole)
{
	uint64_t piece = shared_size(pool, size, 0), limit = glk_hostpool_limit(pool);

	return whole / SHARERS > piece && piece / SHARERS >= size &&
		pool->held + piece <= allowance(pool, size) && pool->held <= limit &&
		piece <= limit - pool->held;
}

/* A piece of so many bytes. With the lock, which is given up meanwhile; `held` has it already. */
static int make(struct glk_hostpool *pool, uint64_t size)
{
	char *base = NULL;
	uint64_t addr;
	uint32_t extent;
	int err;

	glk_lock_pause(&pool->lock);
	err = glk_piece_make(pool->drv, pool->device, pool->node, pool->conf->host_bind,
		!pool->untouched, size, &base);
	glk_lock_resume(&pool->lock);
	if (err)
		return err;
	addr = (uint64_t)(uintptr_t)base;
	err = glk_extent_add(&pool->map, addr, size, &extent);
	if (err) {
		glk_lock_pause(&pool->lock);
		glk_piece_end(pool->drv, pool->device, base, size);
		glk_lock_resume(&pool->lock);
		return err;
	}
	if (addr < glk_load_relaxed(&pool->low))
		glk_store_relaxed(&pool->low, addr);
	if (addr + size > glk_load_relaxed(&pool->high))
		glk_store_relaxed(&pool->high, addr + size);
	glk_hostpool_put(pool, extent);
	pool->there += size;
	pool->pieces++;
	pool->grows++;
	if (pool->peak_held < pool->held)
		pool->peak_held = pool->held;
	return 0;
}

/* The same within the limit. */
static int grow_by(struct glk_hostpool *pool, uint64_t size)
{
	uint64_t limit = glk_hostpool_limit(pool);
	int err;

	if (pool->held > limit || size > limit - pool->held)
		return refuse(pool, size);
	pool->held += size;
	err = make(pool, size);
	if (err)
		pool->held -= size;
	return err;
}

/* A whole piece. With the lock, which is given up meanwhile. */
static uint64_t give_one(struct glk_hostpool *pool, uint32_t extent)
{
	const struct glk_extent *e = glk_extent_at(&pool->map, extent);
	uint64_t size = e->size;
	char *base = (char *)(uintptr_t)e->offset;
	bool gone;

	glk_hostpool_take(pool, extent);
	glk_extent_drop(&pool->map, extent);
	pool->there -= size;
	pool->pieces--;
	pool->giving++;
	glk_lock_pause(&pool->lock);
	gone = glk_piece_end(pool->drv, pool->device, base, size);
	glk_lock_resume(&pool->lock);
	pool->giving--;
	pthread_cond_broadcast(&pool->changed);
	/* what the driver keeps counts as held */
	if (gone)
		pool->held -= size;
	return size;
}

/* The bytes of whole pieces that are too small for a block: of those looked at, where there are others. */
static uint64_t too_small(const struct glk_hostpool *pool, uint64_t size)
{
	uint32_t e = pool->whole.first;
	uint64_t sum = 0;

	if (glk_tree_largest(&pool->map, &pool->map.common) < size)
		return pool->whole.bytes;
	for (unsigned looks = 0; e && looks < GLK_HOSTPOOL_LOOKS; looks++) {
		if (glk_extent_at(&pool->map, e)->size < size)
			sum += glk_extent_at(&pool->map, e)->size;
		e = pool->side[e].next;
	}
	return sum;
}

/*
 * Where free pieces would do that are each too small, they become one. If there are only few, all of it is
 * kept for blocks whose sizes change from one to the next, else each would have pieces locked.
 */
static uint64_t piece_size(const struct glk_hostpool *pool, uint64_t size, uint64_t gone)
{
	uint64_t shared = shared_size(pool, size, gone), most, piece;

	piece = shared / SHARERS >= size ? shared : whole_pages(size);
	most = whole_pages(
		2 * size > pool->conf->host_piece ? 2 * size : pool->conf->host_piece);
	if (most > gone)
		most = gone;
	return gone < 4 * size && piece < most ? most : piece;
}

static void give_small(struct glk_hostpool *pool, uint64_t size, uint64_t bytes)
{
	uint64_t given = 0;

	while (given < bytes) {
		uint32_t e = pool->whole.first;

		for (unsigned looks = 1; e && glk_extent_at(&pool->map, e)->size >= size;
			looks++)
			e = looks < GLK_HOSTPOOL_LOOKS ? pool->side[e].next : 0;
		if (!e)
			break;
		given += give_one(pool, e);
	}
}

/* With the lock, which is given up meanwhile. */
static int grow(struct glk_hostpool *pool, uint64_t bytes, uint64_t gone, uint64_t size)
{
	uint64_t least = whole_pages(bytes);
	int err;

	if (gone)
		give_small(pool, bytes, size);
	err = grow_by(pool, size);
	/* where no such piece may be had, a smaller one may */
	while (err == -ENOMEM && least < size) {
		size = whole_pages(size / SHARERS);
		size = size > least ? size : least;
		err = grow_by(pool, size);
	}
	return err;
}

int glk_hostpool_grow(struct glk_hostpool *pool, uint64_t bytes, bool *ret_made)
{
	uint64_t gone = too_small(pool, bytes), size;
	int err;

	gone = gone >= bytes ? gone : 0;
	size = piece_size(pool, bytes, gone);
	/* several make pieces of their own at a time */
	if (size / SHARERS < bytes) {
		err = grow(pool, bytes, gone, size);
		*ret_made = !err;
		return err;
	}
	if (pool->growing) {
		glk_lock_wait(&pool->lock, &pool->changed);
		*ret_made = false;
		return 0;
	}
	pool->growing = true;
	err = grow(pool, bytes, gone, size);
	*ret_made = !err;
	pool->growing = false;
	pthread_cond_broadcast(&pool->changed);
	return err;
}

uint64_t glk_hostpool_give(struct glk_hostpool *pool, uint64_t keep)
{
	uint64_t given = 0;

	while (pool->whole.first && glk_hostpool_idle(pool) > keep)
		given += give_one(pool, pool->whole.first);
	return given;
}

uint64_t glk_hostpool_trim(struct glk_hostpool *pool)
{
	uint64_t given;
	uint32_t left;

	/* pairs with: the release in start */
	if (!glk_load_acquire(&pool->made))
		return 0;
	glk_lock(&pool->lock);
	/* what others free meanwhile is for the next trim */
	for (left = glk_load_relaxed(&pool->uses.live); left &&
		(glk_hostpool_reap(pool, left, GLK_HOSTPOOL_RECORD) ||
			glk_hostpool_await_ended(pool));
		left--)
		;
	given = glk_hostpool_give(pool, 0);
	pool->most = pool->given + pool->waits;
	glk_unlock(&pool->lock);
	return given;
}
