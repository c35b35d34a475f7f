/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Ends of streams: of threads, in the crowd, by the thousand, and where the driver fails. */
#include "gpu.h"
#include "soft/fault.h"
#include "stream/table.h"
#include <errno.h>
#include <pthread.h>

struct other {
	struct gpu *gpu;
	struct glk_stream *own;
	int err;
};

static void *end_own(void *arg)
{
	struct other *other = arg;

	other->own = gpu_enter(other->gpu, GLK_STREAM_PER_THREAD);
	gpu_free(other->gpu, other->own);
	other->err = glk_stream_leave(&other->gpu->streams, GLK_STREAM_PER_THREAD);
	return NULL;
}

/* A thread's own default stream is ended by that thread. */
static void ends_own(void)
{
	struct other other = {0};
	struct glk_stream *own;
	pthread_t thread;
	struct gpu gpu;

	gpu_open(&gpu);
	other.gpu = &gpu;
	own = gpu_enter(&gpu, GLK_STREAM_PER_THREAD);
	gpu_free(&gpu, own);
	pthread_create(&thread, NULL, end_own, &other);
	pthread_join(thread, NULL);
	is_int(other.err, 0, "a thread ends its default stream");
	ok(other.own != own && own->state == GLK_STREAM_LIVE, "which is not ours");
	gpu_finish(&gpu);
	is_int(gpu_known(&gpu), 1, "it goes when its event has passed");
	is_int(glk_stream_leave(&gpu.streams, GLK_STREAM_PER_THREAD), 0, "we end ours");
	gpu_finish(&gpu);
	is_int(gpu_known(&gpu), 0, "none is left");
	gpu_close(&gpu);
}

/* From the middle, the head and the end of the crowd, with work left. */
static void leaves_crowd(void)
{
	struct glk_stream *s[GLK_STREAM_CROWD + 4], **crowd = s + GLK_STREAM_CROWD;
	struct glk_use use[4], all = {0};
	uint32_t count = 0;
	struct gpu gpu;

	gpu_open(&gpu);
	for (int i = 0; i < GLK_STREAM_CROWD + 4; i++)
		s[i] = gpu_stream(&gpu);
	for (int i = 0; i < 4; i++) {
		use[i] = gpu_free(&gpu, crowd[i]);
		glk_use_add(&all, &use[i]);
	}
	is_int(glk_stream_leave(&gpu.streams, crowd[1]->handle), 0, "one in the middle");
	is_int(glk_stream_leave(&gpu.streams, crowd[3]->handle), 0, "the first one");
	is_int(gpu_waits(&gpu.streams, &use[0], s[0]), 1, "one is waited for");
	is_int(glk_clock_order(&gpu.streams, &use[3], s[1]), 0, "ordered");
	is_int((int64_t)gpu.streams.waits, 1, "behind one that has left");
	is_int(gpu_waits(&gpu.streams, &use[3], s[1]), 0, "once");
	is_int(gpu_waits(&gpu.streams, &all, s[0]), 4, "all are waited for");
	is_int(glk_clock_order(&gpu.streams, &all, s[0]), 0, "ordered");
	is_int((int64_t)gpu.streams.waits, 5, "behind each");
	gpu_finish(&gpu);
	for (uint32_t id = gpu.streams.by_bit[GLK_STREAM_CROWD]; id; count++)
		id = glk_stream_at(&gpu.streams, id)->next;
	is_int(count, 2, "two are left");
	is_int(glk_stream_leave(&gpu.streams, crowd[0]->handle), 0, "the last one");
	is_int(glk_stream_leave(&gpu.streams, crowd[2]->handle), 0, "and the only one");
	gpu_finish(&gpu);
	is_int(gpu.streams.by_bit[GLK_STREAM_CROWD], 0, "nobody is left");
	gpu_close(&gpu);
}

