/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The part of a program that captures graphs and launches them. */
#include "stress/program/program.h"

#include "soft/soft.h"

#include <errno.h>

static struct glake_pool_id pool_of(const struct world *w)
{
	return (struct glake_pool_id){.low = w->pool};
}

static void ask_captured(struct world *w, int lane);

static void begin_capture(struct world *w)
{
	int graph = 0, lane = 1 + (int)below(w, LANES - 1);

	while (graph < GRAPHS && w->graph[graph].used)
		graph++;
	if (graph == GRAPHS)
		return;
	/* bins of a stream that is to capture unannounced would serve it */
	if (!w->announced)
		replace(w, lane);
	if (w->announced) {
		must(w, glake_pool_begin(w->ctx, 0, pool_of(w), w->lane[lane]),
			"glake_pool_begin");
		w->begun++;
	}
	must(w, glk_soft_capture_begin(w->drv, 0, w->lane[lane]), "a capture begins");
	oracle_capture(w->oracle, w->lane[lane]);
	w->graph[graph] = (struct graph){.used = true};
	w->capturing = graph;
	w->origin = lane;
	w->lanes_in = 1u << lane;
	w->captures++;
	/* nor is the library to learn of it from a stream that joins */
	if (!w->announced)
		ask_captured(w, lane);
}

void end_capture(struct world *w)
{
	struct graph *g = &w->graph[w->capturing];

	for (int i = 0; i < LANES; i++) {
		if (i != w->origin && (w->lanes_in >> i & 1))
			order(w, i, w->origin);
	}
	must(w, glk_soft_capture_end(w->drv, 0, w->lane[w->origin], &g->graph),
		"a capture ends");
	oracle_capture_end(w->oracle);
	if (w->announced)
		must(w, glake_pool_end(w->ctx, 0, pool_of(w)), "glake_pool_end");
	for (int i = 0; i < BLOCKS; i++) {
		if (!w->block[i].captured)
			continue;
		w->block[i].captured = false;
		/* what is done with it from now on is not the graph's, and goes behind the
		 * launches of earlier ones */
		w->block[i].users = w->launched >= 0 ? 1u << w->launched : 0;
		w->block[i].writer = w->launched;
		w->block[i].told = w->block[i].of >= 0 ? 1u << w->block[i].of : 0;
	}
	w->capturing = -1;
	w->lanes_in = 0;
}

void turn_capture(struct world *w)
{
	if (w->capturing >= 0)
		end_capture(w);
	else
		begin_capture(w);
}

static int lane_in(struct world *w)
{
	int lane;

	do {
		lane = (int)below(w, LANES);
	} while (!(w->lanes_in >> lane & 1));
	return lane;
}

/* Another stream joins the capture. */
static void fork_capture(struct world *w)
{
	int lane = 1 + (int)below(w, LANES - 1);

	if (w->lanes_in >> lane & 1)
		return;
	order(w, lane_in(w), lane);
	w->lanes_in |= 1u << lane;
}

static struct block *captured(struct world *w)
{
	for (int i = 0; i < 2 * BLOCKS; i++) {
		struct block *b = &w->block[below(w, BLOCKS)];

		if (b->at && b->captured)
			return b;
	}
	return NULL;
}

static void free_captured(struct world *w, struct block *b)
{
	int lane = b->of;

	for (int i = 0; i < LANES; i++) {
		if ((b->users >> i & 1) && !(b->told >> i & 1) && i != lane)
			order(w, i, lane);
	}
	must(w, glake_free(w->ctx, b->at, w->lane[lane]), "glake_free in a capture");
	w->frees++;
	b->at = NULL;
	b->captured = false;
}

static void ask_captured(struct world *w, int lane)
{
	struct glake_block found = {.sz = sizeof(found)};
	struct block *b = NULL;

	for (int i = 0; i < BLOCKS && !b; i++)
		b = w->block[i].at ? NULL : &w->block[i];
	if (!b)
		return;
	ask(w, b, lane);
	if (!b->at || w->wrong)
		return;
	b->captured = true;
	b->graph = w->capturing;
	must(w, glake_query(w->ctx, b->at, &found), "glake_query");
	if (!found.pool.high && !found.pool.low)
		failed(w, "a block of a capture belongs to no pool");
	else if (w->announced && found.pool.low != w->pool)
		failed(w, "a block of a capture belongs to another pool");
	if (!w->announced)
		w->graph[w->capturing].pool = found.pool;
}

void turn_in_capture(struct world *w)
{
	struct block *b;

	switch (below(w, 8)) {
	case 0 ... 2:
		ask_captured(w, lane_in(w));
		break;
	case 3 ... 4:
		b = captured(w);
		if (b)
			touch(w, b, lane_in(w), chance(w, 50));
		break;
	case 5 ... 6:
		b = captured(w);
		if (b)
			free_captured(w, b);
		break;
	default:
		fork_capture(w);
		break;
	}
}

/* A launch writes what its graph wrote, so it goes behind whoever used that beside the graph,
 * also if the block was freed since then. */
static void behind_users(struct world *w, struct graph *g, int lane)
{
	for (int i = 0; i < LANES; i++) {
		if (g->beside >> i & 1)
			order(w, i, lane);
	}
	g->beside = 0;
}

/* Graphs of a pool run one after the other. */
void turn_launch(struct world *w)
{
	struct graph *g = &w->graph[below(w, GRAPHS)];
	int lane = (int)below(w, LANES);
	uint32_t before = 0, after = 0;
	const char *wrong;

	/* no order holds between a stream that captures and one that does not */
	if (!g->used || !g->graph || ((g->beside | 1u << lane) & w->lanes_in))
		return;
	if (w->launched >= 0)
		order(w, w->launched, lane);
	behind_users(w, g, lane);
	if (w->wrong)
		return;
	glk_soft_pending(w->drv, 0, w->lane[lane], &before);
	must(w, glk_soft_graph_launch(w->drv, g->graph, 0, w->lane[lane]), "a launch");
	glk_soft_pending(w->drv, 0, w->lane[lane], &after);
	if (w->wrong)
		return;
	oracle_launched(w->oracle, w->lane[lane], after - before, g->nodes);
	for (unsigned i = 0; i < g->nodes; i++) {
		wrong = oracle_replayed(w->oracle, w->lane[lane], g->node[i].addr,
			g->node[i].size, g->node[i].write);
		if (wrong)
			failed(w, wrong);
	}
	w->launched = lane;
	w->launches++;
	for (int i = 0; i < BLOCKS; i++) {
		/* what it wrote is used behind it, also by whoever has a block of a later graph:
		 * memory that this one freed was there for those */
		if (w->block[i].at && w->block[i].graph >= (int)(g - w->graph) &&
			!w->block[i].captured) {
			w->block[i].users |= 1u << lane;
			w->block[i].writer = lane;
		}
	}
}

void end_graphs(struct world *w)
{
	for (int i = 0; i < GRAPHS; i++) {
		if (w->graph[i].used && w->graph[i].graph)
			must(w, glk_soft_graph_free(w->drv, w->graph[i].graph),
				"the end of a graph");
		if (w->graph[i].pool.high)
			must(w, glake_pool_release(w->ctx, 0, w->graph[i].pool),
				"glake_pool_release, unannounced");
		w->graph[i].used = false;
	}
	while (w->begun) {
		w->begun--;
		must(w, glake_pool_release(w->ctx, 0, pool_of(w)), "glake_pool_release");
	}
}
