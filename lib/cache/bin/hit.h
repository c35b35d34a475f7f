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
 * Cost		about 175 instructions for the two together, see t/bench
 */
#include "cache/bin/quick.h"
#include "cache/block.h"

/* A place of the calling thread for the seat at a GPU; it may be that of another GPU. */
static inline const struct glk_thread_seat *glk_hit_place(const struct glk_cache *cache)
{
	return (const void *)((const char *)glk_thread_current + cache->seat_at);
}

static inline bool glk_hit_seated(
	const struct glk_cache *cache, const struct glk_thread_seat *place)
{
	return glk_seat_serial(place->name) == cache->serial;
}

/* The seat of the calling thread; NULL: none can be had. */
static inline struct glk_seat *glk_hit_seat(struct glk_cache *cache)
{
	const struct glk_thread_seat *place = glk_hit_place(cache);

	return glk_hit_seated(cache, place) ? place->seat : glk_seat_take(cache);
}

/* The index of a stream that the thread of a seat, if there is one, has used of late, or of the legacy stream; 0: it has
 * to be asked for. */
static inline uint32_t glk_hit_stream(const struct glk_cache *cache,
	const struct glk_seat *seat, const struct CUstream_st *stream)
{
	const struct CUstream_st *name = glk_stream_name(stream);
	const struct glk_row *row = seat ? seat->rows[glk_seat_hash(name)] : cache->rows;
	uint32_t id = (uint32_t)(row - cache->rows);

	if (id && glk_load_relaxed(&row->handle) == name)
		return id;
	if (!name || !seat)
		return name ? 0 : glk_load_relaxed(&cache->legacy);
	return (uint32_t)(glk_seat_elsewhere(seat, name) - cache->rows);
}

/* Gives a block out that was taken from the bin of its size, or from aside; its address. */
static inline uint64_t glk_hit_revive(
	struct glk_seat *seat, struct glk_extent *e, uint64_t size)
{
	uint64_t given = e->size, slack = given - size;

	/* pairs with: glk_extent_read */
	glk_store_release(&e->slack, (uint32_t)slack);
	glk_word_revive(&e->word);
	glk_seat_gave(seat, size, given);
	return glk_load_relaxed(&e->addr);
}

/* By the thread of a seat, in its turn. */
static inline int glk_hit_alloc_at(struct glk_cache *cache, struct glk_seat *seat,
	uint64_t size, struct CUstream_st *stream, void **ret_ptr)
{
	struct glk_extent *base, *e;
	struct glk_bin *bin;
	struct glk_row *row;
	uint64_t grains;
	uint32_t id;

	row = seat->rows[glk_seat_hash(stream)];
	grains = glk_quick_grains(size);
	bin = &row->bin[glk_row_hash(grains)];
	/* a bin with a crowd, and the one beside it, are looked at there */
	if (glk_load_relaxed(&row->handle) != stream ||
		glk_load_relaxed(&bin->key) != grains)
		return glk_hit_not(cache, size, stream, ret_ptr);
	/* not before the check: the GPU may just be started by another thread */
	base = glk_quick_base(&cache->arena.map);
	id = glk_quick_pop_once(&bin->head, base);
	if (!id)
		return glk_hit_not(cache, size, stream, ret_ptr);
	e = base + id;
	/* the bin was for another size a moment ago */
	if (e->size - size >= UINT64_C(1) << GLK_GRAIN_SHIFT)
		return glk_hit_stray(cache, glk_extent_id(&cache->arena.map, e), size,
			stream, ret_ptr);
	*ret_ptr = (void *)(uintptr_t)glk_hit_revive(seat, e, size);
	return 0;
}

/* Contract as glk_cache_alloc() without flags. */
static inline int glk_hit_alloc(struct glk_cache *cache, uint64_t size,
	struct CUstream_st *stream, void **ret_ptr)
{
	const struct glk_thread_seat *place = glk_hit_place(cache);

	if (glk_load_relaxed(&cache->seat_turn) != place->name)
		return glk_hit_alloc_turn(cache, size, stream, ret_ptr);
	return glk_hit_alloc_at(cache, place->seat, size, stream, ret_ptr);
}

/* Puts a block that was claimed into its bin, if that is one of this stream. */
static inline int glk_hit_put(struct glk_arena *arena, struct glk_extent *e, uint32_t id,
	struct CUstream_st *stream)
{
	struct glk_cache *cache = arena->gpu;
	uint32_t name = glk_load_relaxed(&e->bin);
	struct glk_row *row = glk_quick_row_of(cache, name);
	const struct glk_thread_seat *place;

	if (glk_load_relaxed(&row->handle) != stream)
		return glk_block_give_back(arena, e, stream);
	place = glk_hit_place(cache);
	if (glk_load_relaxed(&cache->seat_turn) != place->name)
		return glk_hit_put_turn(arena, e, stream);
	glk_seat_took(place->seat, glk_extent_asked(e), e->size);
	if (!glk_quick_push_alone(row, glk_quick_bin_of(cache, name), &e->quick, id))
		return glk_hit_push(cache, e);
	return 0;
}

/* Contract as glk_cache_free(), for an address in a range of an arena of plain blocks. */
static inline int glk_hit_free(struct glk_arena *arena, const struct glk_range *range,
	uint64_t addr, struct CUstream_st *stream)
{
	uint32_t id = glk_lookup_first(range, addr);
	struct glk_extent *e = glk_quick_base(&arena->map) + id;

	if (!glk_word_claim(&e->word, &e->addr, addr))
		return glk_block_late(arena->gpu, addr, stream);
	return glk_hit_put(arena, e, id, stream);
}

/* The same in the order of the block's own stream; false: it is to be looked up. */
static inline bool glk_hit_give_back(struct glk_arena *arena,
	const struct glk_range *range, uint64_t addr, int *ret_err)
{
	uint32_t id = glk_lookup_first(range, addr);
	struct glk_extent *e = glk_quick_base(&arena->map) + id;

	if (!glk_word_claim(&e->word, &e->addr, addr))
		return false;
	*ret_err = glk_hit_put(arena, e, id,
		glk_peek_relaxed(
			&glk_stream_at(&arena->gpu->streams, glk_load_relaxed(&e->stream))
				 ->handle));
	return true;
}

#endif
