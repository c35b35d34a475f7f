/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Who climbs the ladder is alone but for those who wait: it waits for what others have in their hands, lets them in
 * while it waits for the GPU, and waits for nobody who waits for something else.
 */
#include "move/plan.h"
#include "plan_parts.h"

static struct rig rig;
static struct CUstream_st *stream, *other;

/* While one waits for the GPU another has memory that is there: the GPU may need what it does. */
static void lets_in(const char *setting)
{
	struct errand large = {.fn = errand_alloc, .rig = &rig, .size = 40 * MIB};
	struct held live, freed, small;

	gate_open_rig(&rig,
		(const char *const[]){"soft.streams=stepped", "policy.bins=0", RIG_DONE,
			"pool.budget=48MiB", setting, NULL});
	stream = large.stream = rig_stream(&rig);
	other = rig_stream(&rig);
	plan_take(&rig, &live, 16 * MIB, stream);
	plan_take(&rig, &freed, 16 * MIB, other);
	rig_work(&rig, freed.addr, 16 * MIB, other);
	plan_drop(&rig, &freed, other);
	ok(gate_send(&large, GLK_OP_event_sync, 1), "a request waits for the GPU");
	ok(rig.cache.plans.climbing, "on the ladder");
	is_int(plan_take(&rig, &small, MIB, other), 0, "another one is served");
	is_int(gate_end(&large, 0), -ENOMEM, "for the first there is too little");
	ok(plan_drop(&rig, &small, other) && plan_drop(&rig, &live, stream),
		"nobody has memory of another one");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

static void wait_for_climber(void)
{
	bool waits;

	do {
		glk_lock(&rig.cache.lock);
		waits = rig.cache.plans.climbing && rig.cache.plans.waiters;
		glk_unlock(&rig.cache.lock);
	} while (!waits);
}

/* What is in the hands of another one, who is refused then, is to be had. */
static void waits_for_others(void)
{
	struct errand first = {.fn = errand_alloc, .rig = &rig, .size = 30 * MIB};
	struct errand second = {.fn = errand_alloc, .rig = &rig, .size = 40 * MIB};
	struct held got;

	gate_open_rig(
		&rig, (const char *const[]){"policy.bins=0", "pool.budget=48MiB", NULL});
	first.stream = rig_stream(&rig);
	second.stream = rig_stream(&rig);
	ok(gate_send(&first, GLK_OP_create, 3), "a request has some pages");
	pthread_create(&second.thread, NULL, gate_run, &second);
	wait_for_climber();
	is_int(gate_end(&first, -EIO), -EIO, "the driver refuses the next");
	pthread_join(second.thread, NULL);
	is_int(second.err, 0, "another one has had to wait, and is served");
	got = plan_got(&second);
	ok(plan_drop(&rig, &got, second.stream), "with memory of its own");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* One that has memory in its hands, and waits itself, goes on before another one is refused. */
static void waits_for_who_waits(void)
{
	struct errand large = {.fn = errand_alloc, .rig = &rig, .size = 40 * MIB};
	struct glk_cache *gpu = &rig.cache;
	bool waits;

	gate_open_rig(
		&rig, (const char *const[]){"policy.bins=0", "pool.budget=48MiB", NULL});
	large.stream = rig_stream(&rig);
	rig_free(&rig, rig_alloc(&rig, MIB, large.stream), large.stream);
	glk_lock(&gpu->lock);
	glk_plan_enter(gpu);
	glk_plan_begin(gpu);
	glk_plan_park(gpu, false);
	glk_node_claim(gpu->node, 20 * MIB);
	glk_unlock(&gpu->lock);
	pthread_create(&large.thread, NULL, gate_run, &large);
	do {
		glk_lock(&gpu->lock);
		waits = gpu->plans.waiters || glk_load_acquire(&large.done);
		if (!waits)
			glk_unlock(&gpu->lock);
	} while (!waits);
	ok(gpu->plans.climbing, "a request has found too little, and waits");
	glk_plan_unpark(gpu, false);
	glk_node_unclaim(gpu->node, 20 * MIB);
	glk_plan_end(gpu);
	glk_plan_leave(gpu);
	glk_unlock(&gpu->lock);
	pthread_join(large.thread, NULL);
	is_int(large.err, 0, "it is served with what was in the hands of another one");
	rig_free(&rig, large.addr, large.stream);
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

/* A function that is told of a move waits for a request which climbs. */
static int hear(const struct glake_move *move, void *arg)
{
	struct errand *e = arg;

	if (move->is_over)
		return 0;
	pthread_create(&e->thread, NULL, gate_run, e);
	pthread_join(e->thread, NULL);
	return 0;
}

static void passes_who_waits(void)
{
	struct errand large = {.fn = errand_alloc, .rig = &rig, .size = 40 * MIB};
	struct held block;

	gate_open_rig(
		&rig, (const char *const[]){"policy.bins=0", "pool.budget=48MiB", NULL});
	large.stream = rig_stream(&rig);
	plan_take(&rig, &block, 16 * MIB, large.stream);
	glk_cache_hear(&rig.cache, 0, hear, &large);
	is_int(glk_cache_spill(&rig.cache, block.addr, large.stream), 0,
		"a block goes, which a function is told of");
	is_int(large.err, -ENOMEM, "that waits for a request, which climbs meanwhile");
	glk_cache_hear(&rig.cache, 0, NULL, NULL);
	is_int(glk_cache_fetch(&rig.cache, block.addr, large.stream), 0, "it comes back");
	ok(plan_drop(&rig, &block, large.stream), "with its contents");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
}

int main(void)
{
	tap_plan_later();
	lets_in(NULL);
	lets_in("stream.opportunistic=no");
	waits_for_others();
	waits_for_who_waits();
	passes_who_waits();
	return tap_done();
}
