/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the program says of blocks, and what comes of it: see advice.h. */
#include "move/advice.h"

#include "base/error.h"
#include "base/thread.h"
#include "move/outcome.h"
#include "move/part.h"
#include "move/plan.h"

#include <errno.h>
#include <string.h>

int glk_advice_make(struct glk_arena *arena)
{
	struct glk_advice *table;

	if (glk_load_relaxed(&arena->advice))
		return 0;
	table = glk_region_new((arena->map.extents.max + 1) * sizeof(*table));
	if (!table)
		return -ENOMEM;
	/* pairs with: glk_advice_of() */
	glk_store_release(&arena->advice, table);
	return 0;
}

struct glk_advice *glk_advice_take(struct glk_arena *arena)
{
	struct glk_advice *table = glk_load_relaxed(&arena->advice);

	glk_store_relaxed(&arena->advice, NULL);
	memset(arena->cold_ones, 0, sizeof(arena->cold_ones));
	arena->cold = 0;
	for (struct glk_cold_walk *w = arena->cold_walks; w; w = w->other)
		*w = (struct glk_cold_walk){.other = w->other, .list = GLK_COLD_LISTS};
	return table;
}

void glk_advice_free(struct glk_advice *table, uint32_t extents)
{
	if (table)
		glk_region_free(table, (extents + 1) * sizeof(*table));
}

static void unlink_cold(struct glk_arena *arena, struct glk_advice *table, uint32_t id)
{
	uint32_t older = table[id].older, newer = table[id].newer, i = table[id].list;

	if (!i--)
		return;
	if (older)
		table[older].newer = newer;
	else
		arena->cold_ones[i].coldest = newer;
	if (newer)
		table[newer].older = older;
	else
		arena->cold_ones[i].newest = older;
	table[id].list = 0;
	for (struct glk_cold_walk *w = arena->cold_walks; w; w = w->other)
		w->id = w->id == id ? newer : w->id;
	arena->cold -= glk_extent_asked(glk_extent_at(&arena->map, id));
}

_Static_assert(GLK_COLD_LISTS == 2 * (GLAKE_PRIORITY_MAX + 1), "two for each priority");

static void link_cold(struct glk_arena *arena, struct glk_advice *table, uint32_t id)
{
	bool kept = !(glk_load_relaxed(&table[id].what) & GLAKE_ADVICE_DISCARDABLE);
	uint32_t i = 2u * table[id].priority + kept, newest = arena->cold_ones[i].newest;

	table[id].older = newest;
	table[id].newer = 0;
	table[id].list = (uint8_t)(i + 1);
	arena->cold += glk_extent_asked(glk_extent_at(&arena->map, id));
	if (newest)
		table[newest].newer = id;
	else
		arena->cold_ones[i].coldest = id;
	arena->cold_ones[i].newest = id;
}

/*
 * Whether a cold block stands in a list, in which requests look for victims. One that the program sent
 * away, or that is pinned, does not: it comes back without being cold, or by a hint that says so anew, or is
 * unpinned. Those that a suspension sent away keep their places, since nobody looks meanwhile.
 */
static bool is_listed(const struct glk_arena *arena, const struct glk_extent *e)
{
	return glk_advice_is(arena, e, GLAKE_ADVICE_COLD) && !e->nested &&
		!glk_advice_pins(arena, e) &&
		(!glk_extent_away(e) ||
			glk_part_went(e, GLK_KEPT_SUSPENDED | GLK_KEPT_TAGGED));
}

void glk_advice_leave(struct glk_arena *arena, const struct glk_extent *e)
{
	struct glk_advice *table = glk_load_relaxed(&arena->advice);

	if (table)
		unlink_cold(arena, table, glk_extent_id(&arena->map, e));
}

void glk_advice_last(struct glk_arena *arena, const struct glk_extent *e)
{
	struct glk_advice *table = glk_load_relaxed(&arena->advice);
	uint32_t id = glk_extent_id(&arena->map, e);

	if (!table || !table[id].list)
		return;
	unlink_cold(arena, table, id);
	link_cold(arena, table, id);
}

