/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * When a node has no room for what a request still needs: memory that nobody uses is given back
 * to the driver until there is room, for the whole of it at once. The rungs, each counted:
 *
 *	limbo	pools of graphs that were released, and could not end then: that waits for the GPU
 *	recut	blocks in bins merge; free and idle pages, whatever their size
 *	sync	the same once more after waiting for the work that was in the way of it
 *
 * and then -ENOMEM, with a record that says what was asked for and what there is.
 */
#include "base/conf.h"
#include "base/error.h"
#include "base/parse.h"
#include "base/thread.h"
#include "cache/arena/request.h"
#include "cache/bin/quick.h"
#include "cache/graph/graph.h"
#include "cache/reserve.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

/* Bytes to give back so that `size` more fit: the excess over the budget, or all of `size`
 * where the driver is the limit. */
static uint64_t shortage(const struct glk_node *node, uint64_t size)
{
	uint64_t held = glk_load_relaxed(&node->held);
	uint64_t budget = glk_load_relaxed(&node->budget);

	return glk_node_has_room(node, size) ? size : held + size - budget;
}

/* Times that work is waited for, which others may have queued more of meanwhile. */
#define WAITS 5

/* Whether anything that nobody uses stays mapped. */
static bool stays(const struct glk_arena *home, const struct glk_node *node)
{
	return glk_arena_idle(home, node) > glk_node_free(node);
}

/* The GPU is waited for, while others go in and out: what has been given back is not for them. */
struct wait {
	struct glk_cache *gpu;
	struct glk_node *node;
	bool climbs;
	uint64_t claimed;
};

static void begin_wait(struct wait *w, uint64_t given)
{
	w->claimed = w->climbs && !glk_node_claim(w->node, given) ? given : 0;
	if (w->climbs)
		glk_plan_park(w->gpu, true);
}

static void end_wait(struct wait *w)
{
	if (w->climbs)
		glk_plan_unpark(w->gpu, true);
	glk_node_unclaim(w->node, w->claimed);
}

/* All that can go, and what the work of streams is in the way of, when that is done. All streams are
 * waited for where that was not enough: pages lie among other addresses, and what is in their way is not
 * known; or they were waited for in vain, as a capture or a plan is, and others may do. */
static uint64_t release_late(struct glk_arena *home, struct wait *w, uint64_t bytes)
{
	struct glk_streams *streams = &home->gpu->streams;
	struct glk_late late = {.left = true};
	uint64_t given = 0;

	for (int i = 0; i < WAITS && given < bytes && (late.bytes || late.left); i++) {
		bool many = i && !late.bytes;

		/* a capture may be in the way of some of it */
		if (late.bytes) {
			begin_wait(w, given);
			glk_work_sync(streams, &late.work);
			end_wait(w);
		}
		late = (struct glk_late){.many = many};
		given +=
			glk_trim_release(home, w->node, bytes - given, UINT32_MAX, &late);
	}
	if (given < bytes && stays(home, w->node)) {
		begin_wait(w, given);
		glk_clock_sync(streams, ~UINT64_C(0));
		end_wait(w);
		given += glk_trim_release(home, w->node, bytes - given, UINT32_MAX, NULL);
	}
	return given;
}

/* Pools of graphs whose end is due: their blocks were live then, or a graph was captured. */
static void reap(struct glk_cache *gpu, struct wait *w)
{
	uint64_t held = glk_load_relaxed(&gpu->node->held);

	if (!glk_graphs(gpu) || !glk_graphs(gpu)->leaving)
		return;
	begin_wait(w, 0);
	glk_graph_reap(gpu);
	end_wait(w);
	if (glk_load_relaxed(&gpu->node->held) < held)
		glk_cache_climbed(gpu, GLAKE_RUNG_LIMBO);
}

bool glk_ladder_climb(struct glk_arena *home, const struct glk_request *request,
	struct glk_node *node, uint64_t bytes)
{
	struct glk_cache *gpu = home->gpu;
	struct wait w = {.gpu = gpu, .node = node, .climbs = request->climbs};
	uint64_t want, given;

	if (node == gpu->node)
		reap(gpu, &w);
	/* what can go then must not depend on how far the GPU is */
	if (!gpu->conf->stream_opportunistic) {
		begin_wait(&w, 0);
		glk_clock_sync(&gpu->streams, ~UINT64_C(0));
		end_wait(&w);
	}
	glk_event_poll(&gpu->streams);
	/* memory that contents were kept in, or are to be, counts against the same budget */
	if (node->gpu && glk_load_relaxed(&gpu->moves)) {
		glk_reserve_yield(gpu);
		glk_mover_yield(&gpu->mover, shortage(node, bytes));
	}
	if (node == gpu->node)
		glk_quick_flush(gpu);
	want = shortage(node, bytes);
	given = release_late(home, &w, want);
	/* where the driver is the limit, what it has left may be enough with less */
	return given >= want || glk_node_has_room(node, bytes);
}
