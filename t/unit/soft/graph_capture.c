/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Capture on the software device: who joins, what breaks it, and what its end says. */
#include "queues.h"

static uint32_t graph;

/* Ends the capture of stream 0 and throws the graph away. */
static int ends(void)
{
	int err = end(0, &graph);

	return err ? err : glk_soft_graph_free(drv, graph);
}

static void begins(void)
{
	struct glk_stream_facts facts = {0};
	uint64_t first;

	graph = 5;
	breaks(end(0, &graph), -EINVAL, "captures no graph");
	is_int((int64_t)capture_of(0), 0, "nothing is captured");
	is_int(begin(0), 0, "a capture begins");
	first = capture_of(0);
	ok(first && first != GLK_CAPTURE_BROKEN, "and is seen");
	drv->ops->stream_facts(drv, 0, streams[0], &facts);
	is_int((int64_t)facts.id, 0, "the stream has no number meanwhile");
	is_int((int64_t)capture_of(1), 0, "others do not capture");
	breaks(begin(0), -EINVAL, "captures a graph already");
	is_int(graph, 5, "no graph yet");
	is_int(end(0, &graph), 0, "the end");
	ok(graph != 5 && graph, "gives a graph, though there is nothing in it");
	is_int((int64_t)capture_of(0), 0, "the capture is over");
	is_int(glk_soft_graph_free(drv, graph), 0, "the graph goes");
	begin(0);
	ok(capture_of(0) != first, "another capture has another number");
	ends();
	breaks(glk_soft_capture_begin(drv, 0, NULL), -EINVAL, "legacy stream cannot");
	breaks(glk_soft_capture_begin(drv, 1, GLK_STREAM_LEGACY), -EINVAL, "legacy");
	breaks(glk_soft_capture_begin(drv, 1, streams[0]), -EINVAL, "not of GPU 1");
	breaks(glk_soft_capture_end(drv, 0, NULL, &graph), -EINVAL, "captures no graph");
	is_int(glk_soft_capture_begin(drv, 0, GLK_STREAM_PER_THREAD), 0,
		"the thread's own stream may");
	is_int(glk_soft_capture_end(drv, 0, GLK_STREAM_PER_THREAD, &graph), 0,
		"and ends");
	glk_soft_graph_free(drv, graph);
}

/* What may be called beside a capture, and what may be put into it. */
static void harmless(void)
{
	uint64_t addr = 0, other = 0;
	struct glk_drv_event *event = NULL;

	drv->ops->event_new(drv, 0, &event);
	begin(0);
	is_int(work(0, base, 64, true), 0, "kernels go into the graph");
	is_int(fill(0, 1, 1), 0, "so do fills");
	is_int(drv->ops->copy(drv, base + 8, base, 4, streams[0]), 0, "and copies");
	is_int(pending(0), 0, "and not into the queue");
	is_int(drv->ops->event_query(drv, event), 0, "queries of other events are right");
	is_int(drv->ops->event_record(drv, event, streams[1]), 0,
		"records elsewhere too");
	is_int(drv->ops->stream_wait(drv, streams[2], event), 0, "and waits");
	is_int(drv->ops->stream_sync(drv, 0, streams[2]), 0, "and syncs");
	is_int(drv->ops->reserve(drv, GRANULE, 0, &addr), 0, "and all calls on memory");
	is_int(drv->ops->create(drv, setup_gpu(0), GRANULE, 0, &other), 0, "  create");
	is_int(drv->ops->map(drv, addr, GRANULE, other), 0, "  map");
	is_int(drv->ops->set_access(drv, addr, GRANULE, &grant, 1), 0, "  rights");
	is_int(drv->ops->unmap(drv, addr, GRANULE), 0, "  unmap");
	is_int(drv->ops->release(drv, other), 0, "  release");
	is_int(drv->ops->unreserve(drv, addr, GRANULE), 0, "  unreserve");
	is_int(drv->ops->stream_owner(drv, 0, streams[0]), 0, "  whose the stream is");
	breaks(work(0, base + 4 * GRANULE, 8 * GRANULE, true), -EINVAL,
		"nothing is mapped there");
	is_int(ends(), 0, "the capture ends well");
	drv->ops->event_free(drv, event);
}

