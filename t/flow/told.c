/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a program tells of its streams: their ends, what waits for what, who uses a block. */
#include "context.h"

static struct CUstream_st *new_stream(struct glake *ctx, int device)
{
	struct CUstream_st *stream = NULL;

	if (glake_stream_new(ctx, device, &stream))
		tap_bail("no stream");
	return stream;
}

static struct CUevent_st *new_event(struct glake *ctx, int device)
{
	struct CUevent_st *event = NULL;

	if (glake_event_new(ctx, device, &event))
		tap_bail("no event");
	return event;
}

/* Streams that run late, as a GPU does; the same order for everyone who reads this. */
static const char *const late[] = {
	"soft.streams=random", "soft.seed=7", "soft.gpus=2", NULL};

/* A program's own streams come and go, announced. */
static void ends(void)
{
	struct glake *ctx = flow_open(late);
	struct CUstream_st *a = new_stream(ctx, 0), *b = new_stream(ctx, 0);
	char *p = flow_alloc(ctx, 9 * MIB, a), *kept = flow_alloc(ctx, 100, a);
	bool served = true;

	is_int(glake_free(ctx, p, a), 0, "freed with work left");
	is_int(glake_stream_end(ctx, 0, a), 0, "the end of its stream is told");
	is_int(glake_stream_end(ctx, 0, a), 0, "twice is no error");
	is_int(glake_stream_free(ctx, 0, a), 0, "the stream ends");
	ok(flow_alloc(ctx, 9 * MIB, b) == p, "its memory is had");
	is_int(glake_free(ctx, p, b), 0, "freed");
	is_int(glake_free(ctx, kept, b), 0, "a block of the stream that ended, too");
	for (int i = 0; i < 500 && served; i++) {
		struct CUstream_st *s = new_stream(ctx, 0);
		void *q = flow_alloc(ctx, 9 * MIB, s);

		served = q && !glake_free(ctx, q, s) && !glake_stream_end(ctx, 0, s) &&
			!glake_stream_free(ctx, 0, s);
	}
	ok(served, "500 streams come and go");
	ok(flow_stats(ctx, 0).streams < 20, "few are known");
	ok(flow_stats(ctx, 0).events < 40, "with few events");
	ok(flow_stats(ctx, 0).reserved <= 40 * MIB, "and little memory");
	is_int(glake_stream_end(ctx, 0, NULL), 0,
		"the default stream, which was never seen");
	ok((p = flow_alloc(ctx, 100, NULL)), "can be used");
	is_int(glake_free(ctx, p, NULL), 0, "freed");
	is_int(glake_stream_end(ctx, 0, NULL), 0, "and ended");
	ok((p = flow_alloc(ctx, 100, NULL)), "and used again");
	is_int(glake_free(ctx, p, NULL), 0, "freed");
	is_int(glake_stream_free(ctx, 0, b), 0, "the last stream");
	flow_close(ctx, 0);
}

