/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What is known of the progress of streams, in ticks. Knowledge only grows, from three
 * sources: an event that was recorded at a tick and is done; a stream wait that was inserted,
 * which orders one stream behind another; the end of a stream.
 *
 * No driver call is made on behalf of memory that stays on its stream, nor for memory whose
 * work is known to be ordered or finished. Events: at most one a stream and poll, however
 * many frees lie between.
 *
 * A bit of a set of streams that no stream holds any more stands for finished work.
 */
#include "stream/stream.h"

#include <errno.h>

static struct glk_stream *stream_at(struct glk_streams *streams, uint32_t id)
{
	return glk_slab_at(&streams->slab, id);
}

/* Whether the work of all streams of a bit, freed until `tick`, has finished. */
static bool bit_finished(struct glk_streams *streams, unsigned bit, uint64_t tick)
{
	for (uint32_t id = streams->by_bit[bit]; id; id = stream_at(streams, id)->next) {
		struct glk_stream *s = stream_at(streams, id);

		if (s->done < tick && s->done < s->freed)
			return false;
	}
	return true;
}

bool glk_clock_finished(struct glk_streams *streams, const struct glk_use *use)
{
	for (uint64_t left = use->streams; left; left &= left - 1) {
		if (!bit_finished(streams, (unsigned)__builtin_ctzll(left), use->tick))
			return false;
	}
	return true;
}

/* Whether `stream` needs a wait before it may follow work of `bit`. */
static bool needs_wait(struct glk_streams *streams, const struct glk_stream *stream,
	unsigned bit, uint64_t tick)
{
	if (bit == stream->bit && bit != GLK_STREAM_CROWD)
		return false;
	if (stream->bit != GLK_STREAM_CROWD && streams->seen[stream->bit][bit] >= tick)
		return false;
	return !bit_finished(streams, bit, tick);
}

void glk_clock_forget(struct glk_streams *streams, struct glk_use *use)
{
	for (uint64_t left = use->streams; left; left &= left - 1) {
		unsigned bit = (unsigned)__builtin_ctzll(left);

		if (bit_finished(streams, bit, use->tick))
			use->streams &= ~(UINT64_C(1) << bit);
	}
}

unsigned glk_clock_waits(struct glk_streams *streams, const struct glk_use *use,
	const struct glk_stream *stream)
{
	unsigned waits = 0;

	for (uint64_t left = use->streams; left; left &= left - 1)
		waits += needs_wait(
			streams, stream, (unsigned)__builtin_ctzll(left), use->tick);
	return waits;
}

/* Forgets the oldest events of a stream that are done. */
static bool poll_stream(struct glk_streams *streams, struct glk_stream *s)
{
	bool learned = false;

	while (s->count) {
		int err = streams->drv->ops->event_query(
			streams->drv, s->ring[s->head].event);

		if (err)
			break; /* pending; or lost, which the next call tells the user */
		s->done = s->ring[s->head].tick;
		s->head = (s->head + 1) % GLK_STREAM_EVENTS;
		s->count--;
		learned = true;
	}
	return learned;
}

static uint64_t newest(const struct glk_stream *s)
{
	unsigned last = (s->head + s->count + GLK_STREAM_EVENTS - 1) % GLK_STREAM_EVENTS;

	return s->count ? s->ring[last].tick : s->done;
}

