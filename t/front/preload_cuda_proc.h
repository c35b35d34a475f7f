/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_T_PRELOAD_CUDA_PROC_H
#define GLK_T_PRELOAD_CUDA_PROC_H

/* How functions of the libcuda.so.1 for tests are found; a part of preload_cuda.c. */
#include "driver/cuda_abi.h"

static fake_result look_up(const char *symbol, void **fn, int version, uint64_t flags);

CUDA(cuGetProcAddress, (const char *symbol, void **fn, int version, uint64_t flags),
	(symbol, fn, version, flags))
{
	return look_up(symbol, fn, version, flags);
}

CUDA(cuGetProcAddress_v2,
	(const char *symbol, void **fn, int version, uint64_t flags, unsigned *status),
	(symbol, fn, version, flags, status))
{
	fake_result result = look_up(symbol, fn, version, flags);

	if (status)
		*status = *fn ? 0 : 1;
	return result;
}

/* R(function, symbol, version); of the same symbol the newest comes last. */
/* clang-format off */
#define ROWS(R)										\
	R(cuInit, cuInit, 2000)								\
	R(cuDriverGetVersion, cuDriverGetVersion, 2020)					\
	R(cuGetErrorName, cuGetErrorName, 6000)						\
	R(cuGetErrorString, cuGetErrorString, 6000)					\
	R(cuDeviceGetCount, cuDeviceGetCount, 2000)					\
	R(cuDeviceGet, cuDeviceGet, 2000)						\
	R(cuDeviceGetName, cuDeviceGetName, 2000)					\
	R(cuDeviceGetUuid_v2, cuDeviceGetUuid, 9020)					\
	R(cuDeviceGetPCIBusId, cuDeviceGetPCIBusId, 4010)				\
	R(cuDeviceGetAttribute, cuDeviceGetAttribute, 2000)				\
	R(cuDeviceTotalMem_v2, cuDeviceTotalMem, 3020)					\
	R(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000)			\
	R(cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease, 11000)		\
	R(cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset, 11000)			\
	R(cuCtxGetCurrent, cuCtxGetCurrent, 4000)					\
	R(cuCtxSetCurrent, cuCtxSetCurrent, 4000)					\
	R(cuCtxPushCurrent_v2, cuCtxPushCurrent, 4000)					\
	R(cuCtxPopCurrent_v2, cuCtxPopCurrent, 4000)					\
	R(cuCtxSynchronize, cuCtxSynchronize, 2000)					\
	R(cuCtxGetId, cuCtxGetId, 12000)						\
	R(cuCtxEnablePeerAccess, cuCtxEnablePeerAccess, 4000)				\
	R(cuDeviceCanAccessPeer, cuDeviceCanAccessPeer, 4000)				\
	R(cuCtxDisablePeerAccess, cuCtxDisablePeerAccess, 4000)				\
	R(cuPointerGetAttribute, cuPointerGetAttribute, 4000)				\
	R(cuPointerGetAttributes, cuPointerGetAttributes, 7000)				\
	R(cuMemAddressReserve, cuMemAddressReserve, 10020)				\
	R(cuMemAddressFree, cuMemAddressFree, 10020)					\
	R(cuMemCreate, cuMemCreate, 10020)						\
	R(cuMemRelease, cuMemRelease, 10020)						\
	R(cuMemMap, cuMemMap, 10020)							\
	R(cuMemUnmap, cuMemUnmap, 10020)						\
	R(cuMemSetAccess, cuMemSetAccess, 10020)					\
	R(cuMemGetAllocationGranularity, cuMemGetAllocationGranularity, 10020)		\
	R(cuMemExportToShareableHandle, cuMemExportToShareableHandle, 10020)		\
	R(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, 10020)	\
	R(cuStreamCreate, cuStreamCreate, 2000)						\
	R(cuStreamDestroy_v2, cuStreamDestroy, 4000)					\
	R(cuStreamSynchronize, cuStreamSynchronize, 2000)				\
	R(cuStreamGetCaptureInfo, cuStreamGetCaptureInfo, 10010)			\
	R(cuStreamGetCtx, cuStreamGetCtx, 9020)						\
	R(cuStreamGetId, cuStreamGetId, 12000)						\
	R(cuStreamWaitEvent, cuStreamWaitEvent, 3020)					\
	R(cuStreamBeginCapture_v2, cuStreamBeginCapture, 10010)				\
	R(cuStreamEndCapture, cuStreamEndCapture, 10000)				\
	R(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, 10010)	\
	R(cuEventCreate, cuEventCreate, 2000)						\
	R(cuEventDestroy_v2, cuEventDestroy, 4000)					\
	R(cuEventRecord, cuEventRecord, 2000)						\
	R(cuEventQuery, cuEventQuery, 2000)						\
	R(cuEventSynchronize, cuEventSynchronize, 2000)					\
	R(cuMemcpyAsync, cuMemcpyAsync, 4000)						\
	R(cuMemsetD32Async, cuMemsetD32Async, 3020)					\
	R(cuMemAlloc_v2, cuMemAlloc, 3020)						\
	R(cuMemAllocPitch_v2, cuMemAllocPitch, 3020)					\
	R(cuMemFree_v2, cuMemFree, 3020)						\
	R(cuMemFree_v9, cuMemFree, 13000)						\
	R(cuMemGetInfo_v2, cuMemGetInfo, 3020)						\
	R(cuMemGetAddressRange_v2, cuMemGetAddressRange, 3020)				\
	R(cuMemAllocAsync, cuMemAllocAsync, 11020)					\
	R(cuMemFreeAsync, cuMemFreeAsync, 11020)					\
	R(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 11020)			\
	R(cuMemPoolCreate, cuMemPoolCreate, 11020)					\
	R(cuMemPoolDestroy, cuMemPoolDestroy, 11020)					\
	R(cuMemPoolGetAttribute, cuMemPoolGetAttribute, 11020)				\
	R(cuMemPoolSetAttribute, cuMemPoolSetAttribute, 11020)				\
	R(cuMemPoolTrimTo, cuMemPoolTrimTo, 11020)					\
	R(cuDeviceSetMemPool, cuDeviceSetMemPool, 11020)				\
	R(cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool, 11020)			\
	R(cuMemGetAllocationPropertiesFromHandle,					\
		cuMemGetAllocationPropertiesFromHandle, 10020)				\
	R(cuMemAllocManaged, cuMemAllocManaged, 6000)					\
	R(cuIpcGetMemHandle, cuIpcGetMemHandle, 4010)					\
	R(cuIpcOpenMemHandle, cuIpcOpenMemHandle, 4010)					\
	R(cuIpcOpenMemHandle_v2, cuIpcOpenMemHandle, 11000)				\
	R(cuIpcCloseMemHandle, cuIpcCloseMemHandle, 4010)				\
	R(cuGetProcAddress, cuGetProcAddress, 11030)					\
	R(cuGetProcAddress_v2, cuGetProcAddress, 12000)
/* clang-format on */

/* For what the library asks of a driver and no test here comes to. */
static fake_result not_supported(void)
{
	return 801;
}

static fake_result look_up(const char *symbol, void **fn, int version, uint64_t flags)
{
	*fn = NULL;
	if (version > VERSION)
		return INVALID_VALUE;
	if (flags == 2 && !strcmp(symbol, "cuMemAllocAsync")) {
		*fn = (void *)cuMemAllocAsync_ptsz;
		return 0;
	}
	if (flags == 2 && !strcmp(symbol, "cuMemFreeAsync")) {
		*fn = (void *)cuMemFreeAsync_ptsz;
		return 0;
	}
#define LOOK(function, name, since)                                                      \
	if (!strcmp(symbol, #name) && since <= version)                                  \
		*fn = (void *)function;
	ROWS(LOOK)
#undef LOOK
#define LOOK(field, name, since, arguments)                                              \
	if (!*fn && !strcmp(symbol, #name) && since <= version)                          \
		*fn = (void *)not_supported;
	GLK_CUDA_FUNCTIONS(LOOK)
#undef LOOK
	return 0;
}

#endif