static void spoils_it(int err, int want, int native, const char *what)
{
	struct glake_error error = setup_error();

	is_int(err, want, what);
	is_int(error.native, native, "  its code");
	is_int(error.error_class,
		want == -EBUSY ? GLAKE_ERROR_CAPTURE : GLAKE_ERROR_INVAL, "  its class");
	ok(capture_of(0) == GLK_CAPTURE_BROKEN, "  the capture is broken");
	is_int(fill(0, 0, 1), -EBUSY, "  work is refused");
	is_int(setup_error().native, 901, "  because of that");
	is_int(record(0, 3), -EBUSY, "  so is a record");
	is_int(wait_for(0, 2), -EBUSY, "  and a wait");
	graph = 5;
	breaks(end(0, &graph), -EIO, "the capture was broken by cu");
	is_int(setup_error().error_class, GLAKE_ERROR_CAPTURE, "  its class");
	is_int(graph, 5, "  there is no graph");
	is_int((int64_t)capture_of(0), 0, "  the stream is free");
	is_int(fill(0, 0, 1), 0, "  and works again");
	drv->ops->device_sync(drv, 0);
}

#define spoils(call, native)                                                             \
	do {                                                                             \
		begin(0);                                                                \
		spoils_it(call, -EBUSY, native, #call);                                  \
	} while (0)

/* Event 2 is never recorded. */
static void broken_by_calls(void)
{
	struct glk_drv_event *event = NULL;
	uint32_t empty = 0;

	drv->ops->event_new(drv, 0, &event);
	begin(1);
	end(1, &empty);
	spoils(drv->ops->event_record(drv, event, streams[0]), 900);
	spoils(drv->ops->stream_wait(drv, streams[0], event), 900);
	spoils(drv->ops->stream_sync(drv, 0, streams[0]), 900);
	spoils(drv->ops->device_sync(drv, 0), 900);
	spoils(drv->ops->stream_free(drv, 0, streams[0]), 900);
	spoils(glk_soft_graph_launch(drv, empty, 0, streams[0]), 900);
	glk_soft_graph_free(drv, empty);
	drv->ops->event_free(drv, event);
}

static void isolated(void)
{
	begin(0);
	is_int(wait_for(0, 2), 0, "an event never recorded is waited for in vain");
	is_int(ends(), 0, "and in peace");
	record(1, 0);
	spoils(wait_for(0, 0), 905);
	drv->ops->device_sync(drv, 0);
	spoils(wait_for(0, 0), 905); /* also when it has passed */

	begin(0);
	record(0, 0);
	is_int(record(1, 0), 0, "an event of a capture is recorded elsewhere");
	spoils_it(wait_for(0, 0), -EBUSY, 905, "and is outside then");

	begin(0);
	record(0, 0);
	is_int(ends(), 0, "a capture with an event");
	breaks(wait_for(1, 0), -EINVAL, "for an event of a capture that has ended");
	is_int((int64_t)capture_of(1), 0, "nobody joins it any more");
	begin(0);
	spoils_it(wait_for(0, 0), -EBUSY, 1, "in the next capture");
	is_int(record(1, 0), 0, "recorded again");
	is_int(wait_for(2, 0), 0, "it is as good as new");
	drv->ops->device_sync(drv, 0);

	begin(0);
	record(0, 0);
	spoils_it(drv->ops->user_event_wait(drv, 0, NULL, events[0]), -EBUSY, 906,
		"the legacy stream cannot join");
}

static void two_captures(void)
{
	uint32_t other = 5;

	begin(0);
	begin(1);
	ok(capture_of(0) != capture_of(1), "two captures at once");
	record(0, 0);
	is_int(wait_for(1, 0), -EBUSY, "they may not be made one");
	is_int(setup_error().native, 902, "  its code");
	ok(capture_of(0) == GLK_CAPTURE_BROKEN, "  one is broken");
	ok(capture_of(1) == GLK_CAPTURE_BROKEN, "  and the other");
	is_int(end(0, &graph), -EIO, "one ends");
	is_int(end(1, &other), -EIO, "and the other");
	is_int(other, 5, "without a graph");
}

static void joins(void)
{
	begin(0);
	fill(0, 0, 1);
	record(0, 0);
	is_int(wait_for(1, 0), 0, "a stream waits for an event of the capture");
	ok(capture_of(1) && capture_of(1) == capture_of(0), "and joins it");
	is_int(fill(1, 1, 2), 0, "it works there");
	is_int(pending(1), 0, "and not in its queue");
	is_int(end(0, &graph), -EIO, "it was not waited for");
	is_int(setup_error().native, 904, "  its code");
	has_str(setup_error().text, "stream 4 of the capture did work that stream 3",
		"names both");
	is_int((int64_t)capture_of(1), 0, "it is free again");

	begin(0);
	record(0, 0);
	wait_for(1, 0);
	fill(1, 1, 2);
	record(1, 1);
	wait_for(2, 1);
	fill(2, 2, 3);
	record(2, 1);
	is_int(wait_for(0, 1), 0, "joined by way of another");
	is_int(record(1, 1), 0, "with an event behind");
	is_int(wait_for(2, 1), 0, "and a wait");
	is_int(wait_for(3, 1), 0, "or a stream that does nothing there");
	ok(capture_of(3) == capture_of(0), "though it takes part");
	is_int(ends(), 0, "which is enough");
	is_int((int64_t)capture_of(3), 0, "it is free again");

	begin(0);
	record(0, 0);
	wait_for(1, 0);
	breaks(end(1, &graph), -EIO, "began on stream 3, not on stream 4");
	is_int(setup_error().native, 903, "  its code");
	ok(capture_of(0) == GLK_CAPTURE_BROKEN && capture_of(1) == GLK_CAPTURE_BROKEN,
		"  which breaks it for all");
	is_int(begin(1), -EINVAL, "  and ends it for none");
	is_int(end(0, &graph), -EIO, "only where it began");
	is_int((int64_t)capture_of(1), 0, "for all");
	begin(0);
	record(0, 0);
	wait_for(1, 0);
	is_int(drv->ops->stream_sync(drv, 0, streams[1]), -EBUSY, "one who joined errs");
	ok(capture_of(0) == GLK_CAPTURE_BROKEN, "for all");
	breaks(end(0, &graph), -EIO, "broken by cuStreamSynchronize");
}

static void most_streams(void)
{
	struct CUstream_st *extra[32] = {NULL};
	int count = 0, err = 0;

	begin(0);
	record(0, 0);
	for (int i = 0; i < 32; i++) {
		drv->ops->stream_new(drv, 0, &extra[i]);
		if (!err)
			err = drv->ops->user_event_wait(drv, 0, extra[i], events[0]);
		count += !err;
	}
	is_int(count, 31, "32 streams in a capture");
	is_int(err, -ENOMEM, "one more is a limit");
	is_int(setup_error().error_class, GLAKE_ERROR_LIMIT, "by its class");
	is_int(ends(), 0, "which breaks nothing");
	for (int i = 0; i < 32; i++)
		drv->ops->stream_free(drv, 0, extra[i]);
}

static void most_graphs(void)
{
	static uint32_t graphs[1024];
	int count = 0, err = 0;

	while (!err && count < 1024) {
		err = begin(0);
		if (!err)
			err = end(0, &graphs[count]);
		count += !err;
	}
	is_int(count, 1023, "1023 graphs");
	is_int(err, -ENOMEM, "one more is a limit");
	is_int(setup_error().error_class, GLAKE_ERROR_LIMIT, "by its class");
	while (count)
		err = glk_soft_graph_free(drv, graphs[--count]);
	is_int(err, -0, "they go");
	is_int(begin(0), 0, "and there is room again");
	ends();
}

int main(void)
{
	struct glk_conf conf = setup_conf();

	tap_plan_later();
	conf.soft_streams = GLK_SOFT_STREAMS_STEPPED;
	set_up(&conf);
	begins();
	harmless();
	broken_by_calls();
	isolated();
	two_captures();
	joins();
	most_streams();
	most_graphs();
	take_down();
	return tap_done();
}
