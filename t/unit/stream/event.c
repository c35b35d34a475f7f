/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The library's own events: how many there are, where they go, and where none may be. */
#include "gpu.h"

#include "soft/fault.h"

#include <errno.h>
#include <pthread.h>

/* Whether every event at the driver is spare or in a ring. */
static bool adds_up(const struct gpu *gpu)
{
	uint32_t count = gpu->streams.events.count;

	for (uint32_t id = 1; id <= glk_load_relaxed(&gpu->streams.slab.used); id++)
		count += glk_stream_at(&gpu->streams, id)->count;
	return count == gpu->streams.events.made;
}

/* Of the events that cover a free the oldest is waited for. */
static void takes_oldest(void)
{
	struct glk_use first, second;
	struct glk_stream *a, *b;
	struct gpu gpu;

	gpu_open(&gpu);
	a = gpu_stream(&gpu);
	b = gpu_stream(&gpu);
	first = gpu_free(&gpu, a);
	glk_event_poll(&gpu.streams);
	second = gpu_free(&gpu, a);
	glk_event_poll(&gpu.streams);
	is_int(glk_clock_order(&gpu.streams, &first, b), 0,
		"B waits for the first of two");
	is_int((int64_t)gpu.streams.records, 2, "events that are there");
	is_int(glk_soft_step(gpu.drv, 0, a->handle), 0, "which passes");
	is_int(glk_soft_step(gpu.drv, 0, b->handle), 0, "and B goes on");
	is_int(gpu_waits(&gpu.streams, &second, b), 1, "not behind the second");
	gpu_close(&gpu);
}

/* A place whose event moves on keeps what it had when that fails. */
static void keeps_place(void)
{
	struct glk_stream *a;
	struct glk_use use;
	unsigned slot = 99;
	uint64_t newest;
	struct gpu gpu;

	gpu_open(&gpu);
	a = gpu_stream(&gpu);
	for (int i = 0; i < GLK_STREAM_EVENTS; i++) {
		use = gpu_free(&gpu, a);
		glk_event_poll(&gpu.streams);
	}
	newest = glk_event_newest(a);
	gpu_free(&gpu, a);
	glk_fault_set(gpu.drv, "event_record:nth=1:err=EIO");
	is_int(glk_event_cover(&gpu.streams, a, &slot), -EIO,
		"the newest of eight cannot move");
	glk_fault_set(gpu.drv, "off");
	is_int(slot, 99, "the output is as it was");
	is_int(a->count, GLK_STREAM_EVENTS, "all eight are there");
	is_int((int64_t)glk_event_newest(a), (int64_t)newest, "it stands where it stood");
	glk_soft_run_all(gpu.drv);
	glk_event_ask(&gpu.streams);
	ok(glk_clock_finished(&gpu.streams, &use), "and passes");
	ok(adds_up(&gpu), "the store knows of all");
	gpu_close(&gpu);
}

#define CROWD 100

/* Above the limit a stream makes do with one event, which moves on. */
static void keeps_limit(void)
{
	struct glk_use last[GLK_STREAM_CROWD + CROWD], use;
	struct glk_stream *s[GLK_STREAM_CROWD + CROWD], *new;
	bool finished = true, has_one = true;
	unsigned slot;
	int err = 0;
	struct gpu gpu;

	gpu_open(&gpu);
	for (int i = 0; i < GLK_STREAM_CROWD + CROWD; i++)
		s[i] = gpu_stream(&gpu);
	for (int n = 0; n < GLK_STREAM_EVENTS; n++) {
		for (int i = 0; i < GLK_STREAM_CROWD + CROWD; i++) {
			last[i] = gpu_free(&gpu, s[i]);
			err |= glk_event_cover(&gpu.streams, s[i], &slot);
		}
	}
	is_int(err, 0, "each free of 163 streams is covered");
	is_int(gpu.streams.events.made, GLK_EVENTS_MAX,
		"by as many events as there may be");
	for (int i = 0; i < GLK_STREAM_CROWD + CROWD; i++)
		has_one &= s[i]->count && glk_event_newest(s[i]) >= last[i].tick;
	ok(has_one, "each stream has one for its last");
	new = gpu_stream(&gpu);
	use = gpu_free(&gpu, new);
	is_int(glk_event_cover(&gpu.streams, new, &slot), 0, "a new stream has one too");
	is_int(gpu.streams.events.made, GLK_EVENTS_MAX + 1, "above the limit");
	gpu_free(&gpu, new);
	is_int(glk_event_cover(&gpu.streams, new, &slot), 0, "and with the next free");
	is_int(gpu.streams.events.made, GLK_EVENTS_MAX + 1, "it moves");
	ok(adds_up(&gpu), "the store knows of all");
	glk_soft_run_all(gpu.drv);
	for (int n = 0; n < 8; n++)
		glk_event_ask(&gpu.streams);
	for (int i = 0; i < GLK_STREAM_CROWD + CROWD; i++)
		finished &= glk_clock_finished(&gpu.streams, &last[i]);
	ok(finished && glk_clock_finished(&gpu.streams, &use), "all pass");
	is_int(gpu.streams.events.made, 2 * GLK_STREAM_EVENTS, "few are kept");
	ok(adds_up(&gpu), "the store knows of them");
	gpu_close(&gpu);
}

