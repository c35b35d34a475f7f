/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Events tell when queued work has passed. They carry no timing, which makes recording and
 * querying cheap. An event belongs to one GPU and is recorded on streams of that GPU; any
 * stream may wait for it.
 *
 * A query asks the driver with the thread's capture mode relaxed: plainly asked, while any
 * stream captures a graph in global mode, it would fail and break that capture.
 *
 * A query needs no current context, nor do a record and a wait on a real stream, and they get
 * none unless the driver asks for it: a push and a pop cost 0.06 us. Only the default streams
 * are those of the context that is current.
 *
 * Events live in a table of type-stable slots, so close finds the ones left over, and an
 * event ended twice is an answer and no crash.
 */
#include "driver/cuda_state.h"

#include <errno.h>

static int stale(const char *operation)
{
	return glk_error(
		-EINVAL, GLAKE_ERROR_INVAL, "%s of an event that was ended", operation);
}

/* pairs with: the release in glk_cuda_event_new */
static struct CUevent_st *event_of(struct glk_drv_event *event)
{
	return glk_load_acquire(&event->event);
}

int glk_cuda_event_new(struct glk_drv *drv, int device, struct glk_drv_event **ret_event)
{
	struct glk_cuda *cuda = glk_cuda_of(drv);
	struct CUevent_st *event = NULL;
	struct glk_cuda_scope scope;
	struct glk_drv_event *slot;
	glk_cu_result result;
	uint32_t id;
	int err;

	err = glk_cuda_enter(cuda, device, &scope);
	if (err)
		return err;
	id = glk_slab_get(&cuda->events);
	if (!id) {
		err = -ENOMEM;
		goto leave;
	}
	glk_cuda_relax(cuda, &scope);
	result = cuda->lib->cuEventCreate(&event, GLK_CU_EVENT_DISABLE_TIMING);
	if (result) {
		err = glk_cuda_fail(
			cuda->lib, "cuEventCreate", result, "an event on GPU %d", device);
		goto put;
	}
	slot = glk_slab_at(&cuda->events, id);
	slot->device = device;
	slot->id = id;
	glk_store_release(&slot->event, event); /* pairs with: event_of */
	*ret_event = slot;
	goto leave;
put:
	glk_slab_put(&cuda->events, id);
leave:
	glk_cuda_leave(cuda, &scope);
	return err;
}

int glk_cuda_event_free(struct glk_drv *drv, struct glk_drv_event *event)
{
	struct glk_cuda *cuda = glk_cuda_of(drv);
	struct glk_cuda_scope scope;
	struct CUevent_st *handle;
	glk_cu_result result = GLK_CU_SUCCESS;
	int err;

	if (glk_cuda_exiting())
		return 0;
	err = glk_cuda_alive(cuda);
	if (err)
		return err;
	/* pairs with: the release in glk_cuda_event_new; one of two that end it wins */
	handle = glk_xchg_acq_rel(&event->event, NULL);
	if (!handle)
		return stale("end");
	/* it ended with its context, if that was reset */
	if (!glk_cuda_intact(cuda, event->device)) {
		glk_cuda_enter_any(cuda, &scope);
		glk_cuda_relax(cuda, &scope);
		result = cuda->lib->cuEventDestroy(handle);
		glk_cuda_leave(cuda, &scope);
	}
	glk_slab_put(&cuda->events, event->id);
	if (result && result != GLK_CU_DEINITIALIZED)
		return glk_cuda_fail(
			cuda->lib, "cuEventDestroy", result, "the end of an event");
	return 0;
}

int glk_cuda_event_record(
	struct glk_drv *drv, struct glk_drv_event *event, struct CUstream_st *stream)
{
	struct glk_cuda *cuda = glk_cuda_of(drv);
	struct CUevent_st *handle = event_of(event);
	struct glk_cuda_scope scope;
	glk_cu_result result;
	int err;

