/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What holds others up where there are many blocks: walks give the lock up every few steps, and whoever
 * waits for it has it then. Quiet points, cold blocks that may not go, hints whose time is over.
 */
#include "plan_parts.h"

#include "base/clock.h"
#include "move/hint.h"

#include <sched.h>
#include <stdlib.h>

#define MANY 100000
/* Classes of size of what is on the host: a walk for each. */
#define PLACED 5
/* Quiet points at the most, until another thread has waited so often: other programs may have its processor. */
#define TRIES 400
#define TURNS 64

static struct rig rig;
static struct CUstream_st *a;

/* Another thread, which wants the lock all the while, and for how many steps it waited. */
static struct {
	glk_atomic(bool) stop;
	uint64_t steps[TURNS];
	glk_atomic(uint32_t) turns;
} other;

static void *want(void *arg)
{
	uint64_t before, steps;
	uint32_t turn;

	while (!glk_load_relaxed(&other.stop)) {
		before = glk_peek_relaxed(&rig.cache.plans.steps);
		glk_lock(&rig.cache.lock);
		steps = rig.cache.plans.steps - before;
		turn = glk_load_relaxed(&other.turns);
		if (steps && turn < TURNS) {
			other.steps[turn] = steps;
			glk_store_relaxed(&other.turns, turn + 1);
		}
		glk_unlock(&rig.cache.lock);
	}
	return arg;
}

static int compare(const void *left, const void *right)
{
	const uint64_t *l = left, *r = right;

	return (*l > *r) - (*l < *r);
}

static void set_up(int blocks)
{
	struct glake_suspended did;
	uint64_t placed[PLACED];
	bool all = true;

	rig_open(&rig,
		(const char *const[]){"soft.host_memory=256MiB", "tier.host=192MiB",
			"policy.bins=0", "soft.memory=16GiB", "map.span=32GiB",
			"map.extents=262144", "pool.pages=16384", NULL});
	a = rig_stream(&rig);
	for (int i = 0; i < PLACED; i++)
		placed[i] = rig_alloc(&rig, (3 * MIB) << i, a);
	is_int(glk_cache_suspend(&rig.cache, true, &did), 0,
		"some blocks go to the host");
	is_int(glk_cache_resume(&rig.cache, true, &did), 0, "in place");
	/* and stay there */
	for (int i = 0; i < PLACED; i++)
		all &= !glk_cache_advise(&rig.cache, placed[i], GLAKE_ADVICE_PINNED);
	for (int i = 0; i < blocks; i++)
		all &= rig_alloc(&rig, (size_t)(i % 7 + 1) << (10 + i % 8), a) != 0;
	ok(all, "%d others lie on the GPU", blocks);
}

/* Quiet points, until another thread has waited often enough. */
static void play(void)
{
	struct glake_returned did;

	for (int i = 0; i < TRIES && glk_load_relaxed(&other.turns) < TURNS; i++)
		if (glk_cache_quiet(&rig.cache, &did))
			tap_bail("no quiet point");
}

static void quiet_points(void)
{
	uint64_t half;
	pthread_t thread;

	set_up(MANY);
	if (pthread_create(&thread, NULL, want, NULL))
		tap_bail("no thread");
	play();
	glk_store_relaxed(&other.stop, true);
	pthread_join(thread, NULL);
	/* it may have lost the processor after it began to count, and before it asked */
	qsort(other.steps, TURNS, sizeof(*other.steps), compare);
	half = other.steps[TURNS / 2];
	if (glk_load_relaxed(&other.turns) < TURNS)
		tap_skip("how long others wait", "nobody wanted the lock meanwhile");
	else
		ok(half <= GLK_PLAN_STEPS,
			"others wait for %llu steps at most, as a rule",
			(unsigned long long)half);
	rig_close(&rig, MANY + PLACED);
}

#define SOME 4096

/* However many wait, or none: each walk takes a step for every sixteen extents. */
static void quiet_steps(void)
{
	struct glake_returned did;
	uint64_t steps;

	set_up(SOME);
	steps = rig.cache.plans.steps;
	is_int(glk_cache_quiet(&rig.cache, &did), 0, "a quiet point");
	steps = rig.cache.plans.steps - steps;
	ok(steps >= (PLACED + 1) * SOME / 16,
		"of one walk for what sizes there are, and one for each: %llu steps",
		(unsigned long long)steps);
	rig_close(&rig, SOME + PLACED);
}

#define COLD 400

/* Cold blocks that are on the host already: a request that has no room looks at each, step by step. */
static void cold_ones(void)
{
	struct glake_suspended did;
	uint64_t addr, steps;
	int err = 0;

	rig_open(&rig,
		(const char *const[]){"soft.host_memory=2GiB", "tier.host=1GiB",
			"policy.bins=0", "pool.budget=900MiB", NULL});
	a = rig_stream(&rig);
	for (int i = 0; i < COLD; i++) {
		addr = rig_alloc(&rig, 300 << 10, a);
		err |= !addr || glk_cache_advise(&rig.cache, addr, GLAKE_ADVICE_COLD);
	}
	is_int(err, 0, "cold blocks");
	is_int(glk_cache_suspend(&rig.cache, true, &did), 0, "go to the host");
	is_int(glk_cache_resume(&rig.cache, true, &did), 0, "in place");
	is_int((int64_t)did.stayed_blocks, COLD, "all of them");
	ok(rig_alloc(&rig, 800 * MIB, a), "a block fills the GPU");
	steps = rig.cache.plans.steps;
	is_int(rig_try(&rig, 200 * MIB, a, 0, &addr), -ENOMEM, "another one has no room");
	steps = rig.cache.plans.steps - steps;
	ok(steps >= COLD, "which is said after %llu steps", (unsigned long long)steps);
	is_sound(&rig, "the books agree");
	rig_close(&rig, COLD + 1);
}

#define HINTS 200

/* Hints whose time is over go one by one too. */
static void late_hints(void)
{
	uint64_t addr[HINTS], filler = 0, steps;
	int64_t due;
	int err = 0;

	rig_open(&rig,
		(const char *const[]){"soft.host_memory=512MiB", "tier.host=256MiB",
			"policy.bins=0", "pool.budget=200MiB", NULL});
	a = rig_stream(&rig);
	for (int i = 0; i < HINTS; i++)
		addr[i] = rig_alloc(&rig, 300 << 10, a);
	for (int i = 0; i < HINTS; i++)
		err |= glk_cache_spill(&rig.cache, addr[i], a);
	filler = rig_alloc(&rig, 190 * MIB, a);
	ok(!err && filler, "blocks that are away, and no room for them");
	due = glk_clock_ns() + 20000000;
	for (int i = 0; i < HINTS; i++)
		err |= glk_cache_prefetch(
			&rig.cache, addr[i], a, due + 200000000, 0, NULL);
	is_int(err, 0, "are hinted");
	while (glk_clock_ns() < due + 200000000)
		sched_yield();
	steps = rig.cache.plans.steps;
	glk_prefetch_pump(&rig.cache);
	steps = rig.cache.plans.steps - steps;
	is_int(rig.cache.hints->queued, 0, "which is dropped when it is too late");
	ok(steps >= HINTS, "in %llu steps", (unsigned long long)steps);
	rig_close(&rig, HINTS + 1);
}

int main(void)
{
	tap_plan_later();
	if (!tap_storms_take_long())
		quiet_points();
	quiet_steps();
	cold_ones();
	late_hints();
	return tap_done();
}