/* What one of the crowd used is its own, also where its number is another's by now. */
static void names_one(void)
{
	struct glk_stream *s[GLK_STREAM_CROWD + 3], **crowd = s + GLK_STREAM_CROWD, *new;
	struct glk_use use, other;
	uint32_t id;
	struct gpu gpu;

	gpu_open(&gpu);
	for (int i = 0; i < GLK_STREAM_CROWD + 3; i++)
		s[i] = gpu_stream(&gpu);
	other = gpu_free(&gpu, crowd[0]);
	use = gpu_free(&gpu, crowd[1]);
	id = crowd[1]->id;
	ok(!glk_stream_foreign(crowd[1], &use), "its own memory");
	ok(glk_stream_foreign(crowd[2], &use), "is another one's to nobody else");
	is_int(gpu_waits(&gpu.streams, &use, crowd[1]), 0, "it needs no wait");
	is_int(gpu_sync(&gpu, 0), 0, "nobody is waited for");
	glk_lock(&gpu.lock);
	is_int(glk_clock_sync_use(&gpu.streams, &use), 0, "one is waited for");
	glk_unlock(&gpu.lock);
	ok(glk_clock_finished(&gpu.streams, &use), "it has finished");
	ok(!glk_clock_finished(&gpu.streams, &other), "the others have not");
	is_int(glk_stream_leave(&gpu.streams, crowd[1]->handle), 0, "it leaves");
	gpu_finish(&gpu);
	new = gpu_stream(&gpu);
	is_int(new->id, id, "a new stream has its number");
	other = gpu_free(&gpu, new);
	ok(glk_clock_finished(&gpu.streams, &use), "the old memory is free");
	ok(!glk_clock_finished(&gpu.streams, &other), "the new one's is not");
	is_int(gpu_waits(&gpu.streams, &use, crowd[2]), 0, "without a wait");
	is_int(gpu_waits(&gpu.streams, &other, crowd[2]), 1, "but behind it");
	gpu_close(&gpu);
}

/* Several of the crowd are waited for by name; of too many of them each that has work. */
static void names_some(void)
{
	enum { BUSY = 70 };
	struct glk_stream *s[GLK_STREAM_CROWD + BUSY], **crowd = s + GLK_STREAM_CROWD;
	struct glk_use use = {0}, many = {0}, one;
	struct gpu gpu;

	gpu_open(&gpu);
	for (int i = 0; i < GLK_STREAM_CROWD + BUSY; i++)
		s[i] = gpu_stream(&gpu);
	for (int i = 0; i < BUSY; i++) {
		one = gpu_free(&gpu, crowd[i]);
		if (i < 3)
			glk_use_add(&use, &one);
		if (i < 5)
			glk_use_add(&many, &one);
	}
	ok(!glk_use_crowded(&use) && glk_use_crowded(&many),
		"three have names, five have not");
	is_int(gpu_waits(&gpu.streams, &use, crowd[1]), 2,
		"one of the three waits for two");
	is_int(gpu_waits(&gpu.streams, &use, crowd[7]), 3, "another one for three");
	is_int(gpu_waits(&gpu.streams, &use, s[0]), 3, "and so does any");
	one = use;
	is_int(glk_clock_order(&gpu.streams, &one, crowd[7]), 0, "it is behind them");
	is_int((int64_t)gpu.streams.waits, 3, "by three waits");
	ok(one.named == crowd[7]->id, "the memory is its own then");
	is_int(gpu_waits(&gpu.streams, &use, crowd[7]), 0, "and it needs no more");
	one = gpu_free(&gpu, crowd[0]);
	is_int(gpu_waits(&gpu.streams, &one, crowd[7]), 1, "but for what is later");
	is_int(gpu_waits(&gpu.streams, &many, s[0]), 16, "all of seventy are many waits");
	glk_lock(&gpu.lock);
	is_int(glk_clock_sync_use(&gpu.streams, &use), 0, "three are waited for");
	glk_unlock(&gpu.lock);
	ok(glk_clock_finished(&gpu.streams, &use), "they have finished");
	ok(crowd[3]->done < crowd[3]->freed, "and no other");
	one = many;
	one.named = use.named | (uint64_t)crowd[3]->id << 3 * GLK_USE_NAME_BITS;
	glk_clock_forget(&gpu.streams, &one);
	ok(one.named == crowd[3]->id, "what has finished has no name any more");
	for (int i = 0; i < BUSY - 2; i++) {
		glk_lock(&gpu.lock);
		one = glk_stream_use(crowd[i], crowd[i]->freed);
		glk_clock_sync_use(&gpu.streams, &one);
		glk_unlock(&gpu.lock);
	}
	is_int(gpu_waits(&gpu.streams, &many, s[0]), 2, "those of two are two");
	is_int(gpu_waits(&gpu.streams, &many, crowd[BUSY - 1]), 1,
		"and one of these waits for the other");
	one = glk_stream_use(crowd[BUSY - 2], crowd[BUSY - 2]->freed);
	glk_lock(&gpu.lock);
	glk_clock_sync_use(&gpu.streams, &one);
	glk_unlock(&gpu.lock);
	is_int(gpu_waits(&gpu.streams, &many, crowd[BUSY - 1]), 0,
		"for nothing when it is alone");
	gpu_close(&gpu);
}

