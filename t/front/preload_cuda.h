/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_T_PRELOAD_CUDA_H
#define GLK_T_PRELOAD_CUDA_H

/*
 * A libcuda.so.1 for programs that run without a GPU: two GPUs of 1 GiB with real memory on the
 * host, contexts, streams that capture, and one stream of work that a test may hold. Every call
 * is counted under the name by which the library exports it.
 *
 * The signatures are those of CUDA with plain types.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef unsigned int fake_result;
typedef unsigned long long fake_address;

struct CUctx_st {
	int device;
	bool primary, active;
	int retained;
};

struct CUevent_st {
	bool pending; /* recorded on a stream that was held */
};

struct CUstream_st {
	struct CUctx_st *context;
	bool held, captures, behind; /* behind something that is held */
	unsigned long long id;
};

#define FAKE_GPUS   2
#define FAKE_MEMORY ((size_t)1 << 30)

/* Found by dlsym, for tests. */
struct fake_state {
	int (*count)(const char *name);		 /* calls so far */
	void (*release)(void);			 /* all that was held goes on */
	size_t (*used)(int device);		 /* bytes of pages and of plain memory */
	struct CUctx_st *(*context)(int device); /* a second context of a GPU */
	int (*pages)(void);			 /* that there are, a descriptor each */
	size_t (*grants)(void); /* GPUs in the last access that was set */
	bool (*broken)(void);	/* a capture was ended by a call that it forbids */
	void (*end)(void);	/* the driver has gone: DEINITIALIZED from now on */
	int (*after)(void);	/* calls made since */
};

#endif
