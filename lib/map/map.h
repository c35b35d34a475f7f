/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MAP_MAP_H
#define GLK_MAP_MAP_H

/*
 * The face of this folder: the addresses of one GPU. One reservation is cut into four spans,
 * one a kind of block. A span is a row of slots, each the size of a page and each mapped to
 * at most one page; across the slots lie the extents, given and free, at a grain of 512 B,
 * neighbours linked, free neighbours merged.
 *
 * A page may be mapped at several slots. It is in use through at most one of them, and the
 * others are idle aliases: when a later request falls on one whose page is idle, no driver
 * call is needed. A slot is *usable* when its page is in use right there or idle, *stale* when
 * its page is in use elsewhere.
 *
 *	slot    |   0   |   1   |   2   |   3   |   4   |
 *	page    |  p7   |  p2   |  p2   |   -   |  p9   |
 *	extents |--A--|....free....|-----B-----|...free..|
 *
 * This folder keeps the tables and makes the map calls. It does not know streams: whether a
 * mapping may go now is decided above, in stream/limbo.c, the only caller of
 * glk_slots_detach() while a GPU may still be at work.
 *
 * Threads	all functions: under the lock of the GPU, save glk_map_holds()
 * Cost		lookup: constant. Search: logarithmic, at most GLK_FIT_CANDIDATES extents
 */
#include "base/slab.h"
#include "map/word.h"
#include "pool/pool.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct glk_conf;

#define GLK_GRAIN_SHIFT 9

enum glk_kind {
	GLK_KIND_SMALL = 0,  /* half a small page at most, on small pages */
	GLK_KIND_MEDIUM = 1, /* below half a large page, on small pages */
	GLK_KIND_LARGE = 2,  /* on large pages */
	GLK_KIND_SINGLE = 3, /* contiguous blocks, a page each */
	GLK_KIND_COUNT,
};

/* Extents looked at before the best so far is taken; 16 gave the same results as all of them
 * on the recorded jobs. */
#define GLK_FIT_CANDIDATES 16

/*
 * Number 0 is no extent: it stands where there is no neighbour and is always LIVE, so that
 * nothing is taken for free beside the ends.
 *
 * All fields belong to the lock of the GPU, save those of an extent that is LIVE or QUICK:
 * `slack`, and who may change the word, belong to whoever made the last move to that state.
 * What others read without the lock is atomic.
 */
struct glk_extent {
	uint64_t offset;	   /* in the span, bytes */
	uint64_t size;		   /* bytes, a multiple of the grain */
	glk_atomic(uint64_t) word; /* see map/word.h */
	glk_atomic(uint64_t) addr;
	glk_atomic(uint32_t) prev, next; /* neighbours by address; 0 at the ends */
	uint32_t left, right; /* tree of free extents; left of a QUICK one: its age */
	uint8_t kind;	      /* of its span */
	glk_atomic(uint8_t) mixes; /* see glk_extent_settle() */
	uint16_t stream;	   /* index of the stream it was given to */
	/* Where it goes when freed, see cache/row.h, and its link there. */
	glk_atomic(uint32_t) bin;
	struct glk_idnode quick;
	glk_atomic(uint32_t) slack; /* bytes of it that the user did not ask for */
};

_Static_assert(sizeof(struct glk_extent) == 64, "an extent is a cache line");

/* Two blocks at most begin in a slot of the kinds other than small, see lookup.c. */
#define GLK_SLOT_STARTS 2

/* What every request touches of a slot; the rest lies in tables of its own. */
struct glk_slot {
	uint32_t page;	/* 0: not mapped */
	uint32_t live;	/* live extents that touch it */
	uint32_t cover; /* live extent that holds its first byte and began before it */
	uint32_t place; /* on the idle list where it stands for its page; 0: on none */
};

struct glk_slot_more {
	uint32_t next_alias; /* next slot of the same page */
	/* live extents that begin in it; read without the lock by glk_lookup_base() */
	glk_atomic(uint32_t) start[GLK_SLOT_STARTS];
	uint32_t made; /* request that mapped it, to undo just that */
};

