/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The default streams of threads: one number, GLK_STREAM_PER_THREAD, which names another
 * stream in every thread and on every GPU. One is made when a thread first names it there. It
 * outlives its thread, since what it has queued may run later, until the device has no stream
 * left to give: then those of ended threads go that have nothing queued, hold and capture
 * nothing.
 *
 * Design	a hash table of streams, which know their thread and GPU; made anew by a sweep
 * Cost		a hash and as a rule one comparison; a sweep, some microseconds
 */
#include "soft/state.h"

#include "base/error.h"
#include "base/thread.h"

#include <errno.h>
#include <string.h>

/* Where the stream of a thread stands, or would. There are more places than streams. */
static uint32_t *place(struct soft *soft, uint64_t thread, int device)
{
	/* Threads are numbered in order, and a program uses few GPUs: neighbours spread well. */
	uint32_t at = (uint32_t)(thread * (uint64_t)soft->gpus + (uint32_t)device);
	const struct soft_stream *s;
	uint32_t *own;

	for (;; at++) {
		own = &soft->own[at % SOFT_OWN];
		s = soft_stream_at(soft, *own);
		if (!*own || (s->thread == thread && s->device == device))
			return own;
	}
}

static bool is_over(const struct soft_stream *s)
{
	return !s->head && !s->held && !s->graph &&
		!glk_thread_lives_at(s->record, s->thread);
}

void glk_soft_stream_sweep(struct soft *soft)
{
	uint32_t used = glk_load_relaxed(&soft->streams.used);

	memset(soft->own, 0, sizeof(soft->own));
	for (uint32_t id = 1; id <= used; id++) {
		struct soft_stream *s = soft_stream_at(soft, id);

		if (!s->live || !s->thread)
			continue;
		if (is_over(s)) {
			s->live = false;
			glk_slab_put(&soft->streams, id);
		} else {
			*place(soft, s->thread, s->device) = id;
		}
	}
}

int glk_soft_stream_own(struct soft *soft, int device, uint32_t *ret_id)
{
	const struct glk_thread *self = glk_thread_self();
	struct soft_stream *s;
	uint64_t thread;
	uint32_t id;

	if (!self)
		return -ENOMEM;
	thread = glk_load_relaxed(&self->serial);
	id = *place(soft, thread, device);
	if (!id) {
		id = glk_soft_stream_take(soft);
		if (!id)
			return -ENOMEM;
		glk_soft_stream_init(soft, id, device);
		s = soft_stream_at(soft, id);
		s->thread = thread;
		s->record = self->id;
		*place(soft, thread, device) = id; /* a sweep may have moved it */
	}
	*ret_id = id;
	return 0;
}
