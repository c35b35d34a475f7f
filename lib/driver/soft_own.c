/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The default streams of threads: one number, GLK_STREAM_PER_THREAD, which names another
 * stream in every thread and on every GPU. One is made when a thread first names it there, and
 * stays until the device is closed: what it has queued may run after the thread has ended, and
 * the thread's place in the table is not used again.
 *
 * Cost		a hash and as a rule one comparison
 */
#include "driver/soft_state.h"

#include "base/error.h"

#include <errno.h>

static glk_atomic(uint64_t) threads;

/* The number of the calling thread, from 1, never given twice. */
static uint64_t thread_number(void)
{
	static _Thread_local uint64_t number;

	if (!number)
		number = glk_add_relaxed(&threads, 1) + 1;
	return number;
}

int glk_soft_stream_own(struct soft *soft, int device, uint32_t *ret_id)
{
	uint64_t thread = thread_number();
	/* Threads are numbered in order, and a program uses few GPUs: neighbours spread well. */
	uint32_t at = (uint32_t)(thread * (uint64_t)soft->gpus + (uint32_t)device);
	struct soft_own *own = NULL;
	uint32_t tried, id;

	for (tried = 0; tried < SOFT_OWN; tried++) {
		own = &soft->own[(at + tried) % SOFT_OWN];
		if (!own->stream || (own->thread == thread && own->device == device))
			break;
	}
	if (tried == SOFT_OWN)
		return glk_error(-ENOMEM, GLAKE_ERROR_LIMIT,
			"the software device keeps default streams of %u threads, and all "
			"are taken",
			SOFT_OWN);
	if (!own->stream) {
		id = glk_slab_get(&soft->streams);
		if (!id)
			return -ENOMEM;
		glk_soft_stream_init(soft, id, device);
		*own = (struct soft_own){thread, device, id};
	}
	*ret_id = own->stream;
	return 0;
}
