/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the arena of a pool of graphs does otherwise than others: see graph.h. No wait of ours can
 * be in a graph, so its memory goes to another stream only when it is known to have finished.
 */
#include "cache/graph/graph.h"

#include <stddef.h>

struct glk_graph *glk_graph_of(const struct glk_arena *arena)
{
	return (struct glk_graph *)((char *)arena - offsetof(struct glk_graph, arena));
}

static bool may(struct glk_arena *arena, const struct glk_request *request,
	const struct glk_use *use, unsigned *ret_waits)
{
	*ret_waits = 0;
	/* what a capture freed on a stream of the crowd never settles: see glk_graph_note() */
	if (request->stream->bit != GLK_STREAM_CROWD &&
		!glk_stream_foreign(request->stream, use) &&
		(!request->capture || use->tick > glk_graph_of(arena)->since))
		return true;
	return glk_clock_finished(&arena->gpu->streams, use);
}

static int order(
	struct glk_arena *arena, struct glk_request *request, struct glk_use *use)
{
	(void)arena;
	glk_use_drop(use, ~glk_stream_mask(request->stream));
	return 0;
}

static void note(
	struct glk_arena *arena, const struct glk_stream *stream, uint64_t capture)
{
	glk_graph_note(glk_graph_of(arena), stream, capture);
}

static void inherit(struct glk_arena *arena, uint64_t capture)
{
	glk_graph_inherit(glk_graph_of(arena), capture);
}

static void count(struct glk_arena *arena, const struct glk_extent *e, bool more)
{
	struct glk_graph *graph = glk_graph_of(arena);
	uint64_t bytes = glk_extent_asked(e);

	graph->blocks += more ? 1 : UINT64_MAX;
	graph->live += more ? bytes : -bytes;
}

static void describe(const struct glk_arena *arena, struct glake_block *block)
{
	block->pool = glk_graph_of(arena)->id;
}

const struct glk_arena_ops glk_arena_graph = {
	.kind = GLAKE_ARENA_POOL,
	.may = may,
	.order = order,
	.note = note,
	.inherit = inherit,
	.count = count,
	.describe = describe,
	.stays = "is of a pool of graphs",
	.closed = true,
};
