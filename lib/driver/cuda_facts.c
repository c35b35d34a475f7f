/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What is known of a stream without waiting: who it is, what it captures, whose it is. Asked
 * whenever a program names a stream, so a real handle is asked about as it is, without making
 * a context current first; only the default streams depend on which one is.
 *
 * While a stream captures, its number is not asked for: the driver refuses, in every mode of
 * capture, and breaks the capture (580.159).
 *
 * The legacy stream itself never captures, but while a blocking stream does, whatever is
 * recorded on it would end that capture: the driver says so, and it counts as a broken one. So
 * does a capture that was invalidated and not ended yet. Nor is its number asked for, which nobody
 * needs: the driver looks through the blocking streams for that, and crashes where another thread
 * begins or ends a capture on one meanwhile (580.159).
 */
#include "base/cancel.h"
#include "driver/cuda_state.h"

#include <errno.h>

static glk_cu_result ask(const struct glk_cuda_lib *lib, struct CUstream_st *stream,
	struct glk_stream_facts *ret_facts, const char **ret_call)
{
	glk_cu_capture_status status = GLK_CU_CAPTURE_NONE;
	unsigned long long id = 0;
	uint64_t capture = 0;
	glk_cu_result result;

	*ret_call = "cuStreamGetCaptureInfo";
	result = lib->cuStreamGetCaptureInfo_v1(stream, &status, &capture);
	if (result == GLK_CU_STREAM_CAPTURE_IMPLICIT)
		status = GLK_CU_CAPTURE_INVALIDATED;
	else if (result)
		return result;
	if (status != GLK_CU_CAPTURE_NONE) {
		if (status != GLK_CU_CAPTURE_ACTIVE || !capture)
			capture = GLK_CAPTURE_BROKEN;
	} else {
		*ret_call = "cuStreamGetId";
		result = lib->cuStreamGetId && stream && stream != GLK_STREAM_LEGACY
			? lib->cuStreamGetId(stream, &id)
			: GLK_CU_SUCCESS;
		if (result)
			return result;
		capture = 0;
	}
	*ret_facts = (struct glk_stream_facts){.id = id, .capture = capture};
	return GLK_CU_SUCCESS;
}

static int facts(struct glk_drv *drv, int device, struct CUstream_st *stream,
	struct glk_stream_facts *ret_facts)
{
	glk_cu_result result = GLK_CU_INVALID_CONTEXT;
	struct glk_cuda *cuda = glk_cuda_of(drv);
	struct glk_cuda_scope scope;
	const char *call;
	int err;

	err = glk_cuda_intact(cuda, device);
	if (err)
		return err;
	if (!glk_stream_is_default(stream))
		result = ask(cuda->lib, stream, ret_facts, &call);
	/* Also where the driver wants some context to be current for a real handle. */
	if (result == GLK_CU_INVALID_CONTEXT) {
		err = glk_cuda_enter(cuda, device, &scope);
		if (err)
			return err;
		result = ask(cuda->lib, stream, ret_facts, &call);
		glk_cuda_leave(cuda, &scope);
	}
	if (result)
		return glk_cuda_fail(
			cuda->lib, call, result, "a stream on GPU %d", device);
	return 0;
}

int glk_cuda_stream_facts(struct glk_drv *drv, int device, struct CUstream_st *stream,
	struct glk_stream_facts *ret_facts)
{
	struct glk_cancel cancel;
	int err;

	glk_cancel_put_off(&cancel);
	err = facts(drv, device, stream, ret_facts);
	glk_cancel_put_back(&cancel);
	return err;
}

/* The results of a handle that is none, or whose context has gone. */
static bool is_stale(glk_cu_result result)
{
	return result == GLK_CU_INVALID_VALUE || result == GLK_CU_INVALID_HANDLE ||
		result == GLK_CU_INVALID_CONTEXT || result == GLK_CU_CONTEXT_IS_DESTROYED;
}

static int wrong_owner(struct glk_cuda *cuda, int device, const struct CUctx_st *context)
{
	for (int i = 0; i < cuda->gpus; i++) {
		/* pairs with: the release in retain */
		if (glk_load_acquire(&cuda->gpu[i].context) == context)
			return glk_error_native(-EINVAL, GLAKE_ERROR_INVAL,
				"cuStreamGetCtx", 0,
				"the stream is of GPU %d, not of GPU %d", i, device);
	}
	return glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, "cuStreamGetCtx", 0,
		"the stream is of another context than the primary one of GPU %d",
		device);
}

int glk_cuda_stream_owner(struct glk_drv *drv, int device, struct CUstream_st *stream)
{
	struct CUctx_st *context = NULL, *primary;
	struct glk_cuda *cuda = glk_cuda_of(drv);
	glk_cu_result result;
	int err;

	err = glk_cuda_context(cuda, device, &primary);
	if (err || glk_stream_is_default(stream))
		return err;
	result = cuda->lib->cuStreamGetCtx(stream, &context);
	if (is_stale(result))
		return glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, "cuStreamGetCtx",
			(int)result, "%#lx is no stream, or was ended",
			(unsigned long)(uintptr_t)stream);
	if (result)
		return glk_cuda_fail(
			cuda->lib, "cuStreamGetCtx", result, "the context of a stream");
	return context == primary ? 0 : wrong_owner(cuda, device, context);
}
