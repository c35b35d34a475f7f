/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The pace of links, for tests of what happens while copies are under way. A copy that is the next of
 * its stream begins when its links are free, at the rates that they have then, and runs when the modelled
 * time has come to its end. That time goes from one end to the next, so that what is queued in
 * between begins in the order of time.
 */
#include "soft/state.h"

#include <errno.h>

bool glk_soft_pace_ready(struct soft *soft, struct soft_stream *s, struct soft_op *op)
{
	double end;

	if (op->kind != SOFT_COPY)
		return true;
	if (op->end <= 0) {
		end = glk_soft_link_begin(soft, s, op);
		/* 0 stands for one that has not begun */
		op->end = end > 0 ? end : end < 0 ? 0 : 1;
	}
	return op->end > 0 && op->end <= soft->pace;
}

bool glk_soft_pace_next(struct soft *soft)
{
	uint32_t used = glk_load_relaxed(&soft->streams.used);
	double first = 0;

	for (uint32_t id = 1; soft->paced && id <= used; id++) {
		uint32_t head = soft_stream_at(soft, id)->head;
		double end = head ? soft_op_at(soft, head)->end : 0;

		if (end > 0 && (first <= 0 || end < first))
			first = end;
	}
	if (first <= 0)
		return false;
	soft->pace = first > soft->pace ? first : soft->pace;
	return true;
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

int glk_soft_pace_link(struct glk_drv *drv, int device, int64_t rate)
{
	struct soft *soft = glk_soft_below(drv);

	if (!soft || device < 0 || device >= soft->gpus)
		return -EINVAL;
	glk_lock(&soft->lock);
	for (int turn = SOFT_DOWN; turn <= SOFT_UP; turn++) {
		struct soft_lane *lane = &soft->lanes[device][turn];

		lane->stalled = rate < 0;
		if (rate >= 0)
			lane->rate = (double)rate / 1000;
		/* it stood still until now */
		if (lane->free < soft->pace)
			lane->free = soft->pace;
	}
	glk_soft_queue_run(soft);
	glk_unlock(&soft->lock);
	return 0;
}
