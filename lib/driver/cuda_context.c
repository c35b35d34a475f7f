/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which CUDA context is current in the calling thread belongs to the program, so each call of
 * ours finds the one it needs, pushes it if another is current, and pops it. In most calls
 * the right one is current already, which asking shows for 0.04 us.
 *
 * The context of a GPU is its primary one, which the CUDA runtime uses too. It is retained
 * once per instance, when an operation first names the GPU, and given back at close. Two
 * threads may retain it at once; the loser gives its reference back, so no lock is needed.
 */
#include "driver/cuda_state.h"

#include "base/rcu.h"

#include <errno.h>

int glk_cuda_alive(const struct glk_cuda *cuda)
{
	if (glk_cuda_exiting())
		return glk_error(-ENODEV, GLAKE_ERROR_SHUTDOWN,
			"the process is exiting, and the driver may have gone");
	if (cuda->forks != glk_fork_generation())
		return glk_error(-ENODEV, GLAKE_ERROR_FORKED,
			"CUDA cannot be used in a child of the process that opened it");
	return 0;
}

static int was_reset(int device)
{
	return glk_error_native(-ENODEV, GLAKE_ERROR_DEVICE_LOST, "cuCtxGetId",
		GLK_CU_CONTEXT_IS_DESTROYED,
		"the program has reset the context of GPU %d, with all that was in it",
		device);
}

int glk_cuda_intact(struct glk_cuda *cuda, int device)
{
	unsigned long long id = 0;
	struct glk_cuda_gpu *gpu;
	struct CUctx_st *context;
	int err = glk_cuda_alive(cuda);

	if (err || device < 0 || device >= cuda->gpus)
		return err;
	gpu = &cuda->gpu[device];
	context = glk_load_acquire(&gpu->context); /* pairs with: the release in retain */
	if (!context)
		return 0;
	if (glk_load_relaxed(&gpu->reset))
		return was_reset(device);
	if (!glk_load_relaxed(&gpu->id) ||
		(!cuda->lib->cuCtxGetId(context, &id) &&
			id == glk_load_relaxed(&gpu->id)))
		return 0;
	glk_store_relaxed(&gpu->reset, true);
	return was_reset(device);
}

void glk_cuda_relax(struct glk_cuda *cuda, struct glk_cuda_scope *scope)
{
	if (scope->relaxed)
		return;
	scope->mode = GLK_CU_CAPTURE_MODE_RELAXED;
	scope->relaxed = !cuda->lib->cuThreadExchangeStreamCaptureMode(&scope->mode);
}

void glk_cuda_leave(struct glk_cuda *cuda, struct glk_cuda_scope *scope)
{
	struct CUctx_st *popped;

	if (scope->relaxed)
		cuda->lib->cuThreadExchangeStreamCaptureMode(&scope->mode);
	if (scope->pushed)
		cuda->lib->cuCtxPopCurrent(&popped);
	*scope = (struct glk_cuda_scope){0};
}

static glk_cu_result make_current(
	struct glk_cuda *cuda, struct CUctx_st *context, struct glk_cuda_scope *ret_scope)
{
	struct glk_cuda_scope scope = {0};
	struct CUctx_st *current = NULL;
	glk_cu_result result;

	if (cuda->lib->cuCtxGetCurrent(&current) || current != context) {
		result = cuda->lib->cuCtxPushCurrent(context);
		if (result)
			return result;
		scope.pushed = true;
	}
	*ret_scope = scope;
	return GLK_CU_SUCCESS;
}

