/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MAP_MAPPING_H
#define GLK_MAP_MAPPING_H

/*
 * A mapping: one page, whole, at a run of slots, named by the first of them. A page keeps its
 * mappings as a chain, the most recent first, and is in one of three ways:
 *
 *	in use	live extents touch one of its mappings, and the others are stale
 *	idle	none is touched; all are usable
 *	taken	in the hands of a request, which will map it elsewhere: all are stale
 *
 * Functions that say so book what the driver has done; the others call it.
 */
#include "map/table.h"

struct glk_mapping {
	uint32_t first, last; /* slots */
};

static inline uint32_t glk_page_slots(
	const struct glk_map *map, const struct glk_page *page)
{
	return (uint32_t)(page->size >> map->shift);
}

/* Slots of a group that continue no mapping: one begins there, or there is none. */
static inline uint64_t glk_mapping_heads(const struct glk_map *map, uint32_t group)
{
	return glk_peek_relaxed(&map->head[group]) | ~glk_peek_relaxed(&map->wide[group]);
}

/* The first slot of the mapping of a slot, and the one behind its last; as if one without were one of its own. */
static inline uint32_t glk_mapping_begin(const struct glk_map *map, uint32_t slot)
{
	uint32_t group = slot >> GLK_GROUP_SHIFT;
	uint64_t heads =
		glk_mapping_heads(map, group) & ~UINT64_C(0) >> (63 - (slot & 63));

	while (!heads)
		heads = glk_mapping_heads(map, --group);
	return group << GLK_GROUP_SHIFT | (63 - (uint32_t)__builtin_clzll(heads));
}

static inline uint32_t glk_mapping_behind(const struct glk_map *map, uint32_t slot)
{
	uint32_t group = slot >> GLK_GROUP_SHIFT;
	uint64_t heads = glk_mapping_heads(map, group) & ~UINT64_C(1) << (slot & 63);

	while (!heads)
		heads = glk_mapping_heads(map, ++group);
	return group << GLK_GROUP_SHIFT | (uint32_t)__builtin_ctzll(heads);
}

/* That of a slot of a page that has several. */
static inline struct glk_mapping glk_mapping_wide(
	const struct glk_map *map, uint32_t slot)
{
	return (struct glk_mapping){
		glk_mapping_begin(map, slot), glk_mapping_behind(map, slot) - 1};
}

/* That of a mapped slot. */
static inline struct glk_mapping glk_mapping_at(const struct glk_map *map, uint32_t slot)
{
	return glk_bit_get(map->wide, slot) ? glk_mapping_wide(map, slot)
					    : (struct glk_mapping){slot, slot};
}

/* The slots of a word of a run where the mappings begin that have a bit set in `bits`; the first one
 * of a run may have begun before, and counts at the run's first slot. */
static inline uint64_t glk_mapping_starts(
	const struct glk_map *map, uint32_t w, uint64_t bits, uint32_t first)
{
	uint64_t starts = map->head[w];

	if (w == first >> 6)
		starts |= UINT64_C(1) << (first & 63);
	return bits & starts;
}

/* The mapping that glk_mapping_starts() told of. */
static inline struct glk_mapping glk_mapping_from(
	const struct glk_map *map, uint32_t slot)
{
	const struct glk_page *page;

	if (!glk_bit_get(map->head, slot))
		return glk_mapping_at(map, slot);
	page = glk_map_page(map, map->page[slot]);
	return (struct glk_mapping){slot, slot + glk_page_slots(map, page) - 1};
}

/* A page that was mapped, with access or without, at slots that had no mapping. Where live
 * extents touch some of them and not others the caller counts what is stranded, which else is done when an extent
 * comes or goes. The page is usable; where nobody is on it, it counts as idle only once it is put back, and until then its
 * mapping must not be removed. */
void glk_mapping_book(struct glk_map *map, uint32_t slot, uint32_t page);
/*
 * Maps OWNED pages that are taken, or have no mapping, one behind the other from a slot on, grants
 * access to all of them and books them. No slot of the run is mapped, and nobody else may map it.
 * Gives the lock up while the driver is called. 0, -ENOMEM (class LIMIT: 255 mappings of a page)
 * or the driver's error, with nothing changed; a page whose mapping the driver then keeps is LOST.
 */