static uint32_t crowd_size(const struct gpu *gpu)
{
	uint32_t count = 0;

	for (uint32_t id = gpu->streams.by_bit[GLK_STREAM_CROWD]; id; count++)
		id = glk_stream_at(&gpu->streams, id)->next;
	return count;
}

/* The crowd is asked a part at a time, and nobody waits for ever. */
static void asks_crowd(void)
{
	struct glk_stream *s[CROWD];
	struct glk_use use[CROWD];
	uint64_t records = 0;
	int finished = 0;
	struct gpu gpu;

	gpu_open(&gpu);
	for (int i = 0; i < GLK_STREAM_CROWD; i++)
		gpu_stream(&gpu);
	for (int i = 0; i < CROWD; i++) {
		s[i] = gpu_stream(&gpu);
		use[i] = gpu_free(&gpu, s[i]);
	}
	for (int n = 1; n <= 4; n++) {
		records = gpu.streams.records;
		glk_event_poll(&gpu.streams);
		tap_note("%d events more", (int)(gpu.streams.records - records));
		ok(gpu.streams.records - records <= 32, "a part of the crowd is asked");
	}
	is_int((int64_t)gpu.streams.records, CROWD, "after four times all have an event");
	is_int(crowd_size(&gpu), CROWD, "and none was lost");
	glk_soft_run_all(gpu.drv);
	for (int n = 0; n < 4; n++)
		glk_event_ask(&gpu.streams);
	for (int i = 0; i < CROWD; i++)
		finished += glk_clock_finished(&gpu.streams, &use[i]);
	is_int(finished, CROWD, "the work of all is known to be done");

	/* some leave while they are asked */
	for (int i = 0; i < CROWD; i += 3)
		glk_stream_leave(&gpu.streams, s[i]->handle);
	glk_soft_run_all(gpu.drv);
	for (int n = 0; n < 4; n++)
		glk_event_ask(&gpu.streams);
	is_int(crowd_size(&gpu), CROWD - (CROWD + 2) / 3,
		"those that left are out of it");
	ok(adds_up(&gpu), "the store knows of all events");
	gpu_close(&gpu);
}

