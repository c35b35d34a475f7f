/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Events of the software device. A record is an operation in a queue; the event remembers the
 * slot and the serial number of its latest record, and so does every wait. It has passed when
 * the slot no longer holds that serial number. So an event may be recorded again, or freed,
 * while older records of it are waited for, as with the driver.
 *
 * Events of the library and of the program differ in the kind of their handles alone.
 */
#include "soft/graph.h"

#include "base/error.h"
#include "soft/handle.h"

#include <errno.h>

static struct soft_event *event_at(const struct soft *soft, uint32_t id)
{
	return glk_slab_at(&soft->events, id);
}

static uint32_t event_id(const struct soft *soft, const struct soft_event *e)
{
	return (uint32_t)((size_t)((const char *)e - soft->events.base) /
		soft->events.slot);
}

static struct soft_event *event_find(const struct soft *soft, uint64_t handle,
	enum glk_handle_kind kind, const char *call)
{
	uint32_t id = glk_handle_id(handle);
	struct soft_event *e = NULL;

	if (glk_handle_is(handle, kind) && id && id <= SOFT_EVENTS)
		e = event_at(soft, id);
	if (e && e->live && (e->gen & GLK_HANDLE_GEN_MASK) == glk_handle_gen(handle))
		return e;
	glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, call, 400,
		"%#lx is no event of the software device, or was freed",
		(unsigned long)handle);
	return NULL;
}

static int event_new(
	struct soft *soft, int device, enum glk_handle_kind kind, uint64_t *ret_handle)
{
	struct soft_event *e;
	uint32_t id;

	if (device < 0 || device >= soft->gpus)
		return glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, "cuEventCreate", 101,
			"GPU %d does not exist", device);
	id = glk_slab_get(&soft->events);
	if (!id)
		return -ENOMEM;
	glk_soft_charge(soft, GLAKE_CALL_EVENT_CREATE, 1);
	glk_soft_enter(soft);
	e = event_at(soft, id);
	*e = (struct soft_event){.gen = e->gen + 1, .device = device, .live = true};
	*ret_handle = glk_handle_make(kind, (uint32_t)device, e->gen, id);
	glk_unlock(&soft->lock);
	return 0;
}

static int event_free(struct soft *soft, uint64_t handle, enum glk_handle_kind kind)
{
	struct soft_event *e;

	glk_soft_enter(soft);
	e = event_find(soft, handle, kind, "cuEventDestroy");
	if (e) {
		e->live = false;
		glk_slab_put(&soft->events, glk_handle_id(handle));
	}
	glk_unlock(&soft->lock);
	return e ? 0 : -EINVAL;
}

/* The legacy stream of a GPU, which is that in slot n + 1, is behind the default streams of threads there. */
static int join_threads(struct soft *soft, uint32_t legacy)
{
	uint32_t used = glk_load_relaxed(&soft->streams.used), slot;
	int err = 0;

	for (uint32_t id = 1; id <= used && !err; id++) {
		const struct soft_stream *s = soft_stream_at(soft, id);
		struct soft_op op = {.kind = SOFT_WAIT, .target = s->tail};

		if (!s->live || !s->thread || !s->tail ||
			s->device != soft_stream_at(soft, legacy)->device)
			continue;
		op.target_serial = soft_op_at(soft, s->tail)->serial;
		err = glk_soft_race_add(soft, legacy, &op, &slot);
	}
	return err;
}

/* On a stream that captures nothing. */
static int record(struct soft *soft, struct soft_event *e, uint32_t stream)
{
	struct soft_op op = {.kind = SOFT_RECORD, .value = event_id(soft, e)};
	uint32_t slot;
	int err = 0;

	if (stream <= (uint32_t)soft->gpus)
		err = join_threads(soft, stream);
	if (!err)
		err = glk_soft_race_add(soft, stream, &op, &slot);
	if (err)
		return err;
	e->op = slot;
	e->serial = slot ? soft_op_at(soft, slot)->serial : 0;
	e->recorded = true;
	e->capture = 0;
	return 0;
}

