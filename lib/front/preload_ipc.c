/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Memory of other processes, as CUDA has it. Handles of the driver's own memory go to the driver.
 * What is opened here is memory of the library's import, which neither its figures nor the
 * program's frees know: it answers for its addresses itself, and ends with the last close.
 *
 * A handle that is opened again gives the same address, in the same context. Opened where it was
 * given, it is refused as the driver does.
 */
#include "front/preload_ipc.h"

#include <errno.h>
#include <string.h>

#define SERVES(fn) glk_preload_called(GLK_PRELOAD_##fn)

#define OPENED_MAX 16384

/* The one flag there is: peer access where it is needed, which it always is. */
#define LAZY_PEERS 1u

/* Of everything below, and of other processes: one is asked at a time. */
static pthread_mutex_t talk = PTHREAD_MUTEX_INITIALIZER;
/* Held for moments, within it. */
static pthread_mutex_t opened_lock = PTHREAD_MUTEX_INITIALIZER;

static struct opened {
	struct glk_preload_ipc_handle handle;
	struct glk_preload_seat *seat;
	struct glk_preload_ipc_peer *peer;
	int device; /* that has the memory */
	glk_cu_address base;
	size_t size;
	unsigned count;
} opened[OPENED_MAX]; /* written under both locks */

static glk_atomic(int) opened_count;

/* Its place, or -1. Under one of the locks. */
static int find_address(glk_cu_address ptr)
{
	for (int i = 0; i < glk_load_relaxed(&opened_count); i++)
		if (ptr >= opened[i].base && ptr - opened[i].base < opened[i].size)
			return i;
	return -1;
}

static int find_handle(
	const struct glk_preload_ipc_handle *handle, const struct glk_preload_seat *seat)
{
	for (int i = 0; i < glk_load_relaxed(&opened_count); i++)
		if (opened[i].seat == seat &&
			!memcmp(&opened[i].handle, handle, sizeof(*handle)))
			return i;
	return -1;
}

bool glk_preload_ipc_range(glk_cu_address ptr, glk_cu_address *ret_base, size_t *ret_size)
{
	int at;

	if (!glk_load_relaxed(&opened_count))
		return false;
	pthread_mutex_lock(&opened_lock);
	at = find_address(ptr);
	if (at >= 0 && ret_base)
		*ret_base = opened[at].base;
	if (at >= 0 && ret_size)
		*ret_size = opened[at].size;
	pthread_mutex_unlock(&opened_lock);
	return at >= 0;
}

static void add(const struct opened *new)
{
	int at = glk_load_relaxed(&opened_count);

	pthread_mutex_lock(&opened_lock);
	opened[at] = *new;
	glk_store_relaxed(&opened_count, at + 1);
	pthread_mutex_unlock(&opened_lock);
}

static struct opened take_out(int at)
{
	int last = glk_load_relaxed(&opened_count) - 1;
	struct opened old = opened[at];

	pthread_mutex_lock(&opened_lock);
	opened[at] = opened[last];
	glk_store_relaxed(&opened_count, last);
	pthread_mutex_unlock(&opened_lock);
	return old;
}

glk_cu_result cuIpcGetMemHandle(struct glk_cu_ipc_handle *ret_handle, glk_cu_address ptr)
{
	struct glk_preload_ipc_handle handle;
	struct glk_preload_seat *seat;
	struct glake_block block;
	int err = -ENOENT;

	if (SERVES(cuIpcGetMemHandle) && ret_handle)
		err = glk_preload_find(ptr, &seat, &block);
	if (err == -ENOENT)
		return GLK_PRELOAD_PASS(cuIpcGetMemHandle, ret_handle, ptr);
	if (err || glk_preload_is_late(block.base))
		return GLK_CU_INVALID_VALUE;
	if (!(block.can & GLAKE_CAN_EXPORT)) {
		glk_preload_log(GLAKE_LOG_WARNING,
			"cuIpcGetMemHandle: %#llx cannot leave the process: pool.export is no, "
			"or GPU %d does not allow it",
			ptr, block.device);
		return GLK_CU_NOT_SUPPORTED;
	}
	err = glk_preload_ipc_give(seat, block.base, &handle);
	if (err) {
		glk_preload_log(GLAKE_LOG_WARNING,
			"cuIpcGetMemHandle: no thread or socket is left, or no handle (%d)",
			-err);
		return GLK_CU_MAP_FAILED;
	}
	memcpy(ret_handle, &handle, sizeof(handle));
	return GLK_CU_SUCCESS;
}

