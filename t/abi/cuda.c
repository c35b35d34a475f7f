/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Our own declarations of the CUDA driver's interface against NVIDIA's headers: numbers,
 * sizes and offsets of structures, and for each function that its signature is the one the
 * named CUDA release gave it. Built as a skip where no cuda.h was found.
 */
#include "tap.h"

#ifndef GLK_HAVE_CUDA_H
int main(void)
{
	tap_skip_all("no cuda.h on the machine that built this test");
}
#else
#include <cuda.h>
#include <cudaTypedefs.h>

#include "driver/cuda_abi.h"
#include "driver/driver.h"

#include <stddef.h>

/* clang-format off */
#define NUMBERS(N)									\
	N(GLK_CU_SUCCESS, CUDA_SUCCESS)							\
	N(GLK_CU_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE)				\
	N(GLK_CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY)				\
	N(GLK_CU_NOT_INITIALIZED, CUDA_ERROR_NOT_INITIALIZED)				\
	N(GLK_CU_DEINITIALIZED, CUDA_ERROR_DEINITIALIZED)				\
	N(GLK_CU_STUB_LIBRARY, CUDA_ERROR_STUB_LIBRARY)					\
	N(GLK_CU_DEVICE_UNAVAILABLE, CUDA_ERROR_DEVICE_UNAVAILABLE)			\
	N(GLK_CU_NO_DEVICE, CUDA_ERROR_NO_DEVICE)					\
	N(GLK_CU_INVALID_DEVICE, CUDA_ERROR_INVALID_DEVICE)				\
	N(GLK_CU_INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT)				\
	N(GLK_CU_ALREADY_MAPPED, CUDA_ERROR_ALREADY_MAPPED)				\
	N(GLK_CU_NOT_MAPPED, CUDA_ERROR_NOT_MAPPED)					\
	N(GLK_CU_ECC_UNCORRECTABLE, CUDA_ERROR_ECC_UNCORRECTABLE)			\
	N(GLK_CU_PEER_ACCESS_UNSUPPORTED, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED)		\
	N(GLK_CU_NVLINK_UNCORRECTABLE, CUDA_ERROR_NVLINK_UNCORRECTABLE)			\
	N(GLK_CU_INVALID_HANDLE, CUDA_ERROR_INVALID_HANDLE)				\
	N(GLK_CU_NOT_READY, CUDA_ERROR_NOT_READY)					\
	N(GLK_CU_ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS)				\
	N(GLK_CU_LAUNCH_TIMEOUT, CUDA_ERROR_LAUNCH_TIMEOUT)				\
	N(GLK_CU_CONTEXT_IS_DESTROYED, CUDA_ERROR_CONTEXT_IS_DESTROYED)			\
	N(GLK_CU_ASSERT, CUDA_ERROR_ASSERT)						\
	N(GLK_CU_HARDWARE_STACK_ERROR, CUDA_ERROR_HARDWARE_STACK_ERROR)			\
	N(GLK_CU_ILLEGAL_INSTRUCTION, CUDA_ERROR_ILLEGAL_INSTRUCTION)			\
	N(GLK_CU_MISALIGNED_ADDRESS, CUDA_ERROR_MISALIGNED_ADDRESS)			\
	N(GLK_CU_INVALID_ADDRESS_SPACE, CUDA_ERROR_INVALID_ADDRESS_SPACE)		\
	N(GLK_CU_INVALID_PC, CUDA_ERROR_INVALID_PC)					\
	N(GLK_CU_LAUNCH_FAILED, CUDA_ERROR_LAUNCH_FAILED)				\
	N(GLK_CU_NOT_PERMITTED, CUDA_ERROR_NOT_PERMITTED)				\
	N(GLK_CU_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED)				\
	N(GLK_CU_SYSTEM_NOT_READY, CUDA_ERROR_SYSTEM_NOT_READY)				\
	N(GLK_CU_SYSTEM_DRIVER_MISMATCH, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH)		\
	N(GLK_CU_COMPAT_NOT_SUPPORTED_ON_DEVICE,					\
		CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE)				\
	N(GLK_CU_MPS_SERVER_NOT_READY, CUDA_ERROR_MPS_SERVER_NOT_READY)			\
	N(GLK_CU_MPS_MAX_CLIENTS_REACHED, CUDA_ERROR_MPS_MAX_CLIENTS_REACHED)		\
	N(GLK_CU_MPS_MAX_CONNECTIONS_REACHED, CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED)	\
	N(GLK_CU_STREAM_CAPTURE_UNSUPPORTED, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)	\
	N(GLK_CU_STREAM_CAPTURE_IMPLICIT, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)		\
	N(GLK_CU_STREAM_CAPTURE_WRONG_THREAD, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD)	\
	N(GLK_CU_UNKNOWN, CUDA_ERROR_UNKNOWN)						\
	N(GLK_CU_ATTR_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)		\
	N(GLK_CU_ATTR_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)		\
	N(GLK_CU_ATTR_HAS_MANAGED, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY)			\
	N(GLK_CU_ATTACH_GLOBAL, CU_MEM_ATTACH_GLOBAL)					\
	N(GLK_CU_ADVICE_PREFER, CU_MEM_ADVISE_SET_PREFERRED_LOCATION)			\
	N(GLK_CU_ADVICE_UNPREFER, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION)		\
	N(GLK_CU_ADVICE_ACCESSED, CU_MEM_ADVISE_SET_ACCESSED_BY)			\
	N(GLK_CU_ADVICE_UNACCESSED, CU_MEM_ADVISE_UNSET_ACCESSED_BY)			\
	N(GLK_CU_RANGE_PREFERRED, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION)		\
	N(GLK_CU_RANGE_PREFETCHED, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION)	\
	N(GLK_CU_DEVICE_CPU, CU_DEVICE_CPU)						\
	N(GLK_CU_LOCATION_NONE, CU_MEM_LOCATION_TYPE_INVALID)				\
	N(GLK_CU_ATTR_PAGEABLE, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS)		\
	N(GLK_CU_ATTR_MPS, CU_DEVICE_ATTRIBUTE_MPS_ENABLED)				\
	N(GLK_CU_ATTR_MANAGED, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS)		\
	N(GLK_CU_ATTR_VMM, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)	\
	N(GLK_CU_ATTR_FD, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) \
	N(GLK_CU_ATTR_RDMA, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED) \
	N(GLK_CU_ALLOCATION_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED)			\
	N(GLK_CU_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE)				\
	N(GLK_CU_HANDLE_FD, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)			\
	N(GLK_CU_ACCESS_NONE, CU_MEM_ACCESS_FLAGS_PROT_NONE)				\
	N(GLK_CU_ACCESS_READ, CU_MEM_ACCESS_FLAGS_PROT_READ)				\
	N(GLK_CU_ACCESS_READWRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)			\
	N(GLK_CU_GRANULARITY_MINIMUM, CU_MEM_ALLOC_GRANULARITY_MINIMUM)			\
	N(GLK_CU_GRANULARITY_RECOMMENDED, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)		\
	N(GLK_CU_POINTER_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE)			\
	N(GLK_CU_POINTER_IS_MANAGED, CU_POINTER_ATTRIBUTE_IS_MANAGED)			\
	N(GLK_CU_MEMORY_HOST, CU_MEMORYTYPE_HOST)					\
	N(GLK_CU_MEMORY_GPU, CU_MEMORYTYPE_DEVICE)					\
	N(GLK_CU_POINTER_DEVICE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)			\
	N(GLK_CU_EVENT_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING)				\
	N(GLK_CU_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING)				\
	N(GLK_CU_STREAM_WAIT_VALUE_GEQ, CU_STREAM_WAIT_VALUE_GEQ)			\
	N(GLK_CU_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED)			\
	N(GLK_CU_CAPTURE_NONE, CU_STREAM_CAPTURE_STATUS_NONE)				\
	N(GLK_CU_CAPTURE_ACTIVE, CU_STREAM_CAPTURE_STATUS_ACTIVE)			\
	N(GLK_CU_CAPTURE_INVALIDATED, CU_STREAM_CAPTURE_STATUS_INVALIDATED)		\
	N(GLK_CU_PROC_LEGACY_STREAM, CU_GET_PROC_ADDRESS_LEGACY_STREAM)

