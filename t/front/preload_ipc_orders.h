/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_T_PRELOAD_IPC_ORDERS_H
#define GLK_T_PRELOAD_IPC_ORDERS_H

/* What agents are told, a function an order. */
#include "preload_ipc_agent.h"

#include <time.h>

static inline struct calls_handle handle_of(struct agent *owner, fake_address ptr)
{
	struct order order = {.what = HANDLE, .ptr = ptr};

	is_int(tell(owner, &order), 0, "a handle");
	return order.handle;
}

static inline fake_result opens(
	struct agent *a, struct calls_handle handle, fake_address *ret)
{
	struct order order = {.what = OPEN, .handle = handle, .number = 1};
	fake_result result = tell(a, &order);

	*ret = order.ptr;
	return result;
}

static inline fake_address must_open(struct agent *a, struct calls_handle handle)
{
	fake_address ptr = 0;

	is_int(opens(a, handle, &ptr), 0, "opened");
	return ptr;
}

static inline fake_address alloc(struct agent *a, size_t size)
{
	struct order order = {.what = ALLOC, .size = size};

	return tell(a, &order) ? 0 : order.ptr;
}

static inline fake_result simple(struct agent *a, enum what what, fake_address ptr)
{
	struct order order = {.what = what, .ptr = ptr};

	return tell(a, &order);
}

static inline void fill(struct agent *a, fake_address ptr, size_t size, int with)
{
	struct order order = {.what = FILL, .ptr = ptr, .size = size, .number = with};

	tell(a, &order);
}

/* Bytes that differ. */
static inline int64_t differs(struct agent *a, fake_address ptr, size_t size, int from)
{
	struct order order = {.what = CHECK, .ptr = ptr, .size = size, .number = from};

	tell(a, &order);
	return order.number;
}

static inline int number(struct agent *a, enum what what, const char *name)
{
	struct order order = {.what = what};

	snprintf(order.name, sizeof(order.name), "%s", name);
	tell(a, &order);
	return order.number;
}

#define AGENT_LOOKS 3000 /* of 20 ms */

/* Whether an agent gets so much memory, within a while: others let go of it on their own. */
static inline bool gets(struct agent *a, size_t size)
{
	const struct timespec moment = {.tv_nsec = 20000000};
	fake_address ptr = 0;

	for (int i = 0; i < AGENT_LOOKS && !ptr; i++) {
		ptr = alloc(a, size);
		if (!ptr)
			nanosleep(&moment, NULL);
	}
	return ptr && !simple(a, FREE, ptr);
}

/* Whether an agent has so many descriptors within a while: it hears of an end by itself. */
static inline bool comes_to(struct agent *a, int fds)
{
	const struct timespec moment = {.tv_nsec = 20000000};
	int have = -1;

	for (int i = 0; i < AGENT_LOOKS; i++) {
		have = number(a, FDS, "");
		if (have == fds)
			return true;
		nanosleep(&moment, NULL);
	}
	tap_note("it has %d, and should have %d", have, fds);
	return false;
}

/* Whether an agent has called a function of the driver so often within a while. */
static inline bool calls(struct agent *a, const char *name, int times)
{
	const struct timespec moment = {.tv_nsec = 20000000};

	for (int i = 0; i < AGENT_LOOKS; i++) {
		if (number(a, COUNT, name) >= times)
			return true;
		nanosleep(&moment, NULL);
	}
	return false;
}

#endif
