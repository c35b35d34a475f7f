/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_UNIT_API_STUCK_H
#define GLK_UNIT_API_STUCK_H

/*
 * A copy that is stuck in the driver for as long as a test wants, be the machine slow or not. Where what is tested
 * waits for it, it goes on by itself after a minute, which the test is told.
 */
#include "unit/api/copy_rig.h"

#include "base/clock.h"

#include <sched.h>
#include <time.h>

#define STUCK_NS INT64_C(60000000000)

static struct {
	const struct glk_drv_ops *usual;
	struct glk_drv_ops ops;
	glk_atomic(int)
		left; /* calls to the one that is stuck, with it; 0 or less: none is */
	glk_atomic(bool) stands, let_go, gave_in;
} stuck;

static inline int stuck_copy(struct glk_drv *drv, uint64_t dst, uint64_t src, size_t size,
	struct CUstream_st *on)
{
	const struct timespec look = {.tv_nsec = 1000000};
	int64_t since;

	if (glk_sub_relaxed(&stuck.left, 1) == 1) {
		since = glk_clock_ns();
		glk_store_release(&stuck.stands, true);
		while (!glk_load_acquire(&stuck.let_go) &&
			!glk_load_relaxed(&stuck.gave_in)) {
			nanosleep(&look, NULL);
			glk_store_release(
				&stuck.gave_in, glk_clock_ns() - since > STUCK_NS);
		}
	}
	return stuck.usual->copy(drv, dst, src, size, on);
}

/* For a context that is new: no other thread calls the driver yet. */
static inline void stuck_prepare(void)
{
	stuck.usual = context->drv->ops;
	stuck.ops = *stuck.usual;
	stuck.ops.copy = stuck_copy;
	context->drv->ops = &stuck.ops;
}

/* The n-th copy that the driver is told of from now on, from 1. */
static inline void stuck_at(int nth)
{
	glk_store_relaxed(&stuck.stands, false);
	glk_store_relaxed(&stuck.let_go, false);
	glk_store_relaxed(&stuck.gave_in, false);
	glk_store_release(&stuck.left, nth);
}

static inline void stuck_wait(void)
{
	while (!glk_load_acquire(&stuck.stands))
		sched_yield();
}

/* Lets it go on; false: it has done so by itself. */
static inline bool stuck_end(void)
{
	glk_store_release(&stuck.let_go, true);
	return !glk_load_acquire(&stuck.gave_in);
}

#endif
