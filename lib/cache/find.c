/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Where a page for a request comes from, cheapest first: pages mapped nowhere, idle pages
 * (which keep their mappings as aliases), new pages, and then the ladder. Among idle pages
 * those that need no stream wait go first, within a bounded look. The section policy of the
 * configuration can change this order, to measure it.
 */
#include "base/conf.h"
#include "cache/quick.h"

#include <errno.h>

/* Idle pages looked at for one that needs no wait, and for one that may be had at all. */
#define IDLE_LOOK 32
#define IDLE_MOST 4096

static uint32_t choose_idle(
	struct glk_cache *cache, const struct glk_request *request, enum glk_class class)
{
	bool newest = cache->conf->policy_steal == GLK_POLICY_STEAL_NEWEST;
	struct glk_map *map = &cache->map;
	uint32_t id = newest ? glk_idle_last(map, class) : glk_idle_first(map, class);
	uint32_t fallback = 0;
	unsigned waits;

	for (int i = 0, had = 0; id && i < IDLE_MOST && had < IDLE_LOOK; i++) {
		const struct glk_use *use = glk_page_use(map, id);

		if (glk_request_may(cache, request, use, &waits)) {
			had++;
			if (!waits)
				return id;
			if (!fallback)
				fallback = id;
		}
		id = newest ? glk_idle_before(map, id) : glk_idle_next(map, id);
	}
	return fallback;
}

static int take_idle(struct glk_cache *cache, struct glk_request *request,
	enum glk_class class, uint32_t *ret_page)
{
	uint32_t id = choose_idle(cache, request, class);
	int err;

	if (!id)
		return -EAGAIN;
	err = glk_request_order(cache, request, glk_page_use(&cache->map, id));
	if (err)
		return err;
	glk_idle_take(&cache->map, id);
	*ret_page = id;
	return 0;
}

static int take_free(struct glk_cache *cache, struct glk_request *request,
	enum glk_class class, uint32_t *ret_page)
{
	uint32_t id = glk_node_take(cache->node, class);
	unsigned waits;
	int err = 0;

	if (!id)
		return -EAGAIN;
	if (!glk_request_may(cache, request, glk_page_use(&cache->map, id), &waits))
		err = -EAGAIN;
	else
		err = glk_request_order(cache, request, glk_page_use(&cache->map, id));
	if (err) {
		glk_node_put(cache->node, id);
		return err;
	}
	*ret_page = id;
	return 0;
}

static int make(struct glk_cache *cache, enum glk_class class, uint32_t *ret_page)
{
	if (cache->conf->policy_recut == GLK_POLICY_RECUT_GROWTH)
		glk_ladder_recut(cache, cache->node->page_size[class]);
	return glk_node_grow(cache->node, class, 0, ret_page);
}

/*
 * For a pool of graphs: a page that the GPU's own cache has idle loses its mappings there and
 * goes to the node. That costs less memory than to make one, and no stream wait, which could
 * not be had.
 */
static bool borrow(struct glk_cache *home, enum glk_class class)
{
	struct glk_limbo limbo = GLK_LIMBO(home->streams);
	uint32_t id = glk_idle_first(&home->map, class), next;

	for (int i = 0; id && i < IDLE_LOOK; i++, id = next) {
		next = glk_idle_next(&home->map, id);
		if (!glk_limbo_strip(&limbo, &home->map, id))
			return true;
	}
	return false;
}

static int find_for_graph(struct glk_cache *cache, struct glk_request *request,
	enum glk_class class, uint32_t *ret_page)
{
	struct glk_cache *home = cache->home;
	int err;

	do {
		err = take_free(cache, request, class, ret_page);
		if (err == -EAGAIN)
			err = take_idle(cache, request, class, ret_page);
		if (err == -EAGAIN && borrow(home, class))
			err = take_free(cache, request, class, ret_page);
		if (err == -EAGAIN)
			err = glk_node_grow(cache->node, class, 0, ret_page);
	} while (err == -ENOMEM && glk_quick_flush(home));
	if (err == -ENOMEM)
		err = glk_ladder_grow(home, class, 0, ret_page);
	return err;
}

int glk_page_find(struct glk_cache *cache, struct glk_request *request,
	enum glk_class class, uint32_t *ret_page)
{
	bool early = cache->conf->policy_grow == GLK_POLICY_GROW_EARLY;
	int err;

	if (cache->home != cache)
		return find_for_graph(cache, request, class, ret_page);
	do {
		err = take_free(cache, request, class, ret_page);
		if (err == -EAGAIN && early && !make(cache, class, ret_page))
			return 0;
		if (err == -EAGAIN)
			err = take_idle(cache, request, class, ret_page);
		if (err == -EAGAIN)
			err = make(cache, class, ret_page);
		/* blocks in bins keep their pages, which comes to an end before the ladder */
	} while (err == -ENOMEM && glk_quick_flush(cache));
	if (err == -ENOMEM)
		err = glk_ladder_grow(cache, class, 0, ret_page);
	return err;
}