struct glk_span {
	struct glk_map *map;
	enum glk_kind kind;
	enum glk_class class;
	uint64_t base;	/* address */
	uint64_t size;	/* bytes */
	uint64_t high;	/* bytes in use so far; no extent lies above */
	uint32_t ahead; /* above the mark, slots below this one may be mapped too */
	uint64_t taken; /* bytes of extents that are not free */
	unsigned shift; /* of the slot size */
	uint32_t slots;
	uint32_t root; /* tree of free extents */
	uint32_t last; /* extent with the highest address */
	uint32_t free_count, live_count;
	struct glk_extent *extents; /* those of the map */
	struct glk_slot *slot;
	struct glk_slot_more *more;
	struct glk_use *use;	      /* last use through the mapping of a slot */
	uint64_t *usable, *mapped;    /* a bit a slot */
	uint64_t *shared;	      /* a bit a slot: its page has other mappings too */
	glk_atomic(uint32_t) * grain; /* small kind: live extent that begins at a grain */
	uint64_t *begins; /* small kind: a bit a grain, set where one begins */
};

/* Idle pages by the number of their mappings, oldest first, each named by one of its slots. An
 * entry whose page has moved on stays behind until the list is packed. */
#define GLK_IDLE_LISTS 8

struct glk_idle_list {
	uint32_t *names;
	uint32_t begin, end; /* entries, stale ones too */
	uint32_t valid;	     /* pages that are on the list */
};

struct glk_map {
	struct glk_pool *pool;
	struct glk_node *node;
	struct glk_slab extents;
	uint64_t base, size;
	struct glk_span span[GLK_KIND_COUNT];
	struct glk_idle_list idle[GLK_CLASS_COUNT][GLK_IDLE_LISTS];
	int ends;	       /* of a free extent that are tried, by policy.ends */
	uint64_t idle_bytes;   /* idle pages that keep mappings */
	uint64_t mapped_bytes; /* all mappings, aliases counted each */
	uint64_t page_bytes;   /* pages with mappings */
};

/* span.c: addresses of `size` bytes, or as many as are granted. 0, -ENOMEM (addresses: class
 * ADDRESS; tables: NOMEM_HOST). */
int glk_map_init(struct glk_map *map, struct glk_pool *pool, struct glk_node *node,
	const struct glk_conf *conf, size_t size);
/* Takes a zeroed map and one that could not be made. Nothing may be mapped any more. */
void glk_map_fini(struct glk_map *map);

/* Whether an address lies in the reservation. Any thread. */
static inline bool glk_map_holds(const struct glk_map *map, uint64_t addr)
{
	return addr - map->base < map->size;
}

/* Bytes of host memory that the tables of a map have in use. */
uint64_t glk_map_bytes(const struct glk_map *map);

/* The span of an address inside the reservation. Any thread. */
static inline struct glk_span *glk_map_span(struct glk_map *map, uint64_t addr)
{
	struct glk_span *span = map->span;

	if (addr < span[GLK_KIND_LARGE].base)
		return &span[addr < span[GLK_KIND_MEDIUM].base ? GLK_KIND_SMALL
							       : GLK_KIND_MEDIUM];
	return &span[addr < span[GLK_KIND_SINGLE].base ? GLK_KIND_LARGE
						       : GLK_KIND_SINGLE];
}

enum glk_kind glk_map_kind(const struct glk_map *map, size_t size);

static inline struct glk_extent *glk_extent_at(const struct glk_map *map, uint32_t id)
{
	return (struct glk_extent *)map->extents.base + id;
}

/* Bytes the user asked for. */
static inline uint64_t glk_extent_asked(const struct glk_extent *e)
{
	return e->size - glk_load_relaxed(&e->slack);
}

static inline enum glk_extent_state glk_extent_state(const struct glk_extent *e)
{
	return glk_word_state(glk_load_relaxed(&e->word));
}

