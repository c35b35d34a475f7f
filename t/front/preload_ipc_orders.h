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

/* Between two looks at what others do on their own. Who waits for what does not come is ended with the
 * test, and has said what it waits for. */
static inline void agent_moment(int look, const char *what, int64_t have, int64_t wanted)
{
	tap_moment();
	if (look == 3000)
		tap_note("waits for %s: %" PRId64 " is %" PRId64, what, wanted, have);
}

/* Until an agent gets so much memory: others let go of it. */
static inline fake_address alloc_when_it_goes(struct agent *a, size_t size)
{
	fake_address ptr = alloc(a, size);

	for (int look = 0; !ptr; look++) {
		agent_moment(look, "memory", 0, (int64_t)size);
		ptr = alloc(a, size);
	}
	return ptr;
}

static inline bool gets(struct agent *a, size_t size)
{
	return !simple(a, FREE, alloc_when_it_goes(a, size));
}

/* Until an agent has so many descriptors: it hears of an end by itself. */
static inline bool comes_to(struct agent *a, int fds)
{
	int have = number(a, FDS, "");

	for (int look = 0; have != fds; look++) {
		agent_moment(look, "descriptors", have, fds);
		have = number(a, FDS, "");
	}
	return true;
}

/* Until an agent has called a function of the driver so often. */
static inline bool calls(struct agent *a, const char *name, int times)
{
	int have = number(a, COUNT, name);

	for (int look = 0; have < times; look++) {
		agent_moment(look, name, have, times);
		have = number(a, COUNT, name);
	}
	return true;
}

/* The same by now, where time is judged. */
static inline bool has_called(struct agent *a, const char *name, int times)
{
	return agent_real_time() ? number(a, COUNT, name) >= times
				 : calls(a, name, times);
}

#endif
