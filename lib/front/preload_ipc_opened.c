/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What this process has opened, as its program counts it. A block that its owner has freed is closed
 * before the program closes it, and stays in the table, gone, so that the program may.
 */
#include "front/preload_ipc.h"

#include <string.h>

#define OPENED_MAX 16384

/* Held for moments. */
static pthread_mutex_t opened_lock = PTHREAD_MUTEX_INITIALIZER;
static struct glk_preload_ipc_opened opened[OPENED_MAX];
static glk_atomic(int) opened_count; /* written under it */
static glk_atomic(bool) some_unwanted;

static bool is_here(const struct glk_preload_ipc_opened *o)
{
	return !o->gone && !o->ending;
}

static bool has(const struct glk_preload_ipc_opened *o, glk_cu_address ptr)
{
	return ptr >= o->base && ptr - o->base < o->size;
}

/* The place of one that is here, or -1. Under the lock. */
static int find_address(glk_cu_address ptr, bool closing)
{
	for (int i = 0; i < glk_load_relaxed(&opened_count); i++)
		if (is_here(&opened[i]) && opened[i].closing == closing &&
			has(&opened[i], ptr))
			return i;
	return -1;
}

/* Of one that the program believes to be, from its first byte on or anywhere. */
static int find_gone(glk_cu_address ptr, bool anywhere)
{
	for (int i = 0; i < glk_load_relaxed(&opened_count); i++)
		if (!is_here(&opened[i]) && !opened[i].lost &&
			(opened[i].base == ptr || (anywhere && has(&opened[i], ptr))))
			return i;
	return -1;
}

