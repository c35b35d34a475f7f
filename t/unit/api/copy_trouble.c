/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A path fails while its streams stand: others copy meanwhile, and what it had is neither lost nor copied twice. */
#include "unit/api/copy_rig.h"

#include "base/clock.h"
#include "tier/io/feed.h"

#include <pthread.h>
#include <time.h>

#define LONG INT64_C(1000000000) /* ns in which a copy of others is made */

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

static void small_new(struct small *s, int device)
{
	*s = (struct small){.device = device};
	if (glake_stream_new(ctx, device, &s->stream) ||
		glake_alloc(ctx, device, MIB, s->stream, 0, &s->block))
		tap_bail("no second GPU");
	fill(other, MIB);
}

static void small_end(struct small *s)
{
	glake_free(ctx, s->block, s->stream);
	glake_stream_free(ctx, s->device, s->stream);
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

static struct CUstream_st *relay_stream(void)
{
	struct CUstream_st *s = context->io.gpu[1].ring[GLK_IO_DOWN].stream;

	return s ? s : (tap_bail("no stream of the other link"), NULL);
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

/* A copy that is fed: some call about a piece over the lent link fails. */
static void fed(const char *rule)
{
	static const char *const settings[] = {
		MANY, "io.fed=1MiB", "io.lend=1", "soft.streams=worker", NULL};
	struct glake_copy_job *job;
	struct CUstream_st *first;
	struct small s;
	pthread_t thread;

	begin(settings);
	small_new(&s, 2);
	fill(host, ROOM);
	is_int(glake_copy(ctx, gpu, host, ROOM, stream, 0, &job) |
			glake_copy_wait(job, -1) | glake_copy_close(job),
		0, "a copy over two links");
	first = relay_stream();
	memset(gpu, 0, ROOM);
	glk_soft_hold(context->drv, 0, stream, true);
	is_int(glake_copy(ctx, gpu, host, ROOM, stream, 0, &job), 0, "another one");
	glk_soft_hold(context->drv, 1, first, true);
	tap_expect_log(1);
	glk_fault_set(context->drv, rule);
	glk_soft_hold(context->drv, 0, stream, false);
	ok(has_failed(), "%s: the lent link is refused something", rule);
	glk_fault_set(context->drv, "off");
	ok(passes(&s, &thread), "others copy while its stream stands");
	is_int(state_of(job).stage, GLAKE_COPY_QUEUED, "that one has not ended");
	is_int((int64_t)state_of(job).failed, 0, "and nothing of it is lost");
	glk_soft_hold(context->drv, 1, first, false);
	pthread_join(thread, NULL);
	ok(!s.err && !memcmp(s.block, other, MIB), "every byte of theirs");
	is_int(glake_copy_wait(job, -1), 0, "what the link had goes the other way");
	is_int((int64_t)state_of(job).copied, ROOM, "no piece twice");
	ok(context->io.gpu[1].off, "the link is used no more");
	ok(!sync_stream() && !memcmp(gpu, host, ROOM), "every byte");
	glake_copy_close(job);
	small_end(&s);
	end();
}

static const struct glk_feed *last_feed(void)
{
	const struct glk_feed *f = context->io.feeder->first;

	while (f->next)
		f = f->next;
	return f;
}

/* Whether the last copy is so at last, as the thread of the library turns. */
static bool comes_to(bool (*is_so)(const struct glk_feed *f))
{
	bool is = false;

	for (int i = 0; i < 2000 && !is; i++) {
		a_while();
		glk_lock(&context->io.lock);
		is = is_so(last_feed());
		glk_unlock(&context->io.lock);
	}
	return is;
}

/* The thread of the library needs no answer about the stream of the program, which a job does. */
static bool is_done(const struct glk_feed *f)
{
	return f->stage == GLK_FEED_DONE;
}

/* What a path has cannot be asked. */
static bool is_unsure(const struct glk_feed *f)
{
	return f->job.unsure;
}

/* Whether the program's stream passes what it has within some time. */
static bool goes_on(void)
{
	struct glk_drv *drv = context->drv;
	struct glk_drv_event *event = NULL;
	bool has = false;

	if (drv->ops->event_new(drv, 0, &event) ||
		drv->ops->event_record(drv, event, stream))
		tap_bail("no event");
	for (int i = 0; i < 5000 && !has; i++) {
		a_while();
		has = !drv->ops->event_query(drv, event);
	}
	drv->ops->event_free(drv, event);
	return has;
}

/* A path that cannot be asked what it has, and a piece of another one that does not arrive: the program's stream
 * goes on when the patience is over, as for any other copy. */
static void neither_asked_nor_moved(void)
{
	static const char *const settings[] = {
		MANY, "io.fed=1MiB", "io.lend=1", "soft.streams=worker", NULL};
	struct glake_copy_job *job;
	struct CUstream_st *own;

	begin(settings);
	fill(host, ROOM);
	is_int(glake_copy(ctx, gpu, host, ROOM, stream, 0, &job) |
			glake_copy_wait(job, -1) | glake_copy_close(job),
		0, "a copy over two links");
	own = context->io.gpu[0].hop[GLK_IO_DOWN][0];
	glk_soft_hold(context->drv, 0, stream, true);
	is_int(glake_copy(ctx, gpu, host, ROOM, stream, 0, &job), 0, "another one");
	glk_soft_hold(context->drv, 0, own, true);
	tap_expect_log(1);
	glk_fault_set(context->drv, "copy:nth=5:err=EIO;event_record:from=5:err=EIO");
	glk_soft_hold(context->drv, 0, stream, false);
	ok(comes_to(is_unsure), "what the lent link has cannot be asked");
	glk_fault_set(context->drv, "off");
	is_int(state_of(job).stage, GLAKE_COPY_QUEUED, "the other one has some of it");
	glk_store_relaxed(&context->io.feeder->patience, 100000000);
	ok(goes_on(), "the program's stream goes on when that takes too long");
	is_int(state_of(job).stage, GLAKE_COPY_QUEUED, "though some may arrive yet");
	glk_soft_hold(context->drv, 0, own, false);
	is_int(glake_copy_wait(job, -1), -EIO, "the copy has failed");
	is_int((int64_t)state_of(job).failed, ROOM, "all of it");
	glake_copy_close(job);
	end();
}

/* One that could not be asked about a piece of which half was queued, and then about those before it. */
static void fails_twice(void)
{
	static const char *const settings[] = {
		MANY, "io.fed=1MiB", "io.lend=1", "soft.streams=worker", NULL};
	struct glake_copy_job *job;
	struct CUstream_st *first;

	begin(settings);
	fill(host, ROOM);
	is_int(glake_copy(ctx, gpu, host, ROOM, stream, 0, &job) |
			glake_copy_wait(job, -1) | glake_copy_close(job),
		0, "a copy over two links");
	first = relay_stream();
	glk_soft_hold(context->drv, 0, stream, true);
	is_int(glake_copy(ctx, gpu, host, ROOM, stream, 0, &job), 0, "another one");
	glk_soft_hold(context->drv, 1, first, true);
	tap_expect_log(1);
	/* behind three pieces of its own link and a piece of the other: three calls for an event more */
	glk_fault_set(context->drv, "copy:nth=7:err=EIO;event_record:from=8:err=EIO");
	glk_soft_hold(context->drv, 0, stream, false);
	ok(comes_to(is_unsure), "what the lent link has cannot be asked");
	for (int i = 0; i < 50; i++)
		a_while();
	is_int(state_of(job).stage, GLAKE_COPY_QUEUED, "a piece is on its way there");
	glk_fault_set(
		context->drv, "event_query:from=1:err=EIO;event_record:from=1:err=EIO");
	ok(comes_to(is_done), "it is given up when that cannot be asked either");
	glk_fault_set(context->drv, "off");
	glk_soft_hold(context->drv, 1, first, false);
	is_int(glake_copy_wait(job, -1), -EIO, "the copy has failed");
	glake_copy_close(job);
	end();
}

/* All is queued, but some of it on a path that has failed: that is not queued again. */
static void cancelled(void)
{
	static const char *const settings[] = {
		MANY, "io.fed=1MiB", "io.lend=1", "soft.streams=worker", NULL};
	struct glake_copy_job *job;
	struct CUstream_st *first;
	struct glake_copy_part part;
	int most = 5000;

	begin(settings);
	fill(host, ROOM);
	is_int(glake_copy(ctx, gpu, host, ROOM, stream, 0, &job) |
			glake_copy_wait(job, -1) | glake_copy_close(job),
		0, "a copy over two links");
	first = relay_stream();
	memset(gpu, 0, ROOM);
	glk_soft_hold(context->drv, 0, stream, true);
	is_int(glake_copy(ctx, gpu, host, ROOM, stream, 0, &job), 0, "another one");
	glk_soft_hold(context->drv, 1, first, true);
	tap_expect_log(1);
	/* the second piece over the lent link */
	glk_fault_set(context->drv, "copy:nth=7:err=EIO");
	glk_soft_hold(context->drv, 0, stream, false);
	ok(has_failed(), "the lent link is refused something");
	glk_fault_set(context->drv, "off");
	while (state_of(job).copied < ROOM - 64 * KIB && most--)
		a_while();
	is_int((int64_t)state_of(job).copied, ROOM - 64 * KIB,
		"all but one piece arrives");
	/* and then what tells of that one, behind what tells of its streams */
	glk_fault_set(context->drv, "event_query:nth=1:len=3:err=EIO");
	ok(has_failed(), "it has failed too");
	glk_fault_set(context->drv, "off");
	is_int(glake_copy_cancel(job), 0, "what may go another way is cancelled");
	is_int(glake_copy_cancel(job), -EBUSY, "once");
	glk_soft_hold(context->drv, 1, first, false);
	is_int(glake_copy_wait(job, -1), -ECANCELED, "and is not copied again");
	is_int(state_of(job).failed_parts, 1, "which is told");
	ok(!glake_copy_failed(job, 0, &part) && part.bytes == 64 * KIB,
		"of the piece alone");
	memcpy(gpu + part.offset, host + part.offset, part.bytes);
	ok(!sync_stream() && !memcmp(gpu, host, ROOM), "every other byte");
	glake_copy_close(job);
	end();
}

static void *copy_whole(void *arg)
{
	return (void *)(intptr_t)glake_copy(arg, gpu, host, ROOM, stream, 0, NULL);
}

/* One that is queued whole waits itself where nothing else can be had. */
static void whole(void)
{
	static const char *const settings[] = {
		MANY, "io.fed=16TiB", "io.lend=1", "soft.streams=worker", NULL};
	pthread_t thread, waiter;
	void *failed = NULL;
	struct small s;

	begin(settings);
	small_new(&s, 2);
	fill(host, ROOM);
	is_int(glake_copy(ctx, gpu, host, ROOM, stream, 0, NULL) | sync_stream(), 0,
		"a copy that is queued whole");
	memset(gpu, 0, ROOM);
	tap_expect_log(1);
	/* behind its start: the first piece over the link, whose stream takes its time */
	glk_fault_set(context->drv,
		"event_record:nth=2:len=2:err=EIO;stream_sync:nth=1:delay=1500000");
	if (pthread_create(&waiter, NULL, copy_whole, ctx))
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
	small_end(&s);
	end();
}

int main(void)
{
	tap_plan_later();
	copy_rig_start();
	/* behind three pieces of its own link: the halves of the first one over the other, and what tells of it */
	fed("copy:nth=5:err=EIO");
	fed("copy:nth=7:err=EIO");
	fed("copy:nth=9:err=EIO");
	neither_asked_nor_moved();
	fails_twice();
	cancelled();
	whole();
	return tap_done();
}