/* Gives an extent another state, by whoever owns it: see map/word.h. */
static inline void glk_extent_set(struct glk_extent *e, enum glk_extent_state state)
{
	glk_word_set(&e->word, state);
}

static inline struct glk_page *glk_map_page(const struct glk_map *map, uint32_t page)
{
	return glk_page_at(map->pool, page);
}

static inline uint32_t glk_slot_of(const struct glk_span *span, uint64_t offset)
{
	return (uint32_t)(offset >> span->shift);
}

/* The first slot above the high-water mark, which no extent ever touched. */
static inline uint32_t glk_span_fresh(const struct glk_span *span)
{
	return span->high ? glk_slot_of(span, span->high - 1) + 1 : 0;
}

/* The slot after the last one that may be mapped. */
static inline uint32_t glk_span_end(const struct glk_span *span)
{
	uint32_t fresh = glk_span_fresh(span);

	return fresh > span->ahead ? fresh : span->ahead;
}

/* Slots are named over all spans of a map by one number, which pages keep. */
static inline uint32_t glk_slot_name(const struct glk_span *span, uint32_t slot)
{
	return (uint32_t)span->kind << 28 | slot;
}

static inline struct glk_span *glk_slot_span(struct glk_map *map, uint32_t name)
{
	return &map->span[name >> 28];
}

static inline uint32_t glk_slot_number(uint32_t name)
{
	return name & ((UINT32_C(1) << 28) - 1);
}

/* Whether a page that is mapped is in use through one of its slots. */
static inline bool glk_page_busy(struct glk_map *map, const struct glk_page *page)
{
	uint32_t name = page->first_alias;

	if (page->aliases != 1)
		return page->in_use != GLK_NO_SLOT;
	return glk_slot_span(map, name)->slot[glk_slot_number(name)].live > 0;
}

/* The last use of a page through any of its mappings. A page with one mapping keeps it with
 * its slot, so that requests on it touch no page descriptor. */
static inline struct glk_use *glk_page_use(struct glk_map *map, uint32_t id)
{
	struct glk_page *page = glk_map_page(map, id);
	uint32_t name = page->first_alias;

	if (page->aliases != 1)
		return &page->use;
	return &glk_slot_span(map, name)->use[glk_slot_number(name)];
}

/* bitmap.c: bits of [first, last]. */
uint32_t glk_bits_count(const uint64_t *bits, uint32_t first, uint32_t last);
/* Whether any is set in both. */
bool glk_bits_meet(const uint64_t *a, const uint64_t *b, uint32_t first, uint32_t last);
/* Bits set in `a` and not in `b`. */
uint32_t glk_bits_count_only(
	const uint64_t *a, const uint64_t *b, uint32_t first, uint32_t last);

static inline bool glk_bit_get(const uint64_t *bits, uint32_t i)
{
	return bits[i >> 6] >> (i & 63) & 1;
}

static inline void glk_bit_set(uint64_t *bits, uint32_t i)
{
	bits[i >> 6] |= UINT64_C(1) << (i & 63);
}

static inline void glk_bit_clear(uint64_t *bits, uint32_t i)
{
	bits[i >> 6] &= ~(UINT64_C(1) << (i & 63));
}

/*
 * extent.c: makes [offset, offset + size) a live extent. It lies inside the free extent `from`,
 * or, with from 0, ends above the high-water mark and begins with the free extent that ends
 * there, at the mark, or above it.
 * 0, or -ENOMEM (descriptors: LIMIT, addresses: ADDRESS) with nothing changed.
 */
int glk_extent_carve(struct glk_span *span, uint32_t from, uint64_t offset, uint64_t size,
	uint32_t *ret_extent);
/*
 * To be called for an extent that was given to a stream. It and its neighbours learn on which
 * side they mix: where the neighbour is free or was given to the same stream, so that freeing
 * the extent might make room with it. Nobody need look at the other side, which other threads
 * write to all the time.
 */
