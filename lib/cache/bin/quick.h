/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_QUICK_H
#define GLK_CACHE_QUICK_H

/*
 * The quick bins of a GPU, a row of them for each stream, and the policy of what lies in them.
 *
 * A block in a bin costs nothing to give out again, but it keeps its addresses from merging
 * with its neighbours, so that larger requests find no place and must map pages. So:
 *
 *  - Blocks up to policy.bins go to a bin when they are freed, larger ones to their extents: a place for
 *    those is found cheaply, and layouts of equal steps settle. Where nothing beside them is free, they stay
 *    whole in the lookaside list of the stream for a while: see lookaside.h.
 *  - But where threads meet at the lock larger ones go to bins too: a stream that has met others at several of
 *    its last misses keeps its blocks, so that the next of that size is a hit and nobody waits. Not those of a
 *    thread's default stream.
 *  - The first miss of the bin of a small size carves one block, each later one about twice as
 *    many, so that a wave of requests misses a few times.
 *  - A request that would have to map pages gives a bounded number of blocks back first: see
 *    yield.c.
 */
#include "cache/cache.h"

static inline struct glk_extent *glk_quick_base(const struct glk_map *map)
{
	return glk_extent_at(map, 0);
}

static inline struct glk_idnode *glk_quick_link(struct glk_extent *base, uint32_t id)
{
	return &base[id].quick;
}

GLK_ROW_DEFINE(glk_quick, struct glk_extent *, glk_quick_link)

/* An extent names its bin by its number among those of all rows; it is in no bin of row 0. */
static inline uint32_t glk_quick_name(
	const struct glk_cache *cache, const struct glk_row *row, uint32_t i)
{
	return (uint32_t)(row - cache->rows) * GLK_BINS + i;
}

static inline uint32_t glk_quick_index(uint32_t bin)
{
	return bin % GLK_BINS;
}

static inline struct glk_bin *glk_quick_bin_of(
	const struct glk_cache *cache, uint32_t bin)
{
	return cache->bins + bin;
}

static inline struct glk_row *glk_quick_row_of(
	const struct glk_cache *cache, uint32_t bin)
{
	return &cache->rows[bin / GLK_BINS];
}

/* The size in grains that a request is given. */
static inline uint64_t glk_quick_grains(uint64_t size)
{
	return ((size - 1) >> GLK_GRAIN_SHIFT) + 1;
}

/* A block more of a stream, live or in a bin, and one fewer: under the lock. What is born on a stream
 * is counted there until it merges, on whatever stream it is freed. */
static inline void glk_quick_born(struct glk_row *row, uint64_t bytes)
{
	glk_poke_relaxed(&row->blocks, row->blocks + 1);
	glk_poke_relaxed(&row->bytes, row->bytes + bytes);
}

static inline void glk_quick_gone(struct glk_cache *cache, const struct glk_extent *e)
{
	struct glk_row *row = &cache->rows[glk_load_relaxed(&e->stream)];

	glk_poke_relaxed(&row->blocks, row->blocks - 1);
	glk_poke_relaxed(&row->bytes, row->bytes - e->size);
}

/* straight.c, miss.c: the rest of glk_hit_alloc(). No block could be had at once; one was popped that is of
 * another size. */
int glk_hit_not(struct glk_cache *cache, uint64_t size, struct CUstream_st *stream,
	void **ret_ptr) GLK_COLD;
int glk_hit_stray(struct glk_cache *cache, uint32_t extent, uint64_t size,
	struct CUstream_st *stream, void **ret_ptr) GLK_COLD;

/* block.c: the rest of glk_hit_free(), for one that is booked already, when somebody else was at
 * its bin. */
int glk_hit_push(struct glk_cache *cache, struct glk_extent *e) GLK_COLD;

/* block.c: the same two by a thread that has no seat yet, or in the turn of another one, where it takes its own. */
int glk_hit_alloc_turn(struct glk_cache *cache, uint64_t size, struct CUstream_st *stream,
	void **ret_ptr) GLK_COLD;
