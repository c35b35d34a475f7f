/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Graphs of the software device: what a capture puts into them, and what launches do. */
#include "queues.h"

#include "base/slab.h"

static uint32_t graph;

static int launch(int stream)
{
	return glk_soft_graph_launch(drv, graph, 0, streams[stream]);
}

/* The end of a capture that is meant to give a graph. */
static void finish(void)
{
	if (end(0, &graph))
		tap_bail(setup_error().text);
}

static void let_go(void)
{
	glk_soft_run_all(drv);
	is_int(glk_soft_graph_free(drv, graph), 0, "the graph goes");
}

static void replays(void)
{
	begin(0);
	fill(0, 0, 7);
	drv->ops->copy(drv, base + GRANULE, base, WORD, streams[0]);
	record(0, 0);
	wait_for(1, 0);
	drv->ops->copy(drv, base + 64, alias + GRANULE, WORD, streams[1]);
	record(1, 1);
	wait_for(0, 1);
	fill(0, 16, 8);
	work(0, base, 64, false);
	finish();
	is_int(pending(0) + pending(1), 0, "nothing is queued");
	is_int(word(0) + word(16), 0, "nothing has run");
	is_int(launch(2), 0, "a launch");
	is_int(pending(2), 5, "queues an operation a node");
	is_int(word(0), 0, "which have not run");
	glk_soft_step(drv, 0, streams[2]);
	is_int(word(0), 7, "the fill runs");
	glk_soft_step(drv, 0, streams[2]);
	is_int(word(GRANULE / WORD), 7, "the copy");
	glk_soft_step(drv, 0, streams[2]);
	is_int(word(16), 7, "that of the other stream");
	is_int(drv->ops->stream_sync(drv, 0, streams[2]), 0, "and the rest");
	is_int(word(16), 8, "in the order of the graph");
	is_int(fill(3, 0, 1) | fill(3, 16, 1), 0, "all is overwritten");
	drv->ops->device_sync(drv, 0);
	is_int(launch(3), 0, "and launched again, on another stream");
	is_int(launch(3), 0, "twice");
	drv->ops->device_sync(drv, 0);
	is_int(word(0), 7, "it does the same");
	is_int(word(16), 8, "all of it");
	is_int(glk_soft_graph_launch(drv, graph, 0, NULL), 0, "on the default stream");
	is_int(glk_soft_graph_launch(drv, graph, 0, GLK_STREAM_PER_THREAD), 0,
		"on the thread's own");
	let_go();
}

/* Inside of a graph no order of time holds, only paths. */
static void races_inside(void)
{
	begin(0);
	record(0, 0);
	wait_for(1, 0);
	is_int(work(0, base + 1024, 512, true), 0, "stream 0 writes");
	breaks(work(1, alias + 1024, 512, false), -EINVAL,
		"stream order rule: a kernel of 512");
	has_str(setup_error().text, "on stream 4 touches", "names the new side");
	has_str(setup_error().text, "on stream 3 does, and no path in the graph",
		"and the other");
	is_int(fill(1, 1024 / WORD, 1), -EINVAL, "nor may stream 1 write");
	is_int(work(1, base + 1536, 512, true), 0, "the next byte is free");
	is_int(work(0, base + 1024, 512, true), 0, "the same stream may");
	record(0, 1);
	wait_for(1, 1);
	is_int(work(1, alias + 1024, 512, true), 0, "who waits for it may");
	is_int(work(0, base + 1024, 1, false), -EINVAL, "and then the first may not");
	is_int(work(0, base + 1536, 1, false), -EINVAL, "nor read");
	is_int(work(0, base, 64, false), 0, "two may read");
	is_int(work(1, base, 64, false), 0, "the same bytes");
	is_int(work(1, base, 64, true), -EINVAL, "and none write");
	record(1, 1);
	wait_for(0, 1);
	is_int(work(0, base, SPAN, true), 0, "joined, all is free");
	ok(capture_of(0) != GLK_CAPTURE_BROKEN, "a refused kernel breaks nothing");
	finish();
	is_int(launch(0), 0, "the graph has what was not refused");
	is_int(pending(0), 7, "and no more");
	let_go();

	/* A replay is other work, but not beside itself. */
	is_int(work(0, base, 64, true), 0, "work before a capture");
	begin(1);
	is_int(work(1, base, 64, true), 0, "does not meet what is captured");
	is_int(end(1, &graph), 0, "  its end");
	breaks(launch(1), -EINVAL, "stream order rule: a kernel of 64");
	is_int(pending(1), 0, "but its launch");
	record(0, 0);
	wait_for(1, 0);
	is_int(launch(1), 0, "which has to wait");
	breaks(work(2, base, 4, false), -EINVAL, "stream order rule");
	is_int(launch(2), 0, "a launch of the same graph is ordered");
	is_int(pending(2), 2, "by a wait of its own");
	is_int(glk_soft_step(drv, 0, streams[2]), -EAGAIN, "for the one before");
	is_int(work(1, base, 64, true), -EINVAL, "which holds for no other work");
	is_int(drv->ops->stream_sync(drv, 0, streams[2]), 0, "the host waits");
	is_int(pending(0) + pending(1), 0, "so all has run");
	let_go();
}

