/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_QUICK_H
#define GLK_CACHE_QUICK_H

/*
 * The quick bins of a GPU, a row of them for each stream, and the policy of what lies in them.
 *
 * A block in a bin costs nothing to give out again, but it keeps its addresses from merging
 * with its neighbours, so that larger requests find no place and must map pages. Measured on
 * the recorded jobs (t/bench/frontier), these rules give nearly all of the hits and none of
 * that cost:
 *
 *  - Small blocks are rounded to eight sizes a power of two and always go to a bin. The first
 *    miss of a bin carves one block, each later one about twice as many, so that a wave of
 *    requests misses a few times. They go back to their extents when a page would have to be
 *    mapped, and pages for 1/2048 of what is live were mapped since the last time.
 *  - Medium blocks always go to a bin, and go back when a page would have to be mapped.
 *  - Large blocks go to a bin if nothing free lies beside them: both neighbours are live, in
 *    the same bin, or another stream's. When something beside them is freed they go back and
 *    merge with it. All go back when a page would have to be mapped, and those of a stream that
 *    asks for one when all together hold more than an eighth of what is live. When no large
 *    request has needed a page for long, the first condition falls until one does.
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
static inline uint64_t glk_quick_grains(const struct glk_cache *cache, uint64_t size)
{
	uint64_t last = (size - 1) >> GLK_GRAIN_SHIFT; /* number of the last grain */
	int shift;

	if (size > cache->small_most)
		return last + 1;
	/* 63 - clz is the power of two; the three bits below it stay */
	shift = 60 - __builtin_clzll(last | 1);
	return shift > 0 ? ((last >> shift) + 1) << shift : last + 1;
}

/* rule.c: whether nothing free lies beside a freed large block. Its neighbours are other
 * threads' business, so this is a guess that may be wrong either way, at the price of a worse
 * fit. Any thread. */
bool glk_quick_lonely(
	const struct glk_cache *cache, const struct glk_extent *e, uint32_t bin);

/* alloc.c: the rest of glk_hit_alloc(). No block could be had at once; one was popped that is of
 * another size. */
int glk_hit_not(struct glk_cache *cache, uint64_t size, struct CUstream_st *stream,
	void **ret_ptr) GLK_COLD;
int glk_hit_stray(struct glk_cache *cache, uint32_t extent, uint64_t size,
	struct CUstream_st *stream, void **ret_ptr) GLK_COLD;

/* block.c: the rest of glk_hit_free(), for the second block that begins in a slot, or for none. */
int glk_hit_other(
	struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream) GLK_COLD;
/* The same for an extent that its caller has claimed, which is put into its bin or merged by the
 * rule for large ones; for one that is booked already, when somebody else was at its bin. */
int glk_hit_put(struct glk_cache *cache, struct glk_extent *e,
	struct CUstream_st *stream) GLK_COLD;
int glk_hit_push(struct glk_cache *cache, struct glk_extent *e) GLK_COLD;

/* quick.c: gives more heads to a bin at which two threads met. Takes the lock. */
void glk_quick_crowd(struct glk_cache *cache, struct glk_bin *bin);

/* ---- All under the lock of the GPU ---- */

/* The row of a stream that has been entered. */
struct glk_row *glk_quick_row(
	struct glk_cache *cache, uint32_t stream, struct CUstream_st *handle);
/* The bin of a size in it, which may take the place of another one. */
uint32_t glk_quick_bin(struct glk_cache *cache, struct glk_row *row, uint64_t grains);
/* Carves more blocks like a small one that was just given out, and puts them in its bin. */
void glk_quick_refill(struct glk_cache *cache, struct glk_request *request,
	struct glk_span *span, uint32_t extent);

/* merge.c. Blocks that were taken out of bins, linked like those in them. */
struct glk_harvest {
	uint32_t first, count;
};

/* Takes all blocks of a bin; of the bins of a row whose size is of one of the kinds, a bit
 * each. */
void glk_harvest_bin(
	struct glk_cache *cache, struct glk_row *row, uint32_t i, struct glk_harvest *h);
void glk_harvest_row(struct glk_cache *cache, struct glk_row *row, unsigned kinds,
	struct glk_harvest *h);
/* Merges them with what is free beside them. Whether there were any. */
bool glk_harvest_merge(struct glk_cache *cache, struct glk_harvest *h);
/* Merges an extent the caller owns, used by `streams` until `tick`, with what is free beside
 * it; what is quick beside a large one goes first. */
void glk_quick_merge(struct glk_cache *cache, struct glk_span *span, uint32_t extent,
	uint64_t streams, uint64_t tick);
/* The same for one that was popped from a bin and is not what was looked for; takes the lock. */
void glk_quick_stray(struct glk_cache *cache, uint32_t extent);

/* rule.c. Gives blocks back before a request of a kind is searched for, and before pages are
 * mapped for it; whether anything was. */
void glk_quick_keep(struct glk_cache *cache, struct glk_row *row, enum glk_kind kind);
bool glk_quick_yield(struct glk_cache *cache, enum glk_kind kind);
/* For the rules: pages were mapped for a request; a block was freed and went to no bin. */
void glk_quick_mapped(
	struct glk_cache *cache, const struct glk_span *span, uint32_t pages);
void glk_quick_refused(struct glk_cache *cache, enum glk_kind kind);
/* Gives all of them back; those of one stream, whose row ends. */
bool glk_quick_flush(struct glk_cache *cache);
void glk_quick_end(struct glk_cache *cache, struct CUstream_st *handle);
/* Sends all requests past the bins, or lets them hit again. */
void glk_quick_divert(struct glk_cache *cache, bool divert);
/* Ends the rows of streams that have ended. */
void glk_quick_sweep(struct glk_cache *cache);

#endif
