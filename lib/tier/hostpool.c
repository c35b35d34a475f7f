/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Blocks of locked memory of the host: see hostpool.h. */
#include "tier/hostpool.h"

#include "base/conf.h"
#include "base/error.h"
#include "numa/topology.h"
#include "tier/piece.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include <glake/host.h>
#include <glake/stats.h>

/* Streams that blocks wait for, asked by each request, and uses that it takes out of their queues. */
#define REAPED 16
/* Free extents looked at for one that an aligned block fits into. */
#define CANDIDATES 16

void glk_hostpool_init(struct glk_hostpool *pool, struct glk_drv *drv,
	const struct glk_conf *conf, int device, int gpus, int node)
{
	pool->drv = drv;
	pool->conf = conf;
	pool->device = device;
	pool->gpus = gpus;
	pool->node = node;
	pool->blocks.by_address = true;
	glk_store_relaxed(&pool->low, UINT64_MAX);
	glk_lock_init(&pool->lock, GLK_RANK_HOSTPOOL);
	pthread_cond_init(&pool->changed, NULL);
}

static size_t side_bytes(const struct glk_hostpool *pool)
{
	return ((size_t)pool->conf->map_extents + 1) * sizeof(*pool->side);
}

static void end_tables(struct glk_hostpool *pool)
{
	glk_hostpool_wait_fini(pool);
	glk_slab_fini(&pool->map.extents);
	glk_region_free(pool->side, side_bytes(pool));
	pool->side = NULL;
}

/* The tables, at the first request. With the lock. */
static int start(struct glk_hostpool *pool)
{
	uint32_t most = (uint32_t)pool->conf->map_extents;
	int err = 0;

	if (glk_load_relaxed(&pool->made))
		return 0;
	glk_extent_pieces(&pool->map);
	pool->side = glk_region_new(side_bytes(pool));
	err = pool->side ? 0 : -ENOMEM;
	if (!err)
		err = glk_slab_init(&pool->map.extents, sizeof(struct glk_extent), most);
	if (!err)
		err = glk_hostpool_wait_init(pool);
	if (err)
		end_tables(pool);
	else
		/* pairs with: the acquires of those who look */
		glk_store_release(&pool->made, true);
	return err;
}

/* The smallest whole piece that is large enough, of the newest ones: each begins at any alignment. */
static uint32_t find_whole(
	const struct glk_hostpool *pool, uint64_t size, uint64_t *ret_at)
{
	const struct glk_extent *best = NULL;
	uint32_t found = 0;

	for (uint32_t id = pool->whole.last, looks = 0; id && looks < GLK_HOSTPOOL_LOOKS;
		id = pool->side[id].prev, looks++) {
		const struct glk_extent *e = glk_extent_at(&pool->map, id);

		if (e->size < size || (best && best->size <= e->size))
			continue;
		best = e;
		found = id;
		*ret_at = e->offset;
	}
	return found;
}

/*
 * The smallest free extent of those looked at; one that is larger by the alignment always fits, and so
 * does a whole piece. What was made for a block is found.
 */
static uint32_t find(
	const struct glk_hostpool *pool, uint64_t size, uint64_t align, uint64_t *ret_at)
{
	uint64_t sizes[] = {size, size + align - GLK_HOSTPOOL_GRAIN};
	uint32_t found[CANDIDATES];

	for (int i = 0; i < 2; i++) {
		unsigned count = glk_tree_find(
			&pool->map, &pool->map.common, sizes[i], found, CANDIDATES);

		for (unsigned c = 0; c < count; c++) {
			const struct glk_extent *e = glk_extent_at(&pool->map, found[c]);

			*ret_at = (e->offset + align - 1) & ~(align - 1);
			if (*ret_at + size <= e->offset + e->size)
				return found[c];
		}
	}
	return find_whole(pool, size, ret_at);
}

/*
 * 0; -ENOENT without a record: there is to be another piece; or -ENOMEM. With `spares`, a large piece
 * may be kept for larger blocks.
 */
