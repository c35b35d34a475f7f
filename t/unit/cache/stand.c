/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * No request is refused while memory that would do is merely in motion: before that it stands
 * alone, and nobody does for longer than that takes.
 */
#include "stand_parts.h"

#define BUDGET (40 * MIB)
#define PART   (16 * MIB)

/*
 * A thief: a thread that has one part of the memory live and another one freed, behind work. Whenever
 * the request of another thread has waited for that work, it asks for what has become idle, and frees
 * the other one behind work of its own.
 */
static struct {
	struct rig rig;
	struct glk_drv drv;
	struct CUstream_st *stream;
	struct held held;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	uint64_t wanted, done;
	int err;
	bool stop, torn;
} thief = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static _Thread_local bool is_robbed;

static void swap(void)
{
	struct held other;

	if (thief.err)
		return;
	thief.err = plan_take(&thief.rig, &other, PART, thief.stream);
	if (thief.err)
		return;
	rig_work(&thief.rig, thief.held.addr, PART, thief.stream);
	thief.torn |= !plan_drop(&thief.rig, &thief.held, thief.stream);
	thief.held = other;
}

static void *steal(void *arg)
{
	pthread_mutex_lock(&thief.lock);
	for (;;) {
		while (!thief.stop && thief.done == thief.wanted)
			pthread_cond_wait(&thief.changed, &thief.lock);
		if (thief.stop)
			break;
		pthread_mutex_unlock(&thief.lock);
		swap();
		pthread_mutex_lock(&thief.lock);
		thief.done++;
		pthread_cond_broadcast(&thief.changed);
	}
	pthread_mutex_unlock(&thief.lock);
	return NULL;
}

/* The request has waited. While it stands alone the thief would wait for it. */
static int waited(int err)
{
	const struct glk_cache *gpu = &thief.rig.cache;

	if (!is_robbed || gpu->plans.stands != gpu->plans.stood)
		return err;
	pthread_mutex_lock(&thief.lock);
	thief.wanted++;
	pthread_cond_broadcast(&thief.changed);
	while (thief.done != thief.wanted)
		pthread_cond_wait(&thief.changed, &thief.lock);
	pthread_mutex_unlock(&thief.lock);
	return err;
}

static void is_robbed_of_nothing(void)
{
	struct CUstream_st *stream;
	struct held held, first;
	uint64_t steals;

	thief.wanted = thief.done = 0;
	thief.err = 0;
	thief.stop = thief.torn = false;
	gate_open_rig(&thief.rig,
		(const char *const[]){"soft.streams=stepped", "policy.bins=0", RIG_DONE,
			"pool.budget=40MiB", NULL});
	stand_wrap(&thief.rig, waited);
	stream = rig_stream(&thief.rig);
	thief.stream = rig_stream(&thief.rig);
	plan_take(&thief.rig, &thief.held, PART, thief.stream);
	plan_take(&thief.rig, &first, PART, thief.stream);
	rig_work(&thief.rig, first.addr, PART, thief.stream);
	plan_drop(&thief.rig, &first, thief.stream);
	if (pthread_create(&thief.thread, NULL, steal, NULL))
		tap_bail("no thread");
	is_robbed = true;
	ok(!plan_take(&thief.rig, &held, BUDGET - PART, stream),
		"all that is not live is had");
	is_robbed = false;
	pthread_mutex_lock(&thief.lock);
	thief.stop = true;
	steals = thief.done;
	pthread_cond_broadcast(&thief.changed);
	pthread_mutex_unlock(&thief.lock);
	pthread_join(thief.thread, NULL);
	ok(steals > 0, "though it was taken away %" PRIu64 " times", steals);
	is_int(thief.err, 0, "by a thread that was not refused either");
	is_int((int64_t)thief.rig.cache.plans.stands, 1, "for it stood alone");
	ok(plan_drop(&thief.rig, &held, stream) && !thief.torn &&
			plan_drop(&thief.rig, &thief.held, thief.stream),
		"nobody has memory of another one");
	is_sound(&thief.rig, "the books agree");
	rig_close(&thief.rig, 0);
}

/* Nobody else is there: the answer comes without a second round. */
static void alone_at_once(void)
{
	struct CUstream_st *s;
	uint64_t addr = 0, some;
	struct rig rig;

	rig_open(&rig, (const char *const[]){"pool.budget=40MiB", NULL});
	s = rig_stream(&rig);
	some = rig_alloc(&rig, 20 * MIB, s);
	is_int(rig_try(&rig, 24 * MIB, s, 0, &addr), -ENOMEM, "no room");
	is_int((int64_t)rig.cache.plans.stands, 0,
		"is said at once where nobody else is");
	rig_free(&rig, some, s);
	rig_close(&rig, 0);
}

int main(void)
{
	tap_plan_later();
	is_robbed_of_nothing();
	alone_at_once();
	return tap_done();
}
