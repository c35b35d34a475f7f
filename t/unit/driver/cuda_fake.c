/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* See cuda_fake.h. FAKE_ENTRY is the newest cuGetProcAddress this build has; 0 for none. */
#include "cuda_fake.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT extern struct fake fake;
struct fake fake = {.version = 13000, .gpus = 2};

/* Every function begins here: counts, and answers what the test wants it to. */
static glk_cu_result begin(const char *call)
{
	fake.calls++;
	fake.context = fake.current;
	if (fake.mode == GLK_CU_CAPTURE_MODE_RELAXED)
		fake.relaxed_calls++;
	if (fake.stub)
		return GLK_CU_STUB_LIBRARY;
	if (fake.fail_call && !strcmp(fake.fail_call, call))
		return fake.fail_result;
	return GLK_CU_SUCCESS;
}

#define BEGIN                                                                            \
	do {                                                                             \
		glk_cu_result begun = begin(__func__ + strlen("fake_"));                 \
		if (begun)                                                               \
			return begun;                                                    \
	} while (0)

/* What a capture in global mode forbids to a thread that is not relaxed. */
#define FORBIDDEN                                                                        \
	do {                                                                             \
		if (fake.capturing && fake.mode != GLK_CU_CAPTURE_MODE_RELAXED) {        \
			fake.capture_broken = true;                                      \
			return GLK_CU_STREAM_CAPTURE_UNSUPPORTED;                        \
		}                                                                        \
	} while (0)

/* For calls that a driver may want to have some context for. */
#define WANTED                                                                           \
	do {                                                                             \
		if (fake.want_context && !fake.current)                                  \
			return GLK_CU_INVALID_CONTEXT;                                   \
	} while (0)

/* A function that only waits, which a capture forbids. */
#define WAITS(name, ...)                                                                 \
	static glk_cu_result fake_##name(__VA_ARGS__)                                    \
	{                                                                                \
		BEGIN;                                                                   \
		FORBIDDEN;                                                               \
		WANTED;                                                                  \
		return GLK_CU_SUCCESS;                                                   \
	}

#define DECLARE(field, symbol, version, args) static glk_cu_result fake_##field args;
GLK_CUDA_FUNCTIONS(DECLARE)
GLK_CUDA_OPTIONAL(DECLARE)

static glk_cu_result fake_cuDriverGetVersion(int *version)
{
	BEGIN;
	*version = fake.version;
	return GLK_CU_SUCCESS;
}

static glk_cu_result fake_cuInit(unsigned int flags)
{
	BEGIN;
	return flags ? GLK_CU_INVALID_VALUE : GLK_CU_SUCCESS;
}

static glk_cu_result fake_cuGetErrorName(glk_cu_result result, const char **name)
{
	if (fake.stub)
		return GLK_CU_STUB_LIBRARY;
	*name = result == GLK_CU_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : NULL;
	return *name ? GLK_CU_SUCCESS : GLK_CU_INVALID_VALUE;
}

static glk_cu_result fake_cuGetErrorString(glk_cu_result result, const char **text)
{
	if (fake.stub)
		return GLK_CU_STUB_LIBRARY;
	*text = result == GLK_CU_OUT_OF_MEMORY ? "out of memory" : NULL;
	return *text ? GLK_CU_SUCCESS : GLK_CU_INVALID_VALUE;
}

static glk_cu_result fake_cuDeviceGetCount(int *count)
{
	BEGIN;
	*count = fake.gpus;
	return GLK_CU_SUCCESS;
}

static glk_cu_result fake_cuDeviceGet(glk_cu_device *device, int ordinal)
{
	BEGIN;
	*device = ordinal;
	return GLK_CU_SUCCESS;
}

static glk_cu_result fake_cuDeviceGetName(char *name, int size, glk_cu_device device)
{
	BEGIN;
	snprintf(name, (size_t)size, "Fake GPU %d", device);
	return GLK_CU_SUCCESS;
}

static glk_cu_result uuid(struct glk_cu_uuid *id, glk_cu_device device, int first)
{
	for (int i = 0; i < 16; i++)
		id->bytes[i] = (char)(first + i + 16 * device);
	return GLK_CU_SUCCESS;
}

static glk_cu_result fake_cuDeviceGetUuid_v1(struct glk_cu_uuid *id, glk_cu_device device)
{
	BEGIN;
	return uuid(id, device, 0xa0);
}

static glk_cu_result fake_cuDeviceGetUuid(struct glk_cu_uuid *id, glk_cu_device device)
{
	BEGIN;
	return uuid(id, device, fake.mig ? 0x10 : 0xa0);
}

