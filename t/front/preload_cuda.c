/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* See preload_cuda.h. */
#include "preload_cuda.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	INVALID_VALUE = 1,
	OUT_OF_MEMORY = 2,
	DEINITIALIZED = 4,
	INVALID_CONTEXT = 201,
	NOT_READY = 600,
	CAPTURE_UNSUPPORTED = 900,
};

#define VERSION 13000
#define COUNTS	128
#define MANY	4096

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of figures, inside the next */
static pthread_mutex_t whole =
	PTHREAD_MUTEX_INITIALIZER; /* held for the time of a call */
static struct {
	const char *name;
	int calls;
} counts[COUNTS];
static int calls_after;
static bool gone, broken;

static struct CUctx_st primary[FAKE_GPUS] = {{0, true, false, 0}, {1, true, false, 0}};
static struct CUctx_st second[FAKE_GPUS] = {{0, false, true, 0}, {1, false, true, 0}};
static _Thread_local struct CUctx_st *stack[16];
static _Thread_local int depth;
static _Thread_local unsigned mode;
static struct CUstream_st *streams[MANY];
static struct CUevent_st *events[MANY];
static struct memory {
	fake_address base;
	size_t size;
	int device;
	bool graph, managed;
} memory[MANY];
static struct page {
	int fd, device;
	bool imported;
	size_t size;
} pages[MANY];
static size_t used[FAKE_GPUS];
static unsigned long long stream_ids;

