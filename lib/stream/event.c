/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The library's own events: one covers all frees of its stream so far, so their number does not
 * grow with that of the frees. A stream has a few of them in flight, so that the older ones tell
 * of progress while the newer ones wait; they come from a store of the GPU, and above
 * GLK_EVENTS_MAX of them a stream makes do with one, which moves on.
 *
 * A stream is asked what it does before an event is recorded on it: on one that captures a graph
 * the event would become part of that graph, and on the handle of a stream that has ended it
 * would stand for another one.
 *
 * Memory that several streams used is soon wanted by one of them that did not use it last. Events on the others
 * are recorded at the next request after it was freed, so that who has it waits for its use, and not for what
 * they were given since.
 *
 * A stream that copies contents has a line of them, of which each second one goes when it is full, so that
 * what is queued is told of part by part, however much it is.
 *
 * On the default stream of a thread that thread alone can record one, so it does where it frees memory that
 * others may want. What is left, of threads that have ended and of ones that rest, an event on the legacy stream
 * covers, which begins nothing before the work of such streams is done. A capture on a stream that waits for the
 * legacy one is in the way of that: the driver is asked, but one that begins between the answer and the record is
 * broken by it, or cuEventRecord ends in a segmentation fault (580.159: four and two of 190 000 captures beside four
 * threads that free without a pause). So who was once seen to capture there has it no more for threads that live.
 *
 * All under the lock of the GPU, which no hit takes.
 */
#include "stream/stream.h"

#include "base/error.h"
#include "base/thread.h"

#include <errno.h>
#include <string.h>

/* Streams of the crowd that are asked at a time, and that are looked at. */
#define CROWD_ASKED  32
#define CROWD_LOOKED 512

/* More streams than these are not asked again for one request, and what more of them used is due none. */
#define FEW 8

#define SPARE (sizeof((struct glk_streams *)0)->events.spare / sizeof(void *))

static int take(struct glk_streams *streams, struct glk_drv_event **ret_event)
{
	int err;

	if (streams->events.count) {
		*ret_event = streams->events.spare[--streams->events.count];
		return 0;
	}
	err = streams->drv->ops->event_new(streams->drv, streams->device, ret_event);
	streams->events.made += !err;
	return err;
}

/* To the store; one that threads wait for goes there when the last of them was told. */
static void give(struct glk_streams *streams, struct glk_drv_event *event)
{
	for (struct glk_await *a = streams->awaited; a; a = a->other) {
		if (a->event == event) {
			a->dropped = true;
			return;
		}
	}
	if (streams->events.count < SPARE) {
		streams->events.spare[streams->events.count++] = event;
		return;
	}
	streams->drv->ops->event_free(streams->drv, event);
	streams->events.made--;
}

static void drop_oldest(struct glk_streams *streams, struct glk_stream *s)
{
	give(streams, s->ring[s->head].event);
	s->ring[s->head].event = NULL;
	s->head = (s->head + 1) % s->most;
	s->count--;
	if (!s->count && s->bit < GLK_STREAM_CROWD)
		streams->flying &= ~glk_stream_mask(s);
}

void glk_event_drop(struct glk_streams *streams, struct glk_stream *s, uint64_t tick)
{
	while (s->count && s->ring[s->head].tick <= tick)
		drop_oldest(streams, s);
}

int glk_event_await(struct glk_streams *streams, struct glk_drv_event *event, bool held)
{
	struct glk_await self = {.event = event, .other = streams->awaited};
	struct glk_await **link = &streams->awaited;
	int64_t since = glk_clock_ticks();
	int err;

	streams->awaited = &self;
	if (!held)
		glk_lock_pause(streams->gpu);
	err = streams->drv->ops->event_sync(streams->drv, event);
	if (!held)
		glk_lock_resume(streams->gpu);
	glk_times_since(&streams->waited, since);
	while (*link != &self)
		link = &(*link)->other;
	*link = self.other;
	if (self.dropped)
		give(streams, event);
	return err;
}

void glk_event_fini(struct glk_streams *streams)
{
	while (streams->events.count)
		streams->drv->ops->event_free(
			streams->drv, streams->events.spare[--streams->events.count]);
}

