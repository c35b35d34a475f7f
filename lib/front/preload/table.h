/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_FRONT_PRELOAD_TABLE_H
#define GLK_FRONT_PRELOAD_TABLE_H

/*
 * The one table of hooks, and what they need of the CUDA driver's binary interface, declared by
 * ourselves as the library does; t/front/preload_abi.c compares it with cuda.h.
 *
 * CUDA's enums are int-sized and unsigned here; handles have CUDA's own structure tags.
 */
#include <stddef.h>
#include <stdint.h>

struct CUctx_st;
struct CUstream_st;
struct CUevent_st;
struct CUmemPoolHandle_st;
struct CUgraph_st;
struct CUgraphNode_st;
struct CUgraphEdgeData_st;
struct CUarray_st;
struct CUmipmappedArray_st;
struct CUmemAllocationProp_st;
struct CUDA_ARRAY_DESCRIPTOR_st;
struct CUDA_ARRAY3D_DESCRIPTOR_st;

typedef unsigned int glk_cu_result;
typedef unsigned int glk_cu_proc_status;
typedef unsigned int glk_cu_capture_mode;
typedef unsigned int glk_cu_capture_status;
typedef unsigned int glk_cu_allocation;
typedef unsigned int glk_cu_attribute;
typedef unsigned int glk_cu_pool_attribute;
typedef int glk_cu_device;
typedef unsigned long long glk_cu_address;

enum {
	GLK_CU_SUCCESS = 0,
	GLK_CU_INVALID_VALUE = 1,
	GLK_CU_OUT_OF_MEMORY = 2,
	GLK_CU_NOT_INITIALIZED = 3,
	GLK_CU_INVALID_CONTEXT = 201,
	GLK_CU_MAP_FAILED = 205,
	GLK_CU_PEER_UNSUPPORTED = 217,
	GLK_CU_INVALID_HANDLE = 400,
	GLK_CU_NOT_READY = 600,
	GLK_CU_NOT_SUPPORTED = 801,
	GLK_CU_STREAM_CAPTURE_UNSUPPORTED = 900,
	GLK_CU_CAPTURED_EVENT = 907,

	GLK_CU_CAPTURE_MODE_RELAXED = 2,
	GLK_CU_CAPTURE_NONE = 0,
	GLK_CU_ALLOCATION_PINNED = 1,
	GLK_CU_LOCATION_DEVICE = 1,
	GLK_CU_POINTER_CONTEXT = 1,
	GLK_CU_POINTER_BUFFER_ID = 7,
	GLK_CU_POINTER_LEGACY_IPC = 10,
	GLK_CU_POINTER_RANGE_START = 11,
	GLK_CU_POINTER_RANGE_SIZE = 12,
	GLK_CU_POOL_RESERVED = 5,
	GLK_CU_POOL_RESERVED_HIGH = 6,
	GLK_CU_POOL_USED = 7,
	GLK_CU_POOL_USED_HIGH = 8,
	GLK_CU_PROC_LEGACY_STREAM = 1,
	GLK_CU_PROC_THREAD_STREAM = 2,
	GLK_CU_PROC_FOUND = 0,
};

/* A thread's own default stream. */
#define GLK_CU_STREAM_PER_THREAD ((struct CUstream_st *)(uintptr_t)2)

struct glk_cu_location {
	unsigned int type;
	int id;
};

struct glk_cu_access {
	struct glk_cu_location location;
	unsigned int flags;
};

struct glk_cu_pool_props {
	glk_cu_allocation type;
	unsigned int handle_types;
	struct glk_cu_location location;
	void *win32;
	size_t max_size;
	unsigned short usage;
	unsigned char reserved[54];
};

struct glk_cu_ipc_handle {
	char reserved[64];
};

/* clang-format off */
/*
 * H(function, symbol, version, streams, group, parameters, arguments)
 *
 * function	as the driver's library exports it and as we do in its place
 * symbol	what cuGetProcAddress calls it, `version` the CUDA release that gave it this
 *		signature, `streams` the meaning of NULL for a stream there
 * group	whether it is hooked always, or only on request
 */
