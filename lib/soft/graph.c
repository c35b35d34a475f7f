/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Graphs: their capture, their nodes and their launches.
 *
 * Capture: which streams take part, and what breaks it. As CUDA has it (driver 580.159): an event
 * recorded on a capturing stream stands for a place in the graph; a stream that waits for it joins;
 * whoever did work in the graph must be waited for before the end. A call that may not be, on a stream
 * or an event of a capture, is refused and breaks the capture, which is then good for nothing but its
 * end. Two things are stricter: the events of the library may not be recorded on a capturing stream
 * at all, for there they would tell nothing; and a capturing stream cannot be freed.
 *
 * What is captured is judged at once against the nodes that no path orders; what is launched is judged
 * like any other work, for what is mapped, for rights and for races with what is queued. A launch
 * queues one operation a node, in the order of capture or, where streams run at random, in any order
 * that the paths allow. Either all are queued or none.
 *
 * Cost		a capture: for each node a comparison with those it is not ordered behind
 */
#include "soft/graph.h"

#include "base/error.h"

#include <errno.h>
#include <string.h>

static struct soft_graph *graph_of(const struct soft *soft, uint32_t stream)
{
	return soft_graph_at(soft, soft_stream_at(soft, stream)->graph);
}

static bool is_work(const struct soft_op *op)
{
	return op->kind != SOFT_RECORD && op->size;
}

/* The first node captured, and not ordered before the end of a branch, that an operation there
 * may not stand beside; or 0. */
static uint32_t rival(const struct soft *soft, const struct soft_graph *graph,
	const struct soft_branch *branch, const struct soft_op *op)
{
	uint32_t found = 0;

	for (uint32_t b = 0; b < graph->branches; b++) {
		uint32_t id = graph->branch[b].last;

		for (; id; id = soft_node_at(soft, id)->below) {
			const struct soft_node *node = soft_node_at(soft, id);

			if (node->place <= branch->before[b])
				break;
			if (glk_soft_race_collide(soft, op, &node->op))
				found = id;
		}
		if (found)
			break;
	}
	return found;
}

static int report(const struct soft *soft, uint32_t stream, const struct soft_op *op,
	const struct soft_node *other)
{
	return glk_error(-EINVAL, GLAKE_ERROR_INVAL,
		"stream order rule: a %s of %zu bytes at %#lx on stream %u touches what a %s of "
		"%zu bytes at %#lx on stream %u does, and no path in the graph orders them",
		glk_soft_kind_name(op->kind), op->size,
		(unsigned long)(op->dst ? op->dst : op->src), stream,
		glk_soft_kind_name(other->op.kind), other->op.size,
		(unsigned long)(other->op.dst ? other->op.dst : other->op.src),
		other->op.stream);
}

static void append(struct soft *soft, struct soft_graph *graph, uint32_t b, uint32_t id)
{
	struct soft_branch *branch = &graph->branch[b];
	struct soft_node *node = soft_node_at(soft, id);

	node->next = node->above = 0;
	node->below = branch->last;
	node->branch = b;
	node->place = branch->nodes + 1;
	memcpy(node->before, branch->before, sizeof(node->before));
	if (branch->last)
		soft_node_at(soft, branch->last)->above = id;
	else
		branch->first = id;
	branch->last = id;
	branch->before[b] = branch->nodes = node->place;
	if (is_work(&node->op))
		branch->work = node->place;
	if (graph->last)
		soft_node_at(soft, graph->last)->next = id;
	else
		graph->first = id;
	graph->last = id;
	graph->nodes++;
}

int glk_soft_graph_add(struct soft *soft, uint32_t stream, const struct soft_op *op,
	const char *call, uint32_t *ret_node)
{
	const struct soft_stream *s = soft_stream_at(soft, stream);
	struct soft_graph *graph = soft_graph_at(soft, s->graph);
	struct soft_node *node;
	uint32_t id;

	if (graph->broken)
		return glk_soft_capture_broken(graph, call);
	if (graph->nodes == SOFT_GRAPH_NODES)
		return glk_error(-ENOMEM, GLAKE_ERROR_LIMIT,
			"a graph of the software device has %u nodes at most",
			SOFT_GRAPH_NODES);
	id = rival(soft, graph, &graph->branch[s->branch], op);
	if (id)
		return report(soft, stream, op, soft_node_at(soft, id));
	id = glk_slab_get(&soft->graph_nodes);
	if (!id)
		return -ENOMEM;
	node = soft_node_at(soft, id);
	node->op = *op;
	node->op.stream = stream;
	node->device = s->device;
	append(soft, graph, s->branch, id);
	*ret_node = id;
	return 0;
}

