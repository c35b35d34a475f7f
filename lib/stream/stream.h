/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_STREAM_STREAM_H
#define GLK_STREAM_STREAM_H

/*
 * The face of this folder: the streams of one GPU, what is known of their progress, and the
 * only way to take a mapping or a page away.
 *
 * Time on a GPU is told in ticks: every free is one. Memory remembers the streams that used
 * it and the tick of its last free (pool/use.h). An event recorded on a stream at tick t
 * covers everything freed on that stream until t, so one event serves any number of frees,
 * and memory that stays on its stream needs none.
 *
 * Life of a stream
 *
 *	LIVE		its handle is known, events can be recorded on it
 *	LEAVING		the program said that it ends: the handle is forgotten, a last event was
 *			recorded, and the stream is there until that has passed
 *	GONE		it ended unannounced: the handle stands for another stream, or for none.
 *			No event can be recorded on it any more; what none covers is known to
 *			have finished when the GPU was waited for, and not before
 */
#include "base/lock.h"
#include "base/slab.h"
#include "base/times.h"
#include "driver/driver.h"
#include "map/map.h"
#include "stream/event.h"

#include <stdbool.h>
#include <stdint.h>

/* Streams told apart by a bit; the ones above share the last one, and a use says which of them it
 * was as long as they were few: pool/use.h. */
#define GLK_STREAM_BITS	 64
#define GLK_STREAM_CROWD (GLK_STREAM_BITS - 1)
/* Most streams of a GPU at a time. */
#define GLK_STREAMS_MAX 4096
/* A bit each, by their numbers, which begin with 1. */
#define GLK_STREAM_WORDS (GLK_STREAMS_MAX / 64 + 1)
_Static_assert(GLK_STREAMS_MAX <= GLK_USE_NAME_MAX, "a use can name each");
/* Events in flight on one stream, on one that copies contents, and of a GPU before a stream has to make do
 * with one. */
#define GLK_STREAM_EVENTS 8
#define GLK_LINE_EVENTS	  64
#define GLK_EVENTS_MAX	  1024

enum glk_stream_state {
	GLK_STREAM_LIVE = 0,
	GLK_STREAM_LEAVING,
	GLK_STREAM_GONE,
};

struct glk_stream_event {
	struct glk_drv_event *event;
	uint64_t tick;
	bool asked; /* and it was pending */
};

struct glk_stream {
	struct CUstream_st *handle;  /* as the driver takes it; poked, see atomic.h */
	glk_atomic(uint64_t) key;    /* as the table knows it, see glk_stream_key() */
	glk_atomic(uint64_t) serial; /* the driver's number of it; 0: not known */
	uint32_t id;
	uint8_t bit; /* poked: see glk_stream_known_mask() */
	uint8_t state;
	bool mute;	 /* it captures a graph: no event can be had from it */
	bool wanted;	 /* by others, for whom it is best that its thread records one */
	uint32_t record; /* of the thread whose default stream it is */
	uint64_t owed;	 /* bytes freed on that since its last event */
	/* Pools of graphs that are open for its capture, which may begin at any moment: nothing is
	 * asked of it or put on it either. */
	uint32_t announced;
	uint64_t freed; /* tick of the last free on it; see glk_stream_freed(). Poked */
	uint64_t done;	/* its work freed until this tick has finished */
	uint32_t next, prev; /* in the crowd */
	/* Those of the crowd that it was ordered behind last, as a use names them, and until which
	 * tick. */
	struct {
		uint64_t named, tick;
	} behind;
	struct glk_stream_event *ring; /* `most` of them: its own, or a line */
	unsigned most, head, count;
	struct glk_stream_event own[GLK_STREAM_EVENTS];
};

/* The key of a slot that is nobody's. */
#define GLK_KEY_NONE (UINT64_MAX - 1)

struct glk_stream_table;
struct glk_note;

/* A thread that waits for an event without the lock. */
struct glk_await {
	struct glk_drv_event *event;
	struct glk_await *other;
	bool dropped; /* nobody else has it any more: it is the thread's to give back */
};

/* Streams of the library that wait for events of the program, and as many as there are when
 * captures have drawn some in. */
#define GLK_COLLECTORS	 4
#define GLK_COLLECT_MOST 16

