/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The preload's declarations of the CUDA driver against NVIDIA's headers: numbers, structures,
 * and for each hook that its signature is the one the named CUDA release gave the function.
 * Built as a skip where no cuda.h was found.
 */
#define TAP_NO_LOG
#include "tap.h"

#ifndef GLK_HAVE_CUDA_H
int main(void)
{
	tap_skip_all("no cuda.h on the machine that built this test");
}
#else
#include <cuda.h>
#include <cudaTypedefs.h>

#if CUDA_VERSION < 13000
int main(void)
{
	tap_skip_all("cuda.h is older than CUDA 13.0, whose functions are hooked");
}
#else
#include "front/preload/table.h"

/* clang-format off */
#define NUMBERS(N)									\
	N(GLK_CU_SUCCESS, CUDA_SUCCESS)							\
	N(GLK_CU_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE)				\
	N(GLK_CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY)				\
	N(GLK_CU_NOT_INITIALIZED, CUDA_ERROR_NOT_INITIALIZED)				\
	N(GLK_CU_INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT)				\
	N(GLK_CU_MAP_FAILED, CUDA_ERROR_MAP_FAILED)					\
	N(GLK_CU_PEER_UNSUPPORTED, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED)			\
	N(GLK_CU_INVALID_HANDLE, CUDA_ERROR_INVALID_HANDLE)				\
	N(GLK_CU_NOT_READY, CUDA_ERROR_NOT_READY)					\
	N(GLK_CU_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED)				\
	N(GLK_CU_STREAM_CAPTURE_UNSUPPORTED, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)	\
	N(GLK_CU_CAPTURED_EVENT, CUDA_ERROR_CAPTURED_EVENT)				\
	N(GLK_CU_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED)			\
	N(GLK_CU_CAPTURE_NONE, CU_STREAM_CAPTURE_STATUS_NONE)				\
	N(GLK_CU_ALLOCATION_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED)			\
	N(GLK_CU_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE)				\
	N(GLK_CU_POINTER_CONTEXT, CU_POINTER_ATTRIBUTE_CONTEXT)				\
	N(GLK_CU_POINTER_LEGACY_IPC, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE)	\
	N(GLK_CU_POINTER_RANGE_START, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)		\
	N(GLK_CU_POINTER_RANGE_SIZE, CU_POINTER_ATTRIBUTE_RANGE_SIZE)			\
	N(GLK_CU_PROC_LEGACY_STREAM, CU_GET_PROC_ADDRESS_LEGACY_STREAM)			\
	N(GLK_CU_PROC_THREAD_STREAM, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)	\
	N(GLK_CU_PROC_FOUND, CU_GET_PROC_ADDRESS_SUCCESS)				\
	N(GLK_CU_STREAM_PER_THREAD, CU_STREAM_PER_THREAD)
/* clang-format on */

static void numbers(void)
{
#define NUMBER(ours, theirs) is_int((intptr_t)(ours), (intptr_t)(theirs), #theirs);
	NUMBERS(NUMBER)
#undef NUMBER
}

