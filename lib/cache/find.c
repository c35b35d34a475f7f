/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Where a page for a request comes from, cheapest first: pages mapped nowhere, idle pages
 * (which keep their mappings as aliases), new pages, and then the ladder. Among idle pages
 * those that need no stream wait go first, within a bounded look.
 */
#include "cache/quick.h"

#include <errno.h>

/* Idle pages looked at for one that needs no wait. */
#define IDLE_LOOK 32

static uint32_t choose_idle(
	struct glk_cache *cache, const struct glk_request *request, enum glk_class class)
{
	uint32_t id = glk_idle_first(&cache->map, class), fallback = 0;

	for (int i = 0; id && i < IDLE_LOOK; i++, id = glk_idle_next(&cache->map, id)) {
		const struct glk_use *use = glk_page_use(&cache->map, id);

		if (!glk_request_may(cache, request, use))
			continue;
		if (!glk_clock_waits(&cache->streams, use, request->stream))
			return id;
		if (!fallback)
			fallback = id;
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
	int err = 0;

	if (!id)
		return -EAGAIN;
	if (!glk_request_may(cache, request, glk_page_use(&cache->map, id)))
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

int glk_page_find(struct glk_cache *cache, struct glk_request *request,
	enum glk_class class, uint32_t *ret_page)
{
	int err;

	do {
		err = take_free(cache, request, class, ret_page);
		if (err == -EAGAIN)
			err = take_idle(cache, request, class, ret_page);
		if (err == -EAGAIN)
			err = glk_node_grow(cache->node, class, 0, ret_page);
		/* blocks in bins keep their pages, which comes to an end before the ladder */
	} while (err == -ENOMEM && glk_quick_flush(cache));
	if (err == -ENOMEM)
		err = glk_ladder_grow(cache, class, 0, ret_page);
	return err;
}