static glk_cu_result fake_cuDeviceGetPCIBusId(char *id, int size, glk_cu_device device)
{
	BEGIN;
	snprintf(id, (size_t)size, "0000:3B:%02d.0", device);
	return GLK_CU_SUCCESS;
}

static glk_cu_result fake_cuDeviceGetAttribute(
	int *value, glk_cu_attribute attribute, glk_cu_device device)
{
	BEGIN;
	switch (attribute) {
	case GLK_CU_ATTR_MAJOR:
		*value = 9;
		break;
	case GLK_CU_ATTR_MINOR:
		*value = 0;
		break;
	case GLK_CU_ATTR_NUMA_NODE:
	case GLK_CU_ATTR_HOST_NUMA:
		if (fake.no_numa)
			return GLK_CU_INVALID_VALUE;
		*value = 1;
		break;
	case GLK_CU_ATTR_HAS_MANAGED:
		*value = !fake.no_managed;
		break;
	case GLK_CU_ATTR_MANAGED:
		*value = !fake.no_sharing;
		break;
	case GLK_CU_ATTR_PAGEABLE:
	case GLK_CU_ATTR_MPS:
		*value = 0;
		break;
	default:
		*value = 1;
	}
	return GLK_CU_SUCCESS;
}

static glk_cu_result fake_cuDeviceTotalMem(size_t *bytes, glk_cu_device device)
{
	BEGIN;
	*bytes = (size_t)140 << 30;
	return GLK_CU_SUCCESS;
}

static glk_cu_result fake_cuDevicePrimaryCtxRetain(
	struct CUctx_st **context, glk_cu_device device)
{
	BEGIN;
	FORBIDDEN;
	fake.retained[device]++;
	fake.retains++;
	*context = FAKE_CONTEXT(device);
	return GLK_CU_SUCCESS;
}

static glk_cu_result fake_cuDevicePrimaryCtxRelease(glk_cu_device device)
{
	BEGIN;
	if (!fake.retained[device])
		return GLK_CU_INVALID_CONTEXT;
	fake.retained[device]--;
	return GLK_CU_SUCCESS;
}

static struct CUctx_st *stack[8];

static glk_cu_result fake_cuCtxGetCurrent(struct CUctx_st **context)
{
	*context = fake.current;
	fake.calls++;
	return GLK_CU_SUCCESS;
}

/* The program resets a context, and may make it again under the same handle. */
static glk_cu_result fake_cuCtxGetId(struct CUctx_st *context, unsigned long long *id)
{
	if (fake.context_reset == 1)
		return GLK_CU_CONTEXT_IS_DESTROYED;
	*id = 100 + fake.context_reset;
	return context ? GLK_CU_SUCCESS : GLK_CU_INVALID_CONTEXT;
}

static glk_cu_result fake_cuCtxPushCurrent(struct CUctx_st *context)
{
	BEGIN;
	stack[fake.pushes - fake.pops] = fake.current;
	fake.pushes++;
	fake.current = context;
	return GLK_CU_SUCCESS;
}

static glk_cu_result fake_cuCtxPopCurrent(struct CUctx_st **context)
{
	struct CUctx_st *last = fake.context;

	BEGIN;
	fake.context = last;
	if (fake.pushes == fake.pops)
		return GLK_CU_INVALID_CONTEXT;
	*context = fake.current;
	fake.pops++;
	fake.current = stack[fake.pushes - fake.pops];
	return GLK_CU_SUCCESS;
}

WAITS(cuCtxSynchronize, void)

static glk_cu_result fake_cuMemGetInfo(size_t *free, size_t *total)
{
	BEGIN;
	*free = (size_t)100 << 30;
	*total = (size_t)140 << 30;
	return fake.current ? GLK_CU_SUCCESS : GLK_CU_INVALID_CONTEXT;
}

static glk_cu_result fake_cuPointerGetAttribute(
	void *value, glk_cu_pointer_attribute attribute, glk_cu_address address)
{
	BEGIN;
	if (fake.pointer_end && address >= fake.pointer_end)
		return GLK_CU_INVALID_VALUE;
	if (address < fake.pointer_locked)
		*(unsigned *)value =
			attribute == GLK_CU_POINTER_MEMORY_TYPE ? GLK_CU_MEMORY_HOST : 0;
	else if (attribute == GLK_CU_POINTER_MEMORY_TYPE && fake.pointer_type)
		*(unsigned *)value = fake.pointer_type;
	else if (attribute == GLK_CU_POINTER_IS_MANAGED)
		*(unsigned *)value = fake.pointer_managed;
	else if (attribute == GLK_CU_POINTER_DEVICE && fake.pointer_gpu >= 0)
		*(int *)value = fake.pointer_gpu;
	else
		return GLK_CU_INVALID_VALUE;
	return GLK_CU_SUCCESS;
}

