/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the library has to hear of streams: that one ends, or captures, always; and, where
 * preload.events asks for it, which of them the program puts behind which. The latter saves
 * the library a wait of its own where memory goes the same way, and costs every record and every
 * wait something, so it is off by default.
 *
 * Memory that a graph asks for and frees is the driver's: its rules, a free outside of
 * the graph and one more at each launch among them, are those of nodes that only the driver
 * has. So requests of a capture pass through, and are told from others by asking the stream.
 *
 * Waiting for a GPU ends the captures of its streams, and no question shows that one is under way
 * somewhere. So they are counted as they begin and end, and the library is told that there are
 * any by a pool that is open meanwhile and that no request goes to.
 */
#include "front/preload/preload.h"

#include <errno.h>
#include <string.h>

/* Captures known at a time; those above are not counted. */
#define CAPTURES_MAX 256

#define SERVES(fn) glk_preload_called(GLK_PRELOAD_##fn)

static struct capture {
	struct CUstream_st *stream;
	pthread_t thread; /* of a thread's own stream, which has no other name */
	struct CUctx_st *context;
	struct glk_preload_seat *seat; /* that was told, or NULL */
} captures[CAPTURES_MAX];

static glk_atomic(int) capture_count; /* written under the lock */

/*
 * Streams that the program has destroyed while they took part in the capture of another. The
 * library cannot tell then what is left on them, and would ask the driver about a handle that is
 * no stream's later. So they go when that capture is over.
 */
#define LEAVING_MAX 64

static struct CUstream_st *leaving[LEAVING_MAX];
static glk_atomic(int) leaving_count; /* written under the lock */

bool glk_preload_capturing(void)
{
	return glk_load_relaxed(&capture_count) > 0;
}

static bool is_for_nobody(struct CUstream_st *stream, void *arg)
{
	return false;
}

static const struct glake_pool_id nobodys = {.high = UINT64_MAX, .low = UINT64_MAX};

/* Under the lock. */
static void tell(struct capture *capture, struct glk_preload_seat *seat)
{
	capture->seat = seat;
	if (!seat || seat->captures++ || !glk_preload_in(seat))
		return;
	if (glk_library.pool_begin_for(
		    seat->glake, seat->device, nobodys, is_for_nobody, NULL))
		glk_preload_log(GLAKE_LOG_WARNING,
			"GPU %d: a capture may end when memory is short", seat->device);
	glk_preload_out(seat);
}

static void tell_end(struct glk_preload_seat *seat)
{
	if (!seat || --seat->captures || !glk_preload_in(seat))
		return;
	/* the pool stays, empty: to release it is to wait for the GPU */
	glk_library.pool_end(seat->glake, seat->device, nobodys);
	glk_preload_out(seat);
}

/* Its place, or -1. Under the lock. */
static int find(struct CUstream_st *stream)
{
	for (int i = 0; i < glk_load_relaxed(&capture_count); i++)
		if (captures[i].stream == stream &&
			(stream != GLK_CU_STREAM_PER_THREAD ||
				pthread_equal(captures[i].thread, pthread_self())))
			return i;
	return -1;
}

static void drop(struct CUstream_st *stream)
{
	struct glk_preload_seat *seat;
	int at, last;

	if (!glk_preload_capturing())
		return;
	pthread_mutex_lock(&glk_preload_lock);
	at = find(stream);
	if (at >= 0) {
		seat = captures[at].seat;
		last = glk_load_relaxed(&capture_count) - 1;
		captures[at] = captures[last];
		glk_store_relaxed(&capture_count, last);
		tell_end(seat);
	}
	pthread_mutex_unlock(&glk_preload_lock);
}

/* A seat that was made while streams of its GPU captured. */
static void adopt(struct glk_preload_seat *seat)
{
	if (!glk_preload_capturing())
		return;
	pthread_mutex_lock(&glk_preload_lock);
	for (int i = 0; i < glk_load_relaxed(&capture_count); i++)
		if (!captures[i].seat && captures[i].context == seat->context)
			tell(&captures[i], seat);
	pthread_mutex_unlock(&glk_preload_lock);
}

