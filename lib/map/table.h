/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MAP_TABLE_H
#define GLK_MAP_TABLE_H

/* The tables of a space and of its maps, which both parts of this folder keep: see map/map.h. */
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

/* Ranges begin and end at a multiple of a GiB, of addresses and of offsets. */
#define GLK_RANGE_SHIFT 30

/* What the tables say of 64 slots at once, a word of the bitmaps. */
#define GLK_GROUP_SHIFT 6

struct glk_range {
	struct glk_map *map;
	uint64_t base, size;	      /* addresses, bytes */
	uint64_t offset;	      /* of its first byte in the space */
	glk_atomic(uint32_t) * start; /* the part of the space's table that is its own */
	/* What the driver reserved, which may reach further on both sides. */
	uint64_t reserved, reserved_size;
};

/* Eight classes of sizes for each power of two, of all sizes that there are. */
#define GLK_TREE_CLASSES 448

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

/*
 * The tables of a space: what they have entries of, their names, and for how many slots an entry is, as
 * a power of two of eighths of a slot. In the first lines those that each miss reads, whose pointers lie together.
 */
#define GLK_PER_EIGHTH	0
#define GLK_PER_SLOT	GLK_EIGHTH_SHIFT
#define GLK_PER_GROUP	(GLK_EIGHTH_SHIFT + GLK_GROUP_SHIFT)
#define GLK_PER_EIGHTHS GLK_GROUP_SHIFT

/* clang-format off */
#define GLK_SLOT_TABLES(X) \
	X(glk_atomic(uint32_t), start, GLK_PER_EIGHTH) /* what begins there, or its nest: of its map */ \
	X(uint64_t, begins, GLK_PER_EIGHTHS) /* a bit an eighth: an entered extent begins there */ \
	X(uint16_t, count, GLK_PER_SLOT) /* live extents that begin or end in it */ \
	X(struct glk_use, use, GLK_PER_SLOT) /* see page/use.h */ \
	X(uint64_t, edge, GLK_PER_GROUP) \
	X(uint64_t, usable, GLK_PER_GROUP) /* from here on a bit a slot */ \
	X(uint64_t, shared, GLK_PER_GROUP) /* its page has other mappings too */ \
	X(uint64_t, head, GLK_PER_GROUP) /* a mapping begins there */ \
	X(uint64_t, wide, GLK_PER_GROUP) /* it belongs to a mapping of several slots */ \
	X(uint64_t, busy, GLK_PER_GROUP) /* a live extent touches it */ \
	X(uint64_t, claimed, GLK_PER_GROUP) /* somebody is about to map it: see page/claim.h */ \
	X(uint32_t, cover, GLK_PER_GROUP) /* the one that holds its first byte, begun before it; poked */ \
	X(glk_atomic(uint32_t), page, GLK_PER_SLOT) /* that is mapped there; 0: none */ \
	X(uint32_t, alias, GLK_PER_SLOT) /* first of a mapping: the next mapping of the same page */ \
	X(uint64_t, mapped, GLK_PER_GROUP) /* from here on a bit a slot */ \
	X(uint64_t, host, GLK_PER_GROUP) /* its page is of GLK_OF_HOST */ \
	X(uint64_t, lost, GLK_PER_GROUP) /* a live extent lost its contents here, and has no page: page/swap.h */ \
	X(uint64_t, gone, GLK_PER_GROUP) /* of blocks that are away in part: see space/part.h */ \
	X(uint64_t, begun, GLK_PER_GROUP) \
	X(uint64_t, bare, GLK_PER_GROUP) \
	X(uint64_t, sealed, GLK_PER_GROUP) /* a block stands there on a page that is sealed: page/seal.h */ \
	X(uint32_t, piece, GLK_PER_SLOT) /* and what is kept of a piece */ \
	X(struct glk_idle_links, idle, GLK_PER_GROUP) /* see struct glk_stock */ \
	X(struct glk_idle_links, idle_host, GLK_PER_GROUP)
/* clang-format on */

#define GLK_SLOT_TABLE(type, name, per) type *name;

/* Where pages of a space are from: its node; or the host near that, and what another GPU lends before that. */
enum glk_of {
	GLK_OF_NODE = 0,
	GLK_OF_HOST,
	GLK_OF_COUNT,
};

static inline enum glk_of glk_node_of(const struct glk_node *node)
{
	return node->gpu ? GLK_OF_HOST : GLK_OF_NODE;
}

/* What there is of either. */
struct glk_stock {
	uint64_t idle_slots; /* of pages that keep mappings and are in use by nobody */
	uint64_t stranded;   /* slots of pages in use that no live extent touches */
	uint64_t page_bytes; /* pages with mappings */
	/* Groups that may have idle pages, the one that got none for longest first: page/idle.h */
	struct glk_idle_links *idle;
	uint32_t listed;		 /* groups in that list */
	struct glk_idle_cursor *cursors; /* walks along it that are under way */
};

/*
 * What all maps of a GPU have together: slots are numbered through all of them, so a page may be mapped
 * among the addresses of one and be taken for another.
 */
