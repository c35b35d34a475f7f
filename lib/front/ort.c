/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Memory for ONNX Runtime. Its CUDA provider takes the addresses of three functions as options and
 * calls them for each tensor, with neither a GPU nor a stream. So each GPU has functions of its
 * own, and what a stream is to them is said once, when their addresses are asked for:
 *
 * a stream	the one that the sessions run on too (user_compute_stream): memory is in its order,
 *		and nothing waits.
 * none		memory in the manner of cudaMalloc and cudaFree, where each free waits for the GPU.
 *		Whoever calls the functions without asking for them gets that.
 *
 * A block knows its GPU, so any of the functions that free takes any block.
 */
#include "front/ort.h"
#include "front/torch.h"

#include "base/atomic.h"

#include <errno.h>

#define PLAIN UINTPTR_MAX

/* For each GPU: 0 nobody has said, PLAIN none, else a stream. Changes once, from 0. */
static glk_atomic(uintptr_t) orders[GLK_ORT_DEVICES];

/* The stream of a GPU's functions; false if there is none. */
static bool ordered(int device, struct CUstream_st **ret_stream)
{
	uintptr_t order = device >= 0 && device < GLK_ORT_DEVICES
		? glk_load_relaxed(&orders[device])
		: 0;

	*ret_stream = (struct CUstream_st *)order;
	return order && order != PLAIN;
}

static void *give(size_t size, int device)
{
	struct CUstream_st *stream;

	if (ordered(device, &stream))
		return glake_torch_try_alloc(size, device, stream);
	return glake_torch_segment_alloc(size, device, NULL);
}

void glake_ort_free(void *ptr)
{
	struct glake_block block = {.sz = sizeof(block)};
	struct glake *ctx = ptr ? glake_torch_context() : NULL;
	struct CUstream_st *stream;

	if (!ctx || glake_query(ctx, ptr, &block) || block.base != ptr)
		return;
	if (ordered(block.device, &stream))
		glake_torch_free(ptr, 0, block.device, stream);
	else
		glake_torch_segment_free(ptr, 0, block.device, NULL);
}

static void empty(int device)
{
	struct glake *ctx = glake_torch_opened() ? glake_torch_context() : NULL;

	if (ctx)
		glake_trim(ctx, device, 0, NULL);
}

void *glake_ort_alloc(size_t size)
{
	return give(size, 0);
}

void glake_ort_empty_cache(void)
{
	empty(0);
}

/* clang-format off */
#define OTHERS(X)                                                                        \
	X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
/* clang-format on */
#define FUNCTIONS(n)                                                                     \
	static void *alloc_##n(size_t size)                                              \
	{                                                                                \
		return give(size, n);                                                    \
	}                                                                                \
	static void empty_##n(void)                                                      \
	{                                                                                \
		empty(n);                                                                \
	}
#define ROW(n) {alloc_##n, glake_ort_free, empty_##n},

OTHERS(FUNCTIONS)

static const struct glake_ort_functions functions[GLK_ORT_DEVICES] = {
	{glake_ort_alloc, glake_ort_free, glake_ort_empty_cache}, OTHERS(ROW)};

int glake_ort_functions(
	int device, struct CUstream_st *stream, struct glake_ort_functions *ret_functions)
{
	uintptr_t wanted = stream ? (uintptr_t)stream : PLAIN, found = 0;
	struct glake *ctx = glake_torch_context();

	if (!ret_functions || !ctx || device < 0 || device >= GLK_ORT_DEVICES ||
		device >= glake_device_count(ctx))
		return -EINVAL;
	if (!glk_cas_acq_rel(&orders[device], &found, wanted) && found != wanted)
		return -EBUSY;
	*ret_functions = functions[device];
	return 0;
}
