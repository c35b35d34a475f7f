/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The large block that was freed last: see latest.h. */
#include "cache/bin/latest.h"

#include "base/conf.h"
#include "cache/bin/hit.h"

/* Whether an extent merges with a block beside it when that is freed. Number 0, where there is none, is LIVE. */
static bool is_hole(const struct glk_extent *e)
{
	return !e->nested && glk_extent_state(e) == GLK_EXTENT_FREE;
}

/* Whether no hole apart from the one that it leaves suits a request of its size better: that has its size; or it
 * lies at an end of that, and the best one of the others is the very one beside it, or larger. */
static bool is_best(const struct glk_map *map, const struct glk_extent *e)
{
	bool before = is_hole(glk_extent_at(map, e->prev));
	bool behind = is_hole(glk_extent_at(map, e->next));
	struct glk_tree_walk walk GLK_UNFILLED;
	uint32_t beside = before ? e->prev : e->next, other;

	if (!before && !behind)
		return true;
	if (before && behind)
		return false;
	glk_tree_begin(&walk, &map->common, e->size);
	other = glk_tree_next(map, &walk);
	return !other || other == beside ||
		e->size + glk_extent_at(map, beside)->size <=
		glk_extent_at(map, other)->size;
}

/* Whether nothing but its place matters: it was used on its own stream, the only one there is, nobody does
 * anything beside, and no other rule says where blocks lie. */
static bool is_plain(const struct glk_arena *arena, const struct glk_extent *e,
	const struct glk_use *use)
{
	const struct glk_cache *cache = arena->gpu;
	const struct glk_stream *stream =
		glk_stream_at(&cache->streams, glk_load_relaxed(&e->stream));

	/* what else was done to a block its bin tells; none that its thread leaves behind can be had by others */
	return cache->conf->policy_bins && arena == &cache->arena &&
		stream->handle != GLK_STREAM_PER_THREAD && !glk_load_relaxed(&e->bin) &&
		!e->nested && !glk_load_relaxed(&e->whole) && use->streams &&
		use->streams == glk_stream_mask(stream) && !cache->ahead &&
		!cache->plans.inside && !arena->map.hosted &&
		!glk_load_relaxed(&cache->diverted);
}

bool glk_latest_keep(
	struct glk_arena *arena, const struct glk_extent *e, const struct glk_use *use)
{
	struct glk_latest *latest = &arena->gpu->latest;
	const struct glk_map *map = &arena->map;

	if (!is_plain(arena, e, use) || !is_best(map, e) ||
		(map->space->of[GLK_OF_NODE].stranded &&
			glk_supply_tight(arena, glk_extent_asked(e))))
		return false;
	latest->first = glk_extent_first(map, e);
	latest->last = glk_extent_last(map, e);
	latest->stream = glk_load_relaxed(&e->stream);
	/* pairs with: glk_latest_take */
	glk_store_release(&latest->word, glk_latest_kept(glk_extent_id(map, e)));
	return true;
}

bool glk_latest_put(struct glk_cache *cache, const struct glk_extent *e,
	const struct CUstream_st *name)
{
	const struct glk_thread_seat *place = glk_hit_place(cache);
	uint64_t asked = glk_extent_asked(e), size = e->size;
	const struct glk_row *row;

	if (place->serial != cache->serial)
		return false;
	row = ((struct glk_seat *)place->seat)->rows[glk_seat_hash(name)];
	if (glk_load_relaxed(&row->handle) != name || !glk_latest_give(cache, row, e))
		return false;
	glk_seat_free(place->seat, asked, size);
	return true;
}

void glk_latest_end(struct glk_cache *cache)
{
	struct glk_latest *latest = &cache->latest;
	struct glk_arena *arena = &cache->arena;
	struct glk_use use = glk_quick_now(cache, latest->stream);
	uint32_t word = glk_xchg_acq_rel(&latest->word, 0), id = word >> 1;
	const struct glk_extent *e = glk_extent_at(&arena->map, id);

	if (word & GLK_LATEST_TAKEN) {
		/* one that went away has left its slots, with the copy of its contents in their use */
		if (!glk_extent_lacks(e))
			glk_slots_again(&arena->map, latest->first, latest->last, &use);
		return;
	}
	glk_quick_gone(cache, e);
	glk_arena_merge(arena, id, &use);
}
