/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Copies that a thread feeds, as programs see them: order, jobs, cancels, ends, forks. */
#include "unit/api/copy_rig.h"
#include "unit/api/stuck.h"

#include "tier/io/feed.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#define FED MANY, "io.fed=0"

static int few(int rounds)
{
	return tap_on_valgrind() ? rounds / 4 : rounds;
}

/* To the GPU and back, each with a job. Whether all bytes are right and both were fed. */
static bool trip(size_t most)
{
	size_t bytes = 256 * KIB + dice() % most, a = dice() % 200,
	       b = EDGE + dice() % 200;
	struct glake_copy_job *down = NULL, *up = NULL;
	struct glake_copy_state now;
	bool right;

	fill(host, ROOM);
	gpu[b - 1] = gpu[b + bytes] = 77;
	if (glake_copy(ctx, gpu + b, host + a, bytes, stream, 0, &down) ||
		glake_copy(ctx, other + a, gpu + b, bytes, stream, 0, &up))
		return false;
	right = !glake_copy_wait(up, -1) && !glake_copy_wait(down, 0);
	now = state_of(up);
	right = right && now.stage == GLAKE_COPY_DONE && now.fed && now.copied == bytes &&
		now.bytes == bytes && now.relayed <= bytes && state_of(down).fed &&
		!memcmp(other + a, host + a, bytes) &&
		!memcmp(gpu + b, host + a, bytes) && gpu[b - 1] == 77 &&
		gpu[b + bytes] == 77;
	return !glake_copy_close(down) && !glake_copy_close(up) && right;
}

static void is_right(const char *streams, struct CUstream_st *on)
{
	const char *const settings[] = {FED, streams, NULL};
	struct CUstream_st *made;
	int wrong = 0;

	begin(settings);
	made = stream;
	stream = on ? on : stream;
	for (int i = 0; i < few(16); i++)
		wrong += !trip(3 * MIB);
	ok(!wrong, "%s: all bytes arrive, and no other is written", streams);
	stream = made;
	end();
}

/* Behind what was queued, before what comes. */
static void in_order(const char *streams)
{
	const char *const settings[] = {FED, streams, NULL};
	struct CUstream_st *second;
	struct glake_copy_job *job;
	struct glk_drv_event *event;
	struct glk_drv *drv;
	unsigned at = 0;

	begin(settings);
	drv = context->drv;
	fill(host, ROOM);
	memset(gpu, 0, ROOM);
	if (glake_stream_new(ctx, 0, &second) || drv->ops->event_new(drv, 0, &event))
		tap_bail("no second stream");
	glk_soft_hold(drv, 0, stream, true);
	drv->ops->fill(drv, (uintptr_t)gpu, 7, ROOM / 4, stream);
	ok(!glake_copy(ctx, gpu, host, 3 * MIB, stream, 0, &job), "%s: a copy", streams);
	drv->ops->event_record(drv, event, stream);
	is_int(drv->ops->fill(drv, (uintptr_t)gpu, 9, MIB / 4, stream), 0,
		"work behind it");
	drv->ops->stream_wait(drv, second, event);
	is_int(drv->ops->fill(drv, (uintptr_t)(gpu + MIB), 11, 16, second), 0,
		"and on a stream that waits");
	glk_soft_run_all(drv);
	ok(!gpu[2 * MIB] && !gpu[3 * MIB - 1], "it waits for what was queued before");
	is_int(state_of(job).stage, GLAKE_COPY_QUEUED, "its job says so");
	is_int(glake_copy_wait(job, 0), -ETIMEDOUT, "and does not wait");
	is_int(glake_copy_wait(job, 3000000), -ETIMEDOUT, "or not for long");
	is_int(glake_copy_wait(job, -1), -EBUSY, "or not for ever");
	glk_soft_hold(drv, 0, stream, false);
	is_int(glake_copy_wait(job, -1), 0, "then it is waited for");
	is_int(state_of(job).stage, GLAKE_COPY_DONE, "and done");
	is_int(sync_stream() | drv->ops->stream_sync(drv, 0, second), 0, "all else");
	ok(!memcmp(gpu + MIB + 64, host + MIB + 64, 2 * MIB - 64), "all of it");
	while (at < MIB && gpu[at] == (at % 4 ? 0 : 9))
		at++;
	is_int(at, (int64_t)MIB, "what was queued after it came after it");
	is_int(gpu[MIB], 11, "what waited for it too");
	is_int(gpu[3 * MIB], 7, "and what was before it before");
	is_int(glake_copy_close(job), 0, "closed");
	drv->ops->event_free(drv, event);
	glake_stream_free(ctx, 0, second);
	end();
}

