/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What is booked of small blocks that are away: those of a slot have one content together, whose owner is how many
 * they are; each keeps its run. And what is booked of any block that is here again: see away.h.
 */
#include "move/advice.h"
#include "move/away.h"
#include "move/marks.h"

uint32_t glk_kept_run(const struct glk_extent *e)
{
	return glk_load_relaxed(&e->kept) & GLK_KEPT_RUN;
}

/* How many of the GPU went with it, or of the arena. */
static void count(struct glk_arena *arena, uint32_t kept, uint64_t more)
{
	arena->gpu->suspended_blocks += kept & GLK_KEPT_SUSPENDED ? more : 0;
	arena->suspended_blocks += kept & GLK_KEPT_TAGGED ? more : 0;
}

void glk_kept_depart(struct glk_arena *arena, struct glk_extent *e,
	const struct glk_use *use, uint32_t run, uint32_t why)
{
	struct glk_cache *cache = arena->gpu;
	struct glk_map *map = &arena->map;
	uint64_t bytes = glk_extent_asked(e);

	glk_beside_count(arena, e, false);
	glk_slots_leave(map, glk_extent_first(map, e), glk_extent_last(map, e), use);
	if (run)
		glk_store_at(&cache->mover.store, run)->owner++;
	glk_guard_left(arena, e);
	glk_store_relaxed(&e->kept, run | why);
	glk_store_release(&e->bin, GLK_EXTENT_AWAY); /* pairs with: glk_extent_away */
	count(arena, why, 1);
	cache->away += bytes;
	cache->away_blocks++;
	if (run) {
		cache->spills++;
		cache->spilled += bytes;
	} else {
		cache->discards++;
		cache->discarded += bytes;
	}
	GLK_PROBE3(spill, cache->device, glk_load_relaxed(&e->addr), bytes);
}

/* It is here again, or never will be: what is kept of it is nobody's. */
static void forget(struct glk_arena *arena, const struct glk_extent *e, uint64_t read)
{
	struct glk_store *store = &arena->gpu->mover.store;
	uint32_t run = glk_kept_run(e);

	count(arena, glk_load_relaxed(&e->kept), UINT64_MAX);
	arena->gpu->away -= glk_extent_asked(e);
	arena->gpu->away_blocks--;
	if (run && !--glk_store_at(store, run)->owner)
		glk_store_put(store, run, read);
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

void glk_kept_arrive(struct glk_arena *arena, struct glk_extent *e, uint64_t read)
{
	struct glk_cache *cache = arena->gpu;

	forget(arena, e, read);
	glk_away_restore(arena, e, 0, GLK_BIN_MARKED);
	glk_beside_count(arena, e, true);
	cache->fetches++;
	cache->fetched += glk_extent_asked(e);
	GLK_PROBE3(fetch, cache->device, glk_load_relaxed(&e->addr), glk_extent_asked(e));
}

void glk_kept_drop(struct glk_arena *arena, struct glk_extent *e)
{
	uint32_t id = glk_extent_id(&arena->map, e);

	/* what writes it is the stream that writes what comes next */
	forget(arena, e, 0);
	glk_store_relaxed(&e->bin, 0);
	glk_lookup_leave(&arena->map, id);
	glk_extent_give_back(&arena->map, id);
}