static int cut(struct glk_hostpool *pool, uint64_t size, uint64_t align, uint64_t asked,
	bool spares, uint64_t *ret_addr)
{
	uint32_t from, extent;
	struct glk_extent *e;
	uint64_t at = 0;
	bool whole;
	int err;

	from = find(pool, size, align, &at);
	if (!from)
		return -ENOENT;
	whole = glk_extent_whole_piece(glk_extent_at(&pool->map, from));
	if (whole && spares &&
		glk_hostpool_spares(pool, size, glk_extent_at(&pool->map, from)->size))
		return -ENOENT;
	if (whole)
		glk_hostpool_take(pool, from);
	err = glk_extent_carve(&pool->map, from, at, size, &extent);
	if (err) {
		if (whole)
			glk_hostpool_put(pool, from);
		return err;
	}
	e = glk_extent_at(&pool->map, extent);
	glk_store_relaxed(&e->slack, (uint32_t)(size - asked));
	glk_extent_set(e, GLK_EXTENT_LIVE);
	glk_tree_insert_in(&pool->map, &pool->blocks, 0, extent);
	pool->side[extent].uses = 0;
	pool->given += size;
	pool->live += asked;
	pool->allocs++;
	if (pool->most < pool->given + pool->waits)
		pool->most = pool->given + pool->waits;
	if (pool->peak_live < pool->live)
		pool->peak_live = pool->live;
	*ret_addr = at;
	return 0;
}

/* Where no piece can be made: waits for room for a block, which others may take. 0, or why not. */
static int await_room(struct glk_hostpool *pool, uint64_t size, int err)
{
	uint64_t limit = glk_hostpool_limit(pool);

	/* what is live stays */
	if (err != -ENOMEM || pool->given > limit || size > limit - pool->given)
		return err;
	/* a whole piece that is too small for it is in the way of one that is not */
	if (pool->whole.first && glk_hostpool_give(pool, glk_hostpool_idle(pool) - 1))
		return 0;
	/* so is one that others are giving back */
	if (pool->giving) {
		glk_lock_wait(&pool->lock, &pool->changed);
		return 0;
	}
	return glk_hostpool_await(pool) ? 0 : err;
}

/* Each turn another piece was made, others made or gave back one, or freed blocks wait no more. */
static int place(struct glk_hostpool *pool, uint64_t size, uint64_t align, uint64_t asked,
	uint64_t *ret_addr)
{
	bool made = false, reaped = false;
	int err, spared;

	for (;;) {
		err = cut(pool, size, align, asked, !made, ret_addr);
		if (err != -ENOENT)
			return err;
		/* the lock was held since: nobody else has had it */
		if (made)
			return glk_error(-EIO, GLAKE_ERROR_CORRUPT,
				"a piece of locked memory that was made for %" PRIu64
				" bytes does not serve them",
				size);
		/* once: there may be very many */
		reaped = !reaped &&
			glk_hostpool_reap(pool, GLK_HOSTPOOL_PASSED, GLK_HOSTPOOL_RECORD);
		if (reaped)
			continue;
		err = glk_hostpool_grow(pool, size, &made);
		if (!err)
			continue;
		/* a large piece may have been kept for larger blocks */
		spared = cut(pool, size, align, asked, false, ret_addr);
		if (spared != -ENOENT)
			return spared;
		err = await_room(pool, size, err);
		if (err)
			return err;
	}
}

int glk_hostpool_alloc(
	struct glk_hostpool *pool, uint64_t bytes, uint64_t align, uint64_t *ret_addr)
{
	uint64_t size =
		(bytes + GLK_HOSTPOOL_GRAIN - 1) & ~(uint64_t)(GLK_HOSTPOOL_GRAIN - 1);
	int err;

	glk_lock(&pool->lock);
	err = start(pool);
	if (!err && pool->waiting)
		glk_hostpool_reap(pool, REAPED, GLK_HOSTPOOL_ASK);
	if (!err)
		err = place(pool, size, align, bytes, ret_addr);
	pool->refused += err != 0;
	glk_unlock(&pool->lock);
	if (!err && glk_load_relaxed(&pool->wipes))
		memset((void *)(uintptr_t)*ret_addr, 0, size);
	return err;
}

/* The live block that holds an address; 0: none. With the lock. */
static uint32_t look(const struct glk_hostpool *pool, uint64_t addr)
{
	uint32_t extent = glk_tree_floor(&pool->map, &pool->blocks, addr);
	const struct glk_extent *e = glk_extent_at(&pool->map, extent);

	return extent && addr - e->offset < e->size ? extent : 0;
}

/* Whether there is anything to look for. */
static bool is_made(struct glk_hostpool *pool, uint64_t addr)
{
	/* pairs with: the release in start */
	return glk_load_acquire(&pool->made) && glk_hostpool_may_have(pool, addr);
}

