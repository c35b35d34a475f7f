/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Streams that keep getting each other's large blocks wait for each other: each such request costs an event and a wait.
 * As long as memory is plentiful such a stream gets an arena of its own. Its large blocks come from there, so that what
 * it freed is there for it. The arenas share their pages: when more would be held than the target, idle pages of one
 * back blocks of another. The target is higher as long as any stream has an arena, see fill.c.
 *
 * Where threads meet at the lock again and again a stream that one of them uses gets one too, and then requests and frees in
 * it need but a part of the lock: see cache/apart.h.
 *
 * When memory is not plentiful any more the streams go back to the arena of all; what they leave lies idle. An arena
 * whose stream has left it, or has ended, is for the next stream that needs one.
 */
#include "cache/bin/own.h"

#include "base/error.h"
#include "base/thread.h"
#include "cache/bin/quick.h"

/* Addresses of a step, as a part of the memory of the GPU. */
#define STEP_PART 8

/* Requests that met others, more than one in GLK_TROUBLE of all, before streams get arenas because of that. */
#define MEETS 1024

/* Requests and frees while the lock is divided that make up for the join, and times at most that it then stays as it
 * is. */
#define LASTS 16
#define RESTS 15

/* `met`: because threads meet. */
static bool may(struct glk_cache *cache, bool met)
{
	return glk_fill_is_roomy(cache, met) && !cache->ahead && !glk_guard_ops(cache);
}

/* What was done apart is booked. */
static void joined(struct glk_lock *lock)
{
	struct glk_cache *cache =
		(void *)((char *)lock - offsetof(struct glk_cache, lock));
	struct glk_owns *owns = glk_load_relaxed(&cache->owns);
	uint32_t served = 0, freed = 0;

	for (uint32_t i = 0; i < glk_load_relaxed(&owns->made); i++) {
		struct glk_own_part *part = &owns->part[i];

		if (!part->used)
			continue;
		glk_slots_join(&owns->at[i].map, &part->apart);
		served += part->served;
		freed += part->freed;
		part->served = part->freed = 0;
		part->used = false;
	}
	cache->served += served;
	owns->apart += served + freed;
	glk_times_pass(&cache->times[GLK_TIMED_REQUEST], served);
	glk_times_pass(&cache->times[GLK_TIMED_FREE], freed);
	owns->rests = served + freed >= LASTS ? 0 : owns->rests * 2 + 1;
	if (owns->rests > RESTS)
		owns->rests = RESTS;
	owns->rest = owns->rests;
}

void glk_own_divide(struct glk_cache *cache)
{
	struct glk_owns *owns = glk_load_relaxed(&cache->owns);

	if (owns->rest) {
		owns->rest--;
		return;
	}
	cache->crowded = true;
	/* all that is freed until it is joined has the tick of now, which no event tells of yet */
	cache->streams.tick++;
	glk_lock_divide(&cache->lock);
}

static struct glk_owns *make(struct glk_cache *cache)
{
	struct glk_owns *owns = glk_region_new(sizeof(*owns));

	if (!owns)
		return NULL;
	owns->parts = (struct glk_lock_parts){owns->lock, GLK_OWNS, joined};
	glk_lock_make_parts(&cache->lock, &owns->parts);
	return owns;
}

/* The number of one that is no stream's; 0: there is none. */
static uint8_t take(struct glk_cache *cache)
{
	struct glk_owns *owns = glk_load_relaxed(&cache->owns);
	struct glk_arena *arena;
	uint32_t i;

	if (!owns)
		owns = make(cache);
	/* pairs with: glk_own_made */
	glk_store_release(&cache->owns, owns);
	if (!owns || owns->taken == GLK_OWNS_ALL)
		return 0;
	i = (uint32_t)__builtin_ctz(~owns->taken);
	arena = &owns->at[i];
	if (i == glk_load_relaxed(&owns->made)) {
		/* before its addresses can be found */
		arena->binned = cache->arena.binned;
		arena->number = i + 1;
		if (glk_arena_init(arena, cache, cache->arena.ops, &cache->space,
			    glk_arena_size(cache, cache->memory / STEP_PART)))
			return 0;
		glk_store_release(&owns->made, i + 1); /* likewise */
	}
	owns->taken |= UINT32_C(1) << i;
	return (uint8_t)(i + 1);
}

