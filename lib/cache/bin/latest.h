/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_LATEST_H
#define GLK_CACHE_LATEST_H

/*
 * The large block that was freed last stays whole until somebody wants other memory or frees some. If the next
 * request is for its size, as a fifth of those for large blocks are, it is served without a lock, and so is the
 * free after that if nothing else was done in between.
 *
 * It is kept only where best fit would not rather have another hole for that request: where the hole that its
 * free leaves has its size, or it lies at an end of that, and the best one of the others is the one beside it,
 * or larger than both together. And only while the GPU has one stream. A search misses nothing of it, since it
 * is given back before.
 *
 * States	one atomic word: none -free-> KEPT -request-> TAKEN -free-> KEPT; any -settle-> none.
 *		A KEPT block is QUICK, as one in a bin; a TAKEN one is live, and what its free would have
 *		changed in the order of idle pages is made up for when it is settled
 * Settled	under the lock, before memory is looked for or another block merges. Whoever asks for figures
 *		changes nothing: it counts as one in a bin
 * Ordering	what the last owner of the block wrote is seen by the next one
 * Progress	take and give are wait-free
 */
#include "cache/bin/quick.h"

#define GLK_LATEST_TAKEN UINT32_C(1)

static inline uint32_t glk_latest_kept(uint32_t extent)
{
	return extent << 1;
}

/* Without the lock: the block, if it is of that size and was born on the stream of a row; 0: it is not. */
static inline uint32_t glk_latest_take(
	struct glk_cache *cache, const struct glk_row *row, uint64_t grains)
{
	/* pairs with: the release in glk_latest_keep, the CAS in glk_latest_give */
	uint32_t word = glk_load_acquire(&cache->latest.word), id = word >> 1;
	const struct glk_extent *e;

	if (!word || word & GLK_LATEST_TAKEN)
		return 0;
	e = glk_quick_base(&cache->arena.map) + id;
	if (glk_peek_relaxed(&e->size) != grains << GLK_GRAIN_SHIFT ||
		&cache->rows[glk_load_relaxed(&e->stream)] != row ||
		!glk_cas_acq_rel(&cache->latest.word, &word, word | GLK_LATEST_TAKEN))
		return 0;
	return id;
}

/* Likewise: a block that the caller has claimed, freed on the stream of a row, if it was taken and nothing was
 * done since. */
static inline bool glk_latest_give(
	struct glk_cache *cache, const struct glk_row *row, const struct glk_extent *e)
{
	uint32_t kept =
		glk_latest_kept((uint32_t)(e - glk_quick_base(&cache->arena.map)));
	uint32_t word = kept | GLK_LATEST_TAKEN;

	/* one that other streams used, or to which anything else was done, has a bin that says so */
	return glk_load_relaxed(&cache->latest.word) == word &&
		!glk_load_relaxed(&e->bin) &&
		&cache->rows[glk_load_relaxed(&e->stream)] == row &&
		glk_cas_acq_rel(&cache->latest.word, &word, kept);
}

/* Likewise: a free of a block without a bin, by the name of its stream, in all it does; false: nothing. */
bool glk_latest_put(struct glk_cache *cache, const struct glk_extent *e,
	const struct CUstream_st *name);

/* ---- All under the lock of the GPU ---- */

/* The rest of glk_latest_try(). */
bool glk_latest_keep(
	struct glk_arena *arena, const struct glk_extent *e, const struct glk_use *use);
/* The rest of glk_latest_settle(). */
void glk_latest_end(struct glk_cache *cache) GLK_COLD;

/* Whether there was one. */
static inline bool glk_latest_settle(struct glk_cache *cache)
{
	if (!glk_load_relaxed(&cache->latest.word))
		return false;
	glk_latest_end(cache);
	return true;
}

/* Instead of the merge at the end of a free: whether the block is kept. The one before is settled. */
static inline bool glk_latest_try(
	struct glk_arena *arena, const struct glk_extent *e, const struct glk_use *use)
{
	glk_latest_settle(arena->gpu);
	return glk_clock_alone(&arena->gpu->streams) && glk_latest_keep(arena, e, use);
}

#endif