int glk_hostpool_free(struct glk_hostpool *pool, uint64_t addr)
{
	struct glk_extent *e;
	uint32_t extent;
	uint64_t keep;

	if (!is_made(pool, addr))
		return -ENOENT;
	glk_lock(&pool->lock);
	extent = look(pool, addr);
	e = glk_extent_at(&pool->map, extent);
	if (!extent || e->offset != addr) {
		glk_unlock(&pool->lock);
		return -ENOENT;
	}
	glk_tree_remove_in(&pool->map, &pool->blocks, 0, extent);
	pool->given -= e->size;
	pool->live -= glk_extent_asked(e);
	pool->frees++;
	glk_extent_set(e, GLK_EXTENT_QUICK);
	if (glk_load_relaxed(&pool->wipes) && !pool->side[extent].uses) {
		glk_lock_pause(&pool->lock);
		explicit_bzero((void *)(uintptr_t)addr, e->size);
		glk_lock_resume(&pool->lock);
	}
	glk_hostpool_leave(pool, extent);
	keep = glk_peek_relaxed(&pool->conf->host_keep);
	if (pool->waiting && pool->there > keep)
		glk_hostpool_reap(pool, REAPED, GLK_HOSTPOOL_ASK);
	glk_hostpool_give(pool, keep);
	glk_unlock(&pool->lock);
	return 0;
}

int glk_hostpool_use(struct glk_hostpool *pool, uint64_t addr,
	struct glk_streams *streams, const struct glk_use *use)
{
	int err = -ENOENT;
	uint32_t extent;

	if (!is_made(pool, addr))
		return err;
	glk_lock(&pool->lock);
	extent = look(pool, addr);
	if (extent)
		err = glk_hostpool_add_use(pool, extent, streams, use);
	glk_unlock(&pool->lock);
	return err;
}

int glk_hostpool_query(
	struct glk_hostpool *pool, uint64_t addr, struct glake_host_block *ret_block)
{
	struct glake_host_block block = {.sz = sizeof(block), .device = pool->device};
	uint32_t extent;

	if (!is_made(pool, addr))
		return -ENOENT;
	glk_lock(&pool->lock);
	extent = look(pool, addr);
	if (extent) {
		const struct glk_extent *e = glk_extent_at(&pool->map, extent);

		block.base = (void *)(uintptr_t)e->offset;
		block.size = glk_extent_asked(e);
		block.given = e->size;
		block.gpus = glk_hostpool_gpus(pool, extent);
	}
	glk_unlock(&pool->lock);
	if (!extent)
		return -ENOENT;
	if (glk_numa_where(block.base, &block.node))
		block.node = pool->node;
	*ret_block = block;
	return 0;
}

void glk_hostpool_figures(struct glk_hostpool *pool, struct glake_stats *stats)
{
	glk_lock(&pool->lock);
	stats->host_pool_live = pool->live;
	stats->host_pool_given = pool->given;
	stats->host_pool_held = pool->held;
	stats->host_pool_waiting = pool->waits;
	stats->host_pool_blocks = pool->allocs - pool->frees;
	stats->host_pool_pieces = pool->pieces;
	stats->host_pool_allocs = pool->allocs;
	stats->host_pool_grows = pool->grows;
	stats->host_pool_refused = pool->refused;
	stats->peak_host_pool_live = pool->peak_live;
	stats->peak_host_pool_held = pool->peak_held;
	glk_unlock(&pool->lock);
}

void glk_hostpool_reset_peaks(struct glk_hostpool *pool)
{
	glk_lock(&pool->lock);
	pool->peak_live = pool->live;
	pool->peak_held = pool->held;
	glk_unlock(&pool->lock);
}

/* The piece that begins with an extent, and all that is in it. Whether it is gone. */
static bool end_piece(struct glk_hostpool *pool, const struct glk_extent *e)
{
	uint64_t base = e->offset, size = 0;

	for (;; e = glk_extent_at(&pool->map, e->next)) {
		size += e->size;
		if (!e->next)
			break;
	}
	return glk_piece_end(pool->drv, pool->device, (char *)(uintptr_t)base, size);
}

int glk_hostpool_fini(struct glk_hostpool *pool, size_t *ret_live)
{
	uint32_t last = glk_load_relaxed(&pool->map.extents.used);
	bool gone = true;

	*ret_live = pool->allocs - pool->frees;
	for (uint32_t id = 1; id <= last; id++) {
		const struct glk_extent *e = glk_extent_at(&pool->map, id);

		if (glk_extent_state(e) != GLK_EXTENT_NONE && !e->prev)
			gone &= end_piece(pool, e);
	}
	if (glk_load_relaxed(&pool->made))
		end_tables(pool);
	pthread_cond_destroy(&pool->changed);
	glk_lock_fini(&pool->lock);
	return gone ? 0 : -EIO;
}
