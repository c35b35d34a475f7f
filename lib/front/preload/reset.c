/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A reset of a GPU, which takes all its memory, and the library's context of it with that. */
#include "front/preload/preload.h"

static pthread_mutex_t reset_lock = PTHREAD_MUTEX_INITIALIZER; /* one at a time */

static void before_reset(int device)
{
	struct glk_preload_seat *seat = glk_preload_seat_take(device);

	if (!seat)
		return;
	glk_preload_report_seat(seat);
	glk_preload_seat_shut(seat);
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
