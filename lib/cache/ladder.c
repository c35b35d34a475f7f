/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * When a node has no room for a new page: memory that nobody uses is given back to the driver
 * until there is room. The rungs, each counted:
 *
 *	limbo	parked contiguous blocks whose work has finished
 *	recut	free and idle pages of other classes
 *	sync	the same once more after waiting for the GPU; the only place that waits
 *
 * and then -ENOMEM, with a record that says what was asked for and what there is.
 */
#include "base/conf.h"
#include "base/error.h"
#include "cache/graph.h"
#include "cache/quick.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

/* Bytes to give back so that `size` more fit: the excess over the budget, or all of `size`
 * where the driver is the limit. */
static uint64_t shortage(const struct glk_node *node, uint64_t size)
{
	uint64_t held = glk_load_relaxed(&node->held);
	uint64_t budget = glk_load_relaxed(&node->budget);

	return glk_node_has_room(node, size) ? size : held + size - budget;
}

/* Releases idle pages of a class that are ready. */
static uint64_t release_idle(
	struct glk_cache *cache, enum glk_class class, uint64_t bytes)
{
	struct glk_limbo limbo = GLK_LIMBO(cache->streams);
	uint32_t id = glk_idle_first(&cache->map, class), next;
	uint64_t given = 0;

	for (; id && given < bytes; id = next) {
		uint64_t size = glk_map_page(&cache->map, id)->size;

		next = glk_idle_next(&cache->map, id);
		if (!glk_limbo_release(&limbo, &cache->map, id))
			given += size;
	}
	return given;
}

/* Pages of the class itself were tried: what is left of them was withheld from the request, by
 * the policy or because a stream cannot be waited for. */
static uint64_t recut(struct glk_cache *cache, uint64_t bytes)
{
	uint64_t given = 0;

	for (int c = 0; c < GLK_CLASS_COUNT && given < bytes; c++) {
		given += glk_node_drain(cache->node, (enum glk_class)c, bytes - given);
		if (given < bytes)
			given += release_idle(cache, (enum glk_class)c, bytes - given);
	}
	return given;
}

uint64_t glk_ladder_recut(struct glk_cache *cache, uint64_t bytes)
{
	uint64_t given;

	glk_event_poll(cache->streams);
	given = recut(cache, bytes);
	cache->rungs[GLAKE_RUNG_RECUT] += given > 0;
	return given;
}

static bool climb(struct glk_cache *cache, uint64_t bytes)
{
	uint64_t given, more;
	int err = 0;

	given = glk_single_release(cache, bytes, &err);
	cache->rungs[GLAKE_RUNG_LIMBO] += given > 0;
	if (given >= bytes)
		return true;
	more = recut(cache, bytes - given);
	cache->rungs[GLAKE_RUNG_RECUT] += more > 0;
	return given + more >= bytes;
}

static int refuse(struct glk_cache *cache, uint64_t size)
{
	struct glk_node *node = cache->node;
	uint64_t budget = glk_load_relaxed(&node->budget), idle;
	const struct glk_slab *pages = &cache->pool->pages;
	char limit[64] = "no budget set";
	struct glk_seats sum;

	if (glk_node_has_room(node, size) && glk_load_relaxed(&pages->live) >= pages->max)
		return glk_error(-ENOMEM, GLAKE_ERROR_LIMIT,
			"GPU %d needs one page more than the %" PRIu32
			" that pool.pages allows",
			cache->device, pages->max);

	glk_seats_sum(cache, &sum);

	idle = cache->map.idle_bytes + cache->parked.bytes;
	if (budget != UINT64_MAX)
		snprintf(limit, sizeof(limit), "a budget of %" PRIu64, budget);
	return glk_error(-ENOMEM, GLAKE_ERROR_NOMEM_DEVICE,
		"GPU %d has no room for a page of %" PRIu64 " bytes: %" PRIu64
		" held with %s, %" PRIu64 " in live blocks, %" PRIu64
		" idle, largest hole %" PRIu64
		"; a larger budget or fewer live blocks would help",
		cache->device, size, glk_load_relaxed(&node->held), limit, sum.live, idle,
		glk_tree_largest(&cache->map.span[GLK_KIND_LARGE]));
}

int glk_ladder_grow(
	struct glk_cache *cache, enum glk_class class, size_t size, uint32_t *ret_page)
{
	uint64_t bytes = class == GLK_CLASS_SINGLE ? size : cache->node->page_size[class];
	bool made;
	int err;

	/* pools that were released while a graph was captured */
	if (glk_graphs(cache) && glk_graphs(cache)->leaving)
		glk_graph_reap(cache);
	/* what can go then must not depend on how far the GPU is */
	if (!cache->streams->opportunistic)
		glk_clock_sync(cache->streams, ~UINT64_C(0));
	glk_event_poll(cache->streams);
	made = climb(cache, shortage(cache->node, bytes));
	if (!made && cache->map.idle_bytes + cache->parked.bytes) {
		err = glk_clock_sync(cache->streams, ~UINT64_C(0));
		/* a capture may be in the way of some of it */
		if (err && err != -EBUSY)
			return err;
		made = climb(cache, shortage(cache->node, bytes));
	}
	/* where the driver is the limit, what it has left may be enough with less */
	if (made || glk_node_has_room(cache->node, bytes))
		err = glk_node_grow(cache->node, class, size, ret_page);
	else
		err = -ENOMEM;
	return err == -ENOMEM ? refuse(cache, bytes) : err;
}
