/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Stitching: puts pages behind an extent. Slots that are usable as they are cost nothing; the
 * others get a page that lay elsewhere, or a new one. When a step fails, what this request
 * mapped is unmapped, which needs no clock since no work can have used it, and the pages go
 * back to where the next request finds them.
 */
#include "base/conf.h"
#include "cache/ahead.h"

#include <errno.h>

/* The oldest mapping goes when a page would have more than the configuration wants. */
static void drop_oldest_alias(
	struct glk_cache *cache, struct glk_limbo *limbo, uint32_t id)
{
	struct glk_page *page = glk_map_page(&cache->map, id);
	uint32_t name = page->first_alias, oldest = GLK_NO_SLOT;

	if (page->aliases < cache->conf->map_aliases)
		return;
	while (name != GLK_NO_SLOT) {
		oldest = name;
		name = glk_slot_span(&cache->map, name)
			       ->more[glk_slot_number(name)]
			       .next_alias;
	}
	/* not ready: one mapping more than wanted does no harm */
	if (oldest != GLK_NO_SLOT)
		glk_limbo_unmap(limbo, glk_slot_span(&cache->map, oldest),
			glk_slot_number(oldest), glk_slot_number(oldest));
}

/* A page that could not be mapped: back to the idle lists or to its node. */
static void put_back(struct glk_cache *cache, uint32_t id)
{
	if (glk_page_state(glk_map_page(&cache->map, id)) != GLK_PAGE_OWNED)
		return; /* lost meanwhile */
	if (glk_map_page(&cache->map, id)->aliases)
		glk_idle_put(&cache->map, id);
	else
		glk_node_put(cache->node, id);
}

/* A page for a slot, with room for one more mapping. */
static int find_page(struct glk_cache *cache, struct glk_request *request,
	struct glk_limbo *limbo, enum glk_class class, uint32_t *ret_page)
{
	int err;

	do {
		err = glk_page_find(cache, request, class, ret_page);
		if (err)
			return err;
		drop_oldest_alias(cache, limbo, *ret_page);
		/* the driver kept that mapping: the page is lost, and not the last one */
	} while (glk_page_state(glk_map_page(&cache->map, *ret_page)) != GLK_PAGE_OWNED);
	return 0;
}

static bool is_stale(const struct glk_span *span, uint32_t slot)
{
	return glk_bit_get(span->mapped, slot) && !glk_bit_get(span->usable, slot);
}

static int fill_slot(struct glk_cache *cache, struct glk_request *request,
	struct glk_limbo *limbo, struct glk_span *span, uint32_t slot)
{
	uint32_t page;
	int err;

	err = find_page(cache, request, limbo, span->class, &page);
	if (err)
		return err;
	request->stitched |= glk_map_page(&cache->map, page)->aliases > 0;
	request->mapped++;
	err = glk_slot_attach(span, slot, page);
	if (err) {
		put_back(cache, page);
		return err;
	}
	glk_slot_enter(span, slot);
	span->more[slot].made = cache->request;
	return 0;
}

/* Access for each run of slots that this request mapped: one call a run. */
static int grant_runs(
	struct glk_cache *cache, struct glk_span *span, uint32_t first, uint32_t last)
{
	uint32_t slot = first, end;
	int err;

	while (slot <= last) {
		if (span->more[slot].made != cache->request) {
			slot++;
			continue;
		}
		end = slot;
		while (end < last && span->more[end + 1].made == cache->request)
			end++;
		err = glk_slot_grant(span, slot, end);
		if (err)
			return err;
		slot = end + 1;
	}
	return 0;
}

/*
 * Unmaps what this request mapped and leaves the slots it entered, which are those that are
 * usable, as they were. It goes backwards, because a page may have two mappings in the
 * extent: the later one becomes usable again when the earlier one is left.
 */
static void undo(
	struct glk_cache *cache, struct glk_span *span, uint32_t first, uint32_t last)
{
	for (uint32_t slot = last + 1; slot-- > first;) {
		bool made = span->more[slot].made == cache->request;

		if (!made && !glk_bit_get(span->usable, slot))
			continue;
		glk_slot_leave(span, slot, 0, 0);
		span->more[slot].made = 0;
		if (made)
			glk_limbo_undo(span, slot);
	}
}

/* Enters the slots that are usable as they are, behind the streams that used them last. */
static int enter_usable(struct glk_cache *cache, struct glk_request *request,
	struct glk_span *span, uint32_t first, uint32_t last)
{
	int err = request->own ? 0
			       : glk_request_order_run(cache, request, span, first, last);

	if (!err)
		glk_slots_enter(span, first, last);
	return err;
}

/* Removes the mappings of pages that are in use elsewhere: one call a run. */
static int clear_stale(
	struct glk_limbo *limbo, struct glk_span *span, uint32_t first, uint32_t last)
{
	uint32_t slot = first, end;
	int err;

	while (slot <= last) {
		if (!is_stale(span, slot)) {
			slot++;
			continue;
		}
		end = slot;
		while (end < last && is_stale(span, end + 1))
			end++;
		err = glk_limbo_unmap(limbo, span, slot, end);
		if (err)
			return err;
		slot = end + 1;
	}
	return 0;
}

/* Puts pages behind the slots that have none to use. */
static int stitch(struct glk_cache *cache, struct glk_request *request,
	struct glk_span *span, uint32_t first, uint32_t last)
{
	struct glk_limbo limbo = glk_request_limbo(cache);
	int err;

	request->called = true;
	err = clear_stale(&limbo, span, first, last);
	for (uint32_t slot = first; slot <= last && !err; slot++) {
		if (!glk_bit_get(span->usable, slot))
			err = fill_slot(cache, request, &limbo, span, slot);
	}
	return err ? err : grant_runs(cache, span, first, last);
}

int glk_back(struct glk_cache *cache, struct glk_request *request, struct glk_span *span,
	uint32_t extent)
{
	struct glk_extent *e = glk_extent_at(&cache->map, extent);
	uint32_t first = glk_slot_of(span, e->offset);
	uint32_t last = glk_slot_of(span, e->offset + e->size - 1);
	int err;

	glk_ahead_meet(cache, span, first, last);
	cache->request++;
	err = enter_usable(cache, request, span, first, last);
	if (err || glk_bits_count(span->usable, first, last) == last - first + 1)
		return err;
	err = stitch(cache, request, span, first, last);
	if (err) {
		undo(cache, span, first, last);
		return err;
	}
	for (uint32_t slot = first; slot <= last; slot++)
		span->more[slot].made = 0;
	return 0;
}

void glk_unback(struct glk_cache *cache, struct glk_span *span, uint32_t extent,
	uint64_t streams, uint64_t tick)
{
	struct glk_extent *e = glk_extent_at(&cache->map, extent);

	glk_slots_leave(span, glk_slot_of(span, e->offset),
		glk_slot_of(span, e->offset + e->size - 1), streams, tick);
}
