/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Blocks that have a handle. One has the same as long as it lives, and the next block at its
 * address has another, so that whoever keeps handles can tell them apart. A number alone is for
 * whoever asks for it, as for an attribute of the address: it takes no room that a handle wants.
 */
#include "front/preload/index.h"
#include "front/preload/ipc.h"

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
	bool numbered; /* its number was asked for, and no handle of it was given */
} given[GIVEN_MAX];    /* under the lock */

static glk_atomic(int) given_count; /* written under it */
static glk_atomic(uint16_t) parts[PARTS];
static uint64_t last_id; /* under it */

/* By address, and by id: those with a handle, and those with a number alone. Under it. */
static struct glk_preload_node address_nodes[GIVEN_MAX], id_nodes[GIVEN_MAX];
static struct glk_preload_index by_address = {.nodes = address_nodes};
static struct glk_preload_index by_id = {.nodes = id_nodes};
static struct glk_preload_index by_number = {.nodes = id_nodes};

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

/* Under the lock, as all that follows: a place is in the indexes, or is no more. */
static void enter(int at)
{
	uint64_t address = (uintptr_t)given[at].ptr, id = given[at].id;

	glk_preload_index_add(&by_address, at, address, address);
	glk_preload_index_add(given[at].numbered ? &by_number : &by_id, at, id, id);
}

static void leave(int at)
{
	glk_preload_index_remove(&by_address, at);
	glk_preload_index_remove(given[at].numbered ? &by_number : &by_id, at);
}

static int find(const void *ptr)
{
	return glk_preload_index_same(&by_address, (uintptr_t)ptr, -1);
}

/* The last one takes its place. Its number. */
static uint64_t take_out(int at)
{
	int last = glk_load_relaxed(&given_count) - 1;
	uint64_t id = given[at].id;

	glk_sub_relaxed(part(given[at].ptr), 1);
	leave(at);
	if (at != last) {
		leave(last);
		given[at] = given[last];
		enter(at);
	}
	glk_store_relaxed(&given_count, last);
	return id;
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
	int at;

	pthread_mutex_lock(&given_lock);
	at = glk_preload_index_same(&by_id, id, -1);
	if (at >= 0) {
		ptr = given[at].ptr;
		*ret_seat = given[at].seat;
	}
	pthread_mutex_unlock(&given_lock);
	return ptr;
}

uint64_t glk_preload_ipc_given_drop(const void *ptr)
{
	uint64_t id = 0;
	int at;

	pthread_mutex_lock(&given_lock);
	at = find(ptr);
	if (at >= 0)
		id = take_out(at);
	pthread_mutex_unlock(&given_lock);
	return id;
}

void glk_preload_ipc_given_leave(const struct glk_preload_seat *seat)
{
	pthread_mutex_lock(&given_lock);
	for (int i = glk_load_relaxed(&given_count); i-- > 0;)
		if (given[i].seat == seat)
			take_out(i);
	pthread_mutex_unlock(&given_lock);
}

/* Room is made by the number that was asked for first of those that are numbers alone: who asks
 * for it again gets another one, as if the block were new. */
static bool forget_number(void)
{
	int at = glk_preload_index_next(&by_number, 0, -1);

	if (at >= 0)
		take_out(at);
	return at >= 0;
}

/* Its place, where it has got one if need be; -ENOSPC. */
static int place(struct glk_preload_seat *seat, void *ptr, bool numbered)
{
	int at = find(ptr), count;

	if (at >= 0 && (numbered || !given[at].numbered))
		return at;
	if (at >= 0) {
		leave(at);
		given[at].numbered = false;
		enter(at);
		return at;
	}
	if (glk_load_relaxed(&given_count) == GIVEN_MAX && !forget_number())
		return -ENOSPC;
	count = glk_load_relaxed(&given_count);
	given[count].id = ++last_id;
	given[count].ptr = ptr;
	given[count].seat = seat;
	given[count].numbered = numbered;
	enter(count);
	glk_add_relaxed(part(ptr), 1);
	glk_store_relaxed(&given_count, count + 1);
	return count;
}

uint64_t glk_preload_ipc_number(struct glk_preload_seat *seat, void *ptr)
{
	uint64_t id = 0;
	int at;

	pthread_mutex_lock(&given_lock);
	at = place(seat, ptr, true);
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
	at = err ? err : place(seat, ptr, false);
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
	by_address.root = by_id.root = by_number.root = 0;
	given_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}
