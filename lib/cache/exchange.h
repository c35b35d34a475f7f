/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_EXCHANGE_H
#define GLK_CACHE_EXCHANGE_H

/*
 * Pages of the GPU in place of pages of the host behind blocks, at the same addresses, or the reverse. All under the
 * lock of the GPU, which is given up meanwhile.
 *
 * A run is one of whole mappings of pages that are where what goes comes from. All extents that touch
 * it are claimed by the caller, and live ones stand on each of its mappings. Of one that is away in part
 * what it stands on goes with the others, and what is away stays so.
 */
#include "cache/cache.h"

enum glk_way {
	GLK_TO_GPU = 0,
	GLK_TO_HOST = 1,
};

/* The next run, from a slot on to `last`, of no more than `most` slots if one mapping has no more. */
struct glk_stretch glk_exchange_next(const struct glk_map *map, uint32_t slot,
	uint32_t last, uint32_t most, enum glk_way way);

/* What an extent stands on from a slot on, without a gap: all of it, but of one that is away in part. None:
 * first above last. */
struct glk_stretch glk_exchange_here(
	const struct glk_map *map, const struct glk_extent *e, uint32_t slot);

/* Slots of a part, if one mapping has no more: it is copied and waited for as one. */
#define GLK_EXCHANGE_PART 128

/* An exchange of the pages behind a run that `e` touches: the first members are the caller's, the rest
 * begins as zeroes. */
struct glk_exchange {
	struct glk_arena *arena;
	struct glk_map *map; /* of the arena */
	struct glk_extent *e;
	struct glk_stretch run; /* goes */
	enum glk_way way;
	uint32_t on;  /* a stream more that it is behind, to the GPU; 0: none */
	bool patient; /* may wait, so that there is memory; else the plan is closed */
	/* That touches the run and is not free; of a patient one `e`. */
	struct glk_extent *first;
	struct glk_stretch busy;   /* the part of the run that gets pages */
	uint64_t print;		   /* of the run and of who touches it */
	struct glk_use use;	   /* of the run, and then of the copy */
	uint32_t pages, old;	   /* that come, and that went: in the hands of this */
	struct glk_window *window; /* where the pages of the GPU are meanwhile */
	uint64_t relays;	   /* GPUs whose links may carry it, a bit each */
	uint64_t
		opened; /* and that have been given rights on the pages of the host for it */
	struct glk_stretch open; /* which are mapped there */
	bool idle;		 /* the copy is over, or never began */
	int err;
};

/*
 * exchange_window.c. A window for so many bytes; it is filled with a list of pages, which have no mappings there
 * for others; and it is given back. 0, or the driver's error, or of an exchange that does not wait -EIO: there
 * is none. Where a filling fails it is given back. What the driver does not unmap stays there: the
 * window is abandoned, and says so in `kept`.
 */
int glk_window_open(struct glk_exchange *x, uint64_t size);
int glk_window_fill(struct glk_exchange *x, uint32_t pages);
int glk_window_close(struct glk_exchange *x);
void glk_window_abandon(struct glk_exchange *x);
/* Pages that are in the hands of the caller and lie in an abandoned one. */
void glk_window_lose(struct glk_exchange *x, uint32_t pages);
/* All are given back; nothing lies there. 0 or the driver's error. */
int glk_windows_fini(struct glk_cache *cache);

/*
 * Exchanges one after the other, of one arena and one way, in a closed plan, so that the driver
 * maps and unmaps for one while the contents of the one before are on the link. The extents are claimed
 * there, none of which is out or pinned, and all exchanges are behind all work that is known to use
 * them; what went to the host goes to no bin when it is freed.
 */
struct glk_line_part {
	struct glk_exchange x;
	uint32_t extents; /* that are claimed, from the first on */
	struct glk_moving m;
	enum glake_move_way way; /* as it is told */
	struct glk_telling telling;
};

struct glk_line {
	struct glk_arena *arena;
	enum glk_way way;
	struct glk_line_part part[2];
	struct glk_line_part
		*under_way; /* its contents are on the link; NULL: nothing is */
	int err;	    /* that ended it */
};

/* One more. 0; -EAGAIN also where an extent is in somebody's hands, or may not move, and -ENOMEM, -EBUSY,
 * -EIO of this one's preparation; or `err`, of one before or this one, after which nothing is begun. */
int glk_line_add(
	struct glk_line *line, struct glk_extent *e, const struct glk_stretch *run);
/* Ends what is under way. 0 or `err`. */
int glk_line_end(struct glk_line *line);
/* Whether an extent is claimed by the line. */
bool glk_line_has(const struct glk_line *line, const struct glk_extent *e);

/* quiet.c. In a closed plan: as many blocks of an arena as there is room for come from the host. 0, or an
 * error that is not for want of room. */
int glk_quiet_arena(struct glk_arena *arena);

/* In a closed plan, while the GPU is suspended: all blocks of it that may go lie on the host in
 * place, or on the GPU. 0; -ENOMEM, -EBUSY, -EIO, with each where it was or where it goes. */
int glk_lower_all(struct glk_cache *cache);
int glk_raise_all(struct glk_cache *cache);
/* What blocks have on the GPU. */
void glk_lower_left(struct glk_cache *cache, uint64_t *ret_bytes, uint64_t *ret_blocks);

/* What a block has to itself of its pages of the host: a glk_away_fn for one that is claimed. 0, or
 * -EBUSY: that is none, or as above. */
int glk_exchange_have(struct glk_arena *arena, struct glk_extent *e, uint32_t on);

#endif