/* Behind two of them until what was asked for, of which one had finished: not behind what it does since. */
static void behind_two(void)
{
	struct glk_stream *s[GLK_STREAM_CROWD + 3], **crowd = s + GLK_STREAM_CROWD;
	struct glk_use two, one, later;
	struct gpu gpu;

	gpu_open(&gpu);
	for (int i = 0; i < GLK_STREAM_CROWD + 3; i++)
		s[i] = gpu_stream(&gpu);
	one = gpu_free(&gpu, crowd[0]);
	glk_lock(&gpu.lock);
	is_int(glk_clock_sync_use(&gpu.streams, &one), 0, "one has finished");
	glk_unlock(&gpu.lock);
	two = gpu_free(&gpu, crowd[1]);
	two.tick = one.tick; /* as of a use that is older */
	glk_use_add(&two, &one);
	later = gpu_free(&gpu, crowd[0]);
	is_int(gpu_waits(&gpu.streams, &two, crowd[2]), 1, "the other is waited for");
	is_int(glk_clock_order(&gpu.streams, &two, crowd[2]), 0, "it is behind both");
	is_int(gpu_waits(&gpu.streams, &later, crowd[2]), 1,
		"and not behind what the first does since");
	gpu_close(&gpu);
}

/* What all of the crowd were given counts, at no cost for each; and for those alone that live. */
static void joins_all(void)
{
	struct glk_stream *s[GLK_STREAM_CROWD + 3], **crowd = s + GLK_STREAM_CROWD, *new;
	struct glk_use all;
	struct gpu gpu;

	gpu_open(&gpu);
	for (int i = 0; i < GLK_STREAM_CROWD + 3; i++)
		s[i] = gpu_stream(&gpu);
	gpu_free(&gpu, crowd[2]);
	is_int(glk_stream_leave(&gpu.streams, crowd[2]->handle), 0, "one leaves");
	all = glk_use_of(GLK_USE_CROWD, glk_clock_tick(&gpu.streams, NULL));
	glk_clock_join(&gpu.streams, &all);
	ok(glk_stream_freed(&gpu.streams, crowd[0]) == all.tick,
		"what one was given counts");
	ok(glk_stream_freed(&gpu.streams, crowd[2]) < all.tick,
		"no more of one that has left");
	ok(!glk_clock_finished(&gpu.streams, &all), "it has not finished");
	new = gpu_stream(&gpu);
	is_int(gpu_waits(&gpu.streams, &all, s[0]), 3, "each is waited for");
	is_int(new->bit, GLK_STREAM_CROWD, "one that comes then is of them");
	for (int i = 0; i < 2; i++)
		ok(!glk_event_poll_use(&gpu.streams, &all, true),
			"who asks hears of one with work");
	gpu_finish(&gpu);
	ok(glk_event_poll_use(&gpu.streams, &all, true), "all have finished");
	is_int(glk_clock_next_working(&gpu.streams, 0), 0,
		"and nobody is left to be asked");
	gpu_close(&gpu);
}

/* Many uses are waited for together: each of few streams, or all of the crowd. */
static void adds_work(int count)
{
	struct glk_stream *s[GPU_STREAMS];
	struct glk_work work = {0};
	struct gpu gpu;
	uint32_t done = 0;

	gpu_open(&gpu);
	for (int i = 0; i < GPU_STREAMS; i++)
		s[i] = gpu_stream(&gpu);
	for (int i = 0; i < GPU_STREAMS; i++) {
		struct glk_use use = gpu_free(&gpu, s[i]);

		if (i >= GLK_STREAM_CROWD && i < GLK_STREAM_CROWD + count)
			glk_work_add(&work, &use);
		if (i == 3)
			glk_work_add(&work, &use);
	}
	glk_lock(&gpu.lock);
	is_int(glk_work_sync(&gpu.streams, &work), 0, "work of some streams");
	glk_unlock(&gpu.lock);
	for (int i = 0; i < GPU_STREAMS; i++)
		done += s[i]->done >= s[i]->freed;
	if (count > GLK_WORK_NAMES)
		count = GPU_STREAMS - GLK_STREAM_CROWD;
	is_int(done, 1 + count, count > GLK_WORK_NAMES ? "all" : "those alone");
	gpu_close(&gpu);
}

