/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Memory is given and taken. CUDA has two kinds, and a block of either may be freed by the
 * function of the other:
 *
 * plain	cuMemAlloc. All streams may use it at once, so it comes on a stream that never has
 *		work, `idle`; when the library has put that one behind others to get the memory,
 *		the host waits for it. cuMemFree waits for the GPU, after which the block is free
 *		on the idle stream; cuMemFreeAsync frees it in the order of a stream.
 * ordered	cuMemAllocAsync. In the order of its stream, as all blocks of the library are.
 *		cuMemFree of one is promised to come after all its use and waits for nothing, as
 *		CUDA documents it.
 *
 * The stream that a block was given to tells which it is.
 *
 * cuMemFree waits for the work of its GPU before the memory goes, and programs rely on that. A
 * wait is impossible while a stream captures a graph: it fails and ends the capture, in whatever
 * mode the thread is, as the driver's own cuMemFree does in the strict ones. Here the block is
 * put by, and freed behind the wait of a later cuMemFree, or when memory is short.
 */
#include "front/preload/preload.h"

#include <errno.h>

/* Blocks put by; the one after is refused as the driver would. */
#define LATE_MAX 4096

static struct {
	struct glk_preload_seat *seat;
	void *ptr;
} late[LATE_MAX];

static int late_count;		   /* under the lock */
static glk_atomic(bool) late_some; /* there are any */

glk_cu_result glk_preload_wait(struct glk_preload_seat *seat)
{
	struct glk_preload_scope scope;
	glk_cu_result result;

	if (glk_preload_capturing())
		return GLK_CU_STREAM_CAPTURE_UNSUPPORTED;
	result = glk_preload_enter(seat->context, &scope);
	if (result)
		return result;
	result = glk_preload_next()->cuCtxSynchronize();
	glk_preload_leave(&scope);
	return result;
}

/* Its place, or -1. Under the lock. */
static int find_late(const void *ptr)
{
	for (int i = 0; i < late_count; i++)
		if (late[i].ptr == ptr)
			return i;
	return -1;
}

static bool late_any(void)
{
	return glk_load_relaxed(&late_some);
}

bool glk_preload_is_late(const void *ptr)
{
	bool is = false;

	if (!glk_load_relaxed(&late_some))
		return false;
	pthread_mutex_lock(&glk_preload_lock);
	is = find_late(ptr) >= 0;
	pthread_mutex_unlock(&glk_preload_lock);
	return is;
}

/* 0, or -ENOSPC. */
static int put_late(struct glk_preload_seat *seat, void *ptr)
{
	int err = 0;

	pthread_mutex_lock(&glk_preload_lock);
	if (find_late(ptr) >= 0) {
		err = -EINVAL;
	} else if (late_count == LATE_MAX) {
		err = -ENOSPC;
	} else {
		late[late_count].seat = seat;
		late[late_count++].ptr = ptr;
		glk_store_relaxed(&late_some, true);
	}
	pthread_mutex_unlock(&glk_preload_lock);
	return err;
}

/* Takes one of a GPU out of the list; NULL if there is none. */
static void *next_late(const struct glk_preload_seat *seat)
{
	void *ptr = NULL;

	pthread_mutex_lock(&glk_preload_lock);
	for (int i = 0; i < late_count && !ptr; i++) {
		if (late[i].seat != seat)
			continue;
		ptr = late[i].ptr;
		late[i] = late[--late_count];
	}
	glk_store_relaxed(&late_some, late_count > 0);
	pthread_mutex_unlock(&glk_preload_lock);
	return ptr;
}

/* Frees those of a GPU; all its work has finished. Whether there was one. */
static bool free_late(struct glk_preload_seat *seat)
{
	bool some = false;
	void *ptr;

	while (glk_load_relaxed(&late_some) && (ptr = next_late(seat))) {
		if (!glk_preload_in(seat))
			continue;
		glk_library.free(seat->glake, ptr, seat->idle);
		glk_preload_out(seat);
		some = true;
	}
	return some;
}

void glk_preload_late_drop(struct glk_preload_seat *seat)
{
	while (next_late(seat))
		;
}

/* What a refused request is to the program. It gets memory of the driver only where glake does
 * not serve at all: a budget is not to be passed by. */