#define GLK_PRELOAD_HOOKS(H)								\
	H(cuGetProcAddress, cuGetProcAddress, 11030, LEGACY, ALWAYS,			\
		(const char *symbol, void **fn, int version, uint64_t flags),		\
		(symbol, fn, version, flags))						\
	H(cuGetProcAddress_v2, cuGetProcAddress, 12000, LEGACY, ALWAYS,			\
		(const char *symbol, void **fn, int version, uint64_t flags,		\
			glk_cu_proc_status *status),					\
		(symbol, fn, version, flags, status))					\
	H(cuMemAlloc_v2, cuMemAlloc, 3020, LEGACY, ALWAYS,				\
		(glk_cu_address *ret, size_t size), (ret, size))			\
	H(cuMemAllocPitch_v2, cuMemAllocPitch, 3020, LEGACY, ALWAYS,			\
		(glk_cu_address *ret, size_t *ret_pitch, size_t width, size_t height,	\
			unsigned int element),						\
		(ret, ret_pitch, width, height, element))				\
	H(cuMemFree_v2, cuMemFree, 3020, LEGACY, ALWAYS,				\
		(glk_cu_address ptr), (ptr))						\
	H(cuMemAllocAsync, cuMemAllocAsync, 11020, LEGACY, ALWAYS,			\
		(glk_cu_address *ret, size_t size, struct CUstream_st *stream),		\
		(ret, size, stream))							\
	H(cuMemAllocAsync_ptsz, cuMemAllocAsync, 11020, THREAD, ALWAYS,			\
		(glk_cu_address *ret, size_t size, struct CUstream_st *stream),		\
		(ret, size, stream))							\
	H(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 11020, LEGACY, ALWAYS,	\
		(glk_cu_address *ret, size_t size, struct CUmemPoolHandle_st *pool,	\
			struct CUstream_st *stream),					\
		(ret, size, pool, stream))						\
	H(cuMemAllocFromPoolAsync_ptsz, cuMemAllocFromPoolAsync, 11020, THREAD, ALWAYS,	\
		(glk_cu_address *ret, size_t size, struct CUmemPoolHandle_st *pool,	\
			struct CUstream_st *stream),					\
		(ret, size, pool, stream))						\
	H(cuMemFreeAsync, cuMemFreeAsync, 11020, LEGACY, ALWAYS,			\
		(glk_cu_address ptr, struct CUstream_st *stream), (ptr, stream))	\
	H(cuMemFreeAsync_ptsz, cuMemFreeAsync, 11020, THREAD, ALWAYS,			\
		(glk_cu_address ptr, struct CUstream_st *stream), (ptr, stream))	\
	H(cuDeviceTotalMem_v2, cuDeviceTotalMem, 3020, LEGACY, ALWAYS,			\
		(size_t *ret_bytes, glk_cu_device device), (ret_bytes, device))		\
	H(cuMemGetInfo_v2, cuMemGetInfo, 3020, LEGACY, ALWAYS,				\
		(size_t *ret_free, size_t *ret_total), (ret_free, ret_total))		\
	H(cuMemGetAddressRange_v2, cuMemGetAddressRange, 3020, LEGACY, ALWAYS,		\
		(glk_cu_address *ret_base, size_t *ret_size, glk_cu_address ptr),	\
		(ret_base, ret_size, ptr))						\
	H(cuPointerGetAttribute, cuPointerGetAttribute, 4000, LEGACY, ALWAYS,		\
		(void *data, glk_cu_attribute attribute, glk_cu_address ptr),		\
		(data, attribute, ptr))							\
	H(cuPointerGetAttributes, cuPointerGetAttributes, 7000, LEGACY, ALWAYS,		\
		(unsigned int count, glk_cu_attribute *attributes, void **data,		\
			glk_cu_address ptr),						\
		(count, attributes, data, ptr))						\
	H(cuIpcGetMemHandle, cuIpcGetMemHandle, 4010, LEGACY, ALWAYS,			\
		(struct glk_cu_ipc_handle *ret_handle, glk_cu_address ptr),		\
		(ret_handle, ptr))							\
	H(cuIpcOpenMemHandle, cuIpcOpenMemHandle, 4010, LEGACY, ALWAYS,			\
		(glk_cu_address *ret, struct glk_cu_ipc_handle handle,			\
			unsigned int flags),						\
		(ret, handle, flags))							\
	H(cuIpcOpenMemHandle_v2, cuIpcOpenMemHandle, 11000, LEGACY, ALWAYS,		\
		(glk_cu_address *ret, struct glk_cu_ipc_handle handle,			\
			unsigned int flags),						\
		(ret, handle, flags))							\
	H(cuIpcCloseMemHandle, cuIpcCloseMemHandle, 4010, LEGACY, ALWAYS,		\
		(glk_cu_address ptr), (ptr))						\
	H(cuMemCreate, cuMemCreate, 10020, LEGACY, ALWAYS,				\
		(unsigned long long *ret_page, size_t size,				\
			const struct CUmemAllocationProp_st *prop,			\
			unsigned long long flags),					\
		(ret_page, size, prop, flags))						\
	H(cuMemRelease, cuMemRelease, 10020, LEGACY, ALWAYS,				\
		(unsigned long long page), (page))					\
	H(cuArrayDestroy, cuArrayDestroy, 2000, LEGACY, ALWAYS,				\
		(struct CUarray_st *array), (array))					\
	H(cuMipmappedArrayDestroy, cuMipmappedArrayDestroy, 5000, LEGACY, ALWAYS,	\
		(struct CUmipmappedArray_st *array), (array))				\
	H(cuArrayCreate_v2, cuArrayCreate, 3020, LEGACY, ALWAYS,			\
		(struct CUarray_st **ret_array,						\
			const struct CUDA_ARRAY_DESCRIPTOR_st *shape),			\
		(ret_array, shape))							\
	H(cuArray3DCreate_v2, cuArray3DCreate, 3020, LEGACY, ALWAYS,			\
		(struct CUarray_st **ret_array,						\
			const struct CUDA_ARRAY3D_DESCRIPTOR_st *shape),		\
		(ret_array, shape))							\
	H(cuMipmappedArrayCreate, cuMipmappedArrayCreate, 5000, LEGACY, ALWAYS,		\
		(struct CUmipmappedArray_st **ret_array,				\
			const struct CUDA_ARRAY3D_DESCRIPTOR_st *shape,			\
			unsigned int levels),						\
		(ret_array, shape, levels))						\
	H(cuMemPoolCreate, cuMemPoolCreate, 11020, LEGACY, ALWAYS,			\
		(struct CUmemPoolHandle_st **ret_pool,					\
			const struct glk_cu_pool_props *props),				\
		(ret_pool, props))							\
	H(cuMemPoolDestroy, cuMemPoolDestroy, 11020, LEGACY, ALWAYS,			\
		(struct CUmemPoolHandle_st *pool), (pool))				\
	H(cuMemPoolSetAccess, cuMemPoolSetAccess, 11020, LEGACY, ALWAYS,		\
		(struct CUmemPoolHandle_st *pool, const struct glk_cu_access *map,	\
			size_t count),							\
		(pool, map, count))							\
	H(cuMemPoolGetAttribute, cuMemPoolGetAttribute, 11020, LEGACY, ALWAYS,		\
		(struct CUmemPoolHandle_st *pool, glk_cu_pool_attribute attribute,	\
			void *ret_value),						\
		(pool, attribute, ret_value))						\
	H(cuMemPoolSetAttribute, cuMemPoolSetAttribute, 11020, LEGACY, ALWAYS,		\
		(struct CUmemPoolHandle_st *pool, glk_cu_pool_attribute attribute,	\
			void *value),							\
		(pool, attribute, value))						\
	H(cuMemPoolTrimTo, cuMemPoolTrimTo, 11020, LEGACY, ALWAYS,			\
		(struct CUmemPoolHandle_st *pool, size_t keep), (pool, keep))		\
	H(cuDeviceSetMemPool, cuDeviceSetMemPool, 11020, LEGACY, ALWAYS,		\
		(glk_cu_device device, struct CUmemPoolHandle_st *pool),		\
		(device, pool))								\
	H(cuMemSetMemPool, cuMemSetMemPool, 13000, LEGACY, ALWAYS,			\
		(struct glk_cu_location *location, glk_cu_allocation type,		\
			struct CUmemPoolHandle_st *pool),				\
		(location, type, pool))							\
	H(cuStreamDestroy_v2, cuStreamDestroy, 4000, LEGACY, ALWAYS,			\
		(struct CUstream_st *stream), (stream))					\
	H(cuStreamBeginCapture, cuStreamBeginCapture, 10000, LEGACY, ALWAYS,		\
		(struct CUstream_st *stream), (stream))					\
	H(cuStreamBeginCapture_ptsz, cuStreamBeginCapture, 10000, THREAD, ALWAYS,	\
		(struct CUstream_st *stream), (stream))					\
	H(cuStreamBeginCapture_v2, cuStreamBeginCapture, 10010, LEGACY, ALWAYS,		\
		(struct CUstream_st *stream, glk_cu_capture_mode mode),			\
		(stream, mode))								\
	H(cuStreamBeginCapture_v2_ptsz, cuStreamBeginCapture, 10010, THREAD, ALWAYS,	\
		(struct CUstream_st *stream, glk_cu_capture_mode mode),			\
		(stream, mode))								\
	H(cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph, 12030, LEGACY,	\
		ALWAYS,									\
		(struct CUstream_st *stream, struct CUgraph_st *graph,			\
			struct CUgraphNode_st *const *nodes,				\
			const struct CUgraphEdgeData_st *edges, size_t count,		\
			glk_cu_capture_mode mode),					\
		(stream, graph, nodes, edges, count, mode))				\
	H(cuStreamBeginCaptureToGraph_ptsz, cuStreamBeginCaptureToGraph, 12030, THREAD,	\
		ALWAYS,									\
		(struct CUstream_st *stream, struct CUgraph_st *graph,			\
			struct CUgraphNode_st *const *nodes,				\
			const struct CUgraphEdgeData_st *edges, size_t count,		\
			glk_cu_capture_mode mode),					\
		(stream, graph, nodes, edges, count, mode))				\
	H(cuStreamEndCapture, cuStreamEndCapture, 10000, LEGACY, ALWAYS,		\
		(struct CUstream_st *stream, struct CUgraph_st **ret_graph),		\
		(stream, ret_graph))							\
	H(cuStreamEndCapture_ptsz, cuStreamEndCapture, 10000, THREAD, ALWAYS,		\
		(struct CUstream_st *stream, struct CUgraph_st **ret_graph),		\
		(stream, ret_graph))							\
	H(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset, 7000, LEGACY, ALWAYS,	\
		(glk_cu_device device), (device))					\
	H(cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset, 11000, LEGACY, ALWAYS,	\
		(glk_cu_device device), (device))					\
	H(cuCtxEnablePeerAccess, cuCtxEnablePeerAccess, 4000, LEGACY, ALWAYS,		\
		(struct CUctx_st *peer, unsigned int flags), (peer, flags))		\
	H(cuCtxDisablePeerAccess, cuCtxDisablePeerAccess, 4000, LEGACY, ALWAYS,		\
		(struct CUctx_st *peer), (peer))					\
	H(cuEventRecord, cuEventRecord, 2000, LEGACY, EVENTS,				\
		(struct CUevent_st *event, struct CUstream_st *stream),			\
		(event, stream))							\
	H(cuEventRecord_ptsz, cuEventRecord, 7000, THREAD, EVENTS,			\
		(struct CUevent_st *event, struct CUstream_st *stream),			\
		(event, stream))							\
	H(cuEventRecordWithFlags, cuEventRecordWithFlags, 11010, LEGACY, EVENTS,	\
		(struct CUevent_st *event, struct CUstream_st *stream,			\
			unsigned int flags),						\
		(event, stream, flags))							\
	H(cuEventRecordWithFlags_ptsz, cuEventRecordWithFlags, 11010, THREAD, EVENTS,	\
		(struct CUevent_st *event, struct CUstream_st *stream,			\
			unsigned int flags),						\
		(event, stream, flags))							\
	H(cuStreamWaitEvent, cuStreamWaitEvent, 3020, LEGACY, EVENTS,			\
		(struct CUstream_st *stream, struct CUevent_st *event,			\
			unsigned int flags),						\
		(stream, event, flags))							\
	H(cuStreamWaitEvent_ptsz, cuStreamWaitEvent, 7000, THREAD, EVENTS,		\
		(struct CUstream_st *stream, struct CUevent_st *event,			\
			unsigned int flags),						\
		(stream, event, flags))							\
	H(cuEventDestroy_v2, cuEventDestroy, 4000, LEGACY, EVENTS,			\
		(struct CUevent_st *event), (event))