int glk_mapping_make(
	struct glk_map *map, uint32_t slot, const uint32_t *pages, uint32_t count);
/* The same for runs that lie apart, up to GLK_MAPPING_RUNS of them, with pages of one slot, one behind the other: all or
 * none. The tables are looked at before and after all calls of the driver, and not between them. */
#define GLK_MAPPING_RUNS 64
int glk_mapping_make_runs(struct glk_map *map, const struct glk_stretch *runs,
	uint32_t count, const uint32_t *pages);
/* The same for pages that are sealed, which may only be read there. -ENOMEM from GLK_SEALERS_MAX mappings on. */
int glk_mapping_make_sealed(
	struct glk_map *map, uint32_t slot, const uint32_t *pages, uint32_t count);
/* A run of them may be written as well. Gives the lock up meanwhile. 0 or the driver's error. */
int glk_mapping_open(const struct glk_map *map, uint32_t first, uint32_t last);

/*
 * How mappings go: those of a run, which begins and ends with whole ones, none of them in use.
 *
 *	detach	takes them out of the tables: their pages have them no longer, and their slots
 *		are mapped without a page. They have to go from then on
 *	gone	books what the driver answered. A page that is idle and was left without mappings
 *		goes to the list of its node. Where the driver kept them, the slots stay as they
 *		are for good, and so does the memory of the pages: those that are idle, and with
 *		`own` those in somebody's hands, are LOST with their other mappings, the rest
 *		when they are to be released
 *
 * The driver is asked between the two, without the lock.
 */
void glk_mapping_detach(struct glk_map *map, uint32_t first, uint32_t last);
void glk_mapping_gone(
	struct glk_map *map, uint32_t first, uint32_t last, int err, bool own);
/* All three in one, in one call of the driver, with `own`. Gives the lock up meanwhile. 0 or the
 * driver's error. */
int glk_mapping_remove(struct glk_map *map, uint32_t first, uint32_t last);
/* The driver's part, for a run that was detached, at its address. */
int glk_mapping_unmap(const struct glk_map *map, uint64_t addr, uint32_t slots);

/* Takes an idle page for use elsewhere, and puts it back. A page without mappings is the
 * caller's anyway; it goes to the list of its node, as soon as none of its mappings is about to
 * go. */
void glk_page_take(struct glk_map *map, uint32_t page);
void glk_page_put_back(struct glk_map *map, uint32_t page);
/* The first page of a chain of taken ones, linked by free_link; 0: none. */
static inline uint32_t glk_page_next(const struct glk_map *map, uint32_t page)
{
	return glk_load_relaxed(&glk_map_page(map, page)->free_link.next);
}

static inline void glk_page_link(struct glk_map *map, uint32_t page, uint32_t next)
{
	glk_store_relaxed(&glk_map_page(map, page)->free_link.next, next);
}

/* A page is used at a slot from now on, or was last; the map counts it as its own. */
static inline void glk_page_use_at(
	const struct glk_map *map, struct glk_page *page, uint32_t slot)
{
	struct glk_map *at = glk_slot_map(map, slot);

	if (page->map == at || page->node != map->node->index)
		return;
	if (page->map)
		page->map->held -= page->size;
	page->map = at;
	at->held += page->size;
}

/* The last use of a page that nobody uses, through any of its mappings. */
struct glk_use glk_page_use(const struct glk_map *map, uint32_t page);

/* access.c: who may read and write. */
/* The GPU and its peers, to write or to read alone: for runs of whole mappings that are new. */
struct glk_grants {
	struct glk_grant of[GLK_GRANTS_MAX];
	size_t count;
};
struct glk_grants glk_map_grants(const struct glk_map *map, enum glk_access access);
/* A right that is given or taken on all that is mapped, a run of slots after the other. */
struct glk_sweep {
	struct glk_grant grant;
	size_t done, most; /* runs; no more than `most` */
	bool anyway;	   /* goes on after a failure */
};

/* 0 or the driver's last error; without `anyway` it is the end. */
int glk_map_access(struct glk_map *map, struct glk_sweep *sweep);
/* The same for one range. */
int glk_sweep_range(
	struct glk_sweep *sweep, struct glk_drv *drv, uint64_t addr, uint64_t size);

#endif