struct glk_space {
	struct glk_pool *pool; /* NULL: there is none */
	struct glk_node *node;
	uint32_t capacity; /* slots that the tables have room for */
	uint64_t end;	   /* of the newest range, an offset */
	struct glk_range *newest;
	struct glk_range **range; /* a GiB of offsets: the range that it is of */
	uint32_t claims;	  /* of so many the slots that are claimed are */
	uint32_t mark; /* number of the place under way, to meet no page of it twice */
	struct glk_stock of[GLK_OF_COUNT];
	GLK_SLOT_TABLES(GLK_SLOT_TABLE)
	/* Pages that were sealed and that no block stands on any more, oldest first: page/seal.h */
	uint32_t unsealed, unsealed_last;
	uint64_t unsealed_bytes,
		unsealed_foreign; /* and of these, of pages that other processes have made */
	uint64_t mapped_bytes;	  /* all mappings, aliases counted each */
};

/* Groups of the first range of a map of which it is told apart that something became idle in them. */
#define GLK_APART_GROUPS 256

/* What the space of a map has yet to be told of plain pages of the node: see glk_slots_join(). */
struct glk_apart {
	uint64_t idle_slots, stranded; /* more than the stock has */
	uint64_t touched[GLK_APART_GROUPS / 64];
};

/*
 * Addresses of a space, and the extents in them: what an arena has for itself. The tables of the space
 * have their names here too, which spares each request a step.
 */
struct glk_map {
	struct glk_space *space;
	struct glk_pool *pool; /* NULL: there is none */
	struct glk_node *node;
	/* Held by who calls a function that says it gives the lock up; NULL: nobody shares the map. */
	struct glk_lock *lock;
	unsigned shift;		      /* of the slot size */
	unsigned eighth;	      /* of an eighth of it */
	uint32_t grains;	      /* of a slot, less one */
	uint32_t large;		      /* slots of a large page, */
	uint32_t of[GLK_CLASS_OTHER]; /* and of each class; 0: no such pages are made */
	int ends; /* of a free extent that are tried, by policy.ends */
	unsigned ranges;
	uint32_t hosted; /* slots of mappings here of pages of the host */
	uint32_t last;	 /* extent that ends at `high`; 0: none */
	uint64_t high;	 /* no extent of the newest range lies above; poked */
	uint64_t taken;	 /* bytes of extents that are not free */
	bool packs; /* holes matter more than whole slots, and few are compared: see space/nest.h */
	bool tight; /* and the smallest one is taken, whatever has to be waited for */
	struct glk_slab extents;
	GLK_SLOT_TABLES(GLK_SLOT_TABLE)
	struct glk_slab nests;
	struct glk_tree common, nested; /* free extents; behind what a hit reads */
	struct glk_range range[GLK_RANGES_MAX];
	uint64_t step;	     /* bytes of the next range, if that is enough */
	uint64_t most, size; /* bytes of all ranges: allowed, reserved */
	uint64_t end;	     /* of the newest range */
	uint32_t ahead;	     /* above the mark, slots below this one may be mapped too */
	uint32_t
		reach; /* the same, by a page of which a block before the mark has a part */
	uint64_t nested_taken; /* bytes of extents in nests that are not free */
	uint64_t nested_bytes; /* of all nests */
	uint64_t held; /* bytes of pages of the node that were used here last, or are */
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

/* Whether a page is of GLK_OF_HOST, and which of these another GPU has lent. */
static inline bool glk_map_is_host(const struct glk_map *map, uint32_t page)
{
	return glk_map_node(map, page)->gpu != NULL;
}

static inline bool glk_map_is_lent(const struct glk_map *map, uint32_t page)
{
	return glk_map_node(map, page)->lender != NULL;
}

static inline struct glk_stock *glk_map_stock(const struct glk_map *map, uint32_t page)
{
	return &map->space->of[glk_map_is_host(map, page) ? GLK_OF_HOST : GLK_OF_NODE];
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

/* The slot above those that extents touch, and above the pages that reach beyond these. */
static inline uint32_t glk_map_reach(const struct glk_map *map)
{
	uint32_t fresh = glk_map_fresh(map);

	return fresh > map->reach ? fresh : map->reach;
}

/* The slot after the last one of the newest range that may be mapped. */
static inline uint32_t glk_map_end(const struct glk_map *map)
{
	uint32_t reach = glk_map_reach(map);

	return reach > map->ahead ? reach : map->ahead;
}

/* A stretch of slots; none: first above last. */
struct glk_stretch {
	uint32_t first, last;
};

/* The slots of one of the ranges of a map that anything may lie at. */
static inline struct glk_stretch glk_map_slots(const struct glk_map *map, unsigned range)
{
	const struct glk_range *r = &map->range[range];
	uint32_t first = glk_slot_of(map, r->offset);
	uint32_t end = range + 1 == map->ranges ? glk_map_end(map)
						: glk_slot_of(map, r->offset + r->size);

	return end > first ? (struct glk_stretch){first, end - 1}
			   : (struct glk_stretch){1, 0};
}

/* The slot after the last one of a space that may be mapped. */
static inline uint32_t glk_space_end(const struct glk_space *space)
{
	return space->newest ? glk_map_end(space->newest->map) : 0;
}

/* The address of a slot of any map of the space. */
static inline uint64_t glk_slot_addr(const struct glk_map *map, uint32_t slot)
{
	uint64_t offset = (uint64_t)slot << map->shift;
	const struct glk_range *range = map->space->range[offset >> GLK_RANGE_SHIFT];

	return range->base + (offset - range->offset);
}

/* The map of a space that a slot is of. */
static inline struct glk_map *glk_slot_map(const struct glk_map *map, uint32_t slot)
{
	uint64_t offset = (uint64_t)slot << map->shift;

	return map->space->range[offset >> GLK_RANGE_SHIFT]->map;
}

#endif
