/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Locked memory of the host that many streams use, or threads that are no more: it does not pile up. */
#include "api/context.h"
#include "soft/fault.h"
#include "soft/soft.h"
#include "tap.h"
#include "unit/api/sound.h"

#include <errno.h>
#include <glake/glake.h>
#include <pthread.h>

#define MIB	((size_t)1 << 20)
#define STREAMS 1500 /* most of them share a bit */
#define TURNS	400

static struct glake *ctx;
static struct glk_context *context;
static struct CUstream_st *streams[STREAMS];
static void *gpu;

static void open_soft(const char *limit, const char *more)
{
	const char *const settings[] = {"soft.gpus=1", "driver.fault=off",
		"map.span=8GiB", "host.piece=4MiB", limit, more, NULL};
	struct glake_options options = {.sz = sizeof(options),
		.backend = GLAKE_BACKEND_SOFT,
		.no_conf_file = 1,
		.settings = settings};

	if (glake_open(&options, &ctx) || glk_context_get(ctx, &context) ||
		glake_alloc(ctx, 0, MIB, NULL, 0, &gpu))
		tap_bail("no context");
}

static void close_soft(void)
{
	size_t live = 99;

	glake_free(ctx, gpu, NULL);
	ok(context_is_sound(context), "the books agree");
	is_int(glake_close(ctx, &live), 0, "closed");
	is_int((int64_t)live, 0, "  with no live block");
}

static int64_t held(void)
{
	struct glake_stats stats = {.sz = sizeof(stats)};

	if (glake_stats_get(ctx, 0, &stats))
		tap_bail("no figures");
	return (int64_t)(stats.host_pool_held / MIB);
}

static void work(struct CUstream_st *stream)
{
	if (glk_soft_work(context->drv, 0, stream, (uint64_t)(uintptr_t)gpu, MIB, true))
		tap_bail("no work");
}

/* A block that a stream is said to use. */
static void *named(size_t size, struct CUstream_st *stream)
{
	void *ptr = NULL;

	if (glake_host_alloc(ctx, 0, size, 0, &ptr) ||
		glake_host_use(ctx, ptr, 0, stream))
		tap_bail("no block");
	return ptr;
}

/* And does. */
static void *used(size_t size, struct CUstream_st *stream)
{
	void *ptr = named(size, stream);

	work(stream);
	return ptr;
}

/* Each stream is waited for before the free, so a block is all that is ever under way. */
static void one_after_the_other(int turns)
{
	for (int i = 0; i < turns; i++) {
		struct CUstream_st *stream = streams[STREAMS - 1 - i % 8];
		void *ptr = used(3 * MIB, stream);

		glake_soft_stream_sync(ctx, 0, stream);
		glake_host_free(ctx, ptr);
	}
}

static uint64_t waiting(void)
{
	struct glake_stats stats = {.sz = sizeof(stats)};

	glake_stats_get(ctx, 0, &stats);
	return stats.host_pool_waiting;
}

static void many_streams(void)
{
	void *ptr;

	open_soft("host.limit=8GiB", NULL);
	for (int i = 0; i < STREAMS; i++) {
		glake_stream_new(ctx, 0, &streams[i]);
		ptr = used(64, streams[i]);
		glake_soft_stream_sync(ctx, 0, streams[i]);
		glake_host_free(ctx, ptr);
	}
	/* one that has a bit of its own is in nobody's way */
	ptr = used(3 * MIB, streams[0]);
	glk_soft_hold(context->drv, 0, streams[0], true);
	glake_host_free(ctx, ptr);
	one_after_the_other(TURNS);
	glk_soft_hold(context->drv, 0, streams[0], false);
	ok(held() <= 16, "idle streams keep nothing from those that come: %d MiB",
		(int)held());
	ptr = used(3 * MIB, streams[STREAMS - 9]);
	glk_soft_hold(context->drv, 0, streams[STREAMS - 9], true);
	glake_host_free(ctx, ptr);
	one_after_the_other(8);
	ok(held() <= 16, "nor does one that works from the others: %d MiB", (int)held());
	glk_soft_hold(context->drv, 0, streams[STREAMS - 9], false);
	glake_soft_stream_sync(ctx, 0, streams[STREAMS - 9]);
	is_int(glake_trim(ctx, 0, SIZE_MAX, NULL), 0, "a trim when it has finished");
	is_int(held(), 0, "  takes all of it, however many streams were asked");
	for (int i = 0; i < STREAMS; i++)
		glake_stream_free(ctx, 0, streams[i]);
	close_soft();
}