void glk_advice_set(struct glk_arena *arena, const struct glk_extent *e, uint32_t what)
{
	struct glk_advice *table = glk_load_relaxed(&arena->advice);
	uint32_t id = glk_extent_id(&arena->map, e), was;

	if (!table)
		return;
	was = glk_load_relaxed(&table[id].what);
	if (was == what)
		return;
	unlink_cold(arena, table, id);
	glk_store_relaxed(&table[id].what, what);
	if (is_listed(arena, e))
		link_cold(arena, table, id);
}

bool glk_advice_is_said(const struct glk_arena *arena, const struct glk_extent *e)
{
	const struct glk_advice *table = glk_load_relaxed(&arena->advice);
	uint32_t id = glk_extent_id(&arena->map, e);

	return table &&
		(glk_load_relaxed(&table[id].what) != GLAKE_ADVICE_NORMAL ||
			glk_load_relaxed(&table[id].pins) || table[id].priority);
}

void glk_advice_drop(struct glk_arena *arena, const struct glk_extent *e)
{
	struct glk_advice *table = glk_load_relaxed(&arena->advice);

	glk_advice_set(arena, e, GLAKE_ADVICE_NORMAL);
	glk_store_relaxed(&table[glk_extent_id(&arena->map, e)].pins, 0);
	table[glk_extent_id(&arena->map, e)].priority = 0;
}

/* A live block that begins at an address, or holds it where that may be `inside`, held; or NULL. */
static struct glk_extent *hold(
	struct glk_cache *cache, uint64_t addr, bool inside, struct glk_arena **ret_arena)
{
	const struct glk_range *range = glk_cache_range(cache, addr);
	struct glk_live live;

	if (!range)
		return NULL;
	*ret_arena = glk_arena_of(range);
	if (inside && glk_lookup_live(range, addr, &live))
		addr = live.addr;
	return glk_lookup_hold(range, addr);
}

static int set(struct glk_arena *arena, struct glk_extent *e, uint32_t advice)
{
	int err;

	if (arena->ops->stays)
		return glk_error(
			-EBUSY, GLAKE_ERROR_BUSY, "the block %s", arena->ops->stays);
	err = glk_advice_make(arena);
	if (err)
		return err;
	glk_block_to_no_bin(e);
	glk_advice_set(arena, e, advice);
	return 0;
}

static int advise(struct glk_arena *arena, struct glk_extent *e, uint32_t advice)
{
	int err = set(arena, e, advice);

	if (!err)
		glk_prefetch_advised(arena->gpu, e);
	return err;
}

/* One that is cold takes its place among its new equals, behind them all. */
static int rank(struct glk_arena *arena, struct glk_extent *e, uint32_t priority)
{
	uint32_t what = glk_advice_of(arena, e);
	int err = set(arena, e, GLAKE_ADVICE_NORMAL);

	if (err)
		return err;
	glk_load_relaxed(&arena->advice)[glk_extent_id(&arena->map, e)].priority =
		(uint8_t)priority;
	glk_advice_set(arena, e, what);
	return 0;
}

typedef int (*say_fn)(struct glk_arena *arena, struct glk_extent *e, uint32_t what);

static int say(
	struct glk_cache *cache, uint64_t addr, bool inside, say_fn fn, uint32_t what)
{
	struct glk_arena *arena = NULL;
	struct glk_extent *e;
	int err = 0;

	do {
		glk_lock(&cache->lock);
		e = hold(cache, addr, inside, &arena);
		if (e) {
			err = fn(arena, e, what);
			glk_word_let_go(&e->word);
		}
		glk_unlock(&cache->lock);
	} while (!e && glk_away_settled(cache, addr, inside));
	return e ? err : glk_block_refuse(cache, addr);
}

