/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLAKE_STREAM_H
#define GLAKE_STREAM_H

#include <glake/export.h>

GLAKE_BEGIN_DECLS

struct glake;
struct CUstream_st;
struct CUevent_st;

/*
 * Makes a stream on a GPU of the context: a non-blocking CUDA stream, or a stream of the
 * software device. Programs that use CUDA hand their own streams to glake_alloc instead.
 *
 * Returns 0, or -EINVAL (no such device), -ESTALE, -ENOMEM (class LIMIT: as many as the
 * software device can have), -EIO, -ENODEV (device lost, or in a forked child).
 * Thread: any. Blocks: briefly. Driver calls: one.
 */
GLAKE_EXPORT int glake_stream_new(
	struct glake *ctx, int device, struct CUstream_st **ret_stream);

/*
 * Ends a stream of glake_stream_new after its work is done; blocks freed on it become
 * reusable by all. NULL does nothing.
 *
 * Returns 0, or -EINVAL (not a stream of this context), -ESTALE, -EIO, -ENODEV (device lost, or
 * in a forked child).
 * Thread: any; nobody may use the stream meanwhile. Blocks: until its work is done. Driver
 * calls: a wait for it, and its end.
 */
GLAKE_EXPORT int glake_stream_free(
	struct glake *ctx, int device, struct CUstream_st *stream);

/*
 * Says that a stream of the program is about to be destroyed. Call it right before
 * cuStreamDestroy or cudaStreamDestroy, when no other thread uses the stream any more: its
 * handle may come back for another stream, which must not be taken for this one, and a
 * driver that is asked about a handle that is no stream's may end the process (580.159
 * does). Work may be left on it: what was freed on it becomes reusable by all when that has
 * passed. A stream that was never seen is no error.
 *
 * Returns 0, or -EINVAL (no such device), -EBUSY (CAPTURE: it captures a graph), -ESTALE,
 * -ENODEV (in a forked child).
 * Thread: any. Blocks: briefly. Driver calls: an event record.
 */
GLAKE_EXPORT int glake_stream_end(
	struct glake *ctx, int device, struct CUstream_st *stream);

/*
 * Dependencies between streams. A program that puts one stream behind another by an event and
 * tells the library saves it a wait of its own when memory goes the same way.
 *
 * Either the library makes the two calls and notes them: glake_event_record and
 * glake_stream_wait. Or the program makes them and tells: glake_event_recorded *before* it
 * records the event, glake_stream_waited *after* the wait. If waits for an event are told,
 * all its records must be, and what is done and told of one event comes one after the other:
 * no wait begins between the note of a record and the record. An event that is destroyed is
 * forgotten by glake_event_forget, or by glake_event_free for those of glake_event_new,
 * which makes one without timing.
 *
 * On a stream that captures a graph nothing is noted: the order of a graph is its own.
 *
 * Return 0, or -EINVAL (no such device, no stream of that GPU, no event), -ENOMEM, -ESTALE,
 * -EIO, -ENODEV (device lost, or in a forked child).
 * Thread: any. Blocks: briefly. Driver calls: the one they stand for, and a question about the
 * stream.
 */
GLAKE_EXPORT int glake_event_new(
	struct glake *ctx, int device, struct CUevent_st **ret_event);
GLAKE_EXPORT int glake_event_free(
	struct glake *ctx, int device, struct CUevent_st *event);
GLAKE_EXPORT int glake_event_record(struct glake *ctx, int device,
	struct CUevent_st *event, struct CUstream_st *stream);
GLAKE_EXPORT int glake_stream_wait(struct glake *ctx, int device,
	struct CUstream_st *stream, struct CUevent_st *event);
GLAKE_EXPORT int glake_event_recorded(struct glake *ctx, int device,
	const struct CUevent_st *event, struct CUstream_st *stream);
GLAKE_EXPORT int glake_stream_waited(struct glake *ctx, int device,
	struct CUstream_st *stream, const struct CUevent_st *event);
GLAKE_EXPORT int glake_event_forget(
	struct glake *ctx, int device, const struct CUevent_st *event);

GLAKE_END_DECLS

#endif