/* Dependencies, made by the library and made by the program. */
static void depends(void)
{
	struct glake *ctx = flow_open(late);
	struct CUstream_st *a = new_stream(ctx, 0), *b = new_stream(ctx, 0);
	struct CUstream_st *far = new_stream(ctx, 1);
	struct CUevent_st *event = new_event(ctx, 0);
	uint64_t waits;
	char *p;

	p = flow_alloc(ctx, 9 * MIB, a);
	flow_alloc(ctx, 20 * MIB, a);
	is_int(glake_free(ctx, p, a), 0, "freed on A");
	/* its bin gives it back */
	is_int(glake_trim(ctx, 0, SIZE_MAX, NULL), 0, "nothing is trimmed");
	is_int(glake_event_record(ctx, 0, event, a), 0, "an event on A");
	is_int(glake_stream_wait(ctx, 0, b, event), 0, "B waits for it");
	waits = flow_calls(ctx, GLAKE_CALL_STREAM_WAIT);
	ok(flow_alloc(ctx, 9 * MIB, b) == p, "B gets what A freed");
	is_int((int64_t)(flow_calls(ctx, GLAKE_CALL_STREAM_WAIT) - waits), 0,
		"without another wait");
	is_int(glake_stream_wait(ctx, 1, far, event), 0,
		"a stream of another GPU may wait, too");
	is_int(glake_event_recorded(ctx, 0, event, b), 0, "a record is told");
	is_int(glake_stream_waited(ctx, 0, a, event), 0, "and a wait");
	is_int(glake_event_forget(ctx, 0, event), 0, "and the end of the event");
	is_int(glake_stream_waited(ctx, 0, a, event), 0, "then it tells nothing");
	is_int(glake_event_forget(ctx, 1, event), 0, "on a GPU where it is not known");
	is_int(glake_event_free(ctx, 0, event), 0, "it ends");
	is_int(glake_event_free(ctx, 0, NULL), 0, "no event to end");
	is_int(glake_stream_free(ctx, 0, a), 0, "a stream");
	is_int(glake_stream_free(ctx, 0, b), 0, "another one");
	is_int(glake_stream_free(ctx, 1, far), 0, "and the far one");
	flow_close(ctx, 2);
}

/* A block that a second stream uses, and one whose use an event tells of. */
static void uses(void)
{
	struct glake *ctx = flow_open(late);
	struct CUstream_st *a = new_stream(ctx, 0), *b = new_stream(ctx, 0);
	struct CUstream_st *far = new_stream(ctx, 1);
	struct CUevent_st *events[2] = {new_event(ctx, 0), new_event(ctx, 1)};
	char *p = flow_alloc(ctx, 9 * MIB, a);
	uint64_t waits;
	void *q = NULL;

	is_int(glake_use(ctx, p, a), 0, "used on its own stream");
	is_int(glake_use(ctx, p, b), 0, "used on another one");
	is_int(glake_use(ctx, p, b), 0, "twice");
	is_int(glake_free(ctx, p, a), 0, "freed");
	waits = flow_calls(ctx, GLAKE_CALL_STREAM_WAIT);
	ok(flow_alloc(ctx, 9 * MIB, a) == p, "its stream gets it again");
	is_int((int64_t)(flow_calls(ctx, GLAKE_CALL_STREAM_WAIT) - waits), 1,
		"behind the other one");
	is_int(glake_event_record(ctx, 0, events[0], b), 0, "an event");
	is_int(glake_event_record(ctx, 1, events[1], far), 0, "and one of another GPU");
	is_int(glake_free_after(ctx, p, events, 2), 0, "freed behind both");
	is_int((int64_t)flow_stats(ctx, 0).live_blocks, 0, "no block is live");
	is_int(glake_event_free(ctx, 0, events[0]), 0, "an event ends");
	is_int(glake_event_free(ctx, 1, events[1]), 0, "and the other");
	ok(flow_alloc(ctx, 9 * MIB, b) == p, "the memory goes on");
	is_int(glake_free_after(ctx, p, NULL, 0), 0, "freed behind nothing");
	ok(flow_alloc(ctx, 9 * MIB, a) == p, "and goes on");
	is_int(glake_alloc(ctx, 0, 4 * MIB, a, GLAKE_ALLOC_CONTIGUOUS, &q), 0,
		"a contiguous one");
	is_int(glake_use(ctx, q, b), 0, "used on another stream");
	is_int(glake_free(ctx, q, a), 0, "freed");
	is_int(glake_free(ctx, p, b), 0, "as is the other");
	is_int(glake_free_after(ctx, NULL, NULL, 0), 0, "freeing nothing");
	is_int(glake_stream_free(ctx, 0, a), 0, "a stream");
	is_int(glake_stream_free(ctx, 0, b), 0, "another one");
	is_int(glake_stream_free(ctx, 1, far), 0, "and the far one");
	flow_close(ctx, 0);
}

int main(void)
{
	tap_plan_later();
	ends();
	depends();
	uses();
	return tap_done();
}