/* What a failed open is to the program: one of those that CUDA documents of it. */
static glk_cu_result refused(const struct glk_preload_ipc_handle *handle, int err)
{
	static const struct {
		int err;
		glk_cu_result result;
		const char *why;
	} reasons[] = {
		{-ESRCH, GLK_CU_INVALID_HANDLE, "it has ended, or has freed the block"},
		{-EPERM, GLK_CU_INVALID_HANDLE, "it is another user's"},
		{-ENODEV, GLK_CU_INVALID_HANDLE,
			"the GPU of the block is not visible here"},
		{-ENOMEM, GLK_CU_OUT_OF_MEMORY, "no memory or addresses to map it"},
		{-EOPNOTSUPP, GLK_CU_PEER_UNSUPPORTED,
			"the GPU of the block is out of reach, or gives no pages away"},
		{-ETIMEDOUT, GLK_CU_MAP_FAILED, "it does not answer"},
		{-EMFILE, GLK_CU_MAP_FAILED,
			"a descriptor a page is more than RLIMIT_NOFILE allows"},
	};
	size_t i = 0, count = sizeof(reasons) / sizeof(*reasons);

	while (i < count && reasons[i].err != err)
		i++;
	glk_preload_log(GLAKE_LOG_WARNING,
		"cuIpcOpenMemHandle of a block of process %d: %s (%d)", handle->pid,
		i < count ? reasons[i].why : "it cannot be had", -err);
	return i < count ? reasons[i].result : (glk_cu_result)GLK_CU_MAP_FAILED;
}

/* The number here of a GPU that has a name everywhere, or -1. */
static int find_device(struct glake *glake, const char *uuid)
{
	struct glake_device device = {.sz = sizeof(device)};
	int count = glk_library.device_count(glake);

	for (int i = 0; i < count; i++)
		if (!glk_library.device_get(glake, i, &device) && !strcmp(device.uuid, uuid))
			return i;
	return -1;
}

static int map(const struct glk_preload_ipc_block *block, struct opened *new)
{
	struct glake *glake = new->seat->glake;
	void *ptr;
	int err;

	new->device = find_device(glake, block->uuid);
	if (new->device < 0)
		return -ENODEV;
	err = new->device == new->seat->device
		? 0
		: glk_library.peer_access(glake, new->device, new->seat->device, 1);
	if (!err)
		err = glk_library.import(glake, new->device, block->pieces, block->pages,
			block->size, &ptr);
	if (err)
		return err;
	new->base = (glk_cu_address)(uintptr_t)ptr;
	new->size = block->size;
	return 0;
}

/* Under `talk`. */
static glk_cu_result open_new(struct glk_preload_seat *seat,
	const struct glk_preload_ipc_handle *handle, glk_cu_address *ret)
{
	struct opened new = {.handle = *handle, .seat = seat, .count = 1};
	struct glk_preload_ipc_block block;
	int err;

	if (glk_load_relaxed(&opened_count) == OPENED_MAX)
		return refused(handle, -ENOSPC);
	err = glk_preload_ipc_ask(handle, &new.peer, &block);
	if (err)
		return refused(handle, err);
	err = -ESTALE;
	if (glk_preload_in(seat)) {
		err = map(&block, &new);
		glk_preload_out(seat);
	}
	glk_preload_ipc_block_end(&block);
	if (err) {
		glk_preload_ipc_tell(new.peer, handle->id);
		return refused(handle, err);
	}
	add(&new);
	*ret = new.base;
	return GLK_CU_SUCCESS;
}

static bool is_ours(const struct glk_cu_ipc_handle *handle)
{
	return !memcmp(handle, GLK_PRELOAD_IPC_MAGIC, strlen(GLK_PRELOAD_IPC_MAGIC));
}

static glk_cu_result open_ours(const struct glk_preload_ipc_handle *handle,
	unsigned int flags, glk_cu_address *ret)
{
	struct CUctx_st *context = glk_preload_context(NULL);
	struct glk_preload_seat *seat;
	glk_cu_result result;
	int at;

	if (!ret || flags & ~LAZY_PEERS)
		return GLK_CU_INVALID_VALUE;
	if (handle->version != GLK_PRELOAD_IPC_VERSION ||
		handle->check != glk_preload_ipc_check(handle))
		return GLK_CU_INVALID_HANDLE;
	if (!context || glk_preload_ipc_is_own(handle))
		return GLK_CU_INVALID_CONTEXT;
	/* one that is left to the driver may be there all the same */
	seat = glk_preload_seat();
	if (!seat)
		seat = glk_preload_seat_known(NULL);
	if (!seat)
		return GLK_CU_INVALID_CONTEXT;
	pthread_mutex_lock(&talk);
	at = find_handle(handle, seat);
	if (at >= 0) {
		opened[at].count++;
		*ret = opened[at].base;
		result = GLK_CU_SUCCESS;
	} else {
		result = open_new(seat, handle, ret);
	}
	pthread_mutex_unlock(&talk);
	return result;
}

