/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Blocks that have a handle. One has the same as long as it lives, and the next block at its
 * address has another, so that whoever keeps handles can tell them apart.
 */
#include "front/preload_ipc.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define GIVEN_MAX 16384

/* Every free asks here, and nearly all are of blocks without a handle: the blocks that have one
 * are counted by a part of their address, and where there is none no list is looked through. */
#define PARTS 65536

static pthread_mutex_t given_lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
	uint64_t id;
	void *ptr;
	struct glk_preload_seat *seat;
} given[GIVEN_MAX]; /* under the lock */

static glk_atomic(int) given_count; /* written under it */
static glk_atomic(uint16_t) parts[PARTS];
static uint64_t last_id; /* under it */

uint32_t glk_preload_ipc_check(const struct glk_preload_ipc_handle *handle)
{
	struct glk_preload_ipc_handle copy = *handle;
	const unsigned char *byte = (const unsigned char *)&copy;
	uint32_t sum = 2166136261u; /* FNV-1a */

	copy.check = 0;
	for (size_t i = 0; i < sizeof(copy); i++)
		sum = (sum ^ byte[i]) * 16777619u;
	return sum;
}

static glk_atomic(uint16_t) * part(const void *ptr)
{
	uint64_t grains = (uintptr_t)ptr / GLAKE_GRAIN;

	return &parts[(grains * UINT64_C(0x9e3779b97f4a7c15)) >> 48];
}

/* Its place, or -1. Under the lock. */
static int find(const void *ptr)
{
	for (int i = 0; i < glk_load_relaxed(&given_count); i++)
		if (given[i].ptr == ptr)
			return i;
	return -1;
}

bool glk_preload_ipc_is_given(const void *ptr)
{
	bool is;

	if (!glk_load_relaxed(&given_count) || !glk_load_relaxed(part(ptr)))
		return false;
	pthread_mutex_lock(&given_lock);
	is = find(ptr) >= 0;
	pthread_mutex_unlock(&given_lock);
	return is;
}

void *glk_preload_ipc_given(uint64_t id, struct glk_preload_seat **ret_seat)
{
	void *ptr = NULL;

	pthread_mutex_lock(&given_lock);
	for (int i = 0; i < glk_load_relaxed(&given_count) && !ptr; i++) {
		if (given[i].id != id)
			continue;
		ptr = given[i].ptr;
		*ret_seat = given[i].seat;
	}
	pthread_mutex_unlock(&given_lock);
	return ptr;
}

uint64_t glk_preload_ipc_given_drop(
	const void *ptr, const struct glk_preload_seat *seat)
{
	uint64_t id = 0;
	int last;

	pthread_mutex_lock(&given_lock);
	for (int i = glk_load_relaxed(&given_count); i-- > 0;) {
		if (given[i].ptr != ptr && given[i].seat != seat)
			continue;
		last = glk_load_relaxed(&given_count) - 1;
		id = given[i].id;
		glk_sub_relaxed(part(given[i].ptr), 1);
		given[i] = given[last];
		glk_store_relaxed(&given_count, last);
	}
	pthread_mutex_unlock(&given_lock);
	return id;
}

/* Its place, where it has got one if need be; -ENOSPC. Under the lock. */
static int place(struct glk_preload_seat *seat, void *ptr)
{
	int at = find(ptr), count = glk_load_relaxed(&given_count);

	if (at >= 0)
		return at;
	if (count == GIVEN_MAX)
		return -ENOSPC;
	given[count].id = ++last_id;
	given[count].ptr = ptr;
	given[count].seat = seat;
	glk_add_relaxed(part(ptr), 1);
	glk_store_relaxed(&given_count, count + 1);
	return count;
}

uint64_t glk_preload_ipc_number(struct glk_preload_seat *seat, void *ptr)
{
	uint64_t id = 0;
	int at;

	pthread_mutex_lock(&given_lock);
	at = place(seat, ptr);
	if (at >= 0)
		id = given[at].id;
	pthread_mutex_unlock(&given_lock);
	return id;
}

int glk_preload_ipc_give(struct glk_preload_seat *seat, void *ptr,
	struct glk_preload_ipc_handle *ret_handle)
{
	struct glk_preload_ipc_handle handle = {.magic = GLK_PRELOAD_IPC_MAGIC,
		.version = GLK_PRELOAD_IPC_VERSION,
		.pid = getpid()};
	int at, err;

	pthread_mutex_lock(&given_lock);
	err = glk_preload_ipc_listen(handle.name, &handle.uid);
	at = err ? err : place(seat, ptr);
	if (at >= 0)
		handle.id = given[at].id;
	pthread_mutex_unlock(&given_lock);
	if (at < 0)
		return at;
	handle.check = glk_preload_ipc_check(&handle);
	*ret_handle = handle;
	return 0;
}

void glk_preload_ipc_given_child(void)
{
	glk_store_relaxed(&given_count, 0);
	given_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}
