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
#include <string.h>

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
	struct glk_preload_passing passing;

	if (seat)
		result = glk_preload_give_plain(seat, size, ret);
	if (result != GLK_PRELOAD_UNSERVED)
		return result;
	if (!glk_preload_pass(called, -1, size, &passing))
		return GLK_CU_OUT_OF_MEMORY;
	result = GLK_PRELOAD_PASS(cuMemAlloc_v2, ret, size);
	if (once_more(called, result))
		result = GLK_PRELOAD_PASS(cuMemAlloc_v2, ret, size);
	glk_preload_passed(&passing, result, GLK_PRELOAD_ADDRESS, result ? 0 : *ret);
	return result;
}

glk_cu_result cuMemAllocPitch_v2(glk_cu_address *ret, size_t *ret_pitch, size_t width,
	size_t height, unsigned int element)
{
	bool called = SERVES(cuMemAllocPitch_v2);
	bool right = called && ret && ret_pitch && width && height &&
		(element == 4 || element == 8 || element == 16);
	glk_cu_result result = GLK_PRELOAD_UNSERVED;
	struct glk_preload_passing passing;
	struct glk_preload_seat *seat;
	size_t pitch = 0, size = 0;

	/* what overflows is more than there is, as the driver will say */
	right = right && !__builtin_add_overflow(width, PITCH - 1, &pitch);
	pitch &= ~(PITCH - 1);
	right = right && !__builtin_mul_overflow(pitch, height, &size);
	seat = right && glk_preload_conf()->serve_plain ? glk_preload_seat() : NULL;
	if (seat)
		result = glk_preload_give_plain(seat, size, ret);
	if (result != GLK_PRELOAD_UNSERVED) {
		if (!result)
			*ret_pitch = pitch;
		return result;
	}
	if (!glk_preload_pass(right, -1, size, &passing))
		return GLK_CU_OUT_OF_MEMORY;
	result = GLK_PRELOAD_PASS(
		cuMemAllocPitch_v2, ret, ret_pitch, width, height, element);
	glk_preload_passed(&passing, result, GLK_PRELOAD_ADDRESS, result ? 0 : *ret);
	return result;
}

