/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_PLAN_H
#define GLK_CACHE_PLAN_H

/*
 * Plans under way on a GPU. A request that has to call the driver makes its plan under the lock and
 * carries it out without (arena/back.c), and nobody waits for it but who has to:
 *
 *	a request that finds no addresses but those of plans
 *	a request that finds no memory, while others may be about to give some up (arena/ladder.c). One at
 *	a time climbs the ladder, with what it has got in its hands; the next one may have that if
 *	it fails, so of several that are too large together one is served
 *	what changes the rights of all that is mapped, or looks at all tables: see glk_plan_close()
 *
 * All under the lock of the GPU, which is given up while waiting.
 */
#include "cache/cache.h"

#define GLK_PLAN_STEPS 64

/* Around all that may have a plan: from then on the lock may be given up with the tables half
 * way. */
void glk_plan_enter(struct glk_cache *gpu);
void glk_plan_leave(struct glk_cache *gpu);

void glk_plan_begin(struct glk_cache *gpu);
void glk_plan_end(struct glk_cache *gpu);
/* Waits until a plan of somebody else has ended; false: there is none. */
bool glk_plan_wait(struct glk_cache *gpu);

/* In a plan, after each step of a walk that may be long: now and then others may have the lock. */
static inline void glk_plan_step(struct glk_cache *gpu)
{
	if (++gpu->plans.steps % GLK_PLAN_STEPS)
		return;
	glk_lock_pause(&gpu->lock);
	glk_lock_resume(&gpu->lock);
}

/* One that is under way climbs alone, and does no more. */
void glk_plan_climb(struct glk_cache *gpu);
void glk_plan_climbed(struct glk_cache *gpu);
/* While it climbs: waits until more plans have ended than `ended` of gpu->plans, as it was before
 * the last look around; false: of those under way none will that does not climb, or wait to. */
bool glk_plan_yield(struct glk_cache *gpu, uint64_t ended);

/* Waits until nobody is inside, and lets nobody in: all tables are whole then. */
void glk_plan_close(struct glk_cache *gpu);
void glk_plan_open(struct glk_cache *gpu);

#endif
