/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_BLOCK_H
#define GLK_CACHE_BLOCK_H

/* What becomes of blocks that are freed and go to no bin, and what may be asked of those that are
 * not: block.c, pin.c. */
#include "base/cancel.h"
#include "base/rcu.h"
#include "cache/cache.h"

/*
 * A look into tables without the lock: an RCU section, in which tables of arenas that go stay as
 * they are; under the lock of the GPU for a thread that there is no host memory to register. Nothing
 * blocks, allocates, leaves a record or calls the driver inside.
 */
struct glk_look {
	int cancel;
	bool locked;
};

static inline struct glk_look glk_look_begin(struct glk_cache *cache)
{
	/* a thread that is cancelled inside would never end its section */
	struct glk_look look = {.cancel = glk_cancel_off(), .locked = glk_rcu_ready()};

	if (look.locked)
		glk_lock(&cache->lock);
	else
		glk_rcu_read_lock();
	return look;
}

static inline void glk_look_end(struct glk_cache *cache, const struct glk_look *look)
{
	if (look->locked)
		glk_unlock(&cache->lock);
	else
		glk_rcu_read_unlock();
	glk_cancel_restore(look->cancel);
}

/* For one that is held: it goes to no bin when it is freed, as if it were marked with a stream. */
void glk_block_to_no_bin(struct glk_extent *e);
/* The use of a block that was claimed, and of all work that was queued on its streams and on one more
 * until now; 0 for no such. Under the lock. */
struct glk_use glk_block_use(
	struct glk_cache *cache, const struct glk_extent *e, uint32_t stream);
/* The rest of a free. Says why the address is not that of a live block: -EINVAL. */
int glk_block_refuse(struct glk_cache *cache, uint64_t addr) GLK_COLD;
/* A free where no live block was found: it may just be moved, or held. */
int glk_block_late(
	struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream) GLK_COLD;
/* Frees an extent that the caller has claimed and that goes to no bin. 0 or the driver's
 * error, with the block live again. */
int glk_block_give_back(struct glk_cache *cache, struct glk_extent *e,
	struct CUstream_st *stream) GLK_COLD;

/* pin.c, under the lock of the GPU. For an extent that was claimed and is out: whether it stays,
 * marked with the streams of its use. */
bool glk_pin_hold(
	struct glk_arena *arena, struct glk_extent *e, const struct glk_use *use);
/* Pins of a live or claimed block, and whether it is out. */
#define GLK_PINS_MOST ((UINT32_C(1) << 30) - 1)

static inline uint32_t glk_pin_count(const struct glk_extent *e)
{
	/* pairs with: the release in pin() */
	if (glk_load_acquire(&e->bin) != GLK_BIN_PINNED)
		return 0;
	return glk_load_relaxed(&e->pins) & GLK_PINS_MOST;
}

static inline bool glk_pin_is_out(const struct glk_extent *e)
{
	return glk_pin_count(e) > 0;
}

/* What query tells of it beside the rest, in a look. `able`: what all pages it asked for are made
 * for, GLK_PAGE_... */
void glk_pin_describe(const struct glk_arena *arena, const struct glk_extent *e,
	uint32_t able, struct glake_block *block);

#endif