/* Nothing is recorded on a stream that captures, and what it did before is asked about. */
static void stays_out(void)
{
	struct glk_stream *a, *b, *joined;
	struct glk_use before, during;
	struct CUevent_st *fork = NULL;
	uint64_t records;
	unsigned slot = 99;
	struct gpu gpu;

	gpu_open(&gpu);
	a = gpu_stream(&gpu);
	b = gpu_stream(&gpu);
	joined = gpu_stream(&gpu);
	before = gpu_free(&gpu, a);
	glk_event_poll(&gpu.streams);
	during = gpu_free(&gpu, a);
	records = gpu.streams.records;
	gpu_capture(&gpu, a);
	gpu.drv->ops->user_event_new(gpu.drv, 0, &fork);
	gpu.drv->ops->user_event_record(gpu.drv, 0, fork, a->handle);
	gpu.drv->ops->user_event_wait(gpu.drv, 0, joined->handle, fork);
	gpu_free(&gpu, joined);
	glk_event_poll(&gpu.streams);
	is_int((int64_t)(gpu.streams.records - records), 0,
		"nothing is recorded in a capture");
	ok(a->mute && joined->mute && !b->mute, "by either stream of it");
	is_int(glk_event_cover(&gpu.streams, a, &slot), -EAGAIN, "no event can be had");
	is_int(glk_event_ready(&gpu.streams, joined), -EAGAIN, "from the other neither");
	is_int(slot, 99, "the output is as it was");
	is_int(gpu_waits(&gpu.streams, &before, b), 1, "what an event covers can be had");
	is_int((int64_t)gpu_waits(&gpu.streams, &during, b), GLK_WAITS_NEVER,
		"what none covers can not");
	is_int(glk_clock_order(&gpu.streams, &during, b), -EAGAIN, "by waiting neither");
	is_int((int64_t)gpu_waits(&gpu.streams, &during, joined), GLK_WAITS_NEVER,
		"and none who captures can wait");
	glk_soft_run_all(gpu.drv);
	glk_event_ask(&gpu.streams);
	ok(glk_clock_finished(&gpu.streams, &before), "what was before is done");
	is_int(gpu_sync_all(&gpu), -EBUSY, "the GPU is not waited for");
	is_int(gpu_class(), GLAKE_ERROR_CAPTURE, "  its class");
	gpu.drv->ops->user_event_record(gpu.drv, 0, fork, joined->handle);
	gpu.drv->ops->user_event_wait(gpu.drv, 0, a->handle, fork);
	is_int(gpu_capture_end(&gpu, a->handle), 0, "and the capture is whole");
	glk_event_poll(&gpu.streams);
	is_int((int64_t)(gpu.streams.records - records), 2, "then both get their events");
	ok(!a->mute && !joined->mute, "and can be waited for");
	glk_soft_run_all(gpu.drv);
	glk_event_ask(&gpu.streams);
	ok(glk_clock_finished(&gpu.streams, &during), "all is done");
	gpu.drv->ops->user_event_free(gpu.drv, fork);
	gpu_close(&gpu);
}

/* A capture that was broken, and one that begins in the middle of a question. */
static void meets_capture(void)
{
	struct glk_stream *a, *b;
	struct glk_use use;
	unsigned slot;
	struct gpu gpu;

	gpu_open(&gpu);
	a = gpu_stream(&gpu);
	b = gpu_stream(&gpu);
	use = gpu_free(&gpu, a);
	gpu_capture(&gpu, a);
	gpu.drv->ops->stream_sync(gpu.drv, 0, a->handle);
	is_int(glk_event_cover(&gpu.streams, a, &slot), -EAGAIN,
		"a capture that is broken");
	is_int((int64_t)gpu.streams.records, 0, "gets no event");
	is_int(gpu_capture_end(&gpu, a->handle), -EIO, "until it has ended");
	is_int(glk_event_cover(&gpu.streams, a, &slot), 0, "then there is one");
	glk_soft_run_all(gpu.drv);
	glk_event_ask(&gpu.streams);
	ok(glk_clock_finished(&gpu.streams, &use), "which passes");

	use = gpu_free(&gpu, a);
	glk_fault_set(gpu.drv, "event_record:nth=1:err=EBUSY");
	is_int(glk_clock_order(&gpu.streams, &use, b), -EAGAIN,
		"a capture that just began");
	ok(a->mute, "is remembered");
	is_int((int64_t)gpu_waits(&gpu.streams, &use, b), GLK_WAITS_NEVER, "and known");
	glk_fault_set(gpu.drv, "off");
	ok(!a->count && adds_up(&gpu), "the event is back in the store");
	glk_event_poll(&gpu.streams);
	is_int(gpu_waits(&gpu.streams, &use, b), 1, "later it can be had");
	gpu_close(&gpu);
}

struct other {
	struct gpu *gpu;
	struct glk_stream *own, *of_main;
	struct glk_use use;
	int mine, theirs;
};

static void *meet(void *arg)
{
	struct other *o = arg;
	unsigned slot;

	o->own = gpu_enter(o->gpu, GLK_STREAM_PER_THREAD);
	o->use = gpu_free(o->gpu, o->own);
	o->mine = glk_event_cover(&o->gpu->streams, o->own, &slot);
	o->theirs = glk_event_cover(&o->gpu->streams, o->of_main, &slot);
	gpu_free(o->gpu, o->own);
	return NULL;
}

