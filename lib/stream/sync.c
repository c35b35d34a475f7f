/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Waiting for the GPU, which takes as long as its work does. The lock of the GPU is given up
 * meanwhile, and others may free, ask for memory and end streams: what is waited for is what was
 * freed until the call, and an event that a thread waits for stays until it has been told.
 *
 * A stream is waited for by an event, which is the library's: its handle may end while nobody
 * holds the lock.
 */
#include "stream/stream.h"

#include "base/error.h"
#include "base/thread.h"

#include <errno.h>

/* All that was freed on it until a tick has finished; one that has ended may go with that. */
static void rest(struct glk_streams *streams, struct glk_stream *s, uint64_t tick)
{
	s->done = s->done < tick ? tick : s->done;
	s->sure = s->sure < tick ? tick : s->sure;
	glk_event_drop(streams, s, tick);
	glk_stream_settle(streams, s);
}

/* Another thread's default stream cannot be asked. */
static bool captures(struct glk_streams *streams, struct glk_stream *s)
{
	return s->state == GLK_STREAM_LIVE && glk_event_here(s) &&
		glk_event_ready(streams, s) == -EAGAIN && glk_stream_silent(s);
}

/* Whether a graph is being captured, as far as is known: to wait for the GPU would end that. */
static bool is_capturing(struct glk_streams *streams)
{
	bool capturing = streams->captures > 0;

	for (unsigned bit = 0; bit < GLK_STREAM_BITS && !capturing; bit++) {
		uint32_t id = streams->by_bit[bit];

		for (; id; id = glk_stream_at(streams, id)->next)
			capturing |= captures(streams, glk_stream_at(streams, id));
	}
	return capturing;
}

static int sync_device(struct glk_streams *streams, bool held)
{
	int64_t since = glk_clock_ticks();
	int err;

	if (!held)
		glk_lock_pause(streams->gpu);
	err = streams->drv->ops->device_sync(streams->drv, streams->device);
	if (!held)
		glk_lock_resume(streams->gpu);
	glk_times_since(&streams->waited, since);
	return err;
}

static int sync_all(struct glk_streams *streams, bool held)
{
	uint64_t tick = streams->tick;
	int err;

	if (is_capturing(streams))
		return glk_error(-EBUSY, GLAKE_ERROR_CAPTURE,
			"GPU %d cannot be waited for while a graph is captured",
			streams->device);
	streams->syncing++;
	err = sync_device(streams, held);
	if (!--streams->syncing)
		pthread_cond_broadcast(&streams->synced);
	if (err)
		return err;
	for (unsigned bit = 0; bit < GLK_STREAM_BITS; bit++) {
		uint32_t id = streams->by_bit[bit], next;

		for (; id; id = next) {
			next = glk_stream_at(streams, id)->next;
			rest(streams, glk_stream_at(streams, id), tick);
		}
	}
	return 0;
}

int glk_clock_sync_all(struct glk_streams *streams)
{
	return sync_all(streams, false);
}

void glk_clock_quiet(struct glk_streams *streams)
{
	while (streams->syncing)
		glk_lock_wait(streams->gpu, &streams->synced);
}

/* An event that covers all that was freed on a stream until now; it may have ended. */
static int find_event(struct glk_streams *streams, struct glk_stream *s,
	struct glk_drv_event **ret_event)
{
	unsigned slot;
	int err = 0;

	if (!s->count || glk_event_newest(s) < s->freed)
		err = glk_event_cover(streams, s, &slot);
	if (!err)
		*ret_event = glk_event_last(s);
	return err;
}

/* Where no event can be had the stream itself is left, which must not end meanwhile. */
static int sync_handle(struct glk_streams *streams, struct glk_stream *s)
{
	int64_t since = glk_clock_ticks();
	int err = streams->drv->ops->stream_sync(
		streams->drv, streams->device, s->handle);

	glk_times_since(&streams->waited, since);
	return err;
}

/* 0, -EAGAIN if it cannot be waited for by itself, or the driver's error. */
static int sync_one(struct glk_streams *streams, struct glk_stream *s, bool held)
{
	struct glk_drv_event *event;
	uint64_t tick = streams->tick;
	int err;

	err = find_event(streams, s, &event);
	if (err == -EAGAIN || err == -ENODEV)
		return err;
	err = err ? sync_handle(streams, s) : glk_event_await(streams, event, held);
	/* one that has ended meanwhile may have given its place to another one */
	if (!err && s->bit < GLK_STREAM_BITS)
		rest(streams, s, tick);
	return err;
}

static bool has_work(const struct glk_stream *s, uint64_t tick)
{
	return s->sure < (tick < s->freed ? tick : s->freed);
}

/* The streams of a bit, as far as each can be waited for by itself. */
static int sync_bit(struct glk_streams *streams, unsigned bit, uint64_t tick, bool held,
	bool *ret_left)
{
	uint32_t id = streams->by_bit[bit], next;
	int err;

	for (; id; id = next) {
		struct glk_stream *s = glk_stream_at(streams, id);
		uint64_t settled = streams->settled;

		next = s->next;
		if (!has_work(s, tick))
			continue;
		err = sync_one(streams, s, held);
		if (err && err != -EAGAIN)
			return err;
		*ret_left |= err != 0;
		/* the next one may have gone: those before are done with, or are asked again */
		if (streams->settled - settled > (s->bit != bit))
			next = streams->by_bit[bit];
	}
	return 0;
}

static int sync_set(struct glk_streams *streams, uint64_t set, bool held)
{
	uint64_t tick = streams->tick;
	bool left = false;

	for (; set; set &= set - 1) {
		int err = sync_bit(streams, (unsigned)__builtin_ctzll(set), tick, held,
			&left);

		if (err)
			return err;
	}
	return left ? sync_all(streams, held) : 0;
}

int glk_clock_sync(struct glk_streams *streams, uint64_t set)
{
	return sync_set(streams, set, false);
}

/* The handle of a thread that is no more names nothing. */
static bool is_ended(struct glk_streams *streams, struct glk_stream *s)
{
	if (s->state == GLK_STREAM_LIVE && s->handle == GLK_STREAM_PER_THREAD &&
		!glk_thread_lives(glk_stream_thread(glk_load_relaxed(&s->key))))
		glk_stream_lose(streams, s);
	return s->state == GLK_STREAM_GONE && glk_event_newest(s) < s->freed;
}

int glk_clock_sync_ended(struct glk_streams *streams, uint64_t set)
{
	bool any = false;

	for (; set; set &= set - 1) {
		uint32_t id = streams->by_bit[__builtin_ctzll(set)];

		for (; id; id = glk_stream_at(streams, id)->next)
			any |= is_ended(streams, glk_stream_at(streams, id));
	}
	return any ? sync_all(streams, false) : 0;
}

int glk_clock_sync_held(struct glk_streams *streams, uint64_t set)
{
	return sync_set(streams, set, true);
}
