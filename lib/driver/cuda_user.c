/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Events as a program makes them: the driver's own handles, kept in no table. Recording and
 * waiting happen in the capture mode of the thread, for they may fork and join a capture, and
 * what they do to it is the program's wish.
 */
#include "driver/cuda_state.h"

#include <errno.h>

int glk_cuda_user_event_new(
	struct glk_drv *drv, int device, struct CUevent_st **ret_event)
{
	struct glk_cuda *cuda = glk_cuda_of(drv);
	struct CUevent_st *event = NULL;
	struct glk_cuda_scope scope;
	glk_cu_result result;
	int err;

	err = glk_cuda_enter(cuda, device, &scope);
	if (err)
		return err;
	result = cuda->lib->cuEventCreate(&event, GLK_CU_EVENT_DISABLE_TIMING);
	glk_cuda_leave(cuda, &scope);
	if (result)
		return glk_cuda_fail(cuda->lib, "cuEventCreate", result,
			"an event of the program on GPU %d", device);
	*ret_event = event;
	return 0;
}

int glk_cuda_user_event_free(struct glk_drv *drv, struct CUevent_st *event)
{
	struct glk_cuda *cuda = glk_cuda_of(drv);
	struct glk_cuda_scope scope;
	glk_cu_result result;
	int err;

	if (glk_cuda_exiting())
		return 0;
	err = glk_cuda_enter_any(cuda, &scope);
	if (err)
		return err;
	result = cuda->lib->cuEventDestroy(event);
	glk_cuda_leave(cuda, &scope);
	if (result && result != GLK_CU_DEINITIALIZED)
		return glk_cuda_fail(cuda->lib, "cuEventDestroy", result,
			"the end of an event of the program");
	return 0;
}

int glk_cuda_user_event_record(struct glk_drv *drv, int device, struct CUevent_st *event,
	struct CUstream_st *stream)
{
	struct glk_cuda *cuda = glk_cuda_of(drv);
	struct glk_cuda_scope scope;
	glk_cu_result result;
	int err;

	err = glk_cuda_enter(cuda, device, &scope);
	if (err)
		return err;
	result = cuda->lib->cuEventRecord(event, stream);
	glk_cuda_leave(cuda, &scope);
	if (result)
		return glk_cuda_fail(cuda->lib, "cuEventRecord", result,
			"an event of the program on a stream of GPU %d", device);
	return 0;
}

int glk_cuda_user_event_wait(struct glk_drv *drv, int device, struct CUstream_st *stream,
	struct CUevent_st *event)
{
	struct glk_cuda *cuda = glk_cuda_of(drv);
	struct glk_cuda_scope scope;
	glk_cu_result result;
	int err;

	err = glk_cuda_enter(cuda, device, &scope);
	if (err)
		return err;
	result = cuda->lib->cuStreamWaitEvent(stream, event, 0);
	glk_cuda_leave(cuda, &scope);
	if (result)
		return glk_cuda_fail(cuda->lib, "cuStreamWaitEvent", result,
			"a stream of GPU %d behind an event of the program", device);
	return 0;
}
