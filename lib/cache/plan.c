/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Who waits for plans of others: see plan.h. */
#include "cache/plan.h"

#include "cache/away.h"

#include <assert.h>

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

bool glk_plan_wait(struct glk_cache *gpu)
{
	uint64_t ended = gpu->plans.ended;

	if (!gpu->plans.under_way)
		return false;
	while (gpu->plans.ended == ended)
		wait_settled(gpu);
	return true;
}

/* ns that others wait for one that stands alone. It may wait for the GPU, and that for somebody who asks for
 * memory. */
#define PATIENCE 250000000

void glk_plan_pass(struct glk_cache *gpu)
{
	uint64_t stood = gpu->plans.stood;
	int64_t since = glk_clock_ticks();
	bool told = true;

	gpu->plans.waiters++;
	for (int64_t end = glk_clock_ns() + PATIENCE, left = PATIENCE;
		told && left > 0 && glk_plan_is_stood(gpu); left = end - glk_clock_ns())
		told = glk_lock_wait_for(&gpu->lock, &gpu->plans.settled, left);
	gpu->plans.waiters--;
	glk_times_since(&gpu->times[GLK_TIMED_WAIT], since);
	if (!glk_plan_is_stood(gpu) || gpu->plans.stood != stood)
		return;
	/* it has been there all the time: nobody waits for it any more, nor it for the others */
	gpu->plans.lapsed = stood + 1;
	glk_plan_tell(gpu);
}

void glk_plan_stand(struct glk_cache *gpu, struct glk_request *request)
{
	uint64_t turn = gpu->plans.stands++;

	while (gpu->plans.stood != turn ||
		(gpu->plans.tries && gpu->plans.lapsed != turn + 1))
		wait_settled(gpu);
	request->alone = true;
}

void glk_plan_stood(struct glk_cache *gpu, struct glk_request *request)
{
	request->alone = false;
	gpu->plans.stood++;
	glk_plan_tell(gpu);
}

void glk_plan_climb(struct glk_cache *gpu)
{
	gpu->plans.climbers++;
	/* somebody who waits for the others waits for this one no longer */
	glk_plan_tell(gpu);
	while (gpu->plans.climbing)
		wait_settled(gpu);
	gpu->plans.climbing = true;
}

void glk_plan_climbed(struct glk_cache *gpu)
{
	gpu->plans.climbers--;
	gpu->plans.climbing = false;
	glk_plan_tell(gpu);
}

bool glk_plan_yield(struct glk_cache *gpu, uint64_t ended)
{
	while (gpu->plans.ended == ended && gpu->plans.under_way > gpu->plans.climbers)
		wait_settled(gpu);
	return gpu->plans.ended != ended;
}

void glk_plan_close(struct glk_cache *gpu)
{
	while (gpu->plans.closed)
		wait_settled(gpu);
	gpu->plans.closed = true;
	while (gpu->plans.inside)
		wait_settled(gpu);
}

void glk_plan_open(struct glk_cache *gpu)
{
	assert(gpu->plans.closed);
	gpu->plans.closed = false;
	glk_plan_tell(gpu);
}
