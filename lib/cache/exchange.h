/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_EXCHANGE_H
#define GLK_CACHE_EXCHANGE_H

/*
 * Pages of the GPU in place of pages of the host behind blocks, at the same addresses: exchange.c, or the
 * reverse: exchange_out.c. All under the lock of the GPU, which is given up meanwhile.
 *
 * A run is one of whole mappings of pages that are where what goes comes from. All extents that touch
 * it are claimed by the caller, and live ones stand on each of its mappings. Of one that is away in part
 * what it stands on goes with the others, and what is away stays so.
 */
#include "cache/away.h"
#include "cache/told.h"

struct glk_run {
	uint32_t first, last; /* slots; none: first above last */
};

enum glk_way {
	GLK_TO_GPU = 0,
	GLK_TO_HOST = 1,
};

/* The next run, from a slot on to `last`, of no more than `most` slots if one mapping has no more. */
struct glk_run glk_exchange_next(const struct glk_map *map, uint32_t slot, uint32_t last,
	uint32_t most, enum glk_way way);

/* What an extent stands on from a slot on, without a gap: all of it, but of one that is away in part. None:
 * first above last. */
struct glk_stretch glk_exchange_here(
	const struct glk_map *map, const struct glk_extent *e, uint32_t slot);

/* The first or the next extent that touches a run and is not free, from one that does; NULL: there is
 * none. They are linked by address. */
struct glk_extent *glk_exchange_first(
	const struct glk_map *map, struct glk_extent *e, const struct glk_run *run);
struct glk_extent *glk_exchange_after(
	const struct glk_map *map, struct glk_extent *e, const struct glk_run *run);

/* Slots of a part, if one mapping has no more: it is copied and waited for as one. */
#define GLK_EXCHANGE_PART 128

/* An exchange of the pages behind a run that `e` touches: the first members are the caller's, the rest
 * begins as zeroes. */
struct glk_exchange {
	struct glk_arena *arena;
	struct glk_map *map; /* of the arena */
	struct glk_extent *e;
	struct glk_run run; /* goes */
	enum glk_way way;
	uint32_t on;  /* a stream more that it is behind, to the GPU; 0: none */
	bool patient; /* may wait, so that there is memory; else the plan is closed */
	struct glk_run busy;	   /* the part of the run that gets pages */
	uint64_t print;		   /* of the run and of who touches it */
	struct glk_use use;	   /* of the run, and then of the copy */
	uint32_t pages, old;	   /* that come, and that went: in the hands of this */
	struct glk_window *window; /* where the pages of the GPU are meanwhile */
	uint64_t relays;	   /* GPUs whose links may carry it, a bit each */
	uint64_t
		opened; /* and that have been given rights on the pages of the host for it */
	struct glk_run open; /* which are mapped there */
	bool idle;	     /* the copy is over, or never began */
	int err;
};

/*
 * The steps, in this order; the last three come after a preparation that has succeeded. To the host in a
 * closed plan alone. Of two exchanges at once the steps may mix.
 *
 * prepare: 0; -EAGAIN without a record where others have been given a part of the run meanwhile; -ENOMEM,
 * -EBUSY, -EIO, with everything as it was. finish: 0, or the error of any step, with everything as it was,
 * or, where pages of the host had come and those of the GPU were not taken out of use, as it was to be.
 */
int glk_exchange_prepare(struct glk_exchange *x);
void glk_exchange_launch(struct glk_exchange *x);
void glk_exchange_await(struct glk_exchange *x);
int glk_exchange_finish(struct glk_exchange *x);
/* All of them, to the GPU, behind all work of the extents there and of one more stream, 0 for none. */
int glk_exchange(struct glk_arena *arena, struct glk_extent *e, const struct glk_run *run,
	uint32_t on);

/* exchange_out.c: its part of a preparation and of a finish. */
int glk_exchange_lower(struct glk_exchange *x);
int glk_exchange_lowered(struct glk_exchange *x);
/* exchange_open.c: GPUs that lend their links get rights on the pages of the host that are mapped in the busy
 * part, if that is worth it; and lose them. */
void glk_exchange_open(struct glk_exchange *x);
void glk_exchange_shut(struct glk_exchange *x);
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
/* The stream that copies. */
struct glk_stream *glk_exchange_carrier(const struct glk_exchange *x);
/* All work that touches what is mapped in the run. */
void glk_exchange_gather(struct glk_exchange *x);
/* The new pages of the busy part were used by the copy. */
void glk_exchange_used(const struct glk_exchange *x);
/* What the blocks in the run have on the host leaves the figures, or comes to them. */
void glk_exchange_tally(const struct glk_exchange *x, bool more);
/* Pages of a run that were taken leave it, and the new ones come there, or with an error the old ones. */
int glk_exchange_swap(struct glk_exchange *x, uint32_t old);
/* Old pages are mapped where they were. */
void glk_exchange_put_old(struct glk_exchange *x, uint32_t pages);
bool glk_exchange_touches(
	const struct glk_map *map, const struct glk_extent *e, const struct glk_run *run);

/*
 * line.c: exchanges one after the other, of one arena and one way, in a closed plan, so that the driver
 * maps and unmaps for one while the contents of the one before are on the link. The extents are claimed
 * there, none of which is out or pinned, and all exchanges are behind all work that is known to use
 * them; what went to the host goes to no bin when it is freed.
 */
struct glk_line_part {
	struct glk_exchange x;
	struct glk_moving m;
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
int glk_line_add(struct glk_line *line, struct glk_extent *e, const struct glk_run *run);
/* Ends what is under way. 0 or `err`. */
int glk_line_end(struct glk_line *line);
/* Whether an extent is claimed by the line. */
bool glk_line_has(const struct glk_line *line, const struct glk_extent *e);

/* quiet.c. In a closed plan: as many blocks of an arena as there is room for come from the host. 0, or an
 * error that is not for want of room. */
int glk_quiet_arena(struct glk_arena *arena);

/* lower.c. In a closed plan, while the GPU is suspended: all blocks of it that may go lie on the host in
 * place, or on the GPU. 0; -ENOMEM, -EBUSY, -EIO, with each where it was or where it goes. */
int glk_lower_all(struct glk_cache *cache);
int glk_raise_all(struct glk_cache *cache);
/* What blocks have on the GPU. */
void glk_lower_left(struct glk_cache *cache, uint64_t *ret_bytes, uint64_t *ret_blocks);

/* exchange_have.c. What a block has to itself of its pages of the host: a glk_away_fn for one that is claimed. 0, or
 * -EBUSY: that is none, or as above. */
int glk_exchange_have(struct glk_arena *arena, struct glk_extent *e, uint32_t on);

#endif
