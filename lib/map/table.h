/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MAP_TABLE_H
#define GLK_MAP_TABLE_H

/* The tables of a map, which both parts of this folder keep: see map/map.h. */
#include "base/lock.h"
#include "base/slab.h"
#include "map/page/bits.h"
#include "map/space/word.h"
#include "pool/pool.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct glk_conf;
struct glk_map;

#define GLK_GRAIN_SHIFT 9

/*
 * On an array that is written before it is read: builds fill variables with zeros otherwise, which takes
 * longer than what most searches do with these.
 */
#ifdef __has_attribute
#if __has_attribute(uninitialized)
#define GLK_UNFILLED __attribute__((uninitialized))
#endif
#endif
#ifndef GLK_UNFILLED
#define GLK_UNFILLED
#endif

/* Steps in which addresses may be reserved. */
#define GLK_RANGES_MAX 32

/* A block above an eighth of a slot is the only one that begins in its eighth of a slot, so an
 * entry for each eighth names it. Those up to that size are small: see space/nest.h. */
#define GLK_EIGHTH_SHIFT 3

/* What the tables say of 64 slots at once, a word of the bitmaps. */
#define GLK_GROUP_SHIFT 6

struct glk_range {
	struct glk_map *map;
	uint64_t base, size;	      /* addresses, bytes */
	uint64_t offset;	      /* of its first byte in the map */
	glk_atomic(uint32_t) * start; /* the part of the map's table that is its own */
	/* What the driver reserved, which may reach further on both sides. */
	uint64_t reserved, reserved_size;
};

/* Eight classes of sizes for each power of two, up to what 48 bits of addresses can hold. */
#define GLK_TREE_CLASSES 320

/* Extents by size, then address: space/tree.c. */
struct glk_tree {
	uint32_t count;
	bool by_address;		      /* alone, in one class */
	uint64_t some[GLK_TREE_CLASSES / 64]; /* a bit a class: it has extents */
	uint32_t root[GLK_TREE_CLASSES];
};

/* Neighbours of a group in the list of those that may have idle pages: see page/idle.h. */
struct glk_idle_links {
	uint32_t older, newer;
};

/* A walk along that list. */
struct glk_idle_cursor {
	uint32_t next; /* group */
	struct glk_idle_cursor *other;
};

struct glk_map {
	struct glk_pool *pool;
	struct glk_node *node;
	/* Held by who calls a function that says it gives the lock up; NULL: nobody shares the map. */
	struct glk_lock *lock;
	unsigned shift;	   /* of the slot size */
	unsigned eighth;   /* of an eighth of it */
	uint32_t grains;   /* of a slot, less one */
	uint32_t large;	   /* slots of a large page */
	uint32_t capacity; /* slots that the tables have room for */
	int ends;	   /* of a free extent that are tried, by policy.ends */
	struct glk_range range[GLK_RANGES_MAX];
	unsigned ranges;
	uint64_t step;	     /* bytes of the next range, if that is enough */
	uint64_t most, size; /* bytes of all ranges: allowed, reserved */
	uint64_t high;	     /* no extent of the newest range lies above; poked */
	uint64_t end;	     /* of the newest range */
	uint32_t last;	     /* extent that ends at `high`; 0: none */
	uint32_t ahead;	     /* above the mark, slots below this one may be mapped too */
	uint64_t taken;	     /* bytes of extents that are not free */
	uint64_t nested_taken; /* the same in slots of small blocks */
	uint32_t mark; /* number of the place under way, to meet no page of it twice */

	/* space/ */
	struct glk_slab extents;
	struct glk_slab nests;
	glk_atomic(uint32_t) *
		start;	  /* an eighth of a slot: what begins there, or its nest */
	uint64_t *begins; /* a bit an eighth: an entered extent begins there */
	uint32_t *
		cover; /* a group: the one that holds its first byte, begun before it; poked */