/* Before it begins. Whether it is counted. */
static bool begins(bool serves, struct CUstream_st *stream)
{
	struct glk_preload_seat *seat = serves ? glk_preload_seat_known(stream) : NULL;
	struct CUctx_st *context = serves ? glk_preload_context(stream) : NULL;
	bool counted = false;
	int count;

	/* one that captures already is refused by the driver */
	if (!context || glk_preload_captures(stream))
		return false;
	glk_preload_on_seat(adopt);
	pthread_mutex_lock(&glk_preload_lock);
	count = glk_load_relaxed(&capture_count);
	if (count < CAPTURES_MAX && find(stream) < 0) {
		captures[count] = (struct capture){
			.stream = stream, .thread = pthread_self(), .context = context};
		glk_store_relaxed(&capture_count, count + 1);
		tell(&captures[count], seat);
		counted = true;
	}
	pthread_mutex_unlock(&glk_preload_lock);
	/* a seat that was made meanwhile has not met the capture, nor the capture it */
	if (counted && !seat && (seat = glk_preload_seat_known(stream)))
		adopt(seat);
	return counted;
}

static glk_cu_result began(glk_cu_result result, bool counted, struct CUstream_st *stream)
{
	if (result && counted)
		drop(stream);
	return result;
}

static int tell_stream_end(struct glk_preload_seat *seat, struct CUstream_st *stream)
{
	int err;

	if (!glk_preload_in(seat))
		return 0;
	err = glk_library.stream_end(seat->glake, seat->device, stream);
	glk_preload_out(seat);
	return err;
}

static glk_cu_result end_stream(struct CUstream_st *stream);

/* Destroys those that took part in a capture which is over. */
static void destroy_leaving(void)
{
	struct CUstream_st *streams[LEAVING_MAX];
	int count, kept = 0;

	if (!glk_load_relaxed(&leaving_count))
		return;
	pthread_mutex_lock(&glk_preload_lock);
	count = glk_load_relaxed(&leaving_count);
	memcpy(streams, leaving, (size_t)count * sizeof(*streams));
	glk_store_relaxed(&leaving_count, 0);
	pthread_mutex_unlock(&glk_preload_lock);
	for (int i = 0; i < count; i++)
		if (glk_preload_captures(streams[i]))
			streams[kept++] = streams[i];
		else
			end_stream(streams[i]);
	pthread_mutex_lock(&glk_preload_lock);
	for (int i = 0; i < kept && glk_load_relaxed(&leaving_count) < LEAVING_MAX; i++) {
		leaving[glk_load_relaxed(&leaving_count)] = streams[i];
		glk_add_relaxed(&leaving_count, 1);
	}
	pthread_mutex_unlock(&glk_preload_lock);
}

/* A stream that captures is to be destroyed, of which the library knows. 0: its capture has been
 * given up; -EINPROGRESS: it takes part in that of another, and is destroyed when that is over;
 * -ENOSPC. */
static int leave(struct CUstream_st *stream)
{
	struct CUgraph_st *graph = NULL;
	int err = -EINPROGRESS;

	pthread_mutex_lock(&glk_preload_lock);
	if (find(stream) >= 0)
		err = 0;
	else if (glk_load_relaxed(&leaving_count) == LEAVING_MAX)
		err = -ENOSPC;
	else
		leaving[glk_add_relaxed(&leaving_count, 1)] = stream;
	pthread_mutex_unlock(&glk_preload_lock);
	if (!err && glk_preload_next()->cuStreamEndCapture) {
		glk_preload_next()->cuStreamEndCapture(stream, &graph);
		if (graph)
			glk_preload_next()->cuGraphDestroy(graph);
		drop(stream);
		destroy_leaving();
	}
	return err;
}