int glk_cache_advise(struct glk_cache *cache, uint64_t addr, uint32_t advice)
{
	/* what moves it is made now: there is no memory to be had when it is needed */
	int err = advice & GLAKE_ADVICE_COLD ? glk_away_start(cache) : 0;

	return err ? err : say(cache, addr, false, advise, advice);
}

int glk_cache_rank(struct glk_cache *cache, uint64_t addr, uint32_t priority)
{
	return say(cache, addr, false, rank, priority);
}

static int pin(struct glk_arena *arena, struct glk_extent *e, uint32_t on)
{
	struct glk_advice *table;
	uint32_t pins = glk_advice_pins(arena, e), id;
	int err = on ? glk_advice_make(arena) : 0;

	if (err)
		return err;
	if (on && arena->ops->move)
		return glk_error(
			-EBUSY, GLAKE_ERROR_BUSY, "the block %s", arena->ops->stays);
	if (on && glk_extent_lacks(e))
		return glk_error(-EBUSY, GLAKE_ERROR_BUSY,
			"the block is away, or a part of it: it has no memory that could be known");
	if (!on && !pins)
		return glk_error(-EINVAL, GLAKE_ERROR_INVAL, "the block is not pinned");
	if (on && pins == UINT32_MAX)
		return glk_error(-ENOMEM, GLAKE_ERROR_LIMIT,
			"the block is pinned as often as there can be pins");
	glk_block_to_no_bin(e);
	table = glk_load_relaxed(&arena->advice);
	id = glk_extent_id(&arena->map, e);
	unlink_cold(arena, table, id);
	glk_store_relaxed(&table[id].pins, on ? pins + 1 : pins - 1);
	if (is_listed(arena, e))
		link_cold(arena, table, id);
	return 0;
}

int glk_cache_hold(struct glk_cache *cache, uint64_t addr, bool on)
{
	return say(cache, addr, true, pin, on);
}

/* Cold blocks go, since others need the room: see advice.h. */

/* Bytes of a slot at the end of a block that is here: its part, where others are on it too. */
static uint64_t part_of(const struct glk_map *map, uint32_t slot)
{
	uint64_t on = map->count[slot] ? map->count[slot] : 1;

	return (glk_slot_bytes(map) + on - 1) / on;
}

/* Bytes of a block that is listed which go; 0: it may not. As glk_spill_may(), without a record: there may be many of
 * them. */
static uint64_t bytes_of(const struct glk_arena *arena, const struct glk_extent *e)
{
	uint64_t placed;

	if (glk_extent_away(e) || glk_part_is_out(arena, e) || arena->ops->stays)
		return 0;
	placed = arena->ops->fixed ? 0 : glk_beside_placed(&arena->map, e);
	return glk_part_may_go(arena, e) - placed;
}

/* What the GPU gets back of it: a small one may be all that is on a page. */
static uint64_t worth(const struct glk_arena *arena, const struct glk_extent *e)
{
	uint32_t first = glk_extent_first(&arena->map, e),
		 last = glk_extent_last(&arena->map, e);
	uint64_t bytes = bytes_of(arena, e);

	if (bytes < glk_extent_asked(e))
		return bytes;
	if (first == last)
		return part_of(&arena->map, first);
	return ((uint64_t)(last - first - 1) << arena->map.shift) +
		part_of(&arena->map, first) + part_of(&arena->map, last);
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

/* One that cannot go now is the newest from here on, and those behind have their turn. What it is worth, or an
 * error of the driver after which none would. */
static int64_t send_one(struct glk_arena *arena, struct glk_extent *e)
{
	uint64_t size = worth(arena, e), bytes = bytes_of(arena, e);
	int err = glk_spill_victim(arena, e);

	if (err == -EIO || err == -ENODEV)
		return err;
	if (!err) {
		glk_advice_leave(arena, e);
		arena->gpu->victims++;
		arena->gpu->victim_bytes += bytes;
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