/* Before its stream has come to it. */
static void cancelled_early(void)
{
	static const char *const settings[] = {FED, NULL};
	struct glake_copy_job *job, *next;
	struct glake_copy_part part;

	begin(settings);
	fill(host, ROOM);
	memset(gpu, 0, ROOM);
	glk_soft_hold(context->drv, 0, stream, true);
	is_int(glake_copy(ctx, gpu, host, 2 * MIB, stream, 0, &job), 0, "a copy");
	is_int(glake_copy(ctx, gpu + 2 * MIB, host + 2 * MIB, MIB, stream, 0, &next), 0,
		"and another");
	is_int(glake_copy_cancel(job), 0, "the first is cancelled");
	is_int(glake_copy_cancel(job), -EBUSY, "once");
	is_int(error_class(), GLAKE_ERROR_BUSY, "  its class");
	is_int(state_of(job).stage, GLAKE_COPY_QUEUED, "its stream has to come to it");
	glk_soft_hold(context->drv, 0, stream, false);
	is_int(glake_copy_wait(job, -1), -ECANCELED, "and goes on");
	is_int(state_of(job).stage, GLAKE_COPY_FAILED, "it was not made");
	is_int((int64_t)state_of(job).failed, 2 * MIB, "nothing of it");
	is_int(glake_copy_failed(job, 0, &part), 0, "which is told");
	ok(!part.offset && part.bytes == 2 * MIB, "  in one part");
	is_int(glake_copy_wait(next, -1), 0, "the other one is");
	ok(!gpu[0] && !gpu[2 * MIB - 1], "no byte of the one");
	ok(!memcmp(gpu + 2 * MIB, host + 2 * MIB, MIB), "and all of the other");
	is_int(glake_copy_cancel(next), -EBUSY, "it has finished");
	is_int(glake_copy_close(job) | glake_copy_close(next), 0, "closed");
	is_int(glake_copy_cancel(job), -ESTALE, "no job");
	is_int(glake_copy_cancel(NULL), -ESTALE, "none");
	end();
}

/* No job, no waits for words, as many as there may be: queued whole. */
static void not_fed(void)
{
	static const char *const settings[] = {FED, "io.fed=1MiB", NULL};
	struct glake_copy_job *job;

	begin(settings);
	fill(host, ROOM);
	is_int(glake_copy(ctx, gpu, host, MIB, stream, 0, NULL), 0, "without a job");
	ok(!context->io.feeder, "there is no thread");
	is_int(glake_copy(ctx, gpu, host, MIB - 1, stream, 0, &job), 0, "a small one");
	ok(!context->io.feeder && !state_of(job).fed, "nor then");
	is_int(state_of(job).paths, 4, "it goes over four paths");
	is_int(glake_copy_cancel(job), -EBUSY, "and cannot be cancelled");
	glake_copy_close(job);
	is_int(glake_copy(ctx, gpu, host, MIB, stream, 0, &job), 0, "a large one");
	ok(context->io.feeder && state_of(job).fed, "is fed");
	glake_copy_close(job);
	end();
	begin(settings);
	glk_fault_set(context->drv, "stream_wait_word:from=1:err=EOPNOTSUPP");
	for (int i = 0; i < 2; i++) {
		is_int(glake_copy(ctx, gpu, host, 2 * MIB, stream, 0, &job), 0,
			"a driver without such waits");
		is_int(state_of(job).fed, 0, "it is not fed");
		is_int(state_of(job).paths, 4, "but goes over four paths");
		is_int(glake_copy_wait(job, -1), 0, "to its end");
		ok(!memcmp(gpu, host, 2 * MIB), "every byte");
		glake_copy_close(job);
	}
	end();
}