struct glk_streams {
	struct glk_drv *drv;
	int device;
	struct glk_lock *gpu; /* the lock of the GPU */
	struct glk_lock lock; /* of the table's writers; taken before that of the GPU */
	glk_atomic(struct glk_stream_table *) table;
	struct glk_slab slab;
	/* Under the lock of the GPU: what each miss and free looks at. */
	/* Freed memory of other streams that these used, a bit each, and how much: glk_event_due(). */
	struct {
		uint64_t streams, bytes;
	} due;
	uint64_t tick;
	uint64_t entered; /* streams that ever got a bit */
	uint64_t ended;	  /* streams that ended, in whatever way; poked */
	/* Streams of the library that wait for events of the program; under `lock`. */
	struct {
		struct CUstream_st *stream[GLK_COLLECT_MOST];
		unsigned next;
	} collect;
	/* Under the lock of the GPU from here on. */
	uint32_t by_bit[GLK_STREAM_BITS]; /* first stream of a bit */
	/* The streams of the last bit can be thousands, so what was found of them is kept. */
	struct {
		uint32_t turn; /* to be asked next; 0: the first */
		uint32_t
			witness; /* one whose work had not finished, or that could not be waited for */
		uint64_t passed; /* all have finished what was freed until this tick */
		/* A bit each, by their numbers: those that there are, and those of them that may have work
		 * that was not seen to finish. */
		uint64_t here[GLK_STREAM_WORDS], working[GLK_STREAM_WORDS];
		/* What all of them that live were given until this tick counts. */
		uint64_t joined;
	} crowd;
	uint64_t used;	 /* bits that a stream has */
	uint64_t flying; /* bits whose streams may have events in flight */
	uint64_t seen[GLK_STREAM_BITS][GLK_STREAM_BITS]; /* [waiter][waited for]: tick */
	uint64_t records, waits;
	uint64_t ends
		[GLK_STREAM_WORDS]; /* a bit each: it has, since that was last cleared */
	uint64_t settled;	    /* those of them that went */
	bool legacy_mute; /* no event can be had from the legacy stream, as far as is known */
	bool legacy_captured; /* a stream that waits for it was seen to capture */
	bool stuck; /* a capture was in the way of waiting for the GPU, during this request */
	uint32_t
		captures; /* pools of graphs that are open, so that one may be captured */
	struct {
		struct glk_drv_event *spare[GLK_STREAM_EVENTS * 2];
		unsigned count; /* of spare ones */
		uint32_t made;	/* and not ended */
	} events;
	/* For streams on which so much may be queued that who waits for a part of it must not wait for all. */
	struct {
		struct glk_stream_event ring[GLK_LINE_EVENTS];
		uint32_t stream; /* whose it is; 0: nobody's */
	} line[2];
	struct glk_await *awaited;
	/* Threads that wait for the whole GPU, without the lock; and when the last was told. */
	uint32_t syncing;
	pthread_cond_t synced;
	struct glk_note *notes;	     /* NULL: no event of the program is known */
	uint64_t unmapped, released; /* bytes that went through limbo */
	uint64_t held_back;	     /* times that something was not ready to go */
	glk_atomic(uint64_t) graces; /* grace periods waited for */
	struct glk_times waited;     /* for the work of the GPU */
};

/* Of the memory that is held, the part that is worth an event where several streams used it. */
#define GLK_EVENT_PART 1024

/* Whether glk_event_record_due() has something to record. */
static inline bool glk_event_is_due(const struct glk_streams *streams, uint64_t held)
{
	return streams->due.streams && streams->due.bytes >= held / GLK_EVENT_PART;
}

/* table.c. 0, -ENOMEM. */
int glk_streams_init(struct glk_streams *streams, struct glk_drv *drv, int device,
	struct glk_lock *gpu);
/* Takes a zeroed structure. Ends the events; the streams are the program's. */
void glk_streams_fini(struct glk_streams *streams);

/* That of the default stream of the calling thread. */
uint64_t glk_stream_key_own(void);

/* The number by which a handle is known: the two names of the legacy default stream are one,
 * and that of a thread's own default stream stands for another one in every thread. 0 for the
 * legacy stream; UINT64_MAX where the thread cannot be told from others. */
