/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MOVE_AWAY_H
#define GLK_MOVE_AWAY_H

/*
 * Blocks whose contents are in memory of the host. A block that goes away leaves its slots as if it
 * were freed behind the copy of its contents, and keeps its addresses: what was behind them serves
 * others from then on, in stream order, and nothing is unmapped for it. One that comes back is
 * given pages as a request is that has found its place.
 *
 * It is claimed meanwhile. Who finds it claimed, to free it or to ask about it, waits until it has
 * been moved: glk_away_settled().
 */
#include "move/block.h"

/* A block that is being moved. */
struct glk_moving {
	uint64_t addr, size;
	struct glk_moving *other;
};

/* For an address where no live block was found: waits while one is being moved there, and says
 * whether there is one then, that begins there or, with `inside`, holds it. Takes the lock. */
bool glk_away_settled(struct glk_cache *cache, uint64_t addr, bool inside);

/* A small block leaves its slot, with the content of that in the store from this run on, or 0, because of
 * a flag; the run of one that is away; it stands on its slot again, with reads of the store queued until a tick; and
 * a free of one. */
void glk_kept_depart(struct glk_arena *arena, struct glk_extent *e,
	const struct glk_use *use, uint32_t run, uint32_t why);
uint32_t glk_kept_run(const struct glk_extent *e);
void glk_kept_arrive(struct glk_arena *arena, struct glk_extent *e, uint64_t read);
void glk_kept_drop(struct glk_arena *arena, struct glk_extent *e);
/* All of a block is here: where it goes when it is freed, which is the bin it would have gone to, if nobody
 * but its own stream is to be waited for. Where no stream was put behind the copy, it is the copy's
 * that is. */
void glk_away_restore(
	struct glk_arena *arena, struct glk_extent *e, uint32_t on, uint32_t bin);
/* A stream uses one. */
void glk_away_mark(struct glk_cache *cache, struct glk_extent *e, uint32_t stream);
/* What moves contents is made at the first use. 0 or the driver's error. Without the lock. */
int glk_away_start(struct glk_cache *cache);
int glk_away_fini(struct glk_cache *cache);

/* Whether the block that holds an address is being moved. */
bool glk_away_is_moving(const struct glk_cache *cache, uint64_t addr);
/* A live block that begins at an address; NULL: there is none. Waits for others who move it. */
struct glk_extent *glk_away_find(
	struct glk_cache *cache, uint64_t addr, struct glk_arena **ret_arena);
/* A block that is live is claimed, and in the hands of the caller until he lets it go. */
bool glk_away_take(struct glk_cache *cache, struct glk_extent *e, struct glk_moving *m);
void glk_away_let_go(struct glk_cache *cache, struct glk_extent *e, struct glk_moving *m);

/* Who looks for a block in that range waits, from the one to the other. */
void glk_away_announce(struct glk_cache *cache, struct glk_moving *m);
void glk_away_done(struct glk_cache *cache, struct glk_moving *m);

/* What concerns all blocks of a GPU is done by one at a time; others wait. The first takes the
 * lock of the GPU, the other gives it up. */
void glk_turn_begin(struct glk_cache *cache);
void glk_turn_end(struct glk_cache *cache);
/* -EAGAIN with a record while the GPU is suspended, else 0. */
int glk_suspended(const struct glk_cache *cache);

/* A content of blocks that are claimed, 0 for none, goes to the host if another GPU has some of it.
 * Gives the lock up meanwhile. As glk_move_home(). */
int glk_away_home(struct glk_cache *cache, uint32_t run);
/* Calls `fn` for each live block of an arena that is no small one, claimed, in the order of addresses,
 * until it fails. Others have the lock now and then, and free blocks meanwhile. What `fn` answered last. */
typedef int (*glk_away_fn)(struct glk_arena *arena, struct glk_extent *e, void *arg);
int glk_away_each(struct glk_arena *arena, glk_away_fn fn, void *arg);
/* The same in all arenas whose blocks may be away. */
int glk_away_everywhere(struct glk_cache *cache, glk_away_fn fn, void *arg);

/* What goes to the host is encrypted from now on, and nothing lies there in place. 0; -EINVAL: tier.place has it
 * so; as glk_cipher_able(). Without the lock. */
int glk_cache_encrypt(struct glk_cache *cache);

#endif
