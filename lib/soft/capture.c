/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The capture of graphs: which streams take part, and what breaks it. As CUDA has it (driver
 * 580.159): an event recorded on a capturing stream stands for a place in the graph; a stream
 * that waits for it joins; whoever did work in the graph must be waited for before the end.
 * A call that may not be, on a stream or an event of a capture, is refused and breaks the
 * capture, which is then good for nothing but its end.
 *
 * Two things are stricter: the events of the library may not be recorded on a capturing stream
 * at all, for there they would tell nothing; and a capturing stream cannot be freed.
 */
#include "soft/graph.h"

#include "base/error.h"

#include <errno.h>

enum {
	ILLEGAL_STATE = 401,
	UNSUPPORTED = 900,
	INVALIDATED = 901,
	MERGE = 902,
	UNMATCHED = 903,
	UNJOINED = 904,
	ISOLATION = 905,
	IMPLICIT = 906,
};

static struct soft_graph *graph_of(const struct soft *soft, uint32_t stream)
{
	return soft_graph_at(soft, soft_stream_at(soft, stream)->graph);
}

int glk_soft_capture_broken(const struct soft_graph *graph, const char *call)
{
	return glk_error_native(-EBUSY, GLAKE_ERROR_CAPTURE, call, INVALIDATED,
		"%s on a stream whose capture was broken by %s and not ended yet", call,
		graph->broken);
}

int glk_soft_capture_break(
	struct soft *soft, uint32_t stream, const char *call, int native, const char *why)
{
	struct soft_graph *graph = graph_of(soft, stream);

	if (graph->broken)
		return glk_soft_capture_broken(graph, call);
	graph->broken = call;
	return glk_error_native(
		-EBUSY, GLAKE_ERROR_CAPTURE, call, native, "%s %s", call, why);
}

int glk_soft_stream_usable(struct soft *soft, uint32_t stream, const char *call)
{
	if (!soft_stream_at(soft, stream)->graph)
		return 0;
	return glk_soft_capture_break(soft, stream, call, UNSUPPORTED,
		"is not allowed while the stream captures a graph");
}

static int join(struct soft *soft, uint32_t id, uint32_t stream)
{
	struct soft_graph *graph = soft_graph_at(soft, id);
	struct soft_stream *s = soft_stream_at(soft, stream);

	if (graph->branches == SOFT_BRANCHES)
		return glk_error(-ENOMEM, GLAKE_ERROR_LIMIT,
			"a capture of the software device has %u streams at most",
			SOFT_BRANCHES);
	s->graph = id;
	s->branch = graph->branches++;
	graph->branch[s->branch] = (struct soft_branch){.stream = stream};
	return 0;
}

int glk_soft_capture_record(struct soft *soft, uint32_t stream, struct soft_event *e)
{
	struct soft_op op = {.kind = SOFT_RECORD};
	uint32_t node;
	int err;

	err = glk_soft_graph_add(soft, stream, &op, "cuEventRecord", &node);
	if (err)
		return err;
	e->capture = graph_of(soft, stream)->capture;
	e->graph = soft_stream_at(soft, stream)->graph;
	e->node = node;
	return 0;
}

/* What is ordered before a node, and the node itself, is ordered before the end of a branch. */
static void follow(struct soft_branch *branch, const struct soft_node *node)
{
	for (uint32_t b = 0; b < SOFT_BRANCHES; b++)
		if (branch->before[b] < node->before[b])
			branch->before[b] = node->before[b];
	if (branch->before[node->branch] < node->place)
		branch->before[node->branch] = node->place;
}

/* An event of a capture that goes on. */
static int wait_inside(struct soft *soft, uint32_t stream, const struct soft_event *e)
{
	static const char call[] = "cuStreamWaitEvent";
	const struct soft_stream *s = soft_stream_at(soft, stream);
	struct soft_graph *graph = soft_graph_at(soft, e->graph);
	uint32_t origin = graph->branch[0].stream;
	int err = 0;

	if (s->graph && s->graph != e->graph) {
		err = glk_soft_capture_break(soft, origin, call, MERGE,
			"for an event of another capture would make one of two");
		glk_soft_capture_break(soft, stream, call, MERGE,
			"for an event of another capture would make one of two");
		return err;
	}
	if (graph->broken)
		return glk_soft_capture_broken(graph, call);
	/* The legacy stream of GPU n is slot n + 1. */
	if (stream <= (uint32_t)soft->gpus)
		return glk_soft_capture_break(soft, origin, call, IMPLICIT,
			"on the legacy stream cannot join a capture");
	if (!s->graph)
		err = join(soft, e->graph, stream);
	if (!err)
		follow(&graph->branch[s->branch], soft_node_at(soft, e->node));
	return err;
}