int glk_hit_put_turn(struct glk_arena *arena, struct glk_extent *e,
	struct CUstream_st *stream) GLK_COLD;

/* quick.c: gives more heads to a bin at which two threads met. Takes the lock. */
void glk_quick_crowd(struct glk_cache *cache, struct glk_bin *bin);

/* ---- All under the lock of the GPU ---- */

/* The row of a stream that has been entered. */
struct glk_row *glk_quick_row(
	struct glk_cache *cache, uint32_t stream, struct CUstream_st *handle);
/* A stream that has met others at the lock this often keeps its blocks, counted up at a miss that others wait for, and
 * down at one that nobody does; but no default stream of a thread, of which others have the memory soon by events that
 * its frees record. */
#define GLK_MET	     16u
#define GLK_MET_MOST 64u
#define GLK_MET_STEP 8u

/* Whether a block of a size that is born on a stream, with its row, goes to a bin when it is freed: once for each. */
static inline bool glk_quick_keeps(const struct glk_cache *cache,
	const struct glk_stream *stream, struct glk_row *row, bool binned)
{
	uint32_t met = row->met, waiters = glk_load_relaxed(&cache->lock.waiters);

	if (!(met | waiters) || stream->handle == GLK_STREAM_PER_THREAD)
		return binned;
	if (!waiters)
		met--;
	else
		met = met + GLK_MET_STEP < GLK_MET_MOST ? met + GLK_MET_STEP
							: GLK_MET_MOST;
	glk_poke_relaxed(&row->met, (uint16_t)met);
	return binned || met >= GLK_MET;
}

/* Under the lock, before an extent of an arena of plain blocks becomes free: what lies aside beside it merges too. */
void glk_quick_beside(struct glk_arena *arena, const struct glk_extent *e) GLK_COLD;

/* The bin of a size in it, which may take the place of another one; 0: there is none for it. */
uint32_t glk_quick_bin(struct glk_cache *cache, struct glk_row *row, uint64_t grains);
/* Carves more blocks like a small one that was just given out, and puts them in its bin. */
void glk_quick_refill(
	struct glk_cache *cache, struct glk_request *request, uint32_t extent);

/* yield.c. The work of a row's stream so far; nobody's if it has ended. */
struct glk_use glk_quick_now(struct glk_cache *cache, uint32_t row);
/* Gives one back that was popped from a bin and is not what was looked for; takes the
 * lock. */
void glk_quick_stray(struct glk_cache *cache, uint32_t extent);
/* All that lies aside on a stream merges; how many blocks. */
uint32_t glk_quick_merge(struct glk_cache *cache, struct glk_row *row);
/* Gives a bounded number of blocks back before pages are mapped for a request; whether any were. */
bool glk_quick_yield(struct glk_cache *cache, const struct glk_request *request);
/* The same for all streams by turns, before the node grows past the target. The lock is given up now and then:
 * whether it was, or any was given back. */
bool glk_quick_drain(struct glk_cache *cache);
/* Gives a few back, those of another stream and of other sizes each time. */
void glk_quick_ebb(struct glk_cache *cache);
/* Gives a bounded number of one bin back; whether it is empty now. */
bool glk_quick_empty(struct glk_cache *cache, struct glk_row *row, uint32_t i);
/* Gives all back, or those of one stream, whose row ends. The lock is given up now and then. */
bool glk_quick_flush(struct glk_cache *cache);
void glk_quick_end(
	struct glk_cache *cache, uint32_t stream, const struct CUstream_st *handle);
/* Sends all requests past the bins, or lets them hit again where no other reason is left. */
#define GLK_DIVERT_GRAPH   1u /* a pool of graphs is open */
#define GLK_DIVERT_SUSPEND 2u
#define GLK_DIVERT_GUARD   4u /* every block is guarded */
void glk_quick_divert(struct glk_cache *cache, uint32_t reason, bool divert);
/* Ends the rows of streams that have ended unannounced, whose handles may stand for others. Likewise. */
void glk_quick_sweep(struct glk_cache *cache);

#endif
