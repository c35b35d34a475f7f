/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which memory a stream may have. Memory that was last used on the stream itself is its own
 * in stream order; other memory serves it by the policy of the section stream: when it is
 * known to be behind it, to have finished, or behind a stream wait.
 */
#include "base/conf.h"
#include "cache/arena/request.h"

/* Whether memory needs no look. */
static bool is_own(const struct glk_arena *arena, const struct glk_stream *stream,
	const struct glk_use *use)
{
	return arena->ops->own && !glk_stream_foreign(stream, use);
}

bool glk_request_may(struct glk_arena *arena, const struct glk_request *request,
	const struct glk_use *use, unsigned *ret_waits)
{
	return arena->ops->may(arena, request, use, ret_waits);
}

int glk_request_order(
	struct glk_arena *arena, struct glk_request *request, struct glk_use *use)
{
	if (!glk_stream_foreign(request->stream, use))
		return 0;
	return arena->ops->order(arena, request, use);
}

bool glk_common_may(struct glk_arena *arena, const struct glk_request *request,
	const struct glk_use *use, unsigned *ret_waits)
{
	struct glk_cache *gpu = arena->gpu;

	*ret_waits = glk_clock_waits(&gpu->streams, use, request->stream);
	return !*ret_waits ||
		(*ret_waits < GLK_WAITS_NEVER &&
			glk_peek_relaxed(&gpu->conf->stream_internal_dependencies));
}

int glk_common_order(
	struct glk_arena *arena, struct glk_request *request, struct glk_use *use)
{
	struct glk_cache *gpu = arena->gpu;

	if (glk_clock_waits(&gpu->streams, use, request->stream)) {
		request->called = request->waited = true;
		glk_cache_climbed(gpu, GLAKE_RUNG_CROSS_STREAM);
	}
	return glk_clock_order(&gpu->streams, use, request->stream);
}

const struct glk_arena_ops glk_arena_common = {
	.kind = GLAKE_ARENA_COMMON,
	.may = glk_common_may,
	.order = glk_common_order,
	.own = true,
	.waits = true,
};

int glk_request_order_page(
	struct glk_arena *arena, struct glk_request *request, uint32_t id)
{
	struct glk_map *map = &arena->map;
	struct glk_page *page = glk_map_page(map, id);
	struct glk_use use = glk_page_use(map, id), was = use;
	int err = glk_request_order(arena, request, &use);

	if (glk_use_same(&use, &was))
		return err;
	if (page->aliases == 1)
		glk_use_set(map, page->first_alias,
			page->first_alias + glk_page_slots(map, page) - 1, &use);
	else
		page->use = use;
	return err;
}

/* Whether all stale mappings that reach into a place may go now. */
static bool stale_ready(
	struct glk_arena *arena, struct glk_map *map, uint32_t first, uint32_t last)
{
	struct glk_limbo limbo = glk_request_limbo(arena);
	uint32_t slot = first;

	while (slot <= last) {
		struct glk_mapping m;

		slot = glk_bits_first(map->mapped, slot, last);
		if (slot == GLK_BITS_NONE)
			return true;
		if (glk_bit_get(map->usable, slot)) {
			slot = glk_bits_first_clear(map->usable, slot, last);
			if (slot == GLK_BITS_NONE)
				return true;
			continue;
		}
		/* without a page: the driver refused to unmap it, it is out of use */
		if (!map->page[slot])
			return false;
		m = glk_mapping_at(map, slot);
		if (!glk_limbo_ready(&limbo, map, m.first, m.last))
			return false;
		slot = m.last + 1;
	}
	return true;
}

/* Slots that were freed together have the same use, and what is found for one holds for all. */
struct same {
	struct glk_use was, is;
	uint32_t waits;
	bool crowd; /* one of those so far has waits for all of the crowd */
};

int glk_request_order_run(struct glk_arena *arena, struct glk_request *request,
	uint32_t first, uint32_t last)
{
	struct glk_map *map = &arena->map;
	struct glk_use_walk walk = glk_use_begin(map, first, last);
	struct same same = {0};
	struct glk_use_run run;
	int err;

	while (glk_use_next(map, &walk, &run)) {
		struct glk_use use = *glk_use_in(map, &run);

		if (!glk_stream_foreign(request->stream, &use))
			continue;
		if (!glk_use_same(&same.was, &use)) {
			same.was = use;
			err = glk_request_order(arena, request, &use);
			if (err)
				return err;
			same.is = use;
		}
		glk_use_put(map, &run, &same.is);
	}
	return 0;
}

/* What has finished is forgotten on the way, so that it is not asked about again. False if the
 * policy forbids the use. */
static bool look(const struct glk_seek *seek, struct glk_use *use, struct same *same)
{
	struct glk_arena *arena = seek->arena;

	if (glk_use_same(&same->was, use)) {
		*use = same->is;
		return true;
	}
	same->was = *use;
	glk_clock_forget(&arena->gpu->streams, use);
	same->is = *use;
	same->waits = 0;
	if (is_own(arena, seek->request->stream, use))
		return true;
	same->crowd |= glk_use_crowded(use);
	return glk_request_may(arena, seek->request, use, &same->waits);
}

/* Whether a stream was the last to use all of a run in a word of the bitmaps, as far as one look tells. */
static inline bool word_own(const struct glk_map *map, uint32_t w, uint32_t first,
	uint32_t last, uint64_t mask)
{
	uint64_t part = glk_bits_mask(w, first, last);
	uint64_t edges = map->edge[w] & part;
	uint64_t shared = glk_mapping_starts(map, w, map->shared[w] & part, first);
	uint32_t begin = w == first >> 6 ? first : w << 6;

	if (map->use[glk_use_slot(map, begin)].streams & ~mask)
		return false;
	for (; edges; edges &= edges - 1) {
		uint32_t slot = w << 6 | (uint32_t)__builtin_ctzll(edges);

		if (map->use[slot].streams & ~mask)
			return false;
	}
	for (; shared; shared &= shared - 1) {
		uint32_t slot = w << 6 | (uint32_t)__builtin_ctzll(shared);

		if (glk_map_page(map, map->page[slot])->use.streams & ~mask)
			return false;
	}
	return true;
}

