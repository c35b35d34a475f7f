/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_OWN_H
#define GLK_CACHE_OWN_H

/*
 * Arenas that streams have to themselves: see own.c. All under the lock of the GPU, save what says otherwise.
 */
#include "cache/bin/quick.h"

#define GLK_OWNS     31
#define GLK_OWNS_ALL ((UINT32_C(1) << GLK_OWNS) - 1)

/* What was done in one by who had its part of the lock, and is not booked yet. */
struct glk_own_part {
	_Alignas(64) struct glk_apart apart;
	uint32_t served, freed;
	bool used;
};

struct glk_owns {
	struct glk_arena at[GLK_OWNS];
	glk_atomic(uint32_t) made;   /* of them; the rest has no addresses yet */
	uint32_t taken;		     /* a bit each that is a stream's */
	struct glk_lock_parts parts; /* of the lock of the GPU: one for each */
	struct glk_lock_part lock[GLK_OWNS];
	struct glk_own_part part[GLK_OWNS];
	uint64_t apart; /* requests and frees that had a part of the lock, those booked */
	/* Times that it is not divided where it could be: it did not last. The next number of them, and those to come. */
	uint32_t rests, rest;
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

/* By who has its part of the lock of the GPU, or all of it. */
static inline struct glk_own_part *glk_own_part(const struct glk_arena *arena)
{
	return &glk_load_relaxed(&arena->gpu->owns)->part[arena->number - 1];
}

/* Bytes of plain blocks wherever they lie, those in bins and aside included. */
static inline uint64_t glk_own_taken(struct glk_cache *cache)
{
	uint64_t taken = 0;

	for (uint32_t n = 0; n <= glk_own_made(cache); n++)
		taken += glk_own_numbered(cache, n)->map.taken;
	return taken;
}

/* Those that lie in one of a stream. */
static inline uint64_t glk_own_live(struct glk_cache *cache)
{
	uint64_t taken = 0;

	for (uint32_t n = 1; n <= glk_own_made(cache); n++)
		taken += glk_own_numbered(cache, n)->map.taken;
	return taken;
}

/* How many streams have one, and whether any has. */
static inline uint32_t glk_own_count(const struct glk_cache *cache)
{
	const struct glk_owns *owns = glk_load_relaxed(&cache->owns);

	return owns ? (uint32_t)__builtin_popcount(owns->taken) : 0;
}

static inline bool glk_own_any(const struct glk_cache *cache)
{
	return glk_own_count(cache);
}

/* A stream that has one such part of all live bytes at the least may get one: so they are few. */
#define GLK_OWN_PART 16

/* And one such part where threads meet at the lock. */
#define GLK_OWN_PART_MET 64

/* Misses of one thread on a stream before it may get one because of that, less half of them with each of another thread:
 * where threads share a stream they meet there, and one may have the lock many times before the next has it. */
#define GLK_OWN_SAME 256

/* Whether a stream that would have to wait, or whose thread has met others, gets one. */
static inline bool glk_own_is_due(
	const struct glk_cache *cache, const struct glk_row *row)
{
	uint64_t part = cache->sum.given / GLK_OWN_PART;

	if (glk_load_relaxed(&row->own))
		return false;
	if (cache->crowded && row->met >= GLK_MET && row->same >= GLK_OWN_SAME)
		part = cache->sum.given / GLK_OWN_PART_MET;
	else if (!cache->waited)
		return false;
	return row->bytes > part;
}

/* A large request met another thread at the lock. Whether its stream is due an arena. */
bool glk_own_met(struct glk_cache *cache, const struct glk_row *row);
/* At the end of a short turn of the lock: it is divided, so that requests and frees of streams in their own arenas need
 * no more than the part of it that stands for that, if that lasted of late. */
void glk_own_divide(struct glk_cache *cache);

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