#define GLK_MIXES_PREV 1u
#define GLK_MIXES_NEXT 2u
void glk_extent_settle(struct glk_span *span, uint32_t extent);
/* Makes an extent free and merges it with its free neighbours. */
void glk_extent_give_back(struct glk_span *span, uint32_t extent);

/* tree.c: the free extents of a span by size, then address. */
void glk_tree_insert(struct glk_span *span, uint32_t extent);
void glk_tree_remove(struct glk_span *span, uint32_t extent);
/* The first `max` extents of at least `size` bytes in that order; their number. */
unsigned glk_tree_find(
	const struct glk_span *span, uint64_t size, uint32_t *ret_extents, unsigned max);
uint64_t glk_tree_largest(const struct glk_span *span);

/*
 * fit.c: where a request would lie. Lower scores are better, compared from the first member
 * to the last. `waits` is filled by the caller's function from the slots of the place, which
 * may also veto it by returning false.
 */
struct glk_fit {
	uint32_t maps;	 /* pages to map */
	uint32_t waits;	 /* streams to wait for, summed over its slots */
	uint32_t stale;	 /* mappings to remove first */
	uint64_t size;	 /* of the extent it is cut from */
	uint64_t offset; /* in the span */
	uint32_t from;	 /* free extent; 0: new addresses */
	uint32_t most;	 /* with more waits than this the place loses anyway */
	bool own;	 /* for the function: nothing of other streams is in it */
};

typedef bool (*glk_fit_fn)(struct glk_span *span, uint32_t first_slot, uint32_t last_slot,
	struct glk_fit *fit, void *arg);

/* 0 or -ENOMEM (class ADDRESS: the span is used up). Pages that are mapped above the high-water
 * mark do not count. */
int glk_fit_search(struct glk_span *span, uint64_t size, glk_fit_fn fn, void *arg,
	struct glk_fit *ret_fit);
/* Takes new addresses instead of `fit` where the pages mapped above the mark make them the
 * better place; how many fewer are to be mapped there. */
uint32_t glk_fit_ahead(struct glk_span *span, uint64_t size, glk_fit_fn fn, void *arg,
	struct glk_fit *fit);

/* slot.c: what lives in slots. */
/* The last use of the page of a mapped slot, through any of its mappings. */
static inline struct glk_use *glk_slot_use(struct glk_span *span, uint32_t slot)
{
	if (!glk_bit_get(span->shared, slot))
		return &span->use[slot];
	return &glk_map_page(span->map, span->slot[slot].page)->use;
}

/* One more live extent on a usable slot; an idle page becomes in use through it. */
void glk_slot_enter(struct glk_span *span, uint32_t slot);
/* One less, used by `streams` until `tick`; the page nobody is left on becomes idle. */
void glk_slot_leave(
	struct glk_span *span, uint32_t slot, uint64_t streams, uint64_t tick);

/* Both for runs: entering passes over slots that are not usable. */
void glk_slots_enter(struct glk_span *span, uint32_t first, uint32_t last);
void glk_slots_leave(struct glk_span *span, uint32_t first, uint32_t last,
	uint64_t streams, uint64_t tick);

/* alias.c: mappings. */
/* Maps an OWNED page that lies on no idle list at a slot that is not mapped. No access yet;
 * the slot is usable and the page stays off the lists. 0, -ENOMEM (class LIMIT: 255 mappings
 * of the page) or the driver's error, with nothing changed. */
int glk_slot_attach(struct glk_span *span, uint32_t slot, uint32_t page);
/* The same in two steps, for one who does not hold the lock of the GPU between them. Maps the
 * page and grants access: 0 or the driver's error, *ret_mapped telling whether the mapping
 * stands. It touches no table; nobody else may map the slot or own the page meanwhile. */
int glk_slot_prepare(
	struct glk_span *span, uint32_t slot, uint32_t page, bool *ret_mapped);
