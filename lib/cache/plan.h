/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_PLAN_H
#define GLK_CACHE_PLAN_H

/*
 * Plans under way on a GPU. A request that has to call the driver makes its plan under the lock and
 * carries it out without (arena/back.c), and nobody waits for it but who has to:
 *
 *  - a request that finds no addresses but those of plans;
 *  - a request that finds no memory, while others may be about to give some up (arena/ladder.c), a
 *    block that is being sent away among them (away.c).
 *    One at a time climbs the ladder, with the pages it has got in its hands. If it fails it puts
 *    them back, and the next one may have them: so of several that are too large together one is
 *    served;
 *  - a request that has failed so while others were at work, whose memory was in motion then: before
 *    it is refused it stands alone, with nothing in its hands until all others have let go of what
 *    they had in theirs. That is served, or refused, and no new one begins. What it finds then is
 *    live, or idle, or in bins that only lose blocks by its looks. Of those that stand each has its
 *    turn, in the order in which they came. Others wait for one of them for a quarter of a second
 *    and no longer: it may wait for work of the GPU that ends only when they go on;
 *  - what changes the rights of all that is mapped, or looks at all tables: glk_plan_close().
 *
 * All under the lock of the GPU, which is given up while waiting.
 */
#include "cache/cache.h"

/* Steps of a walk between two chances for others to have the lock: a step is some hundred ns. */
#define GLK_PLAN_STEPS 64

/* Around whatever may make a plan. Waits while somebody has closed the way in. */
void glk_plan_enter(struct glk_cache *gpu);
/* The rest of glk_plan_ask(), where the way in is closed. */
int glk_plan_ask_closed(struct glk_cache *gpu) GLK_COLD;

/* The same for what is refused while the GPU is suspended: 0, or -EAGAIN with a record, outside, and without a
 * wait for who has closed the way in to suspend it. */
static inline int glk_plan_ask(struct glk_cache *gpu)
{
	if (gpu->plans.closed || glk_load_relaxed(&gpu->suspended))
		return glk_plan_ask_closed(gpu);
	gpu->plans.inside++;
	return 0;
}

/* Tells those who wait. */
void glk_plan_tell_all(struct glk_cache *gpu) GLK_COLD;

static inline void glk_plan_tell(struct glk_cache *gpu)
{
	if (gpu->plans.waiters)
		glk_plan_tell_all(gpu);
}

static inline void glk_plan_leave(struct glk_cache *gpu)
{
	gpu->plans.inside--;
	glk_plan_tell(gpu);
}

/* A plan is carried out: from here to its end the lock is given up with the tables half way. */
void glk_plan_begin(struct glk_cache *gpu);
void glk_plan_end(struct glk_cache *gpu);
/* Waits until a plan of somebody else has ended; false: there is none. */
bool glk_plan_wait(struct glk_cache *gpu);

/* In a plan, after each step of a walk that may be long: now and then others may have the lock. */
static inline void glk_plan_step(struct glk_cache *gpu)
{
	if (++gpu->plans.steps % GLK_PLAN_STEPS)
		return;
	glk_lock_yield(&gpu->lock);
}

/* Steps that were taken while others could not have the lock: they may with the next one. */
static inline void glk_plan_count(struct glk_cache *gpu, uint32_t steps)
{
	bool due = gpu->plans.steps % GLK_PLAN_STEPS + steps >= GLK_PLAN_STEPS;

	gpu->plans.steps += steps;
	if (due)
		gpu->plans.steps |= GLK_PLAN_STEPS - 1;
}

/* Whether a request stands alone, or is about to, and has not done so for too long. */
static inline bool glk_plan_is_stood(const struct glk_cache *gpu)
{
	return gpu->plans.stands != gpu->plans.stood &&
		gpu->plans.lapsed != gpu->plans.stood + 1;
}

/* Waits for that, for a bounded time. */
void glk_plan_pass(struct glk_cache *gpu) GLK_COLD;

/* Around each try of a request that may wait: waits while another one stands alone, or is about to. The
 * second says in the request whether others were tried meanwhile. */
static inline void glk_plan_try(struct glk_cache *gpu, struct glk_request *request)
{
	if (glk_plan_is_stood(gpu) && !request->alone)
		glk_plan_pass(gpu);
	request->met = gpu->plans.tries++ > 0;
	request->number = ++gpu->plans.tried;
}

static inline void glk_plan_tried(struct glk_cache *gpu, struct glk_request *request)
{
	gpu->plans.tries--;
	request->met |= gpu->plans.tried != request->number;
	if (gpu->plans.stands != gpu->plans.stood)
		glk_plan_tell(gpu);
}

/* Between tries: waits for its turn to stand alone, and until no other one is tried; it is done. */
void glk_plan_stand(struct glk_cache *gpu, struct glk_request *request);
void glk_plan_stood(struct glk_cache *gpu, struct glk_request *request);
/* A plan under way climbs the ladder: waits for its turn; it is done. */
void glk_plan_climb(struct glk_cache *gpu);
void glk_plan_climbed(struct glk_cache *gpu);
/* While it climbs and has found nothing: waits until a plan has ended since gpu->plans.ended was
 * `ended`, which is to be read before looking around. False: all plans that are left climb or wait
 * to, so that none will. */
bool glk_plan_yield(struct glk_cache *gpu, uint64_t ended);

/* Waits until nobody is inside, and lets nobody in: all tables are whole then. */
void glk_plan_close(struct glk_cache *gpu);
void glk_plan_open(struct glk_cache *gpu);

#endif
