/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The rules on events and on what streams touch. Events have handles of the wrapper, so a
 * freed one is recognised; streams are counted, and their handles stay the driver's.
 */
#include "soft/check_state.h"

#include "driver/ops.h"
#include "soft/handle.h"

#include <errno.h>

static struct check_event *event_at(const struct check *check, uint32_t id)
{
	return glk_slab_at(&check->events, id);
}

/* The driver's event of one of our handles, or NULL and a record. With `end`, the handle ends
 * here. */
static struct glk_drv_event *event_find(
	struct check *check, struct glk_drv_event *ours, const char *call, bool end)
{
	uint64_t handle = (uint64_t)(uintptr_t)ours;
	struct glk_drv_event *event = NULL;
	uint32_t id = glk_handle_id(handle);
	struct check_event *e = NULL;

	glk_lock(&check->lock);
	if (glk_handle_is(handle, GLK_HANDLE_CHECKED_EVENT) && id && id <= CHECK_EVENTS)
		e = event_at(check, id);
	if (e && e->live && (e->gen & GLK_HANDLE_GEN_MASK) == glk_handle_gen(handle)) {
		event = e->event;
		e->live = !end;
	}
	glk_unlock(&check->lock);
	if (!event)
		glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, call, 400,
			"%s rule: an event must be alive, %#lx is none or was freed",
			call, (unsigned long)handle);
	return event;
}

static int check_event_new(
	struct glk_drv *drv, int device, struct glk_drv_event **ret_event)
{
	struct check *check = check_of(drv);
	struct glk_drv *inner = drv->inner;
	uint32_t id = glk_slab_get(&check->events);
	struct glk_drv_event *event;
	struct check_event *e;
	int err;

	if (!id)
		return -ENOMEM;
	err = inner->ops->event_new(inner, device, &event);
	if (err) {
		glk_slab_put(&check->events, id);
		return err;
	}
	glk_lock(&check->lock);
	e = event_at(check, id);
	*e = (struct check_event){.event = event, .gen = e->gen + 1, .live = true};
	*ret_event = (struct glk_drv_event *)(uintptr_t)glk_handle_make(
		GLK_HANDLE_CHECKED_EVENT, (uint32_t)device, e->gen, id);
	glk_unlock(&check->lock);
	return 0;
}

static int check_event_free(struct glk_drv *drv, struct glk_drv_event *ours)
{
	struct check *check = check_of(drv);
	struct glk_drv_event *event = event_find(check, ours, "cuEventDestroy", true);
	uint32_t id = glk_handle_id((uint64_t)(uintptr_t)ours);
	struct glk_drv *inner = drv->inner;
	int err;

	if (!event)
		return -EINVAL;
	err = inner->ops->event_free(inner, event);
	if (!err) {
		glk_slab_put(&check->events, id);
		return 0;
	}
	glk_lock(&check->lock);
	event_at(check, id)->live = true;
	glk_unlock(&check->lock);
	return err;
}

static int check_event_record(
	struct glk_drv *drv, struct glk_drv_event *ours, struct CUstream_st *stream)
{
	struct glk_drv_event *event =
		event_find(check_of(drv), ours, "cuEventRecord", false);

	return event ? drv->inner->ops->event_record(drv->inner, event, stream) : -EINVAL;
}

static int check_event_query(struct glk_drv *drv, struct glk_drv_event *ours)
{
	struct glk_drv_event *event =
		event_find(check_of(drv), ours, "cuEventQuery", false);

	return event ? drv->inner->ops->event_query(drv->inner, event) : -EINVAL;
}

static int check_event_sync(struct glk_drv *drv, struct glk_drv_event *ours)
{
	struct glk_drv_event *event =
		event_find(check_of(drv), ours, "cuEventSynchronize", false);

	return event ? drv->inner->ops->event_sync(drv->inner, event) : -EINVAL;
}

static int check_stream_wait(
	struct glk_drv *drv, struct CUstream_st *stream, struct glk_drv_event *ours)
{
	struct glk_drv_event *event =
		event_find(check_of(drv), ours, "cuStreamWaitEvent", false);

	return event ? drv->inner->ops->stream_wait(drv->inner, stream, event) : -EINVAL;
}

static int check_stream_new(
	struct glk_drv *drv, int device, struct CUstream_st **ret_stream)
{
	int err = drv->inner->ops->stream_new(drv->inner, device, ret_stream);

	if (!err)
		glk_add_relaxed(&check_of(drv)->streams, 1);
	return err;
}

static int check_stream_free(struct glk_drv *drv, int device, struct CUstream_st *stream)
{
	int err = drv->inner->ops->stream_free(drv->inner, device, stream);

	if (!err)
		glk_sub_relaxed(&check_of(drv)->streams, 1);
	return err;
}

/* Memory inside a reservation must be mapped and some GPU must have the right; which GPU the
 * stream is of, only the driver knows. */
static int touch_rules(
	struct check *check, uint64_t addr, size_t size, bool write, const char *call)
{
	const struct glk_mapping *mapping;
	uint64_t at = addr, end;
	int err = 0;

	if (__builtin_add_overflow(addr, size, &end))
		return glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, call, 1,
			"%s rule: %#lx + %zu is no range", call, (unsigned long)addr,
			size);
	glk_lock(&check->lock);
	if (!glk_book_span(&check->book, addr, 1))
		end = addr; /* the host's own memory */
	for (; !err && at < end; at = mapping->addr + mapping->size) {
		mapping = glk_book_find(&check->book, at);
		if (mapping && (write ? mapping->writers : mapping->readers))
			continue;
		err = glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, call, 1,
			"%s rule: what is touched must be mapped with access, %#lx %s",
			call, (unsigned long)at,
			!mapping	? "is not mapped"
				: write ? "may be written by no GPU"
					: "may be read by no GPU");
		if (!mapping)
			break;
	}
	glk_unlock(&check->lock);
	return err;
}

static int check_copy(struct glk_drv *drv, uint64_t dst, uint64_t src, size_t size,
	struct CUstream_st *stream)
{
	struct check *check = check_of(drv);
	int err;

	err = touch_rules(check, dst, size, true, "cuMemcpyAsync");
	if (!err)
		err = touch_rules(check, src, size, false, "cuMemcpyAsync");
	if (!err)
		err = drv->inner->ops->copy(drv->inner, dst, src, size, stream);
	return err;
}

static int check_fill(struct glk_drv *drv, uint64_t dst, uint32_t value, size_t count,
	struct CUstream_st *stream)
{
	size_t size;
	int err;

	if (dst % sizeof(value) || __builtin_mul_overflow(count, sizeof(value), &size))
		return check_rule("cuMemsetD32Async", "%zu words at %#lx are no range",
			count, (unsigned long)dst);
	err = touch_rules(check_of(drv), dst, size, true, "cuMemsetD32Async");
	if (!err)
		err = drv->inner->ops->fill(drv->inner, dst, value, count, stream);
	return err;
}

void glk_check_stream_ops(struct glk_drv_ops *ops)
{
	ops->event_new = check_event_new;
	ops->event_free = check_event_free;
	ops->event_record = check_event_record;
	ops->event_query = check_event_query;
	ops->event_sync = check_event_sync;
	ops->stream_wait = check_stream_wait;
	ops->stream_new = check_stream_new;
	ops->stream_free = check_stream_free;
	ops->copy = check_copy;
	ops->fill = check_fill;
}