/* Records an event that covers all frees so far; the newest in flight if one does already. */
static int cover(struct glk_streams *streams, struct glk_stream *s, unsigned *ret_slot)
{
	struct glk_drv *drv = streams->drv;
	unsigned slot = (s->head + s->count) % GLK_STREAM_EVENTS;
	int err;

	if (s->count && newest(s) >= s->freed) {
		*ret_slot = (slot + GLK_STREAM_EVENTS - 1) % GLK_STREAM_EVENTS;
		return 0;
	}
	/* all in flight: the newest moves on to now, what it covered waits a little longer */
	if (s->count == GLK_STREAM_EVENTS)
		slot = (slot + GLK_STREAM_EVENTS - 1) % GLK_STREAM_EVENTS;
	if (!s->ring[slot].event) {
		err = drv->ops->event_new(drv, streams->device, &s->ring[slot].event);
		if (err)
			return err;
	}
	err = drv->ops->event_record(drv, s->ring[slot].event, s->handle);
	if (err)
		return err;
	streams->records++;
	s->ring[slot].tick = streams->tick;
	if (s->count < GLK_STREAM_EVENTS)
		s->count++;
	*ret_slot = slot;
	return 0;
}

static int wait_for(struct glk_streams *streams, const struct glk_stream *stream,
	unsigned bit, uint64_t tick)
{
	for (uint32_t id = streams->by_bit[bit]; id; id = stream_at(streams, id)->next) {
		struct glk_stream *s = stream_at(streams, id);
		unsigned slot;
		int err;

		if (s == stream || s->done >= tick || s->done >= s->freed)
			continue;
		err = cover(streams, s, &slot);
		if (err)
			return err;
		err = streams->drv->ops->stream_wait(
			streams->drv, stream->handle, s->ring[slot].event);
		if (err)
			return err;
		streams->waits++;
	}
	return 0;
}

/*
 * Once ordered, what lies behind the stream is the stream's own: an event recorded on it from
 * now on covers the others' work too, so the use shrinks to one stream at a tick of its own.
 */
static void adopt(
	struct glk_streams *streams, struct glk_use *use, struct glk_stream *stream)
{
	use->streams = glk_stream_mask(stream);
	use->tick = glk_clock_tick(streams, stream);
}

int glk_clock_order(
	struct glk_streams *streams, struct glk_use *use, struct glk_stream *stream)
{
	for (uint64_t left = use->streams; left; left &= left - 1) {
		unsigned bit = (unsigned)__builtin_ctzll(left);
		int err;

		if (!needs_wait(streams, stream, bit, use->tick))
			continue;
		err = wait_for(streams, stream, bit, use->tick);
		/* no event to be had, or a stream that the program has ended meanwhile */
		if (err && err != -ENODEV)
			err = glk_clock_sync(streams);
		if (err)
			return err;
		/* of the crowd only those with work until that tick were waited for */
		streams->seen[stream->bit][bit] =
			bit == GLK_STREAM_CROWD ? use->tick : streams->tick;
	}
	if (use->streams & ~glk_stream_mask(stream))
		adopt(streams, use, stream);
	return 0;
}

static bool poll_all(struct glk_streams *streams, bool record)
{
	bool learned = false;
	unsigned slot;

	for (unsigned bit = 0; bit < GLK_STREAM_BITS; bit++) {
		uint32_t id = streams->by_bit[bit];

		for (; id; id = stream_at(streams, id)->next) {
			struct glk_stream *s = stream_at(streams, id);

			learned |= poll_stream(streams, s);
			if (record && newest(s) < s->freed &&
				s->count < GLK_STREAM_EVENTS && !cover(streams, s, &slot))
				learned |= poll_stream(streams, s);
		}
	}
	return learned;
}

bool glk_clock_ask(struct glk_streams *streams)
{
	return poll_all(streams, false);
}

bool glk_clock_poll(struct glk_streams *streams)
{
	return poll_all(streams, true);
}

int glk_clock_sync(struct glk_streams *streams)
{
	int err = streams->drv->ops->device_sync(streams->drv, streams->device);

	if (err)
		return err;
	for (unsigned bit = 0; bit < GLK_STREAM_BITS; bit++) {
		uint32_t id = streams->by_bit[bit];

		for (; id; id = stream_at(streams, id)->next) {
			struct glk_stream *s = stream_at(streams, id);

			s->done = streams->tick;
			s->count = 0;
		}
	}
	return 0;
}