/* The default stream of a thread has a name in that thread alone. */
static void knows_own(void)
{
	struct other o = {0};
	struct glk_use use;
	pthread_t thread;
	unsigned slot;
	struct gpu gpu;

	gpu_open(&gpu);
	o.gpu = &gpu;
	o.of_main = gpu_enter(&gpu, GLK_STREAM_PER_THREAD);
	use = gpu_free(&gpu, o.of_main);
	pthread_create(&thread, NULL, meet, &o);
	pthread_join(thread, NULL);
	is_int(o.mine, 0, "a thread records on its own default stream");
	is_int(o.theirs, 0, "and on the legacy stream for that of another");
	is_int((int64_t)gpu.streams.records, 2, "two events");
	ok(!o.of_main->mute, "which captures nothing for all that");
	ok(glk_event_here_all(&gpu.streams, &use), "a name that means it here");
	ok(!glk_event_here_all(&gpu.streams, &o.use), "and one that does not");
	is_int((int64_t)gpu_waits(&gpu.streams, &use, o.own), 1, "all can wait for it");
	is_int(glk_event_cover(&gpu.streams, o.of_main, &slot), 0, "so does the owner");
	is_int(gpu_waits(&gpu.streams, &o.use, o.of_main), 1, "as for the other");
	glk_event_poll(&gpu.streams);
	glk_soft_run_all(gpu.drv);
	glk_event_poll(&gpu.streams);
	ok(glk_clock_finished(&gpu.streams, &o.use) &&
			glk_clock_finished(&gpu.streams, &use),
		"both pass");
	gpu_close(&gpu);
}

struct left {
	struct gpu *gpu;
	struct CUevent_st *event;
	struct glk_use use;
	pthread_barrier_t together;
	uint32_t before, after; /* operations that its stream has queued */
};

static void *leave_work(void *arg)
{
	struct left *l = arg;
	struct glk_drv *drv = l->gpu->drv;

	l->use = gpu_free(l->gpu, gpu_enter(l->gpu, GLK_STREAM_PER_THREAD));
	if (drv->ops->user_event_new(drv, 0, &l->event) ||
		drv->ops->user_event_record(drv, 0, l->event, GLK_STREAM_PER_THREAD) ||
		glk_soft_pending(drv, 0, GLK_STREAM_PER_THREAD, &l->before))
		tap_bail("no work");
	pthread_barrier_wait(&l->together);
	pthread_barrier_wait(&l->together);
	glk_soft_pending(drv, 0, GLK_STREAM_PER_THREAD, &l->after);
	return NULL;
}

/* Where no event can be had the thread's stream cannot be waited for by its handle, which means another one here. */
static void waits_without_event(void)
{
	struct left l = {0};
	pthread_t thread;
	struct gpu gpu;

	gpu_open(&gpu);
	l.gpu = &gpu;
	pthread_barrier_init(&l.together, NULL, 2);
	pthread_create(&thread, NULL, leave_work, &l);
	pthread_barrier_wait(&l.together);
	glk_fault_set(gpu.drv, "event_record:from=1:err=EIO");
	glk_lock(&gpu.lock);
	is_int(glk_clock_sync_use(&gpu.streams, &l.use), 0,
		"waited for without an event");
	glk_unlock(&gpu.lock);
	glk_fault_set(gpu.drv, "off");
	ok(glk_clock_finished(&gpu.streams, &l.use), "it has finished");
	pthread_barrier_wait(&l.together);
	pthread_join(thread, NULL);
	pthread_barrier_destroy(&l.together);
	ok(l.before && !l.after, "and so has what was queued there");
	gpu.drv->ops->user_event_free(gpu.drv, l.event);
	gpu_close(&gpu);
}

static void *free_some(void *arg)
{
	struct left *l = arg;

	l->use = gpu_free(l->gpu, gpu_enter(l->gpu, GLK_STREAM_PER_THREAD));
	pthread_barrier_wait(&l->together);
	pthread_barrier_wait(&l->together);
	return NULL;
}

