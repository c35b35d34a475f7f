/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MOVE_PLAN_H
#define GLK_MOVE_PLAN_H

/*
 * Plans under way on a GPU. A request that has to call the driver makes its plan under the lock and
 * carries it out without (arena/back.c), and nobody waits for it but who has to:
 *
 *  - a request that finds no memory, or no place: it puts back what it has got, and climbs the
 *    ladder (cache/ladder.c) when its turn comes. One climbs at a time, and nobody else is inside then but
 *    those who are parked: what it finds is live, or idle, or in bins that only lose blocks by its looks.
 *    While it waits for the GPU others go in and out, since what the GPU does may depend on them;
 *  - what changes the rights of all that is mapped, or looks at all tables: glk_plan_close().
 *
 * Who waits inside, for the GPU, for a function of the program or for others, is parked: a climber does not
 * wait for him, and he does not go on while it climbs.
 *
 * All under the lock of the GPU, which is given up while waiting.
 */
#include "move/gpu.h"

/* By glk_plan_close(), and by who climbs. */
#define GLK_PLANS_CLOSED  UINT32_C(1)
#define GLK_PLANS_CLIMBED UINT32_C(2)

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
/* Waits until a plan of somebody else has ended; false: there is none. `climbs`: it is the climber that waits. */
bool glk_plan_wait(struct glk_cache *gpu, bool climbs);
/* Around a wait of somebody inside that may take long, or of the climber, which lets others in meanwhile. */
void glk_plan_park(struct glk_cache *gpu, bool climbs);
void glk_plan_unpark(struct glk_cache *gpu, bool climbs);

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

/* For somebody inside who has no pages in his hands: waits for the turn to climb, and until nobody else is
 * inside who is not parked. The second does so where that needs no wait, whatever he has; false: it would. */
void glk_plan_climb(struct glk_cache *gpu);
bool glk_plan_climb_now(struct glk_cache *gpu);
void glk_plan_climbed(struct glk_cache *gpu);

/* Waits until nobody is inside, and lets nobody in: all tables are whole then. */
void glk_plan_close(struct glk_cache *gpu);
void glk_plan_open(struct glk_cache *gpu);

#endif