	if (!handle)
		return stale("record");
	err = glk_cuda_intact(cuda, event->device);
	if (err)
		return err;
	result = glk_stream_is_default(stream) ? GLK_CU_INVALID_CONTEXT
					       : cuda->lib->cuEventRecord(handle, stream);
	if (result == GLK_CU_INVALID_CONTEXT) {
		err = glk_cuda_enter(cuda, event->device, &scope);
		if (err)
			return err;
		result = cuda->lib->cuEventRecord(handle, stream);
		glk_cuda_leave(cuda, &scope);
	}
	if (result)
		return glk_cuda_fail(cuda->lib, "cuEventRecord", result,
			"an event of GPU %d on a stream", event->device);
	return 0;
}

/* A query or a wait of the host, in relaxed mode. */
static glk_cu_result ask(struct glk_cuda *cuda,
	glk_cu_result (*call)(struct CUevent_st *), struct CUevent_st *handle,
	struct glk_cuda_scope *scope)
{
	glk_cu_result result;

	glk_cuda_relax(cuda, scope);
	result = call(handle);
	glk_cuda_leave(cuda, scope);
	return result;
}

static int asked(struct glk_cuda *cuda, struct glk_drv_event *event, const char *name,
	glk_cu_result (*call)(struct CUevent_st *))
{
	struct CUevent_st *handle = event_of(event);
	struct glk_cuda_scope scope = {0};
	glk_cu_result result;
	int err;

	if (!handle)
		return stale(name);
	err = glk_cuda_intact(cuda, event->device);
	if (err)
		return err;
	result = ask(cuda, call, handle, &scope);
	if (result == GLK_CU_INVALID_CONTEXT) {
		err = glk_cuda_enter(cuda, event->device, &scope);
		if (err)
			return err;
		result = ask(cuda, call, handle, &scope);
	}
	if (result)
		return glk_cuda_fail(
			cuda->lib, name, result, "an event of GPU %d", event->device);
	return 0;
}

int glk_cuda_event_query(struct glk_drv *drv, struct glk_drv_event *event)
{
	struct glk_cuda *cuda = glk_cuda_of(drv);

	return asked(cuda, event, "cuEventQuery", cuda->lib->cuEventQuery);
}

int glk_cuda_event_sync(struct glk_drv *drv, struct glk_drv_event *event)
{
	struct glk_cuda *cuda = glk_cuda_of(drv);

	return asked(cuda, event, "cuEventSynchronize", cuda->lib->cuEventSynchronize);
}

int glk_cuda_stream_wait(
	struct glk_drv *drv, struct CUstream_st *stream, struct glk_drv_event *event)
{
	struct glk_cuda *cuda = glk_cuda_of(drv);
	struct CUevent_st *handle = event_of(event);
	struct glk_cuda_scope scope;
	glk_cu_result result;
	int err;

	if (!handle)
		return stale("wait");
	err = glk_cuda_intact(cuda, event->device);
	if (err)
		return err;
	result = glk_stream_is_default(stream)
		? GLK_CU_INVALID_CONTEXT
		: cuda->lib->cuStreamWaitEvent(stream, handle, 0);
	if (result == GLK_CU_INVALID_CONTEXT) {
		err = glk_cuda_enter(cuda, event->device, &scope);
		if (err)
			return err;
		result = cuda->lib->cuStreamWaitEvent(stream, handle, 0);
		glk_cuda_leave(cuda, &scope);
	}
	if (result)
		return glk_cuda_fail(cuda->lib, "cuStreamWaitEvent", result,
			"a stream behind an event of GPU %d", event->device);
	return 0;
}

unsigned glk_cuda_events_end(struct glk_cuda *cuda)
{
	uint32_t used = glk_load_relaxed(&cuda->events.used);
	struct glk_drv_event *slot;
	struct CUevent_st *handle;
	unsigned count = 0;

	for (uint32_t id = 1; id <= used; id++) {
		slot = glk_slab_at(&cuda->events, id);
		/* pairs with: the release in glk_cuda_event_new */
		handle = glk_xchg_acq_rel(&slot->event, NULL);
		if (!handle)
			continue;
		if (!glk_cuda_intact(cuda, slot->device))
			cuda->lib->cuEventDestroy(handle);
		count++;
	}
	return count;
}