/* The library is told right before: the handle may come back for another stream. */
static glk_cu_result end_stream(struct CUstream_st *stream)
{
	struct glk_preload_seat *seat = glk_preload_seat_known(stream);

	if (seat && tell_stream_end(seat, stream) == -EBUSY &&
		glk_preload_captures(stream)) {
		if (leave(stream) == -EINPROGRESS)
			return GLK_CU_SUCCESS;
		tell_stream_end(seat, stream);
	}
	drop(stream);
	return GLK_PRELOAD_PASS(cuStreamDestroy_v2, stream);
}

static glk_cu_result ended(glk_cu_result result, bool serves, struct CUstream_st *stream)
{
	/* refused in another thread than its own, it goes on */
	if (serves && glk_preload_capturing() && !glk_preload_captures(stream)) {
		drop(stream);
		destroy_leaving();
	}
	return result;
}

glk_cu_result cuStreamBeginCapture(struct CUstream_st *stream)
{
	bool counted = begins(SERVES(cuStreamBeginCapture), stream);

	return began(GLK_PRELOAD_PASS(cuStreamBeginCapture, stream), counted, stream);
}

glk_cu_result cuStreamBeginCapture_ptsz(struct CUstream_st *stream)
{
	struct CUstream_st *named = glk_preload_of_thread(stream);
	bool counted = begins(SERVES(cuStreamBeginCapture_ptsz), named);

	return began(GLK_PRELOAD_PASS(cuStreamBeginCapture_ptsz, stream), counted, named);
}

glk_cu_result cuStreamBeginCapture_v2(
	struct CUstream_st *stream, glk_cu_capture_mode mode)
{
	bool counted = begins(SERVES(cuStreamBeginCapture_v2), stream);

	return began(
		GLK_PRELOAD_PASS(cuStreamBeginCapture_v2, stream, mode), counted, stream);
}

glk_cu_result cuStreamBeginCapture_v2_ptsz(
	struct CUstream_st *stream, glk_cu_capture_mode mode)
{
	struct CUstream_st *named = glk_preload_of_thread(stream);
	bool counted = begins(SERVES(cuStreamBeginCapture_v2_ptsz), named);

	return began(GLK_PRELOAD_PASS(cuStreamBeginCapture_v2_ptsz, stream, mode),
		counted, named);
}

glk_cu_result cuStreamBeginCaptureToGraph(struct CUstream_st *stream,
	struct CUgraph_st *graph, struct CUgraphNode_st *const *nodes,
	const struct CUgraphEdgeData_st *edges, size_t count, glk_cu_capture_mode mode)
{
	bool counted = begins(SERVES(cuStreamBeginCaptureToGraph), stream);

	return began(GLK_PRELOAD_PASS(cuStreamBeginCaptureToGraph, stream, graph, nodes,
			     edges, count, mode),
		counted, stream);
}

glk_cu_result cuStreamBeginCaptureToGraph_ptsz(struct CUstream_st *stream,
	struct CUgraph_st *graph, struct CUgraphNode_st *const *nodes,
	const struct CUgraphEdgeData_st *edges, size_t count, glk_cu_capture_mode mode)
{
	struct CUstream_st *named = glk_preload_of_thread(stream);
	bool counted = begins(SERVES(cuStreamBeginCaptureToGraph_ptsz), named);

	return began(GLK_PRELOAD_PASS(cuStreamBeginCaptureToGraph_ptsz, stream, graph,
			     nodes, edges, count, mode),
		counted, named);
}

glk_cu_result cuStreamEndCapture(
	struct CUstream_st *stream, struct CUgraph_st **ret_graph)
{
	bool serves = SERVES(cuStreamEndCapture);

	return ended(
		GLK_PRELOAD_PASS(cuStreamEndCapture, stream, ret_graph), serves, stream);
}

glk_cu_result cuStreamEndCapture_ptsz(
	struct CUstream_st *stream, struct CUgraph_st **ret_graph)
{
	bool serves = SERVES(cuStreamEndCapture_ptsz);

	return ended(GLK_PRELOAD_PASS(cuStreamEndCapture_ptsz, stream, ret_graph), serves,
		glk_preload_of_thread(stream));
}