	/* page/ */
	glk_atomic(uint32_t) * page; /* a slot: page that is mapped there; 0: none */
	uint16_t *count;	     /* a slot: live extents that begin or end in it */
	uint32_t *alias; /* first slot of a mapping: the next mapping of the same page */
	struct glk_use *use; /* see page/use.h */
	uint64_t *edge;
	/* A bit a slot. */
	uint64_t *mapped, *usable;
	uint64_t *shared;  /* its page has other mappings too */
	uint64_t *head;	   /* a mapping begins there */
	uint64_t *wide;	   /* it belongs to a mapping of several slots */
	uint64_t *busy;	   /* a live extent touches it */
	uint64_t *claimed; /* somebody is about to map it: see page/claim.h */
	uint32_t claims;   /* of that many */
	uint64_t *
		lost; /* a live extent lost its contents here and has no page: page/swap.h */
	/* Of blocks that are away in part, see space/part.h: a bit a slot, and what is kept
	 * of a piece. */
	uint64_t *gone, *begun;
	uint32_t *piece;
	/* Groups that may have idle pages, the one that got none for longest first: page/idle.h */
	struct glk_idle_links *idle;
	uint32_t listed;		 /* groups in that list */
	struct glk_idle_cursor *cursors; /* walks along it that are under way */

	uint64_t idle_slots;   /* of pages that keep mappings and are in use by nobody */
	uint64_t stranded;     /* slots of pages in use that no live extent touches */
	uint64_t mapped_bytes; /* all mappings, aliases counted each */
	uint64_t page_bytes;   /* pages with mappings */
	uint32_t guests;       /* slots of mappings whose page is of another node */

	struct glk_tree common, nested; /* free extents; behind what a hit reads */
};

static inline struct glk_page *glk_map_page(const struct glk_map *map, uint32_t page)
{
	return glk_page_at(map->pool, page);
}

/* The node that a page is of, which need not be that of the map: see map/page/swap.h. */
static inline struct glk_node *glk_map_node(const struct glk_map *map, uint32_t page)
{
	return &map->pool->nodes[glk_map_page(map, page)->node];
}

/* Whether a page is memory of the host, which a node near a GPU has. */
static inline bool glk_map_is_host(const struct glk_map *map, uint32_t page)
{
	return glk_map_node(map, page)->gpu != NULL;
}

static inline uint64_t glk_slot_bytes(const struct glk_map *map)
{
	return UINT64_C(1) << map->shift;
}

static inline uint32_t glk_slot_of(const struct glk_map *map, uint64_t offset)
{
	return (uint32_t)(offset >> map->shift);
}

/* Bytes of a slot that lie in [begin, end), offsets in the map. */
static inline uint64_t glk_slot_part(
	const struct glk_map *map, uint32_t slot, uint64_t begin, uint64_t end)
{
	uint64_t low = (uint64_t)slot << map->shift, high = low + glk_slot_bytes(map);

	low = low < begin ? begin : low;
	high = high > end ? end : high;
	return high > low ? high - low : 0;
}

/* Around calls of the driver: others may change the map meanwhile. */
static inline void glk_map_pause(const struct glk_map *map)
{
	if (map->lock)
		glk_lock_pause(map->lock);
}

static inline void glk_map_resume(const struct glk_map *map)
{
	if (map->lock)
		glk_lock_resume(map->lock);
}

/* Bytes of the largest block that is small. */
static inline uint64_t glk_map_small(const struct glk_map *map)
{
	return glk_slot_bytes(map) >> GLK_EIGHTH_SHIFT;
}

/* The first slot above the high-water mark, which no extent ever touched. */
static inline uint32_t glk_map_fresh(const struct glk_map *map)
{
	return (uint32_t)((map->high + glk_slot_bytes(map) - 1) >> map->shift);
}

/* The slot after the last one that may be mapped. */
static inline uint32_t glk_map_end(const struct glk_map *map)
{
	uint32_t fresh = glk_map_fresh(map);

	return fresh > map->ahead ? fresh : map->ahead;
}

#endif