static unsigned last_slot(const struct glk_stream *s)
{
	return (s->head + s->count + s->most - 1) % s->most;
}

uint64_t glk_event_newest(const struct glk_stream *s)
{
	return s->count ? s->ring[last_slot(s)].tick : s->done;
}

bool glk_event_here(const struct glk_stream *s)
{
	return s->handle != GLK_STREAM_PER_THREAD ||
		glk_load_relaxed(&s->key) == glk_stream_key(s->handle);
}

bool glk_event_here_all(const struct glk_streams *streams, const struct glk_use *use)
{
	for (uint64_t left = use->streams & ~GLK_USE_CROWD; left; left &= left - 1) {
		uint32_t id = streams->by_bit[__builtin_ctzll(left)];

		if (id && !glk_event_here(glk_stream_at(streams, id)))
			return false;
	}
	for (uint64_t left = use->named; left; left = glk_use_rest(left)) {
		if (!glk_event_here(glk_stream_at(streams, glk_use_first(left))))
			return false;
	}
	return true;
}

/* Whether it is the default stream of another thread that lives. */
static bool is_others(const struct glk_stream *s)
{
	return !glk_event_here(s) &&
		glk_thread_lives_at(
			s->record, glk_stream_thread(glk_load_relaxed(&s->key)));
}

/* The same where nobody but that thread may record one for it. */
static bool is_left_alone(const struct glk_streams *streams, const struct glk_stream *s)
{
	return streams->legacy_captured && is_others(s);
}

bool glk_event_mute(const struct glk_streams *streams, const struct glk_stream *s)
{
	if (glk_event_here(s))
		return glk_stream_silent(s);
	return streams->legacy_mute || is_left_alone(streams, s);
}

/* On the legacy stream: a capture on a stream that waits for it must not be on its way, nor about to begin. */
static int ready_legacy(struct glk_streams *streams)
{
	struct glk_stream_facts facts = {0};
	int err = 0;

	if (!streams->captures)
		err = streams->drv->ops->stream_facts(
			streams->drv, streams->device, GLK_STREAM_LEGACY, &facts);
	if (err && err != -EINVAL)
		return err;
	streams->legacy_captured |= facts.capture != 0;
	streams->legacy_mute = err || facts.capture || streams->captures;
	return streams->legacy_mute ? -EAGAIN : 0;
}

int glk_event_ready(struct glk_streams *streams, struct glk_stream *s)
{
	uint64_t serial = glk_load_relaxed(&s->serial);
	struct glk_stream_facts facts = {0};
	int err;

	if (s->state != GLK_STREAM_LIVE)
		return -EAGAIN;
	if (!glk_event_here(s))
		return is_left_alone(streams, s) ? -EAGAIN : ready_legacy(streams);
	if (s->announced)
		return -EAGAIN;
	err = streams->drv->ops->stream_facts(
		streams->drv, streams->device, s->handle, &facts);
	if (err && err != -EINVAL)
		return err;
	if (err || (serial && facts.id && facts.id != serial)) {
		glk_stream_lose(streams, s);
		return -EAGAIN;
	}
	s->mute = facts.capture != 0;
	return s->mute ? -EAGAIN : 0;
}

bool glk_event_captures(struct glk_streams *streams, struct glk_stream *s)
{
	if (s->state != GLK_STREAM_LIVE)
		return false;
	if (!glk_event_here(s))
		return ready_legacy(streams) == -EAGAIN;
	return glk_event_ready(streams, s) == -EAGAIN && glk_stream_silent(s);
}

void glk_event_init(struct glk_streams *streams, struct glk_stream *s)
{
	for (unsigned i = 0; i < 2; i++) {
		if (streams->line[i].stream == s->id)
			streams->line[i].stream = 0;
	}
	memset(s->own, 0, sizeof(s->own));
	s->ring = s->own;
	s->most = GLK_STREAM_EVENTS;
}