/* What the hooks call themselves: C(function, parameters). */
#define GLK_PRELOAD_CALLS(C)								\
	C(cuCtxGetCurrent, (struct CUctx_st **ret_context))				\
	C(cuCtxPushCurrent_v2, (struct CUctx_st *context))				\
	C(cuCtxPopCurrent_v2, (struct CUctx_st **ret_context))				\
	C(cuCtxGetDevice, (glk_cu_device *ret_device))					\
	C(cuCtxSynchronize, (void))							\
	C(cuDevicePrimaryCtxGetState,							\
		(glk_cu_device device, unsigned int *ret_flags, int *ret_active))	\
	C(cuDevicePrimaryCtxRetain,							\
		(struct CUctx_st **ret_context, glk_cu_device device))			\
	C(cuDevicePrimaryCtxRelease_v2, (glk_cu_device device))				\
	C(cuDeviceGetDefaultMemPool,							\
		(struct CUmemPoolHandle_st **ret_pool, glk_cu_device device))		\
	C(cuGraphDestroy, (struct CUgraph_st *graph))					\
	C(cuStreamGetCtx, (struct CUstream_st *stream, struct CUctx_st **ret_context))	\
	C(cuStreamIsCapturing,								\
		(struct CUstream_st *stream, glk_cu_capture_status *ret_status))	\
	C(cuStreamQuery, (struct CUstream_st *stream))					\
	C(cuStreamSynchronize, (struct CUstream_st *stream))				\
	C(cuThreadExchangeStreamCaptureMode, (glk_cu_capture_mode *mode))
/* clang-format on */

#endif
