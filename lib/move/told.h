/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_MOVE_TOLD_H
#define GLK_MOVE_TOLD_H

/*
 * Functions of the program that are told before a block moves and after it: see glake/pin.h. They are
 * called without the lock, for a block that is claimed, so it stays what it was told to be. A thread
 * that is inside of one is known as such, and the public functions refuse it: most of what they wait
 * for would be waiting for it.
 */
#include "move/gpu.h"

/* Who is told of a move, or of that of several blocks; begins as zeroes. */
struct glk_telling {
	uint64_t last; /* number of the function that was there last, when it began */
};

/* Both under the lock, which is given up meanwhile. The first is 0, or -EBUSY (class BUSY) where one of
 * them wants the block to stay; then those that were told of this block were told that it does. */
int glk_tell_before(struct glk_arena *arena, const struct glk_extent *e,
	enum glake_move_way way, struct glk_telling *t);
/* What became of it: 0 or the error. */
void glk_tell_after(struct glk_arena *arena, const struct glk_extent *e,
	enum glake_move_way way, const struct glk_telling *t, int err);
/* Whether -EBUSY means that this block stays, and nothing about others. */
bool glk_told_to_stay(int err);

/* A function at an entry, or NULL; then it is not running any more. */
int glk_cache_hear(struct glk_cache *cache, uint32_t entry, glake_move_fn fn, void *arg);

#endif