static void holds_memory(void)
{
	begin(0);
	fill(0, 5, 55);
	drv->ops->copy(drv, base + GRANULE, alias, 64, streams[0]);
	finish();
	is_int(page_unmap(), 0, "what a graph names may be unmapped");
	breaks(launch(0), -EINVAL, "cuGraphLaunch rule: GPU 0 may not write");
	has_str(setup_error().text, "nothing is mapped there", "and why");
	is_int(setup_error().native, 700, "its code");
	is_int(setup_error().error_class, GLAKE_ERROR_INVAL, "its class");
	is_int(pending(0), 0, "nothing of it is queued");
	page_map();
	is_int(launch(0), 0, "with another page there it runs");
	breaks(drv->ops->unmap(drv, base, SPAN), -EINVAL, "named by work not yet run");
	has_str(setup_error().text, "fill of 4 bytes", "the first of it");
	breaks(drv->ops->unmap(drv, alias, SPAN), -EINVAL, "a copy of 64 bytes");
	is_int(glk_soft_graph_free(drv, graph), 0, "the graph may go");
	breaks(drv->ops->unmap(drv, base, SPAN), -EINVAL, "named by work not yet run");
	glk_soft_run_all(drv);
	is_int(word(5), 55, "its work runs on");
	is_int(page_unmap(), 0, "and then the page is free");
	page_map();
}

static void knows_its_handles(void)
{
	uint32_t old;

	begin(0);
	finish();
	old = graph;
	is_int(launch(1), 0, "a graph of nothing");
	is_int(pending(1), 0, "does nothing");
	glk_soft_graph_free(drv, graph);
	breaks(glk_soft_graph_free(drv, graph), -EINVAL, "is no graph");
	breaks(launch(0), -EINVAL, "or was freed");
	begin(0);
	finish();
	ok(graph != old, "a place used again has another handle");
	breaks(glk_soft_graph_launch(drv, old, 0, streams[0]), -EINVAL, "was freed");
	breaks(glk_soft_graph_launch(drv, 0, 0, streams[0]), -EINVAL, "0 is no graph");
	breaks(glk_soft_graph_launch(drv, UINT32_MAX, 0, streams[0]), -EINVAL,
		"no graph");
	breaks(glk_soft_graph_launch(drv, graph, 1, streams[0]), -EINVAL, "not of GPU 1");
	let_go();
}