glk_cu_result cuStreamDestroy_v2(struct CUstream_st *stream)
{
	if (!SERVES(cuStreamDestroy_v2) || !stream)
		return GLK_PRELOAD_PASS(cuStreamDestroy_v2, stream);
	return end_stream(stream);
}

/* Before the record. */
static void record(bool serves, struct CUevent_st *event, struct CUstream_st *stream)
{
	struct glk_preload_seat *seat = serves ? glk_preload_seat_known(stream) : NULL;

	if (!seat || !event || !glk_preload_in(seat))
		return;
	glk_library.event_recorded(seat->glake, seat->device, event, stream);
	glk_preload_out(seat);
}

/* After the wait. */
static glk_cu_result wait(glk_cu_result result, bool serves, struct CUstream_st *stream,
	struct CUevent_st *event)
{
	struct glk_preload_seat *seat = NULL;

	if (serves && !result && event)
		seat = glk_preload_seat_known(stream);
	if (!seat || !glk_preload_in(seat))
		return result;
	glk_library.stream_waited(seat->glake, seat->device, stream, event);
	glk_preload_out(seat);
	return result;
}

static bool notes(enum glk_preload_id id)
{
	return glk_preload_called(id) && glk_preload_conf()->events;
}

glk_cu_result cuEventRecord(struct CUevent_st *event, struct CUstream_st *stream)
{
	record(notes(GLK_PRELOAD_cuEventRecord), event, stream);
	return GLK_PRELOAD_PASS(cuEventRecord, event, stream);
}

glk_cu_result cuEventRecord_ptsz(struct CUevent_st *event, struct CUstream_st *stream)
{
	record(notes(GLK_PRELOAD_cuEventRecord_ptsz), event,
		glk_preload_of_thread(stream));
	return GLK_PRELOAD_PASS(cuEventRecord_ptsz, event, stream);
}

glk_cu_result cuEventRecordWithFlags(
	struct CUevent_st *event, struct CUstream_st *stream, unsigned int flags)
{
	record(notes(GLK_PRELOAD_cuEventRecordWithFlags), event, stream);
	return GLK_PRELOAD_PASS(cuEventRecordWithFlags, event, stream, flags);
}

glk_cu_result cuEventRecordWithFlags_ptsz(
	struct CUevent_st *event, struct CUstream_st *stream, unsigned int flags)
{
	record(notes(GLK_PRELOAD_cuEventRecordWithFlags_ptsz), event,
		glk_preload_of_thread(stream));
	return GLK_PRELOAD_PASS(cuEventRecordWithFlags_ptsz, event, stream, flags);
}

glk_cu_result cuStreamWaitEvent(
	struct CUstream_st *stream, struct CUevent_st *event, unsigned int flags)
{
	bool serves = notes(GLK_PRELOAD_cuStreamWaitEvent);

	return wait(GLK_PRELOAD_PASS(cuStreamWaitEvent, stream, event, flags), serves,
		stream, event);
}

glk_cu_result cuStreamWaitEvent_ptsz(
	struct CUstream_st *stream, struct CUevent_st *event, unsigned int flags)
{
	bool serves = notes(GLK_PRELOAD_cuStreamWaitEvent_ptsz);

	return wait(GLK_PRELOAD_PASS(cuStreamWaitEvent_ptsz, stream, event, flags),
		serves, glk_preload_of_thread(stream), event);
}

/* An event of a GPU may have been waited for on others. */
glk_cu_result cuEventDestroy_v2(struct CUevent_st *event)
{
	struct glk_preload_seat *seat;

	for (int i = 0; i < GLK_PRELOAD_GPUS_MAX && event; i++) {
		seat = notes(GLK_PRELOAD_cuEventDestroy_v2) ? glk_preload_seat_at(i)
							    : NULL;
		if (!seat || !glk_preload_in(seat))
			continue;
		glk_library.event_forget(seat->glake, seat->device, event);
		glk_preload_out(seat);
	}
	return GLK_PRELOAD_PASS(cuEventDestroy_v2, event);
}
