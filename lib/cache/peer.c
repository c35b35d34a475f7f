/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Another GPU is allowed to use all memory of this one, or no longer: what is mapped now, here,
 * on the host, in pools of graphs, with tags and in imports, and by the peers of the node what will be.
 *
 * Rights that an exchange gave for its time (exchange.c), and the driver would not take back, are taken from all
 * that is mapped at the next point that stands still: a quiet point, a trim or a suspension. Pages that are unmapped
 * lose them anyway.
 */
#include "base/log.h"
#include "base/thread.h"
#include "cache/cache.h"
#include "cache/graph/graph.h"

#include <inttypes.h>

/* All that is mapped but imports, in one order always. */
static int in_maps(struct glk_cache *cache, struct glk_sweep *sweep)
{
	struct glk_graph *graph;
	int err = 0, failed;

	for (struct glk_arena *a = &cache->arena; a && (!err || sweep->anyway);
		a = a->next) {
		failed = glk_map_access(&a->map, sweep);
		err = failed ? failed : err;
	}
	for (uint32_t i = 0; (!err || sweep->anyway) &&
		(graph = glk_graph_next(glk_graphs(cache), &i));) {
		failed = glk_map_access(&graph->arena.map, sweep);
		err = failed ? failed : err;
	}
	return err;
}

static int everywhere(struct glk_cache *cache, struct glk_sweep *sweep)
{
	int err = in_maps(cache, sweep), failed;

	if (err && !sweep->anyway)
		return err;
	failed = glk_imports_access(&cache->imports, sweep);
	return failed ? failed : err;
}

static int change(struct glk_cache *cache, int peer, bool on)
{
	struct glk_sweep sweep = {
		.grant = {.who = {GLK_PLACE_GPU, peer},
			.access = on ? GLK_ACCESS_WRITE : GLK_ACCESS_NONE},
		.most = SIZE_MAX};
	struct glk_sweep back = sweep;
	int err = everywhere(cache, &sweep);

	if (!err)
		return 0;
	back.grant.access = on ? GLK_ACCESS_NONE : GLK_ACCESS_WRITE;
	back.most = sweep.done;
	back.anyway = true;
	if (everywhere(cache, &back))
		glk_warn(
			"GPU %d: the rights of GPU %d on some of its memory stay changed",
			cache->device, peer);
	return err;
}

int glk_cache_peer(struct glk_cache *cache, int peer, bool on)
{
	uint64_t peers, bit = UINT64_C(1) << peer;
	int err = 0;

	glk_lock(&cache->lock);
	/* pages under way are mapped for the peers there were */
	glk_plan_close(cache);
	glk_imports_hold(&cache->imports);
	peers = glk_load_relaxed(&cache->node->peers);
	if (!(peers & bit) == on)
		err = change(cache, peer, on);
	if (!err)
		glk_store_relaxed(&cache->node->peers, on ? peers | bit : peers & ~bit);
	glk_imports_let_go(&cache->imports);
	glk_plan_open(cache);
	glk_unlock(&cache->lock);
	return err;
}

void glk_peer_stays(struct glk_cache *cache, uint64_t gpus)
{
	if (gpus & ~cache->rights_left)
		glk_warn("GPU %d: GPUs 0x%" PRIx64
			 " keep the rights that they had for a copy "
			 "on its pages of the host, until the driver takes them: %s",
			cache->device, gpus, glk_thread_current->error.text);
	cache->rights_left |= gpus;
}

void glk_peer_settle(struct glk_cache *cache)
{
	uint64_t peers = glk_load_relaxed(&cache->node->peers);
	/* what they have as peers goes with that */
	uint64_t gpus = cache->rights_left & ~peers;

	for (cache->rights_left = 0; gpus; gpus &= gpus - 1) {
		struct glk_sweep sweep = {
			.grant = {.who = {GLK_PLACE_GPU, __builtin_ctzll(gpus)}},
			.most = SIZE_MAX,
			.anyway = true};

		if (in_maps(cache, &sweep))
			cache->rights_left |= gpus & -gpus;
	}
}