static glk_cu_result refused(int err)
{
	return err == -ENOMEM || err == -EBUSY ? (glk_cu_result)GLK_CU_OUT_OF_MEMORY
					       : GLK_PRELOAD_UNSERVED;
}

static int alloc(struct glk_preload_seat *seat, size_t size, struct CUstream_st *stream,
	glk_cu_address *ret)
{
	void *ptr = NULL;
	int err;

	if (!glk_preload_in(seat))
		return -ESTALE;
	err = glk_library.alloc(seat->glake, seat->device, size, stream, 0, &ptr);
	glk_preload_out(seat);
	if (!err)
		*ret = (glk_cu_address)(uintptr_t)ptr;
	return err;
}

/* In the order of a stream: processes that have it open are told nothing, since it may be used still. */
static int give_back(struct glk_preload_seat *seat, void *ptr, struct CUstream_st *stream)
{
	int err;

	glk_preload_ipc_unhand(ptr);
	if (!glk_preload_in(seat))
		return -ESTALE;
	err = glk_library.free(seat->glake, ptr, stream);
	glk_preload_out(seat);
	return err;
}

/* All work that uses it has finished, or the stream is that which has none. */
static int give_back_unused(
	struct glk_preload_seat *seat, void *ptr, struct CUstream_st *idle)
{
	uint64_t id = glk_preload_ipc_unhand(ptr);
	int err;

	if (!glk_preload_in(seat))
		return -ESTALE;
	err = idle ? glk_library.free(seat->glake, ptr, idle)
		   : glk_library.free_after(seat->glake, ptr, NULL, 0);
	glk_preload_out(seat);
	if (!err)
		glk_preload_ipc_freed(id);
	return err;
}

/* Blocks put by during a capture are memory too. */
static bool find_more(struct glk_preload_seat *seat)
{
	return !glk_preload_wait(seat) && free_late(seat);
}

glk_cu_result glk_preload_give(struct glk_preload_seat *seat, size_t size,
	struct CUstream_st *stream, glk_cu_address *ret)
{
	int err = alloc(seat, size, stream, ret);

	if (err == -ENOMEM && late_any() && find_more(seat))
		err = alloc(seat, size, stream, ret);
	if (err == -ENOMEM && glk_preload_ipc_reclaim())
		err = alloc(seat, size, stream, ret);
	return err ? refused(err) : (glk_cu_result)GLK_CU_SUCCESS;
}

/* Waits for whatever the idle stream was put behind. */
static glk_cu_result settle(struct glk_preload_seat *seat)
{
	const struct glk_preload_next *next = glk_preload_next();
	struct glk_preload_scope scope;
	glk_cu_result result;

	result = glk_preload_enter(seat->context, &scope);
	if (result)
		return result;
	result = GLK_PRELOAD_UNSERVED;
	if (glk_preload_in(seat)) {
		result = next->cuStreamQuery(seat->idle);
		if (result == GLK_CU_NOT_READY)
			result = next->cuStreamSynchronize(seat->idle);
		glk_preload_out(seat);
	}
	glk_preload_leave(&scope);
	return result;
}

glk_cu_result glk_preload_give_plain(
	struct glk_preload_seat *seat, size_t size, glk_cu_address *ret)
{
	glk_cu_address ptr;
	glk_cu_result result = glk_preload_give(seat, size, seat->idle, &ptr);

	if (result)
		return result;
	result = settle(seat);
	if (result) {
		give_back_unused(seat, (void *)(uintptr_t)ptr, seat->idle);
		return result;
	}
	*ret = ptr;
	return GLK_CU_SUCCESS;
}

int glk_preload_find(glk_cu_address ptr, struct glk_preload_seat **ret_seat,
	struct glake_block *ret_block)
{
	struct glake_error error = {.sz = sizeof(error)};

	for (int i = 0; i < GLK_PRELOAD_GPUS_MAX; i++) {
		struct glk_preload_seat *seat = glk_preload_seat_at(i);
		int err;

		if (!seat || !glk_preload_in(seat))
			continue;
		*ret_block = (struct glake_block){.sz = sizeof(*ret_block)};
		err = glk_library.query(seat->glake, (void *)(uintptr_t)ptr, ret_block);
		glk_preload_out(seat);
		if (!err) {
			*ret_seat = seat;
			return 0;
		}
		if (err == -EINVAL && !glk_library.last_error(&error) &&
			error.error_class != GLAKE_ERROR_NOT_MINE)
			return -EINVAL;
	}
	return -ENOENT;
}