/* The first slot of a place whose word is not a stream's own, where a closer look begins; behind the
 * place: all of it is. */
static inline uint32_t own_until(
	const struct glk_map *map, uint32_t first, uint32_t last, uint64_t mask)
{
	for (uint32_t w = first >> 6; w <= last >> 6; w++) {
		if (!word_own(map, w, first, last, mask))
			return w == first >> 6 ? first : w << 6;
	}
	return last + 1;
}

/* Counts the waits of a place, slot by slot, so that places with less of other streams' memory
 * win; false if the policy forbids it, or the place loses. */
static bool count_waits(const struct glk_seek *seek, struct glk_map *map, uint32_t first,
	uint32_t last, struct glk_fit *fit)
{
	const struct glk_stream *stream = seek->request->stream;
	bool own = seek->arena->ops->own, crowd = stream->bit == GLK_STREAM_CROWD;
	uint64_t mask = glk_stream_mask(stream);
	struct same same = {0};
	struct glk_use_walk walk;
	struct glk_use_run run;

	fit->own = own;
	if (own && !crowd)
		first = own_until(map, first, last, mask);
	if (first > last)
		return true;
	walk = glk_use_begin(map, first, last);
	while (glk_use_next(map, &walk, &run)) {
		struct glk_use use = *glk_use_in(map, &run);
		uint64_t streams = use.streams, named = use.named;

		if (own && !(streams & ~mask) &&
			(!crowd || !glk_stream_foreign(stream, &use)))
			continue;
		fit->own = false;
		if (!look(seek, &use, &same))
			return false;
		if (use.streams != streams || use.named != named)
			glk_use_put(map, &run, &use);
		fit->waits += same.waits % GLK_WAITS_LATE * (run.last - run.first + 1);
		fit->late |= same.waits >= GLK_WAITS_LATE;
		if (fit->waits > (fit->late ? fit->most_late : fit->most))
			return false;
	}
	fit->crowd = same.crowd;
	return true;
}

/* Counts the slots of a place whose page is taken by an earlier one; false if one of them may
 * not lose its mapping now. */
static bool count_taken(struct glk_arena *arena, struct glk_map *map, uint32_t first,
	uint32_t last, struct glk_fit *fit)
{
	struct glk_limbo limbo = glk_request_limbo(arena);

	map->space->mark++;
	for (uint32_t w = first >> 6; w <= last >> 6; w++) {
		uint64_t left = glk_mapping_starts(map, w,
			map->shared[w] & map->usable[w] & glk_bits_mask(w, first, last),
			first);

		for (; left; left &= left - 1) {
			uint32_t slot = w << 6 | (uint32_t)__builtin_ctzll(left), slots;
			struct glk_mapping m;

			if (!glk_slot_is_taken(map, slot))
				continue;
			m = glk_mapping_from(map, slot);
			if (!glk_limbo_ready(&limbo, map, m.first, m.last))
				return false;
			slots = (m.last < last ? m.last : last) - slot + 1;
			fit->maps += slots;
			fit->stale += slots;
			fit->score += 5 * (uint64_t)slots;
		}
	}
	return true;
}

/* The same for idle pages at its ends that have to go. */
static bool ends_ready(
	struct glk_arena *arena, struct glk_map *map, uint32_t first, uint32_t last)
{
	struct glk_mapping low = glk_fit_end(map, first, first, last);
	struct glk_mapping high = glk_fit_end(map, last, first, last);
	struct glk_limbo limbo = glk_request_limbo(arena);

	return (low.first > low.last ||
		       glk_limbo_ready(&limbo, map, low.first, low.last)) &&
		(high.first > high.last ||
			glk_limbo_ready(&limbo, map, high.first, high.last));
}

bool glk_place_on_host(const struct glk_arena *arena, const struct glk_request *request,
	uint32_t first, uint32_t last)
{
	const struct glk_map *map = &arena->map;

	return map->hosted && !glk_request_node(arena, request)->gpu &&
		glk_bits_meet(map->host, map->usable, first, last);
}

bool glk_place_check(struct glk_map *map, uint32_t first_slot, uint32_t last_slot,
	struct glk_fit *fit, void *arg)
{
	const struct glk_seek *seek = arg;
	struct glk_arena *arena = seek->arena;
	uint32_t end = glk_map_end(map);

	if (glk_is_claimed(map, first_slot, last_slot))
		return false;
	/* nothing is mapped above it, and no page there has a use */
	if (first_slot >= end) {
		fit->own = arena->ops->own;
		return true;
	}
	if (last_slot >= end)
		last_slot = end - 1;
	if (glk_place_on_host(arena, seek->request, first_slot, last_slot))
		return false;
	if (fit->stale && !stale_ready(arena, map, first_slot, last_slot))
		return false;
	if (fit->trims && !ends_ready(arena, map, first_slot, last_slot))
		return false;
	if (glk_bits_meet(map->shared, map->usable, first_slot, last_slot) &&
		!count_taken(arena, map, first_slot, last_slot, fit))
		return false;
	fit->own = arena->ops->own && glk_clock_alone(&arena->gpu->streams);
	if (fit->own)
		return true;
	return count_waits(seek, map, first_slot, last_slot, fit);
}
