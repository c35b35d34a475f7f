/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * cuMemFree waits for the work of its GPU before the memory goes, and programs rely on that. A
 * wait is impossible while a stream captures a graph: it fails and ends the capture, in whatever
 * mode the thread is, as the driver's own cuMemFree does in the strict ones. Here the block is
 * put by, and freed behind the wait of a later cuMemFree, or when memory is short.
 */
#include "front/preload.h"

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
static int find(const void *ptr)
{
	for (int i = 0; i < late_count; i++)
		if (late[i].ptr == ptr)
			return i;
	return -1;
}

bool glk_preload_late_any(void)
{
	return glk_load_relaxed(&late_some);
}

bool glk_preload_is_late(const void *ptr)
{
	bool is = false;

	if (!glk_load_relaxed(&late_some))
		return false;
	pthread_mutex_lock(&glk_preload_lock);
	is = find(ptr) >= 0;
	pthread_mutex_unlock(&glk_preload_lock);
	return is;
}

int glk_preload_late(struct glk_preload_seat *seat, void *ptr)
{
	int err = 0;

	pthread_mutex_lock(&glk_preload_lock);
	if (find(ptr) >= 0) {
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

bool glk_preload_late_free(struct glk_preload_seat *seat)
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
