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
	glk_event_drop(streams, s, tick);
	glk_stream_settle(streams, s);
}

/* To wait for the GPU would end that. */
bool glk_clock_captures(struct glk_streams *streams)
{
	bool capturing = streams->captures > 0;

	for (unsigned bit = 0; bit < GLK_STREAM_BITS && !capturing; bit++) {
		uint32_t id = streams->by_bit[bit];

		for (; id; id = glk_stream_at(streams, id)->next)
			capturing |=
				glk_event_captures(streams, glk_stream_at(streams, id));
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

int glk_clock_uncaptured(struct glk_streams *streams)
{
	if (!glk_clock_captures(streams))
		return 0;
	return glk_error(-EBUSY, GLAKE_ERROR_CAPTURE,
		"GPU %d cannot be waited for while a graph is captured", streams->device);
}

static int sync_all(struct glk_streams *streams, bool held)
{
	uint64_t tick = streams->tick;
	int err = glk_clock_uncaptured(streams);

	if (err)
		return err;
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

/* Where no event can be had the stream itself is left, which must not end meanwhile. */
static int sync_handle(struct glk_streams *streams, struct glk_stream *s)
{
	int64_t since = glk_clock_ticks();
	int err =
		streams->drv->ops->stream_sync(streams->drv, streams->device, s->handle);

	glk_times_since(&streams->waited, since);
	return err;
}

/* 0, -EAGAIN if it cannot be waited for by itself, or the driver's error. */
static int sync_one(
	struct glk_streams *streams, struct glk_stream *s, uint64_t tick, bool held)
{
	uint64_t covered = streams->tick;
	unsigned slot;
	int err;

	err = glk_event_find(streams, s, glk_stream_needs(streams, s, tick), &slot);
	/* the handle of another thread's stream means one's own here */
	if (err && err != -ENODEV && !glk_event_here(s))
		err = -EAGAIN;
	if (err == -EAGAIN || err == -ENODEV)
		return err;
	if (!err && s->ring[slot].tick < glk_stream_freed(streams, s))
		covered = s->ring[slot].tick;
	err = err ? sync_handle(streams, s)
		  : glk_event_await(streams, s->ring[slot].event, held);
	/* one that has ended meanwhile may have given its place to another one */
	if (!err && s->bit < GLK_STREAM_BITS)
		rest(streams, s, covered);
	return err;
}

/* What has been seen to pass is not waited for. */
static bool has_work(
	const struct glk_streams *streams, const struct glk_stream *s, uint64_t tick)
{
	return s->done < glk_stream_needs(streams, s, tick);
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
		if (!has_work(streams, s, tick))
			continue;
		err = sync_one(streams, s, tick, held);
		if (err && err != -EAGAIN)
			return err;
		*ret_left |= err != 0;
		/* the next one may have gone: those before are done with, or are asked again */
		if (streams->settled - settled > (s->bit != bit))
			next = streams->by_bit[bit];
	}
	return 0;
}

/* One of the crowd; it may be gone, and its number another one's, who has no such work. */
static int sync_named(struct glk_streams *streams, uint32_t id, uint64_t tick, bool held,
	bool *ret_left)
{
	struct glk_stream *s = glk_stream_at(streams, id);
	int err = has_work(streams, s, tick) ? sync_one(streams, s, tick, held) : 0;

	*ret_left |= err == -EAGAIN;
	return err == -EAGAIN ? 0 : err;
}

static int sync_use(
	struct glk_streams *streams, const struct glk_use *use, bool held, bool *ret_left)
{
	uint64_t set = use->named ? use->streams & ~GLK_USE_CROWD : use->streams;
	int err = 0;

	for (uint64_t left = use->named; left && !err; left = glk_use_rest(left))
		err = sync_named(streams, glk_use_first(left), use->tick, held, ret_left);
	for (; set && !err; set &= set - 1)
		err = sync_bit(streams, (unsigned)__builtin_ctzll(set), use->tick, held,
			ret_left);
	return err;
}

int glk_clock_sync_use(struct glk_streams *streams, const struct glk_use *use)
{
	bool left = false;
	int err = sync_use(streams, use, false, &left);

	return err || !left ? err : sync_all(streams, false);
}

int glk_clock_sync_use_held(struct glk_streams *streams, const struct glk_use *use)
{
	bool left = false;
	int err = sync_use(streams, use, true, &left);

	return err || !left ? err : sync_all(streams, true);
}

int glk_clock_sync(struct glk_streams *streams, uint64_t set)
{
	struct glk_use use = glk_use_of(set, streams->tick);

	return glk_clock_sync_use(streams, &use);
}

/* Whether a stream of the crowd has a place in a sum. */
static bool add_name(struct glk_work *work, uint32_t id)
{
	for (unsigned i = 0; i < work->names; i++) {
		if (work->name[i] == id)
			return true;
	}
	if (work->names == GLK_WORK_NAMES)
		return false;
	work->name[work->names++] = id;
	return true;
}

/* Whether all that a use names have; not those of one that names none. */
static bool add_names(struct glk_work *work, uint64_t named)
{
	bool all = named;

	for (; all && named; named = glk_use_rest(named))
		all = add_name(work, glk_use_first(named));
	return all;
}

void glk_work_add(struct glk_work *work, const struct glk_use *use)
{
	struct glk_use *sum = &work->use;
	uint64_t set = use->streams;

	/* that of the crowd is set where all of it is waited for */
	if ((set & GLK_USE_CROWD) &&
		((sum->streams & GLK_USE_CROWD) || add_names(work, use->named)))
		set &= ~GLK_USE_CROWD;
	sum->streams |= set;
	if (sum->tick < use->tick)
		sum->tick = use->tick;
}

int glk_work_sync(struct glk_streams *streams, const struct glk_work *work)
{
	bool left = false;
	int err = sync_use(streams, &work->use, false, &left);

	for (unsigned i = 0; i < work->names && !err; i++)
		err = sync_named(streams, work->name[i], work->use.tick, false, &left);
	return err || !left ? err : sync_all(streams, false);
}

/* No event can be had that covers all of it. */
static bool is_uncovered(const struct glk_stream *s)
{
	return s->state == GLK_STREAM_GONE && glk_event_newest(s) < s->freed;
}

int glk_clock_sync_ended(struct glk_streams *streams, uint64_t set)
{
	bool any = false;

	for (; set; set &= set - 1) {
		uint32_t id = streams->by_bit[__builtin_ctzll(set)];

		for (; id; id = glk_stream_at(streams, id)->next)
			any |= is_uncovered(glk_stream_at(streams, id));
	}
	return any ? sync_all(streams, false) : 0;
}
