/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_STREAM_EVENT_H
#define GLK_STREAM_EVENT_H

/* Events of the library: event.c. All under the lock of the GPU. */
#include <stdbool.h>
#include <stdint.h>

struct glk_drv_event;
struct glk_stream;
struct glk_streams;
struct glk_use;

/* Asks those in flight that were not asked before, and the others again where few streams have some. Whether
 * anything was learned. */
bool glk_event_ask_few(struct glk_streams *streams);
/* Asks a few of the crowd, by turns, and records events where none covers what was freed: a wait for the crowd is
 * one for each of its streams that is not known to have finished, and would do so with the lock. Here that is given
 * up now and then. Whether anything was learned, or others had the lock. */
bool glk_event_poll_crowd(struct glk_streams *streams);
/* Asks those in flight. */
bool glk_event_ask(struct glk_streams *streams);
/* The same, and records one on streams with frees that none covers; threads that live do so on their own default
 * streams when they next free something there or ask for it. */
bool glk_event_poll(struct glk_streams *streams);
/* The same for the whole crowd, and for streams of threads that live; the lock is given up between two turns of
 * the crowd. */
void glk_event_poll_whole(struct glk_streams *streams, bool living);
/* The rest of glk_stream_own(). */
void glk_event_own(struct glk_streams *streams, struct glk_stream *s, uint64_t bytes);
/* Asks the streams that a use may be of, with events recorded on them where `record`, until one has not finished:
 * of the crowd that one is the first to be asked the next time. Whether the use has finished. */
bool glk_event_poll_use(
	struct glk_streams *streams, const struct glk_use *use, bool record);
/* An event that covers all frees on a stream so far, in flight or just recorded: its place in
 * the ring. 0; -EAGAIN if none can be had at present; or the driver's error. */
int glk_event_cover(
	struct glk_streams *streams, struct glk_stream *s, unsigned *ret_slot);
/* The same of what was freed until a tick, by the oldest one in flight; it may have ended. */
int glk_event_find(struct glk_streams *streams, struct glk_stream *s, uint64_t tick,
	unsigned *ret_slot);
/* Whether its handle means it here: not so for the default streams of other threads. */
bool glk_event_here(const struct glk_stream *s);
/* The same of all streams that a use tells apart. */
bool glk_event_here_all(const struct glk_streams *streams, const struct glk_use *use);
/* Asks the events of a stream, from the oldest on, until one is pending. */
void glk_event_tell(struct glk_streams *streams, struct glk_stream *s);
/* 0 if one that covers a stream can be recorded at present, -EAGAIN if not, or the driver's error. That of
 * another thread is covered by one on the legacy stream, which all later work of such streams waits for too. */
int glk_event_ready(struct glk_streams *streams, struct glk_stream *s);
/* Whether none can be had of a stream, as far as is known. */
bool glk_event_mute(const struct glk_streams *streams, const struct glk_stream *s);
/* Whether it captures a graph, or another that waits for the legacy stream where it is that of another thread;
 * the driver is asked. */
bool glk_event_captures(struct glk_streams *streams, struct glk_stream *s);
/* The tick of the newest event in flight; that of the last one that was done. */
uint64_t glk_event_newest(const struct glk_stream *s);
/* A stream that begins has none, and its own ring. */
void glk_event_init(struct glk_streams *streams, struct glk_stream *s);
/* More events for a stream of the library, as long as it lives, if a line is left. Under the lock. */
void glk_event_lengthen(struct glk_streams *streams, uint32_t stream);
/* Takes the events of a stream that cover no more than a tick out of its ring. */
void glk_event_drop(struct glk_streams *streams, struct glk_stream *s, uint64_t tick);
/*
 * A block of so many bytes was freed, or is about to move, which these streams used, a bit each, beside the one
 * that it was given to. Who has the memory next, on another stream, waits for an event; one that is recorded
 * then is behind all that was queued meanwhile. So one is due, and the next request that is no hit records it;
 * for another thread's default stream the next one of that thread. Where more than 8 streams used a block none
 * is due. No call of the driver.
 */
void glk_event_due(struct glk_streams *streams, uint64_t set, uint64_t bytes);
/* Records those that are due, if the memory behind them is worth it with so many bytes held. Whether any was
 * recorded. */
bool glk_event_record_due(struct glk_streams *streams, uint64_t held);
/* Waits for an event, which may leave its ring meanwhile: the lock is given up, unless `held`. 0 or
 * the driver's error. */
int glk_event_await(struct glk_streams *streams, struct glk_drv_event *event, bool held);
/* Ends all that are spare. */
void glk_event_fini(struct glk_streams *streams);

#endif