#define FEW 100

/* At the limit who wants a block waits for the stream that used the last one, and not for those that are
 * busy with other memory. */
static void waits_for_one(void)
{
	void *ptr, *busy = NULL;
	uint32_t pending = 0;

	open_soft("host.limit=4MiB", "soft.streams=stepped");
	for (int i = 0; i < FEW; i++) {
		glake_stream_new(ctx, 0, &streams[i]);
		if (glake_alloc(ctx, 0, 3 * MIB, streams[i], 0, &busy))
			tap_bail("no memory");
		if (i < FEW - 1)
			glake_free(ctx, busy, streams[i]);
	}
	if (glk_soft_work(context->drv, 0, streams[FEW - 1], (uint64_t)(uintptr_t)busy,
		    MIB, true))
		tap_bail("no work");
	glake_free(ctx, busy, streams[FEW - 1]);
	glake_host_free(ctx, used(3 * MIB, streams[FEW - 2]));
	is_int(glake_host_alloc(ctx, 0, 3 * MIB, 0, &ptr), 0, "a block at the limit");
	ok(!glk_soft_pending(context->drv, 0, streams[FEW - 1], &pending) && pending,
		"another stream works on");
	is_int(glake_host_free(ctx, ptr), 0, "freed");
	for (int i = 0; i < FEW; i++)
		glake_stream_free(ctx, 0, streams[i]);
	close_soft();
}

#define OWN ((struct CUstream_st *)2) /* the default stream of the thread */

static void *use_own(void *arg)
{
	void *ptr = used(3 * MIB, OWN);

	glake_soft_stream_sync(ctx, 0, OWN);
	return arg ? arg : ptr;
}

/* Beside a capture on the default stream of a thread nothing may be recorded on the legacy stream. */
static void threads_that_ended(bool capture)
{
	struct glake_error error = {.sz = sizeof(error)};
	uint32_t graph;

	open_soft("host.limit=8GiB", NULL);
	glake_host_free(ctx, used(64, OWN));
	if (capture)
		glake_soft_capture_begin(ctx, 0, OWN);
	for (int i = 0; i < 20; i++) {
		pthread_t thread;
		void *ptr = NULL;

		pthread_create(&thread, NULL, use_own, NULL);
		pthread_join(thread, &ptr);
		is_int(glake_host_free(ctx, ptr), 0, "freed after the thread has ended");
	}
	if (!capture) {
		ok(held() <= 6,
			"an event tells of the streams that they took along: %d MiB",
			(int)held());
	} else {
		ok(held() >= 60, "no event tells of them: %d MiB", (int)held());
		glake_host_query(ctx, NULL, NULL);
		is_int(glake_trim(ctx, 0, SIZE_MAX, NULL), 0, "a trim beside a capture");
		glake_last_error(&error);
		ok(error.error_class != GLAKE_ERROR_CAPTURE,
			"  leaves no record of that");
		ok(held() >= 60, "  and those blocks");
		is_int(glake_soft_capture_end(ctx, 0, OWN, &graph), 0,
			"the capture lives");
		glake_soft_graph_free(ctx, graph);
	}
	is_int(glake_trim(ctx, 0, SIZE_MAX, NULL), 0, "a trim");
	is_int(held(), 0, "  after which all has gone back");
	close_soft();
}

#define WAITING 9000
#define FREED	256 /* by one request at the most, see tier/hostpool.h */