/* The block that a free is about. GLK_PRELOAD_UNSERVED if it is none of ours. */
static glk_cu_result find_base(
	glk_cu_address ptr, struct glk_preload_seat **ret_seat, bool *ret_plain)
{
	struct glake_block block;
	int err = glk_preload_find(ptr, ret_seat, &block);

	if (err == -ENOENT)
		return GLK_PRELOAD_UNSERVED;
	if (err || block.base != (void *)(uintptr_t)ptr ||
		glk_preload_is_late(block.base))
		return GLK_CU_INVALID_VALUE;
	*ret_plain = block.stream == (*ret_seat)->idle;
	return GLK_CU_SUCCESS;
}

static glk_cu_result put_by(struct glk_preload_seat *seat, void *ptr)
{
	switch (put_late(seat, ptr)) {
	case 0:
		glk_preload_ipc_unhand(ptr);
		return GLK_CU_SUCCESS;
	case -ENOSPC:
		return GLK_CU_STREAM_CAPTURE_UNSUPPORTED;
	default:
		return GLK_CU_INVALID_VALUE;
	}
}

glk_cu_result glk_preload_take_plain(glk_cu_address address)
{
	void *ptr = (void *)(uintptr_t)address;
	struct glk_preload_seat *seat;
	glk_cu_result result;
	bool plain;
	int err;

	result = find_base(address, &seat, &plain);
	/* at exit the memory goes with the process, and the driver may have gone before */
	if (result || glk_preload_stopped())
		return result;
	if (!plain) {
		err = give_back_unused(seat, ptr, NULL);
	} else if (!glk_preload_conf()->free_waits) {
		err = give_back(seat, ptr, NULL);
	} else {
		result = glk_preload_wait(seat);
		if (result >= GLK_CU_STREAM_CAPTURE_UNSUPPORTED &&
			result <= GLK_CU_CAPTURED_EVENT)
			return put_by(seat, ptr);
		err = give_back_unused(seat, ptr, seat->idle);
		if (!result)
			free_late(seat);
	}
	if (result)
		return result; /* what the wait found, as the driver would say it here */
	return err ? (glk_cu_result)GLK_CU_INVALID_VALUE : (glk_cu_result)GLK_CU_SUCCESS;
}

/* A block of a stream's own GPU, without a look at it first. Anything else is unserved. */
static glk_cu_result take_quickly(void *ptr, struct CUstream_st *stream)
{
	struct glk_preload_seat *seat = glk_preload_seat_known(stream);
	struct glake_error error = {.sz = sizeof(error)};
	int err;

	if (!seat || late_any())
		return GLK_PRELOAD_UNSERVED;
	err = give_back(seat, ptr, stream);
	if (err == -EINVAL && !glk_library.last_error(&error) &&
		error.error_class == GLAKE_ERROR_NOT_MINE)
		return GLK_PRELOAD_UNSERVED;
	return err ? (glk_cu_result)GLK_CU_INVALID_VALUE : (glk_cu_result)GLK_CU_SUCCESS;
}

glk_cu_result glk_preload_take(glk_cu_address address, struct CUstream_st *stream)
{
	void *ptr = (void *)(uintptr_t)address;
	bool captures = !glk_preload_stopped() && glk_preload_captures(stream);
	struct glk_preload_seat *seat;
	glk_cu_result result = GLK_PRELOAD_UNSERVED;
	bool plain;
	int err;

	if (!captures && !glk_preload_stopped())
		result = take_quickly(ptr, stream);
	if (result != GLK_PRELOAD_UNSERVED)
		return result;
	result = find_base(address, &seat, &plain);
	if (result || glk_preload_stopped())
		return result;
	/* a graph frees its own memory and no other */
	if (captures)
		return GLK_CU_INVALID_VALUE;
	if (glk_preload_seat_known(stream) == seat) {
		err = give_back(seat, ptr, stream);
	} else {
		/* of another GPU or context, whose order the library does not know */
		result = glk_preload_next()->cuStreamSynchronize(stream);
		if (result)
			return result;
		err = give_back_unused(seat, ptr, NULL);
	}
	return err ? (glk_cu_result)GLK_CU_INVALID_VALUE : (glk_cu_result)GLK_CU_SUCCESS;
}
