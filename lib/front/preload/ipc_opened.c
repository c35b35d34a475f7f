/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What this process has opened, as its program counts it. A block that its owner has freed is closed
 * before the program closes it, and stays in the table, gone, so that the program may.
 */
#include "front/preload/index.h"
#include "front/preload/ipc.h"

#include <string.h>

#define OPENED_MAX 16384

/* Held for moments. */
static pthread_mutex_t opened_lock = PTHREAD_MUTEX_INITIALIZER;
static struct glk_preload_ipc_opened opened[OPENED_MAX];
static glk_atomic(int) opened_count; /* written under it */
static glk_atomic(bool) some_unwanted;

/* Each is in one of these by its addresses, and in another one by its handle. Under the lock. */
enum state {
	OPEN,
	UNWANTED, /* open, and to be closed since its owner has freed it */
	CLOSING,
	ENDING,
	GONE,
	LOST,
	STATES,
};

static struct glk_preload_node address_nodes[OPENED_MAX], handle_nodes[OPENED_MAX];
static struct glk_preload_index by_address[STATES] = {
	[OPEN] = {.nodes = address_nodes},
	[UNWANTED] = {.nodes = address_nodes},
	[CLOSING] = {.nodes = address_nodes},
	[ENDING] = {.nodes = address_nodes},
	[GONE] = {.nodes = address_nodes},
	[LOST] = {.nodes = address_nodes},
};
static struct glk_preload_index by_handle = {.nodes = handle_nodes};

static enum state state_of(const struct glk_preload_ipc_opened *o)
{
	if (o->gone)
		return o->lost ? LOST : GONE;
	if (o->ending)
		return ENDING;
	if (o->closing)
		return CLOSING;
	return o->unwanted ? UNWANTED : OPEN;
}

/* Ids of two processes may be the same. */
static uint64_t mix(const unsigned char *name, uint64_t id)
{
	uint64_t part;

	memcpy(&part, name, sizeof(part));
	return part + id;
}

static uint64_t handle_key(const struct glk_preload_ipc_opened *o)
{
	return mix(o->handle.name, o->handle.id);
}

/* A place is in the indexes, or is no more, or is being changed. */
static void enter(int at)
{
	const struct glk_preload_ipc_opened *o = &opened[at];
	uint64_t key = handle_key(o);

	glk_preload_index_add(
		&by_address[state_of(o)], at, o->base, o->base + o->size - 1);
	glk_preload_index_add(&by_handle, at, key, key);
}

static void leave(int at)
{
	glk_preload_index_remove(&by_address[state_of(&opened[at])], at);
	glk_preload_index_remove(&by_handle, at);
}

/* The place of one that is here, or -1. */
static int find_address(glk_cu_address ptr)
{
	int at = glk_preload_index_over(&by_address[OPEN], ptr);

	return at < 0 ? glk_preload_index_over(&by_address[UNWANTED], ptr) : at;
}

/* Of one that the program believes to be, from its first byte on or anywhere. */
static int find_gone(glk_cu_address ptr, bool anywhere)
{
	static const enum state states[] = {GONE, ENDING};
	int at = -1;

	for (int i = 0; i < 2 && at < 0; i++)
		at = anywhere ? glk_preload_index_over(&by_address[states[i]], ptr)
			      : glk_preload_index_same(&by_address[states[i]], ptr, -1);
	return at;
}

/* One of a handle in a state up to `until`; -1 for none. */
static int find_handle(const struct glk_preload_ipc_handle *handle,
	const struct glk_preload_seat *seat, enum state from, enum state until)
{
	uint64_t key = mix(handle->name, handle->id);
	int at = glk_preload_index_same(&by_handle, key, -1);

	for (; at >= 0; at = glk_preload_index_same(&by_handle, key, at)) {
		enum state state = state_of(&opened[at]);

		if (opened[at].seat == seat && state >= from && state <= until &&
			!memcmp(&opened[at].handle, handle, sizeof(*handle)))
			break;
	}
	return at;
}

