/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MAP_PART_H
#define GLK_MAP_PART_H

/*
 * A live extent that has left some of its slots, and stands on the others: what it left is *gone*. Each
 * stretch of slots that it stands on is counted at its ends as if it were an extent of its own, so that
 * all that is said of slots in page/slot.h holds for a stretch.
 *
 *	here -- some slots go --> PART -- the last go ----> AWAY
 *	here <-- the last come -- PART <-- the first come -- AWAY
 *
 * What is kept of the contents is told by pieces, each a stretch of slots that went at once, or what is
 * left of it. A slot above the first of an extent is told by bits of the map: no other extent reaches
 * into it from the slot before, though others may begin there. The first one, in which others may end
 * or lie, is told by the extent itself.
 *
 *	gone	the extent that reaches into the slot has left it
 *	begun	a piece of that one begins there
 *	piece	what is kept of it
 *	bare	of an elastic block, which shares no slot with others: nothing is kept, since nothing is committed; such a
 *		slot is of no piece
 *
 * All under the lock of the GPU, by who has claimed the extent; the word of the extent and `gone` are
 * read without it too.
 */
#include "map/space/extent.h"

/*
 * What an extent keeps that is away: the number of its record in move/part.c. A piece keeps the first run of its
 * content in the store, 0 where that was dropped. Small blocks, which share a slot, go with it, and each keeps that run
 * itself: move/away.c. All with the two upper bits.
 */
#define GLK_KEPT_SUSPENDED (UINT32_C(1) << 31) /* since the GPU was suspended */
#define GLK_KEPT_TAGGED	   (UINT32_C(1) << 30) /* since its tag was */
#define GLK_KEPT_PIECES	   (UINT32_C(1) << 29) /* it is told by pieces */
#define GLK_KEPT_FIRST	   (UINT32_C(1) << 28) /* and its first slot is gone */
#define GLK_KEPT_RUN	   (GLK_KEPT_FIRST - 1)
/* In place of a word, of what becomes no piece but bare. */
#define GLK_KEPT_BARE GLK_KEPT_FIRST
/* In the word of a piece, of an elastic block: its page was sealed, and what is kept is the number of a record in
 * move/seal.c. */
#define GLK_KEPT_SEALED GLK_KEPT_PIECES

/* Whether an extent that is away, as a whole or in part, is told by pieces. */
static inline bool glk_part_is(const struct glk_extent *e)
{
	return glk_extent_lacks(e) && glk_load_relaxed(&e->kept) & GLK_KEPT_PIECES;
}

/* Whether some of an extent went because of one of these flags. */
static inline bool glk_part_went(const struct glk_extent *e, uint32_t why)
{
	return glk_extent_lacks(e) && glk_load_relaxed(&e->kept) & why;
}

/* Of an extent that is told by pieces: whether one of its slots is gone. */
static inline bool glk_part_gone(
	const struct glk_map *map, const struct glk_extent *e, uint32_t slot)
{
	return slot == glk_extent_first(map, e)
		? (glk_load_relaxed(&e->kept) & GLK_KEPT_FIRST) > 0
		: glk_bit_get(map->gone, slot);
}

/* Whether any live extent stands on one of its slots. */
static inline bool glk_part_stands(
	const struct glk_map *map, const struct glk_extent *e, uint32_t slot)
{
	return !glk_extent_away(e) &&
		!(glk_extent_part(e) && glk_part_gone(map, e, slot));
}

/* part.c, for one that is told by pieces: the next stretch of slots in [slot, last] that are gone, or
 * that it stands on. Costs a step for 64 slots. */
struct glk_stretch glk_part_next(const struct glk_map *map, const struct glk_extent *e,
	uint32_t slot, uint32_t last, bool gone);
/* The next one that is gone and not bare: of pieces, side by side; and the last slot of the piece that begins at one. */
struct glk_stretch glk_part_kept(const struct glk_map *map, const struct glk_extent *e,
	uint32_t slot, uint32_t last);
uint32_t glk_part_end(const struct glk_map *map, uint32_t begin, uint32_t last);
/* The next bare stretch. */
struct glk_stretch glk_part_bare(const struct glk_map *map, uint32_t slot, uint32_t last);
/* The front of a stretch that is here of which all pages are sealed, or none is: see page/seal.h. */
struct glk_stretch glk_part_alike(const struct glk_map *map, struct glk_stretch s);
/* It leaves a stretch that it stands on and that is alike, behind a use, and is told by pieces from then on at the
 * latest; it stands again on one that was entered. Both keep `gone`. */
void glk_part_leave(struct glk_map *map, struct glk_extent *e, struct glk_stretch s,
	const struct glk_use *use);
void glk_part_join(struct glk_map *map, struct glk_extent *e, struct glk_stretch s);

/* All slots of a block. */
static inline struct glk_stretch glk_part_all(
	const struct glk_map *map, const struct glk_extent *e)
{
	return (struct glk_stretch){glk_extent_first(map, e), glk_extent_last(map, e)};
}

/* Bytes of a stretch of a block that were asked for, and the address of the first. */
uint64_t glk_part_span(const struct glk_map *map, const struct glk_extent *e,
	struct glk_stretch s, uint64_t *ret_addr);

#endif
