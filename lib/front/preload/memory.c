/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The driver's functions of memory under their own names. Arguments that the driver would refuse
 * go to the driver, so the answer is its own.
 *
 * Some memory of a GPU the driver gives itself: arrays, pages that the program makes, and what
 * else passes through. The library keeps pages that no block uses, and where the driver has none
 * left because of that, they are given back and the driver is asked once more. Nothing is waited
 * for: a kernel may be waiting for this thread, and what was freed behind work the driver would
 * not have either.
 */
#include "front/preload/preload.h"

#include <errno.h>

#define SERVES(fn) glk_preload_called(GLK_PRELOAD_##fn)

/* Rows of cuMemAllocPitch begin at multiples of what the driver takes for it. */
#define PITCH GLAKE_GRAIN

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

/* Whether to ask the driver once more for memory of the current GPU, which it did not have: the
 * library has given some back. */
static bool once_more(bool serves, glk_cu_result result)
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

glk_cu_result cuMemAlloc_v2(glk_cu_address *ret, size_t size)
{
	bool called = SERVES(cuMemAlloc_v2);
	bool serves = called && ret && size && glk_preload_conf()->serve_plain;
	struct glk_preload_seat *seat = serves ? glk_preload_seat() : NULL;
	glk_cu_result result = GLK_PRELOAD_UNSERVED;

	if (seat)
		result = glk_preload_give_plain(seat, size, ret);
	if (result != GLK_PRELOAD_UNSERVED)
		return result;
	result = GLK_PRELOAD_PASS(cuMemAlloc_v2, ret, size);
	if (once_more(called, result))
		result = GLK_PRELOAD_PASS(cuMemAlloc_v2, ret, size);
	return result;
}

glk_cu_result cuMemAllocPitch_v2(glk_cu_address *ret, size_t *ret_pitch, size_t width,
	size_t height, unsigned int element)
{
	bool serves = SERVES(cuMemAllocPitch_v2) && ret && ret_pitch && width && height &&
		(element == 4 || element == 8 || element == 16) &&
		glk_preload_conf()->serve_plain;
	glk_cu_result result = GLK_PRELOAD_UNSERVED;
	struct glk_preload_seat *seat;
	size_t pitch = 0, size = 0;

	/* what overflows is more than there is, as the driver will say */
	serves = serves && !__builtin_add_overflow(width, PITCH - 1, &pitch);
	pitch &= ~(PITCH - 1);
	serves = serves && !__builtin_mul_overflow(pitch, height, &size);
	seat = serves ? glk_preload_seat() : NULL;
	if (seat)
		result = glk_preload_give_plain(seat, size, ret);
	if (result == GLK_PRELOAD_UNSERVED)
		return GLK_PRELOAD_PASS(
			cuMemAllocPitch_v2, ret, ret_pitch, width, height, element);
	if (!result)
		*ret_pitch = pitch;
	return result;
}

glk_cu_result cuMemFree_v2(glk_cu_address ptr)
{
	bool serves = (SERVES(cuMemFree_v2) || glk_preload_stopped()) && ptr;
	glk_cu_result result =
		serves ? glk_preload_take_plain(ptr) : GLK_PRELOAD_UNSERVED;

	return result == GLK_PRELOAD_UNSERVED ? GLK_PRELOAD_PASS(cuMemFree_v2, ptr)
					      : result;
}

/* `stream` means what it does to the function without a suffix. */
static glk_cu_result give(bool serves, glk_cu_address *ret, size_t size,
	struct CUmemPoolHandle_st *pool, struct CUstream_st *stream)
{
	struct glk_preload_seat *seat = NULL;

	if (serves && ret && size)
		seat = glk_preload_seat_of_stream(stream);
	if (!seat || !glk_preload_pool_serves(seat, pool))
		return GLK_PRELOAD_UNSERVED;
	return glk_preload_give(seat, size, stream, ret);
}

static glk_cu_result take(bool serves, glk_cu_address ptr, struct CUstream_st *stream)
{
	if ((!serves && !glk_preload_stopped()) || !ptr)
		return GLK_PRELOAD_UNSERVED;
	return glk_preload_take(ptr, stream);
}

glk_cu_result cuMemAllocAsync(
	glk_cu_address *ret, size_t size, struct CUstream_st *stream)
{
	glk_cu_result result = give(SERVES(cuMemAllocAsync), ret, size, NULL, stream);

	return result == GLK_PRELOAD_UNSERVED
		? GLK_PRELOAD_PASS(cuMemAllocAsync, ret, size, stream)
		: result;
}

