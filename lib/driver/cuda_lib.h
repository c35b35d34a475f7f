/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_DRIVER_CUDA_LIB_H
#define GLK_DRIVER_CUDA_LIB_H

/*
 * The loaded libcuda.so.1: a table of its functions, the meaning of its results, and whether
 * it may still be called. Inside the CUDA backend only.
 */
#include "base/error.h"
#include "driver/cuda_abi.h"

#include <stdbool.h>

struct glk_cuda_lib {
	void *handle; /* of dlopen; never closed */
	int version;  /* API version of the driver */
	int gpus;
#define GLK_FIELD(field, symbol, version, args) glk_cu_result(*field) args;
	GLK_CUDA_FUNCTIONS(GLK_FIELD)
	GLK_CUDA_OPTIONAL(GLK_FIELD)
#undef GLK_FIELD
};

/*
 * Opens the library `name`, an already loaded copy before any other, finds every function,
 * and initialises the driver. 0; or the reason in the record: -EPERM forbidden, -ENOMEM, and
 * -ENODEV for all others. Not cached: each call loads anew.
 */
int glk_cuda_lib_load(const char *name, struct glk_cuda_lib *ret_lib);

/*
 * The table of this process, loaded at first use and never given back. -ENODEV also in a
 * child of a process that had loaded it.
 */
int glk_cuda_lib_get(const struct glk_cuda_lib **ret_lib);

/*
 * Whether exit has begun; no function of the driver is called from then on, because libcuda
 * takes itself down in a handler of its own. The flag is set by a handler that
 * glk_cuda_exit_watch installs once, after the driver's. 0 or -ENOMEM.
 */
int glk_cuda_exit_watch(void);
bool glk_cuda_exiting(void);

/* What a result means to us; unknown ones are -EIO, DRIVER. */
struct glk_cuda_meaning {
	int err;
	enum glake_error_class class;
};

struct glk_cuda_meaning glk_cuda_meaning(glk_cu_result result);

/*
 * Fills the record for a call that failed, "<sentence>: <text of the driver> (<name>)", and
 * returns the errno value. GLK_CU_NOT_READY is -EAGAIN and leaves the record alone.
 */
int glk_cuda_fail(const struct glk_cuda_lib *lib, const char *call, glk_cu_result result,
	const char *format, ...) __attribute__((format(printf, 4, 5)));

#endif
