/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_DRIVER_CUDA_ABI_H
#define GLK_DRIVER_CUDA_ABI_H

/*
 * What we use of the CUDA driver's binary interface, declared by ourselves, so that building
 * needs no CUDA toolkit. t/abi/cuda.c compares every line with cuda.h where one is found.
 *
 * CUDA's enums are int-sized and unsigned here; handles have CUDA's own structure tags.
 */
#include <stddef.h>
#include <stdint.h>

struct CUctx_st;
struct CUstream_st;
struct CUevent_st;
struct CUmod_st;
struct CUfunc_st;

typedef unsigned int glk_cu_result;
typedef unsigned int glk_cu_attribute;
typedef unsigned int glk_cu_pointer_attribute;
typedef unsigned int glk_cu_capture_mode;
typedef unsigned int glk_cu_capture_status;
typedef unsigned int glk_cu_handle_type;
typedef unsigned int glk_cu_granularity;
typedef unsigned int glk_cu_range_type;
typedef unsigned int glk_cu_proc_status;
typedef unsigned int glk_cu_advice;
typedef unsigned int glk_cu_range_attribute;
typedef int glk_cu_device;
typedef unsigned long long glk_cu_address;
typedef unsigned long long glk_cu_page;

enum {
	GLK_CU_SUCCESS = 0,
	GLK_CU_INVALID_VALUE = 1,
	GLK_CU_OUT_OF_MEMORY = 2,
	GLK_CU_NOT_INITIALIZED = 3,
	GLK_CU_DEINITIALIZED = 4,
	GLK_CU_STUB_LIBRARY = 34,
	GLK_CU_CALL_REQUIRES_NEWER_DRIVER = 36,
	GLK_CU_DEVICE_UNAVAILABLE = 46,
	GLK_CU_NO_DEVICE = 100,
	GLK_CU_INVALID_DEVICE = 101,
	GLK_CU_INVALID_CONTEXT = 201,
	GLK_CU_ALREADY_MAPPED = 208,
	GLK_CU_NO_BINARY_FOR_GPU = 209,
	GLK_CU_NOT_MAPPED = 211,
	GLK_CU_ECC_UNCORRECTABLE = 214,
	GLK_CU_PEER_ACCESS_UNSUPPORTED = 217,
	GLK_CU_INVALID_PTX = 218,
	GLK_CU_NVLINK_UNCORRECTABLE = 220,
	GLK_CU_JIT_COMPILER_NOT_FOUND = 221,
	GLK_CU_UNSUPPORTED_PTX_VERSION = 222,
	GLK_CU_CONTAINED = 226,
	GLK_CU_INVALID_HANDLE = 400,
	GLK_CU_NOT_READY = 600,
	GLK_CU_ILLEGAL_ADDRESS = 700,
	GLK_CU_LAUNCH_TIMEOUT = 702,
	GLK_CU_CONTEXT_IS_DESTROYED = 709,
	GLK_CU_ASSERT = 710,
	GLK_CU_HARDWARE_STACK_ERROR = 714,
	GLK_CU_ILLEGAL_INSTRUCTION = 715,
	GLK_CU_MISALIGNED_ADDRESS = 716,
	GLK_CU_INVALID_ADDRESS_SPACE = 717,
	GLK_CU_INVALID_PC = 718,
	GLK_CU_LAUNCH_FAILED = 719,
	GLK_CU_TENSOR_MEMORY_LEAK = 721,
	GLK_CU_NOT_PERMITTED = 800,
	GLK_CU_NOT_SUPPORTED = 801,
	GLK_CU_SYSTEM_NOT_READY = 802,
	GLK_CU_SYSTEM_DRIVER_MISMATCH = 803,
	GLK_CU_COMPAT_NOT_SUPPORTED_ON_DEVICE = 804,
	GLK_CU_MPS_SERVER_NOT_READY = 807,
	GLK_CU_MPS_MAX_CLIENTS_REACHED = 808,
	GLK_CU_MPS_MAX_CONNECTIONS_REACHED = 809,
	GLK_CU_MPS_CLIENT_TERMINATED = 810,
	GLK_CU_STREAM_CAPTURE_UNSUPPORTED = 900,
	GLK_CU_STREAM_CAPTURE_IMPLICIT = 906,
	GLK_CU_STREAM_CAPTURE_WRONG_THREAD = 908,
	GLK_CU_UNKNOWN = 999,
};

