/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_T_CUDA_FAKE_H
#define GLK_T_CUDA_FAKE_H

/*
 * A libcuda.so.1 of our own, for the paths that no real driver can be made to take. A test
 * loads one of its three builds, which differ in the entry points they have, and then sets
 * and reads the structure below, which lives in the loaded library.
 */
#include "driver/cuda_abi.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAKE_GPUS_MAX 80

struct fake {
	/* Set by the test. */
	int version;
	int gpus;
	bool stub;	       /* every call answers STUB_LIBRARY */
	const char *missing;   /* a function that cuGetProcAddress does not find */
	const char *fail_call; /* this call answers fail_result */
	glk_cu_result fail_result;
	glk_cu_result query;	/* what an event answers */
	int capturing;		/* a stream captures: CU_STREAM_CAPTURE_STATUS_... */
	uint64_t capture_id;	/* and which */
	bool want_context;	/* streams and events need a current one */
	unsigned context_reset; /* 1: contexts were reset; more: and made again */
	bool no_numa;		/* attributes of newer drivers are unknown */
	bool mig;
	struct CUctx_st *stream_context;
	int pointer_gpu;       /* whose memory addresses are; -1: the host's */
	unsigned pointer_type; /* of its memory, 0: not known */
	uint64_t pointer_end;  /* behind it; 0: nowhere */
	uint64_t
		pointer_locked; /* below it memory of the host, locked when GPU 0 was current */
	bool pointer_managed;
	unsigned long long range_refused; /* flag that is not known for a dma-buf */
	bool range_never;		  /* no dma-buf is made at all */
	struct glk_cu_location page_location;
	bool no_peers;
	bool no_managed,
		no_sharing; /* no managed memory, or none beside work of the host */

	/* Read by the test. */
	int calls; /* of any function but cuGetProcAddress */
	int retained[FAKE_GPUS_MAX];
	int retains;
	int pushes, pops;
	struct CUctx_st *current;
	struct CUctx_st *context; /* current in the last call that was no context call */
	glk_cu_capture_mode mode; /* of the thread */
	glk_cu_capture_mode event_mode; /* of the thread, in the last record or wait */
	bool capture_broken;		/* something forbidden was called meanwhile */
	bool ends_there; /* a thread that asked what a stream captures could have ended meanwhile */
	int relaxed_calls; /* calls made in relaxed mode */
	struct glk_cu_prop prop;
	struct glk_cu_access access[4];
	size_t access_count, size, offset;
	glk_cu_address address;
	uint64_t flags;
	unsigned int stream_flags, event_flags;
	int events, streams, pages;
	uintptr_t imported;
	unsigned long long range_flags[2]; /* of the calls for a dma-buf */
	int ranges;
	/* Of managed memory: how a place was said last, 1 by device, 2 by location; what is asked for. */
	unsigned int managed_signature, managed_advice;
	struct glk_cu_location managed;
};

/* Back to the state after loading: CUDA 13.0, two GPUs, nothing fails. */
#define FAKE_START                                                                       \
	((struct fake){.version = 13000, .gpus = 2, .stream_context = FAKE_CONTEXT(0)})

#define FAKE_CONTEXT(gpu) ((struct CUctx_st *)(uintptr_t)(0x1000 + (gpu)))
#define FAKE_STREAM	  ((struct CUstream_st *)(uintptr_t)0x2000)

#ifndef FAKE_ENTRY
#include "driver/cuda_state.h"

#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

/* Where the build with this entry point lies: 12000, 11030, or 0 for none. */
static inline const char *fake_path(int entry)
{
	static char path[PATH_MAX + 64];
	char self[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);

	self[length > 0 ? length : 0] = '\0';
	snprintf(path, sizeof(path), "%s/driver/fakecuda-%d.so", dirname(self), entry);
	return path;
}

/* Loads a build and gives its state, reset; NULL if it is not there. */
static inline struct fake *fake_load(int entry)
{
	void *handle = dlopen(fake_path(entry), RTLD_NOW | RTLD_LOCAL);
	struct fake *fake = handle ? dlsym(handle, "fake") : NULL;

	if (fake)
		*fake = FAKE_START;
	return fake;
}

/* An instance over the newest build; NULL if that cannot be had. */
static inline struct glk_cuda *fake_open(struct glk_cuda_lib *lib, struct fake **ret_fake)
{
	struct glk_drv *drv;

	*ret_fake = fake_load(12000);
	if (!*ret_fake || glk_cuda_lib_load(fake_path(12000), lib) ||
		glk_cuda_new(lib, &drv))
		return NULL;
	return glk_cuda_of(drv);
}
#endif

#endif
