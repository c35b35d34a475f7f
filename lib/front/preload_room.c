/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Memory of a GPU that the driver gives itself: arrays, pages that the program makes, and what
 * else passes through. The library keeps pages that no block uses, and where the driver has none
 * left because of that, they are given back and the driver is asked once more. Nothing is waited
 * for: a kernel may be waiting for this thread, and what was freed behind work the driver would
 * not have either.
 */
#include "front/preload.h"

#define SERVES(fn) glk_preload_called(GLK_PRELOAD_##fn)

static size_t trim(struct glk_preload_seat *seat)
{
	size_t released = 0;

	if (!glk_preload_in(seat))
		return 0;
	if (glk_library.trim(seat->glake, seat->device, 0, &released))
		released = 0;
	glk_preload_out(seat);
	return released;
}

bool glk_preload_room(bool serves, glk_cu_result result)
{
	struct glk_preload_seat *seat;
	size_t released;
	int device = -1;

	if (!serves || result != GLK_CU_OUT_OF_MEMORY)
		return false;
	if (glk_preload_next()->cuCtxGetDevice(&device))
		return false;
	seat = glk_preload_seat_at(device);
	if (!seat)
		return false;
	released = trim(seat);
	glk_preload_log(GLAKE_LOG_DEBUG,
		"GPU %d: %zu bytes are given back to the driver, which has none left",
		device, released);
	return glk_preload_ipc_reclaim() || released;
}

/* The whole body of such a function: once more, where memory was given back for it. */
#define ASK(fn, ...)                                                                     \
	bool serves = SERVES(fn);                                                        \
	glk_cu_result result = GLK_PRELOAD_PASS(fn, __VA_ARGS__);                        \
                                                                                         \
	return glk_preload_room(serves, result) ? GLK_PRELOAD_PASS(fn, __VA_ARGS__)      \
						: result

glk_cu_result cuMemCreate(unsigned long long *ret_page, size_t size,
	const struct CUmemAllocationProp_st *prop, unsigned long long flags)
{
	ASK(cuMemCreate, ret_page, size, prop, flags);
}

glk_cu_result cuArrayCreate_v2(
	struct CUarray_st **ret_array, const struct CUDA_ARRAY_DESCRIPTOR_st *shape)
{
	ASK(cuArrayCreate_v2, ret_array, shape);
}

glk_cu_result cuArray3DCreate_v2(
	struct CUarray_st **ret_array, const struct CUDA_ARRAY3D_DESCRIPTOR_st *shape)
{
	ASK(cuArray3DCreate_v2, ret_array, shape);
}

glk_cu_result cuMipmappedArrayCreate(struct CUmipmappedArray_st **ret_array,
	const struct CUDA_ARRAY3D_DESCRIPTOR_st *shape, unsigned int levels)
{
	ASK(cuMipmappedArrayCreate, ret_array, shape, levels);
}
