/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_T_GPU_H
#define GLK_T_GPU_H

/*
 * What the tests on a real GPU share: the backend itself or a skip with the reason, the few
 * CUDA functions that the library does not call, patterns, and a gate that holds a stream.
 */
#include "base/conf.h"
#include "base/rcu.h"
#include "driver/cuda.h"
#include "driver/driver.h"
#include "tap.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include <glake/error.h>

#define PAGE	  ((size_t)2 << 20)
#define UNUSED_FN __attribute__((unused))

/* A failed call tells more than its errno value. */
static UNUSED_FN void gpu_why(void)
{
	struct glake_error record = {.sz = sizeof(record)};

	glake_last_error(&record);
	tap_note("%s (%d): %s [%s]", record.call, record.native, record.text,
		glake_error_class_name(record.error_class));
}

static UNUSED_FN int gpu_class(void)
{
	struct glake_error record = {.sz = sizeof(record)};

	glake_last_error(&record);
	return record.error_class;
}

#define is_done(err, what)                                                               \
	do {                                                                             \
		if (!is_int(err, 0, what))                                               \
			gpu_why();                                                       \
	} while (0)

/* For what the rest of a test cannot do without. */
#define must(err, what)                                                                  \
	do {                                                                             \
		if ((err) != 0) {                                                        \
			gpu_why();                                                       \
			tap_bail(what);                                                  \
		}                                                                        \
	} while (0)

/* Opens the backend, or ends the program as skipped. No test hangs for ever. */
static UNUSED_FN struct glk_drv *gpu_open(void)
{
	struct glake_error record = {.sz = sizeof(record)};
	struct glk_drv *drv = NULL;
	char why[GLAKE_ERROR_TEXT_MAX + 16];

	alarm(240);
	glk_rcu_init(false);
	if (!glk_cuda_open(NULL, &drv))
		return drv;
	glake_last_error(&record);
	snprintf(why, sizeof(why), "no GPU: %s", record.text);
	tap_skip_all(why);
	return NULL;
}

/* Functions of CUDA that only tests call. */
struct gpu_extra {
	int (*begin_capture)(struct CUstream_st *stream, int mode);
	int (*end_capture)(struct CUstream_st *stream, void **graph);
	int (*is_capturing)(struct CUstream_st *stream, int *status);
	int (*graph_destroy)(void *graph);
	int (*host_function)(struct CUstream_st *stream, void (*fn)(void *), void *arg);
	int (*context)(void **context);
	int (*context_set)(void *context);
	int (*context_retain)(void **context, int device);
	int (*module_load)(void **module, const void *image);
	int (*module_function)(void **function, void *module, const char *name);
	int (*launch)(void *function, unsigned x, unsigned y, unsigned z, unsigned bx,
		unsigned by, unsigned bz, unsigned shared, struct CUstream_st *stream,
		void **arguments, void **extra);
	void *primary; /* the context of GPU 0 */
};

static UNUSED_FN double now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static UNUSED_FN struct gpu_extra gpu_extra(void)
{
	void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
	struct gpu_extra extra;
	const struct {
		void **fn;
		const char *name;
	} table[] = {
		{(void **)&extra.begin_capture, "cuStreamBeginCapture_v2"},
		{(void **)&extra.end_capture, "cuStreamEndCapture"},
		{(void **)&extra.is_capturing, "cuStreamIsCapturing"},
		{(void **)&extra.graph_destroy, "cuGraphDestroy"},
		{(void **)&extra.host_function, "cuLaunchHostFunc"},
		{(void **)&extra.context, "cuCtxGetCurrent"},
		{(void **)&extra.context_set, "cuCtxSetCurrent"},
		{(void **)&extra.context_retain, "cuDevicePrimaryCtxRetain"},
		{(void **)&extra.module_load, "cuModuleLoadData"},
		{(void **)&extra.module_function, "cuModuleGetFunction"},
		{(void **)&extra.launch, "cuLaunchKernel"},
	};

	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
		*table[i].fn = cuda ? dlsym(cuda, table[i].name) : NULL;
		if (!*table[i].fn)
			tap_bail(table[i].name);
	}
	if (extra.context_retain(&extra.primary, 0))
		tap_bail("cuDevicePrimaryCtxRetain");
	return extra;
}