/* However many blocks wait, a request does a bounded part of what is to be done for them. */
static void very_many_wait(void)
{
	static void *small[WAITING];
	uint64_t before, after;
	struct CUstream_st *stream;
	void *ptr;

	open_soft("host.limit=8GiB", NULL);
	glake_stream_new(ctx, 0, &stream);
	for (int i = 0; i < WAITING; i++)
		small[i] = named(64, stream);
	glk_soft_hold(context->drv, 0, stream, true);
	for (int i = 0; i < WAITING; i++)
		glake_host_free(ctx, small[i]);
	glk_soft_hold(context->drv, 0, stream, false);
	glake_soft_stream_sync(ctx, 0, stream);
	before = waiting();
	is_int((int64_t)before, WAITING * 64, "all of them wait");
	is_int(glake_host_alloc(ctx, 0, 8 * MIB, 0, &ptr), 0, "a request without room");
	after = waiting();
	/* a request looks at 16 of them in any case */
	ok(after < before && before - after <= (FREED + 16) * 64,
		"makes some of them free: %d", (int)((before - after) / 64));
	is_int(glake_host_free(ctx, ptr), 0, "  freed");
	is_int(glake_trim(ctx, 0, SIZE_MAX, NULL), 0, "a trim");
	is_int((int64_t)waiting() + held(), 0, "  makes all of them free");
	glake_stream_free(ctx, 0, stream);
	close_soft();
}

/* Turns of the lock of the GPU: each use that is looked at is one. */
static uint64_t looks(void)
{
	struct glake_histogram turns;

	glk_times_read(&context->caches[0].times[GLK_TIMED_HOLD], &turns);
	return turns.count;
}

struct cost {
	uint64_t request, refusal, trim;
};

/* What is looked at beside blocks that wait for one stream, none of which is free. */
static struct cost cost_beside(int blocks)
{
	static void *small[WAITING];
	struct CUstream_st *stream;
	struct cost cost;
	uint64_t before;
	void *ptr;

	open_soft("host.limit=32MiB", "soft.streams=stepped");
	glake_stream_new(ctx, 0, &stream);
	for (int i = 0; i < blocks; i++)
		small[i] = named(64, stream);
	glk_soft_hold(context->drv, 0, stream, true);
	for (int i = 0; i < blocks; i++)
		glake_host_free(ctx, small[i]);
	before = looks();
	is_int(glake_host_alloc(ctx, 0, 8 * MIB, 0, &ptr), 0, "a request without room");
	cost.request = looks() - before;
	before = looks();
	is_int(glake_host_alloc(ctx, 0, 28 * MIB, 0, &small[0]), -ENOMEM,
		"one that no wait would help");
	cost.refusal = looks() - before;
	before = looks();
	is_int(glake_trim(ctx, 0, SIZE_MAX, NULL), 0, "a trim");
	cost.trim = looks() - before;
	is_int((int64_t)waiting(), blocks * 64, "  leaves all of them");
	is_int(glake_host_free(ctx, ptr), 0, "  freed");
	glk_soft_hold(context->drv, 0, stream, false);
	glake_soft_stream_sync(ctx, 0, stream);
	is_int(glake_trim(ctx, 0, SIZE_MAX, NULL), 0, "a trim of what has finished");
	is_int((int64_t)waiting() + held(), 0, "  takes all");
	glake_stream_free(ctx, 0, stream);
	close_soft();
	return cost;
}

static void costs_the_same(void)
{
	struct cost few = cost_beside(10), many = cost_beside(WAITING);

	is_int((int64_t)many.request, (int64_t)few.request,
		"a request looks at as much, however many blocks wait");
	is_int((int64_t)many.refusal, (int64_t)few.refusal,
		"  so does one that is refused");
	is_int((int64_t)many.trim, (int64_t)few.trim, "  and a trim");
}

