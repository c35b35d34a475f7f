/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_T_PRELOAD_CALLS_H
#define GLK_T_PRELOAD_CALLS_H

/*
 * The driver as a program finds it, in each of the ways there are. The programs of this folder
 * run with and without the preload, against the libcuda.so.1 of this folder.
 */
#include "preload_cuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((size_t)1 << 20)

struct calls_handle {
	char reserved[64];
};

/* clang-format off */
/* F(field, function, version): by symbol and dlsym the function, by cuGetProcAddress the field */
#define CALLS(F)									\
	F(cuInit, cuInit, 2000, (unsigned flags))					\
	F(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000,			\
		(struct CUctx_st **context, int device))				\
	F(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2, 11000, (int device))	\
	F(cuCtxSetCurrent, cuCtxSetCurrent, 4000, (struct CUctx_st *context))		\
	F(cuCtxSynchronize, cuCtxSynchronize, 2000, (void))				\
	F(cuCtxEnablePeerAccess, cuCtxEnablePeerAccess, 4000,				\
		(struct CUctx_st *peer, unsigned flags))				\
	F(cuCtxDisablePeerAccess, cuCtxDisablePeerAccess, 4000,				\
		(struct CUctx_st *peer))						\
	F(cuDeviceTotalMem, cuDeviceTotalMem_v2, 3020, (size_t *bytes, int device))	\
	F(cuMemAlloc, cuMemAlloc_v2, 3020, (fake_address *ret, size_t size))		\
	F(cuMemAllocPitch, cuMemAllocPitch_v2, 3020,					\
		(fake_address *ret, size_t *pitch, size_t width, size_t height,		\
			unsigned element))						\
	F(cuMemFree, cuMemFree_v2, 3020, (fake_address ptr))				\
	F(cuMemAllocAsync, cuMemAllocAsync, 11020,					\
		(fake_address *ret, size_t size, struct CUstream_st *stream))		\
	F(cuMemFreeAsync, cuMemFreeAsync, 11020,					\
		(fake_address ptr, struct CUstream_st *stream))				\
	F(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 11020,			\
		(fake_address *ret, size_t size, void *pool,				\
			struct CUstream_st *stream))					\
	F(cuMemPoolCreate, cuMemPoolCreate, 11020, (void **pool, const void *props))	\
	F(cuMemPoolDestroy, cuMemPoolDestroy, 11020, (void *pool))			\
	F(cuMemPoolGetAttribute, cuMemPoolGetAttribute, 11020,				\
		(void *pool, unsigned attribute, void *value))				\
	F(cuMemPoolSetAttribute, cuMemPoolSetAttribute, 11020,				\
		(void *pool, unsigned attribute, void *value))				\
	F(cuMemPoolTrimTo, cuMemPoolTrimTo, 11020, (void *pool, size_t keep))		\
	F(cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool, 11020,			\
		(void **pool, int device))						\
	F(cuDeviceSetMemPool, cuDeviceSetMemPool, 11020, (int device, void *pool))	\
	F(cuMemGetInfo, cuMemGetInfo_v2, 3020, (size_t *left, size_t *total))		\
	F(cuMemGetAddressRange, cuMemGetAddressRange_v2, 3020,				\
		(fake_address *base, size_t *size, fake_address ptr))			\
	F(cuPointerGetAttribute, cuPointerGetAttribute, 4000,				\
		(void *value, unsigned which, fake_address ptr))			\
	F(cuPointerGetAttributes, cuPointerGetAttributes, 7000,				\
		(unsigned number, const unsigned *which, void **values,			\
			fake_address ptr))						\
	F(cuMemAllocManaged, cuMemAllocManaged, 6000,					\
		(fake_address *ret, size_t size, unsigned flags))			\
	F(cuMemCreate, cuMemCreate, 10020,						\
		(unsigned long long *page, size_t size, const int *prop,		\
			unsigned long long flags))					\
	F(cuMemRelease, cuMemRelease, 10020, (unsigned long long page))			\
	F(cuIpcGetMemHandle, cuIpcGetMemHandle, 4010, (void *handle, fake_address ptr))	\
	F(cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2, 11000,				\
		(fake_address *ret, struct calls_handle handle, unsigned flags))	\
	F(cuIpcCloseMemHandle, cuIpcCloseMemHandle, 4010, (fake_address ptr))		\
	F(cuStreamCreate, cuStreamCreate, 2000,						\
		(struct CUstream_st **stream, unsigned flags))				\
	F(cuStreamDestroy, cuStreamDestroy_v2, 4000, (struct CUstream_st *stream))	\
	F(cuStreamWaitEvent, cuStreamWaitEvent, 3020,					\
		(struct CUstream_st *stream, struct CUevent_st *event, unsigned flags))	\
	F(cuEventCreate, cuEventCreate, 2000, (struct CUevent_st **event, unsigned flags)) \
	F(cuEventDestroy, cuEventDestroy_v2, 4000, (struct CUevent_st *event))		\
	F(cuEventRecord, cuEventRecord, 2000,						\
		(struct CUevent_st *event, struct CUstream_st *stream))			\
	F(cuStreamBeginCapture, cuStreamBeginCapture_v2, 10010,				\
		(struct CUstream_st *stream, unsigned how))				\
	F(cuStreamEndCapture, cuStreamEndCapture, 10000,				\
		(struct CUstream_st *stream, void **graph))
