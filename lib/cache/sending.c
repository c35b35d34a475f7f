/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Blocks that go away one after the other: see sending.h. */
#include "cache/sending.h"

#include "base/clock.h"
#include "base/error.h"
#include "cache/cache.h"
#include "cache/fetch.h"

#include <errno.h>
#include <time.h>

/* Memory of the host had at a time. */
#define PART ((uint64_t)1 << 30)

/* Passes without a block that comes back, a tenth of a millisecond apart, and how long they go on. A pass
 * over many blocks takes longer than the pause behind it; where each is slow a few are made all the same. */
#define IDLE_PASSES 100
#define IDLE_MOST   INT64_C(1500000000)
#define IDLE_NS	    100000

/* Of another GPU, as long as that lends some: what is left to be had on the host. */
static uint64_t left_of_lent(
	struct glk_sending *s, struct glk_store *store, uint64_t bytes)
{
	uint64_t room;

	while (!s->full && glk_lend_takes(store->host->peer) &&
		store->lent - store->lent_used < bytes)
		s->full = !glk_store_borrow(store);
	room = glk_lend_takes(store->host->peer) ? store->lent - store->lent_used : 0;
	return bytes - (bytes < room ? bytes : room);
}

/* Room for a block and for what follows it: memory of the host is had faster in large parts, while what
 * was sent before is on its way. Pages of the host that lie idle make way for it. Without it the block
 * says why. */
static void make_room(struct glk_sending *s, struct glk_cache *cache, uint64_t bytes)
{
	struct glk_store *store = &cache->mover.store;
	uint64_t part = s->left < PART ? s->left : PART;

	bytes = left_of_lent(s, store, bytes);
	if (store->held - store->used >= bytes)
		return;
	part = bytes < part ? part : bytes;
	if (glk_store_ready(store, part) == -ENOMEM && glk_beside_release(cache, part))
		glk_store_ready(store, part);
}

/* What lies on the host in part stays, as what may not go does: a resumption needs no more memory of the
 * GPU than there was. */
int glk_sending_may(const struct glk_arena *arena, const struct glk_extent *e)
{
	int err = glk_spill_may(arena, e);

	return !err && glk_beside_placed(&arena->map, e) ? -EBUSY : err;
}

/* Pages go back to the driver, at 160 GB/s, while the contents of others are on the way, at 55 over one link and
 * 140 over four: an event tells of each sixteenth, and in the end of each half of what is left, so that little is left
 * to do behind the last copy. */
static void note(struct glk_sending *s, struct glk_cache *cache, uint64_t bytes)
{
	s->left -= bytes < s->left ? bytes : s->left;
	if (s->left > s->mark)
		return;
	s->mark = s->left - (s->left / 2 < s->step ? s->left / 2 : s->step);
	glk_mover_mark(&cache->mover);
}

int glk_sending_send(
	struct glk_sending *s, struct glk_arena *arena, struct glk_extent *e, bool drop)
{
	uint64_t bytes = glk_part_here(arena, e),
		 placed = glk_beside_placed(&arena->map, e);
	const struct glk_part_way way = {.why = s->why, .drop = drop};
	int err = glk_sending_may(arena, e);
	bool stays = err == -EBUSY;

	if (err == -EALREADY)
		return 0;
	if (!err) {
		if (!drop)
			make_room(s, arena->gpu, bytes);
		err = glk_spill_range(arena, e, glk_part_all(&arena->map, e), &way);
		stays = glk_told_to_stay(err);
	}
	if (stays) {
		s->did->stayed += bytes - placed;
		s->did->stayed_blocks++;
		return 0;
	}
	if (err)
		return err;
	s->did->moved += drop ? 0 : bytes;
	s->did->moved_blocks += !drop;
	s->did->dropped += drop ? bytes : 0;
	s->did->dropped_blocks += drop;
	note(s, arena->gpu, bytes);
	return 0;
}

int glk_sending_have(struct glk_arena *arena, struct glk_extent *e, uint32_t why,
	struct glake_suspended *did)
{
	const struct glk_part_way way = {.why = why};
	uint64_t here = glk_part_here(arena, e);
	int err;

	if (!glk_part_went(e, why))
		return 0;
	err = glk_fetch(arena, e, &way);
	if (!err) {
		did->moved += glk_part_here(arena, e) - here;
		did->moved_blocks++;
	}
	return err;
}

/* Passes in vain, one after the other, and when the first one ended. */
struct idle {
	unsigned passes;
	int64_t since;
};

/* After a pass. `came`: it found something, so that the next may follow at once. */
static bool go_on(struct glk_cache *cache, bool came, struct idle *idle)
{
	int64_t now = glk_clock_ns();

	if (came)
		*idle = (struct idle){0};
	else if (!idle->passes++)
		idle->since = now;
	glk_lock_pause(&cache->lock);
	if (idle->passes)
		nanosleep(&(struct timespec){.tv_nsec = IDLE_NS}, NULL);
	glk_lock_resume(&cache->lock);
	return idle->passes < IDLE_PASSES || now - idle->since < IDLE_MOST;
}

int glk_sending_all(struct glk_cache *cache, const uint64_t *left, bool out,
	int (*pass)(struct glk_cache *cache, void *arg), void *arg)
{
	struct glk_streams *streams = &cache->streams;
	struct idle idle = {0};
	uint64_t carriers;
	int err = 0, failed;

	while (!err && *left) {
		uint64_t before = *left;

		err = pass(cache, arg);
		if (!err && *left && !go_on(cache, *left < before, &idle))
			err = glk_error(-EBUSY, GLAKE_ERROR_BUSY,
				"a block of GPU %d is in the hands of another call",
				cache->device);
	}
	carriers = glk_stream_mask(glk_stream_enter(streams, cache->mover.back));
	if (out)
		carriers |= glk_stream_mask(glk_stream_enter(streams, cache->mover.out));
	failed = glk_clock_sync(streams, carriers);
	return err ? err : failed;
}
