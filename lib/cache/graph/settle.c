/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What was freed to a pool of graphs, and since when it is whose.
 *
 * A free in a capture is an event of that graph: nothing runs, and no clock tells when it is
 * over. Inside the capture the memory is its stream's own. When the capture is over it is
 * anybody's, since the graphs of a pool are replayed one after the other. A free outside of
 * captures is of work that is queued, and has its clock like any other, also where the stream
 * captures a moment later: the graph may be launched elsewhere.
 *
 * The two are told apart by the tick at which a capture was first seen and by the streams seen
 * in it. A capture ends on all of its streams at once, so it is over when one of them is met
 * outside of it, and when another capture comes to the pool.
 *
 * What a capture frees of a pool that is not its own its graph may have used before. Replays
 * then find memory where it was, whatever is in it, as they would with any other allocator.
 */
#include "base/error.h"
#include "base/thread.h"
#include "cache/graph/graph.h"

static void settle_use(const struct glk_graph *graph, struct glk_use *use)
{
	if (use->tick > graph->since && !(use->streams & ~graph->captured))
		glk_use_drop(use, use->streams);
}

static void settle_run(struct glk_graph *graph, uint32_t slot, uint32_t end)
{
	struct glk_map *map = &graph->arena.map;
	struct glk_use *use = &map->use[glk_use_slot(map, slot)];

	settle_use(graph, use);
	for (; slot <= end; slot++) {
		slot = glk_bits_first(map->shared, slot, end);
		if (slot == GLK_BITS_NONE)
			return;
		if (map->page[slot])
			settle_use(graph, &glk_map_page(map, map->page[slot])->use);
	}
}

void glk_graph_settle(struct glk_graph *graph)
{
	const struct glk_map *map = &graph->arena.map;
	uint32_t last = graph->captured ? glk_map_end(map) : 0, end;

	for (uint32_t slot = 0; slot < last; slot = end + 1) {
		end = glk_use_end(map, slot, last - 1);
		settle_run(graph, slot, end);
	}
	graph->captured = 0;
	graph->run = 0;
	graph->since = graph->arena.gpu->streams.tick;
}

void glk_graph_note(
	struct glk_graph *graph, const struct glk_stream *stream, uint64_t capture)
{
	uint64_t mask = glk_stream_mask(stream);

	if (capture ? capture != graph->run : (graph->captured & mask) != 0)
		glk_graph_settle(graph);
	graph->run = capture ? capture : graph->run;
	/* streams of the crowd are not told apart, so that they never settle */
	if (capture && stream->bit < GLK_STREAM_CROWD)
		graph->captured |= mask;
}

/* The open pool that serves a capture: one without a request yet does not know its own, and the
 * newest of those is taken where no other does. */
static struct glk_graph *find_open(struct glk_graphs *graphs, uint64_t capture)
{
	struct glk_graph *found = NULL;

	for (struct glk_graph *g = graphs->opened.newest; g; g = g->older) {
		if (g->run == capture)
			return g;
		if (!g->run && !found)
			found = g;
	}
	return found;
}

static struct glk_heir *heir_at(const struct glk_graphs *graphs, uint32_t id)
{
	return glk_slab_at(&graphs->heirs, id);
}

/* It is not told which pools it outlives, so it outlives all. */
#define OUTLIVES_ALL UINT32_MAX

static bool has_heir(const struct glk_graphs *graphs, const struct glk_graph *graph,
	const struct glk_graph *heir)
{
	uint32_t id = graph->heirs;

	while (id && id != OUTLIVES_ALL && heir_at(graphs, id)->heir != heir)
		id = heir_at(graphs, id)->next;
	return id > 0;
}

static void add_heir(
	struct glk_graphs *graphs, struct glk_graph *graph, struct glk_graph *heir)
{
	struct glake_error why = glk_thread_current->error;
	uint32_t id = glk_slab_get(&graphs->heirs);

	if (!id) {
		graph->heirs = OUTLIVES_ALL;
		/* a free is not refused for that */
		glk_error_back(&why);
		return;
	}
	*heir_at(graphs, id) =
		(struct glk_heir){.of = graph, .heir = heir, .next = graph->heirs};
	graph->heirs = id;
}

static void drop_heir(struct glk_graphs *graphs, uint32_t id)
{
	struct glk_heir *dropped = heir_at(graphs, id);
	uint32_t *link = &dropped->of->heirs;

	/* the rest of a list that was given up leads nowhere */
	while (*link != id && *link != OUTLIVES_ALL)
		link = &heir_at(graphs, *link)->next;
	if (*link == id)
		*link = dropped->next;
	dropped->heir = NULL;
	glk_slab_put(&graphs->heirs, id);
}

void glk_graph_inherit(struct glk_graph *graph, uint64_t capture)
{
	struct glk_graphs *graphs = glk_graphs(graph->arena.gpu);
	struct glk_graph *heir = find_open(graphs, capture);

	if (heir && heir != graph && !has_heir(graphs, graph, heir))
		add_heir(graphs, graph, heir);
}

void glk_graph_disinherit(struct glk_cache *cache, const struct glk_graph *heir)
{
	struct glk_graphs *graphs = glk_graphs(cache);

	for (uint32_t id = glk_load_relaxed(&graphs->heirs.used); id; id--) {
		if (heir_at(graphs, id)->heir == heir)
			drop_heir(graphs, id);
	}
}
