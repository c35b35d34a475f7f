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

static inline uint32_t glk_page_slots(const struct glk_map *map, const struct glk_page *page)
{
	return (uint32_t)(page->size >> map->shift);
}

/* That of a mapped slot. */
static inline struct glk_mapping glk_mapping_at(const struct glk_map *map, uint32_t slot)
{
	uint32_t first;

	if (!glk_bit_get(map->wide, slot))
		return (struct glk_mapping){slot, slot};
	first = glk_bits_last(map->head, 0, slot);
	return (struct glk_mapping){first,
		first + glk_page_slots(map, glk_map_page(map, map->page[slot])) - 1};
}

/* A page that was mapped, with access or without, at slots that had no mapping. Live extents touch
 * all of them or none, since what is stranded is counted when an extent comes or goes. The page is
 * usable; where nobody is on it, it counts as idle only once it is put back, and until then its
 * mapping must not be removed. */
void glk_mapping_book(struct glk_map *map, uint32_t slot, uint32_t page);
/* Maps an OWNED page that is taken, or has no mapping, and books it. 0, -ENOMEM (class LIMIT: 255
 * mappings of the page) or the driver's error, with nothing changed. */
int glk_mapping_make(struct glk_map *map, uint32_t slot, uint32_t page);
/* The same for one who does not hold the lock of the GPU: maps the page at an address, which was
 * looked up under the lock, and grants access. 0 or the driver's error, *ret_mapped telling
 * whether the mapping stands. It touches no table of slots and no range, which others change;
 * nobody else may map the slots or own the page meanwhile. */
int glk_mapping_prepare(
	const struct glk_map *map, uint64_t addr, uint32_t page, bool *ret_mapped);
/* Grants access to a run of whole mappings. 0 or the driver's error. */
int glk_mapping_grant(const struct glk_map *map, uint32_t first, uint32_t last);
/*
 * Removes the mappings of a run, which begins and ends with whole ones, none of them in use, in
 * one call of the driver. A page stays what it was, but an idle one left without mappings goes to
 * the list of its node. On error the slots stay out of use, and the pages are LOST unless they
 * are in use elsewhere.
 */
int glk_mapping_remove(struct glk_map *map, uint32_t first, uint32_t last);

/* Takes an idle page for use elsewhere, and puts it back. A page without mappings is the
 * caller's anyway. */
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

/* The last use of a page that nobody uses, through any of its mappings. */
struct glk_use glk_page_use(const struct glk_map *map, uint32_t page);

/* access.c: who may read and write. */
/* The GPU and its peers: for a run of whole mappings that are new. */
int glk_map_allow(const struct glk_map *map, uint64_t addr, size_t size);
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
