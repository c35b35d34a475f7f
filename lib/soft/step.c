/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What tests do with the queues of the software device: run them step by step or all at once,
 * hold one back, count what is in it.
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