/* While one is fed another's pieces shall not stand before its own, and wait. */
static void beside(void)
{
	static const char *const settings[] = {FED, NULL};
	struct glake_copy_job *job;
	uint64_t before;

	begin(settings);
	fill(host, ROOM);
	glk_soft_hold(context->drv, 0, stream, true);
	is_int(glake_copy(ctx, gpu, host, MIB, stream, 0, &job), 0, "a copy");
	before = context->io.copies;
	is_int(glake_copy(ctx, gpu + MIB, host + MIB, MIB, stream, 0, NULL), 0,
		"one behind it without a job");
	is_int((int64_t)(context->io.copies - before), 0, "goes over one link");
	is_int(glake_copy(ctx, other, gpu + 3 * MIB, MIB, NULL, 0, NULL), 0,
		"one on a stream that is free");
	is_int((int64_t)(context->io.copies - before), 1, "over several");
	glk_soft_hold(context->drv, 0, stream, false);
	is_int(sync_stream(), 0, "all goes on");
	ok(!memcmp(gpu, host, 2 * MIB), "every byte");
	ok(!memcmp(other, gpu + 3 * MIB, MIB), "of all three");
	glake_copy_close(job);
	end();
}

/* Pieces that were queued whole before, and wait for their stream, hold up none that is fed. */
static void behind(void)
{
	static const char *const settings[] = {FED, NULL};
	struct CUstream_st *second;
	struct glake_copy_job *job;

	begin(settings);
	fill(host, ROOM);
	memset(gpu, 0, ROOM);
	if (glake_stream_new(ctx, 0, &second))
		tap_bail("no second stream");
	glk_soft_hold(context->drv, 0, second, true);
	is_int(glake_copy(ctx, gpu + 3 * MIB, host + 3 * MIB, MIB, second, 0, NULL), 0,
		"a copy that waits, over several links");
	is_int((int64_t)context->io.copies, 1, "it is");
	ok(context->io.gpu[1].ring[GLK_IO_DOWN].waits,
		"and what follows in its slots waits for its stream too");
	is_int(glake_copy(ctx, gpu, host, 3 * MIB, stream, 0, &job), 0,
		"one that is fed");
	is_int(glake_copy_wait(job, -1), 0, "is made");
	is_int(state_of(job).paths, 1, "over the link that is free");
	ok(!memcmp(gpu, host, 3 * MIB) && !gpu[3 * MIB], "every byte, and no other");
	is_int(glake_copy_close(job), 0, "closed");
	glk_soft_hold(context->drv, 0, second, false);
	is_int(glake_copy(ctx, other, gpu, 3 * MIB, stream, 0, &job), 0, "then");
	is_int(glake_copy_wait(job, -1), 0, "one is made");
	is_int(state_of(job).paths, 4, "over all links");
	glake_copy_close(job);
	is_int(context->drv->ops->stream_sync(context->drv, 0, second), 0,
		"the first too");
	ok(!memcmp(gpu, host, ROOM), "every byte");
	glake_stream_free(ctx, 0, second);
	end();
}