/* Numbers that headers of CUDA 11 and early 12 do not have yet. */
#define NEWER_NUMBERS(N)								\
	N(GLK_CU_CALL_REQUIRES_NEWER_DRIVER, CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER)	\
	N(GLK_CU_CONTAINED, CUDA_ERROR_CONTAINED)					\
	N(GLK_CU_TENSOR_MEMORY_LEAK, CUDA_ERROR_TENSOR_MEMORY_LEAK)			\
	N(GLK_CU_MPS_CLIENT_TERMINATED, CUDA_ERROR_MPS_CLIENT_TERMINATED)		\
	N(GLK_CU_ATTR_DMABUF, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED)			\
	N(GLK_CU_ATTR_FABRIC, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED)		\
	N(GLK_CU_ATTR_NUMA_NODE, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID)			\
	N(GLK_CU_ATTR_HOST_NUMA,							\
		CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)	\
	N(GLK_CU_LOCATION_HOST_NUMA, CU_MEM_LOCATION_TYPE_HOST_NUMA)			\
	N(GLK_CU_RANGE_PREFERRED_TYPE, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE)	\
	N(GLK_CU_RANGE_PREFERRED_ID, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID)	\
	N(GLK_CU_RANGE_PREFETCHED_TYPE,							\
		CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE)			\
	N(GLK_CU_RANGE_PREFETCHED_ID,							\
		CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID)			\
	N(GLK_CU_HANDLE_FABRIC, CU_MEM_HANDLE_TYPE_FABRIC)				\
	N(GLK_CU_RANGE_DMABUF, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD)			\
	N(GLK_CU_RANGE_PCIE, CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE)		\
	N(GLK_CU_PROC_FOUND, CU_GET_PROC_ADDRESS_SUCCESS)				\
	N(GLK_CU_PROC_NOT_FOUND, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND)			\
	N(GLK_CU_PROC_VERSION, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT)