/* Device attributes. */
enum {
	GLK_CU_ATTR_MAJOR = 75,
	GLK_CU_ATTR_MINOR = 76,
	GLK_CU_ATTR_HAS_MANAGED = 83,
	GLK_CU_ATTR_PAGEABLE = 88,
	GLK_CU_ATTR_MANAGED = 89,
	GLK_CU_ATTR_VMM = 102,
	GLK_CU_ATTR_FD = 103,
	GLK_CU_ATTR_RDMA = 110,
	GLK_CU_ATTR_DMABUF = 124,
	GLK_CU_ATTR_FABRIC = 128,
	GLK_CU_ATTR_MPS = 133,
	GLK_CU_ATTR_NUMA_NODE = 134,
	GLK_CU_ATTR_HOST_NUMA = 141,
};

enum {
	GLK_CU_ALLOCATION_PINNED = 1,

	GLK_CU_LOCATION_NONE = 0,
	GLK_CU_LOCATION_DEVICE = 1,
	GLK_CU_LOCATION_HOST = 2, /* has no id */
	GLK_CU_LOCATION_HOST_NUMA = 3,

	GLK_CU_HANDLE_FD = 0x1,
	GLK_CU_HANDLE_FABRIC = 0x8,

	GLK_CU_ACCESS_NONE = 0,
	GLK_CU_ACCESS_READ = 1,
	GLK_CU_ACCESS_READWRITE = 3,

	GLK_CU_GRANULARITY_MINIMUM = 0,
	GLK_CU_GRANULARITY_RECOMMENDED = 1,

	GLK_CU_POINTER_MEMORY_TYPE = 2,
	GLK_CU_POINTER_IS_MANAGED = 8,
	GLK_CU_POINTER_DEVICE = 9,

	GLK_CU_MEMORY_HOST = 1,
	GLK_CU_MEMORY_GPU = 2,

	GLK_CU_RANGE_DMABUF = 1,
	GLK_CU_RANGE_PCIE =
		1, /* a flag: through the PCI BAR, where there are other ways too */

	GLK_CU_EVENT_DISABLE_TIMING = 2,
	GLK_CU_STREAM_NON_BLOCKING = 1,
	GLK_CU_STREAM_WAIT_VALUE_GEQ = 0,
	GLK_CU_HOST_PORTABLE = 1,

	GLK_CU_ATTACH_GLOBAL = 1,
	GLK_CU_ADVICE_PREFER = 3,
	GLK_CU_ADVICE_UNPREFER = 4,
	GLK_CU_ADVICE_ACCESSED = 5,
	GLK_CU_ADVICE_UNACCESSED = 6,
	GLK_CU_RANGE_PREFERRED = 2,
	GLK_CU_RANGE_PREFETCHED = 4,
	GLK_CU_RANGE_PREFERRED_TYPE = 5,
	GLK_CU_RANGE_PREFERRED_ID = 6,
	GLK_CU_RANGE_PREFETCHED_TYPE = 7,
	GLK_CU_RANGE_PREFETCHED_ID = 8,
	GLK_CU_DEVICE_CPU = -1,

	GLK_CU_CAPTURE_MODE_RELAXED = 2,
	GLK_CU_CAPTURE_NONE = 0,
	GLK_CU_CAPTURE_ACTIVE = 1,
	GLK_CU_CAPTURE_INVALIDATED = 2,

	GLK_CU_PROC_LEGACY_STREAM = 1,
	GLK_CU_PROC_FOUND = 0,
	GLK_CU_PROC_NOT_FOUND = 1,
	GLK_CU_PROC_VERSION = 2,
};

struct glk_cu_uuid {
	char bytes[16];
};

struct glk_cu_location {
	unsigned int type;
	int id;
};

struct glk_cu_prop {
	unsigned int type;
	unsigned int handle_types;
	struct glk_cu_location location;
	void *win32;
	struct {
		unsigned char compression;
		unsigned char rdma;
		unsigned short usage;
		unsigned char reserved[4];
	} flags;
};

struct glk_cu_access {
	struct glk_cu_location location;
	unsigned int flags;
};

/* clang-format off */
/*
 * The functions we call: F(field, symbol, version, arguments). The version is that of the
 * CUDA release which gave the function this signature; it is what we ask the driver for, so
 * that a later change of signature under the same name never reaches us. `field` differs
 * from `symbol` where the signature is not the newest of that function.
 */
