/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Waiting for the GPU, for doors that give memory in the manner of cudaMalloc and cudaFree. The
 * library has no function for that, so the driver that the program has loaded is asked.
 *
 * Waiting is forbidden while a thread captures a graph, unless it says that it knows better, which
 * is said around the wait for a stream.
 */
#include "front/wait.h"

#include <dlfcn.h>
#include <pthread.h>

#define RELAXED 2 /* CU_STREAM_CAPTURE_MODE_RELAXED */

/* Of CUDA's driver, as the program has loaded it. */
static struct {
	int (*cuDeviceGet)(int *ret_device, int ordinal);
	int (*cuDevicePrimaryCtxRetain)(void **ret_context, int device);
	int (*cuDevicePrimaryCtxRelease_v2)(int device);
	int (*cuCtxPushCurrent_v2)(void *context);
	int (*cuCtxPopCurrent_v2)(void **ret_context);
	int (*cuCtxSynchronize)(void);
	int (*cuStreamSynchronize)(struct CUstream_st *stream);
	int (*cuThreadExchangeStreamCaptureMode)(int *mode);
} cuda;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool has_cuda;

#define FIND(name) ((*(void **)&cuda.name = dlsym(driver, #name)) != NULL)

static void find_cuda(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);

	if (!driver)
		return;
	has_cuda = FIND(cuDeviceGet) && FIND(cuDevicePrimaryCtxRetain) &&
		FIND(cuDevicePrimaryCtxRelease_v2) && FIND(cuCtxPushCurrent_v2) &&
		FIND(cuCtxPopCurrent_v2) && FIND(cuCtxSynchronize) &&
		FIND(cuStreamSynchronize) && FIND(cuThreadExchangeStreamCaptureMode);
}

static int wait_relaxed(struct CUstream_st *stream)
{
	int mode = RELAXED, result;

	if (!stream)
		return cuda.cuCtxSynchronize();
	cuda.cuThreadExchangeStreamCaptureMode(&mode);
	result = cuda.cuStreamSynchronize(stream);
	cuda.cuThreadExchangeStreamCaptureMode(&mode);
	return result;
}

bool glk_front_wait(struct glake *ctx, int device, struct CUstream_st *stream)
{
	void *context = NULL;
	int cu_device, result;

	if (glake_backend(ctx) != GLAKE_BACKEND_CUDA)
		return true;
	pthread_once(&once, find_cuda);
	if (!has_cuda || cuda.cuDeviceGet(&cu_device, device) ||
		cuda.cuDevicePrimaryCtxRetain(&context, cu_device))
		return false;
	result = cuda.cuCtxPushCurrent_v2(context);
	if (!result) {
		result = wait_relaxed(stream);
		cuda.cuCtxPopCurrent_v2(&context);
	}
	cuda.cuDevicePrimaryCtxRelease_v2(cu_device);
	return !result;
}
