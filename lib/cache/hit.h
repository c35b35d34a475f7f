/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_HIT_H
#define GLK_CACHE_HIT_H

/*
 * The hit: a request that a bin serves, and a free into a bin. Two compare-and-swaps each at
 * most, no lock, no call of the driver or of the system, no clock, and no RCU section, since
 * all it reads is type-stable for as long as the GPU is open. Everything else is out of line,
 * so that the public functions, into which these two go, keep all they need in registers.
 *
 * Progress	lock-free
 * Cost		about 200 instructions for the two together, see t/bench
 */
#include "cache/quick.h"

/* A place of the calling thread for the seat at a GPU; it may be that of another GPU. */
static inline const struct glk_thread_seat *glk_hit_place(const struct glk_cache *cache)
{
	return (const void *)((const char *)glk_thread_current + cache->seat_at);
}

/* The address of a block from the quick bins; 0: none, the caller goes to glk_cache_miss(). */
static inline uint64_t glk_hit_alloc(
	struct glk_cache *cache, size_t size, struct CUstream_st *stream)
{
	const struct glk_thread_seat *place = glk_hit_place(cache);
	struct glk_extent *base, *e;
	struct glk_seat *seat;
	struct glk_row *row;
	uint64_t grains;
	uint32_t i, id;

	if (place->serial != cache->serial)
		return 0;
	seat = place->seat;
	row = seat->rows[glk_seat_hash(stream)];
	if (glk_load_relaxed(&row->handle) != stream)
		return 0;
	grains = glk_quick_grains(cache, size);
	i = glk_row_hash(grains);
	if (glk_load_relaxed(&row->bin[i].key) != grains) {
		i ^= 1;
		if (glk_load_relaxed(&row->bin[i].key) != grains)
			return 0;
	}
	base = glk_quick_base(&cache->map);
	id = glk_quick_pop(row, i, base, seat->id);
	if (!id)
		return 0;
	e = base + id;
	/* the bin was for another size a moment ago */
	if (e->size != grains << GLK_GRAIN_SHIFT)
		return glk_quick_stray(cache, id);
	glk_store_relaxed(&e->slack, (uint32_t)(e->size - size));
	/* pairs with: the acquire in glk_word_claim */
	glk_store_release(&e->word, glk_word_revived(glk_load_relaxed(&e->word)));
	glk_seat_alloc(seat, (enum glk_kind)e->kind, size, e->size);
	return e->addr;
}

/* Whether a block may go to its bin: freed on its stream, the bin is still for its size, and
 * the policy wants it there. */
static inline bool glk_hit_stays(const struct glk_cache *cache,
	const struct glk_extent *e, const struct glk_row *row, uint32_t bin,
	const struct CUstream_st *stream)
{
	if (glk_load_relaxed(&row->handle) != stream ||
		glk_load_relaxed(&row->bin[bin % GLK_BINS].key) !=
			e->size >> GLK_GRAIN_SHIFT)
		return false;
	return e->kind != GLK_KIND_LARGE ||
		glk_load_relaxed(&cache->rule) == GLK_RULE_ALL ||
		glk_quick_lonely(cache, e, bin);
}

/* Contract as glk_cache_free(). */
static inline int glk_hit_free(
	struct glk_cache *cache, uint64_t addr, struct CUstream_st *stream)
{
	const struct glk_thread_seat *place = glk_hit_place(cache);
	struct glk_span *span = glk_map_span(&cache->map, addr);
	struct glk_extent *base = glk_quick_base(&cache->map), *e;
	uint32_t id = glk_lookup_base(span, addr), bin;
	struct glk_seat *seat = place->seat;
	struct glk_row *row;

	e = base + id;
	if (!glk_word_claim(&e->word, addr - span->base))
		return glk_block_refuse(cache, addr);
	bin = glk_load_relaxed(&e->bin);
	row = glk_quick_row_of(cache, bin);
	if (place->serial != cache->serial || !glk_hit_stays(cache, e, row, bin, stream))
		return glk_block_give_back(cache, id, stream);
	e->left = (uint32_t)glk_seat_free(
		seat, (enum glk_kind)e->kind, glk_extent_asked(e), e->size);
	glk_quick_push(row, bin % GLK_BINS, base, id, seat->id);
	return 0;
}

#endif
