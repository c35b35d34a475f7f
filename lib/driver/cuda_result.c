/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the results of the driver mean. One table: an errno value that callers act on, and a
 * class that keeps apart what shares an errno value.
 *
 * Sticky results, after which the context or the process can do no more work on the GPU, are
 * DEVICE_LOST: those of which cuda.h says so, uncorrectable ECC and NVLink errors, a context
 * that was destroyed below us, and an MPS client that was terminated. UNKNOWN is not among
 * them: nothing says that it sticks, and if it does, the next call says so again.
 */
#include "driver/cuda_lib.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#define LOST	    -ENODEV, GLAKE_ERROR_DEVICE_LOST
#define UNSUPPORTED -EOPNOTSUPP, GLAKE_ERROR_UNSUPPORTED
#define ABSENT	    -ENODEV, GLAKE_ERROR_UNSUPPORTED
#define INVAL	    -EINVAL, GLAKE_ERROR_INVAL
#define BUSY	    -EBUSY, GLAKE_ERROR_BUSY

/* clang-format off */
static const struct {
	glk_cu_result first, last; /* a run of results */
	int err;
	enum glake_error_class class;
} meanings[] = {
	{GLK_CU_SUCCESS, GLK_CU_SUCCESS, 0, GLAKE_ERROR_NONE},
	{GLK_CU_INVALID_VALUE, GLK_CU_INVALID_VALUE, INVAL},
	{GLK_CU_OUT_OF_MEMORY, GLK_CU_OUT_OF_MEMORY, -ENOMEM, GLAKE_ERROR_NOMEM_DEVICE},
	{GLK_CU_NOT_INITIALIZED, GLK_CU_DEINITIALIZED, -ENODEV, GLAKE_ERROR_SHUTDOWN},
	{GLK_CU_STUB_LIBRARY, GLK_CU_STUB_LIBRARY, ABSENT},
	{GLK_CU_CALL_REQUIRES_NEWER_DRIVER, GLK_CU_CALL_REQUIRES_NEWER_DRIVER, UNSUPPORTED},
	{GLK_CU_DEVICE_UNAVAILABLE, GLK_CU_DEVICE_UNAVAILABLE, BUSY},
	{GLK_CU_NO_DEVICE, GLK_CU_NO_DEVICE, ABSENT},
	{GLK_CU_INVALID_DEVICE, GLK_CU_INVALID_DEVICE, INVAL},
	{GLK_CU_INVALID_CONTEXT, GLK_CU_INVALID_CONTEXT, LOST},
	{GLK_CU_ALREADY_MAPPED, GLK_CU_ALREADY_MAPPED, INVAL},
	{GLK_CU_NO_BINARY_FOR_GPU, GLK_CU_NO_BINARY_FOR_GPU, UNSUPPORTED},
	{GLK_CU_NOT_MAPPED, GLK_CU_NOT_MAPPED, INVAL},
	{GLK_CU_ECC_UNCORRECTABLE, GLK_CU_ECC_UNCORRECTABLE, LOST},
	{GLK_CU_PEER_ACCESS_UNSUPPORTED, GLK_CU_PEER_ACCESS_UNSUPPORTED, UNSUPPORTED},
	{GLK_CU_INVALID_PTX, GLK_CU_INVALID_PTX, UNSUPPORTED},
	{GLK_CU_NVLINK_UNCORRECTABLE, GLK_CU_NVLINK_UNCORRECTABLE, LOST},
	{GLK_CU_JIT_COMPILER_NOT_FOUND, GLK_CU_UNSUPPORTED_PTX_VERSION, UNSUPPORTED},
	{GLK_CU_CONTAINED, GLK_CU_CONTAINED, LOST},
	{GLK_CU_INVALID_HANDLE, GLK_CU_INVALID_HANDLE, INVAL},
	{GLK_CU_NOT_READY, GLK_CU_NOT_READY, -EAGAIN, GLAKE_ERROR_AGAIN},
	{GLK_CU_ILLEGAL_ADDRESS, GLK_CU_ILLEGAL_ADDRESS, LOST},
	{GLK_CU_LAUNCH_TIMEOUT, GLK_CU_LAUNCH_TIMEOUT, LOST},
	{GLK_CU_CONTEXT_IS_DESTROYED, GLK_CU_ASSERT, LOST},
	{GLK_CU_HARDWARE_STACK_ERROR, GLK_CU_LAUNCH_FAILED, LOST},
	{GLK_CU_TENSOR_MEMORY_LEAK, GLK_CU_TENSOR_MEMORY_LEAK, LOST},
	{GLK_CU_NOT_PERMITTED, GLK_CU_NOT_PERMITTED, -EPERM, GLAKE_ERROR_PERM},
	{GLK_CU_NOT_SUPPORTED, GLK_CU_NOT_SUPPORTED, UNSUPPORTED},
	{GLK_CU_SYSTEM_NOT_READY, GLK_CU_SYSTEM_NOT_READY, BUSY},
	{GLK_CU_SYSTEM_DRIVER_MISMATCH, GLK_CU_COMPAT_NOT_SUPPORTED_ON_DEVICE, ABSENT},
	{GLK_CU_MPS_SERVER_NOT_READY, GLK_CU_MPS_MAX_CONNECTIONS_REACHED, BUSY},
	{GLK_CU_MPS_CLIENT_TERMINATED, GLK_CU_MPS_CLIENT_TERMINATED, LOST},
	{GLK_CU_STREAM_CAPTURE_UNSUPPORTED, GLK_CU_STREAM_CAPTURE_WRONG_THREAD,
		-EBUSY, GLAKE_ERROR_CAPTURE},
};
/* clang-format on */

struct glk_cuda_meaning glk_cuda_meaning(glk_cu_result result)
{
	struct glk_cuda_meaning other = {-EIO, GLAKE_ERROR_DRIVER};

	for (size_t i = 0; i < sizeof(meanings) / sizeof(*meanings); i++) {
		if (result < meanings[i].first || result > meanings[i].last)
			continue;
		return (struct glk_cuda_meaning){meanings[i].err, meanings[i].class};
	}
	return other;
}

int glk_cuda_fail(const struct glk_cuda_lib *lib, const char *call, glk_cu_result result,
	const char *format, ...)
{
	struct glk_cuda_meaning meaning = glk_cuda_meaning(result);
	const char *name = NULL, *text = NULL;
	char what[128];
	va_list args;

	if (result == GLK_CU_NOT_READY)
		return meaning.err;
	va_start(args, format);
	vsnprintf(what, sizeof(what), format, args);
	va_end(args);
	/* A stub leaves the outputs alone; a table being loaded may lack the functions. */
	if (lib->cuGetErrorName && lib->cuGetErrorName(result, &name))
		name = NULL;
	if (lib->cuGetErrorString && lib->cuGetErrorString(result, &text))
		text = NULL;
	return glk_error_native(meaning.err, meaning.class, call, (int)result,
		"%s: %s (%s)", what, text ? text : "the driver gives no reason",
		name ? name : "unnamed");
}
