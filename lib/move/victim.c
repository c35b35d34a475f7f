/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Cold blocks go, since others need the room: see advice.h. */
#include "base/error.h"
#include "base/thread.h"
#include "move/advice.h"
#include "move/part.h"
#include "move/plan.h"

#include <errno.h>

/* What the GPU gets back of a block that is listed; 0: it may not go. As glk_spill_may(), without a record: there
 * may be many of them. */
static uint64_t worth(const struct glk_arena *arena, const struct glk_extent *e)
{
	uint64_t placed;

	if (glk_extent_away(e) || glk_part_is_out(arena, e) || arena->ops->stays)
		return 0;
	placed = arena->ops->fixed ? 0 : glk_beside_placed(&arena->map, e);
	return glk_part_may_go(arena, e) - placed;
}

static void begin_walk(struct glk_arena *arena, struct glk_cold_walk *w)
{
	*w = (struct glk_cold_walk){.other = arena->cold_walks, .list = -1};
	arena->cold_walks = w;
}

static void end_walk(struct glk_arena *arena, const struct glk_cold_walk *w)
{
	struct glk_cold_walk **link = &arena->cold_walks;

	while (*link != w)
		link = &(*link)->other;
	*link = w->other;
}

/* Slots that are looked at for what a step may take. */
#define SLOTS 64

/* The next one, of all lists; NULL: there is none any more. Others may have the lock before. */
static struct glk_extent *walk_on(struct glk_arena *arena, struct glk_cold_walk *w)
{
	const struct glk_advice *table;
	struct glk_extent *e;

	glk_plan_step(arena->gpu);
	table = glk_load_relaxed(&arena->advice);
	while (table && !w->id && w->list < GLK_COLD_LISTS - 1)
		w->id = arena->cold_ones[++w->list].coldest;
	if (!table || !w->id)
		return NULL;
	e = glk_extent_at(&arena->map, w->id);
	w->id = table[w->id].newer;
	glk_plan_count(arena->gpu, (uint32_t)(e->size >> arena->map.shift) / SLOTS);
	return e;
}

/* Adds up cold blocks that may go, or are going, until they have so many bytes. */
static uint64_t sum(struct glk_arena *arena, uint64_t bytes)
{
	const struct glk_extent *e;
	struct glk_cold_walk walk;
	uint64_t found = 0;

	begin_walk(arena, &walk);
	while (found < bytes && (e = walk_on(arena, &walk)))
		found += worth(arena, e);
	end_walk(arena, &walk);
	return found;
}

/* Blocks that may be found not to go, for one request. */
#define TRIES 16

/* One that cannot go now is the newest from here on, and those behind have their turn. Its bytes, or an
 * error of the driver after which none would. */
static int64_t send_one(struct glk_arena *arena, struct glk_extent *e)
{
	uint64_t size = worth(arena, e);
	int err = glk_spill_victim(arena, e);

	if (err == -EIO || err == -ENODEV)
		return err;
	if (!err) {
		glk_advice_leave(arena, e);
		arena->gpu->victims++;
		arena->gpu->victim_bytes += size;
		return (int64_t)size;
	}
	glk_advice_last(arena, e);
	return 0;
}

static uint64_t yield(struct glk_arena *arena, uint64_t bytes)
{
	unsigned tries = TRIES;
	struct glk_cold_walk walk;
	struct glk_extent *e;
	uint64_t sent = 0;
	int64_t size = 0;

	begin_walk(arena, &walk);
	while (sent < bytes && tries && size >= 0 && (e = walk_on(arena, &walk))) {
		if (glk_extent_state(e) != GLK_EXTENT_LIVE || !worth(arena, e))
			continue;
		size = send_one(arena, e);
		sent += size > 0 ? (uint64_t)size : 0;
		tries -= !size;
	}
	end_walk(arena, &walk);
	return sent;
}

uint64_t glk_victim_cold(const struct glk_cache *cache)
{
	uint64_t bytes = 0;

	for (const struct glk_arena *a = &cache->arena; a; a = a->next)
		bytes += a->shut ? 0 : a->cold;
	return bytes;
}

typedef uint64_t (*cold_fn)(struct glk_arena *arena, uint64_t bytes);

/* What `fn` finds, in one arena after the other, until it is so many bytes. The record of the thread
 * stays. */
static uint64_t in_all(struct glk_cache *cache, uint64_t bytes, cold_fn fn)
{
	struct glake_error why = glk_thread_current->error;
	uint64_t found = 0;

	for (struct glk_arena *a = &cache->arena; a && found < bytes; a = a->next) {
		if (a->cold && !a->shut)
			found += fn(a, bytes - found);
	}
	glk_error_back(&why);
	return found;
}

bool glk_victim_can(struct glk_cache *cache, uint64_t bytes)
{
	return in_all(cache, bytes, sum) >= bytes;
}

uint64_t glk_victim_yield(struct glk_cache *cache, uint64_t bytes)
{
	return in_all(cache, bytes, yield);
}