#include "cuda_fake_managed.h"
#include "cuda_fake_page.h"

static glk_cu_result fake_cuStreamCreate(struct CUstream_st **stream, unsigned int flags)
{
	BEGIN;
	fake.stream_flags = flags;
	fake.streams++;
	*stream = FAKE_STREAM;
	return GLK_CU_SUCCESS;
}

static glk_cu_result fake_cuStreamDestroy(struct CUstream_st *stream)
{
	BEGIN;
	fake.streams--;
	return GLK_CU_SUCCESS;
}

WAITS(cuStreamSynchronize, struct CUstream_st *stream)

static glk_cu_result fake_cuStreamGetCaptureInfo_v1(
	struct CUstream_st *stream, glk_cu_capture_status *status, uint64_t *id)
{
	int state;

	BEGIN;
	WANTED;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	fake.ends_there |= state == PTHREAD_CANCEL_ENABLE;
	pthread_setcancelstate(state, &state);
	*status = (glk_cu_capture_status)fake.capturing;
	*id = fake.capture_id;
	return GLK_CU_SUCCESS;
}

static glk_cu_result fake_cuStreamGetId(
	struct CUstream_st *stream, unsigned long long *id)
{
	BEGIN;
	if (fake.capturing) {
		fake.capture_broken = true;
		return GLK_CU_STREAM_CAPTURE_UNSUPPORTED;
	}
	*id = 100 + (uintptr_t)stream;
	return GLK_CU_SUCCESS;
}

static glk_cu_result fake_cuStreamGetCtx(
	struct CUstream_st *stream, struct CUctx_st **context)
{
	BEGIN;
	*context = fake.stream_context;
	return GLK_CU_SUCCESS;
}

static glk_cu_result fake_cuStreamWaitEvent(
	struct CUstream_st *stream, struct CUevent_st *event, unsigned int flags)
{
	BEGIN;
	WANTED;
	fake.event_mode = fake.mode;
	return flags ? GLK_CU_INVALID_VALUE : GLK_CU_SUCCESS;
}

static glk_cu_result fake_cuThreadExchangeStreamCaptureMode(glk_cu_capture_mode *mode)
{
	glk_cu_capture_mode old = fake.mode;

	fake.calls++;
	if (fake.fail_call &&
		!strcmp(fake.fail_call, "cuThreadExchangeStreamCaptureMode"))
		return fake.fail_result;
	fake.mode = *mode;
	*mode = old;
	return GLK_CU_SUCCESS;
}

static glk_cu_result fake_cuEventCreate(struct CUevent_st **event, unsigned int flags)
{
	BEGIN;
	fake.event_flags = flags;
	*event = (struct CUevent_st *)(uintptr_t)(0x3000 + ++fake.events);
	return GLK_CU_SUCCESS;
}

static glk_cu_result fake_cuEventDestroy(struct CUevent_st *event)
{
	BEGIN;
	fake.events--;
	return GLK_CU_SUCCESS;
}

static glk_cu_result fake_cuEventRecord(
	struct CUevent_st *event, struct CUstream_st *stream)
{
	BEGIN;
	WANTED;
	fake.event_mode = fake.mode;
	return GLK_CU_SUCCESS;
}

static glk_cu_result fake_cuEventQuery(struct CUevent_st *event)
{
	BEGIN;
	FORBIDDEN;
	WANTED;
	return fake.query;
}

WAITS(cuEventSynchronize, struct CUevent_st *event)

static glk_cu_result fake_cuMemcpyAsync(
	glk_cu_address dst, glk_cu_address src, size_t size, struct CUstream_st *stream)
{
	BEGIN;
	fake.size = size;
	return GLK_CU_SUCCESS;
}

static glk_cu_result fake_cuMemsetD32Async(
	glk_cu_address dst, unsigned int value, size_t count, struct CUstream_st *stream)
{
	BEGIN;
	fake.size = count;
	return GLK_CU_SUCCESS;
}

static glk_cu_result fake_cuStreamWriteValue32(struct CUstream_st *stream,
	glk_cu_address addr, uint32_t value, unsigned int flags)
{
	BEGIN;
	fake.address = addr;
	fake.size = value;
	return flags ? GLK_CU_INVALID_VALUE : GLK_CU_SUCCESS;
}