#define GLK_CUDA_FUNCTIONS(F)								\
	F(cuDriverGetVersion, cuDriverGetVersion, 2020, (int *))			\
	F(cuInit, cuInit, 2000, (unsigned int))						\
	F(cuGetErrorName, cuGetErrorName, 6000, (glk_cu_result, const char **))		\
	F(cuGetErrorString, cuGetErrorString, 6000, (glk_cu_result, const char **))	\
	F(cuDeviceGetCount, cuDeviceGetCount, 2000, (int *))				\
	F(cuDeviceGet, cuDeviceGet, 2000, (glk_cu_device *, int))			\
	F(cuDeviceGetName, cuDeviceGetName, 2000, (char *, int, glk_cu_device))		\
	F(cuDeviceGetUuid_v1, cuDeviceGetUuid, 9020,					\
		(struct glk_cu_uuid *, glk_cu_device))					\
	F(cuDeviceGetUuid, cuDeviceGetUuid, 11040,					\
		(struct glk_cu_uuid *, glk_cu_device))					\
	F(cuDeviceGetPCIBusId, cuDeviceGetPCIBusId, 4010, (char *, int, glk_cu_device))	\
	F(cuDeviceGetAttribute, cuDeviceGetAttribute, 2000,				\
		(int *, glk_cu_attribute, glk_cu_device))				\
	F(cuDeviceTotalMem, cuDeviceTotalMem, 3020, (size_t *, glk_cu_device))		\
	F(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000,			\
		(struct CUctx_st **, glk_cu_device))					\
	F(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease, 11000, (glk_cu_device))	\
	F(cuCtxGetCurrent, cuCtxGetCurrent, 4000, (struct CUctx_st **))			\
	F(cuCtxPushCurrent, cuCtxPushCurrent, 4000, (struct CUctx_st *))		\
	F(cuCtxPopCurrent, cuCtxPopCurrent, 4000, (struct CUctx_st **))			\
	F(cuCtxSynchronize, cuCtxSynchronize, 2000, (void))				\
	F(cuMemGetInfo, cuMemGetInfo, 3020, (size_t *, size_t *))			\
	F(cuPointerGetAttribute, cuPointerGetAttribute, 4000,				\
		(void *, glk_cu_pointer_attribute, glk_cu_address))			\
	F(cuMemAddressReserve, cuMemAddressReserve, 10020,				\
		(glk_cu_address *, size_t, size_t, glk_cu_address, unsigned long long))	\
	F(cuMemAddressFree, cuMemAddressFree, 10020, (glk_cu_address, size_t))		\
	F(cuMemCreate, cuMemCreate, 10020,						\
		(glk_cu_page *, size_t, const struct glk_cu_prop *, unsigned long long)) \
	F(cuMemRelease, cuMemRelease, 10020, (glk_cu_page))				\
	F(cuMemMap, cuMemMap, 10020,							\
		(glk_cu_address, size_t, size_t, glk_cu_page, unsigned long long))	\
	F(cuMemUnmap, cuMemUnmap, 10020, (glk_cu_address, size_t))			\
	F(cuMemSetAccess, cuMemSetAccess, 10020,					\
		(glk_cu_address, size_t, const struct glk_cu_access *, size_t))		\
	F(cuMemGetAllocationGranularity, cuMemGetAllocationGranularity, 10020,		\
		(size_t *, const struct glk_cu_prop *, glk_cu_granularity))		\
	F(cuMemExportToShareableHandle, cuMemExportToShareableHandle, 10020,		\
		(void *, glk_cu_page, glk_cu_handle_type, unsigned long long))		\
	F(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, 10020,	\
		(glk_cu_page *, void *, glk_cu_handle_type))				\
	F(cuMemGetAllocationPropertiesFromHandle, cuMemGetAllocationPropertiesFromHandle, \
		10020, (struct glk_cu_prop *, glk_cu_page))				\
	F(cuDeviceCanAccessPeer, cuDeviceCanAccessPeer, 4000,				\
		(int *, glk_cu_device, glk_cu_device))					\
	F(cuStreamCreate, cuStreamCreate, 2000, (struct CUstream_st **, unsigned int))	\
	F(cuStreamDestroy, cuStreamDestroy, 4000, (struct CUstream_st *))		\
	F(cuStreamSynchronize, cuStreamSynchronize, 2000, (struct CUstream_st *))	\
	F(cuStreamGetCaptureInfo_v1, cuStreamGetCaptureInfo, 10010,			\
		(struct CUstream_st *, glk_cu_capture_status *, uint64_t *))		\
	F(cuStreamGetCtx, cuStreamGetCtx, 9020,						\
		(struct CUstream_st *, struct CUctx_st **))				\
	F(cuStreamWaitEvent, cuStreamWaitEvent, 3020,					\
		(struct CUstream_st *, struct CUevent_st *, unsigned int))		\
	F(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, 10010,	\
		(glk_cu_capture_mode *))						\
	F(cuEventCreate, cuEventCreate, 2000, (struct CUevent_st **, unsigned int))	\
	F(cuEventDestroy, cuEventDestroy, 4000, (struct CUevent_st *))			\
	F(cuEventRecord, cuEventRecord, 2000,						\
		(struct CUevent_st *, struct CUstream_st *))				\
	F(cuEventQuery, cuEventQuery, 2000, (struct CUevent_st *))			\
	F(cuEventSynchronize, cuEventSynchronize, 2000, (struct CUevent_st *))		\
	F(cuMemcpyAsync, cuMemcpyAsync, 4000,						\
		(glk_cu_address, glk_cu_address, size_t, struct CUstream_st *))		\
	F(cuMemsetD32Async, cuMemsetD32Async, 3020,					\
		(glk_cu_address, unsigned int, size_t, struct CUstream_st *))

