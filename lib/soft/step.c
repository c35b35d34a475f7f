/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What tests do with the queues and the links of the software device: run them step by step or all at
 * once, hold one back, count what is in it, let the links set the pace.
 */
#include "soft/state.h"

#include <errno.h>

int glk_soft_step(struct glk_drv *drv, int device, struct CUstream_st *stream)
{
	struct soft *soft = glk_soft_below(drv);
	uint32_t id;
	int err;

	if (!soft)
		return -EINVAL;
	glk_lock(&soft->lock);
	err = glk_soft_stream_find(soft, device, stream, "step", &id);
	if (!err)
		err = glk_soft_queue_step(soft, id) ? 0 : -EAGAIN;
	glk_unlock(&soft->lock);
	return err;
}

int glk_soft_run_all(struct glk_drv *drv)
{
	struct soft *soft = glk_soft_below(drv);

	if (!soft)
		return -EINVAL;
	glk_lock(&soft->lock);
	glk_soft_queue_run(soft);
	glk_unlock(&soft->lock);
	return 0;
}

int glk_soft_hold(struct glk_drv *drv, int device, struct CUstream_st *stream, bool hold)
{
	struct soft *soft = glk_soft_below(drv);
	uint32_t id;
	int err;

	if (!soft)
		return -EINVAL;
	glk_lock(&soft->lock);
	err = glk_soft_stream_find(soft, device, stream, "hold", &id);
	if (!err)
		soft_stream_at(soft, id)->held = hold;
	if (!err && !hold && !soft->stepped)
		glk_soft_queue_run(soft);
	glk_unlock(&soft->lock);
	return err;
}

int glk_soft_pending(
	struct glk_drv *drv, int device, struct CUstream_st *stream, uint32_t *ret_count)
{
	struct soft *soft = glk_soft_below(drv);
	uint32_t id;
	int err;

	if (!soft)
		return -EINVAL;
	glk_lock(&soft->lock);
	err = glk_soft_stream_find(soft, device, stream, "pending", &id);
	if (!err)
		*ret_count = soft_stream_at(soft, id)->pending;
	glk_unlock(&soft->lock);
	return err;
}

int glk_soft_pace(struct glk_drv *drv)
{
	struct soft *soft = glk_soft_below(drv);

	if (!soft || soft->stepped)
		return -EINVAL;
	glk_lock(&soft->lock);
	soft->paced = true;
	/* 0 stands for no time */
	soft->pace = soft->pace > 1 ? soft->pace : 1;
	glk_unlock(&soft->lock);
	return 0;
}

int glk_soft_pace_step(struct glk_drv *drv)
{
	struct soft *soft = glk_soft_below(drv);
	bool went;

	if (!soft)
		return -EINVAL;
	glk_lock(&soft->lock);
	glk_soft_queue_run(soft);
	went = glk_soft_pace_next(soft);
	glk_soft_queue_run(soft);
	glk_unlock(&soft->lock);
	return went ? 0 : -EAGAIN;
}

int glk_soft_pace_time(struct glk_drv *drv, int64_t *ret_ns)
{
	struct soft *soft = glk_soft_below(drv);

	if (!soft)
		return -EINVAL;
	glk_lock(&soft->lock);
	*ret_ns = (int64_t)soft->pace;
	glk_unlock(&soft->lock);
	return 0;
}

int glk_soft_link_time(
	struct glk_drv *drv, int device, struct CUstream_st *stream, int64_t *ret_ns)
{
	struct soft *soft = glk_soft_below(drv);
	uint32_t id;
	int err;

	if (!soft)
		return -EINVAL;
	glk_lock(&soft->lock);
	err = glk_soft_stream_find(soft, device, stream, "time", &id);
	if (!err)
		*ret_ns = soft_stream_at(soft, id)->now;
	glk_unlock(&soft->lock);
	return err;
}

int glk_soft_link_bytes(struct glk_drv *drv, int device, bool up, uint64_t *ret_bytes)
{
	struct soft *soft = glk_soft_below(drv);

	if (!soft || device < 0 || device >= soft->gpus)
		return -EINVAL;
	glk_lock(&soft->lock);
	*ret_bytes = soft->lanes[device][up ? SOFT_UP : SOFT_DOWN].bytes;
	glk_unlock(&soft->lock);
	return 0;
}

int glk_soft_across_bytes(struct glk_drv *drv, bool up, uint64_t *ret_bytes)
{
	struct soft *soft = glk_soft_below(drv);

	if (!soft)
		return -EINVAL;
	glk_lock(&soft->lock);
	*ret_bytes = soft->across[up ? SOFT_UP : SOFT_DOWN].bytes;
	glk_unlock(&soft->lock);
	return 0;
}

int glk_soft_maps(struct glk_drv *drv, int64_t *ret_maps)
{
	struct soft *soft = glk_soft_below(drv);

	if (!soft)
		return -EINVAL;
	glk_lock(&soft->lock);
	*ret_maps = soft->maps;
	glk_unlock(&soft->lock);
	return 0;
}
