/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Streams of the software device that wait for words which the host writes. The device does not see
 * the write: it looks at the words whenever it is called, and again and again while the host waits
 * for such a stream.
 */
#include "soft/state.h"

#include "base/clock.h"
#include "base/error.h"

#include <errno.h>

/* How long the host waits where nothing moves before it is told that it would wait for ever. */
#define PATIENCE_NS INT64_C(20000000000)
#define LOOK_NS	    20000
/* Waits that are followed from stream to stream; beyond them order is taken to be there. */
#define DEEP 64

bool glk_soft_word_is_there(const struct soft_op *op)
{
	/* pairs with: the release of who writes it */
	return (int64_t)(glk_load_acquire(op->word) - op->target_serial) >= 0;
}

int glk_soft_stream_wait_word(struct glk_drv *drv, int device, struct CUstream_st *stream,
	const glk_drv_word *word, uint64_t value)
{
	struct soft_op op = {.kind = SOFT_WORD, .word = word, .target_serial = value};
	struct soft *soft = soft_of(drv);
	uint32_t id, slot;
	int err = 0;

	glk_soft_charge(soft, GLAKE_CALL_STREAM_WAIT, 1);
	glk_soft_enter(soft);
	if (!glk_soft_host_is_locked(soft, (uintptr_t)word, sizeof(*word)))
		err = glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, "cuStreamWaitValue64",
			1, "the word at %p is not in memory that is locked",
			(const void *)word);
	if (!err)
		err = glk_soft_stream_find(
			soft, device, stream, "cuStreamWaitValue64", &id);
	if (!err)
		err = glk_soft_stream_usable(soft, id, "cuStreamWaitValue64");
	if (!err)
		err = glk_soft_queue_add(soft, id, &op, &slot);
	glk_unlock(&soft->lock);
	return err;
}

/* Whatever can run does, or else time goes on. */
static bool moved(struct soft *soft)
{
	uint32_t before = soft->pending;

	glk_soft_queue_run(soft);
	return soft->pending != before || glk_soft_pace_next(soft);
}

bool glk_soft_word_await(struct soft *soft, int64_t *since)
{
	struct timespec look = {.tv_nsec = LOOK_NS};
	int64_t now = glk_clock_ns();
	bool is_moved = moved(soft);

	if (!soft->words)
		return is_moved;
	if (is_moved || !*since)
		*since = now;
	if (now - *since > PATIENCE_NS)
		return false;
	/* who writes the word queues work before */
	glk_lock_pause(&soft->lock);
	nanosleep(&look, NULL);
	glk_lock_resume(&soft->lock);
	return true;
}

static bool is_before(
	const struct soft *soft, uint32_t stream, uint32_t last, unsigned deep)
{
	uint32_t slot = soft_stream_at(soft, stream)->head;

	if (deep > DEEP)
		return true;
	for (; slot && slot != last; slot = soft_op_at(soft, slot)->next) {
		const struct soft_op *op = soft_op_at(soft, slot);

		if (op->kind == SOFT_WORD)
			return true;
		if (op->kind == SOFT_WAIT &&
			!glk_soft_queue_is_done(soft, op->target, op->target_serial) &&
			is_before(soft, soft_op_at(soft, op->target)->stream, op->target,
				deep + 1))
			return true;
	}
	return false;
}

bool glk_soft_word_is_before(const struct soft *soft, uint32_t stream, uint32_t slot)
{
	return soft->words && is_before(soft, stream, slot, 0);
}
