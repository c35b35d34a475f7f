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

/* What it has in flight is all there will ever be. */
static void close_books(struct glk_streams *streams, struct glk_stream *s)
{
	s->freed = ++streams->tick;
	streams->ended++;
}

bool glk_stream_settle(struct glk_streams *streams, struct glk_stream *s)
{
	uint32_t *link;

	if (s->state == GLK_STREAM_LIVE || s->done < s->freed)
		return false;
	if (s->bit < GLK_STREAM_BITS) {
		link = &streams->by_bit[s->bit];
		while (*link != s->id)
			link = &glk_stream_at(streams, *link)->next;
		*link = s->next;
	}
	glk_event_drop(streams, s);
	s->bit = GLK_STREAM_BITS;
	s->next = 0;
	glk_store_relaxed(&s->key, GLK_KEY_NONE);
	glk_slab_put(&streams->slab, s->id);
	return true;
}

/* One that never got a bit has nothing in flight that any memory names. */
static void finish(struct glk_streams *streams, struct glk_stream *s)
{
	s->done = s->freed;
	s->sure = s->freed;
	glk_stream_settle(streams, s);
}

void glk_stream_lose(struct glk_streams *streams, struct glk_stream *s)
{
	if (s->state != GLK_STREAM_LIVE)
		return;
	s->state = GLK_STREAM_GONE;
	s->mute = false; /* no capture waits for it */
	close_books(streams, s);
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
		s->state = GLK_STREAM_LEAVING;
		close_books(streams, s);
		finish(streams, s);
		glk_unlock(streams->gpu);
		glk_table_prune(streams);
	}
	glk_unlock(&streams->lock);
}

/* Under both locks. */
static int leave(struct glk_streams *streams, struct glk_stream *s)
{
	unsigned slot;
	int err;

	if (s->bit >= GLK_STREAM_BITS) {
		s->state = GLK_STREAM_LEAVING;
		close_books(streams, s);
		finish(streams, s);
		return 0;
	}
	s->freed = ++streams->tick;
	err = glk_event_cover(streams, s, &slot);
	/* not gone, so it is mute */
	if (err == -EAGAIN && s->state == GLK_STREAM_LIVE)
		return glk_error(-EBUSY, GLAKE_ERROR_CAPTURE,
			"the stream captures a graph, or is another thread's own");
	/* when it passes must decide nothing then, and nothing is left to wait for later */
	if (!err && !streams->opportunistic)
		err = streams->drv->ops->stream_sync(
			streams->drv, streams->device, s->handle);
	if (!err && !streams->opportunistic) {
		s->done = s->freed;
		s->sure = s->freed;
	}
	s->state = err ? GLK_STREAM_GONE : GLK_STREAM_LEAVING;
	streams->ended++;
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
		if (!err)
			glk_table_prune(streams);
	}
	glk_unlock(&streams->lock);
	return err;
}
