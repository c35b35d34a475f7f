/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef GLK_CACHE_SENDING_H
#define GLK_CACHE_SENDING_H

/* Blocks that go away one after the other, with their GPU or with their tag, and what is told of it. */
#include "cache/cache.h"

/* Events that tell of what has gone, beside those of the last part. */
#define GLK_SENDING_MARKS 16

struct glk_sending {
	struct glake_suspended *did;
	uint64_t left; /* bytes to go */
	uint32_t why;  /* GLK_KEPT_...: what pieces of blocks say */
	uint64_t mark,
		step; /* an event is wanted when no more than this is left, and after so much */
	bool full; /* another GPU has refused to lend more: each content asks for itself */
};

/* Under the lock: all that is to go is known. */
static inline void glk_sending_begin(struct glk_sending *s, uint64_t bytes)
{
	s->left = s->mark = bytes;
	s->step = bytes / GLK_SENDING_MARKS;
}

/*
 * Under the lock, for a block that is claimed: it goes, without its contents if they are dropped. One that is away
 * is so already, and one stays that may not go, or that a function which is told of moves keeps, which is no error.
 * 0 or the error of glk_spill().
 */
int glk_sending_send(
	struct glk_sending *s, struct glk_arena *arena, struct glk_extent *e, bool drop);
/* Whether it may: as glk_spill_may(). */
int glk_sending_may(const struct glk_arena *arena, const struct glk_extent *e);
/* One that went comes back if that was why it went, and is counted. 0 or the error of glk_fetch(). */
int glk_sending_have(struct glk_arena *arena, struct glk_extent *e, uint32_t why,
	struct glake_suspended *did);

/*
 * Under the lock, which is given up: passes over what is away and has to come back, until `left` is 0; and then
 * what came has, and what goes `out`. 0, the error of a pass or of the driver, or -EBUSY after a second or two of passes in vain: somebody has what is left in his hands, as a
 * thread that was cancelled in a call has for good.
 */
int glk_sending_all(struct glk_cache *cache, const uint64_t *left, bool out,
	int (*pass)(struct glk_cache *cache, void *arg), void *arg);

#endif
