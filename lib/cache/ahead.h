/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_AHEAD_H
#define GLK_CACHE_AHEAD_H

/*
 * Growing ahead, where the key pool.ahead asks for it: one thread a GPU makes pages and maps
 * them on the addresses right above the high-water mark, so that a request which needs new memory
 * finds it there and calls no driver. Driver calls beside running kernels do not wait for them and
 * do not slow them.
 *
 * What it keeps	pool.ahead bytes of large pages
 * When		the mark has risen, and a quarter of that is used up. A job that needs no new
 *		addresses any more wakes it no more
 * Cost		held memory stays below what live blocks and bins touch, at its highest, plus
 *		pool.ahead: no page is made while that much lies idle
 * Prefetches	what hints ask for (prefetch.c), while no page is to be made
 * Limits	the last pool.ahead bytes of the budget, or of the GPU, are never taken. When
 *		the driver has no memory, nothing is made until what is held has changed; any
 *		other error ends the thread, and the GPU goes on without
 *
 * Pages ahead are idle pages like all others: requests elsewhere, the ladder and trim take
 * them. The search of a place does not see them until it has found that pages would have to
 * be mapped, so blocks in bins go back first, as they do without this.
 *
 * Locking	the lock of the GPU is held to choose a slot and to book the page, never during
 *		the calls of the driver. A request whose place has the very slot under way waits
 *		for it, and the thread begins no other one until that request has its place
 */
#include "cache/arena/request.h"

#include <pthread.h>

struct glk_ahead {
	struct glk_cache *cache;
	pthread_t thread;
	uint64_t size; /* pool.ahead */
	uint32_t part; /* slots to keep mapped above the mark */
	/* Under the lock of the GPU from here on. */
	pthread_cond_t wake, settled;
	uint32_t waiters; /* for the page under way */
	bool stop, asleep, broken;
	bool under_way;
	uint32_t slot;	     /* where the page under way goes */
	uint32_t slots;	     /* of it */
	uint64_t seen;	     /* the mark, when last looked at */
	uint32_t next, goal; /* slots to fill, from and up to */
	uint64_t refused;    /* bytes held when the driver had no more; 0: it had */
	uint64_t made;	     /* pages */
};

/* Starts the thread if the configuration wants one, with the GPU. Where none can
 * be had the log says so, and the GPU works without. */
void glk_ahead_start(struct glk_cache *cache);
/* Ends the thread, waiting for the calls under way. Not under the lock. */
void glk_ahead_stop(struct glk_cache *cache);

/* ---- Under the lock of the GPU; the cache has a thread. ---- */

/* A request was served: whether the thread is to be woken, when the lock is free. */
bool glk_ahead_note(struct glk_cache *cache);
/* Wakes it. Not under the lock. */
void glk_ahead_wake(struct glk_cache *cache);
/* Waits for the page under way; whether there was one. Gives the lock up meanwhile, and no other
 * page is begun before it is given up again. */
bool glk_ahead_settle(struct glk_cache *cache);
/* The same, and no more are made until the mark rises again. */
bool glk_ahead_rest(struct glk_cache *cache);

/* The thread that makes pages on the addresses of an arena; NULL: none does. */
static inline struct glk_ahead *glk_ahead_of(const struct glk_arena *arena)
{
	return arena->binned ? arena->gpu->ahead : NULL;
}

/* Whether the page under way belongs into a place, and was waited for. */
static inline bool glk_ahead_meet(
	const struct glk_arena *arena, uint64_t offset, uint64_t size)
{
	const struct glk_ahead *a = glk_ahead_of(arena);

	return a && a->under_way &&
		a->slot <= glk_slot_of(&arena->map, offset + size - 1) &&
		a->slot + a->slots > glk_slot_of(&arena->map, offset) &&
		glk_ahead_settle(arena->gpu);
}

#endif