#define FIELD(ours, our, theirs, their)                                                  \
	do {                                                                             \
		is_int(offsetof(ours, our), offsetof(theirs, their),                     \
			"offset of " #theirs "." #their);                                \
		is_int(sizeof(((ours *)0)->our), sizeof(((theirs *)0)->their),           \
			"size of " #theirs "." #their);                                  \
	} while (0)

static void shapes(void)
{
	is_int(sizeof(struct glk_cu_pool_props), sizeof(CUmemPoolProps), "pool props");
	FIELD(struct glk_cu_pool_props, type, CUmemPoolProps, allocType);
	FIELD(struct glk_cu_pool_props, handle_types, CUmemPoolProps, handleTypes);
	FIELD(struct glk_cu_pool_props, location, CUmemPoolProps, location);
	FIELD(struct glk_cu_pool_props, win32, CUmemPoolProps, win32SecurityAttributes);
	FIELD(struct glk_cu_pool_props, max_size, CUmemPoolProps, maxSize);
	FIELD(struct glk_cu_pool_props, usage, CUmemPoolProps, usage);
	FIELD(struct glk_cu_pool_props, reserved, CUmemPoolProps, reserved);
	is_int(sizeof(struct glk_cu_location), sizeof(CUmemLocation), "a location");
	FIELD(struct glk_cu_location, type, CUmemLocation, type);
	FIELD(struct glk_cu_location, id, CUmemLocation, id);
	is_int(sizeof(struct glk_cu_access), sizeof(CUmemAccessDesc), "an access");
	FIELD(struct glk_cu_access, location, CUmemAccessDesc, location);
	FIELD(struct glk_cu_access, flags, CUmemAccessDesc, flags);
	is_int(sizeof(struct glk_cu_ipc_handle), sizeof(CUipcMemHandle), "a handle");
}

/* From here on our names stand for NVIDIA's types of the same meaning, so that the lists can be
 * expanded with them and compared type for type. */
#define glk_cu_result	      CUresult
#define glk_cu_device	      CUdevice
#define glk_cu_address	      CUdeviceptr
#define glk_cu_proc_status    CUdriverProcAddressQueryResult
#define glk_cu_capture_mode   CUstreamCaptureMode
#define glk_cu_capture_status CUstreamCaptureStatus
#define glk_cu_allocation     CUmemAllocationType
#define glk_cu_attribute      CUpointer_attribute
#define glk_cu_pool_attribute CUmemPool_attribute
#define glk_cu_location	      CUmemLocation_st
#define glk_cu_access	      CUmemAccessDesc_st
#define glk_cu_pool_props     CUmemPoolProps_st
#define glk_cu_ipc_handle     CUipcMemHandle_st

#define TYPE(fn, symbol, version, streams, group, parameters, arguments)                 \
	typedef glk_cu_result type_##fn parameters;
GLK_PRELOAD_HOOKS(TYPE)
#define CALL_TYPE(fn, parameters) typedef glk_cu_result type_##fn parameters;
GLK_PRELOAD_CALLS(CALL_TYPE)

/* Signatures that the headers keep to themselves. */
typedef CUresult (*PFN_cuStreamBeginCapture_v10000)(CUstream);
typedef CUresult (*PFN_cuStreamBeginCapture_v10000_ptsz)(CUstream);
typedef CUresult (*PFN_cuDevicePrimaryCtxReset_v7000)(CUdevice);
typedef CUresult (*PFN_cuIpcOpenMemHandle_v4010)(
	CUdeviceptr *, CUipcMemHandle, unsigned int);

#define PFN_LEGACY(type) type
#define PFN_THREAD(type) type##_ptsz

static void values(void)
{
	is_int(GLK_CU_POOL_RESERVED, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, "reserved");
	is_int(GLK_CU_POOL_RESERVED_HIGH, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, "its peak");
	is_int(GLK_CU_POOL_USED, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, "used");
	is_int(GLK_CU_POOL_USED_HIGH, CU_MEMPOOL_ATTR_USED_MEM_HIGH, "its peak");
}

static void functions(void)
{
#define CHECK(fn, symbol, version, streams, group, parameters, arguments)                \
	ok(__builtin_types_compatible_p(                                                 \
		   PFN_##streams(PFN_##symbol##_v##version), type_##fn *),               \
		"%s is %s of CUDA %d", #fn, #symbol, version);
	GLK_PRELOAD_HOOKS(CHECK)
#undef CHECK
#define CALL(fn, symbol, version)                                                        \
	ok(__builtin_types_compatible_p(PFN_##symbol##_v##version, type_##fn *),         \
		"%s is %s of CUDA %d", #fn, #symbol, version);
	CALL(cuCtxGetCurrent, cuCtxGetCurrent, 4000)
	CALL(cuCtxPushCurrent_v2, cuCtxPushCurrent, 4000)
	CALL(cuCtxPopCurrent_v2, cuCtxPopCurrent, 4000)
	CALL(cuCtxGetDevice, cuCtxGetDevice, 2000)
	CALL(cuCtxSynchronize, cuCtxSynchronize, 2000)
	CALL(cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState, 7000)
	CALL(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000)
	CALL(cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease, 11000)
	CALL(cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool, 11020)
	CALL(cuGraphDestroy, cuGraphDestroy, 10000)
	CALL(cuStreamGetCtx, cuStreamGetCtx, 9020)
	CALL(cuStreamIsCapturing, cuStreamIsCapturing, 10000)
	CALL(cuStreamQuery, cuStreamQuery, 2000)
	CALL(cuStreamSynchronize, cuStreamSynchronize, 2000)
	CALL(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, 10010)
#undef CALL
}

int main(void)
{
	tap_plan_later();
	tap_note("cuda.h of CUDA %d", CUDA_VERSION);
	numbers();
	shapes();
	values();
	functions();
	return tap_done();
}
#endif
#endif
