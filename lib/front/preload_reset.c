/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A reset of a GPU takes all its memory, and the library's context of it with that. Other threads
 * may be asking for memory of it or freeing some meanwhile, which the driver answers. So each of
 * their calls into the library is counted, at the thread's own place, and a reset first closes
 * the seat and then waits until none is left. A thread that comes later is told so and asks the
 * driver. No seat is made again before the driver's reset is over.
 *
 * Order: a thread counts itself and then looks whether the seat is closing; the reset says that
 * it is, and then looks at the counts. All four are sequentially consistent, so one of the two
 * sees the other.
 */
#include "front/preload.h"

#include <time.h>

static pthread_mutex_t reset_lock = PTHREAD_MUTEX_INITIALIZER; /* one at a time */
static glk_atomic(unsigned) threads;
static _Thread_local unsigned place; /* one more than the shard; 0: none yet */

static glk_atomic(int) * mine(struct glk_preload_seat *seat)
{
	if (!place)
		place = 1 + glk_add_relaxed(&threads, 1) % GLK_PRELOAD_SHARDS;
	return &seat->shard[place - 1].inside;
}

bool glk_preload_in(struct glk_preload_seat *seat)
{
	glk_add_seq_cst(mine(seat), 1);
	if (glk_load_seq_cst(&seat->closing)) {
		glk_sub_acq_rel(mine(seat), 1);
		return false;
	}
	glk_preload_inside = true;
	return true;
}

void glk_preload_out(struct glk_preload_seat *seat)
{
	glk_preload_inside = false;
	glk_sub_acq_rel(mine(seat), 1); /* pairs with: the loads in shut */
}

/* Returns when no thread is inside, and none will be. */
static void shut(struct glk_preload_seat *seat)
{
	const struct timespec moment = {.tv_nsec = 50000};

	glk_xchg_seq_cst(&seat->closing, true);
	for (int i = 0; i < GLK_PRELOAD_SHARDS; i++)
		while (glk_load_seq_cst(&seat->shard[i].inside))
			nanosleep(&moment, NULL);
}

static void before_reset(int device)
{
	struct glk_preload_seat *seat = glk_preload_seat_take(device);

	if (!seat)
		return;
	glk_preload_report_seat(seat);
	shut(seat);
	glk_preload_late_drop(seat);
	glk_preload_ipc_leave(seat);
	glk_preload_inside = true;
	glk_library.stream_free(seat->glake, device, seat->idle);
	glk_library.close(seat->glake, NULL);
	glk_preload_inside = false;
	glk_preload_ipc_drop(seat);
}

glk_cu_result cuDevicePrimaryCtxReset(glk_cu_device device)
{
	glk_cu_result result;

	if (!glk_preload_called(GLK_PRELOAD_cuDevicePrimaryCtxReset))
		return GLK_PRELOAD_PASS(cuDevicePrimaryCtxReset, device);
	pthread_mutex_lock(&reset_lock);
	before_reset(device);
	result = GLK_PRELOAD_PASS(cuDevicePrimaryCtxReset, device);
	glk_preload_seat_take_end(device);
	pthread_mutex_unlock(&reset_lock);
	return result;
}

glk_cu_result cuDevicePrimaryCtxReset_v2(glk_cu_device device)
{
	glk_cu_result result;

	if (!glk_preload_called(GLK_PRELOAD_cuDevicePrimaryCtxReset_v2))
		return GLK_PRELOAD_PASS(cuDevicePrimaryCtxReset_v2, device);
	pthread_mutex_lock(&reset_lock);
	before_reset(device);
	result = GLK_PRELOAD_PASS(cuDevicePrimaryCtxReset_v2, device);
	glk_preload_seat_take_end(device);
	pthread_mutex_unlock(&reset_lock);
	return result;
}
