/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Mappings come and go here. A page keeps its mappings as a chain of slots, the most recent
 * first. Every step is undone exactly when the driver refuses it.
 */
#include "map/map.h"

#include "base/error.h"
#include "base/log.h"

#include <errno.h>
#include <inttypes.h>

static uint64_t slot_addr(const struct glk_span *span, uint32_t slot)
{
	return span->base + ((uint64_t)slot << span->shift);
}

/* A page of a contiguous block is larger than its slot, and alone. */
static size_t run_bytes(const struct glk_span *span, uint32_t first, uint32_t last)
{
	if (first == last)
		return glk_map_page(span->map, span->slot[first].page)->size;
	return (size_t)(last - first + 1) << span->shift;
}

/* A second mapping: from now on the page keeps what its one slot kept for it. */
static void make_shared(struct glk_map *map, struct glk_page *page)
{
	uint32_t name = page->first_alias;
	struct glk_span *span = glk_slot_span(map, name);

	page->use = span->use[glk_slot_number(name)];
	page->in_use = GLK_NO_SLOT;
	glk_bit_set(span->shared, glk_slot_number(name));
}

/* Back to one mapping: its slot keeps everything again. */
static void make_single(struct glk_map *map, struct glk_page *page)
{
	uint32_t name = page->first_alias;
	struct glk_span *span = glk_slot_span(map, name);

	glk_use_add(&span->use[glk_slot_number(name)], page->use.streams, page->use.tick);
	glk_bit_clear(span->shared, glk_slot_number(name));
}

int glk_slot_attach(struct glk_span *span, uint32_t slot, uint32_t id)
{
	struct glk_page *page = glk_map_page(span->map, id);
	struct glk_drv *drv = span->map->pool->drv;
	int err;

	if (page->aliases == UINT8_MAX)
		return glk_error(-ENOMEM, GLAKE_ERROR_LIMIT,
			"page %" PRIu32 " has all the %d mappings a page may have", id,
			UINT8_MAX);
	err = drv->ops->map(drv, slot_addr(span, slot), page->size, page->handle);
	if (err)
		return err;
	glk_slot_book(span, slot, id);
	return 0;
}

void glk_slot_book(struct glk_span *span, uint32_t slot, uint32_t id)
{
	struct glk_page *page = glk_map_page(span->map, id);

	if (page->aliases == 1)
		make_shared(span->map, page);
	if (!page->aliases)
		span->map->page_bytes += page->size;
	span->use[slot] = page->aliases ? (struct glk_use){0} : page->use;
	span->slot[slot].page = id;
	span->more[slot].next_alias = page->first_alias;
	page->first_alias = glk_slot_name(span, slot);
	if (page->aliases++)
		glk_bit_set(span->shared, slot);
	glk_bit_set(span->mapped, slot);
	glk_bit_set(span->usable, slot);
	span->map->mapped_bytes += page->size;
}

int glk_slot_prepare(
	struct glk_span *span, uint32_t slot, uint32_t id, bool *ret_mapped)
{
	const struct glk_page *page = glk_map_page(span->map, id);
	struct glk_drv *drv = span->map->pool->drv;
	int err;

	err = drv->ops->map(drv, slot_addr(span, slot), page->size, page->handle);
	*ret_mapped = !err;
	return err ? err : glk_map_allow(span->map, slot_addr(span, slot), page->size);
}

int glk_slot_grant(struct glk_span *span, uint32_t first, uint32_t last)
{
	return glk_map_allow(
		span->map, slot_addr(span, first), run_bytes(span, first, last));
}

/* Takes a slot out of the chain of its page. */
static void unchain(struct glk_span *span, uint32_t slot, struct glk_page *page)
{
	uint32_t *link = &page->first_alias, name = glk_slot_name(span, slot);

	while (*link != name)
		link = &glk_slot_span(span->map, *link)
				->more[glk_slot_number(*link)]
				.next_alias;
	*link = span->more[slot].next_alias;
	if (page->aliases == 1)
		page->use = span->use[slot];
	if (!--page->aliases)
		span->map->page_bytes -= page->size;
	glk_bit_clear(span->shared, slot);
	glk_bit_clear(span->usable, slot);
	if (page->aliases == 1)
		make_single(span->map, page);
}

/*
 * The driver kept a mapping. Its slot stays out of use for good: marked as mapped, not usable,
 * without a page, which no search accepts. The page is lost with all its mappings, unless a
 * live extent is on it: then when it would be released.
 */
static void quarantine(struct glk_span *span, uint32_t slot, uint32_t id, bool busy)
{
	struct glk_map *map = span->map;
	struct glk_page *page = glk_map_page(map, id);

	glk_warn("slot %" PRIu32 " could not be unmapped and stays out of use", slot);
	/* a contiguous block lies over more slots than the one that names its page */
	for (uint32_t i = 1; i < page->size >> span->shift; i++)
		glk_bit_set(span->mapped, slot + i);
	page->kept = true;
	if (busy)
		return;
	for (uint32_t name = page->first_alias; name != GLK_NO_SLOT;) {
		struct glk_span *at = glk_slot_span(map, name);
		uint32_t number = glk_slot_number(name);

		name = at->more[number].next_alias;
		at->slot[number].page = 0;
		glk_bit_clear(at->usable, number);
		glk_bit_clear(at->shared, number);
		map->mapped_bytes -= page->size;
	}
	if (page->aliases)
		map->page_bytes -= page->size;
	page->first_alias = GLK_NO_SLOT;
	page->aliases = 0;
	glk_node_lose(map->node, id);
}

/* Books a slot as unmapped, or as kept by the driver when it answered `err`. */
static void forget(struct glk_span *span, uint32_t slot, int err)
{
	uint32_t id = span->slot[slot].page;
	struct glk_map *map = span->map;
	struct glk_page *page = glk_map_page(map, id);
	bool listed = glk_idle_has(map, id);
	bool busy = glk_page_busy(map, page);

	glk_idle_take(map, id);
	unchain(span, slot, page);
	span->slot[slot].page = 0;
	map->mapped_bytes -= page->size;
	if (err) {
		quarantine(span, slot, id, busy);
		return;
	}
	glk_bit_clear(span->mapped, slot);
	if (listed && page->aliases)
		glk_idle_put(map, id);
	else if (listed)
		glk_node_put(map->node, id);
}

int glk_slots_detach(struct glk_span *span, uint32_t first, uint32_t last)
{
	struct glk_drv *drv = span->map->pool->drv;
	int err;

	err = drv->ops->unmap(drv, slot_addr(span, first), run_bytes(span, first, last));
	for (uint32_t slot = first; slot <= last; slot++) {
		/* a page that was lost with an earlier slot took this one with it */
		if (span->slot[slot].page)
			forget(span, slot, err);
	}
	return err;
}

int glk_slot_detach(struct glk_span *span, uint32_t slot)
{
	return glk_slots_detach(span, slot, slot);
}
