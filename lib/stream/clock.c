/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What is known of the progress of streams, in ticks. Knowledge only grows, from four
 * sources: an event that was recorded at a tick and is done; a stream wait that orders one
 * stream behind another, be it ours or one that the program told of; a wait for the GPU; the
 * end of a stream.
 *
 * No driver call is made on behalf of memory that stays on its stream, nor for memory whose
 * work is known to be ordered or finished; but where much was freed that several streams used,
 * they have an event soon, whoever wants that. Else at most one a stream and poll, however many
 * frees lie between.
 *
 * A bit of a set of streams that no stream holds any more stands for finished work.
 */
#include "stream/stream.h"

#include "base/error.h"

#include <errno.h>

/* Waits for streams of the crowd that a use does not name, from which on they are not counted, and streams
 * that are looked at for it: places with fewer are better, and more would tell them apart no further. */
#define CROWD_WAITS 16
#define CROWD_LOOKS 128
_Static_assert((GLK_STREAM_BITS + GLK_USE_NAMES + CROWD_WAITS) * (1 + GLK_WAITS_LATE) <
		GLK_WAITS_NEVER,
	"waits of all kinds are no refusal");

/* What all of the crowd were given until a tick counts, whoever asks a stream for its own. */
static void join_crowd(struct glk_streams *streams, uint64_t tick)
{
	streams->crowd.joined = tick;
	for (unsigned w = 0; w < GLK_STREAM_WORDS; w++)
		streams->crowd.working[w] |= streams->crowd.here[w];
}

void glk_clock_join(struct glk_streams *streams, const struct glk_use *use)
{
	for (uint64_t left = use->streams & ~GLK_USE_CROWD; left; left &= left - 1) {
		uint32_t id = streams->by_bit[__builtin_ctzll(left)];

		if (id)
			glk_clock_raise(streams, glk_stream_at(streams, id), use->tick);
	}
	for (uint64_t left = use->named; left; left = glk_use_rest(left))
		glk_clock_raise(
			streams, glk_stream_at(streams, glk_use_first(left)), use->tick);
	if (glk_use_crowded(use))
		join_crowd(streams, use->tick);
}

uint32_t glk_clock_next_working(struct glk_streams *streams, uint32_t stream)
{
	uint32_t id = stream + 1;

	for (uint32_t w = id / 64; w < GLK_STREAM_WORDS; w++) {
		uint64_t *working = &streams->crowd.working[w];
		uint64_t left =
			w == id / 64 ? *working & ~UINT64_C(0) << id % 64 : *working;

		for (; left; left &= left - 1) {
			uint32_t next = w * 64 + (uint32_t)__builtin_ctzll(left);
			const struct glk_stream *s = glk_stream_at(streams, next);

			if (s->bit == GLK_STREAM_CROWD &&
				s->done < glk_stream_freed(streams, s))
				return next;
			*working &= ~(left & -left);
		}
	}
	return 0;
}

static bool one_finished(
	const struct glk_streams *streams, const struct glk_stream *s, uint64_t tick)
{
	return s->done >= glk_stream_needs(streams, s, tick);
}

/*
 * The same for the crowd, which is not walked twice for what is known: all that was freed until
 * a tick stays finished, and the one that had not finished is asked first.
 */
static bool crowd_finished(struct glk_streams *streams, uint64_t tick)
{
	uint32_t id = streams->crowd.witness;

	if (tick <= streams->crowd.passed)
		return true;
	if (id && !one_finished(streams, glk_stream_at(streams, id), tick))
		return false;
	for (id = 0; (id = glk_clock_next_working(streams, id));) {
		if (one_finished(streams, glk_stream_at(streams, id), tick))
			continue;
		streams->crowd.witness = id;
		return false;
	}
	streams->crowd.passed = tick;
	return true;
}

/*
 * The stream that has a bit for itself; NULL: it has gone, and so has its work. A bit of a use, or a number
 * that it names, may be another stream's by now: what was freed before that came is known to have finished
 * on it, see glk_stream_give_bit().
 */