static int find_handle(
	const struct glk_preload_ipc_handle *handle, const struct glk_preload_seat *seat)
{
	for (int i = 0; i < glk_load_relaxed(&opened_count); i++)
		if (opened[i].seat == seat && !opened[i].closing && is_here(&opened[i]) &&
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
	at = find_address(ptr, false);
	if (at < 0)
		at = find_gone(ptr, true);
	if (at >= 0 && ret_base)
		*ret_base = opened[at].base;
	if (at >= 0 && ret_size)
		*ret_size = opened[at].size;
	pthread_mutex_unlock(&opened_lock);
	return at >= 0;
}

bool glk_preload_ipc_opened_some(void)
{
	return glk_load_relaxed(&opened_count) > 0;
}

bool glk_preload_ipc_opened_again(const struct glk_preload_ipc_handle *handle,
	const struct glk_preload_seat *seat, glk_cu_address *ret)
{
	int at;

	pthread_mutex_lock(&opened_lock);
	at = find_handle(handle, seat);
	if (at >= 0) {
		opened[at].count++;
		*ret = opened[at].base;
	}
	pthread_mutex_unlock(&opened_lock);
	return at >= 0;
}

bool glk_preload_ipc_uses(const struct glake_mirror *mirror)
{
	int at;

	pthread_mutex_lock(&opened_lock);
	for (at = glk_load_relaxed(&opened_count); at-- > 0;)
		if (opened[at].mirror == mirror && !opened[at].gone)
			break;
	pthread_mutex_unlock(&opened_lock);
	return at >= 0;
}

/* Under the lock. */
static struct glk_preload_ipc_opened take_out(int at)
{
	int last = glk_load_relaxed(&opened_count) - 1;
	struct glk_preload_ipc_opened old = opened[at];

	opened[at] = opened[last];
	glk_store_relaxed(&opened_count, last);
	return old;
}

/* Under the lock: room is made by one that has gone, whose close the driver will refuse. */
static bool forget_one(void)
{
	for (int i = 0; i < OPENED_MAX; i++) {
		if (!opened[i].gone)
			continue;
		take_out(i);
		return true;
	}
	return false;
}

bool glk_preload_ipc_opened_add(const struct glk_preload_ipc_opened *new)
{
	bool room;
	int count;

	pthread_mutex_lock(&opened_lock);
	room = glk_load_relaxed(&opened_count) < OPENED_MAX || forget_one();
	if (room) {
		count = glk_load_relaxed(&opened_count);
		opened[count] = *new;
		glk_store_relaxed(&opened_count, count + 1);
		if (new->unwanted)
			glk_store_relaxed(&some_unwanted, true);
	}
	pthread_mutex_unlock(&opened_lock);
	if (new->unwanted)
		glk_preload_ipc_wake();
	return room;
}

glk_cu_result glk_preload_ipc_opened_close(
	glk_cu_address ptr, struct glk_preload_seat **ret_seat, int *ret_device)
{
	glk_cu_result result = GLK_CU_SUCCESS;
	int at;

	*ret_seat = NULL;
	pthread_mutex_lock(&opened_lock);
	/* that was opened before what may be there now */
	at = find_gone(ptr, false);
	if (at < 0)
		at = find_address(ptr, false);
	if (at < 0) {
		result = GLK_PRELOAD_UNSERVED;
	} else if (opened[at].base != ptr) {
		result = GLK_CU_INVALID_VALUE;
	} else if (glk_preload_stopped()) {
		result = GLK_CU_SUCCESS; /* it goes with the process, as the driver has */
	} else if (!opened[at].count) {
		result = GLK_PRELOAD_UNSERVED;
	} else if (opened[at].count > 1) {
		opened[at].count--;
	} else if (opened[at].gone) {
		take_out(at);
	} else if (opened[at].ending) {
		opened[at].count = 0;
	} else {
		opened[at].closing = true;
		*ret_seat = opened[at].seat;
		*ret_device = opened[at].device;
	}
	pthread_mutex_unlock(&opened_lock);
	return result;
}

bool glk_preload_ipc_opened_closed(
	glk_cu_address base, bool stays, struct glk_preload_ipc_opened *ret_old)
{
	int at;

	pthread_mutex_lock(&opened_lock);
	at = find_address(base, true);
	if (at >= 0 && stays) {
		opened[at].closing = false;
		if (opened[at].unwanted)
			glk_store_relaxed(&some_unwanted, true);
	} else if (at >= 0) {
		*ret_old = take_out(at);
	}
	pthread_mutex_unlock(&opened_lock);
	return at >= 0 && !stays;
}

bool glk_preload_ipc_opened_take(
	const struct glk_preload_seat *seat, struct glk_preload_ipc_opened *ret_old)
{
	int at;

	pthread_mutex_lock(&opened_lock);
	for (at = glk_load_relaxed(&opened_count); at-- > 0;)
		if (opened[at].seat == seat)
			break;
	if (at >= 0)
		*ret_old = take_out(at);
	pthread_mutex_unlock(&opened_lock);
	return at >= 0;
}

bool glk_preload_ipc_opened_was(glk_cu_address ptr)
{
	int at;

	pthread_mutex_lock(&opened_lock);
	for (at = glk_load_relaxed(&opened_count); at-- > 0;)
		if (opened[at].lost && opened[at].base == ptr)
			break;
	if (at >= 0 && !--opened[at].count)
		take_out(at);
	pthread_mutex_unlock(&opened_lock);
	return at >= 0;
}

void glk_preload_ipc_opened_lose(const struct glake_mirror *mirror)
{
	pthread_mutex_lock(&opened_lock);
	for (int i = 0; i < glk_load_relaxed(&opened_count); i++) {
		if (!opened[i].gone || opened[i].mirror != mirror)
			continue;
		opened[i].lost = true;
		opened[i].mirror = NULL;
	}
	pthread_mutex_unlock(&opened_lock);
}

void glk_preload_ipc_unwanted(struct glk_preload_ipc_peer *peer, uint64_t id)
{
	bool some = false;

	if (peer->opening == id)
		peer->opening_freed = true;
	pthread_mutex_lock(&opened_lock);
	for (int i = 0; i < glk_load_relaxed(&opened_count); i++) {
		if (opened[i].peer != peer || opened[i].handle.id != id ||
			!is_here(&opened[i]))
			continue;
		opened[i].unwanted = true;
		some = true;
	}
	if (some)
		glk_store_relaxed(&some_unwanted, true);
	pthread_mutex_unlock(&opened_lock);
	if (some)
		glk_preload_ipc_wake();
}

bool glk_preload_ipc_unwanted_some(void)
{
	if (!glk_load_relaxed(&some_unwanted))
		return false;
	glk_store_relaxed(&some_unwanted, false);
	return true;
}

int glk_preload_ipc_unwanted_take(int at, struct glk_preload_ipc_opened *ret_old)
{
	pthread_mutex_lock(&opened_lock);
	if (at > glk_load_relaxed(&opened_count))
		at = glk_load_relaxed(&opened_count);
	while (at-- > 0)
		if (opened[at].unwanted && !opened[at].closing && is_here(&opened[at]))
			break;
	if (at >= 0) {
		*ret_old = opened[at];
		opened[at].ending = true;
	}
	pthread_mutex_unlock(&opened_lock);
	return at;
}

void glk_preload_ipc_unwanted_ended(const struct glk_preload_ipc_opened *old)
{
	pthread_mutex_lock(&opened_lock);
	for (int i = glk_load_relaxed(&opened_count); i-- > 0;) {
		if (!opened[i].ending || opened[i].seat != old->seat ||
			memcmp(&opened[i].handle, &old->handle, sizeof(old->handle)) != 0)
			continue;
		opened[i].ending = false;
		opened[i].gone = true;
		opened[i].peer = NULL;
		if (!opened[i].count)
			take_out(i);
		break;
	}
	pthread_mutex_unlock(&opened_lock);
}

void glk_preload_ipc_opened_child(void)
{
	glk_store_relaxed(&opened_count, 0);
	glk_store_relaxed(&some_unwanted, false);
	opened_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}
