/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A GPU that lends memory for contents that are away wants it back, since it is about to be suspended: what
 * the others have there goes to the host, block by block, over their own streams and under their own locks.
 * None of it waits for the lender, whose lock nobody here has.
 */
#include "cache/cache.h"
#include "cache/sending.h"
#include "cache/tag/tag.h"

#include "base/conf.h"
#include "base/log.h"
#include "base/thread.h"

#include <errno.h>

/* What the host has no room for stays, as what is not what it was does, and another one may go. */
static int move(struct glk_arena *arena, struct glk_extent *e, void *arg)
{
	int *short_of = arg, err;

	if (!glk_extent_lacks(e))
		return 0;
	err = glk_part_home(arena, e);
	if (err != -ENOMEM && err != -EIO)
		return err;
	*short_of = err;
	return 0;
}

static int move_pass(struct glk_cache *cache, void *arg)
{
	int short_of = 0, err = glk_away_everywhere(cache, move, &short_of);

	(void)arg;
	if (!err)
		err = glk_tags_home_small(cache);
	return err ? err : short_of;
}

int glk_cache_vacate(struct glk_cache *cache)
{
	int err;

	/* pairs with: the release in glk_away_start */
	if (!glk_load_acquire(&cache->moves))
		return 0;
	glk_turn_begin(cache);
	/* one that is in the hands of another call is looked for again */
	err = glk_sending_all(
		cache, &cache->mover.store.lent_used, true, move_pass, NULL);
	glk_mover_give(&cache->mover);
	glk_turn_end(cache);
	return err;
}

void glk_cache_lend(struct glk_cache *cache, bool on)
{
	glk_lock(&cache->lock);
	glk_lend_shut(cache->node, !on || glk_load_relaxed(&cache->suspended));
	glk_unlock(&cache->lock);
}