/* A capture on the default stream of a thread is in the way as long as it lasts. */
static void beside_capture(bool lives)
{
	struct CUstream_st *own = GLK_STREAM_PER_THREAD;
	struct glk_stream *mine;
	struct left l = {0};
	pthread_t thread;
	struct gpu gpu;

	gpu_open(&gpu);
	l.gpu = &gpu;
	mine = gpu_enter(&gpu, own);
	pthread_barrier_init(&l.together, NULL, 2);
	pthread_create(&thread, NULL, free_some, &l);
	pthread_barrier_wait(&l.together);
	if (!lives) {
		pthread_barrier_wait(&l.together);
		pthread_join(thread, NULL);
	}
	is_int(glk_soft_capture_begin(gpu.drv, 0, own), 0, "a thread captures");
	glk_event_poll_whole(&gpu.streams, true);
	glk_event_poll(&gpu.streams);
	is_int((int64_t)gpu.streams.records, 0,
		"nothing is recorded on the legacy stream");
	is_int((int64_t)gpu_waits(&gpu.streams, &l.use, mine), GLK_WAITS_NEVER,
		"and nobody can wait for what another thread freed");
	is_int(gpu_capture_end(&gpu, own), 0, "the capture lives");
	glk_event_poll(&gpu.streams);
	if (lives) {
		glk_event_poll_whole(&gpu.streams, true);
		is_int((int64_t)gpu.streams.records, 0,
			"who captured there once has no event on the legacy stream for threads that live");
		is_int((int64_t)gpu_waits(&gpu.streams, &l.use, mine), GLK_WAITS_NEVER,
			"nobody waits for such a one");
		pthread_barrier_wait(&l.together);
		pthread_join(thread, NULL);
	} else {
		ok(!gpu.streams.legacy_mute, "behind it that is asked again");
		ok(glk_clock_finished(&gpu.streams, &l.use) ||
				gpu_waits(&gpu.streams, &l.use, mine) == 1,
			"and can be had");
	}
	pthread_barrier_destroy(&l.together);
	gpu_close(&gpu);
}

struct owner {
	struct gpu *gpu;
	pthread_barrier_t together;
	uint64_t little, much, calls, wanted, passed;
};

/* Events that were recorded since. */
static uint64_t own(struct owner *o, struct glk_stream *s, uint64_t bytes)
{
	uint64_t before = o->gpu->streams.records;

	if (bytes)
		gpu_free(o->gpu, s);
	glk_stream_own(&o->gpu->streams, s, bytes);
	return o->gpu->streams.records - before;
}

static void *owns(void *arg)
{
	struct owner *o = arg;
	struct glk_stream *s = gpu_enter(o->gpu, GLK_STREAM_PER_THREAD);

	o->little = own(o, s, (1 << 20) - 1);
	o->much = own(o, s, 1);
	own(o, s, 1);
	o->calls = own(o, s, 0);
	pthread_barrier_wait(&o->together);
	pthread_barrier_wait(&o->together);
	o->wanted = own(o, s, 0);
	own(o, s, 1);
	pthread_barrier_wait(&o->together);
	pthread_barrier_wait(&o->together);
	o->passed = own(o, s, 0);
	return NULL;
}

/* A thread records an event on its default stream for others, after each MiB and where they want what it freed. */
static void for_others(void)
{
	struct glk_stream *mine;
	struct owner o = {0};
	pthread_t thread;
	struct gpu gpu;

	gpu_open(&gpu);
	o.gpu = &gpu;
	mine = gpu_enter(&gpu, GLK_STREAM_PER_THREAD);
	is_int((int64_t)own(&o, mine, 8 << 20), 1, "a thread records for others to come");
	pthread_barrier_init(&o.together, NULL, 2);
	pthread_create(&thread, NULL, owns, &o);
	pthread_barrier_wait(&o.together);
	is_int((int64_t)o.little, 0, "none for less than a MiB");
	is_int((int64_t)o.much, 1, "one for a MiB");
	is_int((int64_t)o.calls, 0, "nobody wants a byte more");
	gpu.streams.records = 0;
	glk_event_poll(&gpu.streams);
	is_int((int64_t)gpu.streams.records, 0, "others record none there");
	pthread_barrier_wait(&o.together);
	pthread_barrier_wait(&o.together);
	is_int((int64_t)o.wanted, 1, "and where one wants it it is recorded");
	glk_event_poll(&gpu.streams);
	is_int(gpu_sync_all(&gpu), 0, "the GPU is waited for");
	pthread_barrier_wait(&o.together);
	pthread_join(thread, NULL);
	is_int((int64_t)o.passed, 0, "what has passed meanwhile needs none");
	pthread_barrier_destroy(&o.together);
	gpu_close(&gpu);
}

int main(void)
{
	tap_plan_later();
	takes_oldest();
	keeps_place();
	keeps_limit();
	asks_crowd();
	stays_out();
	meets_capture();
	knows_own();
	waits_without_event();
	beside_capture(false);
	beside_capture(true);
	for_others();
	return tap_done();
}
