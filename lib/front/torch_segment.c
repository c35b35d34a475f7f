/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Memory in the manner of cudaMalloc and cudaFree: usable on all streams from the first moment,
 * and free of them all when it goes. torch.cuda.MemPool asks for segments so, with PyTorch's own
 * allocator on top, and frees them with no more than what it knows of its own streams.
 *
 * All segments of a GPU are in the order of one stream of ours. After a request that stream is
 * waited for, in case memory came behind the work of somebody else; before a free the GPU is, as
 * cudaFree does. Both are rare. PyTorch frees no segment during a capture, and where the GPU cannot
 * be waited for the segment is kept.
 *
 * NULL is an answer here: PyTorch then empties its caches and tries again.
 */
#include "front/torch.h"
#include "front/wait.h"

#include <pthread.h>

#define DEVICES_MAX 64

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct CUstream_st *streams[DEVICES_MAX];

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

static void *alloc(size_t size, int device, uint32_t flags)
{
	struct glake *ctx = glake_torch_context();
	struct CUstream_st *own = ctx ? stream_of(ctx, device) : NULL;
	void *ptr = NULL;

	if (!size || !own)
		return NULL;
	glk_torch_pool_choose_none();
	if (glake_alloc(ctx, device, size, own, flags, &ptr))
		return NULL;
	if (!glk_front_wait(ctx, device, own)) {
		glake_free(ctx, ptr, own);
		return NULL;
	}
	return ptr;
}

void *glake_torch_segment_alloc(size_t size, int device, struct CUstream_st *stream)
{
	return alloc(size, device, 0);
}

void *glake_torch_managed_alloc(size_t size, int device, struct CUstream_st *stream)
{
	return alloc(size, device, GLAKE_ALLOC_MANAGED);
}

void *glake_torch_managed_over_alloc(size_t size, int device, struct CUstream_st *stream)
{
	return alloc(size, device, GLAKE_ALLOC_MANAGED | GLAKE_ALLOC_MANAGED_OVER);
}

void glake_torch_segment_free(
	void *ptr, size_t size, int device, struct CUstream_st *stream)
{
	struct glake_block block = {.sz = sizeof(block)};
	struct glake *ctx = glake_torch_context();

	if (!ptr || !ctx || glake_query(ctx, ptr, &block) || block.base != ptr)
		return;
	if (glk_front_wait(ctx, block.device, NULL))
		glake_free(ctx, ptr, block.stream);
}
