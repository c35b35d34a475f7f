/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MAP_RIG_H
#define GLK_MAP_RIG_H

/*
 * A map over the false driver, and blocks as the cache makes them, without streams: the first
 * place that fits, pages from the node's list, from the idle lists, or new ones.
 */
#include "base/conf.h"
#include "map/map.h"
#include "unit/fakedrv.h"

#define MIB(n) ((uint64_t)(n) << 20)
#define GIB(n) ((uint64_t)(n) << 30)

struct rig {
	struct fake fake;
	struct glk_conf conf;
	struct glk_pool pool;
	struct glk_map map;
	uint64_t skipped; /* places vetoed */
};

/* Everything at its default but a span of 4 GiB: 512 MiB small, 512 medium, 2048 large, 1024
 * contiguous. */
static inline void rig_conf(struct rig *rig)
{
	memset(rig, 0, sizeof(*rig));
	glk_conf_init(&rig->conf);
	rig->conf.map_span = GIB(4);
	rig->conf.map_extents = 1 << 16;
	rig->conf.pool_pages = 1 << 16;
}

/* After rig_conf() and what the test changes in it. */
static inline void rig_start(struct rig *rig)
{
	struct glk_drv *drv = fake_init(&rig->fake);

	if (glk_pool_init(&rig->pool, drv, &rig->conf, 1, 0, NULL) ||
		glk_map_init(&rig->map, &rig->pool, &rig->pool.nodes[0], &rig->conf,
			rig->conf.map_span))
		tap_bail("the map cannot be made");
}

static inline void rig_init(struct rig *rig)
{
	rig_conf(rig);
	rig_start(rig);
}

/* Unmaps and releases what is left, blocks or not. */
static inline void rig_fini(struct rig *rig)
{
	struct glk_map *map = &rig->map;

	for (int kind = 0; kind < GLK_KIND_COUNT; kind++) {
		struct glk_span *span = &map->span[kind];

		for (uint32_t slot = 0; slot < span->slots; slot++) {
			uint32_t id = span->slot[slot].page;
			struct glk_page *page = glk_map_page(map, id);

			if (!glk_bit_get(span->mapped, slot) || !id)
				continue;
			glk_idle_take(map, id);
			page->in_use = GLK_NO_SLOT;
			glk_slot_detach(span, slot);
			if (glk_page_state(page) == GLK_PAGE_OWNED && !page->aliases)
				glk_node_release(&rig->pool.nodes[0], id);
		}
	}
	glk_map_fini(map);
	glk_pool_fini(&rig->pool);
	fake_fini(&rig->fake);
}

/* Accepts a place unless a slot of it is out of use. */
static inline bool rig_check(struct glk_span *span, uint32_t first, uint32_t last,
	struct glk_fit *fit, void *arg)
{
	struct rig *rig = arg;

	for (uint32_t slot = first; slot <= last; slot++) {
		if (glk_bit_get(span->mapped, slot) && !span->slot[slot].page) {
			rig->skipped++;
			return false;
		}
	}
	return true;
}

/* A page for a new mapping: free, idle, or new; 0 for none. */
static inline uint32_t rig_page(struct rig *rig, enum glk_class class)
{
	uint32_t page = glk_node_take(&rig->pool.nodes[0], class);

	if (!page) {
		page = glk_idle_first(&rig->map, class);
		if (page)
			glk_idle_take(&rig->map, page);
	}
	if (!page && glk_node_grow(&rig->pool.nodes[0], class, 0, &page))
		return 0;
	return page;
}

static inline int rig_fill(struct rig *rig, struct glk_span *span, uint32_t slot)
{
	uint32_t page;
	int err;

	if (glk_bit_get(span->mapped, slot)) {
		err = glk_slot_detach(span, slot);
		if (err)
			return err;
	}
	page = rig_page(rig, span->class);
	if (!page)
		return -ENOMEM;
	err = glk_slot_attach(span, slot, page);
	if (err && glk_map_page(&rig->map, page)->aliases)
		glk_idle_put(&rig->map, page);
	else if (err)
		glk_node_put(&rig->pool.nodes[0], page);
	return err ? err : glk_slot_grant(span, slot, slot);
}

/* Puts pages behind a live extent and enters it in the tables. Bails out on failure. */
static inline void rig_back(struct rig *rig, struct glk_span *span, uint32_t extent)
{
	struct glk_extent *e = glk_extent_at(&rig->map, extent);
	uint32_t first = glk_slot_of(span, e->offset);
	uint32_t last = glk_slot_of(span, e->offset + e->size - 1);

	/* those that are usable first, so that nothing takes their pages away */
	for (uint32_t slot = first; slot <= last; slot++) {
		if (glk_bit_get(span->usable, slot))
			glk_slot_enter(span, slot);
		else
			span->more[slot].made = 1;
	}
	for (uint32_t slot = first; slot <= last; slot++) {
		if (!span->more[slot].made)
			continue;
		span->more[slot].made = 0;
		if (rig_fill(rig, span, slot))
			tap_bail("no page for a slot");
		glk_slot_enter(span, slot);
	}
	glk_lookup_enter(span, extent);
}

/* A block of `size` bytes at an offset of a span, new addresses. */
static inline uint32_t rig_place(
	struct rig *rig, enum glk_kind kind, uint64_t offset, uint64_t size)
{
	struct glk_span *span = &rig->map.span[kind];
	uint32_t extent;

	if (glk_extent_carve(span, 0, offset, size, &extent))
		tap_bail("no addresses for a block");
	rig_back(rig, span, extent);
	return extent;
}

/* A block where the search finds a place. */
static inline uint32_t rig_alloc(struct rig *rig, uint64_t size)
{
	struct glk_span *span = &rig->map.span[glk_map_kind(&rig->map, size)];
	struct glk_fit fit;
	uint32_t extent;

	if (glk_fit_search(span, size, rig_check, rig, &fit) ||
		glk_extent_carve(span, fit.from, fit.offset, size, &extent))
		return 0;
	rig_back(rig, span, extent);
	return extent;
}

static inline void rig_free(struct rig *rig, enum glk_kind kind, uint32_t extent)
{
	struct glk_span *span = &rig->map.span[kind];
	struct glk_extent *e = glk_extent_at(&rig->map, extent);
	uint32_t last = glk_slot_of(span, e->offset + e->size - 1);

	glk_lookup_leave(span, extent);
	for (uint32_t slot = glk_slot_of(span, e->offset); slot <= last; slot++)
		glk_slot_leave(span, slot, 1, 1);
	glk_extent_give_back(span, extent);
}

/* A contiguous block of whole slots at an offset, with a page of its own. */
static inline uint32_t rig_single(struct rig *rig, uint64_t offset, uint64_t size)
{
	struct glk_span *span = &rig->map.span[GLK_KIND_SINGLE];
	uint32_t slot = glk_slot_of(span, offset), extent, page;

	if (glk_extent_carve(span, 0, offset, size, &extent) ||
		glk_node_grow(&rig->pool.nodes[0], GLK_CLASS_SINGLE, size, &page) ||
		glk_slot_attach(span, slot, page) || glk_slot_grant(span, slot, slot))
		tap_bail("no contiguous block");
	span->slot[slot].live = 1;
	glk_map_page(&rig->map, page)->in_use = glk_slot_name(span, slot);
	glk_lookup_enter(span, extent);
	return extent;
}

/* Checks the books and says what is wrong with them. */
static inline bool rig_sound(struct rig *rig)
{
	if (!glk_map_verify(&rig->map))
		return true;
	tap_note("%s", fake_text());
	return false;
}

#endif