glk_cu_result cuIpcOpenMemHandle(
	glk_cu_address *ret, struct glk_cu_ipc_handle handle, unsigned int flags)
{
	struct glk_preload_ipc_handle ours;

	if (!SERVES(cuIpcOpenMemHandle) || !is_ours(&handle))
		return GLK_PRELOAD_PASS(cuIpcOpenMemHandle, ret, handle, flags);
	memcpy(&ours, &handle, sizeof(ours));
	return open_ours(&ours, flags, ret);
}

glk_cu_result cuIpcOpenMemHandle_v2(
	glk_cu_address *ret, struct glk_cu_ipc_handle handle, unsigned int flags)
{
	struct glk_preload_ipc_handle ours;

	if (!SERVES(cuIpcOpenMemHandle_v2) || !is_ours(&handle))
		return GLK_PRELOAD_PASS(cuIpcOpenMemHandle_v2, ret, handle, flags);
	memcpy(&ours, &handle, sizeof(ours));
	return open_ours(&ours, flags, ret);
}

/* Takes the mapping down behind all work of the GPUs that could reach it. */
static int unmap(const struct opened *old)
{
	struct glake *glake = old->seat->glake;
	struct CUstream_st *stream = old->seat->idle;
	bool own = old->device != old->seat->device;
	int err = 0;

	if (!glk_preload_in(old->seat))
		return 0; /* its memory has gone with the context */
	if (own)
		err = glk_library.stream_new(glake, old->device, &stream);
	if (!err)
		err = glk_library.import_end(glake, (void *)(uintptr_t)old->base, stream);
	if (own && stream)
		glk_library.stream_free(glake, old->device, stream);
	glk_preload_out(old->seat);
	return err;
}

/* Under `talk`. */
static glk_cu_result close_last(int at)
{
	struct glk_preload_seat *other = glk_preload_seat_at(opened[at].device);
	glk_cu_result result = glk_preload_wait(opened[at].seat);
	struct opened old;

	if (!result && other && other != opened[at].seat)
		result = glk_preload_wait(other);
	if (result)
		return result;
	old = take_out(at);
	if (unmap(&old))
		glk_preload_log(GLAKE_LOG_WARNING,
			"cuIpcCloseMemHandle: the driver keeps %#llx mapped", old.base);
	glk_preload_ipc_tell(old.peer, old.handle.id);
	return GLK_CU_SUCCESS;
}

/* GLK_PRELOAD_UNSERVED if it is not ours. */
static glk_cu_result close_ours(glk_cu_address ptr)
{
	glk_cu_result result = GLK_CU_SUCCESS;
	int at;

	pthread_mutex_lock(&talk);
	at = find_address(ptr);
	if (at < 0)
		result = GLK_PRELOAD_UNSERVED;
	else if (opened[at].base != ptr)
		result = GLK_CU_INVALID_VALUE;
	else if (glk_preload_stopped())
		result = GLK_CU_SUCCESS; /* it goes with the process, as the driver has */
	else if (opened[at].count > 1)
		opened[at].count--;
	else
		result = close_last(at);
	pthread_mutex_unlock(&talk);
	return result;
}

glk_cu_result cuIpcCloseMemHandle(glk_cu_address ptr)
{
	bool serves = (SERVES(cuIpcCloseMemHandle) || glk_preload_stopped()) &&
		glk_load_relaxed(&opened_count);
	glk_cu_result result = serves ? close_ours(ptr) : GLK_PRELOAD_UNSERVED;

	return result == GLK_PRELOAD_UNSERVED ? GLK_PRELOAD_PASS(cuIpcCloseMemHandle, ptr)
					      : result;
}

void glk_preload_ipc_drop(const struct glk_preload_seat *seat)
{
	struct opened old;

	if (!glk_load_relaxed(&opened_count))
		return;
	pthread_mutex_lock(&talk);
	for (int i = glk_load_relaxed(&opened_count); i-- > 0;) {
		if (opened[i].seat != seat)
			continue;
		old = take_out(i);
		glk_preload_ipc_tell(old.peer, old.handle.id);
	}
	pthread_mutex_unlock(&talk);
}

void glk_preload_ipc_child(void)
{
	glk_preload_ipc_given_child();
	glk_preload_ipc_serve_child();
	glk_preload_ipc_peer_child();
	glk_store_relaxed(&opened_count, 0);
	talk = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	opened_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}
