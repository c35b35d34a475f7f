/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MOVE_ADVICE_H
#define GLK_MOVE_ADVICE_H

/*
 * What the program says of blocks. It is kept beside the extents, whose cache line is full, in a table
 * that is there from the first advice on. A block that something was said of goes to no bin when it is
 * freed, so that a hit finds none of them and what was said ends with the block.
 */
#include "move/gpu.h"

/* Any thread, in a look or under the lock. GLAKE_ADVICE_NORMAL where nothing was said. */
static inline uint32_t glk_advice_of(
	const struct glk_arena *arena, const struct glk_extent *e)
{
	/* pairs with: the release of who makes the table */
	struct glk_advice *table = glk_load_acquire(&arena->advice);

	return table ? glk_load_relaxed(&table[glk_extent_id(&arena->map, e)].what)
		     : GLAKE_ADVICE_NORMAL;
}

/* Whether a cold one, or one whose contents may be dropped. */
static inline bool glk_advice_is(
	const struct glk_arena *arena, const struct glk_extent *e, uint32_t bit)
{
	return glk_advice_of(arena, e) & bit;
}

/* Pins of one, and whether it has to stay since it is pinned, by advice or by them. */
static inline uint32_t glk_advice_pins(
	const struct glk_arena *arena, const struct glk_extent *e)
{
	/* pairs with: the release of who makes the table */
	struct glk_advice *table = glk_load_acquire(&arena->advice);

	return table ? glk_load_relaxed(&table[glk_extent_id(&arena->map, e)].pins) : 0;
}

static inline bool glk_advice_stays(
	const struct glk_arena *arena, const struct glk_extent *e)
{
	return glk_advice_of(arena, e) == GLAKE_ADVICE_PINNED ||
		glk_advice_pins(arena, e);
}

/* The program has sent one away itself: it is no victim any more, until its advice is said anew. */
void glk_advice_leave(struct glk_arena *arena, const struct glk_extent *e);
/* One that is a victim, and cannot go now: it is the newest of its equals. */
void glk_advice_last(struct glk_arena *arena, const struct glk_extent *e);
/* Under the lock: the table is there. 0, or -ENOMEM with a record. */
int glk_advice_make(struct glk_arena *arena);
/* Under the lock, for a block that is claimed or held. */
void glk_advice_set(struct glk_arena *arena, const struct glk_extent *e, uint32_t what);
/* Whether something was said of one that ends with it. */
bool glk_advice_is_said(const struct glk_arena *arena, const struct glk_extent *e);
/* With the block, where something was said of blocks of the arena. */
void glk_advice_drop(struct glk_arena *arena, const struct glk_extent *e);

/* With the block: nothing was said of it, and nobody pins it. */
static inline void glk_advice_end(struct glk_arena *arena, const struct glk_extent *e)
{
	if (glk_load_relaxed(&arena->advice))
		glk_advice_drop(arena, e);
}

/* With the arena, in two steps: the table is found no more, and it goes when nobody can read it any more.
 * NULL: there was none. */
struct glk_advice *glk_advice_take(struct glk_arena *arena);
void glk_advice_free(struct glk_advice *table, uint32_t extents);
/*
 * Under the lock, which is given up meanwhile: sends cold blocks away until they have so many bytes, those
 * of lower priority first, and those that were said to be cold first; those of tags behind all others. How many
 * bytes there were. The others: the bytes of all that are cold, those that have to stay, or are away, among
 * them; and whether those that may go have so many.
 */
uint64_t glk_victim_cold(const struct glk_cache *cache);
bool glk_victim_can(struct glk_cache *cache, uint64_t bytes);
uint64_t glk_victim_yield(struct glk_cache *cache, uint64_t bytes);

/* Contracts as in glake/tier.h. */
int glk_cache_advise(struct glk_cache *cache, uint64_t addr, uint32_t advice);
int glk_cache_rank(struct glk_cache *cache, uint64_t addr, uint32_t priority);
/* Pins as in glake/pin.h, one more or one fewer. */
int glk_cache_hold(struct glk_cache *cache, uint64_t addr, bool on);

#endif