/* Then books the mapping, under the lock. */
void glk_slot_book(struct glk_span *span, uint32_t slot, uint32_t page);
/* Grants access to a run of slots that were just attached. */
int glk_slot_grant(struct glk_span *span, uint32_t first, uint32_t last);
/* Removes the mapping of a slot that is in use by nobody. The page stays where it was, on an
 * idle list, in use elsewhere or in the caller's hands, but an idle one left without mappings
 * goes to the list of its node. On error the slot stays out of use, and the page is LOST
 * unless a live extent is on it. */
int glk_slot_detach(struct glk_span *span, uint32_t slot);
/* The same for a run of mapped slots, in one call of the driver. */
int glk_slots_detach(struct glk_span *span, uint32_t first, uint32_t last);

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

/* idle.c: pages that no live extent touches and that keep mappings. */
/* The one that is cheapest to take: fewest mappings, then idle for longest; and the one after
 * it in that order. 0: no more. */
uint32_t glk_idle_first(struct glk_map *map, enum glk_class class);
uint32_t glk_idle_next(struct glk_map *map, uint32_t page);
/* Fewest mappings, then idle for the shortest time; and the one after it in that order. */
uint32_t glk_idle_last(struct glk_map *map, enum glk_class class);
uint32_t glk_idle_before(struct glk_map *map, uint32_t page);
/* Tables of the lists: 0 or -ENOMEM. */
int glk_idle_init(struct glk_map *map);
void glk_idle_fini(struct glk_map *map);
/* Takes an idle page out of the idle lists (it stays mapped) and puts it back. Taking one that
 * is on none does nothing. */
void glk_idle_take(struct glk_map *map, uint32_t page);
void glk_idle_put(struct glk_map *map, uint32_t page);
bool glk_idle_has(struct glk_map *map, uint32_t page);
/* The page that an entry of a list stands for; 0 for one left behind. */
uint32_t glk_idle_listed(
	struct glk_map *map, unsigned class, unsigned list, uint32_t index);
/* The same for the page of a slot that has no other mapping. */
void glk_idle_take_slot(struct glk_span *span, uint32_t slot);
void glk_idle_put_slot(struct glk_span *span, uint32_t slot);
void glk_idle_put_slots(struct glk_span *span, uint32_t first, uint32_t count);
/* Takes that many, whose slots have forgotten their place, off the list. */
void glk_idle_forget(struct glk_span *span, uint32_t count);

/* lookup.c */
/* The live extent that holds an address of the span; 0 for none. */
uint32_t glk_span_lookup(const struct glk_span *span, uint64_t addr);
/* Makes the live extent that begins at an address of the span QUICK and the caller's own; NULL
 * if there is none. Any thread, no lock. */
static inline struct glk_extent *glk_lookup_claim(struct glk_span *span, uint64_t addr);
/* The extent that most likely begins at an address; number 0 or another one if not. */
static inline uint32_t glk_lookup_first(struct glk_span *span, uint64_t addr);
void glk_lookup_enter(struct glk_span *span, uint32_t extent);
void glk_lookup_leave(struct glk_span *span, uint32_t extent);

static inline uint32_t glk_lookup_first(struct glk_span *span, uint64_t addr)
{
	uint64_t offset = addr - span->base;

	if (span->kind == GLK_KIND_SMALL)
		return glk_load_relaxed(&span->grain[offset >> GLK_GRAIN_SHIFT]);
	return glk_load_relaxed(&span->more[glk_slot_of(span, offset)].start[0]);
}

static inline struct glk_extent *glk_lookup_claim(struct glk_span *span, uint64_t addr)
{
	struct glk_extent *e = span->extents + glk_lookup_first(span, addr);

	if (glk_word_claim(&e->word, &e->addr, addr))
		return e;
	if (span->kind == GLK_KIND_SMALL)
		return NULL;
	e = span->extents +
		glk_load_relaxed(
			&span->more[glk_slot_of(span, addr - span->base)].start[1]);
	return glk_word_claim(&e->word, &e->addr, addr) ? e : NULL;
}

/* verify.c: for tests and debugging. 0, or -EIO with a record (class CORRUPT) that names what
 * does not agree, on a map at rest. */
int glk_map_verify(struct glk_map *map);

#endif