static int retain(struct glk_cuda *cuda, int device, struct CUctx_st **ret_context)
{
	struct CUctx_st *context = NULL, *first = NULL;
	struct glk_cuda_gpu *gpu = &cuda->gpu[device];
	struct glk_cuda_scope scope = {0};
	unsigned long long id = 0;
	glk_cu_result result;

	glk_cuda_relax(cuda, &scope);
	result = cuda->lib->cuDevicePrimaryCtxRetain(&context, gpu->device);
	glk_cuda_leave(cuda, &scope);
	if (result)
		return glk_cuda_fail(cuda->lib, "cuDevicePrimaryCtxRetain", result,
			"the context of GPU %d", device);
	if (!cuda->lib->cuCtxGetId || cuda->lib->cuCtxGetId(context, &id))
		id = 0;
	glk_store_relaxed(&gpu->id, id);
	/* pairs with: the acquire in glk_cuda_intact and glk_cuda_enter_any */
	if (!glk_cas_acq_rel(&gpu->context, &first, context))
		cuda->lib->cuDevicePrimaryCtxRelease(gpu->device);
	*ret_context = first ? first : context;
	return 0;
}

int glk_cuda_context(struct glk_cuda *cuda, int device, struct CUctx_st **ret_context)
{
	struct CUctx_st *context;
	int err;

	if (device < 0 || device >= cuda->gpus)
		return glk_error(
			-EINVAL, GLAKE_ERROR_INVAL, "GPU %d of %d", device, cuda->gpus);
	err = glk_cuda_intact(cuda, device);
	if (err)
		return err;
	/* pairs with: the release in retain */
	context = glk_load_acquire(&cuda->gpu[device].context);
	if (!context) {
		err = retain(cuda, device, &context);
		if (err)
			return err;
	}
	*ret_context = context;
	return 0;
}

int glk_cuda_enter(struct glk_cuda *cuda, int device, struct glk_cuda_scope *ret_scope)
{
	struct CUctx_st *context;
	glk_cu_result result;
	int err;

	err = glk_cuda_context(cuda, device, &context);
	if (err)
		return err;
	result = make_current(cuda, context, ret_scope);
	if (result)
		return glk_cuda_fail(cuda->lib, "cuCtxPushCurrent", result,
			"the context of GPU %d", device);
	return 0;
}

int glk_cuda_enter_any(struct glk_cuda *cuda, struct glk_cuda_scope *ret_scope)
{
	struct glk_cuda_scope scope = {0};
	struct CUctx_st *context = NULL;
	int err = glk_cuda_alive(cuda);

	if (err)
		return err;
	if (cuda->lib->cuCtxGetCurrent(&context))
		context = NULL;
	for (int i = 0; !context && i < cuda->gpus; i++) {
		/* pairs with: the release in retain */
		context = glk_load_acquire(&cuda->gpu[i].context);
		/* A lost context cannot be pushed; memory is given back without one too. */
		if (context)
			scope.pushed = !cuda->lib->cuCtxPushCurrent(context);
	}
	*ret_scope = scope;
	return 0;
}

int glk_cuda_enter_stream(struct glk_cuda *cuda, struct CUstream_st *stream, int device,
	struct glk_cuda_scope *ret_scope)
{
	struct CUctx_st *context = NULL;
	glk_cu_result result;
	int err;

	if (glk_stream_is_default(stream))
		return glk_cuda_enter(cuda, device, ret_scope);
	err = glk_cuda_alive(cuda);
	if (err)
		return err;
	result = cuda->lib->cuStreamGetCtx(stream, &context);
	if (result)
		return glk_cuda_fail(
			cuda->lib, "cuStreamGetCtx", result, "the context of a stream");
	result = make_current(cuda, context, ret_scope);
	if (result)
		return glk_cuda_fail(
			cuda->lib, "cuCtxPushCurrent", result, "the context of a stream");
	return 0;
}

int glk_cuda_contexts_release(struct glk_cuda *cuda)
{
	glk_cu_result result;
	int err = 0;

	for (int i = 0; i < cuda->gpus; i++) {
		/* pairs with: the release in retain */
		if (!glk_xchg_acq_rel(&cuda->gpu[i].context, NULL))
			continue;
		result = cuda->lib->cuDevicePrimaryCtxRelease(cuda->gpu[i].device);
		if (result && result != GLK_CU_DEINITIALIZED)
			err = glk_cuda_fail(cuda->lib, "cuDevicePrimaryCtxRelease",
				result, "the context of GPU %d", i);
	}
	return err;
}