/* More than there are words. */
static void too_many(void)
{
	static const char *const settings[] = {FED, "io.piece=64KiB", NULL};
	static struct glake_copy_job *job[GLK_FEEDS + 20];
	int fed = 0, wrong = 0;

	begin(settings);
	fill(host, ROOM);
	memset(gpu, 0, ROOM);
	glk_soft_hold(context->drv, 0, stream, true);
	for (size_t i = 0; i < GLK_FEEDS + 20; i++) {
		size_t at = i * 8192;

		wrong += glake_copy(ctx, gpu + at, host + at, 8192, stream, 0, &job[i]) !=
			0;
		fed += (int)state_of(job[i]).fed;
	}
	is_int(fed, GLK_FEEDS, "as many as there may be are fed");
	glk_soft_hold(context->drv, 0, stream, false);
	for (size_t i = 0; i < GLK_FEEDS + 20; i++) {
		wrong += glake_copy_wait(job[i], -1) != 0;
		wrong += glake_copy_close(job[i]) != 0;
	}
	is_int(wrong, 0, "the others are queued, and all are copied");
	ok(!memcmp(gpu, host, (GLK_FEEDS + 20) * 8192), "every byte");
	is_int(glake_copy(ctx, gpu, host, MIB, stream, 0, &job[0]), 0,
		"then there is room");
	is_int(state_of(job[0]).fed, 1, "again");
	glake_copy_close(job[0]);
	end();
}

/* The context ends before the copy, or before its stream has come to it. */
static void outlived(const char *streams, bool held)
{
	const char *const settings[] = {FED, streams, NULL};
	struct glake_copy_state now = {.sz = sizeof(now)};
	struct glake_copy_job *job = NULL, *put = NULL;
	size_t leaked = 99;

	begin(settings);
	fill(gpu, ROOM);
	memcpy(host, gpu, ROOM);
	memset(other, 0, ROOM);
	if (held)
		glk_soft_hold(context->drv, 0, stream, true);
	/* to memory of the host, which stays */
	if (glake_copy(ctx, other, gpu, 3 * MIB, stream, 0, &job) ||
		glake_copy(ctx, other + 3 * MIB, gpu + 3 * MIB, MIB, stream, 0, &put))
		tap_bail("no copy");
	is_int(glake_copy_close(put), 0, "a job that is closed before its copy ends");
	/* the program has a stream still */
	tap_expect_log(1);
	is_int(glake_close(ctx, &leaked), -EBUSY, "the context ends");
	if (held)
		ok(!other[0] && !other[ROOM - 1], "%s: a held stream makes no copy",
			streams);
	else
		ok(!memcmp(other, host, ROOM), "%s: all was copied before", streams);
	is_int(glake_copy_get(job, &now), -ESTALE, "what its job says");
	is_int(glake_copy_cancel(job), -ESTALE, "nothing to cancel");
	is_int(glake_copy_close(job), 0, "it is closed");
}

static void forked(void)
{
	static const char *const settings[] = {FED, NULL};
	struct glake_copy_job *job;
	int status = -1;
	pid_t child;

	begin(settings);
	fill(host, ROOM);
	glk_soft_hold(context->drv, 0, stream, true);
	is_int(glake_copy(ctx, gpu, host, 3 * MIB, stream, 0, &job), 0, "a copy");
	child = fork();
	if (!child) {
		struct glake_copy_state now = {.sz = sizeof(now)};
		int wrong = glake_copy_get(job, &now) != -ENODEV;

		wrong += glake_copy_cancel(job) != -ENODEV;
		wrong += glake_copy_close(job) != 0;
		wrong += glake_close(ctx, NULL) != 0;
		_exit(wrong);
	}
	waitpid(child, &status, 0);
	is_int(status, 0, "a forked child is told so, and ends");
	glk_soft_hold(context->drv, 0, stream, false);
	is_int(glake_copy_wait(job, -1), 0, "the parent's goes on");
	ok(!memcmp(gpu, host, 3 * MIB), "every byte");
	glake_copy_close(job);
	end();
}

static const struct glk_drv_ops *usual;
static pthread_t program;
static glk_atomic(unsigned) looks; /* of the thread that feeds copies */