static int wait(struct soft *soft, const struct soft_event *e, uint32_t stream)
{
	struct soft_op op = {.kind = SOFT_WAIT,
		.target = e->op,
		.target_serial = e->serial,
		.value = event_id(soft, e)};
	uint32_t slot;

	if (glk_soft_queue_is_done(soft, e->op, e->serial)) {
		glk_soft_link_run(soft, soft_stream_at(soft, stream), &op);
		return 0;
	}
	return glk_soft_race_add(soft, stream, &op, &slot);
}

static int same_device(
	const struct soft *soft, const struct soft_event *e, uint32_t stream)
{
	if (soft_stream_at(soft, stream)->device == e->device)
		return 0;
	return glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, "cuEventRecord", 400,
		"cuEventRecord rule: an event of GPU %d cannot be recorded on a stream "
		"of GPU %d",
		e->device, soft_stream_at(soft, stream)->device);
}

/* Events of the library. */

int glk_soft_event_new(struct glk_drv *drv, int device, struct glk_drv_event **ret_event)
{
	uint64_t handle;
	int err = event_new(soft_of(drv), device, GLK_HANDLE_EVENT, &handle);

	if (!err)
		*ret_event = (struct glk_drv_event *)(uintptr_t)handle;
	return err;
}

int glk_soft_event_free(struct glk_drv *drv, struct glk_drv_event *event)
{
	return event_free(soft_of(drv), (uintptr_t)event, GLK_HANDLE_EVENT);
}

int glk_soft_event_record(
	struct glk_drv *drv, struct glk_drv_event *event, struct CUstream_st *stream)
{
	struct soft *soft = soft_of(drv);
	struct soft_event *e;
	int err = -EINVAL;
	uint32_t id;

	glk_soft_charge(soft, GLAKE_CALL_EVENT_RECORD, 1);
	glk_soft_enter(soft);
	e = event_find(soft, (uintptr_t)event, GLK_HANDLE_EVENT, "cuEventRecord");
	if (e)
		err = glk_soft_stream_any(soft, e->device, stream, "cuEventRecord", &id);
	if (!err)
		err = same_device(soft, e, id);
	if (!err)
		err = glk_soft_stream_usable(soft, id, "cuEventRecord");
	if (!err)
		err = record(soft, e, id);
	glk_unlock(&soft->lock);
	return err;
}

int glk_soft_event_query(struct glk_drv *drv, struct glk_drv_event *event)
{
	struct soft *soft = soft_of(drv);
	const struct soft_event *e;
	int err = -EINVAL;

	glk_soft_charge(soft, GLAKE_CALL_EVENT_QUERY, 1);
	glk_soft_enter(soft);
	e = event_find(soft, (uintptr_t)event, GLK_HANDLE_EVENT, "cuEventQuery");
	if (e)
		err = glk_soft_queue_is_done(soft, e->op, e->serial) ? 0 : -EAGAIN;
	glk_unlock(&soft->lock);
	return err;
}

int glk_soft_event_sync(struct glk_drv *drv, struct glk_drv_event *event)
{
	struct soft *soft = soft_of(drv);
	const struct soft_event *e;
	int err = -EINVAL;

	glk_soft_enter(soft);
	e = event_find(soft, (uintptr_t)event, GLK_HANDLE_EVENT, "cuEventSynchronize");
	if (e)
		err = glk_soft_queue_await(soft, e->op, e->serial, "cuEventSynchronize");
	glk_unlock(&soft->lock);
	return err;
}

int glk_soft_stream_wait(
	struct glk_drv *drv, struct CUstream_st *stream, struct glk_drv_event *event)
{
	struct soft *soft = soft_of(drv);
	const struct soft_event *e;
	int err = -EINVAL;
	uint32_t id;

