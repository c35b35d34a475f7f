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

/* Whether an event of a capture has drawn a stream into it. */
static int is_drawn(
	struct glk_streams *streams, struct CUstream_st *stream, bool *ret_drawn)
{
	struct glk_stream_facts facts = {0};
	int err;

	err = streams->drv->ops->stream_facts(
		streams->drv, streams->device, stream, &facts);
	*ret_drawn = facts.capture != 0;
	return err;
}

/*
 * The next of the first few, made at its first turn. One that was drawn into a capture is of no
 * use until that is over, for a wait on it would break the capture, so there are more.
 */
static int turn(struct glk_streams *streams, struct CUstream_st **ret_stream)
{
	for (unsigned k = 0; k < GLK_COLLECT_MOST; k++) {
		unsigned i = k < GLK_COLLECTORS
			? (streams->collect.next + k) % GLK_COLLECTORS
			: k;
		struct CUstream_st **at = &streams->collect.stream[i];
		bool drawn = false;
		int err = *at ? is_drawn(streams, *at, &drawn)
			      : streams->drv->ops->stream_new(
					streams->drv, streams->device, at);

		if (err)
			return err;
		if (drawn)
			continue;
		streams->collect.next = (i + 1) % GLK_COLLECTORS;
		*ret_stream = *at;
		return 0;
	}
	return glk_error(-EBUSY, GLAKE_ERROR_CAPTURE,
		"all the %d streams that wait for events are in captures of graphs",
		GLK_COLLECT_MOST);
}

static int wait_all(struct glk_streams *streams, struct CUevent_st *const *events,
	size_t count, struct CUstream_st **ret_stream)
{
	struct CUstream_st *stream = NULL;
	bool drawn = false;
	int err;

	err = turn(streams, &stream);
	for (size_t k = 0; k < count && !err && !drawn; k++) {
		err = streams->drv->ops->user_event_wait(
			streams->drv, streams->device, stream, events[k]);
		if (!err)
			err = is_drawn(streams, stream, &drawn);
	}
	if (!err && drawn)
		return glk_error(-EBUSY, GLAKE_ERROR_CAPTURE,
			"an event of a graph under capture passes when the graph runs, if "
			"ever");
	if (!err)
		*ret_stream = stream;
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
	for (unsigned i = 0; i < GLK_COLLECT_MOST; i++) {
		if (streams->collect.stream[i])
			streams->drv->ops->stream_free(streams->drv, streams->device,
				streams->collect.stream[i]);
		streams->collect.stream[i] = NULL;
	}
}