bool glk_preload_ipc_range(glk_cu_address ptr, glk_cu_address *ret_base, size_t *ret_size)
{
	int at;

	if (!glk_load_relaxed(&opened_count))
		return false;
	pthread_mutex_lock(&opened_lock);
	at = find_address(ptr);
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
	at = find_handle(handle, seat, OPEN, UNWANTED);
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

/* The last one takes its place. */
static struct glk_preload_ipc_opened take_out(int at)
{
	int last = glk_load_relaxed(&opened_count) - 1;
	struct glk_preload_ipc_opened old = opened[at];

	leave(at);
	if (at != last) {
		leave(last);
		opened[at] = opened[last];
		enter(at);
	}
	glk_store_relaxed(&opened_count, last);
	return old;
}

/* Room is made by one that has gone, whose close the driver will refuse. */
static bool forget_one(void)
{
	int at = glk_preload_index_next(&by_address[LOST], 0, -1);

	if (at < 0)
		at = glk_preload_index_next(&by_address[GONE], 0, -1);
	if (at >= 0)
		take_out(at);
	return at >= 0;
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
		enter(count);
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
		at = find_address(ptr);
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
		leave(at);
		opened[at].closing = true;
		enter(at);
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
	at = glk_preload_index_over(&by_address[CLOSING], base);
	if (at >= 0 && stays) {
		leave(at);
		opened[at].closing = false;
		enter(at);
		if (opened[at].unwanted)
			glk_store_relaxed(&some_unwanted, true);
	} else if (at >= 0) {
		*ret_old = take_out(at);
	}
	pthread_mutex_unlock(&opened_lock);
	return at >= 0 && !stays;
}

int glk_preload_ipc_opened_take(const struct glk_preload_seat *seat, int at,
	struct glk_preload_ipc_opened *ret_old)
{
	pthread_mutex_lock(&opened_lock);
	if (at > glk_load_relaxed(&opened_count))
		at = glk_load_relaxed(&opened_count);
	while (at-- > 0)
		if (opened[at].seat == seat)
			break;
	if (at >= 0)
		*ret_old = take_out(at);
	pthread_mutex_unlock(&opened_lock);
	return at;
}

bool glk_preload_ipc_opened_was(glk_cu_address ptr)
{
	int at;

	pthread_mutex_lock(&opened_lock);
	at = glk_preload_index_same(&by_address[LOST], ptr, -1);
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
		leave(i);
		opened[i].lost = true;
		opened[i].mirror = NULL;
		enter(i);
	}
	pthread_mutex_unlock(&opened_lock);
}

void glk_preload_ipc_unwanted(struct glk_preload_ipc_peer *peer, uint64_t id)
{
	uint64_t key = mix(peer->name, id);
	bool some = false;
	int at;

	if (peer->opening == id)
		peer->opening_freed = true;
	pthread_mutex_lock(&opened_lock);
	at = glk_preload_index_same(&by_handle, key, -1);
	for (; at >= 0; at = glk_preload_index_same(&by_handle, key, at)) {
		if (opened[at].peer != peer || opened[at].handle.id != id ||
			state_of(&opened[at]) > CLOSING)
			continue;
		leave(at);
		opened[at].unwanted = true;
		enter(at);
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

bool glk_preload_ipc_unwanted_take(struct glk_preload_ipc_opened *ret_old)
{
	int at;

	pthread_mutex_lock(&opened_lock);
	at = glk_preload_index_next(&by_address[UNWANTED], 0, -1);
	if (at >= 0) {
		*ret_old = opened[at];
		leave(at);
		opened[at].ending = true;
		enter(at);
	}
	pthread_mutex_unlock(&opened_lock);
	return at >= 0;
}

void glk_preload_ipc_unwanted_ended(const struct glk_preload_ipc_opened *old)
{
	int at;

	pthread_mutex_lock(&opened_lock);
	at = find_handle(&old->handle, old->seat, ENDING, ENDING);
	if (at >= 0) {
		leave(at);
		opened[at].ending = false;
		opened[at].gone = true;
		opened[at].peer = NULL;
		enter(at);
		if (!opened[at].count)
			take_out(at);
	}
	pthread_mutex_unlock(&opened_lock);
}

void glk_preload_ipc_opened_child(void)
{
	glk_store_relaxed(&opened_count, 0);
	for (int i = 0; i < STATES; i++)
		by_address[i].root = 0;
	by_handle.root = 0;
	glk_store_relaxed(&some_unwanted, false);
	opened_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}