glk_cu_result cuMemAllocAsync_ptsz(
	glk_cu_address *ret, size_t size, struct CUstream_st *stream)
{
	glk_cu_result result = give(SERVES(cuMemAllocAsync_ptsz), ret, size, NULL,
		glk_preload_of_thread(stream));

	return result == GLK_PRELOAD_UNSERVED
		? GLK_PRELOAD_PASS(cuMemAllocAsync_ptsz, ret, size, stream)
		: result;
}

glk_cu_result cuMemAllocFromPoolAsync(glk_cu_address *ret, size_t size,
	struct CUmemPoolHandle_st *pool, struct CUstream_st *stream)
{
	bool serves = SERVES(cuMemAllocFromPoolAsync) && pool;
	glk_cu_result result = give(serves, ret, size, pool, stream);

	return result == GLK_PRELOAD_UNSERVED
		? GLK_PRELOAD_PASS(cuMemAllocFromPoolAsync, ret, size, pool, stream)
		: result;
}

glk_cu_result cuMemAllocFromPoolAsync_ptsz(glk_cu_address *ret, size_t size,
	struct CUmemPoolHandle_st *pool, struct CUstream_st *stream)
{
	bool serves = SERVES(cuMemAllocFromPoolAsync_ptsz) && pool;
	glk_cu_result result =
		give(serves, ret, size, pool, glk_preload_of_thread(stream));

	return result == GLK_PRELOAD_UNSERVED
		? GLK_PRELOAD_PASS(cuMemAllocFromPoolAsync_ptsz, ret, size, pool, stream)
		: result;
}

glk_cu_result cuMemFreeAsync(glk_cu_address ptr, struct CUstream_st *stream)
{
	glk_cu_result result = take(SERVES(cuMemFreeAsync), ptr, stream);

	return result == GLK_PRELOAD_UNSERVED
		? GLK_PRELOAD_PASS(cuMemFreeAsync, ptr, stream)
		: result;
}

glk_cu_result cuMemFreeAsync_ptsz(glk_cu_address ptr, struct CUstream_st *stream)
{
	glk_cu_result result =
		take(SERVES(cuMemFreeAsync_ptsz), ptr, glk_preload_of_thread(stream));

	return result == GLK_PRELOAD_UNSERVED
		? GLK_PRELOAD_PASS(cuMemFreeAsync_ptsz, ptr, stream)
		: result;
}

/*
 * Pages that the library holds and no block uses are free to the program, and a budget is all
 * there is.
 */
glk_cu_result cuMemGetInfo_v2(size_t *ret_free, size_t *ret_total)
{
	struct glake_stats stats = {.sz = sizeof(stats)};
	bool serves = SERVES(cuMemGetInfo_v2) && ret_free && ret_total;
	struct glk_preload_seat *seat = serves ? glk_preload_seat() : NULL;
	glk_cu_result result = GLK_PRELOAD_PASS(cuMemGetInfo_v2, ret_free, ret_total);
	uint64_t used, room;
	int err;

	if (result || !seat || !glk_preload_in(seat))
		return result;
	err = glk_library.stats_get(seat->glake, seat->device, &stats);
	glk_preload_out(seat);
	if (err)
		return result;
	used = stats.reserved > stats.free_pages ? stats.reserved - stats.free_pages : 0;
	*ret_free += stats.reserved - used;
	if (*ret_total > stats.budget)
		*ret_total = stats.budget;
	room = stats.budget > used ? stats.budget - used : 0;
	if (*ret_free > room)
		*ret_free = room;
	return GLK_CU_SUCCESS;
}

glk_cu_result cuMemGetAddressRange_v2(
	glk_cu_address *ret_base, size_t *ret_size, glk_cu_address ptr)
{
	struct glk_preload_seat *seat;
	struct glake_block block;
	int err = -ENOENT;

	if (SERVES(cuMemGetAddressRange_v2)) {
		err = glk_preload_find(ptr, &seat, &block);
		if (err == -ENOENT && glk_preload_ipc_range(ptr, ret_base, ret_size))
			return GLK_CU_SUCCESS;
	}
	if (err == -ENOENT)
		return GLK_PRELOAD_PASS(cuMemGetAddressRange_v2, ret_base, ret_size, ptr);
	if (err)
		return GLK_CU_INVALID_VALUE;
	if (ret_base)
		*ret_base = (glk_cu_address)(uintptr_t)block.base;
	if (ret_size)
		*ret_size = block.size;
	return GLK_CU_SUCCESS;
}

/* The whole body of such a function: once more, where memory was given back for it. */
#define ASK(fn, ...)                                                                     \
	bool serves = SERVES(fn);                                                        \
	glk_cu_result result = GLK_PRELOAD_PASS(fn, __VA_ARGS__);                        \
                                                                                         \
	return once_more(serves, result) ? GLK_PRELOAD_PASS(fn, __VA_ARGS__) : result

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
