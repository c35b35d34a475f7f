/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A large copy is queued whole while other threads ask for little: they take turns. */
#include "unit/api/copy_rig.h"

#include "base/clock.h"
#include "tier/io/feed.h"

#include <pthread.h>

#define ASKED 64 /* jobs that are fed meanwhile, and wait for their stream */
#define PART  (16 * KIB)
#define SLOW  2000 /* us of each copy that the driver is told of */
#define TRIES 100  /* at some another program has the processor */

static struct glake_copy_job *job[ASKED];
static glk_atomic(bool) ended_copy;

struct asked {
	int64_t longest; /* ns of one call */
	int wrong;
	unsigned calls;
};

static void timed(struct asked *a, int64_t since)
{
	int64_t took = glk_clock_ns() - since;

	a->longest = took > a->longest ? took : a->longest;
	a->calls++;
}

/* What became of each, that it is cancelled, and closed. */
static void *ask(void *arg)
{
	struct asked *a = arg;

	for (int i = 0; i < ASKED && !glk_load_acquire(&ended_copy); i++) {
		struct glake_copy_state now = {.sz = sizeof(now)};
		int64_t since = glk_clock_ns();

		a->wrong +=
			glake_copy_get(job[i], &now) || now.stage != GLAKE_COPY_QUEUED;
		timed(a, since);
		since = glk_clock_ns();
		a->wrong += i % 2 && glake_copy_cancel(job[i]);
		timed(a, since);
		since = glk_clock_ns();
		a->wrong += i % 4 > 1 && glake_copy_close(job[i]);
		timed(a, since);
		job[i] = i % 4 > 1 ? NULL : job[i];
	}
	return NULL;
}

static int64_t whole(struct CUstream_st *on, size_t at)
{
	int64_t since = glk_clock_ns();

	if (glake_copy(ctx, gpu + at, host + at, ROOM - at, on, 0, NULL))
		tap_bail("no copy");
	return glk_clock_ns() - since;
}

static void slow_down(void)
{
	char rule[64];

	snprintf(rule, sizeof(rule), "copy:from=1:delay=%d", SLOW);
	glk_fault_set(context->drv, rule);
}

/* Whether no call took long, beside the copy. */
static bool try_asking(void)
{
	static const char *const settings[] = {MANY, "io.fed=0", NULL};
	struct CUstream_st *second;
	struct asked asked = {0};
	pthread_t thread;
	int64_t took;

	begin(settings);
	glk_store_relaxed(&ended_copy, false);
	if (glake_stream_new(ctx, 0, &second))
		tap_bail("no second stream");
	fill(host, ROOM);
	memset(gpu, 0, ROOM);
	whole(second, MIB);
	glk_soft_hold(context->drv, 0, stream, true);
	for (size_t i = 0; i < ASKED; i++)
		if (glake_copy(ctx, gpu + i * PART, host + i * PART, PART, stream, 0,
			    &job[i]))
			tap_bail("no copy to ask for");
	is_int(state_of(job[0]).fed, 1, "copies that are fed wait for their stream");
	if (context->drv->ops->stream_sync(context->drv, 0, second))
		tap_bail("no end of a copy");
	slow_down();
	pthread_create(&thread, NULL, ask, &asked);
	took = whole(second, MIB);
	glk_store_release(&ended_copy, true);
	pthread_join(thread, NULL);
	glk_fault_set(context->drv, "off");
	is_int((int64_t)context->io.copies, ASKED + 2,
		"a large one goes over several links");
	is_int(asked.wrong, 0, "and meanwhile they are asked for, cancelled and closed");
	tap_note("the longest of %u calls took %lld us, of %lld", asked.calls,
		(long long)asked.longest / 1000, (long long)took / 1000);
	glk_soft_hold(context->drv, 0, stream, false);
	for (int i = 0; i < ASKED; i++)
		glake_copy_close(job[i]);
	is_int(sync_stream() | context->drv->ops->stream_sync(context->drv, 0, second), 0,
		"all goes on");
	ok(!memcmp(gpu + MIB, host + MIB, ROOM - MIB), "every byte");
	glake_stream_free(ctx, 0, second);
	end();
	return asked.calls > 8 && asked.longest < took / 4;
}

static void nobody_waits(void)
{
	int tries = 1;

	while (!try_asking() && tries < TRIES)
		tries++;
	ok(tries < TRIES, "none of the calls waits for the whole copy, at try %d", tries);
}

/* Also while nobody asks. */
static void held_for_turns(void)
{
	static const char *const settings[] = {MANY, NULL};
	int64_t took, most;
	int tries = 0;

	begin(settings);
	glk_lock_time(&context->io.lock, CLOCK_MONOTONIC);
	whole(stream, 0);
	do {
		glk_lock(&context->io.lock);
		glk_lock_forget(&context->io.lock);
		glk_unlock(&context->io.lock);
		slow_down();
		took = whole(stream, 0);
		glk_fault_set(context->drv, "off");
		glk_lock(&context->io.lock);
		most = context->io.lock.hold_max;
		glk_unlock(&context->io.lock);
	} while (most >= took / 4 && ++tries < TRIES);
	ok(most < took / 4, "the lock is held for %lld us at once, of %lld",
		(long long)most / 1000, (long long)took / 1000);
	end();
}

int main(void)
{
	tap_plan_later();
	copy_rig_start();
	nobody_waits();
	held_for_turns();
	return tap_done();
}