static inline uint64_t glk_stream_key(const struct CUstream_st *handle)
{
	if (handle == GLK_STREAM_LEGACY)
		return 0;
	return handle == GLK_STREAM_PER_THREAD ? glk_stream_key_own() : (uintptr_t)handle;
}

/* The serial number of the thread whose own default stream a key stands for. */
static inline uint64_t glk_stream_thread(uint64_t key)
{
	return (key - 3) / 4;
}

/* The same for a stream that is known, as a handle that no other stream has at the time. */
static inline struct CUstream_st *glk_stream_name(const struct CUstream_st *handle)
{
	return (struct CUstream_st *)(uintptr_t)glk_stream_key(handle);
}

/*
 * The stream of a handle, known from now on. Any thread, without a lock once it is known. The
 * first time the driver is asked whether it is a stream of this GPU; with `facts`, each time
 * what there is to know of it, and a handle that came back for another stream is recognised.
 * 0; -EINVAL (no stream of this GPU), -ENOMEM (class LIMIT above GLK_STREAMS_MAX), -ENODEV.
 */
int glk_stream_get(struct glk_streams *streams, struct CUstream_st *handle,
	struct glk_stream_facts *facts, uint32_t *ret_stream);
/* As glk_stream_get() if it is known already, and 0 if not; the driver is not asked. */
uint32_t glk_stream_find(struct glk_streams *streams, struct CUstream_st *handle);
static inline struct glk_stream *glk_stream_at(
	const struct glk_streams *streams, uint32_t stream)
{
	return glk_slab_at(&streams->slab, stream);
}

/* For one that is known, by its number and a handle of its own: asks the driver whether it is the same stream still, and
 * captures nothing; else there is more to ask. Any thread, no lock. */
static inline bool glk_stream_is_plain(
	struct glk_streams *streams, uint32_t stream, struct CUstream_st *handle)
{
	const struct glk_stream *s = glk_stream_at(streams, stream);
	uint64_t serial = glk_load_relaxed(&s->serial);
	struct glk_stream_facts facts = {0};

	/* it may have ended, as far as was known, and be another one now */
	return glk_load_relaxed(&s->key) == glk_stream_key(handle) &&
		!streams->drv->ops->stream_facts(
			streams->drv, streams->device, handle, &facts) &&
		!facts.capture && serial && facts.id == serial;
}

/* For one that has none and has not ended. */
void glk_stream_give_bit(struct glk_streams *streams, struct glk_stream *s);

/* Gives it a bit; under the lock of the GPU, before its first use below. One that another thread
 * has ended meanwhile gets none. */
static inline struct glk_stream *glk_stream_enter(
	struct glk_streams *streams, uint32_t stream)
{
	struct glk_stream *s = glk_stream_at(streams, stream);

	/* nothing of one that has ended since it was looked up is under way */
	if (s->bit >= GLK_STREAM_BITS && s->state == GLK_STREAM_LIVE)
		glk_stream_give_bit(streams, s);
	return s;
}

/*
 * leave.c: ends of streams. All that was freed on one is reusable by all when the last event
 * that is known of it has passed.
 */
/* The stream has no more work and its handle will not be used again. Takes both locks. */
void glk_stream_retire(struct glk_streams *streams, struct CUstream_st *handle);
/* The program is about to end it, with work left perhaps. Takes both locks. 0; -ENOENT if it is
 * not known, -EBUSY while it captures a graph. */
int glk_stream_leave(struct glk_streams *streams, struct CUstream_st *handle);
/* It has ended unannounced. Under the lock of the GPU. */
void glk_stream_lose(struct glk_streams *streams, struct glk_stream *s);
/* Takes a stream that has ended out of the sets once nothing of it is under way. Under the lock
 * of the GPU. Whether it went. */
bool glk_stream_settle(struct glk_streams *streams, struct glk_stream *s);

/* Whether nothing of the library may go on a stream. */
static inline bool glk_stream_silent(const struct glk_stream *stream)
{
	return stream->mute || stream->announced;
}

/* clock.c, all under the lock of the GPU. */
static inline uint64_t glk_stream_mask(const struct glk_stream *stream)
{
	return stream->bit < GLK_STREAM_BITS ? UINT64_C(1) << stream->bit : 0;
}

