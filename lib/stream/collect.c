/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Frees behind events of the program. The events may be recorded again or destroyed right after
 * the call, so a stream of the library waits for them as they are now, and the memory is freed
 * on that stream: from then on it is like any other. There are a few such streams, used by
 * turns, since each stays behind all events it was ever told to wait for.
 */
#include "stream/table.h"

#include "base/error.h"

#include <errno.h>

/* The next one, made at its first turn. */
static int turn(struct glk_streams *streams, unsigned *ret_turn)
{
	unsigned i = streams->collect.next;

	if (!streams->collect.stream[i]) {
		int err = streams->drv->ops->stream_new(
			streams->drv, streams->device, &streams->collect.stream[i]);

		if (err)
			return err;
	}
	streams->collect.next = (i + 1) % GLK_COLLECTORS;
	*ret_turn = i;
	return 0;
}

/* An event of a capture has drawn the stream into it, so it is of no more use. */
static int drawn(struct glk_streams *streams, unsigned i)
{
	struct CUstream_st *stream = streams->collect.stream[i];
	struct glk_stream_facts facts = {0};
	int err;

	err = streams->drv->ops->stream_facts(
		streams->drv, streams->device, stream, &facts);
	if (err || !facts.capture)
		return err;
	streams->collect.stream[i] = NULL;
	return glk_error(-EBUSY, GLAKE_ERROR_CAPTURE,
		"an event of a graph under capture passes when the graph runs, if ever");
}

static int wait_all(struct glk_streams *streams, struct CUevent_st *const *events,
	size_t count, struct CUstream_st **ret_stream)
{
	unsigned i = 0;
	int err;

	err = turn(streams, &i);
	for (size_t k = 0; k < count && !err; k++)
		err = streams->drv->ops->user_event_wait(streams->drv, streams->device,
			streams->collect.stream[i], events[k]);
	if (!err)
		err = drawn(streams, i);
	if (!err)
		*ret_stream = streams->collect.stream[i];
	return err;
}

int glk_collect(struct glk_streams *streams, struct CUevent_st *const *events,
	size_t count, uint32_t *ret_stream)
{
	struct CUstream_st *stream = NULL;
	int err;

	glk_lock(&streams->lock);
	err = wait_all(streams, events, count, &stream);
	glk_unlock(&streams->lock);
	return err ? err : glk_stream_get(streams, stream, NULL, ret_stream);
}

void glk_collect_fini(struct glk_streams *streams)
{
	for (unsigned i = 0; i < GLK_COLLECTORS; i++) {
		if (streams->collect.stream[i])
			streams->drv->ops->stream_free(streams->drv, streams->device,
				streams->collect.stream[i]);
		streams->collect.stream[i] = NULL;
	}
}
