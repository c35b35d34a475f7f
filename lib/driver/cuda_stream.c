/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Streams and the work queued on them. A stream of ours never synchronises with the legacy
 * default stream. Waiting is done with the thread's capture mode relaxed, so that a capture
 * running elsewhere survives it.
 */
#include "driver/cuda_state.h"

#include <errno.h>

int glk_cuda_stream_new(struct glk_drv *drv, int device, struct CUstream_st **ret_stream)
{
	struct glk_cuda *cuda = glk_cuda_of(drv);
	struct CUstream_st *stream = NULL;
	struct glk_cuda_scope scope;
	glk_cu_result result;
	int err;

	err = glk_cuda_enter(cuda, device, &scope);
	if (err)
		return err;
	glk_cuda_relax(cuda, &scope);
	result = cuda->lib->cuStreamCreate(&stream, GLK_CU_STREAM_NON_BLOCKING);
	glk_cuda_leave(cuda, &scope);
	if (result)
		return glk_cuda_fail(cuda->lib, "cuStreamCreate", result,
			"a stream on GPU %d", device);
	*ret_stream = stream;
	return 0;
}

int glk_cuda_stream_free(struct glk_drv *drv, int device, struct CUstream_st *stream)
{
	struct glk_cuda *cuda = glk_cuda_of(drv);
	glk_cu_result waited, ended;
	struct glk_cuda_scope scope;
	int err;

	if (glk_stream_is_default(stream))
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
			"the default streams cannot be ended");
	if (glk_cuda_exiting())
		return 0;
	err = glk_cuda_enter(cuda, device, &scope);
	if (err)
		return err;
	glk_cuda_relax(cuda, &scope);
	waited = cuda->lib->cuStreamSynchronize(stream);
	ended = cuda->lib->cuStreamDestroy(stream);
	glk_cuda_leave(cuda, &scope);
	if (ended == GLK_CU_DEINITIALIZED)
		return 0;
	if (waited)
		return glk_cuda_fail(cuda->lib, "cuStreamSynchronize", waited,
			"the last work of a stream on GPU %d", device);
	if (ended)
		return glk_cuda_fail(cuda->lib, "cuStreamDestroy", ended,
			"the end of a stream on GPU %d", device);
	return 0;
}

int glk_cuda_stream_sync(struct glk_drv *drv, int device, struct CUstream_st *stream)
{
	struct glk_cuda *cuda = glk_cuda_of(drv);
	struct glk_cuda_scope scope;
	glk_cu_result result;
	int err;

	err = glk_cuda_enter(cuda, device, &scope);
	if (err)
		return err;
	glk_cuda_relax(cuda, &scope);
	result = cuda->lib->cuStreamSynchronize(stream);
	glk_cuda_leave(cuda, &scope);
	if (result)
		return glk_cuda_fail(cuda->lib, "cuStreamSynchronize", result,
			"the work of a stream on GPU %d", device);
	return 0;
}

int glk_cuda_device_sync(struct glk_drv *drv, int device)
{
	struct glk_cuda *cuda = glk_cuda_of(drv);
	struct glk_cuda_scope scope;
	glk_cu_result result;
	int err;

	err = glk_cuda_enter(cuda, device, &scope);
	if (err)
		return err;
	glk_cuda_relax(cuda, &scope);
	result = cuda->lib->cuCtxSynchronize();
	glk_cuda_leave(cuda, &scope);
	if (result)
		return glk_cuda_fail(cuda->lib, "cuCtxSynchronize", result,
			"the work of GPU %d", device);
	return 0;
}

/* Whether an address is of a GPU, or managed; of other memory the driver names a GPU as well:
 * the one that was current when it was locked. */
static bool is_of_gpu(struct glk_cuda *cuda, uint64_t addr)
{
	unsigned type = 0, managed = 0; /* the driver writes a byte for a truth */

	if (!cuda->lib->cuPointerGetAttribute(&type, GLK_CU_POINTER_MEMORY_TYPE, addr) &&
		type == GLK_CU_MEMORY_GPU)
		return true;
	return !cuda->lib->cuPointerGetAttribute(
		       &managed, GLK_CU_POINTER_IS_MANAGED, addr) &&
		managed;
}