static int count_look(struct glk_drv *drv, struct glk_drv_event *event)
{
	if (!pthread_equal(pthread_self(), program))
		glk_add_relaxed(&looks, 1);
	return usual->event_query(drv, event);
}

/* While the stream has not come to a copy the thread looks now and then, and less often with time. */
static void looks_seldom(void)
{
	static const char *const settings[] = {FED, NULL};
	struct glake_copy_job *job;
	struct glk_drv_ops ops;
	int64_t since, most;

	begin(settings);
	usual = context->drv->ops;
	ops = *usual;
	ops.event_query = count_look;
	program = pthread_self();
	context->drv->ops = &ops;
	fill(host, ROOM);
	glk_soft_hold(context->drv, 0, stream, true);
	since = glk_clock_ns();
	is_int(glake_copy(ctx, gpu, host, ROOM, stream, 0, &job), 0, "a copy");
	for (int round = 0; round < 2; round++) {
		is_int(glake_copy_wait(job, 50000000), -ETIMEDOUT, "is not begun");
		/* at first after 10 us, then after twice as long each time up to 160 us */
		most = 20 + (glk_clock_ns() - since) / 160000;
		ok(glk_load_relaxed(&looks) <= most,
			"the thread has not looked too often");
		tap_note("%u of %" PRId64 " times", glk_load_relaxed(&looks), most);
	}
	glk_soft_hold(context->drv, 0, stream, false);
	is_int(glake_copy_wait(job, -1), 0, "it is made then");
	ok(!memcmp(gpu, host, ROOM), "every byte");
	glake_copy_close(job);
	end();
}

/* A call of the driver that is stuck, or pieces that never arrive: the stream goes on all the same. */
static void patience(bool in_a_call)
{
	static const char *const settings[] = {FED, NULL};
	struct glake_copy_job *job;
	struct glk_feeder *feeder;
	struct CUstream_st *hop;

	begin(settings);
	if (in_a_call)
		stuck_prepare();
	fill(host, ROOM);
	memset(gpu, 0, ROOM);
	/* there is a thread then, and a stream of it */
	is_int(glake_copy(ctx, gpu, host, MIB, stream, 0, &job) |
			glake_copy_wait(job, -1) | glake_copy_close(job),
		0, "a copy before");
	feeder = context->io.feeder;
	hop = context->io.gpu[0].hop[GLK_IO_DOWN][0];
	/* before it has come to that call */
	glk_store_relaxed(&feeder->patience, in_a_call ? 2000000000 : 50000000);
	glk_soft_hold(context->drv, 0, stream, true);
	is_int(glake_copy(ctx, gpu, host, ROOM, stream, 0, &job), 0, "a copy");
	context->drv->ops->fill(context->drv, (uintptr_t)gpu, 9, 1, stream);
	if (in_a_call) {
		stuck_at(7);
	} else {
		for (int i = 0; i < 4; i++)
			glk_soft_hold(context->drv, 0,
				context->io.gpu[0].hop[GLK_IO_DOWN][i], true);
	}
	glk_soft_hold(context->drv, 0, stream, false);
	is_int(sync_stream(), 0, "its stream goes on");
	if (in_a_call)
		ok(glk_load_acquire(&stuck.stands) && stuck_end(),
			"while a call is stuck");
	else
		is_int(state_of(job).stage, GLAKE_COPY_QUEUED,
			"while pieces are under way");
	is_int(gpu[0], 9, "what stands behind the copy has run");
	is_int(glake_copy_cancel(job), -EBUSY, "nothing is left to cancel");
	is_int(in_a_call ? -ETIMEDOUT : glake_copy_wait(job, 2000000), -ETIMEDOUT,
		"its pieces are waited for");
	for (int i = 0; i < 4 && hop; i++)
		glk_soft_hold(
			context->drv, 0, context->io.gpu[0].hop[GLK_IO_DOWN][i], false);
	is_int(glake_copy_wait(job, -1), -EIO, "then it has failed");
	is_int((int64_t)state_of(job).failed, ROOM, "all of it is told");
	/* three copies over its own link, two for each piece over another */
	if (in_a_call)
		ok(state_of(job).relayed <= 2 * 64 * KIB,
			"no piece was given out once the stream had gone on");
	glk_store_relaxed(&feeder->patience, 30000000000);
	is_int(glake_copy_close(job), 0, "closed");
	is_int(glake_copy(ctx, gpu, host, ROOM, stream, 0, &job) |
			glake_copy_wait(job, -1),
		0, "the next one is made");
	ok(state_of(job).fed && !memcmp(gpu, host, ROOM), "every byte");
	glake_copy_close(job);
	end();
}

