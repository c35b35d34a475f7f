/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Memory of other processes, as CUDA has it. Handles of the driver's own memory go to the driver.
 * What is opened here is memory of the library's import, which neither its figures nor the
 * program's frees know: it answers for its addresses itself, and ends with the last close.
 *
 * A handle that is opened again gives the same address, in the same context. Opened where it was
 * given, it is refused as the driver does.
 */
#include "front/preload/ipc.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#define SERVES(fn) glk_preload_called(GLK_PRELOAD_##fn)

/* The one flag there is: peer access where it is needed, which it always is. */
#define LAZY_PEERS 1u

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
	glk_preload_ipc_ready();
	err = glk_preload_ipc_give(seat, block.base, &handle);
	if (err == -EPERM) {
		glk_preload_log(GLAKE_LOG_WARNING,
			"cuIpcGetMemHandle: user %u cannot be told from users of other namespaces",
			geteuid());
		return GLK_CU_NOT_SUPPORTED;
	}
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
			"a few descriptors are more than RLIMIT_NOFILE allows"},
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
		if (!glk_library.device_get(glake, i, &device) &&
			!strcmp(device.uuid, uuid))
			return i;
	return -1;
}

static int map(
	const struct glk_preload_ipc_block *block, struct glk_preload_ipc_opened *new)
{
	struct glake *glake = new->seat->glake;
	int err;

	new->device = find_device(glake, block->uuid);
	if (new->device < 0)
		return -ENODEV;
	new->size = (size_t)block->size;
	err = new->device == new->seat->device
		? 0
		: glk_library.peer_access(glake, new->device, new->seat->device, 1);
	return err ? err
		   : glk_preload_ipc_map(new->peer, new->seat, new->device, block,
			     &new->mirror, &new->base);
}

/* With `talk` of the peer, of which it is a user. *ret_held: the peer holds the block for it. */
static int open_new(struct glk_preload_ipc_opened *new, bool *ret_held)
{
	struct glk_preload_ipc_block block;
	int err;

	new->peer->opening = new->handle.id;
	new->peer->opening_freed = false;
	err = glk_preload_ipc_ask(new->peer, new->handle.id, &block);
	*ret_held = !err;
	if (err)
		return err;
	err = -ESTALE;
	if (glk_preload_in(new->seat)) {
		err = map(&block, new);
		/* what is told from now on is told when it is in the table */
		new->unwanted = new->peer->opening_freed;
		/* of its own: whoever closes it may be first to give one back */
		if (!err)
			glk_preload_ipc_peer_hold(new->peer);
		if (!err && !glk_preload_ipc_opened_add(new)) {
			glk_preload_ipc_peer_put(new->peer);
			glk_library.mirror_close(new->seat->glake, new->mirror,
				(void *)(uintptr_t) new->base, new->size);
			err = -ENOSPC;
		}
		glk_preload_out(new->seat);
	}
	glk_preload_ipc_block_end(&block);
	return err;
}

static glk_cu_result open_handle(struct glk_preload_seat *seat,
	const struct glk_preload_ipc_handle *handle, glk_cu_address *ret)
{
	struct glk_preload_ipc_opened new = {.handle = *handle, .seat = seat, .count = 1};
	bool again, held = false;
	int err;

	if (glk_preload_ipc_opened_again(handle, seat, ret))
		return GLK_CU_SUCCESS;
	glk_preload_ipc_ready();
	err = glk_preload_ipc_peer_get(handle, &new.peer);
	if (err)
		return refused(handle, err);
	/* another thread may have been first */
	again = glk_preload_ipc_opened_again(handle, seat, ret);
	if (!again)
		err = open_new(&new, &held);
	if (glk_load_relaxed(&new.peer->asked))
		glk_preload_ipc_peer_trim(new.peer);
	pthread_mutex_unlock(&new.peer->talk);
	if (err && held)
		glk_preload_ipc_tell(new.peer, handle->id, true);
	else
		glk_preload_ipc_peer_put(new.peer);
	if (err)
		return refused(handle, err);
	if (!again)
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
	return open_handle(seat, handle, ret);
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

/* Until all work of the GPUs that could reach it has finished. */
static glk_cu_result wait_for(struct glk_preload_seat *seat, int device)
{
	struct glk_preload_seat *other = glk_preload_seat_at(device);
	glk_cu_result result = glk_preload_wait(seat);

	return result || !other || other == seat ? result : glk_preload_wait(other);
}

/* One that is marked as being closed. A reset may have closed it meanwhile. */
static glk_cu_result close_last(
	struct glk_preload_seat *seat, int device, glk_cu_address base)
{
	glk_cu_result result = wait_for(seat, device);
	struct glk_preload_ipc_opened old;

	if (!glk_preload_ipc_opened_closed(base, result, &old))
		return result;
	if (glk_preload_ipc_unmap(&old))
		glk_preload_log(GLAKE_LOG_WARNING,
			"cuIpcCloseMemHandle: the driver keeps %#llx mapped", old.base);
	glk_preload_ipc_tell(old.peer, old.handle.id, true);
	return GLK_CU_SUCCESS;
}

glk_cu_result cuIpcCloseMemHandle(glk_cu_address ptr)
{
	bool serves = (SERVES(cuIpcCloseMemHandle) || glk_preload_stopped()) &&
		glk_preload_ipc_opened_some();
	bool was;
	glk_cu_result result = GLK_PRELOAD_UNSERVED;
	struct glk_preload_seat *seat = NULL;
	int device;

	if (serves)
		result = glk_preload_ipc_opened_close(ptr, &seat, &device);
	if (seat)
		result = close_last(seat, device, ptr);
	if (result != GLK_PRELOAD_UNSERVED)
		return result;
	result = GLK_PRELOAD_PASS(cuIpcCloseMemHandle, ptr);
	was = result && serves && glk_preload_ipc_opened_was(ptr);
	return was ? (glk_cu_result)GLK_CU_SUCCESS : result;
}

void glk_preload_ipc_drop(const struct glk_preload_seat *seat)
{
	struct glk_preload_ipc_opened old;
	int at = INT_MAX;

	while ((at = glk_preload_ipc_opened_take(seat, at, &old)) >= 0)
		if (!old.gone && !old.ending)
			glk_preload_ipc_tell(old.peer, old.handle.id, true);
	glk_preload_ipc_peers_drop(seat);
}