static inline struct glk_use glk_stream_use(
	const struct glk_stream *stream, uint64_t tick)
{
	return (struct glk_use){.streams = glk_stream_mask(stream),
		.tick = tick,
		/* where the bit alone does not tell */
		.named = stream->bit == GLK_STREAM_CROWD ? stream->id : 0};
}

/* Whether other streams are in a use, or may be. */
static inline bool glk_stream_foreign(
	const struct glk_stream *stream, const struct glk_use *use)
{
	return (use->streams & ~glk_stream_mask(stream)) ||
		(stream->bit == GLK_STREAM_CROWD && (use->streams & GLK_USE_CROWD) &&
			use->named != stream->id);
}

/*
 * The same without the lock, for a stream that was looked up; 0: it has no bit, or not yet. A
 * stream that has one keeps it while it lives, so work on it that the caller knows of is what the
 * bit stands for.
 */
static inline uint64_t glk_stream_known_mask(const struct glk_stream *stream)
{
	uint8_t bit = glk_peek_relaxed(&stream->bit);

	return bit < GLK_STREAM_BITS ? UINT64_C(1) << bit : 0;
}

/* Something was freed on a stream at a tick. */
static inline void glk_clock_set_freed(
	struct glk_streams *streams, struct glk_stream *s, uint64_t tick)
{
	glk_poke_relaxed(&s->freed, tick);
	if (s->bit == GLK_STREAM_CROWD)
		streams->crowd.working[s->id / 64] |= UINT64_C(1) << s->id % 64;
}

/* The tick of the last free on it, or of what counts as one for all of the crowd. */
static inline uint64_t glk_stream_freed(
	const struct glk_streams *streams, const struct glk_stream *s)
{
	return s->freed < streams->crowd.joined && s->bit == GLK_STREAM_CROWD &&
			s->state == GLK_STREAM_LIVE
		? streams->crowd.joined
		: s->freed;
}

/* The tick at which all that a stream may have to do with a use has passed. */
static inline uint64_t glk_stream_needs(
	const struct glk_streams *streams, const struct glk_stream *s, uint64_t tick)
{
	uint64_t freed = glk_stream_freed(streams, s);

	return tick < freed ? tick : freed;
}

/* Of one that has ended all that there will ever be is in its last tick; and one without a bit is in no
 * use, but may have the number of one that is. */
static inline void glk_clock_raise(
	struct glk_streams *streams, struct glk_stream *s, uint64_t tick)
{
	if (s->state == GLK_STREAM_LIVE && s->bit < GLK_STREAM_BITS)
		glk_clock_set_freed(streams, s, tick);
}

/* Freed on its own default stream by a thread before it records an event there. */
#define GLK_STREAM_OWN_BYTES ((uint64_t)1 << 20)

/* Whether one may be recorded then: see below. */
static inline bool glk_stream_owes(const struct glk_stream *s, uint64_t bytes)
{
	return s->handle == GLK_STREAM_PER_THREAD &&
		(s->wanted || s->owed + bytes >= GLK_STREAM_OWN_BYTES);
}

/* The calling thread freed so many bytes on a stream, or 0 and asks for some. On its own default stream it records
 * an event after each MiB, and where others want what it freed: theirs would be on the legacy stream. */
static inline void glk_stream_own(
	struct glk_streams *streams, struct glk_stream *s, uint64_t bytes)
{
	if (s->handle == GLK_STREAM_PER_THREAD)
		glk_event_own(streams, s, bytes);
}

/* The first of the crowd behind a number that has work which was not seen to finish; 0: there is none. So the
 * thousands that rest cost nothing. */
uint32_t glk_clock_next_working(struct glk_streams *streams, uint32_t stream);

/* A free of what a stream used, or of what nobody did for NULL: the tick to remember. */
static inline uint64_t glk_clock_tick(
	struct glk_streams *streams, struct glk_stream *stream)
{
	uint64_t tick = ++streams->tick;

	if (stream)
		glk_clock_raise(streams, stream, tick);
	return tick;
}

/* Others used it too: what they have been given so far counts at its tick. */
void glk_clock_join(struct glk_streams *streams, const struct glk_use *use);

