/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MOVE_SEAL_H
#define GLK_MOVE_SEAL_H

/*
 * Ranges of elastic blocks that have the pages of other ranges, of theirs or of other blocks of their arena: what is
 * committed there exists once. The pages are sealed (map/page/seal.h), and each range leaves them as if they were its
 * own. A page of several slots goes and comes as a whole: a piece of it is one slot for each of the page's.
 *
 * They stay on the GPU while others spill. When all is suspended they go with the block, and their contents once: a
 * piece of a sealed page keeps the number of a record, which all pieces of that page share.
 *
 *	page on the GPU -- the first piece goes: its contents are copied --> record {run, refs 1, page}
 *	  -- more go --> refs n -- the last goes: the page is given back --> record {run, refs n, no page}
 *	  -- the first comes: a page, with the contents --> record {run, refs n - 1, page} -- the last --> no record
 *
 * What counts as live is each page once: a block keeps in its record (part.h) what it shares beyond that. It is the
 * sum over the blocks of an arena that holds: of a block which leaves pages that others keep it falls below zero. A page
 * that another process has made (share/depot.h) is live there, until a block that stands on it goes with its contents.
 *
 * All under the lock of the GPU, for a block that is claimed.
 */
#include "move/part.h"

/* Of a GPU, at a time. */
#define GLK_SEALS (1u << 20)

struct glk_kept_seal {
	uint32_t page; /* that has the contents on the GPU; 0: none */
	uint32_t run;  /* of the store that has them; 0: they were dropped */
	uint32_t refs; /* pieces */
	uint64_t read; /* the tick until which the contents are read */
};

/* On a page of the GPU, where the whole slot is the block's. */
static inline bool glk_seal_is_whole(
	const struct glk_map *map, const struct glk_extent *e, uint32_t slot)
{
	uint64_t end = (uint64_t)(slot + 1) << map->shift;

	return !glk_part_gone(map, e, slot) && !glk_map_is_host(map, map->page[slot]) &&
		end <= e->offset + glk_extent_asked(e);
}

/* And that is the page. */
static inline bool glk_seal_is_page(
	const struct glk_map *map, const struct glk_extent *e, uint32_t slot)
{
	return !glk_bit_get(map->wide, slot) && glk_seal_is_whole(map, e, slot);
}

/* Whether a sealed page is read at another slot already. */
static inline bool glk_seal_is_again(const struct glk_map *map, uint32_t slot)
{
	uint32_t at;

	if (!glk_is_sealed(map, slot))
		return false;
	at = glk_map_page(map, map->page[slot])->first_alias;
	while (!glk_is_sealed(map, at))
		at = map->alias[at];
	return at != glk_mapping_at(map, slot).first;
}

/* sums.c. Under the lock and in a plan, which are given up meanwhile: numbers of bytes of a block that is claimed. 0 or
 * the driver's error. */
int glk_sums_hash(struct glk_cache *cache, struct glk_likeness *look, uint64_t addr,
	uint64_t bytes);
/* What is known of the contents of slots is nothing any more: others lie there, or they may be written. */
void glk_sums_forget(struct glk_cache *cache, uint32_t slot, uint32_t count);
void glk_sums_fini(struct glk_cache *cache);

/* That of the word of a piece. */
struct glk_kept_seal *glk_seal_at(const struct glk_cache *cache, uint32_t word);
/* The run of the store with the contents of a piece; 0: none. */
uint32_t glk_seal_run(const struct glk_cache *cache, uint32_t word);
/* The word of a sealed page, by its first slot, that is about to go, with the flags of its going, behind all uses: its
 * contents are copied unless they were, or are dropped. 0, -ENOMEM, or an error of the copy. */
int glk_seal_keep(struct glk_arena *arena, struct glk_extent *e, uint32_t slot,
	const struct glk_part_way *way, struct glk_use *use, uint32_t *ret_word);
/* The page of a slot on which the block stands, all of it, is sealed. Whether it was not yet. */
bool glk_seal_page(struct glk_arena *arena, struct glk_extent *e, uint32_t slot);
/* So many bytes more of it are committed and exist already, or fewer. */
void glk_seal_count(struct glk_arena *arena, struct glk_extent *e, uint64_t bytes);
/* The block has left a stretch of sealed slots. */
void glk_seal_left(struct glk_arena *arena, struct glk_extent *e, struct glk_stretch s);
/* A piece is none any more; its contents are read until a tick. */
void glk_seal_unref(struct glk_cache *cache, uint32_t word, uint64_t read);
/* Whether another piece of it came with a page. */
bool glk_seal_is_here(const struct glk_cache *cache, uint32_t word);
/* A sealed page leaves the block for good, as one that is here, by any of its slots, or as a piece that is none any
 * more: whether its bytes stay committed elsewhere. To be asked before. */
bool glk_seal_stays(const struct glk_arena *arena, uint32_t slot, uint32_t word);

/* sums.c. Whether nothing has changed of pages that are sealed, and of blocks that glake_seal sealed, where security.level=3 is or was of
 * anything; what is seen for the first time is kept, and compared later. `known` false: only that. 0, or -EIO (class CORRUPT) with the first
 * one. Adds to *ret. */
int glk_cache_check_sealed(struct glk_cache *cache, bool known, uint64_t *ret);

#endif
