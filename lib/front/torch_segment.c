/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Memory in the manner of cudaMalloc and cudaFree: usable on all streams from the first moment,
 * and free of them all when it goes. torch.cuda.MemPool asks for segments so, with PyTorch's own
 * allocator on top, and frees them with no more than what it knows of its own streams.
 *
 * All segments of a GPU are in the order of one stream of ours. After a request that stream is
 * waited for, in case memory came behind the work of somebody else; before a free the GPU is, as
 * cudaFree does. Both are rare. Waiting is forbidden while a thread captures a graph, unless it
 * says that it knows better, which is said around the first; PyTorch frees no segment during a
 * capture, and where the GPU cannot be waited for the segment is kept.
 *
 * NULL is an answer here: PyTorch then empties its caches and tries again.
 */
#include "front/torch.h"

#include <dlfcn.h>
#include <pthread.h>

#define DEVICES_MAX 64
#define RELAXED	    2 /* CU_STREAM_CAPTURE_MODE_RELAXED */

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
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct CUstream_st *streams[DEVICES_MAX];
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

/* Waits for a stream, or for the GPU with NULL. Whether that went well; on the software device
 * nothing is waited for, as nothing but tests runs there. */
static bool wait(struct glake *ctx, int device, struct CUstream_st *stream)
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

static struct CUstream_st *stream_of(struct glake *ctx, int device)
{
	struct CUstream_st *stream;

	if (device < 0 || device >= DEVICES_MAX)
		return NULL;
	pthread_mutex_lock(&lock);
	if (!streams[device])
		glake_stream_new(ctx, device, &streams[device]);
	stream = streams[device];
	pthread_mutex_unlock(&lock);
	return stream;
}

void *glake_torch_segment_alloc(size_t size, int device, struct CUstream_st *stream)
{
	struct glake *ctx = glake_torch_context();
	struct CUstream_st *own = ctx ? stream_of(ctx, device) : NULL;
	void *ptr = NULL;

	if (!size || !own)
		return NULL;
	glk_torch_pool_choose_none();
	if (glake_alloc(ctx, device, size, own, 0, &ptr))
		return NULL;
	if (!wait(ctx, device, own)) {
		glake_free(ctx, ptr, own);
		return NULL;
	}
	return ptr;
}

void glake_torch_segment_free(
	void *ptr, size_t size, int device, struct CUstream_st *stream)
{
	struct glake_block block = {.sz = sizeof(block)};
	struct glake *ctx = glake_torch_context();

	if (!ptr || !ctx || glake_query(ctx, ptr, &block) || block.base != ptr)
		return;
	if (wait(ctx, block.device, NULL))
		glake_free(ctx, ptr, block.stream);
}