/* The GPU that the driver names for an address; -1: none of ours. */
static int gpu_of(struct glk_cuda *cuda, uint64_t addr)
{
	int ordinal = -1, gpu = -1;

	if (cuda->lib->cuPointerGetAttribute(&ordinal, GLK_CU_POINTER_DEVICE, addr))
		return -1;
	for (int i = 0; i < cuda->gpus; i++)
		if (ordinal >= 0 && cuda->gpu[i].device == ordinal)
			gpu = i;
	return gpu;
}

/* Pages of the host may be open to the GPU alone that is named for them: it comes before the
 * first. */
int glk_cuda_copy_gpu(struct glk_drv *drv, uint64_t dst, uint64_t src, int *ret_device)
{
	struct glk_cuda *cuda = glk_cuda_of(drv);
	struct glk_cuda_scope scope;
	int device = -1, err;

	err = glk_cuda_enter_any(cuda, &scope);
	if (err)
		return err;
	if (is_of_gpu(cuda, dst))
		device = gpu_of(cuda, dst);
	if (device < 0 && is_of_gpu(cuda, src))
		device = gpu_of(cuda, src);
	if (device < 0)
		device = gpu_of(cuda, dst);
	if (device < 0)
		device = gpu_of(cuda, src);
	glk_cuda_leave(cuda, &scope);
	*ret_device = device < 0 ? 0 : device;
	return 0;
}

static int work_enter(struct glk_cuda *cuda, struct CUstream_st *stream, uint64_t dst,
	uint64_t src, struct glk_cuda_scope *ret_scope)
{
	int device = 0, err = 0;

	/* they belong to whatever context is current */
	if (glk_stream_is_default(stream))
		err = glk_cuda_copy_gpu(&cuda->drv, dst, src, &device);
	return err ? err : glk_cuda_enter_stream(cuda, stream, device, ret_scope);
}

int glk_cuda_copy(struct glk_drv *drv, uint64_t dst, uint64_t src, size_t size,
	struct CUstream_st *stream)
{
	struct glk_cuda *cuda = glk_cuda_of(drv);
	struct glk_cuda_scope scope;
	glk_cu_result result;
	int err;

	err = work_enter(cuda, stream, dst, src, &scope);
	if (err)
		return err;
	result = cuda->lib->cuMemcpyAsync(dst, src, size, stream);
	glk_cuda_leave(cuda, &scope);
	if (result)
		return glk_cuda_fail(cuda->lib, "cuMemcpyAsync", result,
			"copy of %zu bytes from %#llx to %#llx", size,
			(unsigned long long)src, (unsigned long long)dst);
	return 0;
}

int glk_cuda_fill(struct glk_drv *drv, uint64_t dst, uint32_t value, size_t count,
	struct CUstream_st *stream)
{
	struct glk_cuda *cuda = glk_cuda_of(drv);
	struct glk_cuda_scope scope;
	glk_cu_result result;
	int err;

	err = work_enter(cuda, stream, dst, dst, &scope);
	if (err)
		return err;
	result = cuda->lib->cuMemsetD32Async(dst, value, count, stream);
	glk_cuda_leave(cuda, &scope);
	if (result)
		return glk_cuda_fail(cuda->lib, "cuMemsetD32Async", result,
			"fill of %zu words at %#llx", count, (unsigned long long)dst);
	return 0;
}

int glk_cuda_gate(struct glk_drv *drv, int device, struct CUstream_st *stream,
	struct glk_drv_gate *gate, uint32_t number)
{
	struct glk_cuda *cuda = glk_cuda_of(drv);
	const struct glk_cuda_lib *lib = cuda->lib;
	const char *call = "cuStreamWriteValue32";
	struct glk_cuda_scope scope;
	glk_cu_result result;
	int err;

	if (!lib->cuStreamWriteValue32 || !lib->cuStreamWaitValue32)
		return glk_error(-EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED,
			"streams of this driver do not wait for the host");
	err = glk_cuda_enter_stream(cuda, stream, device, &scope);
	if (err)
		return err;
	result = lib->cuStreamWriteValue32(stream, (uintptr_t)&gate->at, number, 0);
	if (!result) {
		call = "cuStreamWaitValue32";
		result = lib->cuStreamWaitValue32(stream, (uintptr_t)&gate->open, number,
			GLK_CU_STREAM_WAIT_VALUE_GEQ);
	}
	glk_cuda_leave(cuda, &scope);
	if (result)
		return glk_cuda_fail(lib, call, result, "a gate on GPU %d", device);
	return 0;
}
