/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A large copy is queued, or waits for a path that has failed, while other threads copy little: they take turns. */
#include "unit/api/copy_rig.h"

#include "base/clock.h"

#include <pthread.h>
#include <time.h>

#define PART (16 * KIB)
#define SLOW 2000		 /* us of each copy that the driver is told of */
#define LONG INT64_C(1000000000) /* ns in which a copy of others is made */

static glk_atomic(bool) ended_copy;

struct asked {
	struct CUstream_st *stream;
	int64_t longest; /* ns of one call */
	int wrong;
	unsigned calls;
};

/* Copies of one piece. */
static void *ask(void *arg)
{
	struct asked *a = arg;

	for (; !glk_load_acquire(&ended_copy); a->calls++) {
		size_t at = a->calls % (MIB / PART) * PART;
		int64_t since = glk_clock_ns(), took;

		a->wrong += glake_copy(ctx, gpu + at, host + at, PART, a->stream, 0,
				    NULL) != 0;
		took = glk_clock_ns() - since;
		a->longest = took > a->longest ? took : a->longest;
	}
	return NULL;
}

/* ns until it is queued. */
static int64_t large(size_t at)
{
	int64_t since = glk_clock_ns();

	if (glake_copy(ctx, gpu + at, host + at, ROOM - at, stream, 0, NULL))
		tap_bail("no copy");
	return glk_clock_ns() - since;
}

static void slow_down(void)
{
	char rule[64];

	snprintf(rule, sizeof(rule), "copy:from=1:delay=%d", SLOW);
	glk_fault_set(context->drv, rule);
}

static void nobody_waits(void)
{
	static const char *const settings[] = {MANY, NULL};
	struct asked asked = {0};
	pthread_t thread;
	int64_t took;

	begin(settings);
	glk_store_relaxed(&ended_copy, false);
	if (glake_stream_new(ctx, 0, &asked.stream))
		tap_bail("no second stream");
	fill(host, ROOM);
	memset(gpu, 0, ROOM);
	large(MIB);
	if (sync_stream())
		tap_bail("no end of a copy");
	slow_down();
	pthread_create(&thread, NULL, ask, &asked);
	took = large(MIB);
	glk_store_release(&ended_copy, true);
	pthread_join(thread, NULL);
	glk_fault_set(context->drv, "off");
	is_int((int64_t)context->io.copies, (int64_t)asked.calls + 2,
		"a large one goes over several links, and small ones are planned likewise");
	is_int(asked.wrong, 0, "which are queued meanwhile");
	tap_note("the longest of %u calls took %lld us, of %lld", asked.calls,
		(long long)asked.longest / 1000, (long long)took / 1000);
	is_int(sync_stream() |
			context->drv->ops->stream_sync(context->drv, 0, asked.stream),
		0, "all goes on");
	ok(!memcmp(gpu + MIB, host + MIB, ROOM - MIB) && !memcmp(gpu, host, PART),
		"every byte");
	glake_stream_free(ctx, 0, asked.stream);
	end();
	ok(asked.calls > 8 && asked.longest < took / 4,
		"none of the calls waits for the whole copy");
}

/* Also while nobody asks. */
static void held_for_turns(void)
{
	static const char *const settings[] = {MANY, NULL};
	int64_t took, most;

	begin(settings);
	glk_lock_time(&context->io.lock, CLOCK_MONOTONIC);
	large(0);
	glk_lock(&context->io.lock);
	glk_lock_forget(&context->io.lock);
	glk_unlock(&context->io.lock);
	slow_down();
	took = large(0);
	glk_fault_set(context->drv, "off");
	glk_lock(&context->io.lock);
	most = context->io.lock.hold_max;
	glk_unlock(&context->io.lock);
	ok(most < took / 4, "the lock is held for %lld us at once, of %lld",
		(long long)most / 1000, (long long)took / 1000);
	end();
}

static glk_atomic(bool) is_made;

struct small {
	struct CUstream_st *stream;
	void *block;
	int device, err;
};

/* Of another GPU, which lends no link and needs the lock. */
static void *copy_small(void *arg)
{
	struct small *s = arg;

	s->err = glake_copy(ctx, s->block, other, MIB, s->stream, 0, NULL);
	if (!s->err)
		s->err = context->drv->ops->stream_sync(
			context->drv, s->device, s->stream);
	glk_store_release(&is_made, true);
	return NULL;
}

static void a_while(void)
{
	struct timespec t = {.tv_nsec = 1000000};

	nanosleep(&t, NULL);
}

/* Whether a copy of others is made while all stays as it is. */
static bool passes(struct small *s, pthread_t *thread)
{
	int64_t since = glk_clock_ns();

	glk_store_release(&is_made, false);
	if (pthread_create(thread, NULL, copy_small, s))
		tap_bail("no thread");
	while (!glk_load_acquire(&is_made) && glk_clock_ns() - since < LONG)
		a_while();
	return glk_load_acquire(&is_made);
}

/* Whether the driver has refused a call. */
static bool has_failed(void)
{
	uint64_t calls, failed = 0;

	for (int i = 0; i < 2000 && !failed; i++) {
		a_while();
		glk_fault_count(context->drv, &calls, &failed);
	}
	return failed;
}

static void *copy_large(void *arg)
{
	return (void *)(intptr_t)glake_copy(arg, gpu, host, ROOM, stream, 0, NULL);
}

/* A path fails while its stream stands: who copies waits for it himself, and others copy meanwhile. */
static void waits(void)
{
	static const char *const settings[] = {
		MANY, "io.lend=1", "soft.streams=worker", NULL};
	pthread_t thread, waiter;
	struct small s = {.device = 2};
	void *failed = NULL;

	begin(settings);
	if (glake_stream_new(ctx, s.device, &s.stream) ||
		glake_alloc(ctx, s.device, MIB, s.stream, 0, &s.block))
		tap_bail("no second GPU");
	fill(other, MIB);
	fill(host, ROOM);
	is_int(glake_copy(ctx, gpu, host, ROOM, stream, 0, NULL) | sync_stream(), 0,
		"a copy over two links");
	memset(gpu, 0, ROOM);
	tap_expect_log(1);
	/* behind its start: the first piece over the link, whose stream takes its time */
	glk_fault_set(context->drv,
		"event_record:nth=2:len=2:err=EIO;stream_sync:nth=1:delay=1500000");
	if (pthread_create(&waiter, NULL, copy_large, ctx))
		tap_bail("no thread");
	ok(has_failed(), "the lent link is refused something");
	for (int i = 0; i < 20; i++)
		a_while();
	ok(passes(&s, &thread), "others copy while who copies waits for its stream");
	pthread_join(thread, NULL);
	pthread_join(waiter, &failed);
	glk_fault_set(context->drv, "off");
	is_int((intptr_t)failed, 0, "he has copied");
	ok(!s.err && !memcmp(s.block, other, MIB), "every byte of theirs");
	ok(!sync_stream() && !memcmp(gpu, host, ROOM), "and of his");
	glake_free(ctx, s.block, s.stream);
	glake_stream_free(ctx, s.device, s.stream);
	end();
}

int main(void)
{
	tap_plan_later();
	copy_rig_start();
	nobody_waits();
	held_for_turns();
	waits();
	return tap_done();
}