#define THREADS 4

struct worker {
	pthread_t thread;
	int device;
	uint64_t rolled;
	int wrong;
};

/* Copies of its own, some of which are cancelled. */
static void *work(void *arg)
{
	size_t part = ROOM / THREADS, bytes;
	struct worker *w = arg;
	unsigned char *from = host + (size_t)w->device * part, *to;
	struct CUstream_st *own = NULL;
	struct glake_copy_job *down, *up;
	struct glake_copy_state now = {.sz = sizeof(now)};
	void *block = NULL;
	int err;

	if (glake_stream_new(ctx, w->device, &own) ||
		glake_alloc(ctx, w->device, part, own, 0, &block))
		tap_bail("no block");
	to = other + (size_t)w->device * part;
	for (int i = 0; i < few(12); i++) {
		for (size_t j = 0; j < part; j += 512)
			from[j] = (unsigned char)seed_next(&w->rolled);
		bytes = part - (size_t)(seed_next(&w->rolled) % 4096);
		w->wrong += glake_copy(ctx, block, from, bytes, own, 0, &down) != 0;
		w->wrong += glake_copy(ctx, to, block, bytes, own, 0, &up) != 0;
		if (i % 3 == 2)
			err = glake_copy_cancel(down) ? 0 : -ECANCELED;
		else
			err = 0;
		w->wrong += glake_copy_wait(down, -1) != err;
		w->wrong += glake_copy_wait(up, i % 2 ? -1 : INT64_MAX) != 0;
		w->wrong += !err && memcmp(to, from, bytes);
		w->wrong += glake_copy_get(up, &now) || now.copied != bytes;
		w->wrong += glake_copy_close(up) != 0;
		w->wrong += glake_copy_close(down) != 0;
	}
	glake_free(ctx, block, own);
	glake_stream_free(ctx, w->device, own);
	return NULL;
}

static void many_threads(const char *streams)
{
	const char *const settings[] = {FED, streams, NULL};
	struct worker w[THREADS];
	int wrong = 0;

	begin(settings);
	for (int i = 0; i < THREADS; i++) {
		w[i] = (struct worker){.device = i, .rolled = dice()};
		if (pthread_create(&w[i].thread, NULL, work, &w[i]))
			tap_bail("no thread");
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(w[i].thread, NULL);
		wrong += w[i].wrong;
	}
	ok(!wrong, "%s: threads that copy to all GPUs at once, over the links of all",
		streams);
	end();
}

int main(void)
{
	tap_plan_later();
	copy_rig_start();
	is_right("soft.streams=worker", NULL);
	is_right("soft.streams=random", NULL);
	is_right("soft.streams=random", GLK_STREAM_LEGACY);
	is_right("soft.streams=random", GLK_STREAM_PER_THREAD);
	in_order("soft.streams=worker");
	in_order("soft.streams=stepped");
	cancelled_early();
	not_fed();
	beside();
	behind();
	too_many();
	outlived("soft.streams=worker", false);
	outlived("soft.streams=random", false);
	outlived("soft.streams=worker", true);
	forked();
	looks_seldom();
	patience(false);
	patience(true);
	many_threads("soft.streams=worker");
	many_threads("soft.streams=random");
	return tap_done();
}