/*
 * Functions that we can do without: NULL in the table of a driver that lacks them. What is of
 * 12.2 is taken from drivers of that version alone, see table_fill().
 */
#define GLK_CUDA_OPTIONAL(F)								\
	F(cuMemAllocManaged, cuMemAllocManaged, 6000,					\
		(glk_cu_address *, size_t, unsigned int))				\
	F(cuMemFree, cuMemFree, 3020, (glk_cu_address))					\
	F(cuMemAdvise_v1, cuMemAdvise, 8000,						\
		(glk_cu_address, size_t, glk_cu_advice, glk_cu_device))			\
	F(cuMemAdvise_v2, cuMemAdvise, 12020,						\
		(glk_cu_address, size_t, glk_cu_advice, struct glk_cu_location))	\
	F(cuMemPrefetchAsync_v1, cuMemPrefetchAsync, 8000,				\
		(glk_cu_address, size_t, glk_cu_device, struct CUstream_st *))		\
	F(cuMemPrefetchAsync_v2, cuMemPrefetchAsync, 12020,				\
		(glk_cu_address, size_t, struct glk_cu_location, unsigned int,		\
			struct CUstream_st *))						\
	F(cuMemRangeGetAttribute, cuMemRangeGetAttribute, 8000,				\
		(void *, size_t, glk_cu_range_attribute, glk_cu_address, size_t))	\
	F(cuMemGetHandleForAddressRange, cuMemGetHandleForAddressRange, 11070,		\
		(void *, glk_cu_address, size_t, glk_cu_range_type, unsigned long long)) \
	F(cuCtxGetId, cuCtxGetId, 12000,						\
		(struct CUctx_st *, unsigned long long *))				\
	F(cuStreamGetId, cuStreamGetId, 12000,						\
		(struct CUstream_st *, unsigned long long *))				\
	F(cuModuleLoadData, cuModuleLoadData, 2000,					\
		(struct CUmod_st **, const void *))					\
	F(cuModuleUnload, cuModuleUnload, 2000, (struct CUmod_st *))			\
	F(cuModuleGetFunction, cuModuleGetFunction, 2000,				\
		(struct CUfunc_st **, struct CUmod_st *, const char *))			\
	F(cuLaunchKernel, cuLaunchKernel, 4000,						\
		(struct CUfunc_st *, unsigned int, unsigned int, unsigned int,		\
			unsigned int, unsigned int, unsigned int, unsigned int,		\
			struct CUstream_st *, void **, void **))			\
	F(cuStreamWriteValue32, cuStreamWriteValue32, 11070,				\
		(struct CUstream_st *, glk_cu_address, uint32_t, unsigned int))		\
	F(cuStreamWaitValue32, cuStreamWaitValue32, 11070,				\
		(struct CUstream_st *, glk_cu_address, uint32_t, unsigned int))		\
	F(cuMemHostRegister, cuMemHostRegister, 6050, (void *, size_t, unsigned int))	\
	F(cuMemHostUnregister, cuMemHostUnregister, 4000, (void *))
/* clang-format on */

/* The function that finds the others, in its two generations. */
#define GLK_CUDA_PROC_V12000 (const char *, void **, int, uint64_t, glk_cu_proc_status *)
#define GLK_CUDA_PROC_V11030 (const char *, void **, int, uint64_t)
typedef glk_cu_result glk_cu_proc_v12000 GLK_CUDA_PROC_V12000;
typedef glk_cu_result glk_cu_proc_v11030 GLK_CUDA_PROC_V11030;

/* The oldest driver that has all functions above, but the optional ones. */
#define GLK_CUDA_VERSION_MIN 11040
/* The oldest one that knows places of managed memory by GPU and NUMA node. */
#define GLK_CUDA_VERSION_LOCATIONS 12020

#endif