/* Ends a graph with all its nodes. */
static void end_graph(struct soft *soft, uint32_t id)
{
	struct soft_graph *graph = soft_graph_at(soft, id);

	for (uint32_t node = graph->first, next; node; node = next) {
		next = soft_node_at(soft, node)->next;
		glk_slab_put(&soft->graph_nodes, node);
	}
	graph->live = false;
	glk_slab_put(&soft->graphs, id);
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
	glk_soft_stream_calm(soft, stream);
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
		err = glk_soft_capture_break(soft, origin, call, SOFT_MERGE,
			"for an event of another capture would make one of two");
		glk_soft_capture_break(soft, stream, call, SOFT_MERGE,
			"for an event of another capture would make one of two");
		return err;
	}
	if (graph->broken)
		return glk_soft_capture_broken(graph, call);
	/* The legacy stream of GPU n is slot n + 1. */
	if (stream <= (uint32_t)soft->gpus)
		return glk_soft_capture_break(soft, origin, call, SOFT_IMPLICIT,
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
	return glk_soft_capture_break(soft, stream, call, SOFT_ISOLATION,
		"in a capture, for an event that was recorded outside of it");
}

static int begin(struct soft *soft, uint32_t stream)
{
	struct soft_stream *s = soft_stream_at(soft, stream);
	struct soft_graph *graph;
	uint32_t id;

	if (stream <= (uint32_t)soft->gpus)
		return glk_error_native(-EINVAL, GLAKE_ERROR_INVAL,
			"cuStreamBeginCapture", SOFT_UNSUPPORTED,
			"the legacy stream cannot capture");
	if (s->graph)
		return glk_error_native(-EINVAL, GLAKE_ERROR_INVAL,
			"cuStreamBeginCapture", SOFT_ILLEGAL_STATE,
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
			SOFT_INVALIDATED, "the capture was broken by %s", graph->broken);
	for (uint32_t b = 1; b < graph->branches; b++)
		if (graph->branch[b].work > origin->before[b])
			return glk_error_native(-EIO, GLAKE_ERROR_CAPTURE,
				"cuStreamEndCapture", SOFT_UNJOINED,
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
			SOFT_ILLEGAL_STATE, "the stream captures no graph");
	if (graph->branch[0].stream != stream) {
		if (!graph->broken)
			graph->broken = "cuStreamEndCapture";
		return glk_error_native(-EIO, GLAKE_ERROR_CAPTURE, "cuStreamEndCapture",
			SOFT_UNMATCHED,
			"the capture began on stream %u, not on stream %u",
			graph->branch[0].stream, stream);
	}
	err = verdict(graph);
	graph->capturing = false;
	for (uint32_t b = 0; b < graph->branches; b++) {
		soft_stream_at(soft, graph->branch[b].stream)->graph = 0;
		glk_soft_stream_calm(soft, graph->branch[b].stream);
	}
	if (err)
		end_graph(soft, id);
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

static struct soft_graph *find(struct soft *soft, uint32_t handle, const char *call)
{
	uint32_t id = handle & SOFT_GRAPHS;
	struct soft_graph *graph = soft_graph_at(soft, id);

	if (id && graph->live && !graph->capturing &&
		(graph->gen << SOFT_GRAPH_BITS | id) == handle)
		return graph;
	glk_error_native(-EINVAL, GLAKE_ERROR_INVAL, call, 400,
		"%#x is no graph of the software device, or was freed", handle);
	return NULL;
}

/* Whether all of it may run now, behind what the stream has queued. */
static int launch_refuse(
	struct soft *soft, const struct soft_graph *graph, uint32_t stream)
{
	const struct soft_node *node;
	int err = 0;

	glk_soft_race_reach(soft, stream, graph->op, graph->serial);
	for (uint32_t id = graph->first; id && !err; id = node->next) {
		node = soft_node_at(soft, id);
		if (!is_work(&node->op))
			continue;
		err = glk_soft_access_judge(
			soft, node->device, &node->op, "cuGraphLaunch");
		if (!err)
			err = glk_soft_race_judge(soft, stream, &node->op);
	}
	/* One more for the wait. */
	return err ? err : glk_soft_queue_room(soft, graph->nodes + 1);
}

static void launch_node(struct soft *soft, struct soft_graph *graph, uint32_t stream,
	const struct soft_node *node)
{
	if (!is_work(&node->op))
		return;
	graph->op = glk_soft_queue_put(soft, stream, &node->op);
	graph->serial = graph->op ? soft_op_at(soft, graph->op)->serial : 0;
}

static bool is_ready(const struct soft_node *node, const uint32_t done[SOFT_BRANCHES])
{
	for (uint32_t b = 0; b < SOFT_BRANCHES; b++)
		if (done[b] < node->before[b])
			return false;
	return true;
}

/* In an order that the paths allow: a branch that can go on is chosen, and its next node put. */
static void launch_shuffled(struct soft *soft, struct soft_graph *graph, uint32_t stream)
{
	uint32_t next[SOFT_BRANCHES], done[SOFT_BRANCHES] = {0}, ready[SOFT_BRANCHES];

	for (uint32_t b = 0; b < graph->branches; b++)
		next[b] = graph->branch[b].first;
	for (uint32_t left = graph->nodes; left; left--) {
		uint32_t ways = 0, b;

		for (b = 0; b < graph->branches; b++)
			if (next[b] && is_ready(soft_node_at(soft, next[b]), done))
				ready[ways++] = b;
		b = ready[glk_soft_queue_roll(soft, ways)];
		launch_node(soft, graph, stream, soft_node_at(soft, next[b]));
		done[b]++;
		next[b] = soft_node_at(soft, next[b])->above;
	}
}

/* Cannot fail: there is room, and what runs at once does not fail either. */
static void launch(struct soft *soft, struct soft_graph *graph, uint32_t stream)
{
	struct soft_op wait = {
		.kind = SOFT_WAIT, .target = graph->op, .target_serial = graph->serial};
	const struct soft_node *node;

	if (!glk_soft_queue_is_done(soft, graph->op, graph->serial) &&
		soft_op_at(soft, graph->op)->stream != stream)
		glk_soft_queue_put(soft, stream, &wait);
	if (soft->random) {
		launch_shuffled(soft, graph, stream);
		return;
	}
	for (uint32_t id = graph->first; id; id = node->next) {
		node = soft_node_at(soft, id);
		launch_node(soft, graph, stream, node);
	}
}

int glk_soft_graph_launch(
	struct glk_drv *drv, uint32_t handle, int device, struct CUstream_st *stream)
{
	struct soft *soft = glk_soft_below(drv);
	struct soft_graph *graph;
	int err = -EINVAL;
	uint32_t id;

	if (!soft)
		return err;
	glk_soft_enter(soft);
	graph = find(soft, handle, "cuGraphLaunch");
	if (graph)
		err = glk_soft_stream_find(soft, device, stream, "cuGraphLaunch", &id);
	if (!err)
		err = glk_soft_stream_usable(soft, id, "cuGraphLaunch");
	if (!err)
		err = launch_refuse(soft, graph, id);
	if (!err)
		launch(soft, graph, id);
	glk_unlock(&soft->lock);
	return err;
}

int glk_soft_graph_free(struct glk_drv *drv, uint32_t handle)
{
	struct soft *soft = glk_soft_below(drv);
	const struct soft_graph *graph;

	if (!soft)
		return -EINVAL;
	glk_soft_enter(soft);
	graph = find(soft, handle, "cuGraphDestroy");
	if (graph)
		end_graph(soft, handle & SOFT_GRAPHS);
	glk_unlock(&soft->lock);
	return graph ? 0 : -EINVAL;
}