/*
 * Holds a stream: work queued after gate_close waits for gate_open. It opens by itself after
 * 20 s and says so, which turns a driver call that waits for the GPU into a failed check.
 */
struct gate {
	atomic_int open, entered, late;
};

static UNUSED_FN void gate_wait(void *arg)
{
	struct timespec pause = {.tv_nsec = 100000};
	struct gate *gate = arg;

	atomic_store(&gate->entered, 1);
	for (int i = 0; i < 200000 && !atomic_load(&gate->open); i++)
		nanosleep(&pause, NULL);
	if (!atomic_load(&gate->open))
		atomic_store(&gate->late, 1);
}

/* The function itself is put behind all work queued before. */
static UNUSED_FN int gate_close(
	const struct gpu_extra *extra, struct gate *gate, struct CUstream_st *stream)
{
	void *before = NULL;
	int err;

	atomic_store(&gate->open, 0);
	atomic_store(&gate->entered, 0);
	atomic_store(&gate->late, 0);
	extra->context(&before);
	extra->context_set(extra->primary);
	err = extra->host_function(stream, gate_wait, gate);
	extra->context_set(before);
	return err;
}

static UNUSED_FN void gate_open(struct gate *gate)
{
	atomic_store(&gate->open, 1);
}

/* The words of a pattern, different for each seed; splitmix64. */
static UNUSED_FN void pattern_make(uint64_t *words, size_t bytes, uint64_t seed)
{
	for (size_t i = 0; i < bytes / sizeof(*words); i++) {
		uint64_t x = (seed << 40) + i * UINT64_C(0x9e3779b97f4a7c15);

		x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
		x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
		words[i] = x ^ x >> 31;
	}
}

/* How many words of a pattern are wrong; the first is named. */
static UNUSED_FN size_t pattern_wrong(const uint64_t *words, size_t bytes, uint64_t seed)
{
	uint64_t *want = malloc(bytes);
	size_t wrong = 0;

	if (!want)
		tap_bail("no host memory");
	pattern_make(want, bytes, seed);
	for (size_t i = 0; i < bytes / sizeof(*words); i++) {
		if (words[i] == want[i])
			continue;
		if (!wrong++)
			tap_note("word %zu of %zu: %#" PRIx64 ", want %#" PRIx64, i,
				bytes / sizeof(*words), words[i], want[i]);
	}
	free(want);
	return wrong;
}

/* Writes a pattern to GPU addresses, and waits. */
static UNUSED_FN int pattern_write(struct glk_drv *drv, int device, uint64_t addr,
	size_t bytes, uint64_t seed, struct CUstream_st *stream)
{
	uint64_t *words = malloc(bytes);
	int err;

	if (!words)
		tap_bail("no host memory");
	pattern_make(words, bytes, seed);
	err = drv->ops->copy(drv, addr, (uint64_t)(uintptr_t)words, bytes, stream);
	if (!err)
		err = drv->ops->stream_sync(drv, device, stream);
	free(words);
	return err;
}

/* Reads GPU addresses back; the number of wrong words, or -errno. */
static UNUSED_FN int64_t pattern_check(struct glk_drv *drv, int device, uint64_t addr,
	size_t bytes, uint64_t seed, struct CUstream_st *stream)
{
	uint64_t *words = malloc(bytes);
	int64_t wrong;

	if (!words)
		tap_bail("no host memory");
	memset(words, 0xee, bytes);
	wrong = drv->ops->copy(drv, (uint64_t)(uintptr_t)words, addr, bytes, stream);
	if (!wrong)
		wrong = drv->ops->stream_sync(drv, device, stream);
	if (!wrong)
		wrong = (int64_t)pattern_wrong(words, bytes, seed);
	else
		gpu_why();
	free(words);
	return wrong;
}

/* Maps a page and lets GPU `device` write to it. */
static UNUSED_FN int gpu_map(
	struct glk_drv *drv, int device, uint64_t addr, size_t size, uint64_t page)
{
	struct glk_grant grant = {{GLK_PLACE_GPU, device}, GLK_ACCESS_WRITE};
	int err = drv->ops->map(drv, addr, size, page);

	return err ? err : drv->ops->set_access(drv, addr, size, &grant, 1);
}

#endif
