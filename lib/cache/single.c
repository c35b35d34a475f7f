/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Contiguous blocks: one handle of the driver each, for consumers that see only the handle
 * under a pointer (legacy IPC, RDMA, registration). They lie in a span of their own, in whole
 * slots, their page mapped at the first one. A freed one is parked with its page and serves
 * the next request of the same size; it is released under pressure and by trim.
 */
#include "cache/quick.h"

#include <errno.h>

/* Parked extents looked at for one that needs no wait. */
#define PARKED_LOOK 64

static struct glk_span *single_span(struct glk_cache *cache)
{
	return &cache->map.span[GLK_KIND_SINGLE];
}

static uint32_t page_of(struct glk_cache *cache, uint32_t extent)
{
	struct glk_span *span = single_span(cache);

	return span->slot[glk_slot_of(span, glk_extent_at(&cache->map, extent)->offset)]
		.page;
}

static void unpark(struct glk_cache *cache, uint32_t extent)
{
	struct glk_extent *e = glk_extent_at(&cache->map, extent);

	if (e->left)
		glk_extent_at(&cache->map, e->left)->right = e->right;
	else
		cache->parked.first = e->right;
	if (e->right)
		glk_extent_at(&cache->map, e->right)->left = e->left;
	else
		cache->parked.last = e->left;
	cache->parked.bytes -= e->size;
	e->left = 0;
	e->right = 0;
}

static uint32_t choose_parked(
	struct glk_cache *cache, const struct glk_request *request, uint64_t size)
{
	uint32_t id = cache->parked.last, fallback = 0;
	unsigned waits;

	for (int i = 0; id && i < PARKED_LOOK; i++) {
		struct glk_extent *e = glk_extent_at(&cache->map, id);
		struct glk_use *use = glk_page_use(&cache->map, page_of(cache, id));

		if (e->size == size && glk_request_may(cache, request, use, &waits)) {
			if (!waits)
				return id;
			fallback = id;
		}
		id = e->left;
	}
	return fallback;
}

static int take_parked(struct glk_cache *cache, struct glk_request *request,
	uint64_t size, uint32_t *ret_extent)
{
	uint32_t id = choose_parked(cache, request, size);
	int err;

	if (!id)
		return -EAGAIN;
	err = glk_request_order(
		cache, request, glk_page_use(&cache->map, page_of(cache, id)));
	if (err)
		return err;
	unpark(cache, id);
	glk_extent_set(glk_extent_at(&cache->map, id), GLK_EXTENT_LIVE);
	*ret_extent = id;
	return 0;
}

static int back(struct glk_cache *cache, struct glk_span *span, uint32_t extent)
{
	struct glk_extent *e = glk_extent_at(&cache->map, extent);
	uint32_t slot = glk_slot_of(span, e->offset), page;
	int err;

	err = glk_node_grow(cache->node, GLK_CLASS_SINGLE, e->size, &page);
	if (err == -ENOMEM) {
		/* blocks in bins keep their pages, which the ladder can turn into this one */
		glk_quick_flush(cache->home);
		err = glk_ladder_grow(cache->home, GLK_CLASS_SINGLE, e->size, &page);
	}
	if (err)
		return err;
	err = glk_slot_attach(span, slot, page);
	if (err)
		goto release;
	err = glk_slot_grant(span, slot, slot);
	if (err)
		goto detach;
	span->slot[slot].live = 1;
	return 0;
detach:
	if (glk_limbo_undo(span, slot))
		return err;
release:
	glk_node_release(cache->node, page);
	return err;
}

int glk_single_alloc(
	struct glk_cache *cache, struct glk_request *request, uint32_t *ret_extent)
{
	struct glk_seek seek = {.cache = cache, .request = request};
	struct glk_span *span = single_span(cache);
	uint64_t slot = UINT64_C(1) << span->shift, size;
	struct glk_fit fit;
	int err;

	size = (request->rounded + slot - 1) & ~(slot - 1);
	request->rounded = size;
	err = take_parked(cache, request, size, ret_extent);
	if (err != -EAGAIN)
		return err;
	request->called = true;
	err = glk_fit_search(span, size, glk_place_check, &seek, &fit);
	if (err)
		return err;
	err = glk_extent_carve(span, fit.from, fit.offset, size, ret_extent);
	if (err)
		return err;
	err = back(cache, span, *ret_extent);
	if (err)
		glk_extent_give_back(span, *ret_extent);
	return err;
}

void glk_single_park(
	struct glk_cache *cache, uint32_t extent, uint64_t streams, uint64_t tick)
{
	struct glk_extent *e = glk_extent_at(&cache->map, extent);
	struct glk_span *span = single_span(cache);

	glk_use_add(&span->use[glk_slot_of(span, e->offset)], streams, tick);
	glk_extent_set(e, GLK_EXTENT_PARKED);
	e->left = cache->parked.last;
	e->right = 0;
	if (e->left)
		glk_extent_at(&cache->map, e->left)->right = extent;
	else
		cache->parked.first = extent;
	cache->parked.last = extent;
	cache->parked.bytes += e->size;
}

static int release_one(struct glk_cache *cache, struct glk_limbo *limbo, uint32_t extent)
{
	struct glk_extent *e = glk_extent_at(&cache->map, extent);
	struct glk_span *span = single_span(cache);
	uint32_t slot = glk_slot_of(span, e->offset), page = span->slot[slot].page;
	int err;

	if (!glk_limbo_ready(limbo, span, slot))
		return -EAGAIN;
	unpark(cache, extent);
	span->slot[slot].live = 0;
	err = glk_limbo_unmap(limbo, span, slot, slot);
	if (!err)
		err = glk_node_release(cache->node, page);
	glk_extent_give_back(span, extent);
	return err;
}

uint64_t glk_single_release(struct glk_cache *cache, uint64_t bytes, int *ret_err)
{
	struct glk_limbo limbo = GLK_LIMBO(cache->streams);
	uint32_t id = cache->parked.first, next;
	uint64_t given = 0;

	for (; id && given < bytes; id = next) {
		uint64_t size = glk_extent_at(&cache->map, id)->size;
		int err;

		next = glk_extent_at(&cache->map, id)->right;
		err = release_one(cache, &limbo, id);
		if (!err)
			given += size;
		else if (err != -EAGAIN && !*ret_err)
			*ret_err = err;
	}
	return given;
}
