/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Another GPU is allowed to use all memory of this one, or no longer: what is mapped now, here,
 * on the host, in pools of graphs, with tags and in imports, and by the peers of the node what will be.
 */
#include "base/log.h"
#include "cache/graph/graph.h"
#include "cache/plan.h"
#include "cache/tag/tag.h"

/* All that is mapped, in one order always. */
static int everywhere(struct glk_cache *cache, struct glk_sweep *sweep)
{
	struct glk_graphs *graphs = glk_graphs(cache);
	struct glk_tags *tags = glk_tags(cache);
	int err = glk_map_access(&cache->arena.map, sweep), failed;

	if (!err || sweep->anyway) {
		failed = glk_map_access(&cache->beside.map, sweep);
		err = failed ? failed : err;
	}
	for (uint32_t i = 0; graphs && i < graphs->used; i++) {
		if (!glk_graph_is_there(graphs->at[i].state) || (err && !sweep->anyway))
			continue;
		failed = glk_map_access(&graphs->at[i].arena.map, sweep);
		err = failed ? failed : err;
	}
	for (uint32_t i = 0; tags && i < tags->used; i++) {
		if (err && !sweep->anyway)
			break;
		failed = glk_map_access(&tags->at[i].arena.map, sweep);
		err = failed ? failed : err;
	}
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