static void two_gpus(void)
{
	struct glk_grant both = setup_grant(1), none = {setup_gpu(1), GLK_ACCESS_NONE};
	struct CUstream_st *far = NULL;
	struct CUevent_st *event = NULL;

	drv->ops->stream_new(drv, 1, &far);
	drv->ops->user_event_new(drv, 1, &event);
	begin(0);
	record(0, 0);
	is_int(drv->ops->user_event_wait(drv, 1, far, events[0]), 0,
		"a stream of another GPU joins");
	breaks(drv->ops->fill(drv, base, 3, 1, far), -EINVAL, "GPU 1 may not write");
	is_int(drv->ops->set_access(drv, base, SPAN, &both, 1), 0, "given the right");
	is_int(drv->ops->fill(drv, base, 3, 1, far), 0, "it may");
	breaks(drv->ops->user_event_record(drv, 1, events[0], far), -EINVAL,
		"an event of GPU 0 cannot be recorded");
	is_int(drv->ops->user_event_record(drv, 1, event, far), 0, "its own can");
	is_int(drv->ops->user_event_wait(drv, 0, streams[0], event), 0, "it is joined");
	finish();
	is_int(launch(0), 0, "a launch");
	drv->ops->device_sync(drv, 0);
	is_int(word(0), 3, "works");
	drv->ops->set_access(drv, base, SPAN, &none, 1);
	breaks(launch(0), -EINVAL, "GPU 1 may not write");
	let_go();
	drv->ops->user_event_free(drv, event);
	drv->ops->stream_free(drv, 1, far);
}

/* Kernels, as many as there may be; the number there were. */
static int captured(void)
{
	int count = 0;

	begin(0);
	while (!work(0, base, 1, false))
		count++;
	return count;
}

static void limits(void)
{
	uint32_t graphs[9] = {0};
	int count = 0, err = 0;

	is_int(captured(), 16384, "the most nodes of a graph");
	is_int(setup_error().error_class, GLAKE_ERROR_LIMIT, "one more is a limit");
	breaks(record(0, 0), -ENOMEM, "has 16384 nodes at most");
	ok(capture_of(0) != GLK_CAPTURE_BROKEN, "which breaks nothing");
	finish();
	while (!err && count < 20) {
		err = launch(0);
		count += !err;
	}
	is_int(count, 15, "262144 operations queued, and room for one wait");
	is_int(err, -ENOMEM, "one more is a limit");
	is_int(pending(0), 15 * 16384, "of which nothing is queued");
	is_int(drv->ops->stream_sync(drv, 0, streams[0]), 0, "it runs");
	graphs[0] = graph;
	for (int i = 1; i < 8; i++) {
		captured();
		end(0, &graphs[i]);
	}
	is_int(captured(), 0, "eight such graphs are all there may be");
	is_int(setup_error().error_class, GLAKE_ERROR_LIMIT, "by a limit");
	end(0, &graphs[8]);
	for (int i = 0; i < 9; i++)
		err = glk_soft_graph_free(drv, graphs[i]);
	is_int(err, 0, "they go");
	is_int(captured(), 16384, "and there is room again");
	finish();
	let_go();
}

static void at_once(void)
{
	struct glk_conf conf = setup_conf();

	set_up(&conf);
	begin(0);
	fill(0, 0, 1);
	drv->ops->copy(drv, base + 8, base, WORD, streams[0]);
	finish();
	is_int(word(0), 0, "a worker does not run what is captured");
	is_int(launch(0), 0, "but what is launched");
	is_int(word(2), 1, "at once");
	glk_soft_hold(drv, 0, streams[0], true);
	launch(0);
	is_int(launch(1), 0, "behind a launch that is held");
	is_int(pending(1), 3, "a launch waits");
	glk_soft_hold(drv, 0, streams[0], false);
	is_int(pending(0) + pending(1), 0, "until that goes on");
	let_go();
	take_down();
}

int main(void)
{
	struct glk_conf conf = setup_conf();
	uint64_t before;

	tap_plan_later();
	glk_drv_close(setup_open(&conf));
	before = glk_region_bytes();
	conf.soft_streams = GLK_SOFT_STREAMS_STEPPED;
	set_up(&conf);
	replays();
	races_inside();
	holds_memory();
	knows_its_handles();
	two_gpus();
	limits();
	/* A graph and a capture that a program leaves behind. */
	begin(0);
	work(0, base, 64, true);
	finish();
	take_down();
	at_once();
	is_int((int64_t)glk_region_bytes(), (int64_t)before, "all is given back");
	return tap_done();
}