static struct glk_stream *owner_of(const struct glk_streams *streams, unsigned bit)
{
	uint32_t id = streams->by_bit[bit];

	return id ? glk_stream_at(streams, id) : NULL;
}

/* The first of those that a use names from `named` on whose work has not finished; 0: there is none. */
static uint64_t skip_finished(
	const struct glk_streams *streams, uint64_t named, const struct glk_use *use)
{
	while (named &&
		one_finished(
			streams, glk_stream_at(streams, glk_use_first(named)), use->tick))
		named = glk_use_rest(named);
	return named;
}

/* Whether the work of a bit of a use has finished. */
static bool bit_finished(
	struct glk_streams *streams, unsigned bit, const struct glk_use *use)
{
	const struct glk_stream *s;

	if (bit == GLK_STREAM_CROWD && use->named)
		return !skip_finished(streams, use->named, use);
	if (bit == GLK_STREAM_CROWD)
		return crowd_finished(streams, use->tick);
	s = owner_of(streams, bit);
	return !s || one_finished(streams, s, use->tick);
}

bool glk_clock_finished(struct glk_streams *streams, const struct glk_use *use)
{
	for (uint64_t left = use->streams; left; left &= left - 1) {
		if (!bit_finished(streams, (unsigned)__builtin_ctzll(left), use))
			return false;
	}
	return true;
}

/* Whether a stream needs a wait before it may follow what another one of the crowd has of a use. */
static bool needs_named(const struct glk_streams *streams,
	const struct glk_stream *stream, const struct glk_stream *s,
	const struct glk_use *use)
{
	if (s == stream ||
		(stream->behind.tick >= use->tick &&
			glk_use_names_all(stream->behind.named, s->id)))
		return false;
	return !one_finished(streams, s, use->tick);
}

/* The same of those that a use names, from `named` on: the first one; 0: there is none. */
static uint64_t next_needed(const struct glk_streams *streams,
	const struct glk_stream *stream, uint64_t named, const struct glk_use *use)
{
	while (named &&
		!needs_named(streams, stream,
			glk_stream_at(streams, glk_use_first(named)), use))
		named = glk_use_rest(named);
	return named;
}

/* Whether `stream` needs a wait before it may follow the work of a bit of a use. */
static bool needs_wait(struct glk_streams *streams, const struct glk_stream *stream,
	unsigned bit, const struct glk_use *use)
{
	/* one that has just been found to be gone has no bit */
	if (stream->bit < GLK_STREAM_CROWD &&
		streams->seen[stream->bit][bit] >= use->tick)
		return false;
	if (bit == GLK_STREAM_CROWD && use->named)
		return next_needed(streams, stream, use->named, use);
	if (bit < GLK_STREAM_CROWD && owner_of(streams, bit) == stream)
		return false;
	return !bit_finished(streams, bit, use);
}

/* Of those that a use names, the ones that have finished; of none that are left the bit. */
static void forget_named(const struct glk_streams *streams, struct glk_use *use)
{
	uint64_t left = use->named, kept = 0;
	unsigned count = 0;

	while ((left = skip_finished(streams, left, use))) {
		kept |= (uint64_t)glk_use_first(left) << GLK_USE_NAME_BITS * count++;
		left = glk_use_rest(left);
	}
	use->named = kept;
	if (!kept)
		glk_use_drop(use, GLK_USE_CROWD);
}

void glk_clock_forget(struct glk_streams *streams, struct glk_use *use)
{
	for (uint64_t left = use->streams; left; left &= left - 1) {
		unsigned bit = (unsigned)__builtin_ctzll(left);

		if (bit == GLK_STREAM_CROWD && use->named)
			forget_named(streams, use);
		else if (bit_finished(streams, bit, use))
			glk_use_drop(use, UINT64_C(1) << bit);
	}
}

/* Whether an event can be recorded on a stream, as far as is known. */
static bool can_record(const struct glk_streams *streams, const struct glk_stream *s)
{
	return s->state == GLK_STREAM_LIVE && !glk_event_mute(streams, s);
}

