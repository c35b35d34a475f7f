/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_UNIT_CACHE_STAND_PARTS_H
#define GLK_UNIT_CACHE_STAND_PARTS_H

/* What the tests of requests that stand alone share: something is done whenever the GPU has been waited for. */
#include "plan_parts.h"

/* What it answers instead of the wait. */
static int (*stand_waited)(int err);

static int stand_event_sync(struct glk_drv *drv, struct glk_drv_event *event)
{
	return stand_waited(drv->inner->ops->event_sync(drv->inner, event));
}

static int stand_stream_sync(struct glk_drv *drv, int device, struct CUstream_st *stream)
{
	return stand_waited(drv->inner->ops->stream_sync(drv->inner, device, stream));
}

static int stand_device_sync(struct glk_drv *drv, int device)
{
	return stand_waited(drv->inner->ops->device_sync(drv->inner, device));
}

/* For a rig that gate_open_rig() has opened. */
static inline void stand_wrap(struct rig *rig, int (*waited)(int err))
{
	static struct glk_drv_ops ops;

	ops = *rig->drv->ops;
	ops.event_sync = stand_event_sync;
	ops.stream_sync = stand_stream_sync;
	ops.device_sync = stand_device_sync;
	stand_waited = waited;
	rig->drv->ops = &ops;
}

#endif
