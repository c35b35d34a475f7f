/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_OWN_H
#define GLK_CACHE_OWN_H

/*
 * Arenas that streams have to themselves: see own.c. All under the lock of the GPU, save what says otherwise.
 */
#include "cache/cache.h"

#define GLK_OWNS     16
#define GLK_OWNS_ALL ((UINT32_C(1) << GLK_OWNS) - 1)

struct glk_owns {
	struct glk_arena at[GLK_OWNS];
	glk_atomic(uint32_t) made; /* of them; the rest has no addresses yet */
	uint32_t taken;		   /* a bit each that is a stream's */
};

_Static_assert(GLK_OWNS < 1 << (64 - GLK_ID_BITS - GLK_LOOKASIDE_GRAINS),
	"a key has room for the number of each");

/* How many there are. Any thread. */
static inline uint32_t glk_own_made(const struct glk_cache *cache)
{
	/* pairs with: take */
	const struct glk_owns *owns = glk_load_acquire(&cache->owns);

	return owns ? glk_load_acquire(&owns->made) : 0;
}

/* The arena of a number, from 1 on, that a block is known to lie in, or a stream to have; 0: that of the GPU. Any
 * thread. */
static inline struct glk_arena *glk_own_numbered(struct glk_cache *cache, uint32_t number)
{
	return number ? &glk_load_relaxed(&cache->owns)->at[number - 1] : &cache->arena;
}

/* Bytes of plain blocks wherever they lie, those in bins and aside included. */
static inline uint64_t glk_own_taken(struct glk_cache *cache)
{
	uint64_t taken = 0;

	for (uint32_t n = 0; n <= glk_own_made(cache); n++)
		taken += glk_own_numbered(cache, n)->map.taken;
	return taken;
}

/* Whether any stream has one. */
static inline bool glk_own_any(const struct glk_cache *cache)
{
	const struct glk_owns *owns = glk_load_relaxed(&cache->owns);

	return owns && owns->taken;
}

/* A stream that has one such part of all live bytes at the least may get one: so they are few. */
#define GLK_OWN_PART 16

/* Whether a stream that would have to wait gets one. */
static inline bool glk_own_is_due(
	const struct glk_cache *cache, const struct glk_row *row)
{
	return cache->waited && !glk_load_relaxed(&row->own) &&
		row->bytes > cache->sum.given / GLK_OWN_PART;
}

/* A large request waited for the work of another stream. Where streams may have arenas, that many did is known until
 * one finds none, or all lose theirs. */
void glk_own_waited(struct glk_cache *cache);
/* In a plan: the arena for a request of a stream for so many bytes, more than what goes to bins. One that is due gets
 * its own, all lose theirs when memory is not plentiful any more, and one does that has no addresses for them there. */
struct glk_arena *glk_own_arena(
	struct glk_cache *cache, struct glk_row *row, uint64_t size);
/* All streams lose theirs, or that of a row, which has ended. */
void glk_own_leave(struct glk_cache *cache);
void glk_own_end(struct glk_cache *cache, struct glk_row *row);
/* At the end of the GPU: the arenas have ended. */
void glk_own_fini(struct glk_cache *cache);

#endif