/* clang-format on */

#define F(field, function, version, parameters) fake_result(*field) parameters;
struct calls {
	CALLS(F)
};
#undef F

typedef fake_result proc_v11030(const char *, void **, int, uint64_t);
typedef fake_result proc_v12000(const char *, void **, int, uint64_t, unsigned *);

static inline void *driver_open(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_LAZY);

	if (!driver) {
		fprintf(stderr, "no libcuda.so.1: %s\n", dlerror());
		exit(99);
	}
	return driver;
}

static inline const struct fake_state *driver_state(void)
{
	return dlsym(driver_open(), "fake");
}

static inline struct calls calls_by_dlsym(void)
{
	void *driver = driver_open();
	struct calls calls;
	void *fn;

#define F(field, function, version, parameters)                                          \
	fn = dlsym(driver, #function);                                                   \
	memcpy(&calls.field, &fn, sizeof(fn));
	CALLS(F)
#undef F
	return calls;
}

static inline struct calls calls_by_proc_v1(void)
{
	struct calls calls;
	proc_v11030 *proc;
	void *fn = dlsym(driver_open(), "cuGetProcAddress");

	memcpy(&proc, &fn, sizeof(fn));
#define F(field, function, version, parameters)                                          \
	proc(#field, &fn, version, 0);                                                   \
	memcpy(&calls.field, &fn, sizeof(fn));
	CALLS(F)
#undef F
	return calls;
}

/* As a runtime that is linked into its program does: one dlsym, and the entry point that gives
 * is asked for itself again. */
static inline struct calls calls_by_proc_v2(void)
{
	unsigned status = 9;
	struct calls calls;
	proc_v12000 *proc;
	void *fn = dlsym(driver_open(), "cuGetProcAddress_v2");

	memcpy(&proc, &fn, sizeof(fn));
	proc("cuGetProcAddress", &fn, 12000, 1, &status);
	memcpy(&proc, &fn, sizeof(fn));
#define F(field, function, version, parameters)                                          \
	proc(#field, &fn, version, 1, &status);                                          \
	memcpy(&calls.field, &fn, sizeof(fn));
	CALLS(F)
#undef F
	return calls;
}

#ifdef CALLS_LINKED
#define F(field, function, version, parameters) extern fake_result function parameters;
CALLS(F)
#undef F

static inline struct calls calls_by_symbol(void)
{
#define F(field, function, version, parameters) .field = function,
	return (struct calls){CALLS(F)};
#undef F
}
#endif

static inline struct calls calls_by(const char *route)
{
#ifdef CALLS_LINKED
	if (!strcmp(route, "symbol"))
		return calls_by_symbol();
#endif
	if (!strcmp(route, "dlsym"))
		return calls_by_dlsym();
	if (!strcmp(route, "proc1"))
		return calls_by_proc_v1();
	if (!strcmp(route, "proc2"))
		return calls_by_proc_v2();
	fprintf(stderr, "no route %s\n", route);
	exit(99);
}

/* The primary context of a GPU, current. */
static inline struct CUctx_st *calls_use(const struct calls *cu, int device)
{
	struct CUctx_st *context = NULL;

	if (cu->cuInit(0) || cu->cuDevicePrimaryCtxRetain(&context, device) ||
		cu->cuCtxSetCurrent(context)) {
		fprintf(stderr, "no context\n");
		exit(99);
	}
	return context;
}

#endif