/* A thread of the parent may have held it. */
static void in_child(void)
{
	lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	whole = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

static __attribute__((constructor)) void begin(void)
{
	pthread_atfork(NULL, NULL, in_child);
}

static int count(const char *name)
{
	int calls = 0;

	pthread_mutex_lock(&lock);
	for (int i = 0; i < COUNTS && counts[i].name; i++)
		if (!strcmp(counts[i].name, name))
			calls = counts[i].calls;
	pthread_mutex_unlock(&lock);
	return calls;
}

static fake_result called(const char *name)
{
	fake_result result = gone ? DEINITIALIZED : 0;

	pthread_mutex_lock(&lock);
	for (int i = 0; i < COUNTS; i++) {
		if (counts[i].name && strcmp(counts[i].name, name))
			continue;
		counts[i].name = name;
		counts[i].calls++;
		break;
	}
	calls_after += gone;
	pthread_mutex_unlock(&lock);
	return result;
}

/* Defines a function of the driver, which begins by counting itself. */
#define CUDA(name, parameters, arguments)                                                \
	static fake_result in_##name parameters;                                         \
	__attribute__((visibility("default"))) extern fake_result name parameters;       \
	fake_result name parameters                                                      \
	{                                                                                \
		fake_result result;                                                      \
		pthread_mutex_lock(&whole);                                              \
		result = called(#name);                                                  \
		if (!result)                                                             \
			result = in_##name arguments;                                    \
		pthread_mutex_unlock(&whole);                                            \
		return result;                                                           \
	}                                                                                \
	static fake_result in_##name parameters

static struct CUctx_st *current(void)
{
	return depth ? stack[depth - 1] : NULL;
}

static bool any_captures(void)
{
	for (int i = 0; i < MANY; i++)
		if (streams[i] && streams[i]->captures)
			return true;
	return false;
}

/* What a capture forbids to a thread that is not relaxed. */
static fake_result forbidden(void)
{
	if (!any_captures() || mode == 2)
		return 0;
	broken = true;
	return CAPTURE_UNSUPPORTED;
}

static void release_held(void)
{
	for (int i = 0; i < MANY; i++) {
		if (streams[i])
			streams[i]->held = streams[i]->behind = false;
		if (events[i])
			events[i]->pending = false;
	}
}

CUDA(cuInit, (unsigned flags), (flags))
{
	return flags ? INVALID_VALUE : 0;
}

CUDA(cuDriverGetVersion, (int *version), (version))
{
	*version = VERSION;
	return 0;
}

CUDA(cuGetErrorName, (fake_result error, const char **name), (error, name))
{
	*name = "CUDA_ERROR";
	return 0;
}

CUDA(cuGetErrorString, (fake_result error, const char **text), (error, text))
{
	*text = error == OUT_OF_MEMORY ? "out of memory" : "an error";
	return 0;
}

CUDA(cuDeviceGetCount, (int *gpus), (gpus))
{
	*gpus = FAKE_GPUS;
	return 0;
}

CUDA(cuDeviceGet, (int *device, int ordinal), (device, ordinal))
{
	*device = ordinal;
	return 0;
}

CUDA(cuDeviceGetName, (char *name, int size, int device), (name, size, device))
{
	memset(name, 0, (size_t)size);
	name[0] = (char)('A' + device);
	return 0;
}

CUDA(cuDeviceGetUuid_v2, (char *uuid, int device), (uuid, device))
{
	memset(uuid, device + 1, 16);
	return 0;
}

CUDA(cuDeviceGetPCIBusId, (char *id, int size, int device), (id, size, device))
{
	strncpy(id, device ? "0000:02:00.0" : "0000:01:00.0", (size_t)size);
	return 0;
}

CUDA(cuDeviceGetAttribute, (int *value, unsigned which, int device),
	(value, which, device))
{
	/* 9.0, virtual memory management, pages as file descriptors, and managed memory */
	*value = which == 75 ? 9
			     : which == 102 || which == 103 || which == 83 || which == 89;
	return 0;
}

CUDA(cuDeviceTotalMem_v2, (size_t * bytes, int device), (bytes, device))
{
	*bytes = FAKE_MEMORY;
	return 0;
}

CUDA(cuDevicePrimaryCtxRetain, (struct CUctx_st * *context, int device),
	(context, device))
{
	primary[device].retained++;
	primary[device].active = true;
	*context = &primary[device];
	return 0;
}

CUDA(cuDevicePrimaryCtxRelease_v2, (int device), (device))
{
	primary[device].active = --primary[device].retained > 0;
	return 0;
}

CUDA(cuDevicePrimaryCtxGetState, (int device, unsigned *flags, int *active),
	(device, flags, active))
{
	*flags = 0;
	*active = primary[device].active;
	return 0;
}

CUDA(cuDevicePrimaryCtxReset_v2, (int device), (device))
{
	for (int i = 0; i < MANY; i++)
		if (memory[i].base && memory[i].device == device) {
			used[device] -= memory[i].size;
			munmap((void *)(uintptr_t)memory[i].base, memory[i].size);
			memory[i].base = 0;
		}
	return 0;
}

CUDA(cuCtxGetCurrent, (struct CUctx_st * *context), (context))
{
	*context = current();
	return 0;
}

CUDA(cuCtxSetCurrent, (struct CUctx_st * context), (context))
{
	depth = depth ? depth : 1;
	stack[depth - 1] = context;
	return 0;
}

CUDA(cuCtxPushCurrent_v2, (struct CUctx_st * context), (context))
{
	stack[depth++] = context;
	return 0;
}

CUDA(cuCtxPopCurrent_v2, (struct CUctx_st * *context), (context))
{
	if (!depth)
		return INVALID_CONTEXT;
	*context = stack[--depth];
	return 0;
}

CUDA(cuCtxGetDevice, (int *device), (device))
{
	if (!current())
		return INVALID_CONTEXT;
	*device = current()->device;
	return 0;
}

CUDA(cuCtxGetId, (struct CUctx_st * context, unsigned long long *id), (context, id))
{
	*id = (unsigned long long)(context - primary) + 1;
	return 0;
}

CUDA(cuDeviceCanAccessPeer, (int *can, int device, int peer), (can, device, peer))
{
	*can = device != peer;
	return 0;
}

CUDA(cuCtxEnablePeerAccess, (struct CUctx_st * peer, unsigned flags), (peer, flags))
{
	return current() && peer != current() ? 0 : INVALID_CONTEXT;
}

CUDA(cuCtxDisablePeerAccess, (struct CUctx_st * peer), (peer))
{
	return current() && peer != current() ? 0 : INVALID_CONTEXT;
}

CUDA(cuCtxSynchronize, (void), ())
{
	if (!current())
		return INVALID_CONTEXT;
	if (any_captures()) {
		broken = true; /* in every mode */
		return CAPTURE_UNSUPPORTED;
	}
	release_held();
	return 0;
}

CUDA(cuThreadExchangeStreamCaptureMode, (unsigned *with), (with))
{
	unsigned old = mode;

	mode = *with;
	*with = old;
	return 0;
}

CUDA(cuStreamCreate, (struct CUstream_st * *stream, unsigned flags), (stream, flags))
{
	if (!current())
		return INVALID_CONTEXT;
	for (int i = 0; i < MANY; i++) {
		if (streams[i])
			continue;
		*stream = streams[i] = calloc(1, sizeof(**stream));
		streams[i]->context = current();
		streams[i]->id = ++stream_ids + 100;
		return 0;
	}
	return OUT_OF_MEMORY;
}

CUDA(cuStreamDestroy_v2, (struct CUstream_st * stream), (stream))
{
	for (int i = 0; i < MANY; i++)
		if (streams[i] == stream)
			streams[i] = NULL;
	free(stream);
	return 0;
}

static struct CUstream_st *real_stream(struct CUstream_st *stream)
{
	return (uintptr_t)stream > 2 ? stream : NULL;
}

CUDA(cuStreamGetCtx, (struct CUstream_st * stream, struct CUctx_st **context),
	(stream, context))
{
	*context = real_stream(stream) ? stream->context : current();
	return *context ? 0 : INVALID_CONTEXT;
}

CUDA(cuStreamGetId, (struct CUstream_st * stream, unsigned long long *id), (stream, id))
{
	*id = real_stream(stream) ? stream->id : (uintptr_t)stream + 1;
	return 0;
}

CUDA(cuStreamQuery, (struct CUstream_st * stream), (stream))
{
	fake_result result = forbidden();

	if (result)
		return result;
	return real_stream(stream) && (stream->held || stream->behind) ? NOT_READY : 0;
}

CUDA(cuStreamSynchronize, (struct CUstream_st * stream), (stream))
{
	fake_result result = forbidden();

	if (!result)
		release_held();
	return result;
}

CUDA(cuStreamIsCapturing, (struct CUstream_st * stream, unsigned *status),
	(stream, status))
{
	*status = real_stream(stream) && stream->captures;
	return 0;
}

CUDA(cuStreamGetCaptureInfo,
	(struct CUstream_st * stream, unsigned *status, uint64_t *id),
	(stream, status, id))
{
	*status = real_stream(stream) && stream->captures;
	*id = *status ? stream->id : 0;
	return 0;
}

CUDA(cuStreamBeginCapture_v2, (struct CUstream_st * stream, unsigned how), (stream, how))
{
	stream->captures = true;
	return 0;
}

CUDA(cuStreamEndCapture, (struct CUstream_st * stream, void **graph), (stream, graph))
{
	stream->captures = false;
	*graph = stream;
	return 0;
}

CUDA(cuGraphDestroy, (void *graph), (graph))
{
	return 0;
}

CUDA(cuStreamWaitEvent,
	(struct CUstream_st * stream, struct CUevent_st *event, unsigned flags),
	(stream, event, flags))
{
	if (real_stream(stream) && event->pending)
		stream->behind = true;
	return 0;
}

CUDA(cuEventCreate, (struct CUevent_st * *event, unsigned flags), (event, flags))
{
	for (int i = 0; i < MANY; i++) {
		if (events[i])
			continue;
		*event = events[i] = calloc(1, sizeof(**event));
		return 0;
	}
	return OUT_OF_MEMORY;
}

CUDA(cuEventDestroy_v2, (struct CUevent_st * event), (event))
{
	for (int i = 0; i < MANY; i++)
		if (events[i] == event)
			events[i] = NULL;
	free(event);
	return 0;
}

CUDA(cuEventRecord, (struct CUevent_st * event, struct CUstream_st *stream),
	(event, stream))
{
	event->pending = real_stream(stream) && (stream->held || stream->behind);
	return 0;
}

CUDA(cuEventQuery, (struct CUevent_st * event), (event))
{
	fake_result result = forbidden();

	return result ? result : event->pending ? NOT_READY : 0;
}

CUDA(cuEventSynchronize, (struct CUevent_st * event), (event))
{
	fake_result result = forbidden();

	if (!result)
		release_held();
	return result;
}

#include "preload_cuda_memory.h"