void glk_event_lengthen(struct glk_streams *streams, uint32_t stream)
{
	struct glk_stream *s = glk_stream_at(streams, stream);

	for (unsigned i = 0; i < 2; i++) {
		if (streams->line[i].stream || s->count || s->ring != s->own)
			continue;
		streams->line[i].stream = stream;
		s->ring = streams->line[i].ring;
		s->most = GLK_LINE_EVENTS;
		memset(s->ring, 0, sizeof(streams->line[i].ring));
		s->head = 0;
	}
}

/* Each second one goes. The newest stays, and the oldest: it would never be seen to pass where the host is as far
 * ahead as a ring is long. */
static void thin_out(struct glk_streams *streams, struct glk_stream *s)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < s->count; i++) {
		struct glk_stream_event *from = &s->ring[(s->head + i) % s->most];
		struct glk_stream_event *to = &s->ring[(s->head + kept) % s->most];
		struct glk_stream_event event = *from;

		from->event = NULL;
		if (i % 2 && i + 1 < s->count) {
			give(streams, event.event);
			continue;
		}
		*to = event;
		kept++;
	}
	s->count = kept;
}

/* Where the next event goes: a new place, or that of the newest, which moves on to now, so that
 * what it covered waits a little longer. */
static int choose_slot(
	struct glk_streams *streams, struct glk_stream *s, unsigned *ret_slot)
{
	bool many = streams->events.made >= GLK_EVENTS_MAX;
	unsigned slot;
	int err;

	if (s->count == s->most && s->ring != s->own && !many)
		thin_out(streams, s);
	slot = (s->head + s->count) % s->most;
	*ret_slot = slot;
	if (s->count == s->most || (s->count && many)) {
		*ret_slot = last_slot(s);
		return 0;
	}
	err = take(streams, &s->ring[slot].event);
	if (err)
		return err;
	s->ring[slot].tick = 0;
	s->count++;
	return 0;
}

/* Takes back a place that was chosen and got no event. */
static void unchoose(struct glk_streams *streams, struct glk_stream *s, unsigned slot)
{
	if (s->ring[slot].tick)
		return;
	give(streams, s->ring[slot].event);
	s->ring[slot].event = NULL;
	s->count--;
}

int glk_event_cover(struct glk_streams *streams, struct glk_stream *s, unsigned *ret_slot)
{
	unsigned slot = last_slot(s);
	int err;

	if (s->count && glk_event_newest(s) >= glk_stream_freed(streams, s)) {
		*ret_slot = slot;
		return 0;
	}
	err = glk_event_ready(streams, s);
	if (!err)
		err = choose_slot(streams, s, &slot);
	if (err)
		return err;
	err = streams->drv->ops->event_record(streams->drv, s->ring[slot].event,
		glk_event_here(s) ? s->handle : GLK_STREAM_LEGACY);
	if (err) {
		unchoose(streams, s, slot);
		if (glk_event_here(s))
			s->mute |= err == -EBUSY;
		else if (err == -EBUSY)
			streams->legacy_mute = streams->legacy_captured = true;
		return err == -EBUSY ? -EAGAIN : err;
	}
	streams->records++;
	streams->flying |= glk_stream_mask(s);
	s->ring[slot].tick = streams->tick;
	s->ring[slot].asked = false;
	*ret_slot = slot;
	return 0;
}

int glk_event_find(struct glk_streams *streams, struct glk_stream *s, uint64_t tick,
	unsigned *ret_slot)
{
	for (unsigned i = 0; i < s->count; i++) {
		unsigned slot = (s->head + i) % s->most;

		if (s->ring[slot].tick >= tick) {
			*ret_slot = slot;
			return 0;
		}
	}
	return glk_event_cover(streams, s, ret_slot);
}

/* Forgets the oldest events of a stream that are done. One that was found pending is asked
 * `again` only where something hangs on it: such an answer costs five times another one. */
static bool ask(struct glk_streams *streams, struct glk_stream *s, bool again)
{
	bool learned = false;

	while (s->count && (again || !s->ring[s->head].asked)) {
		int err = streams->drv->ops->event_query(
			streams->drv, s->ring[s->head].event);

		s->ring[s->head].asked = true;
		if (err)
			break; /* pending; or lost, which the next call tells the user */
		s->done = s->ring[s->head].tick;
		drop_oldest(streams, s);
		learned = true;
	}
	return learned;
}