/* clang-format on */

static void numbers(void)
{
#define NUMBER(ours, theirs) is_int(ours, (int64_t)(theirs), #theirs);
	NUMBERS(NUMBER)
#if CUDA_VERSION >= 13000
	NEWER_NUMBERS(NUMBER)
#else
	tap_note("cuda.h is of CUDA %d; the numbers of 13.0 are not compared",
		CUDA_VERSION);
#endif
#undef NUMBER
	ok((void *)GLK_STREAM_LEGACY == (void *)CU_STREAM_LEGACY, "the legacy stream");
	ok((void *)GLK_STREAM_PER_THREAD == (void *)CU_STREAM_PER_THREAD,
		"a thread's own, the highest number that stands for a stream");
}

#define SIZE(ours, theirs) is_int(sizeof(ours), sizeof(theirs), "size of " #theirs)
#define FIELD(ours, our, theirs, their)                                                  \
	do {                                                                             \
		is_int(offsetof(ours, our), offsetof(theirs, their),                     \
			"offset of " #theirs "." #their);                                \
		is_int(sizeof(((ours *)0)->our), sizeof(((theirs *)0)->their),           \
			"size of " #theirs "." #their);                                  \
	} while (0)

static void shapes(void)
{
	SIZE(glk_cu_result, CUresult);
	SIZE(glk_cu_attribute, CUdevice_attribute);
	SIZE(glk_cu_pointer_attribute, CUpointer_attribute);
	SIZE(glk_cu_capture_mode, CUstreamCaptureMode);
	SIZE(glk_cu_capture_status, CUstreamCaptureStatus);
	SIZE(glk_cu_handle_type, CUmemAllocationHandleType);
	SIZE(glk_cu_granularity, CUmemAllocationGranularity_flags);
	SIZE(glk_cu_range_type, CUmemRangeHandleType);
	SIZE(glk_cu_advice, CUmem_advise);
	SIZE(glk_cu_range_attribute, CUmem_range_attribute);
	SIZE(glk_cu_device, CUdevice);
	SIZE(glk_cu_address, CUdeviceptr);
	SIZE(glk_cu_page, CUmemGenericAllocationHandle);
	SIZE(struct glk_cu_uuid, CUuuid);

	SIZE(struct glk_cu_location, CUmemLocation);
	FIELD(struct glk_cu_location, type, CUmemLocation, type);
	FIELD(struct glk_cu_location, id, CUmemLocation, id);

	SIZE(struct glk_cu_prop, CUmemAllocationProp);
	FIELD(struct glk_cu_prop, type, CUmemAllocationProp, type);
	FIELD(struct glk_cu_prop, handle_types, CUmemAllocationProp,
		requestedHandleTypes);
	FIELD(struct glk_cu_prop, location, CUmemAllocationProp, location);
	FIELD(struct glk_cu_prop, win32, CUmemAllocationProp, win32HandleMetaData);
	FIELD(struct glk_cu_prop, flags, CUmemAllocationProp, allocFlags);
	FIELD(struct glk_cu_prop, flags.compression, CUmemAllocationProp,
		allocFlags.compressionType);
	FIELD(struct glk_cu_prop, flags.rdma, CUmemAllocationProp,
		allocFlags.gpuDirectRDMACapable);
	FIELD(struct glk_cu_prop, flags.usage, CUmemAllocationProp, allocFlags.usage);
	FIELD(struct glk_cu_prop, flags.reserved, CUmemAllocationProp,
		allocFlags.reserved);

	SIZE(struct glk_cu_access, CUmemAccessDesc);
	FIELD(struct glk_cu_access, location, CUmemAccessDesc, location);
	FIELD(struct glk_cu_access, flags, CUmemAccessDesc, flags);
}

/*
 * From here on our names stand for NVIDIA's types of the same meaning, so that the list of
 * functions can be expanded with them and compared type for type.
 */
#define glk_cu_result		 CUresult
#define glk_cu_attribute	 CUdevice_attribute
#define glk_cu_pointer_attribute CUpointer_attribute
#define glk_cu_capture_mode	 CUstreamCaptureMode
#define glk_cu_capture_status	 CUstreamCaptureStatus
#define glk_cu_handle_type	 CUmemAllocationHandleType
#define glk_cu_granularity	 CUmemAllocationGranularity_flags
#define glk_cu_range_type	 CUmemRangeHandleType
#define glk_cu_proc_status	 CUdriverProcAddressQueryResult
#define glk_cu_advice		 CUmem_advise
#define glk_cu_range_attribute	 CUmem_range_attribute
#define glk_cu_location		 CUmemLocation_st
#define glk_cu_uuid		 CUuuid_st
#define glk_cu_prop		 CUmemAllocationProp_st
#define glk_cu_access		 CUmemAccessDesc_st

#define SIGNATURE(field, symbol, version, args) typedef CUresult type_##field args;
GLK_CUDA_FUNCTIONS(SIGNATURE)
GLK_CUDA_OPTIONAL(SIGNATURE)

static void functions(void)
{
	int oldest = 0;

#define CHECK(field, symbol, version, args)                                              \
	ok(__builtin_types_compatible_p(PFN_##symbol##_v##version, type_##field *),      \
		"%s of CUDA %d", #symbol, version);                                      \
	ok(__builtin_types_compatible_p(__typeof__(&symbol), type_##field *) ||          \
			strcmp(#field, #symbol),                                         \
		"%s as cuda.h declares it, or an older signature", #symbol);             \
	oldest = version > oldest ? version : oldest;
	GLK_CUDA_FUNCTIONS(CHECK)
	is_int(oldest, GLK_CUDA_VERSION_MIN, "the oldest driver that has them all");
#if CUDA_VERSION >= 12020
	GLK_CUDA_OPTIONAL(CHECK)
#endif
#undef CHECK

	typedef CUresult v12000 GLK_CUDA_PROC_V12000;
	typedef CUresult v11030 GLK_CUDA_PROC_V11030;

	ok(__builtin_types_compatible_p(PFN_cuGetProcAddress_v11030, v11030 *),
		"cuGetProcAddress of CUDA 11030");
#if CUDA_VERSION >= 12000
	ok(__builtin_types_compatible_p(PFN_cuGetProcAddress_v12000, v12000 *),
		"cuGetProcAddress of CUDA 12000");
#endif
}

int main(void)
{
	tap_plan_later();
	tap_note("cuda.h of CUDA %d", CUDA_VERSION);
	numbers();
	shapes();
	functions();
	return tap_done();
}
#endif
