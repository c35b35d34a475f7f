/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MOVE_PART_H
#define GLK_MOVE_PART_H

/*
 * Blocks that are away, in part or as a whole: which of their slots are gone is told by map/space/part.h, what is kept
 * of them here. A block has one record, from the moment on at which a part of it goes
 * until all of it is here; and a piece for each stretch of slots that went at once. What is left of a
 * piece whose middle has come back is two.
 *
 * part.c keeps the books, spill.c and fetch.c move contents. All under the lock of
 * the GPU, for a block that is claimed; the bytes of a record are read without it too.
 *
 * Cost		a step for each piece and for each 64 slots in the range, and for the two pieces that reach
 *		beyond it one for each 64 MiB of their contents
 */
#include "move/away.h"

/* Of a GPU, with a record at a time. */
#define GLK_PARTS (1u << 20)

struct glk_part {
	uint64_t away,
		dropped, /* bytes asked for: gone, and of these without their contents; poked */
		afar;	/* and in memory of another GPU */
	uint32_t slots; /* that are gone */
	uint32_t head;	/* what is kept of the piece that begins at its first slot */
	uint32_t bin;	/* that it would go to when it is freed */
	uint32_t suspended, tagged; /* pieces that went because of that */
	/* Of an elastic block, which has a record for as long as it lives: see elastic.c. */
	bool elastic, grows;
	bool final; /* nobody writes it any more: dedup.c */
	uint32_t bare_slots;
	uint64_t
		bare; /* bytes that are not committed, and none of those that are gone; poked */
	uint64_t
		shared; /* bytes that are committed and of which the memory is counted elsewhere: seal.h */
	uint32_t sealed; /* slots that it stands on with pages that are sealed */
	uint32_t outs;	 /* ranges of it that are out: see elastic.c */
};

/* A piece: where, and what is kept of it. */
struct glk_piece {
	struct glk_stretch s;
	uint32_t word;
};

/* ---- part.c ---- */

static inline struct glk_part *glk_part_at(
	const struct glk_cache *cache, const struct glk_extent *e)
{
	return glk_slab_at(&cache->parts, glk_load_relaxed(&e->kept) & GLK_KEPT_RUN);
}

/* Bytes of a block that are here, that were asked for. */
uint64_t glk_part_here(const struct glk_arena *arena, const struct glk_extent *e);
/* Bytes of a live block that are away, and of these those that were dropped. Any thread, no lock: what
 * they say of one that was freed meanwhile is wrong, and harmless. */
void glk_part_describe(const struct glk_arena *arena, const struct glk_extent *e,
	struct glake_block *block);
/* A block that is here is told by pieces. 0, or -ENOMEM (class LIMIT). */
int glk_part_open(struct glk_arena *arena, struct glk_extent *e);
/* After all of a call has moved: it is away, or in part, or here, and then there is no record any more.
 * `on` as for glk_away_restore(); with an error nothing has moved of one that is here. */
void glk_part_settle(struct glk_arena *arena, struct glk_extent *e, uint32_t on, int err);
/* What is kept of a piece that is about to begin at a slot, or does. */
uint32_t *glk_part_word(
	const struct glk_arena *arena, const struct glk_extent *e, uint32_t slot);
/* The piece that holds a slot which is gone and not bare. */
struct glk_piece glk_part_piece(
	const struct glk_arena *arena, const struct glk_extent *e, uint32_t slot);
/* A stretch goes, of which the word is kept, behind a use. */
void glk_part_depart(struct glk_arena *arena, struct glk_extent *e, struct glk_stretch s,
	uint32_t word, const struct glk_use *use);
/*
 * A stretch that is gone, all of it, was entered and is here. Its contents are read until a tick.
 * `spare`: runs of the store for the pieces that reach beyond its two ends, each 0 where none does;
 * they are used or given back.
 */
void glk_part_arrive(struct glk_arena *arena, struct glk_extent *e, struct glk_stretch s,
	uint64_t read, uint32_t spare[2]);
/* For an elastic block, whose record this is. A stretch that is gone without contents to come back, all of it, or
 * with such that nobody wants any more, is not committed. `spare` as above. */
void glk_part_strip(struct glk_arena *arena, struct glk_extent *e, struct glk_stretch s,
	uint32_t spare[2]);
/* A new one, of which nothing is committed. 0, or -ENOMEM (class LIMIT). */
int glk_part_elastic(struct glk_arena *arena, struct glk_extent *e, bool grows);
/* Bytes of a live block that are not committed. */
static inline uint64_t glk_part_bare_bytes(
	const struct glk_cache *cache, const struct glk_extent *e)
{
	return glk_part_is(e) ? glk_part_at(cache, e)->bare : 0;
}