int glk_soft_capture_wait(struct soft *soft, uint32_t stream, const struct soft_event *e)
{
	static const char call[] = "cuStreamWaitEvent";
	const struct soft_stream *s = soft_stream_at(soft, stream);
	const struct soft_graph *graph = soft_graph_at(soft, e->graph);

	if (e->capture && graph->capturing && graph->capture == e->capture)
		return wait_inside(soft, stream, e);
	if (e->capture) {
		if (s->graph)
			return glk_soft_capture_break(soft, stream, call, 1,
				"for an event of a capture that has ended");
		return glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, call, 1,
			"%s for an event of a capture that has ended", call);
	}
	if (graph_of(soft, stream)->broken)
		return glk_soft_capture_broken(graph_of(soft, stream), call);
	if (!e->recorded)
		return 0;
	return glk_soft_capture_break(soft, stream, call, ISOLATION,
		"in a capture, for an event that was recorded outside of it");
}

static int begin(struct soft *soft, uint32_t stream)
{
	struct soft_stream *s = soft_stream_at(soft, stream);
	struct soft_graph *graph;
	uint32_t id;

	if (stream <= (uint32_t)soft->gpus)
		return glk_error_native(-EINVAL, GLAKE_ERROR_INVAL,
			"cuStreamBeginCapture", UNSUPPORTED,
			"the legacy stream cannot capture");
	if (s->graph)
		return glk_error_native(-EINVAL, GLAKE_ERROR_INVAL,
			"cuStreamBeginCapture", ILLEGAL_STATE,
			"the stream captures a graph already");
	id = glk_slab_get(&soft->graphs);
	if (!id)
		return -ENOMEM;
	graph = soft_graph_at(soft, id);
	*graph = (struct soft_graph){.capture = glk_soft_stream_number(),
		.gen = graph->gen + 1,
		.live = true,
		.capturing = true};
	return join(soft, id, stream);
}

int glk_soft_capture_begin(struct glk_drv *drv, int device, struct CUstream_st *stream)
{
	struct soft *soft = glk_soft_below(drv);
	uint32_t id;
	int err;

	if (!soft)
		return -EINVAL;
	glk_soft_enter(soft);
	err = glk_soft_stream_find(soft, device, stream, "cuStreamBeginCapture", &id);
	if (!err)
		err = begin(soft, id);
	glk_unlock(&soft->lock);
	return err;
}

/* Whether the capture gives a graph. */
static int verdict(const struct soft_graph *graph)
{
	const struct soft_branch *origin = &graph->branch[0];

	if (graph->broken)
		return glk_error_native(-EIO, GLAKE_ERROR_CAPTURE, "cuStreamEndCapture",
			INVALIDATED, "the capture was broken by %s", graph->broken);
	for (uint32_t b = 1; b < graph->branches; b++)
		if (graph->branch[b].work > origin->before[b])
			return glk_error_native(-EIO, GLAKE_ERROR_CAPTURE,
				"cuStreamEndCapture", UNJOINED,
				"stream %u of the capture did work that stream %u, on which it "
				"began, has not waited for",
				graph->branch[b].stream, origin->stream);
	return 0;
}

static int end(struct soft *soft, uint32_t stream, uint32_t *ret_graph)
{
	uint32_t id = soft_stream_at(soft, stream)->graph;
	struct soft_graph *graph = soft_graph_at(soft, id);
	int err;

	if (!id)
		return glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, "cuStreamEndCapture",
			ILLEGAL_STATE, "the stream captures no graph");
	if (graph->branch[0].stream != stream) {
		if (!graph->broken)
			graph->broken = "cuStreamEndCapture";
		return glk_error_native(-EIO, GLAKE_ERROR_CAPTURE, "cuStreamEndCapture",
			UNMATCHED, "the capture began on stream %u, not on stream %u",
			graph->branch[0].stream, stream);
	}
	err = verdict(graph);
	graph->capturing = false;
	for (uint32_t b = 0; b < graph->branches; b++)
		soft_stream_at(soft, graph->branch[b].stream)->graph = 0;
	if (err)
		glk_soft_graph_end(soft, id);
	else
		*ret_graph = graph->gen << SOFT_GRAPH_BITS | id;
	return err;
}

int glk_soft_capture_end(
	struct glk_drv *drv, int device, struct CUstream_st *stream, uint32_t *ret_graph)
{
	struct soft *soft = glk_soft_below(drv);
	uint32_t id;
	int err;

	if (!soft)
		return -EINVAL;
	glk_soft_enter(soft);
	err = glk_soft_stream_find(soft, device, stream, "cuStreamEndCapture", &id);
	if (!err)
		err = end(soft, id, ret_graph);
	glk_unlock(&soft->lock);
	return err;
}