/* Whether no more than one stream was ever known: then all memory is in its order. */
static inline bool glk_clock_alone(const struct glk_streams *streams)
{
	return streams->entered < 2;
}

/* Whether all work of a use has finished, as far as is known without asking. */
bool glk_clock_finished(struct glk_streams *streams, const struct glk_use *use);
/* Drops the streams whose work has finished from a use. */
void glk_clock_forget(struct glk_streams *streams, struct glk_use *use);

/* More waits than any place has: a stream cannot be waited for at present. */
#define GLK_WAITS_NEVER (UINT32_C(1) << 24)

/* Added for each wait that is for all that a stream was given until now, since no event in flight tells of
 * the use. */
#define GLK_WAITS_LATE (UINT32_C(1) << 16)

/* Whether `stream` comes behind all of it, as far as is known: then it needs no stream wait before it may reuse the
 * memory. */
bool glk_clock_behind_all(struct glk_streams *streams, const struct glk_use *use,
	const struct glk_stream *stream);
static inline bool glk_clock_behind(struct glk_streams *streams,
	const struct glk_use *use, const struct glk_stream *stream)
{
	uint64_t left = use->streams & ~glk_stream_mask(stream);
	const uint64_t *seen = streams->seen[stream->bit & (GLK_STREAM_BITS - 1)];

	/* nearly always there are few streams */
	if ((use->streams & GLK_USE_CROWD) || stream->bit >= GLK_STREAM_CROWD)
		return glk_clock_behind_all(streams, use, stream);
	for (; left; left &= left - 1) {
		unsigned bit = (unsigned)__builtin_ctzll(left);
		const struct glk_stream *s = glk_stream_at(streams, streams->by_bit[bit]);

		if (seen[bit] < use->tick && streams->by_bit[bit] &&
			s->done < use->tick && s->done < glk_peek_relaxed(&s->freed))
			return false;
	}
	return true;
}
/* Stream waits needed before `stream` may reuse the memory: 0 if it is ordered already. */
unsigned glk_clock_waits(struct glk_streams *streams, const struct glk_use *use,
	const struct glk_stream *stream);
/* Inserts them. The use is the stream's own afterwards. 0; -EAGAIN when one cannot be waited
 * for at present, which glk_clock_waits() knows from now on; or the driver's error. */
int glk_clock_order(
	struct glk_streams *streams, struct glk_use *use, struct glk_stream *stream);
/*
 * sync.c, under the lock of the GPU, which is given up while waiting: for the work of a set of
 * streams that was freed until now, each for itself where that is possible, and else for the GPU.
 * 0; -EBUSY (class CAPTURE) where a capture is in the way of that, with what could be waited for
 * finished all the same; or the driver's error.
 */
int glk_clock_sync(struct glk_streams *streams, uint64_t set);
/* The same for the work of a use and no other, as far as events tell it from what came later. */
int glk_clock_sync_use(struct glk_streams *streams, const struct glk_use *use);
/* Whether a graph is being captured, as far as is known; and 0, or -EBUSY with a record, for that. */
bool glk_clock_captures(struct glk_streams *streams);
int glk_clock_uncaptured(struct glk_streams *streams);
/* Waits for the whole GPU, for streams that nobody knows. Returns as above. */
int glk_clock_sync_all(struct glk_streams *streams);
/* Waits for the whole GPU where work of a set of streams is left that no event can tell of any more, since
 * they ended unannounced. Returns as above. */
int glk_clock_sync_ended(struct glk_streams *streams, uint64_t set);
/* The second of them, with the lock kept: where no event can be had, and where the limbo is patient. */
int glk_clock_sync_use_held(struct glk_streams *streams, const struct glk_use *use);

/* Work that somebody is about to wait for: the sum of many uses, which names more streams of the
 * crowd than each of them. Of too many it waits for all. Zeroed: none. */
#define GLK_WORK_NAMES 64

struct glk_work {
	struct glk_use use;
	uint32_t name[GLK_WORK_NAMES];
	unsigned names;
};

void glk_work_add(struct glk_work *work, const struct glk_use *use);
/* Waits for all of it; returns as glk_clock_sync(). */
int glk_work_sync(struct glk_streams *streams, const struct glk_work *work);
/* Returns when nobody waits for the whole GPU: a capture that began meanwhile would end. */
void glk_clock_quiet(struct glk_streams *streams);