static glk_cu_result fake_cuStreamWaitValue32(struct CUstream_st *stream,
	glk_cu_address addr, uint32_t value, unsigned int flags)
{
	BEGIN;
	fake.address = addr;
	fake.size = value;
	return flags ? GLK_CU_INVALID_VALUE : GLK_CU_SUCCESS;
}

static glk_cu_result fake_cuModuleLoadData(struct CUmod_st **module, const void *image)
{
	BEGIN;
	FORBIDDEN;
	*module = (struct CUmod_st *)(uintptr_t)image;
	return GLK_CU_SUCCESS;
}

static glk_cu_result fake_cuModuleUnload(struct CUmod_st *module)
{
	BEGIN;
	FORBIDDEN;
	fake.address = (glk_cu_address)(uintptr_t)module;
	return GLK_CU_SUCCESS;
}

static glk_cu_result fake_cuModuleGetFunction(
	struct CUfunc_st **function, struct CUmod_st *module, const char *name)
{
	BEGIN;
	*function = (struct CUfunc_st *)(uintptr_t)name;
	return GLK_CU_SUCCESS;
}

static glk_cu_result fake_cuLaunchKernel(struct CUfunc_st *function, unsigned int x,
	unsigned int y, unsigned int z, unsigned int tx, unsigned int ty, unsigned int tz,
	unsigned int shared, struct CUstream_st *stream, void **params, void **extra)
{
	BEGIN;
	fake.address = (glk_cu_address)(uintptr_t)params[0];
	fake.size = (size_t)x * tx;
	return y == 1 && z == 1 && ty == 1 && tz == 1 && !shared && !extra
		? GLK_CU_SUCCESS
		: GLK_CU_INVALID_VALUE;
}

static glk_cu_result fake_cuMemHostRegister(void *ptr, size_t size, unsigned int flags)
{
	BEGIN;
	fake.address = (glk_cu_address)(uintptr_t)ptr;
	fake.size = size;
	fake.flags = flags;
	return GLK_CU_SUCCESS;
}

static glk_cu_result fake_cuMemHostUnregister(void *ptr)
{
	BEGIN;
	fake.address = (glk_cu_address)(uintptr_t)ptr;
	return GLK_CU_SUCCESS;
}

/* The newest of the functions named `symbol` that is not newer than `version`. */
static void *look_up(const char *symbol, int version)
{
	void *found = NULL;

	if (fake.missing && !strcmp(fake.missing, symbol))
		return NULL;
#define ENTRY(field, name, since, args)                                                  \
	if (!strcmp(symbol, #name) && since <= version)                                  \
		found = (void *)fake_##field;
	GLK_CUDA_FUNCTIONS(ENTRY)
	GLK_CUDA_OPTIONAL(ENTRY)
#undef ENTRY
	return found;
}

#if FAKE_ENTRY >= 12000
EXPORT glk_cu_proc_v12000 cuGetProcAddress_v2;

glk_cu_result cuGetProcAddress_v2(const char *symbol, void **fn, int version,
	uint64_t flags, glk_cu_proc_status *status)
{
	if (fake.stub)
		return GLK_CU_STUB_LIBRARY;
	if (version > fake.version || flags != GLK_CU_PROC_LEGACY_STREAM)
		return GLK_CU_INVALID_VALUE;
	*fn = look_up(symbol, version);
	*status = *fn ? GLK_CU_PROC_FOUND : GLK_CU_PROC_NOT_FOUND;
	return GLK_CU_SUCCESS;
}
#elif FAKE_ENTRY >= 11030
EXPORT glk_cu_proc_v11030 cuGetProcAddress;

glk_cu_result cuGetProcAddress(const char *symbol, void **fn, int version, uint64_t flags)
{
	if (fake.stub)
		return GLK_CU_STUB_LIBRARY;
	if (version > fake.version || flags != GLK_CU_PROC_LEGACY_STREAM)
		return GLK_CU_INVALID_VALUE;
	*fn = look_up(symbol, version);
	return GLK_CU_SUCCESS;
}
#else
EXPORT glk_cu_result cuDriverGetVersion(int *version);

glk_cu_result cuDriverGetVersion(int *version)
{
	/* Used here only to keep the functions of the list. */
	return look_up("cuDriverGetVersion", 2020) ? fake_cuDriverGetVersion(version)
						   : GLK_CU_UNKNOWN;
}
#endif
