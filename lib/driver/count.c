/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Counts the calls of each kind and their time. Where the backend has a modelled clock the
 * time is the backend's, and the real clock is not asked, which would cost more than the
 * counting; else calls are measured, of events and stream waits every eighth, since two clock
 * readings cost a quarter of such a call. Failed calls count: they cost too.
 *
 * Threads	relaxed sums; a reader sees each figure at some moment of its call
 * Cost		one atomic addition a call, four with measuring, plus two clock readings
 */
#include "driver/count.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/slab.h"
#include "base/times.h"
#include "driver/ops.h"

#include <errno.h>

struct count {
	struct glk_drv drv;
	struct glk_drv_ops bottom; /* the backend's table, completed */
	bool modelled;
	glk_atomic(uint64_t) calls[GLAKE_CALL_COUNT];
	glk_atomic(int64_t) ns[GLAKE_CALL_COUNT];
	struct glk_times times[GLAKE_CALL_COUNT]; /* of the calls that are measured */
};

static struct count *count_of(struct glk_drv *drv)
{
	return (struct count *)drv;
}

/* What is asked of streams at every request takes 0.04 us: reading the clock would cost more,
 * and so would an addition that all threads share. */
static bool is_counted(int op)
{
	return op != GLK_OP_stream_facts && op != GLK_OP_stream_owner;
}

/* Of how many calls of a kind one is measured. */
static unsigned every(enum glake_call call)
{
	return call == GLAKE_CALL_EVENT_RECORD || call == GLAKE_CALL_EVENT_QUERY ||
			call == GLAKE_CALL_STREAM_WAIT
		? 8
		: 1;
}

/* 0: it is not measured. */
static int64_t begin(const struct count *count, int op, enum glake_call call)
{
	if (count->modelled || !is_counted(op) ||
		glk_load_relaxed(&count->calls[call]) % every(call))
		return 0;
	return glk_clock_ns();
}

static void end(struct count *count, int op, enum glake_call call, int64_t start)
{
	if (!is_counted(op))
		return;
	glk_add_relaxed(&count->calls[call], 1);
	if (!start)
		return;
	start = glk_clock_ns() - start;
	glk_add_relaxed(&count->ns[call], start * every(call));
	glk_times_share(&count->times[call], (uint64_t)start);
}

#define X(op, params, args, call)                                                        \
	static int count_##op params                                                     \
	{                                                                                \
		struct glk_drv *inner = drv->inner;                                      \
		int64_t start = begin(count_of(drv), GLK_OP_##op, GLAKE_CALL_##call);    \
		int err = inner->ops->op args;                                           \
                                                                                         \
		end(count_of(drv), GLK_OP_##op, GLAKE_CALL_##call, start);               \
		return err;                                                              \
	}
GLK_DRV_OPS(X)
#undef X

static int count_figures(struct glk_drv *drv, struct glake_driver_stats *ret_stats)
{
	struct glake_driver_stats stats = {.sz = ret_stats->sz};
	struct count *count = count_of(drv);
	int err;

	for (int i = 0; i < GLAKE_CALL_COUNT; i++) {
		stats.calls[i] = glk_load_relaxed(&count->calls[i]);
		stats.ns[i] = glk_load_relaxed(&count->ns[i]);
		stats.now_ns += stats.ns[i];
	}
	if (count->modelled) {
		err = drv->inner->ops->figures(drv->inner, &stats);
		if (err)
			return err;
	}
	*ret_stats = stats;
	return 0;
}

static const struct glk_times *count_times(struct glk_drv *drv)
{
	struct glk_drv *bottom = glk_drv_bottom(drv);

	return bottom->ops->times ? bottom->ops->times(bottom) : count_of(drv)->times;
}

static int count_close(struct glk_drv *drv)
{
	int err = drv->inner->ops->close(drv->inner);

	glk_region_free(drv, sizeof(struct count));
	return err;
}

static const struct glk_drv_ops count_ops = {.version = GLK_DRV_OPS_VERSION,
	.name = "count",
	.close = count_close,
	.figures = count_figures,
	.times = count_times,
#define X(op, params, args, call) .op = count_##op,
	GLK_DRV_OPS(X)
#undef X
};

int glk_count_open(struct glk_drv *inner, struct glk_drv **ret_drv)
{
	struct count *count = glk_region_new(sizeof(*count));
	struct glk_drv *bottom = glk_drv_bottom(inner);

	if (!count)
		return -ENOMEM;
	count->drv = (struct glk_drv){.ops = &count_ops, .inner = inner};
	count->modelled = bottom->ops->figures;
	glk_drv_fill(bottom->ops, &count->bottom);
	bottom->ops = &count->bottom;
	*ret_drv = &count->drv;
	return 0;
}
