/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A request that stands alone waits for work of the GPU, which ends only when another thread has got
 * memory that is there: others do not wait for it for ever.
 */
#include "stand_parts.h"

#include <time.h>

#define PART (16 * MIB)

static struct rig rig;
static struct CUstream_st *other;
static _Thread_local bool is_large;
static int asked, hung, failed;
static double longest;

/* Some memory that is there, for work of its own. */
static void *ask(void *arg)
{
	struct timespec a, b;
	uint64_t addr;
	double took;

	(void)arg;
	clock_gettime(CLOCK_MONOTONIC, &a);
	addr = rig_alloc(&rig, MIB, other);
	clock_gettime(CLOCK_MONOTONIC, &b);
	took = (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
	longest = took > longest ? took : longest;
	if (addr) {
		rig_work(&rig, addr, MIB, other);
		rig_free(&rig, addr, other);
	} else {
		failed++;
	}
	return NULL;
}

/* The GPU is waited for, until the other thread has got what it asks for. */
static int waited(int err)
{
	bool stands = rig.cache.plans.stands != rig.cache.plans.stood;
	struct timespec until;
	pthread_t thread;

	if (!is_large || hung)
		return err;
	asked += stands;
	if (pthread_create(&thread, NULL, ask, NULL))
		tap_bail("no thread");
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 20;
	if (pthread_timedjoin_np(thread, NULL, &until)) {
		hung++;
		pthread_detach(thread);
	}
	return err;
}

static struct {
	pthread_cond_t told; /* under the lock of the GPU */
	bool comes, has_stood;
} one = {.told = PTHREAD_COND_INITIALIZER};

static void *stand(void *arg)
{
	struct glk_cache *gpu = arg;
	struct glk_request request = {0};

	glk_lock(&gpu->lock);
	one.comes = true;
	pthread_cond_broadcast(&one.told);
	glk_plan_stand(gpu, &request);
	one.has_stood = true;
	pthread_cond_broadcast(&one.told);
	glk_plan_stood(gpu, &request);
	glk_unlock(&gpu->lock);
	return NULL;
}

/* Who waits for it no longer tells it so: it waits for no request that is tried then, which may need it. */
static void is_told(void)
{
	struct glk_request first = {0}, second = {0};
	struct glk_cache *gpu = &rig.cache;
	pthread_t thread;

	glk_lock(&gpu->lock);
	glk_plan_try(gpu, &first);
	if (pthread_create(&thread, NULL, stand, gpu))
		tap_bail("no thread");
	while (!one.comes)
		glk_lock_wait(&gpu->lock, &one.told);
	ok(glk_plan_is_stood(gpu) && !one.has_stood,
		"one is about to stand alone, and waits for one that is tried");
	glk_plan_try(gpu, &second);
	ok(second.met && !glk_plan_is_stood(gpu), "another one passes, after a while");
	while (!one.has_stood)
		glk_lock_wait(&gpu->lock, &one.told);
	is_int((int64_t)gpu->plans.tries, 2, "while both are tried it goes on");
	glk_plan_tried(gpu, &second);
	glk_plan_tried(gpu, &first);
	ok(first.met, "each met the other");
	glk_unlock(&gpu->lock);
	pthread_join(thread, NULL);
	pthread_cond_destroy(&one.told);
}

int main(void)
{
	struct held live, freed, large;
	struct CUstream_st *stream;

	tap_plan_later();
	gate_open_rig(&rig,
		(const char *const[]){"soft.streams=stepped", "policy.bins=0", RIG_DONE,
			"pool.budget=48MiB", NULL});
	stand_wrap(&rig, waited);
	stream = rig_stream(&rig);
	other = rig_stream(&rig);
	plan_take(&rig, &live, PART, stream);
	plan_take(&rig, &freed, PART, other);
	rig_work(&rig, freed.addr, PART, other);
	plan_drop(&rig, &freed, other);
	is_large = true;
	is_int(plan_take(&rig, &large, 40 * MIB, stream), -ENOMEM, "more than there is");
	is_large = false;
	ok(rig.cache.plans.stands > 0 && asked > 0,
		"stood alone, and waited for the GPU %d times then", asked);
	ok(!hung, "which waited for another request, and that not for ever: %.2f s",
		longest);
	is_int(failed, 0, "it was served each time");
	ok(longest < 5, "soon");
	is_int((int64_t)(rig.cache.plans.stands - rig.cache.plans.stood), 0,
		"nobody stands");
	is_int((int64_t)rig.cache.plans.tries, 0, "nothing is tried");
	is_told();
	is_int((int64_t)(rig.cache.plans.stands - rig.cache.plans.stood), 0,
		"nobody stands then");
	ok(plan_drop(&rig, &live, stream), "nobody has memory of another one");
	is_sound(&rig, "the books agree");
	rig_close(&rig, 0);
	return tap_done();
}