	glk_soft_charge(soft, GLAKE_CALL_STREAM_WAIT, 1);
	glk_soft_enter(soft);
	e = event_find(soft, (uintptr_t)event, GLK_HANDLE_EVENT, "cuStreamWaitEvent");
	if (e)
		err = glk_soft_stream_any(
			soft, e->device, stream, "cuStreamWaitEvent", &id);
	if (!err)
		err = glk_soft_stream_usable(soft, id, "cuStreamWaitEvent");
	if (!err)
		err = wait(soft, e, id);
	glk_unlock(&soft->lock);
	return err;
}

int glk_soft_gate(struct glk_drv *drv, int device, struct CUstream_st *stream,
	struct glk_drv_gate *gate, uint32_t number)
{
	const struct soft_op op = {.kind = SOFT_GATE, .gate = gate, .value = number};
	struct soft *soft = soft_of(drv);
	uint32_t id, slot;
	int err;

	glk_soft_charge(soft, GLAKE_CALL_OTHER, 1);
	glk_soft_enter(soft);
	if (!soft->gated)
		err = glk_error(-EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED,
			"streams do not wait for the host with soft.gates=no");
	else if (!glk_soft_host_is_locked(soft, (uintptr_t)gate, sizeof(*gate)))
		err = glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, "cuStreamWaitValue32",
			1, "cuStreamWaitValue32 rule: the word is not locked");
	else
		err = glk_soft_stream_find(
			soft, device, stream, "cuStreamWaitValue32", &id);
	if (!err)
		err = glk_soft_stream_usable(soft, id, "cuStreamWaitValue32");
	if (!err)
		err = glk_soft_race_add(soft, id, &op, &slot);
	if (!err && !soft->stepped)
		glk_soft_queue_run(soft);
	glk_unlock(&soft->lock);
	return err;
}

/* Events of the program. */

int glk_soft_user_event_new(
	struct glk_drv *drv, int device, struct CUevent_st **ret_event)
{
	uint64_t handle;
	int err = event_new(soft_of(drv), device, GLK_HANDLE_USER_EVENT, &handle);

	if (!err)
		*ret_event = (struct CUevent_st *)(uintptr_t)handle;
	return err;
}

int glk_soft_user_event_free(struct glk_drv *drv, struct CUevent_st *event)
{
	return event_free(soft_of(drv), (uintptr_t)event, GLK_HANDLE_USER_EVENT);
}

int glk_soft_user_event_record(struct glk_drv *drv, int device, struct CUevent_st *event,
	struct CUstream_st *stream)
{
	struct soft *soft = soft_of(drv);
	struct soft_event *e;
	int err = -EINVAL;
	uint32_t id;

	glk_soft_charge(soft, GLAKE_CALL_EVENT_RECORD, 1);
	glk_soft_enter(soft);
	e = event_find(soft, (uintptr_t)event, GLK_HANDLE_USER_EVENT, "cuEventRecord");
	if (e)
		err = glk_soft_stream_find(soft, device, stream, "cuEventRecord", &id);
	if (!err)
		err = same_device(soft, e, id);
	if (!err)
		err = soft_stream_at(soft, id)->graph
			? glk_soft_capture_record(soft, id, e)
			: record(soft, e, id);
	glk_unlock(&soft->lock);
	return err;
}

int glk_soft_user_event_wait(struct glk_drv *drv, int device, struct CUstream_st *stream,
	struct CUevent_st *event)
{
	struct soft *soft = soft_of(drv);
	const struct soft_event *e;
	int err = -EINVAL;
	uint32_t id;

	glk_soft_charge(soft, GLAKE_CALL_STREAM_WAIT, 1);
	glk_soft_enter(soft);
	e = event_find(
		soft, (uintptr_t)event, GLK_HANDLE_USER_EVENT, "cuStreamWaitEvent");
	if (e)
		err = glk_soft_stream_find(
			soft, device, stream, "cuStreamWaitEvent", &id);
	if (!err)
		err = e->capture || soft_stream_at(soft, id)->graph
			? glk_soft_capture_wait(soft, id, e)
			: wait(soft, e, id);
	glk_unlock(&soft->lock);
	return err;
}
