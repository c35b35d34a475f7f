/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_TOOL_BENCH_CUDA_H
#define GLK_TOOL_BENCH_CUDA_H

/*
 * What benchmarks call of the CUDA driver past the library: work on the GPU, and waits for it. The
 * driver is the one that the library has loaded.
 */
#include "tool/bench.h"

#define BENCH_CUDA_PENDING 600 /* CUDA_ERROR_NOT_READY */

struct bench_cuda {
	unsigned (*fill)(unsigned long long, unsigned, size_t, struct CUstream_st *);
	unsigned (*read)(void *, unsigned long long, size_t);
	unsigned (*query)(struct CUstream_st *);
	unsigned (*sync)(void); /* the whole context */
	unsigned (*context_of)(struct CUstream_st *, void **);
	unsigned (*set_context)(void *);
	/* Pinned memory of the host. */
	unsigned (*host_register)(void *, size_t, unsigned);
	unsigned (*host_unregister)(void *);
	unsigned (*host_alloc)(void **, size_t, unsigned);
	unsigned (*host_free)(void *);
};

/* 0, or -EIO after a message. */
int bench_cuda_find(const struct bench_part *part, struct bench_cuda *cuda);
/* The context of a stream is that of the thread from here on. 0 or -EIO. */
int bench_cuda_enter(const struct bench_cuda *cuda, struct CUstream_st *stream);

#endif
