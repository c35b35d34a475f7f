/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MAP_RIG_H
#define GLK_MAP_RIG_H

/* A map over the false driver, and pages, mappings and extents put there by hand. */
#include "base/conf.h"
#include "map/map.h"
#include "unit/fakedrv.h"
#include "unit/map/tables.h"

#define MIB(n) ((uint64_t)(n) << 20)
#define GIB(n) ((uint64_t)(n) << 30)
#define S(n)   ((uint64_t)(n) << 21) /* bytes of so many slots */

/* How many slots the page at a slot is to have, of at most `most`. */
typedef uint32_t (*rig_pick_fn)(uint32_t slot, uint32_t most);

struct rig {
	struct fake fake;
	struct glk_conf conf;
	struct glk_pool pool;
	struct glk_space space;
	struct glk_map map;
	struct glk_map_size size;
	rig_pick_fn pick; /* NULL: one */
	bool wide;	  /* idle pages are put over the ends of a block first */
	bool trim;	  /* idle pages that reach beyond a block are not used for it */
	unsigned aliases; /* mappings from which on a page gets no other one */
	uint64_t tick;
	uint64_t skipped, shared; /* places vetoed; pages mapped once more */
	uint64_t trimmed;	  /* mappings that went since they reach beyond a block */
	uint64_t kept_whole;	  /* blocks whose own page was there already */
	struct glk_fit fit;	  /* of the last block that was no small one */
	uint64_t misfits;	  /* places that needed another number of slots mapped */
};

/* Everything at its default but 4 GiB of addresses, all in the first range. */
static inline void rig_conf(struct rig *rig)
{
	memset(rig, 0, sizeof(*rig));
	glk_conf_init(&rig->conf);
	rig->conf.map_extents = 1 << 16;
	rig->conf.pool_pages = 1 << 16;
	rig->conf.pool_small_page = S(1);
	rig->conf.pool_large_page = S(4);
	rig->size = (struct glk_map_size){.step = GIB(4), .most = GIB(4)};
	rig->aliases = 8;
}

static inline int rig_make(struct rig *rig)
{
	int err = glk_space_init(&rig->space, &rig->pool.nodes[0], rig->size.most);

	if (err)
		return err;
	err = glk_map_init(&rig->map, &rig->space, &rig->conf, rig->size);
	if (err)
		glk_space_fini(&rig->space);
	return err;
}

static inline void rig_end(struct rig *rig)
{
	glk_map_fini(&rig->map);
	glk_space_fini(&rig->space);
}

/* After rig_conf() and what the test changes in it. */
static inline void rig_start(struct rig *rig)
{
	struct glk_drv *drv = fake_init(&rig->fake);

	if (glk_pool_init(&rig->pool, drv, &rig->conf, 1, 0, NULL) || rig_make(rig))
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
	uint32_t end = glk_map_end(map);

	if (end)
		glk_bits_clear(map->busy, 0, end - 1);
	for (uint32_t slot = 0; slot < end; slot++) {
		struct glk_mapping m;
		uint32_t id = map->page[slot];

		if (!id)
			continue;
		m = glk_mapping_at(map, slot);
		glk_mapping_remove(map, m.first, m.last);
		if (glk_page_state(glk_map_page(map, id)) == GLK_PAGE_OWNED &&
			!glk_map_page(map, id)->aliases)
			glk_node_release(map->node, id);
	}
	rig_end(rig);
	glk_pool_fini(&rig->pool);
	fake_fini(&rig->fake);
}

/* The same, and says whether the driver was treated well. */
static inline void rig_stop(struct rig *rig)
{
	is_int((int64_t)rig->fake.broken, 0, "no rule of the driver was broken");
	rig_fini(rig);
}

/* Checks the map and says what is wrong with it. */
static inline bool rig_sound(struct rig *rig)
{
	if (!map_verify(&rig->map))
		return true;
	tap_note("%s", fake_text());
	return false;
}

static inline struct glk_page *rig_page(struct rig *rig, uint32_t page)
{
	return glk_map_page(&rig->map, page);
}

static inline uint64_t rig_addr(struct rig *rig, uint32_t slot)
{
	return glk_slot_addr(&rig->map, slot);
}

/* A new page of so many slots, mapped nowhere. */
static inline uint32_t rig_grow(struct rig *rig, uint32_t slots)
{
	uint32_t page = 0;

	if (glk_node_grow(rig->map.node, S(slots), &page))
		tap_bail("no page");
	return page;
}

/* Maps a page that is taken, or mapped nowhere, with access. */
static inline void rig_map(struct rig *rig, uint32_t slot, uint32_t page)
{
	if (glk_mapping_make(&rig->map, slot, &page, 1))
		tap_bail("no mapping");
}

/* A new page at a slot, idle. */
static inline uint32_t rig_new(struct rig *rig, uint32_t slot, uint32_t slots)
{
	uint32_t page = rig_grow(rig, slots);

	rig_map(rig, slot, page);
	glk_page_put_back(&rig->map, page);
	return page;
}

/* One more mapping of an idle page, which stays idle. */
static inline void rig_again(struct rig *rig, uint32_t slot, uint32_t page)
{
	glk_page_take(&rig->map, page);
	rig_map(rig, slot, page);
	glk_page_put_back(&rig->map, page);
}

/* Raises the mark, so that slots lie below it. */
static inline void rig_raise(struct rig *rig, uint32_t slots)
{
	glk_extent_raise(&rig->map, S(slots));
	if (rig->map.high != S(slots))
		tap_bail("no addresses");
}

/* The extent that holds an offset; 0: none. */
static inline uint32_t rig_at(struct rig *rig, uint64_t offset)
{
	uint32_t used = glk_load_relaxed(&rig->map.extents.used);

	for (uint32_t id = 1; id <= used; id++) {
		struct glk_extent *e = glk_extent_at(&rig->map, id);

		if (glk_extent_state(e) != GLK_EXTENT_NONE &&
			offset - e->offset < e->size)
			return id;
	}
	return 0;
}

/* The place [offset, offset + size), given out and entered for lookups, on no slots. */
static inline uint32_t rig_carve(struct rig *rig, uint64_t offset, uint64_t size)
{
	uint32_t from = rig_at(rig, offset), extent = 0;
	struct glk_extent *e = glk_extent_at(&rig->map, from);

	if (from && offset + size > e->offset + e->size)
		from = 0;
	if (glk_extent_carve(&rig->map, from, offset, size, &extent))
		tap_bail("no addresses");
	glk_lookup_enter(&rig->map, extent);
	return extent;
}

/* The same on its slots: whatever is mapped there comes into use. */
static inline uint32_t rig_enter(struct rig *rig, uint64_t offset, uint64_t size)
{
	uint32_t extent = rig_carve(rig, offset, size);
	struct glk_extent *e = glk_extent_at(&rig->map, extent);

	glk_slots_enter(
		&rig->map, glk_extent_first(&rig->map, e), glk_extent_last(&rig->map, e));
	return extent;
}

static inline void rig_leave(struct rig *rig, uint32_t extent, uint64_t streams)
{
	struct glk_extent *e = glk_extent_at(&rig->map, extent);
	struct glk_use use = glk_use_of(streams, ++rig->tick);

	glk_lookup_leave(&rig->map, extent);
	glk_slots_leave(&rig->map, glk_extent_first(&rig->map, e),
		glk_extent_last(&rig->map, e), &use);
	glk_extent_give_back(&rig->map, extent);
}

static inline void rig_free(struct rig *rig, uint32_t extent)
{
	rig_leave(rig, extent, 1);
}

#endif