/* A wait for a stream, with an event that is there, or one to be recorded, or GLK_WAITS_NEVER. */
static unsigned one_wait(
	const struct glk_streams *streams, const struct glk_stream *s, uint64_t tick)
{
	if (glk_event_newest(s) >= glk_stream_needs(streams, s, tick))
		return 1;
	if (!can_record(streams, s))
		return GLK_WAITS_NEVER;
	return 1 + GLK_WAITS_LATE;
}

/* Waits for those that a use names: GLK_WAITS_NEVER or more where one cannot be had. */
static unsigned named_waits(struct glk_streams *streams, const struct glk_use *use,
	const struct glk_stream *stream)
{
	uint64_t left = use->named;
	unsigned waits = 0;

	while ((left = next_needed(streams, stream, left, use))) {
		waits += one_wait(
			streams, glk_stream_at(streams, glk_use_first(left)), use->tick);
		left = glk_use_rest(left);
	}
	return waits;
}

/* The same for all of the crowd, as far as a bounded look tells: one at least. The one that could not be
 * waited for last is asked first. */
static unsigned crowd_waits(
	struct glk_streams *streams, const struct glk_stream *stream, uint64_t tick)
{
	uint32_t id = streams->crowd.witness;
	unsigned waits = 0, looks = 0, one;

	if (id && one_wait(streams, glk_stream_at(streams, id), tick) >= GLK_WAITS_NEVER)
		return GLK_WAITS_NEVER;
	for (id = glk_clock_next_working(streams, 0);
		id && waits % GLK_WAITS_LATE < CROWD_WAITS && looks < CROWD_LOOKS;
		id = glk_clock_next_working(streams, id), looks++) {
		const struct glk_stream *s = glk_stream_at(streams, id);

		if (s == stream || one_finished(streams, s, tick))
			continue;
		one = one_wait(streams, s, tick);
		if (one >= GLK_WAITS_NEVER)
			return GLK_WAITS_NEVER;
		waits += one;
	}
	/* it may be alone with work there */
	return waits || !id ? waits : 1;
}

/* Waits for a bit of a use, or GLK_WAITS_NEVER. */
static unsigned bit_waits(struct glk_streams *streams, unsigned bit,
	const struct glk_use *use, const struct glk_stream *stream)
{
	const struct glk_stream *s;

	if (bit == GLK_STREAM_CROWD)
		return use->named ? named_waits(streams, use, stream)
				  : crowd_waits(streams, stream, use->tick);
	s = owner_of(streams, bit);
	return s ? one_wait(streams, s, use->tick) : 1;
}

bool glk_clock_behind_all(struct glk_streams *streams, const struct glk_use *use,
	const struct glk_stream *stream)
{
	for (uint64_t left = use->streams; left; left &= left - 1) {
		unsigned bit = (unsigned)__builtin_ctzll(left);

		/* of all of the crowd it may be alone with work there */
		if (needs_wait(streams, stream, bit, use) &&
			(bit != GLK_STREAM_CROWD || use->named ||
				crowd_waits(streams, stream, use->tick)))
			return false;
	}
	return true;
}

unsigned glk_clock_waits(struct glk_streams *streams, const struct glk_use *use,
	const struct glk_stream *stream)
{
	unsigned waits = 0;

	for (uint64_t left = use->streams; left && waits < GLK_WAITS_NEVER;
		left &= left - 1) {
		unsigned bit = (unsigned)__builtin_ctzll(left);

		if (needs_wait(streams, stream, bit, use))
			waits += glk_stream_silent(stream)
				? GLK_WAITS_NEVER
				: bit_waits(streams, bit, use, stream);
	}
	return waits < GLK_WAITS_NEVER ? waits : GLK_WAITS_NEVER;
}

/* *seen, at most: until which tick the waiter is behind the other one now. */
static int wait_for(struct glk_streams *streams, const struct glk_stream *stream,
	struct glk_stream *s, uint64_t tick, uint64_t *seen)
{
	uint64_t newest = glk_event_newest(s);
	unsigned slot;
	int err = 0;

