/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the library has to hear of streams: that one ends, always; and, where
 * preload.events asks for it, which of them the program puts behind which. The latter saves
 * the library a wait of its own where memory goes the same way, and costs every record and every
 * wait something, so it is off by default.
 */
#include "front/preload/preload.h"

#include <errno.h>

#define SERVES(fn) glk_preload_called(GLK_PRELOAD_##fn)

glk_cu_result cuStreamDestroy_v2(struct CUstream_st *stream)
{
	if (!SERVES(cuStreamDestroy_v2) || !stream)
		return GLK_PRELOAD_PASS(cuStreamDestroy_v2, stream);
	return glk_preload_stream_end(stream);
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