void glk_event_tell(struct glk_streams *streams, struct glk_stream *s)
{
	ask(streams, s, true);
}

/* For later, where the request that does it has no use for it: its failure is not that of the request. */
static int try_cover(struct glk_streams *streams, struct glk_stream *s)
{
	struct glake_error before = glk_thread_current->error;
	unsigned slot;
	int err = glk_event_cover(streams, s, &slot);

	if (err)
		glk_error_back(&before);
	return err;
}

/* Asks those that were not asked yet, all, or all and records new ones; on the default streams of other threads that
 * live only the last: what is recorded on the legacy stream for one orders those of all threads. */
enum poll { PEEK, ASK, POLL, POLL_LIVING };

/* One for what was freed on a stream since the last. */
static bool cover_rest(struct glk_streams *streams, struct glk_stream *s, enum poll how)
{
	if (s->state != GLK_STREAM_LIVE ||
		glk_event_newest(s) >= glk_stream_freed(streams, s) ||
		s->count == s->most)
		return false;
	/* who it is of does it at its next call */
	s->wanted = is_others(s);
	if (s->wanted && how != POLL_LIVING)
		return false;
	return !try_cover(streams, s) && ask(streams, s, true);
}

static bool poll(struct glk_streams *streams, struct glk_stream *s, enum poll how)
{
	bool learned = ask(streams, s, how != PEEK), mute = glk_event_mute(streams, s);

	if (how >= POLL) {
		learned |= cover_rest(streams, s, how);
		if (streams->legacy_mute && !glk_event_here(s))
			ready_legacy(streams);
	}
	/* its capture is over: it can be waited for again */
	learned |= mute && !glk_event_mute(streams, s);
	glk_stream_settle(streams, s);
	return learned;
}

/* The crowd can be long: a few at a time, by turns. */
static bool poll_crowd(struct glk_streams *streams, enum poll how)
{
	bool learned = false;

	for (uint32_t i = 0; i < CROWD_ASKED; i++) {
		uint32_t id = streams->crowd.turn;

		if (!id)
			id = streams->by_bit[GLK_STREAM_CROWD];
		if (!id)
			break;
		streams->crowd.turn = glk_stream_at(streams, id)->next;
		learned |= poll(streams, glk_stream_at(streams, id), how);
		if (!streams->crowd.turn)
			break;
	}
	return learned;
}

static bool poll_all(struct glk_streams *streams, enum poll how, enum poll crowd)
{
	bool learned = false;
	uint64_t left;

	/* to ask what is there only those with events need be looked at */
	for (left = how >= POLL ? streams->used : streams->flying; left;
		left &= left - 1) {
		unsigned bit = (unsigned)__builtin_ctzll(left);

		if (bit == GLK_STREAM_CROWD)
			learned |= poll_crowd(streams, crowd);
		else
			learned |= poll(streams,
				glk_stream_at(streams, streams->by_bit[bit]), how);
	}
	return learned;
}

/* Whether what a stream has of a use is done, after it was asked. */
static bool poll_for(struct glk_streams *streams, struct glk_stream *s,
	const struct glk_use *use, enum poll how)
{
	if (s->done < glk_stream_needs(streams, s, use->tick))
		poll(streams, s, how);
	return s->done >= glk_stream_needs(streams, s, use->tick);
}

static bool poll_named(
	struct glk_streams *streams, const struct glk_use *use, enum poll how)
{
	for (uint64_t left = use->named; left; left = glk_use_rest(left)) {
		if (!poll_for(streams, glk_stream_at(streams, glk_use_first(left)), use,
			    how))
			return false;
	}
	return true;
}

static bool poll_whole_crowd(
	struct glk_streams *streams, const struct glk_use *use, enum poll how)
{
	uint32_t id = streams->crowd.witness;

	if (id && !poll_for(streams, glk_stream_at(streams, id), use, how))
		return false;
	for (id = 0; (id = glk_clock_next_working(streams, id));) {
		if (poll_for(streams, glk_stream_at(streams, id), use, how))
			continue;
		streams->crowd.witness = id;
		return false;
	}
	return true;
}

