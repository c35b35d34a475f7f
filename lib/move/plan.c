/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Who waits for plans of others: see plan.h. */
#include "move/plan.h"

#include "base/error.h"
#include "move/away.h"

#include <assert.h>
#include <errno.h>

static void wait_settled(struct glk_cache *gpu)
{
	int64_t since = glk_clock_ticks();

	gpu->plans.waiters++;
	glk_lock_wait(&gpu->lock, &gpu->plans.settled);
	gpu->plans.waiters--;
	glk_times_since(&gpu->times[GLK_TIMED_WAIT], since);
}

void glk_plan_tell_all(struct glk_cache *gpu)
{
	pthread_cond_broadcast(&gpu->plans.settled);
}

void glk_plan_enter(struct glk_cache *gpu)
{
	while (gpu->plans.closed)
		wait_settled(gpu);
	gpu->plans.inside++;
}

int glk_suspended(const struct glk_cache *cache)
{
	if (!glk_load_relaxed(&cache->suspended))
		return 0;
	return glk_error(
		-EAGAIN, GLAKE_ERROR_AGAIN, "GPU %d is suspended", cache->device);
}

int glk_plan_ask_closed(struct glk_cache *gpu)
{
	while (gpu->plans.closed && !glk_load_relaxed(&gpu->suspended))
		wait_settled(gpu);
	if (glk_load_relaxed(&gpu->suspended))
		return glk_suspended(gpu);
	gpu->plans.inside++;
	return 0;
}

void glk_plan_begin(struct glk_cache *gpu)
{
	gpu->plans.under_way++;
}

void glk_plan_end(struct glk_cache *gpu)
{
	gpu->plans.under_way--;
	gpu->plans.ended++;
	glk_plan_tell(gpu);
}

/* Nobody but the climber goes on. */
static void shut(struct glk_cache *gpu)
{
	gpu->plans.closed |= GLK_PLANS_CLIMBED;
	while (gpu->plans.inside > gpu->plans.parked + 1)
		wait_settled(gpu);
}

static void unshut(struct glk_cache *gpu)
{
	gpu->plans.closed &= ~GLK_PLANS_CLIMBED;
	glk_plan_tell(gpu);
}

void glk_plan_park(struct glk_cache *gpu, bool climbs)
{
	if (climbs) {
		unshut(gpu);
		return;
	}
	gpu->plans.parked++;
	glk_plan_tell(gpu);
}

void glk_plan_unpark(struct glk_cache *gpu, bool climbs)
{
	if (climbs) {
		shut(gpu);
		return;
	}
	while (gpu->plans.closed & GLK_PLANS_CLIMBED)
		wait_settled(gpu);
	gpu->plans.parked--;
}

bool glk_plan_wait(struct glk_cache *gpu, bool climbs)
{
	uint64_t ended = gpu->plans.ended;

	if (!gpu->plans.under_way)
		return false;
	glk_plan_park(gpu, climbs);
	while (gpu->plans.ended == ended)
		wait_settled(gpu);
	glk_plan_unpark(gpu, climbs);
	return true;
}

void glk_plan_climb(struct glk_cache *gpu)
{
	gpu->spill_waits += gpu->sending > 0;
	glk_plan_park(gpu, false);
	while (gpu->plans.climbing)
		wait_settled(gpu);
	gpu->plans.climbing = true;
	gpu->plans.parked--;
	shut(gpu);
}

bool glk_plan_climb_now(struct glk_cache *gpu)
{
	if (gpu->plans.climbing || gpu->plans.inside > gpu->plans.parked + 1)
		return false;
	gpu->plans.climbing = true;
	gpu->plans.closed |= GLK_PLANS_CLIMBED;
	return true;
}

void glk_plan_climbed(struct glk_cache *gpu)
{
	gpu->plans.climbing = false;
	unshut(gpu);
}

void glk_plan_close(struct glk_cache *gpu)
{
	while (gpu->plans.closed & GLK_PLANS_CLOSED)
		wait_settled(gpu);
	gpu->plans.closed |= GLK_PLANS_CLOSED;
	while (gpu->plans.inside)
		wait_settled(gpu);
}

void glk_plan_open(struct glk_cache *gpu)
{
	assert(gpu->plans.closed & GLK_PLANS_CLOSED);
	gpu->plans.closed &= ~GLK_PLANS_CLOSED;
	glk_plan_tell(gpu);
}
