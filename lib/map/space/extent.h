/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MAP_EXTENT_H
#define GLK_MAP_EXTENT_H

/*
 * A run of addresses of a map, given or free. Number 0 is no extent: it stands where there is no
 * neighbour and is always LIVE, so that nothing is taken for free beside the ends.
 *
 * All fields belong to the lock of the GPU, save those of an extent that is LIVE or QUICK:
 * `slack`, `quick`, and who may change the word, belong to whoever made the last move to that
 * state; `marks`, `bin` and `pins` of a HELD one belong to all its holders. What others read
 * without the lock is atomic, or peeked at: glk_extent_read() tells when it was one extent's.
 */
#include "map/table.h"

struct glk_extent {
	glk_atomic(uint64_t) word; /* see map/space/word.h; first, since hits swap it */
	uint64_t offset;	   /* in the map, bytes */
	uint64_t size; /* bytes, a multiple of the grain; poked, see atomic.h */
	glk_atomic(uint64_t) addr;
	uint32_t prev, next; /* neighbours by address; 0 at the ends of a range */
	union {
		struct {
			uint32_t left, right;
		} tree; /* FREE; of a map of pieces any */
		/* QUICK, LIVE: streams that used it beside its own */
		glk_atomic(uint64_t) marks;
	};
	/* LIVE: where it goes when freed, see cache/bin/row.h; or GLK_EXTENT_AWAY, GLK_EXTENT_PART. */
	glk_atomic(uint32_t) bin;
	union {				   /* 0 of one that is FREE */
		struct glk_idnode quick;   /* QUICK: its link in a bin */
		glk_atomic(uint32_t) pins; /* LIVE: of one that is out, see cache/pin.c */
		glk_atomic(uint32_t) kept; /* of one that is away: see space/part.h */
	};
	glk_atomic(uint32_t) slack;  /* bytes of it that the user did not ask for */
	glk_atomic(uint16_t) stream; /* index of the stream it was given to */
	bool nested;		     /* it lies in a slot of small blocks, see nest.h */
	glk_atomic(bool) whole; /* contiguous: one page, which it shares with nobody */
};

_Static_assert(sizeof(struct glk_extent) == 64, "an extent is a cache line");

static inline struct glk_extent *glk_extent_at(const struct glk_map *map, uint32_t id)
{
	return (struct glk_extent *)map->extents.base + id;
}

static inline uint32_t glk_extent_id(
	const struct glk_map *map, const struct glk_extent *e)
{
	return (uint32_t)(e - (const struct glk_extent *)map->extents.base);
}

/* In place of the bin of a live one: its contents lie elsewhere, and it stands on no slots. Others
 * may have the memory at both ends; what lies between is nobody's place. */
#define GLK_EXTENT_AWAY 3u
/* The same for a part of them: see space/part.h. */
#define GLK_EXTENT_PART 4u

static inline bool glk_extent_away(const struct glk_extent *e)
{
	/* pairs with: the release of who sends it away, or has it back */
	return glk_load_acquire(&e->bin) == GLK_EXTENT_AWAY;
}

static inline bool glk_extent_part(const struct glk_extent *e)
{
	/* pairs with: the release in move/part.c */
	return glk_load_acquire(&e->bin) == GLK_EXTENT_PART;
}

/* Away as a whole or in part. */
static inline bool glk_extent_lacks(const struct glk_extent *e)
{
	uint32_t bin = glk_load_acquire(&e->bin); /* likewise */

	return bin == GLK_EXTENT_AWAY || bin == GLK_EXTENT_PART;
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

/* Gives an extent another state, by whoever owns it: see map/space/word.h. */
static inline void glk_extent_set(struct glk_extent *e, enum glk_extent_state state)
{
	glk_word_set(&e->word, state);
}

/* What was read of a live extent by somebody who does not own it. */
struct glk_live {
	struct glk_extent *e;
	uint64_t life;
	uint64_t addr, size, asked; /* bytes: of the extent, of the request */
};

/* Whether it is the same block as when it was read: then what was read of it, and of what lies
 * behind its addresses, since then was true at that moment. Any thread, no lock. */
static inline bool glk_live_is_still(const struct glk_live *live)
{
	return glk_word_is_still(&live->e->word, live->life);
}

/* Reads an extent, if it is live. Any thread, no lock. */
static inline bool glk_extent_read(struct glk_extent *e, struct glk_live *ret_live)
{
	struct glk_live live = {.e = e};

	if (!glk_word_look(&e->word, &live.life))
		return false;
	/* pairs with: the releases in extent.c, and glk_hit_revive() */
	live.addr = glk_load_acquire(&e->addr);
	live.size = glk_peek_acquire(&e->size);
	live.asked = live.size - glk_load_acquire(&e->slack);
	if (!glk_live_is_still(&live))
		return false;
	*ret_live = live;
	return true;
}

static inline uint32_t glk_extent_first(
	const struct glk_map *map, const struct glk_extent *e)
{
	return glk_slot_of(map, e->offset);
}

static inline uint32_t glk_extent_last(
	const struct glk_map *map, const struct glk_extent *e)
{
	return glk_slot_of(map, e->offset + e->size - 1);
}

/*
 * extent.c: makes [offset, offset + size) an extent of the caller's own, QUICK until it is given
 * out: glk_lookup_enter(). It lies inside the free extent `from`, or, with from 0, ends above the high-water mark and begins in the free extent that ends
 * there, at the mark, or above it. 0, or -ENOMEM (class LIMIT: descriptors) with nothing changed.
 */
int glk_extent_carve(struct glk_map *map, uint32_t from, uint64_t offset, uint64_t size,
	uint32_t *ret_extent);
/* Makes an extent free and merges it with its free neighbours. A slot of small blocks that is
 * empty then is one of all sizes again. */
void glk_extent_give_back(struct glk_map *map, uint32_t extent);
/* Puts a free extent in its tree, merged with those beside it that are free: nested ones inside their slot alone. */
void glk_extent_settle(struct glk_map *map, uint32_t extent);
/*
 * A map of pieces has no reserved range and no mark, and its offsets are addresses: extents lie in
 * pieces that came from elsewhere, each a row of its own. The first makes a zeroed map one; its
 * descriptors are the caller's to make and end. The second adds a piece, as one free extent: 0, or
 * -ENOMEM (class LIMIT: descriptors). The third takes it away, when it is one free extent again.
 */
void glk_extent_pieces(struct glk_map *map);
int glk_extent_add(
	struct glk_map *map, uint64_t addr, uint64_t size, uint32_t *ret_extent);
void glk_extent_drop(struct glk_map *map, uint32_t extent);

static inline bool glk_extent_whole_piece(const struct glk_extent *e)
{
	return !e->prev && !e->next;
}

/* Raises the high-water mark; what lies below is free. Where there is no descriptor for it, the
 * addresses are lost. */
void glk_extent_raise(struct glk_map *map, uint64_t offset);

#endif