/* An end is never refused: what no event can be had for is known when the GPU was waited for. */
static void fails(void)
{
	static const char *const faults[] = {"event_new:nth=1:err=ENOMEM",
		"event_record:nth=1:err=EIO", "stream_facts:nth=1:err=EIO",
		"any:nth=1:sticky=1"};
	struct glk_stream *a;
	struct glk_use use;
	struct gpu gpu;

	gpu_open(&gpu);
	for (int i = 0; i < 4; i++) {
		a = gpu_stream(&gpu);
		use = gpu_free(&gpu, a);
		glk_fault_set(gpu.drv, faults[i]);
		is_int(glk_stream_leave(&gpu.streams, a->handle), 0, faults[i]);
		glk_fault_set(gpu.drv, "off");
		is_int(a->state, GLK_STREAM_GONE, "the stream is gone");
		gpu_finish(&gpu);
		ok(!glk_clock_finished(&gpu.streams, &use), "nobody knows of its work");
		gpu_sync_all(&gpu);
		ok(glk_clock_finished(&gpu.streams, &use), "but who waits for the GPU");
		is_int(gpu_known(&gpu), 0, "after that nothing is left of it");
	}
	gpu_close(&gpu);
}

#define MANY 10000

/* A long life of short streams, whose tables may not grow at the ends. */
static void come_and_go(bool starved)
{
	uint64_t bytes = 0, most_known = 0, most_made = 0;
	struct CUstream_st *handle;
	struct glk_use old = {0};
	struct glk_stream *s;
	bool finished = true;
	int err = 0;
	struct gpu gpu;

	gpu_open(&gpu);
	for (int i = 0; i < MANY; i++) {
		if (gpu.drv->ops->stream_new(gpu.drv, 0, &handle))
			tap_bail("no stream");
		s = gpu_enter(&gpu, handle);
		if (i % 3)
			old = gpu_free(&gpu, s);
		if (i % 7 == 0)
			glk_event_poll(&gpu.streams);
		if (starved)
			glk_region_fail_after(1);
		err |= glk_stream_leave(&gpu.streams, handle);
		glk_region_fail_after(0);
		/* waits for its work, as the driver does sooner or later */
		err |= gpu.drv->ops->stream_free(gpu.drv, 0, handle);
		glk_event_poll(&gpu.streams);
		finished &= glk_clock_finished(&gpu.streams, &old);
		if (most_known < gpu_known(&gpu))
			most_known = gpu_known(&gpu);
		if (most_made < gpu.streams.events.made)
			most_made = gpu.streams.events.made;
		if (i == 100)
			bytes = glk_region_bytes();
	}
	is_int(err, 0,
		starved ? "10000 streams, no memory at their ends" : "10000 streams");
	ok(finished, "memory of each is free in the end");
	ok(most_known <= 2, "one or two were known at a time");
	ok(most_made <= 4, "with one or two events");
	is_int((int64_t)glk_region_bytes(), (int64_t)bytes, "no table has grown");
	is_int(gpu_known(&gpu), 0, "nothing is left of them");
	gpu_close(&gpu);
}

/* As many as there can be have left, and nobody asked whether that has passed. */
static void makes_room(void)
{
	struct CUstream_st *handle;
	uint32_t id = 0;
	int err = 0;
	struct gpu gpu;

	gpu_open(&gpu);
	for (int i = 0; i < GLK_STREAMS_MAX && !err; i++) {
		err = gpu.drv->ops->stream_new(gpu.drv, 0, &handle);
		gpu_enter(&gpu, handle);
		err |= glk_stream_leave(&gpu.streams, handle);
		err |= gpu.drv->ops->stream_free(gpu.drv, 0, handle);
	}
	is_int(err, 0, "as many streams as there can be have ended");
	handle = gpu_handle(&gpu);
	is_int(glk_stream_get(&gpu.streams, handle, NULL, &id), 0,
		"there is room for more");
	ok(gpu_known(&gpu) < GLK_STREAMS_MAX, "since the work of some has passed");
	gpu_close(&gpu);
}

int main(void)
{
	tap_plan_later();
	ends_own();
	leaves_crowd();
	names_one();
	names_some();
	behind_two();
	joins_all();
	adds_work(1);
	adds_work(GLK_WORK_NAMES);
	adds_work(GLK_WORK_NAMES + 1);
	fails();
	come_and_go(false);
	come_and_go(true);
	makes_room();
	return tap_done();
}