glk_cu_result cuMemFree_v2(glk_cu_address ptr)
{
	bool serves = (SERVES(cuMemFree_v2) || glk_preload_stopped()) && ptr;
	glk_cu_result result =
		serves ? glk_preload_take_plain(ptr) : GLK_PRELOAD_UNSERVED;

	if (result != GLK_PRELOAD_UNSERVED)
		return result;
	result = GLK_PRELOAD_PASS(cuMemFree_v2, ptr);
	if (!result && serves)
		glk_preload_unpass(GLK_PRELOAD_ADDRESS, ptr);
	return result;
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

/* What passes to the driver, as far as a quota has room. */
#define PASS_ORDERED(fn, ...)                                                            \
	do {                                                                             \
		struct glk_preload_passing passing;                                      \
                                                                                         \
		if (!glk_preload_pass(SERVES(fn) && ret, -1, size, &passing))            \
			return GLK_CU_OUT_OF_MEMORY;                                     \
		result = GLK_PRELOAD_PASS(fn, __VA_ARGS__);                              \
		glk_preload_passed(                                                      \
			&passing, result, GLK_PRELOAD_ADDRESS, result ? 0 : *ret);       \
	} while (0)

glk_cu_result cuMemAllocAsync(
	glk_cu_address *ret, size_t size, struct CUstream_st *stream)
{
	glk_cu_result result = give(SERVES(cuMemAllocAsync), ret, size, NULL, stream);

	if (result == GLK_PRELOAD_UNSERVED)
		PASS_ORDERED(cuMemAllocAsync, ret, size, stream);
	return result;
}

glk_cu_result cuMemAllocAsync_ptsz(
	glk_cu_address *ret, size_t size, struct CUstream_st *stream)
{
	glk_cu_result result = give(SERVES(cuMemAllocAsync_ptsz), ret, size, NULL,
		glk_preload_of_thread(stream));

	if (result == GLK_PRELOAD_UNSERVED)
		PASS_ORDERED(cuMemAllocAsync_ptsz, ret, size, stream);
	return result;
}

glk_cu_result cuMemAllocFromPoolAsync(glk_cu_address *ret, size_t size,
	struct CUmemPoolHandle_st *pool, struct CUstream_st *stream)
{
	bool serves = SERVES(cuMemAllocFromPoolAsync) && pool;
	glk_cu_result result = give(serves, ret, size, pool, stream);

	if (result == GLK_PRELOAD_UNSERVED)
		PASS_ORDERED(cuMemAllocFromPoolAsync, ret, size, pool, stream);
	return result;
}

glk_cu_result cuMemAllocFromPoolAsync_ptsz(glk_cu_address *ret, size_t size,
	struct CUmemPoolHandle_st *pool, struct CUstream_st *stream)
{
	bool serves = SERVES(cuMemAllocFromPoolAsync_ptsz) && pool;
	glk_cu_result result =
		give(serves, ret, size, pool, glk_preload_of_thread(stream));

	if (result == GLK_PRELOAD_UNSERVED)
		PASS_ORDERED(cuMemAllocFromPoolAsync_ptsz, ret, size, pool, stream);
	return result;
}

glk_cu_result cuMemFreeAsync(glk_cu_address ptr, struct CUstream_st *stream)
{
	glk_cu_result result = take(SERVES(cuMemFreeAsync), ptr, stream);

	if (result != GLK_PRELOAD_UNSERVED)
		return result;
	result = GLK_PRELOAD_PASS(cuMemFreeAsync, ptr, stream);
	if (!result && SERVES(cuMemFreeAsync))
		glk_preload_unpass(GLK_PRELOAD_ADDRESS, ptr);
	return result;
}

glk_cu_result cuMemFreeAsync_ptsz(glk_cu_address ptr, struct CUstream_st *stream)
{
	glk_cu_result result =
		take(SERVES(cuMemFreeAsync_ptsz), ptr, glk_preload_of_thread(stream));

	if (result != GLK_PRELOAD_UNSERVED)
		return result;
	result = GLK_PRELOAD_PASS(cuMemFreeAsync_ptsz, ptr, stream);
	if (!result && SERVES(cuMemFreeAsync_ptsz))
		glk_preload_unpass(GLK_PRELOAD_ADDRESS, ptr);
	return result;
}

/* As the library keeps it: pages that it holds and no block uses are free to the program, and a budget is all there is. */
static void keep_to(struct glk_preload_seat *seat, size_t *ret_free, size_t *ret_total)
{
	struct glake_stats stats = {.sz = sizeof(stats)};
	uint64_t used, rest, room;
	int err;

	if (!seat || !glk_preload_in(seat))
		return;
	err = glk_library.stats_get(seat->glake, seat->device, &stats);
	glk_preload_out(seat);
	if (err)
		return;
	/* what waits whole is the program's for the asking, as pages that lie idle are */
	rest = stats.free_pages + stats.quick;
	used = stats.reserved > rest ? stats.reserved - rest : 0;
	*ret_free += stats.reserved - used;
	if (*ret_total > stats.budget)
		*ret_total = stats.budget;
	room = stats.budget > used ? stats.budget - used : 0;
	if (*ret_free > room)
		*ret_free = room;
}

glk_cu_result cuMemGetInfo_v2(size_t *ret_free, size_t *ret_total)
{
	bool serves = SERVES(cuMemGetInfo_v2) && ret_free && ret_total;
	struct glk_preload_seat *seat = serves ? glk_preload_seat() : NULL;
	glk_cu_result result = GLK_PRELOAD_PASS(cuMemGetInfo_v2, ret_free, ret_total);
	uint64_t left, limit;
	int device = -1;

	if (result || !serves)
		return result;
	keep_to(seat, ret_free, ret_total);
	if (seat)
		device = seat->device;
	else if (glk_preload_next()->cuCtxGetDevice(&device))
		return result;
	if (glk_preload_quota(device, &left, &limit)) {
		*ret_total = limit < *ret_total ? limit : *ret_total;
		*ret_free = left < *ret_free ? left : *ret_free;
	}
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

/* The whole body of such a function: as far as a quota has room, and once more where memory was given back for it. */
#define ASK(fn, device, bytes, kind, ret, ...)                                           \
	struct glk_preload_passing passing;                                              \
	bool serves = SERVES(fn);                                                        \
	glk_cu_result result;                                                            \
                                                                                         \
	if (!glk_preload_pass(serves && ret, device, bytes, &passing))                   \
		return GLK_CU_OUT_OF_MEMORY;                                             \
	result = GLK_PRELOAD_PASS(fn, __VA_ARGS__);                                      \
	if (once_more(serves, result))                                                   \
		result = GLK_PRELOAD_PASS(fn, __VA_ARGS__);                              \
	glk_preload_passed(&passing, result, kind, result ? 0 : (uint64_t)*ret);         \
	return result

/* The same for one that gives it back. */
#define GIVE_BACK(fn, kind, name)                                                        \
	bool serves = SERVES(fn);                                                        \
	glk_cu_result result = GLK_PRELOAD_PASS(fn, name);                               \
                                                                                         \
	if (!result && serves)                                                           \
		glk_preload_unpass(kind, (uint64_t)name);                                \
	return result

/* As the driver's headers have it, up to what is read here: kind, handles, where it is. */
static int gpu_of_page(const struct CUmemAllocationProp_st *prop)
{
	struct {
		unsigned int type, handles;
		struct glk_cu_location location;
	} head;

	memcpy(&head, prop, sizeof(head));
	return head.location.type == GLK_CU_LOCATION_DEVICE ? head.location.id : -1;
}

glk_cu_result cuMemCreate(unsigned long long *ret_page, size_t size,
	const struct CUmemAllocationProp_st *prop, unsigned long long flags)
{
	int device = prop ? gpu_of_page(prop) : -1;

	ASK(cuMemCreate, device, device < 0 ? 0 : size, GLK_PRELOAD_PAGE, ret_page,
		ret_page, size, prop, flags);
}

glk_cu_result cuMemRelease(unsigned long long page)
{
	GIVE_BACK(cuMemRelease, GLK_PRELOAD_PAGE, page);
}

/* Bytes of a pixel by the format's number. */
static size_t format_bytes(unsigned int format)
{
	switch (format) {
	case 0x01: /* of 8 bits */
	case 0x08:
		return 1;
	case 0x02: /* of 16 */
	case 0x09:
	case 0x10:
		return 2;
	default:
		return 4;
	}
}

static size_t times(size_t a, size_t b)
{
	size_t bytes;

	return __builtin_mul_overflow(a, b ? b : 1, &bytes) ? SIZE_MAX : bytes;
}

static size_t bytes_of(size_t width, size_t height, size_t depth, unsigned int format,
	unsigned int channels)
{
	return times(times(times(width, height), depth),
		times(format_bytes(format), channels));
}

/* CUDA_ARRAY_DESCRIPTOR and CUDA_ARRAY3D_DESCRIPTOR. */
struct shape {
	size_t width, height;
	unsigned int format, channels;
};

struct shape3d {
	size_t width, height, depth;
	unsigned int format, channels, flags;
};

static size_t shape_bytes(const struct CUDA_ARRAY_DESCRIPTOR_st *shape)
{
	struct shape s = {0};

	if (shape)
		memcpy(&s, shape, sizeof(s));
	return bytes_of(s.width, s.height, 1, s.format, s.channels);
}

static size_t shape3d_bytes(const struct CUDA_ARRAY3D_DESCRIPTOR_st *shape)
{
	struct shape3d s = {0};

	if (shape)
		memcpy(&s, shape, sizeof(s));
	return bytes_of(s.width, s.height, s.depth, s.format, s.channels);
}

glk_cu_result cuArrayCreate_v2(
	struct CUarray_st **ret_array, const struct CUDA_ARRAY_DESCRIPTOR_st *shape)
{
	ASK(cuArrayCreate_v2, -1, shape_bytes(shape), GLK_PRELOAD_ARRAY, ret_array,
		ret_array, shape);
}

glk_cu_result cuArray3DCreate_v2(
	struct CUarray_st **ret_array, const struct CUDA_ARRAY3D_DESCRIPTOR_st *shape)
{
	ASK(cuArray3DCreate_v2, -1, shape3d_bytes(shape), GLK_PRELOAD_ARRAY, ret_array,
		ret_array, shape);
}

glk_cu_result cuArrayDestroy(struct CUarray_st *array)
{
	GIVE_BACK(cuArrayDestroy, GLK_PRELOAD_ARRAY, array);
}

/* All levels have a third more than the first. */
glk_cu_result cuMipmappedArrayCreate(struct CUmipmappedArray_st **ret_array,
	const struct CUDA_ARRAY3D_DESCRIPTOR_st *shape, unsigned int levels)
{
	size_t bytes = shape3d_bytes(shape);

	bytes += levels > 1 && bytes < SIZE_MAX / 2 ? bytes / 3 : 0;
	ASK(cuMipmappedArrayCreate, -1, bytes, GLK_PRELOAD_ARRAY, ret_array, ret_array,
		shape, levels);
}

glk_cu_result cuMipmappedArrayDestroy(struct CUmipmappedArray_st *array)
{
	GIVE_BACK(cuMipmappedArrayDestroy, GLK_PRELOAD_ARRAY, array);
}
