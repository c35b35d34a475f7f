/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What is kept of blocks that are away, and what is booked when they go and come: see away.h. */
#include "cache/advice.h"
#include "cache/away.h"
#include "cache/marks.h"

/*
 * What an extent keeps of its contents, with one content: see map/space/part.h. The owner of a run is
 * the bin of its block; small blocks of a slot have one content together, whose owner is how many they
 * are.
 */

void glk_away_depart(struct glk_arena *arena, struct glk_extent *e,
	const struct glk_use *use, uint32_t run)
{
	uint32_t bin = glk_load_relaxed(&e->bin);
	struct glk_cache *cache = arena->gpu;
	struct glk_map *map = &arena->map;

	glk_beside_count(arena, e, false);
	glk_slots_leave(map, glk_extent_first(map, e), glk_extent_last(map, e), use);
	if (run && e->nested)
		glk_store_at(&cache->mover.store, run)->owner++;
	else if (run)
		glk_store_at(&cache->mover.store, run)->owner = bin;
	glk_store_relaxed(&e->kept, run);
	glk_store_release(&e->bin, GLK_EXTENT_AWAY); /* pairs with: glk_extent_away */
	cache->away += glk_extent_asked(e);
	cache->away_blocks++;
	if (run) {
		cache->spills++;
		cache->spilled += glk_extent_asked(e);
	} else {
		cache->discards++;
		cache->discarded += glk_extent_asked(e);
	}
	GLK_PROBE3(spill, cache->device, glk_load_relaxed(&e->addr), glk_extent_asked(e));
}

/* It is here again, or never will be: what is kept of it is nobody's. The bin it was for. */
static uint32_t forget(struct glk_arena *arena, const struct glk_extent *e, uint64_t read)
{
	uint32_t kept = glk_load_relaxed(&e->kept), run = kept & GLK_KEPT_RUN,
		 bin = GLK_BIN_MARKED;
	struct glk_cache *cache = arena->gpu;
	struct glk_store *store = &cache->mover.store;

	cache->suspended_blocks -= (kept & GLK_KEPT_SUSPENDED) > 0;
	arena->suspended_blocks -= (kept & GLK_KEPT_TAGGED) > 0;
	cache->away -= glk_extent_asked(e);
	cache->away_blocks--;
	if (run && !e->nested)
		bin = glk_store_at(store, run)->owner;
	if (run && (!e->nested || !--glk_store_at(store, run)->owner))
		glk_store_put(store, run, read);
	return bin;
}

bool glk_away_suspended(const struct glk_extent *e)
{
	return glk_extent_lacks(e) && glk_load_relaxed(&e->kept) & GLK_KEPT_SUSPENDED;
}

void glk_away_suspend(struct glk_cache *cache, struct glk_extent *e)
{
	/* each piece says so for itself */
	if (glk_part_is(e))
		return;
	glk_or_relaxed(&e->kept, GLK_KEPT_SUSPENDED);
	cache->suspended_blocks++;
}

bool glk_away_tagged(const struct glk_extent *e)
{
	return glk_extent_lacks(e) && glk_load_relaxed(&e->kept) & GLK_KEPT_TAGGED;
}

void glk_away_tag(struct glk_arena *arena, struct glk_extent *e)
{
	if (glk_part_is(e)) /* likewise */
		return;
	glk_or_relaxed(&e->kept, GLK_KEPT_TAGGED);
	arena->suspended_blocks++;
}

uint32_t glk_away_run(const struct glk_extent *e)
{
	return glk_load_relaxed(&e->kept) & GLK_KEPT_RUN;
}

void glk_away_mark(struct glk_cache *cache, struct glk_extent *e, uint32_t stream)
{
	if (stream == glk_load_relaxed(&e->stream))
		return;
	glk_stream_enter(&cache->streams, stream);
	glk_marks_add(&cache->streams, e, stream);
}

void glk_away_restore(
	struct glk_arena *arena, struct glk_extent *e, uint32_t on, uint32_t bin)
{
	bool advised = glk_advice_is_said(arena, e);
	struct glk_cache *cache = arena->gpu;

	glk_away_mark(cache, e, on ? on : cache->mover.back);
	/* what lies on the host goes to no bin: others would find it there */
	if (glk_marks_any(e) || advised || glk_beside_placed(&arena->map, e))
		bin = GLK_BIN_MARKED;
	glk_store_relaxed(&e->pins, 0);
	glk_store_release(&e->bin, bin); /* pairs with: glk_extent_away */
}

void glk_away_arrive(
	struct glk_arena *arena, struct glk_extent *e, uint32_t on, uint64_t read)
{
	struct glk_cache *cache = arena->gpu;

	glk_away_restore(arena, e, on, forget(arena, e, read));
	glk_beside_count(arena, e, true);
	cache->fetches++;
	cache->fetched += glk_extent_asked(e);
	GLK_PROBE3(fetch, cache->device, glk_load_relaxed(&e->addr), glk_extent_asked(e));
}

void glk_away_drop(struct glk_arena *arena, struct glk_extent *e)
{
	uint32_t id = glk_extent_id(&arena->map, e);

	/* what writes it is the stream that writes what comes next */
	forget(arena, e, 0);
	glk_store_relaxed(&e->bin, 0);
	glk_lookup_leave(&arena->map, id);
	glk_extent_give_back(&arena->map, id);
}