/* What has finished is found behind any number of blocks whose stream works. */
static void finds_behind_others(void)
{
	static void *small[WAITING];
	struct CUstream_st *busy, *idle;
	void *ptr, *again;

	open_soft("host.limit=8GiB", "soft.streams=stepped");
	glake_stream_new(ctx, 0, &busy);
	glake_stream_new(ctx, 0, &idle);
	for (int i = 0; i < WAITING; i++)
		small[i] = named(64, busy);
	ptr = named(3 * MIB, idle);
	glk_soft_hold(context->drv, 0, busy, true);
	glk_soft_hold(context->drv, 0, idle, true);
	for (int i = 0; i < WAITING; i++)
		glake_host_free(ctx, small[i]);
	glake_host_free(ctx, ptr);
	glk_soft_hold(context->drv, 0, idle, false);
	glake_soft_stream_sync(ctx, 0, idle);
	is_int(glake_host_alloc(ctx, 0, 3 * MIB, 0, &again), 0, "a request");
	ok(again == ptr, "has what is free behind blocks that wait");
	is_int(glake_host_use(ctx, again, 0, busy), 0, "used on both streams");
	is_int(glake_host_use(ctx, again, 0, idle), 0, "  ");
	is_int(glake_host_free(ctx, again), 0, "freed");
	is_int(glake_host_alloc(ctx, 0, 3 * MIB, 0, &again), 0, "another one");
	ok(again != ptr, "has other memory while one of two streams works");
	is_int(glake_host_free(ctx, again), 0, "freed");
	glk_soft_hold(context->drv, 0, busy, false);
	glake_soft_stream_sync(ctx, 0, busy);
	glake_soft_stream_sync(ctx, 0, idle);
	is_int(glake_trim(ctx, 0, SIZE_MAX, NULL), 0, "a trim");
	is_int((int64_t)waiting() + held(), 0, "  takes all");
	glake_stream_free(ctx, 0, busy);
	glake_stream_free(ctx, 0, idle);
	close_soft();
}

static void *want(void *arg)
{
	void *ptr = NULL;

	return glake_host_alloc(ctx, 0, 3 * MIB, 0, &ptr) ? arg : ptr;
}

/* Two that wait for one stream: who is told first sees what both wait for. */
static void two_wait(void)
{
	struct CUstream_st *stream;
	pthread_t threads[2];
	void *ptr[2];

	open_soft("host.limit=6MiB", "soft.streams=stepped");
	glake_stream_new(ctx, 0, &stream);
	for (int i = 0; i < 2; i++)
		ptr[i] = used(3 * MIB, stream);
	for (int i = 0; i < 2; i++)
		glake_host_free(ctx, ptr[i]);
	/* us: until both wait */
	glk_fault_set(context->drv, "event_sync:from=1:delay=100000");
	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, want, NULL);
	for (int i = 0; i < 2; i++) {
		pthread_join(threads[i], &ptr[i]);
		ok(ptr[i], "a block for one of two that wait for it");
		glake_host_free(ctx, ptr[i]);
	}
	glk_fault_set(context->drv, "off");
	glake_stream_free(ctx, 0, stream);
	close_soft();
}

/* As many streams as a pool can know of, which are two million. */
static void uses_are_limited(void)
{
	struct glake_error error = {.sz = sizeof(error)};
	struct CUstream_st *one, *two;
	void *ptr;

	open_soft("host.limit=8GiB", "soft.streams=stepped");
	glake_stream_new(ctx, 0, &one);
	glake_stream_new(ctx, 0, &two);
	if (glake_host_alloc(ctx, 0, 64, 0, &ptr))
		tap_bail("no block");
	context->caches[0].hostpool.uses.max = 1;
	is_int(glake_host_use(ctx, ptr, 0, one), 0, "as many uses as there may be");
	is_int(glake_host_use(ctx, ptr, 0, one), 0, "  again");
	is_int(glake_host_use(ctx, ptr, 0, two), -ENOMEM, "and one more");
	glake_last_error(&error);
	is_int(error.error_class, GLAKE_ERROR_LIMIT, "  its class");
	is_int(glake_host_free(ctx, ptr), 0, "freed");
	glake_soft_stream_sync(ctx, 0, one);
	is_int(glake_trim(ctx, 0, SIZE_MAX, NULL), 0, "a trim");
	is_int((int64_t)waiting() + held(), 0, "  takes all");
	glake_stream_free(ctx, 0, one);
	glake_stream_free(ctx, 0, two);
	close_soft();
}

int main(void)
{
	tap_plan_later();
	many_streams();
	waits_for_one();
	threads_that_ended(false);
	threads_that_ended(true);
	very_many_wait();
	costs_the_same();
	finds_behind_others();
	two_wait();
	uses_are_limited();
	return tap_done();
}