static inline bool glk_part_is_elastic(
	const struct glk_cache *cache, const struct glk_extent *e)
{
	return glk_part_is(e) && glk_part_at(cache, e)->elastic;
}
/* 0, or -EINVAL with a record: it is not. */
int glk_part_check_elastic(const struct glk_arena *arena, const struct glk_extent *e);
/* Whether others have memory of it. Elastic blocks lie in arenas of tags alone. */
static inline bool glk_part_is_out(
	const struct glk_arena *arena, const struct glk_extent *e)
{
	return glk_pin_is_out(e) ||
		(arena->ops->leaves && glk_part_is_elastic(arena->gpu, e) &&
			glk_part_at(arena->gpu, e)->outs);
}
/* Whether it is elastic and shrinks, so that its pages have to be such as go one by one. */
static inline bool glk_part_is_single(
	const struct glk_cache *cache, const struct glk_extent *e)
{
	return glk_part_is_elastic(cache, e) && !glk_part_at(cache, e)->grows;
}

/* Bytes that are here and may go, but for a suspension: sealed pages stay. */
static inline uint64_t glk_part_may_go(
	const struct glk_arena *arena, const struct glk_extent *e)
{
	uint64_t here = glk_part_here(arena, e);

	return glk_part_is(e) ? here -
			((uint64_t)glk_part_at(arena->gpu, e)->sealed << arena->map.shift)
			      : here;
}

/* What another GPU has of it goes to the host, piece by piece. As glk_away_home(). */
int glk_part_home(struct glk_arena *arena, struct glk_extent *e);
/* A free of one that is told by pieces, behind a use: it stands on nothing any more, and other ranges keep so many bytes
 * of what it shared; and then it is none. */
uint64_t glk_part_empty(
	struct glk_arena *arena, struct glk_extent *e, const struct glk_use *use);
void glk_part_drop(struct glk_arena *arena, struct glk_extent *e);

/* Of pieces in a stretch that have none the hashes are kept, where contents are verified. Gives the lock up. */
void glk_part_hash(struct glk_arena *arena, struct glk_extent *e, struct glk_stretch in);

/* ---- spill.c, and fetch.h: under the lock, which is given up meanwhile, of a block that is claimed. ---- */

struct glk_part_way {
	uint32_t on;  /* stream that orders the call; 0: none */
	uint32_t why; /* flags of what goes; only what has one of them comes */
	bool drop;    /* what goes is not kept: what it reads afterwards is undefined */
	bool sealed; /* sealed pages go, and nothing else, which stay otherwise but for a suspension */
	bool large; /* what comes of an elastic block may have pages of several slots */
};
/* Whether others have the block, or know it, so that it has to stay where it is: 0, or -EBUSY with a
 * record. */
int glk_spill_keeps(const struct glk_arena *arena, const struct glk_extent *e);
/* Why a block has to stay: 0 if it may go, else as glake_spill(). */
int glk_spill_may(const struct glk_arena *arena, const struct glk_extent *e);
/* All of a block goes, if it may. 0, or an error with everything undone. */
int glk_spill(
	struct glk_arena *arena, struct glk_extent *e, const struct glk_part_way *way);
/* What is here of a stretch of one that may: -EALREADY with a record where nothing is. All of it or nothing. */
int glk_spill_range(struct glk_arena *arena, struct glk_extent *e, struct glk_stretch s,
	const struct glk_part_way *way);
/* Whether a portion is one of a block: 0, or -EINVAL with a record. */
int glk_portion_check(const struct glk_extent *e, const struct glk_portion *p);
/* Slots of which all that the block has in them is in the portion, or with `any` some of it; none: the
 * first above the last. */
struct glk_stretch glk_portion_slots(const struct glk_map *map,
	const struct glk_extent *e, const struct glk_portion *p, bool any);
/* The same for bytes of any block, as glake_spill_range() and glake_fetch_range(). */
int glk_portion_send(struct glk_arena *arena, struct glk_extent *e, uint32_t on,
	const struct glk_portion *p);
/* What of an elastic block may go, where no others have it, as the way says; nothing, where nothing is here. */
int glk_portion_leave(struct glk_arena *arena, struct glk_extent *e,
	const struct glk_part_way *way, const struct glk_portion *p);
/* A live block that is cold. 0; -EAGAIN without a record: it is not any more; or as above. */
int glk_spill_victim(struct glk_arena *arena, struct glk_extent *e);

#endif
