/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The place of a request among the addresses: see request.h. */
#include "cache/ahead.h"
#include "cache/arena/request.h"
#include "cache/bin/quick.h"

#include <errno.h>

/* Pages ahead, instead of mapping some. */
static void try_ahead(
	struct glk_arena *arena, const struct glk_want *want, struct glk_fit *fit)
{
	if (glk_ahead_of(arena) && fit->maps)
		glk_fit_ahead(&arena->map, want, fit);
}

/* The search again after one that found none, with more addresses. */
static GLK_COLD int extend(
	struct glk_arena *arena, const struct glk_want *want, struct glk_fit *ret_fit)
{
	struct glk_map *map = &arena->map;
	unsigned ranges = map->ranges;

	/* while that failed others may have had the last that there may be, for both */
	if (glk_map_extend(map, want->size) && map->ranges == ranges)
		return -ENOMEM;
	return glk_fit_search(map, want, ret_fit);
}

static inline int search(
	struct glk_arena *arena, const struct glk_want *want, struct glk_fit *ret_fit)
{
	return glk_fit_search(&arena->map, want, ret_fit) ? extend(arena, want, ret_fit)
							  : 0;
}

/* Whether blocks in bins or aside on the stream went back; for a tag, which has the same pages, the latter alone. */
static bool yields(const struct glk_arena *arena, const struct glk_request *request)
{
	struct glk_cache *gpu = arena->gpu;

	if (arena->binned)
		return glk_quick_yield(gpu, request);
	return arena->map.space == arena->home->map.space &&
		glk_quick_merge(gpu, &gpu->rows[request->stream->id]);
}

/*
 * The search goes on where it found no place, or one that costs something: again when bins gave blocks
 * back, if pages would have to be mapped; and again if it costs driver calls and the streams have more to
 * tell. New events are recorded only where mappings may have to go; a stream wait records its own.
 */
static GLK_COLD int seek_on(struct glk_arena *arena, struct glk_request *request,
	const struct glk_want *want, int err, struct glk_fit *ret_fit)
{
	struct glk_streams *streams = &arena->gpu->streams;
	bool learned;

	if ((err || ret_fit->maps) && yields(arena, request))
		err = search(arena, want, ret_fit);
	for (int i = 0; i < GLK_DRAINS && (err || ret_fit->maps) &&
		want->kind != GLK_FIT_NEST && glk_supply_drain(arena, want->size);
		i++)
		err = search(arena, want, ret_fit);
	if (err)
		return glk_refusal_addresses(&arena->map, want->size);
	try_ahead(arena, want, ret_fit);
	if (!ret_fit->maps && !ret_fit->waits)
		return 0;
	learned = ret_fit->maps ? glk_event_poll(streams) : glk_event_ask_few(streams);
	if (!ret_fit->maps && ret_fit->crowd && glk_event_poll_crowd(streams))
		learned = true;
	if (!learned)
		return 0;
	err = search(arena, want, ret_fit);
	if (err)
		return glk_refusal_addresses(&arena->map, want->size);
	try_ahead(arena, want, ret_fit);
	return 0;
}

int glk_place_seek(struct glk_arena *arena, struct glk_request *request,
	const struct glk_want *want, struct glk_fit *ret_fit)
{
	int err;

	do {
		err = search(arena, want, ret_fit);
		if (err || ret_fit->maps || ret_fit->waits)
			err = seek_on(arena, request, want, err, ret_fit);
	} while (!err && glk_ahead_meet(arena, ret_fit->offset, want->size));
	return err;
}