/*
 * note.c, under the lock of the GPU: dependencies that the program made itself. An event is
 * noted before the program records it, a wait after the program made it; so whatever was freed
 * before the one is ordered before whatever is asked for after the other.
 */
int glk_note_record(struct glk_streams *streams, const struct CUevent_st *event,
	const struct glk_stream *s);
void glk_note_wait(struct glk_streams *streams, const struct CUevent_st *event,
	const struct glk_stream *s);
void glk_note_forget(struct glk_streams *streams, const struct CUevent_st *event);
void glk_note_fini(struct glk_streams *streams);

/* collect.c: a stream of the library that waits for events of the program, to be freed on in
 * their place. 0 or the driver's error; -EBUSY (class CAPTURE) for events of a graph. */
int glk_collect(struct glk_streams *streams, struct CUevent_st *const *events,
	size_t count, uint32_t *ret_stream);
void glk_collect_fini(struct glk_streams *streams);

/*
 * limbo.c. One limbo stands for one batch of removals. The lock of the GPU is given up while the
 * driver takes something away.
 */
struct glk_limbo {
	struct glk_streams *streams;
	/* Waits for the GPU where something is not ready, so that the outcome does not depend on
	 * its speed. */
	bool patient;
	/* Memory of graphs: replays are work that no event tells of, so nothing is ever ready. */
	bool closed;
};

#define GLK_LIMBO(s)                                                                     \
	{                                                                                \
		.streams = (s)                                                           \
	}

/* Whether the mappings of a run may go now, by waiting briefly where the limbo is patient. */
bool glk_limbo_ready(const struct glk_limbo *limbo, const struct glk_map *map,
	uint32_t first, uint32_t last);
/* Unmaps a run of whole mappings that are in use by nobody, of pages that are idle or the caller's.
 * -EAGAIN (no record) with nothing changed if one is not ready, else as glk_mapping_remove(). */
int glk_limbo_unmap(
	struct glk_limbo *limbo, struct glk_map *map, uint32_t first, uint32_t last);
/*
 * The same in two steps, and for all mappings that reach into a run and are not usable there, whose
 * pages are in use or in somebody's hands. The first step takes them out of the tables, and adds
 * them to *run, or is -EAGAIN (no record) with nothing changed. The second has to follow, for all
 * of them together, and calls the driver: 0 or its first error. What lies between the first and the
 * last of them is in the hands of the caller.
 */
struct glk_limbo_run {
	uint32_t first, behind; /* slots; empty at the beginning: GLK_NO_SLOT, 0 */
};
int glk_limbo_detach(struct glk_limbo *limbo, struct glk_map *map, uint32_t first,
	uint32_t last, struct glk_limbo_run *run);
int glk_limbo_detach_stale(struct glk_limbo *limbo, struct glk_map *map, uint32_t first,
	uint32_t last, struct glk_limbo_run *run);
int glk_limbo_finish(
	struct glk_limbo *limbo, struct glk_map *map, const struct glk_limbo_run *run);
/* Unmaps an idle page everywhere and releases it, or gives it to the list of its node. -EAGAIN
 * (no record) with nothing changed while a mapping is not ready; the driver's error when the page
 * was lost. */
int glk_limbo_release(struct glk_limbo *limbo, struct glk_map *map, uint32_t page);
int glk_limbo_strip(struct glk_limbo *limbo, struct glk_map *map, uint32_t page);
/* Pages that were sealed and that no block uses any more (map/page/seal.h) are unmapped everywhere and go to the list
 * of their node, or to the driver where other processes may have them, oldest first, but for those that have to wait, which are asked about again last. */
void glk_limbo_reap(struct glk_limbo *limbo, struct glk_map *map);
/* Unmaps all that is mapped, in use by nobody, after the GPU was waited for; pages go to the
 * list of their node. 0, -EBUSY (class CAPTURE) with nothing changed while the GPU cannot be
 * waited for, or the driver's first error. */
int glk_limbo_empty(struct glk_limbo *limbo, struct glk_map *map);
/* Unmaps what was mapped by the request itself and never used on the GPU: needs no clock. */
int glk_limbo_undo(struct glk_map *map, uint32_t first);

#endif