/* What lies aside on the stream stays there: it is known by its arena. */
static void leave(struct glk_cache *cache, struct glk_row *row)
{
	glk_load_relaxed(&cache->owns)->taken &=
		~(UINT32_C(1) << (glk_load_relaxed(&row->own) - 1));
	glk_store_relaxed(&row->own, 0);
}

/* There is to be as much trouble again before a stream gets one. */
static void forget(struct glk_cache *cache)
{
	cache->waits.sum = cache->meets.sum = 0;
	cache->waited = cache->crowded = false;
}

void glk_own_leave(struct glk_cache *cache)
{
	for (uint32_t i = 1; glk_own_any(cache) && i <= cache->last_row; i++)
		if (glk_load_relaxed(&cache->rows[i].own))
			leave(cache, &cache->rows[i]);
	forget(cache);
}

/* It goes on without one where there is none. */
static void enter(struct glk_cache *cache, struct glk_row *row)
{
	struct glake_error why = glk_thread_current->error;
	uint8_t own = take(cache);

	/* pairs with: arena_of */
	glk_store_release(&row->own, own);
	if (own) {
		/* so that its list has room */
		glk_quick_merge(cache, row);
		return;
	}
	forget(cache);
	glk_error_back(&why);
}

void glk_own_waited(struct glk_cache *cache)
{
	if (cache->waited || !glk_trouble_note(&cache->waits, cache->served))
		return;
	cache->waited = may(cache, false);
	if (!cache->waited)
		cache->waits.sum = 0;
}

bool glk_own_met(struct glk_cache *cache, const struct glk_row *row)
{
	if (!cache->crowded) {
		glk_trouble_note(&cache->meets, cache->sum.allocs);
		if (cache->meets.sum < MEETS * GLK_TROUBLE)
			return false;
		cache->crowded = may(cache, true);
		cache->meets.sum = 0;
	}
	return glk_own_is_due(cache, row);
}

/* Whether an arena has a place for so many bytes, or can have more addresses. */
static bool has_place(struct glk_arena *arena, uint64_t size)
{
	struct glake_error why = glk_thread_current->error;
	struct glk_map *map = &arena->map;
	bool has =
		glk_tree_largest(map, &map->common) >= size || !glk_map_extend(map, size);

	glk_error_back(&why);
	return has;
}

/* Whether one that has an arena, or is due one, has met others of late. */
static bool meets(const struct glk_cache *cache, const struct glk_row *row)
{
	return cache->crowded && row->met >= (glk_load_relaxed(&row->own) ? 1 : GLK_MET);
}

/* Waits alone are no reason any more: what threads that meet may hold is not for them. */
static void stay(struct glk_cache *cache, struct glk_row *row)
{
	cache->waits.sum = 0;
	cache->waited = false;
	if (glk_load_relaxed(&row->own))
		leave(cache, row);
}

struct glk_arena *glk_own_arena(
	struct glk_cache *cache, struct glk_row *row, uint64_t size)
{
	bool own = glk_load_relaxed(&row->own), due = glk_own_is_due(cache, row);

	if ((own || due) && !may(cache, cache->crowded))
		glk_own_leave(cache);
	else if ((own || due) && !meets(cache, row) && !may(cache, false))
		stay(cache, row);
	else if (due)
		enter(cache, row);
	if (glk_load_relaxed(&row->own) &&
		!has_place(glk_own_numbered(cache, glk_load_relaxed(&row->own)),
			size + glk_slot_bytes(&cache->arena.map)))
		/* it may have lost it meanwhile */
		glk_own_end(cache, row);
	return glk_own_numbered(cache, glk_load_relaxed(&row->own));
}

void glk_own_end(struct glk_cache *cache, struct glk_row *row)
{
	if (glk_load_relaxed(&row->own))
		leave(cache, row);
}

void glk_own_fini(struct glk_cache *cache)
{
	struct glk_owns *owns = glk_load_relaxed(&cache->owns);

	glk_lock_end_parts(&cache->lock);
	if (owns)
		glk_region_free(owns, sizeof(*owns));
	glk_store_relaxed(&cache->owns, NULL);
}
