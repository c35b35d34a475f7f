/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Gives memory that no live block uses back to the driver, the cheapest to miss first: parked
 * contiguous blocks, pages mapped nowhere, idle pages in the order in which requests would
 * take them. What the GPU may still use stays.
 */
#include "cache/ahead.h"
#include "cache/graph.h"
#include "cache/quick.h"

#include <errno.h>

static uint64_t excess(const struct glk_cache *cache, uint64_t keep)
{
	uint64_t held = glk_load_relaxed(&cache->node->held);

	return held > keep ? held - keep : 0;
}

static int trim_idle(struct glk_cache *cache, enum glk_class class, uint64_t keep)
{
	struct glk_limbo limbo = GLK_LIMBO(cache->streams);
	uint32_t id = glk_idle_first(&cache->map, class), next;
	int err = 0;

	for (; id && excess(cache, keep); id = next) {
		int failed;

		next = glk_idle_next(&cache->map, id);
		failed = glk_limbo_release(&limbo, &cache->map, id);
		if (failed && failed != -EAGAIN && !err)
			err = failed;
	}
	return err;
}

int glk_cache_trim(struct glk_cache *cache, uint64_t keep, uint64_t *ret_released)
{
	uint64_t before;
	int err = 0;

	*ret_released = 0;
	if (!glk_load_acquire(&cache->started)) /* pairs with: glk_cache_start */
		return 0;
	glk_graph_refresh(cache);
	glk_lock(cache->lock);
	glk_ahead_rest(cache);
	before = glk_load_relaxed(&cache->node->held);
	if (glk_graphs(cache) && glk_graphs(cache)->leaving)
		err = glk_graph_reap(cache);
	glk_quick_flush(cache);
	glk_event_poll(cache->streams);
	if (excess(cache, keep))
		glk_single_release(cache, excess(cache, keep), &err);
	for (int c = 0; c < GLK_CLASS_COUNT; c++) {
		int failed;

		if (excess(cache, keep))
			glk_node_drain(
				cache->node, (enum glk_class)c, excess(cache, keep));
		failed = trim_idle(cache, (enum glk_class)c, keep);
		if (failed && !err)
			err = failed;
	}
	*ret_released = before - glk_load_relaxed(&cache->node->held);
	glk_unlock(cache->lock);
	return err;
}