bool glk_event_poll_use(
	struct glk_streams *streams, const struct glk_use *use, bool record)
{
	enum poll how = record ? POLL : ASK;

	for (uint64_t left = use->streams & ~GLK_USE_CROWD; left; left &= left - 1) {
		uint32_t id = streams->by_bit[__builtin_ctzll(left)];

		if (id && !poll_for(streams, glk_stream_at(streams, id), use, how))
			return false;
	}
	if (use->named ? !poll_named(streams, use, how)
		       : glk_use_crowded(use) && !poll_whole_crowd(streams, use, how))
		return false;
	return glk_clock_finished(streams, use);
}

bool glk_event_ask_few(struct glk_streams *streams)
{
	unsigned count = (unsigned)__builtin_popcountll(streams->flying & ~GLK_USE_CROWD);

	/* of many it would take long */
	return poll_all(streams, count <= FEW ? ASK : PEEK, PEEK);
}

void glk_event_due(struct glk_streams *streams, uint64_t set, uint64_t bytes)
{
	/* of so many it is not told which they were, or none of them is the one */
	if (!set || __builtin_popcountll(set) > FEW)
		return;
	streams->due.streams |= set;
	streams->due.bytes += bytes;
}

bool glk_event_record_due(struct glk_streams *streams, uint64_t held)
{
	uint64_t left = streams->due.streams & streams->used & ~GLK_USE_CROWD;
	uint64_t before = streams->records, kept = 0;

	if (!glk_event_is_due(streams, held))
		return false;
	for (; left; left &= left - 1) {
		struct glk_stream *s =
			glk_stream_at(streams, streams->by_bit[__builtin_ctzll(left)]);

		if (glk_event_newest(s) >= glk_stream_freed(streams, s))
			continue;
		if (!glk_event_here(s)) {
			kept |= left & -left;
			continue;
		}
		if (s->count == s->most)
			ask(streams, s, true);
		if (s->count == s->most)
			thin_out(streams, s);
		try_cover(streams, s);
	}
	streams->due.streams = kept;
	if (!kept)
		streams->due.bytes = 0;
	return streams->records != before;
}

void glk_event_own(struct glk_streams *streams, struct glk_stream *s, uint64_t bytes)
{
	s->owed += bytes;
	if ((s->owed < GLK_STREAM_OWN_BYTES && !s->wanted) ||
		glk_event_newest(s) >= glk_stream_freed(streams, s))
		return;
	if (s->count == s->most)
		ask(streams, s, true);
	/* one that cannot be had now is tried again when as much was freed */
	try_cover(streams, s);
	s->owed = 0;
	s->wanted = false;
}

bool glk_event_poll_crowd(struct glk_streams *streams)
{
	bool learned = streams->by_bit[GLK_STREAM_CROWD] && poll_crowd(streams, POLL);
	uint32_t steps = 0;

	for (uint32_t id = 0; (id = glk_clock_next_working(streams, id));) {
		struct glk_stream *s = glk_stream_at(streams, id);
		bool bare = glk_event_newest(s) < glk_stream_freed(streams, s) &&
			!glk_event_mute(streams, s);

		learned |= bare && poll(streams, s, POLL);
		steps += bare ? CROWD_LOOKED / CROWD_ASKED : 1;
		if (steps < CROWD_LOOKED)
			continue;
		glk_lock_yield(streams->gpu);
		learned = true;
		steps = 0;
	}
	return learned;
}

void glk_event_poll_whole(struct glk_streams *streams, bool living)
{
	enum poll how = living ? POLL_LIVING : POLL;

	poll_all(streams, how, PEEK);
	streams->crowd.turn = 0;
	for (uint32_t asked = 0; asked < GLK_STREAMS_MAX; asked += CROWD_ASKED) {
		if (!streams->by_bit[GLK_STREAM_CROWD])
			break;
		poll_crowd(streams, how);
		if (!streams->crowd.turn)
			break;
		glk_lock_yield(streams->gpu);
	}
}

bool glk_event_ask(struct glk_streams *streams)
{
	return poll_all(streams, ASK, ASK);
}

bool glk_event_poll(struct glk_streams *streams)
{
	return poll_all(streams, POLL, POLL);
}