	if (s == stream || s->done >= glk_stream_freed(streams, s))
		return 0;
	if (!one_finished(streams, s, tick)) {
		err = glk_event_find(
			streams, s, glk_stream_needs(streams, s, tick), &slot);
		if (err && s->bit == GLK_STREAM_CROWD)
			streams->crowd.witness = s->id;
		/* what has come to an end nobody waits for, on this stream and on any other */
		if (!err && newest < s->ring[slot].tick)
			glk_event_tell(streams, s);
	}
	if (err)
		return err;
	if (one_finished(streams, s, tick)) {
		*seen = s->done < *seen ? s->done : *seen;
		return 0;
	}
	err = streams->drv->ops->stream_wait(
		streams->drv, stream->handle, s->ring[slot].event);
	if (err)
		return err;
	streams->waits++;
	if (s->ring[slot].tick < glk_stream_freed(streams, s) &&
		s->ring[slot].tick < *seen)
		*seen = s->ring[slot].tick;
	return 0;
}

static int wait_for_named(struct glk_streams *streams, const struct glk_stream *stream,
	const struct glk_use *use, uint64_t *seen)
{
	uint64_t left = use->named;
	int err = 0;

	while (!err && (left = next_needed(streams, stream, left, use))) {
		err = wait_for(streams, stream,
			glk_stream_at(streams, glk_use_first(left)), use->tick, seen);
		left = glk_use_rest(left);
	}
	return err;
}

static int wait_for_crowd(struct glk_streams *streams, const struct glk_stream *stream,
	const struct glk_use *use, uint64_t *seen)
{
	int err = 0;

	for (uint32_t id = 0; !err && (id = glk_clock_next_working(streams, id));)
		err = wait_for(
			streams, stream, glk_stream_at(streams, id), use->tick, seen);
	return err;
}

/* The same for a bit of a use. */
static int wait_for_bit(struct glk_streams *streams, const struct glk_stream *stream,
	unsigned bit, const struct glk_use *use, uint64_t *seen)
{
	struct glk_stream *s;

	if (bit == GLK_STREAM_CROWD)
		return use->named ? wait_for_named(streams, stream, use, seen)
				  : wait_for_crowd(streams, stream, use, seen);
	s = owner_of(streams, bit);
	return s ? wait_for(streams, stream, s, use->tick, seen) : 0;
}

/*
 * Once ordered, what lies behind the stream is the stream's own: an event recorded on it from
 * now on covers the others' work too, so the use shrinks to one stream at a tick of its own.
 */
static void adopt(
	struct glk_streams *streams, struct glk_use *use, struct glk_stream *stream)
{
	*use = glk_stream_use(stream, glk_clock_tick(streams, stream));
}

/* It is behind a bit of a use, until a tick. */
static void note_seen(struct glk_streams *streams, struct glk_stream *stream,
	unsigned bit, const struct glk_use *use, uint64_t seen)
{
	if (bit == GLK_STREAM_CROWD && use->named) {
		stream->behind.named = use->named;
		/* of several some needed no wait, and that is known until the tick of the use */
		stream->behind.tick = glk_use_rest(use->named) ? use->tick : seen;
	} else if (stream->bit < GLK_STREAM_BITS &&
		streams->seen[stream->bit][bit] < seen) {
		streams->seen[stream->bit][bit] = seen;
	}
}

int glk_clock_order(
	struct glk_streams *streams, struct glk_use *use, struct glk_stream *stream)
{
	for (uint64_t left = use->streams; left; left &= left - 1) {
		unsigned bit = (unsigned)__builtin_ctzll(left);
		uint64_t seen = streams->tick;
		int err;

		if (!needs_wait(streams, stream, bit, use))
			continue;
		err = wait_for_bit(streams, stream, bit, use, &seen);
		/* no event to be had: what is left is to wait for the work itself */
		if (err && err != -ENODEV && err != -EAGAIN) {
			seen = use->tick;
			err = glk_clock_sync_use_held(streams, use);
		}
		if (err)
			return err == -EBUSY ? -EAGAIN : err;
		note_seen(streams, stream, bit, use, seen);
	}
	if (glk_stream_foreign(stream, use))
		adopt(streams, use, stream);
	return 0;
}
