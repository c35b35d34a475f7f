/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How streams end. Memory that was freed on one names it by its bit, so the bit goes to another
 * stream only when nothing of this one is under way any more: after its last event, or, where
 * none could be recorded, after the GPU was waited for.
 *
 * The slot of a stream is put back under the lock of the GPU and taken under that of the table.
 */
#include "stream/table.h"

#include "base/error.h"

#include <errno.h>

/* Its handle may stand for another one from now on. */
static void end(
	struct glk_streams *streams, struct glk_stream *s, enum glk_stream_state state)
{
	s->state = (uint8_t)state;
	s->mute = false; /* no capture waits for it */
	s->announced = 0;
	glk_store_relaxed(&s->key, GLK_KEY_NONE);
	glk_poke_relaxed(&streams->ended, streams->ended + 1);
	streams->ends[s->id / 64] |= UINT64_C(1) << s->id % 64;
}

static void unlink_stream(struct glk_streams *streams, const struct glk_stream *s)
{
	if (s->prev)
		glk_stream_at(streams, s->prev)->next = s->next;
	else
		streams->by_bit[s->bit] = s->next;
	if (s->next)
		glk_stream_at(streams, s->next)->prev = s->prev;
}

bool glk_stream_settle(struct glk_streams *streams, struct glk_stream *s)
{
	if (s->state == GLK_STREAM_LIVE || s->done < s->freed)
		return false;
	if (s->bit < GLK_STREAM_BITS) {
		if (s->bit == GLK_STREAM_CROWD)
			streams->crowd.here[s->id / 64] &= ~(UINT64_C(1) << s->id % 64);
		unlink_stream(streams, s);
		if (streams->crowd.turn == s->id)
			streams->crowd.turn = s->next;
		if (streams->crowd.witness == s->id)
			streams->crowd.witness = 0;
		if (!streams->by_bit[s->bit])
			streams->used &= ~glk_stream_mask(s);
	}
	glk_event_drop(streams, s, UINT64_MAX);
	streams->settled++;
	glk_poke_relaxed(&s->bit, GLK_STREAM_BITS);
	s->next = 0;
	s->prev = 0;
	glk_slab_put(&streams->slab, s->id);
	return true;
}

/* Nothing of it is in flight, or, if it never got a bit, nothing that any memory names. */
static void finish(struct glk_streams *streams, struct glk_stream *s)
{
	s->freed = ++streams->tick;
	s->done = s->freed;
	glk_stream_settle(streams, s);
}

void glk_stream_lose(struct glk_streams *streams, struct glk_stream *s)
{
	if (s->state != GLK_STREAM_LIVE)
		return;
	end(streams, s, GLK_STREAM_GONE);
	/* what it has in flight is all there will ever be */
	glk_clock_set_freed(streams, s, ++streams->tick);
	if (s->bit >= GLK_STREAM_BITS)
		finish(streams, s);
}

void glk_stream_retire(struct glk_streams *streams, struct CUstream_st *handle)
{
	uint32_t id;

	glk_lock(&streams->lock);
	id = glk_table_find(streams, glk_stream_key(handle));
	if (id) {
		struct glk_stream *s = glk_stream_at(streams, id);

		glk_lock(streams->gpu);
		/* it may just have been lost */
		if (s->state == GLK_STREAM_LIVE) {
			end(streams, s, GLK_STREAM_LEAVING);
			finish(streams, s);
		}
		glk_unlock(streams->gpu);
	}
	glk_unlock(&streams->lock);
}

/* Under both locks. */
static int leave(struct glk_streams *streams, struct glk_stream *s)
{
	uint32_t announced = s->announced;
	unsigned slot;
	int err;

	if (s->state != GLK_STREAM_LIVE) /* it has just been lost */
		return -ENOENT;
	if (s->bit >= GLK_STREAM_BITS) {
		end(streams, s, GLK_STREAM_LEAVING);
		finish(streams, s);
		return 0;
	}
	glk_clock_set_freed(streams, s, ++streams->tick);
	/* one that is to end begins no capture any more: what counts is what it does now */
	s->announced = 0;
	err = glk_event_cover(streams, s, &slot);
	if (err && s->state == GLK_STREAM_LIVE)
		s->announced = announced;
	/* not gone, so it is mute */
	if (err == -EAGAIN && s->state == GLK_STREAM_LIVE)
		return glk_error(-EBUSY, GLAKE_ERROR_CAPTURE,
			"the stream captures a graph, or is another thread's own");
	end(streams, s, err ? GLK_STREAM_GONE : GLK_STREAM_LEAVING);
	glk_stream_settle(streams, s);
	return 0;
}

int glk_stream_leave(struct glk_streams *streams, struct CUstream_st *handle)
{
	int err = -ENOENT;
	uint32_t id;

	glk_lock(&streams->lock);
	id = glk_table_find(streams, glk_stream_key(handle));
	if (id) {
		glk_lock(streams->gpu);
		err = leave(streams, glk_stream_at(streams, id));
		glk_unlock(streams->gpu);
	}
	glk_unlock(&streams->lock);
	return err;
}
